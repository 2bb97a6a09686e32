//! Reading: from record to record, each checked before anything is believed.

use std::ops::ControlFlow;

use pmem::{Fault, Region, UserOut, checksum_after};

use super::format::{HEADER_BYTES, Header, Identity, Kind, Line, SLOTS, Slot, extent};
use crate::{Error, Result};

/// Bytes that are checked at a time.
const PIECE: usize = 1024;
/// How often a head slot that is just being written is looked at again.
const LOOKS: usize = 100;

/// Between two records: the position of the next one, and the key in force there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// Where the next record begins.
    pub position: u64,
    /// By which it is checked.
    pub key: u64,
}

/// A valid record, and what is behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Valid {
    /// What it is.
    pub kind: Kind,
    /// Where it begins.
    pub position: u64,
    /// Bytes of its payload.
    pub len: u64,
    /// Behind it.
    pub next: Cursor,
}

/// A log's memory, to be read.
#[derive(Clone, Copy)]
pub struct Ring<'r> {
    /// The file.
    pub region: &'r Region,
    /// What it is.
    pub identity: Identity,
}

impl Ring<'_> {
    /// The head slot that counts.
    pub fn head(&self) -> Result<Slot> {
        for _ in 0..LOOKS {
            let mut found = [None; 2];
            for (at, found) in SLOTS.iter().zip(&mut found) {
                let mut line: Line = [0; 64];
                self.region.read(*at, &mut line)?;
                *found = Slot::of_line(&line, self.identity.id);
            }
            if let Some(slot) = found.into_iter().flatten().max_by_key(|slot| slot.sequence) {
                return Ok(slot);
            }
            // Two writes of slots may have come in between.
            std::thread::yield_now();
        }
        Err(Error::Damaged("both of its head slots are damaged".to_owned()))
    }

    /// The record at a cursor, whatever it is, if it is valid.
    pub fn at(&self, cursor: Cursor) -> core::result::Result<Option<Valid>, Fault> {
        let Cursor { position, key } = cursor;
        let (place, room) = (self.identity.place(position), self.identity.room(position));
        let Some(header) = self.header(place, room)? else { return Ok(None) };
        if header.position != position {
            return Ok(None);
        }
        let Header { crc, kind, len, .. } = header;
        let mut sum = Header::sum(key, position, kind, len);
        let mut last = [0; 8];
        if kind != Kind::Skip {
            let mut piece = [0; PIECE];
            let mut done = 0;
            while done < len {
                let part = &mut piece[..PIECE.min((len - done) as usize)];
                self.region.read(place + HEADER_BYTES + done, part)?;
                sum = checksum_after(sum, part);
                done += part.len() as u64;
            }
            last.copy_from_slice(&piece[..8]);
        }
        if sum != crc {
            return Ok(None);
        }
        let key = if kind == Kind::Key { u64::from_le_bytes(last) } else { key };
        let next = Cursor { position: position + extent(len), key };
        Ok(Some(Valid { kind, position, len, next }))
    }

    /// Goes from record to record, no further than `limit`, and at most once around the ring, until
    /// `each` breaks. Gives where it stopped.
    pub fn walk(
        &self,
        mut cursor: Cursor,
        limit: u64,
        mut each: impl FnMut(Cursor, &Valid) -> ControlFlow<()>,
    ) -> core::result::Result<Cursor, Fault> {
        let limit = limit.min(cursor.position.saturating_add(self.identity.capacity));
        while cursor.position < limit
            && let Some(valid) = self.at(cursor)?
            && valid.next.position <= limit
        {
            if each(cursor, &valid).is_break() {
                break;
            }
            cursor = valid.next;
        }
        Ok(cursor)
    }

    /// The first record of data at a cursor or behind it, copied to a buffer and checked there;
    /// `None`: there is none before `limit`. `cursor` goes behind it.
    pub fn read(
        &self,
        cursor: &mut Cursor,
        limit: u64,
        to: &UserOut<'_>,
    ) -> Result<Option<Copied>> {
        loop {
            let start = self.head()?.start;
            if cursor.position < start {
                return Err(Error::Lapped { oldest: start });
            }
            if cursor.position >= limit {
                return Ok(None);
            }
            let copied = self.copy(*cursor, to);
            // What was trimmed meanwhile may be anything by now.
            let start = self.head()?.start;
            if cursor.position < start {
                return Err(Error::Lapped { oldest: start });
            }
            let Some((valid, copied)) = copied? else { return Err(damaged(cursor.position)) };
            *cursor = valid.next;
            if let Some(copied) = copied {
                return Ok(Some(copied));
            }
        }
    }

    /// The first record of data at a cursor or behind it, and before `limit`; `cursor` goes behind
    /// it.
    pub fn data(&self, cursor: &mut Cursor, limit: u64) -> Result<Option<Valid>> {
        let start = self.head()?.start;
        if cursor.position < start {
            return Err(Error::Lapped { oldest: start });
        }
        while cursor.position < limit {
            let Some(valid) = self.at(*cursor)? else { return Err(damaged(cursor.position)) };
            *cursor = valid.next;
            if valid.kind == Kind::Data {
                return Ok(Some(valid));
            }
        }
        Ok(None)
    }

    /// The record at a cursor, its payload copied if it is data. What is checked is the copy: what
    /// it was made of may change meanwhile.
    fn copy(&self, cursor: Cursor, to: &UserOut<'_>) -> Result<Option<(Valid, Option<Copied>)>> {
        let Cursor { position, key } = cursor;
        let (place, room) = (self.identity.place(position), self.identity.room(position));
        let Some(Header { crc, kind: Kind::Data, len, .. }) = self
            .header(place, room)?
            .filter(|header| header.position == position && header.len <= to.len() as u64)
        else {
            return match self.at(cursor)? {
                Some(valid) if valid.kind == Kind::Data => Err(Error::NoRoom { needed: valid.len }),
                found => Ok(found.map(|valid| (valid, None))),
            };
        };
        self.region.read_to(place + HEADER_BYTES, to, len as usize)?;
        let mut sum = Header::sum(key, position, Kind::Data, len);
        let (mut piece, mut done) = ([0; PIECE], 0);
        while done < len as usize {
            let part = &mut piece[..PIECE.min(len as usize - done)];
            to.written().slice(done, part.len()).read(part)?;
            sum = checksum_after(sum, part);
            done += part.len();
        }
        if sum != crc {
            return Ok(None);
        }
        let next = Cursor { position: position + extent(len), key };
        let valid = Valid { kind: Kind::Data, position, len, next };
        Ok(Some((valid, Some(Copied { position, len: len as usize }))))
    }

    /// What is a header there, whatever it says.
    fn header(&self, place: u64, room: u64) -> core::result::Result<Option<Header>, Fault> {
        let mut bytes = [0; HEADER_BYTES as usize];
        self.region.read(place, &mut bytes)?;
        Ok(Header::of_bytes(&bytes, room))
    }
}

/// A record is not valid that was committed.
fn damaged(position: u64) -> Error {
    Error::Damaged(format!("the record at position {position} is damaged, which was committed"))
}

/// A record that was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// Its position.
    pub position: u64,
    /// Its length.
    pub len: usize,
}
