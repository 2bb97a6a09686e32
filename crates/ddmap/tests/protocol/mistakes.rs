//! Mistakes are put back, one at a time, into the machines ([`Mistake`]) and into the world around
//! them ([`Flaw`]): the simulation, the check of all states of small cases, or that of operations
//! at a holder (`concurrency.rs`) must catch each.
//! Those are made that the commit chooses (`rotation`), one in four; with `SOLERA_TEST_LONG` all,
//! and by both; with `SOLERA_TEST_MISTAKE=NAME` that one. That nothing is caught without one is
//! what `simulation.rs` and `exhaustive.rs` show.

use crate::protocol::{Mistake, make};
use crate::tests::protocol::memory::Flaw;

/// Seeds within which the simulation is to catch a mistake.
const SEEDS: u64 = 400;
/// States of each case within which the check of all states is to.
const STATES: usize = 200_000;

/// The mistakes of machines.
const MISTAKES: [Mistake; 40] = [
    Mistake::FinishedUndone,
    Mistake::NamedLate,
    Mistake::NamesCollectedEarly,
    Mistake::NamedEvicted,
    Mistake::SentUnprotected,
    Mistake::SameVersionAgain,
    Mistake::OneVersionOn,
    Mistake::UnansweredLost,
    Mistake::PlacedHereEarly,
    Mistake::OwnedEarly,
    Mistake::PlacedEarly,
    Mistake::AbsentBeforeHole,
    Mistake::TakenFromTheLiving,
    Mistake::ZerosForgetVersion,
    Mistake::ZerosUnmarked,
    Mistake::OlderStored,
    Mistake::NewerReleased,
    Mistake::AnyVersionGiven,
    Mistake::UnreadableDropped,
    Mistake::HoleBeforePlaced,
    Mistake::KeptEarly,
    Mistake::PlaceFirst,
    Mistake::LeavingReconciled,
    Mistake::LostKeepsVersion,
    Mistake::VoidedLate,
    Mistake::DroppedInFile,
    Mistake::FoundGivenUp,
    Mistake::CleanIsFlag,
    Mistake::LoadOpens,
    Mistake::SpareClearedLate,
    Mistake::AnyVersionKept,
    Mistake::SpareBelieved,
    Mistake::DroppedUntold,
    Mistake::OneRefusedLost,
    Mistake::SilentIsNo,
    Mistake::SecondUnheard,
    Mistake::HealedBlindly,
    Mistake::HealedUnclaimed,
    Mistake::EqualInVain,
    Mistake::ThirdReleased,
];

/// The first seed at which the simulation fails, and how.
fn caught(flaw: Option<Flaw>) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| {
        let wrong = super::world::run(seed, flaw).err()?;
        Some((seed, short(&wrong)))
    })
}

/// The first case that fails, how, and how many states were looked at.
fn caught_in_cases(mistake: Mistake) -> Option<(usize, String)> {
    super::cases::cases().into_iter().find_map(|case| {
        let case = super::cases::Case { mistake: Some(mistake), ..case };
        let checked = super::cases::check(&case, Some(STATES));
        Some((checked.states, format!("{}: {}", case.name, short(&checked.wrong?))))
    })
}

/// The same of operations on one page at a holder. (That it keeps another version than it has is
/// asked by no host of the simulation: the directory says first that a page has no spare.)
fn caught_at_a_holder() -> Option<(usize, String)> {
    let wrong = super::concurrency::all().err()?;
    Some((0, format!("operations at a holder: {}", short(&wrong))))
}

fn short(wrong: &str) -> String {
    wrong.lines().next().unwrap_or_default().chars().take(90).collect()
}

/// A line of the table for each who caught it; whether anybody did.
fn row(name: &str, simulated: Option<(u64, String)>, checked: Option<(usize, String)>) -> bool {
    if simulated.is_none() && checked.is_none() {
        println!("{name:20} nobody");
        return false;
    }
    if let Some((seed, how)) = simulated {
        println!("{name:20} simulation, seed {seed:3}: {how}");
    }
    if let Some((states, how)) = checked {
        println!("{name:20} {states:6} states of {how}");
    }
    true
}

#[test]
fn each_mistake_is_caught() {
    let mut missed = Vec::new();
    let only = std::env::var("SOLERA_TEST_MISTAKE").ok();
    let chosen = |name: &str| match &only {
        Some(only) => only.split(',').any(|only| only == name),
        None => rotation::chosen(&format!("mistakes/{name}"), 4),
    };
    for mistake in MISTAKES {
        let name = format!("{mistake:?}");
        if !chosen(&name) {
            continue;
        }
        make(Some(mistake));
        let simulated = caught(None);
        let is_asked = simulated.is_none() || rotation::all();
        let by_cases = || caught_in_cases(mistake).or_else(caught_at_a_holder);
        let checked = is_asked.then(by_cases).flatten();
        make(None);
        if !row(&name, simulated, checked) {
            missed.push(name);
        }
    }
    for flaw in Flaw::ALL {
        let name = format!("{flaw:?}");
        if chosen(&name) && !row(&name, caught(Some(flaw)), None) {
            missed.push(name);
        }
    }
    assert_eq!(missed, Vec::<String>::new(), "are caught by nobody");
}
