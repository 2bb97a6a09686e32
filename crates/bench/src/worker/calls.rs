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

/// `ftruncate`.
pub fn resize(fd: i32, size: u64) -> Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::ftruncate(fd, size.cast_signed()) } as isize).map(drop)
}

/// `ftruncate` to nothing.
pub fn empty(fd: i32) -> Result<()> {
    resize(fd, 0)
}

/// `unlink`.
pub fn unlink(path: &CStr) -> Result<()> {
    // SAFETY: `path` is NUL-terminated.
    check(unsafe { libc::unlink(path.as_ptr()) } as isize).map(drop)
}

/// `fsync`.
pub fn sync(fd: i32) -> Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::fsync(fd) } as isize).map(drop)
}

/// `rename`.
pub fn rename(from: &CStr, to: &CStr) -> Result<()> {
    // SAFETY: both are NUL-terminated.
    check(unsafe { libc::rename(from.as_ptr(), to.as_ptr()) } as isize).map(drop)
}

/// An open directory whose names are looked at one after the other, again and again.
pub struct Listing(*mut libc::DIR);

impl Listing {
    /// `opendir`.
    pub fn open(path: &CStr) -> Result<Self> {
        // SAFETY: `path` is NUL-terminated.
        let dir = unsafe { libc::opendir(path.as_ptr()) };
        if dir.is_null() { Err(Error::last_os_error()) } else { Ok(Self(dir)) }
    }

    /// `readdir`, and `fstatat` of what it gives.
    pub fn next(&self) -> Result<()> {
        // SAFETY: the stream is open; the entry is good until the next call.
        unsafe {
            let mut entry = libc::readdir(self.0);
            if entry.is_null() {
                libc::rewinddir(self.0);
                entry = libc::readdir(self.0);
            }
            let entry = entry.as_ref().ok_or_else(Error::last_os_error)?;
            let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
            let name = entry.d_name.as_ptr();
            check(libc::fstatat(libc::dirfd(self.0), name, stat.as_mut_ptr(), 0) as isize).map(drop)
        }
    }
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
