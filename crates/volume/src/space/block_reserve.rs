//! The blocks that an operation record keeps for the operations to come.
//!
//! - *block*: one of a data chunk, with which an overwrite replaces another one, which is kept in
//!   its place (`data/replacement.rs`);
//! - *bucket*: one metadata block, of a directory that has lost its last name: the next directory
//!   that gets its first one takes it.
//!
//! Both are written by the operation, and by a call that takes them back. Nothing leads to a kept
//! block, but its bit says that it is in use. Whoever counts takes it off; fsck does not miss it.
//! It is given back with the inodes that records keep (`inode/inode_reserve.rs`), and when it is
//! all that is left of its chunk. A sweep frees it with all that nothing reaches, and so makes the
//! word void. A block is no longer the record's before anything leads to it.
//!
//! Locks: none. Persistence: none, all of this is volatile.

use crate::Result;
use crate::medium::record_words::{RECORD_BLOCK, RECORD_BUCKET, Record, index};
use crate::space::Space;
use crate::space::alloc::{Extents, Want};
use rustix::io::Errno;

impl Record<'_> {
    /// Takes a block that may replace block `old`: the one that is kept, or one out of a hole.
    /// `None` if there is none to spare. What it gets is nobody's until something leads to it, or
    /// it is kept again.
    #[inline]
    pub(crate) fn take_block(&self, space: &Space, old: u64) -> Result<Option<u64>> {
        let kept = self.0.swap(index(RECORD_BLOCK), 0)?;
        if kept == 0 {
            return space.spare_block(old);
        }
        if !space.in_pool(kept, 1) {
            return Err(Errno::IO);
        }
        if space.has_nodes() && space.block_node(kept) != space.block_node(old) {
            space.release_blocks(kept, 1)?;
            return space.spare_block(old);
        }
        Ok(Some(kept))
    }

    /// Keeps a block that nothing leads to; the record keeps none.
    #[inline]
    pub(crate) fn keep_block(&self, block: u64) -> Result<()> {
        Ok(self.0.store(index(RECORD_BLOCK), block)?)
    }

    /// Whether a block is kept for a first bucket, by a look.
    #[inline]
    pub(crate) fn keeps_bucket(&self) -> Result<bool> {
        Ok(self.0.load(index(RECORD_BUCKET))? != 0)
    }

    /// Takes the block that is kept for a first bucket. It is nobody's until something leads to it,
    /// or it is kept again.
    #[inline]
    pub(crate) fn take_bucket(&self, space: &Space) -> Result<Option<u64>> {
        let kept = self.0.swap(index(RECORD_BUCKET), 0)?;
        if kept != 0 && !space.in_pool(kept, 1) {
            return Err(Errno::IO);
        }
        Ok((kept != 0).then_some(kept))
    }

    /// Keeps the block of a bucket that nothing leads to, or frees it if there is such a one.
    #[inline]
    pub(crate) fn keep_bucket(&self, space: &Space, block: u64) -> Result<()> {
        // Nobody else makes it anything but 0.
        if self.keeps_bucket()? {
            return space.release_blocks(block, 1);
        }
        Ok(self.0.store(index(RECORD_BUCKET), block)?)
    }
}

impl Space {
    /// The single blocks that are kept.
    pub(crate) fn kept_singles(&self) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        for op in 0..self.rt.layout.op_count as u32 {
            for word in [RECORD_BLOCK, RECORD_BUCKET] {
                let block = self.rt.load(self.rt.op(op) + word)?;
                // What a crash left in the record of an image that is only looked at may be
                // anything.
                if self.in_pool(block, 1) && self.is_taken(block)? {
                    found.push(block);
                }
            }
        }
        Ok(found)
    }

    /// A block out of a hole, on the memory node of `old`; none of the reserve.
    #[cold]
    fn spare_block(&self, old: u64) -> Result<Option<u64>> {
        if self.free_blocks()? <= self.reserve() {
            return Ok(None);
        }
        let node = self.has_nodes().then(|| self.block_node(old));
        let (mut taken, want) = (Extents::new(), Want { node, ..Want::default() });
        self.take_data(1, want, &mut taken)?;
        Ok(taken.first().map(|run| run.0))
    }

    /// The memory node of the group in which a block lies.
    fn block_node(&self, block: u64) -> u32 {
        self.group_node(self.group_of(self.chunk_of(block).0))
    }

    /// Gives back the blocks of a chunk that records keep. For operations past the gate.
    #[cold]
    pub(crate) fn return_blocks_in(&self, chunk: u64) -> Result<()> {
        let lies_there = |block| self.chunk_of(block).0 == chunk;
        for op in 0..self.rt.layout.op_count as u32 {
            self.return_blocks_by(op, lies_there)?;
        }
        Ok(())
    }

    /// Gives back the single blocks that a record keeps and that are wanted; whether there was such
    /// a one.
    pub(crate) fn return_blocks_by(&self, op: u32, wanted: impl Fn(u64) -> bool) -> Result<bool> {
        let mut any = false;
        for word in [RECORD_BLOCK, RECORD_BUCKET] {
            let at = self.rt.op(op) + word;
            let block = self.rt.load(at)?;
            if self.in_pool(block, 1) && wanted(block) && self.rt.cas(at, block, 0)?.is_ok() {
                self.release_blocks(block, 1)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// The free map is made anew, without the blocks that were kept. Nobody works.
    pub(crate) fn forget_kept_blocks(&self) -> Result<()> {
        for op in 0..self.rt.layout.op_count as u32 {
            self.rt.store(self.rt.op(op) + RECORD_BLOCK, 0)?;
            self.rt.store(self.rt.op(op) + RECORD_BUCKET, 0)?;
        }
        Ok(())
    }
}
