//! The plan of a write: where its bytes go, looked up before its first lock.
//!
//! Loads only, under the inode's sequence number: a plan holds if that has not moved once the lock
//! is held (`try_acquire` of `txn/acquire.rs`). What is looked up there
//! is done while the stores of the call before are still on their way. Nonsense that a race shows
//! is no error: it is looked at again under the lock.
//!
//! A write is *simple* if all its bytes go to blocks that the file has, with at most the commit
//! slot beside them: an append into one run, an overwrite that a record can tell, or one that need
//! not be atomic. How it becomes durable is `write.rs`; all other writes are `general_write.rs`.
//!
//! Locks: none. Persistence: none.

#![expect(clippy::inline_always, reason = "words that are handed on stay in registers")]

use crate::data::Files;
use crate::data::map::Map;
use crate::inode::Run;
use crate::inode::{
    Current, Inode, LIVE_CHECKSUMMED, LIVE_DAMAGED, LIVE_DIRTY, LIVE_PRIVILEGED, LIVE_REDO, Live,
};
use crate::medium::layout::{BLOCK, REDO_BLOCKS, REDO_BYTES, SIZE_MAX};
use crate::txn::acquire::Seen;
use crate::txn::redo::Places;
use crate::{Mode, Result};
use pmem::UserIn;
use rustix::io::Errno;
use std::hint::cold_path;
use std::ops::Range;
use vfs::Node;

/// Of [`Plan::sought`]: the block was looked for.
const SOUGHT: u64 = 1;
/// It is part of a 2 MiB leaf.
const IN_LEAF: u64 = 2;
/// The offset of its word, if it may be replaced.
pub(super) const WORD: u64 = !3;

/// Where a write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Position {
    At(u64),
    /// At the end, wherever it is by then.
    End,
}

/// What a look without a lock told of a write. It holds under the lock if the sequence number,
/// which was looked at first, is the same.
#[derive(Default)]
pub(crate) struct Plan {
    /// It is worth to ask for the lock: the write seems to be simple.
    pub(crate) is_simple: bool,
    pub(crate) sequence: u64,
    pub(crate) current: Current,
    pub(crate) offset: u64,
    /// Where the bytes go, if they go into the run of the writer before, or into one block.
    pub(crate) place: Option<u64>,
    /// What was found if the block was looked for in the map: whether it was, whether it is part
    /// of a 2 MiB leaf, and above these bits the offset of its word, if it may be replaced: one
    /// that lies by itself.
    pub(crate) sought: u64,
    /// The operation record to take.
    pub(crate) record: u32,
}

impl Files {
    /// Makes the plan of a write.
    #[inline(always)]
    pub(crate) fn plan(
        &self,
        node: Node,
        position: Position,
        bytes: &UserIn<'_>,
        plan: &mut Plan,
    ) -> Result<()> {
        let length = bytes.len();
        if length == 0 || bytes.touch() < length {
            cold_path();
            return Ok(());
        }
        self.check_writable()?;
        plan.record = self.own_record();
        let live = self.live_lines(self.inode(node.ino)?)?;
        plan.is_simple = self.look(node, &live, position, length as u64, plan)?;
        Ok(())
    }

    /// The same, once more.
    #[cold]
    pub(crate) fn plan_anew(
        &self,
        node: Node,
        position: Position,
        bytes: &UserIn<'_>,
    ) -> Result<Plan> {
        let mut plan = Plan::default();
        self.plan(node, position, bytes, &mut plan)?;
        Ok(plan)
    }

    /// Looks at a file that is to be written to; `false`: it is not worth to ask for its lock.
    #[inline(always)]
    fn look(
        &self,
        node: Node,
        live: &Live<'_>,
        position: Position,
        length: u64,
        plan: &mut Plan,
    ) -> Result<bool> {
        let Some((current, sequence)) = live.current(self.epoch)? else {
            cold_path();
            return Ok(false);
        };
        let (found, logical, run) = live.run()?;
        let offset = match position {
            Position::At(offset) => offset,
            Position::End => current.size,
        };
        (plan.sequence, plan.current, plan.offset) = (sequence, current, offset);
        let (first, last) = (offset / BLOCK, offset.saturating_add(length).div_ceil(BLOCK));
        // Any words, unless the sequence number is the same under the lock.
        let end = logical.saturating_add(run.blocks);
        let in_run = found == sequence && logical <= first && last <= end;
        // A block that may lie by itself is looked for.
        let whole = run.blocks == 1 && length == BLOCK && self.mode == Mode::Strict;
        let may_move = whole && offset < current.size && !current.is_mapped();
        let in_run = in_run && !may_move;
        if in_run && self.in_pool(run.block, run.blocks) {
            let place = (run.block + (first - logical)) * BLOCK + offset % BLOCK;
            plan.place = Some(place);
            if offset < current.size && self.mode == Mode::Strict {
                // Where the bytes go in the end (see `Files::approach`).
                self.region.prefetch(place);
                self.region.prefetch(place.saturating_add(length - 1));
            }
            return Ok(self.is_simple(&current, offset, length, LIVE_PRIVILEGED));
        }
        cold_path();
        if offset < current.size {
            if last - first == 1 && self.is_simple(&current, offset, length, LIVE_PRIVILEGED) {
                self.seek(node, length, plan);
            }
            return Ok(self.mode != Mode::Strict || self.journals(current.size, offset, length));
        }
        // A new block at the end is rarely there already, unless it is known to be.
        let known = logical <= first && first < end;
        Ok(known || !offset.is_multiple_of(BLOCK))
    }

    /// Looks for the one block that a write goes to. What cannot be found, or is nonsense because
    /// the map changes, is looked for under the lock.
    fn seek(&self, node: Node, length: u64, plan: &mut Plan) {
        let map = Map { files: self, inode: Inode(node.ino), generation: node.generation };
        let Ok(Some(found)) = map.locate(plan.offset / BLOCK) else { return };
        let place = found.block * BLOCK + plan.offset % BLOCK;
        let moves = length == BLOCK && self.mode == Mode::Strict && !plan.current.is_mapped();
        let word = found.lone_word.filter(|_| moves);
        plan.place = Some(place);
        plan.sought = word.unwrap_or(0) | SOUGHT | if found.huge { IN_LEAF } else { 0 };
        if self.mode == Mode::Strict && word.is_none() {
            self.region.prefetch(place);
            self.region.prefetch(place + (length - 1));
        }
    }

    /// Whether a lane holds the new bytes of a write below the end.
    #[inline]
    fn journals(&self, size: u64, offset: u64, length: u64) -> bool {
        length <= self.data_area_bytes.max(REDO_BYTES as u64)
            && offset.saturating_add(length) <= size
    }

    /// Whether a write is simple, if its blocks are there. `unless`: flags with which it is not.
    #[inline(always)]
    fn is_simple(&self, current: &Current, offset: u64, length: u64, unless: u64) -> bool {
        let &Current { size, flags, .. } = current;
        let (below, end) = (offset < size, offset.saturating_add(length));
        offset <= size
            && end <= SIZE_MAX
            && flags & (LIVE_DAMAGED | unless) == 0
            && (!current.is_mapped() || end <= size)
            && if below && self.mode == Mode::Strict {
                self.journals(size, offset, length)
            } else {
                !below || flags & (LIVE_CHECKSUMMED | LIVE_REDO) == 0
            }
            && !(end > size && self.mode != Mode::Posix && flags & LIVE_DIRTY != 0)
    }

    /// Where the bytes go, looked for under the lock, and the word of the block that they may
    /// replace (or 0); `None`: it is no simple write. `unless` as of
    /// a plan's: [`LIVE_PRIVILEGED`], or nothing where set-id bits have been seen to.
    #[cold]
    pub(super) fn places(
        &self,
        seen: Seen<'_>,
        current: &Current,
        generation: u32,
        (offset, length): (u64, u64),
        unless: u64,
    ) -> Result<Option<(Places, u64)>> {
        let (size, end) = (current.size, offset.saturating_add(length));
        if !self.is_simple(current, offset, length, unless) {
            return Ok(None);
        }
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        let map = Map { files: self, inode: seen.inode, generation };
        let is_strict = self.mode == Mode::Strict;
        let moves = offset < size && length == BLOCK && last - first == 1 && is_strict;
        if moves && !current.is_mapped() {
            let Some(found) = map.locate(first)? else { return Ok(None) };
            let places = Places::one(found.block * BLOCK);
            return Ok(Some((places, found.lone_word.unwrap_or(0))));
        }
        let (logical, run) = known_run(&map, seen, first, last)?;
        if !run.is_written() {
            return Ok(None);
        }
        let places = Places::one((run.block + (first - logical)) * BLOCK + offset % BLOCK);
        if last <= logical + run.blocks {
            return Ok(Some((places, 0)));
        }
        if end > size || length <= REDO_BYTES as u64 || last - first > REDO_BLOCKS as u64 + 1 {
            return Ok(None);
        }
        Ok(scattered(&map, places, first + 1..last)?.map(|places| (places, 0)))
    }
}

/// Notes where a block was found, for the next writer; not of one that is about to be replaced.
#[cold]
pub(super) fn note_run(live: Live<'_>, offset: u64, place: u64, sought: u64) -> Result<()> {
    if sought & WORD != 0 {
        return Ok(());
    }
    let huge = sought & IN_LEAF != 0;
    let run = Run { block: place / BLOCK, blocks: 1, unwritten: false, huge };
    live.set_run(offset / BLOCK, run)
}

/// Adds the places of further blocks; `None`: one is not written, or further off than a record can
/// say.
fn scattered(map: &Map<'_>, mut places: Places, blocks: Range<u64>) -> Result<Option<Places>> {
    for (place, logical) in places.blocks.iter_mut().zip(blocks) {
        let run = map.run(logical, 1)?;
        match u32::try_from(run.block) {
            Ok(block) if run.is_written() => *place = block,
            _ => return Ok(None),
        }
    }
    Ok(Some(places))
}

/// The run in which these blocks lie, and its first block: as the writer before found it, if the
/// inode has not changed since.
fn known_run(map: &Map<'_>, seen: Seen<'_>, first: u64, last: u64) -> Result<(u64, Run)> {
    let (sequence, logical, run) = seen.live.run()?;
    let end = logical.saturating_add(run.blocks);
    if sequence == seen.sequence && logical <= first && last <= end {
        if map.files.in_pool(run.block, run.blocks) {
            return Ok((logical, run));
        }
        return Err(Errno::IO);
    }
    let run = map.run(first, last - first)?;
    if run.is_written() {
        seen.live.set_run(first, run)?;
    }
    Ok((first, run))
}
