//! `syscall`: system calls made by number. Those that concern files go to the functions of this
//! library, whose answers are the kernel's; all others go on.
//!
//! A C function of any number of arguments: the six that a system call can have are taken from
//! their registers and the stack.

use std::ffi::c_long;
use std::sync::atomic::Ordering;

use crate::by_number::serve_number;
use crate::entry::Stop;
use crate::entry::syscall;
use crate::entry::thread::here;
use crate::interposed::interpose;

interpose! {
    fn [syscall](
        number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
    ) -> c_long = |process, _| {
        // A library between this one and the C library makes a call by number that was looked at
        // already, by its function: tcmalloc's `mmap`.
        if here().passes_next.swap(false, Ordering::Relaxed) {
            return Err(Stop::Kernel);
        }
        let given = [a, b, c, d, e, f];
        serve_number(process, number, &given, || syscall::kernel(number, given))
    }
}
