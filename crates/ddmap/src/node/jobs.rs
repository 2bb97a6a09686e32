//! What takes a while, and concerns one volume: it gets another host, or grows. One thread does it
//! (`Shared::drain`), and says how far it is (`shared_memory/migration.rs` has the steps of a
//! move).
//!
//! No program has the volume meanwhile: it is *closed* first, so that none attaches it from here on
//! and nothing leaves; then the node finds out which of the two has it.

use super::rollback::way_back;
use super::{BEAT, NODE_TIMEOUT, Shared, TICK, say, say_hello};
use crate::control::local_socket::{JobProgress, LocalReply};
use crate::control::node_messages::{self, Member, NodeReply, NodeRequest};
use crate::control::room::Room;
use crate::node::host::Hosted;
use crate::protocol::holder::Stored;
use crate::protocol::messages::{Answer, PAGES, Request};
use crate::protocol::{Flags, NodeId, PAGE, State, Version};
use crate::shared_memory::error::DomainError;
use crate::shared_memory::migration::{Moved, Tables};
use crate::shared_memory::store::Standing;
use crate::wire::link::Link;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A page of tables is put into files of memory; a page that is to be here comes, or is tried
/// again.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is to be done with a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// That node is to be its host.
    Move(u16),
    /// It is to have so many pages.
    Grow(u64),
}

/// Orders that wait, and how far each volume's last one is.
#[derive(Default)]
pub(super) struct Orders {
    waiting: Mutex<Vec<(String, Order)>>,
    ordered: Mutex<BTreeMap<String, (Order, JobProgress)>>,
}

impl Orders {
    /// Whether something was ordered since.
    pub(super) fn are_waiting(&self) -> bool {
        !lock(&self.waiting).is_empty()
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// When the new hosts of volumes that have gone answered last.
pub(super) type Answers = BTreeMap<u64, Instant>;

impl Shared {
    /// Has an order done. One that is under way already goes on.
    pub(super) fn order(&self, volume: String, order: Order) -> LocalReply {
        let mut ordered = lock(&self.orders.ordered);
        match ordered.get(&volume) {
            Some((same, now)) if !now.over && *same == order => return LocalReply::Done,
            Some((_, now)) if !now.over => {
                let text = format!("{volume} is busy: {}; try again when that is over", now.what);
                return LocalReply::Refused { text };
            }
            _ => {}
        }
        let begun = JobProgress { what: "looking".to_owned(), ..JobProgress::default() };
        ordered.insert(volume.clone(), (order, begun));
        lock(&self.orders.waiting).push((volume, order));
        self.answering.wake();
        LocalReply::Done
    }

    /// How far it is.
    pub(super) fn ordered(&self, volume: &str) -> LocalReply {
        LocalReply::Ordered(lock(&self.orders.ordered).get(volume).map(|one| one.1.clone()))
    }

    /// The last order that concerns a volume, if it is over.
    pub(super) fn order_over(&self, volume: &str) -> Option<JobProgress> {
        let ordered = lock(&self.orders.ordered);
        ordered.get(volume).filter(|one| one.1.over).map(|one| one.1.clone())
    }

    /// Which node is the host of a volume.
    pub(super) fn host_of(&self, volume: &str) -> LocalReply {
        if matches!(self.store.volume_about(volume), Ok(Some(_))) {
            return LocalReply::Host(Some((self.about.node, self.about.address)));
        }
        let asked = NodeRequest::Where { name: Some(volume.to_owned()) };
        let is_host = |address| {
            matches!(say(address, &self.about, None, &asked, &self.wire), Ok(NodeReply::Done))
        };
        let host = self.others().into_iter().find(|one| is_host(one.1));
        LocalReply::Host(host.map(|(node, address)| (node.number(), address)))
    }

    /// The nodes besides this one that answer.
    fn others(&self) -> Vec<(NodeId, SocketAddr)> {
        let living = self.members.others(self.here());
        let all = self.members.addresses().into_iter();
        all.filter(|one| living.contains(&one.0)).map(|one| (one.0, one.1)).collect()
    }

    /// Whether a node says that it is the host of a region, or may be: it does not answer.
    pub(super) fn may_be_hosted(&self, uuid: [u8; 16]) -> bool {
        let others = self.members.addresses().into_iter();
        let mut others = others.filter(|one| one.0 != self.here() && one.2 != Standing::Gone);
        others.any(|(_, address, ..)| {
            let asked = NodeRequest::Where { name: None };
            let told = say(address, &self.about, Some((uuid, 1)), &asked, &self.wire);
            !matches!(told, Ok(NodeReply::Refused { .. }))
        })
    }

    fn tell(&self, volume: &str, change: impl FnOnce(&mut JobProgress)) {
        if let Some((_, ordered)) = lock(&self.orders.ordered).get_mut(volume) {
            change(ordered);
        }
    }

    fn tell_end(&self, volume: &str, failed: Option<DomainError>) {
        self.tell(volume, |ordered| (ordered.over, ordered.failed) = (true, failed));
    }

    /// Does what was ordered.
    pub(super) fn do_orders(&self) {
        let waiting = std::mem::take(&mut *lock(&self.orders.waiting));
        for (volume, order) in waiting {
            let done = match order {
                // It ends when the new host has taken the volume over.
                Order::Move(to) => self.send_off(&volume, to),
                Order::Grow(pages) => {
                    self.grow(&volume, pages).map(|()| self.tell_end(&volume, None))
                }
            };
            if let Err(error) = done {
                self.tell_end(&volume, Some(error));
            }
        }
    }

    /// Closes a volume of which no program may be in the way, for what `act` does.
    fn alone<T>(
        hosted: &Hosted,
        asked: &str,
        act: impl FnOnce() -> Result<T, DomainError>,
    ) -> Result<T, DomainError> {
        hosted.close();
        let users = hosted.users();
        let done = if users.is_empty() {
            act()
        } else {
            let found = format!("processes have it attached: {}", users.join(", "));
            Err(DomainError::new(asked, found, "end them, then try again"))
        };
        done.inspect_err(|_| hosted.open())
    }

    fn grow(&self, volume: &str, pages: u64) -> Result<(), DomainError> {
        let asked = format!("grow {volume}");
        let hosted = self.hosts.find(volume)?;
        Self::alone(&hosted, &asked, || self.store.grow_volume(volume, pages))?;
        // It is found anew, as long as it is now.
        self.hosts.forget(volume);
        Ok(())
    }

    /// Steps 1 to 5.
    fn send_off(&self, volume: &str, to: u16) -> Result<(), DomainError> {
        let asked = format!("move {volume} to node {to}");
        let gone = self.store.gone().into_iter().find(|moved| moved.name == volume);
        if let Some(moved) = gone.filter(|_| to == self.about.node) {
            self.take_back(&moved)?;
            self.tell_end(volume, None);
            return Ok(());
        }
        if self.store.gone().iter().any(|moved| moved.name == volume && moved.node == to) {
            return Ok(());
        }
        let hosted = self.hosts.find(volume)?;
        let target = self.target(&hosted, to, &asked)?;
        self.settle(volume, &hosted)?;
        let moved = Self::alone(&hosted, &asked, || {
            let sent = self.send_tables(volume, &hosted, &target, &asked);
            let decided = sent.and_then(|moved| self.store.give_up(volume).map(|()| moved));
            decided.inspect_err(|_| self.store.stays(volume))
        })?;
        self.hosts.forget(volume);
        drop(hosted);
        self.uncounted.store(true, Ordering::Relaxed);
        self.answering.keep_gone(&moved)
    }

    /// The node that is to be the host, if it can be.
    pub(super) fn target(
        &self,
        hosted: &Hosted,
        to: u16,
        asked: &str,
    ) -> Result<Member, DomainError> {
        let refused = |found: String, advice: &str| Err(DomainError::new(asked, found, advice));
        if to == self.about.node {
            return refused(format!("node {to} is its host already"), "");
        }
        let begun = Instant::now();
        let find = || self.members.list().into_iter().find(|one| one.node == to);
        let mut found = find();
        // One that has just come is heard of with the next beat.
        while found.is_none() && begun.elapsed() < BEAT * 2 {
            std::thread::sleep(TICK);
            found = find();
        }
        let Some(target) = found else {
            return refused("the domain has no such node".to_owned(), "see solera domain status");
        };
        if target.standing != Standing::There {
            return refused("that node is to give its pages up, or was removed".to_owned(), "");
        }
        if target.silent >= NODE_TIMEOUT.as_secs() {
            return refused(format!("it was not heard of for {} s", target.silent), "start it");
        }
        if target.passive {
            let advice = "choose another one, or start it without --passive";
            return refused("that node is passive, and runs no programs".to_owned(), advice);
        }
        let ground = hosted.evictor.ground();
        let stays = |page: &u64| ground.table.word(*page).flags().has(Flags::STAYS);
        let there = |page: &u64| {
            let holders =
                ground.place(*page).map_or([None; 2], |place| place.holders(ground.here()));
            holders.into_iter().flatten().any(|holder| holder.number() == to)
        };
        let stays = ground.table.touched().filter(stays).count() as u64;
        let free = self.free_of(&target).unwrap_or(target.free());
        let room = free + ground.table.touched().filter(there).count() as u64;
        if stays > room {
            let found = format!(
                "{} bytes of it stay with its host, and that node has room for {}",
                stays * PAGE,
                room * PAGE
            );
            return refused(found, "have that node keep less, or give it more --capacity");
        }
        self.check_pairs(hosted, to, asked)?;
        Ok(target)
    }

    /// Refuses a host besides which there is no room for two copies of the volume's pages.
    fn check_pairs(&self, hosted: &Hosted, to: u16, asked: &str) -> Result<(), DomainError> {
        if hosted.evictor.copies < 2 {
            return Ok(());
        }
        let pages = hosted.evictor.ground().table.pages();
        let mut members = self.members.list();
        if let Some(own) = members.iter_mut().find(|one| one.node == self.about.node) {
            let told = self.told_of();
            (own.promised, own.promised_twice) = (told.promised, told.promised_twice);
            own.promised = own.promised.saturating_sub(pages);
            own.promised_twice = own.promised_twice.saturating_sub(pages);
        }
        let room = Room::of(&members, to);
        if room.holders < 2 || pages > room.twice() {
            let advice = "choose another one, or start another node: solera node --join";
            return Err(DomainError::new(asked, room.text(pages), advice));
        }
        Ok(())
    }

    /// Pages that are free on a node now: what was heard of it may be older than the last move.
    fn free_of(&self, node: &Member) -> Option<u64> {
        let hello = say_hello(&self.about, None).ok()?;
        let mut link = Link::connect(node.address, BEAT * 2, &hello, &self.wire).ok()?;
        match link.ask(&Request::Ping, BEAT * 2) {
            Ok(Answer::Pong { capacity, used }) => Some(capacity.saturating_sub(used)),
            _ => None,
        }
    }

    /// Finishes or takes back what processes that died were at.
    fn settle(&self, volume: &str, hosted: &Hosted) -> Result<(), DomainError> {
        let table = &hosted.evictor.ground().table;
        let is_at = |page: &u64| {
            let word = table.word(*page);
            matches!(word.state(), State::Busy | State::Leaving) && table.is_dead(word.claimant())
        };
        let pages: Vec<u64> = table.touched().filter(is_at).collect();
        self.bring(volume, pages.into_iter(), (PATIENCE, &|| true), |_| {})
    }

    /// Steps 1 to 3.
    fn send_tables(
        &self,
        volume: &str,
        hosted: &Hosted,
        target: &Member,
        asked: &str,
    ) -> Result<Moved, DomainError> {
        let refused = |found: String, advice: &str| DomainError::new(asked, found, advice);
        let ground = hosted.evictor.ground();
        let claimed =
            |page: &u64| matches!(ground.table.word(*page).state(), State::Busy | State::Leaving);
        if let Some(page) = ground.table.touched().find(claimed) {
            return Err(refused(format!("somebody is at its page {page}"), "try again"));
        }
        let about = self.store.volume_about(volume)?;
        let about = about.ok_or_else(|| refused("it is gone".to_owned(), ""))?;
        let moved = Moved::new(volume, &about, target.node);
        self.store.set_going(&moved)?;
        let reached = |error: String| {
            refused(format!("node {} at {}: {error}", target.node, target.address), "try again")
        };
        let hello = say_hello(&self.about, Some((about.uuid, about.term)))?;
        let mut link = Link::connect(target.address, BEAT * 2, &hello, &self.wire)
            .map_err(|error| reached(error.to_string()))?;
        let mut ask = |request: &Request| {
            link.ask(request, PATIENCE).map_err(|error| reached(error.to_string()))
        };
        let text = node_messages::text(&NodeRequest::Arrive(moved.clone()));
        match ask(&Request::Control { text })? {
            Answer::Control { text } => match node_messages::parse(&text).map_err(reached)? {
                NodeReply::Done => {}
                NodeReply::Refused { text } => return Err(reached(text)),
                _ => return Err(reached("it answers something else".to_owned())),
            },
            Answer::Refused { text, .. } => return Err(reached(text)),
            _ => return Err(reached("it answers something else".to_owned())),
        }
        let mut tables = Tables::of(ground);
        loop {
            let batch: Result<Vec<_>, u64> = tables.by_ref().take(PAGES).collect();
            let batch = batch.map_err(|page| {
                let found = format!("its directory says nothing of page {page}");
                refused(found, "mend it: solera domain repair")
            })?;
            if batch.is_empty() {
                return Ok(moved);
            }
            let pages = batch.iter().map(|one| (one.0, Version::default())).collect();
            let bytes = batch.into_iter().flat_map(|one| one.1).collect();
            match ask(&Request::Tables { pages, bytes })? {
                Answer::Stored(all) if all.iter().all(|one| *one == Stored::Kept) => {}
                Answer::Refused { text, .. } => return Err(reached(text)),
                _ => return Err(reached("it has not taken the tables".to_owned())),
            }
            let (done, total) = (tables.done(), tables.total());
            let what = "sending the directory".to_owned();
            self.tell(volume, |now| (now.what, now.done, now.total) = (what, done, total));
        }
    }

    /// Steps 5 to 7, of all volumes that have gone: whether there are any.
    pub(super) fn finish_moves(&self, answers: &mut Answers) -> bool {
        let gone = self.store.gone();
        answers.retain(|attempt, _| gone.iter().any(|moved| moved.attempt == *attempt));
        for moved in &gone {
            let heard = *answers.entry(moved.attempt).or_insert_with(Instant::now);
            let told = self.answering.keep_gone(moved).and_then(|()| self.ask_new_host(moved));
            match told {
                Ok(NodeReply::Took { missing: 0 }) => {
                    self.answering.handovers.has_gone(&moved.name);
                    self.store.has_gone(moved);
                    self.tell_end(&moved.name, None);
                }
                Ok(NodeReply::Took { missing }) => {
                    self.answering.handovers.has_gone(&moved.name);
                    self.store.close_way_back(&moved.uuid);
                    answers.insert(moved.attempt, Instant::now());
                    let what = "bringing what stays with the host".to_owned();
                    self.tell(&moved.name, |now| {
                        let total = now.total.max(missing);
                        let total = if now.what == what { total } else { missing };
                        (now.what, now.done, now.total) = (what, total - missing, total);
                    });
                }
                Ok(NodeReply::Later) => {
                    answers.insert(moved.attempt, Instant::now());
                    let what = "having it taken over".to_owned();
                    self.tell(&moved.name, |now| (now.what, now.done, now.total) = (what, 0, 0));
                }
                told if heard.elapsed() > NODE_TIMEOUT => {
                    let why = match told {
                        Err(error) => error.found,
                        Ok(NodeReply::Refused { text }) => text,
                        Ok(_) => "it answers something else".to_owned(),
                    };
                    self.tell_end(&moved.name, Some(self.not_taken(moved, &why)));
                }
                _ => {}
            }
        }
        !gone.is_empty()
    }

    fn ask_new_host(&self, moved: &Moved) -> Result<NodeReply, DomainError> {
        let asked = || format!("reach node {}", moved.node);
        let all = self.members.addresses();
        let found = all.into_iter().find(|one| one.0.number() == moved.node);
        let (_, address, ..) =
            found.ok_or_else(|| DomainError::new(asked(), "the domain has no such node", ""))?;
        let volume = Some((moved.uuid, moved.term - 1));
        let queue = self.answering.handovers.queue_of(&moved.name);
        let ask = NodeRequest::TakeOver { attempt: moved.attempt, queue };
        let told = say(address, &self.about, volume, &ask, &self.wire)?;
        if !matches!(told, NodeReply::Refused { .. }) {
            return Ok(told);
        }
        // It may have moved on from there meanwhile.
        let asked = NodeRequest::Where { name: None };
        let hosts = |address| {
            matches!(say(address, &self.about, volume, &asked, &self.wire), Ok(NodeReply::Done))
        };
        let is_elsewhere = self.others().into_iter().any(|one| hosts(one.1));
        Ok(if is_elsewhere { NodeReply::Took { missing: 0 } } else { told })
    }

    /// Takes over what has come: step 6; then brings what is to be with the host.
    pub(super) fn take_arrivals(&self) {
        for name in self.answering.take_over() {
            // It had gone from here, and is back before its host then has said that it took it.
            self.tell_end(&name, None);
            self.uncounted.store(true, Ordering::Relaxed);
            if let Err(error) = self.bring_what_stays(&name) {
                // The next program that attaches the volume brings it.
                eprintln!("solera: node: {error}");
            }
            self.answering.set_missing(&name, 0);
        }
    }

    fn bring_what_stays(&self, name: &str) -> Result<(), DomainError> {
        let hosted = self.hosts.find(name)?;
        let table = &hosted.evictor.ground().table;
        let is_missing = |page: &u64| {
            let word = table.word(*page);
            word.flags().has(Flags::STAYS) && !word.state().is_here()
        };
        let pages: Vec<u64> = table.touched().filter(is_missing).collect();
        let total = pages.len() as u64;
        self.bring(name, pages.into_iter(), (PATIENCE, &|| true), |done| {
            self.answering.set_missing(name, (total - done).max(1));
        })
    }

    /// Whether the old host of a volume that was about to come has that attempt still. `None`: it
    /// does not answer.
    pub(super) fn knows_attempt(&self, moved: &Moved) -> Option<bool> {
        let all = self.members.addresses();
        let (_, address, ..) = all.into_iter().find(|one| one.0.number() == moved.node)?;
        let ask = NodeRequest::Attempt { attempt: moved.attempt };
        match say(address, &self.about, None, &ask, &self.wire) {
            Ok(NodeReply::Done) => Some(true),
            Ok(NodeReply::Refused { .. }) => Some(false),
            _ => None,
        }
    }

    fn not_taken(&self, moved: &Moved, why: &str) -> DomainError {
        DomainError::new(
            format!("move {} to node {}", moved.name, moved.node),
            format!(
                "node {} is to be its host, which is decided, and has not said that it is: {why}",
                moved.node
            ),
            way_back(&self.domain, moved, self.about.node),
        )
    }

    /// How long the thread rests that does all this.
    pub(super) fn rest(is_awaited: bool) {
        std::thread::park_timeout(if is_awaited { TICK } else { BEAT });
    }
}
