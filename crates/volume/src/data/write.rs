//! Simple writes (`plan.rs`): how their bytes become durable, once the lock is held, however it was
//! had and however many buffers they come from.
//!
//! | bytes | way | fences |
//! |---|---|---|
//! | up to 4 KiB from the end on, not lazy | slot with their sum (`torn_append.rs`) | 1 |
//! | from the end on | bytes; fence; the slot, if not lazy; fence | 2, 1 |
//! | below the end, sync or posix | in place; fence | 1 |
//! | below the end, strict | to the lane; fence; in place; fence (`redo.rs`) | 2 |
//! | the same, a block that lies by itself | replaced, by a record (`replacement.rs`) | 1 |
//! | below the end, strict, of a mapped file | the same; the record made void; fence | 3 |
//!
//! (Lazy: a size that grows in mode posix, unless `fsync` is expected next.)
//!
//! What a call can do besides it does between its stores and their fence, while they are on their
//! way. What was stored word by word is loaded word by word, and nothing of several words is passed
//! by value: a load that spans younger stores waits until all stores before it have left the CPU,
//! streamed ones too.
//!
//! Locks: the inode's.

#![expect(clippy::inline_always, reason = "words that are handed on stay in registers")]

use crate::cache::fsync_predictor::commits_at_once;
use crate::data::Files;
use crate::data::bytes::{Bytes, Own, Part, Several};
use crate::data::file::File;
use crate::data::plan::{Plan, Position, WORD, note_run};
use crate::inject::{Bug, injected};
use crate::inode::in_place::Blocks;
use crate::inode::{Current, Inode, LIVE_CHECKSUMMED, LIVE_DIRTY, LIVE_PRIVILEGED, LIVE_WRITTEN};
use crate::medium::layout::{
    BLOCK, CHECKSUMMED_MAX, CHECKSUMMED_SHIFT, COMMIT, COMMIT_CHECKSUMMED, COMMIT_WRITTEN, Commit,
    LINE, REDO_BYTES,
};
use crate::medium::now;
use crate::txn::acquire::{Anchor, Locked, Seen};
use crate::txn::looks::Looks;
use crate::txn::op::Op;
use crate::txn::record::Record;
use crate::txn::redo::{LIVE_RECORD, NewBytes, Places, needs_slot, recorded};
use crate::txn::release::Freed;
use crate::{Mode, Result};
use pmem::{FenceBatch, InFlight, Region, UserIn};
use std::hint::cold_path;
use vfs::Node;

/// Bytes of an overwrite up to which a private copy is stored.
const FEW: usize = 256;
const _: () = assert!(REDO_BYTES <= FEW);

/// A file that is being written to: its lock is held.
#[derive(Clone, Copy)]
pub(super) struct Writing<'v> {
    pub(super) locked: Locked<'v, 1>,
    pub(super) current: Current,
    /// The record names the commit line, or is about to.
    pub(super) announces_line: bool,
    /// A block has changed: no run that was known is.
    pub(super) replaced: bool,
}

/// A simple write.
pub(super) struct Request<'s, B> {
    pub(super) bytes: &'s B,
    pub(super) offset: u64,
    /// Where they go in the region.
    pub(super) places: Places,
    /// Offset of the word of the block that they replace, if they may: one that lies by itself. Or
    /// 0.
    word: u64,
    pub(super) generation: u32,
}

impl Files {
    /// Plans a write of all these bytes, and does it: as [`Files::write_planned`].
    #[inline]
    pub(crate) fn write_at_once(
        &self,
        node: Node,
        anchor: Anchor,
        position: Position,
        bytes: &UserIn<'_>,
    ) -> Result<Option<u64>> {
        let mut plan = Plan::default();
        self.plan(node, position, bytes, &mut plan)?;
        self.write_planned(node, anchor, position, bytes, &plan)
    }

    /// The same of a write that others were in the way of, behind a look that found this number.
    #[cold]
    #[inline(never)]
    fn write_again(
        &self,
        node: Node,
        anchor: Anchor,
        position: Position,
        bytes: &UserIn<'_>,
        sequence: u64,
    ) -> Result<Option<u64>> {
        let mut looks = Looks::after(sequence);
        while self.look_again(node, &mut looks) {
            let Plan { is_simple, sequence, current, record, .. } =
                self.plan_anew(node, position, bytes)?;
            if !is_simple && sequence != 0 {
                return Ok(None);
            }
            let inode = Inode(node.ino);
            let seen = Seen { inode, live: self.live_lines(inode)?, sequence };
            let to = (record, Record::new(self, record)?);
            if is_simple && let Some(locked) = self.try_acquire(to, anchor, [seen])? {
                let writing = Writing { locked, current, announces_line: false, replaced: false };
                return writing.write_as_found(self, node, position, bytes);
            }
        }
        Ok(None)
    }

    /// Writes all bytes to an open file, as planned for this position, if the lock is
    /// to be had without waiting and the write is simple: gives the offset behind them. `None`:
    /// nothing has been done.
    #[inline(always)]
    pub(crate) fn write_planned(
        &self,
        node: Node,
        anchor: Anchor,
        position: Position,
        bytes: &UserIn<'_>,
        plan: &Plan,
    ) -> Result<Option<u64>> {
        let length = bytes.len();
        let &Plan { is_simple, sequence, current, offset, place, sought, record } = plan;
        if !is_simple {
            cold_path();
            // No number: it was odd.
            return match sequence {
                0 => self.write_again(node, anchor, position, bytes, 0),
                _ => Ok(None),
            };
        }
        let inode = Inode(node.ino);
        let seen = Seen { inode, live: self.live_lines(inode)?, sequence };
        let Some(locked) =
            self.try_acquire((record, Record::new(self, record)?), anchor, [seen])?
        else {
            cold_path();
            return self.write_again(node, anchor, position, bytes, sequence);
        };
        let mut writing = Writing { locked, current, announces_line: false, replaced: false };
        let Some(place) = place.filter(|_| locked.seen[0].sequence == sequence) else {
            return writing.write_as_found(self, node, position, bytes);
        };
        if sought != 0
            && let Err(error) = note_run(seen.live, offset, place, sought)
        {
            return writing.end().and(Err(error));
        }
        let (places, word) = (Places::one(place), sought & WORD);
        let request = Request { bytes, offset, places, word, generation: node.generation };
        let written = writing.write(&request);
        writing.end()?;
        written.map(|written| written.then_some(offset + length as u64))
    }
}

impl Files {
    /// The same, of a file whose lock is held, if the write is simple.
    pub(super) fn write_simply<'v>(
        &'v self,
        op: &mut Op<'v>,
        file: &File<'_>,
        offset: u64,
        bytes: &Several<'_>,
    ) -> Result<bool> {
        let range = (offset, bytes.count() as u64);
        let live = self.live_lines(file.inode)?;
        let seen = Seen { inode: file.inode, live, sequence: live.sequence()? & !1 };
        let generation = file.identity.generation;
        // Set-id bits are seen to before the lock is waited for.
        let Some((places, word)) = self.places(seen, &file.current, generation, range, 0)? else {
            return Ok(false);
        };
        let locked = Locked { engine: self, owner: op.owner, record: op.record, seen: [seen] };
        let current = file.current;
        let mut writing = Writing { locked, current, announces_line: false, replaced: false };
        let request = Request { bytes, offset, places, word, generation };
        let written = writing.write(&request);
        op.announced_lines(usize::from(writing.announces_line));
        if written != Ok(true) {
            // It goes on in another way, under the same number.
            live.tell_nothing()?;
        }
        writing.keep_run()?;
        written
    }
}

impl<'v> Writing<'v> {
    /// Looks under the lock where the bytes go, as the file is by now, writes them there, and gives
    /// everything back: as [`Files::write_planned`].
    #[cold]
    fn write_as_found<B: Bytes>(
        mut self,
        files: &Files,
        node: Node,
        position: Position,
        bytes: &B,
    ) -> Result<Option<u64>> {
        let written = self.find_and_write(files, node, position, bytes);
        self.end()?;
        written
    }

    fn find_and_write<B: Bytes>(
        &mut self,
        files: &Files,
        node: Node,
        position: Position,
        bytes: &B,
    ) -> Result<Option<u64>> {
        let (Locked { seen: [seen], .. }, generation) = (self.locked, node.generation);
        self.current = seen.live.now()?;
        let offset = match position {
            Position::At(offset) => offset,
            Position::End => self.current.size,
        };
        let range = (offset, bytes.count() as u64);
        let found = files.places(seen, &self.current, generation, range, LIVE_PRIVILEGED)?;
        let Some((places, word)) = found else { return Ok(None) };
        let written = self.write(&Request { bytes, offset, places, word, generation })?;
        Ok(written.then_some(offset + range.1))
    }

    /// `false`: nothing has been done, and `general_write.rs` may do it.
    #[inline(always)]
    fn write<B: Bytes>(&mut self, request: &Request<'_, B>) -> Result<bool> {
        let (Locked { engine, owner, record, seen: [seen] }, size) =
            (self.locked, self.current.size);
        let length = request.bytes.count() as u64;
        let end = request.offset + length;
        let flags = self.current.flags;
        let commits = end > size && commits_at_once(engine.mode, seen.inode, seen.sequence, flags);
        if commits && length <= CHECKSUMMED_MAX && request.offset == size {
            self.announces_line = true;
            return self.append_checksummed(request).map(|()| true);
        }
        if request.offset < size && engine.mode == Mode::Strict {
            let needs_slot = needs_slot(self.current.flags, u64::from(owner.op()));
            self.announces_line = needs_slot || self.current.is_mapped();
            let word = request.word;
            if word != 0
                && let Some(spare) = record.take_block(engine, request.places.at / BLOCK)?
            {
                return self.replace(request, word, spare).map(|()| true);
            }
            seen.live.tell_in_place(seen.sequence, Blocks::of(request.offset, length))?;
            return self.overwrite(request);
        }
        if end <= size {
            seen.live.tell_in_place(seen.sequence, Blocks::of(request.offset, length))?;
        }
        let stored = self.stream(request);
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
                let _ = engine.region.fence();
                return Err(errno);
            }
        }
        if commits {
            self.announces_line = true;
            let _ = self.store_slot(request.generation, None)?.fence();
            self.current.flags &= !(LIVE_DIRTY | LIVE_CHECKSUMMED | LIVE_RECORD);
            seen.live.set_current(&self.current)?;
        } else {
            self.mark_dirty(request.generation)?;
        }
        Ok(true)
    }

    /// Stores the bytes where they go: in flight.
    #[inline(always)]
    fn stream<B: Bytes>(&self, request: &Request<'_, B>) -> Result<FenceBatch<'v>> {
        let (region, bytes) = (&self.locked.engine.region, request.bytes);
        if request.places.blocks[0] == 0 {
            let grows = request.offset >= self.current.size;
            let part = if grows { Part::cold } else { Part::near };
            return bytes.stream(region, part(0, request.places.at, bytes.count()));
        }
        stream_scattered(region, request)
    }

    /// From now on the file ends at `end`, or where it ended if that is more, and was written just
    /// now; nobody sees that yet.
    #[inline(always)]
    pub(super) fn move_on(&mut self, end: u64) {
        let (current, time) = (&mut self.current, now());
        current.size = end.max(current.size);
        (current.mtime, current.ctime) = (time, time);
        current.flags |= LIVE_WRITTEN;
    }

    /// Makes current what the commit line does not say: it is dirty.
    #[inline(always)]
    pub(super) fn mark_dirty(&mut self, generation: u32) -> Result<()> {
        let Locked { engine, seen: [seen], .. } = self.locked;
        if self.current.flags & (LIVE_DIRTY | LIVE_CHECKSUMMED) != LIVE_DIRTY {
            let flags = self.current.flags;
            self.current.flags = engine.dirty_flags(seen.inode, generation, flags)?;
        }
        seen.live.set_current(&self.current)
    }

    /// Changes visible bytes at once, or not at all. `false`: memory that they lie in cannot be
    /// had.
    fn overwrite<B: Bytes>(self, request: &Request<'_, B>) -> Result<bool> {
        let &Request { bytes, offset, places, word, generation } = request;
        let length = bytes.count();
        if length > FEW {
            return self.overwrite_by(request);
        }
        let mut few = [0; FEW];
        bytes.read(&mut few[..length])?;
        let bytes = &Own(&few[..length]);
        self.overwrite_by(&Request { bytes, offset, places, word, generation })
    }

    #[inline]
    fn overwrite_by<B: Bytes>(mut self, request: &Request<'_, B>) -> Result<bool> {
        let Self { locked, .. } = self;
        let (engine, lane) = (locked.engine, u64::from(locked.owner.op()));
        let &Request { bytes, places, generation, .. } = request;
        engine.approach(&places, bytes.count());
        let needs_slot = needs_slot(self.current.flags, lane);
        let slot = needs_slot.then(|| self.store_slot_beside(generation)).transpose()?;
        let saved = self.save(request);
        // A page that is lost shows while they go.
        let reachable = engine.look_at(&places, bytes.count()).is_ok();
        let sum = match saved {
            Ok((stored, sum)) => {
                // PERSIST: the record and its bytes before the first change in place.
                if !injected(Bug::ChangeBeforeRedo) {
                    let _ = stored.and_any(slot).fence();
                }
                if !reachable {
                    engine.void_redo(lane)?;
                    return Ok(false);
                }
                sum
            }
            Err(errno) => {
                let _ = engine.region.fence();
                engine.void_redo(lane)?;
                return Err(errno);
            }
        };
        locked.record.forget_word()?;
        // From here on the record counts, whatever becomes of the stores.
        let flags = recorded(self.current.flags, lane);
        if flags != self.current.flags {
            self.current.flags = flags;
            locked.seen[0].live.set_current(&self.current)?;
        }
        let stored = self.store_again(request, sum)?;
        self.move_on(0);
        if !injected(Bug::DataNotFenced) {
            // PERSIST: the next change of these bytes needs the record no more.
            let _ = stored.fence();
        }
        if self.current.is_mapped() {
            cold_path();
            self.void_record(generation)?;
            return Ok(true);
        }
        self.mark_dirty(generation)?;
        Ok(true)
    }

    /// The record of a mapped file counts no more, and what is current is durable.
    fn void_record(&mut self, generation: u32) -> Result<()> {
        if injected(Bug::RedoNotVoided) {
            self.current.flags &= !LIVE_DIRTY;
            return self.locked.seen[0].live.set_current(&self.current);
        }
        // PERSIST: the slot, beside which the record counts no more, before the call returns:
        // another process may then store to the mapping, and make that durable.
        let _ = self.store_slot_beside(generation)?.fence();
        Ok(())
    }

    /// Stores the new bytes of an overwrite aside, and the record that tells of them: in flight.
    /// Gives also their sum.
    #[inline(always)]
    fn save<B: Bytes>(&self, request: &Request<'_, B>) -> Result<(InFlight<'v>, u32)> {
        let (Locked { engine, record, seen: [seen], .. }, bytes) = (self.locked, request.bytes);
        let (lane, length) = (u64::from(self.locked.owner.op()), bytes.count());
        let which = (seen.inode, request.generation, seen.live);
        // As few as go into the record are a copy already ([`FEW`]).
        if let Some(few) = bytes.own().filter(|few| few.len() <= REDO_BYTES) {
            let new = NewBytes::Here(few);
            return engine.store_redo(&record, lane, which, &request.places, new);
        }
        let part = Part::near(0, engine.data_area(lane), length);
        let (stored, sum) = bytes.stream_checksummed(&engine.region, part, 0)?;
        let new = NewBytes::InDataArea(length, sum);
        let (record, sum) = engine.store_redo(&record, lane, which, &request.places, new)?;
        Ok((record.and_any(stored), sum))
    }

    /// Stores the bytes in place, whose record has this sum: in flight.
    #[inline(always)]
    fn store_again<B: Bytes>(self, request: &Request<'_, B>, sum: u32) -> Result<FenceBatch<'v>> {
        let (Locked { engine, owner, record, .. }, bytes) = (self.locked, request.bytes);
        let (mut again, mut stored) = (0, FenceBatch::default());
        let all = request.places.each(bytes.count(), |to, from, length| {
            let part = Part::near(from, to, length);
            if bytes.own().is_some() {
                return bytes.stream(&engine.region, part).map(|part| stored.add(part));
            }
            bytes.stream_checksummed(&engine.region, part, again).map(|(part, sum)| {
                stored.add(part);
                again = sum;
            })
        });
        if all.is_err() || bytes.own().is_none() && again != sum {
            cold_path();
            // The caller's memory has changed, or has vanished: what the record says counts.
            let _ = engine.region.fence();
            return engine.store_newest(&record, u64::from(owner.op()));
        }
        Ok(stored)
    }

    /// Stores the slot that a record needs beside it, or beside which it counts no more: in flight.
    #[inline(always)]
    pub(super) fn store_slot_beside(&mut self, generation: u32) -> Result<InFlight<'v>> {
        self.announce_line()?;
        // CRASH: the slot changes nothing that is told; the record counts beside it only.
        let Locked { engine, seen: [seen], .. } = self.locked;
        let stored = engine.store_current(seen.inode, generation, &mut self.current)?;
        seen.live.set_current(&self.current)?;
        Ok(stored)
    }

    /// Stores a short append and a commit slot with the sum of its bytes, by one fence.
    fn append_checksummed<B: Bytes>(mut self, request: &Request<'_, B>) -> Result<()> {
        let Locked { engine, seen: [seen], .. } = self.locked;
        let length = request.bytes.count();
        // PERSIST: bytes and slot in any order, by one fence.
        // CRASH: without the slot the old size stands; a slot whose bytes are not all there is
        // void.
        let part = Part::cold(0, request.places.at, length);
        let stored = request.bytes.stream_checksummed(&engine.region, part, 0);
        self.move_on(request.offset + length as u64);
        match stored {
            Ok((stored, sum)) => {
                let slot = self.store_slot(request.generation, Some((length, sum)))?;
                let _ = slot.and_any(stored).fence();
            }
            Err(fault) => {
                let _ = engine.region.fence();
                return Err(fault);
            }
        }
        self.current.flags = self.current.flags & !(LIVE_DIRTY | LIVE_RECORD) | LIVE_CHECKSUMMED;
        seen.live.set_current(&self.current)
    }

    /// Names the commit line in the operation's record.
    fn announce_line(self) -> Result<()> {
        debug_assert!(self.announces_line);
        let Locked { record, seen: [seen], .. } = self.locked;
        record.announce_line(seen.inode.at(COMMIT) / LINE * LINE)
    }

    /// Stores the next commit slot, that of a short append with length and sum of its bytes: in
    /// flight.
    #[inline]
    fn store_slot(self, generation: u32, tail: Option<(usize, u32)>) -> Result<InFlight<'v>> {
        let Current { size, mtime, .. } = self.current;
        let mut commit = Commit { size, mtime, flags: COMMIT_WRITTEN, ..Commit::default() };
        if let Some((length, sum)) = tail {
            commit.flags |= COMMIT_CHECKSUMMED | (length as u32) << CHECKSUMMED_SHIFT;
            commit.aux = sum;
        }
        self.announce_line()?;
        let Locked { engine, seen: [seen], .. } = self.locked;
        engine.store_slot(seen.inode, generation, commit)
    }

    /// A run that was known still is, unless a block has changed.
    #[inline(always)]
    fn keep_run(&self) -> Result<()> {
        let Seen { live, sequence, .. } = self.locked.seen[0];
        if self.replaced { Ok(()) } else { live.keep_run(sequence, sequence + 2) }
    }

    /// Gives everything back. What was stored is durable.
    #[inline(always)]
    fn end(self) -> Result<()> {
        self.keep_run()?;
        self.locked.end(usize::from(self.announces_line), Freed::default())
    }
}

/// Stores bytes into several blocks: in flight.
#[cold]
fn stream_scattered<'r, B: Bytes>(
    region: &'r Region,
    request: &Request<'_, B>,
) -> Result<FenceBatch<'r>> {
    let mut stored = FenceBatch::default();
    request.places.each(request.bytes.count(), |to, from, length| {
        request.bytes.stream(region, Part::near(from, to, length)).map(|part| stored.add(part))
    })?;
    Ok(stored)
}
