//! Debian's libpmemlog, if it is there: a peer, not a part.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

type Create = unsafe extern "C" fn(*const c_char, usize, libc::mode_t) -> *mut c_void;
type Append = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int;
type Rewind = unsafe extern "C" fn(*mut c_void);

/// A log of libpmemlog.
pub struct PmemLog {
    pool: *mut c_void,
    append: Append,
    rewind: Rewind,
}

/// The address of a function, if the library has it.
///
/// # Safety
///
/// `F` is the function's type.
unsafe fn function<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    // SAFETY: an open library, and a string.
    let at = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: the caller's promise; function pointers are as long as this.
    (!at.is_null()).then(|| unsafe { std::mem::transmute_copy(&at) })
}

impl PmemLog {
    /// Makes a log of so many bytes; `None`: the library is not there.
    pub fn create(path: &Path, bytes: usize) -> Option<Self> {
        // It flushes lines, as on persistent memory, instead of calling msync.
        // SAFETY: this process has one thread yet.
        unsafe { std::env::set_var("PMEM_IS_PMEM_FORCE", "1") };
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: the functions have the types of libpmemlog.h; the library stays open.
        unsafe {
            let library = libc::dlopen(c"libpmemlog.so.1".as_ptr(), libc::RTLD_NOW);
            if library.is_null() {
                return None;
            }
            let create: Create = function(library, c"pmemlog_create")?;
            let append: Append = function(library, c"pmemlog_append")?;
            let rewind: Rewind = function(library, c"pmemlog_rewind")?;
            let pool = create(path.as_ptr(), bytes, 0o600);
            (!pool.is_null()).then_some(Self { pool, append, rewind })
        }
    }

    /// Appends, durably; whether it could.
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        // SAFETY: an open log, and bytes that are there.
        unsafe { (self.append)(self.pool, bytes.as_ptr().cast(), bytes.len()) == 0 }
    }

    /// Forgets all.
    pub fn rewind(&mut self) {
        // SAFETY: an open log.
        unsafe { (self.rewind)(self.pool) }
    }
}
