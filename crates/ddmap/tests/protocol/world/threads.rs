//! Threads of programs: an access that the page table does not allow becomes a [`Fault`], which is
//! run to its end; then the access is tried again.

use super::links::Frame;
use super::run::World;
use crate::protocol::messages::KeptPage;
use crate::protocol::{Discard, Fault, Location, Next, NodeId, Owed, State, Version, Why, Word};
use crate::tests::protocol::memory::{Answer, Bytes, Flaw, Request, Seat, Work};

/// What a thread is to do with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    Load,
    Store,
    /// Nobody wants what it holds.
    Discard,
    /// A store to all of it, which takes a lost page as fresh.
    Renew,
    /// A call of the kernel's stores to it: what traps then is lost.
    Call,
    /// Of the node: ends what a dead process was at; or brings a page, which is to move.
    Settle,
    Bring,
}

/// What it does.
#[derive(Clone, Debug)]
pub enum Doing {
    Rest,
    Access,
    /// A page is to be held for a call, or was opened before it is.
    Hold {
        is_open: bool,
    },
    Fault(Fault<Bytes>),
    Discard(Discard),
    /// It waits for the answer to a request.
    Asked {
        fault: Fault<Bytes>,
        id: u64,
    },
    /// It waits until the word has changed, or for a while.
    Waits(Word),
    /// It waits for room.
    Room,
}

/// A thread.
#[derive(Clone, Debug)]
pub struct Thread {
    pub wish: Wish,
    pub page: u64,
    pub doing: Doing,
}

impl Thread {
    pub fn new() -> Self {
        Self { wish: Wish::Load, page: 0, doing: Doing::Rest }
    }

    /// It begins to do something with a page, whose word was seen so.
    pub fn begin(&mut self, wish: Wish, page: u64, word: Word) {
        let doing = match wish {
            Wish::Settle | Wish::Bring => fault(wish, page),
            Wish::Call => Doing::Hold { is_open: false },
            Wish::Discard => Doing::Discard(Discard::new([(page, word)])),
            Wish::Renew => Doing::Discard(Discard::of_lost(page, word)),
            Wish::Load | Wish::Store => Doing::Access,
        };
        *self = Self { wish, page, doing };
    }
}

fn fault(wish: Wish, page: u64) -> Doing {
    let stores = matches!(wish, Wish::Store | Wish::Renew | Wish::Call | Wish::Bring);
    Doing::Fault(Fault::new(page, stores))
}

impl World {
    /// A thread takes a step. `false`: it has none.
    pub fn step_thread(&mut self, slot: usize, thread: usize) -> bool {
        let Thread { wish, page, doing } = self.threads[slot][thread].clone();
        let next = match doing {
            Doing::Rest => return false,
            Doing::Access => self.access(slot, thread, wish, page),
            Doing::Hold { is_open } => self.hold((slot, thread), page, is_open),
            Doing::Fault(machine) => self.step_fault(slot, thread, wish, machine),
            Doing::Discard(machine) => self.step_discard(slot, thread, wish, machine),
            Doing::Asked { mut fault, id } => {
                if !self.draw.once_in(self.config.rates.timeout) {
                    return false;
                }
                self.tell(|| format!("{slot}.{thread} waits for answer {id} no longer"));
                fault.unanswered();
                Doing::Fault(fault)
            }
            Doing::Waits(word) => {
                if self.host.borrow().words[page as usize] == word && !self.draw.once_in(40) {
                    return false;
                }
                retry(wish, page)
            }
            Doing::Room => {
                self.wants_room = true;
                if !self.draw.once_in(20) {
                    return false;
                }
                retry(wish, page)
            }
        };
        if matches!(next, Doing::Rest) && wish == Wish::Call {
            self.host.borrow_mut().processes[slot].hold(thread, None);
        }
        self.threads[slot][thread].doing = next;
        true
    }

    /// Holds a page for a call, first of all, or when it is open.
    fn hold(&mut self, (slot, thread): (usize, usize), page: u64, is_open: bool) -> Doing {
        if is_open || !self.has(Flaw::OpenedBeforeHold) {
            self.host.borrow_mut().processes[slot].hold(thread, Some(page));
        }
        if is_open { Doing::Access } else { fault(Wish::Call, page) }
    }

    fn access(&mut self, slot: usize, thread: usize, wish: Wish, page: u64) -> Doing {
        let zeros = self.draw.once_in(self.config.zeros);
        let store = matches!(wish, Wish::Store | Wish::Renew | Wish::Call).then(|| {
            self.values += 1;
            if zeros { 0 } else { self.values }
        });
        if !self.host.borrow_mut().access(slot, page, store) {
            if wish == Wish::Call {
                self.wrong(format!("{slot}.{thread}: the kernel cannot store to page {page}"));
            }
            return fault(wish, page);
        }
        self.counts.calls += u64::from(wish == Wish::Call);
        self.counts.accesses += 1;
        self.tell(|| format!("{slot} {page}: {store:?} done"));
        Doing::Rest
    }

    fn step_discard(
        &mut self,
        slot: usize,
        thread: usize,
        wish: Wish,
        mut discard: Discard,
    ) -> Doing {
        let work = if wish == Wish::Renew { Work::Renew } else { Work::Discard };
        let seat = Seat { work, ..Seat::new(&self.host, slot, thread) };
        let is_over = discard.step(&seat);
        self.tell(|| format!("{slot}.{thread} {discard:?}"));
        if !is_over {
            return Doing::Discard(discard);
        }
        self.counts.discarded += 1;
        let owed = discard.owed();
        let owed = owed.map(|(page, to, version)| Owed { to, kept: KeptPage::new(page, version) });
        self.owed[slot].extend(owed);
        if wish == Wish::Renew { Doing::Access } else { Doing::Rest }
    }

    fn step_fault(&mut self, slot: usize, at: usize, wish: Wish, mut fault: Fault<Bytes>) -> Doing {
        let page = fault.page();
        let next = fault.step(&Seat::new(&self.host, slot, at));
        self.tell(|| format!("{slot}.{at} {fault:?} -> {next:?}"));
        match next {
            Next::Step => Doing::Fault(fault),
            Next::Done(owed) => {
                self.counts.fetched += u64::from(owed[0].is_some());
                self.counts.of_two += u64::from(owed[1].is_some());
                self.owed[slot].extend(owed.into_iter().flatten());
                match wish {
                    Wish::Settle | Wish::Bring => Doing::Rest,
                    Wish::Call if self.has(Flaw::OpenedBeforeHold) => Doing::Hold { is_open: true },
                    _ => Doing::Access,
                }
            }
            Next::Wait(_) | Next::Room if matches!(wish, Wish::Settle | Wish::Bring) => {
                self.wants_room |= next == Next::Room && wish == Wish::Bring;
                Doing::Rest
            }
            Next::Wait(word) => {
                let state = word.state();
                if !matches!(state, State::Busy | State::Leaving) {
                    self.wrong(format!("{slot} waits for {state:?}"));
                }
                Doing::Waits(word)
            }
            Next::Room => Doing::Room,
            Next::Ask(owner, version) => self.ask(slot, at, fault, owner, version),
            Next::Again => retry(wish, page),
            Next::Fail(Why::Lost) => {
                self.counts.lost += 1;
                let word = self.host.borrow().words[page as usize];
                if wish == Wish::Renew {
                    self.counts.renewed += 1;
                    return Doing::Discard(Discard::of_lost(page, word));
                }
                let place = self.host.borrow().place(page);
                // Another thread may have made it void meanwhile.
                if word.state() == State::Lost && !matches!(place, Ok(Location::Lost(..))) {
                    self.wrong(format!("page {page} is called lost, and is at {place:?}"));
                }
                Doing::Rest
            }
            Next::Fail(Why::Damaged) => {
                self.counts.damaged += 1;
                if self.mended {
                    self.wrong(format!("page {page} is called damaged"));
                }
                Doing::Rest
            }
        }
    }

    /// Asks a page's owner for it. Some of what is owed to it goes along.
    fn ask(
        &mut self,
        slot: usize,
        thread: usize,
        mut fault: Fault<Bytes>,
        owner: NodeId,
        version: Version,
    ) -> Doing {
        let holder = holder_of(owner);
        if self.holders[holder].forgotten {
            fault.refused();
            return Doing::Fault(fault);
        }
        let releases = if self.draw.once_in(2) { self.take_owed(slot, holder) } else { Vec::new() };
        let request = Request::Fetch { page: fault.page(), version, releases };
        if let Some(id) = self.send(slot, thread, holder, request) {
            return Doing::Asked { fault, id };
        }
        fault.unanswered();
        Doing::Fault(fault)
    }

    /// What a process owes to a holder.
    pub fn take_owed(&mut self, slot: usize, holder: usize) -> Vec<KeptPage> {
        let is_its = |owed: &Owed| holder_of(owed.to) == holder;
        self.owed[slot].extract_if(.., |owed| is_its(owed)).map(|owed| owed.kept).collect()
    }

    /// A process sends some of what it owes. `false`: it owes nothing.
    pub fn send_owed(&mut self, slot: usize) -> bool {
        let Some(first) = self.owed[slot].first() else { return false };
        let holder = holder_of(first.to);
        let releases = self.take_owed(slot, holder);
        self.send(slot, usize::MAX, holder, Request::Release(releases));
        true
    }

    /// Sends a request; its number. `None`: the holder cannot be reached.
    pub fn send(
        &mut self,
        slot: usize,
        thread: usize,
        holder: usize,
        request: Request,
    ) -> Option<u64> {
        self.send_as(slot, thread, holder, request, None)
    }

    /// Sends a request, perhaps once more.
    pub fn send_as(
        &mut self,
        slot: usize,
        thread: usize,
        holder: usize,
        request: Request,
        again: Option<u64>,
    ) -> Option<u64> {
        let life = self.host.borrow().processes[slot].life;
        if self.holders[holder].forgotten {
            return None;
        }
        if self.links.find(slot, life, holder).is_none() {
            let there = &self.holders[holder];
            if !there.alive || self.links.cut[holder].iter().any(|until| *until > self.now) {
                return None;
            }
            self.links.connect(slot, life, holder);
            self.look_at(holder);
        }
        let id = again.unwrap_or_else(|| self.links.id());
        self.tell(|| format!("{slot} to holder {holder}, {id}: {request:?}"));
        let due = self.now + self.delay();
        let link = self.links.find(slot, life, holder)?;
        let frame = Frame { id, thread, request };
        link.asked.push(frame.clone());
        if link.learnt_at.is_none() {
            let due = due.max(link.out.back().map_or(0, |(due, _)| *due));
            link.out.push_back((due, frame));
        }
        Some(id)
    }

    /// How long a frame takes.
    pub fn delay(&mut self) -> u64 {
        let longest =
            if self.draw.once_in(20) { 20 * self.config.delay } else { self.config.delay };
        self.draw.between(1, longest)
    }

    /// An answer has come for a thread of a program, or of the node that settles.
    pub fn hear(&mut self, slot: usize, thread: usize, id: u64, answer: &Answer, torn: bool) {
        let any = self.has(Flaw::UnaskedAnswer);
        let Some(Thread { doing, page, .. }) = self.threads[slot].get_mut(thread) else { return };
        let Doing::Asked { fault, id: asked } = doing else { return };
        if *asked != id && !any {
            return;
        }
        let (mut fault, page) = (fault.clone(), *page);
        let Answer::Fetched(found) = answer else { return };
        match found {
            _ if torn && !self.has(Flaw::TornAnswer) => fault.unanswered(),
            Some(bytes) => fault.answered(if torn { bytes ^ 1 << 31 } else { *bytes }),
            None => fault.refused(),
        }
        self.threads[slot][thread].doing = Doing::Fault(fault);
        if self.has(Flaw::ReleasedEarly) && found.is_some() {
            let place = self.host.borrow().place(page);
            if let Ok(Location::Held(to, version, _)) = place {
                self.owed[slot].push(Owed { to, kept: KeptPage::new(page, version) });
            }
        }
    }

    /// A request will not be answered.
    pub fn give_up(&mut self, slot: usize, thread: usize, id: u64) {
        let Some(Thread { doing, .. }) = self.threads[slot].get_mut(thread) else { return };
        if let Doing::Asked { fault, id: asked } = doing
            && *asked == id
        {
            let mut fault = fault.clone();
            fault.unanswered();
            *doing = Doing::Fault(fault);
        }
    }
}

/// The holder of a node's number, which is 2 and more.
pub fn holder_of(node: NodeId) -> usize {
    usize::from(node.number()) - 2
}

/// The node's number of a holder.
pub fn node_of(holder: usize) -> NodeId {
    NodeId::new(holder as u16 + 2).unwrap()
}

/// The access is made again. The node does not insist.
fn retry(wish: Wish, page: u64) -> Doing {
    match wish {
        Wish::Settle | Wish::Bring => Doing::Rest,
        Wish::Call => fault(wish, page),
        _ => Doing::Access,
    }
}
