//! Following a log from another process, or from another opening of it, while it is written to.

use std::ops::ControlFlow;
use std::path::Path;

use pmem::{Region, UserOut};

use super::file;
use super::format::{COMMITTED, Identity};
use super::scan::{Cursor, Ring};
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
    region: Region,
    identity: Identity,
    /// Where the last read ended.
    cursor: Cursor,
}

impl Follower {
    /// Opens the log at `path`, at its oldest record.
    pub fn open(path: &Path) -> Result<Self> {
        let (region, identity) = file::open(path)?;
        let head = Ring { region: &region, identity }.head()?;
        let cursor = Cursor { position: head.start, key: head.key };
        Ok(Self { region, identity, cursor })
    }

    /// The position of the oldest record.
    pub fn oldest(&self) -> Result<u64> {
        Ok(self.ring().head()?.start)
    }

    /// The position up to which the log is committed.
    pub fn committed(&self) -> Result<u64> {
        let head = self.ring().head()?;
        Ok(self.region.load64(COMMITTED)?.max(head.start))
    }

    /// The longest record that it may have.
    pub fn longest(&self) -> usize {
        self.identity.most() as usize
    }

    fn ring(&self) -> Ring<'_> {
        Ring { region: &self.region, identity: self.identity }
    }

    /// Copies the first record at `position` or behind it; `None`: none is committed there yet.
    /// Errors: `Lapped`, `NoRoom`; `Invalid` if no record begins there.
    pub fn read(&mut self, position: u64, to: &mut [u8]) -> Result<Option<Record>> {
        self.read_to(position, &UserOut::new(to))
    }

    /// As [`Follower::read`], to any memory: `Caller` if it cannot be written.
    pub fn read_to(&mut self, position: u64, to: &UserOut<'_>) -> Result<Option<Record>> {
        let committed = self.committed()?;
        if position != self.cursor.position {
            self.cursor = seek(self.ring(), position, committed)?;
        }
        let mut cursor = self.cursor;
        let copied = self.ring().read(&mut cursor, committed, to)?;
        self.cursor = cursor;
        Ok(copied.map(|copied| Record {
            position: copied.position,
            len: copied.len,
            next: cursor.position,
        }))
    }
}

/// The cursor of a position, found from the head.
pub fn seek(ring: Ring<'_>, position: u64, limit: u64) -> Result<Cursor> {
    let head = ring.head()?;
    if position < head.start {
        return Err(Error::Lapped { oldest: head.start });
    }
    let start = Cursor { position: head.start, key: head.key };
    let found = ring.walk(start, limit, |cursor, _| {
        if cursor.position >= position { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if found.position != position {
        let start = ring.head()?.start;
        if position < start {
            return Err(Error::Lapped { oldest: start });
        }
        return Err(Error::Invalid("no record of the log begins at this position"));
    }
    Ok(found)
}
