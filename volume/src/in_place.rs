//! Writes that need no plan: all their bytes go into one run of blocks that the file already has,
//! and nobody is promised to see them change at once. That is an append to a file that has blocks
//! ahead of its end, and in the modes sync and posix any overwrite.
//!
//! Persistence order, as in `file_write.rs`: bytes; fence; the commit slot if the durable size
//! grows; fence.
//!
//! Locks: the inode's.

use crate::data::file::{File, Source};
use crate::ground::layout::BLOCK;
use crate::inject::{Bug, injected};
use crate::inode::LIVE_SUMMED;
use crate::txn::op::Op;
use crate::{Mode, Result};

impl Op<'_> {
    /// Writes `length` bytes at `offset` if that needs no plan; `false`: nothing has been done.
    pub(crate) fn write_in_place(
        &mut self,
        file: &File<'_>,
        source: Source<'_>,
        from: u64,
        offset: u64,
        length: u64,
    ) -> Result<bool> {
        let volume = self.volume;
        let (size, end) = (file.current.size, offset + length);
        let seen = offset < size && volume.mode == Mode::Strict;
        if offset > size || seen {
            return Ok(false);
        }
        let logical = offset / BLOCK;
        let blocks = end.div_ceil(BLOCK) - logical;
        let run = file.map.run(logical, blocks)?;
        if !run.is_written() || run.blocks < blocks {
            return Ok(false);
        }
        let place = run.block * BLOCK + offset % BLOCK;
        if self.appends_summed(file, offset, length)? {
            volume.live_lines(file.inode)?.set_run(logical, run)?;
            self.append_summed(file, source, from, place, length)?;
            return Ok(true);
        }
        if offset < size {
            self.settle_tail(file)?;
        }
        let stored = source.stream(&volume.region, from, place, length)?;
        if !injected(Bug::DataNotFenced) {
            self.pend(stored);
        }
        volume.live_lines(file.inode)?.set_run(logical, run)?;
        let mut next = file.written(end.max(size));
        let commits = volume.commits_file(file)? && end > volume.durable_size(file)?;
        if commits {
            self.publish_size(&file.sizing(&next))?;
        } else if !injected(Bug::DataNotFenced) {
            let _ = self.fence();
        }
        volume.mark_current(file, &mut next, commits)?;
        if offset < size {
            // Settled, and marked anew just now: what comes next may be brief.
            next.flags &= !LIVE_SUMMED;
        }
        volume.set_current(file.inode, &next)?;
        Ok(true)
    }
}
