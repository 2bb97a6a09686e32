//! Words of operation records: what the runtime says of each modifying call in flight, and what its
//! CPU keeps for the next one. `txn/record.rs` tells what an operation does with its own.

use crate::Result;
use crate::inject::{Bug, injected};
use crate::medium::Medium;
use crate::medium::layout::OP_RECORD;
use pmem::Span;

/// Record word: the owner (a lock word).
pub(crate) const RECORD_OWNER: u64 = 0;
/// Record word: 0 while locking, 1 while working.
pub(crate) const RECORD_PHASE: u64 = 8;
/// Record words: addresses of the locks taken or being taken.
pub(crate) const RECORD_LOCKS: u64 = 16;
/// Locks an operation may hold.
pub(crate) const LOCKS_MAX: usize = 8;
/// Record words: lines of lone commit stores, which a recoverer flushes.
pub(crate) const RECORD_LINES_TO_FLUSH: u64 = RECORD_LOCKS + LOCKS_MAX as u64 * 8;
/// Such lines that are kept.
pub(crate) const LINES_TO_FLUSH_MAX: u64 = 16;
/// Record words of `inode/inode_reserve.rs`; they outlive the operation.
pub(crate) const RECORD_INODES: u64 = RECORD_LINES_TO_FLUSH + LINES_TO_FLUSH_MAX * 8;
pub(crate) const RECORD_GENERATIONS: u64 = RECORD_INODES + 8;
pub(crate) const RECORD_SEQUENCES: u64 = RECORD_GENERATIONS + 8;
pub(crate) const RECORD_FREED: u64 = RECORD_SEQUENCES + 8;
/// Record words of `space/block_reserve.rs`; they outlive the operation.
pub(crate) const RECORD_BLOCK: u64 = RECORD_FREED + 8;
pub(crate) const RECORD_BUCKET: u64 = RECORD_BLOCK + 8;
/// Record words of `redo.rs`; they outlive the operation.
pub(crate) const RECORD_REDO: u64 = RECORD_BUCKET + 8;
pub(crate) const RECORD_WORD: u64 = RECORD_REDO + 8;
/// Record word of `inode/inode_reserve.rs`; it outlives the operation.
pub(crate) const RECORD_LEFT: u64 = RECORD_WORD + 8;
const _: () = assert!(RECORD_LEFT + 8 <= OP_RECORD);

/// A lock's address: an offset in the runtime with this bit set, or one in the region.
pub(crate) const IN_RUNTIME: u64 = 1 << 63;

/// A claimed operation record.
#[derive(Clone, Copy)]
pub(crate) struct Record<'v>(pub(crate) Span<'v, RECORD_WORDS>);

/// Words of a record.
const RECORD_WORDS: usize = (OP_RECORD / 8) as usize;

/// The place of a word in its record.
pub(crate) const fn index(word: u64) -> usize {
    (word / 8) as usize
}

impl<'v> Record<'v> {
    #[inline]
    pub(crate) fn new(ground: &'v Medium, index: u32) -> Result<Self> {
        Ok(Self(ground.rt.span(ground.rt.op(index))?))
    }
}

impl Medium {
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

    /// Makes durable the word that a lane's last replacement left in flight, if there is one:
    /// before the record that tells of it becomes void.
    #[cold]
    pub(crate) fn persist_word(&self, lane: u64) -> Result<()> {
        if lane >= self.rt.layout.op_count {
            return Ok(());
        }
        let word = self.rt.load(self.rt.op(lane as u32) + RECORD_WORD)?;
        if word != 0 && !injected(Bug::WordNotDurable) {
            // PERSIST: whoever stored it, and wherever, it is durable behind this.
            let _ = self.region.flush(word, 8).fence();
        }
        Ok(())
    }
}
