//! Pages that are mapped in the program's mapping with one that was touched: those that have come
//! with it, or, if it was here already, those behind it. A trap costs as much as to map some
//! dozens of pages, and neighbours are likely to be touched, too (as the kernel maps pages around
//! one that was touched).
//!
//! Only where nobody changes a mapping meanwhile: behind the one that was touched another file may
//! be mapped by then, whose pages leave just now and must not be stored to.
//!
//! A page about which its node asks is left out: its own touch is the answer.

use crate::paging::mapper;
use crate::paging::pager::RegionPager;
use crate::protocol::messages::PAGES;
use crate::protocol::{Flags, PAGE, State};
use crate::shared_memory::counters::Touch;
use crate::shared_memory::maps::PagedMapping;
use std::cell::Cell;

/// Pages behind one that was here already, at most.
pub(super) const MOST: u64 = 15;

/// A touch that was served: its address, and the pages that have come with it, so many.
#[derive(Clone, Copy)]
pub(super) struct Served {
    pub(super) address: usize,
    pages: [u64; PAGES],
    count: usize,
}

thread_local! {
    /// This thread's, until its others are mapped.
    static SERVED: Cell<Option<Served>> = const { Cell::new(None) };
}

/// A touch was served, by which these pages have come.
pub(super) fn note(address: usize, pages: &[u64]) {
    let is_minor = mapper::kind() == Touch::Minor;
    if !is_minor && pages.len() < 2 {
        return SERVED.set(None);
    }
    let mut served = Served { address, pages: [0; PAGES], count: 0 };
    if !is_minor {
        served.count = pages.len().min(PAGES);
        served.pages[..served.count].copy_from_slice(&pages[..served.count]);
        served.pages[..served.count].sort_unstable();
    }
    SERVED.set(Some(served));
}

/// Whether a touch of this thread was served whose others are not mapped yet.
pub(super) fn is_noted() -> bool {
    SERVED.with(|served| served.get().is_some())
}

/// It, once.
pub(super) fn take() -> Option<Served> {
    SERVED.take()
}

impl RegionPager {
    /// Maps pages with the one that was touched. Nobody may change a mapping meanwhile.
    pub(super) fn map_others(&self, served: &Served) {
        let Some((page, map)) = self.mapping_at(served.address) else { return };
        if served.count == 0 {
            return self.map_run(page + 1, MOST, map);
        }
        for run in served.pages[..served.count].chunk_by(|one, next| one + 1 == *next) {
            // The one that was touched is there: what is mapped ends a run.
            let parts = run.split(|other| *other == page).filter(|part| !part.is_empty());
            parts.for_each(|part| self.map_run(part[0], part.len() as u64, map));
        }
    }

    /// Maps so many pages, at most, as far as they are here, and not mapped already, in a mapping
    /// (`None`: the engine's own). Clean ones are protected; but where the kernel may store, a
    /// clean one is left to its own touch.
    pub(super) fn map_run(&self, first: u64, most: u64, map: Option<PagedMapping>) {
        let table = &self.ground.table;
        let map = map.unwrap_or_else(|| self.whole());
        let Some((at, most)) = map.part_of(first, most) else { return };
        let first = first.max(map.page);
        // As a page that is touched: named before its word is looked at.
        let name = table.name_pages(first, most);
        let state = |page: u64| {
            let word = table.word(page);
            (!word.flags().has(Flags::ASKED)).then_some(word.state())
        };
        let end = first + most;
        let mut page = first;
        while let Some(found) = (page < end).then(|| state(page)).flatten() {
            let is_clean = found == State::Clean;
            if !found.is_here() || is_clean && map.opens() {
                break;
            }
            let run = 1 + (page + 1..end).take_while(|next| state(*next) == Some(found)).count();
            let place = at + ((page - first) * PAGE) as usize;
            // What is mapped already, or is no page, ends it.
            if self.uffd.show(place, run as u64 * PAGE, is_clean && map.shared).is_err() {
                break;
            }
            page += run as u64;
        }
        table.unname(name);
    }
}
