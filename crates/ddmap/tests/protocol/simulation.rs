//! The machines of `protocol` in worlds that are drawn from seeds: one host, 2 to 15 holders, and
//! all that may fail (`world/`). The same code runs over shared memory.
//!
//! `SOLERA_TEST_SEED=N` runs that seed alone. Else those run that the commit chooses (`rotation`),
//! one in four; with `SOLERA_TEST_LONG` all, and twenty times as many.

use super::world::{Counts, Run, run};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Seeds of the short run.
const SEEDS: u64 = 1_000;

fn told(seed: u64, wrong: &str) -> String {
    format!(
        "seed {seed}: {wrong}\nagain: SOLERA_TEST_SEED={seed} cargo test --release \
         -p solera-ddmap simulation -- --nocapture"
    )
}

fn add(sum: &mut Counts, one: Counts) {
    sum.steps += one.steps;
    sum.accesses += one.accesses;
    sum.fetched += one.fetched;
    sum.gone += one.gone;
    sum.zeros += one.zeros;
    sum.deaths += one.deaths;
    sum.holder_deaths += one.holder_deaths;
    sum.settled += one.settled;
    sum.lost += one.lost;
    sum.damaged += one.damaged;
    sum.in_vain += one.in_vain;
    sum.again += one.again;
    sum.refused += one.refused;
    sum.discarded += one.discarded;
    sum.renewed += one.renewed;
    sum.clean += one.clean;
    sum.told += one.told;
    sum.shed += one.shed;
    sum.calls += one.calls;
    sum.of_two += one.of_two;
    sum.single += one.single;
    sum.healed += one.healed;
    sum.moved += one.moved;
    sum.equal += one.equal;
    sum.forgotten += one.forgotten;
}

#[test]
fn pages_move_among_nodes_that_fail() {
    if let Ok(seed) = std::env::var("SOLERA_TEST_SEED") {
        let seed = seed.parse().expect("SOLERA_TEST_SEED is a number");
        let counts: Run = run(seed, None);
        println!("{:?}", counts.unwrap_or_else(|wrong| panic!("{}", told(seed, &wrong))));
        return;
    }
    let seeds = if rotation::all() { 20 * SEEDS } else { SEEDS };
    let seeds: Vec<u64> =
        (0..seeds).filter(|seed| rotation::chosen(&format!("simulation/{seed}"), 4)).collect();
    let (next, sum) = (AtomicUsize::new(0), Mutex::new(Counts::default()));
    let failed = Mutex::new(None::<(u64, String)>);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(&seed) = seeds.get(at) else { break };
                    match run(seed, None) {
                        Ok(counts) => add(&mut sum.lock().unwrap(), counts),
                        Err(wrong) => {
                            failed.lock().unwrap().get_or_insert((seed, wrong));
                            next.store(seeds.len(), Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    if let Some((seed, wrong)) = failed.into_inner().unwrap() {
        panic!("{}", told(seed, &wrong));
    }
    let sum = sum.into_inner().unwrap();
    println!("{} seeds: {sum:?}", seeds.len());
    // A world in which one of these does not happen shows nothing. They are 11 in 100 worlds at
    // least; a sample may have fewer.
    let least = seeds.len() as u64 / if rotation::all() { 10 } else { 50 };
    let happened = [
        sum.accesses,
        sum.fetched,
        sum.gone,
        sum.zeros,
        sum.deaths,
        sum.holder_deaths,
        sum.settled,
        sum.lost,
        sum.damaged,
        sum.in_vain,
        sum.again,
        sum.refused,
        sum.discarded,
        sum.renewed,
        sum.clean,
        sum.told,
        sum.shed,
        sum.calls,
        sum.of_two,
        sum.single,
        sum.healed,
    ];
    assert!(happened.iter().all(|count| *count > least), "{sum:?}");
}
