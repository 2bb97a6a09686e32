//! Random calls of several processes on the second engine: every result must be the kernel's.
//!
//! `c/random.c` runs once on a directory of the kernel's and once, preloaded, on another one beside
//! it; a seed stands for the calls and for the engine's limits. Two of its processes use the
//! engine, the third never does. A run takes a quarter of the first seeds, by rotation. More seeds:
//! `SOLERA_TEST_LONG=1`; one: `SOLERA_RANDOM_SEED=N`.

use std::path::Path;
use std::process::Command;

use crate::support::mounted::Mounted;
use crate::support::{TestDir, compile, library, text};

/// Runs the program in a new directory; `mode`: with the engine.
fn run(program: &Path, directory: &Path, seed: u64, steps: u64, mode: Option<&str>) -> String {
    std::fs::create_dir_all(directory).expect("a directory");
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "300"]).arg(program).arg(directory);
    command.arg(seed.to_string()).arg(steps.to_string());
    if seed % 2 == 1 {
        command.arg("kills");
    }
    if let Some(mode) = mode {
        command.env("LD_PRELOAD", library()).env("SOLERA_SPLIT", directory);
        command.env("SOLERA_MODE", mode).env("SOLERA_EMULATE", "1");
        command.env("SOLERA_SPLIT_PATIENCE", (seed % 3).to_string());
        // Limits that are met soon.
        let small = [("WINDOWS", "2", 4), ("STAGING", "1048576", 5), ("LOG", "4096", 7)];
        for (word, value, _) in small.iter().filter(|&&(.., every)| seed % every == 1) {
            command.env(format!("SOLERA_SPLIT_{word}"), value);
        }
    }
    text(&command.output().expect("the program runs"))
}

/// Compares what `seeds` say in `ground`, in a mode that goes with the seed.
fn compare(ground: &Path, seeds: std::ops::Range<u64>, steps: u64) {
    let one = std::env::var("SOLERA_RANDOM_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = match one {
        Some(seed) => seed..seed + 1,
        None if rotation::all() => seeds.start..seeds.start + (seeds.end - seeds.start) * 40,
        None => seeds,
    };
    let program = ground.join("random");
    compile("random.c", &program, &["-O1", "-g"]);
    for seed in seeds {
        // A quarter, by rotation, but for one that is asked for.
        if one.is_none() && !rotation::chosen(&format!("random-calls/{seed}/{steps}"), 4) {
            continue;
        }
        for mode in ["posix", "strict", "sync"].into_iter().skip(seed as usize % 2).step_by(2) {
            let (plain, served) = (ground.join("plain"), ground.join("served"));
            let expected = run(&program, &plain, seed, steps, None);
            let found = run(&program, &served, seed, steps, Some(mode));
            let mut before = std::collections::VecDeque::new();
            for (expected, found) in expected.lines().zip(found.lines()) {
                assert_eq!(
                    expected, found,
                    "seed {seed}, {mode}: expected (left), found (right), after {before:#?}"
                );
                before.push_back(expected);
                before.drain(..before.len().saturating_sub(12));
            }
            assert_eq!(expected.lines().count(), found.lines().count(), "seed {seed}, {mode}");
            let recovered = split::recover(&served).expect("recover");
            assert_eq!((recovered.runs, recovered.gone), (0, 0), "seed {seed}, {mode}");
            crate::support::only_the_table_is_left(&served);
            std::fs::remove_dir_all(&plain).expect("the kernel's directory");
            std::fs::remove_dir_all(&served).expect("the engine's directory");
        }
    }
}

#[test]
fn random_calls_on_tmpfs() {
    let place = TestDir::new("random-tmpfs");
    compare(&place.0, 1..13, 500);
}

fn on(kind: &str) {
    let Some(mounted) = Mounted::new(kind) else {
        eprintln!("skipped: {kind} cannot be made and mounted here");
        return;
    };
    compare(&mounted.at, 1..4, 300);
}

#[test]
fn random_calls_on_ext4() {
    on("ext4");
}

#[test]
fn random_calls_on_xfs_by_clone() {
    on("clone");
}

#[test]
fn random_calls_on_xfs_by_exchange() {
    on("exchange");
}
