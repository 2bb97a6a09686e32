//! The regions with pagers of this process, by their addresses: for a signal handler that has no
//! more than a fault's address.
//!
//! Looking locks nothing and allocates nothing. A pager that has left is not freed while a handler
//! may look at it: a pager that leaves waits until none does.

use crate::control::interruption;
pub use crate::control::interruption::Interruptible;
use crate::paging::fault_around;
use crate::paging::pager::RegionPager;
use crate::paging::sampling;
use crate::protocol::{NodeId, PAGE};
use crate::shared_memory::counters::{Count, Counted, Touch};
use crate::shared_memory::maps::PagedMapping;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicUsize, Ordering};

/// Regions with pagers that a process can have attached at once.
pub(crate) const PAGERS: usize = 16;
/// Touches of one address in a row, in so short a time, for which nothing was mapped: it is not
/// ours to help. (A program may map its files at one address over and over; a page that is
/// protected again and again is so at the evictor's pace.)
const IN_VAIN: u32 = 64;
const SHORT_NS: u64 = 5_000_000;

static ALL: [AtomicPtr<RegionPager>; PAGERS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; PAGERS];
/// Handlers that look at a pager now.
static LOOKING: AtomicUsize = AtomicUsize::new(0);

/// The node with which a page was lost that was asked for last. 0: none, or it was taken.
static LOST_WITH: AtomicU16 = AtomicU16::new(0);

/// There is one, or was.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// A touch is being served.
    static SERVING: Cell<bool> = const { Cell::new(false) };
    /// The address that was touched last, how often in vain, and since when.
    static LAST: Cell<(usize, u32, u64)> = const { Cell::new((0, 0, 0)) };
    /// Something was mapped since.
    static MAPPED: Cell<bool> = const { Cell::new(false) };
}

/// Whether another one has a place.
pub(crate) fn has_place() -> bool {
    ALL.iter().any(|one| one.load(Ordering::Acquire).is_null())
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
    ANY.store(true, Ordering::Relaxed);
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

/// A page that was asked for is lost with this node.
pub(crate) fn note_lost(node: NodeId) {
    LOST_WITH.store(node.number(), Ordering::Relaxed);
}

/// In a forked child: no other thread looks.
pub(crate) fn forked() {
    LOOKING.store(0, Ordering::Release);
    // Its parent's.
    HOLDS.set([None; HELD]);
    sampling::forked();
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
fn serve_here(address: usize, stores: bool) -> bool {
    if SERVING.replace(true) {
        // What is looked at to serve a touch is no paged memory.
        return false;
    }
    let served = serve_once(address, stores);
    SERVING.set(false);
    served
}

/// A page was mapped for this thread.
pub(crate) fn mapped_one() {
    MAPPED.set(true);
}

fn serve_once(address: usize, stores: bool) -> bool {
    Pagers::may_help(address) && find(address, |pager| pager.serve_here(address, stores))
}

/// What a call of this thread holds: pagers, by their addresses, and their holds.
pub type Held = [Option<(usize, u64)>; HELD];
/// Mappings in which a call may hold pages.
const HELD: usize = 8;

thread_local! {
    static HOLDS: Cell<Held> = const { Cell::new([None; HELD]) };
}

/// Holds the pages at addresses until [`Pagers::let_go`]: those that are here, and those that come.
fn hold(start: usize, end: usize) {
    let mut held = HOLDS.get();
    let mut at = start;
    LOOKING.fetch_add(1, Ordering::AcqRel);
    while at < end {
        let Some(free) = held.iter_mut().find(|hold| hold.is_none()) else { break };
        let found = ALL.iter().find_map(|one| {
            let pager = one.load(Ordering::Acquire);
            // SAFETY: as in `find`.
            let (place, to) = unsafe { pager.as_ref() }?.hold(at, end)?;
            Some((pager as usize, place, to))
        });
        let Some((pager, place, to)) = found else { break };
        *free = Some((pager, place));
        at = to;
    }
    LOOKING.fetch_sub(1, Ordering::AcqRel);
    HOLDS.set(held);
}

/// Addresses are this pager's now: others, which had mappings there, do not look at them.
fn forget(new: &RegionPager, start: usize, length: usize) {
    for one in &ALL {
        // SAFETY: the caller looks.
        let pager = unsafe { one.load(Ordering::Acquire).as_ref() };
        if let Some(pager) = pager.filter(|pager| !std::ptr::eq(*pager, new)) {
            pager.forget(start, length);
        }
    }
}

pub(super) fn each(act: impl Fn(&RegionPager)) {
    LOOKING.fetch_add(1, Ordering::AcqRel);
    for one in &ALL {
        // SAFETY: as in `find`.
        if let Some(pager) = unsafe { one.load(Ordering::Acquire).as_ref() } {
            act(pager);
        }
    }
    LOOKING.fetch_sub(1, Ordering::AcqRel);
}

/// The pagers of this process, which serve the touches of its regions' absent pages: what a face
/// asks of them by addresses. None of this needs a pager to be there.
pub struct Pagers;

impl Pagers {
    /// The node with which a page was lost that a call of this process, which gave `EIO`, has asked
    /// for since this was asked last.
    pub fn take_lost() -> Option<u16> {
        let none = LOST_WITH.load(Ordering::Relaxed) == 0;
        (!none).then(|| LOST_WITH.swap(0, Ordering::Relaxed)).filter(|&node| node != 0)
    }

    /// In a forked child, as soon as it may allocate: it takes its place in the domain.
    pub fn settle_child() -> Result<(), Errno> {
        for one in &ALL {
            // SAFETY: as in `find`; no other thread runs.
            if let Some(pager) = unsafe { one.load(Ordering::Acquire).as_ref() } {
                pager.settle()?;
            }
        }
        Ok(())
    }

    /// Whether it makes sense to help once more at an address: not when that was done over and
    /// over.
    pub fn may_help(address: usize) -> bool {
        let (last, times, since) = LAST.get();
        let now = crate::wire::now_ns();
        let in_a_row = last == address && !MAPPED.take() && now.saturating_sub(since) < SHORT_NS;
        let (times, since) = if in_a_row { (times + 1, since) } else { (0, now) };
        LAST.set(if times > IN_VAIN { (0, 0, 0) } else { (address, times, since) });
        times <= IN_VAIN
    }

    /// What the pagers of this process have done since this was called last: how often, and what,
    /// as reports call it. Times are counts by the bucket (`shared_memory/counters.rs`), and the
    /// longest one.
    pub fn take_counts() -> Vec<(u64, String)> {
        let counted = RefCell::new(Counted::default());
        let local = Cell::new(0);
        each(|pager| {
            counted.borrow_mut().add(&pager.take_counted());
            local.set(local.get() + pager.ground().table.share().local().unwrap_or(0));
        });
        let counted = counted.into_inner();
        let counts = Count::ALL.iter().map(|what| (counted.get(*what), what.name().to_owned()));
        let mut all: Vec<_> = counts.collect();
        all.push((counted.get(Count::Fetched) * PAGE, "fetch-bytes".to_owned()));
        all.push((local.get() * PAGE, "local-bytes-most".to_owned()));
        for kind in Touch::ALL {
            let (name, times) = (kind.name(), counted.times(*kind));
            all.push((times.count(), format!("faults:{name}")));
            if times.count() > 0 {
                let buckets = times.buckets.iter().enumerate();
                all.extend(buckets.map(|(at, count)| (*count, format!("fault-ns:{name}:{at}"))));
                all.push((times.longest_ns, format!("fault-ns:{name}-most")));
            }
        }
        all.retain(|one| one.0 > 0);
        all.into_iter().map(|(count, name)| (count, format!("ddmap:{name}"))).collect()
    }

    /// Whether this process has a region with a pager.
    #[inline]
    pub fn any() -> bool {
        ANY.load(Ordering::Relaxed)
    }

    /// Until `act` is over, this thread's waits for pages end so.
    pub fn ending<T>(ends: Interruptible, act: impl FnOnce() -> T) -> T {
        let before = interruption::end_at(ends);
        let value = act();
        interruption::end_at(before);
        value
    }

    /// Brings the page at an address, to be stored to or not, which may take as long as a network
    /// does. Nothing may be held.
    /// `None`: the address is no paged region's, or is not registered yet. `EINTR`: a signal's turn
    /// has come: nothing was done.
    pub fn serve(address: usize, stores: bool) -> Option<Result<(), Errno>> {
        if !Self::any() {
            return None;
        }
        let outcome = Cell::new(None);
        find(address, |pager| {
            // What has had a mapping of the region is somebody else's now: the fault is, too.
            outcome.set(
                Some(pager.serve(address, stores)).filter(|served| *served != Err(Errno::FAULT)),
            );
            true
        });
        outcome.get()
    }

    /// The program is about to become another user, or to get another root: what it may not look
    /// for any more is looked for now.
    pub fn learn() {
        if Self::any() {
            each(|pager| pager.carrier.learn());
        }
    }

    /// Whether the region whose own mapping begins at `base` has a pager.
    pub fn has_pager(base: usize) -> bool {
        Self::any() && find(base, |_| true)
    }

    /// A signal handler runs: what the call holds that it has interrupted is not its own.
    pub fn set_aside() -> Held {
        HOLDS.replace([None; HELD])
    }

    /// The handler is over, and the call goes on.
    pub fn take_back(held: Held) {
        HOLDS.set(held);
    }

    /// A call that the kernel has served is over: what it held may go.
    pub fn let_go() {
        let held = HOLDS.replace([None; HELD]);
        if held[0].is_none() {
            return;
        }
        LOOKING.fetch_add(1, Ordering::AcqRel);
        for (pager, place) in held.into_iter().flatten() {
            // One that has left has no holds any more.
            let all = ALL.iter().map(|one| one.load(Ordering::Acquire));
            let found = all.into_iter().find(|one| *one as usize == pager);
            // SAFETY: as in `find`.
            if let Some(pager) = found.and_then(|found| unsafe { found.as_ref() }) {
                pager.let_go(place);
            }
        }
        LOOKING.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether a node has asked about pages at which the program's mappings were not looked yet.
    pub fn is_asked() -> bool {
        let asked = Cell::new(false);
        each(|pager| asked.set(asked.get() || pager.is_asked()));
        asked.get()
    }

    /// Whether pages are to be mapped with the one that this thread has touched last.
    pub fn has_others() -> bool {
        fault_around::is_noted()
    }

    /// Maps them. Nobody may change a mapping meanwhile.
    pub fn map_others() {
        if let Some(served) = fault_around::take() {
            find(served.address, |pager| {
                pager.map_others(&served);
                true
            });
        }
    }

    /// Looks at those pages, in all mappings. Nobody may change a mapping meanwhile.
    pub fn look() {
        each(RegionPager::look_everywhere);
    }

    /// Brings all absent pages of a range of addresses, before the kernel gets to see it, and holds
    /// them until [`Self::let_go`]: the kernel's own access to a page that has left in between, or
    /// is protected, would fail, and what it had taken out of a socket would be gone. So they are
    /// held first, and opened for stores then: what is held does not come anew, and clean. What
    /// cannot be had is the kernel's to say.
    pub fn ready(start: usize, length: usize) {
        if !Self::any() {
            return;
        }
        hold(start, start.saturating_add(length));
        let mut at = start;
        while at < start.saturating_add(length) {
            if !matches!(Self::ending(Interruptible::Never, || Self::serve(at, true)), Some(Ok(())))
            {
                return;
            }
            at = (at / PAGE as usize + 1) * PAGE as usize;
        }
    }

    /// A program's mapping of a part of the region whose own mapping begins at `base`: no page of
    /// it was touched yet. If the region has no pager, nothing is done. A private one is inherited
    /// by children, which register it when they settle.
    pub fn map(base: usize, map: PagedMapping) -> Result<(), Errno> {
        let outcome = Cell::new(Ok(()));
        find(base, |pager| {
            forget(pager, map.start, (map.pages * PAGE) as usize);
            outcome.set(pager.map(map));
            true
        });
        outcome.get()
    }

    /// What lay in a range of addresses lies at another place now, with its pages, but shared
    /// mappings, which are mapped anew there. Nobody may touch it meanwhile: it is not registered
    /// until this is over.
    pub fn moved(start: usize, end: usize, to: usize) -> Result<(), Errno> {
        if !Self::any() {
            return Ok(());
        }
        let outcome = Cell::new(Ok(()));
        each(|pager| outcome.set(outcome.get().and(pager.moved(&(start..end), to))));
        outcome.get()
    }

    /// From here on the program may store to what it has mapped in a range of addresses.
    pub fn may_store(start: usize, end: usize) {
        if Self::any() {
            each(|pager| pager.may_store(&(start..end)));
        }
    }

    /// What was mapped in a range of addresses is there no more: touches of it are not for a pager.
    pub fn unmap(start: usize, end: usize) {
        if !Self::any() {
            return;
        }
        each(|pager| pager.forget(start, end - start));
    }
}
