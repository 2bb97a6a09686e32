//! What a program does with pipes, mapped files, children and other users comes to the same on
//! tmpfs, on a volume and on a domain's volume, whose pages are on other nodes most of the time
//! (`tests/domains/equivalence.c` says what it did).

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::domain::{Machine, Node};
use crate::support::{Ran, can_change_user, compiled};
use rustix::process::{Pid, Signal, kill_process};

/// A domain of three nodes of 16 MiB, with a volume of 40; and a volume of its own.
struct World {
    nodes: Vec<Node>,
    machine: Machine,
    program: String,
}

impl World {
    fn new() -> Self {
        let machine = Machine::new();
        let nodes = machine.domain_of_three();
        let program = compiled("cli/tests/domains/equivalence.c", &[]);
        Self { nodes, machine, program }
    }

    fn on_tmpfs(&self, words: &[&str]) -> String {
        let [case, rest @ ..] = words else { panic!("no case") };
        let directory = self.machine.0.text("tmpfs");
        std::fs::create_dir_all(&directory).expect("made");
        Ran::of(Command::new(&self.program).arg(case).arg(directory).args(rest)).ok()
    }

    fn on_domain(&self, words: &[&str]) -> Command {
        let line = ["run", "--ddmap", "dm/v", "--at", "/dm"];
        self.with(&line, "/dm", words)
    }

    fn with(&self, line: &[&str], at: &str, words: &[&str]) -> Command {
        let [case, rest @ ..] = words else { panic!("no case") };
        let program = ["--", &self.program, case, at];
        self.machine.command(&[line, &program, rest].concat())
    }

    /// On a volume in each mode.
    fn on_volume(&self, words: &[&str], check: impl Fn(&str, &str)) {
        let volume = self.machine.0.volume("96M");
        for mode in ["strict", "sync", "posix"] {
            let line = ["run", "--volume", &volume, "--at", "/pm", "--mode", mode];
            check(&Ran::of(&mut self.with(&line, "/pm", words)).ok(), mode);
        }
    }

    fn is_alike(&self, words: &[&str]) {
        let expected = self.on_tmpfs(words);
        self.on_volume(words, |said, mode| assert_eq!(said, expected, "{words:?}, mode {mode}"));
        let ran = Ran::of(&mut self.on_domain(words)).ended_with(0);
        assert_eq!((ran.out, ran.err), (expected, String::new()), "{words:?}, of a domain");
    }

    fn signal(&self, signal: Signal) {
        for node in &self.nodes[1..] {
            kill_process(Pid::from_child(&node.child), signal).expect("it is there");
        }
    }
}

/// What a read can give was waited for with `poll`, so that no page is held meanwhile: also where
/// the read would have ended at once, and for ever where a signal had ended that wait.
#[test]
fn reads_end_at_once_or_by_a_signal_wherever_their_buffers_are() {
    World::new().is_alike(&["waits"]);
}

/// A second child registered what its parent had no pages of, since the first child had filled the
/// holes meanwhile. What `mremap` moved was registered no more: zeros were there, and in the file.
#[test]
fn private_mappings_are_their_processes_own_in_children_and_when_they_are_moved() {
    World::new().is_alike(&["private"]);
}

/// Who may not enter the store any more had no way to holders that it had not asked before, and
/// children that could not take a place in the domain.
#[test]
fn another_user_or_root_has_all_pages_and_so_have_its_children() {
    if !can_change_user() {
        return;
    }
    let world = World::new();
    let root = world.machine.0.text("root");
    std::fs::create_dir(&root).expect("made");
    let expected = world.on_tmpfs(&["user"]);
    for words in [&["user"][..], &["user", &root]] {
        let ran = Ran::of(&mut world.on_domain(words)).ended_with(0);
        assert_eq!((ran.out, ran.err), (expected.clone(), String::new()), "{words:?}");
    }
    // What it executes has the region, and no pager: that would see zeros.
    let line = ["run", "--ddmap", "dm/v", "--at", "/dm", "--", "setpriv", "--reuid", "99"];
    let rest = ["--clear-groups", "cat", "/dm/alike"];
    let ran = world.machine.solera(&[&line[..], &rest].concat());
    assert!(ran.code == 125 && ran.out.is_empty(), "{}: {}", ran.code, ran.err);
    // Also of the dead one nothing is left to wait for.
    let ran = Ran::of(&mut world.on_domain(&["gaps", "1"])).ended_with(0);
    assert_eq!(ran.out, "0 wrong\n");
}

/// Pages beside a guarded one came, and the guard was gone: in a domain, and in holes of any file.
#[test]
fn guard_pages_guard_or_are_refused() {
    let world = World::new();
    let expected = world.on_tmpfs(&["guards"]);
    world.on_volume(&["guards"], |said, mode| assert_eq!(said, expected, "mode {mode}"));
    let report = world.machine.0.text("report");
    let line = ["run", "--ddmap", "dm/v", "--at", "/dm", "--json", "--report-file", &report];
    let said = Ran::of(&mut world.with(&line, "/dm", &["guards"])).ok();
    let memory = &expected[expected.find("memory:").expect("of memory")..];
    let refused = ["content", "a hole"].map(|kind| format!("{kind}: guard -1 EINVAL\n")).concat();
    assert_eq!(said, refused + memory);
    let report = std::fs::read_to_string(report).expect("a report");
    assert!(report.contains("guard-pages"), "{report}");
}

/// Threads touch a hole that another call has filled, whose pages have left. One maps what is there
/// now; the others found it mapped, and took what was not here for lost.
#[test]
fn nobody_dies_where_many_touch_what_one_of_them_maps() {
    let world = World::new();
    let rounds = if rotation::all() { "150" } else { "50" };
    let ran = Ran::of(&mut world.on_domain(&["gaps", rounds])).ended_with(0);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("0 wrong\n", ""));
}

/// While holders are stopped now and then: a thread that is cancelled goes on touching memory, and
/// a timer's signals fail no call whose buffer has to come. (Both were taken for a lost page.)
#[test]
fn neither_cancelling_nor_signals_keep_pages_away() {
    let world = World::new();
    let mut child = world.on_domain(&["held"]);
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = child.spawn().expect("it starts");
    let mut says = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut hears = child.stdin.take().expect("a pipe");
    let mut complains = child.stderr.take().expect("a pipe");
    let mut errors = String::new();
    let mut next = || {
        if let Some(line) = says.next() {
            return line.expect("text");
        }
        complains.read_to_string(&mut errors).expect("text");
        panic!("it ended ({:?}), and says {errors:?}", child.wait())
    };
    let said = [
        "cancelled threads have touched all: 16".to_owned(),
        "beside a timer 0 calls were wrong".to_owned(),
    ];
    for expected in said {
        assert_eq!(next(), "ready");
        world.signal(Signal::STOP);
        hears.write_all(b"\n").expect("it hears");
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(200));
            world.signal(Signal::CONT);
            std::thread::sleep(Duration::from_millis(20));
            world.signal(Signal::STOP);
        }
        world.signal(Signal::CONT);
        assert_eq!(next(), expected);
    }
    complains.read_to_string(&mut errors).expect("text");
    assert!(child.wait().expect("it ends").success() && errors.is_empty(), "{errors}");
}
