//! What holders are to drop, or to know for a spare, since a page has come, or is wanted no more.
//! It goes with the next request to its holder, or by itself where it is much.
//!
//! Locks: `owed`, for a moment.

use crate::paging::pager::{LOOK, RegionPager};
use crate::protocol::messages::{Answer, KeptPage, PAGES, Request};
use crate::protocol::{NodeId, Owed};
use crate::shared_memory::counters::Count;

/// Releases that are owed to holders are sent when there are so many, if no fetch takes them.
const OWED_MAX: usize = 48;

impl RegionPager {
    fn owed(&self) -> std::sync::MutexGuard<'_, Vec<Owed>> {
        self.owed.lock()
    }

    /// Pages' old owners are to hear of it.
    pub(super) fn owe(&self, owed: impl IntoIterator<Item = Owed>) {
        self.owed().extend(owed);
    }

    /// The same in a signal handler: without a wait, and without the heap. What is not noted is
    /// found when claims are compared.
    pub(super) fn owe_here(&self, owed: Owed) {
        if let Ok(mut all) = self.owed.get().try_lock()
            && all.len() < all.capacity()
        {
            all.push(owed);
        } else {
            self.ground.table.set_in_vain();
        }
    }

    /// What a holder is to drop, or to know for a spare, up to as many as go with a request.
    pub(super) fn take_owed(&self, owner: NodeId) -> Vec<KeptPage> {
        let mut taken = Vec::new();
        self.owed().retain(|owed| {
            let goes = owed.to == owner && taken.len() < PAGES;
            if goes {
                taken.push(owed.kept);
            }
            !goes
        });
        taken
    }

    /// Tells holders what they are to drop, if that is much, or `all`. What is not told is found
    /// by the node when it compares what holders keep with the directory.
    pub fn release_owed(&self, all: bool) {
        while let Some(owner) = {
            let owed = self.owed();
            owed.first().filter(|_| all || owed.len() > OWED_MAX).map(|one| one.to)
        } {
            let pages = self.take_owed(owner);
            let request = Request::Release { pages: pages.clone() };
            if !matches!(self.carrier.ask(owner, &request, LOOK), Ok(Answer::Released(_))) {
                return self.not_told(&pages);
            }
        }
    }

    /// A holder may not have dropped these. The node tells it later: here every call would wait for
    /// one that does not answer.
    pub(super) fn not_told(&self, pages: &[KeptPage]) {
        if !pages.is_empty() {
            self.ground.table.set_in_vain();
        }
    }

    /// What the carrier has given up is counted; `all`: it gives up what it has kept.
    pub(super) fn see_what_was_given_up(&self, all: bool) {
        let given = self.carrier.given_up(all);
        self.ground.count(Count::AheadWasted, given.pages);
        if given.is_untold {
            self.ground.table.set_in_vain();
        }
    }
}
