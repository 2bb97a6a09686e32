//! `solera bench flac`: it measures all rows, compares and counts as it says, and leaves nothing
//! behind. No figure is judged here.

use std::fs;

use serde_json::Value;

use crate::support::{Ran, TestDir, command};

const ROWS: [&str; 46] = [
    "start, a new cache",
    "start, a cache that is there",
    "hit, 2 MiB, summed",
    "hit, 2 MiB, untouched",
    "hit, whole file, summed",
    "hit, 4 KiB, random",
    "attached, 2 MiB, summed",
    "explicit buffer, 2 MiB, summed",
    "attached, whole file, summed",
    "explicit buffer, whole file, summed",
    "attached, 2 MiB, untouched",
    "explicit buffer, 2 MiB, untouched",
    "attached, 2 MiB, all changed behind it",
    "explicit buffer, 2 MiB, summed, a second thread",
    "explicit buffer, 2 MiB: fault",
    "explicit buffer, 2 MiB: detach",
    "read 4 KiB, in order",
    "read 4 KiB, random",
    "read 64 KiB, in order",
    "read 64 KiB, random",
    "read 1 MiB, in order",
    "read 1 MiB, random",
    "read 16 MiB, in order",
    "read 16 MiB, random",
    "program: grep",
    "program: tar",
    "program: tar -b 8192",
    "program: cp",
    "program: sort",
    "program: a loader, attached",
    "program: fio, random, 4k",
    "program: fio, random, 256k",
    "program: fio, random, 16m",
    "program: fio, in order, 4k",
    "program: fio, in order, 256k",
    "program: fio, in order, 16m",
    "writing: cp",
    "writing: tar -x",
    "writing: sqlite, a transaction a row",
    "miss, 2 MiB",
    "miss, 2 MiB, summed, filled ahead",
    "overwrite 4 KiB, all of a cached file",
    "overwrite 4 KiB, one of a cached chunk",
    "overwrite 4 KiB, not cached",
    "overwrite 2 MiB, cached",
    "overwrite 2 MiB, not cached",
];

/// The benchmark in its shortest form.
fn bench(place: &TestDir, options: &[&str]) -> Ran {
    let mut command = command();
    command.args(["bench", "flac", "--repeat", "1", "--size", "16M"]).args(options);
    Ran::of(command.arg("--place").arg(place.path("")))
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn check_peer(row: &Value, peer: &Value) {
    let (own, other) = (number(row, "us"), number(peer, "us"));
    assert!(own > 0.0 && other > 0.0, "{row}");
    assert!((number(peer, "ratio") - own / other).abs() < 1e-6 * own / other, "{peer}");
    let met = match (peer["at_most"].as_f64(), peer["at_most_more_us"].as_f64()) {
        (Some(most), _) => Some(number(peer, "ratio") <= most),
        (_, Some(most)) => Some(number(peer, "more_us") <= most),
        _ => None,
    };
    assert_eq!(peer["met"].as_bool(), met, "{peer}");
}

#[test]
fn every_row_is_measured() {
    if !crate::has_turn("flac rows") {
        return;
    }
    let place = TestDir::new();
    let report = bench(&place, &["--memory", "cxl-ssd", "--json"]).json();
    let [model] = list(&report, "models") else { panic!("{report}") };
    assert_eq!(model["memory"], "cxl-ssd");
    let rows = list(model, "rows");
    let names: Vec<_> = rows.iter().map(|row| row["row"].as_str().expect("a name")).collect();
    assert_eq!(names, ROWS);
    for row in rows {
        let peers = list(row, "peers");
        assert!(!peers.is_empty(), "{row}");
        for peer in peers {
            check_peer(row, peer);
        }
    }
    let slow = rows.iter().find(|row| row["row"] == "hit, 2 MiB, untouched").expect("a row");
    let of = |name| list(slow, "peers").iter().find(|peer| peer["peer"] == name);
    // The model waits, whatever the machine does: 2 MiB by 4 GB/s.
    assert!(number(of("volume").expect("a peer"), "us") >= 500.0, "{slow}");
    for name in ["DRAM", "tmpfs, 4 KiB pages"] {
        assert!(of(name).is_some(), "{slow}");
    }
    let left: Vec<_> = fs::read_dir(place.path("")).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// In turn, at one commit in four: what stands where is tested in `report.rs`, on rows that are
/// made up.
#[test]
fn a_table_says_the_same() {
    if !crate::has_turn("flac table") {
        return;
    }
    if !rotation::chosen("solera bench flac: a table", 4) {
        return;
    }
    let printed = bench(&TestDir::new(), &["--memory", "0/20,0/20"]).ok();
    for words in ["memory 0/20,0/20", "hit, 2 MiB, summed", "without --cache", "at most", "16.00"] {
        assert!(printed.contains(words), "`{words}` is not in: {printed}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let place = TestDir::new();
    let refused = |options: &[&str]| Ran::of(command().args(["bench", "flac"]).args(options));
    refused(&["--size", "3M"]).refused(2, &["16 MiB", "--size 64M"]);
    refused(&["--place", &place.text("none")]).refused(1, &["none", "tmpfs"]);
    let wrong = refused(&["--memory", "fast"]).ended_with(2);
    assert!(wrong.err.contains("no model of memory"), "{}", wrong.err);
}
