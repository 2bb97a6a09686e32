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

use crate::region::Region;
use emulation::{Model, SlowMemory, Way};
use memory::faults::user_memory::Fault;
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
}

/// Bytes of the part that begins at `off`, `rest` bytes before the end.
fn part(off: u64, rest: u64) -> u64 {
    (PART - off % PART).min(rest)
}
