//! The number that the program closed last, kept for its next `open` of the volume.
//!
//! A number of ours is made by one system call and given back by another, which is a third of what
//! `open` and `close` take. So `close` may *park* it: for the program it is closed, the kernel
//! still has the placeholder, and the next `open` that would get just that number takes it.
//!
//! POSIX gives every call the lowest free number. So whatever else makes a number, looks at numbers
//! or hands them on gives the parked one back first ([`give_back`]): the functions below, those of
//! [`MAKERS`] where the kernel serves them, `dup` and its kin, `exec`, system calls by number. One
//! that is called inside glibc gets a number one higher, no worse. A call of this library on the
//! parked number gives it back too ([`crate::descriptors::fdtable::get`]) and the kernel says
//! `EBADF`.
//!
//! Invariants. At most one number is parked, above the standard ones, and every number below it is
//! in use: [`TAKEN`] is a bound that every close moves down, and that only the kernel's choice of
//! the lowest number moves up. What closes numbers inside glibc (`fclose`) sets it to 0, before and
//! after: handlers and callbacks open and close in the midst of it. Only a process with one thread
//! parks, and what begins a second one gives back first. One that is begun past this library finds
//! a number parked: the call that gives it back says so until it is closed ([`CLOSING`]), and the
//! others wait, so that nobody puts something there that is closed in its stead. A fork copies the
//! kernel's table and ours together.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::thread::Timespec;

use crate::descriptors::fdtable;
use crate::entry::Real;
use crate::entry::cancel::holds;
use crate::entry::thread::{self, Inside};
use crate::glibc::stdio;

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

/// Functions of glibc's that are as they were, but for the parked number.
macro_rules! before {
    ($first:block $(fn $name:ident($($arg:ident : $ty:ty),*) -> $ret:ty;)*) => {$(
        // SAFETY: the symbol replaces glibc's of the same name and has its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            static REAL: Real = Real::new(concat!(stringify!($name), "\0"));
            let _until_it_ends = $first;
            // SAFETY: glibc's function of this name, and the program's own arguments.
            unsafe {
                std::mem::transmute::<usize, unsafe extern "C-unwind" fn($($ty),*) -> $ret>(
                    REAL.address(),
                )($($arg),*)
            }
        }
    )*};
}

// They make numbers, begin threads, or look at any number.
before! { { give_back() }
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn __socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn socketpair(family: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int;
    fn pipe(pair: *mut c_int) -> c_int;
    fn __pipe(pair: *mut c_int) -> c_int;
    fn pipe2(pair: *mut c_int, flags: c_int) -> c_int;
    fn eventfd(value: c_uint, flags: c_int) -> c_int;
    fn signalfd(fd: c_int, mask: *const c_void, flags: c_int) -> c_int;
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int;
    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn inotify_init() -> c_int;
    fn inotify_init1(flags: c_int) -> c_int;
    fn fanotify_init(flags: c_uint, event_flags: c_uint) -> c_int;
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
    fn pidfd_open(pid: c_int, flags: c_uint) -> c_int;
    fn fsopen(name: *const c_char, flags: c_uint) -> c_int;
    fn fsmount(fs: c_int, flags: c_uint, attributes: c_uint) -> c_int;
    fn shm_open(name: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    fn mq_open(
        name: *const c_char, flags: c_int, mode: c_uint, attributes: *const c_void
    ) -> c_int;
    fn __mq_open_2(name: *const c_char, flags: c_int) -> c_int;
    fn posix_openpt(flags: c_int) -> c_int;
    fn getpt() -> c_int;
    fn openpty(
        master: *mut c_int, slave: *mut c_int, name: *mut c_char, terminal: *const c_void,
        size: *const c_void
    ) -> c_int;
    fn setmntent(path: *const c_char, mode: *const c_char) -> *mut c_void;
    fn __setmntent(path: *const c_char, mode: *const c_char) -> *mut c_void;
    fn openlog(name: *const c_char, options: c_int, facility: c_int) -> ();
    fn poll(list: *mut c_void, count: c_long, time: c_int) -> c_int;
    fn __poll(list: *mut c_void, count: c_long, time: c_int) -> c_int;
    fn __poll_chk(list: *mut c_void, count: c_long, time: c_int, room: usize) -> c_int;
    fn select(
        highest: c_int, read: *mut c_void, write: *mut c_void, other: *mut c_void,
        time: *mut c_void
    ) -> c_int;
    fn __select(
        highest: c_int, read: *mut c_void, write: *mut c_void, other: *mut c_void,
        time: *mut c_void
    ) -> c_int;
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut c_void) -> c_int;
    fn thrd_create(thread: *mut c_void, start: *mut c_void, argument: *mut c_void) -> c_int;
    fn timer_create(clock: c_int, event: *mut c_void, timer: *mut c_void) -> c_int;
    fn mq_notify(queue: c_int, event: *const c_void) -> c_int;
    fn getaddrinfo_a(
        mode: c_int, list: *mut c_void, count: c_int, event: *mut c_void
    ) -> c_int;
}

/// What the process may do from now on may lack `close`.
fn before_sandbox(option: c_int) {
    if matches!(option, libc::PR_SET_SECCOMP | libc::PR_SET_NO_NEW_PRIVS) {
        give_back();
    }
}

// Variadic, and called as if it were not.
before! { { before_sandbox(option) }
    fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int;
}

/// A stream of ours is closed by our `close`.
fn closes_unless_ours(stream: *mut c_void) -> Option<Closes> {
    (!stdio::is_of_volume(stream.cast())).then(Closes::new)
}

// They close numbers.
before! { { Closes::new() }
    fn endmntent(stream: *mut c_void) -> c_int;
    fn __endmntent(stream: *mut c_void) -> c_int;
    fn fts_close(tree: *mut c_void) -> c_int;
    fn fts64_close(tree: *mut c_void) -> c_int;
    fn endpwent() -> ();
    fn endgrent() -> ();
    fn endspent() -> ();
    fn endsgent() -> ();
    fn endhostent() -> ();
    fn endservent() -> ();
    fn endprotoent() -> ();
    fn endnetent() -> ();
    fn endrpcent() -> ();
    fn endfsent() -> ();
    fn endttyent() -> c_int;
    fn endutent() -> ();
    fn endutxent() -> ();
    fn closelog() -> ();
    fn mq_close(queue: c_int) -> c_int;
}
before! { { closes_unless_ours(stream) }
    fn fclose(stream: *mut c_void) -> c_int;
    fn _IO_fclose(stream: *mut c_void) -> c_int;
}
