//! Kernel calls that may wait and are made inside: on pipes, sockets and terminals, for calls of
//! the program that move bytes between those and the volume.
//!
//! A signal that is kept back ends them as it would have ended the program's own call: with
//! `INTERRUPTED` if nothing was moved. A call that moved bytes gives their count; the next one ends
//! at once, so that the whole gives a short count. No lock of ours may be held.

use std::os::fd::{AsRawFd, BorrowedFd};

use os::interrupt;
use rustix::fs::OFlags;
use rustix::pipe::SpliceFlags;
use vfs::Errno;

/// Longest time until a thread that waits for a pipe learns that it was cancelled, ms.
const CANCELLED_MS: usize = 100;

/// # Safety
///
/// The arguments are what the system call demands.
unsafe fn call(number: i64, arguments: [usize; 6]) -> Result<usize, Errno> {
    loop {
        // SAFETY: the caller vouches for it.
        match (unsafe { interrupt::wait_call(number, arguments) }, interrupt::reason()) {
            (Err(Errno::INTR), Some(Errno::INTR)) => return Err(vfs::INTERRUPTED),
            (Err(Errno::INTR), Some(_)) => return Err(vfs::BEGIN_ANEW),
            // The C library's own signal, as of another thread that changes the user: it never
            // ends a call of the program's.
            (Err(Errno::INTR), None) => {}
            (result, _) => return result,
        }
    }
}

fn number_of(fd: BorrowedFd<'_>) -> usize {
    fd.as_raw_fd() as usize
}

/// `read`, or `pread` at an offset.
pub fn read(fd: BorrowedFd<'_>, to: &mut [u8], at: Option<u64>) -> Result<usize, Errno> {
    let number = if at.is_some() { libc::SYS_pread64 } else { libc::SYS_read };
    let buffer = to.as_mut_ptr() as usize;
    let arguments = [number_of(fd), buffer, to.len(), at.unwrap_or(0) as usize, 0, 0];
    // SAFETY: a buffer of that length.
    unsafe { call(number, arguments) }
}

/// `write`.
pub fn write(fd: BorrowedFd<'_>, from: &[u8]) -> Result<usize, Errno> {
    let arguments = [number_of(fd), from.as_ptr() as usize, from.len(), 0, 0, 0];
    // SAFETY: a buffer of that length.
    unsafe { call(libc::SYS_write, arguments) }
}

/// `splice` from an offset of a file to a pipe.
pub fn splice(
    from: BorrowedFd<'_>,
    mut start: i64,
    to: BorrowedFd<'_>,
    len: usize,
    flags: SpliceFlags,
) -> Result<usize, Errno> {
    let at = (&raw mut start) as usize;
    let arguments = [number_of(from), at, number_of(to), 0, len, flags.bits() as usize];
    // SAFETY: an offset that lives as long as the call.
    unsafe { call(libc::SYS_splice, arguments) }
}

/// Waits until a pipe can be read or written (`POLLIN`, `POLLOUT`), unless its other end is closed
/// or it is not open for that: then the call on it says so. For calls that are cancellation points:
/// `BEGIN_ANEW` when there is something to act on.
pub fn ready(pipe: BorrowedFd<'_>, events: i16) -> Result<(), Errno> {
    let mut asked = libc::pollfd { fd: pipe.as_raw_fd(), events, revents: 0 };
    let at = (&raw mut asked) as usize;
    // SAFETY: one structure, here and below.
    if unsafe { call(libc::SYS_poll, [at, 1, 0, 0, 0, 0]) }? > 0 {
        return Ok(());
    }
    let flags = rustix::fs::fcntl_getfl(pipe)?;
    let other = if events == libc::POLLIN { OFlags::WRONLY } else { OFlags::RDONLY };
    if flags.contains(OFlags::NONBLOCK) || flags & OFlags::ACCMODE == other {
        return Ok(());
    }
    // SAFETY: as above.
    while unsafe { call(libc::SYS_poll, [at, 1, CANCELLED_MS, 0, 0, 0]) }? == 0 {
        if interrupt::reason().is_some() {
            return Err(vfs::BEGIN_ANEW);
        }
    }
    Ok(())
}
