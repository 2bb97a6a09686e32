//! Which holder gets the next batch (dissertation, 6.4.2: nodes in turn).
//!
//! Turns go by pages, not by messages: batches have fewer where less room is wanted, and a holder
//! that got every second message could get a few pages of each 64.
//!
//! Locks: `taken`, for a moment.

use crate::protocol::NodeId;
use crate::protocol::messages::PAGES;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pages that each holder has taken, from where those began that are there now.
#[derive(Default)]
pub struct RoundRobin {
    taken: Mutex<Vec<(NodeId, u64)>>,
}

impl RoundRobin {
    fn taken(&self) -> MutexGuard<'_, Vec<(NodeId, u64)>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The holders whose turn it is, as many as are wanted, or all: those that have taken least.
    /// One that comes, or comes back, begins where the last one is: it does not get all until it
    /// has as many.
    pub fn next(&self, holders: &[NodeId], wanted: usize) -> Vec<NodeId> {
        let mut taken = self.taken();
        taken.retain(|one| holders.contains(&one.0));
        let least = taken.iter().map(|one| one.1).min().unwrap_or(0);
        for holder in holders {
            if !taken.iter().any(|one| one.0 == *holder) {
                taken.push((*holder, least));
            }
        }
        let of = |holder: &NodeId| taken.iter().find(|one| one.0 == *holder).map(|one| one.1);
        let mut next = holders.to_vec();
        next.sort_by_key(of);
        next.truncate(wanted);
        next
    }

    /// A holder has taken so many pages.
    pub fn took(&self, holder: NodeId, pages: u64) {
        if let Some(one) = self.taken().iter_mut().find(|one| one.0 == holder) {
            one.1 += pages;
        }
    }

    /// It has taken none: it has had its turn.
    pub fn passed(&self, holder: NodeId) {
        self.took(holder, PAGES as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(numbers: std::ops::Range<u16>) -> Vec<NodeId> {
        numbers.map(|one| NodeId::new(one).unwrap()).collect()
    }

    /// Pages that each of some holders has got of batches of these sizes, again and again.
    fn sent(holders: u16, sizes: &[u64]) -> Vec<u64> {
        let (all, turns) = (nodes(2..2 + holders), RoundRobin::default());
        let mut got = vec![0; holders.into()];
        for size in sizes.iter().cycle().take(1000) {
            let to = turns.next(&all, 1)[0];
            got[usize::from(to.number() - 2)] += size;
            turns.took(to, *size);
        }
        got
    }

    #[test]
    fn holders_get_as_many_pages_as_each_other_however_large_batches_are() {
        for sizes in [&[64, 2][..], &[64, 1, 64, 3], &[64], &[7], &[1, 64, 64]] {
            for holders in 1..5 {
                let got = sent(holders, sizes);
                let [least, most] = [got.iter().min(), got.iter().max()].map(|one| *one.unwrap());
                assert!(most - least <= PAGES as u64, "{sizes:?}: {got:?}");
            }
        }
    }

    #[test]
    fn a_holder_that_takes_none_loses_its_turn_and_one_that_comes_gets_no_more_than_others() {
        let (all, turns) = (nodes(2..5), RoundRobin::default());
        turns.passed(turns.next(&all[..2], 1)[0]);
        assert_eq!(turns.next(&all[..2], 1), all[1..2]);
        assert_eq!(turns.next(&all[..2], 2), [all[1], all[0]]);
        for _ in 0..100 {
            turns.took(turns.next(&all[..2], 1)[0], 64);
        }
        let next: Vec<_> = (0..30)
            .map(|_| {
                let to = turns.next(&all, 1)[0];
                turns.took(to, 64);
                to
            })
            .collect();
        let of_third = next.iter().filter(|one| **one == all[2]).count();
        assert!((10..=11).contains(&of_third), "{next:?}");
    }
}
