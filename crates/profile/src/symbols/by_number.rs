//! `syscall`: those of a file's calls that programs make by number. All others go on.

use std::ffi::{c_char, c_int, c_long};

use record::Kind;

use crate::symbols::timed;
use crate::timing::{at, closed, copied, on, opened};

/// The kind of a call whose first argument is a descriptor, and whose answer no descriptor.
fn on_descriptor(number: c_long) -> Option<Kind> {
    Some(match number {
        libc::SYS_read => Kind::Read,
        libc::SYS_pread64 => Kind::Pread,
        libc::SYS_readv => Kind::Readv,
        libc::SYS_preadv | libc::SYS_preadv2 => Kind::Preadv,
        libc::SYS_write => Kind::Write,
        libc::SYS_pwrite64 => Kind::Pwrite,
        libc::SYS_writev => Kind::Writev,
        libc::SYS_pwritev | libc::SYS_pwritev2 => Kind::Pwritev,
        libc::SYS_getdents64 | libc::SYS_getdents => Kind::Readdir,
        libc::SYS_lseek => Kind::Lseek,
        libc::SYS_fsync => Kind::Fsync,
        libc::SYS_fdatasync => Kind::Fdatasync,
        libc::SYS_sync_file_range => Kind::SyncRange,
        libc::SYS_ftruncate => Kind::Ftruncate,
        libc::SYS_fallocate => Kind::Fallocate,
        libc::SYS_fstat => Kind::Fstat,
        libc::SYS_flock => Kind::Lock,
        _ => return None,
    })
}

/// The kind of a call on a path; whether a directory's descriptor stands before it.
fn on_path(number: c_long) -> Option<(Kind, bool)> {
    Some(match number {
        libc::SYS_stat | libc::SYS_lstat => (Kind::Stat, false),
        libc::SYS_newfstatat | libc::SYS_statx => (Kind::Stat, true),
        libc::SYS_access => (Kind::Access, false),
        libc::SYS_faccessat | libc::SYS_faccessat2 => (Kind::Access, true),
        libc::SYS_unlink => (Kind::Unlink, false),
        libc::SYS_unlinkat => (Kind::Unlink, true),
        libc::SYS_rename => (Kind::Rename, false),
        libc::SYS_renameat | libc::SYS_renameat2 => (Kind::Rename, true),
        libc::SYS_mkdir => (Kind::Mkdir, false),
        libc::SYS_mkdirat => (Kind::Mkdir, true),
        libc::SYS_rmdir => (Kind::Rmdir, false),
        _ => return None,
    })
}

/// Times a call by number.
fn call(number: c_long, a: usize, b: usize, next: impl FnOnce() -> c_long) -> c_long {
    const HERE: c_int = libc::AT_FDCWD;
    let fd = a as c_int;
    let (first, second) = (a as *const c_char, b as *const c_char);
    match number {
        libc::SYS_close => closed(Kind::Close, fd, next),
        libc::SYS_dup | libc::SYS_dup2 | libc::SYS_dup3 => copied(fd, || next() as c_int).into(),
        libc::SYS_open | libc::SYS_creat => {
            opened(Kind::Open, (HERE, first), |fd: c_long| fd as c_int, next)
        }
        libc::SYS_openat | libc::SYS_openat2 => {
            opened(Kind::Open, (fd, second), |fd: c_long| fd as c_int, next)
        }
        libc::SYS_copy_file_range => on(Kind::CopyRange, fd, next),
        _ => match (on_descriptor(number), on_path(number)) {
            (Some(kind), _) => on(kind, fd, next),
            (_, Some((kind, true))) => at(kind, fd, second, next),
            (_, Some((kind, false))) => at(kind, HERE, first, next),
            _ => next(),
        },
    }
}

timed! {
    fn [syscall](
        number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize
    ) -> c_long = |next| call(number, a, b, next);
}
