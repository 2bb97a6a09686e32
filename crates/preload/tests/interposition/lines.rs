//! Which cache lines two threads both write, that do the same with what is their own (or only read
//! what is not): every address that a call stores to is taken down, in the region and in the
//! process's own memory, and the lines of one thread's call are compared with the other's.

use std::collections::BTreeMap;
use std::process::Command;

use crate::step::{Range, follow};
use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, library};

/// Calls, and how many lines both threads may write. A descriptor's number is the lowest free one
/// of the process, for all threads: the lock under which numbers are given out and taken back, the
/// cached number, and the number's word in the table, here the same number in turns.
const CALLS: [(&str, usize); 19] = [
    ("read an own file", 0),
    ("pread an own file", 0),
    ("pread the same file", 0),
    ("pread through the same descriptor", 0),
    ("stat an own file", 0),
    ("stat the same file", 0),
    ("fstat of the same descriptor", 0),
    ("overwrite an own file", 0),
    ("overwrite 24 B of an own file", 0),
    ("overwrite 5000 B of an own file", 0),
    ("append 64 B to an own file", 0),
    ("append 4 KiB to an own file", 0),
    ("fdatasync an own file", 0),
    ("create in an own directory", 3),
    ("close what was created", 3),
    ("rename in an own directory", 0),
    ("unlink in an own directory", 0),
    ("mkdir in an own directory", 0),
    ("rmdir in an own directory", 0),
];

/// Where a line lies, for people.
fn place_of(line: u64, maps: &[Range]) -> String {
    let range = maps.iter().find(|range| (range.start..range.end).contains(&line));
    range.map_or_else(
        || format!("{line:#x}"),
        |range| format!("{} + {:#x}", range.name, line - range.start + range.offset),
    )
}

#[test]
fn threads_do_not_write_each_others_lines() {
    check("strict", &CALLS);
}

/// Without a journal: nothing at all.
#[test]
fn threads_that_overwrite_in_place_share_nothing() {
    let names = ["overwrite an own file", "append 64 B to an own file"];
    check("sync", &names.map(|name| (name, 0)));
}

fn check(mode: &str, wanted: &[(&str, usize)]) {
    if std::thread::available_parallelism().is_ok_and(|count| count.get() < 2) {
        println!("one CPU: its threads share an operation record");
        return;
    }
    let place = TestDir::new(&format!("lines-{mode}"));
    let program = place.0.join("lines");
    compile("lines.c", &program, &["-O1"]);
    format(&place.volume());
    let followed = follow(
        Command::new(&program)
            .arg(PREFIX)
            .env_clear()
            .env("SOLERA_VOLUME", place.volume())
            .env("SOLERA_AT", PREFIX)
            .env("SOLERA_MODE", mode)
            .env("LD_PRELOAD", library()),
    );
    check_left_in_order(&place.volume());
    let mut calls: BTreeMap<&str, Vec<&crate::step::Sample>> = BTreeMap::new();
    for sample in &followed.samples {
        calls.entry(&sample.name).or_default().push(sample);
    }
    let mut wrong = Vec::new();
    for &(name, most) in wanted {
        let [one, other] = calls[name][..] else { panic!("{name}: not two calls") };
        assert_ne!(one.thread, other.thread, "{name}");
        assert!(one.counts.instructions > 50, "{name}: not followed");
        let both: Vec<String> = one
            .written
            .intersection(&other.written)
            .map(|l| place_of(*l, &followed.maps))
            .collect();
        println!("{name:40} {:3} lines, {} of both", one.written.len(), both.len());
        for line in &both {
            println!("    {line}");
        }
        if both.len() > most {
            wrong.push(format!("{name}: {} lines, at most {most}", both.len()));
        }
    }
    assert!(wrong.is_empty(), "written by both:\n{}", wrong.join("\n"));
}
