//! The kernel itself.
//!
//! A call's arguments are the six that a system call can have, whether it takes them or not.

use std::arch::asm;
use std::ffi::{c_int, c_long};

use crate::entry::cancel;
use crate::entry::set_errno;
use crate::entry::thread::{OwnCode, here};

/// Of any system call.
pub type Arguments = [usize; 6];

/// What a C function gives for the kernel's answer.
fn told(answer: c_long) -> c_long {
    if (-4095..0).contains(&answer) {
        set_errno(-answer as c_int);
        return -1;
    }
    answer
}

/// Calls the kernel, without the C library or any lock of it.
pub fn kernel(number: c_long, [a, b, c, d, e, f]: Arguments) -> c_long {
    let _own = OwnCode::new();
    let answer: c_long;
    // SAFETY: the kernel's own convention; callers here say why their arguments are right.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    told(answer)
}

/// As [`kernel`], of a call of at most four arguments. It stands apart: a shortcut whose call is
/// served keeps no registers for it.
#[inline(never)]
pub fn kernel_of_four(a: usize, b: usize, c: usize, d: usize, number: c_long) -> c_long {
    kernel(number, [a, b, c, d, 0, 0])
}

/// As [`kernel`], of a call of the program's own that may wait: a thread may be cancelled in it.
pub fn waiting(number: c_long, arguments: Arguments) -> c_long {
    loop {
        // SAFETY: the program's own call.
        match unsafe { door::entry::kernel(number, &arguments, here().looked()) } {
            Some(answer) => {
                // A wait that the kernel does not restart has ended for the cancellation, perhaps.
                if answer as c_long == -c_long::from(libc::EINTR) {
                    cancel::end_if_due();
                }
                return told(answer as c_long);
            }
            None if cancel::end_if_due() => return told(-c_long::from(libc::EINTR)),
            None => {}
        }
    }
}
