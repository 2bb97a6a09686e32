//! Two faces on the same files at once: a preloaded program, and one that knows only the mount.
//! What one does the other sees when the call has returned; what both do at once is as if on one
//! kernel.

use std::time::Duration;

use crate::face::{Face, both, program};
use crate::support::{Mounted, TestDir, can_mount};

/// What was seen but for the numbers of blocks, the seventh word about each file.
fn without_blocks(seen: &str) -> Vec<String> {
    let others = |file: &str| {
        let words = file.split(':').enumerate().filter(|(at, _)| *at != 6);
        words.map(|(_, word)| word.to_owned()).collect::<Vec<String>>().join(":")
    };
    seen.split(' ').map(others).collect()
}

/// In turns; after each operation both see the same, to the last attribute: device and inode
/// number, times, blocks, contents.
#[test]
fn each_sees_at_once_what_the_other_did() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let program = program("coherence");
    let mounted = Mounted::new(&place, "128M", &[]);
    let [mut preloaded, mut plain] = both(&program, &mounted.at);
    let long = std::env::var_os("SOLERA_TEST_LONG").is_some();
    let mut succeeded = [0; 2];
    for seed in 0..if long { 20_000 } else { 1_500 } {
        let turn = (seed / 2 + seed / 7) % 2;
        let face = if turn == 0 { &mut preloaded } else { &mut plain };
        let did = face.say(&format!("do {seed}"));
        let result: i64 = did.split(' ').nth(1).and_then(|text| text.parse().ok()).expect(&did);
        succeeded[turn] += u32::from(result >= 0);
        let mut seen = [preloaded.say("look"), plain.say("look")];
        // Blocks attached ahead go with the last close, and the mount holds what it has just looked
        // up.
        for _ in 0..1500 {
            if seen[0] == seen[1] || without_blocks(&seen[0]) != without_blocks(&seen[1]) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
            seen = [preloaded.say("look"), plain.say("look")];
        }
        if seen[0] != seen[1] {
            let differ = seen[0].split(' ').zip(seen[1].split(' ')).find(|(a, b)| a != b);
            panic!("seed {seed}, face {turn}: {did}: preloaded (left), mount (right): {differ:?}");
        }
    }
    assert!(succeeded.iter().all(|&count| count > 100), "{succeeded:?}");
    preloaded.end();
    plain.end();
    mounted.end();
}

/// Four programs at once, two by each face.
#[test]
fn what_both_do_at_once_is_as_on_one_kernel() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let program = program("coherence");
    let mounted = Mounted::new(&place, "256M", &[]);
    let at = mounted.at.clone();
    let mut faces: Vec<Face> =
        [both(&program, &at), both(&program, &at)].into_iter().flatten().collect();
    let mut all = |lines: [&str; 4]| -> Vec<i64> {
        for (face, line) in faces.iter_mut().zip(lines) {
            face.ask(line);
        }
        faces.iter_mut().map(|face| face.answer().parse().expect("a number")).collect()
    };
    assert_eq!(all(["count 500"; 4]), [500; 4]);
    assert_eq!(std::fs::read_to_string(mounted.path("count")).unwrap(), "2000");

    assert_eq!(all(["append 1000"; 4]), [1000; 4]);
    let log = std::fs::read_to_string(mounted.path("log")).unwrap();
    let mut lines: Vec<&str> = log.lines().collect();
    assert!(log.len() == 4 * 32_000 && lines.iter().all(|line| line.len() == 31), "torn records");
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 4000, "records are lost");

    let made: i64 = all(["create 1000"; 4]).iter().sum();
    assert_eq!(made, 1000, "each name is made by one");

    assert_eq!(all(["replace 1"; 4]), [1; 4]);
    assert_eq!(
        all(["replace 2000", "read 2000", "read 2000", "replace 500"]),
        [2000, 2000, 2000, 500]
    );
    for face in faces {
        face.end();
    }
    mounted.end();
}
