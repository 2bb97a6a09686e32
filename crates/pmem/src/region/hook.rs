//! The interface by which the crash recorder and the cost counters hear of a region's stores.

use std::panic::Location;

/// An observer of everything that happens to a region's persistent bytes, in program order of each
/// thread. Called *before* the instruction runs, so that a hook that ends the process ends it with
/// that store undone. Without a hook a store costs one branch more.
pub trait Hook: Send + Sync {
    /// `bytes` are about to be stored at `off`; `streamed` stores need no flush, only a fence.
    fn store(&self, off: u64, bytes: &[u8], streamed: bool, at: &'static Location<'static>);
    /// The line that starts at `off` is about to be flushed.
    fn flush(&self, off: u64, at: &'static Location<'static>);
    /// A fence is about to make durable what this thread flushed and streamed.
    fn fence(&self, at: &'static Location<'static>);
    /// A volatile shared word at `off` is about to change (a point to die at; not persistent).
    fn shared(&self, off: u64) {
        let _ = off;
    }
}
