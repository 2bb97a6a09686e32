//! The next function of a name: the preload library's, or the C library's.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

unsafe extern "C-unwind" {
    fn __errno_location() -> *mut c_int;
}

/// The thread's `errno`.
pub fn errno() -> c_int {
    // SAFETY: the address is this thread's own.
    unsafe { *__errno_location() }
}

/// What `work` does to `errno` is undone.
pub fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    let before = errno();
    let done = work();
    // SAFETY: as above.
    unsafe { *__errno_location() = before };
    done
}

/// A function, found once.
pub struct Next {
    name: &'static str,
    address: AtomicUsize,
}

impl Next {
    /// `name` ends with a NUL.
    pub const fn new(name: &'static str) -> Self {
        Self { name, address: AtomicUsize::new(0) }
    }

    /// Its address. A function that is nowhere else ends the program: none can have called it.
    #[inline]
    pub fn address(&self) -> usize {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find(),
            address => address,
        }
    }

    #[cold]
    fn find(&self) -> usize {
        // SAFETY: the name ends with a NUL by the contract of `new`.
        let look = || unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast()) };
        let found = keeping_errno(look) as usize;
        if found == 0 {
            std::process::abort();
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}
