//! Pages of a region that have no memory yet.
//!
//! A region's file may be sparse: a page gets its memory at the first touch. Where the file system beneath
//! has none left, that touch faults exactly as one of a page that is lost. The two are told apart here,
//! by asking the file: a hole is no loss, for it holds zeros. So a read of one gives zeros, and a store
//! into one is [`Fault::NoMemory`] (`ENOSPC`) and has stored nothing there.
//!
//! What must not fail later is given its memory beforehand: [`Region::provide`].
//!
//! Nothing here is on the way of an access that succeeds. No locks.

use crate::copy::{self, Side};
use crate::persist::InFlight;
use crate::region::Region;
use crate::source::PAGE;
use crate::user::{self, Fault, UserOut};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use rustix::mm::Advice;
use std::panic::Location;

/// Bytes of a unit of `st_blocks`.
const STAT_BLOCK: u64 = 512;

/// What a region's file has of its memory, and what the file system beneath could still give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beneath {
    /// Bytes that the file has.
    pub allocated: u64,
    /// Bytes that the file system beneath has left for this user.
    pub free: u64,
}

impl Beneath {
    /// How many of the file's `len` bytes could not be had if all of them were wanted now.
    #[must_use]
    pub fn missing(&self, len: u64) -> u64 {
        len.saturating_sub(self.allocated).saturating_sub(self.free)
    }
}

/// Whether this is what a file system says that has no memory left.
fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::NOMEM)
}

impl Region {
    /// What the file has, and what it could get. `None` of what is no file: its memory is all there.
    pub fn beneath(&self) -> Option<Beneath> {
        let fd = self.fd.as_ref().filter(|_| !self.device)?;
        let (stat, system) = (rustix::fs::fstat(fd).ok()?, rustix::fs::fstatfs(fd).ok()?);
        let allocated = (stat.st_blocks as u64).saturating_mul(STAT_BLOCK);
        // One without a limit of its own (a memfd, a tmpfs without `size`) says that it has no blocks.
        let free = match system.f_blocks {
            0 => u64::MAX,
            _ => system.f_bavail.saturating_mul(system.f_bsize as u64),
        };
        Some(Beneath { allocated, free })
    }

    /// The first offset from `off` on that may have memory; the region's length if there is none.
    pub fn next_data(&self, off: u64) -> u64 {
        let Some(fd) = self.fd.as_ref().filter(|_| !self.device) else { return off };
        match rustix::fs::seek(fd, SeekFrom::Data(off)) {
            Ok(found) => found.clamp(off, self.len().max(off)),
            // Holes up to the end; or the file has been cut, and what lay here is lost.
            Err(Errno::NXIO) if self.has_byte(off) => self.len().max(off),
            Err(_) => off,
        }
    }

    /// The first offset from `off` on, which has memory, that may have none; the region's length if all has.
    pub fn next_hole(&self, off: u64) -> u64 {
        let Some(fd) = self.fd.as_ref().filter(|_| !self.device) else { return self.len() };
        let found = rustix::fs::seek(fd, SeekFrom::Hole(off));
        found.map_or(self.len(), |found| found.clamp(off, self.len().max(off)))
    }

    /// Whether the file reaches as far as that.
    fn has_byte(&self, off: u64) -> bool {
        let stat = self.fd.as_ref().and_then(|fd| rustix::fs::fstat(fd).ok());
        stat.is_some_and(|stat| off < stat.st_size as u64)
    }

    /// Why an access to these bytes faulted.
    #[cold]
    #[inline(never)]
    pub(crate) fn lost(&self, off: u64, len: u64) -> Fault {
        let mut page = off - off % PAGE;
        while page < off.saturating_add(len) {
            if self.next_data(page) >= page + PAGE {
                return Fault::NoMemory;
            }
            page += PAGE;
        }
        Fault::Region
    }

    /// Which fault one is that is not the caller's, of a copy to these bytes.
    #[cold]
    #[inline(never)]
    pub(crate) fn lost_target(&self, side: Side, off: u64, len: u64) -> Fault {
        match user::caller_to_region(side) {
            Fault::Region => self.lost(off, len),
            fault => fault,
        }
    }

    /// The word at `off`, after a load of it has faulted.
    #[cold]
    #[inline(never)]
    pub(crate) fn absent_word(&self, off: u64) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        self.read_holes(off, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Copies bytes out after a copy of them has faulted: holes are zeros.
    #[cold]
    #[inline(never)]
    pub(crate) fn read_holes(&self, off: u64, to: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < to.len() {
            let (at, part) = page_part(off, done, to.len());
            let part = &mut to[done..done + part];
            let from = self.range(at, part.len() as u64)?;
            // SAFETY: the target is a slice of ours; the source is guarded.
            let copy =
                |part: &mut [u8]| unsafe { copy::load_words(part.as_mut_ptr(), from, part.len()) };
            if copy(part).is_err() {
                match self.lost(at, part.len() as u64) {
                    Fault::NoMemory => part.fill(0),
                    // Another thread may have filled the page since.
                    fault => copy(part).map_err(|_| fault)?,
                }
            }
            done += part.len();
        }
        Ok(())
    }

    /// The same, to the caller, of a copy in which `side` has faulted.
    #[cold]
    #[inline(never)]
    pub(crate) fn read_holes_to(
        &self,
        side: Side,
        off: u64,
        to: &UserOut<'_>,
        len: usize,
    ) -> Result<(), Fault> {
        if side == Side::Target {
            return Err(Fault::Caller);
        }
        let mut page = [0; PAGE as usize];
        let mut done = 0;
        while done < len {
            let (at, part) = page_part(off, done, len);
            self.read_holes(at, &mut page[..part])?;
            to.slice(done, part).write(&page[..part])?;
            done += part;
        }
        Ok(())
    }

    /// Copies inside the region after such a copy has faulted: by way of a page of ours.
    #[cold]
    #[inline(never)]
    pub(crate) fn copy_holes(
        &self,
        fault: Fault,
        from: u64,
        to: u64,
        len: u64,
        at: &'static Location<'static>,
    ) -> Result<InFlight<'_>, Fault> {
        // The other side was the one.
        if fault != Fault::Caller {
            return Err(fault);
        }
        let mut page = [0; PAGE as usize];
        let mut done = 0;
        while done < len as usize {
            let (source, part) = page_part(from, done, len as usize);
            self.read_holes(source, &mut page[..part])?;
            let _ = self.stream_at(to + done as u64, page.as_ptr(), part, at)?;
            done += part;
        }
        Ok(InFlight::new(self))
    }

    /// Gives a range its memory and makes it present for writing, all at once: a fault for each page would
    /// cost more than what is stored there. `ENOSPC`, and nothing has changed but which pages have memory,
    /// if there is none for all of it. What the kernel declines otherwise comes page by page. A private
    /// view copies only the pages that are stored to.
    pub fn populate(&self, off: u64, len: u64) -> Result<(), Errno> {
        let Ok(at) = self.range(off, len) else { return Ok(()) };
        if !self.writable() || self.is_private() {
            return Ok(());
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

    /// Gives a range its memory: `ENOSPC` if there is none for all of it, another error where the file system
    /// beneath gives it at the first touch only.
    pub fn provide(&self, off: u64, len: u64) -> Result<(), Errno> {
        let Some(fd) = self.fd.as_ref().filter(|_| !self.device) else { return Ok(()) };
        loop {
            match rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, off, len) {
                Err(Errno::INTR) => {}
                Err(errno) if is_full(errno) => return Err(Errno::NOSPC),
                done => return done,
            }
        }
    }

    /// Cuts the file to `len` bytes; nobody uses what lies behind. A device stays as it is.
    pub fn cut(&self, len: u64) -> Result<(), Errno> {
        let fd = self.fd.as_ref().filter(|_| !self.device);
        fd.map_or(Ok(()), |fd| rustix::fs::ftruncate(fd, len))
    }

    /// Takes the memory of a range away: it holds zeros then. `EOPNOTSUPP` where that cannot be done.
    pub fn punch(&self, off: u64, len: u64) -> Result<(), Errno> {
        let fd = self.fd.as_ref().filter(|_| !self.device).ok_or(Errno::OPNOTSUPP)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(fd, flags, off, len)
    }
}

/// The next part of a range that lies in one page: where it begins, and its length.
fn page_part(off: u64, done: usize, len: usize) -> (u64, usize) {
    let at = off + done as u64;
    (at, (len - done).min((PAGE - at % PAGE) as usize))
}
