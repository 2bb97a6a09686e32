//! `syscall`: system calls made by number. Those that concern files go to the functions of this
//! library, whose answers are the kernel's; all others go on.
//!
//! A C function of any number of arguments: the six that a system call can have are taken from
//! their registers and the stack.

use std::ffi::{c_char, c_int, c_long, c_void};

use vfs::Errno;

use crate::descriptors::openat2;
use crate::entry::cached;
use crate::entry::fdtable;
use crate::entry::pointers::Bytes;
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::syscall::{self, Arguments, IntCall, LongCall, Route, route};
use crate::entry::{Served, Stop, outside, set_errno};
use crate::files::rings;
use crate::interposed::interpose;
use crate::mappings::lent;
use crate::names::dir;
use crate::paths::credentials;
use crate::processes::lifecycle;

unsafe extern "C" {
    fn futimesat(dirfd: c_int, path: *const c_char, times: *const libc::timeval) -> c_int;
}

/// System calls that differ from the C library's functions of their names.
fn special(process: &Process, number: c_long, given: &Arguments) -> Served<c_long> {
    let [a, b, c, d, _, f] = *given;
    let (fd, text) = (a as c_int, b as *const c_char);
    match number {
        libc::SYS_openat2 => return openat2::open(process, given),
        libc::SYS_io_setup => return Err(rings::begun("io_setup")),
        libc::SYS_io_uring_setup => return Err(rings::begun("io_uring_setup")),
        libc::SYS_getdents => {
            let entries = dir::read_old_entries(process, fd, Bytes(b as *mut c_void), c);
            return entries.map(|bytes| bytes as c_long);
        }
        libc::SYS_exit_group => {
            lifecycle::leave(process);
            return Err(Stop::Kernel);
        }
        libc::SYS_setuid..=libc::SYS_setgid
        | libc::SYS_setreuid..=libc::SYS_setregid
        | libc::SYS_setgroups
        | libc::SYS_setresuid
        | libc::SYS_setresgid
        | libc::SYS_setfsuid..=libc::SYS_setfsgid
        | libc::SYS_capset
        | libc::SYS_unshare
        | libc::SYS_setns => {
            return Ok(credentials::by_number(process, number, *given));
        }
        _ => {}
    }
    // SAFETY: the program's own arguments, as it passed them to the kernel.
    Ok(outside(|| unsafe {
        match number {
            libc::SYS_faccessat => libc::faccessat(fd, text, c as c_int, 0).into(),
            libc::SYS_fchmodat => libc::fchmodat(fd, text, c as u32, 0).into(),
            libc::SYS_futimesat => futimesat(fd, text, c as *const _).into(),
            libc::SYS_preadv2 => {
                libc::preadv2(fd, b as *const _, c as c_int, d as i64, f as c_int) as c_long
            }
            libc::SYS_pwritev2 => {
                libc::pwritev2(fd, b as *const _, c as c_int, d as i64, f as c_int) as c_long
            }
            libc::SYS_fadvise64 => match libc::posix_fadvise(fd, b as i64, c as i64, d as c_int) {
                0 => 0,
                error => {
                    set_errno(error);
                    -1
                }
            },
            libc::SYS_getcwd => {
                let text = libc::getcwd(a as *mut c_char, b);
                if text.is_null() { -1 } else { libc::strlen(text) as c_long + 1 }
            }
            _ => {
                libc::sync();
                0
            }
        }
    }))
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
            cached::give_back();
            special(process, number, given)
        }
        Route::Unserved if let Some(desc) = fdtable::get(a as c_int) => {
            report::about(desc.member());
            Err(Stop::Refused("system-call-by-number", Errno::OPNOTSUPP))
        }
        Route::Unserved | Route::Kernel => {
            cached::before_call(number);
            let call = || syscall::kernel(number, *given);
            lent::called(number, a, call).ok_or(Stop::Kernel)
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
