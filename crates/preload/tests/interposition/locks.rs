//! Locks of many processes against the kernel's own table, operation by operation.

use std::process::Command;

use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, library, same, text};

/// 8 processes, their children and what these execute lock at random, on a file of the volume and
/// on its twin on a kernel file system, and are killed; each answer of each call must be the same.
#[test]
fn locks_are_the_kernels() {
    for seed in 1..if rotation::all() { 150 } else { 12 } {
        // A quarter of the first ones, by rotation.
        if !rotation::chosen(&format!("locks/{seed}"), 4) {
            continue;
        }
        let place = TestDir::new(&format!("locks-{seed}"));
        let program = place.0.join("locks");
        compile("locks.c", &program, &["-O1"]);
        format(&place.volume());
        let output = Command::new("timeout")
            .args(["-k", "5", "600"])
            .arg("env")
            .arg(format!("LD_PRELOAD={}", library().display()))
            .arg(&program)
            .arg(PREFIX)
            .arg(place.0.join("reference"))
            .args(["8", "10000", &seed.to_string()])
            .env("SOLERA_VOLUME", place.volume())
            .env("SOLERA_AT", PREFIX)
            .output()
            .expect("the program runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "seed {seed}: {:?}\n{said}", output.status);
        let said = text(&output);
        let counts: Vec<u64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        let least = [70_000, 10_000, 2_000, 100, 30];
        let enough = counts.iter().zip(least).all(|(count, least)| *count >= least);
        assert!(enough && counts.get(5) == Some(&0), "seed {seed}: {said}");
        check_left_in_order(&place.volume());
    }
}

#[test]
fn waits() {
    same("waits");
}
