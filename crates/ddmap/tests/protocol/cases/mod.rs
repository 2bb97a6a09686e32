//! Small cases for a model checker: one host, one holder or some, a page or two, two programs of
//! one thread each, and the node that evicts. All steps are taken in all orders. Each process may
//! die once behind any step; the node starts again, and ends what the dead were at. One answer may
//! be lost; what was sent may arrive at any time, also when its sender has given up or is dead.

mod list;

pub use list::cases;

use crate::protocol::messages::KeptPage;
use crate::protocol::{Discard, Eviction, Fault, Healed, Healing, Location, Mistake, Next, NodeId};
use crate::protocol::{Progress, Reconcile, State, Verdict, Version, Why, Word, holder, reconcile};
use crate::tests::protocol::memory::host::here;
use crate::tests::protocol::memory::serve;
use crate::tests::protocol::memory::{
    Answer, Bytes, Desk, HolderMemory, HostMemory, Process, Request, Seat, Work,
};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::cell::RefCell;

/// A program's access: the page, and what it stores there.
pub type Access = (u64, Option<Bytes>);

/// Stored to a page: nobody wants what it holds.
const NOTHING: Option<Bytes> = Some(Bytes::MAX);

/// Stored by a call of the kernel's, for which the page is held.
const BY_KERNEL: Bytes = Bytes::MAX - 1;

/// A small case.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: &'static str,
    pub pages: usize,
    /// What each program does.
    pub programs: Vec<Vec<Access>>,
    /// How many holders there are, and how many are to have each page.
    pub holders: usize,
    pub copies: usize,
    /// The node makes a second copy so often, or tries to.
    pub heals: u8,
    /// What the node evicts, batch by batch.
    pub evictions: Vec<Vec<u64>>,
    pub capacity: u32,
    /// Which processes may die: the node is 0.
    pub mortal: Vec<usize>,
    /// Answers that may be lost.
    pub losses: u8,
    /// The holder may die while it serves what it is sent, which is a loss.
    pub holder_dies: bool,
    /// Holders that may lose what they have, each once.
    pub memory_lost: &'static [usize],
    /// The node compares the holder's claims with the directory so often.
    pub looks: u8,
    /// The holder drops spares so often.
    pub sheds: u8,
    /// Stores to names may be late.
    pub late_names: bool,
    /// Made by the checker's threads.
    pub mistake: Option<Mistake>,
}

/// Where a program is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum At {
    Access,
    Fault(Fault<Bytes>),
    Asked(Fault<Bytes>),
    Discard(Discard),
    /// It waits for the word to change.
    Waits(Word),
    /// It waits for room.
    Room,
    /// The node has nothing to settle.
    Rest,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Program {
    at: At,
    /// Accesses that it has made.
    made: usize,
    holds: Holds,
}

/// What a program holds for a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Holds {
    Nothing,
    Page,
    /// The page, and it is open.
    Open,
}

/// Where the node's eviction is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Evicts {
    Rest,
    Runs(Eviction<Bytes>),
    /// It waits for the answer to this batch, of pages that are sent, or kept, by this holder.
    Sent(Eviction<Bytes>, (usize, bool), usize),
    Hears(Eviction<Bytes>, bool, usize, Vec<bool>),
}

/// Where the node is when it looks for what is kept in vain: at a claim, or nowhere.
type Looks = Option<(usize, KeptPage, Reconcile)>;

/// A page that is to lie with a second holder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Heals {
    Rest,
    /// It was sent to the second one.
    Sent(u64, Location, usize),
    Places(Healing, Version, usize),
}

/// What is under way to the holder, apart from what is asked for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Frame {
    /// A batch.
    Store(usize, Vec<(u64, u32, Bytes)>),
    /// A page that another holder has, too.
    Copy(u64, u32, Bytes),
    /// Of a batch.
    Keep(usize, Vec<(u64, u32)>),
    /// Page, version, whether that is a spare.
    Release(u64, u32, bool),
}

impl Frame {
    fn release(kept: KeptPage) -> Self {
        Self::Release(kept.page, kept.version.number(), kept.is_spare)
    }

    /// What the holder is asked, and of which batch, of pages that are sent or kept.
    fn request(self) -> (Request, Option<(usize, bool)>) {
        match self {
            Self::Release(page, version, is_spare) => {
                let kept = KeptPage { page, version: Version::new(version), is_spare };
                (Request::Release(vec![kept]), None)
            }
            Self::Copy(page, v, bytes) => {
                (Request::Store(vec![(page, Version::new(v), bytes)]), None)
            }
            Self::Keep(batch, pages) => {
                let pages = pages.into_iter().map(|(page, v)| (page, Version::new(v)));
                (Request::Keep(pages.collect()), Some((batch, true)))
            }
            Self::Store(batch, pages) => {
                let pages =
                    pages.into_iter().map(|(page, v, bytes)| (page, Version::new(v), bytes));
                (Request::Store(pages.collect()), Some((batch, false)))
            }
        }
    }
}

/// All there is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    host: HostMemory,
    holders: Vec<HolderMemory>,
    programs: Vec<Program>,
    evicts: Evicts,
    looks: Looks,
    heals: Heals,
    /// Copies that were tried.
    healed: u8,
    /// Batches that were begun, and looks.
    evictions: usize,
    looked: u8,
    shed: u8,
    /// To which holder, in ascending order: any may be next.
    wire: Vec<(usize, Frame)>,
    lost: u8,
    /// Holders that have lost what they had.
    memory_lost: Vec<usize>,
    /// Processes that have died.
    died: Vec<usize>,
}

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Program(usize),
    /// The holder's answer comes; or none does.
    Answer(usize),
    NoAnswer(usize),
    Evict,
    /// The node waits no longer for what it has sent.
    NoWord,
    /// It looks at what a holder keeps.
    Look(usize),
    Heal,
    /// A frame arrives.
    Arrives(usize),
    /// A frame arrives, and the holder dies behind so many accesses; it starts again at once.
    Half(usize, u32),
    /// A holder loses what it has.
    Forgets(usize),
    /// It drops a page, if that is a spare.
    Sheds(usize, u64),
    /// A store to a name is seen.
    Flush(usize),
    Dies(usize),
    /// The node starts again.
    Starts,
    /// It ends what a dead process was at.
    Settles(u64),
}

fn node_of(holder: usize) -> NodeId {
    NodeId::new(2 + holder as u16).unwrap()
}

fn holder_of(node: NodeId) -> usize {
    usize::from(node.number()) - 2
}

impl World {
    fn runs(&self, slot: usize) -> bool {
        self.host.processes[slot].alive
    }

    fn check(&self) -> Result<(), String> {
        for (at, holder) in self.holders.iter().enumerate() {
            for page in 0..self.host.words.len() as u64 {
                if let Some(kept) = holder.kept(page) {
                    self.host.check_claim(node_of(at), page, kept)?;
                }
            }
            holder.check()?;
        }
        self.host.check(|node, page| self.holders[holder_of(node)].kept(page))
    }

    /// Does something at the host's memory.
    fn with<R>(&mut self, slot: usize, act: impl FnOnce(&Seat<'_>) -> R) -> R {
        let nothing = HostMemory::new(0, Version::default(), 0, Vec::new());
        let memory = RefCell::new(std::mem::replace(&mut self.host, nothing));
        let result = act(&Seat::new(&memory, slot, 0));
        self.host = memory.into_inner();
        result
    }

    /// The holder serves a request.
    fn serve(&mut self, at: usize, request: &Request) -> Option<Answer> {
        let memory = RefCell::new(self.holders[at].clone());
        let answer = serve(&Desk::new(&memory), request).ok();
        self.holders[at] = memory.into_inner();
        answer
    }

    fn send(&mut self, to: NodeId, frame: Frame) {
        self.wire.push((holder_of(to), frame));
        self.wire.sort();
    }

    /// A program (or the node that settles, which is the last one) takes a step.
    fn step_program(&mut self, case: &Case, at: usize) {
        let slot = self.slot(at);
        let made = self.programs[at].made;
        match self.programs[at].at.clone() {
            At::Access => {
                let (page, store) = case.programs[at][made];
                if store == NOTHING {
                    let word = self.host.words[page as usize];
                    self.programs[at].at = At::Discard(Discard::new([(page, word)]));
                } else if store == Some(BY_KERNEL) && self.programs[at].holds == Holds::Nothing {
                    self.host.processes[slot].hold(0, Some(page));
                    self.programs[at].holds = Holds::Page;
                    self.programs[at].at = At::Fault(Fault::new(page, true));
                } else if self.host.access(slot, page, store) {
                    self.host.processes[slot].hold(0, None);
                    self.programs[at].holds = Holds::Nothing;
                    self.programs[at].made += 1;
                } else {
                    if self.programs[at].holds == Holds::Open {
                        self.host.wrong(format!("the kernel cannot store to page {page}"));
                    }
                    self.programs[at].at = At::Fault(Fault::new(page, store.is_some()));
                }
            }
            At::Discard(mut discard) => {
                let is_over = self.with(slot, |seat| {
                    discard.step(&Seat { work: Work::Discard, ..Seat::new(seat.memory, slot, 0) })
                });
                self.programs[at].at = if is_over {
                    for (page, to, version) in discard.owed() {
                        self.send(to, Frame::release(KeptPage::new(page, version)));
                    }
                    self.programs[at].made += 1;
                    At::Access
                } else {
                    At::Discard(discard)
                };
            }
            At::Fault(mut fault) => {
                let page = fault.page();
                let next = self.with(slot, |seat| fault.step(seat));
                let settles = slot == 0;
                let retry = if settles { At::Rest } else { At::Access };
                self.programs[at].at = match next {
                    Next::Step => At::Fault(fault),
                    Next::Ask(..) => At::Asked(fault),
                    Next::Done(owed) => {
                        for owed in owed.into_iter().flatten() {
                            self.send(owed.to, Frame::release(owed.kept));
                        }
                        if self.programs[at].holds == Holds::Page {
                            self.programs[at].holds = Holds::Open;
                        }
                        retry
                    }
                    Next::Again => retry,
                    Next::Wait(_) | Next::Room if settles => At::Rest,
                    Next::Wait(word) => At::Waits(word),
                    Next::Room => At::Room,
                    Next::Fail(Why::Lost) if !self.memory_lost.is_empty() => {
                        self.programs[at].made += usize::from(!settles);
                        retry
                    }
                    Next::Fail(why) => {
                        self.host.wrong(format!("page {page} fails: {why:?}"));
                        At::Rest
                    }
                };
            }
            At::Waits(_) | At::Room => self.programs[at].at = At::Access,
            At::Asked(..) | At::Rest => {}
        }
    }

    fn slot(&self, program: usize) -> usize {
        if program + 1 == self.programs.len() { 0 } else { program + 1 }
    }

    /// The holder answers a program, or does not.
    fn answer(&mut self, program: usize, comes: bool) {
        let At::Asked(mut fault) = self.programs[program].at.clone() else { return };
        let Some((owner, version)) = fault.asks() else { return };
        let page = fault.page();
        let answer = if comes {
            self.serve(holder_of(owner), &Request::Fetch { page, version, releases: Vec::new() })
        } else {
            self.lost += 1;
            None
        };
        match answer {
            Some(Answer::Fetched(Some(bytes))) => fault.answered(bytes),
            Some(_) => fault.refused(),
            None => fault.unanswered(),
        }
        self.programs[program].at = At::Fault(fault);
    }

    fn step_eviction(&mut self, case: &Case) {
        let evicts = std::mem::replace(&mut self.evicts, Evicts::Rest);
        self.evicts = match evicts {
            Evicts::Rest => {
                let seen = |page: &u64| (*page, self.host.words[*page as usize]);
                let pages: Vec<_> = case.evictions[self.evictions].iter().map(seen).collect();
                self.evictions += 1;
                let all: Vec<_> = (0..case.holders).map(node_of).collect();
                Evicts::Runs(Eviction::new(&all[..case.copies], &all, pages))
            }
            Evicts::Runs(mut eviction) => match self.with(0, |seat| eviction.step(seat)) {
                Progress::Step => Evicts::Runs(eviction),
                Progress::Done { .. } => Evicts::Rest,
                Progress::Keep(at) => {
                    let pages = eviction.clean(at).map(|(page, v)| (page, v.number())).collect();
                    self.send(at, Frame::Keep(self.evictions, pages));
                    Evicts::Sent(eviction, (self.evictions, true), holder_of(at))
                }
                Progress::Send(to) => {
                    let pages =
                        eviction.outgoing(to).map(|(page, v, bytes)| (page, v.number(), *bytes));
                    let frame = Frame::Store(self.evictions, pages.collect());
                    self.send(to, frame);
                    Evicts::Sent(eviction, (self.evictions, false), holder_of(to))
                }
            },
            Evicts::Hears(mut eviction, keeps, at, stored) => {
                if keeps {
                    eviction.kept(node_of(at), Some(&stored));
                } else {
                    eviction.answered(node_of(at), stored);
                }
                Evicts::Runs(eviction)
            }
            sent @ Evicts::Sent(..) => sent,
        };
    }

    fn step_look(&mut self, at: usize) {
        match self.looks {
            None => {
                self.looked += 1;
                if let Some(claim) = self.holders[at].claims().first() {
                    self.looks = Some((at, *claim, reconcile(*claim)));
                }
            }
            Some((at, claim, mut machine)) => {
                let verdict = self.with(0, |seat| machine.step(node_of(at), seat));
                self.looks = match verdict {
                    None => Some((at, claim, machine)),
                    Some(verdict) => {
                        if matches!(verdict, Verdict::InVain | Verdict::Spare) {
                            let is_spare = verdict == Verdict::Spare;
                            let frame = Frame::release(KeptPage { is_spare, ..claim });
                            self.send(node_of(at), frame);
                        }
                        None
                    }
                };
            }
        }
    }

    /// The node makes a second copy: what it asks for comes at once.
    fn step_heal(&mut self) {
        match self.heals {
            Heals::Rest => {
                self.healed += 1;
                for page in 0..self.host.words.len() as u64 {
                    let Ok(seen @ Location::Held(from, version, None)) = self.host.place(page)
                    else {
                        continue;
                    };
                    if from == here() {
                        continue;
                    }
                    let third = (holder_of(from) + 1) % self.holders.len();
                    let request = Request::Fetch { page, version, releases: Vec::new() };
                    if let Some(Answer::Fetched(Some(bytes))) =
                        self.serve(holder_of(from), &request)
                    {
                        self.send(node_of(third), Frame::Copy(page, version.number(), bytes));
                        self.heals = Heals::Sent(page, seen, third);
                        return;
                    }
                }
            }
            Heals::Sent(..) => {}
            Heals::Places(mut machine, version, third) => {
                let healed = self.with(0, |seat| {
                    machine.step(&Seat { work: Work::Heal, ..Seat::new(seat.memory, 0, 0) })
                });
                self.heals = match healed {
                    Healed::Step => Heals::Places(machine, version, third),
                    Healed::Moved => {
                        let kept = KeptPage::new(machine.page(), version);
                        self.send(node_of(third), Frame::release(kept));
                        Heals::Rest
                    }
                    Healed::Placed | Healed::Stays => Heals::Rest,
                };
            }
        }
    }

    fn arrives(&mut self, at: usize) {
        let (to, frame) = self.wire.remove(at);
        let copied = if let Frame::Copy(page, v, _) = frame { Some((page, v)) } else { None };
        let (request, batch) = frame.request();
        let answer = self.serve(to, &request);
        let Some(Answer::Stored(stored)) = answer else { return };
        if let (Heals::Sent(page, seen, third), Some(copied)) = (self.heals, copied)
            && (third, page, seen.version().number()) == (to, copied.0, copied.1)
        {
            let Location::Held(from, version, _) = seen else { return };
            let two = Location::Held(from, version, Some(node_of(third)));
            self.heals = if stored[0] {
                Heals::Places(Healing::new(page, seen, two), version, third)
            } else {
                Heals::Rest
            };
        }
        if let Evicts::Sent(eviction, sent, at) = &self.evicts
            && (Some(*sent), *at) == (batch, to)
        {
            self.evicts = Evicts::Hears(eviction.clone(), sent.1, to, stored);
        }
    }

    /// The node waits no longer for what it has sent.
    fn unanswered(&mut self) {
        if let Evicts::Sent(eviction, (_, keeps), at) = &mut self.evicts {
            if *keeps {
                eviction.kept(node_of(*at), None);
            } else {
                eviction.unanswered(node_of(*at));
            }
            self.evicts = Evicts::Runs(eviction.clone());
        }
    }

    /// The holder's process dies while it serves a frame, and starts again: so there is no answer.
    fn arrives_half(&mut self, at: usize, accesses: u32) {
        let (to, frame) = self.wire.remove(at);
        let (request, _) = frame.request();
        let memory = RefCell::new(self.holders[to].clone());
        let desk = Desk::new(&memory);
        desk.lives_for.set(accesses);
        // Whether it dies in the midst of it, or behind it before it answers.
        let _ = serve(&desk, &request);
        desk.lives_for.set(u32::MAX);
        let pages = 0..self.host.words.len() as u64;
        holder::restart(&desk, pages).expect("it does not die again");
        self.holders[to] = memory.into_inner();
        let has = |word: &&Word| word.state() != State::Absent;
        let taken = self.holders[to].words.iter().filter(has).count() as u32;
        self.holders[to].taken = taken;
        self.lost += 1;
        self.unanswered();
    }

    /// A holder loses what it has.
    fn forgets(&mut self, at: usize) {
        for KeptPage { page, version, .. } in self.holders[at].claims() {
            self.host.gone.insert((node_of(at).number(), page, version.number()));
        }
        let pages = self.host.words.len();
        self.holders[at] = HolderMemory::new(pages, pages as u32);
        self.memory_lost.push(at);
        self.memory_lost.sort_unstable();
    }

    fn dies(&mut self, slot: usize) {
        self.host.die(slot);
        self.died.push(slot);
        self.died.sort_unstable();
        if slot == 0 {
            // Its names are cleared when it starts again.
            (self.evicts, self.looks, self.heals) = (Evicts::Rest, None, Heals::Rest);
            if let Some(settles) = self.programs.last_mut() {
                settles.at = At::Rest;
            }
        } else {
            self.host.processes[slot].bury();
        }
    }
}

impl Case {
    fn thread_steps(&self, world: &World, at: usize, steps: &mut Vec<Step>) {
        let (slot, program) = (world.slot(at), &world.programs[at]);
        if !world.runs(slot) {
            return;
        }
        let settles = slot == 0;
        match &program.at {
            At::Access if settles || program.made == self.programs[at].len() => {}
            At::Room if self.has_no_room(world, at) => {}
            At::Access | At::Fault(_) | At::Discard(_) | At::Room => {
                steps.push(Step::Program(at));
            }
            At::Asked(..) => {
                steps.push(Step::Answer(at));
                if world.lost < self.losses {
                    steps.push(Step::NoAnswer(at));
                }
            }
            At::Waits(word) => {
                // Whoever waits for one that dies looks again after a while.
                let dead = world.host.is_dead(word.claimant());
                let pages = || world.host.words.iter();
                if dead || !pages().any(|now| now == word) {
                    steps.push(Step::Program(at));
                }
            }
            At::Rest => {}
        }
    }

    fn node_steps(&self, world: &World, steps: &mut Vec<Step>) {
        if !world.runs(0) {
            steps.push(Step::Starts);
            return;
        }
        match &world.evicts {
            Evicts::Rest if world.evictions == self.evictions.len() => {}
            Evicts::Sent(..) if world.lost == self.losses => {}
            Evicts::Sent(..) => steps.push(Step::NoWord),
            _ => steps.push(Step::Evict),
        }
        if let Some((at, ..)) = world.looks {
            steps.push(Step::Look(at));
        } else if world.looked < self.looks {
            steps.extend((0..self.holders).map(Step::Look));
        }
        match world.heals {
            Heals::Rest if world.healed == self.heals => {}
            Heals::Sent(..) if world.lost == self.losses => {}
            _ => steps.push(Step::Heal),
        }
        let settles = world.programs.last().is_some_and(|program| program.at == At::Rest);
        for (page, word) in world.host.words.iter().enumerate().filter(|_| settles) {
            let claimed = matches!(word.state(), State::Busy | State::Leaving);
            if claimed && world.host.is_dead(word.claimant()) {
                steps.push(Step::Settles(page as u64));
            }
        }
    }

    /// Whether a program has no reason to look for room again.
    fn has_no_room(&self, world: &World, at: usize) -> bool {
        let (page, _) = self.programs[at][world.programs[at].made];
        let absent = world.host.words[page as usize].state() == State::Absent;
        absent && world.host.taken == world.host.capacity as i32
    }

    /// Whether all that was to be done is done, but for what there is no room for.
    fn is_done(&self, world: &World) -> bool {
        let programs = self.programs.iter().zip(&world.programs).enumerate();
        let mut programs = programs.filter(|(at, _)| world.runs(at + 1));
        let done = |(at, (all, program)): (usize, (&Vec<Access>, &Program))| {
            program.made == all.len() || program.at == At::Room && self.has_no_room(world, at)
        };
        programs.all(done)
            && world.runs(0)
            && world
                .host
                .words
                .iter()
                .all(|word| !matches!(word.state(), State::Busy | State::Leaving))
            && world.host.taken == world.host.in_file() + world.host.leaked
    }
}

impl Model for Case {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let processes = 1 + self.programs.len();
        let processes = (0..processes).map(|_| Process::new(1, self.pages)).collect();
        let mut programs =
            vec![Program { at: At::Access, made: 0, holds: Holds::Nothing }; self.programs.len()];
        programs.push(Program { at: At::Rest, made: 0, holds: Holds::Nothing });
        vec![World {
            host: HostMemory::new(self.pages, Version::default(), self.capacity, processes),
            holders: vec![HolderMemory::new(self.pages, self.pages as u32); self.holders],
            programs,
            evicts: Evicts::Rest,
            looks: None,
            heals: Heals::Rest,
            healed: 0,
            evictions: 0,
            looked: 0,
            shed: 0,
            wire: Vec::new(),
            lost: 0,
            memory_lost: Vec::new(),
            died: Vec::new(),
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        (0..world.programs.len()).for_each(|at| self.thread_steps(world, at, steps));
        self.node_steps(world, steps);
        for at in 0..world.wire.len() {
            steps.push(Step::Arrives(at));
            if self.holder_dies && world.lost < self.losses {
                steps.extend((1..8).map(|accesses| Step::Half(at, accesses)));
            }
        }
        let lost = self.memory_lost.iter().filter(|at| !world.memory_lost.contains(at));
        steps.extend(lost.copied().map(Step::Forgets));
        let may_go = |kept: &KeptPage| {
            world.shed < self.sheds
                && (kept.is_spare || self.mistake == Some(Mistake::DroppedUntold))
        };
        for (at, holder) in world.holders.iter().enumerate() {
            let kept = holder.claims().into_iter();
            steps.extend(kept.filter(may_go).map(|kept| Step::Sheds(at, kept.page)));
        }
        for slot in 0..=self.programs.len() {
            if self.late_names && world.host.processes[slot].has_late_names() {
                steps.push(Step::Flush(slot));
            }
            let mortal = self.mortal.contains(&slot) && !world.died.contains(&slot);
            if mortal && world.runs(slot) {
                steps.push(Step::Dies(slot));
            }
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        crate::protocol::make(self.mistake);
        let mut world = world.clone();
        match step {
            Step::Program(at) => world.step_program(self, at),
            Step::Answer(at) => world.answer(at, true),
            Step::NoAnswer(at) => world.answer(at, false),
            Step::Evict => world.step_eviction(self),
            Step::NoWord => {
                world.lost += 1;
                world.unanswered();
            }
            Step::Look(at) => world.step_look(at),
            Step::Heal if matches!(world.heals, Heals::Sent(..)) => {
                // It waits no longer.
                world.lost += 1;
                world.heals = Heals::Rest;
            }
            Step::Heal => world.step_heal(),
            Step::Arrives(at) => world.arrives(at),
            Step::Half(at, accesses) => world.arrives_half(at, accesses),
            Step::Forgets(at) => world.forgets(at),
            Step::Sheds(at, page) => {
                world.serve(at, &Request::Shed(page));
                world.shed += 1;
            }
            Step::Flush(slot) => {
                world.host.processes[slot].flush_one(0);
            }
            Step::Dies(slot) => world.dies(slot),
            Step::Starts => {
                world.host.processes[0].bury();
                world.host.processes[0].rise();
            }
            Step::Settles(page) => {
                if let Some(settles) = world.programs.last_mut() {
                    settles.at = At::Fault(Fault::new(page, false));
                }
            }
        }
        if !self.late_names {
            (0..=self.programs.len()).for_each(|slot| world.host.processes[slot].flush_all());
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("pages are where they are said to be", |_, world: &World| {
                world.check().is_ok()
            }),
            Property::always("nothing is stuck", |case: &Self, world: &World| {
                let mut steps = Vec::new();
                case.actions(world, &mut steps);
                !steps.is_empty() || case.is_done(world)
            }),
            Property::sometimes("a page comes back", |_, world: &World| {
                world.wire.iter().any(|frame| matches!(frame, (_, Frame::Release(..))))
            }),
        ]
    }
}

/// What checking a case came to.
pub struct Checked {
    pub states: usize,
    /// Which property does not hold, and the steps that lead there.
    pub wrong: Option<String>,
}

/// Goes through the states of a case: all of them, or so many, those first that few steps lead to.
pub fn check(case: &Case, most: Option<usize>) -> Checked {
    let checker = case.clone().checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = match most {
        Some(most) => checker.target_state_count(most),
        None => checker,
    };
    let checker = checker.spawn_bfs().join();
    let states = checker.unique_state_count();
    let mut wrong = None;
    for (name, path) in checker.discoveries() {
        if name == "a page comes back" {
            continue;
        }
        let last = path.last_state();
        let how = last.check().err().unwrap_or_default();
        let steps: Vec<_> = path.into_actions().iter().map(|step| format!("{step:?}")).collect();
        wrong = Some(format!("{name}: {how}\n{}", steps.join("\n")));
    }
    let came_back = checker.discovery("a page comes back").is_some();
    if wrong.is_none() && !came_back && most.is_none() {
        wrong = Some("no page ever comes back: the case shows nothing".into());
    }
    Checked { states, wrong }
}
