//! The volumes that a node is the host of: their evictors, and what holders keep for them.
//!
//! Locks: `all`, to find a volume; none while a message is under way.

use crate::control::connections::Links;
use crate::control::processes;
use crate::control::status::VolumeStatus;
use crate::control::transport::Carrier;
use crate::control::turns::TOLD_MAX;
use crate::node::eviction::{Evictor, Made};
use crate::node::healing::Copies;
use crate::node::whole_batches;
use crate::protocol::messages::{Answer, KeptPage, PAGES, Request};
use crate::protocol::{NodeId, Verdict, reconcile};
use crate::shared_memory::error::DomainError;
use crate::shared_memory::store::Store;
use crate::shared_memory::table;
use crate::shared_memory::view::{Mapper, SharedRegion, View};
use crate::wire::{Hello, Wire};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

/// A holder that does not answer in that time is left alone for a while. Pages on their way to it
/// can be loaded, and not stored to, meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);
/// So long.
const LEFT_ALONE: Duration = Duration::from_secs(8);
/// What is counted twice is counted so long apart.
const SHORTLY: Duration = Duration::from_millis(10);

/// A volume on its host.
pub struct Hosted {
    name: String,
    /// Its region's number.
    uuid: [u8; 16],
    /// Its pages go by this.
    pub evictor: Evictor,
    /// Its pages that are to lie with two holders.
    pub copies: Copies,
    links: Links,
    /// Holders that did not answer, and when.
    silent: Mutex<Vec<(NodeId, Instant)>>,
    /// Holders of which it is known that they keep nothing in vain. One that has just come is none,
    /// nor one that did not answer: it may have got what was sent to it.
    sure: Mutex<BTreeSet<NodeId>>,
    /// Of holders that were asked: the round trip in us, and requests that are under way.
    asked: Mutex<BTreeMap<NodeId, (Option<u32>, u64)>>,
    /// No program may attach it, and nothing leaves or is compared: the volume is about to move or
    /// to grow.
    closed: AtomicBool,
    /// Held by those who send pages or compare claims.
    working: RwLock<()>,
}

/// All of them.
pub struct Hosts {
    store: Store,
    here: NodeId,
    wire: Wire,
    all: Mutex<BTreeMap<String, Arc<Hosted>>>,
}

/// An idle pair: comparing claims touches no mapping.
pub struct NoHands;

impl Mapper for NoHands {
    fn install(&self, _: u64, _: Option<&[u8]>, _: bool) -> crate::protocol::Installed {
        unreachable!("nothing is brought")
    }

    fn show(&self, _: u64, _: bool, _: bool) -> crate::protocol::Shown {
        unreachable!("nothing is shown")
    }

    fn protect(&self, _: u64, _: u64) {
        unreachable!("nothing is protected")
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hosted {
    /// Sends pages away to those of the holders that answer.
    fn make_room(&self, wanted: u64, holders: &[NodeId]) -> Made {
        let Some(_working) = self.work() else { return Made::Nothing };
        self.evictor.make_room(wanted, &self.answering(holders), self, PATIENCE)
    }

    /// It is open, and is not closed as long as that is held.
    pub fn work(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let working = self.working.read().unwrap_or_else(PoisonError::into_inner);
        (!self.is_closed()).then_some(working)
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// From here on no program attaches it, and this node sends no page of it and has none dropped.
    /// Those that have attached it before are in its table by now.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        drop(self.working.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// It is as it was.
    pub fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
    }

    /// The processes that have it attached, this one apart, each with what it is.
    pub fn users(&self) -> Vec<String> {
        self.pids().into_iter().map(table::process_name).collect()
    }

    /// The same by their numbers; 0: it has not said which it has.
    pub fn pids(&self) -> Vec<i32> {
        let table = &self.evictor.ground().table;
        let others = table.processes().into_iter();
        let living = others.filter(|one| *one != table.me() && !table.is_dead(*one));
        living.map(|one| table.published(one).map_or(0, |published| published.pid)).collect()
    }

    /// Those that are not left alone.
    pub fn answering(&self, holders: &[NodeId]) -> Vec<NodeId> {
        let now = Instant::now();
        let mut silent = lock(&self.silent);
        silent.retain(|one| now - one.1 < LEFT_ALONE);
        let left_alone = |node: &NodeId| silent.iter().any(|one| one.0 == *node);
        holders.iter().copied().filter(|one| !left_alone(one)).collect()
    }

    /// Has those of the nodes drop what they keep in vain of which that is not known yet.
    fn reconcile_with(&self, nodes: &[NodeId], anew: bool) {
        let Some(_working) = self.work() else { return };
        // Asked first: what is said from here on is looked at the next time.
        let told = self.evictor.ground().table.take_in_vain();
        let mut sure = lock(&self.sure);
        sure.retain(|one| nodes.contains(one) && !anew && !told);
        let unsure: Vec<_> = nodes.iter().copied().filter(|one| !sure.contains(one)).collect();
        drop(sure);
        for node in self.answering(&unsure) {
            lock(&self.sure).insert(node);
            if self.reconcile(node).is_none() {
                lock(&self.sure).remove(&node);
            }
        }
    }

    /// Has a holder drop what the directory does not place there: how many pages. `None`: that is
    /// not known of all.
    pub fn reconcile(&self, holder: NodeId) -> Option<u64> {
        let view = View::new(self.evictor.ground(), NoHands);
        let (mut from, mut dropped, mut equal) = (0, 0, 0);
        loop {
            let answer = self.ask(holder, &Request::Claims { from }, PATIENCE).ok()?;
            let Answer::Claims { claims, next } = answer else { return None };
            let mut told = |claim: KeptPage| {
                let mut steps = reconcile(claim);
                loop {
                    match steps.step(holder, &view) {
                        None => {}
                        Some(Verdict::Right) => return None,
                        Some(Verdict::InVain) => {
                            return Some(KeptPage { is_spare: false, ..claim });
                        }
                        Some(Verdict::Spare) => return Some(KeptPage { is_spare: true, ..claim }),
                        Some(Verdict::Equal) => {
                            self.copies.has_equal(self, holder, claim);
                            equal += 1;
                            return None;
                        }
                    }
                }
            };
            let pages: Vec<_> = claims.into_iter().filter_map(&mut told).collect();
            for pages in pages.chunks(PAGES) {
                let request = Request::Release { pages: pages.to_vec() };
                self.ask(holder, &request, PATIENCE).ok()?;
                dropped += pages.iter().filter(|one| !one.is_spare).count() as u64;
            }
            from = match next {
                Some(next) if next > from => next,
                // It is asked again whether it has them still.
                _ => return (equal == 0).then_some(dropped),
            };
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The holders that were asked: the round trip in us, as TCP measures it, if that is known, and
    /// requests that are under way.
    pub fn links_status(&self) -> Vec<(NodeId, Option<u32>, u64)> {
        lock(&self.asked).iter().map(|(node, of)| (*node, of.0, of.1)).collect()
    }

    fn status(&self, gone: &[NodeId]) -> VolumeStatus {
        let ground = self.evictor.ground();
        let table = &ground.table;
        // The node has a slot, too; the dead are there until they are buried.
        let others = table.processes().into_iter().filter(|one| *one != table.me());
        VolumeStatus {
            name: self.name.clone(),
            uuid: format!("{:032x}", u128::from_be_bytes(self.uuid)),
            pages: ground.table.pages(),
            here: ground.pages_in_file(),
            processes: others.filter(|one| !table.is_dead(*one)).count() as u64,
            evicted: self.evictor.gone.load(Ordering::Relaxed),
            stays: ground.table.share().stays(),
            local: ground.table.share().local(),
            copies: self.evictor.copies as u8,
            single: self.copies.single(&self.evictor, gone),
            healed: self.copies.healed(),
            users: self.pids().into_iter().take(TOLD_MAX).map(processes::user).collect(),
            waiting: Vec::new(),
        }
    }
}

impl Carrier for Hosted {
    fn forked(&self, slot: u16, life: u32) {
        self.links.forked(slot, life);
    }

    fn ask(
        &self,
        to: NodeId,
        request: &Request,
        patience: Duration,
    ) -> Result<Answer, crate::control::transport::Unreached> {
        lock(&self.asked).entry(to).or_default().1 += 1;
        let answer = self.links.ask(to, request, patience);
        let rtt_us = answer.as_ref().ok().and_then(|_| self.links.rtt_us(to));
        let mut asked = lock(&self.asked);
        let link = asked.entry(to).or_default();
        *link = (rtt_us.or(link.0), link.1.saturating_sub(1));
        drop(asked);
        answer.inspect_err(|_| {
            lock(&self.silent).push((to, Instant::now()));
            lock(&self.sure).remove(&to);
        })
    }
}

impl Hosts {
    /// None yet.
    pub fn new(store: Store, here: NodeId, wire: Wire) -> Self {
        Self { store, here, wire, all: Mutex::default() }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Hosted>>> {
        lock(&self.all)
    }

    /// A volume of this node's.
    pub fn find(&self, name: &str) -> Result<Arc<Hosted>, DomainError> {
        let mut all = self.all();
        let asked = format!("serve the volume {name}");
        let Some(about) = self.store.volume_about(name)? else {
            all.remove(name);
            let advice = "make it with `solera format --ddmap`";
            return Err(DomainError::new(asked, "this node has no such volume", advice));
        };
        // It may have been removed, and another one made of its name.
        if let Some(hosted) = all.get(name).filter(|hosted| hosted.uuid == about.uuid) {
            return Ok(Arc::clone(hosted));
        }
        let ground =
            SharedRegion::attach(&self.store.volume(name), self.store.open_room()?, self.here)
                .map_err(|error| DomainError::new(&asked, error, ""))?;
        // What a process left that died while no node ran; if that cannot be told, behind a death.
        ground.recount(SHORTLY);
        let hello = Hello {
            node: self.here,
            process: u64::from(ground.table.me().slot),
            session: ground.table.life(),
            volume: about.uuid,
            term: about.term,
            store: 0,
        };
        let links =
            Links::new(self.store.clone(), hello, about.pages, self.wire.clone()).blocking();
        let evictor = Evictor::new(ground, about.copies.into());
        let (silent, sure) = (Mutex::default(), Mutex::default());
        let (name_of, uuid, asked) = (name.to_owned(), about.uuid, Mutex::default());
        let (closed, working) = (AtomicBool::new(false), RwLock::new(()));
        let hosted = Arc::new(Hosted {
            name: name_of,
            uuid,
            evictor,
            copies: Copies::default(),
            links,
            silent,
            sure,
            asked,
            closed,
            working,
        });
        all.insert(name.to_owned(), Arc::clone(&hosted));
        Ok(hosted)
    }

    /// One that is closed is not served any more: it is gone, or is looked at anew.
    pub fn forget(&self, name: &str) {
        self.all().remove(name);
    }

    /// Those that are served: as many as were there at the last beat, or since.
    pub fn known(&self) -> Vec<Arc<Hosted>> {
        self.all().values().cloned().collect()
    }

    /// Those that are served, and there: looked for in the store.
    pub fn served(&self) -> Vec<Arc<Hosted>> {
        let mut all = self.all();
        all.retain(|name, hosted| {
            let about = self.store.volume_about(name);
            about.is_ok_and(|about| about.is_some_and(|about| about.uuid == hosted.uuid))
        });
        all.values().cloned().collect()
    }

    /// A node was started again: volumes that left it alone ask it.
    pub fn heard_of(&self, node: NodeId) {
        for hosted in self.served() {
            lock(&hosted.silent).retain(|one| one.0 != node);
            lock(&hosted.sure).remove(&node);
        }
    }

    /// Frees so many pages of the node's capacity, by its volumes in turn: how many it did.
    pub fn make_room(&self, wanted: u64, holders: &[NodeId]) -> u64 {
        let mut left = wanted;
        for hosted in self.known() {
            if left == 0 {
                break;
            }
            if let Made::Room(gone) = hosted.make_room(left, holders) {
                left = left.saturating_sub(gone);
            }
        }
        wanted - left
    }

    /// Pages that are to leave since volumes have more here than their programs wish for.
    pub fn missing(&self) -> u64 {
        self.all().values().map(|hosted| hosted.evictor.missing()).sum()
    }

    /// Sends them away: how many have left.
    pub fn trim(&self, holders: &[NodeId]) -> u64 {
        let trimmed = |hosted: Arc<Hosted>| match hosted.evictor.missing() {
            0 => 0,
            missing => match hosted.make_room(whole_batches(missing, PAGES as u64), holders) {
                Made::Room(gone) => gone,
                Made::NobodyTakes | Made::Nothing => 0,
            },
        };
        self.known().into_iter().map(trimmed).sum()
    }

    /// Counts the pages anew that volumes have here, behind a death: whether all is right.
    pub fn recount(&self, rest: Duration) -> bool {
        let recounted = |hosted: &Arc<Hosted>| hosted.evictor.ground().recount(rest);
        self.served().iter().filter(|hosted| !recounted(hosted)).count() == 0
    }

    /// Whether some volumes' programs want room to be made when a touch finds none, and no others'
    /// want it before.
    pub fn are_on_demand(&self) -> bool {
        let all = self.all();
        let mut used = all.values().filter(|hosted| hosted.evictor.is_used()).peekable();
        used.peek().is_some() && used.all(|hosted| hosted.evictor.is_on_demand())
    }

    /// Takes back what dead processes had: whether there were any.
    pub fn bury(&self) -> bool {
        let buried = self.served().into_iter().map(|hosted| hosted.evictor.bury().unwrap_or(0));
        buried.sum::<u32>() > 0
    }

    /// Has these nodes drop what they keep in vain, as far as that is not known yet; `anew`: a
    /// process has died, which may have left more. One that does not answer is asked later.
    pub fn reconcile(&self, nodes: &[NodeId], anew: bool) {
        self.served().iter().for_each(|hosted| hosted.reconcile_with(nodes, anew));
    }

    /// Pages of the regions of this node's volumes; and of those that have two copies.
    pub fn promised(&self) -> (u64, u64) {
        let about = |name: &String| self.store.volume_about(name).ok().flatten();
        let all: Vec<_> = self.store.volumes().iter().filter_map(about).collect();
        let twice = all.iter().filter(|about| about.copies == 2);
        (all.iter().map(|about| about.pages).sum(), twice.map(|about| about.pages).sum())
    }

    /// Pages that the page files of this node's volumes have.
    pub fn pages(&self) -> u64 {
        let of = |name: &String| {
            let path = self.store.volume(name).join(crate::shared_memory::view::REGION);
            rustix::fs::stat(path)
                .map_or(0, |stat| stat.st_blocks as u64 * 512 / crate::protocol::PAGE)
        };
        self.store.volumes().iter().map(of).sum()
    }

    /// How they are, where these nodes were removed.
    pub fn status(&self, gone: &[NodeId]) -> Vec<VolumeStatus> {
        self.served().iter().map(|hosted| hosted.status(gone)).collect()
    }
}
