//! Regions that are slowed: the way of a copy when the memory beneath is to seem slower than it is.
//!
//! What reaches the medium is slowed: copies out (of more than a line, which metadata is not, or to
//! the caller), streams, flushed lines. Words, and stores that are not flushed yet, lie in a cache.
//! Loads through mappings are the program's own.
//!
//! A region that is slowed reaches no byte `quick`ly: each copy finds its range outside, looks here
//! whether that is so, and is made here. So a region that is not slowed has no instruction for it.
//!
//! Locks: `growing`, to slow it down.

use crate::emulation::{Model, SlowMemory, Way};
use crate::faults::user_memory::{self, Fault, UserOut};
use crate::instructions::copy::{self, LINE};
use crate::instructions::dispatch::Dispatch;
use crate::persistence::tokens::InFlight;
use crate::region::Region;
use std::panic::Location;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// A longer copy is made in parts of these, up to a multiple of it: so copies of other threads and
/// processes that begin meanwhile come in between.
const PART: u64 = 256 << 10;

impl Region {
    /// Slows copies down from here on, as `model` says; only the first call counts. `busy` is the
    /// offset of two shared words that are for this alone, a multiple of 8: all processes that give
    /// the same share the bandwidth. In a region that is private, or only read, and without `busy`,
    /// the threads of this process do. [`Fault::Region`]: there are no such words.
    pub fn slow_down(&self, model: Model, busy: Option<u64>) -> Result<(), Fault> {
        if model == Model::DRAM {
            return Ok(());
        }
        let words = match busy.filter(|_| self.writable() && !self.is_private()) {
            Some(off) => {
                self.word(off.saturating_add(8))?;
                self.word(off)?
            }
            None => std::ptr::null_mut(),
        };
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: words of the mapping, which lives as long as the region; the caller says that
        // they are for this.
        self.slow.get_or_init(|| unsafe { SlowMemory::shared(model, words) });
        self.quick.store(0, Ordering::Release);
        Ok(())
    }

    /// What slows this region: for copies that are made elsewhere, by the kernel. A place in it is
    /// an address: an offset, and [`Region::base`].
    pub fn slow_memory(&self) -> Option<&SlowMemory> {
        self.slow.get()
    }

    /// Makes a copy that did not find its range [`Region::quick`]: in parts, by `copy`, which gets
    /// a part's address, how far it is from the start, and its length.
    #[cold]
    #[inline(never)]
    pub(crate) fn slowly(
        &self,
        way: Way,
        off: u64,
        len: u64,
        mut copy: impl FnMut(*mut u8, usize, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let at = self.range(off, len)?;
        let Some(slow) = self.slow.get() else { return copy(at, 0, len as usize) };
        let parts = std::iter::successors(Some((0, part(off, len))), |&(done, bytes)| {
            let done = done + bytes;
            (done < len).then(|| (done, part(off + done, len - done)))
        });
        slow.in_parts(way, at as u64, parts, |done, bytes| {
            copy(at.wrapping_add(done as usize), done as usize, bytes as usize)
        })
    }

    /// [`Region::read`].
    #[cold]
    #[inline(never)]
    pub(crate) fn read_slowly(&self, off: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.slowly(Way::Read, off, to.len() as u64, |from, done, len| {
            let to = &mut to[done..done + len];
            // SAFETY: `to` is valid for its length; the source is guarded.
            unsafe { copy::load_words(to.as_mut_ptr(), from, len) }.map_err(|_| Fault::Region)
        })
    }

    /// [`Region::read_to`], by the instructions of `dispatch`, of no more than `to` has.
    #[cold]
    #[inline(never)]
    pub(crate) fn read_to_slowly(
        &self,
        off: u64,
        to: &UserOut<'_>,
        len: usize,
        dispatch: Dispatch,
    ) -> Result<(), Fault> {
        self.slowly(Way::Read, off, len as u64, |from, done, len| {
            // SAFETY: the sink is the caller's to overwrite; both sides are guarded.
            unsafe { copy::copy(dispatch, to.start().wrapping_add(done), from, len) }
                .map_err(user_memory::region_to_caller)
        })
    }

    /// [`Region::stream_at`].
    #[cold]
    #[inline(never)]
    pub(crate) fn stream_slowly(
        &self,
        off: u64,
        from: *const u8,
        len: usize,
        at: &'static Location<'static>,
    ) -> Result<InFlight<'_>, Fault> {
        self.slowly(Way::Write, off, len as u64, |to, done, len| {
            self.stream_to(to, off + done as u64, from.wrapping_add(done), len, at)
        })?;
        Ok(InFlight::new(self))
    }

    /// [`Region::stream_zero`].
    #[cold]
    #[inline(never)]
    pub(crate) fn zero_slowly(
        &self,
        off: u64,
        len: u64,
        at: &'static Location<'static>,
    ) -> Result<InFlight<'_>, Fault> {
        self.slowly(Way::Write, off, len, |to, done, len| {
            self.zero_at(to, off + done as u64, len, at)
        })?;
        Ok(InFlight::new(self))
    }

    /// [`Region::copy`]: it is read while it is written.
    #[cold]
    #[inline(never)]
    pub(crate) fn copy_slowly(
        &self,
        from: u64,
        to: u64,
        len: u64,
        at: &'static Location<'static>,
    ) -> Result<InFlight<'_>, Fault> {
        let source = self.range(from, len)?;
        let read = self.slow.get().map(|slow| slow.read(source as u64, len));
        let copied = if self.hook().is_some() {
            let mut bytes = vec![0; len as usize];
            self.shared_read(from, &mut bytes)?;
            self.stream_at(to, bytes.as_ptr(), bytes.len(), at)
        } else {
            self.stream_at(to, source, len as usize, at)
        };
        if let Some(read) = read {
            read.wait();
        }
        copied.map_err(|_| Fault::Region)
    }

    /// [`Region::write_line`], of a line's offset.
    #[cold]
    #[inline(never)]
    pub(crate) fn write_line_slowly(
        &self,
        off: u64,
        line: &[u8; LINE as usize],
        at: &'static Location<'static>,
    ) -> Result<InFlight<'_>, Fault> {
        self.range(off, LINE)?;
        if self.hook().is_some() {
            self.write_at(off, line, at)?;
            self.flush_at(off, LINE, at);
            return Ok(InFlight::new(self));
        }
        self.slowly(Way::Write, off, LINE, |to, _, _| {
            // SAFETY: `to` is a line of the mapping.
            let stored = unsafe { copy::set_off_line(self.dispatch(), to, line) };
            if stored { Ok(()) } else { Err(Fault::Region) }
        })?;
        Ok(InFlight::new(self))
    }

    /// Flushes the lines of a range that is not reached quickly, if it has any.
    #[cold]
    #[inline(never)]
    pub(crate) fn flush_slowly(&self, off: u64, len: u64, at: &'static Location<'static>) {
        let end = off.saturating_add(len).min(self.len());
        if off >= end {
            return;
        }
        let first = off - off % LINE;
        let flushed = self.slowly(Way::Write, first, end - first, |_, done, len| {
            let line = first + done as u64;
            self.flush_lines(line, line + len as u64, at);
            Ok(())
        });
        debug_assert!(flushed.is_ok(), "the range is inside, and no flush fails");
    }
}

/// Bytes of the part that begins at `off`, `rest` bytes before the end.
fn part(off: u64, rest: u64) -> u64 {
    (PART - off % PART).min(rest)
}

#[cfg(test)]
#[path = "slow_tests.rs"]
mod tests;
