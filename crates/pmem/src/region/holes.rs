//! Pages of a region that have no memory yet.
//!
//! A region's file may be sparse: a page gets its memory at the first touch. If the file system
//! beneath has none left, that access faults exactly as one to a lost page. This file tells the two
//! apart by asking the file: a hole is no loss, for it holds zeros. The fault handler does not ask,
//! as that would slow every access down: a call that is about to say `EIO` asks [`or_no_memory`].
//!
//! Pages whose access must not fail later get their memory before: [`Region::provide`].
//!
//! Where a pager brings the pages, it knows which of them hold zeros: the file has a hole also for
//! a page that is elsewhere.
//!
//! No locks.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::region::Region;
use crate::region::source::PAGE;
use memory::faults::region_table;
use memory::instructions::exception_table::take_last_fault;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mm::Advice;

/// Bytes of a unit of `st_blocks`.
const STAT_BLOCK: u64 = 512;

/// How much memory a region's file has, and how much the file system beneath could still give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackingSpace {
    /// Bytes that the file has.
    pub allocated: u64,
    /// Bytes that the file system beneath has left for this user; `None`: it has no limit of its
    /// own.
    pub free: Option<u64>,
}

impl BackingSpace {
    /// How many of the file's `len` bytes could not be had if all of them were wanted now.
    #[must_use]
    pub fn missing(&self, len: u64) -> u64 {
        len.saturating_sub(self.allocated).saturating_sub(self.free.unwrap_or(u64::MAX))
    }

    /// How many of the `unused` among the file's `len` bytes can be had: those that have memory
    /// already (without what the used bytes take), and what is left beneath.
    #[must_use]
    pub fn available(&self, len: u64, unused: u64) -> u64 {
        let idle = self.allocated.saturating_sub(len.saturating_sub(unused));
        unused.min(idle.saturating_add(self.free.unwrap_or(u64::MAX)))
    }
}

/// `cachestat` (Linux 6.5): pages of a range in memory, dirty, being written back, in swap, and
/// those of them not long ago.
const SYS_CACHESTAT: i64 = 451;
const TMPFS: i64 = 0x0102_1994;

/// How many pages from `off` to `end` a file of a tmpfs has. `None`: it is none, or the kernel does
/// not say.
fn cached_pages(fd: BorrowedFd<'_>, off: u64, end: u64) -> Option<u64> {
    if rustix::fs::fstatfs(fd).ok()?.f_type != TMPFS {
        return None;
    }
    let (range, mut found) = ([off, end.saturating_sub(off)], [0_u64; 5]);
    let [range, to] = [(&raw const range) as usize, (&raw mut found) as usize];
    let given = [fd.as_raw_fd() as usize, range, to, 0, 0, 0];
    // SAFETY: two structures of the kernel's sizes.
    unsafe { os::interrupt::system_call(SYS_CACHESTAT, given) }.ok()?;
    let [in_memory, _, _, in_swap, _] = found;
    Some(in_memory + in_swap)
}

/// Whether a file system without memory left gives this errno.
fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::NOMEM)
}

impl Region {
    /// How much the file has, and could get. `None` if it is no file: then all memory is there.
    pub fn beneath(&self) -> Option<BackingSpace> {
        let fd = self.fd.as_ref().filter(|_| !self.device && self.pager().is_none())?;
        let (stat, system) = (rustix::fs::fstat(fd).ok()?, rustix::fs::fstatfs(fd).ok()?);
        let allocated = (stat.st_blocks as u64).saturating_mul(STAT_BLOCK);
        // One without a limit (of a memfd, a tmpfs with `size=0`) says that it has no blocks.
        let bytes = system.f_bavail.saturating_mul(system.f_bsize as u64);
        let free = (system.f_blocks > 0).then_some(bytes);
        Some(BackingSpace { allocated, free })
    }

    /// The first offset from `off` on that may have memory; the region's length if there is none.
    pub fn next_data(&self, off: u64) -> u64 {
        if let Some(pager) = self.pager() {
            return pager.next_data(off).clamp(off, self.len().max(off));
        }
        let Some(fd) = self.fd.as_ref().filter(|_| !self.device) else { return off };
        match rustix::fs::seek(fd, SeekFrom::Data(off)) {
            Ok(found) => found.clamp(off, self.len().max(off)),
            // Holes up to the end; or the file has been cut, and what lay here is lost.
            Err(Errno::NXIO) if self.has_byte(off) => self.len().max(off),
            Err(_) => off,
        }
    }

    /// The first offset from `off` on, which has memory, that may have none; the region's length if
    /// all has.
    pub fn next_hole(&self, off: u64) -> u64 {
        if let Some(pager) = self.pager() {
            return pager.next_hole(off).clamp(off, self.len().max(off));
        }
        let Some(fd) = self.fd.as_ref().filter(|_| !self.device) else { return self.len() };
        let found = rustix::fs::seek(fd, SeekFrom::Hole(off));
        found.map_or(self.len(), |found| found.clamp(off, self.len().max(off)))
    }

    /// As [`Self::next_hole`], before `end`: that, if there is none.
    ///
    /// The first hole may be as far away as all that a volume holds, and a tmpfs looks at each page
    /// on the way (50 ms for a GiB, on Linux 6.18): so it is asked for the range.
    pub fn next_hole_before(&self, off: u64, end: u64) -> u64 {
        let file = self.fd.as_ref().filter(|_| !self.device && self.pager().is_none());
        let pages = end.div_ceil(PAGE).saturating_sub(off / PAGE);
        let is_whole = |fd: BorrowedFd<'_>| cached_pages(fd, off, end) == Some(pages);
        if end <= self.len() && file.is_some_and(|fd| is_whole(fd.as_fd())) {
            return end;
        }
        self.next_hole(off).min(end)
    }

    /// Whether the file reaches as far as that.
    fn has_byte(&self, off: u64) -> bool {
        let stat = self.fd.as_ref().and_then(|fd| rustix::fs::fstat(fd).ok());
        stat.is_some_and(|stat| off < stat.st_size as u64)
    }

    /// Whether the page at `off` has no memory: it holds zeros.
    pub fn is_hole(&self, off: u64) -> bool {
        let page = off - off % PAGE;
        self.next_data(page) >= page + PAGE
    }

    /// Gives a range its memory and makes it present for writing, all at once: a fault for each
    /// page would cost more than what is stored there. `ENOSPC`, and nothing has changed but which
    /// pages have memory, if there is none for all of it. Where the kernel cannot do it all at
    /// once, pages come one by one. A private view copies only the pages that are stored to.
    pub fn populate(&self, off: u64, len: u64) -> Result<(), Errno> {
        let Ok(at) = self.range(off, len) else { return Ok(()) };
        if !self.writable() || self.is_private() {
            return Ok(());
        }
        if let Some(pager) = self.pager() {
            return pager.provide((off, len));
        }
        // SAFETY: inside this region's mapping; populating changes no content.
        let done =
            unsafe { rustix::mm::madvise(at.cast(), len as usize, Advice::LinuxPopulateWrite) };
        match done {
            Err(Errno::FAULT | Errno::NOMEM | Errno::INVAL) => match self.provide(off, len) {
                Err(Errno::NOSPC) => Err(Errno::NOSPC),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Gives a range its memory: `ENOSPC` if there is none for all of it, another error where the
    /// file system beneath gives it at the first touch only.
    pub fn provide(&self, off: u64, len: u64) -> Result<(), Errno> {
        if let Some(pager) = self.pager() {
            return pager.provide((off, len));
        }
        let Some(fd) = self.fd.as_ref().filter(|_| !self.device) else { return Ok(()) };
        loop {
            match rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, off, len) {
                Err(Errno::INTR) => {}
                Err(errno) if is_full(errno) => return Err(Errno::NOSPC),
                done => return done,
            }
        }
    }

    /// Cuts the file to `len` bytes; no process uses what lies behind. A device stays as it is.
    pub fn cut(&self, len: u64) -> Result<(), Errno> {
        let fd = self.fd.as_ref().filter(|_| !self.device);
        fd.map_or(Ok(()), |fd| rustix::fs::ftruncate(fd, len))
    }

    /// Takes the memory of a range away: it holds zeros then. `EOPNOTSUPP` where that cannot be
    /// done.
    pub fn punch(&self, off: u64, len: u64) -> Result<(), Errno> {
        if let Some(pager) = self.pager() {
            pager.discard((off, len));
            return Ok(());
        }
        let fd = self.fd.as_ref().filter(|_| !self.device).ok_or(Errno::OPNOTSUPP)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(fd, flags, off, len)
    }
}

/// The errno of a call that met [`crate::Fault::Region`]: `ENOSPC` if this thread's last fault was
/// in a hole of a region's file, which is no loss; else `errno`.
#[cold]
pub fn or_no_memory(errno: Errno) -> Errno {
    let address = take_last_fault();
    if errno != Errno::IO || address == 0 {
        return errno;
    }
    let Some(region) = region_table::find(address) else { return errno };
    let page = region.offset(address) / PAGE * PAGE;
    let fd = region.fd();
    let in_file = || rustix::fs::seek(fd, SeekFrom::Hole(page)) == Ok(page);
    match rustix::fs::seek(fd, SeekFrom::Data(page)) {
        Ok(data) if data >= page + PAGE => Errno::NOSPC,
        Err(Errno::NXIO) if in_file() => Errno::NOSPC,
        _ => errno,
    }
}
