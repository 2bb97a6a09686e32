//! Looking: a page's entry is taken away in this process, and who wants the page traps and says so
//! (`docs/ddmap.md`, "Looking").
//!
//! What a call of this process holds stays mapped, since the kernel's own access to a page without
//! an entry fails. Either who holds waits for the look, or the look sees the hold: both say what
//! they do by a locked instruction before they ask for the other.

use crate::ground::table::Table;
use crate::ground::uffd::Uffd;
use crate::protocol::PAGE;
use rustix::mm::Advice;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads of this process that look.
static LOOKING: AtomicUsize = AtomicUsize::new(0);

/// Waits for those that have asked already what is held.
pub(super) fn wait() {
    while LOOKING.load(Ordering::SeqCst) != 0 {
        std::thread::yield_now();
    }
}

/// In a forked child: its parent's threads look there.
pub(super) fn forked() {
    LOOKING.store(0, Ordering::SeqCst);
}

/// A look of this thread.
pub(super) struct Look<'p> {
    uffd: &'p Uffd,
    held: Vec<Range<u64>>,
}

impl<'p> Look<'p> {
    pub(super) fn begin(table: &Table, uffd: &'p Uffd) -> Self {
        LOOKING.fetch_add(1, Ordering::SeqCst);
        Self { uffd, held: table.own_holds() }
    }

    /// Takes a page's entry away in one shared mapping: its bytes stay in the file.
    pub(super) fn at(&self, page: u64, at: usize) {
        // What our userfaultfd can protect is a mapping of the region: nothing else is touched,
        // whatever the list says. (Mapping it would tell the same, and show a page that leaves.)
        if self.held.iter().any(|held| held.contains(&page))
            || self.uffd.protect(at, PAGE, false).is_err()
        {
            return;
        }
        // SAFETY: a page of a shared mapping of the region, whose bytes are in its file. The engine
        // has its mapping until it is told to be gone, and the caller keeps the program's.
        let _ = unsafe { rustix::mm::madvise(at as *mut _, PAGE as usize, Advice::LinuxDontNeed) };
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        LOOKING.fetch_sub(1, Ordering::SeqCst);
    }
}
