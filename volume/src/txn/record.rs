//! Operation records: what the runtime says of each modifying call in flight, for those that wait
//! for it and for its recovery.
//!
//! A record names its owner, whether it works, every lock *before* it is taken, and every lone
//! commit word before it is stored: so a recoverer knows what to release and which lines to flush.
//! Some words outlive the operation: what the CPU of this number keeps for the next one
//! (`reserve.rs`, `redo.rs`).

#![expect(clippy::inline_always, reason = "words that are handed on stay in registers")]

use crate::Result;
use crate::ground::layout::{INODE, VOLATILE};
use crate::ground::runtime::Owner;
use crate::inode::Inode;
use crate::volume::Volume;
use pmem::Span;

/// Record word: the owner (a lock word).
pub(super) const RECORD_OWNER: u64 = 0;
/// Record word: 0 while locking, 1 while working.
pub(super) const RECORD_PHASE: u64 = 8;
/// Record words: addresses of the locks taken or being taken.
pub(super) const RECORD_LOCKS: u64 = 16;
/// Locks an operation may hold.
pub(super) const LOCKS_MAX: usize = 8;
/// Record words: lines of lone commit stores.
pub(super) const RECORD_NOTES: u64 = RECORD_LOCKS + LOCKS_MAX as u64 * 8;
/// Notes kept.
pub(super) const NOTES_MAX: u64 = 16;
/// Record words of `reserve.rs`; they outlive the operation.
pub(crate) const RECORD_INODES: u64 = RECORD_NOTES + NOTES_MAX * 8;
pub(crate) const RECORD_GENERATIONS: u64 = RECORD_INODES + 8;
pub(crate) const RECORD_SEQUENCES: u64 = RECORD_GENERATIONS + 8;
pub(crate) const RECORD_FREED: u64 = RECORD_SEQUENCES + 8;
pub(crate) const RECORD_BLOCK: u64 = RECORD_FREED + 8;
pub(crate) const RECORD_BUCKET: u64 = RECORD_BLOCK + 8;
/// Record words of `redo.rs`; they outlive the operation.
pub(crate) const RECORD_REDO: u64 = RECORD_BUCKET + 8;
pub(crate) const RECORD_WORD: u64 = RECORD_REDO + 8;
const _: () = assert!(RECORD_WORD + 8 <= crate::ground::layout::OP_RECORD);

/// A lock's address: an offset in the runtime with this bit set, or one in the region.
pub(super) const IN_RUNTIME: u64 = 1 << 63;

/// A claimed operation record.
#[derive(Clone, Copy)]
pub(crate) struct Record<'v>(pub(crate) Span<'v, RECORD_WORDS>);

/// Words of a record.
const RECORD_WORDS: usize = (crate::ground::layout::OP_RECORD / 8) as usize;

/// The place of a word in its record.
pub(crate) const fn index(word: u64) -> usize {
    (word / 8) as usize
}

impl<'v> Record<'v> {
    #[inline]
    pub(crate) fn new(volume: &'v Volume, index: u32) -> Result<Self> {
        Ok(Self(volume.rt.span(volume.rt.op(index))?))
    }

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
    pub(crate) fn note(&self, line: u64) -> Result<()> {
        Ok(self.0.store(index(RECORD_NOTES), line)?)
    }

    /// Names the second such line.
    #[inline]
    pub(crate) fn note_second(&self, line: u64) -> Result<()> {
        Ok(self.0.store(index(RECORD_NOTES) + 1, line)?)
    }

    /// Takes the names of so many locks back that are not held; orders that before the loads that
    /// follow.
    pub(super) fn withdraw(&self, count: usize) -> Result<()> {
        for at in 0..count {
            self.0.swap(index(RECORD_LOCKS) + at, 0)?;
        }
        Ok(())
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
            self.0.store(index(RECORD_NOTES) + at, 0)?;
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
    pub(crate) notes: Vec<u64>,
}

impl Volume {
    /// The owner of an operation record, if it is in use.
    pub(crate) fn operation_owner(&self, index: u32) -> Result<Option<Owner>> {
        Ok(Owner::of_word(self.rt.load(self.rt.op(index) + RECORD_OWNER)?, self.epoch))
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
            notes: words(RECORD_NOTES, NOTES_MAX)?,
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
        let mut inodes = Vec::new();
        for index in 0..self.rt.layout.op_count as u32 {
            if self.operation_owner(index)?.is_some() {
                let locks = self.operation_remains(index)?.locks;
                inodes.extend(locks.iter().filter_map(|lock| inode_of_lock(*lock)));
            }
        }
        inodes.retain(|inode| self.identity(*inode).is_ok());
        Ok(inodes)
    }

    /// Whether an operation holds, or is about to take, a lock of an inode in this range of the
    /// region. A call that makes something else of the range first takes its inodes out of use,
    /// then asks.
    pub(crate) fn is_announced(&self, range: std::ops::Range<u64>) -> Result<bool> {
        for index in 0..self.rt.layout.op_count as u32 {
            let record = self.rt.op(index) + RECORD_LOCKS;
            for word in 0..LOCKS_MAX as u64 {
                if range.contains(&self.rt.load(record + word * 8)?) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    pub(super) fn clear_record(&self, owner: Owner) -> Result<()> {
        let record = self.rt.op(owner.op());
        for at in (RECORD_PHASE..RECORD_NOTES + NOTES_MAX * 8).step_by(8) {
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
