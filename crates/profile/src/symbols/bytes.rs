//! Bytes in and out, descriptors, mappings.
//!
//! Variadic functions take the argument that they may have from its register, as it was passed.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use record::{By, Kind};

use crate::descriptors;
use crate::symbols::timed;
use crate::timing::{Error, all, closed, copied, on, opened, path};

type Memory = *mut c_void;
type Text = *const c_char;

const HERE: c_int = libc::AT_FDCWD;

/// Times `fcntl`: its commands are of several kinds.
pub fn control(fd: c_int, command: c_int, next: impl FnOnce() -> c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, next),
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => on(Kind::Lock, fd, next),
        _ => on(Kind::Fcntl, fd, next),
    }
}

timed! {
    fn [open, open64, __open, __open64, __open_nocancel, __open64_nocancel](
        path: Text, flags: c_int, mode: c_uint
    ) -> c_int = |next| opened(Kind::Open, (HERE, path), |fd| fd, next);
    fn [__open_2, __open64_2](path: Text, flags: c_int) -> c_int
    = |next| opened(Kind::Open, (HERE, path), |fd| fd, next);
    fn [openat, openat64](dirfd: c_int, path: Text, flags: c_int, mode: c_uint) -> c_int
    = |next| opened(Kind::Open, (dirfd, path), |fd| fd, next);
    fn [__openat_2, __openat64_2](dirfd: c_int, path: Text, flags: c_int) -> c_int
    = |next| opened(Kind::Open, (dirfd, path), |fd| fd, next);
    fn [creat, creat64](path: Text, mode: c_uint) -> c_int
    = |next| opened(Kind::Open, (HERE, path), |fd| fd, next);
    fn [mkstemp, mkstemp64](template: *mut c_char) -> c_int
    = |next| opened(Kind::Open, (HERE, template), |fd| fd, next);
    fn [mkostemp, mkostemp64](template: *mut c_char, flags: c_int) -> c_int
    = |next| opened(Kind::Open, (HERE, template), |fd| fd, next);
    fn [mkstemps, mkstemps64](template: *mut c_char, suffix: c_int) -> c_int
    = |next| opened(Kind::Open, (HERE, template), |fd| fd, next);
    fn [mkostemps, mkostemps64](template: *mut c_char, suffix: c_int, flags: c_int) -> c_int
    = |next| opened(Kind::Open, (HERE, template), |fd| fd, next);
    fn [close, __close, __close_nocancel](fd: c_int) -> c_int
    = |next| closed(Kind::Close, fd, next);
    fn [close_range](first: c_uint, last: c_uint, flags: c_int) -> c_int = |next| {
        // What is to be closed by an exec stays.
        if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
            descriptors::take_all(first as usize, last as usize);
        }
        all(Kind::Close, By::Kernel, next)
    };
    fn [closefrom](first: c_int) -> () = |next| {
        descriptors::take_all(first.max(0) as usize, usize::MAX);
        all(Kind::Close, By::Kernel, next);
    };
    fn [dup](fd: c_int) -> c_int = |next| copied(fd, next);
    fn [dup2, __dup2](old: c_int, new: c_int) -> c_int = |next| copied(old, next);
    fn [dup3](old: c_int, new: c_int, flags: c_int) -> c_int = |next| copied(old, next);
}

timed! {
    fn [read, __read, __read_nocancel](fd: c_int, to: Memory, len: usize) -> isize
    = |next| on(Kind::Read, fd, next);
    fn [__read_chk](fd: c_int, to: Memory, len: usize, room: usize) -> isize
    = |next| on(Kind::Read, fd, next);
    fn [pread, pread64, __pread64, __pread64_nocancel, __libc_pread](
        fd: c_int, to: Memory, len: usize, at: i64
    ) -> isize = |next| on(Kind::Pread, fd, next);
    fn [__pread_chk, __pread64_chk](
        fd: c_int, to: Memory, len: usize, at: i64, room: usize
    ) -> isize = |next| on(Kind::Pread, fd, next);
    fn [readv](fd: c_int, list: Memory, count: c_int) -> isize
    = |next| on(Kind::Readv, fd, next);
    fn [preadv, preadv64](fd: c_int, list: Memory, count: c_int, at: i64) -> isize
    = |next| on(Kind::Preadv, fd, next);
    fn [preadv2, preadv64v2](
        fd: c_int, list: Memory, count: c_int, at: i64, flags: c_int
    ) -> isize = |next| on(Kind::Preadv, fd, next);
    fn [write, __write, __write_nocancel](fd: c_int, from: Memory, len: usize) -> isize
    = |next| on(Kind::Write, fd, next);
    fn [pwrite, pwrite64, __pwrite64, __libc_pwrite](
        fd: c_int, from: Memory, len: usize, at: i64
    ) -> isize = |next| on(Kind::Pwrite, fd, next);
    fn [writev](fd: c_int, list: Memory, count: c_int) -> isize
    = |next| on(Kind::Writev, fd, next);
    fn [pwritev, pwritev64](fd: c_int, list: Memory, count: c_int, at: i64) -> isize
    = |next| on(Kind::Pwritev, fd, next);
    fn [pwritev2, pwritev64v2](
        fd: c_int, list: Memory, count: c_int, at: i64, flags: c_int
    ) -> isize = |next| on(Kind::Pwritev, fd, next);
    fn [lseek, lseek64, llseek, __lseek](fd: c_int, offset: i64, whence: c_int) -> i64
    = |next| on(Kind::Lseek, fd, next);
    fn [sendfile, sendfile64](out: c_int, from: c_int, offset: Memory, len: usize) -> isize
    = |next| on(Kind::Sendfile, from, next);
    fn [copy_file_range](
        from: c_int, from_at: Memory, to: c_int, to_at: Memory, len: usize, flags: c_uint
    ) -> isize = |next| on(Kind::CopyRange, to, next);
    fn [splice](
        from: c_int, from_at: Memory, to: c_int, to_at: Memory, len: usize, flags: c_uint
    ) -> isize = |next| {
        // One of the two is a pipe.
        let file = if from_at.is_null() && descriptors::get(from).is_other() { to } else { from };
        on(Kind::Splice, file, next)
    };
    fn [fsync](fd: c_int) -> c_int = |next| on(Kind::Fsync, fd, next);
    fn [fdatasync](fd: c_int) -> c_int = |next| on(Kind::Fdatasync, fd, next);
    fn [sync_file_range](fd: c_int, offset: i64, len: i64, flags: c_uint) -> c_int
    = |next| on(Kind::SyncRange, fd, next);
    fn [syncfs](fd: c_int) -> c_int = |next| on(Kind::Sync, fd, next);
    fn [sync]() -> () = |next| all(Kind::Sync, By::Kernel, next);
    fn [truncate, truncate64](text: Text, size: i64) -> c_int
    = |next| path(Kind::Truncate, text, next);
    fn [ftruncate, ftruncate64](fd: c_int, size: i64) -> c_int
    = |next| on(Kind::Ftruncate, fd, next);
    fn [fallocate, fallocate64](fd: c_int, how: c_int, offset: i64, len: i64) -> c_int
    = |next| on(Kind::Fallocate, fd, next);
    fn [posix_fallocate, posix_fallocate64](fd: c_int, offset: i64, len: i64) -> c_int
    = |next| on(Kind::Fallocate, fd, || Error(next())).0;
    fn [posix_fadvise, posix_fadvise64](fd: c_int, offset: i64, len: i64, advice: c_int) -> c_int
    = |next| on(Kind::Fadvise, fd, || Error(next())).0;
    fn [readahead](fd: c_int, offset: i64, len: usize) -> isize
    = |next| on(Kind::Fadvise, fd, next);
    fn [flock](fd: c_int, operation: c_int) -> c_int = |next| on(Kind::Lock, fd, next);
    fn [lockf, lockf64](fd: c_int, command: c_int, len: i64) -> c_int
    = |next| on(Kind::Lock, fd, next);
    fn [fcntl, fcntl64, __fcntl, __libc_fcntl64](
        fd: c_int, command: c_int, argument: usize
    ) -> c_int = |next| control(fd, command, next);
    fn [ioctl](fd: c_int, request: c_ulong, argument: Memory) -> c_int
    = |next| on(Kind::Ioctl, fd, next);
    fn [aio_read, aio_read64, aio_write, aio_write64](request: *mut libc::aiocb) -> c_int = |next| {
        // SAFETY: the program's request, which the call reads.
        let fd = unsafe { request.as_ref() }.map_or(-1, |request| request.aio_fildes);
        on(Kind::Aio, fd, next)
    };
    fn [aio_fsync, aio_fsync64](how: c_int, request: *mut libc::aiocb) -> c_int = |next| {
        // SAFETY: as above.
        let fd = unsafe { request.as_ref() }.map_or(-1, |request| request.aio_fildes);
        on(Kind::Aio, fd, next)
    };
    fn [mmap, mmap64, __mmap](
        at: Memory, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64
    ) -> isize = |next| {
        if flags & libc::MAP_ANONYMOUS != 0 { next() } else { on(Kind::Mmap, fd, next) }
    };
    fn [msync](at: Memory, len: usize, flags: c_int) -> c_int
    = |next| all(Kind::Msync, By::Kernel, next);
}
