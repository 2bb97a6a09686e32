//! Functions of the C library that are made of others, which they call inside the library where
//! nothing can be interposed: here they are made of ours.

use std::ffi::{c_char, c_int};

use libc::{termios, winsize};
use vfs::Errno;

use crate::entry::fdtable::ours;
use crate::entry::pointers::{Bytes, Out, Text};
use crate::entry::process::Process;
use crate::entry::{Served, Stop, outside};
use crate::interposed::interpose;
use crate::paths::{self, Target};

/// Whether a path is the volume's; an error of the walk is the answer to the call.
fn is_ours(process: &Process, path: Text) -> Result<bool, Errno> {
    let target = paths::resolve(process, libc::AT_FDCWD, path.bytes()?, true)?;
    Ok(!matches!(target, Target::Kernel | Target::Elsewhere(_)))
}

/// The terminal behind `fd` becomes the caller's, and its standard streams.
fn take_terminal(fd: c_int) -> c_int {
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

fn fork_on_terminal(
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
fn log_login(file: Text, record: *const libc::utmpx) {
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

type Record = *const libc::utmpx;

interpose! {
    fn [ftok](path: Text, project: c_int) -> c_int = |process, _| {
        if !is_ours(process, path)? {
            return Err(Stop::Kernel);
        }
        // SAFETY: all zeros is a value of this plain structure; then `stat` fills it.
        let (answer, stat) = outside(|| unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            (libc::stat(path.0, &raw mut stat), stat)
        });
        if answer < 0 {
            return Ok(-1);
        }
        let (ino, device) = (stat.st_ino as c_int & 0xffff, stat.st_dev as c_int & 0xff);
        Ok(ino | device << 16 | (project & 0xff) << 24)
    }
    fn [isfdtype](fd: c_int, kind: c_int) -> c_int = |process, _| {
        let (node, _) = process.fs.describe(ours(fd)?)?;
        Ok(c_int::from(process.fs.attr(node)?.kind.mode_bits() as c_int == kind))
    }
    fn [eventfd_read](fd: c_int, value: Bytes) -> c_int = |_, _| {
        ours(fd)?;
        // SAFETY: eight bytes of the program's, by the function's contract.
        Ok(if outside(|| unsafe { libc::read(fd, value.0, 8) }) == 8 { 0 } else { -1 })
    }
    fn [eventfd_write](fd: c_int, value: u64) -> c_int = |_, _| {
        ours(fd)?;
        let from = (&raw const value).cast();
        // SAFETY: the argument's own bytes.
        Ok(if outside(|| unsafe { libc::write(fd, from, 8) }) == 8 { 0 } else { -1 })
    }
    /// glibc's `dup2` would leave our table as it was.
    fn [login_tty](fd: c_int) -> c_int = |_, _| {
        Ok(outside(|| take_terminal(fd)))
    }
    fn [forkpty](
        master: Out<c_int>, name: *mut c_char, modes: *const termios, size: *const winsize,
    ) -> c_int = |_, _| {
        outside(|| fork_on_terminal(master, name, (modes, size)))
    }
    fn [updwtmp, updwtmpx](file: Text, record: Record) -> () = |process, _| {
        if !is_ours(process, file)? {
            return Err(Stop::Kernel);
        }
        outside(|| log_login(file, record));
        Ok(())
    }
}
