//! Operation records: what the runtime says of each modifying call in flight, for those that wait
//! for it and for its recovery.
//!
//! A record names its owner, whether it works, every lock *before* it is taken, and every lone
//! commit word before it is stored: so a recoverer knows what to release and which lines to flush.
//! Some words outlive the operation: what the CPU of this number keeps for the next one
//! (`space/block_reserve.rs`, `inode/inode_reserve.rs`, `redo.rs`).

#![expect(clippy::inline_always, reason = "words that are handed on stay in registers")]

use crate::Result;
use crate::inode::Inode;
use crate::medium::layout::{INODE, VOLATILE};
pub(crate) use crate::medium::record_words::Record;
pub(super) use crate::medium::record_words::{
    IN_RUNTIME, LINES_TO_FLUSH_MAX, LOCKS_MAX, RECORD_LINES_TO_FLUSH, RECORD_LOCKS, RECORD_OWNER,
    RECORD_PHASE, index,
};
use crate::txn::Operations;
use crate::txn::gate;
use robust::owner::Owner;

impl Record<'_> {
    /// Names the locks that are taken next; orders that before the loads that follow.
    #[inline(always)]
    pub(super) fn announce<const N: usize>(&self, inodes: [Inode; N]) -> Result<()> {
        for (at, inode) in inodes.iter().enumerate().skip(1) {
            self.0.store(index(RECORD_LOCKS) + at, inode.lock_offset())?;
        }
        self.0.swap(index(RECORD_LOCKS), inodes[0].lock_offset())?;
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn set_working(&self, works: bool) -> Result<()> {
        Ok(self.0.store(index(RECORD_PHASE), u64::from(works))?)
    }

    /// Names the line of a lone commit store.
    #[inline]
    pub(crate) fn announce_line(&self, line: u64) -> Result<()> {
        Ok(self.0.store(index(RECORD_LINES_TO_FLUSH), line)?)
    }

    /// Names the second such line.
    #[inline]
    pub(crate) fn announce_second_line(&self, line: u64) -> Result<()> {
        Ok(self.0.store(index(RECORD_LINES_TO_FLUSH) + 1, line)?)
    }

    /// Takes the names of its locks back, when they are released.
    #[inline(always)]
    pub(super) fn forget_locks<const N: usize>(&self) -> Result<()> {
        let names: [_; N] = std::array::from_fn(|at| (index(RECORD_LOCKS) + at, 0));
        Ok(self.0.store_each(names)?)
    }

    /// Takes the names of so many lines back, and that it works; frees the record.
    #[inline(always)]
    pub(crate) fn give_back(&self, lines: usize) -> Result<()> {
        for at in 0..lines {
            self.0.store(index(RECORD_LINES_TO_FLUSH) + at, 0)?;
        }
        Ok(self.0.store_each([(index(RECORD_PHASE), 0), (index(RECORD_OWNER), 0)])?)
    }

    /// Frees the record.
    #[inline]
    pub(crate) fn free(&self) -> Result<()> {
        Ok(self.0.store(index(RECORD_OWNER), 0)?)
    }
}

/// What a dead operation left, for the recoverer.
pub(crate) struct Remains {
    pub(crate) working: bool,
    pub(crate) locks: Vec<u64>,
    pub(crate) lines_to_flush: Vec<u64>,
}

impl Operations {
    /// The owner of an operation record, if it is in use.
    pub(crate) fn operation_owner(&self, index: u32) -> Result<Option<Owner>> {
        Ok(Owner::of_word(self.rt.load(self.rt.op(index) + RECORD_OWNER)?, self.epoch))
    }

    /// Of an operation: whose it is, how many locks it holds, and for how many it waits. It goes on
    /// meanwhile, so this is for people.
    pub(crate) fn operation_locks(&self, at: u32) -> Result<Option<(Owner, u64, u64)>> {
        let Some(owner) = self.operation_owner(at)? else { return Ok(None) };
        let (mut held, mut named) = (0, 0);
        for word in 0..LOCKS_MAX as u64 {
            let lock = self.rt.load(self.rt.op(at) + RECORD_LOCKS + word * 8)?;
            if lock == 0 {
                continue;
            }
            let (map, offset) = self.lock_place(lock);
            named += 1;
            held += u64::from(Owner::of_word(map.shared_load(offset)?, self.epoch) == Some(owner));
        }
        Ok(Some((owner, held, named - held)))
    }

    /// The operation of a record that is past its locking phase.
    pub(crate) fn working_operation(&self, index: u32) -> Result<Option<Owner>> {
        let record = self.rt.op(index);
        let word = |at| self.rt.word(record + at);
        Ok(gate::works(word(RECORD_OWNER), word(RECORD_PHASE), self.epoch)?)
    }

    /// Whether the operation is past its locking phase.
    pub(crate) fn operation_works(&self, index: u32) -> Result<bool> {
        Ok(self.rt.load(self.rt.op(index) + RECORD_PHASE)? != 0)
    }

    /// What the dead owner of a record left behind.
    pub(crate) fn operation_remains(&self, index: u32) -> Result<Remains> {
        let record = self.rt.op(index);
        let words = |from: u64, count: u64| -> Result<Vec<u64>> {
            let all = (0..count).map(|i| self.rt.load(record + from + i * 8));
            let mut found = all.collect::<core::result::Result<Vec<_>, _>>()?;
            found.retain(|&word| word != 0);
            Ok(found)
        };
        Ok(Remains {
            working: self.operation_works(index)?,
            locks: words(RECORD_LOCKS, LOCKS_MAX as u64)?,
            lines_to_flush: words(RECORD_LINES_TO_FLUSH, LINES_TO_FLUSH_MAX)?,
        })
    }

    /// Whether an operation has an inode's lock.
    pub(crate) fn owns_lock(&self, owner: Owner, inode: Inode) -> bool {
        let word = self.volatile_map().shared_load(inode.lock_offset());
        word.is_ok_and(|word| Owner::of_word(word, self.epoch) == Some(owner))
    }

    /// The inodes that operations hold or wait for: not to be freed by a sweep while they wait at
    /// the gate.
    pub(crate) fn inodes_of_operations(&self) -> Result<Vec<Inode>> {
        let mut inodes = self.announced_inodes()?;
        inodes.retain(|inode| self.identity(*inode).is_ok());
        Ok(inodes)
    }

    /// The same, whatever is left of them.
    pub(crate) fn announced_inodes(&self) -> Result<Vec<Inode>> {
        let mut inodes = Vec::new();
        for index in 0..self.rt.layout.op_count as u32 {
            if self.operation_owner(index)?.is_some() {
                let locks = self.operation_remains(index)?.locks;
                inodes.extend(locks.iter().filter_map(|lock| inode_of_lock(*lock)));
            }
        }
        Ok(inodes)
    }

    pub(super) fn clear_record(&self, owner: Owner) -> Result<()> {
        let record = self.rt.op(owner.op());
        for at in (RECORD_PHASE..RECORD_LINES_TO_FLUSH + LINES_TO_FLUSH_MAX * 8).step_by(8) {
            self.rt.store(record + at, 0)?;
        }
        self.rt.swap(record + RECORD_OWNER, 0)?;
        Ok(())
    }

    pub(super) fn lock_place(&self, lock: u64) -> (&pmem::Region, u64) {
        if lock & IN_RUNTIME == 0 {
            (self.volatile_map(), lock)
        } else {
            let (map, base) = self.rt.place();
            (map, base + (lock & !IN_RUNTIME))
        }
    }
}

/// The inode whose lock this is, if it is one's.
pub(crate) fn inode_of_lock(lock: u64) -> Option<Inode> {
    (lock & IN_RUNTIME == 0).then(|| Inode((lock - VOLATILE) / INODE))
}
