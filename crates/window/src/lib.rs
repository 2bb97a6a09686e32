//! A *window*: a mapped part of a file, for engines over a kernel file system.
//!
//! Unlike a region of `pmem` it is a part of the file only, and many windows come and go. The file
//! is the kernel's: another process may cut it at any time. All access is guarded, and a page that
//! is gone is [`Fault::Region`].
//!
//! Stores go either through the cache or around it; around it they are durable after
//! [`memory::fence`], if the file system maps with `MAP_SYNC`.

use memory::faults::handler::install_fault_handler;
use memory::faults::user_memory::{self, Fault, UserIn, UserOut};
use memory::instructions::copy::{self, LINE, Route, prefetch};
use memory::instructions::dispatch::{self, Dispatch};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::os::fd::BorrowedFd;

/// A mapping of `len` bytes of a file.
#[derive(Debug)]
pub struct Window {
    base: *mut u8,
    len: usize,
    writable: bool,
    dispatch: Dispatch,
}

// SAFETY: the pointer is to a mapping that lives as long as the window and is only accessed by
// guarded copies that allow races.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `len` bytes of `fd` from `offset` on (multiples of the page size; the file may be
    /// shorter). `sync`: with `MAP_SYNC`, which fails with `EOPNOTSUPP` where the file system
    /// cannot. A forked child does not inherit it: it would hold the file without knowing it.
    pub fn map(
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        writable: bool,
        sync: bool,
    ) -> Result<Self, Errno> {
        install_fault_handler();
        let write = if writable { ProtFlags::WRITE } else { ProtFlags::empty() };
        let flags = if sync && writable {
            MapFlags::SHARED_VALIDATE | MapFlags::SYNC
        } else {
            MapFlags::SHARED
        };
        let prot = ProtFlags::READ | write;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, fd, offset)? };
        // SAFETY: that mapping. Where it fails a child keeps it for nothing.
        let _ = unsafe { rustix::mm::madvise(base, len, Advice::LinuxDontFork) };
        Ok(Self { base: base.cast(), len, writable, dispatch: dispatch::dispatch() })
    }

    /// Whether bytes can be stored.
    #[must_use]
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// The address of `len` bytes at `at`.
    #[inline]
    fn range(&self, at: usize, len: usize) -> Result<*mut u8, Fault> {
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok(self.base.wrapping_add(at)),
            _ => Err(Fault::Region),
        }
    }

    /// The address of the aligned word at `at`.
    #[inline]
    fn word(&self, at: usize) -> Result<*mut u8, Fault> {
        if at.is_multiple_of(8) { self.range(at, 8) } else { Err(Fault::Region) }
    }

    /// The address of a range, for a system call that reads it.
    pub fn address(&self, at: usize, len: usize) -> Result<usize, Fault> {
        self.range(at, len).map(|start| start as usize)
    }

    /// Copies `len` bytes out to the caller.
    #[inline]
    pub fn read_to(&self, at: usize, to: &UserOut<'_>, len: usize) -> Result<(), Fault> {
        let from = self.source(at, to, len)?;
        // SAFETY: the sink is the caller's to overwrite; both sides are guarded.
        unsafe { copy::copy(self.dispatch, to.start(), from, len) }
            .map_err(user_memory::region_to_caller)
    }

    /// Where bytes begin that go to the caller, which has room for them.
    #[inline]
    fn source(&self, at: usize, to: &UserOut<'_>, len: usize) -> Result<*mut u8, Fault> {
        if len > to.len() {
            return Err(Fault::Caller);
        }
        user_memory::check(to.start(), len)?;
        self.range(at, len)
    }

    /// As [`prefetch`], of a range of the window.
    #[inline]
    pub fn prefetch(&self, at: usize, len: usize) {
        if let Ok(start) = self.range(at, len) {
            prefetch(start, len);
        }
    }

    /// As [`Self::read_to`], of what was asked for by [`Self::prefetch`].
    #[inline]
    pub fn read_near(&self, at: usize, to: &UserOut<'_>, len: usize) -> Result<(), Fault> {
        let from = self.source(at, to, len)?;
        // SAFETY: the sink is the caller's to overwrite; both sides are guarded.
        unsafe { copy::copy_near(self.dispatch, to.start(), from, len) }
            .map_err(user_memory::region_to_caller)
    }

    /// Copies the caller's bytes in, through the cache.
    #[inline]
    pub fn write(&self, at: usize, from: &UserIn<'_>) -> Result<(), Fault> {
        user_memory::check(from.start(), from.len())?;
        let to = self.range(at, from.len())?;
        // SAFETY: the target is inside the mapping; both sides are guarded.
        unsafe { copy::copy(self.dispatch, to, from.start(), from.len()) }
            .map_err(user_memory::caller_to_region)
    }

    /// Copies the caller's bytes in, around the cache where whole lines are stored; the edges are
    /// stored through it and flushed. Durable after a [`memory::fence`].
    #[inline]
    pub fn stream(&self, at: usize, from: &UserIn<'_>) -> Result<(), Fault> {
        user_memory::check(from.start(), from.len())?;
        let to = self.range(at, from.len())?;
        let head = to.align_offset(LINE as usize).min(from.len());
        let body = (from.len() - head) & !(LINE as usize - 1);
        let edge = |done: usize, len: usize| -> Result<(), Fault> {
            if len == 0 {
                return Ok(());
            }
            let (to, from) = (to.wrapping_add(done), from.start().wrapping_add(done));
            // SAFETY: as below.
            unsafe { copy::store_words(to, from, len) }.map_err(user_memory::caller_to_region)?;
            self.flush_lines(to, len);
            Ok(())
        };
        edge(0, head)?;
        // SAFETY: the target is inside the mapping, aligned behind the head; both sides are
        // guarded.
        unsafe {
            let (to, from) = (to.wrapping_add(head), from.start().wrapping_add(head));
            copy::store_lines(self.dispatch.copy, Route::Streamed, to, from, body)
        }
        .map_err(user_memory::caller_to_region)?;
        edge(head + body, from.len() - head - body)
    }

    fn flush_lines(&self, start: *mut u8, len: usize) {
        let first = start as usize & !(LINE as usize - 1);
        for line in (first..start as usize + len).step_by(LINE as usize) {
            copy::flush_line(self.dispatch.flush, line as *const u8);
        }
    }

    /// Writes the lines of a range back, whichever thread stored them.
    pub fn flush(&self, at: usize, len: usize) {
        if let Ok(start) = self.range(at, len) {
            self.flush_lines(start, len);
        }
    }

    /// One byte.
    #[inline]
    pub fn byte(&self, at: usize) -> Result<u8, Fault> {
        let word = self.load(at & !7)?;
        Ok(word.to_le_bytes()[at & 7])
    }

    /// Loads an aligned word (acquire).
    #[inline]
    pub fn load(&self, at: usize) -> Result<u64, Fault> {
        // SAFETY: a word of the mapping; guarded.
        unsafe { copy::load64(self.word(at)?) }.ok_or(Fault::Region)
    }

    /// Makes the pages of a range present: for reading, which changes nothing, or for writing,
    /// which allocates what is not there. A hint.
    pub fn populate(&self, at: usize, len: usize, write: bool) {
        let Ok(start) = self.range(at, len) else { return };
        let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        // SAFETY: inside this window's mapping; populating changes no content.
        let _ = unsafe { rustix::mm::madvise(start.cast(), len, advice) };
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: this window's own mapping; nothing points into it any more. It cannot fail.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;
    use std::os::fd::AsFd;

    #[test]
    fn bytes_go_in_and_out_and_a_cut_file_is_a_fault() {
        let file = rustix::fs::memfd_create("window", MemfdFlags::CLOEXEC).expect("memfd");
        rustix::fs::ftruncate(&file, 16384).expect("size");
        let window = Window::map(file.as_fd(), 4096, 8192, true, false).expect("map");
        let bytes: Vec<u8> = (0..5000_u32).map(|byte| byte as u8).collect();
        for (at, len) in [(0, 5000), (7, 130), (63, 64), (64, 64), (1, 1), (4090, 20)] {
            window.stream(at, &UserIn::new(&bytes[..len])).expect("stream");
            memory::fence();
            let mut back = vec![0; len];
            window.read_to(at, &UserOut::new(&mut back), len).expect("read");
            assert_eq!(back, bytes[..len], "streamed {len} at {at}");
            back.fill(0);
            window.prefetch(at, len);
            window.read_near(at, &UserOut::new(&mut back), len).expect("read");
            assert_eq!(back, bytes[..len], "read near {len} at {at}");
            assert_eq!(window.byte(at + len - 1), Ok(bytes[len - 1]));
        }
        window.write(8000, &UserIn::new(&bytes[..192])).expect("write");
        assert_eq!(window.write(8001, &UserIn::new(&bytes[..192])), Err(Fault::Region));
        rustix::fs::ftruncate(&file, 4096).expect("cut");
        let mut back = [0; 8];
        assert_eq!(window.read_to(0, &UserOut::new(&mut back), 8), Err(Fault::Region));
        assert_eq!(window.write(0, &UserIn::new(&bytes[..8])), Err(Fault::Region));
        assert_eq!(window.stream(0, &UserIn::new(&bytes[..128])), Err(Fault::Region));
        assert_eq!(window.byte(5), Err(Fault::Region));
    }
}
