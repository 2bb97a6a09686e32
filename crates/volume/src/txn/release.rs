//! Giving back: sequence numbers even, what was given up free, locks released, the record free; of
//! a call that is done, that fails, that finds itself refused, and that died.
//!
//! The order is the same everywhere: numbers, blocks, locks with their names in the record, inodes,
//! the record. Blocks go before the locks, since nobody can reach them any more; an inode goes
//! behind them, since its extent is not given back while a lock in it is announced.

#![expect(clippy::inline_always, reason = "words that are handed on stay in registers")]

use crate::Result;
use crate::medium::layout::{BLOCK, INODE};
use crate::medium::lockword;
use crate::txn::Operations;
use crate::txn::acquire::Locked;
use crate::txn::op::Op;
use crate::txn::record::{
    LINES_TO_FLUSH_MAX, RECORD_LINES_TO_FLUSH, RECORD_LOCKS, Remains, index, inode_of_lock,
};
use robust::owner::Owner;

/// What a call has given up: free behind its end.
#[derive(Clone, Copy, Default)]
pub(crate) struct Freed<'a> {
    pub(crate) blocks: &'a [u64],
    /// The block of a directory's only bucket, or 0.
    pub(crate) bucket: u64,
    pub(crate) inode: Option<u64>,
}

impl<const N: usize> Locked<'_, N> {
    /// Gives everything back, of which so many lines were named in the record. What was stored is
    /// durable.
    #[inline(always)]
    pub(crate) fn end(self, lines: usize, freed: Freed<'_>) -> Result<()> {
        for one in &self.seen {
            one.live.set_sequence(one.sequence + 2)?;
        }
        for &block in freed.blocks {
            self.engine.release_blocks(block, 1)?;
        }
        if freed.bucket != 0 {
            self.record.keep_bucket(self.engine, freed.bucket)?;
        }
        self.release()?;
        if let Some(ino) = freed.inode {
            self.engine.keep_inode(&self.record, self.owner.op(), ino)?;
        }
        self.record.give_back(lines)
    }

    /// Gives everything back; what was entered of the change is void.
    #[cold]
    pub(crate) fn fail(self, lines: usize) -> Result<()> {
        let _ = self.engine.region.fence();
        for one in &self.seen {
            one.live.set_sequence(one.sequence + 4)?;
        }
        self.release()?;
        self.record.give_back(lines)
    }

    #[inline(always)]
    pub(crate) fn release(self) -> Result<()> {
        for one in &self.seen {
            one.live.unlock(self.engine, self.owner)?;
        }
        self.record.forget_locks::<N>()
    }

    /// Gives the record back and as many locks as are `held`, with nothing done: all that can be
    /// given back, whatever of it fails.
    #[cold]
    pub(crate) fn step_back(self, held: usize) -> Result<()> {
        let engine = self.engine;
        let mut given = Ok(());
        for one in &self.seen[..held] {
            // Odd under this lock: an error came between the numbers, and nothing has changed.
            if one.live.sequence() == Ok(one.sequence + 1) {
                given = given.and(one.live.set_sequence(one.sequence));
            }
            let lock = one.inode.lock_offset();
            given = given.and(lockword::release(engine, engine.volatile_map(), lock, self.owner));
        }
        given = given.and(self.record.set_working(false)).and(self.record.forget_locks::<N>());
        given.and(self.record.free())
    }
}

impl Op<'_> {
    /// Gives all locks back, still in the locking phase (a check under the locks failed: retry).
    pub(crate) fn unlock(&mut self) -> Result<()> {
        assert!(!self.working);
        self.release_locks()
    }

    fn release_locks(&mut self) -> Result<()> {
        while let Some(lock) = self.locks.pop() {
            let (map, offset) = self.engine.lock_place(lock);
            if self.working {
                lockword::release_quickly(self.engine, map, offset, self.owner)?;
            } else {
                // What was locked may be gone, and its number another inode's, which has a lock set
                // free: between a look and a store a third one may have taken it.
                lockword::release(self.engine, map, offset, self.owner)?;
            }
            self.record.0.store(index(RECORD_LOCKS) + self.locks.len(), 0)?;
        }
        Ok(())
    }

    /// After a roll-back: the commit lines are what they were before.
    fn forget_commits(&self, undone: bool) -> Result<()> {
        let inodes = self.locks.iter().filter_map(|&lock| inode_of_lock(lock));
        if undone {
            inodes.into_iter().try_for_each(|ino| self.engine.forget_commit(ino))
        } else {
            Ok(())
        }
    }

    /// Ends the operation successfully. Everything it committed is durable.
    pub(crate) fn end(mut self) -> Result<()> {
        assert!(!self.transaction.is_open(), "a transaction is left open");
        self.ended = true;
        if self.has_pending() {
            let _ = self.fence();
        }
        self.finish(true)
    }

    /// Of what an abort would free, blocks whose memory cannot be read stay allocated until the
    /// next sweep: or the next operation would get the same ones again, and fail as this one.
    /// (Those that a pager has lost are fresh, since nobody wants what they held.)
    #[cold]
    fn keep_lost_blocks(&mut self) {
        let engine = self.engine;
        let lost = |run: &(u64, u64)| (run.0..run.0 + run.1).any(|at| engine.stays_lost(at));
        if self.allocated.iter().any(lost) {
            let all = std::mem::take(&mut self.allocated);
            let blocks = all.iter().flat_map(|run| run.0..run.0 + run.1);
            self.allocated =
                blocks.filter(|at| !engine.is_lost_block(*at)).map(|at| (at, 1)).collect();
        }
        self.allocated_inodes.retain(|ino| !engine.is_lost_block(*ino * INODE / BLOCK));
    }

    /// Of an operation that fails: what was entered under the numbers that the inodes would have
    /// had is void. By one store each, so that nobody sees those numbers in between.
    #[cold]
    fn skip_numbers(&self) -> Result<()> {
        let inodes = self.locks.iter().filter_map(|&lock| inode_of_lock(lock));
        inodes.into_iter().try_for_each(|inode| self.engine.live_lines(inode)?.skip_number())
    }

    fn finish(&mut self, committed: bool) -> Result<()> {
        let engine = self.engine;
        match (self.working, committed) {
            (true, true) => drop(self.turn_sequences(0)?),
            (true, false) => self.skip_numbers()?,
            (false, _) => {}
        }
        if !committed {
            self.keep_lost_blocks();
        }
        let blocks = if committed { &self.freed } else { &self.allocated };
        for &(block, count) in blocks.iter().chain(&self.freed_by_steps) {
            engine.release_blocks(block, count)?;
        }
        self.release_locks()?;
        // Behind the locks: an inode's extent is not given back while a lock in it is announced.
        let inodes = if committed { &self.freed_inodes } else { &self.allocated_inodes };
        for &ino in inodes {
            engine.give_back_inode(&self.record, self.index(), ino)?;
        }
        for line in 0..self.lines_to_flush.min(LINES_TO_FLUSH_MAX) as usize {
            self.record.0.store(index(RECORD_LINES_TO_FLUSH) + line, 0)?;
        }
        self.record.set_working(false)?;
        self.record.free()
    }
}

impl Drop for Op<'_> {
    fn drop(&mut self) {
        if !self.pins.is_empty() {
            self.unpin();
        }
        if self.ended {
            return;
        }
        // An abort: nothing was committed. If even that fails (the region vanished), the record
        // stays taken, and a recovery of this process finds it.
        if self.has_pending() {
            let _ = self.fence();
        }
        let undone = self.transaction.is_open();
        if self.roll_back().and_then(|()| self.forget_commits(undone)).is_ok() {
            let _ = self.finish(false);
        }
    }
}

impl Operations {
    /// Frees what the dead `owner` holds: the sequence numbers it left odd become even, its locks
    /// are released, its record is free. The caller has undone its lane and flushed its lines.
    pub(crate) fn release_remains(&self, owner: Owner, remains: &Remains) -> Result<()> {
        for &lock in remains.locks.iter().rev() {
            if let Some(inode) = inode_of_lock(lock) {
                let (map, at) = self.lock_place(lock);
                if Owner::of_word(map.shared_load(at)?, self.epoch) == Some(owner) {
                    self.after_owner_died(inode)?;
                }
            }
            let (map, at) = self.lock_place(lock);
            lockword::release(self, map, at, owner)?;
        }
        self.clear_record(owner)
    }
}
