//! The regions of this process by their addresses: for code that has no more than a fault's
//! address.
//!
//! Read in a signal handler: nothing here locks, and looking allocates nothing and calls no C
//! library. The table is fixed; a region that finds no room in it has no messages about its faults.

use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

const REGIONS_MAX: usize = 64;

/// One region; a space of 0: none, a base of 0: not yet, or not any more.
pub struct Listed {
    base: AtomicUsize,
    /// Bytes of address space.
    space: AtomicUsize,
    /// Bytes of them that are the region's.
    len: AtomicUsize,
    fd: AtomicI32,
    /// The path: bytes that live for ever. Null: it has none.
    name: AtomicPtr<u8>,
    name_bytes: AtomicUsize,
}

static REGIONS: [Listed; REGIONS_MAX] = [const {
    Listed {
        base: AtomicUsize::new(0),
        space: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        fd: AtomicI32::new(-1),
        name: AtomicPtr::new(std::ptr::null_mut()),
        name_bytes: AtomicUsize::new(0),
    }
}; REGIONS_MAX];

/// From here on the region is found.
pub fn enter(base: *mut u8, space: usize, len: usize, fd: RawFd, path: Option<&Path>) {
    for region in &REGIONS {
        // Another thread that looks meanwhile finds no base.
        if region.space.compare_exchange(0, space, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            let name: &'static mut [u8] =
                path.map_or(&mut [], |path| path.as_os_str().as_bytes().to_vec().leak());
            region.name_bytes.store(name.len(), Ordering::Relaxed);
            region.name.store(name.as_mut_ptr(), Ordering::Relaxed);
            region.fd.store(fd, Ordering::Relaxed);
            region.len.store(len, Ordering::Relaxed);
            region.base.store(base as usize, Ordering::Release);
            return;
        }
    }
}

/// The region has grown, or its descriptor has another number.
pub fn update(base: *mut u8, len: usize, fd: RawFd) {
    if let Some(region) = find(base as usize) {
        region.fd.store(fd, Ordering::Release);
        region.len.store(len, Ordering::Release);
    }
}

/// The region is about to go.
pub fn leave(base: *mut u8) {
    if let Some(region) = find(base as usize) {
        region.base.store(0, Ordering::Release);
        region.space.store(0, Ordering::Release);
    }
}

/// The region that an address lies in.
pub fn find(address: usize) -> Option<&'static Listed> {
    REGIONS.iter().find(|region| {
        let base = region.base.load(Ordering::Acquire);
        base != 0 && address.wrapping_sub(base) < region.space.load(Ordering::Relaxed)
    })
}

impl Listed {
    /// The offset of an address in the region.
    pub fn offset(&self, address: usize) -> u64 {
        address.wrapping_sub(self.base.load(Ordering::Acquire)) as u64
    }

    /// Bytes that are mapped.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire) as u64
    }

    /// Its descriptor, to ask about; should it be closed just now, the question fails, or is
    /// another file's: only messages depend on the answer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: asks about a number that is not negative, which the region has open as long as it
        // is used.
        unsafe { BorrowedFd::borrow_raw(self.fd.load(Ordering::Acquire).max(0)) }
    }

    /// Its path; `None`: it has none.
    pub fn name(&self) -> Option<&'static [u8]> {
        let at = self.name.load(Ordering::Relaxed);
        let bytes = self.name_bytes.load(Ordering::Relaxed);
        // SAFETY: stored by `enter` before the base, and never freed.
        (!at.is_null() && bytes > 0).then(|| unsafe { std::slice::from_raw_parts(at, bytes) })
    }
}
