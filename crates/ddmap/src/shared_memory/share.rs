//! How much of a volume is on its host, and how much may be (`solera run --local`): words in the
//! header of its node table.
//!
//! | word | what | written by |
//! |---|---|---|
//! | local | pages that may be here besides those that stay; 0: no limit | the node |
//! | reserve | of them, pages that are to be free | the node |
//! | here | pages that are here, or are about to come | the process that brings or drops one |
//! | stays | pages that must stay (`Flags::STAYS`) | the process that says so of one |
//! | taken | pages that have come, ever: its time goes by it | who brings one |
//!
//! A process that dies may leave a page counted that it has not brought. The node counts anew
//! behind a death ([`Share::recount`]): a stale count is harmless, room is missing for a while.

use crate::shared_memory::capacity::{TICKS, Tally};
use pmem::Region;
use std::time::Duration;

const LOCAL: u64 = 192;
const RESERVE: u64 = 200;
const HERE: u64 = 256;
const STAYS: u64 = 320;
const TAKEN: u64 = 384;
/// Pages that are kept free, at least, and the part of the share that is.
const RESERVE_LEAST: u64 = 64;
const RESERVE_PART: u64 = 20;
/// The least that a program may ask for, in pages: a call may fill 2 MiB at once, and would begin
/// anew for ever.
pub const LOCAL_LEAST: u64 = 1024;

/// The share of a volume, in its node table.
#[derive(Clone, Copy)]
pub struct Share<'t>(&'t Region);

impl<'t> Share<'t> {
    pub(super) fn new(table: &'t Region) -> Self {
        Self(table)
    }

    fn get(self, word: u64) -> u64 {
        self.0.shared_load(word).unwrap_or(0)
    }

    fn here(self) -> Tally<'t> {
        Tally::new(self.0, HERE)
    }

    /// Sets how many pages may be here besides those that stay; `None`: any number. `ahead`:
    /// whether some of them are to be kept free.
    pub fn set(self, local: Option<u64>, ahead: bool) {
        let local = local.map_or(0, |pages| pages.max(LOCAL_LEAST));
        let reserve =
            if ahead { (local / RESERVE_PART).max(RESERVE_LEAST).min(local / 2) } else { 0 };
        for (word, value) in [(RESERVE, reserve), (LOCAL, local)] {
            if self.get(word) != value {
                // A table that vanished is nobody's any more.
                let _ = self.0.shared_store(word, value);
            }
        }
    }

    /// Pages that may be here besides those that stay, if that is limited.
    pub fn local(self) -> Option<u64> {
        Some(self.get(LOCAL)).filter(|local| *local > 0)
    }

    /// Pages that may be here.
    fn limit(self) -> u64 {
        self.local().map_or(u64::MAX, |local| local.saturating_add(self.stays()))
    }

    /// Pages that must stay.
    pub fn stays(self) -> u64 {
        self.get(STAYS)
    }

    /// Pages that are here, or are about to come.
    pub fn pages(self) -> u64 {
        self.here().get()
    }

    /// Pages that may come.
    pub fn free(self) -> u64 {
        self.limit().saturating_sub(self.pages())
    }

    /// Pages that are to leave, until as many are free as are to be.
    pub fn missing(self) -> u64 {
        self.pages().saturating_add(self.get(RESERVE)).saturating_sub(self.limit())
    }

    /// Whether less than half of what is to be free is so.
    pub fn is_short(self) -> bool {
        let free = self.free();
        free == 0 || free * 2 < self.get(RESERVE)
    }

    /// A page is to come: whether it may.
    pub(super) fn take(self) -> bool {
        if self.here().take(self.limit()).is_none() {
            return false;
        }
        // As in `set`.
        let _ = self.0.shared_add(TAKEN, 1);
        true
    }

    /// So many pages are gone, or have not come.
    pub(super) fn give(self, pages: u64) {
        self.here().give(pages);
    }

    /// A page is to stay from now on, or may leave.
    pub(super) fn page_stays(self, stays: bool) {
        if stays {
            // As in `set`.
            let _ = self.0.shared_add(STAYS, 1);
        } else {
            Tally::new(self.0, STAYS).give(1);
        }
    }

    /// Counts anew, behind a death, as `Capacity::recount` does: whether all is right.
    pub fn recount(self, here: impl Fn() -> u64, stay: impl Fn() -> u64, rest: Duration) -> bool {
        let stays = Tally::new(self.0, STAYS).recount(stay, rest);
        self.here().recount(here, rest) && stays
    }

    /// The volume's time, as `Capacity::tick`: it goes by the pages that come to this share.
    pub(super) fn tick(self, local: u64) -> u16 {
        ((self.get(TAKEN) / (local / TICKS).max(1)) & 0xFFF) as u16
    }
}
