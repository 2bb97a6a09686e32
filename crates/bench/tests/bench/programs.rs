//! `solera bench programs`: what it prints, what it says of programs that are missing or fail, and
//! that nothing stays behind. No figure is judged here.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Ran, TestDir, built, command};

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_mins(2);
/// What the scripts of tar, and the benchmark itself, start.
const TOOLS: [&str; 12] =
    ["bash", "timeout", "awk", "mkdir", "rm", "tar", "tail", "cat", "sleep", "mount", "sh", "env"];

/// The benchmark at its smallest; all that it makes for itself lies in the place's `tmp`.
fn bench(place: &TestDir, options: &[&str]) -> Command {
    let tmp = place.path("tmp");
    fs::create_dir_all(&tmp).expect("a directory");
    let mut command = command();
    command.args(["bench", "programs", "--quick", "--repeat", "1"]).args(options);
    command.env("TMPDIR", tmp);
    command
}

/// Nothing of the run is left in its directory.
fn is_clean(place: &TestDir) {
    let left: Vec<_> = fs::read_dir(place.path("tmp")).expect("its directory").collect();
    assert!(left.is_empty(), "{left:?}");
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no {key} in {value}"))
}

fn names(values: &[Value], key: &str) -> Vec<String> {
    values.iter().map(|value| value[key].as_str().unwrap_or_default().to_owned()).collect()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// What it found of a program.
fn program<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut all = list(report, "programs").iter();
    all.find(|it| it["program"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// A program's rows have a time in each place, and the ratios that follow from them.
fn has_rows(report: &Value, name: &str, rows: &[&str], places: &[&str]) {
    let found = program(report, name);
    assert_eq!(names(list(found, "rows"), "row"), rows, "{found}");
    for row in list(found, "rows") {
        let ns = |place: &str| row["places"][place]["ns"].as_f64().unwrap_or_default();
        for place in places {
            assert!(ns(place) > 0.0, "{place} in {row}");
            assert!(row["places"][place]["spread_percent"].is_number(), "{row}");
            let share = row["places"][place]["in_file_calls"].as_f64();
            assert!(share.is_some_and(|share| share > 0.0), "{place} in {row}");
        }
        let ratio = row["ratios"]["volume strict"]["tmpfs"].as_f64().unwrap_or_default();
        assert!((ratio - ns("volume strict") / ns("tmpfs")).abs() < 1e-9, "{row}");
    }
}

/// Each element that is opened is closed, in order; elements that have no end stay open.
fn is_well_formed(page: &str) {
    const VOID: [&str; 2] = ["meta", "!doctype"];
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let (inside, rest) = tag.split_once('>').unwrap_or_else(|| panic!("<{tag}: no end"));
        assert!(!rest.contains('>') || open.last() == Some(&"style"), "a stray > after <{inside}>");
        let name = inside.split([' ', '/']).find(|name| !name.is_empty()).unwrap_or_default();
        if inside.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "</{name}>");
        } else if !inside.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn each_row_is_there_and_the_page_stands_alone() {
    let place = TestDir::new();
    let page = place.text("report.html");
    let options = ["--only", "tar,sqlite-wal-full", "--modes", "strict", "--peers", "tmpfs"];
    let mut command = bench(&place, &options);
    let ran = Ran::of(command.args(["--json", "--report", &page]));
    let report = ran.json();
    is_clean(&place);
    let places = ["volume strict", "split tmpfs", "tmpfs"];
    assert_eq!(names(list(&report, "places"), "place"), places);
    let mut rows = vec!["untar, a file", "tar, a file"];
    has_rows(&report, "tar", &rows, &places);
    let skipped = names(list(&report, "skipped"), "program");
    if Path::new("/usr/include/sqlite3.h").exists() {
        has_rows(&report, "sqlite-wal-full", &["sqlite WAL FULL insert"], &places);
        rows.push("sqlite WAL FULL insert");
    } else {
        assert_eq!(skipped, ["sqlite-wal-full"]);
    }
    assert!(report["machine"]["cpus"].as_u64() > Some(0), "{report}");
    let page = fs::read_to_string(page).expect("the page");
    is_well_formed(&page);
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "<script", "<link"] {
        assert!(!page.contains(outside), "{outside} in the page");
    }
    for inside in
        rows.iter().chain(&places).chain(&["<svg", "prefers-color-scheme", "--mode strict"])
    {
        assert!(page.contains(inside), "{inside} is not in the page");
    }
}

#[test]
fn what_is_not_installed_is_skipped_by_name() {
    let place = TestDir::new();
    let bin = place.path("bin");
    fs::create_dir(&bin).expect("a directory");
    let path = std::env::var_os("PATH").expect("PATH");
    for tool in TOOLS {
        let mut found = std::env::split_paths(&path).map(|dir| dir.join(tool));
        let found = found.find(|file| file.is_file()).unwrap_or_else(|| panic!("no {tool}"));
        symlink(found, bin.join(tool)).expect("a link");
    }
    let options = ["--only", "tar,rsync", "--modes", "strict", "--peers", "tmpfs", "--json"];
    let ran = Ran::of(bench(&place, &options).env("PATH", &bin)).ended_with(0);
    assert!(ran.err.contains("without rsync: not installed; apt install rsync"), "{}", ran.err);
    let report = json(&ran.out);
    assert_eq!(
        list(&report, "skipped"),
        [serde_json::json!({
            "program": "rsync", "packages": ["rsync"],
        })]
    );
    assert_eq!(names(list(&report, "programs"), "program"), ["tar"]);
    let listed = Ran::of(bench(&place, &["--list"]).env("PATH", &bin)).ok();
    let line = |name: &str| {
        let found = listed.lines().find(|line| line.starts_with(name));
        found.unwrap_or_else(|| panic!("no {name} in {listed}")).to_owned()
    };
    assert!(
        line("rsync ").ends_with("(apt install rsync)") && !line("tar ").contains("apt install")
    );
    is_clean(&place);
}

/// A program by the name of another one.
fn stand_in(place: &TestDir, name: &str, script: &str) -> PathBuf {
    let bin = place.path("bin");
    fs::create_dir_all(&bin).expect("a directory");
    fs::write(bin.join(name), format!("#!/bin/sh\n{script}\n")).expect("a program");
    fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).expect("its mode");
    bin
}

fn ahead_of_path(bin: &Path) -> String {
    format!("{}:{}", bin.display(), std::env::var("PATH").expect("PATH"))
}

#[test]
fn a_program_that_fails_is_told_and_the_others_go_on() {
    let place = TestDir::new();
    let bin = stand_in(&place, "rsync", "echo 'no luck today' >&2; exit 3");
    let options = ["--only", "tar,rsync", "--modes", "strict", "--peers", "tmpfs", "--json"];
    let mut command = bench(&place, &options);
    let ran = Ran::of(command.args(["--split", "none"]).env("PATH", ahead_of_path(&bin)));
    let ran = ran.ended_with(1);
    for word in ["rsync failed", "bash rsync.sh (turn)", "exit code 3", "no luck today"] {
        assert!(ran.err.contains(word), "{word} is not in: {}", ran.err);
    }
    let report = json(&ran.out);
    let failed = list(program(&report, "rsync"), "failed");
    assert_eq!(names(failed, "place"), ["volume strict", "tmpfs"]);
    let command = failed[0]["command"].as_str().unwrap_or_default();
    assert!(command.starts_with("solera run --volume "), "{command}");
    assert!(list(program(&report, "rsync"), "rows").is_empty());
    has_rows(&report, "tar", &["untar, a file", "tar, a file"], &["volume strict", "tmpfs"]);
    is_clean(&place);
}

/// Waits for a file that is written at once, and gives what it says.
fn wait_for_file(file: &Path) -> String {
    let begun = Instant::now();
    loop {
        match fs::read_to_string(file) {
            Ok(text) => return text,
            Err(_) if begun.elapsed() < PATIENCE => sleep(Duration::from_millis(20)),
            Err(error) => panic!("{}: {error}", file.display()),
        }
    }
}

/// Whether a process runs: neither gone, nor a zombie that nobody has reaped.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[test]
fn a_signal_leaves_no_mount_no_folder_and_no_process_behind() {
    let place = TestDir::new();
    let started = place.path("started");
    let script = format!("sleep 1000 & echo $! >{0}.new; mv {0}.new {0}; wait", started.display());
    let bin = stand_in(&place, "rsync", &script);
    let peer = place.text("peer");
    fs::create_dir(&peer).expect("a directory");
    let peers = format!("tmpfs,ext4,{peer}");
    let options = ["--only", "tar,rsync", "--modes", "strict", "--peers", &peers];
    let child = bench(&place, &options)
        .arg("--json")
        .env("PATH", ahead_of_path(&bin))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let sleeper = wait_for_file(&started);
    let sleeper = sleeper.trim();
    assert!(runs(sleeper));
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    let pid = child.id();
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(130));
    // What was measured by then is not lost.
    let report = json(&String::from_utf8(ended.stdout).expect("text"));
    assert_eq!(report["interrupted"], true);
    assert_eq!(names(list(&report, "programs"), "program"), ["tar"]);
    has_rows(&report, "tar", &["untar, a file", "tar, a file"], &["volume strict", "tmpfs"]);
    let begun = Instant::now();
    while runs(sleeper) && begun.elapsed() < PATIENCE {
        sleep(Duration::from_millis(20));
    }
    assert!(!runs(sleeper), "what it had started runs on");
    is_clean(&place);
    assert_eq!(fs::read_dir(&peer).expect("the peer").count(), 0);
    let name = format!("solera-bench-{pid}");
    let shared = fs::read_dir("/dev/shm").expect("/dev/shm").flatten();
    let left: Vec<_> = shared
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|entry| entry.starts_with(&name))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!fs::read_to_string("/proc/self/mounts").expect("mounts").contains(&name));
    let loops = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    for device in loops {
        let file = device.path().join("loop/backing_file");
        let backing = fs::read_to_string(file).unwrap_or_default();
        assert!(!backing.contains(&name), "{backing} is still a loop device");
    }
}

#[test]
fn another_build_takes_turns_and_what_is_slower_fails() {
    if !crate::has_turn("programs builds") {
        return;
    }
    let place = TestDir::new();
    let solera = built("solera");
    let build = solera.parent().expect("a directory");
    let build = build.to_str().expect("text");
    let run = |tolerance: &str| {
        let options = ["--only", "tar", "--modes", "strict", "--against", build, "--json"];
        Ran::of(bench(&place, &options).arg(format!("--tolerance={tolerance}")))
    };
    // No time is judged: nothing is so much slower, everything is slower than so much faster.
    let report = json(&run("100000000").ended_with(0).out);
    let places = ["volume strict", "volume strict, against"];
    assert_eq!(names(list(&report, "places"), "place"), places);
    assert!(list(&report, "slower").is_empty());
    let ratio = &list(program(&report, "tar"), "rows")[0]["ratios"]["volume strict"];
    assert!(ratio["volume strict, against"].as_f64() > Some(0.0), "{ratio}");
    let report = json(&run("-100000000").ended_with(1).out);
    assert_eq!(names(list(&report, "slower"), "row"), ["untar, a file", "tar, a file"]);
    is_clean(&place);
}

#[test]
fn volumes_and_peers_are_aged_first() {
    if !crate::has_turn("programs aged") {
        return;
    }
    let place = TestDir::new();
    let seen = place.text("seen");
    // What is used where rsync is to copy to.
    let look = format!("stat -f -c '%b %f' \"$(dirname \"$3\")\" >>{seen}");
    let bin = stand_in(&place, "rsync", &look);
    let options = ["--only", "rsync", "--modes", "strict", "--peers", "tmpfs", "--split", "none"];
    let mut command = bench(&place, &options);
    let ran = Ran::of(command.args(["--aged", "0.3", "--json"]).env("PATH", ahead_of_path(&bin)));
    assert_eq!(ran.json()["aged"], 0.3);
    let seen = fs::read_to_string(seen).expect("what was seen");
    // Two places, two turns and one that is profiled, twice in each.
    assert_eq!(seen.lines().count(), 12, "{seen}");
    for line in seen.lines() {
        let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let used = 1.0 - numbers[1] / numbers[0];
        assert!((0.2..0.5).contains(&used), "{used} of it is used: {line}");
    }
    is_clean(&place);
}

/// Of servers nothing was known: their clients are outside, and one is another user's.
#[test]
fn servers_have_their_share_of_file_calls() {
    if !crate::has_turn("programs servers") {
        return;
    }
    let place = TestDir::new();
    // One of them at each commit, in the long run all.
    let servers = ["redis-always", "postgresql", "mariadb"];
    let one = servers[rotation::turn("solera bench programs: a server", 3) as usize];
    let only = if rotation::all() { servers.join(",") } else { one.to_owned() };
    let options = ["--only", &only, "--modes", "strict"];
    let mut command = bench(&place, &options);
    let ran = Ran::of(command.args(["--peers", "tmpfs", "--split", "none", "--json"]));
    let report = ran.json();
    for found in list(&report, "programs") {
        assert!(list(found, "failed").is_empty(), "{found}");
        for row in list(found, "rows") {
            for place in ["volume strict", "tmpfs"] {
                let share = row["places"][place]["in_file_calls"].as_f64().unwrap_or_default();
                assert!(share > 0.0, "{place}: {row}");
            }
        }
    }
    let found = list(&report, "programs").len() + list(&report, "skipped").len();
    assert_eq!(found, only.split(',').count(), "{report}");
    is_clean(&place);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let place = TestDir::new();
    let refused = |options: &[&str], words: &[&str]| {
        Ran::of(&mut bench(&place, options)).refused(2, words);
    };
    refused(&["--only", "nothing"], &["no such program", "sqlite-wal-full"]);
    refused(&["--only", "tar", "--peers", "nfs"], &["./nfs"]);
    refused(&["--only", "tar", "--peers", "tmpfs", "--split", "xfs"], &["none of the --peers"]);
    refused(&["--only", "tar", "--modes", "none", "--peers", "none"], &["no place"]);
    let empty = place.text("tmp");
    refused(&["--only", "tar", "--against", &empty], &["there is no solera"]);
    is_clean(&place);
}
