//! Brief writes: the bytes of one buffer into one run of blocks that an open file already has, or
//! over a few of its blocks, wherever they lie. What `in_place.rs` does, by the protocol of
//! `op.rs`, in as few steps as that allows: most calls of a log, a database or a growing file.
//!
//! Whatever is not that simple (somebody else holds the lock or the record, the gate is closed, the
//! file is mapped, damaged, or not used in this epoch) is left to the long way, with nothing done.
//!
//! The protocol: the record is claimed; the lock is named in it, by a read-modify-write, before the
//! description is found to be open, which is looked at once more under the lock: on that second
//! look the rest stands, since what an open description stands for stays an inode. The record says
//! *working* before the lock is taken, whose read-modify-write orders that before the look at the
//! gate. Between lock and release the sequence number is odd. A death is recovered as any other
//! operation's.
//!
//! Persistence order, as in `in_place.rs`: bytes; fence; the commit slot if the durable size grows;
//! fence. A short append stores both before one fence (`summed.rs`). Where the bytes of a strict
//! call are promised to change at once, they go to the record's lane first: new bytes; fence; the
//! same in place; fence (`redo.rs`). A whole block that lies by itself is replaced
//! (`brief/replace.rs`). What a call can do besides it does between its stores and their fence,
//! while they are on their way.
//!
//! What was stored word by word is loaded word by word, and nothing of several words is passed by
//! value: a load that spans younger stores waits until all stores before it have left the CPU,
//! streamed ones too.
//!
//! Locks: the inode's, and none is waited for.

#![expect(clippy::inline_always, reason = "words that are handed on stay in registers")]

use crate::data::file_write::Position;
use crate::data::map::{Map, Run};
use crate::ground::layout::{
    BLOCK, COMMIT, COMMIT_SUMMED, COMMIT_WRITTEN, Commit, HEADER_GATE, Identity, LINE, REDO_BLOCKS,
    REDO_BYTES, SIZE_MAX, SUMMED_MAX, SUMMED_SHIFT,
};
use crate::ground::runtime::Owner;
use crate::inject::{Bug, injected};
use crate::inode::{
    Current, Inode, LIVE_DAMAGED, LIVE_DIRTY, LIVE_MAPPED, LIVE_PRIVILEGED, LIVE_REDO, LIVE_SUMMED,
    LIVE_WRITTEN, Live,
};
use crate::open::description::Opened;
use crate::txn::op::Record;
use crate::txn::redo::{LIVE_RECORD, NewBytes, Places, needs_slot, recorded};
use crate::volume::{Volume, now};
use crate::{Mode, Result, ground::lockword};
use pmem::{Gathered, InFlight, Region, UserIn};
use rustix::io::Errno;
use std::hint::cold_path;
use std::ops::Range;
use std::sync::atomic::Ordering;
use vfs::{Desc, Node};

mod replace;

use replace::WORD;

/// Longest write that is brief: its lock is not waited for long.
const LONGEST: usize = 64 << 10;

/// Bytes of an overwrite up to which a private copy is stored.
const FEW: usize = 256;

/// The right to change one inode: its lock is held, its sequence number odd.
///
/// Its methods are inlined, or take a copy: so its words stay in registers. What a call stores, on
/// its stack too, waits in the CPU behind the fence of the call before, and there is room for about
/// a hundred.
#[derive(Clone, Copy)]
struct Brief<'v> {
    volume: &'v Volume,
    owner: Owner,
    record: Record<'v>,
    inode: Inode,
    live: Live<'v>,
    /// The sequence number before.
    sequence: u64,
    current: Current,
    /// The record names the commit line, or is about to.
    noted: bool,
    /// A block has changed: no run that was known is.
    replaced: bool,
}

/// A write on its way.
#[derive(Clone, Copy)]
struct Write<'s, 'b> {
    from: &'s UserIn<'b>,
    offset: u64,
    /// Where it goes in the region.
    places: Places,
    /// Offset of the word of the block that it replaces, if it may: one that lies by itself. Or 0.
    word: u64,
    generation: u32,
}

/// What a look without a lock told of a write. It holds under the lock if the sequence number,
/// which was looked at first, is the same.
#[derive(Default)]
pub(crate) struct Plan {
    sequence: u64,
    current: Current,
    offset: u64,
    /// Where the bytes go, if they go into the run of the writer before, or into one block.
    place: Option<u64>,
    /// What was found if the block was looked for in the map: [`SOUGHT`], [`IN_LEAF`] if it is part
    /// of a 2 MiB leaf, and above them the word as in [`Write`].
    sought: u64,
    /// The operation record to take.
    record: u32,
}

impl Volume {
    /// Writes one buffer, all of it, through an open description, if that is a brief matter: gives
    /// the offset behind it. `None`: nothing has been done.
    #[inline]
    pub(crate) fn write_briefly(
        &self,
        desc: Desc,
        opened: &Opened,
        position: Position,
        from: &UserIn<'_>,
    ) -> Result<Option<u64>> {
        let mut plan = Plan::default();
        if self.plan(opened.node, position, from, &mut plan)? {
            self.write_planned(desc, opened, position, from, &plan)
        } else {
            Ok(None)
        }
    }

    /// Makes the plan of a write, before its first lock: what stands there is done while the stores
    /// of the call before are still on their way. `false`: it is not brief.
    #[inline(always)]
    pub(crate) fn plan(
        &self,
        node: Node,
        position: Position,
        from: &UserIn<'_>,
        plan: &mut Plan,
    ) -> Result<bool> {
        let length = from.len();
        if length == 0 || length > LONGEST || from.touch() < length {
            cold_path();
            return Ok(false);
        }
        self.check_writable()?;
        plan.record = self.own_record();
        self.look(node, &self.live_lines(self.inode(node.ino)?)?, position, length as u64, plan)
    }

    /// The same, once more.
    #[cold]
    pub(crate) fn plan_anew(
        &self,
        node: Node,
        position: Position,
        from: &UserIn<'_>,
    ) -> Result<(bool, Plan)> {
        let mut plan = Plan::default();
        Ok((self.plan(node, position, from, &mut plan)?, plan))
    }

    /// As [`Volume::write_briefly`], as planned, for this position.
    #[inline(always)]
    pub(crate) fn write_planned(
        &self,
        desc: Desc,
        opened: &Opened,
        position: Position,
        from: &UserIn<'_>,
        plan: &Plan,
    ) -> Result<Option<u64>> {
        let (node, length) = (opened.node, from.len());
        let &Plan { sequence, current, mut offset, place, sought, record: index } = plan;
        let inode = Inode(node.ino);
        let (live, record) = (self.live_lines(inode)?, Record::new(self, index)?);
        let Some(owner) = self.try_claim(&record, index)? else {
            cold_path();
            return Ok(None);
        };
        let (volume, noted, replaced) = (self, false, false);
        let mut brief =
            Brief { volume, owner, record, inode, live, sequence, current, noted, replaced };
        if !brief.begin(desc, opened.state)? {
            return Ok(None);
        }
        let known = place.filter(|_| brief.sequence == sequence);
        let places = if let Some(place) = known {
            let noted = if sought == 0 { Ok(()) } else { brief.note_run(offset, place, sought) };
            noted.map(|()| Some(Places::one(place)))
        } else {
            if matches!(position, Position::End) {
                offset = brief.current.size;
            }
            brief.places(node, offset, length as u64)
        };
        let result = match places {
            Ok(Some(places)) => {
                let word = if known.is_some() { sought & WORD } else { 0 };
                let write = Write { from, offset, places, word, generation: node.generation };
                let written = brief.write(&write);
                written.map(|written| written.then_some(offset + length as u64))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        brief.end()?;
        result
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
        let in_run = in_run && !(whole && offset < current.size);
        if in_run && self.in_pool(run.block, run.blocks) {
            let place = (run.block + (first - logical)) * BLOCK + offset % BLOCK;
            plan.place = Some(place);
            if offset < current.size && self.mode == Mode::Strict {
                // Where the bytes go in the end (see `approach`).
                self.region.prefetch(place);
                self.region.prefetch(place.saturating_add(length - 1));
            }
            return Ok(self.is_simple(&current, offset, length));
        }
        cold_path();
        if offset < current.size {
            if last - first == 1 && self.is_simple(&current, offset, length) {
                self.seek(node, length, plan);
            }
            return Ok(self.mode != Mode::Strict || self.journals(current.size, offset, length));
        }
        // A new block at the end is rarely there already, unless it is known to be.
        let known = logical <= first && first < end;
        Ok(known || !offset.is_multiple_of(BLOCK))
    }

    /// Whether a lane holds the new bytes of a write below the end.
    #[inline]
    fn journals(&self, size: u64, offset: u64, length: u64) -> bool {
        length <= self.annex.max(REDO_BYTES as u64) && offset.saturating_add(length) <= size
    }

    /// Whether a write of blocks that are there is a brief matter.
    #[inline(always)]
    fn is_simple(&self, current: &Current, offset: u64, length: u64) -> bool {
        let &Current { size, flags, .. } = current;
        let (below, end) = (offset < size, offset.saturating_add(length));
        offset <= size
            && end <= SIZE_MAX
            && flags & (LIVE_DAMAGED | LIVE_MAPPED | LIVE_PRIVILEGED) == 0
            && if below && self.mode == Mode::Strict {
                self.journals(size, offset, length)
            } else {
                !below || flags & (LIVE_SUMMED | LIVE_REDO) == 0
            }
            && !(end > size && self.mode != Mode::Posix && flags & LIVE_DIRTY != 0)
    }
}

/// Stores bytes into several blocks: in flight.
#[cold]
fn stream_scattered<'r>(region: &'r Region, write: Write<'_, '_>) -> Result<Gathered<'r>> {
    let mut stored = Gathered::default();
    write.places.each(write.from.len(), |place, at, length| {
        region.stream_from(place, &write.from.slice(at, length)).map(|part| stored.add(part))
    })?;
    Ok(stored)
}

impl<'v> Brief<'v> {
    /// Takes the inode's lock, with a claimed record. `false`: it is not to be had at once, and the
    /// record is free again.
    #[inline(always)]
    fn begin(&mut self, desc: Desc, open: u64) -> Result<bool> {
        let mut held = false;
        match self.take_lock(desc, open, &mut held) {
            Ok(true) => Ok(true),
            refused => {
                let given = self.step_back(held);
                refused.and(given).map(|()| false)
            }
        }
    }

    /// The same; `false`, or an error: the caller gives everything back, the lock too if it is
    /// `held`.
    #[inline(always)]
    fn take_lock(&mut self, desc: Desc, open: u64, held: &mut bool) -> Result<bool> {
        let volume = self.volume;
        self.record.announce(self.inode)?;
        // An open description keeps its inode from being freed. Whoever closes it from here on
        // frees an inode that is announced, and what is announced stays one.
        if volume.state_word(desc)? == open {
            // PERSIST: nothing yet. The lock's compare-and-swap orders this store before the load
            // of the gate.
            self.record.set_working(true)?;
            let free = u64::from(volume.epoch) << 32;
            *held = self.live.swap_lock(free, self.owner.word(volume.epoch))?;
            if *held && self.may_go_on(desc, open)? {
                self.live.set_sequence(self.sequence + 1)?;
                if !volume.local.worked.load(Ordering::Relaxed) {
                    volume.local.worked.store(true, Ordering::Relaxed);
                }
                return Ok(true);
            }
        }
        cold_path();
        Ok(false)
    }

    /// Under the lock: whether the gate is open, nothing was found damaged, and the inode is still
    /// what the description stands for. (It may have been freed, and made anew, before the lock was
    /// taken; not after.)
    #[inline(always)]
    fn may_go_on(&mut self, desc: Desc, open: u64) -> Result<bool> {
        let volume = self.volume;
        let gate = Owner::of_word(volume.rt.load(HEADER_GATE)?, volume.epoch);
        // Who waits between the plan and the lock may have buried somebody, and have found damage.
        if gate.is_some() || volume.state_word(desc)? != open || volume.damaged()? {
            cold_path();
            return Ok(false);
        }
        if self.live.sequence()? != self.sequence {
            cold_path();
            let Some((current, sequence)) = self.live.current(volume.epoch)? else {
                return Ok(false);
            };
            (self.current, self.sequence) = (current, sequence);
        }
        Ok(true)
    }

    /// Gives the record back, and the lock if it is `held`, with nothing done: all that can be
    /// given back, whatever of it fails.
    #[cold]
    fn step_back(self, held: bool) -> Result<()> {
        let Self { volume, record, inode, .. } = self;
        let mut given = Ok(());
        if held {
            let (map, lock) = (volume.volatile_map(), inode.lock_offset());
            given = lockword::release(volume, map, lock, self.owner);
        }
        given
            .and(record.set_working(false))
            .and(record.withdraw())
            .and(volume.retry_extent(inode))
            .and(record.free())
    }

    /// Where the bytes go; `None` if this needs the long way.
    #[cold]
    fn places(self, node: Node, offset: u64, length: u64) -> Result<Option<Places>> {
        let (size, end) = (self.current.size, offset.saturating_add(length));
        if !self.volume.is_simple(&self.current, offset, length) {
            return Ok(None);
        }
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        let (logical, run) = self.run(node.generation, first, last)?;
        if !run.is_written() {
            return Ok(None);
        }
        let places = Places::one((run.block + (first - logical)) * BLOCK + offset % BLOCK);
        if last <= logical + run.blocks {
            return Ok(Some(places));
        }
        if end > size || length <= REDO_BYTES as u64 || last - first > REDO_BLOCKS as u64 + 1 {
            return Ok(None);
        }
        self.scattered(node.generation, places, first + 1..last)
    }

    /// Adds the places of further blocks; `None`: one is not written, or further off than a record
    /// can say.
    fn scattered(
        &self,
        generation: u32,
        mut places: Places,
        blocks: Range<u64>,
    ) -> Result<Option<Places>> {
        let identity = Identity { generation, ..Identity::default() };
        let map = Map::new(self.volume, self.inode, &identity);
        for (place, logical) in places.blocks.iter_mut().zip(blocks) {
            let run = map.run(logical, 1)?;
            match u32::try_from(run.block) {
                Ok(block) if run.is_written() => *place = block,
                _ => return Ok(None),
            }
        }
        Ok(Some(places))
    }

    /// The run in which these blocks lie, and its first block: as the writer before found it, if
    /// the inode has not changed since.
    fn run(&self, generation: u32, first: u64, last: u64) -> Result<(u64, Run)> {
        let (sequence, logical, run) = self.live.run()?;
        let end = logical.saturating_add(run.blocks);
        if sequence == self.sequence && logical <= first && last <= end {
            if self.volume.in_pool(run.block, run.blocks) {
                return Ok((logical, run));
            }
            return Err(Errno::IO);
        }
        let identity = Identity { generation, ..Identity::default() };
        let map = Map::new(self.volume, self.inode, &identity);
        let run = map.run(first, last - first)?;
        if run.is_written() {
            self.live.set_run(first, run)?;
        }
        Ok((first, run))
    }

    /// `false`: nothing has been done, and the long way may do it.
    #[inline(always)]
    fn write(&mut self, write: &Write<'_, '_>) -> Result<bool> {
        let (volume, size) = (self.volume, self.current.size);
        let end = write.offset + write.from.len() as u64;
        let flags = self.current.flags;
        let commits = end > size && volume.commits_at_once(self.inode, self.sequence, flags);
        if commits && end - write.offset <= SUMMED_MAX && write.offset == size {
            self.noted = true;
            return self.append_summed(*write).map(|()| true);
        }
        if write.offset < size && volume.mode == Mode::Strict {
            self.noted = needs_slot(self.current.flags, u64::from(self.owner.op()));
            let word = write.word;
            if word != 0
                && let Some(spare) = self.record.take_block(volume, write.places.at / BLOCK)?
            {
                return self.replace(write, word, spare).map(|()| true);
            }
            return self.overwrite(*write);
        }
        let stored = self.stream(write);
        self.move_on(end);
        // PERSIST: the bytes before the size that reaches them, before the sequence number too.
        // (Also where only a part was stored, and none counts.)
        let bug = if commits { Bug::SizeBeforeData } else { Bug::DataNotFenced };
        match stored {
            Ok(stored) if !injected(bug) => {
                let _ = stored.fence();
            }
            Ok(_) => {}
            Err(errno) => {
                let _ = volume.region.fence();
                return Err(errno);
            }
        }
        if commits {
            self.noted = true;
            let _ = self.store_slot(write.generation, None)?.fence();
            self.current.flags &= !(LIVE_DIRTY | LIVE_SUMMED | LIVE_RECORD);
            self.live.set_current(&self.current)?;
        } else {
            self.settle(write.generation)?;
        }
        Ok(true)
    }

    /// Stores the bytes where they go: in flight.
    #[inline(always)]
    fn stream(&self, write: &Write<'_, '_>) -> Result<Gathered<'v>> {
        let (region, places) = (&self.volume.region, &write.places);
        if places.blocks[0] == 0 {
            return Ok(region.stream_from(places.at, write.from)?.into());
        }
        stream_scattered(region, *write)
    }

    /// From now on the file ends at `end`, or where it ended if that is more, and was written just
    /// now; nobody sees that yet.
    #[inline(always)]
    fn move_on(&mut self, end: u64) {
        let (current, time) = (&mut self.current, now());
        current.size = end.max(current.size);
        (current.mtime, current.ctime) = (time, time);
        current.flags |= LIVE_WRITTEN;
    }

    /// Makes current what the commit line does not say.
    #[inline(always)]
    fn settle(&mut self, generation: u32) -> Result<()> {
        if self.current.flags & (LIVE_DIRTY | LIVE_SUMMED) != LIVE_DIRTY {
            let flags = self.current.flags;
            self.current.flags = self.volume.dirty_flags(self.inode, generation, flags)?;
        }
        self.live.set_current(&self.current)
    }

    /// Changes visible bytes at once, or not at all. `false`: memory that they lie in cannot be
    /// had.
    fn overwrite(self, write: Write<'_, '_>) -> Result<bool> {
        let length = write.from.len();
        if length > FEW {
            return self.overwrite_by(&write, NewBytes::Callers(write.from));
        }
        let mut few = [0; FEW];
        write.from.read(&mut few[..length])?;
        self.overwrite_by(&write, NewBytes::Own(&few[..length]))
    }

    #[inline]
    fn overwrite_by(mut self, write: &Write<'_, '_>, from: NewBytes<'_>) -> Result<bool> {
        let (volume, lane) = (self.volume, u64::from(self.owner.op()));
        let (places, generation) = (&write.places, write.generation);
        volume.approach(places, write.from.len());
        let slot = self.store_slot_beside(generation)?;
        let which = (self.inode, generation, self.live);
        let saved = volume.store_redo(&self.record, lane, which, places, from);
        // A page that is lost shows while they go.
        let reachable = volume.look_at(places, write.from.len()).is_ok();
        let sum = match saved {
            Ok((stored, sum)) => {
                // PERSIST: the record and its bytes before the first change in place.
                if !injected(Bug::ChangeBeforeRedo) {
                    let _ = stored.and_any(slot).fence();
                }
                if !reachable {
                    volume.void_redo(lane)?;
                    return Ok(false);
                }
                sum
            }
            Err(errno) => {
                let _ = volume.region.fence();
                volume.void_redo(lane)?;
                return Err(errno);
            }
        };
        self.record.forget_word()?;
        // From here on the record counts, whatever becomes of the stores.
        let flags = recorded(self.current.flags, lane);
        if flags != self.current.flags {
            self.current.flags = flags;
            self.live.set_current(&self.current)?;
        }
        let stored = match from {
            NewBytes::Own(few) => {
                let mut stored = Gathered::default();
                places.each(few.len(), |place, at, length| {
                    let part = volume.region.stream(place, &few[at..at + length]);
                    part.map(|part| stored.add(part))
                })?;
                stored
            }
            NewBytes::Callers(from) => self.store_again(places, from, sum)?,
        };
        self.move_on(0);
        if !injected(Bug::DataNotFenced) {
            // PERSIST: whoever changes the bytes next needs the record no more.
            let _ = stored.fence();
        }
        self.settle(generation)?;
        Ok(true)
    }

    /// Stores the caller's bytes in place, whose record has this sum: in flight.
    #[inline(always)]
    fn store_again(self, places: &Places, from: &UserIn<'_>, sum: u32) -> Result<Gathered<'v>> {
        let region = &self.volume.region;
        let (mut again, mut stored) = (0, Gathered::default());
        let all = places.each(from.len(), |place, at, length| {
            let part = region.stream_summed_on(place, &from.slice(at, length), again);
            part.map(|(part, sum)| {
                stored.add(part);
                again = sum;
            })
        });
        if all.is_err() || again != sum {
            cold_path();
            // The caller's memory has changed, or has vanished: what the record says counts.
            let _ = region.fence();
            return self.volume.store_newest(&self.record, u64::from(self.owner.op()));
        }
        Ok(stored)
    }

    /// Stores the slot that a record needs beside it, if it does: in flight.
    #[inline(always)]
    fn store_slot_beside(&mut self, generation: u32) -> Result<Option<InFlight<'v>>> {
        if !self.noted {
            return Ok(None);
        }
        self.note()?;
        // CRASH: the slot changes nothing that is told; the record counts beside it only.
        let stored = self.volume.store_current(self.inode, generation, &mut self.current)?;
        self.live.set_current(&self.current)?;
        Ok(Some(stored))
    }

    /// Stores a short append and a commit slot with the sum of its bytes, by one fence.
    fn append_summed(mut self, write: Write<'_, '_>) -> Result<()> {
        // PERSIST: bytes and slot in any order, by one fence.
        // CRASH: without the slot the old size stands; a slot whose bytes are not all there is
        // void.
        let stored = self.volume.region.stream_summed(write.places.at, write.from);
        let length = write.from.len();
        self.move_on(write.offset + length as u64);
        match stored {
            Ok((stored, sum)) => {
                let slot = self.store_slot(write.generation, Some((length, sum)))?;
                let _ = stored.and(slot).fence();
            }
            Err(fault) => {
                let _ = self.volume.region.fence();
                return Err(fault.into());
            }
        }
        self.current.flags = self.current.flags & !(LIVE_DIRTY | LIVE_RECORD) | LIVE_SUMMED;
        self.live.set_current(&self.current)
    }

    /// Names the commit line in the operation's record.
    fn note(self) -> Result<()> {
        debug_assert!(self.noted);
        self.record.note(self.inode.at(COMMIT) / LINE * LINE)
    }

    /// Stores the next commit slot, that of a short append with length and sum of its bytes: in
    /// flight.
    #[inline]
    fn store_slot(self, generation: u32, tail: Option<(usize, u32)>) -> Result<InFlight<'v>> {
        let Current { size, mtime, .. } = self.current;
        let mut commit = Commit { size, mtime, flags: COMMIT_WRITTEN, ..Commit::default() };
        if let Some((length, sum)) = tail {
            commit.flags |= COMMIT_SUMMED | (length as u32) << SUMMED_SHIFT;
            commit.aux = sum;
        }
        self.note()?;
        self.volume.store_slot(self.inode, generation, commit)
    }

    /// Gives everything back. What was stored is durable.
    #[inline(always)]
    fn end(self) -> Result<()> {
        let Self { volume, owner, record, inode, live, sequence, noted, replaced, .. } = self;
        live.set_sequence(sequence + 2)?;
        if !replaced {
            live.keep_run(sequence, sequence + 2)?;
        }
        live.unlock(volume, owner)?;
        record.give_back(inode, noted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{file, fresh, root};
    use std::sync::Arc;
    use vfs::{FileSystem, OpenFlags, UserOut};

    const NEW: &[u8] = b"new";

    /// A volume with a file of one block that its writers know where it lies, and what has it open.
    fn start() -> (Arc<Volume>, Node, Desc, Opened) {
        let (volume, root) = fresh();
        let node = volume.create(root, b"a", &file()).unwrap();
        let desc = volume.open_node(node, OpenFlags(libc::O_RDWR)).unwrap();
        for length in [4000, 48, 48] {
            volume.write(desc, &[UserIn::new(&[1; 48].repeat(length / 48 + 1)[..length])]).unwrap();
        }
        let opened = volume.opened(desc).unwrap();
        (volume, node, desc, opened)
    }

    fn planned(volume: &Volume, node: Node) -> Plan {
        let mut plan = Plan::default();
        assert!(volume.plan(node, Position::At(0), &UserIn::new(NEW), &mut plan).unwrap());
        assert!(plan.place.is_some());
        plan
    }

    fn block(volume: &Volume, node: Node) -> u64 {
        let (inode, identity) = volume.identity_of(node).unwrap();
        Map::new(volume, inode, &identity).run(0, 1).unwrap().block
    }

    /// The operation record is free, and so is the lock: gives the sequence number.
    fn at_rest(volume: &Volume, node: Node, plan: &Plan) -> u64 {
        assert_eq!(volume.operation_owner(plan.record), Ok(None));
        let inode = Inode(node.ino);
        let lock = volume.volatile_map().shared_load(inode.lock_offset()).unwrap();
        assert_eq!(Owner::of_word(lock, volume.epoch), None);
        volume.live_lines(inode).unwrap().sequence().unwrap()
    }

    #[test]
    fn a_plan_whose_block_is_anothers_by_now_is_refused() {
        let (volume, a, desc, opened) = start();
        let plan = planned(&volume, a);
        volume.truncate_file(a, 0).unwrap();
        let taken = (0..4096).find_map(|number| {
            let name = format!("b{number}");
            let b = volume.create(root(&volume), name.as_bytes(), &file()).unwrap();
            volume.write_file(b, Position::At(0), &[UserIn::new(&[2; 4096])]).unwrap();
            (Some(block(&volume, b) * BLOCK) == plan.place).then_some(b)
        });
        let b = taken.expect("a file that takes the block");
        let (at, from) = (Position::At(0), UserIn::new(NEW));
        assert_eq!(volume.write_planned(desc, &opened, at, &from, &plan), Ok(None));
        at_rest(&volume, a, &plan);
        let mut bytes = [0; 4096];
        assert_eq!(volume.read_file(b, 0, &mut [UserOut::new(&mut bytes)]), Ok(4096));
        assert_eq!(bytes, [2; 4096]);
        assert_eq!(volume.attributes(a).unwrap().size, 0);
    }

    #[test]
    fn a_plan_for_a_description_that_is_closed_is_refused() {
        let (volume, a, desc, opened) = start();
        let b = volume.create(root(&volume), b"b", &file()).unwrap();
        let plan = planned(&volume, a);
        volume.close_description(desc).unwrap();
        let other = volume.open_node(b, OpenFlags(libc::O_RDWR)).unwrap();
        assert_eq!(other.index, desc.index);
        let before = at_rest(&volume, a, &plan);
        let (at, from) = (Position::At(0), UserIn::new(NEW));
        assert_eq!(volume.write_planned(desc, &opened, at, &from, &plan), Ok(None));
        assert_eq!(at_rest(&volume, a, &plan), before);
    }

    #[test]
    fn a_plan_from_before_damage_was_found_is_refused() {
        let (volume, a, desc, opened) = start();
        let plan = planned(&volume, a);
        let before = at_rest(&volume, a, &plan);
        volume.mark_damaged().unwrap();
        let (at, from) = (Position::At(0), UserIn::new(NEW));
        assert_eq!(volume.write_planned(desc, &opened, at, &from, &plan), Ok(None));
        assert_eq!(at_rest(&volume, a, &plan), before);
        assert_eq!(volume.write(desc, &[from]), Err(Errno::ROFS));
    }

    #[test]
    fn a_noted_run_that_is_nonsense_is_no_place() {
        for [logical, first, blocks] in [[0, u64::MAX, 1], [0, 1, u64::MAX >> 1], [u64::MAX, 0, 9]]
        {
            let (volume, a, ..) = start();
            let live = volume.live_lines(Inode(a.ino)).unwrap();
            let sequence = live.sequence().unwrap();
            let run = Run { block: first, blocks, unwritten: false, huge: false };
            live.set_run(logical, run).unwrap();
            live.keep_run(sequence + 2, sequence).unwrap();
            assert_eq!(live.run().unwrap().0, sequence);
            let mut plan = Plan::default();
            volume.plan(a, Position::At(0), &UserIn::new(NEW), &mut plan).unwrap();
            assert_eq!(plan.place, Some(block(&volume, a) * BLOCK), "by the map");
        }
    }
}
