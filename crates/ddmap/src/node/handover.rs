//! A volume changes hands by itself: programs that wait for it, on its host and where they are
//! (`protocol/handover.rs` has the rules; `shared_memory/migration.rs` the move).
//!
//! | thread | what it does |
//! |---|---|
//! | that which hears programs | a program asks, again and again; its connection ends |
//! | turns | on the host: looks whether the volume is used, has it move |
//! | asks | where the program is: tells the host that it waits, hears what for |
//! | of the server | the other nodes' side of both |
//!
//! Locks: `queues` and `wants`, neither with the other, and neither while a node is asked.

use super::jobs::Order;
use super::processes;
use super::service::Answering;
use super::{NODE_TIMEOUT, Shared};
use crate::control::local_socket::LocalReply;
use crate::control::node_messages::{NodeReply, NodeRequest};
use crate::control::registry::Registry;
use crate::control::status::{AskStatus, UserStatus, WaitStatus, Waits};
use crate::membership::BEAT;
use crate::membership::saying::say;
use crate::protocol::{Asked, Queue, Ticket, Use};
use crate::shared_memory::store::Standing;
use crate::shared_memory::view::REGION;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime};

/// How often it is looked whether a volume is used for which somebody waits.
const LOOK: Duration = Duration::from_millis(20);
/// How often a host is told that somebody waits.
const TELL: Duration = Duration::from_millis(250);
/// A volume that no node has is between two hosts for so long, at most.
const BETWEEN: Duration = Duration::from_secs(2);
/// A process that has let go of a volume executes a program within that, and so does one that an
/// earlier life of the node has let in: until then a node gives no turns.
const EXECUTES: Duration = Duration::from_secs(2);
/// Of processes that have a volume, and of those that wait, so many are told.
pub(super) const TOLD_MAX: usize = 16;
/// A move that has failed so often for a program is not tried again.
const TRIES: u32 = 3;

/// A volume's queue, and what the programs in it hear.
#[derive(Default)]
struct Line {
    queue: Queue,
    users: Option<Vec<UserStatus>>,
    /// Programs that wait in vain, and why, until they hear of it.
    refused: Vec<(Ticket, String)>,
    failures: u32,
    not_before: Option<Instant>,
}

/// What a program of this machine waits for.
struct Want {
    volume: String,
    hold: u64,
    since: Instant,
    /// When a node last said something of it.
    heard: Instant,
    waits: Waits,
}

/// Those that wait.
pub(super) struct Handovers {
    begun: Instant,
    /// The number of the last ticket.
    numbers: AtomicU64,
    queues: Mutex<BTreeMap<String, Line>>,
    wants: Mutex<BTreeMap<u64, Want>>,
    /// Programs that do not want a volume any more of which another node is the host.
    withdrawn: Mutex<Vec<(String, u64, u16)>>,
    /// Processes that have let go of a volume, and when.
    executing: Mutex<Vec<(String, i32, Instant)>>,
    turns: Mutex<Option<Thread>>,
    asks: Mutex<Option<Thread>>,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(thread: &Mutex<Option<Thread>>) {
    if let Some(thread) = &*lock(thread) {
        thread.unpark();
    }
}

impl Handovers {
    /// Nobody waits.
    pub(super) fn new() -> Self {
        let (queues, wants, withdrawn, executing) = Default::default();
        let (turns, asks) = Default::default();
        // A ticket of an earlier life of this node is none of this.
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let numbers = AtomicU64::new(began.as_micros() as u64);
        Self { begun: Instant::now(), numbers, queues, wants, withdrawn, executing, turns, asks }
    }

    /// A number for a ticket.
    pub(super) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// A program asks for a volume of which this node, `here`, is the host. `None`: it is let in.
    pub(super) fn ask(&self, volume: &str, here: u16, asked: Asked) -> Option<Waits> {
        let mut queues = lock(&self.queues);
        let line = queues.entry(volume.to_owned()).or_default();
        let refused = line.refused.iter().position(|one| one.0 == asked.ticket);
        let mut waits = Waits { host: here, users: line.users.clone(), ..Waits::default() };
        if let Some(at) = refused {
            waits.ended = Some(line.refused.swap_remove(at).1);
            return Some(waits);
        }
        match line.queue.ask(here, asked, self.now()) {
            Ok(()) => return None,
            Err(Some(before)) => waits.before = before as u64,
            Err(None) => waits.ended = Some("too many programs wait for it".to_owned()),
        }
        if let Some(ticket) = line.queue.moving() {
            waits.note = format!("node {here} moves it to node {}", ticket.node);
        }
        drop(queues);
        wake(&self.turns);
        Some(waits)
    }

    /// A program of this machine waits: what its ticket says.
    fn wants(&self, number: u64, volume: &str, hold: u64, here: u16) -> Asked {
        let mut wants = lock(&self.wants);
        let begins = || Want {
            volume: volume.to_owned(),
            hold,
            since: Instant::now(),
            heard: Instant::now(),
            waits: Waits::default(),
        };
        let is_new = !wants.contains_key(&number);
        let want = wants.entry(number).or_insert_with(begins);
        let asked = want.asked(here, number);
        drop(wants);
        if is_new {
            wake(&self.asks);
        }
        asked
    }

    /// Whether a program of this machine waits.
    pub(super) fn is_wanted(&self, number: u64) -> bool {
        lock(&self.wants).get(&number).is_some_and(|want| want.waits.ended.is_none())
    }

    /// A program does not want a volume any more.
    pub(super) fn withdraw(&self, volume: &str, ticket: Ticket) {
        if let Some(line) = lock(&self.queues).get_mut(volume) {
            line.queue.withdraw(ticket);
            line.refused.retain(|one| one.0 != ticket);
        }
    }

    /// The connection of a program has ended that wanted a volume, and may have been let in.
    pub(super) fn ends(&self, volume: &str, (here, number): (u16, u64), pid: i32) {
        self.executes(volume, pid);
        self.withdraw(volume, Ticket { node: here, number });
        if let Some(line) = lock(&self.queues).get_mut(volume) {
            line.queue.left(number);
        }
        let want = lock(&self.wants).remove(&number);
        if let Some(want) = want.filter(|want| ![0, here].contains(&want.waits.host)) {
            lock(&self.withdrawn).push((want.volume, number, want.waits.host));
            wake(&self.asks);
        }
        wake(&self.turns);
    }

    /// A process has let go of a volume: it has ended, or executes a program.
    pub(super) fn executes(&self, volume: &str, pid: i32) {
        let mut executing = lock(&self.executing);
        executing.retain(|one| one.2.elapsed() < EXECUTES);
        executing.push((volume.to_owned(), pid, Instant::now()));
        drop(executing);
        wake(&self.turns);
    }

    /// What goes along with a volume.
    pub(super) fn queue_of(&self, volume: &str) -> Vec<Asked> {
        lock(&self.queues).get(volume).map_or_else(Vec::new, |line| line.queue.all(self.now()))
    }

    /// What has come with one.
    pub(super) fn arrives(&self, volume: &str, here: u16, all: &[Asked]) {
        let numbers: Vec<u64> = lock(&self.wants).keys().copied().collect();
        let known = |number| numbers.contains(&number);
        let queue = Queue::arrived(all, here, known, self.now());
        let mut queues = lock(&self.queues);
        // It is told so again until this node is the host, and lets programs in.
        queues.entry(volume.to_owned()).or_insert_with(|| Line { queue, ..Line::default() });
    }

    /// Another node is its host.
    pub(super) fn has_gone(&self, volume: &str) {
        lock(&self.queues).remove(volume);
        wake(&self.asks);
    }

    /// The programs that wait for a volume of this node's.
    pub(super) fn waiting(&self, volume: &str) -> Vec<WaitStatus> {
        let status = |one: &Asked| WaitStatus { node: one.ticket.node, seconds: one.waited / 1000 };
        self.queue_of(volume).iter().take(TOLD_MAX).map(status).collect()
    }

    /// The programs of this machine that wait for volumes of other hosts than this.
    pub(super) fn asking(&self, here: u16) -> Vec<AskStatus> {
        let status = |want: &Want| AskStatus {
            volume: want.volume.clone(),
            seconds: want.since.elapsed().as_secs(),
            waits: want.waits.clone(),
        };
        let wants = lock(&self.wants);
        wants.values().filter(|one| one.waits.host != here).take(TOLD_MAX).map(status).collect()
    }

    fn hears(&self, number: u64, change: impl FnOnce(&mut Want)) {
        if let Some(want) = lock(&self.wants).get_mut(&number) {
            change(want);
        }
    }

    fn line<T>(&self, volume: &str, change: impl FnOnce(&mut Line) -> T) -> Option<T> {
        lock(&self.queues).get_mut(volume).map(change)
    }
}

impl Want {
    fn asked(&self, node: u16, number: u64) -> Asked {
        let waited = self.since.elapsed().as_millis() as u64;
        Asked { ticket: Ticket { node, number }, waited, hold: self.hold }
    }
}

impl Answering {
    /// A program of another node asks for a volume.
    pub(super) fn asked_for(&self, from: u16, name: &str, mut asked: Asked) -> NodeReply {
        asked.ticket.node = from;
        let here = self.here.number();
        if matches!(self.store.volume_about(name), Ok(Some(_))) {
            let waits = self.handovers.ask(name, here, asked);
            return NodeReply::Waits(waits.unwrap_or_default());
        }
        if let Some(note) = self.between(name) {
            return NodeReply::Waits(Waits { host: here, note, ..Waits::default() });
        }
        NodeReply::Refused { text: "another node's, or nobody's".to_owned() }
    }

    /// A volume is on its way from this node, or to it.
    fn between(&self, name: &str) -> Option<String> {
        let is = |one: &crate::shared_memory::migration::Moved| one.name == name;
        if let Some(moved) = self.store.gone().into_iter().find(is) {
            return Some(format!("it is on its way to node {}", moved.node));
        }
        let moved = self.store.arriving().into_iter().find(is)?;
        Some(format!("it is on its way from node {}", moved.node))
    }
}

impl Shared {
    /// A program of this machine asks for a volume, for the first time or again.
    pub(super) fn want(&self, number: u64, volume: &str, hold: u64) -> LocalReply {
        if let Err(error) = Registry::check_name("volume", volume) {
            return LocalReply::Refused { text: error.to_string() };
        }
        let here = self.about.node;
        let handovers = &self.answering.handovers;
        let asked = handovers.wants(number, volume, hold, here);
        if matches!(self.store.volume_about(volume), Ok(Some(_))) {
            let waits = handovers.ask(volume, here, asked);
            handovers.hears(number, |want| want.waits = waits.clone().unwrap_or_default());
            if waits.is_none() {
                lock(&handovers.wants).remove(&number);
            }
            return waits.map_or(LocalReply::Done, LocalReply::Waits);
        }
        if self.about.passive {
            let text = "this node is passive, and runs no programs".to_owned();
            return LocalReply::Refused { text };
        }
        let waits = lock(&handovers.wants).get(&number).map(|want| want.waits.clone());
        LocalReply::Waits(waits.unwrap_or_default())
    }

    /// Who has a volume of this node's, or is about to.
    fn users_of(&self, volume: &str) -> (Use, Vec<UserStatus>) {
        let own = std::process::id() as i32;
        let mut attached = self.hosts.find(volume).map_or_else(|_| Vec::new(), |one| one.pids());
        attached.retain(|pid| *pid != own);
        let mut starting = Vec::new();
        if attached.is_empty() {
            let executing: Vec<_> = lock(&self.answering.handovers.executing).clone();
            let is_recent = |since: &Instant| since.elapsed() < EXECUTES;
            starting.extend(executing.into_iter().filter_map(|(name, pid, since)| {
                let may = name == volume && is_recent(&since) && processes::may_execute(pid);
                may.then_some(pid)
            }));
            let region = self.store.volume(volume).join(REGION);
            starting.extend(processes::that_name(&region));
        }
        let used = Use { attached: attached.len(), starting: starting.len() };
        let told = attached.iter().chain(&starting).take(TOLD_MAX);
        (used, told.map(|pid| processes::user(*pid)).collect())
    }

    /// The thread of turns.
    pub(super) fn give_turns(&self) {
        let handovers = &self.answering.handovers;
        *lock(&handovers.turns) = Some(std::thread::current());
        while !self.over.load(Ordering::Relaxed) {
            let volumes: Vec<String> = lock(&handovers.queues).keys().cloned().collect();
            let are_awaited = volumes.iter().filter(|volume| self.gives_turn(volume)).count() > 0;
            std::thread::park_timeout(if are_awaited { LOOK } else { BEAT });
        }
    }

    /// Has a volume move if it is another node's turn: whether that is to be looked at soon.
    fn gives_turn(&self, volume: &str) -> bool {
        let handovers = &self.answering.handovers;
        let (here, now) = (self.about.node, handovers.now());
        if !matches!(self.store.volume_about(volume), Ok(Some(_))) {
            if self.answering.between(volume).is_none() {
                handovers.has_gone(volume);
            }
            return false;
        }
        let Some(moving) = handovers.line(volume, |line| line.queue.moving()) else { return false };
        if moving.is_some() {
            self.looks_after(volume);
            return true;
        }
        let mut queues = lock(&handovers.queues);
        let Some(line) = queues.get_mut(volume) else { return false };
        line.queue.expire(now);
        if line.queue.is_empty() && line.refused.is_empty() {
            queues.remove(volume);
            return false;
        }
        let waits = line.not_before.is_some_and(|then| Instant::now() < then)
            || handovers.begun.elapsed() < EXECUTES;
        drop(queues);
        let (used, users) = self.users_of(volume);
        let next = handovers.line(volume, |line| {
            line.users = Some(users);
            line.queue.next(here, used)
        });
        if let Some(ticket) = next.flatten().filter(|_| !waits) {
            self.hand_over(volume, ticket);
        }
        true
    }

    /// It is that ticket's turn, as far as was seen.
    fn hand_over(&self, volume: &str, ticket: Ticket) {
        let handovers = &self.answering.handovers;
        let all = self.members.addresses().into_iter();
        let address = all
            .filter(|one| one.2 == Standing::There)
            .find_map(|one| (one.0.number() == ticket.node).then_some(one.1));
        let ask = NodeRequest::Wanted { number: ticket.number };
        let told = address.map(|address| say(address, &self.about, None, &ask, &self.wire));
        if !matches!(told, Some(Ok(NodeReply::Done))) {
            // If it is there, it asks again.
            handovers.withdraw(volume, ticket);
            return;
        }
        let asked = format!("move {volume} to node {}", ticket.node);
        let target = self.hosts.find(volume).and_then(|one| self.target(&one, ticket.node, &asked));
        if let Err(error) = target {
            let refused = (ticket, error.to_string());
            handovers.line(volume, |line| {
                line.queue.withdraw(ticket);
                line.refused.push(refused);
            });
            return;
        }
        if handovers.line(volume, |line| line.queue.moves(ticket)) != Some(true) {
            return;
        }
        let (used, _) = self.users_of(volume);
        if handovers.line(volume, |line| line.queue.decide(used)) != Some(true) {
            return;
        }
        let told = self.order(volume.to_owned(), Order::Move(ticket.node));
        if told != LocalReply::Done {
            handovers.line(volume, |line| {
                line.queue.stays(false);
                line.not_before = Some(Instant::now() + TELL);
            });
        }
    }

    /// A volume is about to move: if that has failed, it stays.
    fn looks_after(&self, volume: &str) {
        let Some(failed) = self.failed_order(volume) else { return };
        self.answering.handovers.line(volume, |line| {
            line.failures += 1;
            line.not_before = Some(Instant::now() + TELL);
            let is_vain = line.failures >= TRIES;
            if let Some(ticket) = line.queue.moving().filter(|_| is_vain) {
                line.failures = 0;
                line.refused.push((ticket, failed));
            }
            line.queue.stays(is_vain);
        });
    }

    /// The thread of asks.
    pub(super) fn ask_hosts(&self) {
        let handovers = &self.answering.handovers;
        *lock(&handovers.asks) = Some(std::thread::current());
        while !self.over.load(Ordering::Relaxed) {
            for (name, number, host) in std::mem::take(&mut *lock(&handovers.withdrawn)) {
                let ask = NodeRequest::Unwant { name, number };
                if let Some((_, address)) = self.asked_first(host).first() {
                    // One that does not hear of it finds out.
                    let _ = say(*address, &self.about, None, &ask, &self.wire);
                }
            }
            let wants = lock(&handovers.wants);
            let open = wants.iter().filter(|(_, want)| want.waits.ended.is_none());
            let open: Vec<(u64, String, Asked, u16)> = open
                .map(|(number, want)| {
                    let asked = want.asked(self.about.node, *number);
                    (*number, want.volume.clone(), asked, want.waits.host)
                })
                .collect();
            drop(wants);
            let elsewhere = |volume: &str| !matches!(self.store.volume_about(volume), Ok(Some(_)));
            let mut are_open = false;
            for (number, volume, asked, host) in open {
                if elsewhere(&volume) {
                    are_open = true;
                    self.ask_for(number, &volume, asked, host);
                }
            }
            std::thread::park_timeout(if are_open { TELL } else { BEAT });
        }
    }

    /// The other nodes, that one first.
    fn asked_first(&self, host: u16) -> Vec<(u16, std::net::SocketAddr)> {
        let all = self.members.addresses().into_iter();
        let mut all: Vec<_> = all
            .filter(|one| one.2 != Standing::Gone && one.0 != self.here())
            .map(|one| (one.0.number(), one.1))
            .collect();
        all.sort_by_key(|one| one.0 != host);
        all
    }

    /// Tells a volume's host that a program waits; finds the host first.
    fn ask_for(&self, number: u64, volume: &str, asked: Asked, host: u16) {
        let handovers = &self.answering.handovers;
        let mut silent = Vec::new();
        for (node, address) in self.asked_first(host) {
            let ask = NodeRequest::Want { name: volume.to_owned(), asked };
            match say(address, &self.about, None, &ask, &self.wire) {
                Ok(NodeReply::Waits(waits)) => {
                    let waits = Waits { host: node, ..waits };
                    handovers.hears(number, |want| {
                        (want.heard, want.waits) = (Instant::now(), waits);
                    });
                    return;
                }
                Ok(_) => {}
                Err(_) => silent.push(node),
            }
        }
        let between = self.answering.between(volume);
        let patience = if silent.is_empty() && between.is_none() { BETWEEN } else { NODE_TIMEOUT };
        handovers.hears(number, |want| {
            if want.heard.elapsed() < patience {
                want.waits.note = between.unwrap_or_default();
                return;
            }
            let numbers: Vec<String> = silent.iter().map(u16::to_string).collect();
            want.waits.ended =
                Some(match (silent.contains(&want.waits.host), numbers.is_empty()) {
                    (true, _) => {
                        format!("node {}, which was its host, is not there", want.waits.host)
                    }
                    (_, true) => "no node is its host".to_owned(),
                    _ => format!(
                        "no node that answers is its host, and these do not answer: {}",
                        numbers.join(", ")
                    ),
                });
        });
    }
}
