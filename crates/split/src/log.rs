//! The operation log (strict): one 64-byte entry for each write, one fence.
//!
//! ```text
//! | header 64: magic, first (checked) | entry 64 | entry 64 | ...
//! entry: | sequence | kind, record | ino | birth | a | b | lane | crc32c, applied |
//! append:    a = the run's name, b = its length after the append
//! overwrite: a = file offset, b = length; the bytes are in lane `lane` of the data file
//! ```
//!
//! An entry is valid if its checksum is right and its sequence number is not below the header's
//! `first`. The tail is in DRAM only: the writer of an entry takes a place by one atomic addition.
//! A full log begins anew after a checkpoint: everything staged is relinked, then `first` moves on.
//!
//! An overwrite goes to a lane of the data file first, then its entry, then its place; after that
//! the entry is marked *applied*, before the call returns: so a replay never undoes a later write
//! of another process. Nor one after this process's death: the shared table says that an overwrite
//! of the file is under way, from before its entry until after that mark, and a process that writes
//! to the file replays a dead process's log first.
//!
//! Replaying is idempotent: an append sets a length that its record has or lacks; an overwrite
//! stores the same bytes again, and is marked applied by the process that replayed it. A log whose
//! header is wrong, or that another version wrote, stays as it is and is reported.
//!
//! PERSIST: lane, fence, entry, fence (the commit), file, fence, mark, fence. An append's bytes are
//! fenced by the caller before its entry.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{
    Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

use pmem::{Fault, OpenOptions, Region, UserIn};
use rustix::fs::OFlags;
use rustix::io::Errno;
use window::Window;

use crate::Result;
use crate::file::{File, length_in};
use crate::grow::Run;
use crate::hidden_directory::Home;
use crate::internal_descriptors::{HiddenFd, ReservedNumber};
use crate::records::{Owner, opened, sealed};

const MAGIC: u64 = u64::from_le_bytes(*b"SolLog\x02\0");
const ENTRY: u64 = 64;
/// Lanes of the data file: so many overwrites are under way at once.
const LANES: usize = 8;
/// Bytes of a lane: the largest overwrite that is atomic, with the file's path in front of it.
const LANE_BYTES: u64 = 16 << 20;
const PATH_BYTES: usize = 4096;
/// What an append is.
const APPEND: u64 = 1;
const OVERWRITE: u64 = 2;
const APPLIED: u64 = 1 << 32;

/// An entry, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    sequence: u64,
    kind: u64,
    record: u64,
    ino: u64,
    birth: u64,
    first: u64,
    second: u64,
    lane: u64,
}

impl Entry {
    fn line(&self) -> [u8; ENTRY as usize] {
        let words = [
            self.sequence,
            self.kind | self.record << 32,
            self.ino,
            self.birth,
            self.first,
            self.second,
            self.lane,
        ];
        let mut line = [0; ENTRY as usize];
        for (place, word) in line.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let check = u64::from(crc32c::crc32c(&line[..56]));
        line[56..].copy_from_slice(&check.to_le_bytes());
        line
    }

    /// The entry of a line; `None`: torn or empty. Whether it was applied.
    fn from_line(line: &[u8]) -> Option<(Self, bool)> {
        let word = |index: usize| {
            u64::from_le_bytes(line[index * 8..index * 8 + 8].try_into().unwrap_or_default())
        };
        let (check, kind) = (word(7), word(1));
        if kind == 0 || check as u32 != crc32c::crc32c(&line[..56]) {
            return None;
        }
        let entry = Self {
            sequence: word(0),
            kind: kind & 0xffff_ffff,
            record: kind >> 32,
            ino: word(2),
            birth: word(3),
            first: word(4),
            second: word(5),
            lane: word(6),
        };
        Some((entry, check & APPLIED != 0))
    }
}

fn name(slot: u32) -> String {
    format!("log.{slot}")
}

fn data_name(slot: u32) -> String {
    format!("data.{slot}")
}

/// The names of a slot's log files.
pub fn names(slot: u32) -> [String; 2] {
    [name(slot), data_name(slot)]
}

/// Removes the log files of this process's slot; whether none is there any more.
pub fn remove(home: &Home) -> bool {
    names(home.slot()).map(|name| home.has_removed(&name)) == [true; 2]
}

/// One process's log.
pub struct Log {
    /// Of the region's file. Dropped before it.
    _number: ReservedNumber,
    region: Region,
    data: Window,
    _data_file: HiddenFd,
    capacity: u64,
    first: AtomicU64,
    tail: AtomicU64,
    logged: AtomicU64,
    checkpoints: AtomicU64,
    lanes: [Mutex<()>; LANES],
    gate: RwLock<()>,
}

/// An overwrite is in the log; its lane is kept until it is applied.
pub struct LoggedOverwrite<'a> {
    log: &'a Log,
    home: &'a Home,
    entry: Entry,
    at: u64,
    _lane: MutexGuard<'a, ()>,
}

impl LoggedOverwrite<'_> {
    /// The bytes are in their place, and fenced.
    pub fn applied(self) {
        let line = self.entry.line();
        let check = u64::from_le_bytes(line[56..].try_into().unwrap_or_default());
        // A log that was cut is of no use.
        if let Ok(dirty) = self.log.region.store64(self.at + 56, check | APPLIED) {
            let _ = dirty.flush().fence();
        }
    }
}

impl Drop for LoggedOverwrite<'_> {
    fn drop(&mut self) {
        self.home.records.unmark(self.home.slot(), self.entry.lane as usize, self.entry.ino);
    }
}

impl Log {
    /// Makes the log of this process: sparse files, whose blocks come as they are used.
    pub fn create(home: &Home, bytes: u64) -> Result<Self> {
        let file = home.open_file(&name(home.slot()), OFlags::CREATE | OFlags::TRUNC)?;
        rustix::fs::ftruncate(&file, bytes)?;
        // Flushed as windows are, also on tmpfs: what --emulate promises is what DAX would.
        let options =
            OpenOptions { write: true, flushed: true, allow_page: true, ..OpenOptions::default() };
        let path = home.prefix.join(crate::HOME_NAME).join(name(home.slot()));
        let region = Region::adopt(file, &path, &options).map_err(|error| error.errno())?;
        let data = home.open_file(&data_name(home.slot()), OFlags::CREATE | OFlags::TRUNC)?;
        home.records.begin_marks(home.slot());
        let data_bytes = LANE_BYTES * LANES as u64;
        rustix::fs::ftruncate(&data, data_bytes)?;
        let window = Window::map(data.as_fd(), 0, data_bytes as usize, true, home.direct)?;
        Self::on(region, window, HiddenFd::new(data))
    }

    /// A log on a region of zeros.
    fn on(region: Region, data: Window, data_file: HiddenFd) -> Result<Self> {
        let capacity = region.len() / ENTRY - 1;
        let _ = region.store64(8, sealed(1, MAGIC)).map_err(|_| Errno::IO)?;
        let _ = region.store64(0, MAGIC).map_err(|_| Errno::IO)?;
        let _ = region.flush(0, ENTRY).fence();
        Ok(Self {
            _number: ReservedNumber::new(region.fd()),
            region,
            data,
            _data_file: data_file,
            capacity,
            first: AtomicU64::new(1),
            tail: AtomicU64::new(0),
            logged: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            lanes: [const { Mutex::new(()) }; LANES],
            gate: RwLock::new(()),
        })
    }

    /// Held while a write is under way: no checkpoint begins.
    pub fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held while no write is under way, as long as there is the log.
    pub fn close(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes an entry; gives its place. `ENOSPC`: the log is full.
    fn write(&self, mut entry: Entry) -> Result<(Entry, u64)> {
        let index = self.tail.fetch_add(1, Ordering::AcqRel);
        if index >= self.capacity {
            return Err(Errno::NOSPC);
        }
        entry.sequence = self.first.load(Ordering::Acquire) + index;
        let at = (index + 1) * ENTRY;
        let flight = self.region.write_line(at, &entry.line()).map_err(|_| Errno::NOSPC)?;
        let _ = flight.fence();
        self.logged.fetch_add(1, Ordering::Relaxed);
        Ok((entry, at))
    }

    /// An append's bytes are durable, and `run` has its new length.
    pub fn append(&self, run: &Run) -> Result<()> {
        self.note_append(run.record, run.owner, run.length)
    }

    /// As above.
    pub fn note_append(&self, record: usize, owner: Owner, length: u64) -> Result<()> {
        let entry = Entry {
            sequence: 0,
            kind: APPEND,
            record: record as u64,
            ino: 0,
            birth: 0,
            first: owner.0,
            second: length,
            lane: 0,
        };
        self.write(entry).map(drop)
    }

    fn lane(&self) -> (usize, MutexGuard<'_, ()>) {
        for (index, lane) in self.lanes.iter().enumerate() {
            match lane.try_lock() {
                Ok(guard) => return (index, guard),
                Err(TryLockError::Poisoned(poisoned)) => return (index, poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        (0, self.lanes[0].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Logs the bytes that are about to be stored at `offset` of `file`; `None`: they are too many,
    /// or there is no room.
    pub fn overwrite<'a>(
        &'a self,
        home: &'a Home,
        file: &File,
        offset: u64,
        from: &[UserIn<'_>],
    ) -> std::result::Result<Option<LoggedOverwrite<'a>>, Fault> {
        let length = length_in(from);
        if length as u64 + PATH_BYTES as u64 > LANE_BYTES {
            return Ok(None);
        }
        let (lane, guard) = self.lane();
        let start = lane * LANE_BYTES as usize;
        let path = &file.path[..file.path.len().min(PATH_BYTES - 1)];
        let mut head = path.to_vec();
        head.push(0);
        let mut at = start + PATH_BYTES;
        self.data.stream(start, &UserIn::new(&head))?;
        for piece in from {
            self.data.stream(at, piece)?;
            at += piece.len();
        }
        pmem::fence();
        let entry = Entry {
            sequence: 0,
            kind: OVERWRITE,
            record: 0,
            ino: file.ino,
            birth: file.birth,
            first: offset,
            second: length as u64,
            lane: lane as u64,
        };
        home.records.mark(home.slot(), lane, file.ino);
        if let Ok((entry, at)) = self.write(entry) {
            return Ok(Some(LoggedOverwrite { log: self, home, entry, at, _lane: guard }));
        }
        home.records.unmark(home.slot(), lane, file.ino);
        Ok(None)
    }

    /// Whether a checkpoint is due.
    pub fn is_filling(&self) -> bool {
        self.tail.load(Ordering::Relaxed) >= self.capacity - self.capacity / 8
    }

    /// Runs `drain` while no write is under way; if all is in its place then, the log begins anew.
    pub fn checkpoint(&self, drain: impl FnOnce() -> Result<()>) {
        let _gate = self.close();
        if !self.is_filling() || drain().is_err() {
            return;
        }
        let used = self.tail.load(Ordering::Acquire).min(self.capacity);
        let first = self.first.load(Ordering::Acquire) + used;
        // PERSIST: one word; from here on the old entries do not count.
        if let Ok(dirty) = self.region.store64(8, sealed(first, MAGIC)) {
            let _ = dirty.flush().fence();
            self.first.store(first, Ordering::Release);
            self.tail.store(0, Ordering::Release);
            self.checkpoints.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Entries and checkpoints so far.
    pub fn usage(&self) -> (u64, u64) {
        (self.logged.load(Ordering::Relaxed), self.checkpoints.load(Ordering::Relaxed))
    }
}

/// What a dead process's log asks for, oldest first.
pub enum Redo {
    /// The run `owner` of a record was at least so long.
    Append {
        /// The record.
        record: usize,
        /// The run's name.
        owner: u64,
        /// Its length.
        length: u64,
    },
    /// These bytes belong at an offset of a file.
    Overwrite {
        /// The file's inode number.
        ino: u64,
        /// When it was made.
        birth: u64,
        /// Where it was.
        path: Vec<u8>,
        /// Where they belong.
        offset: u64,
        /// They.
        bytes: Vec<u8>,
    },
}

/// Reads the log of a slot whose process is dead; gives the number of valid entries. `each` says
/// whether it could be done again now; an overwrite that could is marked applied. `EUCLEAN`: it is
/// damaged; `EPROTO`: another version wrote it.
pub fn replay(home: &Home, slot: u32, each: &mut dyn FnMut(Redo) -> Result<()>) -> Result<u64> {
    let file = match home.open_file(&name(slot), OFlags::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(0),
        Err(errno) => return Err(errno),
    };
    let Some(first) = first_of(&file)? else { return Ok(0) };
    let mut buffer = vec![0; 1 << 20];
    let (mut at, mut valid) = (ENTRY, 0);
    loop {
        let got = rustix::io::pread(&file, &mut buffer[..], at)?;
        let lines = buffer[..got].chunks_exact(ENTRY as usize);
        for (index, line) in ((at / ENTRY) - 1..).zip(lines) {
            if let Some((entry, applied)) = Entry::from_line(line)
                && entry.sequence == first + index
            {
                valid += 1;
                match entry.kind {
                    APPEND => each(Redo::Append {
                        record: entry.record as usize,
                        owner: entry.first,
                        length: entry.second,
                    })?,
                    OVERWRITE if applied => {}
                    OVERWRITE => {
                        each(overwrite_of(home, slot, &entry)?)?;
                        mark_applied(home, &file, (index + 1) * ENTRY, line)?;
                    }
                    _ => return Err(Errno::PROTO),
                }
            }
        }
        if got < ENTRY as usize {
            return Ok(valid);
        }
        at += got as u64 / ENTRY * ENTRY;
    }
}

/// The first sequence number that counts; `None`: the log was never begun.
fn first_of(file: &OwnedFd) -> Result<Option<u64>> {
    let mut head = [0; 2 * ENTRY as usize];
    let got = rustix::io::pread(file, &mut head, 0)?;
    let (header, entry) = head.split_at(ENTRY as usize);
    // CRASH: the magic comes last, and no entry before it.
    if header[..8] == [0; 8] && entry.iter().all(|&byte| byte == 0) {
        return Ok(None);
    }
    if got < header.len() || header[..8] != MAGIC.to_le_bytes() {
        let ours = header[..6] == MAGIC.to_le_bytes()[..6];
        return Err(if ours { Errno::PROTO } else { Errno::UCLEAN });
    }
    let first = u64::from_le_bytes(header[8..16].try_into().unwrap_or_default());
    opened(first, MAGIC).map(Some).ok_or(Errno::UCLEAN)
}

/// CRASH: the bytes are in their place, for good. Without the mark a later recovery would store
/// them once more, over what another process may have written meanwhile.
fn mark_applied(home: &Home, file: &OwnedFd, at: u64, line: &[u8]) -> Result<()> {
    let check = u64::from_le_bytes(line[56..64].try_into().unwrap_or_default());
    if rustix::io::pwrite(file, &(check | APPLIED).to_le_bytes(), at + 56)? != 8 {
        return Err(Errno::IO);
    }
    if home.direct { rustix::fs::fdatasync(file) } else { Ok(()) }
}

/// What an entry says of an overwrite, with its bytes.
fn overwrite_of(home: &Home, slot: u32, entry: &Entry) -> Result<Redo> {
    if entry.lane >= LANES as u64 || entry.second > LANE_BYTES - PATH_BYTES as u64 {
        return Err(Errno::UCLEAN);
    }
    let data = home.open_file(&data_name(slot), OFlags::empty())?;
    let start = entry.lane * LANE_BYTES;
    let mut path = vec![0; PATH_BYTES];
    rustix::io::pread(&data, &mut path[..], start)?;
    path.truncate(path.iter().position(|&byte| byte == 0).unwrap_or(PATH_BYTES));
    let mut bytes = vec![0; entry.second as usize];
    let mut done = 0;
    while done < bytes.len() {
        let from = start + (PATH_BYTES + done) as u64;
        match rustix::io::pread(&data, &mut bytes[done..], from)? {
            0 => return Err(Errno::UCLEAN),
            got => done += got,
        }
    }
    Ok(Redo::Overwrite { ino: entry.ino, birth: entry.birth, path, offset: entry.first, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_comes_back_and_a_torn_one_does_not() {
        let entry = Entry {
            sequence: 7,
            kind: OVERWRITE,
            record: 3,
            ino: 11,
            birth: 12,
            first: 13,
            second: 14,
            lane: 5,
        };
        let line = entry.line();
        assert_eq!(Entry::from_line(&line), Some((entry, false)));
        let mut marked = line;
        marked[60] |= 1;
        assert_eq!(Entry::from_line(&marked), Some((entry, true)));
        for byte in 0..60 {
            let mut torn = line;
            torn[byte] ^= 0x40;
            assert_eq!(Entry::from_line(&torn), None, "byte {byte}");
        }
        assert_eq!(Entry::from_line(&[0; 64]), None);
    }

    /// Killed between the stores of its header a log is empty; with entries it has lost its magic.
    #[test]
    fn a_log_without_magic_is_one_that_was_never_begun() {
        let file =
            rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        let put = |at, word: u64| {
            let wrote = rustix::io::pwrite(&file, &word.to_le_bytes(), at);
            assert_eq!(wrote, Ok(8));
        };
        assert_eq!(first_of(&file), Ok(None));
        rustix::fs::ftruncate(&file, 1 << 16).expect("its length");
        assert_eq!(first_of(&file), Ok(None));
        put(8, sealed(1, MAGIC));
        assert_eq!(first_of(&file), Ok(None));
        put(ENTRY, 1);
        assert_eq!(first_of(&file), Err(Errno::UCLEAN));
        put(0, MAGIC);
        assert_eq!(first_of(&file), Ok(Some(1)));
    }
}
