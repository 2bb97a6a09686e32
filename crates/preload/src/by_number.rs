//! Serves system calls by their numbers: those that a program makes by `syscall`, and those that
//! arrive by the [`crate::door`].

use std::ffi::{c_int, c_long, c_void};

use vfs::Errno;

use crate::descriptors::openat2;
use crate::entry::cached_fd;
use crate::entry::fdtable;
use crate::entry::own_forms::entries_length;
use crate::entry::pointers::Bytes;
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::syscall::{Arguments, IntCall, LongCall, Route, route};
use crate::entry::{Served, Stop, outside};
use crate::files::kernel_aio;
use crate::mappings::cache_segments;
use crate::names::dir;
use crate::paths::credentials;
use crate::paths::cwd;
use crate::processes::{fork, lifecycle};

/// System calls for which the C library has no function, or one that says less. All that are not
/// named here change the identity.
fn special(process: &Process, number: c_long, given: &Arguments) -> Served<c_long> {
    let [a, b, c, ..] = *given;
    match number {
        libc::SYS_openat2 => openat2::open(process, given),
        libc::SYS_io_setup => Err(kernel_aio::begun("io_setup")),
        libc::SYS_io_uring_setup => Err(kernel_aio::begun("io_uring_setup")),
        libc::SYS_getdents => {
            let to = (Bytes(b as *mut c_void), entries_length(c as u32));
            Ok(dir::read_old_entries(process, a as c_int, to.0, to.1)? as c_long)
        }
        libc::SYS_getcwd => cwd::by_number(process, Bytes(a as *mut c_void), b),
        libc::SYS_exit_group => {
            lifecycle::leave(process);
            Err(Stop::Kernel)
        }
        _ => Ok(credentials::by_number(process, number, *given)),
    }
}

/// Serves it: by the function that its row in the table names. `kernel` makes the call where more
/// than that has to be done.
pub fn serve_number(
    process: &Process,
    number: c_long,
    given: &Arguments,
    kernel: impl FnOnce() -> c_long,
) -> Served<c_long> {
    let [a, b, c, d, e, f] = *given;
    match route(number) {
        // SAFETY: an interposed function of that answer; what it does not take it ignores, as the
        // calling convention has it.
        Route::Int(function) => Ok(outside(|| unsafe {
            std::mem::transmute::<*const (), IntCall>(function)(a, b, c, d, e, f).into()
        })),
        // SAFETY: as above.
        Route::Long(function) => Ok(outside(|| unsafe {
            std::mem::transmute::<*const (), LongCall>(function)(a, b, c, d, e, f)
        })),
        Route::Special => {
            cached_fd::give_back();
            special(process, number, given)
        }
        Route::Unserved if let Some(desc) = fdtable::get(a as c_int) => {
            report::about(desc.member());
            Err(Stop::Refused("system-call-by-number", Errno::OPNOTSUPP))
        }
        Route::Unserved | Route::Kernel => {
            cached_fd::before_call(calls::row(number as usize));
            fork::before_number(number, a);
            cache_segments::called(number, a, kernel).ok_or(Stop::Kernel)
        }
    }
}
