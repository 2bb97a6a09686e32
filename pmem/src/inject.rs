//! A fault for tests of the crash explorer: see `volume`'s `inject.rs`. Only with the feature `inject`.

use std::sync::atomic::{AtomicBool, Ordering};

static LOSE_EDGES: AtomicBool = AtomicBool::new(false);

/// From here on the parts of lines before and behind a streamed range are not flushed.
pub fn lose_edges(lose: bool) {
    LOSE_EDGES.store(lose, Ordering::SeqCst);
}

pub(crate) fn loses_edges() -> bool {
    LOSE_EDGES.load(Ordering::Relaxed)
}
