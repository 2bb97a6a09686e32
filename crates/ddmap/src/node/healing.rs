//! Second copies are made anew, in the background: of pages that only one holder has, though there
//! are to be two (`protocol/healing.rs`).
//!
//! One thread looks through the directory of each such volume, as long as it finds some. It brings
//! 64 of them from their holder and gives them to another one: through this node's memory, and past
//! the room that its pages have. Where programs bring pages meanwhile it rests three times as long
//! as it works.
//!
//! A pass is made when a page has left for one holder alone, when a node was removed, behind a
//! start and a move, and as long as the last one has left some. What it has found may be out of
//! date by the time it is copied: each page is looked at again then.
//!
//! Locks: a volume is open while a batch is under way (`Hosted::work`); `pass`, by the thread
//! alone.

use super::{Shared, TICK};
use crate::control::transport::Carrier;
use crate::node::eviction::Evictor;
use crate::node::host::{Hosted, NoHands};
use crate::protocol::holder::Stored;
use crate::protocol::messages::{Answer, KeptPage, PAGES, Request};
use crate::protocol::{Healed, Healing, Location, NodeId, PAGE, State};
use crate::shared_memory::counters::Count;
use crate::shared_memory::view::View;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A holder that does not answer in that time is left alone for a while.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pages that a pass notes down, at most: the next one finds the others.
const NOTED: usize = 1 << 16;
/// Between two passes of which the first has left some, at least; and how many times as long as the
/// look at the directory takes.
const REST: Duration = Duration::from_secs(1);
const REST_TIMES: u32 = 20;
/// And behind a batch, where programs bring pages: how many times as long as that takes.
const BESIDE_TIMES: u32 = 3;

/// What is known of the copies of a volume's pages.
#[derive(Default)]
pub struct Copies {
    pass: Mutex<Pass>,
    /// Pages that one holder had when the last pass began and that have no other one since; pages
    /// that had left so until then.
    single: AtomicU64,
    left: AtomicU64,
    healed: AtomicU64,
    /// Which nodes were removed then; `None`: no pass was made.
    gone: Mutex<Option<Vec<NodeId>>>,
    /// Pages that a third holder has in the directory's version.
    equal: Mutex<Vec<u64>>,
}

/// A pass.
#[derive(Default)]
struct Pass {
    /// Pages that are to be copied, by the node that has them.
    by_holder: BTreeMap<NodeId, Vec<u64>>,
    /// What was so when it began: pages that had left for one holder, removed nodes.
    seen: Option<(u64, Vec<NodeId>)>,
    ended: Option<Instant>,
    /// How long the next one is to wait then.
    rest: Duration,
    /// It has left some, or did not note down all.
    is_short: bool,
}

/// Which nodes there are.
struct Nodes {
    /// Those that take pages.
    takers: Vec<NodeId>,
    /// Those that were removed.
    gone: Vec<NodeId>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The only holder of a page that was not removed, if there is only one.
fn only_one(place: Location, here: NodeId, gone: &[NodeId]) -> Option<NodeId> {
    let is_there = |node: &NodeId| !gone.contains(node);
    let mut there = place.holders(here).into_iter().flatten().filter(is_there);
    there.next().filter(|_| there.next().is_none())
}

/// Pages that only one holder has, and which.
fn only_ones(evictor: &Evictor, gone: &[NodeId]) -> impl Iterator<Item = (u64, NodeId)> {
    let ground = evictor.ground();
    let absent = |page: &u64| ground.table.word(*page).state() == State::Absent;
    let only_one = move |page| {
        let place = ground.place(page).ok()?;
        only_one(place, ground.here(), gone).map(|only| (page, only))
    };
    ground.table.touched().filter(absent).filter_map(only_one)
}

impl Copies {
    /// Pages that only one holder has, where these nodes were removed.
    pub fn single(&self, evictor: &Evictor, gone: &[NodeId]) -> u64 {
        if evictor.copies < 2 {
            return 0;
        }
        if lock(&self.gone).as_deref() != Some(gone) {
            // The next pass will find them.
            return only_ones(evictor, gone).count() as u64;
        }
        let since = evictor.single.load(Ordering::Relaxed);
        let since = since.saturating_sub(self.left.load(Ordering::Relaxed));
        self.single.load(Ordering::Relaxed) + since
    }

    /// Pages that got a second holder since the node began.
    pub fn healed(&self) -> u64 {
        self.healed.load(Ordering::Relaxed)
    }

    /// Pages that are to move, since a third holder has them.
    pub fn take_equal(&self) -> Vec<u64> {
        std::mem::take(&mut lock(&self.equal))
    }

    /// A holder has a page in the directory's version, which does not name it: it is the second
    /// one, if that is missing; else the page is to move.
    pub fn has_equal(&self, hosted: &Hosted, holder: NodeId, claim: KeptPage) {
        let ground = hosted.evictor.ground();
        let Ok(seen @ Location::Held(owner, version, other)) = ground.place(claim.page) else {
            return;
        };
        if version != claim.version || owner == ground.here() {
            return;
        }
        if other.is_none() && hosted.evictor.copies > 1 {
            let to = Location::Held(owner, version, Some(holder));
            let healed = healed(hosted, Healing::new(claim.page, seen, to));
            self.healed.fetch_add(u64::from(healed == Healed::Placed), Ordering::Relaxed);
        } else {
            lock(&self.equal).push(claim.page);
        }
    }
}

/// Runs a machine to its end.
fn healed(hosted: &Hosted, mut machine: Healing) -> Healed {
    let view = View::new(hosted.evictor.ground(), NoHands);
    loop {
        match machine.step(&view) {
            Healed::Step => {}
            over => return over,
        }
    }
}

impl Hosted {
    /// Makes some second copies: whether there is more to do at once.
    fn heal(&self, nodes: &Nodes) -> bool {
        let mut pass = lock(&self.copies.pass);
        if pass.by_holder.is_empty() {
            let rests = pass.ended.is_some_and(|ended| ended.elapsed() < pass.rest);
            let left = self.evictor.single.load(Ordering::Relaxed);
            let now = Some((left, nodes.gone.clone()));
            if pass.seen == now && !pass.is_short || rests {
                return false;
            }
            let Some(_working) = self.work() else { return false };
            (pass.seen, pass.is_short) = (now, false);
            let begun = Instant::now();
            self.look(&mut pass, nodes);
            pass.rest = REST.max(begun.elapsed() * REST_TIMES);
            self.copies.left.store(left, Ordering::Relaxed);
        } else {
            let Some(_working) = self.work() else { return false };
            let Some((from, mut pages)) = pass.by_holder.pop_first() else { return false };
            let batch = pages.split_off(pages.len().saturating_sub(PAGES));
            if self.copy(from, &batch, nodes, &mut pass.is_short) {
                pass.by_holder.entry(from).or_default().append(&mut pages);
                pass.by_holder.retain(|_, pages| !pages.is_empty());
            } else {
                // The others of that node are tried in the next pass.
                pass.is_short = true;
            }
        }
        if pass.by_holder.is_empty() {
            pass.ended = Some(Instant::now());
        }
        !pass.by_holder.is_empty()
    }

    /// Looks for pages that only one holder has.
    fn look(&self, pass: &mut Pass, nodes: &Nodes) {
        let (mut single, mut noted) = (0, 0);
        for (page, only) in only_ones(&self.evictor, &nodes.gone) {
            single += 1;
            if noted < NOTED {
                noted += 1;
                pass.by_holder.entry(only).or_default().push(page);
            } else {
                pass.is_short = true;
            }
        }
        self.copies.single.store(single, Ordering::Relaxed);
        *lock(&self.copies.gone) = Some(nodes.gone.clone());
    }

    /// Gives pages that one holder has to another one: whether that goes on. What is not copied is
    /// not said to be so any more if a node was removed that the directory names. `is_short`: some
    /// are to be tried again.
    fn copy(&self, from: NodeId, pages: &[u64], nodes: &Nodes, is_short: &mut bool) -> bool {
        let ground = self.evictor.ground();
        let is_still = |page: &u64| {
            let place = ground.place(*page).ok()?;
            let only = only_one(place, ground.here(), &nodes.gone);
            (only == Some(from)).then_some((*page, place))
        };
        let seen: Vec<_> = pages.iter().filter_map(is_still).collect();
        self.not_single((pages.len() - seen.len()) as u64);
        if seen.is_empty() {
            return true;
        }
        let others: Vec<_> = nodes.takers.iter().copied().filter(|node| *node != from).collect();
        let to = self.answering(&others);
        let copied = self.evictor.next_for_copies(&to).and_then(|to| self.give(from, to, &seen));
        let Some((to, kept)) = copied else {
            for (page, place) in seen.iter().copied() {
                if place != place.alone() {
                    let alone = Location::Held(from, place.version(), None);
                    healed(self, Healing::new(page, place, alone));
                }
            }
            return false;
        };
        // What it has not taken is tried again.
        *is_short |= kept.len() < seen.len();
        let mut in_vain = Vec::new();
        for (page, place) in kept.iter().copied() {
            let two = Location::Held(from, place.version(), Some(to));
            match healed(self, Healing::new(page, place, two)) {
                Healed::Placed => _ = self.copies.healed.fetch_add(1, Ordering::Relaxed),
                Healed::Moved => in_vain.push(KeptPage::new(page, place.version())),
                Healed::Stays | Healed::Step => {
                    *is_short = true;
                    continue;
                }
            }
            self.not_single(1);
        }
        if !in_vain.is_empty() {
            // What it does not hear is found when it is asked for what it keeps.
            let _ = self.ask(to, &Request::Release { pages: in_vain }, PATIENCE);
        }
        !kept.is_empty()
    }

    /// So many pages are not single any more.
    fn not_single(&self, pages: u64) {
        let less = |single: u64| Some(single.saturating_sub(pages));
        // It is changed whatever it is.
        let _ = self.copies.single.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Brings pages from a node, and has another one keep them in the same versions: which it does.
    fn give(
        &self,
        from: NodeId,
        to: NodeId,
        seen: &[(u64, Location)],
    ) -> Option<(NodeId, Vec<(u64, Location)>)> {
        let pages = seen.iter().map(|(page, place)| (*page, place.version())).collect();
        let fetch = Request::Fetch { pages, releases: Vec::new() };
        let Ok(Answer::Fetched { found, bytes }) = self.ask(from, &fetch, PATIENCE) else {
            return None;
        };
        let found = seen.iter().zip(found).filter(|one| one.1).map(|one| *one.0);
        let found: Vec<_> = found.collect();
        if found.is_empty() || bytes.len() as u64 != found.len() as u64 * PAGE {
            return None;
        }
        let pages = found.iter().map(|(page, place)| (*page, place.version())).collect();
        let Ok(Answer::Stored(stored)) = self.ask(to, &Request::Store { pages, bytes }, PATIENCE)
        else {
            return None;
        };
        let kept = found.into_iter().zip(stored).filter(|one| one.1 == Stored::Kept);
        let kept: Vec<_> = kept.map(|one| one.0).collect();
        self.evictor.took_copies(to, kept.len() as u64);
        Some((to, kept))
    }

    /// Pages that programs have brought, ever.
    fn fetched(&self) -> u64 {
        self.evictor.ground().counted_by_all().get(Count::Fetched)
    }
}

impl Shared {
    /// The thread that makes second copies.
    pub(super) fn heal(&self) {
        while !self.over.load(Ordering::Relaxed) {
            let mut more = false;
            let of_two = self.hosts.known().into_iter().filter(|one| one.evictor.copies > 1);
            for hosted in of_two {
                let takers = self.members.holders(self.here()).into_iter().map(|one| one.0);
                let nodes = Nodes { takers: takers.collect(), gone: self.members.gone() };
                let (begun, fetched) = (Instant::now(), hosted.fetched());
                let goes_on = hosted.heal(&nodes);
                if goes_on && hosted.fetched() != fetched {
                    std::thread::sleep(begun.elapsed() * BESIDE_TIMES);
                }
                more |= goes_on;
            }
            if !more {
                std::thread::sleep(TICK);
            }
        }
    }
}
