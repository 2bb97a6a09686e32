//! The calls that read directories. Positions are the engine's cookies: stable whatever else
//! changes in the directory.

use std::ffi::c_uint;

use vfs::{Desc, DirEntry, Errno, FileSystemExt, Whence};

use crate::entry::pointers::Bytes;
use crate::entry::process::Process;
use crate::paths;

/// Most that one `getdents64` tells, and the largest entry.
const BUFFER_BYTES: usize = 16 << 10;
const ENTRY_BYTES_MAX: usize = 24 + 256;
/// Offset of the name in `struct dirent64`.
const NAME_AT: usize = 19;

/// Appends an entry in the form of `getdents64`; `false` if it does not fit into `room`.
fn push(buffer: &mut Vec<u8>, room: usize, entry: &DirEntry<'_>) -> bool {
    let len = (NAME_AT + entry.name.len() + 1).next_multiple_of(8);
    if buffer.len() + len > room {
        return false;
    }
    let start = buffer.len();
    let mut head = [0; NAME_AT];
    head[..8].copy_from_slice(&entry.ino.to_ne_bytes());
    head[8..16].copy_from_slice(&entry.cookie.to_ne_bytes());
    head[16..18].copy_from_slice(&(len as u16).to_ne_bytes());
    head[18] = entry.kind.d_type();
    buffer.extend_from_slice(&head);
    buffer.extend_from_slice(entry.name);
    buffer.resize(start + len, 0);
    true
}

/// Reads entries after `cookie` into `buffer`; gives the last one's cookie.
fn fill(
    process: &Process,
    desc: Desc,
    cookie: i64,
    (buffer, room): (&mut Vec<u8>, usize),
) -> Result<i64, Errno> {
    let (node, flags) = process.fs.describe(desc)?;
    if flags.path_only() {
        return Err(Errno::BADF);
    }
    let mut last = cookie;
    process.fs.read_dir(node, cookie, &mut |entry| {
        let fits = push(buffer, room, entry);
        if fits {
            last = entry.cookie;
        }
        fits
    })?;
    Ok(last)
}

/// `getdents64` with `room` bytes: `too_small` if they do not hold the next entry.
fn entries(
    process: &Process,
    desc: Desc,
    to: Bytes,
    room: usize,
    (form, too_small): (Form, Errno),
) -> Result<isize, Errno> {
    let position = process.fs.seek(desc, 0, Whence::Current)? as i64;
    let mut buffer = Vec::with_capacity(room);
    let last = fill(process, desc, position, (&mut buffer, room))?;
    if buffer.is_empty() && last == position && room < ENTRY_BYTES_MAX {
        let mut more = Vec::new();
        fill(process, desc, position, (&mut more, ENTRY_BYTES_MAX))?;
        if !more.is_empty() {
            return Err(too_small);
        }
    }
    if form == Form::Old {
        make_old(&mut buffer);
    }
    to.put(&buffer)?;
    process.fs.seek(desc, last, Whence::Set)?;
    Ok(buffer.len() as isize)
}

/// How entries are laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As `getdents64` has them.
    Wide,
    /// As `getdents`: as long, but the kind stands in the last byte.
    Old,
}

/// Turns entries into the old form.
fn make_old(entries: &mut [u8]) {
    let mut rest = entries;
    while rest.len() > NAME_AT {
        let length = usize::from(u16::from_ne_bytes([rest[16], rest[17]])).max(NAME_AT);
        let (entry, others) = rest.split_at_mut(length);
        entry[NAME_AT - 1..].rotate_left(1);
        rest = others;
    }
}

/// `getdents64`: as many entries as fit into `len` bytes.
pub fn read_entries(
    process: &Process,
    desc: Desc,
    (to, len): (Bytes, usize),
    form: Form,
) -> Result<isize, Errno> {
    let (node, flags) = process.fs.describe(desc)?;
    if flags.path_only() {
        return Err(Errno::BADF);
    }
    paths::require_directory(&process.fs.attributes(node)?)?;
    let room = len.min(BUFFER_BYTES);
    match entries(process, desc, to, room, (form, Errno::INVAL)) {
        // As many as fit before the first byte that cannot be written.
        Err(Errno::FAULT) => {
            entries(process, desc, to, to.sink(room).touch(), (form, Errno::FAULT))
        }
        told => told,
    }
}

/// The kernel takes the length of entries for a signed number: no entry fits in a negative one.
pub fn room(len: c_uint) -> usize {
    usize::try_from(len.cast_signed()).unwrap_or(0)
}
