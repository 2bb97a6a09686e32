//! `mmap`: where the bytes of a file lie in the region.
//!
//! A mapping is made without filling holes ([`Files::map_pieces`] with [`Fill::None`]); a page
//! fault in one fills the page and what is worth it around it ([`Files::map_faulted_page`]):
//!
//! - blocks that are there but unwritten: the rest of their 2 MiB;
//! - a hole of a whole 2 MiB of the file: a whole chunk, while more than an eighth of the volume is
//!   free, or 1/32 and 128 MiB, if the file could be filled twice over by what is free, or if the
//!   file begins there or has a block right before or right behind: so a file that grows through
//!   its mapping gets huge pages, however much larger the mapping is than the volume, and one that
//!   is touched here and there does not eat it up;
//! - else 64 KiB, while more than 1/64 of the volume is free; else one page. The caller may ask for
//!   more, since each piece costs the process a mapping.
//!
//! Where memory can be mapped by 2 MiB only (hugetlbfs, device-dax), that is whole chunks of
//! written bytes: a page fault makes the chunk so first (`upkeep/promotion.rs`), and what lies
//! behind the end in the last one can be seen, as zeros.
//!
//! A process that maps the pieces stores into the blocks without a call, so from the first mapping
//! to the last close no block of the file moves or is freed (`LIVE_MAPPED`): writes go in place,
//! truncation and punching zero instead.
//!
//! What is stored through a mapping lies in caches until it is flushed: a sync does that for the
//! lines of a file that was mapped for writing (`LIVE_STORED`), and so does its last close, before
//! blocks move again.
//!
//! Persistence order for filled holes: zeros; fence; words, in any order (each replaces zeros by
//! zeros); fence. Locks: the inode's.

use crate::Result;
use crate::data::Files;
use crate::data::edit::{Change, Changes, Target};
use crate::data::file::{File, expect_file};
use crate::data::general_write::{Care, Writer};
use crate::data::map::Map;
use crate::inject::{Bug, injected};
use crate::inode::{LIVE_DIRTY, LIVE_MAPPED, LIVE_STORED};
use crate::medium::layout::{BLOCK, CHUNK, CHUNK_BLOCKS};
use crate::txn::op::Op;
use rustix::io::Errno;
use vfs::{Mapped, Node, Piece};

/// Blocks that are much on any volume: 128 MiB.
const MUCH: u64 = 64 * CHUNK_BLOCKS;
/// Blocks that a page fault fills where a whole chunk is too much.
pub(crate) const AROUND: u64 = 16;

/// What becomes of the holes in a range that is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    None,
    All,
}

/// A page fault in a mapping.
#[derive(Clone, Copy)]
pub(crate) struct PageFault {
    /// The block of the file.
    pub(crate) page: u64,
    /// The blocks of the file that may be mapped around it.
    pub(crate) within: (u64, u64),
    /// Blocks that the caller would have filled at least.
    pub(crate) least: u64,
}

/// The first block of a range of bytes (offset and length), and the one behind: `EINVAL` unless
/// both are multiples of a block, `EOVERFLOW`.
pub(crate) fn whole_blocks((offset, length): (u64, u64)) -> Result<(u64, u64)> {
    let end = offset.checked_add(length).ok_or(Errno::OVERFLOW)?;
    if !offset.is_multiple_of(BLOCK) || !length.is_multiple_of(BLOCK) || length == 0 {
        return Err(Errno::INVAL);
    }
    Ok((offset / BLOCK, end / BLOCK))
}

/// Pieces of one mapping at most: each becomes a mapping of the process, of which the kernel allows
/// 65,530.
const PIECES_MAX: usize = 4096;
/// Pieces that are mapped for one page fault at most.
const PIECES_FAULTED: usize = 64;

impl Files {
    /// The pieces of `[offset, offset + length)` (multiples of 4096) as the contract says. Blocks
    /// wholly beyond the end have none. `ENOMEM` if there are too many pieces, `ENOSPC`, `EINVAL`.
    pub(crate) fn map_pieces(
        &self,
        node: Node,
        range: (u64, u64),
        mapped: Mapped,
        fill: Fill,
    ) -> Result<Vec<Piece>> {
        let (first, last) = whole_blocks(range)?;
        let Some(mut op) = self.begin_mapping()? else {
            return self.map_still(node, (first, last), None);
        };
        let file = self.work_on(&mut op, node)?;
        self.clear_tail_sum(&mut op, &file)?;
        let inside = last.min(self.shown_end(&file)).max(first);
        if fill == Fill::All && !self.maps_chunks() && !self.is_read_only() {
            self.fill_for_mapping(&mut op, &file, first, inside)?;
        }
        let pieces = self.map_blocks(&mut op, &file, (first, inside, last), mapped, PIECES_MAX)?;
        op.end()?;
        if pieces.len() > PIECES_MAX { Err(Errno::NOMEM) } else { Ok(pieces) }
    }

    /// The pieces around a page that faulted, in the order of the file, filled as this module's
    /// head says, `frugal`ly the page alone; none if it lies beyond the end. `ENOSPC`.
    pub(crate) fn map_faulted_page(
        &self,
        node: Node,
        fault: &PageFault,
        mapped: Mapped,
        frugal: bool,
    ) -> Result<Vec<Piece>> {
        let Some(mut op) = self.begin_mapping()? else {
            let around = (fault.page, fault.page + AROUND.min(fault.within.1 - fault.page));
            return self.map_still(node, around, Some(mapped));
        };
        let file = self.work_on(&mut op, node)?;
        self.clear_tail_sum(&mut op, &file)?;
        let end = fault.within.1.min(file.end_block());
        if fault.page < fault.within.0 || fault.page >= end {
            op.end()?;
            return Ok(Vec::new());
        }
        let (first, last) = if frugal {
            (fault.page, fault.page + 1)
        } else {
            self.worth_filling(&file, fault, end)?
        };
        self.fill_for_mapping(&mut op, &file, first, last)?;
        // What is there already goes along as far as it is together.
        let behind = file.map.run(last - 1, end - (last - 1))?;
        let last = if behind.is_written() { last - 1 + behind.blocks } else { last };
        let mut pieces =
            self.map_blocks(&mut op, &file, (first, last, last), mapped, PIECES_FAULTED)?;
        if pieces.len() > PIECES_FAULTED {
            // Too many to tell all: those from the faulted page on.
            pieces = pieces_of(file.map, (fault.page, last, last), PIECES_FAULTED)?;
            pieces.truncate(PIECES_FAULTED);
        }
        op.end()?;
        Ok(pieces)
    }

    /// Whether memory can be mapped by whole chunks only.
    pub(crate) fn maps_chunks(&self) -> bool {
        self.region.map_unit() == CHUNK
    }

    /// One behind the last block that a mapping shows.
    fn shown_end(&self, file: &File<'_>) -> u64 {
        let end = file.end_block();
        if self.maps_chunks() { end.next_multiple_of(CHUNK_BLOCKS) } else { end }
    }

    /// The one piece of the chunk's worth of blocks from `first` on, which is a whole chunk; none
    /// behind the end.
    pub(crate) fn map_chunk(&self, node: Node, first: u64, mapped: Mapped) -> Result<Vec<Piece>> {
        let mut op = self.begin()?;
        let file = self.work_on(&mut op, node)?;
        if first >= file.end_block() {
            op.end()?;
            return Ok(Vec::new());
        }
        let last = first + CHUNK_BLOCKS;
        let pieces = self.map_blocks(&mut op, &file, (first, last, last), mapped, 1)?;
        op.end()?;
        Ok(pieces)
    }

    /// `None`: nothing of the volume changes, so blocks stay where they are without a word to
    /// anybody. A read-only attachment must tell others, which write, that the file is mapped.
    fn begin_mapping(&self) -> Result<Option<Op<'_>>> {
        let is_still = self.check_writable().is_err() && self.is_unchanging();
        if is_still { Ok(None) } else { self.begin_any().map(Some) }
    }

    /// The pieces of blocks `first..last` of a file that nobody changes. Unlike other mappings' its
    /// last block may show what lies behind the end. `faulted`: the first block did, through such a
    /// mapping; then nothing behind the end, and `ENOSPC` if a shared one that is only read has a
    /// hole there.
    fn map_still(
        &self,
        node: Node,
        (first, last): (u64, u64),
        faulted: Option<Mapped>,
    ) -> Result<Vec<Piece>> {
        self.read_steadily(node, |inode, identity| {
            expect_file(identity)?;
            let map = Map::new(self, inode, identity);
            let end = self.current(inode)?.size.div_ceil(BLOCK);
            let inside = last.min(end).max(first);
            if faulted == Some(Mapped::Read) && first < inside {
                let run = map.run(first, inside - first)?;
                if !run.is_written() {
                    return Err(Errno::NOSPC);
                }
                return pieces_of(map, (first, first + run.blocks, first), PIECES_FAULTED);
            }
            let last = if faulted.is_some() { inside } else { last };
            let pieces = pieces_of(map, (first, inside, last), PIECES_MAX)?;
            if pieces.len() > PIECES_MAX { Err(Errno::NOMEM) } else { Ok(pieces) }
        })
    }

    /// The blocks that a page fault in one is to fill, as this module's head says.
    fn worth_filling(&self, file: &File<'_>, fault: &PageFault, end: u64) -> Result<(u64, u64)> {
        let page = fault.page;
        let cut = |first: u64, last: u64| (first.max(fault.within.0), last.min(end));
        let chunk = page - page % CHUNK_BLOCKS;
        if !file.map.run(page, 1)?.is_hole() {
            return there(file, page, cut(chunk, chunk + CHUNK_BLOCKS));
        }
        let (free, all) = (self.free_blocks()?, self.chunks() * CHUNK_BLOCKS);
        let whole = cut(chunk, chunk + CHUNK_BLOCKS) == (chunk, chunk + CHUNK_BLOCKS);
        let much = free > all / 8 || free > (all / 32).max(MUCH);
        if whole && much && is_hole(file, chunk)? {
            let small = file.end_block() <= free / 2;
            let is_there = |block| Ok::<_, Errno>(!file.map.run(block, 1)?.is_hole());
            let grows = chunk == 0 || is_there(chunk - 1)?;
            if small || grows || is_there(chunk + CHUNK_BLOCKS)? {
                return Ok((chunk, chunk + CHUNK_BLOCKS));
            }
        }
        let around = if free > all / 64 { AROUND } else { 1 };
        let around = around.max(fault.least).next_power_of_two();
        let first = page - page % around;
        Ok(cut(first, first + around))
    }
}

impl Files {
    /// The pieces of blocks `first..inside`, and nothing from there to `last`; about `most` at
    /// most. The file is known as mapped from here on.
    fn map_blocks<'v>(
        &'v self,
        op: &mut Op<'v>,
        file: &File<'v>,
        (first, inside, last): (u64, u64, u64),
        mapped: Mapped,
        most: usize,
    ) -> Result<Vec<Piece>> {
        // A mapping shows the rest of the last block, or chunk: zeros, as mmap promises.
        let end = self.shown_end(file);
        if !self.maps_chunks() || first < end && end <= last {
            self.zero_written(op, file.map, file.current.size, end * BLOCK)?;
        }
        let _ = op.fence();
        let pieces = pieces_of(file.map, (first, inside, last), most)?;
        let mut current = self.current(file.inode)?;
        current.flags |= LIVE_MAPPED;
        if mapped == Mapped::Write {
            current.flags |= LIVE_STORED;
        }
        self.set_current(file.inode, &current)?;
        Ok(pieces)
    }

    /// Flushes the lines of `[from, to)` of a file, whoever stored to them through a mapping.
    /// Pended.
    pub(crate) fn flush_stores<'v>(
        &'v self,
        op: &mut Op<'v>,
        file: &File<'v>,
        from: u64,
        to: u64,
    ) -> Result<()> {
        let (mut at, end) = (from / BLOCK, to.min(file.current.size).div_ceil(BLOCK));
        if injected(Bug::StoresNotFlushed) {
            return Ok(());
        }
        while at < end {
            let run = file.map.run(at, end - at)?;
            if run.is_written() {
                op.pend(self.region.flush(run.block * BLOCK, run.blocks * BLOCK));
            }
            at += run.blocks;
        }
        Ok(())
    }

    /// Gives every block between `first` and `last` written bytes.
    fn fill_for_mapping<'v>(
        &'v self,
        op: &mut Op<'v>,
        file: &File<'v>,
        first: u64,
        last: u64,
    ) -> Result<()> {
        let mut changes = Changes::new();
        let mut at = first;
        while at < last {
            let run = file.map.run(at, last - at)?;
            let mut next = at + run.blocks;
            if run.is_hole() {
                let mut writer = Writer::new(self, op, *file, Care::KeepHuge);
                for (logical, block, blocks) in writer.allocate(at, next, None)? {
                    let zeroed = self.region.stream_zero(block * BLOCK, blocks * BLOCK)?;
                    op.pend(zeroed);
                    let to = Target::Leaf { block, unwritten: false };
                    changes.push(Change { logical, blocks, to, frees: true });
                }
            } else if run.unwritten {
                let (mut logical, mut block, mut blocks) = (at, run.block, run.blocks);
                if run.huge {
                    block -= logical % CHUNK_BLOCKS;
                    logical -= logical % CHUNK_BLOCKS;
                    blocks = CHUNK_BLOCKS;
                    next = logical + CHUNK_BLOCKS;
                }
                let zeroed = self.region.stream_zero(block * BLOCK, blocks * BLOCK)?;
                op.pend(zeroed);
                let to = Target::Mark { unwritten: false };
                changes.push(Change { logical, blocks, to, frees: true });
            }
            at = next;
        }
        let words = self.plan_loose(op, file.map, &changes)?;
        // PERSIST: the zeros before the words that lead to them.
        let _ = op.fence();
        op.keep_allocated();
        self.store_loose(op, &words)?;
        let _ = op.fence();
        let clean = file.current.flags & LIVE_DIRTY == 0;
        self.publish_current(file, file.current, clean, words.delta)
    }
}

/// Whether no block of the 2 MiB that begin at block `chunk` is there.
fn is_hole(file: &File<'_>, chunk: u64) -> Result<bool> {
    let mut at = chunk;
    while at < chunk + CHUNK_BLOCKS {
        let run = file.map.run(at, chunk + CHUNK_BLOCKS - at)?;
        if !run.is_hole() {
            return Ok(false);
        }
        at += run.blocks;
    }
    Ok(true)
}

/// The blocks around `page` between `from` and `to` that are there, up to the next hole.
fn there(file: &File<'_>, page: u64, (from, to): (u64, u64)) -> Result<(u64, u64)> {
    let (mut first, mut at) = (from, from);
    while at < page {
        let run = file.map.run(at, page - at)?;
        at += run.blocks;
        if run.is_hole() {
            first = at;
        }
    }
    while at < to {
        let run = file.map.run(at, to - at)?;
        if run.is_hole() {
            break;
        }
        at += run.blocks;
    }
    Ok((first, at))
}

/// The runs of `first..inside` as pieces, and nothing from there to `last`; whoever gets more than
/// `most` has not got all.
fn pieces_of(
    map: Map<'_>,
    (first, inside, last): (u64, u64, u64),
    most: usize,
) -> Result<Vec<Piece>> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut add = |at: u64, blocks: u64, block: Option<u64>| {
        let length = blocks * BLOCK;
        let region_offset = block.map(|block| block * BLOCK);
        if let Some(before) = pieces.last_mut() {
            let goes_on = match (before.region_offset, region_offset) {
                (Some(before_at), Some(at)) => before_at + before.length == at,
                (None, None) => true,
                _ => false,
            };
            if goes_on {
                before.length += length;
                return true;
            }
        }
        pieces.push(Piece { file_offset: at * BLOCK, region_offset, length });
        pieces.len() <= most
    };
    let mut at = first;
    while at < inside {
        let run = map.run(at, inside - at)?;
        if !add(at, run.blocks, run.is_written().then_some(run.block)) {
            return Ok(pieces);
        }
        at += run.blocks;
    }
    if inside < last {
        add(inside, last - inside, None);
    }
    Ok(pieces)
}
