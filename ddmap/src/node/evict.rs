//! Makes room on a volume's host: sends cold pages to holders, in the background, before a touch
//! has to wait for it (dissertation, 6.4.2, "Migration").
//!
//! The node takes stores to a page away in every process that has the region mapped, by the
//! userfaultfd and the list of mappings that each has handed over. Of a process that is attached
//! and has not done so yet (it has just come, or the node has) they are fetched (`fetched.rs`).
//! Nothing leaves while one cannot be reached.
//!
//! Locks: `peers`, while a batch is chosen and protected.

use crate::ground::maps::{Mapped, Maps};
use crate::ground::uffd::Uffd;
use crate::ground::view::{Ground, Hands, View};
use crate::node::fetched::fetched;
use crate::protocol::keep::Stored;
use crate::protocol::messages::{Answer, PAGES, Request};
use crate::protocol::{
    Claimant, Eviction, Flags, Installed, NodeId, PAGE, Progress, Shown, State, Word,
};
use crate::reach::carrier::Carrier;
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Owned pages that are looked at for a batch: the coldest of them leave.
const SAMPLE: usize = 1024;
/// Words that are looked at in one go, at most.
const SCAN: usize = 1 << 20;

/// A process that has the region mapped.
#[derive(Debug)]
pub struct Peer {
    /// Its slot and life in the node table.
    pub claimant: Claimant,
    uffd: Uffd,
    maps: Maps,
    /// The list as it was read last, and after how many changes.
    known: (u64, Vec<Mapped>),
}

impl Peer {
    /// A process that has handed over its userfaultfd and its mappings.
    pub fn new(claimant: Claimant, uffd: Uffd, maps: Maps) -> Self {
        Self { claimant, uffd, maps, known: (u64::MAX, Vec::new()) }
    }

    fn protect(&mut self, page: u64) {
        let changes = self.maps.changes();
        if self.known.0 != changes {
            self.known = (changes, self.maps.all());
        }
        for address in self.known.1.iter().filter_map(|map| map.address_of(page)) {
            // A mapping that is gone shows nothing; a process that is gone has none.
            let _ = self.uffd.protect(address, PAGE, false);
        }
    }
}

/// Makes room for one region.
pub struct Evictor {
    ground: Ground,
    peers: Mutex<Vec<Peer>>,
    /// Where the last scan ended.
    hand: AtomicU64,
    /// Which holder gets the next batch.
    turn: AtomicUsize,
    /// Pages that have left.
    pub gone: AtomicU64,
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

struct Protecting<'e> {
    peers: &'e Mutex<Vec<Peer>>,
    protected: Cell<u64>,
}

impl Hands for Protecting<'_> {
    fn install(&self, _: u64, _: Option<&[u8]>) -> Installed {
        unreachable!("an evictor brings nothing")
    }

    fn show(&self, _: u64) -> Shown {
        unreachable!("an evictor maps nothing")
    }

    fn protect(&self, page: u64) {
        for peer in lock(self.peers).iter_mut() {
            peer.protect(page);
        }
        self.protected.set(self.protected.get() + 1);
    }
}

fn lock(peers: &Mutex<Vec<Peer>>) -> MutexGuard<'_, Vec<Peer>> {
    peers.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Evictor {
    /// For a region on this host.
    pub fn new(ground: Ground) -> Self {
        Self {
            ground,
            peers: Mutex::default(),
            hand: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
            gone: AtomicU64::new(0),
        }
    }

    /// The region.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// A process has handed over what is needed.
    pub fn add(&self, peer: Peer) {
        let mut peers = lock(&self.peers);
        peers.retain(|one| one.claimant.slot != peer.claimant.slot);
        peers.push(peer);
    }

    /// A process's connection has ended: it has left, or died. Or it lives, and has made another
    /// one: then it is reached as before. One whose end is not seen yet is buried later.
    pub fn remove(&self, claimant: Claimant) {
        if self.ground.table.is_dead(claimant) {
            lock(&self.peers).retain(|one| one.claimant != claimant);
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

    /// The coldest of the next pages that may leave, and their words: those of small files only if
    /// there are no others.
    fn victims(&self, wanted: usize) -> Vec<(u64, Word)> {
        let table = &self.ground.table;
        let now = self.ground.room.tick();
        let hand = self.hand.load(Ordering::Relaxed);
        let (mut found, mut small, mut next) = (Vec::new(), Vec::new(), 0);
        let around =
            table.touched_from(hand).chain(table.touched().take_while(|page| *page < hand));
        for page in around.take(SCAN) {
            let word = table.word(page);
            next = page + 1;
            if word.state() != State::Owned || word.flags().has(Flags::STAYS) {
                continue;
            }
            if word.flags().has(Flags::SMALL) {
                small.push((page, word));
                continue;
            }
            found.push((page, word));
            if found.len() == SAMPLE {
                break;
            }
        }
        self.hand.store(next, Ordering::Relaxed);
        if found.is_empty() {
            found = small;
        }
        // The tick goes round: what is older than half of it counts as young for a while.
        found.sort_by_key(|(_, word)| std::cmp::Reverse(now.wrapping_sub(word.heat()) & 0xFFF));
        found.truncate(wanted);
        found.sort_by_key(|(page, _)| *page);
        found
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
        let (mut gone, mut refusals) = (0, 0);
        while gone < wanted && refusals < holders.len() && self.reaches_all() {
            let victims = self.victims((wanted - gone).min(PAGES as u64) as usize);
            if victims.is_empty() {
                break;
            }
            let to = holders[self.turn.fetch_add(1, Ordering::Relaxed) % holders.len()];
            let left = self.send(to, victims, carrier, patience);
            refusals = if left == 0 { refusals + 1 } else { 0 };
            gone += left;
        }
        self.gone.fetch_add(gone, Ordering::Relaxed);
        match (gone, refusals) {
            (0, 1..) => Made::NobodyTakes,
            (0, 0) => Made::Nothing,
            _ => Made::Room(gone),
        }
    }

    /// Sends pages to a holder: how many have left.
    fn send(
        &self,
        to: NodeId,
        pages: Vec<(u64, Word)>,
        carrier: &dyn Carrier,
        patience: Duration,
    ) -> u64 {
        let hands = Protecting { peers: &self.peers, protected: Cell::new(0) };
        let view = View::new(&self.ground, hands);
        let mut eviction = Eviction::new(to, pages);
        loop {
            match eviction.step(&view) {
                Progress::Step => {}
                Progress::Send => {
                    let pages: Vec<_> = eviction.outgoing().map(|one| (one.0, one.1)).collect();
                    let bytes = view.buffer.take();
                    let request = Request::Store { pages, bytes };
                    match carrier.ask(to, &request, patience) {
                        Ok(Answer::Stored(stored)) => {
                            eviction.answered(stored.into_iter().map(|one| one == Stored::Kept));
                        }
                        _ => eviction.unanswered(),
                    }
                }
                Progress::Done { gone, .. } => {
                    if gone > 0 {
                        self.ground.room.tell(gone.into());
                    }
                    return gone.into();
                }
            }
        }
    }

    /// Takes back what dead processes had.
    pub fn bury(&self) -> Result<u32, Errno> {
        let buried = self.ground.table.bury()?;
        let table = &self.ground.table;
        lock(&self.peers).retain(|peer| !table.is_dead(peer.claimant));
        Ok(buried)
    }
}
