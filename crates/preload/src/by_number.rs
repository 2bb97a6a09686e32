//! Where a system call's number leads: the dispatcher, made from the table (crate `calls`).

use std::ffi::{c_int, c_long};

use calls::Numbers;
use vfs::Errno;

use crate::entry::pointers::Out;
use crate::entry::syscall::{self, Arguments};
use crate::entry::{Inside, cached_fd, fdtable, report, set_errno};
use crate::processes::lifecycle;
use crate::start;

/// The bodies of all rooms, by the kernel's names.
mod bodies {
    pub(super) use crate::descriptors::calls::*;
    pub(super) use crate::entry::calls::*;
    pub(super) use crate::files::calls::*;
    pub(super) use crate::mappings::calls::*;
    pub(super) use crate::names::calls::*;
    pub(super) use crate::paths::calls::*;
    pub(super) use crate::processes::calls::*;
    pub(super) use crate::signals::calls::*;
}

/// How a system call is served.
enum Route {
    /// By a body with an `int` for its answer.
    Int(*const ()),
    /// As above, with a `long`.
    Long(*const ()),
    /// Not at all: its first argument may be a descriptor of ours.
    Unserved,
    /// It has nothing to do with files, or is looked at by the door alone.
    Kernel,
}

/// How a row is served.
macro_rules! route {
    (volume int $name:ident) => {
        Route::Int(bodies::$name as *const ())
    };
    (volume long $name:ident) => {
        Route::Long(bodies::$name as *const ())
    };
    (refused int $name:ident, $error:literal, $reason:literal) => {
        Route::Int(bodies::$name as *const ())
    };
    (unserved $reason:literal) => {
        Route::Unserved
    };
    (watched $what:ident) => {
        Route::Kernel
    };
    (kernel) => {
        Route::Kernel
    };
}

/// Makes the dispatcher of the table's rows: one that is served and has no body does not compile.
macro_rules! routes {
    ($(
        $number:literal $name:ident [$($argument:expr),*] $how:ident $(($($body:tt)*))?
        $(numbers($numbers:ident))? $(split($split:ident))? $(kind($kind:ident))?
        $(as [$($symbol:ident)*])?;
    )*) => {
        /// How each is served, by number.
        static ROUTES: [Route; calls::LAST + 1] = {
            let mut routes = [const { Route::Kernel }; calls::LAST + 1];
            $(routes[$number] = route!($how $($($body)*)?);)*
            routes
        };
    };
}
calls::for_each_row!(routes);

// SAFETY: addresses of functions.
unsafe impl Sync for Route {}

/// A body of each of the two answers, which may take less.
type IntCall = extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> c_int;
type LongCall = extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> c_long;

/// Serves a call by its number, with the kernel's answer or -1 and `errno`. `None`: the kernel is
/// to make it.
pub fn serve_number(number: c_long, given: &Arguments) -> Option<c_long> {
    let [a, b, c, d, e, f] = *given;
    // One without a route is of a later kernel.
    match ROUTES.get(number as usize).unwrap_or(&Route::Kernel) {
        // SAFETY: a body of that answer; what it does not take it ignores, as the calling
        // convention has it.
        Route::Int(body) => Some(
            unsafe { std::mem::transmute::<*const (), IntCall>(*body) }(a, b, c, d, e, f).into(),
        ),
        // SAFETY: as above.
        Route::Long(body) => {
            Some(unsafe { std::mem::transmute::<*const (), LongCall>(*body) }(a, b, c, d, e, f))
        }
        Route::Unserved => without_body(number, given, true),
        Route::Kernel => without_body(number, given, false),
    }
}

/// A call that has no body: the kernel is to make it, or has made it where it gives numbers, which
/// are noted.
fn without_body(number: c_long, given: &Arguments, is_refused: bool) -> Option<c_long> {
    start::process()?;
    let inside = Inside::new();
    let row = usize::try_from(number).ok().and_then(calls::row);
    if is_refused && let Some(desc) = fdtable::get(given[0] as c_int) {
        report::about(desc.member());
        let name = row.map_or("system call", |row| row.name);
        lifecycle::refused(name, "system-call-by-number", Errno::OPNOTSUPP);
        set_errno(Errno::OPNOTSUPP.raw_os_error());
        return Some(-1);
    }
    cached_fd::before_call(row);
    drop(inside);
    let numbers = row.map_or(Numbers::Unchanged, |row| row.numbers);
    let pair = match (numbers, number) {
        (Numbers::Gives, _) => {
            let fd = syscall::waiting(number, *given);
            cached_fd::given(fd as c_int);
            return Some(fd);
        }
        (Numbers::Pair, libc::SYS_socketpair) => given[3],
        (Numbers::Pair, _) => given[0],
        _ => return None,
    };
    let failed = syscall::waiting(number, *given);
    if failed == 0
        && let Ok(pair) = Out(pair as *mut [c_int; 2]).value()
    {
        pair.into_iter().for_each(cached_fd::given);
    }
    Some(failed)
}
