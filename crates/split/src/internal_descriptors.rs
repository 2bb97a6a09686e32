//! The engine's own descriptors, inside another program.
//!
//! They stand at high numbers, and a bit per number says that the program must not close or replace
//! it. A forked child, which starts an engine of its own, closes those that it inherited.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use os::InternalFd;

/// Numbers beyond are not known here, and need not be: programs do not reach them.
const NUMBERS: usize = 1 << 20;

static BITS: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];
/// No word beyond this one was ever used.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

fn place(fd: RawFd) -> Option<(&'static AtomicU64, usize, u64)> {
    let number = usize::try_from(fd).ok()?;
    Some((BITS.get(number / 64)?, number / 64, 1 << (number % 64)))
}

/// Whether a number is the engine's.
pub fn is_internal(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, _, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// All of them.
pub fn all() -> impl Iterator<Item = RawFd> {
    (0..=HIGHEST.load(Ordering::Acquire) * 64 + 63)
        .map(|fd| fd as RawFd)
        .filter(|&fd| is_internal(fd))
}

/// In a forked child: closes what belongs to its parent's engine, whose memory is left alone.
/// Allocates nothing: a thread that the child does not have may be in the heap.
pub fn close_all() {
    for fd in all() {
        if let Some((word, _, bit)) = place(fd) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
        // SAFETY: a number of this library's own; the objects that held it are never used again in
        // this process.
        unsafe { rustix::io::close(fd) };
    }
}

/// A number that is the engine's until dropped; what is open there is another's.
pub struct ReservedNumber(RawFd);

impl ReservedNumber {
    /// Says so.
    pub fn new(fd: RawFd) -> Self {
        if let Some((word, index, bit)) = place(fd) {
            word.fetch_or(bit, Ordering::Relaxed);
            HIGHEST.fetch_max(index, Ordering::AcqRel);
        }
        Self(fd)
    }
}

impl Drop for ReservedNumber {
    fn drop(&mut self) {
        if let Some((word, _, bit)) = place(self.0) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// An open descriptor of the engine's. Dropped in this order.
pub struct HiddenFd(#[expect(dead_code, reason = "held until dropped")] ReservedNumber, InternalFd);

impl HiddenFd {
    /// Moves a descriptor out of the program's way.
    pub fn new(fd: OwnedFd) -> Self {
        let fd = InternalFd::new(fd);
        Self(ReservedNumber::new(fd.as_raw_fd()), fd)
    }
}

impl AsFd for HiddenFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.1.as_fd()
    }
}
