//! `solera bench sqlite`: what it prints, and what it says where something is missing. No figure is
//! judged here.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Ran, TestDir, built, copy_program};

const ALL: &[&str] = &["nothing", "unix", "solera", "unix on a volume", "solera on a volume"];
const ROWS: [(&str, &[&str]); 5] = [
    ("wal", ALL),
    ("exclusive", &["nothing", "unix", "solera", "solera on a volume"]),
    ("delete", ALL),
    ("select", ALL),
    ("first", &["unix", "solera", "solera on a volume"]),
];

/// What the benchmark needs beside the command.
const BESIDE: [&str; 2] = ["solera-bench", "libsolera_preload.so"];

/// Whether this machine has SQLite.
fn has_sqlite() -> bool {
    // SAFETY: SQLite's library does nothing when it is loaded.
    let has = unsafe { !libc::dlopen(c"libsqlite3.so.0".as_ptr(), libc::RTLD_NOW).is_null() };
    if !has {
        eprintln!("skipped: no libsqlite3.so.0 here (Debian: libsqlite3-0)");
    }
    has
}

/// The command in a `bin` of its own, with these files beside it.
fn install(place: &TestDir, beside: &[&str]) -> String {
    let own = built("solera");
    let bin = place.path("bin");
    fs::create_dir(&bin).expect("a directory");
    for name in [&["solera"], beside].concat() {
        copy_program(own.with_file_name(name), bin.join(name));
    }
    place.text("bin/solera")
}

/// SQLite's extension in `lib`, beside that `bin`.
fn link(place: &TestDir) {
    let own = built("solera");
    let lib = place.path("lib");
    fs::create_dir(&lib).expect("a directory");
    let link = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi/link.sh");
    Ran::of(Command::new(link).arg(own.with_file_name("libsolera.a")).arg(&lib)).ok();
}

/// The benchmark in its shortest form.
fn bench(place: &TestDir, program: &str) -> Command {
    let data = place.path("data");
    let _ = fs::create_dir(&data);
    let mut command = Command::new(program);
    command.args(["bench", "sqlite", "--repeat", "1", "--inserts", "20", "--rows", "500"]);
    command.arg(data).stdin(Stdio::null()).env_remove("LD_PRELOAD");
    command
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// Microseconds of a row, if it was measured.
fn time(report: &Value, row: &str, peer: &str, key: &str) -> Option<f64> {
    let mut rows = list(report, "rows").iter();
    rows.find(|it| it["row"] == row && it["peer"] == peer)?[key].as_f64()
}

fn check_target(report: &Value, target: &Value) {
    let row = text(target, "row");
    let of = |peer, key| time(report, row, text(target, peer), key);
    for (key, reached) in [("us", "reached"), ("cpu_us", "reached_cpu")] {
        let (Some(own), Some(other)) = (of("peer", key), of("over", key)) else {
            panic!("not measured: {target}");
        };
        let expected = match text(target, "unit") {
            "times" => own / other,
            "us more" => own - other,
            unit => panic!("another unit: {unit}"),
        };
        let reached = target[reached].as_f64().unwrap_or_else(|| panic!("{target}"));
        assert!((reached - expected).abs() < 1e-6 * expected.abs().max(1.0), "{target}");
    }
    let met = target["at_most"].as_f64().zip(target["reached"].as_f64());
    assert_eq!(target["met"].as_bool(), met.map(|(most, reached)| reached <= most), "{target}");
}

#[test]
fn every_row_is_measured() {
    if !crate::has_turn("sqlite rows") {
        return;
    }
    if !has_sqlite() {
        return;
    }
    let place = TestDir::new();
    let program = install(&place, &BESIDE);
    link(&place);
    let report = Ran::of(bench(&place, &program).arg("--json")).json();
    let rows = list(&report, "rows");
    let measured: Vec<_> = rows.iter().map(|it| (text(it, "row"), text(it, "peer"))).collect();
    let expected = ROWS.iter().flat_map(|(row, peers)| peers.iter().map(|peer| (*row, *peer)));
    assert_eq!(measured, expected.collect::<Vec<_>>());
    for (row, peer) in measured {
        for key in ["us", "cpu_us"] {
            let time = time(&report, row, peer, key);
            assert!(time.is_some_and(|time| time > 0.0 && time.is_finite()), "{row}, {peer}");
        }
    }
    let targets = list(&report, "targets");
    assert!(!targets.is_empty());
    for target in targets {
        check_target(&report, target);
    }
    assert!(text(&report, "sqlite").starts_with("3."));

    let printed = Ran::of(&mut bench(&place, &program)).ok();
    for words in
        ["insert 100 B, WAL", "select 500 rows", "unix on a volume", "at most", "SQLite 3."]
    {
        assert!(printed.contains(words), "`{words}` is not in: {printed}");
    }
    let left: Vec<_> = fs::read_dir(place.path("data")).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_is_missing_is_said() {
    let place = TestDir::new();
    let program = install(&place, &BESIDE);
    // A file that is no library stands for a machine without SQLite.
    let none = place.path("none");
    fs::create_dir(&none).expect("a directory");
    fs::write(none.join("libsqlite3.so.0"), "").expect("a file");
    let ran = Ran::of(bench(&place, &program).env("LD_LIBRARY_PATH", &none));
    ran.refused(1, &["load SQLite", "apt-get install libsqlite3-0"]);
    if has_sqlite() {
        let ran = Ran::of(&mut bench(&place, &program));
        ran.refused(1, &["solera_vfs.so", "bin", "../lib", "make install"]);
    }
}

/// Whoever has copied `solera` alone learns what is missing, and has the help.
#[test]
fn the_command_without_the_program_that_measures_says_so() {
    let place = TestDir::new();
    let program = install(&place, &[]);
    for line in [&["bench", "micro"][..], &["age", "v.pm"]] {
        let ran = Ran::of(Command::new(&program).args(line));
        ran.refused(1, &["start solera-bench", "bin/solera-bench", "install solera anew"]);
    }
    let help = Ran::of(Command::new(&program).args(["bench", "micro", "--help"])).ok();
    assert!(help.contains("Usage: solera bench micro [OPTIONS]"), "{help}");
}
