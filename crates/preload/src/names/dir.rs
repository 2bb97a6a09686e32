//! The calls that read directories: `opendir` and its kin, `getdents64`, `scandir`.
//!
//! A `DIR` of ours starts like glibc's, with the descriptor's number, and then carries a magic word
//! where glibc keeps a small length: that tells the two apart. Positions are the engine's cookies:
//! stable whatever else changes in the directory. The stream reads ahead into a buffer of entries.

use std::ffi::{c_char, c_int};

use vfs::{Desc, DirEntry, Errno, FileSystemExt, Whence};

use crate::descriptors::open::open_at;
use crate::entry::cached_fd;
use crate::entry::fdtable;
use crate::entry::fdtable::ours;
use crate::entry::pointers::{Bytes, Out, Text};
use crate::entry::process::Process;
use crate::entry::program_memory;
use crate::entry::{Answer, Served, Stop, outside};
use crate::paths;

const MAGIC: u64 = 0x736f_6c65_7261_6469;
/// Most that one `getdents64` tells, and the largest entry.
const BUFFER_BYTES: usize = 16 << 10;
/// Size of a stream's buffer: no more names than the engine caches, as the program may `stat` each.
const STREAM_BYTES: usize = 4 << 10;
const ENTRY_BYTES_MAX: usize = 24 + 256;
/// Offset of the name in `struct dirent64`.
const NAME_AT: usize = 19;

/// Our directory stream.
#[repr(C)]
pub struct Stream {
    pub fd: c_int,
    padding: u32,
    magic: u64,
    /// Entries as `getdents64` lays them out.
    buffer: Vec<u8>,
    next: usize,
    /// Cookie of the entry told last: `telldir`.
    pub told: i64,
    /// Cookie that the next filling of the buffer starts after.
    read_from: i64,
}

/// A `DIR *` of the program's.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq)]
pub struct Dir(*mut Stream);

impl Dir {
    /// The stream, if it is ours.
    pub fn ours(self) -> Result<&'static mut Stream, Stop> {
        if self.0.is_null() {
            return Err(Stop::Kernel);
        }
        // SAFETY: any `DIR` has more than 16 bytes; the magic word proves that it is a `Stream`,
        // which the program uses from one thread at a time.
        unsafe {
            if (&raw const (*self.0).magic).read_unaligned() != MAGIC {
                return Err(Stop::Kernel);
            }
            Ok(&mut *self.0)
        }
    }
}

impl Answer for Dir {
    const FAILED: Self = Self(std::ptr::null_mut());
}

pub fn stream(fd: c_int, read_from: i64) -> Dir {
    Dir(Box::into_raw(Box::new(Stream {
        fd,
        padding: 0,
        magic: MAGIC,
        buffer: Vec::new(),
        next: 0,
        told: read_from,
        read_from,
    })))
}

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

/// The system call that `getdents64` replaced.
pub fn read_old_entries(process: &Process, fd: c_int, to: Bytes, len: usize) -> Served<isize> {
    Ok(read_entries(process, ours(fd)?, (to, len), Form::Old)?)
}

impl Stream {
    /// The next entry; `None` at the end.
    pub fn next(&mut self, process: &Process) -> Result<Option<*mut libc::dirent64>, Errno> {
        if self.next >= self.buffer.len() {
            let desc = fdtable::get(self.fd).ok_or(Errno::BADF)?;
            self.buffer.clear();
            self.buffer.reserve(STREAM_BYTES);
            self.next = 0;
            let room = (&mut self.buffer, STREAM_BYTES);
            self.read_from = fill(process, desc, self.read_from, room)?;
            if self.buffer.is_empty() {
                return Ok(None);
            }
        }
        let entry = self.next;
        let word = |at: usize| -> [u8; 8] {
            self.buffer[entry + at..entry + at + 8].try_into().unwrap_or_default()
        };
        self.told = i64::from_ne_bytes(word(8));
        let len = u16::from_ne_bytes([self.buffer[entry + 16], self.buffer[entry + 17]]);
        self.next += usize::from(len);
        Ok(Some(self.buffer[entry..].as_mut_ptr().cast()))
    }

    /// Goes on after the entry with this cookie.
    pub fn seek(&mut self, cookie: i64) {
        self.buffer.clear();
        self.next = 0;
        self.told = cookie;
        self.read_from = cookie;
    }
}

/// `closedir`.
pub fn close(process: &Process, dir: Dir) -> Served<c_int> {
    let stream = dir.ours()?;
    stream.magic = 0;
    let fd = stream.fd;
    // SAFETY: made by `stream`, and the program gave it up.
    drop(unsafe { Box::from_raw(dir.0) });
    if process.close(fd)? { Ok(0) } else { Err(Stop::Errno(Errno::BADF)) }
}

/// The directory behind a number of ours, at its present position.
pub fn adopt(process: &Process, fd: c_int) -> Served<Dir> {
    let desc = ours(fd)?;
    let (node, _) = process.fs.describe(desc)?;
    paths::require_directory(&process.fs.attributes(node)?)?;
    let position = process.fs.seek(desc, 0, Whence::Current)?;
    Ok(stream(fd, position as i64))
}

pub type Entry = libc::dirent64;

pub type Filter = Option<unsafe extern "C-unwind" fn(*const Entry) -> c_int>;
pub type Order =
    Option<unsafe extern "C-unwind" fn(*const *const Entry, *const *const Entry) -> c_int>;

/// A copy of an entry in memory that the program frees.
fn keep(entry: *const Entry) -> Result<*mut Entry, Errno> {
    // SAFETY: a whole entry, whose length stands in it; the copy is made to that size.
    unsafe {
        let len = usize::from((*entry).d_reclen);
        let copy = program_memory::allocate(len);
        if copy.is_null() {
            return Err(Errno::NOMEM);
        }
        std::ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast(), len);
        Ok(copy.cast())
    }
}

pub fn scan(
    process: &Process,
    (dirfd, path): (c_int, Text),
    kernel: impl Fn(*const c_char) -> c_int,
    list: Out<*mut *mut Entry>,
    filter: Filter,
    order: Order,
) -> Served<c_int> {
    let elsewhere = std::cell::Cell::new(None);
    let open = |_, path| {
        let _until_it_ends = cached_fd::Closes::new();
        elsewhere.set(Some(kernel(path)));
        0
    };
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let fd = open_at(process, open, dirfd, path, flags, 0)?;
    if let Some(answer) = elsewhere.get() {
        return Ok(answer);
    }
    let dir = stream(fd, 0);
    let mut kept = Vec::new();
    let result = collect(process, dir, filter, &mut kept);
    // SAFETY: made above, used nowhere else.
    drop(unsafe { Box::from_raw(dir.0) });
    process.close(fd)?;
    if let Err(errno) = result {
        for entry in kept {
            // SAFETY: allocated by `keep`.
            unsafe { program_memory::free(entry.cast()) };
        }
        return Err(Stop::Errno(errno));
    }
    if let Some(order) = order {
        kept.sort_by(|a, b| {
            let (a, b): (*const Entry, *const Entry) = (*a, *b);
            // SAFETY: the program's own comparison, on two entries.
            outside(|| unsafe { order(&raw const a, &raw const b) }).cmp(&0)
        });
    }
    let count = kept.len();
    let bytes = count.max(1) * size_of::<*mut Entry>();
    let array = program_memory::allocate(bytes).cast::<*mut Entry>();
    if array.is_null() {
        return Err(Stop::Errno(Errno::NOMEM));
    }
    for (index, entry) in kept.into_iter().enumerate() {
        // SAFETY: `index < count`.
        unsafe { array.add(index).write(entry) };
    }
    list.put(array)?;
    Ok(count as c_int)
}

fn collect(
    process: &Process,
    dir: Dir,
    filter: Filter,
    kept: &mut Vec<*mut Entry>,
) -> Result<(), Errno> {
    let Ok(stream) = dir.ours() else {
        return Err(Errno::BADF);
    };
    while let Some(entry) = stream.next(process)? {
        // SAFETY: the program's own choice, on a whole entry.
        let wanted = filter.is_none_or(|filter| outside(|| unsafe { filter(entry) }) != 0);
        if wanted {
            kept.push(keep(entry)?);
        }
    }
    Ok(())
}
