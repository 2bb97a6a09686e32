//! Overwrites by redo: bytes of a few blocks change at once, or a block is replaced; nothing is
//! allocated.
//!
//! Each lane has two *records*, its last lines, which it writes in turns. One tells of
//!
//! - *bytes*: new bytes and where they go. Up to [`REDO_BYTES`] stand in the record itself, more in
//!   the lane's data area; then the record names the blocks into which they go, wherever those lie;
//! - *a replacement*: a block with new bytes, and the word of a block map that shall lead to it;
//! - *a list* of bytes, words and a commit slot that change at once (`change_list.rs`);
//!
//! and of the commit slot of the inode beside which it counts.
//!
//! Persistence order, bytes and lists: new bytes and record; fence; the bytes in place; fence. A
//! replacement: the block and record; fence; the word, *in flight when the call returns*: until a
//! later fence of the lane the record is all that tells of the change. So there are two.
//!
//! Nobody takes a record back: recovery would store what is there. That holds until it changes in
//! another way, so whoever is about to change it makes the record void first:
//!
//! - the lane's next record makes one of bytes void; that of a replacement stands until the one
//!   after the next takes its place, and recovery goes by their order. The word that a replacement
//!   left in flight is flushed for the next record's fence, whichever CPU has stored it
//!   ([`Record::flush_word`]);
//! - anybody else moves the inode's commit slot on. The live flags name the lane ([`LIVE_REDO`]):
//!   operations ask when they begin to work ([`Op::void_locked_redos`]), an overwrite by another
//!   lane stores the slot with its record ([`needs_slot`]). A slot is stored only when the word is
//!   durable (`persist_word`).
//!
//! CRASH: before the first fence the record is void, by its sums or by the slot that it wants, and
//! nothing has changed. From there on recovery stores the new bytes, or the word (again). At most
//! one lane has valid records of an inode, and lanes can be gone through in any order. Recovery and
//! the attach after an orderly end leave no record. A replaced block may be filled with something
//! else at once: what leads to the new one is durable, by a word or by a record. The new one
//! changes only behind another fence of its lane, or behind another slot.
//!
//! Locks: the inode's.

use crate::Result;
use crate::inject::{Bug, injected};
use crate::inode::{
    COPY, Current, HINT_COPY, HINTS, Inode, LIVE_CHECKSUMMED, LIVE_DIRTY, LIVE_LANE, LIVE_MASK,
    LIVE_REDO, LIVE_WRITTEN, Live, index,
};
use crate::medium::layout::{
    BLOCK, COMMIT, COMMIT_WRITTEN, Commit, DATA_AREA_MAX, LANE_REDO, LINE, REDO_BLOCKS, REDO_BYTES,
    REDO_LENGTH, REDO_LISTED, REDO_REPLACES, REDO_SLOTS, Redo,
};
use crate::medium::record_words::{RECORD_REDO, RECORD_WORD, Record, index as word_of};
use crate::medium::subword::{halves, padded};
use crate::txn::Operations;
use crate::txn::change_list::List;
use crate::txn::journal::lane_offset;
use crate::txn::op::Op;
use crate::txn::record::inode_of_lock;
use pmem::{FenceBatch, InFlight, checksum_after, checksum_words};
use rustix::io::Errno;
use smallvec::SmallVec;
use zerocopy::FromBytes;

/// The bits of the live flags that tell of a record.
pub(crate) const LIVE_RECORD: u64 = LIVE_REDO | 0xFFFF << LIVE_LANE;

/// Offset in the region of a lane's record of this number.
pub(super) fn record_offset(lane: u64, number: u32) -> u64 {
    lane_offset(lane) + LANE_REDO + u64::from(number) % REDO_SLOTS * LINE
}

/// Where the bytes of an overwrite go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    /// Offset in the region.
    pub(crate) at: u64,
    /// The blocks in which they go on behind the end of that block; the first is 0: all right
    /// behind it.
    pub(crate) blocks: [u32; REDO_BLOCKS],
}

impl Places {
    /// One place.
    pub(crate) fn one(at: u64) -> Self {
        Self { at, blocks: [0; REDO_BLOCKS] }
    }

    /// Does something with each part of `length` bytes: where it goes, where it begins among the
    /// bytes, and how many it has.
    #[inline]
    pub(crate) fn each<E>(
        &self,
        length: usize,
        mut part: impl FnMut(u64, usize, usize) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if self.blocks[0] == 0 {
            return part(self.at, 0, length);
        }
        let block = BLOCK as usize;
        let first = length.min(block - self.at as usize % block);
        part(self.at, 0, first)?;
        for (number, from) in self.blocks.into_iter().zip((first..length).step_by(block)) {
            part(u64::from(number) * BLOCK, from, block.min(length - from))?;
        }
        Ok(())
    }
}

/// New bytes of an overwrite, which its record tells of.
#[derive(Clone, Copy)]
pub(crate) enum NewBytes<'b> {
    /// At most [`REDO_BYTES`], which stand in the record itself.
    Here(&'b [u8]),
    /// So many, with this crc32c, which are in flight to the lane's data area.
    InDataArea(usize, u32),
}

/// A block that takes another one's place.
pub(crate) struct Replacement {
    /// Offset of the word that led to the old one.
    pub(crate) word: u64,
    /// What it becomes.
    pub(crate) leads: u64,
    pub(crate) block: u64,
}

impl Record<'_> {
    /// The number of the lane's next redo record.
    #[inline]
    pub(super) fn next_redo(&self) -> Result<u32> {
        let number = (self.0.load(word_of(RECORD_REDO))? as u32).wrapping_add(1);
        self.0.store(word_of(RECORD_REDO), u64::from(number))?;
        Ok(number)
    }

    /// Flushes the word that the lane's last replacement left in flight, for the fence to come.
    #[inline]
    pub(super) fn flush_word<'v>(&self, engine: &'v Operations) -> Result<Option<InFlight<'v>>> {
        let word = self.0.load(word_of(RECORD_WORD))?;
        let is_due = word != 0 && !injected(Bug::WordNotDurable);
        Ok(is_due.then(|| engine.region.flush(word, 8)))
    }

    /// Behind a fence: nothing is in flight.
    #[inline]
    pub(crate) fn forget_word(&self) -> Result<()> {
        if self.0.load(word_of(RECORD_WORD))? != 0 {
            self.0.store(word_of(RECORD_WORD), 0)?;
        }
        Ok(())
    }

    /// Names the word that a replacement leaves in flight.
    #[inline]
    pub(crate) fn tell_word(&self, word: u64) -> Result<()> {
        Ok(self.0.store(word_of(RECORD_WORD), word)?)
    }
}

impl Redo {
    pub(super) fn is_replacement(&self) -> bool {
        self.length & REDO_REPLACES != 0
    }

    fn is_listed(&self) -> bool {
        self.length & REDO_LISTED != 0
    }

    /// Of a replacement.
    pub(super) fn replacement(&self) -> Replacement {
        let [block, leads, _]: [u64; 3] = zerocopy::transmute!(self.bytes);
        Replacement { word: self.target, leads, block }
    }

    fn places(&self) -> Places {
        let blocks = if self.length as usize > REDO_BYTES {
            zerocopy::transmute!(self.bytes)
        } else {
            [0; REDO_BLOCKS]
        };
        Places { at: self.target, blocks }
    }

    /// The words of the record, with its crc.
    #[inline]
    fn sealed(&self, lane: u64) -> [u64; 8] {
        let [a, b, c]: [u64; 3] = zerocopy::transmute!(self.bytes);
        let counts = halves(self.generation, self.length);
        let last = halves(self.sum, self.number);
        let words = [halves(0, self.sequence), self.ino, counts, self.target, last, a, b, c];
        let crc = checksum_words(lane, words);
        [words[0] | u64::from(crc), self.ino, counts, self.target, last, a, b, c]
    }
}

/// The flags of a file that a lane has just overwritten.
pub(crate) fn recorded(flags: u64, lane: u64) -> u64 {
    flags & !LIVE_RECORD | LIVE_REDO | lane << LIVE_LANE
}

/// Whether an overwrite of a file with these live flags by `lane` needs another commit slot beside
/// it: a record of another lane, or a checksummed tail, counts beside the newest.
#[inline]
pub(crate) fn needs_slot(flags: u64, lane: u64) -> bool {
    let other = flags & LIVE_REDO != 0 && flags & LIVE_RECORD != recorded(0, lane);
    (flags & LIVE_CHECKSUMMED != 0 || other) && !injected(Bug::RedoNotVoided)
}

/// What is current as a commit slot says it.
fn slot_of(current: &Current) -> Commit {
    let flags = if current.flags & LIVE_WRITTEN == 0 { 0 } else { COMMIT_WRITTEN };
    Commit { size: current.size, mtime: current.mtime, flags, ..Commit::default() }
}

impl Operations {
    /// Stores a slot without a sum that says what is current, which changes to that: in flight. The
    /// caller names the line in the operation's record first.
    pub(crate) fn store_current(
        &self,
        inode: Inode,
        generation: u32,
        current: &mut Current,
    ) -> Result<InFlight<'_>> {
        // PERSIST: all bytes below the current size were fenced by who moved it.
        let flight = self.store_slot(inode, generation, slot_of(current))?;
        current.flags &= LIVE_MASK & !(LIVE_DIRTY | LIVE_CHECKSUMMED | LIVE_RECORD);
        Ok(flight)
    }

    /// The sequence of an inode's newest slot.
    #[inline]
    pub(super) fn newest_sequence(
        &self,
        inode: Inode,
        generation: u32,
        live: Live<'_>,
    ) -> Result<u32> {
        if live.is_ready(self.epoch)?
            && let Some(at) = live.0.load(index(HINTS + HINT_COPY * 8))?.checked_sub(1)
        {
            // The last word of a slot: sequence and crc.
            return Ok(live.0.load(index(COPY) + if at & 1 == 0 { 3 } else { 7 })? as u32);
        }
        Ok(self.commit_line(inode, generation)?.0.sequence)
    }

    /// Stores the record of an overwrite: in flight. Gives also the crc32c of its bytes.
    #[inline]
    pub(crate) fn store_redo(
        &self,
        op: &Record<'_>,
        lane: u64,
        (inode, generation, live): (Inode, u32, Live<'_>),
        places: &Places,
        new: NewBytes<'_>,
    ) -> Result<(InFlight<'_>, u32)> {
        let (bytes, (length, sum)) = match new {
            NewBytes::Here(few) => {
                let words = padded::<{ REDO_BYTES / 8 }>(few).ok_or(Errno::IO)?;
                (zerocopy::transmute!(words), (few.len(), checksum_after(0, few)))
            }
            NewBytes::InDataArea(length, sum) => {
                (zerocopy::transmute!(places.blocks), (length, sum))
            }
        };
        let record = Redo {
            crc: 0,
            sequence: self.newest_sequence(inode, generation, live)?,
            ino: inode.0,
            generation,
            length: length as u32,
            target: places.at,
            sum,
            number: op.next_redo()?,
            bytes,
        };
        let word = op.flush_word(self)?;
        Ok((self.write_record_line(lane, record)?.and_any(word), sum))
    }

    /// Stores the record of a replacement by a block whose bytes, with this crc32c, are in flight:
    /// in flight.
    #[inline]
    pub(crate) fn store_replacement(
        &self,
        op: &Record<'_>,
        lane: u64,
        (inode, generation, live): (Inode, u32, Live<'_>),
        new: &Replacement,
        sum: u32,
    ) -> Result<InFlight<'_>> {
        let record = Redo {
            crc: 0,
            sequence: self.newest_sequence(inode, generation, live)?,
            ino: inode.0,
            generation,
            length: BLOCK as u32 | REDO_REPLACES,
            target: new.word,
            sum,
            number: op.next_redo()?,
            bytes: zerocopy::transmute!([new.block, new.leads, 0]),
        };
        let word = op.flush_word(self)?;
        let record = self.write_record_line(lane, record)?;
        // A page that is lost shows before the record counts.
        self.region.load64(new.word)?;
        Ok(record.and_any(word))
    }

    #[inline]
    pub(super) fn write_record_line(&self, lane: u64, record: Redo) -> Result<InFlight<'_>> {
        let at = record_offset(lane, record.number);
        let line = record.sealed(lane);
        Ok(self.region.write_line(at, zerocopy::transmute_ref!(&line))?)
    }

    /// Asks for what [`Operations::look_at`] looks at. The last overwrite stored it around the
    /// cache, so a look waits for the memory; one that was asked for before the new bytes are
    /// stored elsewhere does not.
    #[inline]
    pub(crate) fn approach(&self, places: &Places, length: usize) {
        let _ = places.each(length, |place, _, length| {
            let last = place + length as u64 - 1;
            let mut at = place;
            while at < last {
                self.region.prefetch(at);
                at += BLOCK;
            }
            self.region.prefetch(last);
            Ok::<(), Errno>(())
        });
    }

    /// Whether the pages of all places can be had, by a look at each: `EIO`.
    #[inline]
    pub(crate) fn look_at(&self, places: &Places, length: usize) -> Result<()> {
        places.each(length, |place, _, length| {
            let last = (place + length as u64 - 1) / 8 * 8;
            let mut at = place / 8 * 8;
            while at < last {
                self.region.load64(at)?;
                at += BLOCK;
            }
            self.region.load64(last).map(|_| ()).map_err(Errno::from)
        })
    }

    /// Stores the bytes of the lane's newest record where they go: in flight.
    pub(crate) fn store_newest(&self, op: &Record<'_>, lane: u64) -> Result<FenceBatch<'_>> {
        let number = op.0.load(word_of(RECORD_REDO))? as u32;
        let record = self.redo_record(lane, number)?.ok_or(Errno::IO)?;
        self.store_recorded(lane, &record)
    }

    /// Stores what a record tells of where it belongs: in flight.
    pub(super) fn store_recorded(&self, lane: u64, record: &Redo) -> Result<FenceBatch<'_>> {
        let length = record.length as usize;
        if record.is_replacement() {
            let Replacement { word, leads, .. } = record.replacement();
            return Ok(self.region.store64(word, leads)?.flush().into());
        }
        if record.is_listed() {
            return self.list_of(record).ok_or(Errno::IO)?.store(&self.region);
        }
        if length <= REDO_BYTES {
            return Ok(self.region.stream(record.target, &record.bytes[..length])?.into());
        }
        let mut stored = FenceBatch::default();
        record.places().each(length, |place, from, length| {
            let from = self.data_area(lane) + from as u64;
            self.region.copy(from, place, length as u64).map(|part| stored.add(part))
        })?;
        Ok(stored)
    }

    /// A lane's record in the place of this number, if all of it is there, with its bytes.
    fn redo_record(&self, lane: u64, number: u32) -> Result<Option<Redo>> {
        let Some(record) = self.record_line(lane, number)? else { return Ok(None) };
        Ok(self.has_its_bytes(lane, &record)?.then_some(record))
    }

    /// The same, whatever has become of its bytes.
    fn record_line(&self, lane: u64, number: u32) -> Result<Option<Redo>> {
        let mut bytes = [0; LINE as usize];
        self.region.read(record_offset(lane, number), &mut bytes)?;
        let Ok(record) = Redo::read_from_bytes(&bytes) else { return Ok(None) };
        let length = record.length & REDO_LENGTH;
        let fits = length != 0 && (record.is_listed() || length <= DATA_AREA_MAX as u32);
        Ok((fits && record.sealed(lane)[0] as u32 == record.crc).then_some(record))
    }

    pub(super) fn has_its_bytes(&self, lane: u64, record: &Redo) -> Result<bool> {
        if record.is_listed() {
            return Ok(self.list_of(record).is_some());
        }
        let length = (record.length & !REDO_REPLACES) as usize;
        let sum = if record.is_replacement() {
            let Replacement { word, block, .. } = record.replacement();
            if length as u64 != BLOCK || !word.is_multiple_of(8) || !self.in_pool(block, 1) {
                return Ok(false);
            }
            self.region_crc(block * BLOCK, BLOCK)?
        } else if length <= REDO_BYTES {
            checksum_after(0, &record.bytes[..length])
        } else if length as u64 <= self.data_area_bytes {
            self.region_crc(self.data_area(lane), length as u64)?
        } else {
            return Ok(false);
        };
        Ok(sum == record.sum)
    }

    pub(super) fn list_of(&self, record: &Redo) -> Option<List> {
        List::of(record, &self.region, self.pool())
    }

    /// The lines of a lane's records, the earlier one first.
    pub(super) fn record_lines(&self, lane: u64) -> Result<SmallVec<[Redo; REDO_SLOTS as usize]>> {
        let mut found = SmallVec::<[Redo; REDO_SLOTS as usize]>::new();
        for number in 0..REDO_SLOTS as u32 {
            found.extend(self.record_line(lane, number)?);
        }
        if let [one, other] = found[..]
            && (other.number.wrapping_sub(one.number) as i32) < 0
        {
            found.swap(0, 1);
        }
        Ok(found)
    }

    /// Makes a lane's records void; durable on return.
    pub(crate) fn void_redo(&self, lane: u64) -> Result<()> {
        // PERSIST: what a record tells of before the record goes.
        self.persist_word(lane)?;
        let earlier = self.record_lines(lane)?.first().map_or(0, |record| record.number);
        for number in [earlier, earlier.wrapping_add(1)] {
            // PERSIST: the later one last: beside it the earlier one may count for nothing.
            let void = [0; LINE as usize];
            let _ = self.region.write_line(record_offset(lane, number), &void)?.fence();
        }
        Ok(())
    }
}

impl Op<'_> {
    /// Makes records of the locked inodes void that are other lanes' or, unless it `keeps` them,
    /// this one's, since it is about to store another one, or says that it does not
    /// ([`Op::void_kept_redo`]): what they tell of may change from here on.
    pub(crate) fn void_locked_redos(&mut self, keeps: bool) -> Result<()> {
        for index in 0..self.locks.len() {
            let Some(inode) = inode_of_lock(self.locks[index]) else { continue };
            let flags = self.engine.live_lines(inode)?.flags()?;
            if flags & LIVE_REDO != 0 && !(keeps && self.is_own_record(flags)) {
                self.void_redo_of(inode)?;
            }
        }
        Ok(())
    }

    /// Whether live flags name this operation's lane: its next record makes theirs void.
    fn is_own_record(&self, flags: u64) -> bool {
        flags & LIVE_RECORD == recorded(0, u64::from(self.index()))
    }

    /// Makes a record void that was kept ([`Op::void_locked_redos`]), since no other one comes:
    /// gives what is current then.
    pub(crate) fn void_kept_redo(&mut self, inode: Inode, current: Current) -> Result<Current> {
        if current.flags & LIVE_REDO == 0 {
            return Ok(current);
        }
        self.void_redo_of(inode)?;
        self.engine.current(inode)
    }

    #[cold]
    fn void_redo_of(&mut self, inode: Inode) -> Result<()> {
        let engine = self.engine;
        if injected(Bug::RedoNotVoided) {
            return Ok(());
        }
        // What is damaged is found by who looks at it.
        let Ok(identity) = engine.identity(inode) else { return Ok(()) };
        let Ok(mut current) = engine.current(inode) else { return Ok(()) };
        self.announce_line(inode.at(COMMIT))?;
        let stored = engine.store_current(inode, identity.generation, &mut current)?;
        self.pend(stored);
        // PERSIST: the slot before anything changes that the record tells of.
        let _ = self.fence();
        engine.set_current(inode, &current)
    }
}
