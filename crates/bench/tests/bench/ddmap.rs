//! `solera bench ddmap`: it measures all rows, compares as it says, and leaves nothing behind. No
//! figure is judged here.

use std::fs;
use std::process::Stdio;
use std::sync::LazyLock;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Ran, TestDir, command};

const ROWS: [&str; 33] = [
    "store in order, twice the node",
    "stores that waited for room, of 1,000",
    "the evictor's processor, a page",
    "touch, both sides poll: p50",
    "touch, both sides poll: p99",
    "touch, the holder blocks: p50",
    "touch, the holder blocks: p99",
    "read in order, pages brought ahead",
    "page here, not mapped: new process",
    "page here, not mapped: second mapping",
    "page here, not mapped, busy: p50",
    "page here, not mapped, idle: p50",
    "store to a protected page, busy: p50",
    "store to a protected page, idle: p50",
    "load and store at random, mapped",
    "values of 1 KiB at random, zipf 0.99",
    "pages that come as others leave, 2 threads",
    "the program's processor, a page at random",
    "the evictor's processor, a page at random",
    "the holders' processor, a page at random",
    "all here: read 4 KiB",
    "all here: overwrite 4 KiB",
    "all here: append 4 KiB, fsync, new pages",
    "all here: load and store at random",
    "start of a program: true",
    "read in order, file of 1 node",
    "read in order, file of 2 nodes",
    "read in order, file of 3 nodes",
    "read in order, file of 4 nodes",
    "load at random, zipf 0.99, file of 1 node",
    "load at random, zipf 0.99, file of 2 nodes",
    "load at random, zipf 0.99, file of 3 nodes",
    "load at random, zipf 0.99, file of 4 nodes",
];

/// The benchmark in its shortest form.
fn bench(place: &TestDir, options: &[&str]) -> std::process::Command {
    let mut command = command();
    command.args(["bench", "ddmap", "--size", "8M"]).args(options);
    command.arg("--place").arg(place.path(""));
    command
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no {key} in {value}"))
}

#[track_caller]
fn is_empty(place: &TestDir) {
    let left: Vec<_> = fs::read_dir(place.path("")).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
}

fn check_peer(row: &Value, peer: &Value) {
    let (own, other) = (number(row, "value"), number(peer, "value"));
    assert!(own > 0.0 && other > 0.0, "{row}");
    assert!((number(peer, "ratio") - own / other).abs() < 1e-6 * own / other, "{peer}");
    let aims = ["at_most", "at_least", "at_most_more"];
    let has_aim = aims.iter().any(|aim| peer[aim].is_number());
    assert_eq!(peer["met"].is_boolean(), has_aim, "{peer}");
}

/// What it measures with all peers, which leaves neither files nor mounts.
static MEASURED: LazyLock<Value> = LazyLock::new(|| {
    let place = TestDir::new();
    let report = Ran::of(&mut bench(&place, &["--rounds", "1", "--json"])).json();
    is_empty(&place);
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the kernel tells");
    assert!(!mounts.contains(&place.path("").display().to_string()), "{mounts}");
    report
});

#[test]
fn every_row_is_measured() {
    if !crate::has_turn("ddmap rows") {
        return;
    }
    let report = &*MEASURED;
    let rows = list(report, "rows");
    let names: Vec<_> = rows.iter().map(|row| row["row"].as_str().expect("a name")).collect();
    assert_eq!(names, ROWS);
    for row in rows {
        for peer in list(row, "peers") {
            check_peer(row, peer);
        }
    }
    assert_eq!(peers(&rows[3])[..2], ["TCP round trip, both poll", "thread, both poll"]);
    for row in &rows[10..14] {
        assert_eq!(peers(row), ["thread"]);
    }
    assert_eq!(peers(&rows[16]), ["1 thread", "what the processors allow"]);
    // What has four nodes' bytes is compared with what has two.
    for row in &rows[25..] {
        let is_last = row["row"].as_str().is_some_and(|name| name.ends_with("4 nodes"));
        assert_eq!(peers(row), if is_last { &["2 nodes"][..] } else { &[] });
    }
    assert!(number(report, "away_percent") > 50.0, "{report}");
}

fn peers(row: &Value) -> Vec<&str> {
    list(row, "peers").iter().map(|peer| peer["peer"].as_str().expect("a name")).collect()
}

/// Each network file system is measured, or named with what is missing.
#[test]
fn network_file_systems_are_peers() {
    if !crate::has_turn("ddmap peers") {
        return;
    }
    let report = &*MEASURED;
    let rows = list(report, "rows");
    let skipped = list(report, "skipped");
    let is_skipped = |name: &str| {
        let starts = |why: &&str| why.starts_with(&format!("{name}: "));
        skipped.iter().filter_map(Value::as_str).any(|why| starts(&why))
    };
    for row in &rows[3..7] {
        for name in ["sshfs, not encrypted", "sshfs", "GlusterFS"] {
            let peer = list(row, "peers").iter().find(|peer| peer["peer"] == name);
            assert_ne!(peer.is_some(), is_skipped(name), "{name}: {report}");
            // No touch of what is away over a network is as cheap as one of memory.
            assert!(peer.is_none_or(|peer| number(peer, "value") > 5.0), "{report}");
        }
    }
}

/// In turn, at one commit in four: what stands where is tested in `report.rs`, on rows that are
/// made up.
#[test]
fn a_table_says_the_same() {
    if !crate::has_turn("ddmap table") {
        return;
    }
    if !rotation::chosen("solera bench ddmap: a table", 4) {
        return;
    }
    let place = TestDir::new();
    let printed =
        Ran::of(&mut bench(&place, &["--rounds", "1", "--peers", "thread", "--nodes", "2"])).ok();
    for words in ["touch, both sides poll: p50", "thread, both poll", "<= +10 us", "2 nodes"] {
        assert!(printed.contains(words), "`{words}` is not in: {printed}");
    }
    assert!(!printed.contains("all here"), "{printed}");
    is_empty(&place);
}

#[test]
fn a_signal_ends_it_and_nothing_is_left() {
    let place = TestDir::new();
    let mut command = bench(&place, &["--rounds", "100"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    while fs::read_dir(place.path("")).expect("a directory").count() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it is there");
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    is_empty(&place);
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let refused = |options: &[&str]| Ran::of(command().args(["bench", "ddmap"]).args(options));
    refused(&["--size", "3M"]).refused(2, &["1 MiB", "--size 32M"]);
    refused(&["--place", "/none"]).refused(1, &["/none"]);
}
