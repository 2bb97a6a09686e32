//! System calls that `std` and the crates make by C names: on what is the library's own, or to be
//! the kernel's.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};

use crate::runtime::errors::set_errno;
use crate::runtime::hidden;
use crate::runtime::process::{calls, kernel};

calls! {
    fn access(path: *const c_char, mode: c_int) -> c_int = SYS_access;
    fn bind(socket: c_int, address: *const c_void, len: c_uint) -> c_int = SYS_bind;
    fn chmod(path: *const c_char, mode: c_uint) -> c_int = SYS_chmod;
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = SYS_fcntl;
    fn ftruncate(fd: c_int, size: i64) -> c_int = SYS_ftruncate;
    fn getrandom(to: *mut c_void, len: usize, flags: c_uint) -> isize = SYS_getrandom;
    fn getsockname(socket: c_int, address: *mut c_void, len: *mut c_uint) -> c_int
        = SYS_getsockname;
    fn ioctl(fd: c_int, request: usize, argument: usize) -> c_int = SYS_ioctl;
    fn listen(socket: c_int, count: c_int) -> c_int = SYS_listen;
    fn lstat(path: *const c_char, to: *mut c_void) -> c_int = SYS_lstat;
    fn mkdir(path: *const c_char, mode: c_uint) -> c_int = SYS_mkdir;
    fn mmap(at: *mut c_void, len: usize, access: c_int, flags: c_int, fd: c_int, offset: i64)
        -> isize = SYS_mmap;
    fn mprotect(at: *mut c_void, len: usize, access: c_int) -> c_int = SYS_mprotect;
    fn munmap(at: *mut c_void, len: usize) -> c_int = SYS_munmap;
    fn poll(list: *mut c_void, count: usize, time: c_int) -> c_int = SYS_poll;
    fn readlink(path: *const c_char, to: *mut c_char, len: usize) -> isize = SYS_readlink;
    fn rename(from: *const c_char, to: *const c_char) -> c_int = SYS_rename;
    fn setsockopt(socket: c_int, level: c_int, name: c_int, value: *const c_void, len: c_uint)
        -> c_int = SYS_setsockopt;
    fn sigaltstack(new: *const c_void, old: *mut c_void) -> c_int = SYS_sigaltstack;
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int = SYS_socket;
    fn statx(dirfd: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut c_void)
        -> c_int = SYS_statx;
    fn unlink(path: *const c_char) -> c_int = SYS_unlink;
}

/// Any system call.
extern "C" fn by_number(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    kernel(number, [a, b, c, d, e, f])
}

/// The group that has a terminal.
extern "C" fn tcsetpgrp(fd: c_int, group: c_int) -> c_int {
    let at = (&raw const group) as usize;
    kernel(libc::SYS_ioctl, [fd as usize, libc::TIOCSPGRP as usize, at, 0, 0, 0]) as c_int
}

/// Asked for where debug information may lie that `std` names the frames of a panic by: nowhere.
extern "C" fn realpath(_: *const c_char, _: *mut c_char) -> *mut c_char {
    set_errno(libc::ENOSYS);
    std::ptr::null_mut()
}

hidden! {
    "access" => access,
    "bind" => bind,
    "chmod" => chmod,
    "fcntl" => fcntl,
    "ftruncate64" => ftruncate,
    "getrandom" => getrandom,
    "getsockname" => getsockname,
    "ioctl" => ioctl,
    "listen" => listen,
    "lstat64" => lstat,
    "mkdir" => mkdir,
    "mmap64" => mmap,
    "mprotect" => mprotect,
    "munmap" => munmap,
    "poll" => poll,
    "readlink" => readlink,
    "realpath" => realpath,
    "rename" => rename,
    "setsockopt" => setsockopt,
    "sigaltstack" => sigaltstack,
    "socket" => socket,
    "statx" => statx,
    "syscall" => by_number,
    "tcsetpgrp" => tcsetpgrp,
    "unlink" => unlink,
}
