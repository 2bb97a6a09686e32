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
//! No lock of `control/turns.rs` is held while a node is asked.

use super::jobs::Order;
use super::service::Answering;
use super::{NODE_TIMEOUT, Shared};
use crate::control::local_socket::LocalReply;
use crate::control::node_messages::{NodeReply, NodeRequest};
use crate::control::processes;
use crate::control::registry::Registry;
use crate::control::status::{UserStatus, Waits};
use crate::control::turns::TOLD_MAX;
use crate::membership::BEAT;
use crate::membership::saying::say;
use crate::protocol::{Asked, Ticket, Use};
use crate::shared_memory::migration::Moved;
use crate::shared_memory::store::Standing;
use crate::shared_memory::view::REGION;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often it is looked whether a volume is used for which somebody waits.
const LOOK: Duration = Duration::from_millis(20);
/// How often a host is told that somebody waits.
const TELL: Duration = Duration::from_millis(250);
/// A volume that no node has is between two hosts for so long, at most.
const BETWEEN: Duration = Duration::from_secs(2);
/// A move that has failed so often for a program is not tried again.
const TRIES: u32 = 3;

impl Answering {
    /// What another node says of programs that wait.
    pub(super) fn hears_of_turns(&self, from: u16, said: NodeRequest) -> NodeReply {
        match said {
            NodeRequest::Want { name, asked } => self.asked_for(from, &name, asked),
            NodeRequest::Unwant { name, number } => {
                self.handovers.withdraw(&name, Ticket { node: from, number });
                NodeReply::Done
            }
            NodeRequest::Wanted { number } if self.handovers.is_wanted(number) => NodeReply::Done,
            _ => NodeReply::Refused { text: "no such program waits".to_owned() },
        }
    }

    /// A program of another node asks for a volume.
    fn asked_for(&self, from: u16, name: &str, mut asked: Asked) -> NodeReply {
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
        let is = |one: &Moved| one.name == name;
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
                handovers.is_in(number);
            }
            return waits.map_or(LocalReply::Done, LocalReply::Waits);
        }
        if self.about.passive {
            let text = "this node is passive, and runs no programs".to_owned();
            return LocalReply::Refused { text };
        }
        LocalReply::Waits(handovers.waits(number))
    }

    /// Who has a volume of this node's, or is about to.
    fn users_of(&self, volume: &str) -> (Use, Vec<UserStatus>) {
        let own = std::process::id() as i32;
        let mut attached = self.hosts.find(volume).map_or_else(|_| Vec::new(), |one| one.pids());
        attached.retain(|pid| *pid != own);
        let mut starting = Vec::new();
        if attached.is_empty() {
            starting.extend(self.answering.handovers.executing(volume));
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
        handovers.gives_turns();
        while !self.over.load(Ordering::Relaxed) {
            let are_awaited =
                handovers.volumes().iter().filter(|volume| self.gives_turn(volume)).count() > 0;
            std::thread::park_timeout(if are_awaited { LOOK } else { BEAT });
        }
    }

    /// Has a volume move if it is another node's turn: whether that is to be looked at soon.
    fn gives_turn(&self, volume: &str) -> bool {
        let handovers = &self.answering.handovers;
        let here = self.about.node;
        if !matches!(self.store.volume_about(volume), Ok(Some(_))) {
            if self.answering.between(volume).is_none() {
                handovers.is_elsewhere(volume);
            }
            return false;
        }
        let Some(moving) = handovers.line(volume, |line| line.queue.moving()) else { return false };
        if moving.is_some() {
            self.looks_after(volume);
            return true;
        }
        if handovers.is_over(volume) {
            return false;
        }
        let (used, users) = self.users_of(volume);
        let next = handovers.line(volume, |line| {
            line.users = Some(users);
            let is_time = line.not_before.is_none_or(|then| Instant::now() >= then);
            line.queue.next(here, used).filter(|_| is_time && !handovers.is_new())
        });
        if let Some(ticket) = next.flatten() {
            self.hand_over(volume, ticket);
        }
        true
    }

    /// It is that ticket's turn, as far as was seen.
    fn hand_over(&self, volume: &str, ticket: Ticket) {
        let handovers = &self.answering.handovers;
        let all = self.members.addresses().into_iter();
        let address = all
            .filter(|one| one.2 != Standing::Gone)
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
        let Some(order) = self.order_over(volume) else { return };
        self.answering.handovers.line(volume, |line| {
            let Some(failed) = order.failed.map(|error| error.to_string()) else {
                line.queue.stays(false);
                return;
            };
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
        handovers.asks_hosts();
        while !self.over.load(Ordering::Relaxed) {
            for (name, number, host) in handovers.take_withdrawn() {
                let ask = NodeRequest::Unwant { name, number };
                if let Some((_, address)) = self.asked_first(host).first() {
                    // One that does not hear of it finds out.
                    let _ = say(*address, &self.about, None, &ask, &self.wire);
                }
            }
            let elsewhere = |volume: &str| !matches!(self.store.volume_about(volume), Ok(Some(_)));
            let mut are_open = false;
            for (volume, asked, host) in handovers.open(self.about.node) {
                if elsewhere(&volume) {
                    are_open = true;
                    self.ask_for(&volume, asked, host);
                }
            }
            std::thread::park_timeout(if are_open { TELL } else { BEAT });
        }
    }

    /// The other nodes, that one first.
    fn asked_first(&self, host: u16) -> Vec<(u16, SocketAddr)> {
        let all = self.members.addresses().into_iter();
        let mut all: Vec<_> = all
            .filter(|one| one.2 != Standing::Gone && one.0 != self.here())
            .map(|one| (one.0.number(), one.1))
            .collect();
        all.sort_by_key(|one| one.0 != host);
        all
    }

    /// Tells a volume's host that a program waits; finds the host first.
    fn ask_for(&self, volume: &str, asked: Asked, host: u16) {
        let (handovers, number) = (&self.answering.handovers, asked.ticket.number);
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
            let host = want.waits.host;
            let ended = match (silent.contains(&host), numbers.is_empty()) {
                (true, _) => {
                    format!("node {host}, which was its host, is not there; start it, ask again")
                }
                (_, true) => format!(
                    "no node is its host; make it: solera format --ddmap {}/{volume} --size SIZE",
                    self.domain
                ),
                _ => format!(
                    "no node that answers is its host, and these do not answer: {}; start them",
                    numbers.join(", ")
                ),
            };
            want.waits.ended = Some(ended);
        });
    }
}
