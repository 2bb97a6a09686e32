//! Bugs that real file systems had, built in again: the explorer must catch each, and nothing
//! without one.
//!
//! `cargo test --release -p solera-explorer --features inject --test bugs`. What each bug is stands
//! in `crates/volume/src/inject.rs`. `SOLERA_BUG=name` tries only that one.

mod flex;

use explorer::campaign::{Share, Stop, figures, run, settings, summary};
use explorer::cases::{Case, Start};
use explorer::exploration::Report;
use explorer::{concurrent, deaths, lifecycle, sequences};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use volume::inject::{Bug, select};

/// Within this time each bug must be caught, on a machine that is busy; else most need a second.
const BOX: Duration = Duration::from_mins(10);

/// What is selected is so in the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The campaigns in which a bug shows soonest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    /// Short lives of whole volumes, a directory that splits, random sequences.
    Anywhere,
    /// Files that end in short appends.
    Tails,
    /// A process that dies, another one that goes on.
    Deaths,
    /// Files of single blocks.
    Apart,
}

fn family_of(bug: Bug) -> Family {
    match bug {
        Bug::SumNotAsked | Bug::TailSumNotCleared | Bug::RedoNotVoided => Family::Tails,
        Bug::WordNotDurable => Family::Apart,
        Bug::DeadNotFlushed | Bug::DeadTailNotFlushed => Family::Deaths,
        _ => Family::Anywhere,
    }
}

fn stop() -> Stop {
    Stop { after: Some(BOX), at_failure: true, progress: false }
}

/// Explores until something is found.
fn hunt(family: Family, seeds: u64) -> Report {
    let (stop, strict) = (stop(), settings()[0]);
    let on = |name: &str| {
        run(&|setting, start, _| setting == strict && start.name == name, Share::All, stop)
    };
    match family {
        Family::Tails => return on("tail"),
        Family::Apart => return on("apart"),
        Family::Deaths => return deaths::run(Share::All, stop),
        Family::Anywhere => {}
    }
    let mut report = lifecycle::run(settings()[..1].to_vec(), Share::All, stop);
    if report.failures.is_empty() {
        report.add(on("bucket-full"));
    }
    if report.failures.is_empty() {
        report.add(sequences::run(1..=seeds, Share::All, stop));
    }
    report
}

/// `tests/crash/campaigns.rs` says that nothing else is found, by more of the same.
#[test]
fn each_bug_is_caught_and_nothing_else() {
    let _alone = ALONE.lock();
    let wanted = std::env::var("SOLERA_BUG").unwrap_or_default();
    let report = hunt(Family::Anywhere, 20);
    println!("no bug: {}", summary(&report));
    assert!(report.failures.is_empty() && report.calls > 0, "{}", summary(&report));
    let mut missed = Vec::new();
    for bug in Bug::ALL.into_iter().filter(|bug| format!("{bug:?}").starts_with(&wanted)) {
        let begun = Instant::now();
        select(Some(bug));
        let report = hunt(family_of(bug), u64::MAX);
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

/// Each fault is seen in its case of this start, what is told of it has this text (the file of a
/// lost store, say), and nothing is seen without it.
fn seen_in(start_name: &str, text: &str, faults: &[(Bug, &str)]) {
    let strict = settings()[0];
    let hunt = |case: &str| {
        let wanted = |setting, start: &Start, one: &Case| {
            setting == strict && start.name == start_name && one.name == case
        };
        run(&wanted, Share::All, stop())
    };
    for &(bug, case) in faults {
        let without = hunt(case);
        assert!(without.failures.is_empty() && without.calls > 0, "{case}, without {bug:?}");
        select(Some(bug));
        let report = hunt(case);
        select(None);
        println!("{bug:?}, {case}: {}", summary(&report));
        let told = report.failures.first().expect("it is seen");
        assert!(told.contains(text), "{told}");
    }
}

/// Names come and go without waiting, too, and faults are seen there.
#[test]
fn names_at_once_are_judged() {
    let _alone = ALONE.lock();
    let faults = [
        (Bug::NameBeforeInode, "at-once-create"),
        (Bug::NameNotFlushed, "at-once-create"),
        (Bug::NameNotFlushed, "at-once-unlink"),
        (Bug::CommitInPlace, "at-once-create"),
        (Bug::CommitInPlace, "at-once-unlink"),
    ];
    seen_in("names", "change.rs:", &faults);
}

/// Overwrites that replace a block are judged too, their faults seen where they are.
#[test]
fn replaced_blocks_are_judged() {
    let _alone = ALONE.lock();
    let faults = [
        // (The first witness that is forged is one.)
        (Bug::ChangeBeforeRedo, "replace-twice"),
        (Bug::RedoForgotten, "replace"),
        (Bug::WordNotDurable, "replace-and-append"),
        (Bug::WordNotDurable, "replace-three"),
    ];
    seen_in("apart", "replacement.rs:", &faults);
}

/// What a list changes at once is judged, its faults seen where they are.
#[test]
fn listed_changes_are_judged() {
    let _alone = ALONE.lock();
    let faults = [
        (Bug::ChangeBeforeRedo, "overwrite-4096-from-2"),
        (Bug::RedoForgotten, "overwrite-4096-from-2"),
        (Bug::RedoForgotten, "write-across-end"),
        (Bug::RedoForgotten, "lists-in-turns"),
    ];
    seen_in("direct", "file.rs:", &faults);
    // Nothing is lost then, but recovery stores again what the mapping was stored over.
    let stands = [(Bug::RedoNotVoided, "write-and-store-mapped")];
    seen_in("direct", "after the call returned", &stands);
}

/// The judge of concurrent calls sees faults too.
#[test]
fn races_are_judged() {
    let _alone = ALONE.lock();
    select(Some(Bug::RenameDropsFirst));
    let report = concurrent::run(Share::All, stop());
    select(None);
    println!("{}", figures(&report));
    assert!(!report.failures.is_empty(), "{}", summary(&report));
}

/// A failure is told by the shortest workload, the source lines of the stores that are lost, and a
/// command that shows it again: with the bug the same failure, without it none.
#[test]
fn a_failure_is_told_in_short_and_can_be_replayed() {
    let _alone = ALONE.lock();
    select(Some(Bug::SizeBeforeData));
    let report = sequences::run(1..=2, Share::All, Stop::default());
    let told = report.failures.first().expect("the first sequences show it");
    println!("{told}");
    let id = told.split_once("SOLERA_EXPLORE='").and_then(|(_, rest)| rest.split_once('\''));
    let id = id.expect("a replay is named").0;
    let again = sequences::replayed(id);
    select(None);
    let without = sequences::replayed(id);

    let lost = |text: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix("lost stores: "));
        line.expect("lost stores are told").to_owned()
    };
    let place = lost(told);
    let (file, line) = place.split_once(".rs:").expect("a source line");
    assert!(file.len() > 2 && line.starts_with(|first: char| first.is_ascii_digit()), "{place}");
    let calls = told.split_once("workload:").expect("a workload").1.split_once("replay:");
    let calls = calls.expect("a replay").0.lines().filter(|line| !line.trim().is_empty()).count();
    assert!((1..=4).contains(&calls), "{calls} calls");
    assert!(told.contains("crash during") && told.contains("\n  state "), "{told}");
    assert_eq!(again.failures.len(), 1, "{}", summary(&again));
    assert_eq!(lost(&again.failures[0]), place);
    assert!(without.failures.is_empty() && without.calls == 1, "{}", summary(&without));
}
