//! A log's file: made, opened, checked.
//!
//! CRASH: a log is made under another name, made durable, and then named: it is there whole or not
//! at all.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pmem::Region;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::format::{
    CAPACITY_MAX, CAPACITY_MIN, COMMITTED, HEAD_BYTES, HEADER_BYTES, Identity, Kind, Line, SLOTS,
    Slot, WRITER,
};
use super::memory::{In, Memory, Opened};
use super::scan::{Cursor, Ring};
use crate::{Error, Result};

/// How a log is opened.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Bytes of the ring of a log that is made: 4 KiB to 64 TiB, rounded up to 64. A log that is
    /// there keeps what it has.
    pub capacity: u64,
    /// Make it, if it is not there.
    pub create: bool,
    /// Take a plain file of the page cache, too: each append is an `msync` there.
    pub page: bool,
    /// The permissions of a log that is made.
    pub mode: u32,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { capacity: 64 << 20, create: false, page: false, mode: 0o600 }
    }
}

/// Eight random bytes of the kernel.
pub fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    let got = rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes, flags));
    match got {
        Ok(8) => Ok(u64::from_le_bytes(bytes)),
        Ok(_) => Err(Error::System("the kernel has no random numbers".to_owned(), Errno::IO)),
        Err(errno) => Err(Error::refused("get random numbers", errno)),
    }
}

/// Maps a log's file to be read, and says what it is.
pub fn open(names: In<'_>, path: &Path) -> Result<(Memory, Identity)> {
    let file = Opened::open(names, path, OFlags::RDONLY, 0)
        .map_err(|errno| Error::refused("open the log", errno))?;
    file.look()?;
    // A reader loses nothing by a power cut.
    let memory = file.map(path, false, true)?;
    let identity = identity(&memory)?;
    Ok((memory, identity))
}

/// As [`open`], to be written, with the right to do so: a lock of the file's own description, which
/// no other close drops.
pub fn open_to_write(names: In<'_>, path: &Path, page: bool) -> Result<(Memory, Identity)> {
    let file = Opened::open(names, path, OFlags::RDWR, 0)
        .map_err(|errno| Error::refused("open the log for writing", errno))?;
    file.look()?;
    match file.lock() {
        Ok(true) => {}
        Ok(false) => {
            let process = open(names, path)?.0.load64(WRITER)? as u32;
            return Err(Error::Busy { process });
        }
        Err(errno) => return Err(Error::refused("lock the log", errno)),
    }
    let memory = file.map(path, true, page)?;
    let identity = identity(&memory)?;
    memory.shared_store(WRITER, u64::from(std::process::id()))?;
    Ok((memory, identity))
}

/// What a region says it is.
pub fn identity(region: &Region) -> Result<Identity> {
    if region.len() < HEAD_BYTES {
        return Err(Error::Damaged(format!("it has {} bytes, and is no log", region.len())));
    }
    let mut line: Line = [0; 64];
    region.read(0, &mut line)?;
    Identity::of_line(&line, region.len()).map_err(Error::Damaged)
}

/// Writes an empty log to a region, durably.
pub fn format(region: &Memory) -> Result<()> {
    let identity = Identity { capacity: region.len() - HEAD_BYTES, id: random()? };
    let slot = Slot { start: 0, sequence: 0, key: random()? };
    // Whatever was here is no record of this log: the key is new.
    let streamed = region
        .stream_zero(0, HEAD_BYTES)?
        .and(region.write_line(SLOTS[slot.number()], &slot.line(identity.id))?)
        .and(region.write_line(0, &identity.line())?);
    // PERSIST: before it has its name.
    streamed.fence();
    region.sync()
}

/// Makes a log at `path`, unless there is something.
pub fn create(names: In<'_>, path: &Path, options: &LogOptions) -> Result<()> {
    if !(CAPACITY_MIN..=CAPACITY_MAX).contains(&options.capacity) {
        return Err(Error::Invalid("a log has a capacity of 4 KiB to 64 TiB"));
    }
    let bytes = options.capacity.next_multiple_of(64) + HEAD_BYTES;
    // A name of this call's own, also beside other threads, and processes of the same number.
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".new-{:016x}", random()?));
    let made = PathBuf::from(name);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let file = Opened::open(names, &made, flags, options.mode)
        .map_err(|errno| Error::refused("make a file for the log", errno))?;
    let filled = file
        .allocate(bytes)
        .and_then(|()| file.map(&made, true, options.page))
        .and_then(|memory| format(&memory));
    let named = filled.and_then(|()| {
        let named = match names {
            Some(names) => names.link(&made, path),
            None => rustix::fs::link(&made, path),
        };
        match named {
            // Another one was faster: its log is as good.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(Error::refused("name the new log", errno)),
        }
    });
    // What it cannot remove harms nobody.
    let _ = match names {
        Some(names) => names.unlink(&made),
        None => rustix::fs::unlink(&made),
    };
    named?;
    let durable = match names {
        Some(names) if names.promise().needs_sync() => names.sync(),
        Some(_) => Ok(()),
        None => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(parent.unwrap_or(Path::new(".")), flags, Mode::empty())
                .and_then(rustix::fs::fsync)
        }
    };
    durable.map_err(|errno| Error::refused("make the new log's name durable", errno))
}

/// What is in a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checked {
    /// Bytes of the ring.
    pub capacity: u64,
    /// The position of the oldest record.
    pub start: u64,
    /// Behind the newest valid record.
    pub end: u64,
    /// Up to here it was committed, as far as its last writer said.
    pub committed: u64,
    /// Records of data.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The process that writes to it, if one does; 0: it is not visible from here.
    pub writer: Option<u32>,
}

impl Checked {
    /// Whether a record is damaged that was committed.
    pub fn is_damaged(&self) -> bool {
        self.committed > self.end
    }
}

/// Reads a log from its start to its end; a log that is written to meanwhile may seem damaged.
/// Errors: it is no log, or cannot be read.
pub fn check(path: &Path) -> Result<Checked> {
    walk(path, |_, _| ())
}

/// As [`check`]; tells position and bytes of each record besides.
pub fn walk(path: &Path, each: impl FnMut(u64, &[u8])) -> Result<Checked> {
    walk_in(None, path, each)
}

/// The same of a volume's log, too.
pub fn walk_in(names: In<'_>, path: &Path, mut each: impl FnMut(u64, &[u8])) -> Result<Checked> {
    let (region, identity) = open(names, path)?;
    let ring = Ring { region: &region, identity };
    // First: what is committed later may be trimmed by then.
    let committed = region.load64(COMMITTED)?;
    let head = ring.head()?;
    let (mut records, mut bytes) = (0, 0);
    let mut payload = Vec::new();
    let mut read = Ok(());
    let start = Cursor { position: head.start, key: head.key };
    let end = ring.walk(start, u64::MAX, |_, valid| {
        if valid.kind != Kind::Data {
            return ControlFlow::Continue(());
        }
        records += 1;
        bytes += valid.len;
        payload.resize(valid.len as usize, 0);
        read = region.read(identity.place(valid.position) + HEADER_BYTES, &mut payload);
        if read.is_err() {
            return ControlFlow::Break(());
        }
        each(valid.position, &payload);
        ControlFlow::Continue(())
    })?;
    read?;
    let held =
        region.is_locked().map_err(|errno| Error::refused("look for the log's writer", errno))?;
    let writer = if held { Some(region.load64(WRITER)? as u32) } else { None };
    Ok(Checked {
        capacity: identity.capacity,
        start: head.start,
        end: end.position,
        committed: committed.max(head.start),
        records,
        bytes,
        writer,
    })
}
