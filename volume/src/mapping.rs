//! `mmap`: where the bytes of a file lie in the region.
//!
//! A process that maps the pieces stores into the blocks without a call, so from the first mapping
//! to the last close no block of the file moves or is freed (`LIVE_MAPPED`): writes go in place,
//! truncation and punching zero instead.
//!
//! What is stored through a mapping lies in caches until it is flushed: a sync does that for the lines of
//! a file that was mapped for writing (`LIVE_STORED`), and so does its last close, before blocks move
//! again.
//!
//! Persistence order for filled holes: zeros; fence; words, in any order (each replaces zeros by
//! zeros); fence. Locks: the inode's.

use crate::Result;
use crate::edit::{Change, Changes, Target};
use crate::file::File;
use crate::file_write::{Care, Writer};
use crate::inject::{Bug, injected};
use crate::inode::{LIVE_DIRTY, LIVE_MAPPED, LIVE_STORED};
use crate::layout::{BLOCK, CHUNK_BLOCKS};
use crate::op::Op;
use crate::volume::Volume;
use rustix::io::Errno;
use vfs::{Mapped, Node, Piece};

/// Pieces of one mapping at most: each becomes a mapping of the process, of which the kernel allows
/// 65,530.
const PIECES_MAX: usize = 4096;

impl Volume {
    /// The pieces of `[offset, offset + length)` (multiples of 4096) as the contract says. Blocks
    /// wholly beyond the end have none. `ENOMEM` if there are too many pieces, `ENOSPC`, `EINVAL`.
    pub(crate) fn map_pieces(
        &self,
        node: Node,
        offset: u64,
        length: u64,
        mapped: Mapped,
    ) -> Result<Vec<Piece>> {
        let end = offset.checked_add(length).ok_or(Errno::OVERFLOW)?;
        if !offset.is_multiple_of(BLOCK) || !length.is_multiple_of(BLOCK) || length == 0 {
            return Err(Errno::INVAL);
        }
        self.rewrite_by_the_way(node);
        let mut op = self.begin()?;
        let file = op.work_on(node)?;
        op.settle_tail(&file)?;
        let (first, last) = (offset / BLOCK, end / BLOCK);
        let inside = last.min(file.end_block()).max(first);
        if mapped != Mapped::Private {
            op.fill_for_mapping(&file, first, inside)?;
        }
        // A mapping shows the rest of the last block: zeros, as mmap promises.
        op.zero_written(file.map, file.current.size, file.end_block() * BLOCK)?;
        let _ = op.fence();
        let pieces = pieces_of(&file, first, inside, last)?;
        let mut current = self.current(file.inode)?;
        current.flags |= LIVE_MAPPED;
        if mapped == Mapped::Write {
            current.flags |= LIVE_STORED;
        }
        self.set_current(file.inode, &current)?;
        op.end()?;
        Ok(pieces)
    }
}

impl<'v> Op<'v> {
    /// Flushes the lines of `[from, to)` of a file, whoever stored to them through a mapping. Pended.
    pub(crate) fn flush_stores(&mut self, file: &File<'v>, from: u64, to: u64) -> Result<()> {
        let (mut at, end) = (from / BLOCK, to.min(file.current.size).div_ceil(BLOCK));
        if injected(Bug::StoresNotFlushed) {
            return Ok(());
        }
        while at < end {
            let run = file.map.run(at, end - at)?;
            if run.is_written() {
                self.pend(self.volume.region.flush(run.block * BLOCK, run.blocks * BLOCK));
            }
            at += run.blocks;
        }
        Ok(())
    }

    /// Gives every block between `first` and `last` written bytes.
    fn fill_for_mapping(&mut self, file: &File<'v>, first: u64, last: u64) -> Result<()> {
        let mut changes = Changes::new();
        let mut at = first;
        while at < last {
            let run = file.map.run(at, last - at)?;
            let mut next = at + run.blocks;
            if run.is_hole() {
                let mut writer = Writer::new(self, *file, Care::KeepHuge);
                for (logical, block, blocks) in writer.allocate(at, next, None)? {
                    let zeroed = self.volume.region.stream_zero(block * BLOCK, blocks * BLOCK)?;
                    self.pend(zeroed);
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
                let zeroed = self.volume.region.stream_zero(block * BLOCK, blocks * BLOCK)?;
                self.pend(zeroed);
                let to = Target::Mark { unwritten: false };
                changes.push(Change { logical, blocks, to, frees: true });
            }
            at = next;
        }
        let words = self.plan_loose(file.map, &changes)?;
        // PERSIST: the zeros before the words that lead to them.
        let _ = self.fence();
        self.keep_allocated();
        self.store_loose(&words)?;
        let _ = self.fence();
        let clean = file.current.flags & LIVE_DIRTY == 0;
        self.volume.publish_current(file, file.current, clean, words.delta)
    }
}

/// The runs of `first..last` as pieces, and nothing from `inside` on.
fn pieces_of(file: &File<'_>, first: u64, inside: u64, last: u64) -> Result<Vec<Piece>> {
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
                return Ok(());
            }
        }
        if pieces.len() == PIECES_MAX {
            return Err(Errno::NOMEM);
        }
        pieces.push(Piece { file_offset: at * BLOCK, region_offset, length });
        Ok(())
    };
    let mut at = first;
    while at < inside {
        let run = file.map.run(at, inside - at)?;
        add(at, run.blocks, run.is_written().then_some(run.block))?;
        at += run.blocks;
    }
    if inside < last {
        add(inside, last - inside, None)?;
    }
    Ok(pieces)
}
