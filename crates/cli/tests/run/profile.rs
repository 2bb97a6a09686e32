//! `solera run --profile` and `--trace`: what a program in C is known to call (`profile.c`) is
//! what they tell, to the call and to the byte.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::domain::Machine;
use crate::support::{Ran, TestDir, can_mount, compiled, solera, with_own_mounts};
use serde_json::Value;

/// The program, compiled.
fn program() -> String {
    compiled("cli/tests/run/profile.c", &[])
}

/// A place, the program, a volume, and where that appears.
struct World {
    place: TestDir,
    program: String,
    volume: String,
    at: String,
}

impl World {
    fn new() -> Self {
        let place = TestDir::new();
        let (program, volume, at) = (program(), place.volume("128M"), place.prefix());
        Self { place, program, volume, at }
    }

    /// Runs the program with these options.
    fn run(&self, options: &[&str], what: &str, directory: &str) -> Ran {
        let head = ["run", "--volume", &self.volume, "--at", &self.at];
        let program = ["--", &self.program, what, directory];
        solera(head.iter().chain(options).chain(&program))
    }

    /// The profile of the program on the volume.
    fn profile(&self, what: &str) -> Value {
        self.said_and_profile(what).1
    }

    /// The same, and the numbers that it has said.
    fn said_and_profile(&self, what: &str) -> (Vec<u64>, Value) {
        let file = self.place.text("profile.json");
        let said = self.run(&["--profile-file", &file, "--json"], what, &self.at).ok();
        (said.split_whitespace().filter_map(|word| word.parse().ok()).collect(), parsed(&file))
    }
}

fn parsed(file: &str) -> Value {
    let text = fs::read_to_string(file).expect("a file was written");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn call<'p>(profile: &'p Value, name: &str) -> &'p Value {
    let calls = profile["calls"].as_array().expect("calls");
    let found = calls.iter().find(|call| call["call"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {profile:#}"))
}

fn file<'p>(profile: &'p Value, path: &str) -> &'p Value {
    let files = profile["files"].as_array().expect("files");
    let found = files.iter().find(|file| file["path"] == path);
    found.unwrap_or_else(|| panic!("no {path}: {profile:#}"))
}

#[track_caller]
fn has(row: &Value, name: &str, number: u64) {
    assert_eq!(row[name], Value::from(number), "{name} of {row:#}");
}

/// A kind of call, how many there were, how many failed, what they moved.
type Known = (&'static str, u64, u64, u64);

/// Of the program alone. What a stream does by system calls of its own is counted as the call of
/// the stream that it is part of.
const ALONE: [Known; 16] = [
    ("open", 2, 0, 0),
    ("close", 3, 0, 0),
    ("write", 1002, 0, 4_096_000 + 11 + 77),
    ("pread", 501, 1, 50_000),
    ("pwrite", 7, 0, 7 * 65_536),
    ("writev", 5, 0, 150),
    ("read", 1, 0, 1000),
    ("fsync", 3, 0, 0),
    ("lseek", 1, 0, 0),
    ("fstat", 9, 0, 0),
    ("dup", 1, 0, 0),
    ("stat", 1, 0, 0),
    ("rename", 1, 0, 0),
    ("mkdir", 1, 0, 0),
    ("rmdir", 1, 0, 0),
    ("unlink", 1, 0, 0),
];

fn check(profile: &Value, by: &str, besides: &[Known]) {
    for (name, count, failed, bytes) in ALONE {
        let more = besides.iter().find(|known| known.0 == name);
        let (more_calls, more_bytes) = more.map_or((0, 0), |known| (known.1, known.3));
        let row = call(profile, name);
        has(row, "count", count + more_calls);
        has(row, "failed", failed);
        has(row, "bytes", bytes + more_bytes);
        // A call on what is not open is nobody's but the kernel's.
        has(&row["served_by"], by, count + more_calls - if by == "kernel" { 0 } else { failed });
        let times = ["p50_ns", "p99_ns", "max_ns"].map(|time| row[time].as_u64().expect("a time"));
        assert!(times.is_sorted(), "{row:#}");
    }
    let in_calls = profile["in_calls_ns"].as_u64().expect("a time");
    assert!(in_calls > 0 && in_calls <= profile["wall_ns"].as_u64().expect("a time"));
    let calls = profile["calls"].as_array().expect("calls");
    let times = calls.iter().map(|call| call["time_ns"].as_u64().expect("a time"));
    assert_eq!(times.sum::<u64>(), in_calls);
}

/// Of the file that has most calls: it was opened, written, read, closed, twice by two numbers.
fn check_files(profile: &Value, directory: &str, by: &str) {
    let row = file(profile, &format!("{directory}/a"));
    // Written, read, overwritten, by two buffers, fsync, lseek, read, fstat; the copy's three; open
    // and close.
    has(row, "calls", 1000 + 500 + 7 + 5 + 3 + 1 + 1 + 9 + 3 + 2);
    has(row, "written_bytes", 4_096_000 + 7 * 65_536 + 150 + 11);
    has(row, "read_bytes", 50_000 + 1000);
    assert_eq!(row["served_by"], by, "{row:#}");
    let row = file(profile, &format!("{directory}/c"));
    has(row, "calls", 3);
    has(row, "written_bytes", 77);
}

#[test]
fn a_profile_of_a_volume_is_exact() {
    let world = World::new();
    let profile = world.profile("alone");
    check(&profile, "volume", &[]);
    check_files(&profile, &world.at, "volume");
    let row = file(&profile, &format!("{}/s", world.at));
    // Opened and closed; the bytes are the stream's.
    has(row, "calls", 2);
    has(&profile, "processes", 1);
    has(&profile, "threads_not_counted", 0);
    // tmpfs is where these tests work.
    assert_eq!(profile["kernel"]["measured_on"], "/dev/shm");
    assert!(call(&profile, "write")["kernel_ns"].as_u64().expect("a price") > 0, "{profile:#}");
    solera(["fsck", &world.volume]).ok();
}

#[test]
fn what_lies_outside_is_the_kernels() {
    let world = World::new();
    let (outside, file) = (world.place.text("outside"), world.place.text("profile.json"));
    fs::create_dir(&outside).expect("a directory");
    world.run(&["--profile-file", &file, "--json"], "alone", &outside).ok();
    let profile = parsed(&file);
    check(&profile, "kernel", &[]);
    check_files(&profile, &outside, "kernel");
    has(call(&profile, "fopen"), "count", 1);
    has(call(&profile, "fclose"), "count", 1);
}

#[test]
fn below_a_directory_that_is_served_it_is_split() {
    let world = World::new();
    let (directory, file) = (world.place.text("split"), world.place.text("profile.json"));
    fs::create_dir(&directory).expect("a directory");
    let options = ["run", "--split", &directory, "--profile-file", &file, "--json"];
    solera(options.into_iter().chain(["--", &world.program, "alone", &directory])).ok();
    let profile = parsed(&file);
    check(&profile, "split", &[]);
    check_files(&profile, &directory, "split");
}

#[test]
fn threads_children_and_the_killed_are_counted() {
    let world = World::new();
    let profile = world.profile("many");
    has(call(&profile, "pwrite"), "count", 3 * 4 * 250);
    has(call(&profile, "pwrite"), "bytes", 3 * 4 * 250 * 64);
    has(call(&profile, "write"), "count", 100 + 70 + 1 + 50);
    has(call(&profile, "write"), "bytes", 1000 + 210 + 1 + 1000);
    let row = file(&profile, &format!("{}/shared", world.at));
    // The image behind the exec knows the descriptor that it inherits.
    has(row, "written_bytes", 1000 + 210 + 1 + 1000);
    for number in 0..4 {
        let row = file(&profile, &format!("{}/t{number}", world.at));
        has(row, "written_bytes", 3 * 250 * 64);
        has(row, "calls", 3 * 252);
    }
    has(&profile, "processes", 4);
    let threads = profile["threads"].as_u64().expect("a number");
    let in_calls = profile["in_calls_ns"].as_u64().expect("a time");
    let wall = profile["wall_ns"].as_u64().expect("a time");
    assert!(in_calls <= wall * threads, "{profile:#}");
    solera(["fsck", &world.volume]).ok();
}

/// For whose locks the profile says that the program has waited, how often and for how long.
fn waited_for(profile: &Value) -> Vec<(Option<u64>, u64, u64)> {
    let number = |of: &Value, name: &str| of[name].as_u64();
    let rows = profile["waited_for"].as_array().expect("a list").iter();
    let row = |it| Some((number(it, "process"), number(it, "count")?, number(it, "time_ns")?));
    rows.map(|it| row(it).unwrap_or_else(|| panic!("{it}"))).collect()
}

/// Two processes write to one file: each wait is one for the lock of the other.
#[test]
fn a_wait_for_the_lock_of_another_process_names_it() {
    let world = World::new();
    let (both, profile) = world.said_and_profile("contend");
    let waits = waited_for(&profile);
    assert!(waits.iter().any(|(process, ..)| process.is_some()), "{profile:#}");
    for (process, count, time) in &waits {
        assert!(process.is_none_or(|process| both.contains(&process)), "{both:?}: {profile:#}");
        assert!(*count > 0 && *time > 0, "{profile:#}");
    }
    // All of them in the calls that write.
    let row = call(&profile, "pwrite");
    has(row, "lock_waits", waits.iter().map(|wait| wait.1).sum());
    let (waited, took) = (row["lock_wait_ns"].as_u64(), row["time_ns"].as_u64());
    assert!(waited > Some(0) && waited < took, "{row:#}");
    let file = world.place.text("profile.txt");
    world.run(&["--profile-file", &file], "contend", &world.at).ok();
    let text = fs::read_to_string(&file).expect("a profile");
    assert!(text.contains(" waits for locks of process "), "{text}");
}

/// A program's own locks, of the process and of a description: the wait is what the call takes,
/// and is one for the process that has the lock. That was not told.
#[test]
fn a_wait_for_a_record_lock_names_the_process_that_has_it() {
    let world = World::new();
    let (parent, profile) = world.said_and_profile("locked");
    let waits = waited_for(&profile);
    let of_parent = waits.iter().find(|wait| wait.0 == parent.first().copied());
    // When it unlocks they may meet at the table of locks besides.
    let &(_, count, waited) = of_parent.unwrap_or_else(|| panic!("{parent:?}: {profile:#}"));
    assert!(count >= 2, "{profile:#}");
    let row = call(&profile, "lock");
    has(row, "lock_waits", waits.iter().map(|wait| wait.1).sum());
    assert!(waited > 200_000_000 && Some(waited) <= row["time_ns"].as_u64(), "{profile:#}");
    has(row, "count", 3 + 3);
    has(row, "failed", 0);
    // Two of six wait for 200 ms, but for what the child needs to come there.
    assert!(row["time_ns"].as_u64() > Some(200_000_000), "{row:#}");
    assert!(row["max_ns"].as_u64() > Some(100_000_000), "{row:#}");
    assert!(row["p50_ns"].as_u64() < Some(50_000_000), "{row:#}");
}

/// A program on the volume of a domain, most of which lies on other nodes.
#[test]
fn a_profile_of_a_domains_volume_is_exact() {
    let machine = Machine::new();
    let _nodes = machine.domain_of_three();
    let (program, file) = (program(), machine.0.text("profile.json"));
    let options = ["run", "--ddmap", "dm/v", "--profile-file", &file, "--json", "--"];
    machine.solera(&[&options[..], &[&program, "alone", "/dm"]].concat()).ok();
    let profile = parsed(&file);
    check(&profile, "volume", &[]);
    check_files(&profile, "/dm", "volume");
    machine.solera(&[&options[..], &[&program, "many", "/dm"]].concat()).ok();
    let profile = parsed(&file);
    has(call(&profile, "pwrite"), "bytes", 3 * 4 * 250 * 64);
    has(call(&profile, "write"), "bytes", 1000 + 210 + 1 + 1000);
    has(&profile, "processes", 4);
}

#[test]
fn a_program_sees_no_difference() {
    let world = World::new();
    let (outside, trace) = (world.place.text("outside"), world.place.text("trace.json"));
    fs::create_dir(&outside).expect("a directory");
    for directory in [&world.at, &outside] {
        assert_eq!(world.run(&[], "same", directory).ok(), "as ever\n");
        let ran = world.run(&["--profile", "--trace", &trace], "same", directory).ended_with(0);
        assert_eq!(ran.out, "as ever\n");
        assert!(ran.err.contains("file calls"), "{}", ran.err);
    }
}

/// The calls of a trace, and how many of all it has dropped.
fn calls_of(trace: &Value) -> (Vec<&Value>, u64) {
    let events = trace["traceEvents"].as_array().expect("events");
    let calls: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    for event in &calls {
        assert!(event["ts"].as_f64().is_some_and(|at| at >= 0.0), "{event:#}");
        assert!(event["dur"].as_f64().is_some_and(|time| time >= 0.0), "{event:#}");
        assert!(event["pid"].as_u64().is_some_and(|pid| pid > 0), "{event:#}");
        assert!(event["tid"].as_u64().is_some_and(|tid| tid > 0), "{event:#}");
    }
    (calls, trace["otherData"]["dropped"].as_u64().expect("a number"))
}

#[test]
fn a_trace_has_each_call() {
    let world = World::new();
    let (file, trace) = (world.place.text("profile.json"), world.place.text("trace.json"));
    let options = ["--profile-file", &file, "--json", "--trace", &trace];
    world.run(&options, "many", &world.at).ok();
    let (profile, trace) = (parsed(&file), parsed(&trace));
    let (calls, dropped) = calls_of(&trace);
    let counted = profile["calls"].as_array().expect("calls");
    let counted: u64 = counted.iter().map(|call| call["count"].as_u64().expect("a number")).sum();
    assert_eq!((calls.len() as u64, dropped), (counted, 0));
    let written = |event: &&&Value| event["name"] == "write" && event["args"]["bytes"] == 20;
    let ours: Vec<_> = calls.iter().filter(written).collect();
    assert_eq!(ours.len(), 50);
    assert_eq!(ours[0]["args"]["file"], Value::from(format!("{}/shared", world.at)));
    assert_eq!(ours[0]["cat"], "volume");
    let names = trace["traceEvents"].as_array().expect("events");
    let named = |event: &&Value| event["ph"] == "M" && event["args"]["name"] == "profile";
    assert!(names.iter().any(|event| named(&event)), "{trace:#}");
    let in_order = |pair: &[&Value]| pair[0]["ts"].as_f64() <= pair[1]["ts"].as_f64();
    assert!(calls.windows(2).all(in_order));
}

#[test]
fn a_trace_is_cut_to_the_last_calls() {
    let world = World::new();
    let trace = world.place.text("trace.json");
    world.run(&["--trace", &trace, "--trace-max", "10"], "alone", &world.at).ok();
    let trace = parsed(&trace);
    let (calls, dropped) = calls_of(&trace);
    assert_eq!(calls.len(), 10);
    assert!(dropped > 1500, "{dropped}");
    // The stream's are the last ones.
    assert!(calls.iter().any(|event| event["name"] == "fclose"), "{trace:#}");
}

#[test]
fn the_text_names_calls_and_files() {
    let world = World::new();
    let ran = world.run(&["--profile=1"], "alone", &world.at).ended_with(0);
    let told = ran.err;
    let row = told.lines().find(|line| line.starts_with("write ")).expect("a row");
    assert!(row.contains(" 1002 ") && row.ends_with("volume"), "{told}");
    assert!(told.contains(&format!("{}/a", world.at)), "{told}");
    assert!(told.contains("more files"), "{told}");
    assert!(told.contains("through the kernel on tmpfs (/dev/shm)"), "{told}");
}

/// Shell lines that write to `$ONE` and `$TWO`, of which no argument speaks.
const TWO_FILES: &str = r#"'echo 1 > "$ONE/f"; echo 22 > "$TWO/f"'"#;

/// Where several volumes are mounted, and none is meant, a profile was refused.
#[test]
fn of_several_mounted_volumes_all_are_seen_or_none() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let volumes = ["1.pm", "2.pm"].map(|name| place.text(name));
    let mounts = ["m1", "m2"].map(|name| place.text(name));
    let [all, none] = ["all.json", "none.json"].map(|name| place.text(name));
    for (volume, mount) in volumes.iter().zip(&mounts) {
        solera(["format", "--size", "64M", volume]).ok();
        fs::create_dir(mount).expect("a directory");
    }
    let lines = format!(
        "set -e; S={solera}; export ONE={} TWO={}; $S mount {} $ONE; $S mount {} $TWO; cd /
         $S run --json --profile-file {all} -- sh -c {TWO_FILES}
         $S run --json --profile-file {none} --no-volume -- sh -c {TWO_FILES}
         ! $S run -- true
         $S umount $ONE $TWO",
        mounts[0],
        mounts[1],
        volumes[0],
        volumes[1],
        solera = env!("CARGO_BIN_EXE_solera"),
    );
    let output = with_own_mounts("", &lines);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("several volumes are mounted"), "{said}");
    for (profile, by) in [(all, "volume"), (none, "kernel")] {
        let profile = parsed(&profile);
        for (mount, bytes) in mounts.iter().zip([2, 3]) {
            let row = file(&profile, &format!("{mount}/f"));
            has(row, "written_bytes", bytes);
            assert_eq!(row["served_by"], by, "{row:#}");
        }
    }
    for volume in &volumes {
        solera(["fsck", volume]).ok();
    }
}

/// Nothing but the programs' own calls, on a directory of the kernel's: the profile, with these
/// options.
fn without_a_volume(place: &TestDir, options: &[&str], program: &[&str]) -> Value {
    let file = place.text("profile.json");
    let head = ["run", "--no-volume", "--json", "--profile-file", &file];
    let mut command = crate::support::command();
    command.args(head).args(options).arg("--").args(program);
    command.env("SOLERA_PRELOAD", readable(place)).current_dir("/");
    Ran::of(&mut command).ok();
    parsed(&file)
}

/// A copy of the libraries that each user may load.
fn readable(place: &TestDir) -> String {
    let built = Path::new(env!("CARGO_BIN_EXE_solera")).parent().expect("a directory");
    for name in ["libsolera_preload.so", "libsolera_profile.so"] {
        if !place.path(name).exists() {
            fs::copy(built.join(name), place.path(name)).expect("a copy");
        }
    }
    place.text("libsolera_preload.so")
}

#[test]
fn a_bypassed_program_is_not_profiled_what_it_starts_is() {
    let place = TestDir::new();
    let script = "dd if=/dev/zero of=$0/a bs=1024 count=3 2>&1; cp $0/a $0/b; env cp $0/b $0/c";
    let program = ["sh", "-c", script, &place.text("")];
    let path = |name: &str| place.text("") + "/" + name;
    let profile = without_a_volume(&place, &[], &program);
    has(file(&profile, &path("a")), "written_bytes", 3072);
    let profile = without_a_volume(&place, &["--bypass", "dd", "--bypass", "env"], &program);
    has(file(&profile, &path("a")), "written_bytes", 0);
    has(file(&profile, &path("b")), "written_bytes", 3072);
    has(file(&profile, &path("c")), "written_bytes", 3072);
}

/// redis, whose allocator is jemalloc, hung before its `main`: the library was looked for then.
#[test]
fn an_allocator_that_opens_files_begins_while_the_library_does() {
    let place = TestDir::new();
    let program = compiled("cli/tests/run/own_malloc.c", &["-fno-builtin"]);
    let line = ["timeout", "-s", "KILL", "60", &program, &place.text("file")];
    for options in [&[][..], &["--bypass", "own_malloc"]] {
        let profile = without_a_volume(&place, options, &line);
        if options.is_empty() {
            has(file(&profile, &place.text("file")), "written_bytes", 10);
        }
    }
    let head =
        ["run", "--volume", &place.volume("64M"), "--at", &place.prefix()].map(str::to_owned);
    let line = line.map(str::to_owned);
    solera(head.into_iter().chain(["--profile".into(), "--".into()]).chain(line)).ok();
}

/// A server that root starts as another user was not seen: it may not open what root counts in.
#[test]
fn a_program_that_becomes_another_users_is_profiled() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("root is needed: nothing tested");
        return;
    }
    let place = TestDir::new();
    let directory = place.text("open");
    fs::create_dir(&directory).expect("a directory");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("its mode");
    let as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    // One more exec, and a child.
    let script = "exec sh -c 'dd if=/dev/zero of=$0/a bs=1024 count=3 2>&1; id -u > $0/b' $0";
    let program = [&as_nobody[..], &["sh", "-c", script, &directory]].concat();
    let profile = without_a_volume(&place, &[], &program);
    assert_eq!(fs::read_to_string(format!("{directory}/b")).expect("a number"), "65534\n");
    has(file(&profile, &format!("{directory}/a")), "written_bytes", 3072);
}

#[test]
fn what_is_wrong_is_refused() {
    let world = World::new();
    let none = |options: &[&str]| solera([options, &["--", "true"]].concat());
    let said = none(&["run", "--no-volume"]).ended_with(125).err;
    assert!(said.contains("--profile"), "{said}");
    let said = none(&["run", "--no-volume", "--profile", "--mode", "sync"]).ended_with(125).err;
    assert!(said.contains("--mode") && said.contains("--no-volume"), "{said}");
    world.run(&["--profile", "--no-volume"], "alone", &world.at).ended_with(125);
    world.run(&["--profile", "--trace-max", "5"], "alone", &world.at).ended_with(125);
    world.run(&["--trace", "/dev/shm/t.json", "--json"], "alone", &world.at).ended_with(125);
    let no_directory = world.place.text("none/profile");
    let ran = world.run(&["--profile-file", &no_directory], "alone", &world.at);
    ran.refused(125, &["write the profile", "none/profile"]);
    let own = env!("CARGO_BIN_EXE_solera");
    let head = ["run", "--volume", &world.volume, "--at", &world.at, "--"];
    let inner = [own, "run", "--profile", "--", "true"];
    solera(head.into_iter().chain(inner)).refused(125, &["take --profile"]);
}

/// The library that times calls makes system calls of its own in a host, before its guest begins:
/// the guest ended by SIGSEGV.
#[test]
fn a_static_program_runs_and_is_not_profiled() {
    let mut world = World::new();
    world.program = compiled("cli/tests/run/profile.c", &["-static"]);
    let ran = world.run(&["--profile"], "alone", &world.at).ended_with(0);
    assert!(ran.err.contains("no program was profiled"), "{}", ran.err);
}
