//! The host's node, in slot 0: threads 0 and 3 evict, thread 1 ends what the dead were at, thread 2
//! compares what holders keep with the directory.

use super::run::World;
use super::threads::{Doing, Wish, node_of};
use crate::protocol::messages::KeptPage;
use crate::protocol::{Eviction, NodeId, Owed, Progress, Reconcile, State, Verdict, reconcile};
use crate::tests::protocol::memory::{Answer, Bytes, Flaw, Request, Seat};
use std::collections::VecDeque;

/// What the node is at.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Of each thread that evicts.
    pub evicting: [Option<Evicting>; 2],
    pub looking: Looking,
    /// Pages whose words may name the dead.
    pub to_settle: Vec<u64>,
}

/// An eviction.
#[derive(Clone, Debug)]
pub struct Evicting {
    pub machine: Eviction<Bytes>,
    pub pages: u32,
    /// The request that is under way, and which holders keep clean pages, if it asks for that.
    pub id: Option<u64>,
    keeps: Option<NodeId>,
}

impl Evicting {
    /// What was asked has no answer.
    fn unanswered(&mut self) {
        self.id = None;
        match self.keeps.take() {
            Some(at) => self.machine.kept(at, None),
            None => self.machine.unanswered(),
        }
    }
}

/// Where reconciling stands.
#[derive(Clone, Debug, Default)]
pub enum Looking {
    #[default]
    Rest,
    /// A holder is asked for its claims.
    Asked { holder: usize, id: u64 },
    /// Claims are looked at.
    Compares { holder: usize, claims: VecDeque<(KeptPage, Reconcile)> },
}

impl World {
    /// The node takes a step.
    pub fn step_node(&mut self) {
        match self.draw.below(4) {
            0 | 1 => {
                let at = self.draw.index(2);
                self.step_eviction(at);
            }
            2 => self.step_settling(),
            _ => self.step_looking(),
        }
    }

    fn step_eviction(&mut self, at: usize) {
        let Some(mut evicting) = self.node.evicting[at].take() else {
            let wants = self.wants_room || (!self.calm && self.draw.once_in(self.config.evicts));
            if wants {
                self.begin_eviction(at);
            }
            return;
        };
        if let Some(id) = evicting.id {
            if self.draw.once_in(self.config.rates.timeout) {
                self.tell(|| format!("node waits for answer {id} no longer"));
                evicting.unanswered();
            }
            self.node.evicting[at] = Some(evicting);
            return;
        }
        let progress = evicting.machine.step(&Seat::new(&self.host, 0, 3 * at));
        self.tell(|| format!("node {:?} -> {progress:?}", evicting.machine));
        match progress {
            Progress::Step => {}
            Progress::Keep(node) => {
                let pages = evicting.machine.clean(node).collect();
                let holder = super::threads::holder_of(node);
                evicting.keeps = Some(node);
                evicting.id = self.send(0, 3 * at, holder, Request::Keep(pages));
                if evicting.id.is_none() {
                    evicting.unanswered();
                }
            }
            Progress::Send => {
                let pages = evicting.machine.outgoing().map(|(page, v, bytes)| (page, v, *bytes));
                let pages: Vec<_> = pages.collect();
                for (page, _, bytes) in &pages {
                    if self.host.borrow().truth[*page as usize] != *bytes {
                        self.wrong(format!("page {page} is sent, and not its newest bytes"));
                    }
                }
                let holder = super::threads::holder_of(evicting.machine.to());
                evicting.id = self.send(0, 3 * at, holder, Request::Store(pages));
                if evicting.id.is_none() {
                    evicting.unanswered();
                }
            }
            Progress::Done { gone, zeros } => {
                (self.counts.gone, self.counts.zeros) =
                    (self.counts.gone + u64::from(gone), self.counts.zeros + u64::from(zeros));
                return;
            }
        }
        self.node.evicting[at] = Some(evicting);
    }

    fn begin_eviction(&mut self, at: usize) {
        self.wants_room = false;
        let holder = self.draw.index(self.holders.len());
        let mut pages = Vec::new();
        for page in 0..self.config.pages as u64 {
            let word = self.host.borrow().words[page as usize];
            if word.state().is_here() && self.draw.once_in(2) {
                pages.push((page, word));
            }
        }
        let count = pages.len() as u32;
        let keepers: Vec<_> = (0..self.holders.len()).map(node_of).collect();
        // Some are left alone.
        let keepers = if self.draw.once_in(4) { &keepers[1..] } else { &keepers[..] };
        let machine = Eviction::new(node_of(holder), keepers, pages);
        let evicting = Evicting { machine, pages: count, id: None, keeps: None };
        self.node.evicting[at] = Some(evicting);
    }

    fn step_settling(&mut self) {
        if !matches!(self.threads[0][1].doing, Doing::Rest) {
            self.step_thread(0, 1);
            return;
        }
        let Some(page) = self.node.to_settle.pop() else { return };
        let word = self.host.borrow().words[page as usize];
        let claimed = matches!(word.state(), State::Busy | State::Leaving);
        if claimed && self.host.borrow().is_dead(word.claimant()) {
            self.counts.settled += 1;
            self.threads[0][1].begin(Wish::Settle, page, word);
        }
    }

    fn step_looking(&mut self) {
        match std::mem::take(&mut self.node.looking) {
            Looking::Rest => {
                let holder = self.draw.index(self.holders.len());
                let settles = !self.node.to_settle.is_empty();
                if settles || !std::mem::take(&mut self.to_reconcile[holder]) {
                    return;
                }
                match self.send(0, 2, holder, Request::Claims) {
                    Some(id) => self.node.looking = Looking::Asked { holder, id },
                    None => self.to_reconcile[holder] = true,
                }
            }
            Looking::Asked { holder, id } => {
                self.node.looking = if self.draw.once_in(self.config.rates.timeout) {
                    self.to_reconcile[holder] = true;
                    Looking::Rest
                } else {
                    Looking::Asked { holder, id }
                };
            }
            Looking::Compares { holder, mut claims } => {
                let Some((claim, mut machine)) = claims.pop_front() else { return };
                let to = node_of(holder);
                match machine.step(to, &Seat::new(&self.host, 0, 2)) {
                    None => claims.push_front((claim, machine)),
                    Some(Verdict::Right) => {}
                    Some(verdict) => {
                        self.tell(|| format!("node: {claim:?} at holder {holder} is {verdict:?}"));
                        let is_spare = verdict == Verdict::Spare;
                        self.counts.in_vain += u64::from(!is_spare);
                        self.counts.told += u64::from(is_spare);
                        self.owed[0].push(Owed { to, kept: KeptPage { is_spare, ..claim } });
                    }
                }
                self.node.looking = Looking::Compares { holder, claims };
            }
        }
    }

    /// An answer has come for the node.
    pub fn hear_node(&mut self, thread: usize, id: u64, answer: &Answer, torn: bool) {
        match (thread, answer) {
            (0 | 3, Answer::Stored(stored)) => {
                let any = self.has(Flaw::UnaskedAnswer);
                if let Some(evicting) = &mut self.node.evicting[thread / 3]
                    && (evicting.id == Some(id) || any && evicting.id.is_some())
                {
                    evicting.id = None;
                    match evicting.keeps.take() {
                        Some(at) => {
                            self.counts.clean += stored.iter().filter(|kept| **kept).count() as u64;
                            evicting.machine.kept(at, Some(stored));
                        }
                        None => evicting.machine.answered(stored.iter().copied()),
                    }
                }
            }
            (1, _) => self.hear(0, 1, id, answer, torn),
            (2, Answer::Claims(claims)) => {
                if let Looking::Asked { holder, id: asked } = self.node.looking
                    && asked == id
                {
                    let claims = claims.iter().map(|claim| (*claim, reconcile(*claim)));
                    self.node.looking = Looking::Compares { holder, claims: claims.collect() };
                }
            }
            _ => {}
        }
    }

    /// A request of the node's will not be answered.
    pub fn give_up_node(&mut self, thread: usize, id: u64) {
        for evicting in self.node.evicting.iter_mut().flatten() {
            if evicting.id == Some(id) {
                evicting.unanswered();
            }
        }
        if let Looking::Asked { holder, id: asked } = self.node.looking
            && asked == id
        {
            self.to_reconcile[holder] = true;
            self.node.looking = Looking::Rest;
        }
        if thread == 1 {
            self.give_up(0, 1, id);
        }
    }

    /// Whether the node has nothing to do.
    pub fn node_rests(&self) -> bool {
        self.node.evicting.iter().all(Option::is_none)
            && matches!(self.node.looking, Looking::Rest)
            && matches!(self.threads[0][1].doing, Doing::Rest)
            && self.node.to_settle.is_empty()
            && !self.to_reconcile.contains(&true)
    }
}
