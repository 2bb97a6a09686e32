//! Whether calls of this process are served, and whether something is due before them: one byte,
//! because every call looks at both.

use std::sync::atomic::{AtomicU8, Ordering};

/// It is fully attached; otherwise calls give `EBADF`.
const ATTACHED: u8 = 1;
/// It has recovered a process whose descriptions are still to be dropped.
const REMAINS: u8 = 2;
/// Something on the volume is watched, as far as this process has seen (`watch/`).
const WATCHED: u8 = 4;

/// How a process stands to a volume; at first it is not attached.
#[derive(Default)]
pub(crate) struct Standing(AtomicU8);

impl Standing {
    /// Whether it is attached and nothing is due beside the call itself.
    #[inline]
    pub(crate) fn is_calm(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ATTACHED
    }

    /// Whether it is attached.
    #[inline]
    pub(crate) fn is_attached(&self, order: Ordering) -> bool {
        self.0.load(order) & ATTACHED != 0
    }

    /// From now on it is.
    pub(crate) fn attach(&self) {
        self.0.fetch_or(ATTACHED, Ordering::Release);
    }

    /// From now on it is not; whether it was.
    pub(crate) fn detach(&self) -> bool {
        self.0.fetch_and(!ATTACHED, Ordering::SeqCst) & ATTACHED != 0
    }

    /// Whether it has seen that something is watched.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.0.load(Ordering::Relaxed) & WATCHED != 0
    }

    /// Says so, or no longer.
    pub(crate) fn set_watched(&self, watched: bool) {
        if watched && !self.is_watched() {
            self.0.fetch_or(WATCHED, Ordering::Relaxed);
        } else if !watched && self.is_watched() {
            self.0.fetch_and(!WATCHED, Ordering::Relaxed);
        }
    }

    /// Whether a recovery is to be finished.
    pub(crate) fn remains(&self) -> bool {
        self.0.load(Ordering::Acquire) & REMAINS != 0
    }

    /// Says so, or no longer.
    pub(crate) fn set_remains(&self, remains: bool) {
        if remains {
            self.0.fetch_or(REMAINS, Ordering::Release);
        } else {
            self.0.fetch_and(!REMAINS, Ordering::Release);
        }
    }
}
