//! The page file is changed behind the machines' back. A page must never be zeros for it, and no
//! bytes may go.

use crate::protocol::holder::{self, Keeper, Stored};
use crate::protocol::messages::KeptPage;
use crate::protocol::{
    Discard, Evicted, Eviction, Fault, Host, Installed, Location, Next, NodeId, Progress, State,
    Version, Why, Word,
};
use crate::tests::protocol::memory::holder::{Desk, HolderMemory};
use crate::tests::protocol::memory::{Bytes, HostMemory, Process, Seat, Work};
use std::cell::{Cell, RefCell};

/// Runs a fault to its end.
fn end(memory: &RefCell<HostMemory>, slot: usize) -> Next {
    let mut fault = Fault::new(0, true);
    let seat = Seat::new(memory, slot, 0);
    let ends = |next: &Next| *next != Next::Step;
    std::iter::repeat_with(|| fault.step(&seat)).take(50).find(ends).expect("it ends")
}

fn host() -> RefCell<HostMemory> {
    let processes = vec![Process::new(1, 1), Process::new(1, 1)];
    RefCell::new(HostMemory::new(1, Version::default(), 1, processes))
}

/// Somebody had made a hole of a page that was owned. The thread said that the page is lost, and
/// kept its room.
#[test]
fn an_owned_page_that_is_a_hole_is_lost_and_takes_no_room() {
    let host = host();
    assert_eq!(end(&host, 0), Next::Done([None; 2]));
    assert_eq!(host.borrow().taken, 1);
    host.borrow_mut().file[0] = None;
    for _ in 0..2 {
        assert_eq!(end(&host, 1), Next::Fail(Why::Lost));
        let host = host.borrow();
        assert_eq!((host.words[0].state(), host.file[0], host.taken), (State::Lost, None, 0));
    }
}

/// The node took the hole for zeros, and the directory said so.
#[test]
fn an_owned_page_that_is_a_hole_is_not_sent_away_as_zeros() {
    let host = host();
    assert_eq!(end(&host, 1), Next::Done([None; 2]));
    let before = host.borrow().place(0);
    host.borrow_mut().file[0] = None;
    let word = host.borrow().words[0];
    let mut eviction = Eviction::new(&[NodeId::new(2).unwrap()], &[], [(0, word)]);
    let seat = Seat::new(&host, 0, 0);
    let done = |progress: &Progress| *progress != Progress::Step;
    let last = std::iter::repeat_with(|| eviction.step(&seat)).take(50).find(done);
    assert_eq!(last, Some(Progress::Done(Evicted { gone: 1, single: 1, ..Evicted::default() })));
    assert_eq!((host.borrow().words[0].state(), host.borrow().taken), (State::Lost, 0));
    assert_eq!(host.borrow().place(0), before);
    assert_eq!(end(&host, 1), Next::Fail(Why::Lost));
}

#[test]
fn bytes_where_a_hole_must_be_stay_and_are_not_shown() {
    let host = host();
    host.borrow_mut().file[0] = Some(7);
    for _ in 0..2 {
        assert_eq!(end(&host, 0), Next::Fail(Why::Damaged));
        let host = host.borrow();
        assert_eq!((host.words[0].state(), host.file[0], host.taken), (State::Absent, Some(7), 0));
    }
}

/// A process had installed a page and died before it said so; then the directory's word was
/// damaged. The next process made the word absent, over bytes that others had stored.
#[test]
fn what_the_dead_have_installed_stays_while_the_directory_cannot_be_read() {
    let host = host();
    let mut fault = Fault::new(0, true);
    let seat = Seat::new(&host, 0, 0);
    while host.borrow().file[0].is_none() {
        assert_eq!(fault.step(&seat), Next::Step);
    }
    host.borrow_mut().file[0] = Some(9);
    host.borrow_mut().die(0);
    host.borrow_mut().damaged.insert(0);
    for _ in 0..2 {
        assert_eq!(end(&host, 1), Next::Fail(Why::Damaged));
        assert_eq!((host.borrow().file[0], host.borrow().taken), (Some(9), 1));
    }
    host.borrow_mut().damaged.clear();
    assert_eq!(end(&host, 1), Next::Done([None; 2]));
    assert_eq!((host.borrow().words[0].state(), host.borrow().file[0]), (State::Owned, Some(9)));
}

/// A holder whose page cannot be read at the moment, so many times.
struct Unreadable<'a>(Desk<'a>, Cell<u32>);

/// A read has failed.
#[derive(PartialEq, Eq, Debug)]
struct Failed;

impl Keeper for Unreadable<'_> {
    type Bytes = Bytes;
    type Error = Failed;

    fn word(&self, page: u64) -> Result<Word, Failed> {
        self.0.word(page).map_err(|_| Failed)
    }

    fn turn(&self, page: u64, from: Word, to: Word) -> Result<bool, Failed> {
        self.0.turn(page, from, to).map_err(|_| Failed)
    }

    fn take_room(&self) -> Result<bool, Failed> {
        self.0.take_room().map_err(|_| Failed)
    }

    fn give_room(&self) -> Result<(), Failed> {
        self.0.give_room().map_err(|_| Failed)
    }

    fn put(&self, page: u64, bytes: &Bytes) -> Result<Installed, Failed> {
        self.0.put(page, bytes).map_err(|_| Failed)
    }

    fn get(&self, page: u64) -> Result<Option<Bytes>, Failed> {
        let left = self.1.get();
        self.1.set(left.saturating_sub(1));
        if left > 0 { Err(Failed) } else { self.0.get(page).map_err(|_| Failed) }
    }

    fn punch(&self, page: u64, pages: u64) -> Result<(), Failed> {
        self.0.punch(page, pages).map_err(|_| Failed)
    }
}

/// A read that failed once made the page a lost one.
#[test]
fn a_page_that_a_holder_cannot_read_now_stays_kept() {
    let memory = RefCell::new(HolderMemory::new(1, 1));
    let version = Version::new(3);
    let holder = Unreadable(Desk::new(&memory), Cell::new(0));
    assert_eq!(holder::store(&holder, 0, version, &5), Ok(Stored::Kept));
    holder.1.set(2);
    for _ in 0..2 {
        assert_eq!(holder::fetch(&holder, 0, version), Err(Failed));
        memory.borrow().check().unwrap();
        assert_eq!(memory.borrow().claims(), [KeptPage::new(0, version)]);
    }
    assert_eq!(holder::fetch(&holder, 0, version), Ok(Some(5)));
    // What has no bytes is kept no more, and its room is free.
    memory.borrow_mut().file[0] = None;
    assert_eq!(holder::fetch(&holder, 0, version), Ok(None));
    memory.borrow().check().unwrap();
    assert_eq!((memory.borrow().claims(), memory.borrow().taken), (Vec::new(), 0));
    assert_eq!(holder::store(&holder, 0, version, &6), Ok(Stored::Kept));
}

/// What a holder had lost stayed lost for ever: nobody could write there, also in another file. It
/// is void once nobody wants it, later than what the holder had; whatever its word says by then.
#[test]
fn a_lost_page_that_nobody_wants_is_zeros_again() {
    let holder = NodeId::new(2).unwrap();
    let (none, version) = (crate::protocol::Flags::default(), Version::new(6));
    for (state, by_store) in [(State::Lost, false), (State::Absent, false), (State::Lost, true)] {
        let host = host();
        let seat = Seat::new(&host, 0, 0);
        host.borrow_mut().gone.insert((2, 0, 6));
        seat.set_place(0, Location::Held(holder, version, None));
        seat.set_place(0, Location::Lost(Some(holder), version));
        let word = Word::new(state, none, Version::new(5));
        (host.borrow_mut().words[0], host.borrow_mut().truth[0]) = (word, 9);
        assert_eq!(end(&host, 1), Next::Fail(Why::Lost));
        let word = host.borrow().words[0];
        let (mut discard, work) = if by_store {
            (Discard::of_lost(0, word), Work::Renew)
        } else {
            (Discard::new([(0, word)]), Work::Discard)
        };
        while !discard.step(&Seat { work, ..Seat::new(&host, 0, 0) }) {}
        assert_eq!(discard.owed().count(), 0, "it is asked for nothing");
        assert_eq!(seat.place(0), Ok(Location::Void(version.later(1))));
        assert_eq!(end(&host, 1), Next::Done([None; 2]));
        assert_eq!(
            seat.place(0),
            Ok(Location::Held(
                crate::tests::protocol::memory::host::here(),
                version.later(2),
                None
            ))
        );
        assert_eq!((host.borrow().file[0], host.borrow().taken), (Some(0), 1));
        host.borrow().check(|_, _| None).unwrap();
    }
}

/// A page that is stored to whole is given up only if it is lost.
#[test]
fn what_is_not_lost_is_not_given_up() {
    let host = host();
    let holder = NodeId::new(2).unwrap();
    let seat = Seat { work: Work::Renew, ..Seat::new(&host, 0, 0) };
    let word = Word::new(State::Absent, crate::protocol::Flags::default(), Version::new(5));
    host.borrow_mut().words[0] = word;
    Seat::new(&host, 0, 0).set_place(0, Location::Held(holder, Version::new(6), None));
    let mut discard = Discard::of_lost(0, word);
    while !discard.step(&seat) {}
    assert_eq!(seat.place(0), Ok(Location::Held(holder, Version::new(6), None)));
    assert_eq!((host.borrow().words[0], host.borrow().wrong.clone()), (word, None));
}
