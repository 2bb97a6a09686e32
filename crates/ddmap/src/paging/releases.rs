//! What holders are to drop, since a page has come, or is wanted no more. It goes with the next
//! request to its holder, or by itself where it is much.
//!
//! Locks: `owed`, for a moment.

use crate::paging::pager::{LOOK, RegionPager};
use crate::protocol::messages::{Answer, PAGES, Request};
use crate::protocol::{NodeId, Version};
use crate::shared_memory::counters::Count;

/// Releases that are owed to holders are sent when there are so many, if no fetch takes them.
const OWED_MAX: usize = 48;

impl RegionPager {
    fn owed(&self) -> std::sync::MutexGuard<'_, Vec<(NodeId, u64, Version)>> {
        self.owed.lock()
    }

    /// A page's old owner is to drop it.
    pub(super) fn owe(&self, page: u64, owed: Option<(NodeId, Version)>) {
        if let Some((owner, version)) = owed {
            self.owed().push((owner, page, version));
        }
    }

    /// The same in a signal handler: without a wait, and without the heap. What is not noted is
    /// found when claims are compared.
    pub(super) fn owe_here(&self, page: u64, owed: Option<(NodeId, Version)>) {
        if let Some((owner, version)) = owed
            && let Ok(mut owed) = self.owed.get().try_lock()
            && owed.len() < owed.capacity()
        {
            owed.push((owner, page, version));
        } else if owed.is_some() {
            self.ground.table.set_in_vain();
        }
    }

    /// What a holder is to drop, up to as many as go with a request.
    pub(super) fn take_owed(&self, owner: NodeId) -> Vec<(u64, Version)> {
        let mut taken = Vec::new();
        self.owed().retain(|(to, page, version)| {
            let goes = *to == owner && taken.len() < PAGES;
            if goes {
                taken.push((*page, *version));
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
            owed.first().filter(|_| all || owed.len() > OWED_MAX).map(|one| one.0)
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
    pub(super) fn not_told(&self, pages: &[(u64, Version)]) {
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
