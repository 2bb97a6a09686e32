//! An operation: one modifying call in flight, with what it allocates and gives up.
//!
//! It owns an *operation record* of the runtime and the lane of the same index. Its life:
//!
//! 1. **locking**: it takes all the locks it needs, inodes in ascending order. Nothing is changed
//!    or allocated yet, so an operation that finds a dead owner here may recover it.
//! 2. **working** ([`Op::work`], which passes the gate): sequence numbers are odd; it allocates,
//!    writes, commits. It waits for nothing that another process holds.
//! 3. [`Op::end`]: sequence numbers even, blocks given up are freed, locks released, record freed.
//!    Dropping an operation before that aborts it: its transaction is rolled back, what it
//!    allocated is freed.
//!
//! Lock order: a description's position lock, the rename lock, inodes by number. The record names
//! every lock *before* it is taken and every lone commit word before it is stored, so a recoverer
//! knows what to release and which lines to flush.

use crate::Result;
use crate::inject::{self, Bug, injected};
use crate::medium::layout::LINE;
use crate::txn::Operations;
use crate::txn::journal::Transaction;
use crate::txn::record::{LINES_TO_FLUSH_MAX, RECORD_LINES_TO_FLUSH, Record, index};
use pmem::{Durable, FenceBatch, InFlight};
use robust::owner::Owner;
use smallvec::SmallVec;
use vfs::Node;

/// One modifying call in flight.
pub(crate) struct Op<'v> {
    pub(crate) engine: &'v Operations,
    pub(crate) owner: Owner,
    pub(crate) record: Record<'v>,
    pub(crate) transaction: Transaction,
    pub(crate) locks: SmallVec<[u64; 3]>,
    /// Past the gate: the sequence numbers of the locked inodes are odd.
    pub(super) working: bool,
    pub(super) lines_to_flush: u64,
    pending: FenceBatch<'v>,
    // Most operations need none of these, and an operation is passed on by value: kept small.
    pub(super) allocated: SmallVec<[(u64, u64); 1]>,
    pub(super) allocated_inodes: SmallVec<[u64; 1]>,
    pub(super) freed: SmallVec<[(u64, u64); 1]>,
    pub(super) freed_inodes: SmallVec<[u64; 1]>,
    /// Unlinked by a step that is already durable: freed whatever comes.
    pub(super) freed_by_steps: Vec<(u64, u64)>,
    /// Directories whose number of blocks changes with the next commit, and by how much.
    pub(crate) reshaped: Vec<(Node, i64)>,
    /// There were such directories, and their count has moved.
    pub(crate) has_reshaped: bool,
    pub(super) ended: bool,
    /// Pages that stay here until it ends (`change_list.rs`).
    pub(super) pins: Vec<u64>,
}

impl Operations {
    /// Starts an operation; waits while all records are in use.
    pub(crate) fn begin(&self) -> Result<Op<'_>> {
        self.check_writable()?;
        self.begin_any()
    }

    /// As [`Operations::begin`], also on a read-only attachment (to take locks for reading).
    pub(crate) fn begin_any(&self) -> Result<Op<'_>> {
        let owner = self.claim_record()?;
        Ok(Op {
            engine: self,
            owner,
            record: Record::new(self, owner.op())?,
            transaction: Transaction::default(),
            locks: SmallVec::new(),
            working: false,
            lines_to_flush: 0,
            pending: FenceBatch::default(),
            allocated: SmallVec::new(),
            allocated_inodes: SmallVec::new(),
            freed: SmallVec::new(),
            freed_inodes: SmallVec::new(),
            freed_by_steps: Vec::new(),
            reshaped: Vec::new(),
            has_reshaped: false,
            ended: false,
            pins: Vec::new(),
        })
    }
}

impl<'v> Op<'v> {
    /// Index of the record and of the lane.
    pub(crate) fn index(&self) -> u32 {
        self.owner.op()
    }

    /// Adds stores to what the next fence must cover.
    pub(crate) fn pend(&mut self, stores: impl Into<FenceBatch<'v>>) {
        self.pending.add(stores);
    }

    /// Whether there are stores that the next fence must cover.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// One fence for everything pended.
    pub(crate) fn fence(&mut self) -> Durable<'v> {
        let pending = std::mem::take(&mut self.pending);
        pending.fence().unwrap_or_else(|| self.engine.region.fence())
    }

    /// As [`Op::fence`], unless this fault is injected: then nothing is fenced.
    #[inline]
    pub(crate) fn fence_unless(&mut self, bug: Bug) -> Durable<'v> {
        if injected(bug) { inject::forged() } else { self.fence() }
    }

    /// What it has stored becomes durable, if there is any: what the word of a name publishes.
    pub(crate) fn prepared(&mut self) -> Option<Durable<'v>> {
        self.has_pending().then(|| self.fence_unless(Bug::NameBeforeInode))
    }

    /// What is in flight, and all that it has stored, becomes durable before the word that makes a
    /// name count.
    pub(crate) fn fence_with(&mut self, stored: InFlight<'v>) -> Durable<'v> {
        self.pend(stored);
        self.fence_unless(Bug::NameBeforeInode)
    }

    /// Names a line that will be changed by a lone commit store (outside a transaction), so that a
    /// recoverer flushes it if this process dies before it has.
    pub(crate) fn announce_line(&mut self, offset: u64) -> Result<()> {
        let word =
            index(RECORD_LINES_TO_FLUSH) + (self.lines_to_flush % LINES_TO_FLUSH_MAX) as usize;
        self.lines_to_flush += 1;
        Ok(self.record.0.store(word, offset / LINE * LINE)?)
    }

    /// So many lines are named in the record already.
    pub(crate) fn announced_lines(&mut self, lines: usize) {
        self.lines_to_flush = self.lines_to_flush.max(lines as u64);
    }

    /// Stores a lone commit word and makes it durable: the point at which the operation has
    /// happened.
    pub(crate) fn commit_word(
        &mut self,
        offset: u64,
        value: u64,
        after: &Durable<'_>,
    ) -> Result<Durable<'v>> {
        self.announce_line(offset)?;
        // PERSIST: what this word publishes is durable (the witness); the word itself must be
        // before the locks go.
        let stored = self.engine.region.commit64(offset, value, after)?;
        if !injected(Bug::NameNotFlushed) {
            self.pend(stored.flush());
        }
        Ok(self.fence())
    }

    /// The allocator tells what it gave to this operation.
    pub(crate) fn record_allocated(&mut self, block: u64, blocks: u64) {
        self.allocated.push((block, blocks));
    }

    /// The allocator tells that it gave an inode to this operation.
    pub(crate) fn record_allocated_inode(&mut self, ino: u64) {
        self.allocated_inodes.push(ino);
    }

    /// Blocks that the operation unlinks: freed at its end, when the unlinking is durable.
    pub(crate) fn free_later(&mut self, block: u64, blocks: u64) {
        if injected(Bug::FreedEarly) && self.engine.release_blocks(block, blocks).is_ok() {
            return;
        }
        self.freed.push((block, blocks));
    }

    /// An inode that the operation unlinks: freed at its end.
    pub(crate) fn free_inode_later(&mut self, ino: u64) {
        self.freed_inodes.push(ino);
    }

    /// What was allocated so far is about to be reachable: it stays in use even if the operation is
    /// aborted.
    pub(crate) fn keep_allocated(&mut self) {
        self.allocated.clear();
        self.allocated_inodes.clear();
    }

    /// A step of a longer operation is durable: what was allocated so far is in use, what was
    /// unlinked is free, even if the operation is aborted later.
    pub(crate) fn finish_step(&mut self) {
        self.keep_allocated();
        self.freed_by_steps.extend(self.freed.drain(..));
    }
}
