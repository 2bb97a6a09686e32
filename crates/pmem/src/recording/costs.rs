//! A hook that counts what persistence costs, for tests that guard the number of fences.

use crate::region::hook::Hook;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Totals since the region got this hook. Each may be read and reset at any time.
#[derive(Debug, Default)]
pub struct CostCounter {
    /// Calls that stored, streamed ones included.
    pub stores: AtomicU64,
    /// Lines flushed.
    pub flushed_lines: AtomicU64,
    /// Fences.
    pub fences: AtomicU64,
    /// Bytes stored non-temporally.
    pub streamed_bytes: AtomicU64,
}

impl CostCounter {
    /// All zero.
    #[must_use]
    pub fn new() -> Arc<CostCounter> {
        Arc::default()
    }
}

impl Hook for CostCounter {
    fn store(&self, _off: u64, bytes: &[u8], streamed: bool, _at: &'static Location<'static>) {
        self.stores.fetch_add(1, Relaxed);
        if streamed {
            self.streamed_bytes.fetch_add(bytes.len() as u64, Relaxed);
        }
    }

    fn flush(&self, _off: u64, _at: &'static Location<'static>) {
        self.flushed_lines.fetch_add(1, Relaxed);
    }

    fn fence(&self, _at: &'static Location<'static>) {
        self.fences.fetch_add(1, Relaxed);
    }
}
