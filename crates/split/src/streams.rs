//! The numbers on which streams of the C library work: these move data by system calls that no
//! engine sees.
//!
//! While a stream is on a file, what this process appends to it goes to the kernel: a reader would
//! miss staged bytes, and what a writer appends would stand before them. And the kernel's position
//! counts of what becomes a duplicate of such a number.
//!
//! A stream's beginning is told ([`note`]), its end is not: an entry is a hint, and before it
//! counts the kernel is asked what the number stands for. Numbers 0 to 2 have streams from the
//! start. A forked child has its parent's streams, and with them this table.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::descriptors::{self, Slot};
use crate::engine::Engine;
use crate::sys;

/// Nothing is known. Of a standard number: the kernel is to be asked.
const NOTHING: u64 = 0;
/// The kernel is to be asked.
const ASK: u64 = u64::MAX;
/// It is no file that is served.
const OTHER: u64 = u64::MAX - 1;
/// Numbers below have streams without anybody's saying so.
const STANDARD: RawFd = 3;

/// By number: the inode number of its file, or one of the above.
static FILES: [AtomicU64; descriptors::NUMBERS] =
    [const { AtomicU64::new(NOTHING) }; descriptors::NUMBERS];
/// No number from here on was ever noted.
static END: AtomicUsize = AtomicUsize::new(STANDARD as usize);

fn entry(fd: RawFd) -> Option<&'static AtomicU64> {
    FILES.get(usize::try_from(fd).ok()?)
}

/// Whether a number has a stream from the start.
pub fn is_standard(fd: RawFd) -> bool {
    (0..STANDARD).contains(&fd)
}

/// A stream works on a number from here on. Nothing is staged for its file that is not by now.
fn note(fd: RawFd) {
    if let Some(entry) = entry(fd) {
        entry.store(ASK, Ordering::Release);
        END.fetch_max(fd as usize + 1, Ordering::AcqRel);
    }
}

/// A number was opened anew, by no stream.
#[inline]
pub fn forget(fd: RawFd) {
    if let Some(entry) = entry(fd)
        && entry.load(Ordering::Relaxed) != NOTHING
    {
        entry.store(NOTHING, Ordering::Relaxed);
    }
}

/// Whether a stream may work on a number.
pub fn may_work_on(fd: RawFd) -> bool {
    let noted = |entry: &AtomicU64| entry.load(Ordering::Acquire) != NOTHING;
    is_standard(fd) || entry(fd).is_some_and(noted)
}

/// Whether a stream works on a file of this file system.
fn are_on(device: u64, ino: u64) -> bool {
    let numbers = END.load(Ordering::Acquire);
    FILES[..numbers].iter().enumerate().any(|(number, entry)| {
        let told = entry.load(Ordering::Acquire);
        let fd = number as RawFd;
        let asks = told == ASK || told == NOTHING && is_standard(fd);
        (asks || told == ino) && file_of(fd, device, entry, told) == Some(ino)
    })
}

/// The file behind a number that a stream works on, as the kernel has it; it is noted.
fn file_of(fd: RawFd, device: u64, entry: &AtomicU64, told: u64) -> Option<u64> {
    let stat = sys::borrow(fd).and_then(rustix::fs::fstat).ok();
    // What the engine knows of belongs to no stream.
    let found = stat.filter(|stat| stat.st_dev == device && descriptors::is_unknown(fd));
    let found = found.map(|stat| stat.st_ino);
    let (now, order) = (found.unwrap_or(OTHER), (Ordering::AcqRel, Ordering::Relaxed));
    // If it was noted meanwhile, that counts the next time.
    let _ = entry.compare_exchange(told, now, order.0, order.1);
    found
}

impl Engine {
    /// Whether a stream works on a file: it would not see what is staged.
    pub(crate) fn has_stream(&self, ino: u64) -> bool {
        are_on(self.home.device, ino)
    }

    /// `new` is a duplicate of `old`.
    pub fn duplicated(&self, old: RawFd, new: RawFd) {
        if old != new && may_work_on(new) {
            self.hand_over(old);
            self.release(new, Slot::Unknown);
            note(new);
            // What was staged just before.
            self.drain_number(new);
        } else if old != new {
            let slot = descriptors::get(old);
            self.release(new, slot);
        }
    }
}
