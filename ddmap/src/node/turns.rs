//! Which holder gets the next batch (dissertation, 6.4.2: nodes in turn).
//!
//! A turn is a batch's pages, not a message: batches have fewer where less room is wanted, and a
//! holder that got every second message could get a few pages of each 64.

use crate::protocol::NodeId;
use crate::protocol::messages::PAGES;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whose turn it is: pages that holders have taken, a turn being a batch of them.
#[derive(Default)]
pub struct Turns(AtomicU64);

impl Turns {
    /// The holder whose turn it is, of at least one.
    pub fn next(&self, holders: &[NodeId]) -> NodeId {
        let turn = self.0.load(Ordering::Relaxed) / PAGES as u64;
        holders[(turn % holders.len() as u64) as usize]
    }

    /// It has taken so many pages.
    pub fn took(&self, pages: u64) {
        self.0.fetch_add(pages, Ordering::Relaxed);
    }

    /// It takes none: the next one's turn begins.
    pub fn passed(&self) {
        self.took(PAGES as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages that each of some holders has got of batches of these sizes, again and again.
    fn sent(holders: u16, sizes: &[u64]) -> Vec<u64> {
        let all: Vec<_> = (2..2 + holders).map(|one| NodeId::new(one).unwrap()).collect();
        let (turns, mut got) = (Turns::default(), vec![0; holders.into()]);
        for size in sizes.iter().cycle().take(1000) {
            let to = turns.next(&all);
            got[usize::from(to.number() - 2)] += size;
            turns.took(*size);
        }
        got
    }

    #[test]
    fn holders_get_as_many_pages_as_each_other_however_large_batches_are() {
        for sizes in [&[64, 2][..], &[64, 1, 64, 3], &[64], &[7], &[1, 64, 64]] {
            for holders in 1..5 {
                let got = sent(holders, sizes);
                let [least, most] = [got.iter().min(), got.iter().max()].map(|one| *one.unwrap());
                assert!(most - least <= 2 * PAGES as u64, "{sizes:?}: {got:?}");
            }
        }
    }

    #[test]
    fn a_holder_that_takes_none_loses_its_turn() {
        let all = [2, 3].map(|one| NodeId::new(one).unwrap());
        let turns = Turns::default();
        turns.took(10);
        assert_eq!(turns.next(&all), all[0]);
        turns.passed();
        assert_eq!(turns.next(&all), all[1]);
        turns.took(PAGES as u64);
        assert_eq!(turns.next(&all), all[0]);
    }
}
