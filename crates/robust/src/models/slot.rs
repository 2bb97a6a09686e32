//! Slots: no two lives have one name, and a recovery is of the life that was found dead, by one.

use super::words::{Dead, Death, EPOCH, check_deaths};
use super::{Process, World, found};
use crate::Mistake;
use crate::slot::{Slots, look};
use crate::word::Word;
use std::sync::Arc;
use std::time::Duration;

/// A process comes, beside others that come and go, and works under the lock; it recovers the dead
/// one that keeps the slot. Then it leaves.
fn come_and_go(process: &Process) -> Result<(), Dead> {
    while !process.attach(0..1)? {
        let state = look(process, 0)?;
        process.recover(0, state)?;
        process.state(0).wait(0, Duration::ZERO);
    }
    process.work(false)?;
    process.leave()
}

/// Two come and go by the only slot, which the first life has given up: it is dead, or has left.
/// One of them may die.
fn take_turns(death: &Death, left: bool) {
    let world = Arc::new(World::new(1));
    let first = Process::new(&world, 0, &if left { Death::never() } else { Death::at(3) });
    if left {
        assert_eq!(first.leave(), Ok(()));
    } else {
        assert!(first.work(false).is_err());
    }
    let second = Process::new(&world, 1, death);
    let second = loom::thread::spawn(move || {
        // It may have died.
        let _ = come_and_go(&second);
    });
    let third = Process::new(&world, 2, &Death::never());
    assert_eq!(come_and_go(&third), Ok(()));
    second.join().unwrap();
    // Nothing is left, unless the second one died behind all that.
    let state = look(&third, 0).unwrap();
    third.recover(0, state).unwrap();
    assert_eq!(look(&third, 0).map(|found| found.state), Ok(crate::slot::FREE));
    assert_eq!(third.world.lock.load(loom::sync::atomic::Ordering::Acquire) >> 32, EPOCH.into());
}

/// The first one dies while it comes and goes; the second one recovers it and takes its slot; the
/// third one has a slot of its own, and meets whatever is in the lock.
fn beside_a_third(death: &Death) {
    let world = Arc::new(World::new(2));
    let dies = Process::new(&world, 0, death);
    let first = loom::thread::spawn(move || {
        // It may have died.
        let _ = dies.work(false).and_then(|()| dies.leave());
    });
    let comes = Process::new(&world, 2, &Death::never());
    let second = loom::thread::spawn(move || assert_eq!(come_and_go(&comes), Ok(())));
    let third = Process::new(&world, 1, &Death::never());
    assert_eq!(third.work(true), Ok(()));
    first.join().unwrap();
    second.join().unwrap();
}

/// Two processes prepare slots for their children; one of them may die.
fn prepare_beside(death: &Death) {
    let world = Arc::new(World::new(0));
    let first = Process::new(&world, 0, death);
    let second = Process::new(&world, 1, &Death::never());
    let first = loom::thread::spawn(move || {
        // It may have died.
        let _ = first.prepare(0..2);
    });
    let slot = second.prepare(0..2).unwrap().expect("there are two slots");
    first.join().unwrap();
    assert_eq!(second.is_parent(slot), Ok(true), "another process has written in it");
}

#[test]
fn a_prepared_slot_says_whose_it_is() {
    let points = check_deaths(|death| move || prepare_beside(&death));
    assert!(points > 6, "{points}");
}

#[test]
fn a_slot_that_is_prepared_without_its_byte_is_caught() {
    let said = found(Mistake::PreparedUnheld, || {
        check_deaths(|death| move || prepare_beside(&death));
    });
    assert!(said.contains("has written in it"), "{said}");
}

#[test]
fn a_slot_that_is_prepared_without_a_second_look_is_caught() {
    let said = found(Mistake::PreparedUnseen, || {
        check_deaths(|death| move || prepare_beside(&death));
    });
    assert!(said.contains("has written in it"), "{said}");
}

#[test]
fn a_slot_is_taken_again_behind_a_death() {
    let points = check_deaths(|death| move || take_turns(&death, false));
    assert!(points > 20, "{points}");
}

#[test]
fn a_slot_is_taken_again_behind_a_life() {
    let points = check_deaths(|death| move || take_turns(&death, true));
    assert!(points > 10, "{points}");
}

#[test]
fn a_new_life_frees_no_lock_but_its_last_ones() {
    let points = check_deaths(|death| move || beside_a_third(&death));
    assert!(points > 4, "{points}");
}

#[test]
fn a_lock_that_is_released_unasked_is_caught() {
    let said = found(Mistake::ReleasedUnasked, || {
        check_deaths(|death| move || beside_a_third(&death));
    });
    assert!(said.contains("Concurrent write"), "{said}");
}

#[test]
fn a_generation_that_stays_is_caught() {
    let said = found(Mistake::SameGeneration, || {
        check_deaths(|death| move || take_turns(&death, true));
    });
    assert!(said.contains("have one name"), "{said}");
}

#[test]
fn a_state_that_is_moved_unseen_is_caught() {
    let said = found(Mistake::TurnedUnseen, || {
        check_deaths(|death| move || take_turns(&death, true));
    });
    assert!(said.contains("have one name"), "{said}");
}

#[test]
fn a_recovery_without_a_second_look_is_caught() {
    let said = found(Mistake::NoSecondLook, || {
        check_deaths(|death| move || take_turns(&death, false));
    });
    assert!(said.contains("another life"), "{said}");
}

#[test]
fn bytes_that_are_let_go_before_the_state_is_moved_are_caught() {
    let said = found(Mistake::BytesFirst, || {
        check_deaths(|death| move || take_turns(&death, false));
    });
    assert!(said.contains("by two at once"), "{said}");
}
