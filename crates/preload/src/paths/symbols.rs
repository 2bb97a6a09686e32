//! The exported functions of this room: those that change the identity of all threads, each by a
//! system call of its own, and the working directory's path.

use std::ffi::{c_char, c_int, c_uint};

use ddmap::Pagers;

use crate::entry::Served;
use crate::entry::pointers::Text;
use crate::entry::process::Process;
use crate::interposed::interpose;
use crate::paths::{credentials, cwd};

#[allow(clippy::unnecessary_wraps)] // What the bodies of calls give.
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
}

interpose! {
    fn [getcwd](to: *mut c_char, len: usize) -> *mut c_char = |process, _| {
        cwd::get(process, to, len)
    }
    fn [__getcwd_chk](to: *mut c_char, len: usize, room: usize) -> *mut c_char = |process, _| {
        cwd::get(process, to, len.min(room))
    }
    fn [get_current_dir_name]() -> *mut c_char = |process, _| {
        cwd::get(process, std::ptr::null_mut(), 0)
    }
}
