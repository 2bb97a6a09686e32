//! `solera top`: what is called is counted exactly, through the library and through a mount, and
//! stays counted behind a death; the screen shows it, hears keys, and is given back as it was.

#[path = "support/screen.rs"]
mod screen;
mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use screen::Screen;
use serde_json::Value;
use support::{Mounted, Place, can_mount, command, solera};

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
    let found = ["writes", "written_bytes", "opens", "syncs", "reads", "read_bytes"].map(&done);
    assert_eq!(found, [10, 10_000, opens, 1, 10, 5120]);
    assert!(done("names") > 0);
}

#[test]
fn calls_of_a_preloaded_program_are_counted_exactly() {
    let place = Place::new();
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
    let place = Place::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let mut program = Program::start(Command::new("env"), &mounted.at);
    program.work();
    let before = look(&mounted.volume);
    program.work();
    let after = look(&mounted.volume);
    // What is to be truncated the server opens once more.
    is_work(done(&before, &after), 3);
    let all = after["processes"].as_array().unwrap();
    assert_eq!(all.len(), 1, "the server: {after:#}");
    is_work(done(&before["processes"][0], &all[0]), 3);
    assert_ne!(all[0]["pid"], program.pid());
    drop(program);
    mounted.end();
}

#[test]
fn totals_stay_and_the_death_is_told() {
    let place = Place::new();
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
    let place = Place::new();
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
    Screen::start(command, size)
}

#[test]
fn a_session_shows_processes_and_hears_keys() {
    let place = Place::new();
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
    screen.resize((40, 6));
    screen.shows("too small");
    screen.resize((110, 24));
    screen.shows("q: quit");
    screen.key("q");
    screen.ends_well();
}

#[test]
fn the_terminal_is_given_back_after_signals() {
    let place = Place::new();
    let volume = place.volume("64M");
    for signal in [Signal::TERM, Signal::INT] {
        let mut screen = top(&volume, (80, 24));
        screen.shows("q: quit");
        kill_process(Pid::from_child(screen.child()), signal).unwrap();
        screen.ends_well();
    }
    let mut screen = top(&volume, (80, 24));
    screen.shows("q: quit");
    screen.key("\x03");
    screen.ends_well();
}
