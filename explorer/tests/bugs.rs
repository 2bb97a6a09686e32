//! Bugs that real file systems had, built in again: the explorer must catch each, and nothing without one.
//!
//! `cargo test --release -p solera-explorer --features inject --test bugs`. What each bug is stands in
//! `volume/src/inject.rs`. `SOLERA_BUG=name` tries only that one.
#![cfg(feature = "inject")]

use explorer::campaign::{Stop, figures, run, settings, summary};
use explorer::explore::Report;
use explorer::{concurrent, lifecycle, sequences};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use volume::inject::{Bug, select};

/// Within this time each bug must be caught; on a quiet machine most need a second.
const BOX: Duration = Duration::from_mins(3);

/// What is selected is so in the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Explores until something is found: short lives of whole volumes, a directory that
/// splits, random sequences.
fn hunt(seeds: u64) -> Report {
    let stop = Stop { at: Some(Instant::now() + BOX), at_failure: true, progress: false };
    let mut report = lifecycle::run(settings()[..1].to_vec(), stop);
    if report.failures.is_empty() {
        let strict = settings()[0];
        report.add(run(&|setting, start, _| setting == strict && start.name == "bucket-full"));
    }
    if report.failures.is_empty() {
        report.add(sequences::run(1..=seeds, stop));
    }
    report
}

#[test]
fn each_bug_is_caught_and_nothing_else() {
    let _alone = ALONE.lock();
    let wanted = std::env::var("SOLERA_BUG").unwrap_or_default();
    let report = hunt(20);
    println!("no bug: {}", summary(&report));
    assert!(report.failures.is_empty() && report.calls > 0, "{}", summary(&report));
    let mut missed = Vec::new();
    for bug in Bug::ALL.into_iter().filter(|bug| format!("{bug:?}").starts_with(&wanted)) {
        let begun = Instant::now();
        select(Some(bug));
        let report = hunt(u64::MAX);
        select(None);
        let seconds = begun.elapsed().as_secs_f64();
        println!("{bug:?}: {seconds:.1} s, {}", figures(&report));
        match report.failures.first() {
            Some(text) => println!("  {}", text.lines().next().unwrap_or_default()),
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

/// The judge of concurrent calls sees faults too.
#[test]
fn races_are_judged() {
    let _alone = ALONE.lock();
    select(Some(Bug::RenameDropsFirst));
    let stop = Stop { at: Some(Instant::now() + BOX), at_failure: true, progress: false };
    let report = concurrent::run(stop);
    select(None);
    println!("{}", figures(&report));
    assert!(!report.failures.is_empty(), "{}", summary(&report));
}
