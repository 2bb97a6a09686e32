//! `/proc/self/exe`, which is the host for the kernel: where a call of the guest's names it so, it
//! means the guest's file.

use std::ffi::{CStr, c_long};
use std::sync::OnceLock;

use crate::entry::pointers::Bytes;
use crate::entry::syscall::Arguments;
use crate::paths;
use crate::processes::host_program::Guest;

/// The guest's file.
static FILE: OnceLock<&'static CStr> = OnceLock::new();

pub fn begin(guest: &Guest) {
    let _ = FILE.set(Box::leak(guest.file.clone().into_boxed_c_str()));
    // The kernel has named the process after the host.
    let called = guest.called.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    // As many as the kernel keeps.
    let called = &called[..called.len().min(15)];
    if let Ok(name) = std::ffi::CString::new(called) {
        let _ = rustix::thread::set_name(&name);
    }
}

/// The file, if that is what a path at this address means.
fn file_at(address: usize) -> Option<&'static CStr> {
    let file = FILE.get()?;
    (paths::own_process(super::text(address)?.to_bytes())? == b"exe").then_some(*file)
}

/// `readlink` of it; `None`: it is of something else.
pub fn link(path: usize, to: usize, size: usize) -> Option<isize> {
    let file = file_at(path)?.to_bytes();
    if size == 0 || size > isize::MAX as usize {
        return Some(-(libc::EINVAL as isize));
    }
    let length = file.len().min(size);
    match Bytes(to as *mut _).put(&file[..length]) {
        Ok(()) => Some(length as isize),
        Err(errno) => Some(-(errno.raw_os_error() as isize)),
    }
}

/// Puts the file in place of a path that means it.
pub fn replace(number: c_long, given: &mut Arguments) {
    let place = match number {
        libc::SYS_open | libc::SYS_execve | libc::SYS_stat | libc::SYS_access => 0,
        libc::SYS_openat
        | libc::SYS_openat2
        | libc::SYS_execveat
        | libc::SYS_newfstatat
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_statx => 1,
        _ => return,
    };
    // A link that is not followed is the kernel's.
    let is_link = match number {
        libc::SYS_newfstatat => given[3] & libc::AT_SYMLINK_NOFOLLOW as usize != 0,
        libc::SYS_statx => given[2] & libc::AT_SYMLINK_NOFOLLOW as usize != 0,
        libc::SYS_openat => given[2] & libc::O_NOFOLLOW as usize != 0,
        libc::SYS_open => given[1] & libc::O_NOFOLLOW as usize != 0,
        _ => false,
    };
    if !is_link && let Some(file) = file_at(given[place]) {
        given[place] = file.as_ptr() as usize;
    }
}
