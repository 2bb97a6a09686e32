//! A circle is one whose waits all stand at once.

use super::wait_graph::told_circle;
use super::{Holder, Lock};
use crate::Volume;
use crate::testing::{file, fresh};

/// Four processes' locks on as many files, of chains of their own.
struct Stage {
    volume: std::sync::Arc<Volume>,
    inodes: Vec<u64>,
    holders: Vec<Holder>,
}

impl Stage {
    fn new() -> Self {
        let (volume, root) = fresh();
        let mut inodes: Vec<u64> = Vec::new();
        for number in 0..64 {
            let ino = volume.create(root, format!("{number}").as_bytes(), &file()).unwrap().ino;
            if inodes.iter().all(|&other| volume.chain_of(other) != volume.chain_of(ino)) {
                inodes.push(ino);
            }
        }
        inodes.truncate(4);
        let holders: Vec<_> = (1..=4).map(|slot| Holder::process(slot, 1)).collect();
        let stage = Self { volume, inodes, holders };
        for holder in 0..4 {
            stage.set(holder, false);
        }
        stage
    }

    /// The lock of a holder on its file, or its end.
    fn set(&self, holder: usize, unlock: bool) {
        let (ino, whose) = (self.inodes[holder], self.holders[holder]);
        let lock = Lock { holder: whose, write: true, start: 0, end: 9 };
        let chain = self.volume.chain(ino).unwrap();
        let all = chain.locks(ino).unwrap();
        chain.set(ino, &all, &lock, unlock).unwrap();
    }

    /// `me` waits for the lock of another.
    fn waits(&self, me: usize, other: usize) -> u32 {
        let ino = self.inodes[other];
        let chain = self.volume.chain(ino).unwrap();
        chain.say_waiting(ino, self.holders[me], self.holders[other]).unwrap()
    }
}

/// One says for whom it waits, and is about to look for a circle. Meanwhile that one unlocks, and
/// waits for the first one's: the first got `EDEADLK` by its own wait, which was over. So did the
/// other where the first was just looking whether the holder lives: it did not count as a waiter
/// then, and what was unlocked was not counted.
#[test]
fn a_wait_that_is_over_closes_no_circle() {
    let stage = Stage::new();
    let first = stage.waits(0, 1);
    assert!(!stage.volume.closes_circle(first).unwrap());
    stage.set(1, true);
    let second = stage.waits(1, 0);
    assert!(!stage.volume.closes_circle(first).unwrap(), "its own wait is over");
    assert!(!stage.volume.closes_circle(second).unwrap(), "it sees that, too");
    // The lock is somebody else's by then, for which it waits anew.
    stage.volume.unsay_waiting(first).unwrap();
    stage.set(1, false);
    let anew = stage.waits(0, 1);
    assert!(
        stage.volume.closes_circle(anew).unwrap() && stage.volume.closes_circle(second).unwrap()
    );
}

/// A wait is seen, and over before another one that it would close a circle with begins: all are
/// looked at again.
#[test]
fn waits_that_were_not_at_once_are_no_circle() {
    let stage = Stage::new();
    let entries = [(0, 1), (1, 2), (2, 3)].map(|(me, other)| stage.waits(me, other));
    let last = stage.waits(3, 0);
    let seen = stage.volume.told_waits().unwrap();
    assert!(entries.iter().chain([&last]).all(|&entry| told_circle(&seen, entry)));
    // One goes on, and waits for the same again.
    stage.set(2, true);
    stage.volume.unsay_waiting(entries[1]).unwrap();
    stage.set(2, false);
    stage.waits(1, 2);
    let mut both = stage.volume.told_waits().unwrap();
    assert!(told_circle(&both, last));
    both.retain(|told| seen.contains(told));
    assert_eq!(both.len(), 3);
    assert!(!told_circle(&both, last));
}
