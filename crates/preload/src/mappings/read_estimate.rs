//! How many bytes a read by the kernel can give, before it is made: so many pages are supplied for
//! it, and no more. A hole of a mapped file is not filled in vain, and a page is not held while
//! nothing comes.
//!
//! What waits is waited for here, with no page held. So the wait must be the read's own: it ends
//! when the read would end, and a signal ends it as it would end the read (`entry/blocking.rs`).
//! Where that is not sure nothing is waited for, and all pages are supplied. What the kernel
//! refuses at once gives nothing, and is refused by it.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

use os::interrupt::system_call;
use rustix::fs::{FileType, OFlags};
use vfs::Errno;

use crate::entry::blocking;
use crate::entry::fdtable;
use crate::entry::hooks;

/// What a call reads from, and how.
#[derive(Clone, Copy)]
pub struct Source {
    fd: c_int,
    /// The offset; `None`: where the descriptor stands.
    at: Option<i64>,
    /// It takes nothing but sockets.
    receives: bool,
    /// It waits if nothing is there, unless the descriptor says that it does not.
    waits: bool,
}

impl Source {
    /// Of a read, at an offset or where the descriptor stands.
    pub const fn read(fd: c_int, at: Option<i64>) -> Self {
        Self { fd, at, receives: false, waits: true }
    }

    /// Of `preadv2` with flags: only without any of them it is sure that it waits.
    pub const fn flagged(fd: c_int, at: Option<i64>, flags: c_int) -> Self {
        Self { fd, at, receives: false, waits: flags == 0 }
    }

    /// Of what receives from a socket.
    pub const fn receive(fd: c_int) -> Self {
        Self { fd, at: None, receives: true, waits: true }
    }
}

/// How many bytes a read of a file can give; `None`: it is no regular file.
pub fn coming_of_file(fd: c_int, at: Option<i64>) -> Option<usize> {
    let stat = rustix::fs::fstat(fdtable::borrow(fd)).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_file.then(|| of_file(fd, at)).flatten()
}

fn of_file(fd: c_int, at: Option<i64>) -> Option<usize> {
    let file = fdtable::borrow(fd);
    (hooks::get().place)(fd);
    let stat = rustix::fs::fstat(file).ok()?;
    let at = match at {
        Some(at) => u64::try_from(at).ok()?,
        None => rustix::fs::tell(file).ok()?,
    };
    usize::try_from((stat.st_size as u64).saturating_sub(at)).ok()
}

/// How many bytes a read can give, after waiting as it would; `None`: that cannot be told. An
/// error: a signal has ended the wait, or the thread is to end.
pub fn coming(from: Source) -> Result<Option<usize>, Errno> {
    let file = fdtable::borrow(from.fd);
    let (Ok(stat), Ok(flags)) = (rustix::fs::fstat(file), rustix::fs::fcntl_getfl(file)) else {
        return Ok(None);
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if is_refused(from, file, (kind, flags)) {
        return Ok(Some(0));
    }
    if kind == FileType::RegularFile {
        return Ok(of_file(from.fd, from.at));
    }
    if !matches!(kind, FileType::Fifo | FileType::Socket) {
        return Ok(None);
    }
    let there = || rustix::io::ioctl_fionread(file).ok();
    let nothing = there() == Some(0);
    if nothing && from.waits && !flags.contains(OFlags::NONBLOCK) {
        if !waits_as_poll(file, kind) {
            return Ok(None);
        }
        wait(file)?;
    }
    Ok(there().and_then(|bytes| usize::try_from(bytes).ok()))
}

/// Whether the kernel refuses the call, whatever can be read.
fn is_refused(from: Source, file: BorrowedFd<'_>, (kind, flags): (FileType, OFlags)) -> bool {
    let is_socket = kind == FileType::Socket;
    flags.contains(OFlags::PATH)
        || flags & OFlags::ACCMODE == OFlags::WRONLY
        || from.receives && !is_socket
        || from.at.is_some() && (is_socket || kind == FileType::Fifo)
        || is_socket && option(file, libc::SO_ACCEPTCONN) == Some(1)
}

/// Waits until there is something to read, or the read would end otherwise.
fn wait(file: BorrowedFd<'_>) -> Result<(), Errno> {
    loop {
        match blocking::ready(file, libc::POLLIN) {
            // By no signal of the program's.
            Err(Errno::INTR) => {}
            Err(why @ (vfs::INTERRUPTED | vfs::BEGIN_ANEW)) => return Err(why),
            // If something is wrong, the read itself says so.
            Ok(()) | Err(_) => return Ok(()),
        }
    }
}

/// The kernel's number of the file system of pipes without a name.
const PIPEFS: i64 = 0x5049_5045;

/// Whether a read waits just as long as `poll`: a socket does without a limit of its own, a pipe if
/// it has always had a writer, as one without a name.
fn waits_as_poll(file: BorrowedFd<'_>, kind: FileType) -> bool {
    if kind == FileType::Socket {
        return option(file, libc::SO_RCVTIMEO) == Some([0_i64; 2]);
    }
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == PIPEFS)
}

/// An option of a socket; `None`: it has none of that size.
fn option<T: Copy + Default>(socket: BorrowedFd<'_>, name: c_int) -> Option<T> {
    let (mut value, mut size) = (T::default(), size_of::<T>() as u32);
    let (level, name) = (libc::SOL_SOCKET as usize, name as usize);
    let (to, length) = ((&raw mut value) as usize, (&raw mut size) as usize);
    let arguments = [socket.as_raw_fd() as usize, level, name, to, length, 0];
    // SAFETY: values of our own, of the sizes that are said; any bytes make a number.
    let answer = unsafe { system_call(libc::SYS_getsockopt, arguments) };
    (answer.is_ok() && size as usize == size_of::<T>()).then_some(value)
}
