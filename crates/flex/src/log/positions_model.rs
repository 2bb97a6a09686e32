//! Models of [`Positions`], run by a model checker: ranges are one thread's, keys are in force
//! where records say so, and what a call has returned is durable, with all before it.
//!
//! The memory is of units, one a record. A *store* is filled by one thread, as loom sees; what is
//! streamed or flushed is durable behind a fence of the same thread.

use std::sync::{Arc, Mutex, PoisonError};

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};

use super::positions::{MADE, Mistake, Positions, Word};

/// Units of memory.
const UNITS: usize = 10;
/// A key is in force for so many units.
const LAP: u64 = 3;

impl Word for AtomicU64 {
    fn of(value: u64) -> Self {
        Self::new(value)
    }

    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    fn cas(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn pause(_: &mut u32) {
        loom::thread::yield_now();
    }
}

/// What a unit holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unit {
    Nothing,
    /// A record, by this key.
    Record(u64),
    /// It brings this key.
    Key(u64),
}

/// What is in flight, and what is durable.
#[derive(Default)]
struct Ghost {
    in_flight: Vec<(usize, u64)>,
    durable: [bool; UNITS],
}

struct World {
    positions: Positions<AtomicU64>,
    key: AtomicU64,
    key_until: AtomicU64,
    units: [UnsafeCell<Unit>; UNITS],
    ghost: Mutex<Ghost>,
}

// SAFETY: the units are what the model is about: loom finds two that are at one at once.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new() -> Self {
        Self {
            positions: Positions::at(0),
            key: AtomicU64::new(0),
            // The first record needs a key.
            key_until: AtomicU64::new(0),
            units: std::array::from_fn(|_| UnsafeCell::new(Unit::Nothing)),
            ghost: Mutex::default(),
        }
    }

    fn ghost<T>(&self, of: impl FnOnce(&mut Ghost) -> T) -> T {
        of(&mut self.ghost.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn store(&self, at: u64, unit: Unit) {
        self.units[at as usize].with_mut(|old| {
            // SAFETY: nobody else is at it, or loom ends the model.
            let old = unsafe { &mut *old };
            assert_eq!(*old, Unit::Nothing, "a unit is filled twice");
            *old = unit;
        });
    }

    fn load(&self, at: u64) -> Unit {
        // SAFETY: nobody stores to it meanwhile, or loom ends the model.
        self.units[at as usize].with(|unit| unsafe { *unit })
    }

    fn fence(&self, thread: usize) {
        self.ghost(|ghost| {
            for (by, at) in std::mem::take(&mut ghost.in_flight) {
                if by == thread {
                    ghost.durable[at as usize] = true;
                } else {
                    ghost.in_flight.push((by, at));
                }
            }
        });
    }

    fn stream(&self, thread: usize, at: u64, unit: Unit) {
        self.store(at, unit);
        self.ghost(|ghost| ghost.in_flight.push((thread, at)));
    }

    /// As `Log::turn`.
    fn turn(&self, thread: usize, at: u64) {
        if self.positions.close(at) {
            self.stream(thread, at, Unit::Key(at + 100));
            self.fence(thread);
            self.key.store(at + 100, Ordering::Release);
            self.key_until.store(at + LAP, Ordering::Release);
            self.positions.reopen(at, at + 1, || ());
        }
    }

    /// As `Log::reserve`.
    fn reserve(&self, thread: usize) -> (u64, u64) {
        let usable = |at| at < self.key_until.load(Ordering::Acquire);
        let turn = |at| {
            self.turn(thread, at);
            Ok::<_, ()>(())
        };
        let at = self
            .positions
            .take(1, usable, turn, |_, end| if end > UNITS as u64 { Err(()) } else { Ok(()) });
        (at.expect("there is room"), self.key.load(Ordering::Acquire))
    }

    /// As `Log::append`.
    fn append(&self, thread: usize) {
        let (at, key) = self.reserve(thread);
        self.stream(thread, at, Unit::Record(key));
        self.fence(thread);
        if self.positions.finish_durable((at, at + 1), || true, || ()).is_none() {
            self.commit(thread, at + 1);
        }
        self.check(at + 1);
    }

    /// As `Log::put` and `Log::commit`.
    fn put_and_commit(&self, thread: usize) {
        let (at, key) = self.reserve(thread);
        self.store(at, Unit::Record(key));
        self.positions.finish((at, at + 1), || ());
        self.commit(thread, at + 1);
        self.check(at + 1);
    }

    /// As `Log::commit_to`, without the lock that saves flushes.
    fn commit(&self, thread: usize, end: u64) {
        let Some((from, to)) = self.positions.to_commit(end) else { return };
        for at in from..to {
            assert_ne!(self.load(at), Unit::Nothing, "what is committed is filled");
            self.ghost(|ghost| ghost.in_flight.push((thread, at)));
        }
        self.fence(thread);
        self.positions.commit(to);
    }

    /// What a call that has returned promises.
    fn check(&self, end: u64) {
        let committed = self.positions.committed();
        assert!(committed >= end, "it is committed");
        let durable = self.ghost(|ghost| ghost.durable);
        assert!(
            durable[..committed as usize].iter().all(|&is| is),
            "all that is committed is durable"
        );
    }

    /// What must hold when all have ended.
    fn check_all(&self) {
        let end = self.positions.reserved();
        self.check(end);
        let mut in_force = 0;
        for at in 0..end {
            match self.load(at) {
                Unit::Key(key) => in_force = key,
                Unit::Record(key) => assert_eq!(key, in_force, "the key of the record at {at}"),
                Unit::Nothing => panic!("{at} is not filled"),
            }
        }
    }
}

type Call = fn(&World, usize);

/// Threads make these calls, one after another each; they are interrupted so many times.
fn check(switches: usize, calls: &'static [&'static [Call]]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.max_branches = 5_000;
    let mistake = MADE.get();
    model.check(move || {
        MADE.set(mistake);
        let world = Arc::new(World::new());
        let others: Vec<_> = (1..calls.len())
            .map(|thread| {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || {
                    calls[thread].iter().for_each(|call| call(&world, thread));
                })
            })
            .collect();
        calls[0].iter().for_each(|call| call(&world, 0));
        for other in others {
            other.join().unwrap();
        }
        world.check_all();
    });
}

const APPEND: Call = World::append;
const PUT: Call = World::put_and_commit;

#[test]
fn two_threads_append_over_a_key() {
    check(3, &[&[APPEND, APPEND], &[APPEND]]);
}

#[test]
fn what_one_thread_puts_another_commits() {
    check(3, &[&[PUT, APPEND], &[PUT]]);
    check(3, &[&[APPEND], &[PUT, PUT]]);
}

#[test]
fn three_threads() {
    check(1, &[&[APPEND], &[PUT], &[APPEND]]);
}

/// What the models say to a mistake.
fn found(mistake: Mistake) -> String {
    MADE.set(Some(mistake));
    let said = std::panic::catch_unwind(|| {
        check(3, &[&[APPEND, APPEND], &[APPEND]]);
        check(3, &[&[PUT, APPEND], &[PUT]]);
    });
    MADE.set(None);
    let said = said.expect_err("the mistake is found");
    let text = said.downcast_ref::<String>().cloned();
    text.or_else(|| said.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

#[test]
fn a_range_that_is_taken_by_a_store_is_caught() {
    let said = found(Mistake::TakenByStore);
    assert!(said.contains("filled twice") || said.contains("Concurrent"), "{said}");
}

#[test]
fn a_range_that_is_finished_out_of_turn_is_caught() {
    let said = found(Mistake::OutOfTurn);
    assert!(!said.is_empty(), "{said}");
}

#[test]
fn a_word_that_is_closed_unasked_is_caught() {
    let said = found(Mistake::ClosedUnasked);
    assert!(!said.is_empty(), "{said}");
}

#[test]
fn what_is_committed_unfilled_is_caught() {
    let said = found(Mistake::CommitsReserved);
    assert!(said.contains("filled") || said.contains("Concurrent"), "{said}");
}

#[test]
fn what_is_durable_before_what_is_in_front_of_it_is_caught() {
    let said = found(Mistake::DurableAlone);
    assert!(said.contains("committed"), "{said}");
}
