//! A host's memory: node table, directory, page file, names, and each process's page table; with
//! the newest value of each page beside it, and what must hold at all times.
//!
//! Names are plain stores, so each thread has a store buffer (x86-TSO), which empties in order: at
//! any time, at a locked instruction of the thread, and when somebody *meets*. Other stores are
//! locked instructions or system calls, and seen at once.

use super::{Bytes, Flaw};
use crate::protocol::{
    Claimant, DamagedPlace, Flags, Host, Installed, Location, NodeId, Shown, State, Version, Word,
};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// What a process's page table allows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Access {
    None,
    Read,
    Write,
}

/// A process of the host. Its slot is its place in the list.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Process {
    pub life: u16,
    pub alive: bool,
    pub stopped: bool,
    /// Rooms that it has taken for no page yet, or that it is about to give back.
    in_hand: i32,
    /// The same of its discards, which claim pages that are absent without room: less than 0 then.
    of_discards: i32,
    /// Of each thread: the page that it has named, as others see it.
    names: Vec<Option<u64>>,
    /// Of each thread: what it has stored there, and others do not see.
    buffers: Vec<Vec<Option<u64>>>,
    /// Of each thread: the page that a call of the kernel's is to find.
    holds: Vec<Option<u64>>,
    /// Of each page.
    pub view: Vec<Access>,
}

impl Process {
    /// A process with so many threads.
    pub fn new(threads: usize, pages: usize) -> Self {
        Self {
            life: 1,
            alive: true,
            stopped: false,
            in_hand: 0,
            of_discards: 0,
            names: vec![None; threads],
            buffers: vec![Vec::new(); threads],
            holds: vec![None; threads],
            view: vec![Access::None; pages],
        }
    }

    /// The oldest store that others do not see is seen.
    pub fn flush_one(&mut self, thread: usize) -> bool {
        let some = !self.buffers[thread].is_empty();
        if some {
            self.names[thread] = self.buffers[thread].remove(0);
        }
        some
    }

    /// Whether others do not see all that it has named.
    pub fn has_late_names(&self) -> bool {
        self.buffers.iter().any(|buffer| !buffer.is_empty())
    }

    /// All that it has named is seen.
    pub fn flush_all(&mut self) {
        (0..self.names.len()).for_each(|thread| self.flush(thread));
    }

    fn flush(&mut self, thread: usize) {
        while self.flush_one(thread) {}
    }

    /// A thread holds a page for a call of the kernel's, or holds none any more: by a locked
    /// instruction.
    pub fn hold(&mut self, thread: usize, page: Option<u64>) {
        self.flush(thread);
        self.holds[thread] = page;
    }

    fn die(&mut self) {
        self.flush_all();
        (self.alive, self.stopped) = (false, false);
        self.view.fill(Access::None);
    }

    /// Its names are cleared.
    pub fn bury(&mut self) {
        self.names.fill(None);
        self.holds.fill(None);
    }

    /// Another process takes the slot of one that is buried.
    pub fn rise(&mut self) {
        self.life = self.life % 0xFFF + 1;
        self.alive = true;
    }
}

/// What the host's processes share.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostMemory {
    pub words: Vec<Word>,
    places: Vec<u64>,
    pub file: Vec<Option<Bytes>>,
    /// The newest value of each page.
    pub truth: Vec<Bytes>,
    pub capacity: u32,
    pub taken: i32,
    /// Rooms that processes had in hand when they died.
    pub leaked: i32,
    pub processes: Vec<Process>,
    /// What holders have lost with their memory: node, page, version.
    pub gone: BTreeSet<(u16, u64, u32)>,
    /// Pages that nobody wanted, or that left as zeros, and that were void when who did that died:
    /// if the directory's word cannot be read when that is met, their word does not say that they
    /// are zeros.
    cut_short: BTreeSet<u64>,
    /// Nodes that were removed from the domain: what they have is gone.
    pub forgotten: BTreeSet<u16>,
    /// Nodes that are known not to answer, rightly or not.
    pub silent: BTreeSet<u16>,
    /// Pages whose directory words cannot be read.
    pub damaged: BTreeSet<u64>,
    /// The memory beneath the page file is used up.
    pub tight: bool,
    /// What installs a page maps it, too, in the same step.
    pub maps: bool,
    /// What was done that must not be.
    pub wrong: Option<String>,
    pub flaw: Option<Flaw>,
}

/// The host is node 1.
pub fn here() -> NodeId {
    NodeId::new(1).unwrap()
}

impl HostMemory {
    /// Pages that nobody has touched, whose moves are counted from `first` on.
    pub fn new(pages: usize, first: Version, capacity: u32, processes: Vec<Process>) -> Self {
        let void = |page: usize| Location::Void(first).word(page as u64);
        Self {
            words: vec![Word(0); pages],
            places: (0..pages).map(void).collect(),
            file: vec![None; pages],
            truth: vec![0; pages],
            capacity,
            taken: 0,
            leaked: 0,
            processes,
            gone: BTreeSet::new(),
            cut_short: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            silent: BTreeSet::new(),
            damaged: BTreeSet::new(),
            tight: false,
            maps: true,
            wrong: None,
            flaw: None,
        }
    }

    /// Where the directory says that a page is, if nothing has damaged it.
    pub fn place(&self, page: u64) -> Result<Location, DamagedPlace> {
        Location::of_word(self.places[page as usize], page)
    }

    /// Whether a process is dead.
    pub fn is_dead(&self, claimant: Claimant) -> bool {
        let process = &self.processes[usize::from(claimant.slot)];
        let stopped = process.stopped && self.flaw == Some(Flaw::StoppedIsDead);
        process.life != claimant.life || !process.alive || stopped
    }

    /// A load or store of a program; `false`: it traps. What a load finds must be the newest.
    pub fn access(&mut self, slot: usize, page: u64, store: Option<Bytes>) -> bool {
        let at = page as usize;
        let allowed = self.processes[slot].view[at];
        if allowed < if store.is_some() { Access::Write } else { Access::Read } {
            return false;
        }
        if let Some(value) = store {
            (self.file[at], self.truth[at]) = (Some(value), value);
        } else if self.file[at] != Some(self.truth[at]) {
            let (found, newest) = (self.file[at], self.truth[at]);
            self.wrong(format!("a load of page {page} finds {found:?}, newest is {newest}"));
        }
        true
    }

    /// A process dies. What it has stored is seen, its names count, its mappings are gone; room
    /// that it has in hand is taken for ever: at most one for each thread, and one for each page of
    /// an eviction.
    pub fn die(&mut self, slot: usize) {
        let me = Claimant { slot: slot as u16, life: self.processes[slot].life };
        for (page, word) in (0..).zip(&self.words) {
            let is_void = matches!(self.place(page), Ok(Location::Void(_)));
            let is_at_it = matches!(word.state(), State::Busy | State::Leaving);
            if is_at_it && word.claimant() == me && is_void {
                self.cut_short.insert(page);
            }
        }
        let process = &mut self.processes[slot];
        self.leaked += std::mem::take(&mut process.in_hand);
        self.leaked += std::mem::take(&mut process.of_discards);
        self.processes[slot].die();
    }

    /// Rooms that the dead had in hand are given back.
    pub fn recover_rooms(&mut self) {
        self.taken -= std::mem::take(&mut self.leaked);
    }

    /// Keeps what went wrong first.
    pub fn wrong(&mut self, what: String) {
        self.wrong.get_or_insert(what);
    }

    /// How many pages have room here by right: what is in the file, and what somebody is at.
    pub fn rightly_taken(&self) -> i32 {
        let has = |word: &&Word| !matches!(word.state(), State::Absent | State::Lost);
        self.words.iter().filter(has).count() as i32
    }

    /// Pages in the file.
    pub fn in_file(&self) -> i32 {
        self.file.iter().flatten().count() as i32
    }

    /// What must hold at all times. `kept`: what a holder has of a page.
    pub fn check(
        &self,
        kept: impl Fn(NodeId, u64) -> Option<(Version, Bytes)>,
    ) -> Result<(), String> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        for page in 0..self.words.len() as u64 {
            self.check_page(page, &kept)
                .map_err(|what| format!("page {page}: {what}; {}", self.told(page)))?;
        }
        let in_hand = self.processes.iter().map(|one| one.in_hand + one.of_discards).sum::<i32>();
        let (taken, claimed, leaked) = (self.taken, self.rightly_taken(), self.leaked);
        if taken != claimed + in_hand + leaked {
            return Err(format!(
                "{taken} rooms are taken: {claimed} for pages, {in_hand} in hand, {leaked} leaked"
            ));
        }
        Ok(())
    }

    /// Whether a holder has lost a page in this version.
    fn is_gone(&self, node: NodeId, page: u64, version: Version) -> bool {
        let lost = (node.number(), page, version.number());
        self.forgotten.contains(&node.number()) || self.gone.contains(&lost)
    }

    /// What a holder keeps of a page that is not placed there is older than the directory's
    /// version, but for what is on its way there, or came there late, which is the newest. So if
    /// the directory is lost, the highest version among all claims is the newest.
    pub fn check_claim(
        &self,
        node: NodeId,
        page: u64,
        (version, bytes): (Version, Bytes),
    ) -> Result<(), String> {
        let at = page as usize;
        let Ok(place) = self.place(page) else { return Ok(()) };
        if place.is_held_by(node, here())
            || matches!(place, Location::Lost(..))
            || place.version().is_later_than(version)
        {
            return Ok(());
        }
        let is_here = self.file[at].is_some();
        let is_equal = place.holders(here())[0].is_some() && place.version() == version;
        if is_equal && (is_here || bytes == self.truth[at]) {
            return Ok(());
        }
        let leaves = matches!(self.words[at].state(), State::Leaving | State::Busy)
            && version == place.version().later(1)
            && bytes == self.truth[at];
        let told = || format!("{node} keeps {version:?} of page {page}: {}", self.told(page));
        if leaves { Ok(()) } else { Err(told()) }
    }

    /// A page, for reports.
    fn told(&self, page: u64) -> String {
        let at = page as usize;
        let (word, place) = (self.words[at], self.place(page));
        let (state, version, who) = (word.state(), word.version().number(), word.claimant());
        let (file, truth) = (self.file[at], self.truth[at]);
        format!("{state:?} {version} {who:?}, {place:?}, file {file:?}, newest {truth}")
    }

    fn check_page(
        &self,
        page: u64,
        kept: impl Fn(NodeId, u64) -> Option<(Version, Bytes)>,
    ) -> Result<(), &'static str> {
        let at = page as usize;
        let (word, file, truth) = (self.words[at], self.file[at], self.truth[at]);
        let place = self.place(page).map_err(|_| "the directory is damaged")?;
        let views = || self.processes.iter().map(|process| process.view[at]);
        let (mapped, writable) =
            (views().any(|view| view > Access::None), views().any(|view| view == Access::Write));
        let must = |holds: bool, what| if holds { Ok(()) } else { Err(what) };
        let busy = word.state() == State::Busy;
        must(!mapped || file.is_some(), "a hole is mapped")?;
        match word.state() {
            State::Absent | State::Lost => must(file.is_none(), "absent, and no hole")?,
            State::Owned => {
                let alone = Location::Held(here(), word.version(), None);
                must(place == alone, "owned, and placed elsewhere, or with a spare")?;
            }
            State::Clean => {
                let alone = Location::Held(here(), word.version(), None);
                must(place.alone() == alone, "clean, and placed elsewhere")?;
                must(!writable, "clean, and writable")?;
            }
            State::Busy | State::Leaving => {}
            State::Kept | State::Spare => must(false, "kept by the host")?,
        }
        if let Location::Held(owner, version, Some(spare)) = place
            && owner == here()
        {
            let is_it = |kept: &(Version, Bytes)| kept.0 == version.earlier(1);
            let right = kept(spare, page).filter(is_it).is_none_or(|kept| kept.1 == truth);
            must(right, "its spare is not the newest")?;
        }
        let installed = busy && file.is_some();
        must(!installed || file == Some(truth), "what was installed is not the newest")?;
        let is_void = matches!(place, Location::Void(_));
        let is_empty = word.flags().has(Flags::EMPTY);
        must(is_void || busy || !is_empty, "its word says zeros, the directory does not")?;
        match place {
            Location::Held(owner, ..) if owner == here() => {
                must(file == Some(truth), "placed here, without the newest bytes")
            }
            Location::Held(owner, version, other) => {
                must(busy || !writable, "writable, and placed elsewhere")?;
                must(other != Some(owner) && other != Some(here()), "two holders that are one")?;
                for node in [Some(owner), other].into_iter().flatten() {
                    if self.is_gone(node, page, version) {
                        continue;
                    }
                    let (had, bytes) = kept(node, page).ok_or("placed where nothing is")?;
                    must(had == version, "placed where another version is")?;
                    must(installed || bytes == truth, "its holder has not the newest bytes")?;
                }
                Ok(())
            }
            Location::Void(version) => {
                let says_so = is_empty && word.version() == version;
                let at_it = word.state() != State::Absent || word.version() == Version::default();
                let met = self.cut_short.contains(&page);
                must(says_so || at_it || met, "zeros, of which the word says nothing")?;
                must(busy || !writable, "writable, and placed nowhere")?;
                must(installed || truth == 0, "zeros, and something was stored")
            }
            Location::Lost(..) => must(file.is_none(), "lost, and no hole"),
        }
    }

    /// If nobody wants what the page held, it holds zeros, once it is void and a hole.
    fn set_place(&mut self, page: u64, place: Location, work: Work) {
        let discards = matches!(work, Work::Discard | Work::Renew);
        if let Ok(old) = self.place(page) {
            let (was, is) = (old.version(), place.version());
            // What is lost was nowhere else in that version; and a spare goes in the same.
            let is_less = old.alone() == place || matches!(place, Location::Lost(..));
            let heals = work == Work::Heal && old.holders(here())[0].is_some();
            let is_same = was == is && (old == place || is_less || heals);
            if !is_same && !is.is_later_than(was) {
                self.wrong(format!("page {page}: {old:?} became {place:?}"));
            }
            if let (Location::Lost(..), Location::Held(owner, version, other)) = (place, old)
                && [Some(owner), other.filter(|_| owner != here())]
                    .into_iter()
                    .flatten()
                    .any(|node| !self.is_gone(node, page, version))
            {
                self.wrong(format!("page {page}: lost, though nobody lost {old:?}"));
            }
            if let (Location::Lost(..), Location::Void(_)) = (place, old) {
                self.wrong(format!("page {page}: zeros cannot be lost"));
            }
            if work == Work::Renew && !matches!(old, Location::Lost(..)) {
                self.wrong(format!("page {page}: {old:?} is not lost, and is given up"));
            }
            if matches!((place, old), (Location::Void(_), Location::Lost(..))) && !discards {
                self.wrong(format!("page {page}: what is lost is no zeros"));
            }
        }
        if discards && self.file[page as usize].is_none() {
            self.truth[page as usize] = 0;
        }
        self.cut_short.remove(&page);
        self.places[page as usize] = place.word(page);
        self.damaged.remove(&page);
    }
}

/// What a thread works for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A page comes, or leaves.
    Move,
    /// Nobody wants what a page holds.
    Discard,
    /// Nobody wants it if it is lost.
    Renew,
    /// It is to have other holders.
    Heal,
}

/// A thread of a process, at the host's memory.
pub struct Seat<'a> {
    pub memory: &'a RefCell<HostMemory>,
    pub slot: usize,
    pub thread: usize,
    /// What it works for.
    pub work: Work,
}

impl<'a> Seat<'a> {
    /// A thread's.
    pub fn new(memory: &'a RefCell<HostMemory>, slot: usize, thread: usize) -> Self {
        Self { memory, slot, thread, work: Work::Move }
    }

    fn in_hand<'m>(&self, memory: &'m mut HostMemory) -> &'m mut i32 {
        let process = &mut memory.processes[self.slot];
        if self.work == Work::Move { &mut process.in_hand } else { &mut process.of_discards }
    }
}

impl Host for Seat<'_> {
    type Bytes = Bytes;

    fn here(&self) -> NodeId {
        here()
    }

    fn me(&self) -> Claimant {
        let life = self.memory.borrow().processes[self.slot].life;
        Claimant { slot: self.slot as u16, life }
    }

    fn word(&self, page: u64) -> Word {
        self.memory.borrow().words[page as usize]
    }

    fn turn(&self, page: u64, from: Word, to: Word) -> bool {
        let mut memory = self.memory.borrow_mut();
        memory.processes[self.slot].flush(self.thread);
        let now = memory.words[page as usize];
        let same = now == from.flagged(now.flags());
        if same {
            memory.words[page as usize] = to.behind(now);
            let in_hand = self.in_hand(&mut memory);
            let has = |word: Word| !matches!(word.state(), State::Absent | State::Lost);
            // Room in hand becomes the page's, or the other way round.
            *in_hand += i32::from(has(now)) - i32::from(has(to));
            if *in_hand < 0 && self.work == Work::Move {
                memory.wrong(format!("page {page} is claimed without room"));
            }
        }
        same
    }

    fn place(&self, page: u64) -> Result<Location, DamagedPlace> {
        let memory = self.memory.borrow();
        // A flipped bit.
        let flip = u64::from(memory.damaged.contains(&page)) << 20;
        Location::of_word(memory.places[page as usize] ^ flip, page)
    }

    fn set_place(&self, page: u64, place: Location) {
        self.memory.borrow_mut().set_place(page, place, self.work);
    }

    fn is_silent(&self, node: NodeId) -> bool {
        self.memory.borrow().silent.contains(&node.number())
    }

    fn is_dead(&self, claimant: Claimant) -> bool {
        self.memory.borrow().is_dead(claimant)
    }

    fn take_room(&self) -> bool {
        let mut memory = self.memory.borrow_mut();
        memory.processes[self.slot].flush(self.thread);
        let is_room = memory.taken < memory.capacity as i32;
        memory.taken += i32::from(is_room);
        memory.processes[self.slot].in_hand += i32::from(is_room);
        is_room
    }

    fn give_room(&self) {
        let mut memory = self.memory.borrow_mut();
        memory.processes[self.slot].flush(self.thread);
        if memory.flaw == Some(Flaw::RoomKept) {
            return;
        }
        memory.taken -= 1;
        let in_hand = self.in_hand(&mut memory);
        *in_hand -= 1;
        if *in_hand < 0 && self.work == Work::Move {
            memory.wrong("room that is not in hand is given back".into());
        }
    }

    fn is_in_file(&self, page: u64) -> bool {
        self.memory.borrow().file[page as usize].is_some()
    }

    fn install(&self, page: u64, bytes: Option<&Bytes>, is_clean: bool) -> Installed {
        let mut memory = self.memory.borrow_mut();
        if memory.file[page as usize].is_some() {
            return Installed::Exists;
        }
        if memory.tight {
            return Installed::NoRoom;
        }
        memory.file[page as usize] = Some(bytes.copied().unwrap_or_default());
        if memory.maps {
            let access = if is_clean { Access::Read } else { Access::Write };
            memory.processes[self.slot].view[page as usize] = access;
        }
        Installed::Whole
    }

    fn show(&self, page: u64, is_clean: bool, stores: bool) -> Shown {
        let mut memory = self.memory.borrow_mut();
        if memory.file[page as usize].is_none() {
            return Shown::Hole;
        }
        let view = &mut memory.processes[self.slot].view[page as usize];
        *view = match *view {
            Access::None if is_clean => Access::Read,
            Access::Read if !stores => Access::Read,
            _ => Access::Write,
        };
        Shown::Mapped
    }

    fn punch(&self, page: u64) {
        let mut memory = self.memory.borrow_mut();
        memory.file[page as usize] = None;
        let discards = matches!(self.work, Work::Discard | Work::Renew);
        if discards && matches!(memory.place(page), Ok(Location::Void(_))) {
            memory.truth[page as usize] = 0;
        }
        for process in &mut memory.processes {
            process.view[page as usize] = Access::None;
        }
    }

    fn name(&self, page: u64) {
        self.memory.borrow_mut().store_name(self.slot, self.thread, Some(page));
    }

    fn unname(&self) {
        self.memory.borrow_mut().store_name(self.slot, self.thread, None);
    }

    fn meet(&self) {
        let mut memory = self.memory.borrow_mut();
        if memory.flaw == Some(Flaw::MeetsNobody) {
            return;
        }
        for process in &mut memory.processes {
            process.flush_all();
        }
    }

    fn is_named(&self, page: u64) -> bool {
        let memory = self.memory.borrow();
        memory.processes.iter().any(|process| {
            process.names.contains(&Some(page)) || process.holds.contains(&Some(page))
        })
    }

    fn protect(&self, page: u64) {
        let mut memory = self.memory.borrow_mut();
        let skipped = usize::from(memory.flaw == Some(Flaw::OneUnprotected)) * 2;
        for process in memory.processes.iter_mut().skip(skipped) {
            let view = &mut process.view[page as usize];
            *view = Access::Read.min(*view);
        }
    }

    fn read(&self, page: u64) -> Option<Bytes> {
        self.memory.borrow().file[page as usize].filter(|value| *value != 0)
    }
}

impl HostMemory {
    /// A name is stored. A buffer has two places; a third store waits until one has left.
    fn store_name(&mut self, slot: usize, thread: usize, name: Option<u64>) {
        let process = &mut self.processes[slot];
        if process.buffers[thread].len() == 2 {
            process.flush_one(thread);
        }
        process.buffers[thread].push(name);
    }
}
