//! How a call is served, whichever way it comes: the bodies of system calls ([`bodies!`]), the
//! functions of the C library that are exported ([`interpose!`]), and what both go through.
//!
//! A call asks first whether it concerns the volume. If not, the second engine is asked, and then
//! the kernel serves it.
//!
//! Only the calls and symbols of a room use this: like them it may name all rooms. A served call
//! goes straight to its body, through no table.

use std::ffi::{c_int, c_long};
use std::sync::atomic::Ordering;

use ddmap::Pagers;
use vfs::Errno;

use crate::door;
use crate::entry::cancel;
use crate::entry::process::Process;
use crate::entry::syscall::Arguments;
use crate::entry::thread::{has_one_thread, here};
use crate::entry::{self, Answer, Inside, Served, Stop, errno, fail, set_errno};
use crate::files::lost_pages;
use crate::paths::links;
use crate::processes::lifecycle;
use crate::start;

/// Serves one call: `body` inside, or `kernel` if it does not concern the volume.
///
/// A `body` whose wait a signal ended runs once more after the handler, if the kernel would restart
/// such a call. Where its wait ended for another reason, `anew` is asked first, which may answer in
/// its place.
#[inline]
pub fn serve<T: Answer>(
    function: &'static str,
    mut body: impl FnMut(&'static Process) -> Served<T>,
    kernel: impl Fn() -> T,
    anew: impl Fn() -> Option<T>,
) -> T {
    if !here().is_inside()
        && !here().is_lent()
        && let Some(process) = start::process()
    {
        loop {
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
                    return serve_walked(function, process, &mut body, anew).unwrap_or_else(|| {
                        set_errno(libc::ENOENT);
                        value
                    });
                }
                Err(Stop::Kernel) => break,
                Err(stop) => match failed(function, &stop) {
                    Some(errno) => return fail(errno),
                    None => {
                        if let Some(value) = anew() {
                            return value;
                        }
                    }
                },
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
    process: &'static Process,
    body: &mut impl FnMut(&'static Process) -> Served<T>,
    anew: impl Fn() -> Option<T>,
) -> Option<T> {
    loop {
        let inside = Inside::new();
        let served = links::walked(|| body(process));
        drop(inside);
        match served {
            Ok(value) => return Some(value),
            Err(Stop::Kernel) => return None,
            Err(stop) => match failed(function, &stop) {
                Some(errno) => return Some(fail(errno)),
                None => {
                    if let Some(value) = anew() {
                        return Some(value);
                    }
                }
            },
        }
    }
}

/// What a call that failed tells the program; `None`: it is made again.
#[cold]
fn failed(function: &'static str, stop: &Stop) -> Option<Errno> {
    lifecycle::wait_if_ending();
    match *stop {
        // Another process has removed what was found: no path leads to it any more.
        Stop::Errno(Errno::STALE) => Some(Errno::NOENT),
        Stop::Errno(vfs::INTERRUPTED) => {
            (!here().restarts.load(Ordering::Relaxed)).then_some(Errno::INTR)
        }
        Stop::Errno(vfs::BEGIN_ANEW) => None,
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

/// What a system call answers, as its body gives it.
pub trait SystemAnswer: Answer {
    /// From the kernel's answer; of an error -1.
    fn of(answer: c_long) -> Self;
}

impl SystemAnswer for c_int {
    fn of(answer: c_long) -> Self {
        answer as Self
    }
}

impl SystemAnswer for c_long {
    fn of(answer: c_long) -> Self {
        answer
    }
}

impl SystemAnswer for isize {
    fn of(answer: c_long) -> Self {
        answer as Self
    }
}

/// An argument as the kernel takes it: its bytes, and zeros above.
#[inline]
pub fn word<T: Copy>(argument: T) -> usize {
    const { assert!(size_of::<T>() <= size_of::<usize>()) };
    let mut word = 0_usize;
    // SAFETY: as many bytes as the argument has, which fit.
    unsafe { (&raw mut word).cast::<T>().write_unaligned(argument) };
    word
}

/// All arguments of a call; those that it does not have are 0.
#[inline]
pub fn words<const GIVEN: usize>(given: [usize; GIVEN]) -> Arguments {
    std::array::from_fn(|at| given.get(at).copied().unwrap_or(0))
}

/// Whether the call of this name concerns the volume only if its first argument is a descriptor of
/// it.
pub const fn is_of_descriptor(name: &str) -> bool {
    calls::is_of_descriptor(calls::called(name).number)
}

/// Whether such a call is the kernel's for sure.
#[inline]
pub fn is_first_kernels(arguments: &[c_int]) -> bool {
    arguments.first().is_some_and(|fd| door::is_kernels(*fd))
}

/// Whether the C library's function of a call is a cancellation point: one of a call that may wait.
pub const fn waits(name: &str) -> bool {
    !matches!(name.as_bytes(), b"lseek" | b"fstat" | b"stat")
}

/// Whether a shortcut may ask the kernel itself: nobody can cancel the thread in this call. The
/// only thread can cancel itself, which it is told of before the call, as in the C library.
#[inline]
pub fn is_no_point(waits: bool) -> bool {
    !waits || has_one_thread() && !here().is_due()
}

/// A call whose wait was ended, for a reason that may be a cancellation: it is made again.
#[cold]
pub fn again<T: Answer>() -> Option<T> {
    cancel::end_if_due().then(|| fail(Errno::INTR))
}

/// The steps of a call: what the table says of its numbers (`SAID`), the volume, the second engine,
/// and `$hidden`, which makes it otherwise.
macro_rules! steps {
    (
        $function:expr, $first:ident
        ($($arg:ident : $ty:ty),*) -> $ret:ty, $hidden:ident, $anew:expr,
        |$process:pat_param, $kernel:pat_param| $body:block
    ) => {{
        let passed_on = move |$($arg: $ty),*| -> $ret {
            $crate::split::engine::passing(|| {
                $crate::split::engine::call!($first $hidden ($($arg),*))
            })
        };
        if const { $crate::entry::cached_fd::is_taker(SAID.numbers) } {
            let first = [$($crate::entry::cached_fd::number(&$arg)),*].first().copied();
            first.map($crate::entry::fdtable::get);
        }
        let answer = $crate::interposed::serve(
            $function,
            move |process| {
                let $process = process;
                let $kernel = passed_on;
                $body
            },
            move || {
                if const { $crate::entry::cached_fd::is_maker(SAID.numbers) } {
                    $crate::entry::cached_fd::give_back();
                }
                let _until_it_has_ended =
                    const { $crate::entry::cached_fd::is_announced(SAID.numbers) }
                        .then($crate::entry::cached_fd::Announced::new);
                $crate::mappings::page_faults::with_pages(
                    || $crate::split::engine::call!($first $hidden ($($arg),*)),
                    || [$($crate::mappings::page_faults::address(&$arg)),*],
                )
            },
            $anew,
        );
        if const { $crate::entry::cached_fd::is_giver(SAID.numbers) } {
            $crate::entry::cached_fd::given($crate::entry::Answer::number(answer));
        }
        answer
    }};
}
pub(crate) use steps;

/// The C library's function of this name, which an exported one hides, with its arguments.
macro_rules! hidden {
    ($name:ident ($($arg:ident : $ty:ty),*) -> $ret:ty) => {{
        static REAL: $crate::entry::Real =
            $crate::entry::Real::new(concat!(stringify!($name), "\0"));
        // SAFETY: the address is the C library's function of this name, whose signature this is;
        // the arguments are the program's own, or as good as those.
        unsafe {
            std::mem::transmute::<usize, unsafe extern "C-unwind" fn($($ty),*) -> $ret>(
                REAL.address(),
            )($($arg),*)
        }
    }};
}
pub(crate) use hidden;

/// Defines the bodies of system calls: `fn name(argument: type, ..) -> type = |process, kernel| {
/// .. }`, by the kernel's name. `kernel` has the second engine or the kernel make the call; the
/// body gives a [`Served`].
///
/// With `#[exported(names)]` the library exports functions of these names, too: shortcuts, which
/// go to the same body, and to the C library's function if the call is not served. The C library's
/// is the cancellation point: a thread of which something is due goes there at once, and its call
/// arrives by the door. Where no thread can be cancelled ([`is_no_point`]) the kernel is asked at
/// once. The library's own calls (the standard library makes them by these names)
/// are the kernel's at once.
macro_rules! bodies {
    ($(
        $(#[doc = $doc:literal])*
        $(#[exported $aliases:tt])?
        fn $name:ident $args:tt -> $ret:ty
        = |$process:pat_param, $kernel:pat_param| $body:block
    )*) => {
        $($crate::interposed::bodies! {
            @row $name [$($aliases)?] $args -> $ret = |$process, $kernel| $body
        })*
    };
    (@row $name:ident [] $args:tt -> $ret:ty = |$process:pat_param, $kernel:pat_param| $body:block)
    => {
        $crate::interposed::bodies! { @body $name $args -> $ret = |$process, $kernel| $body }
    };
    (@row $name:ident [($($alias:ident),+)] $args:tt -> $ret:ty
     = |$process:pat_param, $kernel:pat_param| $body:block) => {
        $crate::interposed::bodies! { @body $name $args -> $ret = |$process, $kernel| $body }
        $($crate::interposed::bodies! {
            @shortcut $alias $name $args -> $ret = |$process, $kernel| $body
        })+
    };
    (@body $name:ident ($($arg:ident : $ty:ty),* $(,)?) -> $ret:ty
     = |$process:pat_param, $kernel:pat_param| $body:block) => {
        pub(crate) extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            /// What the table says of it.
            const SAID: &calls::Row = calls::called(stringify!($name));
            let hidden = move |$($arg: $ty),*| -> $ret {
                let given = $crate::interposed::words([$($crate::interposed::word($arg)),*]);
                $crate::interposed::SystemAnswer::of($crate::entry::syscall::waiting(
                    SAID.number as std::ffi::c_long,
                    given,
                ))
            };
            $crate::interposed::steps! {
                stringify!($name), $name ($($arg: $ty),*) -> $ret, hidden,
                $crate::interposed::again, |$process, $kernel| $body
            }
        }
    };
    (@shortcut $alias:ident $name:ident ($($arg:ident : $ty:ty),* $(,)?) -> $ret:ty
     = |$process:pat_param, $kernel:pat_param| $body:block) => {
        const _: () = {
            // SAFETY: the symbol replaces the C library's of the same name, with its signature.
            #[unsafe(no_mangle)]
            unsafe extern "C-unwind" fn $alias($($arg: $ty),*) -> $ret {
                const SAID: calls::Named = calls::named(stringify!($alias));
                let point = move |$($arg: $ty),*| -> $ret {
                    $crate::interposed::hidden! { $alias ($($arg: $ty),*) -> $ret }
                };
                let raw = move |$($arg: $ty),*| -> $ret {
                    const { assert!([$(stringify!($arg)),*].len() <= 4) };
                    let given = $crate::interposed::words([$($crate::interposed::word($arg)),*]);
                    let number = const { calls::called(stringify!($name)).number };
                    let [a, b, c, d, ..] = given;
                    let number = number as std::ffi::c_long;
                    let answer = $crate::entry::syscall::kernel_of_four(a, b, c, d, number);
                    $crate::interposed::SystemAnswer::of(answer)
                };
                let thread = $crate::entry::thread::here();
                if thread.is_inside() {
                    // In the C library's function the thread could be cancelled.
                    return raw($($arg),*);
                }
                if thread.is_due() || thread.is_lent() {
                    return point($($arg),*);
                }
                let is_raw = || {
                    let waits = const { $crate::interposed::waits(stringify!($name)) };
                    $crate::interposed::is_no_point(waits)
                };
                let hidden = move |$($arg: $ty),*| -> $ret {
                    if is_raw() {
                        return raw($($arg),*);
                    }
                    let _until_it_is_made = $crate::entry::thread::PassesNext::new();
                    point($($arg),*)
                };
                if const { $crate::interposed::is_of_descriptor(stringify!($name)) }
                    && $crate::interposed::is_first_kernels(&[
                        $($crate::entry::cached_fd::number(&$arg)),*
                    ])
                {
                    // The C library's arrives by the door, which passes it on as well.
                    return if is_raw() { raw($($arg),*) } else { point($($arg),*) };
                }
                $crate::interposed::steps! {
                    stringify!($name), $name ($($arg: $ty),*) -> $ret, hidden,
                    move || Some(point($($arg),*)), |$process, $kernel| $body
                }
            }
        };
    };
}
pub(crate) use bodies;

/// Defines exported functions: `fn [name, alias](argument: type, ..) -> type = |process, kernel| {
/// .. }`. `kernel` calls the hidden function, or the second engine if that serves its name; the
/// body gives a [`Served`].
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
            const SAID: calls::Named = calls::named(stringify!($name));
            let hidden = move |$($arg: $ty),*| -> $ret {
                let _until_it_is_made =
                    const { SAID.is_call }.then($crate::entry::thread::PassesNext::new);
                $crate::interposed::hidden! { $name ($($arg: $ty),*) -> $ret }
            };
            $crate::interposed::steps! {
                stringify!($name), $first ($($arg: $ty),*) -> $ret, hidden,
                $crate::interposed::again, |$process, $kernel| $body
            }
        }
    };
}
pub(crate) use interpose;
