//! Setting a file's size, and cutting off what lies beyond it.
//!
//! Persistence order: shrinking commits the size first and detaches the blocks after it; growing
//! zeroes the gap within written blocks, fences, and commits the size. CRASH: in between, words lie
//! beyond the end, where they mean nothing; recovery and the last close cut them off. Every mode
//! commits here: blocks that are given back must not be needed by an older size.
//!
//! A file that some process has mapped keeps its blocks until its last close; they are zeroed
//! instead.
//!
//! Locks: the inode's.

use crate::Result;
use crate::data::Files;
use crate::data::edit::{Change, Target, Words};
use crate::data::file::File;
use crate::data::map::{LEVEL_MAX, span};
use crate::inject::{Bug, injected};
use crate::inode::{LIVE_BEYOND, LIVE_DIRTY};
use crate::medium::layout::{BLOCK, CHUNK_BLOCKS, FLAG_KEEP, SIZE_MAX};
use crate::txn::op::Op;
use rustix::io::Errno;
use vfs::Node;

/// One behind the last logical block that a map can hold.
const BLOCKS_END: u64 = span(LEVEL_MAX);

impl Files {
    /// Sets the size. `EINVAL` beyond the largest size or if it is not a regular file, `EISDIR`.
    pub(crate) fn truncate_file(&self, node: Node, size: u64) -> Result<()> {
        if size > SIZE_MAX {
            return Err(Errno::INVAL);
        }
        let mut op = self.begin()?;
        let file = self.work_on(&mut op, node)?;
        let current = file.current;
        let mut next = file.written(size);
        let kept = file.identity.flags & FLAG_KEEP != 0 || current.flags & LIVE_BEYOND != 0;
        if size == current.size && !kept && current.flags & LIVE_DIRTY == 0 {
            self.publish_current(&file, next, false, 0)?;
            return op.end();
        }
        let mut delta = 0;
        if size > current.size {
            self.zero_written(&mut op, file.map, current.size, size)?;
            self.publish_size(&mut op, &file.sizing(&next))?;
        } else if file.is_mapped() {
            self.publish_size(&mut op, &file.sizing(&next))?;
            self.zero_written(&mut op, file.map, size, current.size)?;
            let _ = op.fence();
            next.flags |= LIVE_BEYOND;
        } else {
            let cut = self.plan_cut(&mut op, &file, size)?;
            if injected(Bug::CutBeforeSize) {
                self.store_loose(&mut op, &cut)?;
            }
            self.publish_size(&mut op, &file.sizing(&next))?;
            // PERSIST: the words lie beyond a size that is durable: any subset of them is right.
            // The fence of [`Op::end`] stands before their blocks are given to anybody else.
            op.keep_allocated();
            self.store_loose(&mut op, &cut)?;
            delta = cut.delta;
            next.flags &= !LIVE_BEYOND;
        }
        self.publish_current(&file, next, true, delta)?;
        op.end()
    }
}

impl Files {
    /// Plans to detach every block wholly beyond `size`. Without room for the node that a broken
    /// chunk needs, that chunk stays whole.
    pub(crate) fn plan_cut<'v>(
        &'v self,
        op: &mut Op<'v>,
        file: &File<'v>,
        size: u64,
    ) -> Result<Words> {
        let first = size.div_ceil(BLOCK);
        let from = |logical: u64| Change {
            logical,
            blocks: BLOCKS_END - logical,
            to: Target::Hole,
            frees: true,
        };
        let run = file.map.run(first, 1)?;
        if run.huge && !first.is_multiple_of(CHUNK_BLOCKS) && self.free_blocks()? == 0 {
            return self.plan_loose(op, file.map, &[from(first.next_multiple_of(CHUNK_BLOCKS))]);
        }
        self.plan_loose(op, file.map, &[from(first)])
    }
}
