//! No power cut leaves anything but what the mode promises: every single operation of the contract, on
//! every relevant start state, in all modes and on both classes of persistence; and random sequences.
//!
//! `SOLERA_EXPLORE` replays a failure (see `campaign.rs`).

use explorer::campaign::{Filter, Stop, is_long, run, summary};
use explorer::explore::Report;
use explorer::sequences;

fn must_hold(report: &Report) {
    println!("{}", summary(report));
    assert!(report.failures.is_empty(), "{}", summary(report));
    assert!(report.calls > 0 || Filter::from_environment().is_set(), "nothing was explored");
}

#[test]
fn single_calls() {
    must_hold(&run(&|_, _, _| true));
}

#[test]
fn random_sequences() {
    let seeds = if is_long() { 2000 } else { 150 };
    must_hold(&sequences::run(1..=seeds, Stop::default()));
}

#[test]
fn pairs_and_triples() {
    must_hold(&sequences::run_sets(if is_long() { 20_000 } else { 300 }));
}
