//! Which holder waits for which: an entry of the table says so. Circles are looked for in them,
//! among processes alone, and people are told.
//!
//! The entry's state word says which process waits, since descriptions have several. Its start is
//! the awaited holder. Its end is the chain's count of unlocks, as it was when
//! the wait began: once something was unlocked there the waiter looks again, and is not yet known
//! to wait. It says so anew if it does, and looks for circles then. So nobody is refused for a lock
//! that was given meanwhile to a waiter that has not run since.

use super::{
    CHANGE, Chain, END, HOLDER, Holder, INO, READ, START, STATE, WAITS, WRITE, Who, claiming_slot,
};
use crate::Result;
use crate::open::Opens;
use smallvec::SmallVec;
use vfs::Wait;

impl Chain<'_> {
    /// Says that `me` waits for `other`. Gives the entry that says so.
    pub(crate) fn say_waiting(&self, ino: u64, me: Holder, other: Holder) -> Result<u32> {
        let volume = self.volume;
        let index = volume.claim_lock(self.index)?;
        let (rt, at) = (&volume.rt, volume.rt.lock_record(index));
        rt.store(at + INO, ino)?;
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
        self.free_lock(index)
    }

    /// The processes (and guests) for which one waits, by any of its threads.
    pub(crate) fn waits_for(&self, holder: Holder) -> Result<SmallVec<[Holder; 4]>> {
        let mut found = SmallVec::new();
        self.each_wait(|_, waiter, awaited| {
            if waiter == holder && awaited.is_process() {
                found.push(awaited);
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
        for index in 0..self.locks_used()? {
            let at = self.rt.lock_record(index);
            if self.lock_kind(at)? != WAITS {
                continue;
            }
            let slot = claiming_slot(self.rt.load(at + STATE)?);
            let (waiter, ino) = (Holder(self.rt.load(at + HOLDER)?), self.rt.load(at + INO)?);
            let awaited = Holder(self.rt.load(at + START)?);
            let chain = self.rt.lock_record(self.chain_of(ino));
            if unlocks(self.rt.load(chain + CHANGE)?) == self.rt.load(at + END)? {
                see(slot, waiter, awaited)?;
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
