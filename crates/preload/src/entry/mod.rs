//! What the calls of all rooms share: the attachment with its tables of numbers and mappings,
//! threads, locks, pointers, answers.
//!
//! While a thread is *inside* (its depth is not 0), every call of it goes straight to the kernel:
//! so the library never serves its own calls.
//!
//! Arguments that are pointers come as the wrappers of `pointers`. What is asked of a room above
//! goes through `hooks`.

pub(crate) mod attachment;
pub(crate) mod blocking;
pub(crate) mod cached_fd;
pub(crate) mod calls;
pub(crate) mod cancel;
pub(crate) mod fdtable;
pub(crate) mod heap;
pub(crate) mod hooks;
pub(crate) mod limit;
pub(crate) mod lock;
pub(crate) mod maptable;
pub(crate) mod pending_signals;
pub(crate) mod pointers;
pub(crate) mod process;
pub(crate) mod program_memory;
pub(crate) mod report;
mod symbols;
pub(crate) mod syscall;
pub(crate) mod thread;

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use vfs::Errno;

use crate::entry::thread::here;
pub use crate::entry::thread::{Inside, outside};
pub use crate::runtime::errors::{errno, set_errno};
use crate::runtime::objects;

/// Why a call did not end in a value.
pub enum Stop {
    /// It failed with this error.
    Errno(Errno),
    /// It does not concern the volume: the kernel serves it.
    Kernel,
    /// The volume does not serve this: the reason is counted, the program gets the error.
    Refused(&'static str, Errno),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// What the body of a call gives.
pub type Served<T> = Result<T, Stop>;

/// How a C function of this type says that it failed.
pub trait Answer: Copy + PartialEq {
    /// -1 or NULL.
    const FAILED: Self;

    /// Whether this is it.
    #[inline]
    fn has_failed(self) -> bool {
        self == Self::FAILED
    }

    /// The descriptor that it is, if it is one.
    #[inline]
    fn number(self) -> c_int {
        -1
    }
}

impl Answer for i32 {
    const FAILED: Self = -1;

    #[inline]
    fn number(self) -> c_int {
        self
    }
}
impl Answer for i64 {
    const FAILED: Self = -1;
}
impl Answer for isize {
    const FAILED: Self = -1;
}
impl Answer for () {
    const FAILED: Self = ();

    fn has_failed(self) -> bool {
        false
    }
}
impl<T> Answer for *mut T {
    const FAILED: Self = std::ptr::null_mut();
}

/// How often `dup2` has replaced a number of ours.
static REPLACED: AtomicU32 = AtomicU32::new(0);

/// A number now stands for something else, and the old description is still open.
pub fn number_replaced() {
    REPLACED.fetch_add(1, Ordering::Release);
}

/// Whether a number was replaced since this thread asked last: a call that found its description
/// closed may find the new one. The call has done nothing yet.
pub fn is_replaced() -> bool {
    let now = REPLACED.load(Ordering::Acquire);
    here().replaced.swap(now, Ordering::Relaxed) != now
}

/// Sets `errno` and gives the failure value.
pub fn fail<T: Answer>(errno: Errno) -> T {
    set_errno(errno.raw_os_error());
    T::FAILED
}

/// The function that an interposed one hides, found once.
pub struct Real {
    name: &'static str,
    address: AtomicUsize,
}

impl Real {
    /// `name` ends with a NUL.
    pub const fn new(name: &'static str) -> Self {
        Self { name, address: AtomicUsize::new(0) }
    }

    /// Its address. A symbol that this glibc does not have ends the program: no program can have
    /// called it.
    #[inline]
    pub fn address(&self) -> usize {
        match self.address.load(Ordering::Relaxed) {
            0 => self.find(),
            address => address,
        }
    }

    #[cold]
    fn find(&self) -> usize {
        let _inside = Inside::new();
        let name = self.name.trim_end_matches('\0');
        let Some(found) = objects::next(name.as_bytes()) else { std::process::abort() };
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// The lengths that a program may pass to one read or write (`MAX_RW_COUNT`).
pub const TRANSFER_BYTES_MAX: usize = 0x7fff_f000;

/// A status answer.
pub const DONE: Served<c_int> = Ok(0);
