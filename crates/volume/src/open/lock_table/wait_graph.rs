//! Which holder waits for which: an entry of the table says so. Circles are looked for in them,
//! among processes alone, and people are told.
//!
//! The entry's state word says which process waits, since descriptions have several. Its start is
//! the awaited holder. Its end is the chain's count of unlocks, as it was when
//! the wait began: once something was unlocked there the waiter looks again, and is not yet known
//! to wait. It says so anew if it does, and looks for circles then. So nobody is refused for a lock
//! that was given meanwhile to a waiter that has not run since.

use super::{
    CHANGE, Chain, END, HOLDER, Holder, INO, READ, START, STATE, WAITER, WAITS, WRITE, Who,
    claiming_slot,
};
use crate::Result;
use crate::open::Opens;
use smallvec::SmallVec;
use vfs::Wait;

/// Longest circle of processes waiting for each other that is found, as on Linux.
const HOPS: u32 = 10;

/// A wait, as an entry tells it: with the count of unlocks in the chain when it began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    entry: u32,
    unlocks: u64,
    waiter: Holder,
    awaited: Holder,
}

/// Whether the holder for which an entry waits does so, over others, for the one that waits there.
pub(super) fn told_circle(waits: &[Told], entry: u32) -> bool {
    let Some(own) = waits.iter().find(|told| told.entry == entry) else { return false };
    let mut next: SmallVec<[Holder; 4]> = smallvec::smallvec![own.awaited];
    for _ in 0..HOPS {
        if next.contains(&own.waiter) {
            return true;
        }
        let further = waits.iter().filter(|told| next.contains(&told.waiter));
        next = further.map(|told| told.awaited).collect();
    }
    false
}

impl Chain<'_> {
    /// Says that `me` waits for `other`. Gives the entry that says so. As long as it does, the
    /// chain counts a waiter, so that what is unlocked there is counted, too.
    pub(crate) fn say_waiting(&self, ino: u64, me: Holder, other: Holder) -> Result<u32> {
        let volume = self.volume;
        let index = volume.claim_lock(self.index)?;
        let (rt, at) = (&volume.rt, volume.rt.lock_record(index));
        rt.store(at + INO, ino)?;
        rt.add(self.at + CHANGE, WAITER)?;
        rt.store(at + HOLDER, me.0)?;
        rt.store(at + START, other.0)?;
        rt.store(at + END, unlocks(rt.load(self.at + CHANGE)?))?;
        // An exchange: of two that wait for each other at once, one sees the other.
        rt.swap(at + STATE, volume.claimed_word() | WAITS)?;
        Ok(index)
    }
}

impl Opens {
    /// Waits no more.
    pub(crate) fn unsay_waiting(&self, index: u32) -> Result<()> {
        let ino = self.rt.load(self.rt.lock_record(index) + INO)?;
        // Freed first: a death in between leaves a waiter too many, not one too few.
        self.free_lock(index)?;
        self.count_waiter_out(ino)
    }

    /// A chain has one waiter less.
    pub(super) fn count_waiter_out(&self, ino: u64) -> Result<()> {
        let chain = self.rt.lock_record(self.chain_of(ino));
        Ok(self.rt.add(chain + CHANGE, WAITER.wrapping_neg()).map(drop)?)
    }

    /// Whether the wait of an entry closes a circle of processes (and guests). Waits are looked at
    /// one after the other: by the time that one is seen, another may be over. So all are looked at
    /// twice: one that is seen both times, with the same count of unlocks, stood in between, as all
    /// others did that are.
    pub(crate) fn closes_circle(&self, entry: u32) -> Result<bool> {
        let first = self.told_waits()?;
        if !told_circle(&first, entry) {
            return Ok(false);
        }
        let mut both = self.told_waits()?;
        both.retain(|told| first.contains(told));
        Ok(told_circle(&both, entry))
    }

    /// All waits for processes.
    pub(super) fn told_waits(&self) -> Result<Vec<Told>> {
        let mut found = Vec::new();
        self.each_told(|_, told| {
            if told.awaited.is_process() {
                found.push(told);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Which processes wait for which.
    pub(crate) fn waits_of_processes(&self) -> Result<Vec<Wait>> {
        let mut found = Vec::new();
        self.each_wait(|_, waiter, awaited| {
            if let (Some(waiter), Some(awaited)) = (self.pid_of(waiter)?, self.pid_of(awaited)?) {
                found.push((waiter, awaited));
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Tells of each lock that a program has taken whose it is. What is executed is locked too,
    /// which is not told.
    pub(crate) fn each_lock(&self, mut see: impl FnMut(Who) -> Result<()>) -> Result<()> {
        for index in 0..self.locks_used()? {
            let at = self.rt.lock_record(index);
            let holder = Holder(self.rt.load(at + HOLDER)?);
            let is_lock = matches!(self.lock_kind(at)?, READ | WRITE);
            if is_lock && holder.0 >> 60 != Holder::EXECUTION {
                see(holder.who())?;
            }
        }
        Ok(())
    }

    /// Tells who waits for whom: the slot of the process whose thread it is, and both holders.
    pub(crate) fn each_wait(
        &self,
        mut see: impl FnMut(u32, Holder, Holder) -> Result<()>,
    ) -> Result<()> {
        self.each_told(|slot, told| see(slot, told.waiter, told.awaited))
    }

    fn each_told(&self, mut see: impl FnMut(u32, Told) -> Result<()>) -> Result<()> {
        for entry in 0..self.locks_used()? {
            let at = self.rt.lock_record(entry);
            if self.lock_kind(at)? != WAITS {
                continue;
            }
            let slot = claiming_slot(self.rt.load(at + STATE)?);
            let (waiter, ino) = (Holder(self.rt.load(at + HOLDER)?), self.rt.load(at + INO)?);
            let awaited = Holder(self.rt.load(at + START)?);
            let (count, chain) = (self.rt.load(at + END)?, self.rt.lock_record(self.chain_of(ino)));
            if unlocks(self.rt.load(chain + CHANGE)?) == count {
                see(slot, Told { entry, unlocks: count, waiter, awaited })?;
            }
        }
        Ok(())
    }

    /// The process that a holder is, as the kernel tells it: what a slot says of it may be its
    /// number in another namespace.
    fn pid_of(&self, holder: Holder) -> Result<Option<u32>> {
        let Who::Process { slot, generation } = holder.who() else { return Ok(None) };
        let pid = self.liveness.holder_of(slot)?;
        let lives = self.slot_state(slot)?.generation == generation;
        Ok(pid.filter(|_| lives))
    }
}

/// The lower half of a chain's change word.
pub(crate) fn unlocks(change: u64) -> u64 {
    change & u64::from(u32::MAX)
}
