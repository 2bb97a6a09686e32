//! `fallocate`: blocks ahead of their bytes, holes, zeros, and ranges taken out of or put into a
//! file.
//!
//! - Allocated blocks are *unwritten*: they read as zeros, and no byte of them is stored before it
//!   is needed. With `KEEP_SIZE` they may lie beyond the end; the inode is marked first, so that
//!   the last close and recovery leave them. CRASH: marked without such blocks is harmless.
//! - Punching and zeroing are writes of zeros that detach or mark whole blocks; the same plans,
//!   orders and guarantees as in `general_write.rs`. A mapped file keeps its blocks and gets real
//!   zeros.
//! - Collapsing and inserting move words only: all words behind the place, and the size, change in
//!   one transaction (nodes are built aside, so it always fits). Refused with `EBUSY` while mapped.
//!
//! Locks: the inode's.

use crate::Result;
use crate::data::Files;
use crate::data::edit::{Change, Target};
use crate::data::file::{File, Source};
use crate::data::general_write::{Care, Writer};
use crate::inject::{Bug, injected};
use crate::medium::layout::{BLOCK, FLAG_KEEP, IDENTITY, Identity, SIZE_MAX};
use crate::txn::op::Op;
use rustix::io::Errno;
use vfs::Node;
use zerocopy::IntoBytes;

const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE as u32;
const PUNCH: u32 = libc::FALLOC_FL_PUNCH_HOLE as u32 | KEEP_SIZE;
const ZERO: u32 = libc::FALLOC_FL_ZERO_RANGE as u32;
const ZERO_KEEP: u32 = ZERO | KEEP_SIZE;
const COLLAPSE: u32 = libc::FALLOC_FL_COLLAPSE_RANGE as u32;
const INSERT: u32 = libc::FALLOC_FL_INSERT_RANGE as u32;

/// What Linux checks of a request before it looks at the descriptor's access.
pub(crate) fn check_request(mode: u32, offset: u64, length: u64) -> Result<()> {
    if length == 0 || offset > SIZE_MAX {
        return Err(Errno::INVAL);
    }
    if !matches!(mode, 0 | KEEP_SIZE | PUNCH | ZERO | ZERO_KEEP | COLLAPSE | INSERT) {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(())
}

impl Files {
    /// `fallocate`: gives how many bytes are done, of a step (`Space::at_once`) or of all.
    /// `EOPNOTSUPP` for other modes, `EINVAL` for an empty range and where Linux wants whole blocks
    /// or a range inside the file, `EFBIG`, `ENOSPC`, `EBUSY` (moving blocks of a mapped file).
    pub(crate) fn allocate_file(
        &self,
        node: Node,
        mode: u32,
        offset: u64,
        length: u64,
    ) -> Result<u64> {
        check_request(mode, offset, length)?;
        let end = offset.checked_add(length).filter(|&end| end <= SIZE_MAX).ok_or(Errno::FBIG)?;
        match self.allocate_once(node, mode, offset, end, Care::KeepHuge) {
            Err(Errno::NOSPC) if self.mode == crate::Mode::Strict => {
                self.allocate_once(node, mode, offset, end, Care::Frugal)
            }
            other => other,
        }
    }

    fn allocate_once(
        &self,
        node: Node,
        mode: u32,
        offset: u64,
        end: u64,
        care: Care,
    ) -> Result<u64> {
        let mut op = self.begin()?;
        let file = self.work_on(&mut op, node)?;
        self.clear_tail_sum(&mut op, &file)?;
        if mode == COLLAPSE || mode == INSERT {
            self.shift(&mut op, file, offset, end, mode == INSERT)?;
            return op.end().map(|()| end - offset);
        }
        // Of a mapped file zeros are stored.
        let stores = file.is_mapped() && matches!(mode, PUNCH | ZERO | ZERO_KEEP);
        let end = if stores { self.end_of_step(offset, end) } else { end };
        if matches!(mode, KEEP_SIZE | ZERO_KEEP) && end > file.current.size {
            self.mark_kept(&mut op, &file)?;
        }
        let grows = matches!(mode, 0 | ZERO);
        if grows && end > file.current.size {
            self.zero_written(&mut op, file.map, file.current.size, end)?;
        }
        let mut writer = Writer::new(self, &mut op, file, care);
        if grows {
            writer.reach = writer.reach.max(end);
        }
        match mode {
            PUNCH => writer.punch_range(offset, end)?,
            ZERO | ZERO_KEEP => writer.zero_range(offset, end)?,
            _ => writer.fill_holes(offset / BLOCK, end.div_ceil(BLOCK))?,
        }
        writer.finish(if grows { end } else { 0 })?;
        op.end().map(|()| end - offset)
    }
}

impl Writer<'_, '_, '_> {
    /// Puts unwritten blocks into the holes between two blocks.
    fn fill_holes(&mut self, first: u64, last: u64) -> Result<()> {
        let mut at = first;
        while at < last {
            let run = self.file.map.run(at, last - at)?;
            if run.is_hole() {
                self.attach_unwritten(at, at + run.blocks)?;
            }
            at += run.blocks;
        }
        Ok(())
    }

    fn attach_unwritten(&mut self, first: u64, last: u64) -> Result<()> {
        for (logical, block, blocks) in self.allocate(first, last, None)? {
            let to = Target::Leaf { block, unwritten: !injected(Bug::JunkShown) };
            self.change(Change { logical, blocks, to, frees: true });
        }
        Ok(())
    }

    /// Detaches whole blocks and zeroes the parts of others.
    fn punch_range(&mut self, offset: u64, end: u64) -> Result<()> {
        if self.file.is_mapped() {
            return self.zero_bytes(offset, end);
        }
        let (first, last) = (offset.div_ceil(BLOCK), end / BLOCK);
        if first > last {
            return self.zero_bytes(offset, end);
        }
        self.zero_bytes(offset, first * BLOCK)?;
        if first < last {
            self.punch(first, last - first);
        }
        self.zero_bytes(last * BLOCK, end)
    }

    /// Zeroes the bytes of written blocks between two offsets; those beyond the end mean nothing.
    fn zero_bytes(&mut self, offset: u64, end: u64) -> Result<()> {
        let end = end.min(self.file.current.size);
        let mut at = offset;
        while at < end {
            let logical = at / BLOCK;
            let run = self.file.map.run(logical, end.div_ceil(BLOCK) - logical)?;
            let to = ((logical + run.blocks) * BLOCK).min(end);
            if run.is_written() {
                self.put(Source::Zero, 0, at, to - at)?;
            }
            at = to;
        }
        Ok(())
    }

    /// Afterwards the range reads as zeros and has blocks throughout.
    fn zero_range(&mut self, offset: u64, end: u64) -> Result<()> {
        let (mut logical, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        while logical < last {
            let run = self.file.map.run(logical, last - logical)?;
            let next = logical + run.blocks;
            if run.is_hole() {
                self.attach_unwritten(logical, next)?;
            } else if run.is_written() {
                self.zero_blocks(logical, next, offset, end)?;
            }
            logical = next;
        }
        Ok(())
    }

    /// Written blocks: whole ones are marked, parts zeroed.
    fn zero_blocks(&mut self, first: u64, last: u64, offset: u64, end: u64) -> Result<()> {
        let (from, to) = ((first * BLOCK).max(offset), (last * BLOCK).min(end));
        let (whole, behind) = (from.div_ceil(BLOCK), to / BLOCK);
        if self.file.is_mapped() || whole >= behind {
            return self.zero_bytes(from, to);
        }
        self.zero_bytes(from, whole * BLOCK)?;
        let mark = Target::Mark { unwritten: true };
        self.change(Change { logical: whole, blocks: behind - whole, to: mark, frees: true });
        self.zero_bytes(behind * BLOCK, to)
    }
}

impl Files {
    /// Marks an inode: blocks beyond its end are wanted.
    fn mark_kept<'v>(&'v self, op: &mut Op<'v>, file: &File<'v>) -> Result<()> {
        if file.identity.flags & FLAG_KEEP != 0 {
            return Ok(());
        }
        let flags = file.identity.flags | FLAG_KEEP;
        let identity = Identity { flags, ..file.identity }.sealed(file.inode);
        op.undo_identity(file.inode)?;
        let sealed = op.seal();
        let region = &self.region;
        let stored =
            region.commit_write(file.inode.at(IDENTITY), identity.as_bytes(), &sealed)?.flush();
        op.commit(stored)
    }

    /// Takes the range out of the file, or puts a hole there, moving what is behind it.
    fn shift<'v>(
        &'v self,
        op: &mut Op<'v>,
        file: File<'v>,
        offset: u64,
        end: u64,
        insert: bool,
    ) -> Result<()> {
        let size = file.current.size;
        let length = end - offset;
        if !offset.is_multiple_of(BLOCK) || !length.is_multiple_of(BLOCK) {
            return Err(Errno::INVAL);
        }
        if insert && offset >= size || !insert && end >= size {
            return Err(Errno::INVAL);
        }
        if insert && size > SIZE_MAX - length {
            return Err(Errno::FBIG);
        }
        if file.is_mapped() {
            return Err(Errno::BUSY);
        }
        // What lies beyond the end would come to lie in the way.
        let cut = self.plan_cut(op, &file, size)?;
        op.keep_allocated();
        self.store_loose(op, &cut)?;
        let _ = op.fence();
        op.finish_step();
        self.adjust_blocks(file.inode, &file.identity, cut.delta)?;
        let (offset, length, last) = (offset / BLOCK, length / BLOCK, file.end_block());
        let mut changes = Vec::new();
        if insert {
            changes.push(moved_hole(offset, length));
            Self::move_runs(&file, offset, last, offset + length, &mut changes)?;
        } else {
            free_runs(op, &file, offset, offset + length)?;
            Self::move_runs(&file, offset + length, last, offset, &mut changes)?;
            changes.push(moved_hole(last - length, length));
        }
        let words = self.plan_edit(op, file.map, &changes)?;
        let bytes = length * BLOCK;
        let next = file.written(if insert { size + bytes } else { size - bytes });
        self.publish_edits(op, &[&words], &[file.sizing(&next)])?;
        self.publish_current(&file, next, true, words.delta)
    }

    /// Plans that what stands at `first..last` shall stand from `to` on.
    pub(crate) fn move_runs(
        file: &File<'_>,
        first: u64,
        last: u64,
        to: u64,
        changes: &mut Vec<Change>,
    ) -> Result<()> {
        let mut at = first;
        while at < last {
            let run = file.map.run(at, last - at)?;
            let target = if run.is_hole() {
                Target::Hole
            } else {
                Target::Leaf { block: run.block, unwritten: run.unwritten }
            };
            let (logical, blocks) = (to + (at - first), run.blocks);
            changes.push(Change { logical, blocks, to: target, frees: false });
            at += run.blocks;
        }
        Ok(())
    }
}

fn free_runs(op: &mut Op<'_>, file: &File<'_>, first: u64, last: u64) -> Result<()> {
    let mut at = first;
    while at < last {
        let run = file.map.run(at, last - at)?;
        if !run.is_hole() {
            op.free_later(run.block, run.blocks);
        }
        at += run.blocks;
    }
    Ok(())
}

/// A hole where blocks were that live on elsewhere.
pub(crate) fn moved_hole(logical: u64, blocks: u64) -> Change {
    Change { logical, blocks, to: Target::Hole, frees: false }
}
