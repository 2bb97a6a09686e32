//! Lists of changes that one record names: bytes, words and a commit slot of one inode, which
//! happen at once.
//!
//! The new bytes lie in the lane's data area, with the list behind them; or in blocks. A list that
//! is too long for the data area lies in blocks, too, in parts of which each names the next. The
//! record has the list's sum, the list those of the bytes. If the inode's commit slot is among the
//! changes, the record counts beside the slot before and beside that one.
//!
//! CRASH: a record without all of its list, or of its bytes, is void. The blocks that hold them are
//! free when their call has returned, while the record stands: whatever they hold then, all changes
//! are in place, durably.
//!
//! Locks: the inode's.

use crate::Result;
use crate::inject::Bug;
use crate::inode::{Current, Inode};
use crate::medium::layout::{
    BLOCK, LINE, LISTED_MORE, LISTED_WORD, LISTED_ZEROS, Listed, REDO_BYTES, REDO_LENGTH,
    REDO_LISTED, REDO_MOVES, Redo,
};
use crate::space::alloc::{Extents, Want};
use crate::txn::journal::crc_of;
use crate::txn::op::Op;
use crate::txn::redo::recorded;
use pmem::{Durable, FenceBatch, Region};
use rustix::io::Errno;
use zerocopy::{FromZeros, IntoBytes};

const ENTRY: u64 = size_of::<Listed>() as u64;
/// Entries that a block holds.
const PER_BLOCK: u64 = BLOCK / ENTRY;

/// A list as it is on the medium.
pub(super) struct List {
    /// Its parts: offset in the region and bytes.
    parts: Vec<(u64, u64)>,
    entries: Vec<Listed>,
}

impl<'v> Op<'v> {
    /// Blocks that are free again when the operation ends.
    pub(crate) fn allocate_aside(&mut self, blocks: u64) -> Result<Extents> {
        let engine = self.engine;
        // A few blocks are found anywhere; for more, long runs matter: each takes an entry.
        let extents = if blocks <= 8 {
            engine.allocate_scratch(self, blocks)?
        } else {
            engine.allocate_data(self, blocks, Want { reserve: true, ..Want::default() })?
        };
        for &(block, blocks) in &extents {
            self.free_later(block, blocks);
        }
        Ok(extents)
    }

    /// Stores a list, in the free part of the data area (offset and bytes) or in blocks, and
    /// the lane's record that names it; pended. `moves`: the inode's next commit slot is listed.
    fn store_list_record(
        &mut self,
        (inode, generation): (Inode, u32),
        list: &[Listed],
        data_area: (u64, u64),
        moves: bool,
    ) -> Result<()> {
        let (engine, lane) = (self.engine, u64::from(self.index()));
        let (target, length, sum) = self.store_list(list, data_area)?;
        let live = engine.live_lines(inode)?;
        let record = Redo {
            crc: 0,
            sequence: engine.newest_sequence(inode, generation, live)?,
            ino: inode.0,
            generation,
            length: length as u32 | REDO_LISTED | if moves { REDO_MOVES } else { 0 },
            target,
            sum,
            number: self.record.next_redo()?,
            bytes: [0; REDO_BYTES],
        };
        if let Some(word) = self.record.flush_word(engine)? {
            self.pend(word);
        }
        match engine.write_record_line(lane, record) {
            Ok(stored) => self.pend(stored),
            Err(error) => {
                let _ = self.fence();
                engine.void_redo(lane)?;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Stores a list and its record, durably: from here on it counts, whatever becomes of the
    /// stores in place, which need the witness. The inode's live flags name the lane.
    pub(crate) fn record_list(
        &mut self,
        which: (Inode, u32),
        list: &[Listed],
        data_area: (u64, u64),
        moves: bool,
    ) -> Result<(Durable<'v>, Current)> {
        self.keep_here(list)?;
        self.store_list_record(which, list, data_area, moves)?;
        // PERSIST: the record, its list and the new bytes before the first change in place.
        let durable = self.fence_unless(Bug::ChangeBeforeRedo);
        self.keep_allocated();
        self.record.forget_word()?;
        let mut current = self.engine.current(which.0)?;
        current.flags = recorded(current.flags, u64::from(self.index()));
        self.engine.set_current(which.0, &current)?;
        Ok((durable, current))
    }

    /// Has all that a list changes in place here until the operation ends. A page that was found
    /// absent behind the record would leave the call half done, and what is freed at its end in
    /// use.
    fn keep_here(&mut self, list: &[Listed]) -> Result<()> {
        let region = &self.engine.region;
        let Some(pager) = region.pager() else { return Ok(()) };
        let places = || list.iter().filter(|entry| entry.length & LISTED_WORD == 0);
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (at, length) in places().map(|entry| (entry.target, bytes_of(entry))) {
            match runs.last_mut() {
                Some(last) if last.0 + last.1 == at => last.1 += length,
                _ => runs.push((at, length)),
            }
        }
        self.pins.extend(runs.into_iter().filter_map(|run| pager.pin(run)));
        for entry in places() {
            let end = entry.target + bytes_of(entry);
            for page in (entry.target / BLOCK * BLOCK..end).step_by(BLOCK as usize) {
                // To zero what is zeros takes no page.
                if entry.length & LISTED_ZEROS == 0 || !pager.is_void(page) {
                    // A store: a page that leaves can be loaded still.
                    let _ = region.contended_cas(page, 0, 0)?;
                }
            }
        }
        Ok(())
    }

    #[cold]
    pub(super) fn unpin(&mut self) {
        let pager = self.engine.region.pager();
        let pins = self.pins.drain(..);
        pins.filter_map(|pin| Some((pager?, pin))).for_each(|(pager, pin)| pager.unpin(pin));
    }

    /// Stores the list; pended. Gives where its first part lies, how long that is, and its sum.
    fn store_list(&mut self, list: &[Listed], data_area: (u64, u64)) -> Result<(u64, u64, u32)> {
        let engine = self.engine;
        let length = list.len() as u64 * ENTRY;
        if length <= data_area.1 {
            let stored = engine.region.stream(data_area.0, list.as_bytes())?;
            self.pend(stored);
            return Ok((data_area.0, length, crc32c::crc32c(list.as_bytes())));
        }
        // Each part may lie by itself, and then names the next one.
        let blocks = self.allocate_aside((list.len() as u64).div_ceil(PER_BLOCK - 1))?;
        let (mut parts, mut rest) = (Vec::new(), list);
        for (block, count) in blocks {
            let most = (count * PER_BLOCK).min(u64::from(REDO_LENGTH) / ENTRY);
            let (part, behind) = rest.split_at((most as usize - 1).min(rest.len()));
            parts.push((block * BLOCK, part));
            rest = behind;
        }
        if !rest.is_empty() {
            return Err(Errno::NOSPC);
        }
        let mut next = None;
        for (place, part) in parts.into_iter().rev().filter(|(_, part)| !part.is_empty()) {
            let mut part = part.to_vec();
            if let Some((source, length, sum)) = next {
                let length = length as u32 | LISTED_MORE;
                part.push(Listed { target: 0, source, length, sum });
            }
            let stored = engine.region.stream(place, part.as_bytes())?;
            self.pend(stored);
            next = Some((place, part.len() as u64 * ENTRY, crc32c::crc32c(part.as_bytes())));
        }
        next.ok_or(Errno::NOSPC)
    }
}

impl List {
    /// The list of a record, if it has one and all of it is there, with all bytes that it names.
    /// What it changes lies behind `pool`.
    pub(super) fn of(record: &Redo, region: &Region, pool: u64) -> Option<Self> {
        if record.length & REDO_LISTED == 0 {
            return None;
        }
        let mut list = Self { parts: Vec::new(), entries: Vec::new() };
        let mut part = (record.target, u64::from(record.length & REDO_LENGTH), record.sum);
        loop {
            let (at, length, sum) = part;
            let most = region.len() / LINE;
            if !length.is_multiple_of(ENTRY) || list.entries.len() as u64 + length / ENTRY > most {
                return None;
            }
            let mut entries = vec![Listed::new_zeroed(); (length / ENTRY) as usize];
            region.read(at, entries.as_mut_bytes()).ok()?;
            if crc32c::crc32c(entries.as_bytes()) != sum {
                return None;
            }
            list.parts.push((at, length));
            let more = entries.pop_if(|last| last.length & LISTED_MORE != 0);
            list.entries.append(&mut entries);
            let Some(more) = more else { break };
            part = (more.source, u64::from(more.length & !LISTED_MORE), more.sum);
        }
        let whole = list.entries.iter().all(|entry| is_whole(entry, region, pool));
        whole.then_some(list)
    }

    /// Whether the word there is among its changes.
    pub(super) fn changes(&self, word: u64) -> bool {
        self.entries.iter().any(|entry| entry.target == word)
    }

    /// Makes all its changes: in flight.
    pub(super) fn store<'r>(&self, region: &'r Region) -> Result<FenceBatch<'r>> {
        let mut flight = FenceBatch::default();
        for entry in &self.entries {
            let &Listed { target, source, length, .. } = entry;
            flight.add(if length & LISTED_WORD != 0 {
                region.store64(target, source)?.flush()
            } else if length & LISTED_ZEROS != 0 {
                region.stream_zero(target, bytes_of(entry))?
            } else {
                region.copy(source, target, bytes_of(entry))?
            });
        }
        Ok(flight)
    }

    /// Flushes it, and the bytes that it names.
    pub(super) fn flush<'r>(&self, region: &'r Region) -> FenceBatch<'r> {
        let saved = |entry: &&Listed| entry.length & (LISTED_WORD | LISTED_ZEROS) == 0;
        let bytes = self.entries.iter().filter(saved).map(|one| (one.source, bytes_of(one)));
        let mut flight = FenceBatch::default();
        for (at, length) in self.parts.iter().copied().chain(bytes) {
            flight.add(region.flush(at, length));
        }
        flight
    }
}

/// The entry of a word.
pub(crate) fn word_entry(target: u64, word: u64) -> Listed {
    Listed { target, source: word, length: LISTED_WORD, sum: 0 }
}

/// Whether what an entry changes may change, and its new bytes are there.
fn is_whole(entry: &Listed, region: &Region, pool: u64) -> bool {
    let length = bytes_of(entry);
    let end = entry.target.checked_add(length);
    let inside = entry.target >= pool && end.is_some_and(|end| end <= region.len());
    inside
        && match entry.length & (LISTED_WORD | LISTED_ZEROS) {
            0 => crc_of(region, entry.source, length) == Ok(entry.sum),
            LISTED_WORD => entry.target.is_multiple_of(8),
            _ => true,
        }
}

/// How many bytes an entry changes.
fn bytes_of(entry: &Listed) -> u64 {
    match entry.length {
        length if length & LISTED_WORD != 0 => 8,
        length => u64::from(length & !LISTED_ZEROS),
    }
}
