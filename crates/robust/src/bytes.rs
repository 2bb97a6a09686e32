//! Byte locks of a file: they tell which processes are alive, as the kernel knows it.
//!
//! A process holds a POSIX lock on a byte, which the kernel drops with the process, whatever ends
//! it, and which neither fork nor dup copies. Rules that follow from what POSIX locks are:
//!
//! - closing *any* descriptor of the file drops all locks of the process: so a process opens it
//!   once;
//! - one's own byte always reads as free: so a process remembers which bytes are its own;
//! - threads do not exclude each other: where they must, there is a lock besides.
//!
//! A lock of an open file description ([`Kind::Description`]) goes with the last descriptor of it,
//! wherever that is.

use rustix::io::Errno;
use std::os::fd::RawFd;

/// Whose a lock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The process's.
    Process,
    /// The open file description's.
    Description,
}

/// How a byte is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    /// Alone.
    Alone,
    /// Together with others that share it.
    Shared,
}

fn flock(kind: i32, start: i64, length: i64) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: length,
        l_pid: 0,
    }
}

/// `fcntl` with a lock, past the C library's wrapper, which a preload library interposes.
fn fcntl(fd: RawFd, command: i32, lock: &mut libc::flock) -> Result<(), Errno> {
    let lock = std::ptr::from_mut(lock) as usize;
    let arguments = [fd as usize, command as usize, lock, 0, 0, 0];
    // SAFETY: the structure that these commands take, which lives until the call's end.
    unsafe { os::interrupt::system_call(libc::SYS_fcntl, arguments) }.map(drop)
}

fn set(fd: RawFd, command: i32, kind: i32, at: i64) -> Result<(), Errno> {
    rustix::io::retry_on_intr(|| fcntl(fd, command, &mut flock(kind, at, 1)))
}

/// Takes byte `at`, or changes how it is held; an error also if another holds it.
pub fn take(fd: RawFd, kind: Kind, hold: Hold, at: i64) -> Result<(), Errno> {
    let command = match kind {
        Kind::Process => libc::F_SETLK,
        Kind::Description => libc::F_OFD_SETLK,
    };
    let lock = match hold {
        Hold::Alone => libc::F_WRLCK,
        Hold::Shared => libc::F_RDLCK,
    };
    set(fd, command, lock, at)
}

/// As [`take`]. `false`: another holds it.
pub fn try_take(fd: RawFd, kind: Kind, hold: Hold, at: i64) -> Result<bool, Errno> {
    match take(fd, kind, hold, at) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Takes byte `at` for this process alone, however long that takes and whatever signals come.
pub fn wait_for(fd: RawFd, at: i64) -> Result<(), Errno> {
    set(fd, libc::F_SETLKW, libc::F_WRLCK, at)
}

/// Gives byte `at` back.
pub fn release(fd: RawFd, kind: Kind, at: i64) -> Result<(), Errno> {
    let command = match kind {
        Kind::Process => libc::F_SETLK,
        Kind::Description => libc::F_OFD_SETLK,
    };
    set(fd, command, libc::F_UNLCK, at)
}

/// Whether another process (or description) holds one of `length` bytes from `start` on (0: up to
/// the end), and which process: 0 if that is not visible from here.
pub fn holder(fd: RawFd, kind: Kind, start: i64, length: i64) -> Result<Option<u32>, Errno> {
    let held = conflict(fd, kind, start, length)?;
    Ok(held.map(|lock| u32::try_from(lock.l_pid).unwrap_or(0)))
}

/// A lock of another owner on one of the bytes, if there is one.
fn conflict(fd: RawFd, kind: Kind, start: i64, length: i64) -> Result<Option<libc::flock>, Errno> {
    let command = match kind {
        Kind::Process => libc::F_GETLK,
        Kind::Description => libc::F_OFD_GETLK,
    };
    let mut lock = flock(libc::F_WRLCK, start, length);
    fcntl(fd, command, &mut lock)?;
    Ok((i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock))
}

/// Whether a process, which may be the calling one, holds one of the bytes `start..end` as a
/// process: two calls for each byte that is held, and one more.
pub fn is_held_by(fd: RawFd, process: u32, start: i64, end: i64) -> Result<bool, Errno> {
    if start >= end {
        return Ok(false);
    }
    // As an owner that is no process: the kernel does not tell one of its own locks.
    let Some(lock) = conflict(fd, Kind::Description, start, end - start)? else {
        return Ok(false);
    };
    let behind = if lock.l_len == 0 { end } else { lock.l_start + lock.l_len };
    Ok(lock.l_pid.cast_unsigned() == process
        || is_held_by(fd, process, start, lock.l_start)?
        || is_held_by(fd, process, behind, end)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// A process sees its own locks only as another owner; the bytes around them are free.
    #[test]
    fn a_process_finds_the_bytes_that_it_holds() {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("bytes", flags).expect("a file");
        let (fd, own) = (file.as_raw_fd(), std::process::id());
        for at in [3, 5, 9] {
            assert_eq!(try_take(fd, Kind::Process, Hold::Alone, at), Ok(true));
        }
        assert_eq!(holder(fd, Kind::Process, 0, 10), Ok(None), "as itself it sees none");
        for (start, end, held) in [
            (0, 10, true),
            (0, 3, false),
            (4, 5, false),
            (4, 6, true),
            (6, 9, false),
            (9, 99, true),
        ] {
            assert_eq!(is_held_by(fd, own, start, end), Ok(held), "{start}..{end}");
            assert_eq!(is_held_by(fd, own + 1, start, end), Ok(false), "another process");
        }
        assert_eq!(release(fd, Kind::Process, 9), Ok(()));
        assert_eq!(is_held_by(fd, own, 6, 99), Ok(false));
    }
}
