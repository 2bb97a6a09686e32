//! Who is next, what is looked at behind each step, and how a run ends.

use super::draw::{Config, Draw, Rates};
use super::links::{Frame, Links, Reply};
use super::node::Node;
use super::threads::{Doing, Thread, Wish, node_of};
use crate::protocol::{Flags, Location, Owed, State, Version, Word};
use crate::tests::protocol::memory::host::here;
use crate::tests::protocol::memory::{
    Answer, Bytes, Desk, Died, Flaw, HolderMemory, HostMemory, Process, Request, serve,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Steps until failures end.
const TICKS: u64 = 40_000;
/// Steps within which all must have come to rest then.
const CALM_TICKS: u64 = 200_000;
/// Events that a failure tells.
const EVENTS: usize = 60;

/// What happened, all in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub steps: u64,
    pub accesses: u64,
    /// Pages that came from a holder.
    pub fetched: u64,
    /// Pages that went.
    pub gone: u64,
    pub zeros: u64,
    pub deaths: u64,
    pub holder_deaths: u64,
    /// Words of the dead that the node met.
    pub settled: u64,
    /// Accesses that failed, since the page is lost.
    pub lost: u64,
    /// Accesses that failed, since the directory's word cannot be read.
    pub damaged: u64,
    /// Pages that reconciling found.
    pub in_vain: u64,
    /// Requests that were sent once more on another connection.
    pub again: u64,
    /// Frames of old sessions that were refused.
    pub refused: u64,
    /// Discards that have ended, of lost pages too.
    pub discarded: u64,
    /// Lost pages that a store to all of them has met.
    pub renewed: u64,
    /// Pages that a holder has kept, whose spares it had.
    pub clean: u64,
    /// Spares that reconciling found, and holders did not know of.
    pub told: u64,
    /// Spares that were dropped.
    pub shed: u64,
    /// Calls of the kernel's that have stored.
    pub calls: u64,
    /// Pages that came of two holders' copies.
    pub of_two: u64,
    /// Pages that have left, and that one holder has of two.
    pub single: u64,
    /// Pages that got a second holder, or lost one that was removed; and those that had moved.
    pub healed: u64,
    pub moved: u64,
    /// Pages that a holder had in the directory's version, and was not named for.
    pub equal: u64,
    /// Holders that were removed.
    pub forgotten: u64,
}

/// A holder.
#[derive(Clone, Debug)]
pub struct Holder {
    pub memory: RefCell<HolderMemory>,
    pub alive: bool,
    /// It was removed from the domain.
    pub forgotten: bool,
    /// Accesses that its process still makes.
    pub lives_for: u32,
    /// Of each process that has come: the newest session.
    pub sessions: BTreeMap<(usize, u16), u32>,
    /// What it had some time ago.
    pub copy: Option<HolderMemory>,
}

/// A run's world.
pub struct World {
    pub draw: Draw,
    pub config: Config,
    pub now: u64,
    /// Nothing fails any more.
    pub calm: bool,
    /// And nobody remembers that it did.
    pub mended: bool,
    pub host: RefCell<HostMemory>,
    pub holders: Vec<Holder>,
    pub links: Links,
    /// Of each process.
    pub threads: Vec<Vec<Thread>>,
    /// Of each process: what it is to tell the old owners of pages.
    pub owed: Vec<Vec<Owed>>,
    pub stopped_until: Vec<u64>,
    pub buried: Vec<bool>,
    pub node: Node,
    /// Of each holder.
    pub to_reconcile: Vec<bool>,
    pub wants_room: bool,
    pub values: Bytes,
    pub counts: Counts,
    events: Option<VecDeque<String>>,
}

/// What a run came to: what went wrong, and the last events.
pub type Run = Result<Counts, String>;

/// Runs the world of a seed. If something goes wrong, once more, to tell how.
pub fn run(seed: u64, flaw: Option<Flaw>) -> Run {
    let first = World::new(seed, flaw, false).live();
    if first.is_ok() {
        return first;
    }
    let mut world = World::new(seed, flaw, true);
    let wrong = world.live().err().unwrap_or_default();
    let events: Vec<_> = world.events.into_iter().flatten().collect();
    Err(format!("{wrong}\n{:?}\n{}", world.config, events.join("\n")))
}

impl World {
    fn new(seed: u64, flaw: Option<Flaw>, tells: bool) -> Self {
        let mut draw = Draw::new(seed);
        let config = Config::new(&mut draw);
        let processes = config.programs + 1;
        let process =
            |slot: usize| Process::new(if slot == 0 { 5 } else { config.threads }, config.pages);
        let first = Version::new(config.first_version);
        let list = (0..processes).map(process).collect();
        let mut host = HostMemory::new(config.pages, first, config.capacity, list);
        host.flaw = flaw;
        host.maps = !draw.once_in(4);
        let holder = |at: usize| {
            let capacity = if at == 0 { 1_000 } else { config.holder_capacity };
            Holder {
                memory: RefCell::new(HolderMemory::new(config.pages, capacity)),
                alive: true,
                forgotten: false,
                lives_for: u32::MAX,
                sessions: BTreeMap::new(),
                copy: None,
            }
        };
        let threads = |slot| vec![Thread::new(); if slot == 0 { 2 } else { config.threads }];
        Self {
            now: 0,
            calm: false,
            mended: false,
            host: RefCell::new(host),
            holders: (0..config.holders).map(holder).collect(),
            links: Links::new(config.holders),
            threads: (0..processes).map(threads).collect(),
            owed: vec![Vec::new(); processes],
            stopped_until: vec![0; processes],
            buried: vec![false; processes],
            node: Node::default(),
            to_reconcile: vec![false; config.holders],
            wants_room: false,
            values: 0,
            counts: Counts::default(),
            events: tells.then(VecDeque::new),
            draw,
            config,
        }
    }

    /// Whether the world makes this mistake.
    pub fn has(&self, flaw: Flaw) -> bool {
        self.host.borrow().flaw == Some(flaw)
    }

    /// An event.
    pub fn tell(&mut self, event: impl FnOnce() -> String) {
        if let Some(events) = &mut self.events {
            if events.len() == EVENTS {
                events.pop_front();
            }
            events.push_back(format!("{:6} {}", self.now, event()));
        }
    }

    /// What must not be.
    pub fn wrong(&mut self, what: String) {
        self.host.borrow_mut().wrong(what);
    }

    fn live(&mut self) -> Run {
        while self.now < TICKS {
            self.tick()?;
        }
        self.come_to_rest()?;
        Ok(self.counts)
    }

    fn tick(&mut self) -> Result<(), String> {
        self.now += 1;
        self.counts.steps += 1;
        if !self.calm {
            self.fail();
        }
        self.come_back(if self.calm { 1 } else { 150 });
        let runs = |world: &Self, slot: usize| {
            let process = &world.host.borrow().processes[slot];
            process.alive && !process.stopped
        };
        let slot = 1 + self.draw.index(self.config.programs);
        match self.draw.below(100) {
            0..45 if runs(self, slot) => self.step_program(slot),
            45..75 if runs(self, 0) => self.step_node(),
            75..95 => self.deliver(),
            95..98 => {
                let thread = self.draw.index(self.config.threads);
                self.host.borrow_mut().processes[slot].flush_one(thread);
            }
            98.. => self.step_aside(),
            _ => {}
        }
        self.learn();
        self.check()
    }

    fn step_program(&mut self, slot: usize) {
        let thread = self.draw.index(self.config.threads);
        if matches!(self.threads[slot][thread].doing, Doing::Rest) && !self.calm {
            // What nobody wants a call does not store to.
            let calls = self.config.calls && self.host.borrow().maps;
            let wish = match self.draw.below(16) {
                0..8 => Wish::Load,
                13.. if calls => Wish::Call,
                8..13 => Wish::Store,
                13..15 => Wish::Renew,
                _ => Wish::Discard,
            };
            let page = self.draw.below(self.config.pages as u64);
            let word = self.host.borrow().words[page as usize];
            let is_renewed = wish == Wish::Renew && word.state() == State::Lost;
            self.counts.renewed += u64::from(is_renewed);
            self.threads[slot][thread].begin(wish, page, word);
        }
        self.step_thread(slot, thread);
    }

    /// What is not in anybody's way: releases go, flags and heat change, a holder drops a spare,
    /// its memory is copied.
    fn step_aside(&mut self) {
        let slot = self.draw.index(self.config.programs + 1);
        let process = self.host.borrow().processes[slot].clone();
        if process.alive && !process.stopped && self.send_owed(slot) {
            return;
        }
        let page = self.draw.index(self.config.pages);
        let mut host = self.host.borrow_mut();
        let word = host.words[page];
        if self.draw.once_in(2) {
            // Of a file that is small no more, mostly.
            let flags = word.flags().without(Flags::SMALL);
            let is_small = self.draw.once_in(4);
            host.words[page] =
                word.flagged(if is_small { flags.with(Flags::SMALL) } else { flags });
        } else if word.state().is_here() {
            host.words[page] = word.wanted(self.draw.below(3) as u16);
        }
        drop(host);
        let at = self.draw.index(self.holders.len());
        let mut host = self.host.borrow_mut();
        if !host.silent.remove(&node_of(at).number()) && self.draw.once_in(2) {
            host.silent.insert(node_of(at).number());
        }
        drop(host);
        if self.holders[at].alive && self.draw.once_in(2) {
            let desk = Desk::new(&self.holders[at].memory);
            let before = self.holders[at].memory.borrow().in_file();
            serve(&desk, &Request::Shed(page as u64)).expect("it lives");
            self.counts.shed += u64::from(before - self.holders[at].memory.borrow().in_file());
        }
        if self.draw.once_in(4) {
            let memory = self.holders[at].memory.borrow().clone();
            self.holders[at].copy = Some(memory);
        }
    }

    /// Something arrives.
    fn deliver(&mut self) {
        let due = self.links.due(self.now);
        if due.is_empty() {
            return;
        }
        let (at, there) = due[self.draw.index(due.len())];
        if !there {
            self.deliver_back(at);
            return;
        }
        let holder = self.links.all[at].holder;
        let other = due.iter().find(|(other, there)| {
            *there && *other != at && self.links.all[*other].holder == holder
        });
        let other = other.filter(|_| self.draw.once_in(3)).map(|(other, _)| *other);
        self.deliver_there(holder, at, other);
    }

    /// A frame arrives at a holder, and perhaps one of another connection while it is served.
    fn deliver_there(&mut self, at: usize, link: usize, other: Option<usize>) {
        let Some(frame) = self.accept(link) else { return };
        let other = other.and_then(|other| self.accept(other).map(|frame| (other, frame)));
        let flaw = self.host.borrow().flaw;
        let holder = &self.holders[at];
        let desk = Desk { flaw, ..Desk::new(&holder.memory) };
        desk.lives_for.set(holder.lives_for);
        if let Some((_, frame)) = &other {
            desk.other.replace(Some((self.draw.below(9) as u32, frame.request.clone())));
        }
        let mut answer = serve(&desk, &frame.request);
        let lives_for = desk.lives_for.get();
        let mut other_answer = desk.other_answer.take().map(Ok);
        if let Some((_, request)) = desk.other.take() {
            // It was served so fast that the other one comes behind it.
            other_answer = answer.is_ok().then(|| serve(&desk, &request));
        }
        if let Some(Err(Died)) = other_answer {
            answer = Err(Died);
        }
        if self.holders[at].lives_for != u32::MAX {
            self.holders[at].lives_for = lives_for;
        }
        let early = flaw == Some(Flaw::StoredEarly) && lives_for == 0;
        self.tell(|| format!("holder {at} answers {}: {answer:?}, {other:?}", frame.id));
        let died = answer.is_err() || early;
        if let Ok(answer) = answer {
            self.reply(link, &frame, answer);
        }
        let links = [Some(link), other.as_ref().map(|(other, _)| *other)];
        if let (Some((other, frame)), Some(Ok(answer))) = (other, other_answer) {
            self.reply(other, &frame, answer);
        }
        if died {
            self.fail_holder(at, links);
        }
    }

    /// Takes a frame from a connection, if its session is not an old one.
    fn accept(&mut self, at: usize) -> Option<Frame> {
        let link = &mut self.links.all[at];
        let (_, frame) = link.out.pop_front()?;
        let holder = &mut self.holders[link.holder];
        let newest = holder.sessions.entry((link.slot, link.life)).or_default();
        if link.session < *newest && self.host.borrow().flaw != Some(Flaw::OldSession) {
            self.counts.refused += 1;
            link.lose(&mut self.draw, self.now);
            return None;
        }
        *newest = link.session.max(*newest);
        Some(frame)
    }

    fn reply(&mut self, at: usize, frame: &Frame, answer: Answer) {
        let torn = self.draw.once_in(self.config.rates.torn);
        let due = self.now + self.delay();
        let link = &mut self.links.all[at];
        if link.learnt_at.is_none() && !link.left {
            let due = due.max(link.back.back().map_or(0, |(due, _)| *due));
            let reply = Reply { id: frame.id, thread: frame.thread, answer, torn };
            link.back.push_back((due, reply));
        }
    }

    fn deliver_back(&mut self, at: usize) {
        let slot = self.links.all[at].slot;
        let Some((_, reply)) = self.links.all[at].back.pop_front() else { return };
        self.links.all[at].asked.retain(|frame| frame.id != reply.id);
        let Reply { id, thread, answer, torn } = reply;
        self.tell(|| format!("{slot}.{thread} hears {id}: {answer:?} torn {torn}"));
        if slot == 0 {
            self.hear_node(thread, id, &answer, torn);
        } else {
            self.hear(slot, thread, id, &answer, torn);
        }
    }

    /// Processes learn that connections are lost. What has no answer is asked again, or given up.
    fn learn(&mut self) {
        let now = self.now;
        for at in 0..self.links.all.len() {
            let link = &mut self.links.all[at];
            let (slot, holder) = (link.slot, link.holder);
            let stopped = self.host.borrow().processes[slot].stopped;
            if stopped || link.learnt_at.is_none_or(|when| when > now) {
                continue;
            }
            (link.left, link.learnt_at) = (true, None);
            link.back.clear();
            let asked = std::mem::take(&mut link.asked);
            self.look_at(holder);
            for Frame { id, thread, request } in asked {
                let again = thread != usize::MAX && self.draw.once_in(2);
                if again && self.send_as(slot, thread, holder, request, Some(id)).is_some() {
                    self.counts.again += 1;
                } else if slot == 0 {
                    self.give_up_node(thread, id);
                } else {
                    self.give_up(slot, thread, id);
                }
            }
        }
        self.links.all.retain(|link| !link.is_over());
    }

    fn check(&self) -> Result<(), String> {
        for (at, holder) in self.holders.iter().enumerate() {
            if holder.alive {
                let memory = holder.memory.borrow();
                memory.check().map_err(|what| format!("holder {at}: {what}"))?;
            }
        }
        let host = self.host.borrow();
        for (at, holder) in self.holders.iter().enumerate().filter(|one| !one.1.forgotten) {
            for page in 0..self.config.pages as u64 {
                if let Some(kept) = holder.memory.borrow().kept(page) {
                    host.check_claim(node_of(at), page, kept)?;
                }
            }
        }
        host.check(|node, page| {
            let holder = &self.holders[super::threads::holder_of(node)];
            holder.memory.borrow().kept(page)
        })
    }

    fn come_to_rest(&mut self) -> Result<(), String> {
        self.calm = true;
        self.config.rates = Rates::default();
        for link in &mut self.links.all {
            if self.draw.once_in(2) {
                link.lose_late(self.now);
            }
        }
        self.links.cut.fill([0, 0]);
        for at in 0..self.holders.len() {
            let busy = |word: &Word| word.state() == State::Busy;
            let mut memory = self.holders[at].memory.borrow_mut();
            memory.tight = false;
            let left = memory.words.iter().any(busy) || memory.taken != memory.in_file();
            drop(memory);
            self.holders[at].lives_for = u32::MAX;
            let left = left && !self.holders[at].forgotten;
            // What it was at when an access failed, a page or room, it drops when it starts.
            if left {
                self.kill_holder(at);
            }
        }
        let mut host = self.host.borrow_mut();
        host.processes.iter_mut().for_each(|process| process.stopped = false);
        (host.tight, host.damaged) = (false, BTreeSet::new());
        host.recover_rooms();
        drop(host);
        // Claims of the dead have waited for the directory to be mended.
        self.node.to_settle = (0..self.config.pages as u64).collect();
        self.rest("when failures have ended")?;
        self.mended = true;
        self.check_rooms()?;
        for page in 0..self.config.pages as u64 {
            self.threads[1][0].begin(Wish::Load, page, Word(0));
            self.rest("when all pages are read")?;
        }
        let lives: Vec<u16> = self.host.borrow().processes.iter().map(|one| one.life).collect();
        self.links.hurry(self.now, |link| lives[link.slot] != link.life);
        self.rest("when the frames of the dead have come")?;
        self.connect_anew();
        self.rest("when all have connected anew")?;
        self.links.hurry(self.now, |_| true);
        self.rest("when the last frames of old sessions have come")?;
        self.check_rooms()?;
        self.check_vain()
    }

    fn connect_anew(&mut self) {
        let lives: Vec<u16> = self.host.borrow().processes.iter().map(|one| one.life).collect();
        for holder in 0..self.holders.len() {
            if self.holders[holder].forgotten {
                continue;
            }
            for (slot, life) in lives.iter().enumerate() {
                if let Some(link) = self.links.find(slot, *life, holder) {
                    link.left = true;
                }
                self.send(slot, usize::MAX, holder, Request::Release(Vec::new()));
            }
        }
        self.reconcile_all();
    }

    /// A holder is asked for what it keeps, unless it was removed.
    pub fn look_at(&mut self, holder: usize) {
        self.to_reconcile[holder] = !self.holders[holder].forgotten;
    }

    /// All holders are asked for what they keep.
    pub fn reconcile_all(&mut self) {
        for (asks, holder) in self.to_reconcile.iter_mut().zip(&self.holders) {
            *asks = !holder.forgotten;
        }
    }

    /// Runs until nothing is under way.
    fn rest(&mut self, when: &str) -> Result<(), String> {
        let end = self.now + CALM_TICKS;
        let resting = |thread: &Thread| matches!(thread.doing, Doing::Rest);
        while self.now < end {
            self.tick()?;
            let quiet = self.node_rests()
                && self.links.is_quiet(self.now)
                && self.links.all.iter().all(|link| link.learnt_at.is_none())
                && self.owed.iter().all(Vec::is_empty)
                && self.threads.iter().flatten().all(resting)
                && self.holders.iter().all(|holder| holder.alive || holder.forgotten)
                && self.host.borrow().processes.iter().all(|process| process.alive);
            if quiet {
                return Ok(());
            }
        }
        let busy: Vec<_> = self.threads.iter().flatten().filter(|one| !resting(one)).collect();
        let (node, owed, links) = (&self.node, &self.owed, &self.links.all);
        Err(format!("no rest {when}: {busy:?}, {node:?}, owed {owed:?}, links {links:?}"))
    }

    /// At rest: rooms that are taken are pages that are here.
    fn check_rooms(&self) -> Result<(), String> {
        let host = self.host.borrow();
        let claims =
            |word: &&Word| matches!(word.state(), State::Busy | State::Leaving | State::Kept);
        let claimed = host.words.iter().filter(claims).count();
        if host.taken != host.in_file() || claimed > 0 {
            let (taken, file) = (host.taken, host.in_file());
            return Err(format!("{taken} rooms for {file} pages; {claimed} claims"));
        }
        Ok(())
    }

    /// At the end: holders keep what the directory says, and nothing else.
    fn check_vain(&self) -> Result<(), String> {
        for (at, holder) in self.holders.iter().enumerate().filter(|one| !one.1.forgotten) {
            let memory = holder.memory.borrow();
            for page in 0..self.config.pages as u64 {
                let kept = memory.kept(page).map(|(version, _)| version);
                let place = self.host.borrow().place(page);
                let is_spare = memory.words[page as usize].state() == State::Spare;
                let is_right = |version: Version| match place {
                    Ok(Location::Held(owner, of, other)) if owner == here() => {
                        (other, of, is_spare) == (Some(node_of(at)), version.later(1), true)
                    }
                    Ok(Location::Held(owner, of, other)) => {
                        let is_named = owner == node_of(at) || other == Some(node_of(at));
                        (is_named, of, is_spare) == (true, version, false)
                    }
                    // A second holder's that did not answer; `domain repair` finds it.
                    Ok(Location::Lost(_, of)) => of == version,
                    _ => false,
                };
                let vain = kept.filter(|version| !is_right(*version));
                if vain.is_some() {
                    return Err(format!("holder {at} keeps {page} {kept:?} in vain: {place:?}"));
                }
                if memory.words[page as usize].state() == State::Busy {
                    return Err(format!("holder {at} is still at page {page}"));
                }
            }
            if memory.taken != memory.in_file() {
                let (taken, file) = (memory.taken, memory.in_file());
                return Err(format!("holder {at}: {taken} rooms for {file} pages"));
            }
        }
        Ok(())
    }
}
