//! Buffers to read files into, of which the program says that nothing pins their pages (FLAC's
//! sliding window buffers): a read that a cache serves (`solera run --cache`) may map whole pages
//! into them instead of copying. Elsewhere they are memory.
//!
//! A page of the cache is 2 MiB, aligned, of the file's bytes; it can be mapped only where
//! addresses are aligned alike. So a buffer has room for 2 MiB more than it is for, and an offset
//! says where in it the data starts ([`Buffer::slide`]). A small page before it and one behind it
//! cannot be accessed.
//!
//! Who maps is the cache, in the preload library: it is told of each buffer by its table
//! (`vfs::preloaded`). No locks. A forked child has its parent's buffers, and so has the cache
//! there.

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use vfs::preloaded::Preloaded;

use crate::volumes::preloaded;
use crate::{Error, Result};

/// Bytes of a page of the cache.
const PAGE: usize = 2 << 20;
/// Bytes of a small page, of which the guards are.
const GUARD: usize = 4096;

/// A buffer. Reads into it go by the C library's calls, at any address in it.
#[derive(Debug)]
pub struct Buffer {
    start: usize,
    /// Bytes of the address space, without the guards.
    length: usize,
    /// Who was told of it.
    told: Option<&'static Preloaded>,
}

impl Buffer {
    /// One for `size` bytes, 1 or more, from any offset of a file on. `Invalid`: 0, or more than
    /// there are addresses.
    pub fn new(size: usize) -> Result<Self> {
        if size == 0 {
            return Err(Error::Invalid("the buffer is for 0 bytes"));
        }
        if size > isize::MAX as usize - 4 * PAGE {
            return Err(Error::Invalid("the length is beyond SSIZE_MAX"));
        }
        let length = (size + PAGE - 1).next_multiple_of(PAGE);
        let start = map(length).map_err(|errno| Error::refused("get memory for it", errno))?;
        // One of another version does not know how.
        let table = preloaded().ok().flatten();
        // SAFETY: just mapped; until the drop only what is told here maps anything there.
        let told = table.filter(|table| unsafe { (table.buffer_add)(start, length) } != 0);
        Ok(Self { start, length, told })
    }

    /// Where it begins: where data from a multiple of 2 MiB on goes.
    pub fn base(&self) -> *mut u8 {
        self.start as *mut u8
    }

    /// Where the data from this offset of a file on goes. There is room for the buffer's size.
    pub fn slide(&self, offset: u64) -> *mut u8 {
        (self.start + (offset % PAGE as u64) as usize) as *mut u8
    }

    /// Makes all of it the program's own memory, with the bytes that it has: before a change of
    /// most of it. No thread may use it meanwhile.
    pub fn fault(&self) -> Result<()> {
        let refused = |errno| Error::refused("get memory for all of it", errno);
        if self.told.is_some_and(|table| (table.buffer_keep)(self.start, self.length) == 0) {
            return Err(refused(Errno::NOMEM));
        }
        // SAFETY: the buffer's memory, of which no byte is changed.
        let all = unsafe {
            rustix::mm::madvise(self.start as _, self.length, Advice::LinuxPopulateWrite)
        };
        match all {
            // Before Linux 5.14 each page comes when it is stored to.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(refused(errno)),
        }
    }

    /// Gives up what was mapped into it. What it holds is not known afterwards.
    pub fn detach(&self) -> Result<()> {
        if self.told.is_some_and(|table| (table.buffer_detach)(self.start, self.length) == 0) {
            return Err(Error::refused("get memory for it", Errno::NOMEM));
        }
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(table) = self.told {
            (table.buffer_remove)(self.start, self.length);
        }
        // SAFETY: mapped by `map`, and nobody uses it any more.
        let _ = unsafe { rustix::mm::munmap((self.start - GUARD) as _, self.length + 2 * GUARD) };
    }
}

/// Maps so much memory at a multiple of a page, between guards.
fn map(length: usize) -> rustix::io::Result<usize> {
    let (all, null) = (length + PAGE + 2 * GUARD, std::ptr::null_mut());
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let room =
        unsafe { rustix::mm::mmap_anonymous(null, all, ProtFlags::empty(), MapFlags::PRIVATE)? };
    let room = room as usize;
    let start = (room + GUARD).next_multiple_of(PAGE);
    let unmap = |from: usize, to: usize| {
        if from < to {
            // SAFETY: a part of the room that is used by nobody. Where that fails, it stays.
            let _ = unsafe { rustix::mm::munmap(from as _, to - from) };
        }
    };
    unmap(room, start - GUARD);
    unmap(start + length + GUARD, room + all);
    let prot = MprotectFlags::READ | MprotectFlags::WRITE;
    // SAFETY: a part of the room.
    let opened = unsafe { rustix::mm::mprotect(start as _, length, prot) };
    if let Err(errno) = opened {
        unmap(start - GUARD, start + length + GUARD);
        return Err(errno);
    }
    // SAFETY: as above. It is a hint.
    let _ = unsafe { rustix::mm::madvise(start as _, length, Advice::LinuxHugepage) };
    Ok(start)
}
