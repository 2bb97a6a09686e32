//! A holder serves its connections at once: up to three operations on one page, in all orders of
//! their accesses.
//!
//! An operation is a function and no machine. So a step of it runs it from its beginning: accesses
//! that it has made before find what they found then, the next one is made, and the one behind that
//! fails.

use crate::protocol::holder::{self, Keeper, Stored};
use crate::protocol::messages::KeptPage;
use crate::protocol::{Flags, Installed, State, Version, Word};
use crate::tests::protocol::memory::{Bytes, Desk, HolderMemory};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;

/// An operation, and of which version. A version's bytes are its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Operation {
    Store(u32),
    Fetch(u32),
    Release(u32),
    /// In this version from now on.
    Keep(u32),
    /// This version is said to be a spare.
    Spare(u32),
    /// It is dropped if it is one.
    Shed,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Outcome {
    Stored(Stored),
    Fetched(Option<Bytes>),
    Released(bool),
}

/// What an access found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Found {
    Word(Word),
    Said(bool),
    Put(Installed),
    Bytes(Option<Bytes>),
}

/// An operation that has made so many accesses.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Running {
    operation: Operation,
    found: Vec<Found>,
    outcome: Option<Outcome>,
}

/// The next access is not to be made yet.
struct Later;

/// Makes one access, behind those that were made.
struct Step<'a> {
    desk: Desk<'a>,
    found: RefCell<Vec<Found>>,
    at: Cell<usize>,
    before: usize,
}

impl Step<'_> {
    fn access(&self, make: impl FnOnce(&Desk<'_>) -> Found) -> Result<Found, Later> {
        let at = self.at.replace(self.at.get() + 1);
        if let Some(found) = self.found.borrow().get(at) {
            return Ok(*found);
        }
        if at > self.before {
            return Err(Later);
        }
        let found = make(&self.desk);
        self.found.borrow_mut().push(found);
        Ok(found)
    }

    fn says(&self, make: impl FnOnce(&Desk<'_>) -> bool) -> Result<bool, Later> {
        Ok(self.access(|desk| Found::Said(make(desk)))? == Found::Said(true))
    }
}

impl Keeper for Step<'_> {
    type Bytes = Bytes;
    type Error = Later;

    fn word(&self, page: u64) -> Result<Word, Later> {
        match self.access(|desk| desk.word(page).map_or(Found::Said(false), Found::Word))? {
            Found::Word(word) => Ok(word),
            other => panic!("{other:?} is no word"),
        }
    }

    fn turn(&self, page: u64, from: Word, to: Word) -> Result<bool, Later> {
        self.says(|desk| desk.turn(page, from, to).unwrap_or(false))
    }

    fn take_room(&self) -> Result<bool, Later> {
        self.says(|desk| desk.take_room().unwrap_or(false))
    }

    fn give_room(&self) -> Result<(), Later> {
        assert!(self.says(|desk| desk.give_room().is_ok())?, "room that nobody has is given back");
        Ok(())
    }

    fn put(&self, page: u64, bytes: &Bytes) -> Result<Installed, Later> {
        match self.access(|desk| desk.put(page, bytes).map_or(Found::Said(false), Found::Put))? {
            Found::Put(installed) => Ok(installed),
            other => panic!("{other:?} is no installing"),
        }
    }

    fn get(&self, page: u64) -> Result<Option<Bytes>, Later> {
        match self.access(|desk| desk.get(page).map_or(Found::Said(false), Found::Bytes))? {
            Found::Bytes(bytes) => Ok(bytes),
            other => panic!("{other:?} is no page"),
        }
    }

    fn punch(&self, page: u64, pages: u64) -> Result<(), Later> {
        self.says(|desk| desk.punch(page, pages).is_ok()).map(drop)
    }
}

/// Makes the next access of an operation.
fn step(memory: &mut HolderMemory, running: &mut Running) {
    let cell = RefCell::new(memory.clone());
    let before = running.found.len();
    let found = RefCell::new(std::mem::take(&mut running.found));
    let keeper = Step { desk: Desk::new(&cell), found, at: Cell::new(0), before };
    let outcome = match running.operation {
        Operation::Store(version) => {
            holder::store(&keeper, 0, Version::new(version), &version).map(Outcome::Stored)
        }
        Operation::Fetch(version) => {
            holder::fetch(&keeper, 0, Version::new(version)).map(Outcome::Fetched)
        }
        Operation::Keep(version) => {
            holder::keep(&keeper, 0, Version::new(version)).map(Outcome::Stored)
        }
        Operation::Spare(version) => {
            let kept = KeptPage { is_spare: true, ..KeptPage::new(0, Version::new(version)) };
            holder::release(&keeper, &[kept]).map(|_| Outcome::Released(false))
        }
        Operation::Shed => {
            holder::drop_spares(&keeper, [0]).map(|dropped| Outcome::Released(dropped == 1))
        }
        Operation::Release(version) => {
            let dropped = holder::release(&keeper, &[KeptPage::new(0, Version::new(version))]);
            dropped.map(|dropped| Outcome::Released(dropped == 1))
        }
    };
    running.outcome = outcome.ok();
    running.found = keeper.found.into_inner();
    *memory = cell.into_inner();
}

/// What must hold when all have ended; `had`: what was kept before.
fn check(memory: &HolderMemory, all: &[Running], had: Option<u32>) -> Result<(), String> {
    memory.check()?;
    if memory.taken != memory.in_file() || memory.words[0].state() == State::Busy {
        return Err("a page or a room is left behind".into());
    }
    let mut newest = had;
    for one in all {
        match (one.operation, one.outcome) {
            (Operation::Fetch(version), Some(Outcome::Fetched(Some(bytes))))
                if bytes != version && !comes_again(all, version) =>
            {
                return Err(format!("{bytes} is given for {version}"));
            }
            (
                Operation::Store(version) | Operation::Keep(version),
                Some(Outcome::Stored(Stored::Kept)),
            ) => {
                newest = newest.max(Some(version));
            }
            _ => {}
        }
    }
    let kept = memory.kept(0);
    // What was kept anew has the bytes of two versions before.
    let keeps = |version: u32| all.iter().any(|one| one.operation == Operation::Keep(version));
    let right = |version: u32, bytes| version == bytes || version == bytes + 2 && keeps(version);
    if kept.is_some_and(|(version, bytes)| !right(version.number(), bytes)) {
        return Err("bytes of another version are kept".into());
    }
    let is_spare =
        |one: &Running| matches!(one.operation, Operation::Spare(v) if Some(v) >= newest);
    let dropped = |one: &Running| match one.operation {
        Operation::Release(version) => Some(version) >= newest,
        Operation::Shed => all.iter().any(is_spare),
        _ => false,
    };
    let kept = kept.map(|(version, _)| version.number());
    if kept != newest && !all.iter().any(dropped) {
        return Err(format!("{kept:?} is kept, not {newest:?}"));
    }
    Ok(())
}

/// Whether a version may be dropped and stored once more while a fetch looks at it. Its word is the
/// same then before and behind. Who fetched it waits for nothing any more: the directory did not
/// name a version that is to be dropped, and no version is given twice.
fn comes_again(all: &[Running], version: u32) -> bool {
    let drops = |one: &Running| matches!(one.operation, Operation::Release(to) if to >= version);
    let stores = |one: &Running| one.operation == Operation::Store(version);
    all.iter().any(drops) && all.iter().any(stores)
}

/// Runs operations together, in all orders. How many states there are.
fn together(operations: &[Operation], had: Option<u32>, capacity: u32) -> Result<usize, String> {
    let mut memory = HolderMemory::new(1, capacity);
    if let Some(version) = had {
        memory.words[0] = Word::new(State::Kept, Flags::default(), Version::new(version));
        (memory.file[0], memory.taken) = (Some(version), 1);
    }
    let begin =
        |operation: &Operation| Running { operation: *operation, found: Vec::new(), outcome: None };
    let mut seen = HashSet::new();
    let mut open = vec![(memory, operations.iter().map(begin).collect::<Vec<_>>())];
    while let Some((memory, all)) = open.pop() {
        let mut ended = true;
        for at in (0..all.len()).filter(|at| all[*at].outcome.is_none()) {
            ended = false;
            let (mut memory, mut all) = (memory.clone(), all.clone());
            step(&mut memory, &mut all[at]);
            if seen.insert((memory.clone(), all.clone())) {
                open.push((memory, all));
            }
        }
        if ended {
            check(&memory, &all, had)
                .map_err(|what| format!("{what}: {had:?} was kept, {all:?}"))?;
        }
    }
    Ok(seen.len())
}

/// All of up to three operations: one of each version that is older than what is kept, the same,
/// and newer.
pub fn all() -> Result<usize, String> {
    use Operation::{Fetch, Keep, Release, Shed, Spare, Store};
    let operations = [
        Store(1),
        Store(2),
        Store(3),
        Store(4),
        Fetch(2),
        Fetch(3),
        Release(1),
        Release(2),
        Release(3),
        Keep(4),
        Spare(2),
        Shed,
    ];
    let mut states = 0;
    for (at, one) in operations.iter().enumerate() {
        for (other_at, two) in operations.iter().enumerate().skip(at) {
            for three in &operations[other_at..] {
                for (had, capacity) in [(None, 1), (None, 2), (Some(2), 1), (Some(2), 2)] {
                    states += together(&[*one, *two, *three], had, capacity)?;
                }
            }
        }
    }
    Ok(states)
}

#[test]
fn operations_on_one_page_go_together() {
    let states = all().unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{states} states");
    assert!(states > 10_000, "{states}");
}

/// What a fetch has read may be another version by then.
#[test]
fn a_fetch_that_does_not_look_again_gives_another_version() {
    use crate::protocol::{Mistake, make};
    for mistake in [Mistake::NotLookedAgain, Mistake::OlderStored, Mistake::NewerReleased] {
        make(Some(mistake));
        let wrong = all();
        make(None);
        println!("{mistake:?}: {wrong:?}");
        assert!(wrong.is_err(), "{mistake:?} is not caught");
    }
}
