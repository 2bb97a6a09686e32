//! What a volume says to the pager of its region, if it has one: which memory stays, which is of
//! small files, which is nobody's any more; and how a call that found pages absent goes on.
//!
//! A call that meets an absent page fails as if the page were lost (`EIO`), and has changed
//! nothing, as any call that fails. It gives back all that it holds, and only then the pager is
//! asked for the page, and told where else the call goes; then it begins anew. So nobody waits for
//! somebody who waits for the pager. (A call that reads holds nothing, and goes on where it was.)
//!
//! All pages that a call stores to are to be there at once. So one that wants more than that goes
//! in steps ([`Space::at_once`]), each with the guarantees of a call of its own.
//!
//! Superblocks, lanes, the runtime and the chunks of metadata stay: lock words, records and maps
//! are never absent.
//!
//! Locks: none is held where [`Space::has_come`] is called. What is only said may be said under
//! any.

use crate::Result;
use crate::medium::layout::{BLOCK, CHUNK};
use crate::space::Space;
use crate::space::chunk::Kind;
use pmem::{Access, Hint, Pager};
use rustix::io::Errno;

/// Where in the region a call goes: offsets and bytes.
#[derive(Default)]
pub(crate) struct Places {
    pub(crate) all: Vec<(u64, u64)>,
    /// Pages in a row to all of which it stores.
    pub(crate) whole: Vec<(u64, u64)>,
    /// Pages to parts of which it stores.
    pub(crate) parts: Vec<u64>,
}

impl From<Vec<(u64, u64)>> for Places {
    /// Of a call that stores to none of them whole.
    fn from(all: Vec<(u64, u64)>) -> Self {
        Self { all, ..Self::default() }
    }
}

/// Of a call that stores to all of its range, and has met this page, which cannot be had (and was
/// known to be lost, or not): has the pages to all of which it stores hold zeros, where they are
/// lost, and gives whether it can begin anew. Not if it needs a page of which something stays. One
/// that is none of its range it wanted to copy, and does not where it is known to be lost.
#[cold]
fn goes_on(pager: &dyn Pager, (page, was_lost): (u64, bool), places: &Places) -> bool {
    if !pager.is_lost(page) {
        return false;
    }
    let is_whole = places.whole.iter().any(|(at, bytes)| (*at..at + bytes).contains(&page));
    if !is_whole && !places.parts.contains(&page) {
        return !was_lost;
    }
    if !is_whole || places.parts.iter().any(|part| pager.fault(*part, Access::Store).is_err()) {
        return false;
    }
    let whole = places.whole.iter();
    for page in whole.flat_map(|(at, bytes)| (*at..at + bytes).step_by(BLOCK as usize)) {
        // Another call may be faster.
        pager.renew(page);
    }
    true
}

impl Space {
    /// Of a call that failed with `error`, and holds nothing: whether it is to begin anew, because
    /// a page was absent that is there now; else what it is to give. `times`: how often it has
    /// begun anew. `places`: where in the region it goes.
    ///
    /// A page whose bytes are lost is fresh for a call that stores to all of it.
    #[cold]
    pub(crate) fn has_come(
        &self,
        error: Errno,
        access: Access,
        times: &mut u32,
        places: impl Fn() -> Places,
    ) -> Result<()> {
        let pager = self.region.pager().filter(|_| error == Errno::IO).ok_or(error)?;
        let page = self.region.absent_page().ok_or(error)?;
        pager.begins_anew(*times)?;
        *times = times.saturating_add(1);
        let found = places();
        if !found.all.is_empty() {
            pager.ready(&found.all, access);
        }
        let was_lost = pager.is_lost(page);
        match pager.fault(page, access) {
            Ok(()) => Ok(()),
            // As of a kernel's file: behind the handler the call goes on.
            Err(Errno::INTR | Errno::AGAIN) => Err(vfs::BEGIN_ANEW),
            Err(_) if access == Access::Whole && goes_on(pager, (page, was_lost), &places()) => {
                Ok(())
            }
            Err(_) => Err(error),
        }
    }

    /// Whether some of these blocks are known to be lost, of a region that has a pager: they cannot
    /// be copied.
    #[cold]
    pub(crate) fn has_lost(&self, block: u64, blocks: u64) -> bool {
        let Some(pager) = self.region.pager() else { return false };
        (block..block + blocks).any(|block| pager.is_lost(block * BLOCK))
    }

    /// Of a block of this call's own that it gives up: whether its memory cannot be had again.
    /// Where a pager has lost it, it is fresh from here on.
    #[cold]
    pub(crate) fn stays_lost(&self, block: u64) -> bool {
        self.is_lost_block(block) && {
            self.say_nobodys(block, 1);
            self.is_lost_block(block)
        }
    }

    /// Bytes that a call may access in one step: what its pager can have here at once.
    #[inline]
    pub(crate) fn at_once(&self) -> u64 {
        self.region.pager().map_or(u64::MAX, |pager| pager.at_once().max(BLOCK))
    }

    /// Where a step ends of what goes from `offset` to `end`.
    pub(crate) fn end_of_step(&self, offset: u64, end: u64) -> u64 {
        end.min(offset.saturating_add(self.at_once()) / BLOCK * BLOCK)
    }

    /// Of a recovery that failed with `error`: the page that was only absent, to be brought where
    /// nothing is held ([`Space::bring`]); each step of a recovery may be done again.
    #[cold]
    pub(crate) fn absent_at(&self, error: Errno) -> Option<u64> {
        let pager = self.region.pager().filter(|_| error == Errno::IO)?;
        self.region.absent_page().filter(|page| !pager.is_lost(*page))
    }

    /// Brings that page.
    #[cold]
    pub(crate) fn bring(&self, page: u64) -> Result<()> {
        self.region.pager().map_or(Ok(()), |pager| pager.fault(page, Access::Store))
    }

    /// Reads what may be absent, where others wait for this anyway: its pages are brought.
    pub(crate) fn with_absent<T>(&self, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match read() {
                Err(error) => self.bring(self.absent_at(error).ok_or(error)?)?,
                done => return done,
            }
        }
    }

    /// At an attach: what is in front of the pool, and the chunks of metadata that there are.
    pub(crate) fn say_what_stays(&self) -> Result<()> {
        let Some(pager) = self.region.pager() else { return Ok(()) };
        pager.advise((0, self.pool()), Hint::Stays);
        for chunk in 0..self.chunks() {
            if self.chunk_kind(chunk)? == Kind::Metadata {
                self.say_of_chunk(chunk, Hint::Stays);
            }
        }
        Ok(())
    }

    /// Of a chunk that gets a kind, or another one.
    #[inline]
    pub(crate) fn say_of_chunk(&self, chunk: u64, hint: Hint) {
        if let Some(pager) = self.region.pager() {
            pager.advise((self.chunk_start(chunk) * BLOCK, CHUNK), hint);
        }
    }

    /// Blocks are free.
    #[inline]
    pub(crate) fn say_nobodys(&self, block: u64, blocks: u64) {
        if let Some(pager) = self.region.pager() {
            pager.discard((block * BLOCK, blocks * BLOCK));
        }
    }
}
