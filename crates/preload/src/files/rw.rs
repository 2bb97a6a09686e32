//! Reads and writes: `read`, `write`, their vectored, positioned, checked and 64-bit forms,
//! `lseek`, `sendfile`, `copy_file_range`.
//!
//! No locks here: the engine makes each call atomic and moves the shared position. Where the other
//! end is the kernel's it may wait, until a signal comes (see `waiting`).

use std::ffi::{c_int, c_long, c_uint};
use std::os::fd::OwnedFd;

use vfs::{
    Attr, Desc, Errno, FileSystemExt, IoOffset, Kind, OpenFlags, Synced, UserIn, UserOut, Whence,
};

use crate::entry::blocking;
use crate::entry::fdtable;
use crate::entry::hooks;
use crate::entry::limit;
use crate::entry::pointers::{Bytes, Out};
use crate::entry::process::Process;
use crate::entry::{Served, Stop, TRANSFER_BYTES_MAX};
use crate::files::splice;
use crate::paths::flags;

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

/// Where `preadv2` and `pwritev2` begin; `None`: at the position. As the kernel, before it looks at
/// anything else.
pub fn place_of(at: i64) -> Result<Option<i64>, Errno> {
    if at < -1 { Err(Errno::INVAL) } else { Ok((at != -1).then_some(at)) }
}

/// As [`vectors`], with what the kernel looks at before it moves a byte: whether the description
/// allows it, the pieces, the end of the range, the flags. `None`: no piece has a byte, and nothing
/// more is looked at.
fn allowed(
    process: &Process,
    (desc, writes): (Desc, bool),
    (list, count): (Out<Vector>, c_int),
    at: i64,
    flags: c_int,
) -> Result<Option<Vec<Vector>>, Errno> {
    let first = |errno| first_of(process, desc, writes, errno);
    let pieces = vectors(list, count).map_err(first)?;
    let bytes: usize = pieces.iter().map(|piece| piece.iov_len).sum();
    if bytes == 0 {
        let (_, open) = process.fs.describe(desc)?;
        let denied = if writes { !open.writes() } else { !open.reads() };
        return if denied { Err(Errno::BADF) } else { Ok(None) };
    }
    if at >= 0 && at.checked_add(bytes as i64).is_none() {
        return Err(first(Errno::INVAL));
    }
    flags::check_vectors(flags).map_err(first)?;
    Ok(Some(pieces))
}

/// The pieces that may be written at `at`, or where `desc` stands.
fn sources(
    process: &Process,
    (desc, at): (Desc, Option<u64>),
    pieces: &[Vector],
) -> Served<Vec<UserIn<'static>>> {
    let mut room = limit::room(process, desc, at, pieces.iter().map(|piece| piece.iov_len).sum())?;
    let source = |piece: &Vector| {
        let len = piece.iov_len.min(room);
        room -= len;
        Bytes(piece.iov_base).source(len)
    };
    Ok(pieces.iter().map(source).collect())
}

/// Why a call on a description fails whose arguments are wrong: that it may not be read, or
/// written, comes first.
#[cold]
pub fn first_of(process: &Process, desc: Desc, writes: bool, errno: Errno) -> Errno {
    let allows = |flags: OpenFlags| if writes { flags.writes() } else { flags.reads() };
    match process.fs.describe(desc) {
        Ok((_, flags)) if allows(flags) => errno,
        Ok(_) => Errno::BADF,
        Err(closed) => closed,
    }
}

#[inline]
pub fn read_one(process: &Process, desc: Desc, to: Bytes, len: usize) -> Served<isize> {
    let to = to.check(len).map_err(|errno| first_of(process, desc, false, errno))?;
    let mut sink = [to.sink(len.min(TRANSFER_BYTES_MAX))];
    Ok(process.fs.of(desc).read(desc, &mut sink, IoOffset::POSITION)? as isize)
}

#[inline]
pub fn read_one_at(process: &Process, desc: Desc, to: Bytes, len: usize, at: i64) -> Served<isize> {
    let memory = to.check(len);
    // Neither it nor the end may lie beyond the largest offset that there is.
    if (at | at.wrapping_add(len as i64)) < 0 {
        let errno = memory.err().unwrap_or(Errno::INVAL);
        let early = at < 0;
        let errno = if early { Errno::INVAL } else { first_of(process, desc, false, errno) };
        return Err(Stop::Errno(errno));
    }
    let memory = memory.map_err(|errno| first_of(process, desc, false, errno))?;
    let mut sink = [memory.sink(len.min(TRANSFER_BYTES_MAX))];
    let at = IoOffset::offset(at.cast_unsigned());
    Ok(process.fs.of(desc).read(desc, &mut sink, at)? as isize)
}

/// Why nothing was written of `len` bytes at `at`, or where `desc` stands: what reaches beyond the
/// largest offset that there is is no range at all to the kernel.
#[cold]
pub fn why_not(
    process: &Process,
    (desc, at): (Desc, Option<u64>),
    len: usize,
    errno: Errno,
) -> Errno {
    if errno != Errno::FBIG {
        return errno;
    }
    let at = at.map_or_else(|| process.fs.seek(desc, 0, Whence::Current), Ok);
    let beyond = at.is_ok_and(|at| at.saturating_add(len as u64) > i64::MAX as u64);
    if beyond { Errno::INVAL } else { errno }
}

pub fn read_vectors(
    process: &Process,
    desc: Desc,
    list: Out<Vector>,
    count: c_int,
    at: i64,
    flags: c_int,
) -> Served<isize> {
    let Some(pieces) = allowed(process, (desc, false), (list, count), at, flags)? else {
        return Ok(0);
    };
    let sink = |piece: &Vector| Bytes(piece.iov_base).sink(piece.iov_len);
    let mut sinks: Vec<UserOut<'static>> = pieces.iter().map(sink).collect();
    let at = if at == -1 { IoOffset::POSITION } else { IoOffset::offset(offset_of(at)?) };
    let bytes = process.fs.of(desc).read(desc, &mut sinks, at).map_err(|errno| {
        // A directory has no call that could have flags.
        let flagged = errno == Errno::ISDIR && flags & !libc::RWF_HIPRI != 0;
        if flagged { Errno::OPNOTSUPP } else { errno }
    })?;
    Ok(bytes as isize)
}

pub fn write_vectors(
    process: &Process,
    desc: Desc,
    list: Out<Vector>,
    count: c_int,
    at: i64,
    flags: c_int,
) -> Served<isize> {
    let durable = libc::RWF_SYNC | libc::RWF_DSYNC;
    let Some(pieces) = allowed(process, (desc, true), (list, count), at, flags)? else {
        return Ok(0);
    };
    let place = if at == -1 { None } else { Some(offset_of(at)?) };
    let anew = match flags & (libc::RWF_APPEND | flags::RWF_NOAPPEND) {
        0 => None,
        libc::RWF_APPEND => Some(libc::O_APPEND),
        _ => process.fs.describe(desc)?.1.appends().then_some(0),
    };
    let bytes = if let Some(how) = anew {
        write_as(process, (desc, how), &pieces, at)?
    } else {
        let sources = sources(process, (desc, place), &pieces)?;
        process.fs.of(desc).write(desc, &sources, place.into())?
    };
    if flags & durable != 0 {
        process.fs.sync(Synced::file(desc, flags & libc::RWF_SYNC == 0))?;
    }
    Ok(bytes as isize)
}

/// Writes as through a description with `O_APPEND`, or without: one is opened for the call.
fn write_as(
    process: &Process,
    (desc, how): (Desc, c_int),
    from: &[Vector],
    at: i64,
) -> Served<usize> {
    let (node, flags) = process.fs.describe(desc)?;
    if !flags.writes() {
        return Err(Stop::Errno(Errno::BADF));
    }
    let at_end = how == libc::O_APPEND;
    let place = match at {
        _ if at_end => None,
        -1 => Some(process.fs.seek(desc, 0, Whence::Current)?),
        at => Some(offset_of(at)?),
    };
    let own = process.fs.open(node.into(), OpenFlags(libc::O_WRONLY | how), None)?;
    if let Some(place) = place {
        process.fs.seek(own, place as i64, Whence::Set)?;
    }
    let sources = sources(process, (own, None), from);
    let written = sources.and_then(|from| Ok(process.fs.write(own, &from, IoOffset::POSITION)?));
    let end = process.fs.seek(own, 0, Whence::Current);
    process.fs.close(own)?;
    let written = written?;
    // Without an offset the position moves behind what was written.
    if at == -1 {
        process.fs.seek(desc, end? as i64, Whence::Set)?;
    }
    Ok(written)
}

pub fn copy_range(
    process: &Process,
    from: (Desc, Out<i64>),
    to: (Desc, Out<i64>),
    len: usize,
) -> Served<isize> {
    let fs = &process.fs;
    let place = |desc, given: Out<i64>| match given.get()? {
        Some(offset) if (offset.cast_unsigned()).checked_add(len as u64).is_none() => {
            Err(Errno::OVERFLOW)
        }
        Some(offset) => offset_of(offset),
        None => fs.seek(desc, 0, Whence::Current),
    };
    let [from_at, to_at] = [place(from.0, from.1)?, place(to.0, to.1)?];
    let len = limit::room(process, to.0, Some(to_at), len.min(TRANSFER_BYTES_MAX))? as u64;
    let copied = fs.copy_range(from.0, from_at, to.0, to_at, len)?;
    let mut told = Ok(());
    for ((desc, given), start) in [(from, from_at), (to, to_at)] {
        let end = (start + copied) as i64;
        if given.is_null() {
            fs.seek(desc, end, Whence::Set)?;
        } else if copied > 0 {
            // The bytes have moved whether or not the program learns where to.
            told = told.and(given.put(end));
        }
    }
    told?;
    Ok(copied as isize)
}

/// How a number of ours, or of the kernel's, was opened: `EBADF` with `O_PATH` too.
pub fn opened_as(process: &Process, fd: c_int) -> Result<OpenFlags, Errno> {
    let flags = if let Some(desc) = fdtable::get(fd) {
        process.fs.describe(desc)?.1
    } else {
        let flags = rustix::fs::fcntl_getfl(fdtable::borrow_checked(fd)?)?;
        OpenFlags(flags.bits().cast_signed())
    };
    if flags.path_only() { Err(Errno::BADF) } else { Ok(flags) }
}

/// What of a number is a pipe or a socket: it has no offsets.
fn is_stream(fd: c_int) -> Result<bool, Errno> {
    if fdtable::get(fd).is_some() {
        return Ok(false);
    }
    let mode = rustix::fs::fstat(fdtable::borrow_checked(fd)?)?.st_mode;
    Ok(matches!(mode & libc::S_IFMT, libc::S_IFIFO | libc::S_IFSOCK))
}

/// What the kernel looks at before `sendfile` moves a byte, in its order.
pub fn check_sendfile(
    process: &Process,
    (from, offset): (c_int, Out<i64>),
    out: c_int,
    len: usize,
) -> Result<(), Errno> {
    let start = offset.get()?;
    let source = opened_as(process, from)?;
    if !source.reads() {
        return Err(Errno::BADF);
    }
    let stream = is_stream(from)?;
    if start.is_some() && stream {
        return Err(Errno::SPIPE);
    }
    let start = start.unwrap_or(0);
    if (len as i64 | start | start.wrapping_add(len as i64)) < 0 {
        return Err(Errno::INVAL);
    }
    let target = opened_as(process, out)?;
    if !target.writes() {
        return Err(Errno::BADF);
    }
    let directory = || -> Result<bool, Errno> {
        let Some(desc) = fdtable::get(from) else { return Ok(false) };
        let node = process.fs.describe(desc)?.0;
        Ok(process.fs.attributes(node)?.kind == Kind::Directory)
    };
    // Ends that do not fit are refused whatever is to be moved, a directory if something is.
    let unfit = !splice::is_pipe(out) && (target.appends() || stream);
    if unfit || len > 0 && directory()? {
        return Err(Errno::INVAL);
    }
    Ok(())
}

/// Why `sendfile` failed: as the kernel, that it cannot tell the offset counts more.
#[cold]
pub fn untold(offset: Out<i64>, stop: Stop) -> Stop {
    match (&stop, offset.get()) {
        (Stop::Errno(_), Ok(Some(at))) if offset.put(at).is_err() => Stop::Errno(Errno::FAULT),
        _ => stop,
    }
}

/// What the kernel looks at before `copy_file_range` looks at the files, in its order.
pub fn check_copy(
    process: &Process,
    (from, from_at): (c_int, Out<i64>),
    (to, to_at): (c_int, Out<i64>),
    (len, flags): (usize, c_uint),
) -> Result<(), Errno> {
    opened_as(process, from)?;
    opened_as(process, to)?;
    let ends = [from_at.get()?, to_at.get()?];
    if flags != 0 {
        return Err(Errno::INVAL);
    }
    let beyond = |at: i64| at < 0 || at.cast_unsigned().checked_add(len as u64).is_none();
    if ends.into_iter().flatten().any(beyond) {
        // What the files are counts more than where in them.
        match copy_across(process, from, to)? {
            Errno::XDEV => {}
            errno => return Err(errno),
        }
    }
    Ok(())
}

/// Why nothing is copied from a file to another, of which one is the kernel's. As in the kernel,
/// what they are and were opened for comes first.
pub fn copy_across(process: &Process, from: c_int, to: c_int) -> Result<Errno, Errno> {
    let about = |fd| -> Result<(Kind, OpenFlags), Errno> {
        if let Some(desc) = fdtable::get(fd) {
            let (node, flags) = process.fs.describe(desc)?;
            return Ok((process.fs.attributes(node)?.kind, flags));
        }
        let fd = fdtable::borrow_checked(fd)?;
        let kind = Kind::from_mode(rustix::fs::fstat(fd)?.st_mode).ok_or(Errno::INVAL)?;
        Ok((kind, OpenFlags(rustix::fs::fcntl_getfl(fd)?.bits().cast_signed())))
    };
    let (source, target) = (about(from)?, about(to)?);
    Ok(match (source.0, target.0) {
        (Kind::Directory, _) | (_, Kind::Directory) => Errno::ISDIR,
        (Kind::File, Kind::File) if !source.1.reads() || !target.1.writes() => Errno::BADF,
        (Kind::File, Kind::File) if target.1.appends() => Errno::BADF,
        (Kind::File, Kind::File) => Errno::XDEV,
        _ => Errno::INVAL,
    })
}

/// Copies through a buffer between a descriptor of ours and any other, at positions or given
/// offsets.
pub fn transfer(
    process: &Process,
    from: (c_int, Out<i64>),
    to: c_int,
    len: usize,
) -> Served<isize> {
    for fd in [from.0, to] {
        if fdtable::get(fd).is_none() {
            (hooks::get().hand_over)(fd);
        }
    }
    let mut buffer = vec![0_u8; len.clamp(1, 1 << 16)];
    let mut done = 0;
    let len = len.min(TRANSFER_BYTES_MAX);
    let start = from.1.get()?.map(offset_of).transpose()?;
    // Of a file to itself both begin at its one position, which the writes move.
    let same = match (fdtable::get(from.0), fdtable::get(to)) {
        (Some(one), Some(other)) if one == other && start.is_none() => {
            Some(process.fs.seek(one, 0, Whence::Current)?)
        }
        _ => None,
    };
    while done < len {
        let want = buffer.len().min(len - done);
        let at = start.or(same).map(|start| start + done as u64);
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
        (Some(desc), at) => process.fs.read(desc, &mut [UserOut::new(to)], at.into()),
        (None, at) => blocking::read(fdtable::borrow_checked(fd)?, to, at),
    }
}

fn write_any(process: &Process, fd: c_int, from: &[u8]) -> Result<usize, Errno> {
    match fdtable::get(fd) {
        Some(desc) => {
            let from = match limit::room(process, desc, None, from.len()) {
                Ok(room) => &from[..room],
                Err(_) => return Err(Errno::FBIG),
            };
            let bytes = process.fs.write(desc, &[UserIn::new(from)], IoOffset::POSITION)?;
            Ok(bytes)
        }
        None => blocking::write(fdtable::borrow_checked(fd)?, from),
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

/// Puts the position back over bytes that were read but could not be written on.
fn step_back(process: &Process, fd: c_int, bytes: usize) -> Result<(), Errno> {
    let back = -(bytes as c_long);
    if let Some(desc) = fdtable::get(fd) {
        return process.fs.seek(desc, back, Whence::Current).map(|_| ());
    }
    let from = rustix::fs::SeekFrom::Current(back);
    rustix::fs::seek(fdtable::borrow_checked(fd)?, from).map(|_| ())
}

/// Reads from a file that need not be open.
pub fn read_at(process: &Process, attr: &Attr, offset: u64, to: &mut [u8]) -> Result<usize, Errno> {
    let desc = process.fs.open(attr.node.into(), vfs::OpenFlags(libc::O_RDONLY), None)?;
    let result = process.fs.read(desc, &mut [UserOut::new(to)], IoOffset::offset(offset));
    process.fs.close(desc)?;
    result
}

/// A copy of a file of the volume in memory, for code that opens files without us.
pub fn copy_to_memory(process: &Process, attr: &Attr, path: &[u8]) -> Result<OwnedFd, Errno> {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let memory = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut buffer = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let got = read_at(process, attr, at, &mut buffer)?;
        if got == 0 {
            return Ok(memory);
        }
        let mut done = 0;
        while done < got {
            done += rustix::io::write(&memory, &buffer[done..got])?;
        }
        at += got as u64;
    }
}
