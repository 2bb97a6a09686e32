//! A chain of locks is strung anew in the order in which it was; what a process left behind that is
//! gone is told from what the next one in its slot has.

use super::*;
use crate::Volume;
use crate::open::record_lock::Wait;
use crate::testing::{file, fresh};
use vfs::{FileSystem, LockKind, LockOwner, Locks, OpenFlags, RecordLock};

fn order(volume: &Volume, ino: u64) -> Vec<(u64, u64)> {
    let locks = volume.chain(ino).unwrap().locks(ino).unwrap();
    locks.iter().map(|(_, lock)| (lock.holder.0, lock.start)).collect()
}

/// `F_GETLK` names the first of several locks, by the order in which their holders came. A process
/// that was killed while it held a chain (it was recovering another one) left it in that of the
/// table, backwards.
#[test]
fn a_chain_whose_holder_died_keeps_its_order() {
    let (volume, root) = fresh();
    let ino = volume.create(root, b"f", &file()).unwrap().ino;
    let lock = |number, start| {
        let holder = Holder::description(Desc::new(number, 1));
        Lock { holder, write: false, start, end: start + 5 }
    };
    let set = |lock: &Lock, unlock| {
        let chain = volume.chain(ino).unwrap();
        let all = chain.locks(ino).unwrap();
        chain.set(ino, &all, lock, unlock).unwrap();
    };
    for (number, start) in [(5, 0), (1, 0), (9, 40), (3, 0), (9, 0), (1, 60), (9, 60)] {
        set(&lock(number, start), false);
    }
    set(&lock(1, 0), true);
    set(&lock(7, 0), false);
    let (chain, before) = (volume.chain_of(ino), order(&volume, ino));
    let starts: Vec<u64> = before.iter().map(|&(_, start)| start).collect();
    assert_eq!(starts, [0, 60, 0, 40, 60, 0, 0]);
    volume.string_anew(chain).unwrap();
    assert_eq!(order(&volume, ino), before);

    // One that was being put in stands where it would have.
    let (held, half) = (volume.chain(ino).unwrap(), lock(9, 20));
    let at = volume.rt.lock_record(volume.claim_lock(chain).unwrap());
    let words = [(INO, ino), (HOLDER, half.holder.0), (START, half.start), (END, half.end)];
    for (word, value) in words {
        volume.rt.store(at + word, value).unwrap();
    }
    volume.rt.store(at + STATE, held.state(0, &half)).unwrap();
    drop(held);
    volume.string_anew(chain).unwrap();
    let mut after = before;
    after.insert(3, (half.holder.0, half.start));
    assert_eq!(order(&volume, ino), after);
}

/// One thread ends its process, which drops what it holds, while another one is about to lock: that
/// lock stood there for ever, of a description that is gone or is another one by now.
#[test]
fn a_lock_of_a_description_that_is_gone_is_no_lock() {
    let (volume, root) = fresh();
    let node = volume.create(root, b"f", &file()).unwrap();
    let open = || volume.open(node.into(), OpenFlags(libc::O_RDWR), None).unwrap();
    let (desc, other) = (open(), open());
    let record = RecordLock { kind: LockKind::Write, start: 0, end: 9, pid: 0 };
    let whole = RecordLock { end: u64::MAX, ..record };
    let late = || {
        let set = |holder, lock| volume.set_lock(node.ino, holder, lock, Wait::No);
        (set(Holder::flock(desc), &whole), set(Holder::description(desc), &record))
    };
    assert_eq!(late(), (Ok(()), Ok(())));
    let locks = || {
        let owner = LockOwner::Description;
        (
            volume.flock(other, LockKind::Write, false),
            volume.record_lock(other, owner, &record, false),
        )
    };
    assert_eq!(locks(), (Err(Errno::AGAIN), Err(Errno::AGAIN)));
    volume.close(desc).unwrap();
    assert_eq!(late(), (Ok(()), Ok(())), "it was about to");
    assert_eq!(volume.test_lock(other, LockOwner::Description, &record).unwrap(), None);
    assert_eq!(locks(), (Ok(()), Ok(())));
    let unlock = RecordLock { kind: LockKind::Unlock, ..record };
    volume.flock(other, LockKind::Unlock, false).unwrap();
    volume.record_lock(other, LockOwner::Description, &unlock, false).unwrap();
    assert_eq!(late(), (Ok(()), Ok(())));
    let again = open();
    assert_eq!(again.index(), desc.index(), "another one in its place");
    assert_eq!(locks(), (Ok(()), Ok(())));
}

/// Whoever waited for a process that has ended, and finds its slot in its next life, frees what the
/// former life may have left: not an entry that the new process is about to write.
#[test]
fn what_a_former_life_left_is_not_the_next_ones() {
    let (volume, root) = fresh();
    let ino = volume.create(root, b"f", &file()).unwrap().ino;
    let chain = volume.chain_of(ino);
    let (slot, generation) = (volume.slot(), volume.slot_generation());
    let claimed = volume.claim_lock(chain).unwrap();
    volume.free_chain_locks(slot, generation.wrapping_sub(1)).unwrap();
    assert!(volume.holds_lock(claimed).unwrap(), "the new process's");
    volume.free_chain_locks(slot, generation).unwrap();
    assert!(!volume.holds_lock(claimed).unwrap(), "it is dead, too");
}
