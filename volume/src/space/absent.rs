//! What a volume says to the pager of its region, if it has one: which memory stays, which is of
//! small files, which is nobody's any more; and how a call that found pages absent goes on.
//!
//! A call that meets an absent page fails as if the page were lost (`EIO`), and has changed
//! nothing, as any call that fails. It gives back all that it holds, and only then the pager is
//! asked for the page, and told where else the call goes; then it begins anew. So nobody waits for
//! somebody who waits for the pager. (A call that reads holds nothing, and goes on where it was.)
//!
//! Superblocks, lanes, the runtime and the chunks of metadata stay: lock words, records and maps
//! are never absent.
//!
//! Locks: none is held where [`Space::has_come`] is called. What is only said may be said under
//! any.

use crate::Result;
use crate::ground::layout::{BLOCK, CHUNK};
use crate::space::Space;
use crate::space::chunk::Kind;
use pmem::{Access, Hint};
use rustix::io::Errno;

impl Space {
    /// Of a call that failed with `error`, and holds nothing: whether it is to begin anew, because
    /// a page was absent that is there now. `places`: where in the region it goes.
    #[cold]
    pub(crate) fn has_come(
        &self,
        error: Errno,
        access: Access,
        places: impl FnOnce() -> Vec<(u64, u64)>,
    ) -> bool {
        let Some(pager) = self.region.pager().filter(|_| error == Errno::IO) else { return false };
        let Some(page) = self.region.absent_page() else { return false };
        let places = places();
        if !places.is_empty() {
            pager.ready(&places, access);
        }
        pager.fault(page, access).is_ok()
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
