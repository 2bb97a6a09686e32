//! The exported functions of this room: limits, cancelled threads; and by file those that concern
//! numbers, that are refused, that go by number.

mod by_number;
mod numbers;
mod refused;

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

use crate::entry::Real;
use crate::entry::cached_fd;
use crate::entry::cancel;
use crate::entry::limit;
use crate::entry::thread::{self, ASYNCHRONOUS, CANCELLED, here};
use crate::interposed::interpose;

fn changed(resource: c_int, result: c_int) -> c_int {
    if resource == libc::RLIMIT_FSIZE as c_int && result == 0 {
        limit::learn();
    }
    result
}

interpose! {
    fn [setrlimit, setrlimit64](resource: c_int, limit: *const c_void) -> c_int = |_, kernel| {
        // Numbers beyond the limit are no longer free.
        let _until_it_ends = cached_fd::Closes::new();
        Ok(changed(resource, kernel(resource, limit)))
    }
    fn [prlimit, prlimit64](pid: c_int, resource: c_int, new: *const c_void, old: *mut c_void)
    -> c_int = |_, kernel| {
        let _until_it_ends = cached_fd::Closes::new();
        Ok(changed(resource, kernel(pid, resource, new, old)))
    }
}

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
