//! Functions of the C library that call others inside it, where nothing can be interposed: done
//! here by our functions.

use std::ffi::{c_char, c_int};

use libc::{termios, winsize};
use vfs::Errno;

use crate::entry::Served;
use crate::entry::pointers::{Out, Text};
use crate::entry::process::Process;
use crate::paths::{self, Target};

/// Whether a path is the volume's; an error of the walk is the answer to the call.
pub fn is_ours(process: &Process, path: Text) -> Result<bool, Errno> {
    let target = paths::resolve(process, libc::AT_FDCWD, path.bytes()?, true)?;
    Ok(!matches!(target, Target::Kernel | Target::Elsewhere(_)))
}

/// The terminal behind `fd` becomes the caller's, and its standard streams.
pub fn take_terminal(fd: c_int) -> c_int {
    // SAFETY: calls as the program would make them.
    unsafe {
        libc::setsid();
        if libc::ioctl(fd, libc::TIOCSCTTY, 0) < 0 {
            return -1;
        }
        for number in 0..3 {
            if libc::dup2(fd, number) < 0 {
                return -1;
            }
        }
        if fd > 2 {
            libc::close(fd);
        }
    }
    0
}

pub fn fork_on_terminal(
    master: Out<c_int>,
    name: *mut c_char,
    (modes, size): (*const termios, *const winsize),
) -> Served<c_int> {
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: calls as the program would make them; `openpty` writes the numbers and the name.
    unsafe {
        if libc::openpty(&raw mut ours, &raw mut theirs, name, modes, size) < 0 {
            return Ok(-1);
        }
        let pid = libc::fork();
        match pid {
            -1 => {
                libc::close(ours);
                libc::close(theirs);
            }
            0 => {
                libc::close(ours);
                if take_terminal(theirs) < 0 {
                    libc::_exit(1);
                }
            }
            _ => {
                libc::close(theirs);
                master.put(ours)?;
            }
        }
        Ok(pid)
    }
}

/// Adds a record at the end of a log of logins, whole or not at all.
pub fn log_login(file: Text, record: *const libc::utmpx) {
    // SAFETY: the program's path and record; calls as the program would make them.
    unsafe {
        let fd = libc::open(file.0, libc::O_WRONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return;
        }
        let len = size_of::<libc::utmpx>();
        if libc::lockf(fd, libc::F_LOCK, 0) == 0 {
            let end = libc::lseek(fd, 0, libc::SEEK_END);
            let whole = end - end % len as i64;
            let written = libc::pwrite(fd, record.cast(), len, whole);
            if written != len as isize {
                libc::ftruncate(fd, whole);
            }
        }
        libc::close(fd);
    }
}

pub type Record = *const libc::utmpx;
