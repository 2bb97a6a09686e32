//! A volume of a domain gets another host: `solera domain move`. Each node has a machine of its
//! own, which is a runtime directory.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::domain::{MIB, Machine, Node};
use crate::support::Ran;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Nodes 1, 2, 3 on machines `run`, `two`, `three`, and a volume of 40 MiB on the first, of which a
/// file of 24 is in use.
pub struct Domain {
    pub nodes: Vec<Option<Node>>,
    pub addresses: Vec<String>,
    pub machine: Machine,
    pub file: String,
    /// The domain's key: all goes by TLS.
    key: Option<String>,
}

pub const MACHINES: [&str; 3] = ["run", "two", "three"];

impl Domain {
    pub fn new() -> Self {
        Self::with(None)
    }

    /// The same by TLS.
    pub fn by_tls() -> Self {
        Self::with(Some("key.pem"))
    }

    fn with(key: Option<&str>) -> Self {
        let machine = Machine::new();
        let file = machine.file(24 * MIB);
        let key = key.map(|name| machine.0.text(name));
        if let Some(key) = &key {
            machine.solera(&["domain", "create", "dm", "--key", key]).ok();
        }
        let mut domain = Self {
            nodes: vec![None, None, None],
            addresses: vec![String::new(); 3],
            machine,
            file,
            key,
        };
        for (at, machine) in MACHINES.into_iter().enumerate() {
            if at > 0 {
                fs::create_dir(domain.machine.0.path(machine)).expect("made");
            }
            domain.start(at);
        }
        domain.on(0, &["format", "--ddmap", "dm/v", "--size", "40M"]).ok();
        let file = domain.file.clone();
        domain.on(0, &["cp", &file, "dm/v:/file"]).ok();
        domain
    }

    /// Starts a node, at the address that it had.
    pub fn start(&mut self, at: usize) {
        let store = (at + 1).to_string();
        let mut options = Vec::new();
        if !self.addresses[at].is_empty() {
            options.extend(["--listen", &self.addresses[at]]);
        }
        if at > 0 {
            options.extend(["--join", &self.addresses[0]]);
        }
        if let Some(key) = &self.key {
            options.extend(["--key", key]);
        }
        let node = self.machine.node_on(MACHINES[at], &store, &options);
        node.address().clone_into(&mut self.addresses[at]);
        self.nodes[at] = Some(node);
    }

    pub fn on(&self, at: usize, line: &[&str]) -> Ran {
        Ran::of(&mut self.machine.on(MACHINES[at], line))
    }

    pub fn status(&self, at: usize) -> Value {
        self.on(at, &["domain", "status", "--json", "dm"]).json()
    }

    /// Waits until `is` holds of what a machine's node says.
    pub fn await_status(&self, at: usize, is: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        while !is(&self.status(at)) {
            assert!(begun.elapsed().as_secs() < 120, "{}", self.status(at));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    pub fn has_file(&self, at: usize) {
        let output = self.machine.on(MACHINES[at], &["cat", "dm/v:/file"]).output();
        let output = output.expect("it starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == fs::read(&self.file).expect("read"), "other bytes");
        self.on(at, &["fsck", "dm/v"]).ok();
    }

    /// The machines on which the volume can be used: those whose nodes say that they are its host.
    pub fn hosts(&self) -> Vec<usize> {
        let hosts = |at: &usize| self.status(*at)["volumes"].as_array().map(Vec::len) == Some(1);
        (0..3).filter(hosts).collect()
    }
}

#[test]
fn a_volume_moves_to_another_host_and_back() {
    let domain = Domain::new();
    let moved = domain.on(0, &["domain", "move", "--json", "dm/v", "--to", "2"]).json();
    assert_eq!(
        (&moved["host"], &moved["from"], &moved["moved"]),
        (&2.into(), &1.into(), &true.into())
    );
    assert_eq!(domain.hosts(), [1]);
    // What stays with a host has gone over, and nothing else: pages follow when they are touched.
    let here = domain.status(1)["volumes"][0]["here_bytes"].as_u64();
    assert!(here >= Some(4 * MIB) && here < Some(16 * MIB), "{here:?}");

    let refused = domain.on(0, &["run", "--ddmap", "dm/v", "--wait", "0", "--", "true"]);
    let at = format!("node 2 at {} is its host", domain.addresses[1]);
    refused.refused(125, &[&at, "solera domain move dm/v --to 1"]);
    domain.on(0, &["info", "dm/v"]).refused(1, &[&at]);
    domain.on(2, &["cat", "dm/v:/file"]).refused(1, &[&at, "--to 3"]);
    domain
        .on(0, &["format", "--ddmap", "dm/v", "--size", "16M"])
        .refused(1, &[&at[..6], "of that name"]);
    domain.on(0, &["domain", "move", "dm/v", "--to", "3"]).refused(1, &[&at]);
    let said = domain.on(0, &["domain", "move", "dm/v", "--to", "2"]).ok();
    assert!(said.contains("is its host already"), "{said}");

    domain.has_file(1);
    domain.on(1, &["run", "--ddmap", "dm/v", "--", "cp", &domain.file, "/dm/file"]).ok();
    domain.has_file(1);
    // On, and home: each host has had what another one keeps by now.
    domain.on(1, &["domain", "move", "dm/v", "--to", "3"]).ok();
    domain.has_file(2);
    domain.on(2, &["domain", "move", "dm/v", "--to", "1"]).ok();
    assert_eq!(domain.hosts(), [0]);
    domain.has_file(0);
    domain.on(0, &["run", "--ddmap", "dm/v", "--", "rm", "/dm/file"]).ok();
    domain.await_status(1, |status| {
        status["nodes"][1]["kept_bytes"] == 0 && status["nodes"][2]["kept_bytes"] == 0
    });
}

#[test]
fn a_move_is_refused_while_a_process_has_the_volume() {
    let mut domain = Domain::new();
    let mut holds = domain.machine.on("run", &["run", "--ddmap", "dm/v", "--", "sleep", "60"]);
    let mut holds = holds.stdin(Stdio::null()).spawn().expect("it starts");
    domain.await_status(0, |status| status["volumes"][0]["processes"].as_u64() > Some(0));
    let refused = domain.on(0, &["domain", "move", "dm/v", "--to", "2"]);
    refused.refused(1, &["processes have it attached", "(sleep)", "end them"]);
    // It is as it was: another one may come, and pages may leave.
    domain.on(0, &["run", "--ddmap", "dm/v", "--", "ls", "/dm/file"]).ok();
    assert_eq!(domain.hosts(), [0]);
    holds.kill().and_then(|()| holds.wait()).expect("it ends");
    domain.await_status(0, |status| status["volumes"][0]["processes"] == 0);

    let to = |node: &str| domain.on(0, &["domain", "move", "dm/v", "--to", node]);
    to("9").refused(1, &["no such node"]);
    domain.on(0, &["domain", "move", "dm/none", "--to", "2"]).refused(1, &["dm/none"]);
    domain.on(0, &["domain", "move", "dm", "--to", "2"]).refused(1, &["DOMAIN/VOLUME"]);
    domain.on(0, &["domain", "move", "dm/v"]).ended_with(2);
    domain.on(0, &["domain", "drain", "dm", "2"]).ended_with(1);
    domain.nodes[1] = None;
    domain.on(0, &["domain", "move", "dm/v", "--to", "2"]).refused(1, &["node 2", "try again"]);
    assert_eq!(domain.hosts_of(&[0, 2]), [0]);
    domain.start(1);
    domain.on(0, &["domain", "move", "dm/v", "--to", "2"]).ok();
    domain.has_file(1);
}

/// The old host leaves the domain: what others keep of the volume is the new one's.
#[test]
fn the_old_host_may_leave_the_domain() {
    let mut domain = Domain::new();
    let join = ["--join", &domain.addresses[0].clone()];
    let _fourth = domain.machine.node("4", &[&join[..], &["--capacity", "64M"]].concat());
    domain.on(0, &["domain", "move", "dm/v", "--to", "2"]).ok();
    domain.on(1, &["domain", "move", "dm/v", "--to", "3"]).ok();
    domain.on(0, &["domain", "leave", "dm", "2"]).ok();
    domain.nodes[1] = None;
    domain.has_file(2);
}

/// Calls by which a move changes files. A node is killed at one of them.
const CALLS: &str = "rename,unlink,unlinkat,rmdir,mkdir,ftruncate,openat,pwrite64";

impl Domain {
    /// Has a node killed at the `when`th of those calls that a thread of it makes from now on;
    /// `false`: that cannot be had here.
    pub fn kill_at(&self, at: usize, when: u64) -> Option<Child> {
        let node = self.nodes[at].as_ref().expect("it runs").child.id();
        let inject = format!("inject={CALLS}:signal=KILL:when={when}");
        let trace = format!("trace={CALLS}");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject]);
        let mut strace =
            strace.args(["-p", &node.to_string()]).stderr(Stdio::null()).spawn().ok()?;
        let begun = Instant::now();
        let is_traced = || {
            let status = fs::read_to_string(format!("/proc/{node}/status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
        };
        while !is_traced() {
            if begun.elapsed().as_secs() > 120 || strace.try_wait().is_ok_and(|end| end.is_some()) {
                let _ = strace.kill();
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // It traces one thread after the other.
        std::thread::sleep(Duration::from_millis(50));
        Some(strace)
    }

    /// One of two is the host, perhaps only when both have gone on for a while; then the move is
    /// asked for again, until `to` is.
    fn finish(&self, what: &str, from: usize, to: usize) {
        let begun = Instant::now();
        while self.hosts().is_empty() {
            assert!(begun.elapsed().as_secs() < 120, "{what}: nobody is the host");
            std::thread::sleep(Duration::from_millis(50));
        }
        let hosts = self.hosts();
        assert!(hosts == [from] || hosts == [to], "{what}: {hosts:?}");
        let number = (to + 1).to_string();
        while hosts == [from]
            && self.on(from, &["domain", "move", "dm/v", "--to", &number]).code != 0
        {
            // The other one is heard of with the next beat.
            assert!(begun.elapsed().as_secs() < 120, "{what}");
            std::thread::sleep(Duration::from_millis(200));
        }
        assert_eq!(self.hosts(), [to], "{what}");
        self.has_file(to);
    }

    /// A move, with a node killed by what `kill` gives; whether it was killed.
    fn move_and_kill(
        &mut self,
        (from, to): (usize, usize),
        killed: usize,
        when: u64,
    ) -> Option<bool> {
        let mut strace = self.kill_at(killed, when)?;
        let number = (to + 1).to_string();
        let line = ["domain", "move", "dm/v", "--to", &number];
        let mut moving = self.machine.on(MACHINES[from], &line);
        let mut moving = moving.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let mut node = self.nodes[killed].take().expect("it runs");
        let mut died = false;
        while moving.try_wait().expect("it can be asked").is_none() && !died {
            died = node.child.try_wait().expect("it can be asked").is_some();
            std::thread::sleep(Duration::from_millis(2));
        }
        // What is behind the end of the move may kill it, too.
        std::thread::sleep(Duration::from_millis(if died { 0 } else { 100 }));
        died |= node.child.try_wait().expect("it can be asked").is_some();
        drop(node);
        self.start(killed);
        moving.wait().and_then(|_| strace.wait()).expect("they end");
        Some(died)
    }
}

/// Either node is killed at each step of a move: one of the two is the host, and the move goes on,
/// or can be asked for again.
#[test]
fn a_move_survives_the_death_of_either_node_at_any_step() {
    let mut domain = Domain::new();
    let (mut from, mut to) = (0, 1);
    let mut deaths = [0, 0];
    // In the short run a third of the steps, which the commit chooses.
    let first = 1 + u64::from(rotation::turn("migration", 3));
    let (first, each) = if rotation::all() { (1, 1) } else { (first, 3) };
    for when in (first..=60).step_by(each) {
        let mut died_once = false;
        for (who, deaths) in deaths.iter_mut().enumerate() {
            let killed = if who == 0 { from } else { to };
            let Some(died) = domain.move_and_kill((from, to), killed, when) else {
                eprintln!("skipped: strace cannot be had");
                return;
            };
            *deaths += u32::from(died);
            died_once |= died;
            domain.finish(&format!("{} killed at {when}", ["old", "new"][who]), from, to);
            (from, to) = (to, from);
        }
        if !died_once {
            break;
        }
    }
    let least = if each == 1 { 6 } else { 1 };
    assert!(
        deaths[0] > least && deaths[1] > least,
        "{deaths:?}: it was to be killed at more steps"
    );
}

impl Domain {
    pub fn hosts_of(&self, machines: &[usize]) -> Vec<usize> {
        let hosts = |at: &usize| self.status(*at)["volumes"].as_array().map(Vec::len) == Some(1);
        machines.iter().copied().filter(hosts).collect()
    }
}

#[test]
fn a_volume_moves_by_tls_and_back() {
    let domain = Domain::by_tls();
    domain.on(0, &["domain", "move", "dm/v", "--to", "2"]).ok();
    assert_eq!(domain.hosts(), [1]);
    domain.has_file(1);
    domain.on(1, &["domain", "move", "dm/v", "--to", "1"]).ok();
    assert_eq!(domain.hosts(), [0]);
    domain.has_file(0);
}

/// A holder gives its pages up while the volume gets another host, which goes on fetching them.
#[test]
fn a_volume_moves_while_a_node_gives_its_pages_up() {
    let mut domain = Domain::new();
    let join = ["--join", &domain.addresses[0].clone()];
    let _fourth = domain.machine.node("4", &[&join[..], &["--capacity", "64M"]].concat());
    let kept = |status: &Value, at: usize| status["nodes"][at]["kept_bytes"].as_u64();
    // One of them has what the host has no room for.
    domain.await_status(0, |status| kept(status, 1).max(kept(status, 2)) > Some(0));
    let status = domain.status(0);
    let (leaves, host) = if kept(&status, 2) > Some(0) { (2, 1) } else { (1, 2) };
    let [leaving, moving] = [leaves, host].map(|at| (at + 1).to_string());
    // It does not answer meanwhile, so it has pages to give up still.
    let signal = |domain: &Domain, signal| {
        let node = domain.nodes[leaves].as_ref().expect("it runs");
        kill_process(Pid::from_child(&node.child), signal).expect("it is there");
    };
    signal(&domain, Signal::STOP);
    let mut drains = domain.machine.on("run", &["domain", "leave", "dm", &leaving]);
    let mut drains = drains.stderr(Stdio::piped()).spawn().expect("it starts");
    domain.await_status(0, |status| status["nodes"][leaves]["standing"] == "drains");
    // To the one that gives its pages up: refused.
    let to = |node| ["domain", "move", "dm/v", "--to", node];
    domain.on(0, &to(&leaving)).refused(1, &["give its pages up"]);
    domain.on(0, &to(&moving)).ok();
    signal(&domain, Signal::CONT);
    assert!(drains.wait().expect("it ends").success(), "node {leaving} has left");
    domain.nodes[leaves] = None;
    assert_eq!(domain.hosts_of(&[0, host]), [host]);
    domain.has_file(host);
}

/// Two volumes at once, to and fro; and one that is asked for twice.
#[test]
fn several_volumes_move_at_once() {
    let domain = Domain::new();
    domain.on(1, &["format", "--ddmap", "dm/w", "--size", "5M"]).ended_with(1);
    let join = ["--join", &domain.addresses[0]];
    let _fourth = domain.machine.node("4", &[&join[..], &["--capacity", "64M"]].concat());
    domain.await_status(1, |status| status["nodes"].as_array().map(Vec::len) == Some(4));
    domain.on(1, &["format", "--ddmap", "dm/w", "--size", "16M"]).ok();
    let small = domain.machine.0.text("small");
    fs::write(&small, vec![7; 1 << 20]).expect("written");
    domain.on(1, &["cp", &small, "dm/w:/small"]).ok();
    // Node 4 is on the first machine.
    for [(from, to), (back, there)] in [[(0, 3), (1, 4)], [(2, 1), (0, 2)]] {
        let moves = |at: usize, name: &str, to: usize| {
            let line = ["domain", "move", name, "--to", &to.to_string()];
            let mut command = domain.machine.on(MACHINES[at], &line);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        };
        for one in [moves(from, "dm/v", to), moves(back, "dm/w", there), moves(from, "dm/v", to)] {
            Ran::new("move".to_owned(), &one.wait_with_output().expect("it ends")).ok();
        }
        domain.has_file(to - 1);
        domain.on(if there == 4 { 0 } else { there - 1 }, &["fsck", "--read-data", "dm/w"]).ok();
    }
}

/// A node that pauses behind each name that it changes: so behind what decides a move, and ahead of
/// what says so to the new host. `None`: that cannot be had here.
fn pauses_behind_renames(domain: &Domain, at: usize) -> Option<Child> {
    let node = domain.nodes[at].as_ref().expect("it runs").child.id();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=rename,renameat,renameat2"]);
    let pause = "inject=rename,renameat,renameat2:delay_exit=3000000";
    strace.args(["-e", pause, "-p", &node.to_string()]);
    let mut strace = strace.stderr(Stdio::null()).spawn().ok()?;
    let is_traced = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    };
    let begun = Instant::now();
    let tasks = || fs::read_dir(format!("/proc/{node}/task")).into_iter().flatten().flatten();
    while !tasks().all(is_traced) {
        if begun.elapsed().as_secs() > 120 || strace.try_wait().is_ok_and(|end| end.is_some()) {
            let _ = strace.kill();
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(strace)
}

/// Waits until a node that has ended is not heard of, and forgets it.
fn forget(domain: &Domain, node: &str) {
    let begun = Instant::now();
    while domain.on(0, &["domain", "forget", "dm", node]).code != 0 {
        assert!(begun.elapsed().as_secs() < 120, "it is not heard of");
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// The new host's store is lost between the decision and its answer: nobody was the host then, for
/// ever.
#[test]
fn a_volume_comes_back_from_a_host_that_never_was() {
    let mut domain = Domain::new();
    let Some(mut strace) = pauses_behind_renames(&domain, 0) else {
        eprintln!("skipped: strace cannot be had");
        return;
    };
    let mut moving = domain.machine.on("run", &["domain", "move", "dm/v", "--to", "2"]);
    let mut moving = moving.stderr(Stdio::null()).stdout(Stdio::null()).spawn().expect("starts");
    let going = |kept: &std::path::Path| {
        let folders = fs::read_dir(kept).into_iter().flatten().flatten();
        folders.map(|one| one.path().join("going")).any(|path| path.is_file())
    };
    let begun = Instant::now();
    while !going(&domain.machine.0.path("1/kept")) {
        assert!(begun.elapsed().as_secs() < 120, "it is decided");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(domain.nodes[1].take());
    let _ = strace.kill().and_then(|()| strace.wait());
    fs::remove_dir_all(domain.machine.0.path("2")).expect("its store is lost");
    assert_eq!(moving.wait().expect("it ends").code(), Some(1));

    // What has happened is said, by each command that is tried.
    let words = ["node 2", "domain forget dm 2", "domain move dm/v --to 1"];
    domain.on(0, &["domain", "repair", "dm/v"]).refused(1, &words);
    domain.on(0, &["ls", "dm/v"]).refused(1, &words);
    domain.on(0, &["domain", "move", "dm/v", "--to", "1"]).refused(1, &words);
    assert_eq!(domain.hosts_of(&[0, 2]), [0; 0]);

    forget(&domain, "2");
    // The node is started anew meanwhile, and forgets nothing. Another one has missed it, and hears
    // it again: what it heard before its end would not tell.
    drop(domain.nodes[0].take());
    domain.await_status(2, |status| status["nodes"][0]["silent_seconds"].as_u64() >= Some(4));
    domain.start(0);
    domain.await_status(2, |status| status["nodes"][0]["silent_seconds"].as_u64() < Some(3));
    let said = domain.on(0, &["domain", "move", "dm/v", "--to", "1"]).ok();
    assert!(said.contains("node 1") && said.contains("its host again"), "{said}");
    assert_eq!(domain.hosts_of(&[0, 2]), [0]);
    // What node 2 kept is lost with it, as with any node; all else is there, and can be written.
    domain.on(0, &["fsck", "dm/v"]).ok();
    // There is room for one of them, as nodes are now.
    domain.on(0, &["run", "--ddmap", "dm/v", "--", "rm", "/dm/file"]).ok();
    domain.on(0, &["run", "--ddmap", "dm/v", "--", "cp", &domain.file, "/dm/again"]).ok();
    let output = domain.machine.on("run", &["cat", "dm/v:/again"]).output().expect("it starts");
    assert!(output.stdout == fs::read(&domain.file).expect("read"));
    // It moves on, in a later term.
    domain.on(0, &["domain", "move", "dm/v", "--to", "3"]).ok();
    assert_eq!(domain.hosts_of(&[0, 2]), [2]);
}
