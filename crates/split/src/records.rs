//! The shared table: one record for each file that has staged bytes, and the slots of processes.
//!
//! It lies in the file `records`, mapped by every process of the engine. A record says all that is
//! needed to relink what a process staged, whether that process lives or not. So a write that
//! returned survives its process, and a process that would miss staged bytes can fetch them.
//!
//! ```text
//! | header 64 | slots 8 x 256 | ... | marks 16 x 256 | records 256 x 2047 |
//! record: | key (ino) | lock | owner | base | length | at | birth | flags | check | path 184 |
//! ```
//!
//! What a record says is checked before anything is done by it: `base`, `length` and `flags`, which
//! change by single stores, carry 16 bits of check each, keyed by `owner`; `check` is that of all
//! that does not change while a run lasts. A damaged record stays as it is, and is reported.
//!
//! The process that makes a record writes `key`, from 0 (compare-and-swap); all else is written by
//! the holder of `lock` (a slot + 1). `owner` names the run: slot, staging file and a sequence
//! number, never reused; 0: the record speaks of nothing. A run's owner compares it before it
//! stages more.
//!
//! A slot's mark tells which overwrites of its process are under way (strict): a byte for each, of
//! the inode number. Before a process writes to such a file, it finishes the overwrite of a process
//! that is dead.
//!
//! Where the file system does not map with `MAP_SYNC`, the kernel decides when the table reaches
//! the medium, so it is of no use after a power cut: it carries the boot in which it was begun, and
//! in another one it begins anew.
//!
//! PERSIST: where writes are durable at return, a record's first line is flushed before the first
//! byte counts (`base`, `at`, `birth`, path, then `owner`), and `length` moves after a fence that
//! follows the bytes: 8 bytes, one store. The first 64 bytes are one cache line.

use std::os::fd::OwnedFd;
use std::path::Path;

use pmem::{Class, OpenOptions, Region};
use rustix::io::Errno;

use crate::Result;
use crate::internal_descriptors::ReservedNumber;

const MAGIC: u64 = u64::from_le_bytes(*b"SolSpl\x03\0");
/// The bytes of it that tell what it is; the rest tells which version.
const FAMILY: u64 = (1 << 48) - 1;
const HEADER_BYTES: u64 = 8192;
const SLOTS: u32 = 256;
const SLOTS_AT: u64 = 64;
const MARKS_AT: u64 = 4096;
/// Four processes share a line.
const MARK_BYTES: u64 = 16;
const RECORD_BYTES: u64 = 256;
const RECORDS: usize = 2047;
const CHECK_AT: u64 = 64;
const PATH_AT: u64 = 72;
const PATH_BYTES: usize = (RECORD_BYTES - PATH_AT) as usize;
/// Records that a file may have its place in.
const PROBES: usize = 32;
const TABLE_BYTES: u64 = HEADER_BYTES + RECORD_BYTES * RECORDS as u64;

/// Words of the header.
const STAGED: u64 = 8;
const SEQUENCE: u64 = 16;
const BACKEND: u64 = 24;
const BOOT: u64 = 32;
const MARKING: u64 = 40;
/// In the word of a slot: its process is dead, and another one recovers it.
const RECOVERING: u64 = 1 << 63;
/// A record cannot hold offsets and lengths from here on.
pub const OFFSETS: u64 = 1 << 48;
const _: () = assert!(SLOTS_AT + SLOTS as u64 * 8 <= MARKS_AT);
const _: () = assert!(MARKS_AT + SLOTS as u64 * MARK_BYTES <= HEADER_BYTES);

/// Words of a record.
#[derive(Clone, Copy)]
pub enum Word {
    /// The inode number; 0: free.
    Key = 0,
    /// Its holder: slot + 1.
    Lock = 8,
    /// The run.
    Owner = 16,
    /// The file offset of the first staged byte.
    Base = 24,
    /// How many are staged.
    Length = 32,
    /// Where the first one lies in the staging file.
    At = 40,
    /// When the file was made.
    Birth = 48,
    /// See [`DRAINING`], [`APPENDING`] and [`BOOTS`].
    Flags = 56,
}

impl Word {
    /// Whether it carries a check.
    const fn is_sealed(self) -> bool {
        matches!(self, Self::Base | Self::Length | Self::Flags)
    }
}

/// The bytes are being moved: all or part of them may be at their place.
pub const DRAINING: u64 = 1;
/// They were written with `O_APPEND`: they belong at the end, wherever that is by now.
pub const APPENDING: u64 = 2;
/// The flags of a run whose base may be a length that no power cut keeps: in which boot it began.
pub const BOOTS: u64 = (OFFSETS - 1) & !0xffff;

/// Those of a boot.
pub fn of_boot(boot: u64) -> u64 {
    boot << 16 & BOOTS
}

/// The name of a run: its process's slot, its staging file, its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner(pub u64);

impl Owner {
    /// Slot of the process.
    pub fn slot(self) -> u32 {
        (self.0 & 0xff) as u32
    }

    /// Number of the staging file.
    pub fn staging(self) -> u32 {
        (self.0 >> 8 & 0xff_ffff) as u32
    }
}

/// A word with its check in the upper 16 bits.
pub fn sealed(value: u64, key: u64) -> u64 {
    let mixed = (value ^ key.rotate_left(23)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value & (OFFSETS - 1) | (mixed ^ mixed << 21) & !(OFFSETS - 1)
}

/// The value of such a word; `None`: it is damaged.
pub fn opened(word: u64, key: u64) -> Option<u64> {
    let value = word & (OFFSETS - 1);
    (sealed(value, key) == word).then_some(value)
}

/// The check of what does not change while a run lasts.
fn check(ino: u64, staged: &Staged) -> u64 {
    let words = [ino, staged.owner.0, staged.at, staged.birth, staged.flags & !DRAINING];
    let mut bytes = [0; 40];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    u64::from(crc32c::crc32c(&bytes))
}

/// What a record says.
#[derive(Clone, Copy, Debug)]
pub struct Staged {
    /// The run.
    pub owner: Owner,
    /// The file offset of its first byte.
    pub base: u64,
    /// Its length.
    pub length: u64,
    /// Where it starts in the staging file.
    pub at: u64,
    /// When the file was made.
    pub birth: u64,
    /// Flags.
    pub flags: u64,
}

/// The table.
pub struct Records {
    /// Of the region's file. Dropped before it.
    _number: ReservedNumber,
    region: Region,
}

impl Records {
    /// Maps the table, which is empty if the file was just made.
    pub fn open(fd: OwnedFd, path: &Path) -> Result<Self> {
        let size = rustix::fs::fstat(&fd)?.st_size as u64;
        if size > 0 && size < TABLE_BYTES {
            let mut magic = [0; 8];
            let whole = rustix::io::pread(&fd, &mut magic, 0)? == magic.len();
            let found = u64::from_le_bytes(magic);
            // A table of another version may be smaller; it is not damaged.
            let other = whole && found != MAGIC && found & FAMILY == MAGIC & FAMILY;
            return Err(if other { Errno::PROTO } else { Errno::UCLEAN });
        }
        if size == 0 {
            // Several processes may do so at once: zeros are an empty table.
            rustix::fs::ftruncate(&fd, TABLE_BYTES)?;
        }
        // Flushed as windows are, also on tmpfs: what --emulate promises is what DAX would.
        let options =
            OpenOptions { write: true, flushed: true, allow_page: true, ..OpenOptions::default() };
        let region = Region::adopt(fd, path, &options).map_err(|error| error.errno())?;
        Self::on(region)
    }

    /// A table on a region of at least its size.
    pub fn on(region: Region) -> Result<Self> {
        let load = |at: u64| region.shared_load(at).map_err(|_| Errno::IO);
        let used = load(SEQUENCE)? | load(BACKEND)? | load(SLOTS_AT)?;
        // The magic, stored first, is looked at last.
        if used != 0 && load(0)? == 0 {
            return Err(Errno::UCLEAN);
        }
        let found = region.shared_cas(0, 0, MAGIC).map_err(|_| Errno::IO)?;
        match found {
            Err(found) if found != MAGIC && found & FAMILY == MAGIC & FAMILY => Err(Errno::PROTO),
            Err(found) if found != MAGIC => Err(Errno::UCLEAN),
            _ => {
                let table = Self { _number: ReservedNumber::new(region.fd()), region };
                if table.is_direct() {
                    // PERSIST: before any slot or record: a table that has these and no magic is
                    // damaged.
                    let _ = table.region.flush(0, 64).fence();
                }
                Ok(table)
            }
        }
    }

    /// Whether a fence makes stores durable.
    pub fn is_direct(&self) -> bool {
        matches!(self.region.class(), Class::Byte | Class::CacheLine)
    }

    fn load(&self, at: u64) -> u64 {
        // A table that was cut speaks of nothing.
        self.region.shared_load(at).unwrap_or(0)
    }

    fn store(&self, at: u64, value: u64) {
        // As above: then only their owner finds the staged bytes.
        let _ = self.region.shared_store(at, value);
    }

    const fn place(record: usize, word: Word) -> u64 {
        HEADER_BYTES + record as u64 * RECORD_BYTES + word as u64
    }

    /// A word of a record, without its check.
    pub fn get(&self, record: usize, word: Word) -> u64 {
        let found = self.load(Self::place(record, word));
        if word.is_sealed() { found & (OFFSETS - 1) } else { found }
    }

    /// The word that holds `value`, with its check.
    fn held(&self, record: usize, word: Word, value: u64) -> u64 {
        let key = || self.get(record, Word::Owner) ^ (word as u64) << 56;
        if word.is_sealed() { sealed(value, key()) } else { value }
    }

    /// Sets one; the record is locked.
    pub fn set(&self, record: usize, word: Word, value: u64) {
        self.store(Self::place(record, word), self.held(record, word, value));
    }

    /// Makes a record's lines durable.
    pub fn persist(&self, record: usize) {
        let flight = self.region.flush(Self::place(record, Word::Key), RECORD_BYTES);
        let _ = flight.fence();
    }

    /// Sets the length of a run by one durable store.
    pub fn persist_length(&self, record: usize, length: u64) {
        let held = self.held(record, Word::Length, length);
        if let Ok(dirty) = self.region.store64(Self::place(record, Word::Length), held) {
            let _ = dirty.flush().fence();
        }
    }

    /// Says all of a run that begins; the record is locked, and speaks of nothing until the last
    /// store.
    pub fn fill(&self, record: usize, ino: u64, staged: &Staged, path: &[u8]) {
        let owner = staged.owner.0;
        let words = [
            (Word::Base, staged.base),
            (Word::Length, staged.length),
            (Word::At, staged.at),
            (Word::Birth, staged.birth),
            (Word::Flags, staged.flags),
        ];
        for (word, value) in words {
            let key = owner ^ (word as u64) << 56;
            let held = if word.is_sealed() { sealed(value, key) } else { value };
            self.store(Self::place(record, word), held);
        }
        self.store(Self::place(record, Word::Key) + CHECK_AT, check(ino, staged));
        self.set_path(record, path);
        self.store(Self::place(record, Word::Owner), owner);
    }

    /// Takes the lock from `holder` (0: it is free) for `me`; `Err`: its holder.
    pub fn try_lock(&self, record: usize, holder: u64, me: u64) -> std::result::Result<(), u64> {
        match self.region.shared_cas(Self::place(record, Word::Lock), holder, me) {
            Ok(Ok(_)) | Err(_) => Ok(()),
            Ok(Err(found)) => Err(found),
        }
    }

    /// Gives it back.
    pub fn unlock(&self, record: usize) {
        self.set(record, Word::Lock, 0);
    }

    /// Unlocks all records whose holder's slot is one of these; no process else does.
    pub fn unlock_where(&self, mut is_gone: impl FnMut(u32) -> bool) {
        for record in 0..RECORDS {
            let holder = self.get(record, Word::Lock);
            if holder != 0
                && is_gone((holder as u32).wrapping_sub(1))
                && self.try_lock(record, holder, u64::MAX).is_ok()
            {
                self.unlock(record);
            }
        }
    }

    /// Unlocks all records of `holder`, which is dead.
    pub fn unlock_all_of(&self, holder: u64) {
        for record in 0..RECORDS {
            if self.get(record, Word::Lock) == holder {
                self.unlock(record);
            }
        }
    }

    /// What a record says; `None`: nothing. `EUCLEAN`: it is damaged. Locked.
    pub fn staged(&self, record: usize, ino: u64) -> Result<Option<Staged>> {
        let owner = Owner(self.get(record, Word::Owner));
        if self.get(record, Word::Key) != ino || owner.0 == 0 {
            return Ok(None);
        }
        let whole = |word: Word| {
            let found = self.load(Self::place(record, word));
            opened(found, owner.0 ^ (word as u64) << 56).ok_or(Errno::UCLEAN)
        };
        let staged = Staged {
            owner,
            base: whole(Word::Base)?,
            length: whole(Word::Length)?,
            at: self.get(record, Word::At),
            birth: self.get(record, Word::Birth),
            flags: whole(Word::Flags)?,
        };
        // CRASH: the second line may be lost while nothing is staged yet.
        let found = self.load(Self::place(record, Word::Key) + CHECK_AT);
        if staged.length > 0 && found != check(ino, &staged) {
            return Err(Errno::UCLEAN);
        }
        Ok(Some(staged))
    }

    /// Whether a record that is damaged names another slot, and that name is right: words are keyed
    /// by it.
    pub fn is_of_other(&self, record: usize, slot: u32) -> bool {
        let owner = self.get(record, Word::Owner);
        let keyed = |&word: &Word| {
            opened(self.load(Self::place(record, word)), owner ^ (word as u64) << 56).is_some()
        };
        Owner(owner).slot() != slot && [Word::Base, Word::Length, Word::Flags].iter().any(keyed)
    }

    fn places(ino: u64) -> impl Iterator<Item = usize> {
        let start = (ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        (0..PROBES).map(move |probe| (start + probe) % RECORDS)
    }

    /// The record of a file.
    pub fn find(&self, ino: u64) -> Option<usize> {
        Self::places(ino).find(|&record| self.get(record, Word::Key) == ino)
    }

    /// Claims a free record for a file, and locks it for `me`; `None`: there is no room, or the
    /// file has one.
    pub fn claim(&self, ino: u64, me: u64) -> Option<usize> {
        let free = |&record: &usize| {
            if self.get(record, Word::Key) != 0 || self.try_lock(record, 0, me).is_err() {
                return false;
            }
            let free = self.get(record, Word::Key) == 0;
            if !free {
                self.unlock(record);
            }
            free
        };
        if self.find(ino).is_some() {
            return None;
        }
        let record = Self::places(ino).find(free)?;
        // CRASH: a count that is too high costs looks, one that is too low hides what is staged.
        let _ = self.region.shared_add(STAGED, 1);
        self.set(record, Word::Key, ino);
        // Two processes may have claimed two records at once: then neither stays, and the kernel
        // appends.
        if Self::places(ino).all(|at| at == record || self.get(at, Word::Key) != ino) {
            return Some(record);
        }
        self.free(record);
        self.unlock(record);
        None
    }

    /// Frees a record: it speaks of nothing any more. Locked.
    pub fn free(&self, record: usize) {
        for word in [Word::Owner, Word::Length, Word::Flags] {
            self.store(Self::place(record, word), 0);
        }
        if self.get(record, Word::Key) != 0 {
            self.set(record, Word::Key, 0);
            let _ = self.region.shared_add(STAGED, 1_u64.wrapping_neg());
        }
    }

    /// How many records there are: a hint.
    pub fn count(&self) -> u64 {
        self.load(STAGED)
    }

    /// A new run's name.
    pub fn new_owner(&self, slot: u32, staging: u32) -> Owner {
        let sequence = self.region.shared_add(SEQUENCE, 1).unwrap_or(0).wrapping_add(1);
        Owner(u64::from(slot) | u64::from(staging & 0xff_ffff) << 8 | sequence << 32)
    }

    /// Whether there is such a record.
    #[allow(clippy::unused_self)] // A property of the table.
    pub fn holds(&self, record: usize) -> bool {
        record < RECORDS
    }

    /// All records that speak of a run, or might.
    pub fn all(&self) -> impl Iterator<Item = usize> {
        (0..RECORDS).filter(|&record| {
            self.get(record, Word::Key) != 0 || self.get(record, Word::Owner) != 0
        })
    }

    /// Where the file was when its run began; empty if that is too long to say.
    pub fn path(&self, record: usize) -> Vec<u8> {
        let mut text = [0; PATH_BYTES];
        let at = Self::place(record, Word::Key) + PATH_AT;
        if self.region.read(at, &mut text).is_err() {
            return Vec::new();
        }
        text.iter().copied().take_while(|&byte| byte != 0).collect()
    }

    /// Says where; locked.
    pub fn set_path(&self, record: usize, path: &[u8]) {
        let mut text = [0; PATH_BYTES];
        if path.len() < PATH_BYTES {
            text[..path.len()].copy_from_slice(path);
        }
        let _ = self.region.write(Self::place(record, Word::Key) + PATH_AT, &text);
    }

    /// How many slots there are.
    #[allow(clippy::unused_self)] // A property of the table.
    pub fn slots(&self) -> u32 {
        SLOTS
    }

    const fn slot_at(slot: u32) -> u64 {
        SLOTS_AT + slot as u64 * 8
    }

    /// 0: free; else the process that took it.
    pub fn slot_state(&self, slot: u32) -> u64 {
        self.load(Self::slot_at(slot))
    }

    /// Takes a free slot for this process, which holds its byte.
    pub fn claim_slot(&self, slot: u32) -> bool {
        let pid = rustix::process::getpid().as_raw_nonzero().get() as u64;
        let claimed =
            self.region.shared_cas(Self::slot_at(slot), 0, pid).is_ok_and(|it| it.is_ok());
        if claimed && self.is_direct() {
            let _ = self.region.flush(Self::slot_at(slot), 8).fence();
        }
        claimed
    }

    /// Takes the slot of a dead process that was recovered, whose byte this one holds.
    pub fn succeed_in_slot(&self, slot: u32) {
        let pid = rustix::process::getpid().as_raw_nonzero().get() as u64;
        self.store(Self::slot_at(slot), pid);
        if self.is_direct() {
            let _ = self.region.flush(Self::slot_at(slot), 8).fence();
        }
    }

    /// Frees a slot.
    pub fn free_slot(&self, slot: u32) {
        self.store(Self::slot_at(slot), 0);
        if self.is_direct() {
            let _ = self.region.flush(Self::slot_at(slot), 8).fence();
        }
    }

    /// Whether there are other processes than that of slot `own`.
    pub fn has_others(&self, own: u32) -> bool {
        (0..SLOTS).any(|slot| slot != own && self.slot_state(slot) != 0)
    }

    /// The process that took a slot.
    pub fn slot_process(&self, slot: u32) -> u64 {
        self.slot_state(slot) & !RECOVERING
    }

    /// Says whether a process recovers a slot, whose byte is held.
    pub fn set_recovering(&self, slot: u32, recovering: bool) {
        let process = self.slot_process(slot);
        let mark = if recovering { RECOVERING } else { 0 };
        self.store(Self::slot_at(slot), process | mark);
    }

    /// Whether a process recovers it, or died doing so.
    pub fn is_recovering(&self, slot: u32) -> bool {
        self.slot_state(slot) & RECOVERING != 0
    }

    /// A slot's process is going to mark what it overwrites.
    pub fn begin_marks(&self, slot: u32) {
        self.store(Self::mark_at(slot), 0);
        let end = u64::from(slot) + 1;
        let mut found = self.load(MARKING);
        while found < end
            && let Ok(Err(now)) = self.region.shared_cas(MARKING, found, end)
        {
            found = now;
        }
    }

    const fn mark_at(slot: u32) -> u64 {
        MARKS_AT + slot as u64 * MARK_BYTES
    }

    /// What marks a file.
    fn mark_of(ino: u64) -> u8 {
        (ino.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1
    }

    /// An overwrite of a file is under way, in one of a slot's eight lanes. Adding and taking away
    /// leave the other lanes alone.
    pub fn mark(&self, slot: u32, lane: usize, ino: u64) {
        let _ = self
            .region
            .shared_add(Self::mark_at(slot), u64::from(Self::mark_of(ino)) << (lane * 8));
    }

    /// It is done.
    pub fn unmark(&self, slot: u32, lane: usize, ino: u64) {
        let mark = u64::from(Self::mark_of(ino)) << (lane * 8);
        let _ = self.region.shared_add(Self::mark_at(slot), mark.wrapping_neg());
    }

    /// A dead process's overwrites are done.
    pub fn clear_marks(&self, slot: u32) {
        self.store(Self::mark_at(slot), 0);
    }

    /// Slots but `own` whose processes may be overwriting a file just now, or died doing so.
    #[inline]
    pub fn overwriting(&self, ino: u64, own: u32) -> impl Iterator<Item = u32> {
        let end = self.load(MARKING).min(u64::from(SLOTS)) as u32;
        let mark = Self::mark_of(ino);
        (0..end).filter(move |&slot| {
            slot != own && self.load(Self::mark_at(slot)).to_le_bytes().contains(&mark)
        })
    }

    /// Whether any are.
    pub fn any_overwriting(&self, own: u32) -> bool {
        let end = self.load(MARKING).min(u64::from(SLOTS)) as u32;
        (0..end).any(|slot| slot != own && self.load(Self::mark_at(slot)) != 0)
    }

    /// Counts the records after a power cut, if the count is still `before`, as read before no
    /// other process was seen: one that came since and staged anything raised the count before its
    /// record was there.
    pub fn count_anew(&self, before: u64) {
        let _ = self.region.shared_cas(STAGED, before, self.all().count() as u64);
    }

    /// The boot of the kernel (its number) in which the table was last begun; 0: none yet.
    pub fn boot(&self) -> u64 {
        self.load(BOOT)
    }

    /// Begins anew in another boot: no record, no slot.
    pub fn begin_anew(&self, boot: u64) {
        for record in 0..RECORDS {
            self.free(record);
            self.unlock(record);
        }
        for slot in 0..SLOTS {
            self.free_slot(slot);
            self.clear_marks(slot);
        }
        self.store(STAGED, 0);
        self.store(BOOT, boot);
    }

    /// The relink backend that was probed, as its number; 0: none yet.
    pub fn backend(&self) -> u64 {
        self.load(BACKEND)
    }

    /// Notes it.
    pub fn set_backend(&self, number: u64) {
        self.store(BACKEND, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestDir;

    /// A table of another version is refused as that, also where it is smaller; it is not damaged.
    #[test]
    fn a_table_of_another_version_is_not_damaged() {
        let directory = TestDir::new("version");
        let path = directory.join("records");
        let mut table = vec![0; HEADER_BYTES as usize + 100];
        table[..8].copy_from_slice(b"SolSpl\x02\0");
        let open = |table: &[u8]| {
            std::fs::write(&path, table).expect("a table");
            let file = std::fs::File::options().read(true).write(true).open(&path);
            Records::open(file.expect("it").into(), &path).map(|_| ())
        };
        assert_eq!(open(&table), Err(Errno::PROTO));
        table.resize(TABLE_BYTES as usize, 0);
        assert_eq!(open(&table), Err(Errno::PROTO));
        table[6] = 3;
        assert_eq!(open(&table), Ok(()));
        table.truncate(HEADER_BYTES as usize);
        assert_eq!(open(&table), Err(Errno::UCLEAN));
        table[0] = 0;
        assert_eq!(open(&table), Err(Errno::UCLEAN));
    }
}
