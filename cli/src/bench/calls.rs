//! The libc functions that the worker times, exactly as a C program calls them: through the symbols
//! that a preload library may interpose. (`rustix` would go straight to the kernel.)

use std::ffi::CStr;
use std::io::{Error, Result};

/// `open`.
pub fn open(path: &CStr, flags: i32) -> Result<i32> {
    // SAFETY: `path` is NUL-terminated; a mode is given for the flags that need one.
    check(unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o600) } as isize)
        .map(|fd| fd as i32)
}

/// `close`.
pub fn close(fd: i32) -> Result<()> {
    // SAFETY: the callers close descriptors that they opened, once.
    check(unsafe { libc::close(fd) } as isize).map(drop)
}

/// `read`.
pub fn read(fd: i32, buffer: &mut [u8]) -> Result<()> {
    // SAFETY: `buffer` is writable for its length.
    whole(unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) }, buffer.len())
}

/// `pread`.
pub fn pread(fd: i32, buffer: &mut [u8], offset: u64) -> Result<()> {
    // SAFETY: `buffer` is writable for its length.
    let read =
        unsafe { libc::pread(fd, buffer.as_mut_ptr().cast(), buffer.len(), offset.cast_signed()) };
    whole(read, buffer.len())
}

/// `write`.
pub fn write(fd: i32, data: &[u8]) -> Result<()> {
    // SAFETY: `data` is readable for its length.
    whole(unsafe { libc::write(fd, data.as_ptr().cast(), data.len()) }, data.len())
}

/// `pwrite`.
pub fn pwrite(fd: i32, data: &[u8], offset: u64) -> Result<()> {
    // SAFETY: `data` is readable for its length.
    let written =
        unsafe { libc::pwrite(fd, data.as_ptr().cast(), data.len(), offset.cast_signed()) };
    whole(written, data.len())
}

/// `lseek` to the start.
pub fn rewind(fd: i32) -> Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::lseek(fd, 0, libc::SEEK_SET) } as isize).map(drop)
}

/// `ftruncate` to nothing.
pub fn empty(fd: i32) -> Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::ftruncate(fd, 0) } as isize).map(drop)
}

/// `unlink`.
pub fn unlink(path: &CStr) -> Result<()> {
    // SAFETY: `path` is NUL-terminated.
    check(unsafe { libc::unlink(path.as_ptr()) } as isize).map(drop)
}

/// `stat`; gives the size.
pub fn stat(path: &CStr) -> Result<u64> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `path` is NUL-terminated and `stat` has room for the answer.
    check(unsafe { libc::stat(path.as_ptr(), stat.as_mut_ptr()) } as isize)?;
    // SAFETY: a call that succeeded has filled it.
    Ok(unsafe { stat.assume_init() }.st_size as u64)
}

/// `fcntl`: locks (`F_WRLCK`) or unlocks (`F_UNLCK`) a byte range, without waiting.
pub fn lock(fd: i32, kind: i32, start: u64, len: u64) -> Result<()> {
    let lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start.cast_signed(),
        l_len: len.cast_signed(),
        l_pid: 0,
    };
    // SAFETY: `lock` is a whole structure.
    check(unsafe { libc::fcntl(fd, libc::F_SETLK, &raw const lock) } as isize).map(drop)
}

fn check(result: isize) -> Result<isize> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}

fn whole(result: isize, wanted: usize) -> Result<()> {
    match check(result)? {
        moved if moved as usize == wanted => Ok(()),
        moved => Err(Error::other(format!("only {moved} of {wanted} bytes were moved"))),
    }
}
