//! The exported functions of this room: those that change a thread's identity, and the working
//! directory.

use std::ffi::{c_char, c_int, c_uint, c_void};

use ddmap::Pagers;
use vfs::{Errno, FileSystemExt};

use crate::entry::pointers::Text;
use crate::entry::process::Process;
use crate::entry::report;
use crate::entry::{Served, Stop, fdtable};
use crate::interposed::interpose;
use crate::paths::{self, Target, credentials, cwd};

#[allow(clippy::unnecessary_wraps)] // What the bodies of interposed functions give.
fn identified(process: &Process, change: impl FnOnce() -> c_int) -> Served<c_int> {
    Pagers::learn();
    let result = change();
    credentials::changed(process);
    Ok(result)
}

interpose! {
    fn [setuid](uid: c_uint) -> c_int = |process, kernel| { identified(process, || kernel(uid)) }
    fn [setgid](gid: c_uint) -> c_int = |process, kernel| { identified(process, || kernel(gid)) }
    fn [seteuid](uid: c_uint) -> c_int = |process, kernel| { identified(process, || kernel(uid)) }
    fn [setegid](gid: c_uint) -> c_int = |process, kernel| { identified(process, || kernel(gid)) }
    fn [setreuid](real: c_uint, effective: c_uint) -> c_int = |process, kernel| {
        identified(process, || kernel(real, effective))
    }
    fn [setregid](real: c_uint, effective: c_uint) -> c_int = |process, kernel| {
        identified(process, || kernel(real, effective))
    }
    fn [setresuid](real: c_uint, effective: c_uint, saved: c_uint) -> c_int = |process, kernel| {
        identified(process, || kernel(real, effective, saved))
    }
    fn [setresgid](real: c_uint, effective: c_uint, saved: c_uint) -> c_int = |process, kernel| {
        identified(process, || kernel(real, effective, saved))
    }
    fn [setgroups](count: usize, list: *const c_uint) -> c_int = |process, kernel| {
        identified(process, || kernel(count, list))
    }
    fn [initgroups](user: Text, gid: c_uint) -> c_int = |process, kernel| {
        identified(process, || kernel(user, gid))
    }
    /// glibc changes the calling thread only, here and below.
    fn [setfsuid](uid: c_uint) -> c_uint = |process, kernel| {
        Ok(credentials::for_files(process, || kernel(uid)))
    }
    fn [setfsgid](gid: c_uint) -> c_uint = |process, kernel| {
        Ok(credentials::for_files(process, || kernel(gid)))
    }
    fn [capset](header: *mut c_void, data: *const c_void) -> c_int = |process, kernel| {
        let result = kernel(header, data);
        credentials::changed_here(process);
        Ok(result)
    }
    fn [unshare](flags: c_int) -> c_int = |process, kernel| {
        Pagers::learn();
        Ok(credentials::moved(process, flags, || kernel(flags)))
    }
    fn [setns](fd: c_int, kinds: c_int) -> c_int = |process, kernel| {
        Pagers::learn();
        Ok(credentials::moved(process, credentials::entered_by(fd, kinds), || kernel(fd, kinds)))
    }
}

interpose! {
    fn [chdir](path: Text) -> c_int = |process, kernel| {
        let target = paths::resolve(process, libc::AT_FDCWD, path.bytes()?, true)?;
        let kernel_path = match &target {
            Target::Kernel => path,
            Target::Elsewhere(path) => Text(path.as_ptr()),
            _ => return cwd::enter(process, &paths::existing(process, &target)?),
        };
        let result = kernel(kernel_path);
        if result == 0 {
            cwd::entered_kernel_directory(process);
        } else if matches!(target, Target::Kernel) {
            // It may lead here by a symlink.
            return Err(Stop::Kernel);
        }
        Ok(result)
    }
    fn [fchdir](fd: c_int) -> c_int = |process, kernel| {
        if let Some(desc) = fdtable::get(fd) {
            let (node, _) = process.fs.describe(desc)?;
            return cwd::enter(process, &process.fs.attributes(node)?);
        }
        let result = kernel(fd);
        if result == 0 {
            cwd::entered_kernel_directory(process);
        }
        Ok(result)
    }
    fn [getcwd](to: *mut c_char, len: usize) -> *mut c_char = |process, _| {
        cwd::get(process, to, len)
    }
    fn [__getcwd_chk](to: *mut c_char, len: usize, room: usize) -> *mut c_char = |process, _| {
        cwd::get(process, to, len.min(room))
    }
    fn [__getwd_chk](to: *mut c_char, room: usize) -> *mut c_char = |process, _| {
        cwd::get(process, to, room.min(libc::PATH_MAX as usize))
    }
    fn [getwd](to: *mut c_char) -> *mut c_char = |process, _| {
        cwd::get(process, to, libc::PATH_MAX as usize)
    }
    fn [get_current_dir_name]() -> *mut c_char = |process, _| {
        cwd::get(process, std::ptr::null_mut(), 0)
    }
    fn [chroot](path: Text) -> c_int = |process, _| {
        match paths::resolve(process, libc::AT_FDCWD, path.bytes()?, true)? {
            Target::Kernel | Target::Elsewhere(_) => {
                Pagers::learn();
                Err(Stop::Kernel)
            }
            target => {
                let found = paths::existing(process, &target)?;
                paths::require_directory(&found)?;
                report::about(found.node.member());
                Err(Stop::Refused("chroot-onto-volume", Errno::PERM))
            }
        }
    }
}
