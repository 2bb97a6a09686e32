//! Upkeep that a call has found to be due, as hints: the end of the call looks at them
//! (`upkeep/`), since no layer below knows how it is done.
//!
//! A hint may be lost to another thread's, or be old: a thread that takes one looks again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is due.
#[derive(Default)]
pub(crate) struct Due {
    any: AtomicBool,
    sparse: AtomicU64,
    filled: [AtomicU64; 2],
    closed: AtomicU64,
}

impl Due {
    /// Whether anything may be; not again until more is noted.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.any.load(Ordering::Relaxed) && self.any.swap(false, Ordering::Relaxed)
    }

    /// A chunk has become almost empty.
    pub(crate) fn note_sparse(&self, chunk: u64) {
        self.sparse.store(chunk + 1, Ordering::Relaxed);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Appends have filled this chunk of a file, a little each.
    pub(crate) fn note_filled(&self, ino: u64, chunk: u64) {
        self.filled[0].store(ino, Ordering::Relaxed);
        self.filled[1].store(chunk + 1, Ordering::Relaxed);
        self.any.store(true, Ordering::Relaxed);
    }

    /// Nobody has a file open any more that is likely to be mapped again, or shall be fit for that.
    pub(crate) fn note_closed(&self, ino: u64) {
        self.closed.store(ino, Ordering::Relaxed);
        self.any.store(true, Ordering::Relaxed);
    }

    pub(crate) fn take_sparse(&self) -> Option<u64> {
        self.sparse.swap(0, Ordering::Relaxed).checked_sub(1)
    }

    /// The inode, and the chunk of the file.
    pub(crate) fn take_filled(&self) -> Option<(u64, u64)> {
        let chunk = self.filled[1].swap(0, Ordering::Relaxed).checked_sub(1)?;
        Some((self.filled[0].load(Ordering::Relaxed), chunk))
    }

    pub(crate) fn take_closed(&self) -> Option<u64> {
        Some(self.closed.swap(0, Ordering::Relaxed)).filter(|&ino| ino != 0)
    }
}
