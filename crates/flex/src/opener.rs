//! Whether this is the process that opened something: a forked child has a copy of its memory, and
//! neither its locks nor its mapping.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

const PAGE_BYTES: usize = 4096;

/// A page that the kernel empties in a forked child.
pub struct Opener(*mut AtomicU32);

// SAFETY: the pointer is to a page that lives as long as this, and is accessed as an atomic.
unsafe impl Send for Opener {}
// SAFETY: as above.
unsafe impl Sync for Opener {}

impl Opener {
    /// This process.
    pub fn new() -> Result<Self, Errno> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let page =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), PAGE_BYTES, prot, flags)? };
        let opener = Self(page.cast());
        // SAFETY: the page that was just mapped.
        unsafe { rustix::mm::madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork)? };
        opener.word().store(1, Ordering::Relaxed);
        Ok(opener)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: mapped, aligned, and there until the drop.
        unsafe { &*self.0 }
    }

    /// Whether this process is the one that made this, not a child of it.
    #[inline]
    pub fn is_here(&self) -> bool {
        self.word().load(Ordering::Relaxed) != 0
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        // SAFETY: the mapping made above, to which nothing else points. If that fails a page stays.
        let _ = unsafe { rustix::mm::munmap(self.0.cast(), PAGE_BYTES) };
    }
}
