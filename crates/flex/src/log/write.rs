//! Writing: appends, puts, commits, trims; by any thread of the one process that writes.
//!
//! A thread *reserves* a range of positions, fills it, and waits for its *turn*: until all before
//! it is filled. Then it marks its range *done*. So `done` only grows, and what lies below it is
//! filled; `committed` grows behind it, and what lies below that is durable.
//!
//! Where the key is used up (with an opening, and with each lap), or a record does not fit into
//! the rest of the ring, one thread *closes* the reservations, waits until all is done, writes the
//! key record, or the skip record, and opens them again.
//!
//! PERSIST: `append` streams and fences before it marks: streams are drained by their own thread's
//! fence only. `put` stores through the cache; a commit flushes all lines from the last commit on,
//! also those that other threads have stored, and fences. A key record is fenced before the first
//! record by its key is stored. A trimmed range is free behind the fence of its head slot.
//!
//! Locks: `turns`, `commits`; neither is held while the other is waited for.

use std::collections::VecDeque;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmem::{Class, Fault, FenceBatch, InFlight, Locality, Region, UserIn, UserOut, checksum_after};

use super::file::{self, LogOptions};
use super::follow::{Record, seek};
use super::format::{
    COMMITTED, HEADER_BYTES, Header, Identity, KEY_BYTES, Kind, LINE_BYTES, SLOTS, Slot, extent,
    key_record, skip_line,
};
use super::memory::{In, Memory, RightToWrite};
use super::positions::Positions;
use super::scan::{Cursor, Ring};
use crate::opener::Opener;
use crate::{Error, Result};

/// Bytes of a put's payload that are copied at a time.
const PIECE: usize = 1024;

const LINE: usize = LINE_BYTES as usize;

/// A record's pieces, of which so many bytes are taken.
struct Pieces<'p> {
    /// Those that are not taken whole.
    pieces: &'p [UserIn<'p>],
    /// Of the first of them.
    taken: usize,
}

impl<'p> Pieces<'p> {
    /// What is left of the first piece that has anything left.
    fn first(&mut self) -> Option<UserIn<'p>> {
        while let Some((piece, rest)) = self.pieces.split_first() {
            if self.taken < piece.len() {
                return Some(piece.slice(self.taken, piece.len()));
            }
            (self.pieces, self.taken) = (rest, 0);
        }
        None
    }

    /// Takes bytes, which are there.
    fn fill(&mut self, to: &mut [u8]) -> core::result::Result<(), Fault> {
        let mut done = 0;
        while done < to.len()
            && let Some(piece) = self.first()
        {
            let take = piece.len().min(to.len() - done);
            piece.read(&mut to[done..done + take])?;
            (self.taken, done) = (self.taken + take, done + take);
        }
        Ok(())
    }

    /// Takes as many whole lines as the first piece has; `None`: not one.
    fn whole_lines(&mut self) -> Option<UserIn<'p>> {
        let piece = self.first()?;
        let take = piece.len() / LINE * LINE;
        let lines = (take > 0).then(|| piece.slice(0, take));
        self.taken += take;
        lines
    }
}

/// What closes and trims go by.
struct Turns {
    /// The head slot that counts.
    head: Slot,
    /// From which position on which key is in force, from the one at the start on.
    keys: VecDeque<Cursor>,
}

impl Turns {
    /// The cursor of a position.
    fn cursor(&self, position: u64) -> Cursor {
        let before = self.keys.iter().rev().find(|from| from.position <= position);
        let key = before.map_or(self.head.key, |from| from.key);
        Cursor { position, key }
    }
}

/// A log that this process writes to.
pub struct Log {
    // Before the memory, which it is of.
    right: RightToWrite,
    region: Memory,
    identity: Identity,
    /// Memory failed: what is there is to be checked by the next opener.
    broken: AtomicBool,
    positions: Positions<AtomicU64>,
    /// The oldest position, durably.
    start: AtomicU64,
    /// In force at `reserved`.
    key: AtomicU64,
    /// From this position on it is not.
    key_until: AtomicU64,
    turns: Mutex<Turns>,
    commits: Mutex<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    /// Opens the log at `path` for writing. Errors: `Busy`; `Damaged`; what the file system says.
    pub fn open(path: &Path, options: &LogOptions) -> Result<Self> {
        Self::open_in(None, path, options)
    }

    /// The same of a volume's log, too.
    pub(crate) fn open_in(names: In<'_>, path: &Path, options: &LogOptions) -> Result<Self> {
        let opened = match file::open_to_write(names, path, options.page) {
            Err(Error::System(_, rustix::io::Errno::NOENT)) if options.create => {
                file::create(names, path, options)?;
                file::open_to_write(names, path, options.page)
            }
            opened => opened,
        };
        let (region, identity) = opened?;
        Self::start(region, identity)
    }

    /// Makes a log in a region that nobody else has.
    pub fn create_on(region: Region) -> Result<Self> {
        if region.len() < 2 * super::format::HEAD_BYTES || !region.len().is_multiple_of(64) {
            return Err(Error::Invalid("a log takes 8 KiB or more, in lines of 64 bytes"));
        }
        let memory = Memory::of(region);
        file::format(&memory)?;
        let identity = file::identity(&memory)?;
        Self::start(memory, identity)
    }

    /// Opens the log in a region that nobody else has.
    pub fn open_on(region: Region) -> Result<Self> {
        let identity = file::identity(&region)?;
        Self::start(Memory::of(region), identity)
    }

    fn start(region: Memory, identity: Identity) -> Result<Self> {
        let opener = Opener::new()
            .map_err(|errno| Error::System("there is no memory for the log".to_owned(), errno))?;
        let ring = Ring { region: &region, identity };
        let head = ring.head()?;
        let mut keys = VecDeque::from([Cursor { position: head.start, key: head.key }]);
        let end = ring.walk(keys[0], u64::MAX, |_, valid| {
            if valid.kind == Kind::Key {
                keys.push_back(valid.next);
            }
            std::ops::ControlFlow::Continue(())
        })?;
        let known = region.load64(COMMITTED)?;
        if known > end.position {
            return Err(Error::Damaged(format!(
                "the record at position {} is damaged, which was committed: copy out what can be \
                 read (`solera log dump`), and make the log anew",
                end.position
            )));
        }
        // CRASH: what a dead writer put and did not commit, and a head slot that it had stored, may
        // be in a cache only. They are found, so they count from here on, and what builds on them
        // must not be durable before.
        flush(&region, &identity, head.start, end.position)
            .and(region.flush(SLOTS[0], SLOTS[1] + LINE_BYTES - SLOTS[0]))
            .fence();
        region.sync()?;
        region.shared_store(COMMITTED, end.position)?;
        Ok(Self {
            identity,
            right: region.right_to_write(opener),
            broken: AtomicBool::new(false),
            positions: Positions::at(end.position),
            start: AtomicU64::new(head.start),
            key: AtomicU64::new(end.key),
            // The first record needs a new one.
            key_until: AtomicU64::new(end.position),
            turns: Mutex::new(Turns { head, keys }),
            commits: Mutex::new(()),
            region,
        })
    }

    /// What a fence promises here, and why.
    pub fn class(&self) -> (Class, &str) {
        (self.region.class(), self.region.class_reason())
    }

    /// The longest record, in bytes.
    pub fn longest(&self) -> usize {
        self.identity.most() as usize
    }

    /// The position of the oldest record.
    pub fn oldest(&self) -> u64 {
        self.start.load(Ordering::Acquire)
    }

    /// Up to here all is durable.
    pub fn committed(&self) -> u64 {
        self.positions.committed()
    }

    /// Appends a record, durably; gives its position. Errors: `Invalid` of 0 bytes, `TooLong`,
    /// `Full`, `Caller`.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        self.append_pieces(&[UserIn::new(bytes)])
    }

    /// As [`Log::append`], of one record in several pieces, which may be any memory.
    pub fn append_pieces(&self, pieces: &[UserIn<'_>]) -> Result<u64> {
        let len = self.length(pieces)?;
        let (position, key) = self.reserve(extent(len))?;
        let filled = match self.stream(position, key, len, pieces) {
            Ok(streamed) => Ok(streamed.fence()),
            // Nobody may miss it: all behind it would be lost.
            Err(Fault::Caller) => match self.stream_skip(position, key, extent(len)) {
                Ok(streamed) => {
                    streamed.fence();
                    Err(Fault::Caller)
                }
                Err(fault) => Err(fault),
            },
            Err(Fault::Region) => Err(Fault::Region),
        };
        let end = position + extent(len);
        let durable = self.sync();
        let region_failed = matches!(filled, Err(Fault::Region)) || durable.is_err();
        let counts = || {
            if region_failed {
                self.broken.store(true, Ordering::Relaxed);
            }
            !self.is_broken()
        };
        // Whatever failed: the others go on.
        let told = self.positions.finish_durable((position, end), counts, || {
            // Nobody else says more before this thread's turn is over.
            self.region.shared_store(COMMITTED, end)
        });
        if told.is_none() {
            self.commit_to(end)?;
        }
        filled?;
        durable?;
        told.unwrap_or(Ok(()))?;
        Ok(position)
    }

    /// Adds a record that is not durable yet; gives its position, for [`Log::commit`]. Errors: as
    /// [`Log::append`].
    pub fn put(&self, bytes: &[u8]) -> Result<u64> {
        self.put_pieces(&[UserIn::new(bytes)])
    }

    /// As [`Log::put`], of one record in several pieces, which may be any memory.
    pub fn put_pieces(&self, pieces: &[UserIn<'_>]) -> Result<u64> {
        let len = self.length(pieces)?;
        let (position, key) = self.reserve(extent(len))?;
        let mut filled = self.store(position, key, len, pieces);
        if filled == Err(Fault::Caller) {
            let skip = skip_line(key, position, extent(len));
            let stored = self.region.write(self.identity.place(position), &skip).map(drop);
            filled = stored.and(Err(Fault::Caller));
        }
        self.positions.finish((position, position + extent(len)), || {
            if filled == Err(Fault::Region) {
                self.broken.store(true, Ordering::Relaxed);
            }
        });
        filled?;
        Ok(position)
    }

    /// Makes everything durable up to the record at `position`, and that too, of any thread.
    pub fn commit(&self, position: u64) -> Result<()> {
        self.check()?;
        if position >= self.positions.reserved() {
            return Err(Error::Invalid("no record has this position yet"));
        }
        self.commit_to(position + 1)
    }

    /// Ends as a killed process would; gives the memory back: for tests.
    pub fn into_region(self) -> Option<Region> {
        self.region.into_region()
    }

    /// A copy of the file, as it is in memory: for tests.
    ///
    /// # Panics
    ///
    /// If the memory cannot be read.
    pub fn image(&self) -> Vec<u8> {
        let mut image = vec![0; self.region.len() as usize];
        self.region.read(0, &mut image).expect("the log's memory");
        image
    }

    /// Says that nothing before the record at `position` is needed any more: its space is free.
    /// Errors: `Invalid` unless a committed record, or the end, is there.
    pub fn trim(&self, position: u64) -> Result<()> {
        self.check()?;
        let mut turns = locked(&self.turns);
        let head = turns.head;
        if position < head.start || position > self.committed() {
            return Err(Error::Invalid("the position is trimmed, or not committed"));
        }
        let cursor = turns.cursor(position);
        let ring = self.ring();
        let is_there = position == self.committed() || ring.at(cursor)?.is_some();
        if !is_there {
            return Err(Error::Invalid("no record begins at the position"));
        }
        let slot = Slot { start: position, sequence: head.sequence + 1, key: cursor.key };
        let line = slot.line(self.identity.id);
        let stored = self.region.write_line(SLOTS[slot.number()], &line)?;
        // PERSIST: before its space is used again. CRASH: before, the other slot counts.
        stored.fence();
        self.sync()?;
        turns.head = slot;
        while turns.keys.get(1).is_some_and(|from| from.position <= position) {
            turns.keys.pop_front();
        }
        self.start.store(position, Ordering::Release);
        Ok(())
    }

    /// Copies the first record at `position` or behind it; `None`: none is committed there.
    /// Errors: `Lapped`, `NoRoom`, `Invalid`.
    pub fn read(&self, position: u64, to: &mut [u8]) -> Result<Option<Record>> {
        self.read_to(position, &UserOut::new(to))
    }

    /// As [`Log::read`], to any memory: `Caller` if it cannot be written.
    pub fn read_to(&self, position: u64, to: &UserOut<'_>) -> Result<Option<Record>> {
        let (mut cursor, committed) = self.cursor(position)?;
        let copied = self.ring().read(&mut cursor, committed, to)?;
        let next = cursor.position;
        Ok(copied.map(|copied| Record { position: copied.position, len: copied.len, next }))
    }

    /// As [`Log::read`], without a copy: tells where the record lies. It stays there until it is
    /// trimmed.
    pub fn next(&self, position: u64) -> Result<Option<(Record, NonNull<u8>)>> {
        let (mut cursor, committed) = self.cursor(position)?;
        let Some(valid) = self.ring().data(&mut cursor, committed)? else { return Ok(None) };
        let place = self.identity.place(valid.position) + HEADER_BYTES;
        let at = NonNull::new(self.region.base().wrapping_add(place as usize));
        let at = at.ok_or(Error::Memory)?;
        let (position, len) = (valid.position, valid.len as usize);
        Ok(Some((Record { position, len, next: cursor.position }, at)))
    }

    /// Where to read from, and the position up to which.
    fn cursor(&self, position: u64) -> Result<(Cursor, u64)> {
        self.check()?;
        let committed = self.committed();
        let cursor = locked(&self.turns).cursor(position);
        if cursor.position < committed && self.ring().at(cursor)?.is_none() {
            return Ok((seek(self.ring(), position, committed)?, committed));
        }
        Ok((cursor, committed))
    }

    // ---- filling

    fn ring(&self) -> Ring<'_> {
        Ring { region: &self.region, identity: self.identity }
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    fn check(&self) -> Result<()> {
        if !self.right.is_here() {
            return Err(Error::Forked);
        }
        if self.is_broken() { Err(Error::Memory) } else { Ok(()) }
    }

    /// The length of a record, if it may be so long.
    fn length(&self, pieces: &[UserIn<'_>]) -> Result<u64> {
        self.check()?;
        let lengths = pieces.iter().map(|piece| piece.len() as u64);
        let len = lengths.fold(0, u64::saturating_add);
        if len == 0 {
            return Err(Error::Invalid("a record has one byte or more"));
        }
        let most = self.identity.most();
        if len > most { Err(Error::TooLong { most }) } else { Ok(len) }
    }

    /// A page cache is written to its medium. What fails once is not there, whatever the next call
    /// says: the kernel tells of it once.
    fn sync(&self) -> Result<()> {
        self.region.sync().inspect_err(|_| self.broken.store(true, Ordering::Relaxed))
    }

    fn stream(
        &self,
        position: u64,
        key: u64,
        len: u64,
        pieces: &[UserIn<'_>],
    ) -> core::result::Result<InFlight<'_>, Fault> {
        let place = self.identity.place(position);
        let mut crc = Header::sum(key, position, Kind::Data, len);
        let mut rest = Pieces { pieces, taken: 0 };
        // The first line comes last: the sum of all is in it.
        let mut first = [0; LINE];
        let beside = &mut first[HEADER_BYTES as usize..];
        let take = beside.len().min(len as usize);
        rest.fill(&mut beside[..take])?;
        crc = checksum_after(crc, &beside[..take]);
        let (mut at, end) = (place + LINE_BYTES, place + HEADER_BYTES + len);
        let mut streamed = FenceBatch::default();
        while at < end {
            if let Some(lines) = rest.whole_lines() {
                let (part, sum) =
                    self.region.stream_checksummed_on(at, &lines, crc, Locality::Near)?;
                streamed.add(part);
                (crc, at) = (sum, at + lines.len() as u64);
                continue;
            }
            let mut line = [0; LINE];
            let part = &mut line[..LINE.min((end - at) as usize)];
            rest.fill(part)?;
            crc = checksum_after(crc, part);
            streamed.add(self.region.stream(at, &line)?);
            at += LINE_BYTES;
        }
        let header = Header { crc, kind: Kind::Data, len, position };
        first[..HEADER_BYTES as usize].copy_from_slice(&header.bytes());
        Ok(self.region.stream(place, &first)?.and_any(streamed))
    }

    fn stream_skip(
        &self,
        position: u64,
        key: u64,
        bytes: u64,
    ) -> core::result::Result<InFlight<'_>, Fault> {
        let line = skip_line(key, position, bytes);
        self.region.stream(self.identity.place(position), &line)
    }

    /// Through the cache, where it stays until a commit flushes it.
    fn store(
        &self,
        position: u64,
        key: u64,
        len: u64,
        pieces: &[UserIn<'_>],
    ) -> core::result::Result<(), Fault> {
        let place = self.identity.place(position);
        let mut crc = Header::sum(key, position, Kind::Data, len);
        let mut at = place + HEADER_BYTES;
        for piece in pieces {
            let (mut copy, mut done) = ([0; PIECE], 0);
            while done < piece.len() {
                let part = &mut copy[..PIECE.min(piece.len() - done)];
                piece.slice(done, part.len()).read(part)?;
                crc = checksum_after(crc, part);
                drop(self.region.write(at, part)?);
                (done, at) = (done + part.len(), at + part.len() as u64);
            }
        }
        let header = Header { crc, kind: Kind::Data, len, position };
        self.region.write(place, &header.bytes()).map(drop)
    }

    // ---- positions

    /// Takes the next `needed` bytes; gives their position, and the key in force there.
    fn reserve(&self, needed: u64) -> Result<(u64, u64)> {
        let usable =
            |at| at < self.key_until.load(Ordering::Acquire) && self.identity.room(at) >= needed;
        let turn = |at| self.turn(at, needed);
        let at = self.positions.take(needed, usable, turn, |at, end| self.has_room(at, end))?;
        // No other key comes before this range is done.
        Ok((at, self.key.load(Ordering::Acquire)))
    }

    /// Whether what is to be written from `at` on may end at `end`.
    fn has_room(&self, at: u64, end: u64) -> Result<()> {
        let limit = self.oldest() + self.identity.capacity;
        if end > limit {
            return Err(Error::Full { needed: end - at, free: limit.saturating_sub(at) });
        }
        Ok(())
    }

    /// Where a record of `needed` bytes ends that is written behind `at`, with what has to come
    /// before it.
    fn end_of(&self, mut at: u64, needed: u64) -> u64 {
        let mut lacks_key = at >= self.key_until.load(Ordering::Acquire);
        loop {
            let room = self.identity.room(at);
            if room < if lacks_key { KEY_BYTES } else { needed } {
                (at, lacks_key) = (at + room, true);
            } else if lacks_key {
                let lap_end = self.identity.lap_end(at);
                at += KEY_BYTES;
                lacks_key = at == lap_end;
            } else {
                return at + needed;
            }
        }
    }

    /// Skips the rest of the ring, or brings a new key, whatever has to be done first at `at`.
    #[cold]
    fn turn(&self, at: u64, needed: u64) -> Result<()> {
        let mut turns = locked(&self.turns);
        // All of it, or nothing: a record that finds no room has changed nothing.
        if self.positions.reserved() == at {
            self.has_room(at, self.end_of(at, needed))?;
        }
        let next = file::random()?;
        if !self.positions.close(at) {
            return Ok(());
        }
        let (room, key) = (self.identity.room(at), self.key.load(Ordering::Relaxed));
        let lacks_key = at >= self.key_until.load(Ordering::Relaxed);
        let skips = if lacks_key { room < KEY_BYTES } else { room < needed };
        let (streamed, end) = if skips {
            (self.stream_skip(at, key, room).map(FenceBatch::from), at + room)
        } else {
            let record = key_record(key, at, next);
            let streamed = self.region.stream(self.identity.place(at), &record);
            (streamed.map(FenceBatch::from), at + KEY_BYTES)
        };
        // PERSIST: a key before the first record by it: else a torn one could be completed by what
        // is chosen later.
        let durable = streamed.map(|streamed| streamed.fence()).map_err(Error::from);
        if let Err(error) = durable.and_then(|_| self.sync()) {
            self.positions.reopen_unchanged(at);
            return Err(error);
        }
        if !skips {
            turns.keys.push_back(Cursor { position: end, key: next });
            self.key.store(next, Ordering::Release);
            self.key_until.store(self.identity.lap_end(at), Ordering::Release);
        }
        let told = self.positions.reopen(at, end, || self.region.shared_store(COMMITTED, end));
        Ok(told.unwrap_or(Ok(()))?)
    }

    // ---- commits

    /// Makes all durable that is done, which reaches `end` at least.
    fn commit_to(&self, end: u64) -> Result<()> {
        if self.positions.to_commit(end).is_none() {
            return Ok(());
        }
        let _one = locked(&self.commits);
        let Some((from, to)) = self.positions.to_commit(end) else { return Ok(()) };
        flush(&self.region, &self.identity, from, to).fence();
        self.sync()?;
        if self.is_broken() {
            return Err(Error::Memory);
        }
        if self.positions.commit(to) {
            self.publish(to)?;
        }
        Ok(())
    }

    /// Tells followers, unless they have been told of more.
    fn publish(&self, to: u64) -> core::result::Result<(), Fault> {
        let mut known = self.region.shared_load(COMMITTED)?;
        while known < to {
            match self.region.contended_cas(COMMITTED, known, to)? {
                Ok(_) => break,
                Err(found) => known = found,
            }
        }
        Ok(())
    }
}

/// Starts writing back what lies at the positions `[from, to)`, at most once around the ring.
fn flush<'r>(region: &'r Region, identity: &Identity, from: u64, to: u64) -> InFlight<'r> {
    let all = to - from;
    let first = all.min(identity.room(from));
    let flushed = region.flush(identity.place(from), first);
    if first < all {
        return flushed.and(region.flush(identity.place(from + first), all - first));
    }
    flushed
}
