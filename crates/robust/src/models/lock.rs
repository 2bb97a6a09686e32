//! The lock word: what it keeps is changed by one at a time, and a process that lives gets it.

use super::words::{Death, check_deaths};
use super::{Process, World, found};
use crate::Mistake;
use std::sync::Arc;

/// Two processes work under the lock, of which one may die; `quickly`: how they release it.
fn two(death: &Death, quickly: bool) {
    let world = Arc::new(World::new(2));
    let dies = Process::new(&world, 0, death);
    let first = loom::thread::spawn(move || {
        // It may have died.
        let _ = dies.work(quickly);
    });
    let lives = Process::new(&world, 1, &Death::never());
    assert_eq!(lives.work(quickly), Ok(()));
    first.join().unwrap();
}

/// Of three the first dies holding the lock, and the second wherever `death` says: while it
/// recovers the first, perhaps. The third gets it.
fn three(death: &Death) {
    let world = Arc::new(World::new(3));
    let first = Process::new(&world, 0, &Death::at(3));
    assert!(first.work(false).is_err());
    let second = Process::new(&world, 1, death);
    let second = loom::thread::spawn(move || {
        // It may have died.
        let _ = second.work(false);
    });
    let third = Process::new(&world, 2, &Death::never());
    assert_eq!(third.work(false), Ok(()));
    second.join().unwrap();
}

#[test]
fn one_dies_and_the_other_gets_the_lock() {
    for quickly in [false, true] {
        let points = check_deaths(|death| move || two(&death, quickly));
        assert!(points > 4, "{points}");
    }
}

#[test]
fn a_recoverer_dies_and_another_one_gets_the_lock() {
    let points = check_deaths(|death| move || three(&death));
    assert!(points > 15, "{points}");
}

#[test]
fn a_lock_that_is_taken_by_a_store_is_caught() {
    let said = found(Mistake::TakenByStore, || {
        check_deaths(|death| move || two(&death, false));
    });
    assert!(said.contains("Concurrent write"), "{said}");
}

#[test]
fn a_living_owner_that_is_recovered_is_caught() {
    let said = found(Mistake::NobodyAsked, || {
        check_deaths(|death| move || two(&death, false));
    });
    assert!(said.contains("Concurrent write"), "{said}");
}
