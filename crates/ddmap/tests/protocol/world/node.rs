//! The host's node, in slot 0: threads 0 and 3 evict, thread 1 ends what the dead were at and moves
//! pages, thread 2 compares what holders keep with the directory, thread 4 heals.

use super::run::World;
use super::threads::{Doing, Wish, node_of};
use crate::protocol::messages::KeptPage;
use crate::protocol::{
    Eviction, Healed, Healing, Location, NodeId, Owed, Progress, Reconcile, State, Verdict,
    reconcile,
};
use crate::tests::protocol::memory::host::here;
use crate::tests::protocol::memory::{Answer, Bytes, Flaw, Request, Seat, Work};
use std::collections::VecDeque;

/// What the node is at.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Of each thread that evicts.
    pub evicting: [Option<Evicting>; 2],
    pub looking: Looking,
    pub healing: Heals,
    /// Pages whose words may name the dead.
    pub to_settle: Vec<u64>,
    /// Pages that are to move.
    pub to_bring: Vec<u64>,
}

/// An eviction.
#[derive(Clone, Debug)]
pub struct Evicting {
    pub machine: Eviction<Bytes>,
    pub pages: u32,
    /// The request that is under way, and which holders keep clean pages, if it asks for that.
    pub id: Option<u64>,
    keeps: Option<NodeId>,
    /// Where pages are being sent.
    sends: Option<NodeId>,
}

/// A page that is to have other holders.
#[derive(Clone, Debug)]
pub struct Heal {
    page: u64,
    seen: Location,
    /// Who has it, and is to have it, too.
    from: NodeId,
    third: NodeId,
}

/// Where healing stands.
#[derive(Clone, Debug, Default)]
pub enum Heals {
    #[default]
    Rest,
    /// The page is asked for.
    Fetch(Heal, u64),
    /// It has come.
    Has(Heal, Bytes),
    /// It is given to the third.
    Store(Heal, u64),
    /// The directory is to say so.
    Places(Heal, Healing),
    /// The page is a removed holder's, too.
    Forgets(Healing),
}

impl Heal {
    fn places(self) -> Heals {
        let to = Location::Held(self.from, self.seen.version(), Some(self.third));
        let machine = Healing::new(self.page, self.seen, to);
        Heals::Places(self, machine)
    }
}

impl Evicting {
    /// What was asked has no answer.
    fn unanswered(&mut self) {
        self.id = None;
        match self.keeps.take() {
            Some(at) => self.machine.kept(at, None),
            None => self.machine.unanswered(self.sends.take().expect("pages were sent")),
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
        match self.draw.below(if self.config.copies == 2 { 5 } else { 4 }) {
            0 | 1 => {
                let at = self.draw.index(2);
                self.step_eviction(at);
            }
            4 => self.step_healing(),
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
            Progress::Send(to) => {
                let pages = evicting.machine.outgoing(to).map(|(page, v, bytes)| (page, v, *bytes));
                let pages: Vec<_> = pages.collect();
                for (page, _, bytes) in &pages {
                    if self.host.borrow().truth[*page as usize] != *bytes {
                        self.wrong(format!("page {page} is sent, and not its newest bytes"));
                    }
                }
                let holder = super::threads::holder_of(to);
                evicting.sends = Some(to);
                evicting.id = self.send(0, 3 * at, holder, Request::Store(pages));
                if evicting.id.is_none() {
                    evicting.unanswered();
                }
            }
            Progress::Done(evicted) => {
                self.counts.gone += u64::from(evicted.gone);
                self.counts.zeros += u64::from(evicted.zeros);
                if self.config.copies == 2 {
                    self.counts.single += u64::from(evicted.single);
                }
                return;
            }
        }
        self.node.evicting[at] = Some(evicting);
    }

    fn begin_eviction(&mut self, at: usize) {
        self.wants_room = false;
        let mut there: Vec<_> =
            (0..self.holders.len()).filter(|at| !self.holders[*at].forgotten).collect();
        let mut to = Vec::new();
        while to.len() < self.config.copies && !there.is_empty() {
            to.push(node_of(there.remove(self.draw.index(there.len()))));
        }
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
        let machine = Eviction::new(&to, keepers, pages);
        let evicting = Evicting { machine, pages: count, id: None, keeps: None, sends: None };
        self.node.evicting[at] = Some(evicting);
    }

    fn step_settling(&mut self) {
        if !matches!(self.threads[0][1].doing, Doing::Rest) {
            self.step_thread(0, 1);
            return;
        }
        if let Some(page) = self.node.to_bring.pop() {
            let word = self.host.borrow().words[page as usize];
            self.threads[0][1].begin(Wish::Bring, page, word);
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
                    None => self.look_at(holder),
                }
            }
            Looking::Asked { holder, id } => {
                self.node.looking = if self.draw.once_in(self.config.rates.timeout) {
                    self.look_at(holder);
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
                    Some(Verdict::Equal) => {
                        self.counts.equal += 1;
                        self.node.to_bring.push(claim.page);
                        // It is looked at again.
                        self.look_at(holder);
                    }
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

    fn step_healing(&mut self) {
        let times = self.config.rates.timeout;
        self.node.healing = match std::mem::take(&mut self.node.healing) {
            Heals::Rest => self.begin_healing(),
            Heals::Fetch(..) | Heals::Store(..) if self.draw.once_in(times) => Heals::Rest,
            asked @ (Heals::Fetch(..) | Heals::Store(..)) => asked,
            Heals::Has(heal, bytes) => {
                let pages = vec![(heal.page, heal.seen.version(), bytes)];
                let holder = super::threads::holder_of(heal.third);
                let early = self.has(Flaw::HealedEarly);
                match self.send(0, 4, holder, Request::Store(pages)) {
                    Some(_) if early => heal.places(),
                    Some(id) => Heals::Store(heal, id),
                    None => Heals::Rest,
                }
            }
            Heals::Forgets(mut machine) => {
                let seat = Seat { work: Work::Heal, ..Seat::new(&self.host, 0, 4) };
                let healed = machine.step(&seat);
                self.counts.healed += u64::from(healed == Healed::Placed);
                if healed == Healed::Step { Heals::Forgets(machine) } else { Heals::Rest }
            }
            Heals::Places(heal, mut machine) => {
                let seat = Seat { work: Work::Heal, ..Seat::new(&self.host, 0, 4) };
                let healed = machine.step(&seat);
                self.tell(|| format!("node {machine:?} -> {healed:?}"));
                match healed {
                    Healed::Step => Heals::Places(heal, machine),
                    Healed::Moved => {
                        self.counts.moved += 1;
                        let kept = KeptPage::new(heal.page, heal.seen.version());
                        self.owed[0].push(Owed { to: heal.third, kept });
                        Heals::Rest
                    }
                    Healed::Placed => {
                        self.counts.healed += 1;
                        Heals::Rest
                    }
                    // What the third has is found when it is asked for what it keeps.
                    Healed::Stays => {
                        let third = super::threads::holder_of(heal.third);
                        self.look_at(third);
                        Heals::Rest
                    }
                }
            }
        };
    }

    fn begin_healing(&mut self) -> Heals {
        if self.calm && !self.draw.once_in(20) {
            return Heals::Rest;
        }
        let page = self.draw.below(self.config.pages as u64);
        let Ok(seen) = self.host.borrow().place(page) else { return Heals::Rest };
        let gone = |node: &NodeId| self.holders[super::threads::holder_of(*node)].forgotten;
        let (from, other) = match seen.holders(here()) {
            [Some(first), other] if gone(&first) => match other {
                Some(other) if !gone(&other) => (other, None),
                _ => return Heals::Rest,
            },
            [Some(first), other] => (first, other),
            _ => return Heals::Rest,
        };
        if other.is_some_and(|other| !gone(&other)) {
            return Heals::Rest;
        }
        let third = node_of(self.draw.index(self.holders.len()));
        if third == from || gone(&third) {
            let alone = Location::Held(from, seen.version(), None);
            if alone == seen {
                return Heals::Rest;
            }
            return Heals::Forgets(Healing::new(page, seen, alone));
        }
        let request = Request::Fetch { page, version: seen.version(), releases: Vec::new() };
        let heal = Heal { page, seen, from, third };
        match self.send(0, 4, super::threads::holder_of(from), request) {
            Some(id) => Heals::Fetch(heal, id),
            None => Heals::Rest,
        }
    }

    fn hear_healing(&mut self, id: u64, answer: &Answer, torn: bool) {
        let heals = std::mem::take(&mut self.node.healing);
        self.node.healing = match (heals, answer) {
            (Heals::Fetch(heal, asked), Answer::Fetched(found)) if asked == id => match found {
                Some(bytes) if !torn => Heals::Has(heal, *bytes),
                _ => Heals::Rest,
            },
            (Heals::Store(heal, asked), Answer::Stored(stored)) if asked == id => {
                if stored[..] == [true] { heal.places() } else { Heals::Rest }
            }
            (heals, _) => heals,
        };
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
                    if let Some(at) = evicting.keeps.take() {
                        self.counts.clean += stored.iter().filter(|kept| **kept).count() as u64;
                        evicting.machine.kept(at, Some(stored));
                    } else {
                        let at = evicting.sends.take().expect("pages were sent");
                        evicting.machine.answered(at, stored.iter().copied());
                    }
                }
            }
            (1, _) => self.hear(0, 1, id, answer, torn),
            (4, _) => self.hear_healing(id, answer, torn),
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
            self.look_at(holder);
            self.node.looking = Looking::Rest;
        }
        if thread == 1 {
            self.give_up(0, 1, id);
        }
        if let Heals::Fetch(_, asked) | Heals::Store(_, asked) = self.node.healing
            && asked == id
        {
            self.node.healing = Heals::Rest;
        }
    }

    /// Whether the node has nothing to do.
    pub fn node_rests(&self) -> bool {
        self.node.evicting.iter().all(Option::is_none)
            && matches!(self.node.looking, Looking::Rest)
            && matches!(self.threads[0][1].doing, Doing::Rest)
            && matches!(self.node.healing, Heals::Rest)
            && self.node.to_settle.is_empty()
            && self.node.to_bring.is_empty()
            && !self.to_reconcile.contains(&true)
    }
}
