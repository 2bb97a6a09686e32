//! Mistakes are put back, one at a time, into the machines ([`Mistake`]) and into the world around
//! them ([`Flaw`]): the simulation, or the check of all states of small cases, must catch each.

mod cases;
mod memory;
mod world;

use ddmap::protocol::{Mistake, make};
use memory::Flaw;

/// Seeds within which the simulation is to catch a mistake.
const SEEDS: u64 = 300;

/// The mistakes of machines.
const MISTAKES: [Mistake; 15] = [
    Mistake::FinishedUndone,
    Mistake::NamedLate,
    Mistake::NamesCollectedEarly,
    Mistake::NamedEvicted,
    Mistake::SentUnprotected,
    Mistake::SameVersionAgain,
    Mistake::PlacedEarly,
    Mistake::AbsentBeforeHole,
    Mistake::TakenFromTheLiving,
    Mistake::ZerosForgetVersion,
    Mistake::OlderStored,
    Mistake::NewerReleased,
    Mistake::AnyVersionGiven,
    Mistake::UnreadableDropped,
    Mistake::LeavingReconciled,
];

/// The first seed at which the simulation fails, and how.
fn caught(flaw: Option<Flaw>) -> Option<(u64, String)> {
    (0..SEEDS).find_map(|seed| {
        let wrong = world::run(seed, flaw).err()?;
        Some((seed, wrong.lines().next().unwrap_or_default().chars().take(100).collect()))
    })
}

/// The first case that fails, and how.
fn caught_in_cases(mistake: Mistake) -> Option<(String, String)> {
    cases::cases().into_iter().find_map(|case| {
        let case = cases::Case { mistake: Some(mistake), ..case };
        let wrong = cases::check(&case, Some(300_000)).wrong?;
        Some((case.name.into(), wrong.lines().next().unwrap_or_default().into()))
    })
}

#[test]
fn each_mistake_is_caught() {
    let mut missed = 0;
    let mut row = |name: String, caught: Option<(u64, String)>| match caught {
        Some((seed, how)) => println!("{name:22} simulation, seed {seed:4}: {how}"),
        None => {
            println!("{name:22} nobody");
            missed += 1;
        }
    };
    for mistake in MISTAKES {
        let t = std::time::Instant::now();
        println!("{mistake:?} {:?} {:?}", caught_in_cases(mistake), t.elapsed());
        make(Some(mistake));
        row(format!("{mistake:?}"), caught(None));
        make(None);
    }
    for flaw in Flaw::ALL {
        row(format!("{flaw:?}"), caught(Some(flaw)));
    }
    assert_eq!(missed, 0);
}
