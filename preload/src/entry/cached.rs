//! The *cached number*: the one that the program closed last, kept for its next `open` of the
//! volume.
//!
//! A number of ours is made by one system call and given back by another, which is a third of what
//! `open` and `close` take. So `close` may keep it: for the program it is closed, the kernel still
//! has the placeholder, and the next `open` that would get just that number takes it.
//!
//! POSIX gives every call the lowest free number. So every other call that makes a number, looks at
//! numbers or hands them on gives the cached one back first ([`give_back`]): the functions of
//! `symbols/numbers`, those of [`MAKERS`] where the kernel serves them, `dup` and its kin, `exec`,
//! system calls by number. One that is called inside glibc gets a number one higher, no worse. A
//! call of this library on the cached number gives it back too ([`crate::entry::fdtable::get`]) and
//! the kernel says `EBADF`.
//!
//! Invariants. At most one number is cached, above the standard ones, and every number below it is
//! in use: [`TAKEN`] is a bound that every close moves down, and that only the kernel's choice of
//! the lowest number moves up. What closes numbers inside glibc (`fclose`) sets it to 0, before and
//! after: handlers and callbacks open and close in the midst of it. Only a process with one thread
//! caches a number, and a call that begins a second thread gives it back first. A thread begun past
//! this library finds a number cached: the call that gives it back says so until it is closed
//! ([`CLOSING`]), and other threads wait, so that none puts something there that would be closed in
//! its stead. A fork copies the kernel's table and ours together.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::thread::Timespec;

use crate::entry::cancel::holds;
use crate::entry::fdtable;
use crate::entry::thread::{self, Inside};

/// The cached number, or one of the next two.
static CACHED: AtomicI32 = AtomicI32::new(NONE);
const NONE: c_int = -1;
/// A thread is closing it.
const CLOSING: c_int = -2;
/// All numbers below are in use.
static TAKEN: AtomicI32 = AtomicI32::new(0);

/// Numbers below have meanings of their own.
const FIRST: c_int = 3;

/// Keeps a number that the program closes; `false`: it must be closed.
#[inline]
pub fn keep(fd: c_int) -> bool {
    if fd < FIRST || TAKEN.load(Ordering::Relaxed) < fd || !thread::has_one_thread() {
        return false;
    }
    // A higher one is the lowest no longer.
    give_back();
    CACHED.store(fd, Ordering::Relaxed);
    TAKEN.store(fd, Ordering::Relaxed);
    true
}

/// The cached number, for an open of ours that wants it with this flag.
#[inline]
pub fn take(cloexec: bool) -> Option<c_int> {
    let fd = CACHED.load(Ordering::Relaxed);
    if fd < 0 {
        return None;
    }
    if !thread::has_one_thread() || !fdtable::uncache(fd, cloexec) {
        give_back();
        return None;
    }
    CACHED.store(NONE, Ordering::Relaxed);
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
    let number = CACHED.load(Ordering::Relaxed);
    if number >= 0 && fd <= number {
        give_back();
    }
}

/// Gives the cached number back to the kernel.
#[inline]
pub fn give_back() {
    if CACHED.load(Ordering::Acquire) != NONE {
        return_number();
    }
}

#[cold]
fn return_number() {
    // A handler of the program's might never come back.
    let _inside = Inside::new();
    loop {
        let fd = CACHED.load(Ordering::Acquire);
        if fd == NONE {
            return;
        }
        if fd == CLOSING {
            let time = Timespec { tv_sec: 0, tv_nsec: 20_000 };
            let _ = rustix::thread::nanosleep(&time);
            continue;
        }
        let (now, then) = (Ordering::AcqRel, Ordering::Relaxed);
        if CACHED.compare_exchange(fd, CLOSING, now, then).is_ok() {
            fdtable::release(fd);
            CACHED.store(NONE, Ordering::Release);
            return;
        }
    }
}

/// In a new process: no other thread is closing the number.
pub fn forked() {
    let _ = CACHED.compare_exchange(CLOSING, NONE, Ordering::Relaxed, Ordering::Relaxed);
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
            thread::second_thread_begins();
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
