//! Ranges from one file to another: moved by `relink` (`SplitFS`'s primitive), copied by
//! `copy_file_range`.
//!
//! Relink: whole blocks move without being copied. Both maps are planned in full; all their words
//! and the destination's size change in one undo transaction. CRASH: before its commit everything
//! is where it was, after it everything has moved; no block is ever named twice or never. What the
//! destination held is freed after that. A last block that is moved in part (the range ends at the
//! end of `from`) keeps the bytes that the destination has behind it: then it is copied. Bytes of a
//! moved block behind the end mean nothing, but they are zeroed where they come to lie below the
//! destination's end. Locks: both inodes', in order of their numbers.
//!
//! Copying reads and writes by pieces, each with the guarantees of a write of its own.

use crate::Result;
use crate::data::Files;
use crate::data::edit::{Change, Target};
use crate::data::fallocate::moved_hole;
use crate::data::file::File;
use crate::data::plan::Position;
use crate::medium::layout::{BLOCK, SIZE_MAX};
use crate::space::alloc::Want;
use crate::txn::op::Op;
use pmem::{UserIn, UserOut};
use rustix::io::Errno;
use vfs::Node;

/// Bytes copied at once.
const PIECE: u64 = 256 << 10;

/// A range of blocks to move, and where to.
struct Move<'v> {
    from: File<'v>,
    to: File<'v>,
    /// First blocks.
    source: u64,
    target: u64,
    /// Whole blocks to move.
    blocks: u64,
    /// Bytes of one block more, which is copied.
    rest: u64,
    /// Where the range ends in `to`, bytes.
    end: u64,
}

impl Files {
    /// Moves blocks as the contract says. `EINVAL` for ranges that are not whole blocks or overlap
    /// in one file, `EBUSY` if either file is mapped, `EFBIG`, `ENOSPC` (with nothing changed).
    pub(crate) fn relink_file(
        &self,
        from: Node,
        from_offset: u64,
        to: Node,
        to_offset: u64,
        length: u64,
    ) -> Result<()> {
        let from_end = from_offset.checked_add(length).ok_or(Errno::INVAL)?;
        let to_end = to_offset.checked_add(length).ok_or(Errno::FBIG)?;
        if !from_offset.is_multiple_of(BLOCK) || !to_offset.is_multiple_of(BLOCK) {
            return Err(Errno::INVAL);
        }
        if to_end > SIZE_MAX {
            return Err(Errno::FBIG);
        }
        let mut op = self.begin()?;
        let inodes = [self.inode(from.ino), self.inode(to.ino)];
        let [Ok(from_inode), Ok(to_inode)] = inodes else { return Err(Errno::STALE) };
        op.lock(&[from_inode, to_inode])?;
        let nodes = (from, to);
        let (from, to) = (self.file(from)?, self.file(to)?);
        let size = from.current.size;
        if from_end > SIZE_MAX || !length.is_multiple_of(BLOCK) && from_end != size {
            return Err(Errno::INVAL);
        }
        if from_inode == to_inode && from_offset < to_end && to_offset < from_end {
            return Err(Errno::INVAL);
        }
        if from.is_mapped() || to.is_mapped() {
            return Err(Errno::BUSY);
        }
        if length == 0 {
            return op.end();
        }
        op.work()?;
        let (from, to) = (self.file(nodes.0)?, self.file(nodes.1)?);
        self.clear_tail_sum(&mut op, &from)?;
        self.clear_tail_sum(&mut op, &to)?;
        let keeps_rest = !length.is_multiple_of(BLOCK) && to.current.size > to_end;
        let (source, target) = (from_offset / BLOCK, to_offset / BLOCK);
        let blocks = if keeps_rest { length / BLOCK } else { length.div_ceil(BLOCK) };
        let rest = if keeps_rest { length % BLOCK } else { 0 };
        let moving = Move { from, to, source, target, blocks, rest, end: to_end };
        self.relink(&mut op, &moving)?;
        op.end()
    }
}

impl Files {
    /// Copies up to `length` bytes; gives how many, short at the end of `from` or if an error came
    /// after the first piece. `EINVAL` if the ranges overlap in one file.
    pub(crate) fn copy_file(
        &self,
        from: Node,
        from_offset: u64,
        to: Node,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let ends = from_offset.checked_add(length).zip(to_offset.checked_add(length));
        ends.ok_or(Errno::OVERFLOW)?;
        // As Linux: what lies beyond the end is not copied, so it overlaps nothing.
        let size = self.current(self.inode(from.ino).map_err(|_| Errno::STALE)?)?.size;
        let length = length.min(size.saturating_sub(from_offset));
        if from == to && from_offset < to_offset + length && to_offset < from_offset + length {
            return Err(Errno::INVAL);
        }
        let mut buffer = vec![0; PIECE.min(length) as usize];
        let mut done = 0;
        while done < length {
            let take = (length - done).min(PIECE) as usize;
            let moved = self.copy_piece(
                (from, from_offset + done),
                (to, to_offset + done),
                &mut buffer[..take],
            );
            match moved {
                Ok(0) => break,
                Ok(moved) => done += moved,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn copy_piece(&self, from: (Node, u64), to: (Node, u64), buffer: &mut [u8]) -> Result<u64> {
        let read = self.read_file(from.0, from.1, &mut [UserOut::new(buffer)])?;
        let data = [UserIn::new(&buffer[..read])];
        let (written, _) = self.write_file(to.0, Position::At(to.1), &data)?;
        Ok(written as u64)
    }
}

impl Files {
    fn relink<'v>(&'v self, op: &mut Op<'v>, moving: &Move<'v>) -> Result<()> {
        let Move { from, to, source, target, blocks, .. } = moving;
        // Invisible bytes first: behind the end of `from` inside the range, and between the end of
        // `to` and the range.
        let from_end = (source + blocks) * BLOCK;
        let visible = from_end.min(source * BLOCK + (moving.end - target * BLOCK));
        self.zero_written(op, from.map, from.current.size.max(source * BLOCK), visible)?;
        self.zero_written(op, to.map, to.current.size, target * BLOCK)?;
        let mut away = vec![moved_hole(*source, *blocks)];
        let mut here = Vec::new();
        Self::move_runs(from, *source, source + blocks, *target, &mut here)?;
        for change in &mut here {
            change.frees = true;
        }
        if moving.rest > 0 {
            here.push(self.copied_rest(op, moving)?);
            away.push(Change { frees: true, ..moved_hole(source + blocks, 1) });
        }
        let next = to.written(moving.end.max(to.current.size));
        let grows = moving.end > self.durable_size(to)?;
        let size = grows.then(|| to.sizing(&next));
        if from.inode == to.inode {
            let (mut all, behind) = if source < target { (away, here) } else { (here, away) };
            all.extend(behind);
            let words = self.plan_edit(op, to.map, &all)?;
            self.publish_edits(op, &[&words], size.as_slice())?;
            return self.publish_current(to, next, grows, words.delta);
        }
        let gone = self.plan_edit(op, from.map, &away)?;
        let come = self.plan_edit(op, to.map, &here)?;
        self.publish_edits(op, &[&gone, &come], size.as_slice())?;
        let left = from.written(from.current.size);
        self.publish_current(from, left, false, gone.delta)?;
        self.publish_current(to, next, grows, come.delta)
    }

    /// The last block, of which only the first bytes come from `from`: a fresh one with the bytes
    /// of both.
    fn copied_rest<'v>(&'v self, op: &mut Op<'v>, moving: &Move<'v>) -> Result<Change> {
        let (source, target) = (moving.source + moving.blocks, moving.target + moving.blocks);
        let want = Want { reserve: true, ..Want::default() };
        let block = self.allocate_data(op, 1, want)?.first().ok_or(Errno::NOSPC)?.0;
        let parts =
            [(&moving.from, source, 0, moving.rest), (&moving.to, target, moving.rest, BLOCK)];
        for (file, logical, start, end) in parts {
            let run = file.map.run(logical, 1)?;
            let at = block * BLOCK + start;
            let pending = if run.is_written() {
                self.region.copy(run.block * BLOCK + start, at, end - start)?
            } else {
                self.region.stream_zero(at, end - start)?
            };
            op.pend(pending);
        }
        let to = Target::Leaf { block, unwritten: false };
        Ok(Change { logical: target, blocks: 1, to, frees: true })
    }
}
