//! Where a volume's file lies in memory: address space for its largest size, of which as much is
//! mapped as was needed. Nothing moves.

use std::sync::{Mutex, PoisonError};

use pmem::{ForeignMemory, Region};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use super::{OpenFile, not_mapped};
use crate::{Error, Result};

const PAGE_BYTES: u64 = 4096;
/// Chunks of a volume lie so in its memory: the kernel maps them by large pages then.
const CHUNK_BYTES: usize = 2 << 20;

/// A file's memory.
pub struct Mapping {
    region: Region,
    /// What was reserved.
    reserved: (*mut u8, usize),
    write: bool,
    mapped: Mutex<u64>,
}

// SAFETY: the addresses are this mapping's own, and are accessed as the region's.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Takes address space for `space` bytes of a file, without mapping any.
    pub fn new(file: &dyn OpenFile, space: u64, write: bool) -> Result<Self> {
        let space = space.max(1).next_multiple_of(PAGE_BYTES) as usize;
        let no_space = |errno| Error::refused("get address space for the file", errno);
        let whole = space.checked_add(CHUNK_BYTES).ok_or_else(|| no_space(Errno::NOMEM))?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), whole, ProtFlags::empty(), flags)
        };
        let start = start.map_err(no_space)?.cast::<u8>();
        let base = start.map_addr(|at| at.next_multiple_of(CHUNK_BYTES));
        let promise = file.promise();
        let (class, policy) = ((promise.class, promise.reason.clone()), promise.policy);
        // SAFETY: the space reserved above, which is unmapped behind the region's end.
        let region =
            unsafe { Region::lent(ForeignMemory { base, space, len: 0, class, policy, write }) };
        let region = region.map_err(|errno| Error::refused("use the file's memory", errno))?;
        Ok(Self { region, reserved: (start, whole), write, mapped: Mutex::new(0) })
    }

    /// The memory.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Maps the file's first `len` bytes, as far as they are not yet. They lie inside of it, and of
    /// the address space.
    pub fn cover(&self, file: &dyn OpenFile, len: u64) -> Result<()> {
        if self.region.len() >= len {
            return Ok(());
        }
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        let to = len.next_multiple_of(PAGE_BYTES);
        if *mapped < to {
            let at = self.region.base().wrapping_add(*mapped as usize);
            // SAFETY: address space of this mapping's own that was not mapped before.
            unsafe { file.map(at, *mapped, to - *mapped, self.write) }.map_err(not_mapped)?;
            *mapped = to;
        }
        self.region.grown(len).map_err(|errno| Error::refused("use the file's memory", errno))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // By the C library's call: the preload library has some of it in its books.
        // SAFETY: the address space reserved above; nothing points into it any more.
        let unmapped = unsafe { libc::munmap(self.reserved.0.cast(), self.reserved.1) };
        debug_assert_eq!(unmapped, 0, "a mapping's own address space unmaps");
    }
}
