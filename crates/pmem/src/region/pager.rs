//! Who brings the pages of a region that may lie elsewhere.
//!
//! A region has one pager, or none. Where it has one, a page may be *absent*: an access to it
//! faults, and the guarded copies of this crate give [`Fault::Region`](crate::Fault::Region), as
//! for a page that is lost. What holds nothing then asks the pager for it, and begins again
//! ([`Region::absent_page`]). So a pager is never waited for by somebody who holds what others wait
//! for: [`Pager::fault`] and [`Pager::ready`] may take as long as a network does, and are called
//! where nothing is held; all others never wait.

use crate::region::Region;
use memory::instructions::exception_table::take_last_fault;
use rustix::io::Errno;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;

/// Bytes of a load that may be had without moving a page, at most.
pub const APART: usize = 2048;

/// What an access does with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// It loads.
    Load,
    /// It stores to parts of it, or may.
    Store,
    /// It stores to all of the range that it names, and reads none of it.
    Whole,
}

/// What is known of a range.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hint {
    /// It is never absent: superblocks, lanes, the runtime, metadata.
    Stays,
    /// Data of a small file: it goes last.
    Small,
    /// Data of a file that is small no more.
    Large,
}

/// Brings pages. Ranges are bytes: offset in the region, and length.
pub trait Pager: Send + Sync {
    /// The region is mapped at this address, with so many bytes: nobody has accessed it yet.
    fn mapped(&self, address: usize, length: u64);

    /// The mapping at this address is about to go: nobody accesses it any more, and something else
    /// may have its addresses then.
    fn unmapped(&self, _address: usize) {}

    /// This process is a forked child: what was its parent's is not its own. The region is mapped
    /// anew, and nobody has accessed it yet; [`Pager::mapped`] follows. It allocates nothing: the
    /// parent's other threads may have held the heap.
    fn forked(&self) -> Result<(), Errno>;

    /// An access to this page faulted. `Ok`: it is there, or the access may be tried again. May
    /// wait. `EIO`: the page is lost; `EINTR`: a signal has come.
    fn fault(&self, page: u64, access: Access) -> Result<(), Errno>;

    /// Whether short loads of an absent page may be had without moving it: [`Pager::load_apart`].
    fn loads_apart(&self) -> bool {
        false
    }

    /// Copies bytes of one page, which is absent, from where they are; the page stays there.
    /// `false`: it is here, or is to come; it is to be accessed. May wait.
    fn load_apart(&self, _at: u64, _to: &mut [u8]) -> bool {
        false
    }

    /// Whether a page's bytes are elsewhere just now: nothing of it is in this machine's caches.
    /// Never waits.
    fn is_away(&self, _page: u64) -> bool {
        false
    }

    /// Pages of a range that are here, or come, stay until [`Pager::unpin`] of what this gives; but
    /// one may be on its way just now, which a store tells. `None`: too many are pinned.
    fn pin(&self, _range: (u64, u64)) -> Option<u64> {
        None
    }

    /// They may leave again.
    fn unpin(&self, _pin: u64) {}

    /// Whether a page holds zeros since nobody has touched it, or nobody wants what it held. Never
    /// waits.
    fn is_void(&self, _page: u64) -> bool {
        false
    }

    /// Bytes that one call may access, and have here at once: one that wants more goes in steps.
    fn at_once(&self) -> u64 {
        u64::MAX
    }

    /// A call that has met an absent page, and holds nothing, is about to begin anew, as it has so
    /// many times before. `ENOMEM`: it is to give up, since more pages came for it than it may
    /// want, and it has never had them at once.
    fn begins_anew(&self, _times: u32) -> Result<(), Errno> {
        Ok(())
    }

    /// Whether a page's bytes are gone for good, as far as is known. Never waits.
    fn is_lost(&self, page: u64) -> bool;

    /// All of a page is about to be stored to. If its bytes are lost, it holds zeros from here on:
    /// whether they were. Never waits.
    fn renew(&self, _page: u64) -> bool {
        false
    }

    /// These ranges are about to be accessed, in this order. May wait.
    fn ready(&self, ranges: &[(u64, u64)], access: Access);

    /// What is known of a range.
    fn advise(&self, range: (u64, u64), hint: Hint);

    /// What a range holds matters to nobody any more.
    fn discard(&self, range: (u64, u64));

    /// A call begins, which is about to take locks.
    fn begin(&self);

    /// Pages of a range that were never touched are about to be. `ENOSPC`: there is no room for
    /// them.
    fn provide(&self, range: (u64, u64)) -> Result<(), Errno>;

    /// The first offset from this one on whose page was ever touched: the others hold zeros.
    fn next_data(&self, from: u64) -> u64;

    /// The first offset from this one on whose page holds zeros, since nobody has touched it.
    fn next_hole(&self, from: u64) -> u64;

    /// A sync: all that was stored before is to be where the pager promises it.
    fn barrier(&self) -> Result<(), Errno>;
}

impl Region {
    /// The page, by its offset, at which this thread's last guarded access faulted, if this region
    /// has a pager and it lies in it. It is told once.
    #[cold]
    pub fn absent_page(&self) -> Option<u64> {
        self.pager()?;
        let offset = (take_last_fault() as u64).checked_sub(self.base() as u64)?;
        (offset < self.len()).then_some(offset / PAGE * PAGE)
    }
}
