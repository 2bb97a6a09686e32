//! The regions with pagers of this process, by their addresses: for a signal handler that has no
//! more than a fault's address.
//!
//! Looking locks nothing and allocates nothing. A pager that has left is not freed while a handler
//! may look at it: whoever leaves waits until none does.

use crate::pager::RegionPager;
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Regions with pagers that a process can have attached at once.
const PAGERS: usize = 16;
/// Touches of one address in a row that were served and did not help: it is not ours to help.
const IN_VAIN: u32 = 64;

static ALL: [AtomicPtr<RegionPager>; PAGERS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; PAGERS];
/// Handlers that look at a pager now.
static LOOKING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LAST: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
}

/// From here on touches of its region are served.
pub(crate) fn enter(pager: &RegionPager) {
    let own = std::ptr::from_ref(pager).cast_mut();
    if ALL.iter().any(|one| one.load(Ordering::Acquire) == own) {
        return;
    }
    let none = std::ptr::null_mut();
    let free = |one: &&AtomicPtr<RegionPager>| {
        one.compare_exchange(none, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    };
    let entered = ALL.iter().find(free).is_some();
    debug_assert!(entered, "{PAGERS} volumes at once");
    pmem::serve_touches(serve_here);
}

/// The pager goes: no handler looks at it any more when this returns.
pub(crate) fn leave(pager: &RegionPager) {
    let own = std::ptr::from_ref(pager).cast_mut();
    for one in &ALL {
        let none = std::ptr::null_mut();
        // Another one's place.
        let _ = one.compare_exchange(own, none, Ordering::AcqRel, Ordering::Relaxed);
    }
    while LOOKING.load(Ordering::Acquire) != 0 {
        std::thread::yield_now();
    }
}

/// In a forked child: no other thread looks.
pub(crate) fn forked() {
    LOOKING.store(0, Ordering::Release);
}

fn find(address: usize, serve: impl Fn(&RegionPager) -> bool) -> bool {
    LOOKING.fetch_add(1, Ordering::AcqRel);
    let served = ALL.iter().any(|one| {
        // SAFETY: a pager that is entered lives until it has left, which waits for this.
        let pager = unsafe { one.load(Ordering::Acquire).as_ref() };
        pager.is_some_and(|pager| pager.page_at(address).is_some() && serve(pager))
    });
    LOOKING.fetch_sub(1, Ordering::AcqRel);
    served
}

/// In a signal handler: serves a touch of an absent page, if that can be done here and now.
pub fn serve_here(address: usize) -> bool {
    let (last, times) = LAST.get();
    let times = if last == address { times + 1 } else { 0 };
    LAST.set((address, times));
    if times > IN_VAIN {
        LAST.set((0, 0));
        return false;
    }
    find(address, |pager| pager.serve_here(address))
}

/// Whether an address lies in a region with a pager.
pub fn has(address: usize) -> bool {
    find(address, |_| true)
}

/// Brings the page at an address, which may take as long as a network does. Nothing may be held.
/// `None`: the address is no paged region's.
pub fn serve(address: usize) -> Option<Result<(), rustix::io::Errno>> {
    let outcome = Cell::new(None);
    find(address, |pager| {
        outcome.set(Some(pager.serve(address)));
        true
    });
    outcome.get()
}
