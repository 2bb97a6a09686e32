//! Pages that nobody wants any more, and pages whose bytes are lost.

use crate::paging::mapper::ProcessMapper;
use crate::paging::pager::RegionPager;
use crate::protocol::messages::KeptPage;
use crate::protocol::{Discard, Flags, Location, Owed, State, Word};
use crate::shared_memory::view::View;

/// Pages that are made holes by one call, at most: they are busy that long.
const RUN: usize = 64;

impl RegionPager {
    /// Makes pages holes, wherever they are, also those that are lost; zeros are there from now on.
    /// Pages that somebody is at stay as they are; so do those that must stay, which an operation
    /// may need again where it cannot wait for room.
    pub(super) fn drop_pages(&self, first: u64, pages: u64) {
        let table = &self.ground.table;
        let end = (first + pages).min(table.pages());
        let words = (first..end).map(|page| (page, table.word(page)));
        let mut unwanted = words.filter(|(page, word)| self.is_to_go(*page, *word));
        loop {
            let some: Vec<_> = unwanted.by_ref().take(RUN).collect();
            if some.is_empty() {
                return;
            }
            self.discard_by(Discard::new(some));
        }
    }

    fn discard_by(&self, mut discard: Discard) {
        let view = View::new(&self.ground, ProcessMapper::new(self, 0, None));
        while !discard.step(&view) {}
        for (page, owner, version) in discard.owed() {
            self.owe([Owed { to: owner, kept: KeptPage::new(page, version) }]);
        }
    }

    /// Whether there is something to do for a page that nobody wants.
    fn is_to_go(&self, page: u64, word: Word) -> bool {
        match word.state() {
            State::Lost => true,
            // Void, or never touched.
            State::Absent if word.flags().has(Flags::EMPTY) => false,
            State::Absent if word.0 == 0 => self.is_placed_nowhere(page),
            State::Absent | State::Owned | State::Clean => {
                !word.flags().has(Flags::STAYS) || self.is_placed_nowhere(page)
            }
            _ => false,
        }
    }

    fn is_placed_nowhere(&self, page: u64) -> bool {
        matches!(self.ground.place(page), Ok(Location::Lost(..)))
    }

    /// Whether a page's bytes are gone for good, as far as is known.
    pub(super) fn has_lost(&self, page: u64) -> bool {
        match self.ground.table.word(page).state() {
            State::Lost => true,
            State::Absent => self.is_placed_nowhere(page),
            _ => false,
        }
    }

    /// All of a page is about to be stored to: if its bytes are lost, zeros are there from now on.
    pub(super) fn renew_lost(&self, page: u64) -> bool {
        let is_lost = self.has_lost(page);
        if is_lost {
            self.discard_by(Discard::of_lost(page, self.ground.table.word(page)));
        }
        is_lost
    }
}
