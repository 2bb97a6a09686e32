//! Taking locks: an operation's record, its inodes' locks, and the right to work on them.
//!
//! There are two ways, for the same rights ([`Locked`]):
//!
//! - **without waiting** ([`Operations::try_acquire`]): what the call is about was looked at
//!   before. It says *working* before it takes the first lock, whose read-modify-write orders that
//!   before the look at the gate; finding anything taken, or the gate closed, it gives all back.
//! - **waiting** ([`Op::lock`], [`Op::work`]): it may recover the dead owner of a lock that it
//!   waits for, so it must not be working itself. All locks come first, inodes in ascending order;
//!   then it passes the gate.
//!
//! Either way a lock is named in the record, by a read-modify-write, before it is asked whether the
//! inode is in use: what is announced stays an inode (`is_announced`). Between the right
//! to work and the release the sequence numbers of the locked inodes are odd.

#![expect(clippy::inline_always, reason = "words that are handed on stay in registers")]

use crate::inode::{Inode, LIVE_REDO, Live};
use crate::medium::current_cpu;
use crate::medium::layout::{HEADER_GATE, HEADER_RENAME};
use crate::txn::Operations;
use crate::txn::gate;
use crate::txn::op::Op;
use crate::txn::record::{
    IN_RUNTIME, LOCKS_MAX, RECORD_LOCKS, RECORD_OWNER, RECORD_PHASE, Record, index, inode_of_lock,
};
use crate::{Result, medium::lockword};
use robust::owner::Owner;
use robust::word::SpanWord;
use rustix::io::Errno;
use std::hint::cold_path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vfs::Desc;

/// An inode that shall change, as it was seen without its lock.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'v> {
    pub(crate) inode: Inode,
    pub(crate) live: Live<'v>,
    /// Its sequence number then; even.
    pub(crate) sequence: u64,
}

/// Why what is locked is still the inode that was seen.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    /// The description has it open, and this is its state word. Its close, from here on, frees an
    /// inode that is announced.
    Open(Desc, u64),
    /// It is in use, and its sequence number tells whether it is another by now.
    InUse,
}

/// The right to change inodes: their locks are held, their sequence numbers odd.
///
/// Its methods are inlined, or take a copy: so its words stay in registers. What a call stores, on
/// its stack too, waits in the CPU behind the fence of the call before, and there is room for about
/// a hundred.
#[derive(Clone, Copy)]
pub(crate) struct Locked<'v, const N: usize> {
    pub(crate) engine: &'v Operations,
    pub(crate) owner: Owner,
    pub(crate) record: Record<'v>,
    /// With the numbers that they had when they were locked.
    pub(crate) seen: [Seen<'v>; N],
}

impl Operations {
    /// Takes a free operation record, this CPU's if it is free.
    pub(super) fn claim_record(&self) -> Result<Owner> {
        let count = self.rt.layout.op_count as u32;
        let first = self.own_record();
        let mut rounds = 0;
        loop {
            for step in 0..count {
                let index = first + step;
                let index = if index < count { index } else { index - count };
                if let Some(owner) = self.try_claim(&Record::new(self, index)?, index)? {
                    return Ok(owner);
                }
            }
            rounds += 1;
            if rounds % 8 == 0 {
                self.recover_dead_owners()?;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Recovers the processes of all operations whose owners are dead: all records are in use.
    #[cold]
    fn recover_dead_owners(&self) -> Result<()> {
        for index in 0..self.rt.layout.op_count as u32 {
            if let Some(owner) = self.operation_owner(index)? {
                self.recover_if_dead(owner)?;
            }
        }
        Ok(())
    }

    /// This CPU's operation record, and its number.
    #[inline(always)]
    pub(crate) fn record_here(&self) -> Result<(u32, Record<'_>)> {
        let index = self.own_record();
        Ok((index, Record::new(self, index)?))
    }

    /// The number of this CPU's operation record.
    #[inline(always)]
    pub(crate) fn own_record(&self) -> u32 {
        let (cpu, count) = (current_cpu(), self.rt.layout.op_count as u32);
        if cpu < count { cpu } else { cpu % count }
    }

    /// Takes an operation record, if it is free.
    #[inline(always)]
    pub(crate) fn try_claim(&self, record: &Record<'_>, at: u32) -> Result<Option<Owner>> {
        let owner = Owner::new(at, self.slot(), self.slot_generation());
        let word = record.0.load(index(RECORD_OWNER))?;
        if Owner::of_word(word, self.epoch).is_some()
            || record.0.cas(index(RECORD_OWNER), word, owner.word(self.epoch))?.is_err()
        {
            cold_path();
            return Ok(None);
        }
        if !self.standing.is_attached(Ordering::SeqCst) && !self.is_leaving_thread() {
            cold_path();
            // Another thread is detaching this process, and looks for operations after it has said
            // so: it has seen this one, or this one sees that it must not be.
            self.clear_record(owner)?;
            return Err(Errno::BADF);
        }
        Ok(Some(owner))
    }

    /// Takes the record of this number, the locks of what was seen, and the right to work. `None`:
    /// something of that is not to be had at once, and nothing is taken.
    #[inline(always)]
    pub(crate) fn try_acquire<'v, const N: usize>(
        &'v self,
        (index, record): (u32, Record<'v>),
        anchor: Anchor,
        seen: [Seen<'v>; N],
    ) -> Result<Option<Locked<'v, N>>> {
        let Some(owner) = self.try_claim(&record, index)? else {
            cold_path();
            return Ok(None);
        };
        let mut locked = Locked { engine: self, owner, record, seen };
        let mut held = 0;
        match locked.try_locks(anchor, &mut held) {
            Ok(true) => Ok(Some(locked)),
            refused => {
                let given = locked.step_back(held);
                refused.and(given).map(|()| None)
            }
        }
    }

    /// Whether what was seen is what it was.
    #[inline(always)]
    fn is_anchored(&self, anchor: Anchor, inodes: &[Seen<'_>]) -> Result<bool> {
        match anchor {
            Anchor::Open(desc, state) => Ok(self.state_word(desc)? == state),
            Anchor::InUse => {
                for one in inodes {
                    if !self.is_used(one.inode)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }
}

impl<const N: usize> Locked<'_, N> {
    /// Takes the locks, with a claimed record, and makes the sequence numbers odd. `false`, or an
    /// error: the caller gives everything back, `held` locks too.
    #[inline(always)]
    fn try_locks(&mut self, anchor: Anchor, held: &mut usize) -> Result<bool> {
        let engine = self.engine;
        self.record.announce(self.seen.map(|one| one.inode))?;
        if !engine.is_anchored(anchor, &self.seen)? {
            cold_path();
            return Ok(false);
        }
        // PERSIST: nothing yet. The locks' compare-and-swaps order this store before the load of
        // the gate.
        self.record.set_working(true)?;
        let (free, mine) = (u64::from(engine.epoch) << 32, self.owner.word(engine.epoch));
        while *held < N && self.seen[*held].live.swap_lock(free, mine)? {
            *held += 1;
        }
        if *held < N || !self.may_work(anchor)? {
            cold_path();
            return Ok(false);
        }
        for one in &self.seen {
            one.live.set_sequence(one.sequence + 1)?;
        }
        engine.note_work();
        Ok(true)
    }

    /// Under the locks: whether the gate is open, nothing was found damaged, and the inodes are
    /// still what was seen. (One may have been freed, and made anew, before its lock was taken; not
    /// after.) The numbers that are seen are those of now.
    #[inline(always)]
    fn may_work(&mut self, anchor: Anchor) -> Result<bool> {
        let engine = self.engine;
        let gate = Owner::of_word(engine.rt.header::<HEADER_GATE>()?, engine.epoch);
        let is_open = match anchor {
            Anchor::Open(..) => engine.is_anchored(anchor, &self.seen)?,
            Anchor::InUse => true,
        };
        // A wait between the look and the lock may have recovered a dead process, and found damage.
        if gate.is_some() || !is_open || engine.damaged()? {
            cold_path();
            return Ok(false);
        }
        for one in &mut self.seen {
            let now = one.live.sequence()?;
            if now != one.sequence {
                cold_path();
                if now & 1 != 0 || !one.live.is_ready(engine.epoch)? {
                    return Ok(false);
                }
                one.sequence = now;
            }
        }
        Ok(true)
    }
}

impl Operations {
    /// From here on a death of this process leaves work.
    #[inline(always)]
    fn note_work(&self) {
        if !self.worked.load(Ordering::Relaxed) {
            self.worked.store(true, Ordering::Relaxed);
        }
    }
}

impl Op<'_> {
    /// Takes the locks of all these inodes, in ascending order, each once.
    pub(crate) fn lock(&mut self, inodes: &[Inode]) -> Result<()> {
        // They are few: each time the least of those that are left.
        let mut next = inodes.iter().map(|inode| inode.0).min();
        while let Some(ino) = next {
            self.lock_one(Inode(ino))?;
            next = inodes.iter().map(|inode| inode.0).filter(|&other| other > ino).min();
        }
        Ok(())
    }

    /// Locks inodes that names led to; `false`, and nothing is locked, if one of them is not in use
    /// any more: look again.
    pub(crate) fn lock_found(&mut self, inodes: &[Inode]) -> Result<bool> {
        match self.lock(inodes) {
            Err(Errno::STALE) => self.unlock().map(|()| false),
            locked => locked.map(|()| true),
        }
    }

    fn lock_one(&mut self, inode: Inode) -> Result<()> {
        let (engine, lock) = (self.engine, inode.lock_offset());
        let word = self.announce(lock)?;
        // A name that was found a moment ago may be gone, and what was its inode a file's block
        // by now. If it is not: what is announced stays an inode (`is_announced`).
        if !engine.inode_in_use(inode.0)? && !engine.damaged()? {
            self.record.0.store(word, 0)?;
            return Err(Errno::STALE);
        }
        let live = engine.live_lines(inode)?;
        let free = u64::from(engine.epoch) << 32;
        if live.swap_lock(free, self.owner.word(engine.epoch))? {
            self.locks.push(lock);
        } else {
            self.acquire(lock)?;
        }
        if live.is_ready(engine.epoch)? {
            return Ok(());
        }
        engine.first_use(inode, self.record.sequence(engine)?)
    }

    /// Takes the volume-wide lock for renames of directories; before any inode's.
    pub(crate) fn lock_rename(&mut self) -> Result<()> {
        self.take(HEADER_RENAME | IN_RUNTIME)
    }

    fn take(&mut self, lock: u64) -> Result<()> {
        self.announce(lock)?;
        self.acquire(lock)
    }

    /// Names in the record the lock that is taken next; gives the word's place in it.
    fn announce(&mut self, lock: u64) -> Result<usize> {
        assert!(!self.working && self.locks.len() < LOCKS_MAX, "locks come first");
        let word = index(RECORD_LOCKS) + self.locks.len();
        // A read-modify-write orders the announcement before the loads that follow it.
        self.record.0.swap(word, lock)?;
        Ok(word)
    }

    fn acquire(&mut self, lock: u64) -> Result<()> {
        let (map, offset) = self.engine.lock_place(lock);
        lockword::acquire(self.engine, map, offset, self.owner)?;
        self.locks.push(lock);
        Ok(())
    }

    /// Ends the locking phase: passes the gate, and makes the sequence numbers of the locked inodes
    /// odd.
    pub(crate) fn work(&mut self) -> Result<()> {
        if self.work_beside_records()? { self.void_locked_redos(false) } else { Ok(()) }
    }

    /// As [`Op::work`], but redo records of the locked inodes may count: gives whether there may be
    /// any. The caller sees to them before it changes anything that they tell of.
    pub(crate) fn work_beside_records(&mut self) -> Result<bool> {
        let rt = &self.engine.rt;
        let (phase, at) = (SpanWord(self.record.0, index(RECORD_PHASE)), rt.word(HEADER_GATE));
        while let Some((word, holder)) = gate::pass(phase, at, self.engine.epoch, self.owner)? {
            if !gate::wait(at, word) {
                self.engine.recover_if_dead(holder)?;
            }
        }
        self.working = true;
        self.engine.note_work();
        Ok(self.turn_sequences(1)? & LIVE_REDO != 0)
    }

    /// Makes the sequence numbers of the locked inodes odd (1) or even (0); gives all their flags.
    pub(super) fn turn_sequences(&self, parity: u64) -> Result<u64> {
        let mut flags = 0;
        for &lock in &self.locks {
            if let Some(inode) = inode_of_lock(lock) {
                flags |= self.engine.live_lines(inode)?.turn(parity)?;
            }
        }
        Ok(flags)
    }
}
