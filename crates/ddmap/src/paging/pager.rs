//! The pager of a process that has a region attached: serves its touches of pages that are not
//! there (`docs/engines.md`, "How a touch is served").
//!
//! What can be done here and now is done in the signal handler, where the touch happened: a page
//! that is in the file and not mapped, one that was protected for a while, the first touch of a
//! fresh one. What takes a message, or waits for another process, is done where the caller holds
//! nothing ([`Pager::fault`], [`Pager::ready`]).
//!
//! Locks: `owed`, for a moment; none while a message is under way.

use crate::control::interruption;
use crate::control::transport::{Carrier, Fetch, Unreached};
use crate::paging::attachment::Attachment;
use crate::paging::fault_around;
use crate::paging::hints::Hints;
use crate::paging::mapper::{self, ProcessMapper};
pub use crate::paging::options::PagerOptions;
use crate::paging::prefetch::PrefetchMode;
use crate::paging::private_mappings::Private;
use crate::paging::remote_reads::RemoteReads;
use crate::paging::request_pages::Wanted;
use crate::paging::sampling;
use crate::paging::{first_touches, pagers, request_pages, restarts};
use crate::protocol::messages::{Answer, PAGES};
use crate::protocol::{Fault, Flags, Host, Location, Next, NodeId, Owed, PAGE, State, Why};
use crate::shared_memory::counters::{Count, Counted, Touch};
use crate::shared_memory::error::DomainError;
use crate::shared_memory::fork_lock::ForkLock;
use crate::shared_memory::maps::{Maps, PagedMapping};
use crate::shared_memory::runs::Runs;
use crate::shared_memory::table::Handles;
use crate::shared_memory::uffd::Uffd;
use crate::shared_memory::view::{SharedRegion, View};
use crate::wire::now_ns;
use pmem::{Access, Hint, Pager};
use rustix::io::Errno;
use rustix::mm::Advice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A wait looks that often whether a signal has come.
pub(super) const LOOK: Duration = Duration::from_millis(10);
/// A call holds this part of a node's pages, at most.
const HELD_PART: u64 = 16;
/// A holder that does not give a page by then is left alone, if another one has it, too.
const SECOND: Duration = Duration::from_secs(1);
/// Times that a touch asks for room in a row, while there is some, without a pause.
const IN_VAIN: u32 = 64;

/// The pager of this process for one region.
pub struct RegionPager {
    pub(super) ground: SharedRegion,
    pub(super) uffd: Uffd,
    /// Leaked when a child gets its own: a handler may look at it.
    maps: AtomicPtr<Maps>,
    pub(super) carrier: Box<dyn Carrier>,
    wishes: PagerOptions,
    /// Pages that come to be loaded are clean: this kernel can protect what it maps.
    keeps_clean: bool,
    /// The engine's own mapping: its start, and bytes.
    pub(super) main: (AtomicUsize, AtomicU64),
    pub(super) owed: ForkLock<Vec<Owed>>,
    /// The node that is reached; `None`: there is none, in a test.
    node: Option<Attachment>,
    /// How many of the pages that the node has asked about were looked at: in the engine's mapping,
    /// in all others.
    pub(super) looked: [AtomicU64; 2],
    /// Short loads of pages that stay where they are.
    pub apart: Option<RemoteReads>,
    /// What the program has said of its mappings.
    pub(super) hints: Hints,
    /// What a child inherits.
    pub(super) private: Private,
    /// This process is a child that was forked just now.
    is_unsettled: AtomicBool,
    /// What had been counted in its slot before that it has told of.
    told: ForkLock<Counted>,
}

impl RegionPager {
    /// A pager for a region on its host.
    pub fn new(
        ground: SharedRegion,
        uffd: Uffd,
        maps: Maps,
        carrier: Box<dyn Carrier>,
        wishes: PagerOptions,
        node: Option<Attachment>,
    ) -> Self {
        let main = (AtomicUsize::new(0), AtomicU64::new(0));
        let owed = ForkLock::new(Vec::with_capacity(PAGES));
        let told = ForkLock::new(ground.counted());
        let is_unsettled = AtomicBool::new(false);
        let looked = [const { AtomicU64::new(0) }; 2];
        let (hints, private) = (Hints::default(), Private::default());
        let apart = RemoteReads::new(wishes.lines, ground.room.capacity());
        let maps = AtomicPtr::new(Box::into_raw(Box::new(maps)));
        let keeps_clean = uffd.can_protect();
        let pager = Self {
            ground,
            uffd,
            maps,
            carrier,
            wishes,
            keeps_clean,
            main,
            owed,
            node,
            looked,
            apart,
            hints,
            private,
            is_unsettled,
            told,
        };
        pager.publish();
        pager
    }

    pub(super) fn maps(&self) -> &Maps {
        // SAFETY: a box that was leaked, and is freed by `drop` alone.
        unsafe { &*self.maps.load(Ordering::Acquire) }
    }

    /// What the node needs to take stores away: the userfaultfd, and the list of mappings.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.uffd.as_fd(), self.maps().fd()]
    }

    /// How long a touch waits.
    pub(super) fn patience(&self) -> Duration {
        self.wishes.patience
    }

    /// Hands over to the node what it needs to reach this process.
    pub fn meet_node(&self) -> Result<(), DomainError> {
        let node = self.node.as_ref();
        node.map_or(Ok(()), |node| node.meet(&self.ground, &self.descriptors()))
    }

    /// The same, if the node was started anew since.
    pub(super) fn meet_new_node(&self) {
        let starts = self.ground.room.starts();
        if self.node.as_ref().is_some_and(|node| node.is_outdated(starts)) {
            // One that does not answer yet is met at the next call.
            let _ = self.meet_node();
        }
    }

    /// What this process has counted since that was taken last.
    pub fn counted(&self) -> Counted {
        if self.is_unsettled.load(Ordering::Relaxed) {
            // The slot is its parent's still.
            return Counted::default();
        }
        self.ground.counted().since(&self.told.lock())
    }

    /// The same; from now on that was taken.
    pub(crate) fn take_counted(&self) -> Counted {
        let new = self.counted();
        self.told.lock().add(&new);
        new
    }

    /// The region on this host.
    pub fn ground(&self) -> &SharedRegion {
        &self.ground
    }

    /// The page at an address of one of this process's mappings of the region.
    pub fn page_at(&self, address: usize) -> Option<u64> {
        self.mapping_at(address).map(|found| found.0)
    }

    /// The same, and the mapping, if it is not the engine's own.
    pub(super) fn mapping_at(&self, address: usize) -> Option<(u64, Option<PagedMapping>)> {
        let (start, length) = (&self.main.0, &self.main.1);
        let offset = (address as u64).checked_sub(start.load(Ordering::Acquire) as u64);
        if let Some(offset) = offset.filter(|offset| *offset < length.load(Ordering::Acquire)) {
            return Some((offset / PAGE, None));
        }
        let map = self.maps().at(address)?;
        Some((map.page_at(address)?, Some(map)))
    }

    /// A program's mapping of a part of the region, of which no page was touched yet. A private one
    /// is inherited by children, since it may have pages of its own.
    /// One whose pages are to stay is one whose pages may leave, if enough do.
    pub fn map(&self, mut map: PagedMapping) -> Result<(), Errno> {
        let length = (map.pages * PAGE) as usize;
        map.stays = map.stays && self.may_stay(&map);
        // What stood there before is gone.
        if !self.maps().replace(map) {
            return Err(Errno::NOMEM);
        }
        let registered = self.register(map);
        registered.inspect_err(|_| {
            // It is an entry of its own: nothing is cut in two.
            self.maps().remove(map.start, map.start + length);
        })?;
        self.private.mapped(map);
        Ok(())
    }

    /// Holds the pages at addresses, as far as they lie in one mapping of this region: they stay
    /// once they are here. Gives the hold's place, and where the held addresses end. `None`: the
    /// first one is not of this region, or enough is held.
    pub(crate) fn hold(&self, start: usize, end: usize) -> Option<(u64, usize)> {
        // Who holds much keeps others from what they want.
        let most = (self.ground.room.capacity() / HELD_PART).max(1);
        self.hold_some(start, end, most)
    }

    /// The same of so many pages, at most.
    pub(super) fn hold_some(&self, start: usize, end: usize, most: u64) -> Option<(u64, usize)> {
        let (page, map) = self.mapping_at(start)?;
        let mapped = match map {
            Some(map) => map.start + (map.pages * PAGE) as usize,
            None => {
                self.main.0.load(Ordering::Relaxed) + self.main.1.load(Ordering::Relaxed) as usize
            }
        };
        let end = end.min(mapped);
        let first = start / PAGE as usize;
        let pages = (end.div_ceil(PAGE as usize) - first) as u64;
        let place = self.ground.table.hold_pages(page, pages.min(most))?;
        // Who looks now has asked what is held before this was.
        sampling::wait();
        Some((place, end))
    }

    /// The pages of a hold may go again.
    pub(crate) fn let_go(&self, place: u64) {
        self.ground.table.unname(place);
    }

    /// These addresses are not mappings of this region any more.
    pub(crate) fn forget(&self, start: usize, length: usize) {
        // What a child has of them is its parent's until it has settled.
        if !self.is_unsettled.load(Ordering::Relaxed) {
            self.forget_hints(start..start + length);
            self.private.unmapped(start..start + length);
        }
        // One that cannot be cut in two, since the list is full, stays as it is.
        self.maps().remove(start, start + length);
    }

    fn may_stay(&self, map: &PagedMapping) -> bool {
        let listed = || self.maps().each().filter(|map| map.stays).map(|map| map.pages());
        let most = self.ground.may_stay();
        // What is mapped twice is counted twice, if that does no harm.
        let may = listed().map(|run| run.end - run.start).sum::<u64>() + map.pages <= most
            || Runs::of(listed().chain([map.pages()])).pages() <= most;
        self.ground.count(Count::NotHeld, u64::from(!may));
        may
    }

    fn register(&self, map: PagedMapping) -> Result<(), Errno> {
        let length = (map.pages * PAGE) as usize;
        if map.shared {
            // SAFETY: a mapping of the region, in which children would find holes filled by zeros.
            unsafe {
                rustix::mm::madvise(map.start as *mut _, length, Advice::LinuxDontFork)?;
            }
        }
        self.uffd.register(map.start, length)
    }

    /// The engine's own mapping, of the whole region.
    pub(super) fn whole(&self) -> PagedMapping {
        let start = self.main.0.load(Ordering::Relaxed);
        let pages = self.main.1.load(Ordering::Relaxed) / PAGE;
        PagedMapping { start, page: 0, pages, shared: true, stays: false, writes: false }
    }

    /// In a forked child, as soon as it may allocate: it takes a slot of its own, hands over to the
    /// node what is its own, and registers what it has inherited. Until then it has touched only
    /// what never leaves.
    pub fn settle(&self) -> Result<(), Errno> {
        if !self.is_unsettled.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.ground.table.forked().map_err(|_| Errno::IO)?;
        let maps = Maps::new().map_err(|error| error.errno())?;
        maps.add(self.whole());
        self.maps.store(Box::into_raw(Box::new(maps)), Ordering::Release);
        self.looked.iter().for_each(|looked| looked.store(0, Ordering::Relaxed));
        self.owed.renew(Vec::with_capacity(PAGES));
        self.told.renew(self.ground.counted());
        self.apart.iter().for_each(RemoteReads::forked);
        self.hints.forked();
        self.carrier.forked(self.ground.table.me().slot, self.ground.table.life());
        if let Some(node) = &self.node {
            node.forked();
        }
        self.publish();
        // One that is down fetches what it needs when it begins, or gets it with the next call.
        let _ = self.meet_node();
        self.inherit()
    }

    /// Says where the node finds what it needs, if this process does not hand it over.
    fn publish(&self) {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let (uffd, maps) = (self.uffd.as_fd().as_raw_fd(), self.maps().fd().as_raw_fd());
        let token = self.maps().token();
        self.ground.table.publish(Handles { pid, uffd, maps, token });
    }

    /// Whether a touch in a mapping is as one that stores to the page, which is not clean then. In
    /// a private mapping a store copies it. Where pages are to stay, and where the program may
    /// store, the kernel may be about to: it finds no page that is protected.
    fn is_store(&self, map: Option<PagedMapping>, stores: bool) -> bool {
        let of_map = |map: PagedMapping| stores && map.shared || map.opens();
        map.map_or(stores, of_map) || !self.keeps_clean
    }

    /// In a signal handler: does what a touch needs, if that takes no message and no wait. `false`:
    /// it does, or the touch is not of this region.
    pub fn serve_here(&self, address: usize, stores: bool) -> bool {
        let Some((page, touched)) = self.mapping_at(address) else { return false };
        let begun = now_ns();
        mapper::serves_as(None);
        let word = self.ground.table.word(page);
        let here = match word.state() {
            State::Owned | State::Clean => true,
            State::Absent => matches!(self.ground.place(page), Ok(Location::Void(_))),
            _ => false,
        };
        if !here {
            return false;
        }
        let view = View::new(&self.ground, ProcessMapper::new(self, page, touched));
        let mut fault = Fault::new(page, self.is_store(touched, stores));
        loop {
            match fault.step(&view) {
                Next::Step => {}
                Next::Done(owed) => {
                    owed.into_iter().flatten().for_each(|owed| self.owe_here(owed));
                    self.ground.table.heat(page, word, self.ground.tick());
                    self.ground.touched(mapper::kind(), begun);
                    if first_touches::begins_at(word) {
                        self.bring_fresh(page, &view);
                    } else if touched.is_none() && mapper::kind() == Touch::Minor {
                        // The engine's own mapping stays as it is.
                        self.map_run(page + 1, fault_around::MOST, None);
                    }
                    return true;
                }
                // It has moved meanwhile.
                Next::Ask(..) => fault.unanswered(),
                _ => return false,
            }
        }
    }

    /// Brings a page that was touched at an address, however long that takes, within patience.
    /// `EFAULT`: a mapping of the region was there, and is there no more.
    pub fn serve(&self, address: usize, stores: bool) -> Result<(), Errno> {
        let (page, touched) = self.mapping_at(address).ok_or(Errno::FAULT)?;
        mapper::begin();
        let ahead = self.hints.ahead(address, self.wishes.ahead);
        let pages = self.bring_by(page, (touched, stores), ahead)?;
        fault_around::note(address, &pages);
        if mapper::was_not_ours() { Err(Errno::FAULT) } else { Ok(()) }
    }

    /// Of a touch of the engine's.
    fn bring_touched(&self, page: u64, access: Access) -> Result<(), Errno> {
        self.bring_by(page, (None, access != Access::Load), self.wishes.ahead).map(drop)
    }

    /// Brings a page, and gives it with those that were brought ahead.
    fn bring_by(
        &self,
        page: u64,
        touch: (Option<PagedMapping>, bool),
        ahead: PrefetchMode,
    ) -> Result<Vec<u64>, Errno> {
        let (begun, begun_ns, mut refused) = (Instant::now(), now_ns(), 0);
        mapper::serves_as(None);
        let mut pages = if first_touches::is_fresh(&self.ground, page) {
            first_touches::with_those_ahead(&self.ground, page)
        } else {
            request_pages::with_those_ahead(&self.ground, ahead, vec![page])
        };
        loop {
            // Each time: a node that is started while all threads wait for room makes none before
            // it can reach this process.
            self.meet_new_node();
            let word = self.ground.table.word(page);
            match self.bring(&pages, touch) {
                Next::Done(_) => {
                    // Of one that was here: who asks hears of it.
                    self.ground.table.heat(page, word, self.ground.tick());
                    self.ground.touched(mapper::kind(), begun_ns);
                    return Ok(pages);
                }
                Next::Fail(Why::Lost | Why::Damaged) => {
                    if let Ok(Location::Lost(Some(node), _)) = self.ground.place(page) {
                        pagers::note_lost(node);
                    }
                    return Err(Errno::IO);
                }
                Next::Wait(word) => {
                    let waited = self.ground.table.wait(page, word, LOOK);
                    if waited.is_err() && interruption::interrupted().is_none() {
                        // By what does not end this wait.
                        std::thread::sleep(LOOK);
                    }
                }
                Next::Room => {
                    self.ground.count(Count::WaitedForRoom, u64::from(refused == 0));
                    let room = &self.ground.room;
                    let seen = room.left();
                    refused += 1;
                    if self.ground.free() == 0 {
                        room.wait(seen, LOOK);
                    } else if refused > IN_VAIN {
                        // The store's file system is full, though the node may have more.
                        std::thread::sleep(LOOK);
                    }
                }
                Next::Again | Next::Ask(..) | Next::Step => std::thread::sleep(LOOK),
            }
            pages.truncate(1);
            if let Some(errno) = interruption::interrupted() {
                self.ground.count(Count::Interrupted, 1);
                return Err(errno);
            }
            if begun.elapsed() > self.wishes.patience {
                return Err(Errno::IO);
            }
        }
    }

    /// Brings pages that are touched in a mapping (`None`: the engine's own), to be stored to or
    /// not, by one request to each holder: gives what came of the first one.
    pub(super) fn bring(
        &self,
        pages: &[u64],
        (touched, stores): (Option<PagedMapping>, bool),
    ) -> Next {
        let mut first = Next::Again;
        let mut asked: Vec<Wanted> = Vec::new();
        let mut fresh = Vec::new();
        let view = View::new(&self.ground, ProcessMapper::new(self, pages[0], touched));
        for (at, page) in pages.iter().enumerate() {
            let mut fault = Fault::new(*page, self.is_store(touched, stores));
            let next = self.prepare(&mut fault, &view);
            if let Next::Ask(owner, version) = next {
                asked.push(Wanted { owner, version, fault, is_first: at == 0 });
            } else if next == Next::Step {
                fresh.push(fault);
            } else if at == 0 {
                first = next;
                if !matches!(next, Next::Done(_)) {
                    break;
                }
            } else if next == Next::Room {
                break;
            }
        }
        self.finish(&mut fresh.iter_mut().collect::<Vec<_>>(), &view, |page, next| {
            if page == pages[0] {
                first = next;
            }
        });
        while let Some(owner) = asked.first().map(|one| one.owner) {
            let (mut now, later) = asked.into_iter().partition(|one| one.owner == owner);
            asked = later;
            if let Some(next) = self.ask(owner, &mut now, &view) {
                first = next;
            }
            // What that one has not given others have.
            asked.append(&mut now);
        }
        first
    }

    /// Asks a holder for pages, and installs them: gives what came of the first one, if it is
    /// among them. Those are left that another holder is to be asked for.
    fn ask(
        &self,
        owner: NodeId,
        asked: &mut Vec<Wanted>,
        view: &View<'_, ProcessMapper<'_>>,
    ) -> Option<Next> {
        let pages: Vec<_> = asked.iter().map(|one| (one.fault.page(), one.version)).collect();
        let has_another = asked.iter().any(|one| one.fault.has_another());
        let patience = self.wishes.patience;
        let patience = if has_another { patience.min(SECOND) } else { patience };
        let releases = self.take_owed(owner);
        let next = request_pages::next(
            &self.ground,
            owner,
            &pages.iter().map(|one| one.0).collect::<Vec<_>>(),
        );
        let fetch = Fetch { pages, releases: releases.clone(), next };
        self.apart.iter().for_each(|apart| apart.pages_come(&self.ground));
        let answer = self.carrier.fetch(owner, fetch, patience);
        if interruption::interrupted().is_none() {
            self.ground.heard(owner, answer.is_ok());
        }
        self.see_what_was_given_up(false);
        if !matches!(answer, Ok(Answer::Fetched { .. })) {
            self.ground.count(Count::Unanswered, 1);
            self.not_told(&releases);
        }
        let gone = answer == Err(Unreached::Gone);
        let found = match answer {
            Ok(Answer::Fetched { found, bytes }) if found.len() == asked.len() => {
                view.buffer.replace(bytes);
                Some(found)
            }
            _ => None,
        };
        let (mut first, mut at) = (None, 0);
        for (number, Wanted { fault, is_first, .. }) in asked.iter_mut().enumerate() {
            match found.as_ref().map(|found| found[number]) {
                None if !gone => fault.unanswered(),
                None | Some(false) => fault.refused(),
                Some(true) => {
                    fault.answered(at);
                    at += PAGE as usize;
                    mapper::serves_as(Some(Touch::Remote));
                    self.ground.count(Count::Fetched, 1);
                    self.ground.count(Count::Ahead, u64::from(!*is_first));
                }
            }
        }
        let asks = |one: &mut Wanted| one.fault.asks().is_none();
        let mut over: Vec<_> = asked.extract_if(.., asks).collect();
        for one in asked {
            (one.owner, one.version) = one.fault.asks().unwrap_or((one.owner, one.version));
        }
        let touched = over.iter().find(|one| one.is_first).map(|one| one.fault.page());
        let mut faults: Vec<_> = over.iter_mut().map(|one| &mut one.fault).collect();
        self.finish(&mut faults, view, |page, next| {
            if Some(page) == touched {
                first = Some(next);
            }
        });
        first
    }

    /// Takes steps until a page is to be installed ([`Next::Step`]), or something else is to be
    /// done. A page that is to be installed is named no more, since its word is busy.
    fn prepare(&self, fault: &mut Fault<usize>, view: &View<'_, ProcessMapper<'_>>) -> Next {
        let next = self.run_until(fault, view, |fault| fault.to_install().is_some());
        if next == Next::Step {
            view.unname();
        }
        next
    }

    /// Ends faults that are prepared, in a row where their pages are in a row: says what came of
    /// each page.
    fn finish(
        &self,
        faults: &mut [&mut Fault<usize>],
        view: &View<'_, ProcessMapper<'_>>,
        mut came: impl FnMut(u64, Next),
    ) {
        for run in faults.chunk_by_mut(|one, next| mapper::in_a_row(one, next)) {
            view.hands().lay(run[0], run.len(), &view.buffer.borrow());
            for fault in run {
                let next = self.run(fault, view);
                came(fault.page(), next);
            }
        }
    }

    /// In a signal handler, behind a first touch: if this thread touches fresh pages in order, the
    /// next ones are there, too.
    fn bring_fresh(&self, page: u64, view: &View<'_, ProcessMapper<'_>>) {
        let mut faults: [_; first_touches::MOST] =
            std::array::from_fn(|at| Fault::new(page + 1 + at as u64, true));
        let ahead = first_touches::ahead(&self.ground, page);
        let mut ready = 0;
        while ready < ahead
            && first_touches::is_fresh(&self.ground, faults[ready].page())
            && mapper::prepare_fresh(&mut faults[ready], view)
        {
            ready += 1;
        }
        view.hands().lay(&faults[0], ready, &[]);
        for fault in &mut faults[..ready] {
            mapper::end_fresh(fault, view);
        }
    }

    /// Takes steps until something else is to be done.
    fn run(&self, fault: &mut Fault<usize>, view: &View<'_, ProcessMapper<'_>>) -> Next {
        self.run_until(fault, view, |_| false)
    }

    /// The same, or until it stands where it is to stop ([`Next::Step`]).
    fn run_until(
        &self,
        fault: &mut Fault<usize>,
        view: &View<'_, ProcessMapper<'_>>,
        stops: impl Fn(&Fault<usize>) -> bool,
    ) -> Next {
        loop {
            if stops(fault) {
                return Next::Step;
            }
            match fault.step(view) {
                Next::Step => {}
                Next::Done(owed) => {
                    self.owe(owed.into_iter().flatten());
                    return Next::Done(Default::default());
                }
                next => return next,
            }
        }
    }
}

impl Pager for RegionPager {
    fn mapped(&self, address: usize, length: u64) {
        let whole = length / PAGE * PAGE;
        self.main.0.store(address, Ordering::Release);
        self.main.1.store(whole, Ordering::Release);
        let pages = whole / PAGE;
        let map = PagedMapping {
            start: address,
            page: 0,
            pages,
            shared: true,
            stays: false,
            writes: false,
        };
        let registered = if self.is_unsettled.load(Ordering::Relaxed) {
            self.register(map)
        } else {
            self.map(map)
        };
        debug_assert_eq!(registered, Ok(()), "a mapping of shared memory registers");
        pagers::enter(self);
    }

    fn unmapped(&self, address: usize) {
        if self.is_unsettled.load(Ordering::Relaxed) {
            // The list is its parent's still.
            return;
        }
        let length = self.main.1.load(Ordering::Relaxed);
        let (start, none) = (address, 0);
        // A region that was mapped since has it now.
        let own = self.main.0.compare_exchange(start, none, Ordering::AcqRel, Ordering::Relaxed);
        if own.is_ok() {
            self.main.1.store(0, Ordering::Release);
            self.maps().remove(start, start + length as usize);
        }
    }

    fn forked(&self) -> Result<(), Errno> {
        pagers::forked();
        self.is_unsettled.store(true, Ordering::Relaxed);
        self.uffd.renew()
    }

    fn fault(&self, page: u64, access: Access) -> Result<(), Errno> {
        let is_fresh = first_touches::is_void(&self.ground, page / PAGE);
        self.bring_touched(page / PAGE, access)?;
        if is_fresh {
            self.make_room_for_more()?;
        }
        self.release_owed(false);
        Ok(())
    }

    fn loads_apart(&self) -> bool {
        self.apart.is_some()
    }

    fn load_apart(&self, at: u64, to: &mut [u8]) -> bool {
        self.apart.as_ref().is_some_and(|all| all.load(&self.ground, &*self.carrier, at, to))
    }

    fn is_away(&self, page: u64) -> bool {
        self.ground.table.word(page / PAGE).state() == State::Absent
    }

    fn pin(&self, (at, length): (u64, u64)) -> Option<u64> {
        let (first, end) = (at / PAGE, (at + length).div_ceil(PAGE));
        self.ground.table.hold_pages(first, end.saturating_sub(first).max(1))
    }

    fn unpin(&self, pin: u64) {
        self.ground.table.unname(pin);
    }

    fn is_void(&self, page: u64) -> bool {
        first_touches::is_void(&self.ground, page / PAGE)
    }

    fn at_once(&self) -> u64 {
        self.step_bytes()
    }

    fn begins_anew(&self, times: u32) -> Result<(), Errno> {
        self.call_begins_anew(times)
    }

    fn is_lost(&self, page: u64) -> bool {
        self.has_lost(page / PAGE)
    }

    fn renew(&self, page: u64) -> bool {
        self.renew_lost(page / PAGE)
    }

    fn ready(&self, ranges: &[(u64, u64)], access: Access) {
        let elsewhere = |page: &u64| self.ground.table.word(*page).state() == State::Absent;
        let pages = ranges.iter().flat_map(|(at, length)| at / PAGE..(at + length).div_ceil(PAGE));
        let pages: Vec<u64> = pages.filter(elsewhere).take(PAGES).collect();
        if !pages.is_empty() {
            let begun = now_ns();
            mapper::serves_as(None);
            // What does not come is asked for again by the access.
            let ahead = if restarts::lacks_room() { PrefetchMode::Off } else { self.wishes.ahead };
            let pages = request_pages::with_those_ahead(&self.ground, ahead, pages);
            self.bring(&pages, (None, access != Access::Load));
            if let Some(kind) = mapper::served_as() {
                self.ground.touched(kind, begun);
            }
        }
    }

    fn advise(&self, (at, length): (u64, u64), hint: Hint) {
        let (set, clear) = match hint {
            Hint::Stays => (Flags::STAYS, Flags::SMALL),
            Hint::Small => (Flags::SMALL, Flags::STAYS),
            Hint::Large => (Flags::default(), Flags::SMALL.with(Flags::STAYS)),
        };
        let pages = at / PAGE..(at + length).div_ceil(PAGE).min(self.ground.table.pages());
        let stays = |page: u64| {
            let word = self.ground.table.word(page);
            word.state() == State::Owned && word.flags().has(Flags::STAYS)
        };
        if hint == Hint::Stays && stays(pages.start) && stays(pages.end - 1) {
            // Said by the one that attached, or made it a chunk of metadata, before.
            return;
        }
        for page in pages {
            self.ground.table.flag(page, set, clear);
            if hint == Hint::Stays && !stays(page) {
                // What is not here by now is brought by the touch.
                let _ = self.bring_touched(page, Access::Store);
            }
        }
    }

    fn discard(&self, (at, length): (u64, u64)) {
        // Pages that lie whole in it.
        let (first, last) = (at.div_ceil(PAGE), (at + length) / PAGE);
        self.drop_pages(first, last.saturating_sub(first));
    }

    fn begin(&self) {
        self.meet_new_node();
        self.look_in_engine();
    }

    fn provide(&self, _: (u64, u64)) -> Result<(), Errno> {
        Ok(())
    }

    fn next_data(&self, from: u64) -> u64 {
        self.ground.next_page(from / PAGE, true).map_or(u64::MAX, |page| from.max(page * PAGE))
    }

    fn next_hole(&self, from: u64) -> u64 {
        self.ground.next_page(from / PAGE, false).map_or(u64::MAX, |page| from.max(page * PAGE))
    }

    fn barrier(&self) -> Result<(), Errno> {
        Ok(())
    }
}

impl Drop for RegionPager {
    fn drop(&mut self) {
        pagers::leave(self);
        self.release_owed(true);
        self.see_what_was_given_up(true);
        // SAFETY: made by a box, and nobody looks at it any more.
        drop(unsafe { Box::from_raw(self.maps.load(Ordering::Acquire)) });
    }
}
