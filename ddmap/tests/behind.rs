//! The page file is changed behind the machines' back. A page must never be zeros for it, and no
//! bytes may go.

mod memory;

use ddmap::protocol::{Eviction, Fault, Next, NodeId, Progress, State, Version, Why};
use memory::{HostMemory, Process, Seat};
use std::cell::RefCell;

/// Runs a fault to its end.
fn end(memory: &RefCell<HostMemory>, slot: usize) -> Next {
    let mut fault = Fault::new(0);
    let seat = Seat { memory, slot, thread: 0 };
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
    assert_eq!(end(&host, 0), Next::Done(None));
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
    assert_eq!(end(&host, 1), Next::Done(None));
    let before = host.borrow().place(0);
    host.borrow_mut().file[0] = None;
    let word = host.borrow().words[0];
    let mut eviction = Eviction::new(NodeId::new(2).unwrap(), [(0, word)]);
    let seat = Seat { memory: &host, slot: 0, thread: 0 };
    let done = |progress: &Progress| *progress != Progress::Step;
    let last = std::iter::repeat_with(|| eviction.step(&seat)).take(50).find(done);
    assert_eq!(last, Some(Progress::Done { gone: 1, zeros: 0 }));
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
    let mut fault = Fault::new(0);
    let seat = Seat { memory: &host, slot: 0, thread: 0 };
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
    assert_eq!(end(&host, 1), Next::Done(None));
    assert_eq!((host.borrow().words[0].state(), host.borrow().file[0]), (State::Owned, Some(9)));
}
