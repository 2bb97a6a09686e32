//! Domains from the command line: nodes are processes on loopback, and each test has a runtime
//! directory of its own, so that none meets another's nodes.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::domain::{MIB, Machine, Node};
use crate::support::Ran;
use rustix::process::Signal;
use serde_json::{Value, json};

fn numbers(status: &Value, of: &str) -> Vec<u64> {
    let list = status[of].as_array().unwrap_or_else(|| panic!("{of} in {status}"));
    let number = |one: &Value| one.as_u64().or_else(|| one["node"].as_u64());
    list.iter().map(|one| number(one).unwrap_or_else(|| panic!("{one}"))).collect()
}

/// Bytes that are kept for other nodes.
fn kept(status: &Value) -> u64 {
    let list = status["kept"].as_array().unwrap_or_else(|| panic!("{status}"));
    list.iter().map(|one| one["bytes"].as_u64().unwrap_or_else(|| panic!("{one}"))).sum()
}

#[test]
fn a_key_is_made_once_and_for_its_owner() {
    let machine = Machine::new();
    let key = machine.0.text("key.pem");
    for name in ["", ".dm", "d m", "d/m", &"x".repeat(65)] {
        let ran = machine.solera(&["domain", "create", name, "--key", &key]);
        ran.refused(1, &["no such name", "A-Z"]);
        assert!(!Path::new(&key).exists(), "{name}");
    }
    let said = machine.solera(&["domain", "create", "dm", "--key", &key]).ok();
    assert!(said.contains("solera node --domain dm"), "{said}");
    let mode = fs::metadata(&key).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let content = fs::read(&key).expect("read");
    machine.solera(&["domain", "create", "dm", "--key", &key]).refused(1, &["key.pem", "shut out"]);
    assert_eq!(fs::read(&key).expect("read"), content);
}

#[test]
fn a_node_refuses_what_it_cannot_be() {
    let machine = Machine::new();
    let new = ("dm", "new");
    for name in [".dm", "d m", "d/m"] {
        machine.refuses((name, "new"), &[], &["no such name"]);
    }
    machine.refuses(new, &["--listen", "8.8.8.8:7470"], &["8.8.8.8", "no private address"]);
    machine.refuses(new, &["--wire", "tls"], &["the domain's key", "--wire plain"]);
    let key = machine.0.text("key.pem");
    machine.refuses(new, &["--wire", "plain", "--key", &key], &["key.pem", "copy it"]);
    machine.solera(&["domain", "create", "dm", "--key", &key]).ok();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("its mode");
    machine.refuses(new, &["--wire", "plain", "--key", &key], &["0644", "chmod 600"]);
    assert!(!machine.0.path("new").exists(), "nothing was to be made");
    machine.refuses(new, &["--capacity", "1000P"], &["file system", "--capacity"]);
    machine.refuses(new, &["--capacity", "2M"], &["less than 4 MiB"]);
    assert!(!machine.0.path("new").exists(), "nothing is left");

    // Of no tmpfs: pages could not be brought there.
    let disk = std::env::current_dir().expect("the package's").join("../../target/a-store");
    let disk = disk.to_str().expect("text").to_owned();
    machine.refuses(("dm", &disk), &[], &["no tmpfs", "/dev/shm"]);
    assert!(!std::path::Path::new(&disk).exists(), "nothing is left");
    let open = machine.0.path("open");
    fs::create_dir(&open).expect("made");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("its mode");
    machine.refuses(("dm", "open"), &[], &["all may write it", "0777", "--store"]);
    assert!(open.is_dir(), "it was there");

    let node = machine.node("1", &[]);
    machine.refuses(("dm", "1"), &[], &["another node uses it", "--store"]);
    machine.refuses(("zz", "2"), &["--join", node.address()], &["a node of dm, not of zz"]);
    assert!(!machine.0.path("2").exists(), "nothing is left");
    // Another first node of a domain of the same name.
    machine.refuses(("dm", "2"), &[], &["node 1 of dm", "runs on this machine"]);
    assert_eq!(node.end(Signal::TERM).code(), Some(0));
    machine.refuses(("other", "1"), &[], &["of a node of dm"]);
    let known = machine.0.path("run/solera/domains/dm/1");
    assert!(known.symlink_metadata().is_err(), "its name goes with it");
    for (line, word) in [
        (&["node", "--domain", "dm"][..], "--listen"),
        (&["node", "--demo", "0"], "--demo"),
        (&["node", "--demo", "2", "--domain", "dm"], "--domain"),
        (&["node", "--demo", "2", "--reserve", "60%"], "60%"),
    ] {
        let ran = machine.solera(line).ended_with(2);
        assert!(ran.err.contains(word), "{}", ran.err);
    }
}

/// ns of processor that a process's threads have used, and how many there are.
fn used(node: &Node) -> (u64, usize) {
    let tasks = fs::read_dir(format!("/proc/{}/task", node.child.id())).expect("it runs");
    let of = |task: std::io::Result<fs::DirEntry>| {
        let stat = fs::read_to_string(task.expect("an entry").path().join("schedstat"));
        stat.expect("it can be read").split(' ').next().and_then(|ns| ns.parse::<u64>().ok())
    };
    let all: Vec<u64> = tasks.map(|task| of(task).expect("a number")).collect();
    (all.iter().sum(), all.len())
}

#[test]
fn an_idle_node_has_nine_threads_and_takes_no_processor() {
    let machine = Machine::new();
    let node = machine.node("1", &["--metrics", "127.0.0.1:0"]);
    let _other = machine.node("2", &["--join", node.address()]);
    machine.solera(&["format", "--ddmap", "dm/v", "--size", "20M"]).ok();
    std::thread::sleep(std::time::Duration::from_secs(2));
    let (before, since) = (used(&node), std::time::Instant::now());
    std::thread::sleep(std::time::Duration::from_secs(4));
    let (after, wall) = (used(&node), since.elapsed().as_nanos() as u64);
    assert_eq!((before.1, after.1), (9, 9), "threads");
    let busy = after.0 - before.0;
    println!("{busy} of {wall} ns");
    assert!(busy * 200 < wall, "{busy} of {wall} ns");
}

#[test]
fn a_monitor_is_told_or_the_address_is_refused() {
    let machine = Machine::new();
    let new = ("dm", "new");
    machine.refuses(new, &["--metrics", "0.0.0.0:9470"], &["0.0.0.0:9470", "--metrics 127.0.0.1"]);
    machine.refuses(new, &["--metrics", "[::]:9470"], &["[::]:9470", "name one"]);
    machine.refuses(new, &["--metrics", "192.0.2.1:9470"], &["192.0.2.1:9470", "this machine"]);
    // Where no other test takes a port that is free.
    let taken = std::net::TcpListener::bind("127.77.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|at| (at.to_string(), taken)).expect("an address");
    machine.refuses(new, &["--metrics", &taken.0], &[&taken.0, "in use", "a free port"]);
    let port = taken.0;
    drop(taken.1);
    let _node = machine.node("1", &["--metrics", &port, "--capacity", "32M"]);
    machine.solera(&["format", "--ddmap", "dm/v", "--size", "16M"]).ok();
    let line =
        ["run", "--ddmap", "dm/v", "--at", "/dm", "--report", "--json", "--local", "8M", "--"];
    let write = ["sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x > /dm/f"];
    let ran = machine.solera(&[&line[..], &write].concat()).ended_with(0);
    let report: Value = serde_json::from_str(&ran.err).unwrap_or_else(|_| panic!("{}", ran.err));
    let used = |what: &str| report["used"][what].as_u64().unwrap_or_else(|| panic!("{report}"));
    // 732 pages are stored to for the first time, up to 17 by one touch.
    assert!((43..=732).contains(&used("ddmap:faults:local")), "{report}");
    assert!(used("ddmap:fault-ns:local-p50") <= used("ddmap:fault-ns:local-p99"), "{report}");
    assert!(used("ddmap:fault-ns:local-p99") <= used("ddmap:fault-ns:local-most"), "{report}");
    assert_eq!(used("ddmap:local-bytes-most"), 8 * MIB);
    // All its processes have ended, and are counted.
    let mut stream = std::net::TcpStream::connect(&port).expect("it listens");
    std::io::Write::write_all(&mut stream, b"GET /metrics HTTP/1.1\r\n\r\n").expect("asked");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stream, &mut text).expect("answered");
    let name = "solera_ddmap_faults_total{volume=\"v\",kind=\"local\"} ";
    let told = text.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok());
    // The format touched pages, too.
    assert!(told.expect("it is there") >= used("ddmap:faults:local"), "{text}");
}

#[test]
fn nodes_are_seen_as_they_come_and_go() {
    let machine = Machine::new();
    let none = machine.solera(&["domain", "status", "dm"]);
    none.refused(1, &["no node of dm runs", "solera node --domain dm"]);
    let first = machine.node("1", &[]);
    assert!(first.line.starts_with("node 1 of dm at 127.0.0.1:"), "{}", first.line);
    assert!(first.line.ends_with("; holds pages of 0 volumes\n"), "{}", first.line);
    let join = ["--join", first.address()];
    let second = machine.node("2", &[&join[..], &["--passive", "--capacity", "32M"]].concat());
    let status = machine.status();
    assert_eq!(numbers(&status, "asked"), [1, 2]);
    assert_eq!(numbers(&status, "nodes"), [1, 2]);
    let node = &status["nodes"][1];
    assert_eq!(node["address"], second.address());
    assert_eq!((&node["capacity_bytes"], &node["passive"]), (&(32 * MIB).into(), &true.into()));
    let text = machine.solera(&["domain", "status", "dm"]).ok();
    for word in ["2 (passive)", first.address(), "32.00 MiB"] {
        assert!(text.contains(word), "{word} in {text}");
    }

    // A name that is left by one that was killed counts for nothing, and is taken again.
    let name = machine.0.path("run/solera/domains/dm/2");
    assert_eq!(second.end(Signal::KILL).code(), None);
    assert!(name.symlink_metadata().is_ok(), "nobody has removed it");
    assert_eq!(numbers(&machine.status(), "asked"), [1]);
    // It knows where the first one is.
    let second = machine.node("2", &[]);
    assert!(second.line.starts_with("node 2 of dm"), "{}", second.line);
    assert_eq!(numbers(&machine.status(), "asked"), [1, 2]);
    assert_eq!(second.end(Signal::INT).code(), Some(0));
    assert!(name.symlink_metadata().is_err(), "it has ended in order");
}

#[test]
fn a_volume_is_larger_than_its_node() {
    let machine = Machine::new();
    let first = machine.node("1", &[]);
    let join = ["--join", first.address()];
    let second = machine.node("2", &join);
    let _third = machine.node("3", &[&join[..], &["--passive"]].concat());
    let made = machine.solera(&["format", "--ddmap", "dm/big", "--size", "40M"]).ok();
    assert!(made.contains("solera run --ddmap dm/big"), "{made}");
    let file = machine.file(24 * MIB);
    machine.solera(&["cp", &file, "dm/big:/file"]).ok();
    machine.has_same("dm/big:/file", &file);
    let volume = &machine.status()["volumes"][0];
    assert_eq!((&volume["name"], &volume["host"]), (&"big".into(), &1.into()), "{volume}");
    assert_eq!(volume["size_bytes"], 40 * MIB);
    assert!(volume["here_bytes"].as_u64() <= Some(16 * MIB), "{volume}");
    assert!(volume["evicted_pages"].as_u64() >= Some(8 * MIB / 4096), "{volume}");

    for place in ["dm/big", "dm/big:", "dm/big:/"] {
        let listed = machine.solera(&["ls", "-l", place]).ok();
        assert!(listed.contains(&(24 * MIB).to_string()), "{listed}");
    }
    let info = machine.solera(&["info", "--json", "dm/big"]).json();
    assert_eq!(info["size_bytes"], 40 * MIB);
    assert_eq!(info["data_bytes"], 24 * MIB);
    assert_eq!(machine.solera(&["df", "--json", "dm/big"]).json()[0]["size_bytes"], 40 * MIB);
    let map = machine.solera(&["map", "--json", "dm/big:/file"]).ok();
    assert!(map.contains(&(24 * MIB).to_string()), "{map}");
    machine.solera(&["fsck", "dm/big"]).ok();

    // A holder that comes back has the pages that it kept.
    assert_eq!(second.end(Signal::TERM).code(), Some(0));
    let second = machine.node("2", &join);
    assert!(second.line.ends_with("; holds pages of 1 volume\n"), "{}", second.line);
    machine.has_same("dm/big:/file", &file);
    machine.solera(&["cp", "dm/big:/file", &machine.0.text("out")]).ok();
    let [copied, whole] = ["out", "file"].map(|name| fs::read(machine.0.path(name)).expect("read"));
    assert!(copied == whole);
}

/// With the domain's key all goes by TLS; a node with another key, or with none, is refused.
#[test]
fn who_has_the_key_is_of_the_domain() {
    let machine = Machine::new();
    let (key, other) = (machine.0.text("key.pem"), machine.0.text("other.pem"));
    for file in [&key, &other] {
        machine.solera(&["domain", "create", "dm", "--key", file]).ok();
    }
    let first = machine.node("1", &["--key", &key]);
    let join = ["--join", first.address()];
    let with = |key| [&join[..], &["--key", key]].concat();
    let second = machine.node("2", &[&with(&key)[..], &["--capacity", "32M"]].concat());
    machine.refuses(("dm", "3"), &with(&other), &["reach", "key"]);
    machine.refuses(("dm", "3"), &join, &["reach", "TLS"]);
    machine.solera(&["format", "--ddmap", "dm/v", "--size", "40M"]).ok();
    let file = machine.file(24 << 20);
    machine.solera(&["cp", &file, "dm/v:/file"]).ok();
    machine.has_same("dm/v:/file", &file);
    assert!(kept(&machine.status()) > 0, "{}", machine.status());
    drop(second);
}

/// A volume is full ahead of its domain; what is removed is free on all nodes.
#[test]
fn a_full_volume_is_a_full_disk() {
    let machine = Machine::new();
    let first = machine.node("1", &[]);
    let _second = machine.node("2", &["--join", first.address(), "--capacity", "32M"]);
    machine.solera(&["format", "--ddmap", "dm/v", "--size", "45M"]).ok();
    let line = ["run", "--ddmap", "dm/v", "--", "sh", "-c"];
    let run = |script: &str| machine.solera(&[&line[..], &[script]].concat());
    let fill = "yes | dd of=/dm/full bs=64k count=800 iflag=fullblock 2> said; \
                grep -q 'No space left' said && wc -c < /dm/full && fallocate -l 8M /dm/more";
    let full = run(fill).ended_with(1);
    assert!(full.err.contains("No space left"), "{}", full.err);
    let bytes: u64 = full.out.trim().parse().expect("a number");
    assert!(bytes > 38 << 20, "{bytes} bytes");
    run("rm /dm/full; ls /dm").ok();
    let free = || {
        let status = machine.status();
        (kept(&status), status)
    };
    let begun = std::time::Instant::now();
    while free().0 > 0 {
        assert!(begun.elapsed().as_secs() < 120, "{}", free().1);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(run(fill).ended_with(1).out.trim().parse::<u64>().expect("a number") >= bytes);
}

/// A node gives its pages up, and is removed; another one is lost, and forgotten; a volume is
/// removed from all nodes.
#[test]
fn nodes_and_volumes_are_removed() {
    let machine = Machine::new();
    let first = machine.node("1", &[]);
    let join = ["--join", first.address()];
    let node = |store: &str| machine.node(store, &join);
    let (second, third) = (node("2"), node("3"));
    machine.solera(&["format", "--ddmap", "dm/v", "--size", "40M"]).ok();
    let file = machine.file(24 << 20);
    machine.solera(&["cp", &file, "dm/v:/file"]).ok();
    let kept_by = |number: usize| {
        let of = |one: &&Value| one["node"].as_u64() == Some(number as u64);
        machine.status()["nodes"].as_array().and_then(|all| all.iter().find(of).cloned())
    };
    assert!(kept_by(2).expect("it is there")["kept_bytes"].as_u64() > Some(0));
    let domain = |line: &[&str]| machine.solera(&[&["domain"], line].concat());
    domain(&["drain", "dm", "2"]).refused(1, &["30.41 MiB for volumes", "40.00 MiB are promised"]);
    let status = machine.status();
    assert_eq!(status["kept"][0]["volume"], "v", "{status}");
    assert_eq!(status["kept"][0]["uuid"], status["volumes"][0]["uuid"], "{status}");
    domain(&["drain", "dm", "9"]).refused(1, &["no such node"]);
    for (node, words) in
        [("1", ["node 1 gives out", "domain first dm"]), ("9", ["no such", "status"])]
    {
        domain(&["leave", "dm", node]).refused(1, &words);
    }
    assert_eq!(kept_by(1).expect("it is there")["standing"], "there", "nothing was done");
    domain(&["forget", "dm", "2"]).refused(1, &["it is there", "domain leave dm 2"]);

    let fourth = node("4");
    domain(&["leave", "dm", "2"]).ok();
    machine.has_same("dm/v:/file", &file);
    // With this one more is on the volume than two nodes have room for: some of it is on node 3.
    machine.solera(&["cp", &machine.file(10 << 20), "dm/v:/more"]).ok();
    let left = kept_by(2).expect("it is listed");
    assert_eq!((&left["standing"], &left["kept_bytes"]), (&"gone".into(), &0.into()), "{left}");
    assert_eq!(second.end(Signal::TERM).code(), Some(0));
    machine.refuses(("dm", "2"), &join, &["node 2 was removed", "new --store"]);

    drop(third);
    let begun = std::time::Instant::now();
    while kept_by(3).expect("it is listed")["silent_seconds"].as_u64() < Some(8) {
        assert!(begun.elapsed().as_secs() < 120);
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    domain(&["drain", "dm", "3"]).refused(1, &["not heard of", "domain forget dm 3"]);
    let repair = || machine.solera(&["domain", "repair", "dm/v"]);
    assert!(repair().ended_with(4).out.contains("node 3 does not answer"), "nothing is lost yet");
    // One of them waits for node 3 when the node is forgotten; one begins behind that.
    let line =
        ["run", "--ddmap", "dm/v", "--patience", "600s", "--", "cat", "/dm/file", "/dm/more"];
    let waits = machine.command(&line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    std::thread::sleep(std::time::Duration::from_secs(2));
    domain(&["forget", "dm", "3"]).ok();
    let begun = std::time::Instant::now();
    let ended = waits.and_then(Child::wait_with_output).expect("it ends");
    let ran = Ran::new("cat, which waits".into(), &ended).ended_with(1);
    assert!(ran.err.contains("EIO: what was asked for is lost with node 3"), "{}", ran.err);
    machine.solera(&line).ended_with(1);
    assert!(begun.elapsed().as_secs() < 300, "what is lost is lost at once");

    // It has the volume attached when it says so: what else is counted may be on its way out.
    let mut holds = machine.command(&["run", "--ddmap", "dm/v", "--", "sh", "-c", "echo; read _"]);
    let mut holds = holds.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let said = holds.stdout.as_mut().map(|out| out.read(&mut [0; 1]));
    assert!(said.is_some_and(|said| said.is_ok_and(|bytes| bytes == 1)), "it runs");
    machine.solera(&["rm", "dm/v"]).refused(1, &["processes have it attached"]);
    assert_eq!(machine.status()["volumes"][0]["processes"], 1);
    holds.kill().and_then(|()| holds.wait()).expect("it ends");
    // Also before the node has buried it.
    assert_eq!(machine.status()["volumes"][0]["processes"], 0);
    std::thread::sleep(std::time::Duration::from_secs(1));
    machine.solera(&["rm", "dm/v"]).ok();
    assert!(!machine.0.path("1/volumes/v").exists(), "nothing is left of it");
    assert_eq!(kept(&machine.status()), 0, "{}", machine.status());
    let used = || kept_by(1).expect("it is there")["used_bytes"].as_u64();
    let begun = std::time::Instant::now();
    while used() != Some(0) {
        assert!(begun.elapsed().as_secs() < 120, "{}", machine.status());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    drop(fourth);
}

/// Where the directory is damaged or gone, claims say where pages are; what nobody has is listed.
#[test]
fn a_directory_is_mended_by_claims() {
    let machine = Machine::new();
    let first = machine.node("1", &[]);
    let join = ["--join", first.address()];
    let second = machine.node("2", &[&join[..], &["--capacity", "32M"]].concat());
    machine.solera(&["format", "--ddmap", "dm/v", "--size", "40M"]).ok();
    let file = machine.file(24 << 20);
    machine.solera(&["cp", &file, "dm/v:/file"]).ok();
    let repair = |options: &[&str]| {
        machine.solera(&[&["domain", "repair", "--json"], options, &["dm/v"]].concat())
    };
    assert_eq!(repair(&[]).json()["found_pages"], 0, "nothing is wrong");
    assert_eq!(repair(&[]).json()["lost"], json!([]));
    // Nobody but the check itself has it.
    assert!(!machine.solera(&["fsck", "dm/v"]).ok().contains("in use"));
    let directory = machine.0.path("1/volumes/v/directory");
    // In place: the node has it mapped.
    let damage = |from: usize, words: usize| {
        let file = fs::OpenOptions::new().write(true).open(&directory).expect("opened");
        file.write_all_at(&vec![0x5A; words * 8], from as u64 * 8).expect("written");
    };
    damage(5000, 1000);
    let said = repair(&["--dry-run"]).ended_with(0).out;
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert!(said["found_pages"].as_u64() > Some(900), "{said}");
    assert_eq!(said["found_pages"], repair(&[]).json()["found_pages"]);
    machine.has_same("dm/v:/file", &file);
    machine.solera(&["fsck", "dm/v"]).ok();

    // The holder loses what it has.
    drop(second);
    let silent = repair(&[]).ended_with(4);
    let silent: Value = serde_json::from_str(&silent.out).expect("JSON");
    assert_eq!((&silent["silent_nodes"][0], &silent["lost_pages"]), (&2.into(), &json!([])));
    fs::remove_dir_all(machine.0.path("2/kept")).expect("removed");
    let _second = machine.node("2", &["--capacity", "32M"]);
    let begun = std::time::Instant::now();
    let lost = loop {
        let lost = repair(&[]).ended_with(4);
        let lost: Value = serde_json::from_str(&lost.out).expect("JSON");
        // Its new address is heard of with the next beat.
        if lost["silent_nodes"] == json!([]) || begun.elapsed().as_secs() > 120 {
            break lost;
        }
    };
    assert!(lost["lost_pages"].as_array().is_some_and(|pages| pages.len() > 1000), "{lost}");
    assert_eq!((&lost["lost"][0]["file"], &lost["lost"][0]["node"]), (&"/file".into(), &2.into()));
    machine.solera(&["run", "--ddmap", "dm/v", "--", "cat", "/dm/file"]).ended_with(1);
}

/// The directory's file is gone while the node was down: all of it comes from claims.
#[test]
fn a_directory_that_is_gone_is_made_anew() {
    let machine = Machine::new();
    let first = machine.node("1", &[]);
    let address = first.address().to_owned();
    let _second = machine.node("2", &["--join", &address, "--capacity", "32M"]);
    machine.solera(&["format", "--ddmap", "dm/v", "--size", "40M"]).ok();
    let file = machine.file(24 << 20);
    machine.solera(&["cp", &file, "dm/v:/file"]).ok();
    // Zeros again, of which no node has anything.
    let gone = "head -c 4M /dev/urandom > /dm/gone && rm /dm/gone";
    machine.solera(&["run", "--ddmap", "dm/v", "--", "sh", "-c", gone]).ok();
    machine.solera(&["trim", "dm/v"]).ok();
    drop(first);
    fs::remove_file(machine.0.path("1/volumes/v/directory")).expect("removed");
    let start = format!("--listen {address} --capacity 16M");
    machine.solera(&["cat", "dm/v:/file"]).refused(1, &["solera node --domain dm", &start]);
    let _first = machine.node("1", &["--listen", &address]);
    machine.solera(&["cat", "dm/v:/file"]).refused(1, &["directory", "domain repair"]);
    let repair =
        |options: &[&str]| machine.solera(&[&["domain", "repair"], options, &["dm/v"]].concat());
    repair(&["--dry-run"]).refused(1, &["its directory is gone"]);
    assert!(repair(&[]).ok().contains(" 0 lost"));
    machine.has_same("dm/v:/file", &file);
    machine.solera(&["fsck", "dm/v"]).ok();
}

/// The bytes of a file, or what was said.
fn bytes_of(machine: &Machine, file: &str) -> Result<Vec<u8>, String> {
    let output = machine.command(&["cat", &format!("dm/v:{file}")]).output().expect("it starts");
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// A holder is lost with what it had. What was lost stayed lost for ever: nearly every write failed
/// with EIO, in the files that had it and, once they were removed, in all that got its pages.
#[test]
fn a_lost_holder_is_no_lost_volume() {
    let machine = Machine::new();
    let mut nodes = machine.domain_of_three();
    let line = ["run", "--ddmap", "dm/v", "--mode"];
    let run = |mode: &str, script: &str| {
        machine.solera(&[&line[..], &[mode, "--", "sh", "-c", script]].concat())
    };
    let modes = ["strict", "sync", "posix"];
    for mode in modes {
        run(mode, &format!("head -c 6M /dev/urandom > /dm/{mode}")).ok();
    }
    run("strict", "head -c 4M /dev/urandom > /dm/removed").ok();
    let third = nodes.pop().expect("three");
    drop(third);
    fs::remove_dir_all(machine.0.path("3")).expect("removed");
    machine.solera(&["domain", "forget", "dm", "3"]).ok();
    let repair = || machine.solera(&["domain", "repair", "dm/v"]);
    let begun = std::time::Instant::now();
    // All have heard of it with the next beat.
    let said = loop {
        let said = repair().ended_with(4).out;
        if !said.contains(" 0 lost") {
            break said;
        }
        assert!(begun.elapsed().as_secs() < 120, "{said}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    };
    assert!(said.lines().any(|line| line.ends_with("lost with node 3")), "{said}");
    let again = repair().ended_with(4).out;
    assert!(again.contains(" 0 placed anew"), "{again}");
    assert_eq!(again.lines().skip(1).collect::<Vec<_>>(), said.lines().skip(1).collect::<Vec<_>>());

    // One line a file says how much of it was lost with which node.
    let checked = machine.solera(&["fsck", "--read-data", "--json", "dm/v"]).ended_with(4).out;
    let checked: Value = serde_json::from_str(&checked).expect("JSON");
    let lost = checked["lost"].as_array().expect("a list").clone();
    let faults = checked["faults"].as_array().expect("a list");
    assert_eq!(lost.len(), faults.len(), "{checked}");
    for fault in faults {
        let meaning = fault["meaning"].as_str().unwrap_or_default();
        assert!(fault["code"] == "media" && meaning.contains("lost with node 3"), "{fault}");
    }
    let said = bytes_of(&machine, lost[0]["file"].as_str().expect("a name")).expect_err("it is");
    assert!(said.contains("it is lost with node 3"), "{said}");

    // A part of a page that is lost cannot be written, all of it can, whatever the mode.
    for mode in
        modes.into_iter().filter(|mode| lost.iter().any(|l| l["file"] == format!("/{mode}")))
    {
        let fault = faults.iter().find(|fault| fault["place"] == format!("/{mode}"));
        let meaning = fault.and_then(|fault| fault["meaning"].as_str()).expect("it has one");
        let first = meaning.split("at byte ").nth(1).and_then(|rest| rest.split(';').next());
        let page = first.and_then(|byte| byte.parse::<u64>().ok()).expect("a number") / 4096;
        let part =
            format!("printf x | dd of=/dm/{mode} bs=1 seek={} conv=notrunc", page * 4096 + 9);
        let said = run(mode, &part).ended_with(1).err;
        assert!(said.contains("Input/output error"), "{said}");
        let why = said.lines().filter(|line| line.contains("is lost with node 3")).count();
        assert_eq!(why, 1, "{said}");
        let whole = format!(
            "yes | dd of=/dm/{mode} iflag=fullblock bs=4096 count=1 seek={page} conv=notrunc"
        );
        run(mode, &whole).ok();
        let all = format!(
            "yes | dd of=/dm/{mode} iflag=fullblock bs=1M count=6 conv=notrunc && \
             yes | head -c 6M | cmp - /dm/{mode}"
        );
        run(mode, &all).ok();
    }
    let anew = "rm /dm/removed && for i in 1 2; do yes | head -c 2M > /dm/n$i || exit 1; done && \
                yes | head -c 6M > /dm/strict && yes | head -c 6M | cmp - /dm/strict";
    run("strict", anew).ok();
    machine.solera(&["fsck", "--read-data", "dm/v"]).ok();
    let said = repair().out;
    assert!(said.contains(" 0 lost"), "{said}");
    machine.solera(&["snapshot", "dm/v", &machine.0.text("copy")]).ok();
}

/// A node whose store is of a domain's first node took no notice of `--join`: there were two
/// domains of one name.
#[test]
fn a_first_node_joins_no_other_domain() {
    let machine = Machine::new();
    // What fails leaves no first node's store.
    machine.refuses(("dm", "2"), &["--metrics", "192.0.2.1:1"], &["192.0.2.1"]);
    assert!(!machine.0.path("2").exists());
    let first = machine.node("1", &[]);
    machine.refuses(("dm", "2"), &[], &["runs on this machine", "--join"]);
    assert!(!machine.0.path("2").exists(), "before it makes a store");
    let second = machine.node_on("other", "2", &[]);
    assert!(second.line.starts_with("node 1 of dm"), "{}", second.line);
    drop(second);
    let join = ["--join", first.address()];
    machine.refuses(("dm", "2"), &join, &["the store is of node 1", "joins none", "--store"]);
    let address = first.address().to_owned();
    drop(first);
    // Its own address is no other domain's.
    let first = machine.node("1", &["--listen", &address, "--join", &address]);
    let third = machine.node("3", &["--join", first.address()]);
    assert!(third.line.starts_with("node 2 of dm"), "{}", third.line);
}

/// What gives its pages up was counted as room for others'.
#[test]
fn draining_nodes_are_no_room() {
    let machine = Machine::new();
    let first = machine.node("1", &[]);
    let join = ["--join", first.address()];
    let _others = ["2", "3"].map(|store| machine.node(store, &join));
    machine.solera(&["format", "--ddmap", "dm/v", "--size", "24M"]).ok();
    let file = machine.file(18 << 20);
    machine.solera(&["cp", &file, "dm/v:/file"]).ok();
    let begun = std::time::Instant::now();
    while kept(&machine.status()) == 0 {
        assert!(begun.elapsed().as_secs() < 120, "{}", machine.status());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    machine.solera(&["domain", "drain", "dm", "2"]).ok();
    let format = |size: &str| machine.solera(&["format", "--ddmap", "dm/w", "--size", size]);
    format("20M").refused(1, &["6.41 MiB are promised to none", "node 2 gives its pages up"]);
    let drain = machine.solera(&["domain", "drain", "dm", "3"]);
    drain.refused(1, &["15.20 MiB for volumes", "24.00 MiB are promised", "node 2 gives"]);
    machine.solera(&["domain", "drain", "--cancel", "dm", "2"]).ok();
    machine.has_same("dm/v:/file", &file);
}

#[test]
fn what_a_domain_cannot_hold_is_refused() {
    let machine = Machine::new();
    let format =
        |name: &str, size: &str| machine.solera(&["format", "--ddmap", name, "--size", size]);
    format("dm/v", "16M").refused(1, &["no node of dm runs", "solera node"]);
    let first = machine.node("1", &["--passive", "--capacity", "32M"]);
    format("dm/v", "16M").refused(1, &["passive"]);
    let _second = machine.node("2", &["--join", first.address()]);
    // Each keeps 5 % free.
    format("dm/v", "46M").refused(1, &["46.00 MiB", "45.61 MiB for volumes", "--size"]);
    format("dm/v", "64K").refused(1, &["16.00 MiB", "--size"]);
    for name in ["dm", "dm/", "dm/.v", "dm/v/w", "/v"] {
        format(name, "16M").ended_with(1);
    }
    assert!(!machine.0.path("2/volumes/v").exists(), "nothing is left of it");
    assert_eq!(machine.status()["volumes"], Value::Array(Vec::new()));

    format("dm/v", "24M").ok();
    assert!(machine.0.path("2/volumes/v/region").is_file(), "on the node that is not passive");
    format("dm/v", "24M").refused(1, &["a volume of that name"]);
    format("dm/w", "22M").refused(1, &["21.61 MiB are promised to none", "--size"]);
    machine.solera(&["info", "dm/none"]).refused(1, &["nodes 1, 2", "format --ddmap dm/none"]);
    machine.solera(&["fsck", "dm/none"]).refused(8, &["dm/none"]);
    machine.solera(&["cat", "dm/none:/x"]).refused(1, &["dm/none"]);
    machine.solera(&["run", "--ddmap", "dm/none", "true"]).refused(125, &["format --ddmap"]);
    machine.solera(&["run", "--ddmap", "dm", "true"]).refused(125, &["DOMAIN/VOLUME"]);
    for (options, word) in [
        (&["--ddmap", "dm/v", "--volume", "v"][..], "--volume"),
        (&["--patience", "3s"], "--ddmap"),
        (&["--patience", "3s", "--volume", "v"], "--volume"),
        (&["--prefetch", "off", "--volume", "v"], "--volume"),
        (&["--ddmap", "dm/v", "--patience", "x"], "30s"),
        (&["--ddmap", "dm/v", "--prefetch", "x"], "seq"),
    ] {
        let ran = machine.solera(&[&["run"], options, &["true"]].concat()).ended_with(125);
        assert!(ran.err.contains(word), "{}", ran.err);
    }

    // What exists is meant, and so is a file that is to be made in a directory.
    machine.solera(&["info", "other/v"]).refused(1, &["other/v", "no such file"]);
    fs::create_dir(machine.0.path("dm")).expect("made");
    machine.solera(&["ls", "dm/v"]).ok();
    let file = machine.file(4096);
    machine.solera(&["cp", &file, "dm/v:/file"]).ok();
    machine.solera(&["cp", "dm/v:/file", "dm/v"]).ok();
    assert_eq!(fs::metadata(machine.0.path("dm/v")).expect("it is a file").len(), 4096);
    machine.solera(&["info", "dm/v"]).refused(1, &["dm/v"]);
}

/// What always stays with a host would leave it no room for other pages.
#[test]
fn a_host_without_room_for_what_stays_is_refused() {
    let machine = Machine::new();
    let first = machine.node("1", &["--capacity", "9M"]);
    let _second = machine.node("2", &["--passive", "--capacity", "96M", "--join", first.address()]);
    let format = |name: &str| machine.solera(&["format", "--ddmap", name, "--size", "30M"]);
    assert!(format("dm/v").ok().contains("where 4.00 MiB always stay"));
    format("dm/w").refused(1, &["4.00 MiB of it always stay", "node 1 has", "--capacity"]);
    assert!(!machine.0.path("1/volumes/w").exists(), "nothing is left of it");
    assert!(machine.0.path("1/volumes/v").exists(), "the other one is");
}

#[test]
fn a_demo_leaves_nothing() {
    let machine = Machine::new();
    let store = machine.0.text("demo");
    // A directory of the domain's name is where commands work.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let port = port.expect("a port").to_string();
    let line = ["node", "--demo", "3", "--capacity", "16M", "--store", &store, "--metrics", &port];
    let demo = Node::start(machine.command(&line));
    assert!(demo.line.starts_with("demo: 3 nodes of 16.00 MiB in "), "{}", demo.line);
    machine.solera(&line).refused(1, &["one runs already"]);
    let status = machine.solera(&["domain", "status", "--json", "demo"]).json();
    assert_eq!(numbers(&status, "asked"), [1, 2, 3]);
    assert_eq!(numbers(&status, "nodes"), [1, 2, 3]);
    machine.solera(&["format", "--ddmap", "demo/v", "--size", "40M"]).ok();
    let file = machine.file(24 * MIB);
    machine.solera(&["cp", &file, "demo/v:/file"]).ok();
    machine.has_same("demo/v:/file", &file);
    std::net::TcpStream::connect(&port).expect("its first node tells metrics");
    assert_eq!(demo.end(Signal::TERM).code(), Some(0));
    assert!(!machine.0.path("demo").exists(), "its stores go with it");
    machine.solera(&["domain", "status", "demo"]).refused(1, &["no node of demo runs"]);

    // What one that is killed leaves is found by the next one.
    let line = ["node", "--demo", "1", "--capacity", "16M"];
    let killed = Node::start(machine.command(&line));
    let left = format!("/dev/shm/solera-demo-{}", killed.child.id());
    killed.end(Signal::KILL);
    assert!(Path::new(&left).exists());
    let next = Node::start(machine.command(&line));
    assert!(!Path::new(&left).exists(), "it is gone");
    assert_eq!(next.end(Signal::TERM).code(), Some(0));

    // A folder that is there stays, and so does what is in it.
    let line = ["node", "--demo", "3", "--capacity", "16M", "--store", &store];
    fs::create_dir_all(machine.0.path("demo/2/mine")).expect("made");
    machine.solera(&line).refused(1, &["demo/2", "--store"]);
    assert!(machine.0.path("demo/2/mine").is_dir() && !machine.0.path("demo/1").exists());
}

/// What a node waits for that gives its pages up is said, and not waited for without end. A host
/// stays until its volumes have moved.
#[test]
fn a_node_that_cannot_leave_says_why() {
    let machine = Machine::new();
    let first = machine.node("1", &["--passive"]);
    let join = ["--join", first.address()];
    let (host, _third) = (machine.node("2", &join), machine.node("3", &join));
    machine.solera(&["format", "--ddmap", "dm/v", "--size", "40M"]).ok();
    // More than the host and node 1 have.
    let file = machine.file(35 << 20);
    machine.solera(&["cp", &file, "dm/v:/file"]).ok();
    let domain = |line: &[&str]| machine.solera(&[&["domain"], line].concat());
    let begun = std::time::Instant::now();
    while machine.status()["nodes"][1]["promised_bytes"] != 40 << 20 {
        assert!(begun.elapsed().as_secs() < 120, "{}", machine.status());
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    domain(&["leave", "dm", "2"]).refused(1, &["40.00 MiB: v", "domain move dm/VOLUME", "rm dm/"]);
    assert_eq!(machine.status()["nodes"][1]["standing"], "there", "nothing was done");
    assert!(machine.status()["nodes"][2]["kept_bytes"].as_u64() > Some(0));
    let _fourth = machine.node("4", &[&join[..], &["--capacity", "64M", "--passive"]].concat());

    rustix::process::kill_process(rustix::process::Pid::from_child(&host.child), Signal::STOP)
        .expect("it is there");
    let silent = || machine.status()["nodes"][1]["silent_seconds"].as_u64() >= Some(8);
    while !silent() {
        assert!(begun.elapsed().as_secs() < 120, "{}", machine.status());
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    // Longer than a slow machine takes to ask two nodes, one of which is silent.
    let left = domain(&["leave", "--patience", "20s", "dm", "3"]).ended_with(3);
    for words in ["node 3 keeps", "node 2 was not heard of", "forget dm 2", "--cancel dm 3"] {
        assert!(left.err.contains(words), "`{words}` is not in: {}", left.err);
    }
    assert!(left.err.lines().count() >= 2, "it was said ahead of the end: {}", left.err);
    assert_eq!(machine.status()["nodes"][2]["standing"], "drains", "it goes on");
    rustix::process::kill_process(rustix::process::Pid::from_child(&host.child), Signal::CONT)
        .expect("it is there");
    domain(&["leave", "dm", "3"]).ok();
    machine.has_same("dm/v:/file", &file);
}
