//! `syscall`: system calls made by number. Those that concern files go to the functions of this
//! library, whose answers are the kernel's; all others go on.
//!
//! A C function of any number of arguments: the six that a system call can have are taken from
//! their registers and the stack.

use std::ffi::{c_int, c_long, c_void};

use vfs::Errno;

use crate::descriptors::openat2;
use crate::entry::cached_fd;
use crate::entry::fdtable;
use crate::entry::own_forms::entries_length;
use crate::entry::pointers::Bytes;
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::syscall::{self, Arguments, IntCall, LongCall, Route, route};
use crate::entry::{Served, Stop, outside};
use crate::files::kernel_aio;
use crate::interposed::interpose;
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

fn serve_number(process: &Process, number: c_long, given: &Arguments) -> Served<c_long> {
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
            let call = || syscall::kernel(number, *given);
            cache_segments::called(number, a, call).ok_or(Stop::Kernel)
        }
    }
}

interpose! {
    fn [syscall](
        number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
    ) -> c_long = |process, _| {
        serve_number(process, number, &[a, b, c, d, e, f])
    }
}
