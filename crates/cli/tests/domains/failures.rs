//! Bad input and bad days of a domain: keys, stores and files that are not what they should be,
//! kernels that refuse, memory that is used up, signals. Each is refused by one clear line, or a
//! page is lost by name; never are there other bytes. Programs are `tests/domains/failures.c`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::domain::{MIB, Machine, Node};
use crate::support::{Ran, as_user, can_change_user, compiled};
use rustix::process::{Pid, Signal, kill_process};

/// Programs that use a volume of 40 MiB on nodes of 16: they have a file of 24.
struct Days {
    nodes: Vec<Option<Node>>,
    machine: Machine,
}

impl Days {
    fn new() -> Self {
        let machine = Machine::new();
        let nodes = machine.domain_of_three().into_iter().map(Some).collect();
        let days = Self { nodes, machine };
        days.run("make").ok();
        days
    }

    /// A program's command, with options of `solera run`.
    fn command(&self, options: &[&str], case: &str) -> Command {
        let program = compiled("cli/tests/domains/failures.c", &[]);
        let line = ["run", "--ddmap", "dm/v", "--at", "/dm"];
        let rest = ["--", &program, case, "/dm/file", "24"];
        self.machine.command(&[&line[..], options, &rest].concat())
    }

    fn run(&self, case: &str) -> Ran {
        // No page is missing while the file is made.
        let patience = if case == "make" { "120s" } else { "5s" };
        Ran::of(&mut self.command(&["--patience", patience], case))
    }

    /// How many pages the program sees, and how many it cannot have; all others are right.
    #[track_caller]
    fn look(&self) -> (u64, u64) {
        self.look_with("5s")
    }

    /// The same where no page is missing: none is lost because a node is slow.
    #[track_caller]
    fn look_at_all(&self) -> (u64, u64) {
        self.look_with("120s")
    }

    #[track_caller]
    fn look_with(&self, patience: &str) -> (u64, u64) {
        let said = Ran::of(&mut self.command(&["--patience", patience], "look")).ok();
        let numbers: Vec<u64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [right, lost] = numbers[..] else { panic!("{said}") };
        assert_eq!(right + lost, 24 * MIB / 4096);
        (right, lost)
    }

    /// A program that has said that it begins.
    fn begin(&self, options: &[&str], case: &str) -> (Child, String) {
        let mut command = self.command(options, case);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("it can be read");
        (child, line)
    }

    fn signal(&self, at: usize, signal: Signal) {
        let node = self.nodes[at].as_ref().expect("it runs");
        kill_process(Pid::from_child(&node.child), signal).expect("it is there");
    }

    /// The page file of what a node keeps.
    fn kept(&self, node: &str) -> PathBuf {
        let folders = fs::read_dir(self.machine.0.path(node).join("kept")).expect("it keeps some");
        let mut files = folders.map(|folder| folder.expect("an entry").path().join("pages"));
        files.next().expect("of one volume")
    }
}

/// A tmpfs that is mounted until the test ends.
struct Tmpfs(PathBuf);

impl Tmpfs {
    /// `None`: it cannot be had here, which is said.
    fn mount(machine: &Machine, name: &str, options: &str) -> Option<Self> {
        let at = machine.0.path(name);
        fs::create_dir(&at).expect("made");
        let mut mount = Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&at);
        let mounted = mount.stderr(Stdio::null()).status().is_ok_and(|end| end.success());
        if !mounted {
            eprintln!("a tmpfs cannot be mounted: nothing tested");
        }
        mounted.then_some(Self(at))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_key_of_another_domain_is_refused_by_both_names() {
    let machine = Machine::new();
    let [key, other] = ["key.pem", "other.pem"].map(|name| machine.0.text(name));
    machine.solera(&["domain", "create", "dm", "--key", &key]).ok();
    machine.solera(&["domain", "create", "big", "--key", &other]).ok();
    let named = ["other.pem", "key of the domain big, not of dm", "--domain big"];
    machine.refuses(("dm", "1"), &["--key", &other], &named);
    let text = fs::read(&key).expect("read");
    fs::write(&other, &text[..text.len() / 2]).expect("written");
    machine.refuses(("dm", "1"), &["--key", &other], &["middle of a section", "copy it anew"]);
    assert!(!machine.0.path("1").exists(), "nothing is made");
}

#[test]
fn a_node_is_where_others_reach_it() {
    let machine = Machine::new();
    let key = machine.0.text("key.pem");
    machine.solera(&["domain", "create", "dm", "--key", &key]).ok();
    let all = ["--listen", "0.0.0.0:0", "--key", &key];
    machine.refuses(("dm", "1"), &all, &["0.0.0.0", "--listen"]);
    machine.refuses(("dm", "1"), &["--join", "8.8.8.8:7470"], &["8.8.8.8", "no private address"]);
    assert!(!machine.0.path("1").exists(), "nothing is left");
}

/// The copy was taken for the node, started anew elsewhere: hosts then asked it for pages that it
/// had not got, and called them lost.
#[test]
fn a_copy_of_a_store_is_no_node_beside_it() {
    let machine = Machine::new();
    let first = machine.node("1", &[]);
    let join = ["--join", first.address()];
    let second = machine.node("2", &join);
    let [from, to] = ["2", "copy"].map(|name| machine.0.text(name));
    assert!(Command::new("cp").args(["-r", &from, &to]).status().expect("cp").success());
    let at = format!("node 2 is at {}", second.address());
    machine.refuses(("dm", "copy"), &join, &[&at, "answers", "copy"]);
    // It goes on, and may come back at another address as soon as it has ended.
    assert_eq!(second.end(Signal::TERM).code(), Some(0));
    let _second = machine.node("2", &join);
}

#[test]
fn stores_of_other_builds_are_refused_by_name() {
    let machine = Machine::new();
    let node = machine.node("1", &["--capacity", "32M"]);
    machine.solera(&["format", "--ddmap", "dm/v", "--size", "16M"]).ok();
    let region = machine.0.path("1/volumes/v");
    assert_eq!(node.end(Signal::TERM).code(), Some(0));
    let about = machine.0.path("1/node");
    let text = fs::read_to_string(&about).expect("read");
    fs::write(&about, text.replace("\"format\": 3", "\"format\": 9")).expect("written");
    machine.refuses(("dm", "1"), &[], &["format 9", "this build has 3", "the build that made it"]);
    fs::write(&about, &text[..text.len() / 2]).expect("written");
    machine.refuses(("dm", "1"), &[], &["1/node cannot be read"]);
    fs::write(&about, text).expect("written");

    // Of other structures: the node begins, and says what it cannot serve.
    let table = region.join("table");
    let whole = fs::read(&table).expect("read");
    let change = |at: u64, bytes: &[u8]| {
        let file = fs::OpenOptions::new().write(true).open(&table).expect("opened");
        file.write_all_at(bytes, at).expect("written");
    };
    for (at, bytes, words) in [
        (8, 77_u64, "the build that made it"),
        (16, u64::MAX / 2, "the build that made it"),
        (0, 1, "the build that made it"),
    ] {
        change(at, &bytes.to_le_bytes());
        let node = machine.node("1", &["--capacity", "32M"]);
        machine.solera(&["ls", "dm/v"]).refused(1, &[words]);
        machine.solera(&["run", "--ddmap", "dm/v", "--", "true"]).refused(125, &[words]);
        assert_eq!(node.end(Signal::TERM).code(), Some(0));
        change(0, &whole[..64]);
    }
    let node = machine.node("1", &["--capacity", "32M"]);
    machine.solera(&["ls", "dm/v"]).ok();
    drop(node);
}

#[test]
fn a_file_system_without_the_room_is_refused() {
    let machine = Machine::new();
    let Some(small) = Tmpfs::mount(&machine, "small", "size=24M") else { return };
    machine.refuses(("dm", "small/1"), &["--capacity", "25M"], &["25165824 bytes", "--capacity"]);
    fs::write(small.0.join("other"), vec![1; 16 << 20]).expect("written");
    machine.refuses(("dm", "small/1"), &["--capacity", "16M"], &["8388608 are free"]);
    assert!(!small.0.join("1").exists(), "nothing is left");
    let node = machine.node("small/1", &["--capacity", "8M"]);
    assert_eq!(node.end(Signal::TERM).code(), Some(0));
    // It was there before: it has its pages, which count as used, too.
    fs::write(small.0.join("more"), vec![1; 4 << 20]).expect("written");
    drop(machine.node("small/1", &["--capacity", "8M"]));
}

/// Somebody else uses the memory up that the node was given: touches wait for it, and nothing is
/// lost.
#[test]
fn a_full_file_system_delays_and_loses_nothing() {
    let machine = Machine::new();
    let Some(small) = Tmpfs::mount(&machine, "small", "size=24M") else { return };
    let first = machine.node("small/1", &["--capacity", "16M"]);
    let second = machine.node("2", &["--join", first.address(), "--capacity", "48M"]);
    machine.solera(&["format", "--ddmap", "dm/v", "--size", "40M"]).ok();
    let days = Days { nodes: vec![Some(first), Some(second)], machine };
    days.run("make").ok();
    let full = small.0.join("full");
    let to = format!("of={}", full.display());
    let filled = Command::new("dd").args(["if=/dev/zero", "bs=64k", &to]).output();
    assert!(!filled.expect("it starts").status.success(), "there is no room left");
    // Pages that are here are seen; others wait for room, and are never zeros.
    let (mut reads, said) = days.begin(&["--patience", "1s"], "calls");
    assert_eq!(said, "begins\n");
    std::thread::sleep(Duration::from_secs(5));
    assert!(reads.try_wait().expect("asked").is_none(), "it has seen no other bytes");
    reads.kill().and_then(|()| reads.wait()).expect("it ends");
    fs::remove_file(full).expect("removed");
    assert_eq!(days.look_at_all().1, 0, "all is there again");
}

/// The kernel, or a filter of system calls, has no userfaultfd.
#[test]
fn without_userfaultfd_nodes_and_programs_are_refused() {
    let days = Days::new();
    let machine = &days.machine;
    let forbid = compiled("cli/tests/domains/failures.c", &[]);
    let solera = |errno: &str, line: &[&str]| {
        let mut command = Command::new(&forbid);
        command.args(["forbid", errno, env!("CARGO_BIN_EXE_solera")]).args(line);
        command.env("XDG_RUNTIME_DIR", machine.0.path("run")).env_remove("LD_PRELOAD");
        Ran::of(command.stdin(Stdio::null()))
    };
    let store = machine.0.text("new");
    let node = ["node", "--domain", "new", "--store", &store, "--listen", "127.0.0.1:0"];
    let node = [&node[..], &["--capacity", "16M"]].concat();
    for (errno, words) in [
        ("1", ["forbidden here", "seccomp"]),
        ("38", ["no userfaultfd", "CONFIG_USERFAULTFD"]),
        ("22", ["too old", "5.19"]),
    ] {
        solera(errno, &node).refused(1, &words);
        solera(errno, &["ls", "dm/v"]).refused(1, &words);
        let ran = solera(errno, &["run", "--ddmap", "dm/v", "--", "ls", "/dm"]);
        assert_ne!(ran.code, 0, "{}", ran.out);
        assert!(words.iter().all(|word| ran.err.contains(word)), "{}", ran.err);
    }
    assert!(!machine.0.path("new").exists(), "nothing is left");
    assert_eq!(days.look_at_all().1, 0, "those that are there go on");
}

/// As any user: `vm.unprivileged_userfaultfd` is 0 by default, and need not be changed; nothing
/// takes locked memory.
#[test]
fn any_user_can_run_a_node_without_locked_memory() {
    if !can_change_user() {
        return;
    }
    let machine = Machine::new();
    let solera = machine.0.for_everyone();
    for name in ["store", "theirs"] {
        fs::create_dir(machine.0.path(name)).expect("made");
        std::os::unix::fs::chown(machine.0.path(name), Some(4242), Some(4242)).expect("its owner");
        fs::set_permissions(machine.0.path(name), fs::Permissions::from_mode(0o700)).expect("mode");
    }
    let as_other = |line: &[&str]| {
        let mut command = as_user(4242, "", "prlimit");
        command.args(["--memlock=0", "--", &solera]).args(line);
        command.env("XDG_RUNTIME_DIR", machine.0.path("theirs")).env_remove("LD_PRELOAD");
        command
    };
    let store = machine.0.text("store");
    let line = ["node", "--domain", "dm", "--store", &store, "--listen", "127.0.0.1:0"];
    let _node = Node::start(as_other(&[&line[..], &["--capacity", "32M"]].concat()));
    Ran::of(&mut as_other(&["format", "--ddmap", "dm/v", "--size", "24M"])).ok();
    let script = "echo text > /dm/file && cat /dm/file";
    let said = Ran::of(&mut as_other(&["run", "--ddmap", "dm/v", "--", "sh", "-c", script])).ok();
    assert_eq!(said, "text\n");
}

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.blocks() * 512)
}

/// Where the file system gives large pages a page takes no 2 MiB, and what is removed is free on
/// all nodes.
#[test]
fn large_pages_of_the_file_system_take_and_keep_no_more() {
    let machine = Machine::new();
    let Some(huge) = Tmpfs::mount(&machine, "huge", "size=128M,huge=always") else { return };
    let first = machine.node("huge/1", &[]);
    let join = ["--join", first.address()];
    let others = ["huge/2", "huge/3"].map(|store| Some(machine.node(store, &join)));
    machine.solera(&["format", "--ddmap", "dm/v", "--size", "40M"]).ok();
    let [second, third] = others;
    let days = Days { nodes: vec![Some(first), second, third], machine };
    days.run("make").ok();
    assert_eq!(days.look_at_all().1, 0);
    let region = huge.0.join("1/volumes/v/region");
    assert!(allocated(&region) <= 16 * MIB, "{} bytes", allocated(&region));
    for node in ["huge/2", "huge/3"] {
        let pages = days.kept(node);
        assert!(allocated(&pages) > 0 && allocated(&pages) <= 16 * MIB, "{}", allocated(&pages));
    }
    days.machine.solera(&["run", "--ddmap", "dm/v", "--", "rm", "/dm/file"]).ok();
    days.machine.solera(&["trim", "dm/v"]).ok();
    let begun = Instant::now();
    let left = || ["huge/2", "huge/3"].map(|node| allocated(&days.kept(node)));
    while left() != [0, 0] || allocated(&region) > 5 * MIB {
        assert!(begun.elapsed().as_secs() < 120, "{:?}, {}", left(), allocated(&region));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn change(path: &Path, act: impl FnOnce(&fs::File)) {
    act(&fs::OpenOptions::new().write(true).open(path).expect("it is there"));
}

fn punch(file: &fs::File, from: u64, bytes: u64) {
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, flags, from, bytes).expect("punched");
}

/// Holes in a holder's page file were given as pages of zeros.
#[test]
fn a_holders_page_file_that_is_changed_gives_no_zeros() {
    let days = Days::new();
    assert_eq!(days.look_at_all(), (6144, 0));
    change(&days.kept("2"), |file| punch(file, 0, 40 * MIB));
    let (_, punched) = days.look();
    assert!(punched > 100, "{punched} pages are lost by the holes");
    change(&days.kept("3"), |file| file.set_len(4096).expect("cut"));
    let (_, cut) = days.look();
    assert!(cut > punched, "{cut} pages, and {punched} before");
    days.machine.solera(&["domain", "repair", "--json", "dm/v"]).ended_with(4);
    assert_eq!(days.look().1, cut, "what is lost stays so");
}

/// A holder's page file is another one when it begins: it keeps nothing of it, and says so.
#[test]
fn a_holders_page_file_that_was_replaced_is_not_served() {
    let mut days = Days::new();
    days.nodes[1] = None;
    let pages = days.kept("2");
    fs::write(&pages, vec![0; 8192]).expect("written");
    let store = days.machine.0.text("2");
    let line = ["node", "--domain", "dm", "--store", &store, "--listen", "127.0.0.1:0"];
    let mut command = days.machine.command(&[&line[..], &["--capacity", "16M"]].concat());
    let says = days.machine.0.path("says");
    command.stderr(fs::File::create(&says).expect("made"));
    days.nodes[1] = Some(Node::start(command));
    let said = fs::read_to_string(says).expect("read");
    assert!(said.contains("the page file beside it has 8192 bytes"), "{said}");
    // Nothing of it is given: pages are not to be had, and none is zeros.
    let (mut reads, said) = days.begin(&["--patience", "1s"], "calls");
    assert_eq!(said, "begins\n");
    std::thread::sleep(Duration::from_secs(5));
    assert!(reads.try_wait().expect("asked").is_none(), "it has seen no other bytes");
    reads.kill().and_then(|()| reads.wait()).expect("it ends");
}

/// The host's own page file, under programs and while its node is down.
#[test]
fn a_hosts_page_file_that_is_changed_gives_no_zeros() {
    let days = Days::new();
    let region = days.machine.0.path("1/volumes/v/region");
    let (mut waits, _) = days.begin(&["--patience", "2s"], "wait");
    change(&region, |file| punch(file, 20 * MIB, 8 * MIB));
    waits.stdin.take().expect("a pipe").write_all(b"x").expect("it waits");
    let ended = waits.wait().expect("it ends");
    let ended_by = ended.signal().or(ended.code());
    assert!(ended_by == Some(Signal::BUS.as_raw()) || ended_by == Some(0), "{ended}");
    // Metadata lies in front; some of the file's pages are gone by now, none is zeros.
    let ran = days.run("look");
    assert!(!ran.err.contains(", not "), "other bytes: {}", ran.err);
    change(&region, |file| file.set_len(1 << 20).expect("cut"));
    let ran = days.machine.solera(&["cat", "dm/v:/file"]);
    assert!(ran.code != 0 && ran.err.starts_with("solera: "), "{} {}", ran.code, ran.err);
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
}

/// A read that fails once said that the page is lost, for ever.
#[test]
fn a_page_that_cannot_be_read_now_is_read_later() {
    let days = Days::new();
    let node = days.nodes[1].as_ref().expect("it runs").child.id().to_string();
    let pages = days.kept("2");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=pread64", "-P"]).arg(&pages);
    let strace = strace.args(["-e", "inject=pread64:error=ENOMEM:when=1..400+3", "-p", &node]);
    let Ok(mut strace) = strace.stderr(Stdio::null()).spawn() else {
        eprintln!("strace cannot be had: nothing tested");
        return;
    };
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(days.look_at_all(), (6144, 0));
    assert!(strace.try_wait().expect("asked").is_none(), "it has traced the node");
    let _ = kill_process(Pid::from_child(&strace), Signal::INT);
    strace.wait().expect("it ends");
    assert_eq!(days.look_at_all(), (6144, 0));
}

/// The kernel kills a node for want of memory: its pages are there when it is started again.
#[test]
fn a_node_that_is_killed_for_want_of_memory_comes_back() {
    let Some(group) = crate::group::Group::new(24 << 20) else { return };
    let mut days = Days::new();
    days.nodes[2] = None;
    days.nodes[1] = None;
    let store = days.machine.0.text("2");
    let solera = env!("CARGO_BIN_EXE_solera");
    let line = format!(
        "{}; exec {solera} node --domain dm --store {store} --listen 127.0.0.1:0 --capacity 64M",
        group.entry()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).env("XDG_RUNTIME_DIR", days.machine.0.path("run"));
    let mut node = Node::start(shell);
    let file = days.machine.file(30 << 20);
    let _third = days.machine.node("3", &[]);
    let line = ["run", "--ddmap", "dm/v", "--patience", "4s", "--", "cp", &file, "/dm/more"];
    let mut copies = days.machine.command(&line);
    let mut copies = copies.stderr(Stdio::null()).spawn().expect("it starts");
    let begun = Instant::now();
    while node.child.try_wait().expect("asked").is_none() && begun.elapsed().as_secs() < 20 {
        std::thread::sleep(Duration::from_millis(50));
    }
    copies.kill().and_then(|()| copies.wait()).expect("it ends");
    if group.killed() == 0 {
        eprintln!("it was not killed: memory of a tmpfs is another group's here");
    }
    drop(node);
    days.nodes[1] = Some(days.machine.node("2", &["--capacity", "64M"]));
    days.nodes[2] = None;
    assert_eq!(days.look_at_all().1, 0, "its pages are there");
}

/// A signal ends a program that hangs in a touch, or in a call, of a page of a node that is
/// stopped. It is far from the end of its patience.
fn ends_by(days: &Days, case: &str, signal: Signal) {
    let (mut hangs, said) = days.begin(&["--patience", "600s"], case);
    assert_eq!(said, "begins\n");
    let stat = format!("/proc/{}/stat", hangs.id());
    let mut waits = 0;
    while waits < 10 {
        let stat = fs::read_to_string(&stat).expect("it is there");
        waits = if stat.contains(") S ") { waits + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(20));
    }
    let begun = Instant::now();
    kill_process(Pid::from_child(&hangs), signal).expect("it is there");
    let ended = hangs.wait().expect("it ends");
    assert_eq!(ended.signal(), Some(signal.as_raw()), "{case}: {ended}");
    assert!(begun.elapsed() < Duration::from_mins(5), "{case}, {signal:?}: {:?}", begun.elapsed());
}

#[test]
fn a_fetch_that_hangs_ends_by_a_signal_at_once() {
    let days = Days::new();
    for node in [1, 2] {
        days.signal(node, Signal::STOP);
    }
    for case in ["hang", "calls"] {
        for signal in [Signal::INT, Signal::TERM] {
            ends_by(&days, case, signal);
        }
    }
    for node in [1, 2] {
        days.signal(node, Signal::CONT);
    }
    assert_eq!(days.look_at_all(), (6144, 0));
}

/// A program that aborts with pages away leaves a core file, at once; they are not in it, and
/// others go on.
#[test]
fn a_core_file_waits_for_no_page() {
    let days = Days::new();
    for node in [1, 2] {
        days.signal(node, Signal::STOP);
    }
    let folder = days.machine.0.path("cores");
    fs::create_dir(&folder).expect("made");
    let mut command = days.command(&["--patience", "600s"], "dump");
    command.current_dir(&folder).stdout(Stdio::null());
    let none = rustix::process::Rlimit { current: None, maximum: None };
    // SAFETY: one system call, in the child.
    unsafe {
        command.pre_exec(move || {
            Ok(rustix::process::setrlimit(rustix::process::Resource::Core, none)?)
        })
    };
    let begun = Instant::now();
    let ended = command.status().expect("it starts");
    assert_eq!(ended.signal(), Some(Signal::ABORT.as_raw()), "{ended}");
    assert!(begun.elapsed() < Duration::from_mins(5), "{:?}", begun.elapsed());
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.starts_with("core") {
        assert!(ended.core_dumped() && fs::read_dir(&folder).expect("read").next().is_some());
    }
    for node in [1, 2] {
        days.signal(node, Signal::CONT);
    }
    assert_eq!(days.look_at_all(), (6144, 0));
}

/// A debugger sees what is there, is told of what is not, and brings nothing; the program goes on.
#[test]
fn a_debugger_may_look_and_the_program_goes_on() {
    if Command::new("gdb").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("gdb cannot be had: nothing tested");
        return;
    }
    let days = Days::new();
    let (mut waits, at) = days.begin(&["--patience", "10s"], "wait");
    let at = at.trim().trim_start_matches("0x");
    let at = u64::from_str_radix(at, 16).expect("an address");
    let examined = |page: u64| format!("x/1gx {:#x}", at + page * 4096);
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-p", &waits.id().to_string()]);
    for page in [0, 3000, 6143] {
        gdb.args(["-ex", &examined(page)]);
    }
    let said = Ran::of(gdb.args(["-ex", "detach"]).stdin(Stdio::null()));
    if said.err.contains("ptrace: Operation not permitted") {
        eprintln!("a process cannot be traced here: nothing tested");
        return;
    }
    let shown = |page: u64| said.out.contains(&format!("{:#018x}", page + 1));
    let refused = said.err.matches("Cannot access memory").count();
    let seen = [0, 3000, 6143].into_iter().filter(|page| shown(*page)).count();
    assert!(seen + refused >= 1 && !said.out.contains(":\t0x0000000000000000"), "{}", said.out);
    waits.stdin.take().expect("a pipe").write_all(b"x").expect("it waits");
    let mut rest = String::new();
    let mut out = BufReader::new(waits.stdout.take().expect("a pipe"));
    out.read_line(&mut rest).expect("read");
    assert!(waits.wait().expect("it ends").success());
    assert_eq!(rest, "all is right\n");
}

/// A child that the library has not heard of has no shared mappings: a touch ends it, and shows no
/// zeros.
#[test]
fn a_child_by_an_own_instruction_sees_no_zeros() {
    let days = Days::new();
    let ran = days.run("clone").ended_with(0);
    let ended = ran.out.trim().strip_prefix("the child ended by ").map(str::parse);
    assert!(matches!(ended, Some(Ok(0 | 7 | 11))), "{} {}", ran.out, ran.err);
    assert_eq!(days.look_at_all(), (6144, 0));
}
