//! The second engine: programs on a kernel file system, with and without it.
//!
//! Each C program runs on a directory of the kernel's and, preloaded, on another one beside it:
//! their outputs must be the same, in every mode, on tmpfs and (as root, where loop devices can be
//! had) on ext4, on XFS by clone and on XFS by exchange.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::mounted::{Mounted, Small, succeeds};
use crate::support::{TestDir, compile, library, one_of, text};

/// Programs of the volume's tests that say nothing of what differs here: numbers in use, hidden
/// names.
const PROGRAMS: [&str; 17] = [
    "beneath", "files", "streams", "mapping", "sparse", "splice", "sockets", "threads", "messages",
    "moving", "buffers", "limits", "forks", "signals", "hurried", "safety", "seen",
];

/// System calls that an engine makes from its start to its end, where nothing is done.
const START_CALLS_MAX: u64 = 90;

/// After so many short runs the kernel appends (`SMALL_MAX` of `crates/split/src/drain.rs`).
const SYNCS_UNTIL_BRIEF: usize = 4;

fn run(program: &Path, directory: &Path, mode: Option<&str>) -> Output {
    std::fs::create_dir_all(directory).expect("a directory");
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "600", "env"]);
    if let Some(mode) = mode {
        let mut preload = std::ffi::OsString::from("LD_PRELOAD=");
        preload.push(library());
        let mut place = std::ffi::OsString::from("SOLERA_SPLIT=");
        place.push(directory);
        command.args(["SOLERA_EMULATE=1", "SOLERA_SPLIT_PATIENCE=0"]);
        command.arg(format!("SOLERA_MODE={mode}")).arg(place).arg(preload);
    }
    command.arg(program).arg(directory).output().expect("the program runs")
}

/// Compares the outputs of `programs` in `ground`, each in one of the modes, by rotation.
fn compare(ground: &Path, what: &str, programs: &[&str], modes: &[&str]) {
    for name in programs {
        let program = ground.join(name);
        compile(&format!("{name}.c"), &program, &["-O0", "-g"]);
        let plain = ground.join(format!("{name}-plain"));
        let expected = text(&run(&program, &plain, None)).replace(&*plain.to_string_lossy(), "@");
        assert!(!expected.is_empty(), "{name} says nothing");
        for mode in one_of(&format!("{what}/{name}"), modes) {
            let served = ground.join(format!("{name}-{mode}"));
            let found = text(&run(&program, &served, Some(mode)));
            let found = found.replace(&*served.to_string_lossy(), "@");
            for (expected, found) in expected.lines().zip(found.lines()) {
                assert_eq!(expected, found, "{name}, {mode}: expected (left), found (right)");
            }
            assert_eq!(expected.lines().count(), found.lines().count(), "{name}, {mode}");
            left_in_order(&served);
        }
    }
}

/// Nothing staged is left, nor any file of a process that ended: some are killed by a signal.
fn left_in_order(directory: &Path) {
    let recovered = split::recover(directory).expect("recover");
    assert_eq!((recovered.runs, recovered.gone), (0, 0), "{}", directory.display());
    crate::support::only_the_table_is_left(directory);
}

#[test]
fn programs_on_tmpfs() {
    let place = TestDir::new("beneath-tmpfs");
    compare(&place.0, "tmpfs", &PROGRAMS, &["posix", "sync", "strict"]);
}

/// On a mounted file system, whose relinks are by `backend`.
fn on(kind: &str, backend: &str) {
    let Some(mounted) = Mounted::new(kind) else {
        eprintln!("skipped: {kind} cannot be made and mounted here");
        return;
    };
    let programs =
        ["beneath", "files", "streams", "mapping", "threads", "splice", "safety", "seen"];
    compare(&mounted.at, kind, &programs, &["posix", "strict"]);
    let mode = one_of(&format!("{kind}/beneath"), &["posix", "strict"])[0];
    let home = mounted.at.join(format!("beneath-{mode}")).join(split::HOME_NAME);
    let records = std::fs::read(home.join("records")).expect("the records");
    let number = u64::from_le_bytes(records[24..32].try_into().expect("a word"));
    let found = ["none", "exchange", "clone", "copy"][number as usize];
    assert_eq!(found, backend, "how {kind} relinks");
}

#[test]
fn programs_on_ext4() {
    on("ext4", "copy");
}

#[test]
fn programs_on_xfs_by_clone() {
    on("clone", "clone");
}

#[test]
fn programs_on_xfs_by_exchange() {
    on("exchange", "exchange");
}

/// Kills a program that appends, after so many of its calls returned.
fn kill(directory: &Path, program: &Path, mode: &str, calls: usize) {
    let mut child = Command::new(program)
        .arg(directory)
        .env("LD_PRELOAD", library())
        .env("SOLERA_SPLIT", directory)
        .env("SOLERA_MODE", mode)
        .env("SOLERA_EMULATE", "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut told = vec![0; calls];
    let mut output = child.stdout.take().expect("its output");
    std::io::Read::read_exact(&mut output, &mut told).expect("it goes on");
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
}

/// As above; then the file is looked at.
fn kill_after(directory: &Path, program: &Path, mode: &str, calls: usize) {
    kill(directory, program, mode, calls);
    let recovered = split::recover(directory).expect("recover");
    assert_eq!((recovered.processes, recovered.gone), (1, 0), "{mode}, {calls} calls");
    assert_eq!(split::recover(directory).expect("again"), split::Recovered::default());
    let bytes = std::fs::read(directory.join("killed")).expect("the file");
    assert!(bytes.len() >= calls * 100, "{mode}: {calls} calls returned, {} bytes", bytes.len());
    // In `posix` a file that was synced after few appends each time has the kernel append, which a
    // kill can stop at the edge of a page (docs/engines.md).
    let by_kernel = mode == "posix" && bytes.len() >= SYNCS_UNTIL_BRIEF * 40 * 100;
    let torn = !bytes.len().is_multiple_of(100);
    assert!(
        !torn || by_kernel && bytes.len().is_multiple_of(4096),
        "{mode}: {} bytes: an append is there whole or not at all",
        bytes.len()
    );
    for (at, record) in bytes.chunks(100).enumerate().skip(1) {
        let whole = format!("{at:099}\n");
        assert_eq!(record, &whole.as_bytes()[..record.len()], "{mode}: record {at}");
    }
    let first: usize = String::from_utf8_lossy(&bytes[..99]).parse().expect("a whole first record");
    assert!(calls < 3 || first >= (calls - 3) / 3 * 3 + 2, "{mode}: the last overwrite, {first}");
    left_in_order(directory);
}

#[test]
fn returned_writes_survive_a_kill() {
    let place = TestDir::new("beneath-killed");
    let program = place.0.join("killed");
    compile("killed.c", &program, &["-O1"]);
    for mode in ["posix", "sync", "strict"] {
        // Also around an `fsync`.
        for calls in [1, 2, 7, 39, 40, 41, 300] {
            let directory = place.0.join(format!("{mode}-{calls}"));
            std::fs::create_dir_all(&directory).expect("a directory");
            kill_after(&directory, &program, mode, calls);
        }
    }
}

/// After a power cut the records are what the kernel had written back: nothing is moved by them.
#[test]
fn records_of_another_boot_are_not_believed() {
    use std::os::unix::fs::FileExt;
    let place = TestDir::new("beneath-boot");
    let program = place.0.join("killed");
    compile("killed.c", &program, &["-O1"]);
    let directory = place.0.join("files");
    std::fs::create_dir_all(&directory).expect("a directory");
    kill(&directory, &program, "posix", 30);
    let home = directory.join(split::HOME_NAME);
    let staged = std::fs::read_dir(&home).expect("the hidden directory").filter(|entry| {
        entry.as_ref().is_ok_and(|it| it.file_name().to_string_lossy().starts_with("stage."))
    });
    assert!(staged.count() > 0, "nothing was staged");
    let file = directory.join("killed");
    // What a power cut would leave: the file as it was synced, the table from before.
    std::fs::write(&file, "synced").expect("the file");
    let table = home.join("records");
    let table = std::fs::File::options().read(true).write(true).open(table).expect("the table");
    let mut boot = [0; 8];
    table.read_exact_at(&mut boot, 32).expect("its boot");
    assert_ne!(boot, [0; 8], "the table says in which boot it was begun");
    table.write_all_at(&[1; 8], 32).expect("another boot");
    let recovered = split::recover(&directory).expect("recover");
    assert_eq!(recovered, split::Recovered::default());
    assert_eq!(std::fs::read(&file).expect("the file"), b"synced");
    let mut now = [0; 8];
    table.read_exact_at(&mut now, 32).expect("its boot");
    assert_eq!(now, boot);
    left_in_order(&directory);
}

/// Every slot has a dead process: the next process recovers one to have its place.
#[test]
fn slots_of_dead_processes_are_taken() {
    use std::os::unix::fs::FileExt;
    let place = TestDir::new("beneath-slots");
    let program = place.0.join("killed");
    compile("killed.c", &program, &["-O1"]);
    let directory = place.0.join("files");
    std::fs::create_dir_all(&directory).expect("a directory");
    kill(&directory, &program, "posix", 7);
    let table = directory.join(split::HOME_NAME).join("records");
    let table = std::fs::File::options().write(true).open(table).expect("the table");
    table.write_all_at(&[1; 256 * 8], 64).expect("the slots");
    let recovered = split::recover(&directory).expect("recover");
    assert_eq!((recovered.processes, recovered.gone), (256, 0));
    assert!(std::fs::metadata(directory.join("killed")).expect("the file").len() >= 700);
    left_in_order(&directory);
}

/// Runs `body` on a thread whose rights are those of the owner of all in `directory`, not root's.
fn as_nobody<T>(directory: &Path, body: impl FnOnce() -> T) -> T {
    const NOBODY: u32 = 65_534;
    // SAFETY: no pointers; the call, by its number, changes this thread only.
    unsafe {
        if libc::geteuid() == 0 {
            let owner = format!("{NOBODY}:{NOBODY}");
            assert!(succeeds(Command::new("chown").arg("-R").arg(owner).arg(directory)));
            assert_eq!(libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY), 0);
        }
    }
    body()
}

/// One file that cannot be written does not keep the others from being recovered, nor from
/// starting.
#[test]
fn a_file_without_rights_is_recovered() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestDir::new("beneath-rights");
    let program = place.0.join("killed");
    compile("killed.c", &program, &["-O1"]);
    let directory = place.0.join("files");
    std::fs::create_dir_all(&directory).expect("a directory");
    kill(&directory, &program, "posix", 7);
    let file = directory.join("killed");
    let read_only = std::fs::Permissions::from_mode(0o444);
    std::fs::set_permissions(&file, read_only).expect("its rights");
    let body = || {
        let recovered = split::recover(&directory).expect("recover");
        left_in_order(&directory);
        recovered
    };
    let recovered = std::thread::scope(|scope| {
        scope.spawn(|| as_nobody(&directory, body)).join().expect("a thread")
    });
    assert_eq!((recovered.processes, recovered.gone), (1, 0));
    let found = std::fs::metadata(&file).expect("the file");
    assert!(found.len() >= 700 && found.permissions().mode() & 0o777 == 0o444);
}

/// Runs a part of `edges.c` on the kernel and under the engine, with these words in its
/// environment; compares what they say, and gives the report's counts.
fn at_the_edge(
    ground: &Path,
    part: &str,
    mode: &str,
    words: &[(&str, &str)],
) -> Vec<(u64, String)> {
    let program = ground.join("edges");
    compile("edges.c", &program, &["-O1"]);
    let (plain, served) = (ground.join("plain"), ground.join("served"));
    let place = TestDir::new(&format!("beneath-report-{part}-{mode}"));
    let report = place.0.join("report");
    let run = |directory: &Path, served: bool| {
        // What cannot be made is there, or is not to be.
        let _ = std::fs::create_dir_all(directory);
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "600"]).arg(&program).arg(directory).arg(part);
        if served {
            command.env("LD_PRELOAD", library()).env("SOLERA_SPLIT", directory);
            command.env("SOLERA_MODE", mode).env("SOLERA_EMULATE", "1");
            command.env("SOLERA_SPLIT_PATIENCE", "0").env("SOLERA_REPORT", &report);
            command.envs(words.iter().copied());
        }
        text(&command.output().expect("the program runs"))
    };
    let (expected, found) = (run(&plain, false), run(&served, true));
    assert!(!expected.is_empty(), "{part} says nothing");
    assert_eq!(expected, found, "{part}, {mode}");
    let lines = std::fs::read_to_string(&report).expect("the report");
    let counts = lines.lines().filter_map(|line| {
        let (count, what) = line.split_once(' ')?;
        Some((count.parse().ok()?, what.to_owned()))
    });
    counts.collect()
}

/// The count of a line of the report.
fn counted(report: &[(u64, String)], what: &str) -> u64 {
    let line = report.iter().find(|(_, text)| text.split(' ').any(|word| word == what));
    line.unwrap_or_else(|| panic!("the report has no {what}: {report:?}")).0
}

/// Block-aligned appends are not copied where blocks can be exchanged.
#[test]
fn whole_blocks_are_exchanged() {
    let Some(mounted) = Mounted::new("exchange") else {
        eprintln!("skipped: XFS with exchange-range cannot be made and mounted here");
        return;
    };
    for mode in ["posix", "strict"] {
        let report = at_the_edge(&mounted.at, "aligned", mode, &[]);
        assert!(counted(&report, "relinks-by-exchange") >= 8, "{mode}: {report:?}");
        assert_eq!(counted(&report, "bytes-copied-by-relinks"), 0, "{mode}: {report:?}");
        assert!(counted(&report, "bytes-relinked") >= 127 * 4096, "{mode}: {report:?}");
    }
}

/// Each way to relink can be asked for; without a word `posix` copies where moving blocks would
/// wait.
#[test]
fn relinks_are_made_as_asked_for() {
    let Some(mounted) = Mounted::new("exchange") else {
        eprintln!("skipped: XFS with exchange-range cannot be made and mounted here");
        return;
    };
    for word in ["exchange", "clone", "copy"] {
        let words = [("SOLERA_SPLIT_RELINK", word)];
        let report = at_the_edge(&mounted.at, "aligned", "posix", &words);
        assert!(counted(&report, &format!("relinks-by-{word}")) >= 8, "{word}: {report:?}");
        let moved = counted(&report, "bytes-relinked");
        let copied = counted(&report, "bytes-copied-by-relinks");
        assert_eq!(copied, if word == "copy" { moved } else { 0 }, "{word}: {report:?}");
        assert!(moved >= 127 * 4096, "{word}: {report:?}");
    }
    let report = at_the_edge(&mounted.at, "aligned", "posix", &[("SOLERA_SPLIT_PATIENCE", "1")]);
    let copies = counted(&report, "relinks-by-copy");
    assert!(copies > 0 && counted(&report, "bytes-copied-by-relinks") > 0, "{report:?}");
}

/// Few windows serve a large file: the coldest go.
#[test]
fn windows_are_used_again() {
    let place = TestDir::new("beneath-windows");
    for mode in ["posix", "strict"] {
        let report = at_the_edge(&place.0, "windows", mode, &[("SOLERA_SPLIT_WINDOWS", "8")]);
        let most = counted(&report, "windows-most");
        assert!((2..=8).contains(&most), "{mode}: {report:?}");
        assert!(counted(&report, "windows-made") > 40, "{mode}: {report:?}");
    }
}

/// What the engine takes for itself under load: said by the report, and seen by the kernel. By that
/// measure as many files and windows as there may be at once take less than 100 MB.
#[test]
fn its_own_state_is_bounded() {
    let Some(mounted) = Mounted::new("ext4") else {
        eprintln!("skipped: ext4 cannot be made and mounted here");
        return;
    };
    let taken = |directory: &str| -> u64 {
        let told = std::fs::read_to_string(mounted.at.join(directory).join("memory"));
        let told = told.expect("what it took");
        let kib = told.split_whitespace().map(|word| word.parse::<u64>().expect("a number"));
        kib.sum::<u64>() << 10
    };
    for (mode, most) in [("posix", 100_000_000), ("strict", 140_000_000)] {
        let report = at_the_edge(&mounted.at, "heavy", mode, &[]);
        assert!(counted(&report, "windows-most") >= 4000, "{mode}: {report:?}");
        let own = taken("served").saturating_sub(taken("plain"));
        let said = counted(&report, "bytes-of-memory-most");
        eprintln!("{mode}: {own} bytes more than without, {said} by the report");
        assert!(own <= said && said < most, "{mode}: {own} bytes, {said} by the report");
    }
}

/// What a start costs is mostly system calls: their number is guarded, for the first process in a
/// directory and for those that come later.
#[test]
fn the_calls_of_a_start_are_counted() {
    let place = TestDir::new("beneath-start");
    let count = place.0.join("calls");
    compile("calls.c", &count, &["-O1"]);
    let calls = |environment: &[String]| -> u64 {
        let output = Command::new(&count).arg("/bin/true").args(environment).output();
        text(&output.expect("the counter runs")).trim().parse().expect("a number")
    };
    let preload = format!("LD_PRELOAD={}", library().display());
    let plain = calls(std::slice::from_ref(&preload));
    for mode in ["posix", "sync", "strict"] {
        let directory = place.0.join(mode);
        std::fs::create_dir(&directory).expect("a directory");
        let environment = [
            preload.clone(),
            format!("SOLERA_SPLIT={}", directory.display()),
            format!("SOLERA_MODE={mode}"),
            "SOLERA_EMULATE=1".to_owned(),
        ];
        for which in ["first", "second"] {
            let found = calls(&environment) - plain;
            eprintln!("system calls of a start, {mode}, {which}: {found}");
            assert!(found <= START_CALLS_MAX, "{mode}, {which}: {found}");
        }
    }
}

/// A log that is full begins anew, and forgets nothing.
#[test]
fn a_full_log_is_begun_anew() {
    let place = TestDir::new("beneath-log");
    let report = at_the_edge(&place.0, "logged", "strict", &[("SOLERA_SPLIT_LOG", "8192")]);
    assert!(counted(&report, "log-checkpoints") >= 4, "{report:?}");
    assert!(counted(&report, "log-entries") >= 1000, "{report:?}");
}

/// What was said to be written is there, however little room was left meanwhile: for what is
/// staged, or for the log.
#[test]
fn without_room_nothing_is_lost() {
    without_room("full");
}

#[test]
fn without_room_for_the_log_nothing_is_lost() {
    without_room("full-log");
}

fn without_room(part: &str) {
    let place = TestDir::new(&format!("beneath-{part}"));
    for mode in ["posix", "sync", "strict"] {
        // The kernel's run and the engine's, each in a file system of its own.
        let ground = place.0.join(mode);
        let plain = Small::new(ground.join("plain"), "size=24m");
        let served = Small::new(ground.join("served"), "size=24m");
        if plain.is_none() || served.is_none() {
            eprintln!("skipped: nothing can be mounted here");
            return;
        }
        let report = at_the_edge(&ground, part, mode, &[("SOLERA_SPLIT_LOG", "65536")]);
        if (part, mode) == ("full-log", "strict") {
            assert!(counted(&report, "log-full") > 0, "{report:?}");
        }
        left_in_order(&ground.join("served"));
    }
}

/// Where nothing can be staged the kernel serves, and the report says so.
#[test]
fn a_read_only_mount_is_the_kernels() {
    let place = TestDir::new("beneath-read-only");
    let mut mounts = Vec::new();
    for name in ["plain", "served"] {
        let Some(mounted) = Small::new(place.0.join(name), "size=8m") else {
            eprintln!("skipped: nothing can be mounted here");
            return;
        };
        std::fs::write(mounted.0.join("given"), vec![7; 20_000]).expect("a file");
        let remount = ["-o", "remount,ro"];
        assert!(succeeds(Command::new("mount").args(remount).arg(&mounted.0)));
        mounts.push(mounted);
    }
    let report = at_the_edge(&place.0, "reads", "posix", &[]);
    assert_eq!(counted(&report, "no-hidden-directory"), 1, "{report:?}");
}
