//! `solera run --align`: blocks of 2 MiB and more lie at multiples of 2 MiB, in the program and in
//! all that it starts. What the library itself promises, crates/align/tests look at.

use std::path::Path;

use crate::support::{Ran, TestDir, command, compiled, copy_program, solera};

const ALIGNING: &str = "libsolera_align.so";
const JEMALLOC: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";

/// A volume with a file of 3 MiB, and the program of `align.c`.
fn prepared(place: &TestDir) -> (String, String) {
    let volume = place.volume("64M");
    let file = place.path("file");
    std::fs::write(&file, vec![b'x'; 3 << 20]).expect("written");
    solera(["cp", file.to_str().expect("UTF-8"), &format!("{volume}:/file")]).ok();
    (volume, compiled("cli/tests/run/align.c", &[]))
}

/// Runs it on slow memory with these options and these libraries preloaded.
fn run(place: &TestDir, (volume, program): &(String, String), options: &[&str], own: &str) -> Ran {
    let dir = place.text("cache");
    let _ = std::fs::create_dir(&dir);
    let library = Path::new(env!("CARGO_BIN_EXE_solera")).with_file_name(ALIGNING);
    assert!(library.exists(), "{} is missing: cargo build it first", library.display());
    Ran::of(
        command()
            .env("SOLERA_MEMORY", "cxl")
            .env("LD_PRELOAD", own)
            .args(["run", "--volume", volume, "--at", "/aligned"])
            .args(["--cache", "16M", "--cache-dir", &dir])
            .args(options)
            .args(["--", program, "/aligned/file"]),
    )
}

#[test]
fn blocks_of_a_program_and_of_what_it_starts_are_aligned() {
    let place = TestDir::new();
    let prepared = prepared(&place);
    let aligned = "itself: aligned\nbare: aligned\nown: aligned\n";
    assert_eq!(run(&place, &prepared, &["--align"], "").ok(), aligned);
    // Without the option nothing is.
    let plain = run(&place, &prepared, &[], "").ok();
    assert!(!plain.contains("aligned"), "{plain}");
    if Path::new(JEMALLOC).exists() {
        assert_eq!(run(&place, &prepared, &["--align"], JEMALLOC).ok(), aligned);
    } else {
        println!("skipped: there is no libjemalloc2 (scripts/setup.sh --tests)");
    }
}

/// What is asked for inside of another `solera run`, which has not got it, would be lost.
#[test]
fn it_is_asked_for_with_a_cache_by_the_outermost_command() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = ["--volume", &volume, "--at", "/aligned"];
    let run = |options: &[&str], program: &[&str]| {
        solera([&["run"], &at[..], options, &["--"], program].concat())
    };
    let without = run(&["--align"], &["true"]).ended_with(125).err;
    assert!(without.contains("--cache <SIZE>"), "{without}");
    let mounted = solera(["mount", "--cache", "16M", "--align", &volume, "/mnt"]);
    assert!(mounted.code != 0 && mounted.err.contains("'--align'"), "{}", mounted.err);
    let own = env!("CARGO_BIN_EXE_solera");
    let inner = [own, "run", "--cache", "16M", "--align", "--", "true"];
    let cache = ["--cache", "16M", "--cache-dir", &place.text("")];
    run(&cache, &inner).refused(125, &["--align", "give the option there"]);
    let both = [&cache[..], &["--align"]].concat();
    run(&both, &inner).ok();
}

#[test]
fn a_library_that_is_missing_is_missed_before_the_program_runs() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let own = Path::new(env!("CARGO_BIN_EXE_solera"));
    let library = place.path("libsolera_preload.so");
    copy_program(own.with_file_name("libsolera_preload.so"), &library);
    let run = |options: &[&str]| {
        let mut command = command();
        command.env("SOLERA_PRELOAD", &library);
        command.args(["run", "--volume", &volume, "--at", "/aligned", "--cache", "16M"]);
        command.args(["--cache-dir", &place.text("")]);
        Ran::of(command.args(options).args(["--", "true"]))
    };
    run(&[]).ok();
    let there = place.text(ALIGNING);
    run(&["--align"]).refused(125, &[&there, "cargo build", "put a copy beside"]);
}
