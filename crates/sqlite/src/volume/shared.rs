//! The shared memory of a write-ahead log: the file `-shm` beside the database, as SQLite's `unix`
//! has it.
//!
//! Each connection has its own opening of it. The locks are of that opening, so they exclude the
//! connections of this process and of others alike: bytes 120 to 127, and byte 128, the dead man's
//! switch. The first connection takes that alone and empties the file; all hold it shared as long
//! as they have the memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flex::volumes::{Mapping, Names, OpenFile, Range, Seen};
use libsqlite3_sys::{
    SQLITE_BUSY, SQLITE_CANTOPEN, SQLITE_IOERR_LOCK, SQLITE_IOERR_SHMLOCK, SQLITE_IOERR_SHMMAP,
    SQLITE_IOERR_SHMOPEN, SQLITE_IOERR_SHMSIZE, SQLITE_OK, SQLITE_READONLY,
    SQLITE_READONLY_CANTINIT, SQLITE_SHM_SHARED, SQLITE_SHM_UNLOCK,
};
use rustix::io::Errno;

const LOCKS: u64 = 120;
const SWITCH: u64 = 128;
/// Address space for it: the index of 33 million pages of log.
const SPACE_BYTES: u64 = 256 << 20;
/// What `unix` leaves of a file that it empties.
const EMPTY_BYTES: u64 = 3;

/// An open `-shm`.
pub struct Shared {
    /// Before the file, which it is of.
    mapping: Mapping,
    file: Arc<dyn OpenFile>,
    path: PathBuf,
    is_read_only: bool,
    /// Nobody has the switch, and this opening may not initialize the memory.
    is_unlocked: bool,
}

impl Shared {
    /// Opens the one beside a database.
    pub fn open(names: &dyn Names, database: &Path, seen: &Seen) -> Result<Self, i32> {
        let mut path = database.as_os_str().to_owned();
        path.push("-shm");
        let path = PathBuf::from(path);
        let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let writable = names.open_like(&path, flags | libc::O_RDWR | libc::O_CREAT, seen);
        let (file, is_read_only) = match writable {
            Ok(file) => (file, false),
            Err(_) => (names.open(&path, flags, 0).map_err(|_| SQLITE_CANTOPEN)?, true),
        };
        let mapping = Mapping::new(&*file, SPACE_BYTES, !is_read_only);
        let mapping = mapping.map_err(|_| SQLITE_IOERR_SHMMAP)?;
        let mut shared = Self { mapping, file, path, is_read_only, is_unlocked: false };
        match shared.take_switch() {
            SQLITE_OK => Ok(shared),
            SQLITE_READONLY_CANTINIT => {
                shared.is_unlocked = true;
                Ok(shared)
            }
            code => Err(code),
        }
    }

    fn take_switch(&self) -> i32 {
        match self.file.test_range(SWITCH, 1) {
            Err(_) => return SQLITE_IOERR_LOCK,
            Ok(Some(Range::Alone)) => return SQLITE_BUSY,
            Ok(Some(Range::Shared)) => {}
            Ok(None) if self.is_read_only => return SQLITE_READONLY_CANTINIT,
            Ok(None) => {
                if self.file.lock_range(Range::Alone, SWITCH, 1).is_err() {
                    return SQLITE_BUSY;
                }
                if self.file.truncate(EMPTY_BYTES).is_err() {
                    return SQLITE_IOERR_SHMOPEN;
                }
            }
        }
        match self.file.lock_range(Range::Shared, SWITCH, 1) {
            Ok(()) => SQLITE_OK,
            Err(_) => SQLITE_BUSY,
        }
    }

    /// Where a region of so many bytes lies; NULL: it is not there, and is not to be made.
    pub fn map(&mut self, region: i32, bytes: i32, extends: bool) -> (i32, *mut u8) {
        let failed = |code| (code, std::ptr::null_mut());
        if self.is_unlocked {
            match self.take_switch() {
                SQLITE_OK => self.is_unlocked = false,
                code => return failed(code),
            }
        }
        let (region, bytes) = (region as u64, bytes as u64);
        let end = (region + 1) * bytes;
        let code = if self.is_read_only { SQLITE_READONLY } else { SQLITE_OK };
        if self.mapping.region().len() < end {
            match self.file.size() {
                Ok(Some(size)) if size >= end => {}
                Ok(_) if !extends => return failed(code),
                Ok(_) if self.file.allocate(end).is_ok() => {}
                _ => return failed(SQLITE_IOERR_SHMSIZE),
            }
            if self.mapping.cover(&*self.file, end).is_err() {
                return failed(SQLITE_IOERR_SHMMAP);
            }
        }
        (code, self.mapping.region().base().wrapping_add((region * bytes) as usize))
    }

    /// Takes or gives back locks.
    pub fn lock(&self, first: i32, count: i32, flags: i32) -> i32 {
        let (at, len) = (LOCKS + first as u64, count as u64);
        let done = if flags & SQLITE_SHM_UNLOCK != 0 {
            self.file.unlock_range(at, len)
        } else {
            let is_shared = flags & SQLITE_SHM_SHARED != 0;
            let lock = if is_shared { Range::Shared } else { Range::Alone };
            self.file.lock_range(lock, at, len)
        };
        match done {
            Ok(()) => SQLITE_OK,
            Err(Errno::AGAIN) => SQLITE_BUSY,
            Err(_) => SQLITE_IOERR_SHMLOCK,
        }
    }

    /// The last one that has it takes its name away.
    pub fn delete(&self, names: &dyn Names) {
        if self.file.lock_range(Range::Alone, SWITCH, 1).is_ok() {
            // What stays is emptied by the next one.
            let _ = names.unlink(&self.path);
        }
    }
}
