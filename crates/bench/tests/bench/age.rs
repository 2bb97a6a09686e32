//! `solera age` asks before it fills what is not its own.

use std::fs;

use crate::support::{Ran, TestDir, built, shell, solera, with_own_mounts};

const OPTIONS: [&str; 6] = ["--capacity", "64M", "--churn", "2", "--utilisation", "0.5"];

fn age(more: &[&str], target: &str) -> Ran {
    solera([&["age"], &OPTIONS[..], more, &[target]].concat())
}

/// A number of bytes of less than 1 GiB, as messages show it.
#[allow(clippy::cast_precision_loss)]
fn size(bytes: &serde_json::Value) -> String {
    let mib = bytes.as_u64().expect("a number") as f64 / f64::from(1 << 20);
    if mib >= 100.0 { format!("{mib:.0} MiB") } else { format!("{mib:.2} MiB") }
}

/// `solera age DIR` filled the file system of a directory to 79 % without a question.
#[test]
fn only_an_empty_volume_is_aged_unasked() {
    let place = TestDir::new();
    let directory = place.text("dir");
    fs::create_dir(&directory).unwrap();
    let told = [&*directory, "it is a directory", "--yes", "of 64.00 MiB", "95 % of what is free"];
    age(&[], &directory).refused(2, &told);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "nothing was written");
    // Nor is a volume that has files.
    let (volume, at) = (place.volume("128M"), place.prefix());
    shell(&volume, &at, &format!("echo x > {at}/mine")).ok();
    let told = age(&[], &volume).ended_with(2).err;
    assert_eq!(solera(["ls", &volume]).ok(), "mine\n");
    let trace = place.text("trace");
    let done = age(&["--yes", "--json", "--write-trace", &trace], &volume).json();
    assert_eq!(solera(["ls", &volume]).ok(), "aged\nmine\n");
    // What was foretold is what was done.
    let (used, allocated) = (size(&done["used_bytes"]), size(&done["allocated_bytes"]));
    for word in ["there are files on this volume", "--yes", &used, &allocated] {
        assert!(told.contains(word), "{word}: {told}");
    }
    let replay = ["age", "--capacity", "64M", "--replay", &trace, &directory];
    solera(replay).refused(2, &["--yes", &used, &allocated]);
    // Made for it.
    let volume = place.text("own.pm");
    solera(["format", "--size", "128M", &volume]).ok();
    age(&[], &volume).ok();
}

#[test]
fn a_directory_is_aged_when_that_is_said() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("root is needed: nothing tested");
        return;
    }
    let place = TestDir::new();
    let directory = place.text("dir");
    fs::create_dir(&directory).unwrap();
    let line = format!(
        "mount -t tmpfs -o size=128M none {directory} && {} age --yes {} {directory} && ls \
         {directory}",
        built("solera").display(),
        OPTIONS.join(" "),
    );
    let output = with_own_mounts("", &line);
    assert!(output.status.success() && output.stdout.ends_with(b"\naged\n"), "{output:?}");
}

/// What an aged volume had no room for was measured all the same: "of a new file of 512 MiB: 100
/// %", in 24 MiB.
#[test]
fn what_there_is_no_room_for_is_not_measured() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let line = ["age", "--churn", "2", &volume];
    let told = solera(line).ok();
    assert!(!told.contains("a new file of 512 MiB "), "{told}");
    let row = told.lines().find(|line| line.starts_with("(b)")).expect("its row");
    assert!(row.contains("512 MiB do not fit") && row.contains("MiB"), "{row}");
    // Nothing of 2 MiB lives, nor is there room for one: no part of that is a huge page.
    let small = place.text("small.pm");
    solera(["format", "--size", "16M", &small]).ok();
    let line = ["age", "--profile", "small", "--utilisation", "0.97", "--churn", "2", &small];
    let told = solera([&line[..], &["--json"]].concat()).json();
    assert_eq!(told["live_huge_pct"], serde_json::Value::Null, "{told}");
    let bytes = told["new_file_bytes"].as_u64().expect("a number");
    assert!(bytes < 512 << 20, "{told}");
    assert_eq!(told["new_file_huge_pct"].is_null(), bytes < 2 << 20, "{told}");
    assert_eq!(
        told["new_max_file_huge_pct"].is_null(),
        told["new_max_file_bytes"].as_u64() < Some(2 << 20),
        "{told}"
    );
}
