//! A holder's memory, and what it answers. Any access to the memory may be the last one of its
//! process; before any access, another request may be served whole.

use super::{Bytes, Flaw};
use crate::protocol::holder::{self, Keeper, Stored};
use crate::protocol::messages::KeptPage;
use crate::protocol::{Installed, State, Version, Word};
use std::cell::{Cell, RefCell};

/// What outlives a holder's process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HolderMemory {
    pub words: Vec<Word>,
    pub file: Vec<Option<Bytes>>,
    pub capacity: u32,
    pub taken: u32,
    /// The memory beneath the page file is used up.
    pub tight: bool,
}

impl HolderMemory {
    /// It keeps nothing.
    pub fn new(pages: usize, capacity: u32) -> Self {
        let (words, file) = (vec![Word(0); pages], vec![None; pages]);
        Self { words, file, capacity, taken: 0, tight: false }
    }

    /// What it keeps of a page.
    pub fn kept(&self, page: u64) -> Option<(Version, Bytes)> {
        let word = self.words[page as usize];
        word.state()
            .is_kept()
            .then(|| (word.version(), self.file[page as usize].unwrap_or(Bytes::MAX)))
    }

    /// All that it keeps.
    pub fn claims(&self) -> Vec<KeptPage> {
        let claim = |page| {
            let is_spare = self.words[page as usize].state() == State::Spare;
            self.kept(page).map(|(version, _)| KeptPage { page, version, is_spare })
        };
        (0..self.words.len() as u64).filter_map(claim).collect()
    }

    /// Pages in the file.
    pub fn in_file(&self) -> u32 {
        self.file.iter().flatten().count() as u32
    }

    /// What must hold at all times.
    pub fn check(&self) -> Result<(), String> {
        for (page, (word, file)) in self.words.iter().zip(&self.file).enumerate() {
            let right = match word.state() {
                State::Absent => file.is_none(),
                State::Kept | State::Spare => file.is_some(),
                State::Busy => true,
                _ => false,
            };
            if !right {
                return Err(format!("a holder's page {page}: {word:?}, file {file:?}"));
            }
        }
        if self.taken < self.in_file() {
            return Err(format!(
                "a holder has {} pages in room for {}",
                self.in_file(),
                self.taken
            ));
        }
        Ok(())
    }
}

/// What a holder is asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    Fetch {
        page: u64,
        version: Version,
        releases: Vec<KeptPage>,
    },
    Store(Vec<(u64, Version, Bytes)>),
    Keep(Vec<(u64, Version)>),
    Release(Vec<KeptPage>),
    Claims,
    /// It has no room, and drops this page if that is a spare: nobody asks it to.
    Shed(u64),
}

/// What it answers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    Fetched(Option<Bytes>),
    Stored(Vec<bool>),
    Released,
    Claims(Vec<KeptPage>),
}

/// The holder's process has died.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Died;

/// A holder's process at work on one request.
pub struct Desk<'a> {
    pub memory: &'a RefCell<HolderMemory>,
    /// Accesses that it still makes; then it dies.
    pub lives_for: Cell<u32>,
    /// Another request, and before how many accesses from now on it is served.
    pub other: RefCell<Option<(u32, Request)>>,
    /// What was answered to it.
    pub other_answer: RefCell<Option<Answer>>,
    pub flaw: Option<Flaw>,
}

impl<'a> Desk<'a> {
    /// One that nothing comes between.
    pub fn new(memory: &'a RefCell<HolderMemory>) -> Self {
        let (other, other_answer) = (RefCell::new(None), RefCell::new(None));
        Self { memory, lives_for: Cell::new(u32::MAX), other, other_answer, flaw: None }
    }

    fn access(&self) -> Result<(), Died> {
        let due = match &mut *self.other.borrow_mut() {
            Some((0, _)) => true,
            Some((ahead, _)) => {
                *ahead -= 1;
                false
            }
            None => false,
        };
        if due && let Some((_, request)) = self.other.take() {
            let answer = serve(self, &request)?;
            self.other_answer.replace(Some(answer));
        }
        self.lives_for.set(self.lives_for.get().checked_sub(1).ok_or(Died)?);
        Ok(())
    }
}

impl Keeper for Desk<'_> {
    type Bytes = Bytes;
    type Error = Died;

    fn word(&self, page: u64) -> Result<Word, Died> {
        self.access()?;
        Ok(self.memory.borrow().words[page as usize])
    }

    fn turn(&self, page: u64, from: Word, to: Word) -> Result<bool, Died> {
        self.access()?;
        let mut memory = self.memory.borrow_mut();
        let same = memory.words[page as usize] == from;
        if same {
            memory.words[page as usize] = to;
        }
        Ok(same)
    }

    fn take_room(&self) -> Result<bool, Died> {
        self.access()?;
        let mut memory = self.memory.borrow_mut();
        let is_room = memory.taken < memory.capacity;
        memory.taken += u32::from(is_room);
        Ok(is_room)
    }

    fn give_room(&self) -> Result<(), Died> {
        self.access()?;
        let mut memory = self.memory.borrow_mut();
        memory.taken = memory.taken.checked_sub(1).ok_or(Died)?;
        Ok(())
    }

    fn put(&self, page: u64, bytes: &Bytes) -> Result<Installed, Died> {
        self.access()?;
        let mut memory = self.memory.borrow_mut();
        if memory.file[page as usize].is_some() {
            return Ok(Installed::Exists);
        }
        if memory.tight {
            return Ok(Installed::NoRoom);
        }
        memory.file[page as usize] = Some(*bytes);
        Ok(Installed::Whole)
    }

    fn get(&self, page: u64) -> Result<Option<Bytes>, Died> {
        self.access()?;
        Ok(self.memory.borrow().file[page as usize])
    }

    fn punch(&self, page: u64, pages: u64) -> Result<(), Died> {
        self.access()?;
        let all = page as usize..(page + pages) as usize;
        self.memory.borrow_mut().file[all].fill(None);
        Ok(())
    }
}

/// Serves a request.
pub fn serve(desk: &Desk<'_>, request: &Request) -> Result<Answer, Died> {
    let release = |pages: &[KeptPage]| holder::release(desk, pages).map(drop);
    match request {
        Request::Fetch { page, version, releases } => {
            let found = holder::fetch(desk, *page, *version)?;
            release(releases)?;
            Ok(Answer::Fetched(found))
        }
        Request::Store(pages) => {
            let early = desk.flaw == Some(Flaw::StoredEarly);
            let mut stored = Vec::new();
            for (page, version, bytes) in pages {
                match holder::store(desk, *page, *version, bytes) {
                    Ok(what) => stored.push(what == Stored::Kept),
                    Err(Died) if early => stored.push(true),
                    Err(Died) => return Err(Died),
                }
            }
            Ok(Answer::Stored(stored))
        }
        Request::Keep(pages) => {
            let kept = pages.iter().map(|(page, version)| holder::keep(desk, *page, *version));
            let kept = kept.map(|kept| kept.map(|one| one == Stored::Kept));
            kept.collect::<Result<_, Died>>().map(Answer::Stored)
        }
        Request::Shed(page) => holder::drop_spares(desk, [*page]).map(|_| Answer::Released),
        Request::Release(pages) => release(pages).map(|()| Answer::Released),
        Request::Claims => {
            desk.access()?;
            Ok(Answer::Claims(desk.memory.borrow().claims()))
        }
    }
}
