//! Following a log from another process, or from another opening of it, while it is written to.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use pmem::UserOut;

use super::file;
use super::format::{COMMITTED, Identity};
use super::memory::{In, Memory};
use super::scan::{Cursor, Ring};
use crate::opener::Opener;
use crate::{Error, Result};

/// A record that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its position.
    pub position: u64,
    /// Its length, in bytes.
    pub len: usize,
    /// The position behind it, where to go on.
    pub next: u64,
}

/// A log that is only read. It sees what is committed, in order, whole; if it is lapped it says so.
pub struct Follower {
    region: Memory,
    identity: Identity,
    opener: Opener,
    /// Up to here all was valid when no process wrote to it.
    left: u64,
    /// Where the last read ended.
    cursor: Mutex<Cursor>,
}

impl Follower {
    /// Opens the log at `path`, at its oldest record.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_in(None, path)
    }

    /// The same of a volume's log, too.
    pub(crate) fn open_in(names: In<'_>, path: &Path) -> Result<Self> {
        let (region, identity) = file::open(names, path)?;
        let ring = Ring { region: &region, identity };
        let head = ring.head()?;
        let cursor = Cursor { position: head.start, key: head.key };
        let left = left(&region, ring, cursor)?;
        let opener =
            Opener::new().map_err(|errno| Error::refused("get memory for the log", errno))?;
        Ok(Self { region, identity, opener, left, cursor: Mutex::new(cursor) })
    }

    /// The position of the oldest record.
    pub fn oldest(&self) -> Result<u64> {
        self.check()?;
        Ok(self.ring().head()?.start)
    }

    /// The position up to which the log is committed.
    pub fn committed(&self) -> Result<u64> {
        self.check()?;
        if !self.region.is_whole() {
            return Err(Error::Memory);
        }
        let head = self.ring().head()?;
        Ok(self.region.load64(COMMITTED)?.max(head.start).max(self.left))
    }

    /// The longest record that it may have.
    pub fn longest(&self) -> usize {
        self.identity.most() as usize
    }

    fn check(&self) -> Result<()> {
        if self.opener.is_here() { Ok(()) } else { Err(Error::Forked) }
    }

    fn ring(&self) -> Ring<'_> {
        Ring { region: &self.region, identity: self.identity }
    }

    /// Copies the first record at `position` or behind it; `None`: none is committed there yet.
    /// Errors: `Lapped`, `NoRoom`; `Invalid` if no record begins there.
    pub fn read(&self, position: u64, to: &mut [u8]) -> Result<Option<Record>> {
        self.read_to(position, &UserOut::new(to))
    }

    /// As [`Follower::read`], to any memory: `Caller` if it cannot be written.
    pub fn read_to(&self, position: u64, to: &UserOut<'_>) -> Result<Option<Record>> {
        let committed = self.committed()?;
        let mut last = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        if position != last.position {
            *last = seek(self.ring(), position, committed)?;
        }
        let mut cursor = *last;
        let copied = self.ring().read(&mut cursor, committed, to)?;
        *last = cursor;
        Ok(copied.map(|copied| Record {
            position: copied.position,
            len: copied.len,
            next: cursor.position,
        }))
    }
}

/// Up to where a log is valid to which no process writes: its next writer will find the same. What
/// the last one has published is old after a power cut, since nobody makes it durable. 0: there is
/// a writer, which publishes.
fn left(memory: &Memory, ring: Ring<'_>, start: Cursor) -> Result<u64> {
    let is_written =
        || memory.is_locked().map_err(|errno| Error::refused("look for the log's writer", errno));
    if is_written()? {
        return Ok(0);
    }
    let end = ring.walk(start, u64::MAX, |_, _| ControlFlow::Continue(()))?;
    // One that came meanwhile may have put what it has not committed.
    Ok(if is_written()? { 0 } else { end.position })
}

/// The cursor of a position, found from the head.
pub fn seek(ring: Ring<'_>, position: u64, limit: u64) -> Result<Cursor> {
    let mut head = ring.head()?;
    loop {
        if position < head.start {
            return Err(Error::Lapped { oldest: head.start });
        }
        let start = Cursor { position: head.start, key: head.key };
        let found = ring.walk(start, limit, |cursor, _| {
            if cursor.position >= position {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        if found.position == position {
            return Ok(found);
        }
        // What was walked over may have been trimmed, and be used again.
        let now = ring.head()?;
        if now == head {
            return Err(Error::Invalid("no record of the log begins at this position"));
        }
        head = now;
    }
}
