//! `splice` between a file of ours and a pipe, by copying, and `sendfile` to one; `tee` takes pipes
//! only. (So does `vmsplice`: the kernel refuses our placeholders as it refuses any file.)
//!
//! Towards the pipe the bytes go through a memory file of the call's own, which the kernel splices:
//! so waiting, `SPLICE_F_NONBLOCK` and short counts are exactly the kernel's. Bytes from a pipe are
//! read first: if the volume then has no space, they are consumed although the call fails.
//!
//! No locks here; a position is read and moved in two steps.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{FileType, MemfdFlags};
use rustix::pipe::SpliceFlags;
use vfs::{Desc, Errno, IoOffset, UserIn, UserOut, Whence};

use crate::entry::blocking;
use crate::entry::fdtable;
use crate::entry::limit;
use crate::entry::pointers::Out;
use crate::entry::process::Process;
use crate::entry::{Served, Stop};
use crate::files::rw::{offset_of, opened_as};

/// What the kernel looks at before it splices, in its order.
pub fn check(
    process: &Process,
    (from, from_at): (c_int, Out<i64>),
    (to, to_at): (c_int, Out<i64>),
    len: usize,
) -> Result<(), Errno> {
    let (source, target) = (opened_as(process, from)?, opened_as(process, to)?);
    let pipes = (is_pipe(from), is_pipe(to));
    if pipes.0 && !from_at.is_null() || pipes.1 && !to_at.is_null() {
        return Err(Errno::SPIPE);
    }
    to_at.get()?;
    from_at.get()?;
    if !source.reads() || !target.writes() {
        return Err(Errno::BADF);
    }
    if len > isize::MAX as usize || !pipes.0 && !pipes.1 { Err(Errno::INVAL) } else { Ok(()) }
}

/// Bytes of each of a pipe's buffers.
const PAGE_BYTES: u64 = 4096;

/// Whether a number is a pipe's.
pub fn is_pipe(fd: c_int) -> bool {
    fdtable::borrow_checked(fd).is_ok_and(|fd| {
        rustix::fs::fstat(fd)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
    })
}

/// The pipe at the other side: `EINVAL` if it is something else.
fn pipe(fd: c_int) -> Result<(BorrowedFd<'static>, usize), Errno> {
    let pipe = fdtable::borrow_checked(fd)?;
    let mode = rustix::fs::fstat(pipe)?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::Fifo {
        return Err(Errno::INVAL);
    }
    Ok((pipe, rustix::pipe::fcntl_getpipe_size(pipe)?))
}

/// Whether reading would not wait: there are bytes, or there is no writer.
fn readable_now(pipe: BorrowedFd<'_>) -> bool {
    let mut asked = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, and no waiting.
    unsafe { libc::poll(&raw mut asked, 1, 0) > 0 }
}

/// From `file`, at an offset or its position, to a pipe.
pub fn to_pipe(
    process: &Process,
    (file, at): (Desc, Out<i64>),
    to: c_int,
    len: usize,
    flags: SpliceFlags,
) -> Served<isize> {
    if !process.fs.describe(file)?.1.reads() {
        return Err(Stop::Errno(Errno::BADF));
    }
    let (to, room) = pipe(to)?;
    let start = match at.get()? {
        Some(offset) => offset_of(offset)?,
        None => process.fs.seek(file, 0, Whence::Current)?,
    };
    let mut bytes = vec![0_u8; len.min(room)];
    let got = process.fs.read(file, &mut [UserOut::new(&mut bytes)], IoOffset::offset(start));
    let got = match got {
        Err(Errno::ISDIR) => return Err(Stop::Errno(Errno::INVAL)),
        got => got?,
    };
    if got == 0 {
        return Ok(0);
    }
    // The pipe keeps the memory file's pages until they are read: it is never used twice. They lie
    // as in the file, so that the pipe takes as much.
    let shift = start % PAGE_BYTES;
    let memory = rustix::fs::memfd_create(c"splice", MemfdFlags::CLOEXEC)?;
    let mut done = 0;
    while done < got {
        done += rustix::io::pwrite(&memory, &bytes[done..got], shift + done as u64)?;
    }
    if !flags.contains(SpliceFlags::NONBLOCK) {
        blocking::ready(to, libc::POLLOUT)?;
    }
    let moved = blocking::splice(memory.as_fd(), shift as i64, to, got, flags)?;
    let end = start + moved as u64;
    if at.is_null() {
        process.fs.seek(file, end as i64, Whence::Set)?;
    } else {
        at.put(end as i64)?;
    }
    Ok(moved as isize)
}

/// From a pipe to `file`, at an offset or its position.
pub fn from_pipe(
    process: &Process,
    from: c_int,
    (file, at): (Desc, Out<i64>),
    len: usize,
    flags: SpliceFlags,
) -> Served<isize> {
    let (_, status) = process.fs.describe(file)?;
    if !status.writes() {
        return Err(Stop::Errno(Errno::BADF));
    }
    let (from, room) = pipe(from)?;
    if status.has(libc::O_APPEND) {
        return Err(Stop::Errno(Errno::INVAL));
    }
    let start = at.get()?.map(offset_of).transpose()?;
    if flags.contains(SpliceFlags::NONBLOCK) && !readable_now(from) {
        return Err(Stop::Errno(Errno::AGAIN));
    }
    if !flags.contains(SpliceFlags::NONBLOCK) {
        blocking::ready(from, libc::POLLIN)?;
    }
    let room = limit::room(process, file, start, len.min(room))?;
    let mut bytes = vec![0_u8; room];
    let got = blocking::read(from, &mut bytes, None)?;
    let source = [UserIn::new(&bytes[..got])];
    let written = process.fs.write(file, &source, start.into())?;
    if let Some(start) = start {
        at.put((start + written as u64) as i64)?;
    }
    Ok(written as isize)
}
