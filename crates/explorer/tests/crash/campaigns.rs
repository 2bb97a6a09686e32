//! No power cut leaves anything but what the mode promises: every single operation of the contract,
//! on every relevant start state, in all modes and on both classes of persistence; and random
//! sequences. Each commit draws a quarter of the workloads of each campaign (`SOLERA_ROTATION`); of
//! single calls all states in mode strict of class cache-line, a quarter of the others. With
//! `SOLERA_TEST_LONG` all workloads, and more states: all of single calls; five times as many of
//! pairs, two and a half times of two calls at once.
//!
//! `SOLERA_EXPLORE` replays a failure (see `campaign.rs`).

use explorer::campaign::{Filter, Share, Stop, is_long, run, settings, summary};
use explorer::exploration::Report;
use explorer::{concurrent, deaths, extent_release, lifecycle, sequences};
use std::time::Duration;

fn must_hold(name: &str, report: &Report) {
    println!("{name}: {}", summary(report));
    assert!(report.failures.is_empty(), "{}", summary(report));
    assert!(report.calls > 0 || Filter::from_environment().is_set(), "nothing was explored");
}

#[test]
fn single_calls() {
    must_hold("single calls", &run(&|_, _, _| true, Share::Drawn, Stop::default()));
}

/// With `SOLERA_TEST_LONG`: for `SOLERA_MINUTES` (10 if it is not set), from seed `SOLERA_SEED` on.
#[test]
fn random_sequences() {
    if !is_long() {
        return must_hold(
            "random sequences",
            &sequences::run(1..=150, Share::Drawn, Stop::default()),
        );
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let minutes = number("SOLERA_MINUTES").unwrap_or(10);
    let after = Some(Duration::from_secs(60 * minutes));
    let stop = Stop { after, progress: true, ..Stop::default() };
    let first = number("SOLERA_SEED").unwrap_or(1);
    must_hold("random sequences", &sequences::run(first..=u64::MAX, Share::All, stop));
}

#[test]
fn pairs_and_triples() {
    let triples = if is_long() { 20_000 } else { 300 };
    must_hold("pairs and triples", &sequences::run_sets(triples));
}

#[test]
fn lives_of_volumes() {
    must_hold("lives of volumes", &lifecycle::run(settings(), Share::Drawn, Stop::default()));
}

#[test]
fn two_calls_at_once() {
    must_hold("two calls at once", &concurrent::run(Share::Drawn, Stop::default()));
}

#[test]
fn a_death_and_then_a_power_cut() {
    must_hold("a death, then a power cut", &deaths::run(Share::Drawn, Stop::default()));
}

#[test]
fn a_death_beside_the_last_inode_of_an_extent() {
    must_hold("a death beside an extent's end", &extent_release::run(Stop::default()));
}
