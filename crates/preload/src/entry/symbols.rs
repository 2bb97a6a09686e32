//! The exported functions of this room: threads that are cancelled.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use crate::entry::Real;
use crate::entry::cancel;
use crate::entry::thread::{self, ASYNCHRONOUS, CANCELLED, here};

// SAFETY: the symbol replaces glibc's of the same name and has its signature.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int {
    let flags = &here().flags;
    // Found before the flag is set: finding it goes inside.
    cancel::SET_TYPE.address();
    if kind == cancel::ASYNCHRONOUS_TYPE {
        cancel::stand_before_first();
        flags.fetch_or(ASYNCHRONOUS, Ordering::Relaxed);
        return cancel::set_type(kind, old);
    }
    let result = cancel::set_type(kind, old);
    if result == 0 {
        flags.fetch_and(!ASYNCHRONOUS, Ordering::Relaxed);
    }
    result
}

// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn pthread_cancel(thread: libc::pthread_t) -> c_int {
    type Function = unsafe extern "C-unwind" fn(libc::pthread_t) -> c_int;
    static REAL: Real = Real::new("pthread_cancel\0");
    // SAFETY: by the C contract the thread exists. First the flag: when the thread is told it may
    // end at once.
    let result = unsafe {
        thread::of(thread).flags.fetch_or(CANCELLED, Ordering::Relaxed);
        std::mem::transmute::<usize, Function>(REAL.address())(thread)
    };
    // glibc has installed its handler by now, if it had not before.
    cancel::stand_before();
    result
}
