//! Bytes in and out: `read`, `write`, their vectored, positioned, checked and 64-bit forms,
//! `lseek`, `sendfile`, `copy_file_range`.
//!
//! No locks here: the engine makes each call atomic and moves the shared position. Where the other
//! end is the kernel's it may wait, until a signal comes (see `waiting`).

use std::ffi::{c_int, c_long, c_uint};

use rustix::pipe::SpliceFlags;
use vfs::{Desc, Errno, Kind, OpenFlags, UserIn, UserOut, Whence};

use crate::entry::fdtable::{self, ours};
use crate::entry::limit;
use crate::entry::maptable::any_gap;
use crate::entry::pointers::{Bytes, Out};
use crate::entry::process::Process;
use crate::entry::waiting;
use crate::entry::{Served, Stop, TRANSFER_BYTES_MAX};
use crate::files::splice;
use crate::interposed::interpose;
use crate::mappings::touched;

/// As [`ours`]; otherwise the kernel, which reads `len` bytes into the program's memory, finds its
/// pages.
#[inline]
fn ours_or_filled(fd: c_int, memory: Bytes, len: usize, at: Option<i64>) -> Result<Desc, Stop> {
    ours(fd).inspect_err(|_| touched::ready_for(fd, memory.0, len, at))
}

/// The same of a call that writes from there.
#[inline]
fn ours_or_ready(fd: c_int, memory: Bytes, len: usize) -> Result<Desc, Stop> {
    ours(fd).inspect_err(|_| touched::ready(memory.0, len))
}

/// The same of a vectored call.
#[inline]
fn ours_or_all_ready(fd: c_int, list: Out<Vector>, count: c_int) -> Result<Desc, Stop> {
    ours(fd).inspect_err(|_| ready_all(list, count))
}

/// The memory of a vectored call that the kernel serves has its pages.
pub fn ready_all(list: Out<Vector>, count: c_int) {
    if any_gap() {
        ready_up_to(list, count, usize::MAX);
    }
}

/// As [`ready_all`], of one that reads from `fd`, at `at` or where it stands.
pub fn ready_all_for(fd: c_int, list: Out<Vector>, count: c_int, at: Option<i64>) {
    if any_gap() {
        ready_up_to(list, count, touched::coming(fd, at).unwrap_or(usize::MAX));
    }
}

/// The first `most` bytes of the pieces.
fn ready_up_to(list: Out<Vector>, count: c_int, mut most: usize) {
    // What is wrong with the list the kernel says.
    for piece in vectors(list, count).unwrap_or_default() {
        touched::ready(piece.iov_base, piece.iov_len.min(most));
        most = most.saturating_sub(piece.iov_len);
    }
}

/// As [`ours_or_filled`], of a vectored call.
#[inline]
fn ours_or_all_filled(
    fd: c_int,
    list: Out<Vector>,
    count: c_int,
    at: Option<i64>,
) -> Result<Desc, Stop> {
    ours(fd).inspect_err(|_| ready_all_for(fd, list, count, at))
}

/// A file offset from a signed argument.
pub fn offset_of(offset: i64) -> Result<u64, Errno> {
    u64::try_from(offset).map_err(|_| Errno::INVAL)
}

/// One piece of a vectored call.
pub type Vector = libc::iovec;

/// The pieces of a vectored call, cut to what one call may move.
pub fn vectors(list: Out<Vector>, count: c_int) -> Result<Vec<Vector>, Errno> {
    let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
    if count > libc::UIO_MAXIOV as usize {
        return Err(Errno::INVAL);
    }
    let mut pieces = list.array(count)?;
    if pieces.iter().any(|piece| piece.iov_len > isize::MAX as usize) {
        return Err(Errno::INVAL);
    }
    if let [only] = &mut pieces[..] {
        only.iov_len = only.iov_len.min(TRANSFER_BYTES_MAX);
    }
    let mut room = TRANSFER_BYTES_MAX;
    for piece in &mut pieces {
        Bytes(piece.iov_base).check(piece.iov_len)?;
        piece.iov_len = piece.iov_len.min(room);
        room -= piece.iov_len;
    }
    Ok(pieces)
}

fn sinks(list: Out<Vector>, count: c_int) -> Result<Vec<UserOut<'static>>, Errno> {
    let pieces = vectors(list, count)?;
    Ok(pieces.iter().map(|piece| Bytes(piece.iov_base).sink(piece.iov_len)).collect())
}

/// The pieces that may be written at `at`, or where `desc` stands.
fn sources(
    process: &Process,
    (desc, at): (Desc, Option<u64>),
    list: Out<Vector>,
    count: c_int,
) -> Served<Vec<UserIn<'static>>> {
    let pieces = vectors(list, count)?;
    let mut room = limit::room(process, desc, at, pieces.iter().map(|piece| piece.iov_len).sum())?;
    let source = |piece: &Vector| {
        let len = piece.iov_len.min(room);
        room -= len;
        Bytes(piece.iov_base).source(len)
    };
    Ok(pieces.iter().map(source).collect())
}

fn read_one(process: &Process, desc: Desc, to: Bytes, len: usize) -> Served<isize> {
    let mut sink = [to.check(len)?.sink(len.min(TRANSFER_BYTES_MAX))];
    Ok(process.fs.read(desc, &mut sink)? as isize)
}

fn read_one_at(process: &Process, desc: Desc, to: Bytes, len: usize, at: i64) -> Served<isize> {
    let at = offset_of(at)?;
    let mut sink = [to.check(len)?.sink(len.min(TRANSFER_BYTES_MAX))];
    Ok(process.fs.read_at(desc, at, &mut sink)? as isize)
}

/// The `RWF_*` flags that change nothing here: everything is high priority and nothing waits.
const HINTS: c_int = libc::RWF_HIPRI | libc::RWF_NOWAIT;

fn read_vectors(
    process: &Process,
    desc: Desc,
    list: Out<Vector>,
    count: c_int,
    at: i64,
    flags: c_int,
) -> Served<isize> {
    if flags & !HINTS != 0 {
        return Err(Stop::Errno(Errno::OPNOTSUPP));
    }
    let mut sinks = sinks(list, count)?;
    let bytes = if at == -1 {
        process.fs.read(desc, &mut sinks)?
    } else {
        process.fs.read_at(desc, offset_of(at)?, &mut sinks)?
    };
    Ok(bytes as isize)
}

fn write_vectors(
    process: &Process,
    desc: Desc,
    list: Out<Vector>,
    count: c_int,
    at: i64,
    flags: c_int,
) -> Served<isize> {
    let durable = libc::RWF_SYNC | libc::RWF_DSYNC;
    if flags & !(HINTS | durable | libc::RWF_APPEND) != 0 {
        return Err(Stop::Errno(Errno::OPNOTSUPP));
    }
    let place = if at == -1 { None } else { Some(offset_of(at)?) };
    let bytes = if flags & libc::RWF_APPEND != 0 {
        append(process, desc, (list, count), at)?
    } else {
        let sources = sources(process, (desc, place), list, count)?;
        match place {
            None => process.fs.write(desc, &sources)?,
            Some(place) => process.fs.write_at(desc, place, &sources)?,
        }
    };
    if flags & durable != 0 {
        process.fs.sync(desc, flags & libc::RWF_SYNC == 0)?;
    }
    Ok(bytes as isize)
}

/// Writes at the end, as through a description with `O_APPEND`: one is opened for the call.
fn append(process: &Process, desc: Desc, from: (Out<Vector>, c_int), at: i64) -> Served<usize> {
    let (node, flags) = process.fs.describe(desc)?;
    if !flags.writes() {
        return Err(Stop::Errno(Errno::BADF));
    }
    let own = process.fs.open(node, OpenFlags(libc::O_WRONLY | libc::O_APPEND))?;
    let sources = sources(process, (own, None), from.0, from.1);
    let written = sources.and_then(|from| Ok(process.fs.write(own, &from)?));
    let end = process.fs.seek(own, 0, Whence::Current);
    process.fs.close(own)?;
    let written = written?;
    // Without an offset the position moves behind what was written.
    if at == -1 {
        process.fs.seek(desc, end? as i64, Whence::Set)?;
    }
    Ok(written)
}

interpose! {
    fn [read, __read, __read_nocancel](fd: c_int, to: Bytes, len: usize) -> isize
    = |process, _| {
        read_one(process, ours_or_filled(fd, to, len, None)?, to, len)
    }
    fn [__read_chk](fd: c_int, to: Bytes, len: usize, room: usize) -> isize = |process, _| {
        let desc = ours_or_filled(fd, to, len, None)?;
        check_room(len, room);
        read_one(process, desc, to, len)
    }
    fn [pread, pread64, __pread64, __pread64_nocancel, __libc_pread](
        fd: c_int, to: Bytes, len: usize, at: i64,
    ) -> isize = |process, _| {
        read_one_at(process, ours_or_filled(fd, to, len, Some(at))?, to, len, at)
    }
    fn [__pread_chk, __pread64_chk](fd: c_int, to: Bytes, len: usize, at: i64, room: usize) -> isize
    = |process, _| {
        let desc = ours_or_filled(fd, to, len, Some(at))?;
        check_room(len, room);
        read_one_at(process, desc, to, len, at)
    }
    fn [write, __write, __write_nocancel](fd: c_int, from: Bytes, len: usize) -> isize
    = |process, _| {
        let desc = ours_or_ready(fd, from, len)?;
        let from = from.check(len)?;
        let len = limit::room(process, desc, None, len.min(TRANSFER_BYTES_MAX))?;
        let bytes = process.fs.write(desc, &[from.source(len)])?;
        Ok(bytes as isize)
    }
    fn [pwrite, pwrite64, __pwrite64, __libc_pwrite](
        fd: c_int, from: Bytes, len: usize, at: i64,
    ) -> isize = |process, _| {
        let desc = ours_or_ready(fd, from, len)?;
        let at = offset_of(at)?;
        let from = from.check(len)?;
        let len = limit::room(process, desc, Some(at), len.min(TRANSFER_BYTES_MAX))?;
        let bytes = process.fs.write_at(desc, at, &[from.source(len)])?;
        Ok(bytes as isize)
    }
    fn [readv](fd: c_int, list: Out<Vector>, count: c_int) -> isize = |process, _| {
        read_vectors(process, ours_or_all_filled(fd, list, count, None)?, list, count, -1, 0)
    }
    fn [writev](fd: c_int, list: Out<Vector>, count: c_int) -> isize = |process, _| {
        write_vectors(process, ours_or_all_ready(fd, list, count)?, list, count, -1, 0)
    }
    fn [preadv, preadv64](fd: c_int, list: Out<Vector>, count: c_int, at: i64) -> isize
    = |process, _| {
        let desc = ours_or_all_filled(fd, list, count, Some(at))?;
        offset_of(at)?;
        read_vectors(process, desc, list, count, at, 0)
    }
    fn [pwritev, pwritev64](fd: c_int, list: Out<Vector>, count: c_int, at: i64) -> isize
    = |process, _| {
        let desc = ours_or_all_ready(fd, list, count)?;
        offset_of(at)?;
        write_vectors(process, desc, list, count, at, 0)
    }
    fn [preadv2, preadv64v2](fd: c_int, list: Out<Vector>, count: c_int, at: i64, flags: c_int)
    -> isize = |process, _| {
        let place = (at != -1).then_some(at);
        let desc = ours_or_all_filled(fd, list, count, place)?;
        read_vectors(process, desc, list, count, at, flags)
    }
    fn [pwritev2, pwritev64v2](fd: c_int, list: Out<Vector>, count: c_int, at: i64, flags: c_int)
    -> isize = |process, _| {
        write_vectors(process, ours_or_all_ready(fd, list, count)?, list, count, at, flags)
    }
    fn [lseek, lseek64, llseek, __lseek](fd: c_int, offset: i64, whence: c_int) -> i64
    = |process, _| {
        let desc = ours(fd)?;
        let whence = match whence {
            libc::SEEK_SET => Whence::Set,
            libc::SEEK_CUR => Whence::Current,
            libc::SEEK_END => Whence::End,
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return Err(Stop::Errno(Errno::INVAL)),
        };
        Ok(process.fs.seek(desc, offset, whence)? as i64)
    }
    fn [sendfile, sendfile64](out: c_int, from: c_int, offset: Out<i64>, len: usize) -> isize
    = |process, _| {
        if fdtable::get(out).is_none() && fdtable::get(from).is_none() {
            return Err(Stop::Kernel);
        }
        match fdtable::get(from) {
            // To a pipe it is a splice: once something was moved it does not wait for room.
            Some(file) if splice::is_pipe(out) => {
                splice::to_pipe(process, (file, offset), out, len, SpliceFlags::empty())
            }
            _ => transfer(process, (from, offset), out, len),
        }
    }
    fn [copy_file_range](
        from: c_int, from_at: Out<i64>, to: c_int, to_at: Out<i64>, len: usize, flags: c_uint,
    ) -> isize = |process, _| {
        match (fdtable::get(from), fdtable::get(to)) {
            (None, None) => Err(Stop::Kernel),
            (Some(_), Some(_)) if flags != 0 => Err(Stop::Errno(Errno::INVAL)),
            (Some(source), Some(target)) => {
                copy_range(process, (source, from_at), (target, to_at), len)
            }
            _ => Err(Stop::Errno(Errno::XDEV)),
        }
    }
    fn [readahead](fd: c_int, offset: i64, len: usize) -> isize = |process, _| {
        let _ = (offset, len);
        let (node, flags) = process.fs.describe(ours(fd)?)?;
        match process.fs.attr(node)?.kind {
            _ if !flags.reads() => Err(Stop::Errno(Errno::BADF)),
            Kind::File => Ok(0),
            _ => Err(Stop::Errno(Errno::INVAL)),
        }
    }
    fn [posix_fadvise, posix_fadvise64](fd: c_int, offset: i64, len: i64, advice: c_int) -> c_int
    = |process, _| {
        let _ = (offset, len);
        let (_, flags) = process.fs.describe(ours(fd)?)?;
        // Gives its error as its value.
        if flags.path_only() {
            return Ok(libc::EBADF);
        }
        Ok(if (0..=5).contains(&advice) { 0 } else { libc::EINVAL })
    }
    fn [fsync](fd: c_int) -> c_int = |process, _| {
        process.fs.sync(ours(fd)?, false)?;
        Ok(0)
    }
    fn [fdatasync](fd: c_int) -> c_int = |process, _| {
        process.fs.sync(ours(fd)?, true)?;
        Ok(0)
    }
    fn [sync_file_range](fd: c_int, offset: i64, len: i64, flags: c_uint) -> c_int = |process, _| {
        let _ = flags;
        let desc = ours(fd)?;
        if offset < 0 || len < 0 {
            return Err(Stop::Errno(Errno::INVAL));
        }
        process.fs.sync(desc, true)?;
        Ok(0)
    }
    fn [syncfs](fd: c_int) -> c_int = |process, _| {
        if process.fs.describe(ours(fd)?)?.1.path_only() {
            return Err(Stop::Errno(Errno::BADF));
        }
        process.fs.sync_all()?;
        Ok(0)
    }
    fn [sync]() -> () = |process, kernel| {
        process.fs.sync_all()?;
        kernel();
        Ok(())
    }
}

/// `_FORTIFY_SOURCE`: a length beyond the buffer's size ends the program, as in glibc.
fn check_room(len: usize, room: usize) {
    if len > room {
        std::process::abort();
    }
}

fn copy_range(
    process: &Process,
    from: (Desc, Out<i64>),
    to: (Desc, Out<i64>),
    len: usize,
) -> Served<isize> {
    let fs = &process.fs;
    let place = |desc, given: Out<i64>| match given.get()? {
        Some(offset) => offset_of(offset),
        None => fs.seek(desc, 0, Whence::Current),
    };
    let (from_at, to_at) = (place(from.0, from.1)?, place(to.0, to.1)?);
    let len = limit::room(process, to.0, Some(to_at), len.min(TRANSFER_BYTES_MAX))? as u64;
    let copied = fs.copy_range(from.0, from_at, to.0, to_at, len)?;
    let mut told = Ok(());
    for ((desc, given), start) in [(from, from_at), (to, to_at)] {
        let end = (start + copied) as i64;
        if given.is_null() {
            fs.seek(desc, end, Whence::Set)?;
        } else {
            // The bytes have moved whether or not the program learns where to.
            told = told.and(given.put(end));
        }
    }
    told?;
    Ok(copied as isize)
}

/// Copies through a buffer between a descriptor of ours and any other, at positions or given
/// offsets.
fn transfer(process: &Process, from: (c_int, Out<i64>), to: c_int, len: usize) -> Served<isize> {
    let mut buffer = vec![0_u8; len.clamp(1, 1 << 16)];
    let mut done = 0;
    let len = len.min(TRANSFER_BYTES_MAX);
    let start = from.1.get()?.map(offset_of).transpose()?;
    while done < len {
        let want = buffer.len().min(len - done);
        let at = start.map(|start| start + done as u64);
        let got = match read_any(process, from.0, &mut buffer[..want], at) {
            Ok(0) => break,
            Err(_) if done > 0 => break,
            got => got?,
        };
        let (written, stopped) = write_all(process, to, &buffer[..got]);
        if at.is_none() && written < got {
            step_back(process, from.0, got - written)?;
        }
        done += written;
        if let Some(errno) = stopped {
            if done == 0 {
                return Err(Stop::Errno(errno));
            }
            break;
        }
    }
    if let Some(start) = start {
        from.1.put((start + done as u64) as i64)?;
    }
    Ok(done as isize)
}

fn read_any(process: &Process, fd: c_int, to: &mut [u8], at: Option<u64>) -> Result<usize, Errno> {
    match (fdtable::get(fd), at) {
        (Some(desc), Some(at)) => process.fs.read_at(desc, at, &mut [UserOut::new(to)]),
        (Some(desc), None) => process.fs.read(desc, &mut [UserOut::new(to)]),
        (None, at) => waiting::read(fdtable::borrow_checked(fd)?, to, at),
    }
}

fn write_any(process: &Process, fd: c_int, from: &[u8]) -> Result<usize, Errno> {
    match fdtable::get(fd) {
        Some(desc) => {
            let from = match limit::room(process, desc, None, from.len()) {
                Ok(room) => &from[..room],
                Err(_) => return Err(Errno::FBIG),
            };
            let bytes = process.fs.write(desc, &[UserIn::new(from)])?;
            Ok(bytes)
        }
        None => waiting::write(fdtable::borrow_checked(fd)?, from),
    }
}

/// Gives how much was written, and why not all.
fn write_all(process: &Process, fd: c_int, from: &[u8]) -> (usize, Option<Errno>) {
    let mut written = 0;
    while written < from.len() {
        match write_any(process, fd, &from[written..]) {
            Ok(bytes) => written += bytes,
            Err(errno) => return (written, Some(errno)),
        }
    }
    (written, None)
}

/// Bytes that were read but could not be written on are not consumed.
fn step_back(process: &Process, fd: c_int, bytes: usize) -> Result<(), Errno> {
    let back = -(bytes as c_long);
    if let Some(desc) = fdtable::get(fd) {
        return process.fs.seek(desc, back, Whence::Current).map(|_| ());
    }
    let from = rustix::fs::SeekFrom::Current(back);
    rustix::fs::seek(fdtable::borrow_checked(fd)?, from).map(|_| ())
}
