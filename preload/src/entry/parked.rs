//! The number that the program closed last, kept for its next `open` of the volume.
//!
//! A number of ours is made by one system call and given back by another, which is a third of what
//! `open` and `close` take. So `close` may *park* it: for the program it is closed, the kernel
//! still has the placeholder, and the next `open` that would get just that number takes it.
//!
//! POSIX gives every call the lowest free number. So whatever else makes a number, looks at numbers
//! or hands them on gives the parked one back first ([`give_back`]): the functions of
//! `symbols/numbers`, those of [`MAKERS`] where the kernel serves them, `dup` and its kin, `exec`,
//! system calls by number. One that is called inside glibc gets a number one higher, no worse. A
//! call of this library on the parked number gives it back too ([`crate::entry::fdtable::get`]) and
//! the kernel says `EBADF`.
//!
//! Invariants. At most one number is parked, above the standard ones, and every number below it is
//! in use: [`TAKEN`] is a bound that every close moves down, and that only the kernel's choice of
//! the lowest number moves up. What closes numbers inside glibc (`fclose`) sets it to 0, before and
//! after: handlers and callbacks open and close in the midst of it. Only a process with one thread
//! parks, and what begins a second one gives back first. One that is begun past this library finds
//! a number parked: the call that gives it back says so until it is closed ([`CLOSING`]), and the
//! others wait, so that nobody puts something there that is closed in its stead. A fork copies the
//! kernel's table and ours together.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::thread::Timespec;

use crate::entry::cancel::holds;
use crate::entry::fdtable;
use crate::entry::thread::{self, Inside};

/// The parked number, or one of the next two.
static PARKED: AtomicI32 = AtomicI32::new(NONE);
const NONE: c_int = -1;
/// A thread is closing it.
const CLOSING: c_int = -2;
/// All numbers below are in use.
static TAKEN: AtomicI32 = AtomicI32::new(0);

/// Numbers below have meanings of their own.
const FIRST: c_int = 3;

/// Parks a number that the program closes; `false`: it must be closed.
#[inline]
pub fn park(fd: c_int) -> bool {
    if fd < FIRST || TAKEN.load(Ordering::Relaxed) < fd || !thread::is_alone() {
        return false;
    }
    // A higher one is the lowest no longer.
    give_back();
    PARKED.store(fd, Ordering::Relaxed);
    TAKEN.store(fd, Ordering::Relaxed);
    true
}

/// The parked number, for an open of ours that wants it with this flag.
#[inline]
pub fn take(cloexec: bool) -> Option<c_int> {
    let fd = PARKED.load(Ordering::Relaxed);
    if fd < 0 {
        return None;
    }
    if !thread::is_alone() || !fdtable::unpark(fd, cloexec) {
        give_back();
        return None;
    }
    PARKED.store(NONE, Ordering::Relaxed);
    TAKEN.store(fd + 1, Ordering::Relaxed);
    Some(fd)
}

/// The kernel chose `fd` as the lowest free number.
#[inline]
pub fn lowest_was(fd: c_int) {
    TAKEN.store(fd + 1, Ordering::Relaxed);
}

/// The kernel closes `fd`, or is about to.
#[inline]
pub fn closed(fd: c_int) {
    if (0..TAKEN.load(Ordering::Relaxed)).contains(&fd) {
        TAKEN.store(fd, Ordering::Relaxed);
    }
    let parked = PARKED.load(Ordering::Relaxed);
    if parked >= 0 && fd <= parked {
        give_back();
    }
}

/// Gives the parked number back to the kernel.
#[inline]
pub fn give_back() {
    if PARKED.load(Ordering::Acquire) != NONE {
        return_number();
    }
}

#[cold]
fn return_number() {
    // A handler of the program's might never come back.
    let _inside = Inside::new();
    loop {
        let fd = PARKED.load(Ordering::Acquire);
        if fd == NONE {
            return;
        }
        if fd == CLOSING {
            let time = Timespec { tv_sec: 0, tv_nsec: 20_000 };
            let _ = rustix::thread::nanosleep(&time);
            continue;
        }
        let (now, then) = (Ordering::AcqRel, Ordering::Relaxed);
        if PARKED.compare_exchange(fd, CLOSING, now, then).is_ok() {
            fdtable::release(fd);
            PARKED.store(NONE, Ordering::Release);
            return;
        }
    }
}

/// In a new process: a thread that is not here closes nothing.
pub fn forked() {
    let _ = PARKED.compare_exchange(CLOSING, NONE, Ordering::Relaxed, Ordering::Relaxed);
}

/// As [`give_back`], before and after something that closes numbers past this library.
pub struct Closes(());

impl Closes {
    pub fn new() -> Self {
        forget();
        Self(())
    }
}

impl Drop for Closes {
    fn drop(&mut self) {
        forget();
    }
}

/// As [`give_back`], before a system call that closes numbers.
pub fn forget() {
    TAKEN.store(0, Ordering::Relaxed);
    give_back();
}

/// Before a system call by number that this library does not serve.
pub fn before_call(number: c_long) {
    match number {
        libc::SYS_futex
        | libc::SYS_getrandom
        | libc::SYS_gettid
        | libc::SYS_getpid
        | libc::SYS_tgkill
        | libc::SYS_membarrier
        | libc::SYS_getcpu
        | libc::SYS_sched_yield
        | libc::SYS_sched_getaffinity
        | libc::SYS_clock_gettime
        | libc::SYS_clock_nanosleep => {}
        libc::SYS_clone | libc::SYS_clone3 => {
            give_back();
            thread::not_alone();
        }
        _ => give_back(),
    }
}

/// Interposed functions that make a number, or begin a thread, where the kernel serves them.
const MAKERS: &[&str] = &[
    "open",
    "open64",
    "__open",
    "__open64",
    "__open_nocancel",
    "__open64_nocancel",
    "__open_2",
    "__open64_2",
    "openat",
    "openat64",
    "__openat_2",
    "__openat64_2",
    "creat",
    "creat64",
    "open_by_handle_at",
    "open_tree",
    "fspick",
    "fopen",
    "fopen64",
    "_IO_fopen",
    "opendir",
    "tmpfile",
    "tmpfile64",
    "mkstemp",
    "mkstemp64",
    "mkstemps",
    "mkstemps64",
    "mkostemp",
    "mkostemp64",
    "mkostemps",
    "mkostemps64",
    "dup",
    "dup2",
    "__dup2",
    "dup3",
    "fcntl",
    "fcntl64",
    "__fcntl",
    "__libc_fcntl64",
    "accept",
    "accept4",
    "recvmsg",
    "recvmmsg",
    "pidfd_getfd",
    "pthread_create",
    "clone",
    "__clone",
    "aio_read",
    "aio_read64",
    "aio_write",
    "aio_write64",
    "aio_fsync",
    "aio_fsync64",
    "lio_listio",
    "lio_listio64",
    "ioctl",
];
/// Those that close one inside glibc.
const CLOSERS: &[&str] = &[
    "freopen",
    "freopen64",
    "closedir",
    "pclose",
    "scandir",
    "scandir64",
    "scandirat",
    "scandirat64",
    "nftw",
    "nftw64",
];

/// Before the kernel serves the interposed function of this name.
#[inline]
pub const fn is_maker(name: &str) -> bool {
    holds(MAKERS, name)
}

/// As [`is_maker`].
#[inline]
pub const fn is_closer(name: &str) -> bool {
    holds(CLOSERS, name)
}
