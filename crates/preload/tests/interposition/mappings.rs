//! Mapped files: where there is little room, where another process shortens them, by random calls.

use std::path::Path;
use std::process::Command;

use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, library, run, text};

/// Runs a program on a fresh volume of 256 MiB; what it says.
fn said(name: &str) -> String {
    let place = TestDir::new(name);
    let program = place.0.join(name);
    compile(&format!("{name}.c"), &program, &["-O1", "-g"]);
    format(&place.volume());
    let said = text(&run(&program, Path::new(PREFIX), Some(&place.volume())));
    check_left_in_order(&place.volume());
    said
}

#[test]
fn a_full_volume_is_sigbus_at_the_touch_and_sparse_files_do_not_fill_it() {
    let said = said("full");
    // Without the line numbers.
    let found: Vec<&str> =
        said.lines().map(|line| line.split_once(' ').map_or(line, |(_, rest)| rest)).collect();
    let expected = [
        "ftruncate(beside, 8 * PAGE) = 0",
        "partly: works",
        "pwrite(beside, \"b\", 1, 4 * PAGE) = 1",
        "ftruncate(fd, size) = 0",
        "map: works",
        "blocks(fd) = 0",
        "failed = 0",
        "blocks(fd) <= 500 * 64 * 2 = 1",
        "ftruncate(fd, 0) = 0",
        "munmap(map, size) = 0",
        "unlink(\"sparse\") = 0",
        "ftruncate(fd, size) = 0",
        "map: works",
        "failed = 0",
        "blocks(fd) == 20 * MIB / 512 = 1",
        "ended = 702",
        "at > 200 * MIB && at < 256 * MIB = 1",
        "touch(map + size - PAGE, 0) = 702",
        "read(ends[0], map + size - PAGE, 1) = -1 EFAULT",
        "read(ends[0], &byte, 1) = 1",
        "reader: works",
        "touch(reader, 0) || reader[5 * PAGE] != 0 = 0",
        "touch(partly, 0) || partly[0] != 0 = 0",
        "touch(partly + 4 * PAGE, 0) || partly[4 * PAGE] != 'b' = 0",
        "touch(partly + 8 * PAGE, 0) = 702",
        "mprotect(reader, MIB, PROT_READ | PROT_WRITE) = 0",
        "touch(reader, 1) = 702",
        "fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, MIB) = 0",
        "touch(reader, 1) = 702",
        "ftruncate(small, PAGE) = 0",
        "one: works",
        "touch(one, 1) = 702",
        "munmap(map, size) = 0",
        "munmap(reader, MIB) = 0",
        "close(fd) = 0",
        "unlink(\"grows\") = 0",
        "touch(one, 1) = 0",
        "pread(small, &byte, 1, 0) == 1 && byte == 'w' = 1",
    ];
    assert_eq!(found, expected);
}

/// Any process may shorten a mapped file: its mappers never see what others write where its blocks
/// were.
#[test]
fn a_file_that_another_process_shortens_shows_nobody_elses_bytes() {
    let place = TestDir::new("shortened");
    let program = place.0.join("shortened");
    compile("shortened.c", &program, &["-O1", "-g"]);
    format(&place.volume());
    let rounds = if rotation::all() { "400" } else { "12" };
    let output = Command::new("timeout")
        .args(["-k", "5", "300"])
        .arg(&program)
        .args([PREFIX, rounds])
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .env("LD_PRELOAD", library())
        .output()
        .expect("the program runs");
    let said = text(&output);
    let answers: Vec<&str> = said.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(answers, ["0", "0"], "{said}");
    check_left_in_order(&place.volume());
}

/// What a run of `mapped_random.c` says, in a directory or on a new volume.
fn random(program: &Path, place: &TestDir, seed: u64, steps: u64, on_volume: bool) -> String {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "300"]).arg(program);
    if on_volume {
        format(&place.volume());
        command.arg(PREFIX).env("SOLERA_VOLUME", place.volume()).env("SOLERA_AT", PREFIX);
        command.env("LD_PRELOAD", library());
    } else {
        command.arg(place.0.join("reference"));
    }
    text(&command.args([seed.to_string(), steps.to_string()]).output().expect("the program runs"))
}

/// Random calls on mapped files answer as on the kernel's file system, and show the same bytes and
/// signals.
#[test]
fn random_calls_answer_as_the_kernel_does() {
    let (seeds, steps) = if rotation::all() { (100, 20_000) } else { (8, 4_000) };
    for seed in 1..=seeds {
        // A quarter of the first ones, by rotation.
        if !rotation::chosen(&format!("mapped-random/{seed}"), 4) {
            continue;
        }
        let place = TestDir::new(&format!("mapped-random-{seed}"));
        let program = place.0.join("mapped_random");
        compile("mapped_random.c", &program, &["-O1", "-g"]);
        let expected = random(&program, &place, seed, steps, false);
        let found = random(&program, &place, seed, steps, true);
        assert!(expected.lines().count() as u64 > steps, "it says what it does");
        for (expected, found) in expected.lines().zip(found.lines()) {
            assert_eq!(expected, found, "seed {seed}: expected (left), found (right)");
        }
        assert_eq!(expected.lines().count(), found.lines().count(), "seed {seed}");
        check_left_in_order(&place.volume());
    }
}
