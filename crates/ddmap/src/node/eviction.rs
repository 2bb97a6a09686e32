//! Makes room on a volume's host: sends cold pages to holders, each to one or to two, in the
//! background, before a touch has to wait for it (dissertation, 6.4.2, "Migration").
//!
//! The node takes stores to a page away in every process that has the region mapped, by the
//! userfaultfd and the list of mappings that each has handed over. Of a process that is attached
//! and has not done so yet (it has just come, or the node has) they are fetched (`descriptors.rs`).
//! Nothing leaves while one cannot be reached.
//!
//! Which pages leave is told by the policy of the program that has attached last, of those that
//! are attached and have a wish; else by LRU. So is how many may be here at most.
//!
//! Locks: `choice`, while a batch is chosen; `peers`, then, and while it is protected; `spare`, for
//! a moment, and that of whose turn it is.

use crate::control::preferences::{EvictionStart, Policy, Preferences};
use crate::control::transport::Carrier;
use crate::node::descriptors::fetched;
use crate::node::policy::Cold;
use crate::node::round_robin::RoundRobin;
use crate::node::sampling::{Moment, Sample};
use crate::protocol::holder::Stored;
use crate::protocol::messages::{Answer, PAGES, Request};
use crate::protocol::{
    Claimant, Evicted, Eviction, Installed, NodeId, PAGE, Progress, Shown, Word,
};
use crate::shared_memory::counters::Count;
use crate::shared_memory::maps::{Maps, PagedMapping};
use crate::shared_memory::runs::Runs;
use crate::shared_memory::uffd::Uffd;
use crate::shared_memory::view::{Mapper, SharedRegion, View};
use rustix::io::Errno;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Words that are looked at in one go, at most: of 4 GiB of a region.
const SCAN: usize = 1 << 20;
/// The part of the capacity that is asked about at a time, and how many pages that is at most.
const ASKED_PART: u64 = 4;
const ASKED_MAX: u64 = 32 << 10;
/// Of them, pages that are seen to again for a batch.
const GLANCE: usize = 256;

/// A process that has the region mapped.
#[derive(Debug)]
pub struct Peer {
    /// Its slot and life in the node table.
    pub claimant: Claimant,
    uffd: Uffd,
    maps: Maps,
    /// `None`: it has not said so yet.
    wish: Option<Preferences>,
    /// The list as it was read last, and after how many changes.
    known: (u64, Vec<PagedMapping>),
}

impl Peer {
    /// A process that has handed over its userfaultfd and its mappings.
    pub fn new(claimant: Claimant, uffd: Uffd, maps: Maps, wish: Preferences) -> Self {
        Self { claimant, uffd, maps, wish: Some(wish), known: (u64::MAX, Vec::new()) }
    }

    /// One of which they were fetched, so that its wish is not known.
    pub fn found(claimant: Claimant, uffd: Uffd, maps: Maps) -> Self {
        Self { claimant, uffd, maps, wish: None, known: (u64::MAX, Vec::new()) }
    }

    fn mappings(&mut self) -> &[PagedMapping] {
        let changes = self.maps.changes();
        if self.known.0 != changes {
            self.known = (changes, self.maps.all());
        }
        &self.known.1
    }

    fn protect(&mut self, page: u64, pages: u64) {
        self.mappings();
        for map in &self.known.1 {
            let Some((address, pages)) = map.part_of(page, pages) else { continue };
            if self.uffd.protect(address, pages * PAGE, false).is_ok() || pages == 1 {
                // A mapping that is gone shows nothing; a process that is gone has none.
                continue;
            }
            // Some of it may be there still.
            for at in (address..address + (pages * PAGE) as usize).step_by(PAGE as usize) {
                // As above.
                let _ = self.uffd.protect(at, PAGE, false);
            }
        }
    }
}

/// Which pages are to leave.
#[derive(Default)]
struct Choice {
    /// Where the last scan ended.
    hand: u64,
    cold: Cold,
    looked: Sample,
}

/// Makes room for one region.
pub struct Evictor {
    ground: SharedRegion,
    peers: Mutex<Vec<Peer>>,
    choice: Mutex<Choice>,
    begun: Instant,
    /// A batch's bytes, to be used again.
    spare: Mutex<Vec<u8>>,
    turns: RoundRobin,
    copy_turns: RoundRobin,
    /// How many holders are to have each page.
    pub copies: usize,
    /// Pages that have left.
    pub gone: AtomicU64,
    /// Of them, those that only one holder took, though there are to be two.
    pub single: AtomicU64,
}

/// What came of an attempt to make room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    /// So many pages have left.
    Room(u64),
    /// No holder takes any, as far as was tried.
    NobodyTakes,
    /// Nothing may leave now.
    Nothing,
}

struct Protecting<'e>(&'e Evictor);

impl Mapper for Protecting<'_> {
    fn install(&self, _: u64, _: Option<&[u8]>, _: bool) -> Installed {
        unreachable!("an evictor brings nothing")
    }

    fn show(&self, _: u64, _: bool, _: bool) -> Shown {
        unreachable!("an evictor maps nothing")
    }

    fn protect(&self, page: u64, pages: u64) {
        for peer in lock(&self.0.peers).iter_mut() {
            peer.protect(page, pages);
        }
    }

    fn staying(&self) -> Runs {
        self.0.staying()
    }
}

/// What the program wishes that has attached last, of those that wish for something.
fn last_wish<T>(peers: &[Peer], of: impl Fn(&Preferences) -> Option<T>) -> Option<T> {
    peers.iter().rev().find_map(|peer| of(peer.wish.as_ref()?))
}

fn on_demand(peers: &[Peer]) -> bool {
    last_wish(peers, |wish| wish.when) == Some(EvictionStart::Demand)
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Evictor {
    /// For a region on this host, of whose pages so many holders are to have each.
    pub fn new(ground: SharedRegion, copies: usize) -> Self {
        Self {
            ground,
            peers: Mutex::default(),
            choice: Mutex::default(),
            begun: Instant::now(),
            spare: Mutex::default(),
            turns: RoundRobin::default(),
            copy_turns: RoundRobin::default(),
            copies,
            single: AtomicU64::new(0),
            gone: AtomicU64::new(0),
        }
    }

    /// The region.
    pub fn ground(&self) -> &SharedRegion {
        &self.ground
    }

    /// A process has handed over what is needed, or it was fetched. It may have been handed over
    /// while it was fetched: then that stays, with the wish that came along.
    pub fn add(&self, peer: Peer) {
        let (table, mut peers) = (&self.ground.table, lock(&self.peers));
        let living = |one: &Peer| !table.is_dead(one.claimant);
        let mut in_slot = peers.iter().filter(|one| one.claimant.slot == peer.claimant.slot);
        if peer.wish.is_none() && in_slot.any(living) {
            return;
        }
        peers.retain(|one| one.claimant.slot != peer.claimant.slot);
        peers.push(peer);
        self.share_out(&peers);
    }

    /// A process's connection has ended: it has left, or died. Or it lives, and has made another
    /// one: then it is reached as before. One whose end is not seen yet is buried later.
    pub fn remove(&self, claimant: Claimant) {
        if self.ground.table.is_dead(claimant) {
            let mut peers = lock(&self.peers);
            peers.retain(|one| one.claimant != claimant);
            self.share_out(&peers);
        }
    }

    /// Says how much of the volume may be here, as the programs wish that are attached.
    fn share_out(&self, peers: &[Peer]) {
        let local = last_wish(peers, |wish| wish.local);
        // A process that has told this node no wish may have told it to the node before.
        if local.is_some() || peers.iter().all(|peer| peer.wish.is_some()) {
            self.ground.table.share().set(local, !on_demand(peers));
        }
    }

    /// Whether every process that has the region attached can be reached.
    fn reaches_all(&self) -> bool {
        let table = &self.ground.table;
        let known = |one: &Claimant| lock(&self.peers).iter().any(|peer| peer.claimant == *one);
        table.processes().into_iter().all(|one| {
            one == table.me() || known(&one) || table.is_dead(one) || self.reach_for(one)
        })
    }

    /// Fetches what a process has not handed over.
    fn reach_for(&self, claimant: Claimant) -> bool {
        // What the machine does not allow now is tried at the next batch.
        fetched(&self.ground.table, claimant).map(|peer| self.add(peer)).is_ok()
    }

    /// Pages that stay since processes have them mapped so. Those that have come first go first:
    /// each of them has no more than may stay, all of them may have.
    fn staying(&self) -> Runs {
        let (most, mut all) = (self.ground.may_stay(), Runs::default());
        for peer in lock(&self.peers).iter_mut() {
            let own = peer.mappings().iter().filter(|map| map.stays).map(PagedMapping::pages);
            let with_own = Runs::of(all.iter().chain(own));
            if with_own.pages() <= most {
                all = with_own;
            }
        }
        all
    }

    /// By which policy pages leave.
    fn policy(&self) -> Policy {
        last_wish(&lock(&self.peers), |wish| wish.policy).unwrap_or_default()
    }

    /// Whether a process has the region attached.
    pub fn is_used(&self) -> bool {
        !lock(&self.peers).is_empty()
    }

    /// Whether pages leave only when a touch finds no room.
    pub fn is_on_demand(&self) -> bool {
        on_demand(&lock(&self.peers))
    }

    /// Pages that are to leave since the volume has more here than its programs wish for.
    pub fn missing(&self) -> u64 {
        let share = self.ground.table.share();
        let at_once = if share.free() == 0 { PAGES as u64 } else { 0 };
        share.missing().max(at_once)
    }

    /// Pages that are to leave next, and their words.
    fn victims(&self, wanted: usize) -> Vec<(u64, Word)> {
        let (table, room, share) =
            (&self.ground.table, &self.ground.room, self.ground.table.share());
        let policy = self.policy();
        let mut choice = lock(&self.choice);
        let mut found = Vec::new();
        if policy == Policy::Fifo {
            found.extend((0..wanted).map_while(|_| self.next_cold(&mut choice, policy)));
        } else {
            let ms = self.begun.elapsed().as_millis() as u64;
            let now = Moment { tick: self.ground.tick(), ms };
            self.ask_about(&mut choice, policy, now);
            // What is kept free is used up faster than pages are found cold; or this is not for it.
            let is_short = room.is_short() || share.is_short();
            let at_once = is_short || room.missing() == 0 && share.missing() == 0;
            let looked = &mut choice.looked;
            let next = |_| looked.next(now, at_once, |page| table.word(page));
            found.extend((0..wanted).map_while(next));
        }
        found.sort_by_key(|(page, _)| *page);
        found
    }

    /// Asks all processes about cold pages, until enough are asked about.
    fn ask_about(&self, choice: &mut Choice, policy: Policy, now: Moment) {
        let capacity = self.ground.capacity();
        choice.looked.glance(GLANCE, |page| self.ground.table.word(page));
        let enough = (capacity / ASKED_PART).clamp(PAGES as u64, ASKED_MAX) as usize;
        while choice.looked.len() < enough {
            let Some((page, word)) = self.next_cold(choice, policy) else { break };
            // First: a process that maps pages behind one that was touched leaves it out.
            let Some(word) = self.ground.table.ask(page, word) else { continue };
            choice.looked.ask((page, word), now);
            for peer in lock(&self.peers).iter() {
                peer.maps.ask(page);
            }
        }
    }

    /// The coldest page that nobody was asked about.
    fn next_cold(&self, choice: &mut Choice, policy: Policy) -> Option<(u64, Word)> {
        let table = &self.ground.table;
        let Choice { hand, cold, looked } = choice;
        if let Some(next) = cold.next(policy, |page| table.word(page)) {
            return Some(next);
        }
        let from = *hand;
        let around =
            table.touched_from(from).chain(table.touched().take_while(|page| *page < from));
        let pages = around.take(SCAN).inspect(|page| *hand = page + 1);
        let named = table.names().into_iter();
        let stays = Runs::of(named.chain(self.staying().iter()));
        let words = pages.filter(|page| !stays.has(*page)).map(|page| (page, table.word(page)));
        let words = words.filter(|one| one.1.state().is_here() && !looked.has(one.0));
        cold.fill(policy, self.ground.tick(), words);
        cold.next(policy, |page| table.word(page))
    }

    /// The holder whose turn it is to get pages that another one has.
    pub fn next_for_copies(&self, holders: &[NodeId]) -> Option<NodeId> {
        self.copy_turns.next(holders, 1).first().copied()
    }

    /// It has taken so many of them.
    pub fn took_copies(&self, holder: NodeId, pages: u64) {
        match pages {
            0 => self.copy_turns.passed(holder),
            pages => self.copy_turns.took(holder, pages),
        }
    }

    /// Sends up to so many pages away, to the next holders in turn that take them.
    pub fn make_room(
        &self,
        wanted: u64,
        holders: &[NodeId],
        carrier: &dyn Carrier,
        patience: Duration,
    ) -> Made {
        if holders.is_empty() {
            return Made::NobodyTakes;
        }
        if self.is_on_demand() && self.ground.free() > 0 {
            return Made::Nothing;
        }
        let (mut gone, mut refusals) = (0, 0);
        // A message with a few pages costs as much as one with many: where some have stayed, others
        // leave next time.
        let mut batches = wanted.div_ceil(PAGES as u64);
        while batches > 0 && refusals < holders.len() && self.reaches_all() {
            let victims = self.victims((wanted - gone).min(PAGES as u64) as usize);
            if victims.is_empty() {
                break;
            }
            let to = self.turns.next(holders, self.copies);
            let left = self.send((&to, holders), victims, carrier, patience);
            if left == 0 {
                refusals += 1;
                continue;
            }
            (refusals, batches) = (0, batches - 1);
            gone += left;
        }
        self.gone.fetch_add(gone, Ordering::Relaxed);
        match (gone, refusals) {
            (0, 1..) => Made::NobodyTakes,
            (0, 0) => Made::Nothing,
            _ => Made::Room(gone),
        }
    }

    /// Sends pages to one holder or two, or has those of the holders keep them that have spares:
    /// how many have left.
    fn send(
        &self,
        (to, holders): (&[NodeId], &[NodeId]),
        pages: Vec<(u64, Word)>,
        carrier: &dyn Carrier,
        patience: Duration,
    ) -> u64 {
        let mut spare = std::mem::take(&mut *lock(&self.spare));
        spare.resize(PAGES * PAGE as usize, 0);
        let view = View::with_buffer(&self.ground, Protecting(self), spare);
        let chosen = pages.len() as u64;
        let (mut stored_there, mut kept_there) = (0, 0);
        let mut eviction = Eviction::new(to, holders, pages);
        loop {
            match eviction.step(&view) {
                Progress::Step => {}
                Progress::Keep(at) => {
                    let pages: Vec<_> = eviction.clean(at).collect();
                    match carrier.ask(at, &Request::Keep { pages }, patience) {
                        Ok(Answer::Stored(kept)) => {
                            let kept: Vec<_> =
                                kept.into_iter().map(|one| one == Stored::Kept).collect();
                            // The others are sent.
                            kept_there += kept.iter().filter(|kept| **kept).count() as u64;
                            eviction.kept(at, Some(&kept));
                        }
                        _ => eviction.kept(at, None),
                    }
                }
                Progress::Send(at) => {
                    let (pages, places): (Vec<_>, Vec<_>) =
                        eviction.outgoing(at).map(|one| ((one.0, one.1), *one.2)).unzip();
                    let request = Request::Store { pages, bytes: view.take_outgoing(&places) };
                    let mut stored_here = 0;
                    match carrier.ask(at, &request, patience) {
                        Ok(Answer::Stored(stored)) => {
                            let kept = stored.into_iter().map(|one| one == Stored::Kept);
                            let kept = kept.inspect(|kept| stored_here += u64::from(*kept));
                            eviction.answered(at, kept);
                        }
                        _ => eviction.unanswered(at),
                    }
                    if let Request::Store { bytes, .. } = request {
                        view.put_outgoing(bytes);
                    }
                    // Of zeros a holder hears nothing; of clean pages another one does.
                    match stored_here {
                        0 => self.turns.passed(at),
                        pages => self.turns.took(at, pages),
                    }
                    stored_there += stored_here;
                }
                Progress::Done(evicted) => {
                    self.count(chosen, (stored_there, kept_there), evicted);
                    if evicted.gone == 0 && stored_there == 0 {
                        self.turns.passed(to[0]);
                    }
                    *lock(&self.spare) = view.buffer.take();
                    return evicted.gone.into();
                }
            }
        }
    }

    /// Counts what came of a batch.
    fn count(&self, chosen: u64, (stored_there, kept_there): (u64, u64), evicted: Evicted) {
        let [gone, zeros, single, stayed] =
            [evicted.gone, evicted.zeros, evicted.single, evicted.stayed].map(u64::from);
        let single = if self.copies > 1 { single } else { 0 };
        let sent = gone.saturating_sub(zeros + kept_there).min(stored_there);
        for (what, pages) in [
            (Count::Sent, sent),
            (Count::Second, stored_there - sent),
            (Count::Clean, kept_there),
            (Count::Zero, zeros),
            (Count::Single, single),
            (Count::Refused, stayed),
            (Count::InUse, chosen.saturating_sub(gone + stayed)),
        ] {
            self.ground.count(what, pages);
        }
        self.single.fetch_add(single, Ordering::Relaxed);
        if gone > 0 {
            self.ground.room.tell(gone);
        }
    }

    /// Takes back what dead processes had.
    pub fn bury(&self) -> Result<u32, Errno> {
        let buried = self.ground.table.bury()?;
        let table = &self.ground.table;
        let mut peers = lock(&self.peers);
        peers.retain(|peer| !table.is_dead(peer.claimant));
        self.share_out(&peers);
        Ok(buried)
    }
}
