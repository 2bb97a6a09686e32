//! What an operation allocates: blocks and inodes, which it frees again if it is aborted.

use crate::Result;
use crate::inode::Inode;
use crate::medium::layout::CHUNK_BLOCKS;
use crate::space::alloc::{Extents, Want};
use crate::txn::Operations;
use crate::txn::op::Op;
use rustix::io::Errno;

impl Operations {
    /// Takes exactly `blocks` blocks for file data; `ENOSPC`, and nothing is taken, if they cannot
    /// be had.
    pub(crate) fn allocate_data(
        &self,
        op: &mut Op<'_>,
        blocks: u64,
        want: Want,
    ) -> Result<Extents> {
        self.allocate(op, blocks, self.kept_from(want), || self.take_data_blocks(blocks, want))
    }

    /// Takes exactly `blocks` blocks for metadata, from the reserve too. `ENOSPC` as above.
    pub(crate) fn allocate_metadata(&self, op: &mut Op<'_>, blocks: u64) -> Result<Extents> {
        self.allocate(op, blocks, 0, || self.take_metadata_blocks(blocks))
    }

    /// As [`Operations::allocate_metadata`], of blocks that the operation frees itself.
    pub(crate) fn allocate_scratch(&self, op: &mut Op<'_>, blocks: u64) -> Result<Extents> {
        self.allocate(op, blocks, 0, || self.take_scratch_blocks(blocks))
    }

    /// A whole free chunk: its first block. `None` if there is none, or if that would dip into the
    /// reserve.
    pub(crate) fn allocate_chunk(&self, op: &mut Op<'_>, node: Option<u32>) -> Result<Option<u64>> {
        let want = Want { whole: true, node, ..Want::default() };
        match self.allocate_data(op, CHUNK_BLOCKS, want) {
            Ok(taken) => Ok(taken.first().map(|run| run.0)),
            Err(Errno::NOSPC) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Notes what `take` takes, if there are as many blocks, and `keep` besides: what records keep
    /// is given back before there are not.
    #[inline]
    fn allocate(
        &self,
        op: &mut Op<'_>,
        blocks: u64,
        keep: u64,
        take: impl FnOnce() -> Result<Extents>,
    ) -> Result<Extents> {
        if blocks == 0 {
            return Ok(Extents::new());
        }
        let need = blocks.checked_add(keep).ok_or(Errno::NOSPC)?;
        if self.free_blocks()? < need && !(self.return_kept()? && self.free_blocks()? >= need) {
            return Err(Errno::NOSPC);
        }
        let taken = take()?;
        for &(block, count) in &taken {
            op.record_allocated(block, count);
        }
        Ok(taken)
    }

    /// Takes a free inode. `ENOSPC` if there is none and no room for another extent.
    pub(crate) fn allocate_inode(&self, op: &mut Op<'_>) -> Result<Inode> {
        let inode = self.take_inode(&op.record, op.index())?;
        op.record_allocated_inode(inode.0);
        Ok(inode)
    }
}
