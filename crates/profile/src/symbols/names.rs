//! Attributes, names, directories.

use std::ffi::{c_char, c_int, c_uint, c_void};

use record::Kind;

use crate::next_symbol::Next;
use crate::paths;
use crate::symbols::timed;
use crate::timing::{Entry, at, closed, on, opened, path};

type Memory = *mut c_void;
type Text = *const c_char;

/// The descriptor of a directory's stream.
fn number(dir: *mut c_void) -> c_int {
    type Function = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;
    static NEXT: Next = Next::new("dirfd\0");
    // SAFETY: the next function of this name, and the program's stream.
    unsafe { std::mem::transmute::<usize, Function>(NEXT.address())(dir) }
}

timed! {
    fn [stat, stat64, lstat, lstat64](text: Text, out: Memory) -> c_int
    = |next| path(Kind::Stat, text, next);
    fn [__xstat, __xstat64, __lxstat, __lxstat64](
        version: c_int, text: Text, out: Memory
    ) -> c_int = |next| path(Kind::Stat, text, next);
    fn [fstatat, fstatat64](dirfd: c_int, text: Text, out: Memory, flags: c_int) -> c_int
    = |next| at(Kind::Stat, dirfd, text, next);
    fn [__fxstatat, __fxstatat64](
        version: c_int, dirfd: c_int, text: Text, out: Memory, flags: c_int
    ) -> c_int = |next| at(Kind::Stat, dirfd, text, next);
    fn [statx](dirfd: c_int, text: Text, flags: c_int, mask: c_uint, out: Memory) -> c_int
    = |next| at(Kind::Stat, dirfd, text, next);
    fn [fstat, fstat64, __fstat64](fd: c_int, out: Memory) -> c_int
    = |next| on(Kind::Fstat, fd, next);
    fn [__fxstat, __fxstat64](version: c_int, fd: c_int, out: Memory) -> c_int
    = |next| on(Kind::Fstat, fd, next);
    fn [access, euidaccess, eaccess](text: Text, mode: c_int) -> c_int
    = |next| path(Kind::Access, text, next);
    fn [faccessat](dirfd: c_int, text: Text, mode: c_int, flags: c_int) -> c_int
    = |next| at(Kind::Access, dirfd, text, next);
    fn [statfs, statfs64, __statfs, statvfs, statvfs64](text: Text, out: Memory) -> c_int
    = |next| path(Kind::Statfs, text, next);
    fn [fstatfs, fstatfs64, fstatvfs, fstatvfs64](fd: c_int, out: Memory) -> c_int
    = |next| on(Kind::Statfs, fd, next);
    fn [chmod, lchmod](text: Text, to: c_uint) -> c_int = |next| path(Kind::Chmod, text, next);
    fn [fchmod](fd: c_int, to: c_uint) -> c_int = |next| on(Kind::Chmod, fd, next);
    fn [fchmodat](dirfd: c_int, text: Text, to: c_uint, flags: c_int) -> c_int
    = |next| at(Kind::Chmod, dirfd, text, next);
    fn [chown, lchown](text: Text, user: u32, group: u32) -> c_int
    = |next| path(Kind::Chown, text, next);
    fn [fchown](fd: c_int, user: u32, group: u32) -> c_int = |next| on(Kind::Chown, fd, next);
    fn [fchownat](dirfd: c_int, text: Text, user: u32, group: u32, flags: c_int) -> c_int
    = |next| at(Kind::Chown, dirfd, text, next);
    fn [utime, utimes, lutimes](text: Text, to: Memory) -> c_int
    = |next| path(Kind::Utimes, text, next);
    fn [futimes, futimens](fd: c_int, to: Memory) -> c_int = |next| on(Kind::Utimes, fd, next);
    fn [futimesat](dirfd: c_int, text: Text, to: Memory) -> c_int
    = |next| at(Kind::Utimes, dirfd, text, next);
    fn [utimensat](dirfd: c_int, text: Text, to: Memory, flags: c_int) -> c_int
    = |next| at(Kind::Utimes, dirfd, text, next);
    fn [getxattr, lgetxattr](text: Text, name: Text, to: Memory, len: usize) -> isize
    = |next| path(Kind::Getxattr, text, next);
    fn [fgetxattr](fd: c_int, name: Text, to: Memory, len: usize) -> isize
    = |next| on(Kind::Getxattr, fd, next);
    fn [setxattr, lsetxattr](
        text: Text, name: Text, from: Memory, len: usize, flags: c_int
    ) -> c_int = |next| path(Kind::Setxattr, text, next);
    fn [fsetxattr](fd: c_int, name: Text, from: Memory, len: usize, flags: c_int) -> c_int
    = |next| on(Kind::Setxattr, fd, next);
    fn [listxattr, llistxattr](text: Text, to: Memory, len: usize) -> isize
    = |next| path(Kind::Listxattr, text, next);
    fn [flistxattr](fd: c_int, to: Memory, len: usize) -> isize
    = |next| on(Kind::Listxattr, fd, next);
    fn [removexattr, lremovexattr](text: Text, name: Text) -> c_int
    = |next| path(Kind::Removexattr, text, next);
    fn [fremovexattr](fd: c_int, name: Text) -> c_int
    = |next| on(Kind::Removexattr, fd, next);
}

timed! {
    fn [mkdir](text: Text, mode: c_uint) -> c_int = |next| path(Kind::Mkdir, text, next);
    fn [mkdirat](dirfd: c_int, text: Text, mode: c_uint) -> c_int
    = |next| at(Kind::Mkdir, dirfd, text, next);
    fn [mkdtemp](template: *mut c_char) -> *mut c_char
    = |next| path(Kind::Mkdir, template, next);
    fn [mknod](text: Text, mode: c_uint, device: u64) -> c_int
    = |next| path(Kind::Mknod, text, next);
    fn [mknodat](dirfd: c_int, text: Text, mode: c_uint, device: u64) -> c_int
    = |next| at(Kind::Mknod, dirfd, text, next);
    fn [mkfifo](text: Text, mode: c_uint) -> c_int = |next| path(Kind::Mknod, text, next);
    fn [mkfifoat](dirfd: c_int, text: Text, mode: c_uint) -> c_int
    = |next| at(Kind::Mknod, dirfd, text, next);
    fn [rmdir](text: Text) -> c_int = |next| path(Kind::Rmdir, text, next);
    fn [unlink, remove](text: Text) -> c_int = |next| path(Kind::Unlink, text, next);
    fn [unlinkat](dirfd: c_int, text: Text, flags: c_int) -> c_int = |next| {
        let kind = if flags & libc::AT_REMOVEDIR != 0 { Kind::Rmdir } else { Kind::Unlink };
        at(kind, dirfd, text, next)
    };
    fn [rename](from: Text, to: Text) -> c_int = |next| path(Kind::Rename, from, next);
    fn [renameat](from_dir: c_int, from: Text, to_dir: c_int, to: Text) -> c_int
    = |next| at(Kind::Rename, from_dir, from, next);
    fn [renameat2](
        from_dir: c_int, from: Text, to_dir: c_int, to: Text, flags: c_uint
    ) -> c_int = |next| at(Kind::Rename, from_dir, from, next);
    fn [link](from: Text, to: Text) -> c_int = |next| path(Kind::Link, to, next);
    fn [linkat](
        from_dir: c_int, from: Text, to_dir: c_int, to: Text, flags: c_int
    ) -> c_int = |next| at(Kind::Link, to_dir, to, next);
    fn [symlink](target: Text, text: Text) -> c_int = |next| path(Kind::Symlink, text, next);
    fn [symlinkat](target: Text, dirfd: c_int, text: Text) -> c_int
    = |next| at(Kind::Symlink, dirfd, text, next);
    fn [readlink](text: Text, to: Memory, len: usize) -> isize
    = |next| path(Kind::Readlink, text, next);
    fn [__readlink_chk](text: Text, to: Memory, len: usize, room: usize) -> isize
    = |next| path(Kind::Readlink, text, next);
    fn [readlinkat](dirfd: c_int, text: Text, to: Memory, len: usize) -> isize
    = |next| at(Kind::Readlink, dirfd, text, next);
    fn [__readlinkat_chk](
        dirfd: c_int, text: Text, to: Memory, len: usize, room: usize
    ) -> isize = |next| at(Kind::Readlink, dirfd, text, next);
    fn [realpath](text: Text, to: *mut c_char) -> *mut c_char
    = |next| path(Kind::Readlink, text, next);
    fn [__realpath_chk](text: Text, to: *mut c_char, room: usize) -> *mut c_char
    = |next| path(Kind::Readlink, text, next);
    fn [canonicalize_file_name](text: Text) -> *mut c_char
    = |next| path(Kind::Readlink, text, next);
    fn [chdir, chroot](text: Text) -> c_int = |next| {
        let answer = path(Kind::Chdir, text, next);
        paths::changed_directory();
        answer
    };
    fn [fchdir](fd: c_int) -> c_int = |next| {
        let answer = on(Kind::Chdir, fd, next);
        paths::changed_directory();
        answer
    };
    fn [opendir](text: Text) -> *mut c_void
    = |next| opened(Kind::Opendir, (libc::AT_FDCWD, text), number, next);
    fn [fdopendir](fd: c_int) -> *mut c_void = |next| on(Kind::Opendir, fd, next);
    fn [readdir, readdir64](dir: *mut c_void) -> *mut c_void
    = |next| on(Kind::Readdir, number(dir), || Entry(next())).0;
    fn [closedir](dir: *mut c_void) -> c_int
    = |next| closed(Kind::Closedir, number(dir), next);
    fn [getdents64](fd: c_int, to: Memory, len: usize) -> isize
    = |next| on(Kind::Readdir, fd, next);
}
