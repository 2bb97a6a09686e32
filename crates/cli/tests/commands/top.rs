//! `solera top`: what is called is counted exactly, through the library and through a mount, and
//! stays counted behind a death; the screen shows it, hears keys, and is given back as it was.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::screen::Screen;
use crate::support::{Mounted, TestDir, can_mount, command, solera};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// What the program does when it gets a line: ten writes of 1000 bytes and a sync of a file that it
/// opens; then as many reads, past the kernel's cache where it has one.
const PROGRAM: &str = "import mmap, os, sys
at = sys.argv[1]
print('there', flush=True)
while sys.stdin.readline():
    fd = os.open(at + '/f', os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    for _ in range(10): os.write(fd, b'x' * 1000)
    os.fsync(fd)
    os.close(fd)
    fd = os.open(at + '/f', os.O_RDONLY | os.O_DIRECT)
    bytes = mmap.mmap(-1, 4096)
    for at_byte in range(10): os.preadv(fd, [memoryview(bytes)[:512]], at_byte * 512)
    os.close(fd)
    print('done', flush=True)
";

/// A program that answers each line.
struct Program {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Program {
    fn start(mut command: Command, at: &str) -> Self {
        command.args(["python3", "-uc", PROGRAM, at]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self { child, out };
        program.answers("there");
        program
    }

    /// By `solera run`, which becomes the program.
    fn preloaded(volume: &str, at: &str) -> Self {
        let mut run = command();
        run.args(["run", "--volume", volume, "--at", at, "--"]);
        Self::start(run, at)
    }

    fn answers(&mut self, with: &str) {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), with);
    }

    fn work(&mut self) {
        writeln!(self.child.stdin.as_mut().unwrap()).unwrap();
        self.answers("done");
    }

    fn pid(&self) -> u64 {
        self.child.id().into()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn look(volume: &str) -> Value {
    solera(["top", "--once", "--json", "--interval", "0.1", volume]).json()
}

fn process(look: &Value, pid: u64) -> &Value {
    let all = look["processes"].as_array().unwrap();
    all.iter().find(|one| one["pid"] == pid).unwrap_or_else(|| panic!("{pid} is not in {look:#}"))
}

/// What was counted between two looks.
fn done(before: &Value, after: &Value) -> impl Fn(&str) -> u64 {
    let (before, after) = (before["counts"].clone(), after["counts"].clone());
    move |name| after[name].as_u64().unwrap() - before[name].as_u64().unwrap()
}

fn is_work(done: impl Fn(&str) -> u64, opens: u64) {
    let found = ["writes", "written_bytes", "syncs", "reads", "read_bytes"].map(&done);
    assert_eq!(found, [10, 10_000, 1, 10, 5120]);
    assert_eq!(done("opens"), opens, "opens");
    assert!(done("names") > 0);
}

#[test]
fn calls_of_a_preloaded_program_are_counted_exactly() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let mut program = Program::preloaded(&volume, &at);
    program.work();
    let before = look(&volume);
    program.work();
    let after = look(&volume);
    let pid = program.pid();
    is_work(done(process(&before, pid), process(&after, pid)), 2);
    is_work(done(&before, &after), 2);
    let one = process(&after, pid);
    assert_eq!((&one["state"], &one["mode"]), (&"lives".into(), &"strict".into()));
    assert_eq!(one["program"], "python3");
    assert_eq!(one["rates"]["calls_per_second"], 0.0, "it rests");
    assert_eq!((&one["mapped_bytes"], &one["open_files"]), (&0.into(), &0.into()));
    assert_eq!(after["volume"]["size_bytes"], 64 << 20);
    let chunks: u64 = ["free", "full", "partly_used", "metadata"]
        .iter()
        .map(|name| after["chunks"][name].as_u64().unwrap())
        .sum();
    assert!((28..32).contains(&chunks), "those of the pool: {chunks}");
    // Monitors are told the same.
    let text = solera(["metrics", &volume]).ok();
    let of = |name: &str| format!("solera_volume_{name}}} ");
    let told = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&of(name)));
        line.unwrap_or_else(|| panic!("{name} is not in {text}")).parse::<u64>().unwrap()
    };
    let label = format!("{{volume=\"{volume}\"");
    let counts = &after["counts"];
    assert_eq!(told(&format!("calls_total{label},kind=\"write\"")), counts["writes"]);
    assert_eq!(told(&format!("written_bytes_total{label}")), counts["written_bytes"]);
    assert_eq!(told(&format!("deaths_total{label}")), 0);
}

#[test]
fn calls_through_a_mount_are_the_servers() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let mut program = Program::start(Command::new("env"), &mounted.at);
    program.work();
    // The server holds what is open: it opens nothing again for a lookup.
    let held = std::fs::File::open(mounted.path("f")).unwrap();
    let before = look(&mounted.volume);
    program.work();
    let after = look(&mounted.volume);
    // What is to be truncated the server opens once more.
    is_work(done(&before, &after), 3);
    let all = after["processes"].as_array().unwrap();
    assert_eq!(all.len(), 1, "the server: {after:#}");
    is_work(done(&before["processes"][0], &all[0]), 3);
    assert_ne!(all[0]["pid"], program.pid());
    drop((program, held));
    mounted.end();
}

#[test]
fn totals_stay_and_the_death_is_told() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let mut witness = Program::preloaded(&volume, &at);
    let mut program = Program::preloaded(&volume, &at);
    let before = look(&volume);
    program.work();
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let dead = look(&volume);
    assert_eq!(process(&dead, program.pid())["state"], "dead");
    assert_eq!((&dead["deaths"], &dead["recoveries"]), (&0.into(), &1.into()));
    assert!(solera(["top", &volume]).ok().contains("dead"), "as text, too");
    // Whoever attaches finds it.
    solera(["detach", &volume]).ended_with(1);
    let after = look(&volume);
    is_work(done(&before, &after), 2);
    assert_eq!((&after["deaths"], &after["recoveries"]), (&1.into(), &0.into()));
    assert_eq!(after["last_deaths"][0]["pid"], program.pid());
    assert!(after["processes"].as_array().unwrap().iter().all(|one| one["pid"] != program.pid()));
    let text = solera(["top", "--once", "--interval", "0.1", &volume]).ok();
    assert!(text.contains(&format!("1 found dead, the last one process {}", program.pid())));
    // The sum outlives the last process.
    witness.work();
    drop(witness);
    let last = look(&volume);
    assert_eq!(done(&before, &last)("writes"), 20);
    assert!(solera(["top", "--once", "--interval", "0.1", &volume]).ok().contains("no process"));
    let text = solera(["metrics", &volume]).ok();
    assert!(
        text.contains(&format!("solera_volume_deaths_total{{volume=\"{volume}\"}} 1")),
        "{text}"
    );
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    solera(["top", "--once", &place.text("none.pm")]).refused(1, &["none.pm", "no such file"]);
    std::fs::write(place.path("junk"), vec![7; 1 << 20]).unwrap();
    solera(["top", "--once", &place.text("junk")]).refused(1, &["no readable superblock"]);
    for wrong in [["--interval", "0"], ["--sort", "colour"], ["--interval", "never"]] {
        solera(["top", wrong[0], wrong[1], &volume]).ended_with(2);
    }
    solera(["top", "--json", &volume]).ended_with(2);
    // No terminal: once.
    let text = solera(["top", "--interval", "0.1", &volume]).ok();
    assert!(text.starts_with("64.00 MiB: data 0 B (0 %), holes"), "{text}");
    assert!(text.contains("no process has attached it"), "{text}");
    // Damage is shown as far as anything can be.
    let mut bytes = std::fs::read(&volume).unwrap();
    bytes[..8192].fill(1);
    std::fs::write(&volume, bytes).unwrap();
    solera(["top", "--once", &volume]).refused(1, &["no readable superblock"]);
}

fn top(volume: &str, size: (u16, u16)) -> Screen {
    let mut command = command();
    command.args(["top", "--interval", "0.2", volume]).env_remove("NO_COLOR");
    // As a shell starts it: so it can be stopped.
    command.process_group(0);
    Screen::start(command, size)
}

#[test]
fn a_session_shows_processes_and_hears_keys() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let mut program = Program::preloaded(&volume, &at);
    let mut screen = top(&volume, (110, 24));
    screen.shows("attached by one process, class volatile");
    screen.shows("python3");
    screen.shows("q: quit");
    screen.shows("calls/s, ");
    // What is sorted by stands out: by calls, then by what the keys say.
    assert_eq!(screen.reversed(), "calls/s");
    for (key, column) in
        [("p", "pid"), ("w", "written/s"), ("\x1b[C", "locks"), ("\x1b[D", "written/s")]
    {
        screen.key(key);
        screen.until(column, |screen| screen.reversed() == column);
    }
    // It works, and that is seen.
    let begun = Instant::now();
    while !screen.text().contains("KiB/s written") && !screen.text().contains("MiB/s written") {
        program.work();
        assert!(begun.elapsed() < Duration::from_mins(1), "{}", screen.text());
        screen.read(Duration::from_millis(20));
    }
    // It dies.
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    screen.shows("it was not left in order");
    screen.shows("no process has attached it");
    solera(["detach", &volume]).ok();
    screen.shows("in order, attached by no process");
    // The volume goes away, and comes back.
    let away = place.path("away");
    std::fs::rename(&volume, &away).unwrap();
    screen.shows("no such file");
    std::fs::rename(&away, &volume).unwrap();
    screen.until("what was wrong has gone", |screen| !screen.text().contains("no such file"));
    for (size, words) in [((40, 6), "too small"), ((20, 5), "small: 20x5"), ((1, 1), "t")] {
        screen.resize(size);
        screen.shows(words);
    }
    screen.resize((110, 24));
    screen.shows("q: quit");
    screen.key("q");
    screen.ends_well();
}

#[test]
fn a_terminal_that_is_too_small_can_be_left() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let mut screen = top(&volume, (20, 5));
    screen.shows("small: 20x5");
    screen.key("q");
    screen.ends_well();
}

#[test]
fn the_terminal_is_given_back_after_signals() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut screen = top(&volume, (80, 24));
        screen.shows("q: quit");
        kill_process(Pid::from_child(screen.child()), signal).unwrap();
        screen.ends_well();
    }
    // Also while a key has not come whole.
    let mut screen = top(&volume, (80, 24));
    screen.shows("q: quit");
    screen.key("\x1b[");
    screen.shows("0 calls/s");
    kill_process(Pid::from_child(screen.child()), Signal::TERM).unwrap();
    screen.ends_well();
    let mut screen = top(&volume, (80, 24));
    screen.shows("q: quit");
    screen.key("\x03");
    screen.ends_well();
}

/// A connection is lost, and no signal comes: nothing is left that works in vain.
#[test]
fn it_ends_when_the_terminal_has_gone() {
    let place = TestDir::new();
    let mut screen = top(&place.volume("64M"), (80, 24));
    screen.shows("q: quit");
    assert!(screen.hang_up().success());
}

/// Whether the kernel has stopped a process.
fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('T')
}

#[test]
fn a_shell_has_the_terminal_while_it_is_stopped() {
    let place = TestDir::new();
    let mut screen = top(&place.volume("64M"), (80, 24));
    screen.shows("q: quit");
    for round in 1..3 {
        screen.key("\x1a");
        screen.until("it is stopped", |screen| is_stopped(screen.child().id()));
        while screen.read(Duration::from_millis(20)) {}
        screen.is_given_back();
        screen.all.clear();
        kill_process(Pid::from_child(screen.child()), Signal::CONT).unwrap();
        screen.until(&format!("it goes on, {round}"), |screen| {
            let all = String::from_utf8_lossy(&screen.all);
            all.find("\x1b[?1049h") < all.find("in order, attached by no process")
        });
    }
    screen.shows("q: quit");
    screen.key("q");
    screen.ends_well();
}

/// Writes a file of its own, over and over.
const WRITER: &str = "import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
block = bytes(16 << 20)
print('there', flush=True)
while True: os.pwrite(fd, block, 0)
";

/// A program that writes all the time, and ends with the test.
struct Writer(Child);

impl Writer {
    fn start(volume: &str, at: &str, name: &str) -> Self {
        let mut run = command();
        run.args(["run", "--volume", volume, "--at", at, "--", "python3", "-uc", WRITER]);
        run.arg(format!("{at}/{name}"));
        let mut child = run.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "there\n");
        Self(child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Stops it inside a call that changes something.
    fn stop_in_a_call(&self, volume: &str) {
        let begun = Instant::now();
        loop {
            self.signal(Signal::STOP);
            while !is_stopped(self.0.id()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let look = look(volume);
            if process(&look, self.0.id().into())["calls_under_way"] != 0 {
                return;
            }
            assert!(begun.elapsed() < Duration::from_mins(2), "{look:#}");
            self.signal(Signal::CONT);
            std::thread::sleep(Duration::from_millis(3));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One dies inside a call; what recovers it waits until all others have left theirs. One of them is
/// stopped there: so the recovery goes on until it may leave.
#[test]
fn a_recovery_in_progress_is_shown() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("256M"), place.prefix());
    let (slow, mut dies) = (Writer::start(&volume, &at, "a"), Writer::start(&volume, &at, "b"));
    slow.stop_in_a_call(&volume);
    dies.stop_in_a_call(&volume);
    let mut screen = top(&volume, (110, 24));
    screen.shows("attached by 2 processes");
    dies.0.kill().unwrap();
    dies.0.wait().unwrap();
    screen.shows("1 dead: the next that waits for a lock there, or attaches, recovers that");
    assert_eq!(process(&look(&volume), dies.0.id().into())["state"], "dead");
    let mut next = command();
    next.args(["run", "--volume", &volume, "--at", &at, "--", "stat", &format!("{at}/b")]);
    let mut next = next.stdout(Stdio::null()).spawn().unwrap();
    let told = format!(
        "recovery in progress: process {} recovers what process {} left",
        next.id(),
        dies.0.id()
    );
    screen.shows(&told);
    screen.shows(&format!("recovered by {}", next.id()));
    let during = look(&volume);
    let dead = process(&during, dies.0.id().into());
    assert_eq!((&dead["state"], &dead["recovered_by"]), (&"recovering".into(), &next.id().into()));
    assert_eq!((&during["recoveries"], &during["deaths"]), (&1.into(), &0.into()));
    let text = solera(["top", "--once", "--interval", "0.1", &volume]).ok();
    assert!(text.contains(&told), "{text}");
    // It may leave its call.
    slow.signal(Signal::CONT);
    assert!(next.wait().unwrap().success());
    screen.shows(&format!("1 found dead, the last one process {}", dies.0.id()));
    screen.until("it is over", |screen| !screen.text().contains("recovery in progress"));
    let after = look(&volume);
    assert_eq!((&after["recoveries"], &after["deaths"]), (&0.into(), &1.into()));
    assert_eq!(after["last_deaths"][0]["found_by"], next.id());
    assert_eq!(process(&after, slow.0.id().into())["state"], "lives");
    screen.key("q");
    screen.ends_well();
}

/// Takes a lock of a file, as it is told, and says so.
const LOCKER: &str = "import fcntl, sys
file = open(sys.argv[1], 'w')
print('there', flush=True)
(fcntl.flock if sys.argv[2] == 'flock' else fcntl.lockf)(file, fcntl.LOCK_EX)
print('locked', flush=True)
sys.stdin.readline()
";

/// Both kinds of locks of files, and who waits for them.
#[test]
fn locks_of_files_are_shown_with_those_who_wait() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    for kind in ["flock", "record"] {
        let start = || {
            let mut run = command();
            run.args(["run", "--volume", &volume, "--at", &at, "--", "python3", "-uc", LOCKER]);
            run.args([&format!("{at}/f"), kind]);
            let mut child = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let out = BufReader::new(child.stdout.take().unwrap());
            let mut program = Program { child, out };
            program.answers("there");
            program
        };
        let mut holder = start();
        holder.answers("locked");
        let mut waiter = start();
        let locks = |look: &Value, of: &Program| {
            let one = process(look, of.pid());
            ["file_locks", "file_locks_awaited"].map(|name| one[name].as_u64().unwrap())
        };
        let begun = Instant::now();
        let seen = loop {
            let seen = look(&volume);
            if locks(&seen, &waiter) == [0, 1] {
                break seen;
            }
            assert!(begun.elapsed() < Duration::from_mins(1), "{kind}: {seen:#}");
        };
        assert_eq!(locks(&seen, &holder), [1, 0], "{kind}");
        let text = solera(["top", "--once", "--sort", "awaited", "--interval", "0.1", &volume]);
        let text = text.ok();
        let first = text.lines().skip_while(|line| !line.starts_with("pid")).nth(1).unwrap();
        assert!(first.starts_with(&waiter.pid().to_string()), "{kind}: {text}");
        drop(holder);
        waiter.answers("locked");
        assert_eq!(locks(&look(&volume), &waiter), [1, 0], "{kind}");
    }
}
