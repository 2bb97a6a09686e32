//! The [`interpose!`] macro around every symbol that is ours, and how its call is served.
//!
//! Each interposed function asks first whether the call concerns the volume. If not, the function
//! of the next library (glibc) runs with the same arguments.
//!
//! Only the symbols of a room (`symbols.rs`) use this: like them it may name all rooms. A served
//! call goes straight to its body, through no table.

use std::sync::atomic::Ordering;

use ddmap::Pagers;
use vfs::Errno;

use crate::entry::cancel::{self, Point};
use crate::entry::process::Process;
use crate::entry::thread::here;
use crate::entry::{self, Answer, Inside, Served, Stop, errno, fail, set_errno};
use crate::files::lost_pages;
use crate::paths::links;
use crate::processes::lifecycle;
use crate::start;

/// Serves one call: `body` inside, or `kernel` if it does not concern the volume.
///
/// A `body` whose wait a signal ended runs once more after the handler, if the kernel would restart
/// such a call.
#[inline]
pub fn serve<T: Answer>(
    function: &'static str,
    point: Point,
    mut body: impl FnMut(&'static Process) -> Served<T>,
    kernel: impl FnOnce() -> T,
) -> T {
    if !here().is_inside()
        && let Some(process) = start::process()
    {
        loop {
            if point == Point::Always
                && here().flags.load(Ordering::Relaxed) != 0
                && !here().serves_arrived()
            {
                cancel::act();
            }
            let inside = Inside::new();
            links::begin();
            let served = body(process);
            let left = links::was_left();
            drop(inside);
            match served {
                Ok(value) => return value,
                Err(Stop::Kernel) if left => {
                    let value = over(kernel());
                    if !(value.has_failed() && errno() == libc::ENOENT) {
                        return value;
                    }
                    return serve_walked(function, point, process, &mut body).unwrap_or_else(
                        || {
                            set_errno(libc::ENOENT);
                            value
                        },
                    );
                }
                Err(Stop::Kernel) => break,
                Err(stop) => {
                    if let Some(errno) = failed(function, point, &stop) {
                        return fail(errno);
                    }
                }
            }
        }
    }
    over(kernel())
}

/// A call that the kernel has served is over: the pages of its buffers may leave.
#[inline]
fn over<T>(value: T) -> T {
    if Pagers::any() {
        Pagers::let_go();
    }
    value
}

/// Serves a call once more if the kernel did not find its path: with its symlinks walked. `None`:
/// the path does not lead to the volume.
#[cold]
fn serve_walked<T: Answer>(
    function: &'static str,
    point: Point,
    process: &'static Process,
    body: &mut impl FnMut(&'static Process) -> Served<T>,
) -> Option<T> {
    loop {
        let inside = Inside::new();
        let served = links::walked(|| body(process));
        drop(inside);
        match served {
            Ok(value) => return Some(value),
            Err(Stop::Kernel) => return None,
            Err(stop) => {
                if let Some(errno) = failed(function, point, &stop) {
                    return Some(fail(errno));
                }
            }
        }
    }
}

/// What a call that failed tells the program; `None`: it is made again.
#[cold]
fn failed(function: &'static str, point: Point, stop: &Stop) -> Option<Errno> {
    match *stop {
        // Another process has removed what was found: no path leads to it any more.
        Stop::Errno(Errno::STALE) => Some(Errno::NOENT),
        Stop::Errno(vfs::INTERRUPTED) => {
            (!here().restarts.load(Ordering::Relaxed)).then_some(Errno::INTR)
        }
        Stop::Errno(vfs::BEGIN_ANEW) => {
            if point != Point::Never && !here().serves_arrived() {
                cancel::act();
            }
            None
        }
        Stop::Refused(reason, errno) => {
            let _inside = Inside::new();
            lifecycle::refused(function, reason, errno);
            Some(errno)
        }
        Stop::Errno(Errno::BADF) => (!entry::is_replaced()).then_some(Errno::BADF),
        // A page of the volume that gets no memory is not a lost page.
        Stop::Errno(Errno::IO) => {
            let errno = pmem::or_no_memory(Errno::IO);
            lost_pages::tell();
            Some(errno)
        }
        Stop::Errno(errno) => Some(errno),
        Stop::Kernel => unreachable!("served by the kernel"),
    }
}

/// Defines interposed functions:
/// `fn [name, alias](argument: type, ..) -> type = |process, kernel| { .. }`.
/// `kernel` calls the hidden function, or the second engine if that serves its name; the body gives
/// a [`Served`].
macro_rules! interpose {
    ($(
        $(#[$meta:meta])*
        fn $names:tt $args:tt -> $ret:ty
        = |$process:pat_param, $kernel:pat_param| $body:block
    )*) => {
        $($crate::interposed::interpose! {
            @row $names $names $args -> $ret = |$process, $kernel| $body
        })*
    };
    (@row [$($name:ident),+] [$first:ident $($more:tt)*] $args:tt -> $ret:ty
     = |$process:pat_param, $kernel:pat_param| $body:block) => {
        $($crate::interposed::interpose! {
            @one $name $first $args -> $ret = |$process, $kernel| $body
        })+
    };
    (@one $name:ident $first:ident ($($arg:ident : $ty:ty),* $(,)?) -> $ret:ty
     = |$process:pat_param, $kernel:pat_param| $body:block) => {
        // SAFETY: the symbol replaces glibc's of the same name and has its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            /// What the table says of it.
            const NAMED: calls::Named = calls::named(stringify!($name));
            static REAL: $crate::entry::Real =
                $crate::entry::Real::new(concat!(stringify!($name), "\0"));
            let hidden = move |$($arg: $ty),*| -> $ret {
                let _until_it_is_made =
                    const { NAMED.is_call }.then($crate::entry::thread::PassesNext::new);
                // SAFETY: the address is glibc's function of this name, whose signature this is;
                // the arguments are the program's own, or as good as those.
                unsafe {
                    std::mem::transmute::<usize, unsafe extern "C-unwind" fn($($ty),*) -> $ret>(
                        REAL.address(),
                    )($($arg),*)
                }
            };
            if const { NAMED.falls_away } && $crate::entry::calls_arrive() {
                return hidden($($arg),*);
            }
            let passed_on = move |$($arg: $ty),*| -> $ret {
                $crate::split::engine::passing(|| {
                    $crate::split::engine::call!(NAMED.split, $first hidden ($($arg),*))
                })
            };
            if const { $crate::entry::cached_fd::is_taker(NAMED.numbers) } {
                let first = [$($crate::entry::cached_fd::number(&$arg)),*].first().copied();
                first.map($crate::entry::fdtable::get);
            }
            let answer = $crate::interposed::serve(
                stringify!($name),
                NAMED.point,
                move |process| {
                    let $process = process;
                    let $kernel = passed_on;
                    $body
                },
                move || {
                    if const { $crate::entry::cached_fd::is_maker(NAMED.numbers) } {
                        $crate::entry::cached_fd::give_back();
                    }
                    let _until_it_ends =
                        const { $crate::entry::cached_fd::is_closer(NAMED.numbers) }
                            .then($crate::entry::cached_fd::Closes::new);
                    let _until_it_has_ended =
                        const { $crate::entry::cached_fd::is_announced(NAMED.numbers) }
                            .then($crate::entry::cached_fd::Announced::new);
                    $crate::mappings::page_faults::with_pages(
                        || $crate::split::engine::call!(NAMED.split, $first hidden ($($arg),*)),
                        || [$($crate::mappings::page_faults::address(&$arg)),*],
                    )
                },
            );
            if const { $crate::entry::cached_fd::is_giver(NAMED.numbers) } {
                $crate::entry::cached_fd::given($crate::entry::Answer::number(answer));
            }
            if const { $crate::entry::cached_fd::is_giver_of_streams(NAMED.numbers) } {
                let stream = $crate::entry::Answer::address(answer).cast();
                $crate::entry::cached_fd::given($crate::glibc::stdio::number_of(stream));
            }
            answer
        }
    };
}
pub(crate) use interpose;
