//! Faults for tests of the crash explorer. Only with the feature `inject`.
//!
//! - [`lose_edges`]: one fault of this crate (see `volume`'s `inject.rs`).
//! - [`leave_out`]: one call site of a flush or a fence does nothing. [`reached`] says which sites
//!   a piece of work reaches. A site is known by the place in the source that calls, through every
//!   function that passes its caller on.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

static LOSE_EDGES: AtomicBool = AtomicBool::new(false);

/// From here on the parts of lines before and behind a streamed range are not flushed.
pub fn lose_edges(lose: bool) {
    LOSE_EDGES.store(lose, Ordering::SeqCst);
}

pub(crate) fn loses_edges() -> bool {
    LOSE_EDGES.load(Ordering::Relaxed)
}

/// What a call site does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum Does {
    Flush,
    Fence,
}

/// A call site.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Site {
    /// In the source, from the workspace's root on.
    pub at: &'static Location<'static>,
    /// Whether lines are flushed or a fence is passed there.
    pub does: Does,
}

/// The line of the site that is left out, as most sites differ in it; 0: none is.
static LEFT_OUT_LINE: AtomicU32 = AtomicU32::new(0);
static LEFT_OUT: Mutex<Option<Site>> = Mutex::new(None);

thread_local! {
    static REACHED: RefCell<Option<BTreeSet<Site>>> = const { RefCell::new(None) };
}

/// From here on this site does nothing, in the whole process.
pub fn leave_out(site: Option<Site>) {
    *LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner) = site;
    LEFT_OUT_LINE.store(site.map_or(0, |site| site.at.line()), Ordering::SeqCst);
}

/// The sites that `work` reaches in this thread, and what it gives.
pub fn reached<T>(work: impl FnOnce() -> T) -> (BTreeSet<Site>, T) {
    REACHED.set(Some(BTreeSet::new()));
    let result = work();
    (REACHED.take().unwrap_or_default(), result)
}

/// A site is reached; `true`: it is left out.
pub(crate) fn passes(does: Does, at: &'static Location<'static>) -> bool {
    let site = Site { at, does };
    REACHED.with_borrow_mut(|reached| reached.as_mut().map(|sites| sites.insert(site)));
    LEFT_OUT_LINE.load(Ordering::Relaxed) == at.line()
        && *LEFT_OUT.lock().unwrap_or_else(PoisonError::into_inner) == Some(site)
}
