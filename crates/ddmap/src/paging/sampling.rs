//! Looking: a page's entry is taken away in this process, and who wants the page traps and says so
//! (`docs/engines.md`, "Looking").
//!
//! What a call of this process holds stays mapped, since the kernel's own access to a page without
//! an entry fails. Either who holds waits for the look, or the look sees the hold: both say what
//! they do by a locked instruction before they ask for the other.

use crate::paging::pager::RegionPager;
use crate::paging::private_mappings::part;
use crate::protocol::PAGE;
use crate::shared_memory::maps::PagedMapping;
use crate::shared_memory::runs::Runs;
use crate::shared_memory::table::Table;
use crate::shared_memory::uffd::Uffd;
use rustix::mm::Advice;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads of this process that look.
static LOOKING: AtomicUsize = AtomicUsize::new(0);

/// Waits for those that have asked already what is held.
pub(super) fn wait() {
    while LOOKING.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
}

/// In a forked child: its parent's threads look there.
pub(super) fn forked() {
    LOOKING.store(0, Ordering::SeqCst);
}

/// A look of this thread.
pub(super) struct Look<'p> {
    uffd: &'p Uffd,
    held: Vec<Range<u64>>,
}

impl<'p> Look<'p> {
    pub(super) fn begin(table: &Table, uffd: &'p Uffd) -> Self {
        LOOKING.fetch_add(1, Ordering::SeqCst);
        Self { uffd, held: table.own_holds() }
    }

    /// Takes the entries of pages in a row away in one shared mapping: their bytes stay in the
    /// file.
    pub(super) fn at(&self, pages: &Range<u64>, at: usize) {
        let length = (pages.end - pages.start) * PAGE;
        let is_held = self.held.iter().any(|held| held.start < pages.end && pages.start < held.end);
        // What our userfaultfd can protect is a mapping of the region: nothing else is touched,
        // whatever the list says. (Mapping it would tell the same, and show a page that leaves.)
        if is_held || self.uffd.protect(at, length, false).is_err() {
            if length > PAGE {
                // Some of them may be neither held nor gone.
                let each = pages.clone().zip((at..).step_by(PAGE as usize));
                each.for_each(|(page, at)| self.at(&(page..page + 1), at));
            }
            return;
        }
        // SAFETY: pages of a shared mapping of the region, whose bytes are in its file. The engine
        // has its mapping until it is told to be gone, and the caller keeps the program's.
        let _ =
            unsafe { rustix::mm::madvise(at as *mut _, length as usize, Advice::LinuxDontNeed) };
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        LOOKING.fetch_sub(1, Ordering::SeqCst);
    }
}

impl RegionPager {
    /// Whether the node has asked about pages at which the program's mappings were not looked yet.
    pub(crate) fn is_asked(&self) -> bool {
        self.looked[1].load(Ordering::Relaxed) != self.maps().asked()
    }

    /// Pages that the node has asked about since this was called last.
    fn asked_since(&self, who: usize) -> Option<Runs> {
        let (maps, looked) = (self.maps(), &self.looked[who]);
        let (seen, asked) = (looked.load(Ordering::Relaxed), maps.asked());
        // Another thread that looks does it for both.
        let mine = seen != asked
            && looked.compare_exchange(seen, asked, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        mine.then(|| Runs::of(maps.asked_since(seen).map(|page| page..page + 1)))
    }

    /// Looks at pages in the engine's own mapping: the next access there traps, and says that they
    /// are wanted.
    pub(crate) fn look_in_engine(&self) {
        let Some(asked) = self.asked_since(0) else { return };
        let start = self.main.0.load(Ordering::Acquire);
        let pages = self.main.1.load(Ordering::Acquire) / PAGE;
        let look = Look::begin(&self.ground.table, &self.uffd);
        for run in asked.iter().filter(|run| run.start < pages) {
            look.at(&(run.start..run.end.min(pages)), start + (run.start * PAGE) as usize);
        }
    }

    /// From here on the program may store to shared mappings in a range of addresses. Their entries
    /// go, since those of clean pages are protected: the next touch is as a store.
    pub(crate) fn may_store(&self, range: &Range<usize>) {
        let parts = self.maps().each().filter(|map| map.shared && !map.writes);
        let parts: Vec<_> = parts.filter_map(|map| part(&map, range)).collect();
        let look = Look::begin(&self.ground.table, &self.uffd);
        for part in parts {
            // One for which the list has no place is as before: its stores trap.
            if self.maps().replace(PagedMapping { writes: true, ..part }) {
                look.at(&part.pages(), part.start);
            }
        }
    }

    /// The same in the program's mappings. Nobody may change one meanwhile.
    pub fn look_everywhere(&self) {
        self.look_in_engine();
        let Some(asked) = self.asked_since(1) else { return };
        let own = self.main.0.load(Ordering::Acquire);
        let look = Look::begin(&self.ground.table, &self.uffd);
        // What a private mapping shows may be its own, and nowhere else.
        for map in self.maps().each().filter(|map| map.shared && !map.stays && map.start != own) {
            for run in asked.iter() {
                if let Some((at, pages)) = map.part_of(run.start, run.end - run.start) {
                    let first = run.start.max(map.page);
                    look.at(&(first..first + pages), at);
                }
            }
        }
    }
}
