//! How a call of the program gets in: the [`interpose!`] macro around every symbol that is ours.
//!
//! Each interposed function asks first whether the call concerns the volume. If not, the function
//! of the next library (glibc) runs with the same arguments. While a thread is *inside* (its depth
//! is not 0), every interposed function goes straight to the kernel: what our own code calls is
//! never served by itself.
//!
//! Arguments that are pointers come as the wrappers of `pointers`.

pub(crate) mod cancel;
pub(crate) mod heap;
pub(crate) mod limit;
pub(crate) mod lock;
pub(crate) mod pointers;
mod refused;
pub(crate) mod report;
pub(crate) mod thread;
pub(crate) mod waiting;

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use vfs::Errno;

use crate::entry::cancel::Point;
use crate::entry::thread::here;
pub use crate::entry::thread::{Inside, outside};
use crate::paths::links;
use crate::processes::process::Process;

/// Why a call did not end in a value.
pub enum Stop {
    /// It failed with this error.
    Errno(Errno),
    /// It does not concern the volume: the kernel serves it.
    Kernel,
    /// The volume does not serve this: the reason is counted, the program gets the error.
    Refused(&'static str, Errno),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// What the body of an interposed function gives.
pub type Served<T> = Result<T, Stop>;

/// How a C function of this type says that it failed.
pub trait Answer: Copy + PartialEq {
    /// -1 or NULL.
    const FAILED: Self;

    /// Whether this is it.
    #[inline]
    fn has_failed(self) -> bool {
        self == Self::FAILED
    }
}

impl Answer for i32 {
    const FAILED: Self = -1;
}
impl Answer for i64 {
    const FAILED: Self = -1;
}
impl Answer for isize {
    const FAILED: Self = -1;
}
impl Answer for () {
    const FAILED: Self = ();

    fn has_failed(self) -> bool {
        false
    }
}
impl<T> Answer for *mut T {
    const FAILED: Self = std::ptr::null_mut();
}

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
        && let Some(process) = crate::processes::init::process()
    {
        loop {
            if point == Point::Always && here().flags.load(Ordering::Relaxed) != 0 {
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
                    let value = kernel();
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
    kernel()
}

/// Serves a call once more whose path the kernel does not find: with its symlinks walked. `None`:
/// it does not lead to the volume.
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

/// How often a number of ours was replaced by `dup2`.
static REPLACED: AtomicU32 = AtomicU32::new(0);

/// A number now stands for something else, and nobody has closed the old description yet.
pub fn number_replaced() {
    REPLACED.fetch_add(1, Ordering::Release);
}

/// Whether a number was replaced since this thread asked last: a call that found its description
/// closed may find the new one. Nothing else of it has happened.
fn is_replaced() -> bool {
    let now = REPLACED.load(Ordering::Acquire);
    here().replaced.swap(now, Ordering::Relaxed) != now
}

/// What a call that failed tells the program; `None`: it is made again.
#[cold]
fn failed(function: &'static str, point: Point, stop: &Stop) -> Option<Errno> {
    match *stop {
        // What was found and then removed by somebody else: a path leads to it no more.
        Stop::Errno(Errno::STALE) => Some(Errno::NOENT),
        Stop::Errno(vfs::INTERRUPTED) => {
            (!here().restarts.load(Ordering::Relaxed)).then_some(Errno::INTR)
        }
        Stop::Errno(vfs::BEGIN_ANEW) => {
            if point != Point::Never {
                cancel::act();
            }
            None
        }
        Stop::Refused(reason, errno) => {
            let _inside = Inside::new();
            report::refused(function, reason, errno);
            Some(errno)
        }
        Stop::Errno(Errno::BADF) => (!is_replaced()).then_some(Errno::BADF),
        // A page of the volume that has no memory yet, and gets none, is no lost one.
        Stop::Errno(Errno::IO) => Some(pmem::or_no_memory(Errno::IO)),
        Stop::Errno(errno) => Some(errno),
        Stop::Kernel => unreachable!("served by the kernel"),
    }
}

/// Sets `errno` and gives the failure value.
pub fn fail<T: Answer>(errno: Errno) -> T {
    set_errno(errno.raw_os_error());
    T::FAILED
}

/// Sets the thread's `errno`.
pub fn set_errno(value: i32) {
    // SAFETY: the address is this thread's own.
    unsafe { *libc::__errno_location() = value };
}

/// The thread's `errno`.
pub fn errno() -> i32 {
    // SAFETY: the address is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// The function that an interposed one hides, found once.
pub struct Real {
    name: &'static str,
    address: AtomicUsize,
}

impl Real {
    /// `name` ends with a NUL.
    pub const fn new(name: &'static str) -> Self {
        Self { name, address: AtomicUsize::new(0) }
    }

    /// Its address. A symbol that this glibc does not have ends the program: nobody can have called
    /// it.
    #[inline]
    pub fn address(&self) -> usize {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find(),
            address => address,
        }
    }

    #[cold]
    fn find(&self) -> usize {
        let _inside = Inside::new();
        // SAFETY: the name ends with a NUL by the contract of `new`.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast()) } as usize;
        if found == 0 {
            std::process::abort();
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Defines interposed functions:
/// `fn [name, alias](argument: type, ..) -> type = |process, kernel| { .. }`.
/// `kernel` calls the hidden function; the body gives a [`Served`].
macro_rules! interpose {
    ($(
        $(#[$meta:meta])*
        fn [$($name:ident),+] $args:tt -> $ret:ty
        = |$process:pat_param, $kernel:pat_param| $body:block
    )*) => {
        $($(
            $crate::entry::interpose! { @one $name $args -> $ret = |$process, $kernel| $body }
        )+)*
    };
    (@one $name:ident ($($arg:ident : $ty:ty),* $(,)?) -> $ret:ty
     = |$process:pat_param, $kernel:pat_param| $body:block) => {
        // SAFETY: the symbol replaces glibc's of the same name and has its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            static REAL: $crate::entry::Real =
                $crate::entry::Real::new(concat!(stringify!($name), "\0"));
            let hidden = move |$($arg: $ty),*| -> $ret {
                // SAFETY: the address is glibc's function of this name, whose signature this is;
                // the arguments are the program's own, or as good as those.
                unsafe {
                    std::mem::transmute::<usize, unsafe extern "C-unwind" fn($($ty),*) -> $ret>(
                        REAL.address(),
                    )($($arg),*)
                }
            };
            $crate::entry::serve(
                stringify!($name),
                const { $crate::entry::cancel::point(stringify!($name)) },
                move |process| {
                    let $process = process;
                    let $kernel = hidden;
                    $body
                },
                move || {
                    if const { $crate::descriptors::parked::is_maker(stringify!($name)) } {
                        $crate::descriptors::parked::give_back();
                    }
                    let _until_it_ends =
                        const { $crate::descriptors::parked::is_closer(stringify!($name)) }
                            .then($crate::descriptors::parked::Closes::new);
                    $crate::mappings::touched::with_pages(
                        || $crate::split::beneath::call!($name hidden ($($arg),*)),
                        || [$($crate::mappings::touched::address(&$arg)),*],
                    )
                },
            )
        }
    };
}
pub(crate) use interpose;

/// The lengths that a program may pass to one read or write (`MAX_RW_COUNT`).
pub const TRANSFER_BYTES_MAX: usize = 0x7fff_f000;

/// A status answer.
pub const DONE: Served<c_int> = Ok(0);
