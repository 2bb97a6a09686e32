//! What lies where in a log's file, and what makes it valid.
//!
//! ```text
//!  0        64       128      192            4096
//!  | what   | head   | head   | for          | records: a ring of `capacity` bytes
//!  | it is  | slot A | slot B | followers    |
//! ```
//!
//! - *What it is*: magic, version, capacity, id (random), crc. Never changed.
//! - *Head slot*: start position, sequence, the key in force there, crc. The valid one with the
//!   higher sequence counts; the other one is written next.
//! - *For followers*: how far the log is committed, and the writer's process id. Not persistent:
//!   what is there after a power cut is at most what was committed.
//!
//! A position runs on for ever; the place of its record is `position % capacity`. A record is a
//! header of 16 bytes (crc, kind and length, position), its payload, and whatever fills its last
//! line: records are whole lines, for a line that two of them share would be written back twice
//! (an append of 48 bytes took 2.7 times a line's store and fence, not 1.1: `solera bench flex`).
//! It never wraps. The crc is over the key in force, position, kind and length, and payload; of a
//! *skip* record over all but the payload. A *key* record is checked by the key before it and
//! brings the key of what follows.

use pmem::{checksum, checksum_after, checksum_words};

/// Bytes before the records.
pub const HEAD_BYTES: u64 = 4096;
/// Offsets of the head slots.
pub const SLOTS: [u64; 2] = [64, 128];
/// Offset of the position up to which the log is committed.
pub const COMMITTED: u64 = 192;
/// Offset of the writer's process id.
pub const WRITER: u64 = 200;
/// The version of all this.
pub const VERSION: u32 = 2;
/// Bytes of a record's header.
pub const HEADER_BYTES: u64 = 16;
/// Bytes of a key record.
pub const KEY_BYTES: u64 = LINE_BYTES;
/// Records begin and end at multiples of this.
pub const LINE_BYTES: u64 = LINE as u64;
/// The least capacity: room for records of some use.
pub const CAPACITY_MIN: u64 = 4096;
/// The most: so much can be mapped.
pub const CAPACITY_MAX: u64 = 64 << 40;
/// A payload is at most so long, whatever the capacity: a skip record over its whole lines has a
/// length of 30 bits, too.
pub const PAYLOAD_MAX: u64 = LENGTH_MASK - LINE_BYTES;
const _: () = assert!(extent(PAYLOAD_MAX) - HEADER_BYTES <= LENGTH_MASK);
/// The bits of a length.
const LENGTH_MASK: u64 = (1 << 30) - 1;

const MAGIC: u64 = u64::from_le_bytes(*b"SOLERLOG");
const LINE: usize = 64;
/// Where the crc of a line is.
const CRC_AT: usize = LINE - 4;

/// A line of the head.
pub type Line = [u8; LINE];

fn word(line: &Line, at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&line[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn sealed(words: &[u64], seed: u64) -> Line {
    let mut line = [0; LINE];
    for (word, place) in words.iter().zip(line.chunks_exact_mut(8)) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let crc = checksum(seed, &line[..CRC_AT]);
    line[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    line
}

fn is_sealed(line: &Line, seed: u64) -> bool {
    line[CRC_AT..] == checksum(seed, &line[..CRC_AT]).to_le_bytes()
}

/// What a log is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Bytes of the ring: a multiple of 64.
    pub capacity: u64,
    /// Random.
    pub id: u64,
}

impl Identity {
    /// The line that says so.
    pub fn line(&self) -> Line {
        sealed(&[MAGIC, u64::from(VERSION), self.capacity, self.id], 0)
    }

    /// What a line says of a file of `bytes` bytes; else why that is no log.
    pub fn of_line(line: &Line, bytes: u64) -> Result<Self, String> {
        if word(line, 0) != MAGIC {
            return Err("it is no log of this library".to_owned());
        }
        let version = word(line, 8) as u32;
        if version != VERSION {
            return Err(format!("it is a log of version {version}, and this is {VERSION}"));
        }
        if !is_sealed(line, 0) {
            return Err("its first line is damaged".to_owned());
        }
        let identity = Self { capacity: word(line, 16), id: word(line, 24) };
        let capacity = identity.capacity;
        if capacity < CAPACITY_MIN || !capacity.is_multiple_of(64) {
            return Err(format!("its capacity of {capacity} bytes is none"));
        }
        if capacity.checked_add(HEAD_BYTES) != Some(bytes) {
            return Err(format!("it has {bytes} bytes, and a capacity of {capacity}"));
        }
        Ok(identity)
    }

    /// The longest payload.
    pub fn most(&self) -> u64 {
        (self.capacity / 4 / LINE_BYTES * LINE_BYTES - HEADER_BYTES).min(PAYLOAD_MAX)
    }

    /// Where the ring has a position, in the file.
    #[inline]
    pub fn place(&self, position: u64) -> u64 {
        HEAD_BYTES + position % self.capacity
    }

    /// Bytes from a position to the end of the ring.
    #[inline]
    pub fn room(&self, position: u64) -> u64 {
        self.capacity - position % self.capacity
    }

    /// Where the lap of a position ends.
    #[inline]
    pub fn lap_end(&self, position: u64) -> u64 {
        position + self.room(position)
    }
}

/// Where a log begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The position of its oldest record.
    pub start: u64,
    /// One more than the other slot's.
    pub sequence: u64,
    /// The key in force at the start.
    pub key: u64,
}

impl Slot {
    /// The line that says so, in the log of this id.
    pub fn line(&self, id: u64) -> Line {
        sealed(&[self.start, self.sequence, self.key], id)
    }

    /// What a line says; `None`: nothing.
    pub fn of_line(line: &Line, id: u64) -> Option<Self> {
        let slot = Self { start: word(line, 0), sequence: word(line, 8), key: word(line, 16) };
        (is_sealed(line, id) && slot.start.is_multiple_of(LINE_BYTES)).then_some(slot)
    }

    /// Which of the two it is.
    pub fn number(&self) -> usize {
        (self.sequence % 2) as usize
    }
}

/// What a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The program's.
    Data = 0,
    /// Nothing: to be skipped.
    Skip = 1,
    /// It brings the key of what follows.
    Key = 2,
}

/// A record's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Of all that the record's kind has under it.
    pub crc: u32,
    /// What it is.
    pub kind: Kind,
    /// Bytes of the payload.
    pub len: u64,
    /// Its position.
    pub position: u64,
}

impl Header {
    /// Kind and length in one word.
    fn low(kind: Kind, len: u64) -> u32 {
        (kind as u32) << 30 | len as u32
    }

    /// What the crc begins with, before the payload.
    #[inline]
    pub fn sum(key: u64, position: u64, kind: Kind, len: u64) -> u32 {
        checksum_words(key, [position, u64::from(Self::low(kind, len))])
    }

    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[..4].copy_from_slice(&self.crc.to_le_bytes());
        bytes[4..8].copy_from_slice(&Self::low(self.kind, self.len).to_le_bytes());
        bytes[8..].copy_from_slice(&self.position.to_le_bytes());
        bytes
    }

    /// A line that begins with it, and is zeros else.
    pub fn line(&self) -> Line {
        let mut line = [0; LINE];
        line[..HEADER_BYTES as usize].copy_from_slice(&self.bytes());
        line
    }

    /// What bytes say, of a record that may take `room` bytes; `None`: they are no header.
    #[inline]
    pub fn of_bytes(bytes: &[u8; HEADER_BYTES as usize], room: u64) -> Option<Self> {
        let [crc, low] = [0, 4]
            .map(|at| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]));
        let kind = match low >> 30 {
            0 => Kind::Data,
            1 => Kind::Skip,
            2 => Kind::Key,
            _ => return None,
        };
        let mut position = [0; 8];
        position.copy_from_slice(&bytes[8..]);
        let len = u64::from(low) & LENGTH_MASK;
        let header = Self { crc, kind, len, position: u64::from_le_bytes(position) };
        let fits = extent(len) <= room && (kind == Kind::Skip || len > 0);
        (fits && (kind != Kind::Key || len == 8)).then_some(header)
    }
}

/// Bytes of a whole record with so long a payload.
#[inline]
pub const fn extent(payload: u64) -> u64 {
    (HEADER_BYTES + payload).next_multiple_of(LINE_BYTES)
}

/// A whole key record.
pub fn key_record(key: u64, position: u64, next: u64) -> Line {
    let payload = next.to_le_bytes();
    let crc = checksum_after(Header::sum(key, position, Kind::Key, 8), &payload);
    let mut line = Header { crc, kind: Kind::Key, len: 8, position }.line();
    line[HEADER_BYTES as usize..][..8].copy_from_slice(&payload);
    line
}

/// The first line of a skip record over `bytes` bytes, whole lines.
pub fn skip_line(key: u64, position: u64, bytes: u64) -> Line {
    let len = bytes - HEADER_BYTES;
    debug_assert!(len <= LENGTH_MASK, "a record is no longer than that");
    let crc = Header::sum(key, position, Kind::Skip, len);
    Header { crc, kind: Kind::Skip, len, position }.line()
}
