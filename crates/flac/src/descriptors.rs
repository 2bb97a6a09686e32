//! Descriptors that the cache has for a moment: of segments that are filled, mapped or removed.
//!
//! The kernel gives the lowest free number, which another thread of the program may take for its
//! own at that moment (`dup2`), or hand on by a fork. So a descriptor is opened, and moved out of
//! the program's way, while the face keeps both from happening ([`guard`]), and as long as it is
//! open no call of the program's closes or replaces it ([`is_open`]): the next one would get its
//! number. A forked child closes what its parent had open just then.

use crate::program;
use os::InternalFd;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// Runs this while no number of the program's is made, replaced, closed or handed on by another
/// thread. `false`: it was not run, since that cannot be had now.
pub type Guard = fn(&mut dyn FnMut()) -> bool;

static GUARD: OnceLock<Guard> = OnceLock::new();

/// Sets it, once a process. Without it, numbers are nobody else's.
pub fn guard(guard: Guard) {
    // The first one counts.
    let _ = GUARD.set(guard);
}

/// Descriptors that are open for a moment; -1: none.
static OPEN: [AtomicI32; 64] = [const { AtomicI32::new(NONE) }; 64];
const NONE: i32 = -1;
/// How many there are, at least.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// One is being opened.
const TAKEN: i32 = -2;

/// The descriptors that are open just now.
pub fn open() -> impl Iterator<Item = i32> {
    OPEN.iter().map(|slot| slot.load(Ordering::Acquire)).filter(|number| *number >= 0)
}

/// Whether this is one of them.
#[must_use]
pub fn is_open(number: i32) -> bool {
    COUNT.load(Ordering::Acquire) != 0 && open().any(|open| open == number)
}

/// A descriptor, for a moment.
pub(crate) struct TemporaryFd {
    /// `None`: it is closed.
    fd: Option<InternalFd>,
    slot: &'static AtomicI32,
}

impl TemporaryFd {
    /// Opens one by this.
    pub(crate) fn open(mut open: impl FnMut() -> Result<OwnedFd, Errno>) -> Result<Self, Errno> {
        if program::is_stopped() {
            return Err(Errno::PERM);
        }
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let free = |slot: &&AtomicI32| slot.compare_exchange(NONE, TAKEN, order.0, order.1).is_ok();
        let slot = OPEN.iter().find(free).ok_or(Errno::MFILE)?;
        let mut opened = Err(Errno::AGAIN);
        let mut act = || {
            opened = open().map(InternalFd::new);
            let number = opened.as_ref().map_or(NONE, AsRawFd::as_raw_fd);
            slot.store(number, Ordering::Release);
            COUNT.fetch_add(usize::from(number >= 0), Ordering::AcqRel);
        };
        let ran = if let Some(guard) = GUARD.get() {
            guard(&mut act)
        } else {
            act();
            true
        };
        if !ran {
            slot.store(NONE, Ordering::Release);
        }
        opened.map(|fd| Self { fd: Some(fd), slot })
    }
}

impl Drop for TemporaryFd {
    fn drop(&mut self) {
        // First: a child that is forked in between closes nothing, or nothing of the program's.
        self.fd = None;
        self.slot.store(NONE, Ordering::Release);
        COUNT.fetch_sub(1, Ordering::AcqRel);
    }
}

impl AsFd for TemporaryFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open until it is dropped, and no number of the program's.
        unsafe { BorrowedFd::borrow_raw(self.fd.as_ref().map_or(NONE, AsRawFd::as_raw_fd)) }
    }
}

/// In a forked child: what other threads of the parent had open.
pub(crate) fn forked() {
    COUNT.store(0, Ordering::Release);
    for slot in &OPEN {
        let number = slot.swap(NONE, Ordering::AcqRel);
        if number >= 0 {
            // SAFETY: a descriptor of this module's, which no thread of this process uses.
            unsafe { rustix::io::close(number) };
        }
    }
}
