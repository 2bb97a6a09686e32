//! Commands that were given a fifo as a file waited for its other side for ever, `run
//! --report-file` even against SIGTERM. Now they refuse it at once; only `cp` writes into one, as
//! cp does. Pipes without a name are ordinary.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Ran, TestDir, command, solera};
use rustix::process::{Pid, Signal, kill_process};

fn fifo(place: &TestDir) -> String {
    fifo_of(place, "fifo")
}

fn fifo_of(place: &TestDir, name: &str) -> String {
    let path = place.text(name);
    assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo starts").success());
    path
}

/// Runs a command that would never end if it waited.
fn in_time(line: &[&str]) -> Ran {
    let mut limited = Command::new("timeout");
    limited.args(["-s", "KILL", "600", env!("CARGO_BIN_EXE_solera")]).args(line);
    Ran::of(limited.stdin(Stdio::null()))
}

#[test]
fn nobody_waits_for_the_other_side() {
    let place = TestDir::new();
    let (volume, fifo, at) = (place.volume("64M"), fifo(&place), place.prefix());
    in_time(&["format", &fifo]).refused(1, &["it is a fifo"]);
    in_time(&["format", "--force", "--size", "16M", &fifo]).refused(1, &["it is a fifo"]);
    in_time(&["map", &fifo]).refused(1, &["it is a fifo"]);
    in_time(&["info", "--picture", &fifo, &volume]).refused(1, &["it is a fifo"]);
    in_time(&["age", "--yes", "--replay", &fifo, &volume]).refused(1, &["it is a fifo"]);
    in_time(&["age", "--replay", &fifo, &place.text(".")]).refused(1, &["it is a fifo"]);
    in_time(&["age", "--yes", "--write-trace", &fifo, &volume]).refused(1, &["it is a fifo"]);
    in_time(&["age", "--yes", "--picture", &fifo, &volume]).refused(1, &["it is a fifo"]);
    assert_eq!(solera(["ls", &volume]).ok(), "", "a refused age leaves nothing");
    let ran = place.text("ran");
    let run = ["run", "--volume", &volume, "--at", &at];
    in_time(&[&run[..], &["--report-file", &fifo, "--", "touch", &ran]].concat())
        .refused(125, &["it is a fifo"]);
    assert!(!fs::exists(&ran).unwrap(), "the program ran before the report was refused");
    for command in ["info", "ls", "fsck", "rm", "trim", "detach", "df", "defrag"] {
        assert!(![0, 1137].contains(&in_time(&[command, &fifo]).code), "{command}");
    }
    in_time(&["snapshot", "--force", &volume, &fifo]).refused(1, &["not a regular file"]);
}

/// One that comes to lie there while the program runs does not hold it up at its end either; nor
/// does one that the environment names.
#[test]
fn a_report_does_not_wait_at_the_end() {
    let place = TestDir::new();
    let (volume, at, report) = (place.volume("64M"), place.prefix(), place.text("report"));
    let run = ["run", "--volume", &volume, "--at", &at];
    let line = format!("mkfifo {report}");
    let ran = in_time(&[&run[..], &["--report-file", &report, "--", "sh", "-c", &line]].concat());
    ran.refused(125, &["cannot write the report"]);
    let script = format!(
        "import ctypes, os; ctypes.CDLL(None).fcntl(os.open('{at}', os.O_RDONLY), 1026, 1)"
    );
    let shell = format!("SOLERA_REPORT={report} exec python3 -c \"{script}\"");
    in_time(&[&run[..], &["--", "sh", "-c", &shell]].concat()).ok();
}

#[test]
fn a_pipe_without_a_name_is_written_to() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    fs::write(place.path("source"), "kept\n").unwrap();
    solera(["cp", &place.text("source"), &format!("{volume}:/file")]).ok();
    let out = |line: &[&str]| in_time(line).ok();
    assert_eq!(out(&["cp", &format!("{volume}:/file"), "/dev/stdout"]), "kept\n");
    assert!(out(&["info", "--picture", "/dev/stdout", &volume]).contains("</svg>\n"));
}

/// As cp does: the reader gets all bytes, holes as zeros; while there is none, a signal ends it.
#[test]
fn cp_writes_into_a_fifo() {
    let place = TestDir::new();
    let (volume, fifo) = (place.volume("64M"), fifo(&place));
    let source = fs::File::create(place.path("source")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&source, b"middle", 3 << 20).unwrap();
    source.set_len(4 << 20).unwrap();
    let file = format!("{volume}:/file");
    solera(["cp", &place.text("source"), &file]).ok();
    let copy =
        |fifo: &str| command().args(["cp", &file, fifo]).stderr(Stdio::piped()).spawn().unwrap();
    let copying = copy(&fifo);
    let mut bytes = Vec::new();
    fs::File::open(&fifo).unwrap().read_to_end(&mut bytes).unwrap();
    assert!(bytes == fs::read(place.path("source")).unwrap(), "{} bytes", bytes.len());
    let output = copying.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // One that nobody has read: a child of another test may have the reader until it executes.
    let unread = fifo_of(&place, "unread");
    for signal in [Signal::TERM, Signal::INT] {
        let mut copying = copy(&unread);
        wait_for_open(copying.id());
        kill_process(Pid::from_child(&copying), signal).unwrap();
        assert_eq!(copying.wait().unwrap().signal(), Some(signal.as_raw()));
    }
    solera(["detach", &volume]).ok();
    solera(["fsck", &volume]).ok();
}

/// Waits until a process waits for the other side of a fifo: it stays in one `open` or `openat`.
fn wait_for_open(pid: u32) {
    let begun = Instant::now();
    let mut seen = String::new();
    let mut same = 0;
    while same < 5 {
        assert!(begun.elapsed() < Duration::from_mins(2), "it does not open the fifo: {seen}");
        let now = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
        let opens = now.starts_with("2 ") || now.starts_with("257 ");
        same = if opens && now == seen { same + 1 } else { 0 };
        seen = now;
        std::thread::sleep(Duration::from_millis(10));
    }
}
