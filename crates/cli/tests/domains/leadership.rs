//! Which node is a domain's first: `solera domain first`. Each node has a machine of its own, which
//! is a runtime directory.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::domain::{MIB, Machine, Node};
use crate::support::Ran;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

struct Domain {
    nodes: Vec<Option<Node>>,
    addresses: Vec<String>,
    machine: Machine,
}

fn machine_of(node: usize) -> String {
    format!("machine-{node}")
}

impl Domain {
    /// Of so many nodes; those are meant by their numbers.
    fn new(nodes: usize) -> Self {
        let mut domain =
            Self { nodes: vec![None], addresses: vec![String::new()], machine: Machine::new() };
        for node in 1..=nodes {
            domain.join(&format!("{node}"), 1);
        }
        // Each has heard of all.
        for node in 1..=nodes {
            domain.await_status(node, |status| {
                status["nodes"].as_array().map(Vec::len) == Some(nodes)
            });
        }
        domain
    }

    /// A new node, on a machine of its own, which is told of node `by`: its number.
    fn join(&mut self, store: &str, by: usize) -> usize {
        let at = self.nodes.len();
        fs::create_dir(self.machine.0.path(&machine_of(at))).expect("made");
        let join = ["--join", &self.addresses.get(by).cloned().unwrap_or_default()];
        let options: &[&str] = if at == 1 { &[] } else { &join };
        let node = self.machine.node_in_the_end(&machine_of(at), store, options);
        self.addresses.push(node.address().to_owned());
        let number = node.line.split(' ').nth(1).and_then(|number| number.parse().ok());
        self.nodes.push(Some(node));
        number.expect("it has one")
    }

    /// A new node that is told of node `by` gets no number.
    fn no_join(&self, by: usize, words: &[&str]) {
        let store = self.machine.0.text("none");
        let line = ["node", "--domain", "dm", "--store", &store, "--listen", "127.0.0.1:0"];
        let more = ["--capacity", "16M", "--join", &self.addresses[by]];
        let mut command = self.machine.on(&machine_of(by), &[&line[..], &more].concat());
        Ran::of(&mut command).refused(1, words);
        assert!(!self.machine.0.path("none").exists(), "nothing is left");
    }

    /// Starts one again that was there, without a word of where others are.
    fn start(&mut self, node: usize) {
        let listen = ["--listen", &self.addresses[node].clone()];
        let store = node.to_string();
        let started = self.machine.node_in_the_end(&machine_of(node), &store, &listen);
        self.nodes[node] = Some(started);
    }

    fn kill(&mut self, node: usize) {
        drop(self.nodes[node].take().expect("it runs"));
    }

    fn signal(&self, node: usize, signal: Signal) {
        let child = &self.nodes[node].as_ref().expect("it runs").child;
        kill_process(Pid::from_child(child), signal).expect("it is there");
    }

    fn on(&self, node: usize, line: &[&str]) -> Ran {
        Ran::of(&mut self.machine.on(&machine_of(node), line))
    }

    fn status(&self, node: usize) -> Value {
        self.on(node, &["domain", "status", "--json", "dm"]).json()
    }

    fn await_status(&self, node: usize, is: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        while !is(&self.status(node)) {
            assert!(begun.elapsed().as_secs() < 120, "{}", self.status(node));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until a node knows which one is first, in which term.
    fn await_first(&self, node: usize, first: u64, term: u64) {
        self.await_status(node, |status| status["first"] == first && status["term"] == term);
    }

    /// `solera domain first`, on the machine of `at`.
    fn first(&self, at: usize, to: &str, more: &[&str]) -> Ran {
        self.on(at, &[&["domain", "first", "dm", "--to", to], more].concat())
    }
}

/// Numbers were given by node 1 alone, and without it no page left: for ever, if it was gone.
#[test]
fn another_node_is_first_when_the_first_is_gone() {
    let mut domain = Domain::new(3);
    domain.on(2, &["format", "--ddmap", "dm/v", "--size", "24M"]).ok();
    domain.kill(1);
    let said = domain.first(3, "2", &["--json"]).json();
    let (first, before) = (&said["first"], &said["before"]);
    assert!(*first == 2 && *before == 1 && said["address"] == domain.addresses[2], "{said}");
    for node in [2, 3] {
        domain.await_first(node, 2, 2);
    }
    let text = domain.on(3, &["domain", "status", "dm"]).ok();
    assert!(text.contains("2 (first)") && !text.contains("1 (first)"), "{text}");
    let again = domain.first(2, "2", &[]).ok();
    assert!(again.contains("as it was"), "{again}");

    // Pages leave, by what the new first hears, when node 1 would have been missed.
    domain.await_status(2, |status| status["nodes"][0]["silent_seconds"].as_u64() > Some(9));
    let file = domain.machine.file(18 * MIB);
    domain.on(2, &["cp", &file, "dm/v:/file"]).ok();
    let read = domain.machine.on(&machine_of(2), &["cat", "dm/v:/file"]).output().expect("starts");
    assert!(read.stdout == fs::read(&file).expect("read"));
    // A new node may ask any.
    assert_eq!(domain.join("4", 3), 4);

    // The old first comes back with an old idea, and sends new nodes on.
    domain.start(1);
    domain.await_first(1, 2, 2);
    assert_eq!(domain.join("5", 1), 5);
    // It gives its place up for good; the first does not.
    domain
        .on(1, &["domain", "leave", "dm", "2"])
        .refused(1, &["gives out the numbers", "first dm"]);
    domain.on(1, &["domain", "leave", "dm", "1"]).ok();
    domain.await_status(5, |status| status["nodes"][0]["standing"] == "gone");
    domain.kill(1);
    domain.first(2, "1", &[]).refused(1, &["node 1 was removed"]);
    // A node that was removed stays so under the next first, which hears it of others.
    domain.first(2, "4", &[]).ok();
    domain.await_first(5, 4, 3);
    assert_eq!(domain.status(4)["nodes"][0]["standing"], "gone");
}

/// A first that was stopped gives no number behind the back of the later one.
#[test]
fn a_first_that_was_stopped_follows_the_later_one() {
    let mut domain = Domain::new(3);
    domain.signal(1, Signal::STOP);
    domain.first(3, "3", &[]).ok();
    assert_eq!(domain.join("4", 2), 4);
    domain.signal(1, Signal::CONT);
    // At once, before it can have heard of it by itself.
    assert_eq!(domain.join("5", 1), 5);
    domain.await_first(1, 3, 2);
    // What is asked of the old one is done by the new one.
    domain.on(1, &["domain", "drain", "dm", "4"]).ok();
    domain.await_status(3, |status| status["nodes"][3]["standing"] == "drains");
    // It takes the place back when all are there.
    domain.first(2, "1", &[]).ok();
    domain.await_first(3, 1, 3);
    assert_eq!(domain.status(1)["nodes"][3]["standing"], "drains");
}

#[test]
fn without_a_majority_a_node_is_first_by_force_alone() {
    let mut domain = Domain::new(3);
    domain.kill(1);
    domain.kill(3);
    let words = ["1 of 3 nodes agree", "more than half", "--to 2 --force"];
    domain.first(2, "2", &[]).refused(1, &words);
    assert_eq!(domain.status(2)["first"], 1);
    let said = domain.first(2, "2", &["--force", "--json"]).json();
    assert!(said["first"] == 2 && said["term"].as_u64() > Some(1), "{said}");
    let term = said["term"].as_u64().expect("a number");
    domain.no_join(2, &["no number is given", "1 of 3", "domain forget dm"]);
    // Its death changes nothing of that.
    domain.kill(2);
    domain.start(2);
    domain.await_first(2, 2, term);
    domain.no_join(2, &["no number is given"]);
    // One that comes back without a first finds it.
    domain.start(3);
    domain.await_first(3, 2, term);
    assert_eq!(domain.join("4", 3), 4);
    // Of 1, 2, 3, 4 two are gone: those that will not come back are forgotten.
    domain.kill(3);
    domain.no_join(2, &["no number is given"]);
    domain.on(2, &["domain", "forget", "dm", "1"]).ok();
    assert_eq!(domain.join("5", 4), 5);
}

/// Two halves, each of which has a first by force: both give no numbers; the later one is first
/// when they meet.
#[test]
fn of_two_firsts_the_later_one_stays() {
    let mut domain = Domain::new(4);
    let signal = |domain: &Domain, half: [usize; 2], which| {
        for node in half {
            domain.signal(node, which);
        }
    };
    signal(&domain, [1, 2], Signal::STOP);
    domain.first(4, "3", &[]).refused(1, &["2 of 4 nodes agree"]);
    domain.first(4, "3", &["--force"]).ok();
    domain.no_join(4, &["no number is given", "2 of 4"]);
    let term = domain.status(3)["term"].as_u64().expect("a number");
    signal(&domain, [3, 4], Signal::STOP);
    signal(&domain, [1, 2], Signal::CONT);
    domain.first(1, "2", &["--force"]).ok();
    domain.no_join(1, &["no number is given", "2 of 4"]);
    let other = domain.status(2)["term"].as_u64().expect("a number");
    assert!((other, 2) < (term, 3), "the test means it so");
    signal(&domain, [3, 4], Signal::CONT);
    for node in 1..=4 {
        domain.await_first(node, 3, term);
    }
    assert_eq!(domain.join("5", 1), 5);
    let numbers = |value: &Value| value.as_array().map(Vec::len);
    for node in 1..=5 {
        domain.await_status(node, |status| numbers(&status["nodes"]) == Some(5));
    }
}

#[test]
fn who_cannot_be_first_is_refused() {
    let machine = Machine::new();
    let first = machine.node("1", &[]);
    let join = ["--join", first.address()];
    let _passive = machine.node("2", &[&join[..], &["--passive"]].concat());
    let other = machine.node("3", &join);
    let to = |to: &str| machine.solera(&["domain", "first", "dm", "--to", to]);
    to("2").refused(1, &["passive", "--passive"]);
    to("9").refused(1, &["no such node", "domain status dm"]);
    machine.solera(&["domain", "first", "zz", "--to", "1"]).refused(1, &["no node of zz"]);
    machine.solera(&["domain", "first", "dm"]).ended_with(2);
    assert_eq!(machine.status()["first"], 1);
    drop(other);
    to("3").refused(1, &["reach the node"]);
    machine.solera(&["domain", "forget", "dm", "3"]).ok();
    to("3").refused(1, &["node 3 was removed"]);
    assert_eq!((&machine.status()["first"], &machine.status()["term"]), (&1.into(), &1.into()));
}

/// The node that is to be first is killed at each change of its store: what was before is so, or
/// what was asked for; and it can be asked again.
#[test]
fn a_node_that_becomes_first_may_die_at_any_step() {
    let mut domain = Domain::new(3);
    let first = |domain: &Domain| domain.status(3)["first"].as_u64().expect("a number");
    let (mut deaths, mut last) = (0, 3);
    for when in 1.. {
        let from = first(&domain);
        let to = 3 - from;
        let node = domain.nodes[to as usize].as_ref().expect("it runs").child.id();
        let (trace, inject) = ("trace=rename", format!("inject=rename:signal=KILL:when={when}"));
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", trace, "-e", &inject]);
        let strace = strace.args(["-p", &node.to_string()]).stderr(Stdio::null()).spawn();
        let Ok(mut strace) = strace else {
            eprintln!("skipped: strace cannot be had");
            return;
        };
        // It traces one thread after the other.
        std::thread::sleep(Duration::from_millis(300));
        let ran = domain.first(3, &to.to_string(), &[]);
        let mut killed = domain.nodes[to as usize].take().expect("it runs");
        std::thread::sleep(Duration::from_millis(100));
        let died = killed.child.try_wait().expect("it can be asked").is_some();
        drop(killed);
        strace.wait().expect("it ends");
        domain.start(to as usize);
        // Numbers are given, by the one or the other, whatever was promised before the death; one
        // that a first has stored, and not given when its reign was over, is given to nobody.
        let next = domain.nodes.len();
        let given = domain.join(&next.to_string(), 3);
        assert!(given > last, "killed at {when}: {given} after {last}");
        last = given;
        let now = first(&domain);
        assert!(now == from || now == to, "killed at {when}: {now}");
        assert!(died || ran.code == 0, "{}", ran.err);
        if !died {
            break;
        }
        deaths += 1;
        domain.first(3, &to.to_string(), &[]).ok();
        for node in 1..=3 {
            domain.await_status(node, |status| status["first"] == to);
        }
    }
    assert!(deaths >= 3, "{deaths}: it changes its store at more steps");
}
