//! What other commands do with a volume of a domain most of whose pages lie on other nodes.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::domain::{MIB, Machine, Node};
use serde_json::Value;

/// A domain of two nodes, 16 and 64 MiB, with a volume of 40 on the first and a file of 24 in it.
struct Domain {
    _nodes: Vec<Node>,
    machine: Machine,
    file: String,
}

impl Domain {
    fn new() -> Self {
        let machine = Machine::new();
        let first = machine.node("1", &[]);
        let second = machine.node("2", &["--join", first.address(), "--capacity", "64M"]);
        machine.solera(&["format", "--ddmap", "dm/v", "--size", "40M"]).ok();
        let file = machine.file(24 * MIB);
        machine.solera(&["cp", &file, "dm/v:/file"]).ok();
        Self { _nodes: vec![first, second], machine, file }
    }

    fn holder_has(&self) -> u64 {
        let status = self.machine.status();
        status["nodes"][1]["kept_bytes"].as_u64().unwrap_or_else(|| panic!("{status}"))
    }
}

#[test]
fn a_volume_grows_as_far_as_its_domain_has_memory() {
    let Domain { machine, file, _nodes } = &Domain::new();
    let grow = |size: &str| machine.solera(&["grow", "--json", "dm/v", "--size", size]);
    let mut holds = machine.command(&["run", "--ddmap", "dm/v", "--", "sleep", "60"]);
    let mut holds = holds.stdin(Stdio::null()).spawn().expect("it starts");
    let processes = || machine.status()["volumes"][0]["processes"].as_u64();
    let begun = Instant::now();
    while processes() == Some(0) && begun.elapsed().as_secs() < 120 {
        std::thread::sleep(Duration::from_millis(50));
    }
    grow("60M").refused(1, &["processes have it attached", "(sleep)"]);
    holds.kill().and_then(|()| holds.wait()).expect("it ends");
    while processes() != Some(0) && begun.elapsed().as_secs() < 120 {
        std::thread::sleep(Duration::from_millis(50));
    }

    grow("90M").refused(1, &["no space left", "for volumes", "--join"]);
    assert_eq!(machine.status()["volumes"][0]["size_bytes"], 40 * MIB, "nothing was done");
    let grown = grow("60M").json();
    assert!(grown["size_bytes"].as_u64() > Some(56 * MIB), "{grown}");
    assert_eq!(machine.status()["volumes"][0]["size_bytes"], 60 * MIB);
    grow("50M").refused(1, &["would not make it larger"]);
    machine.has_same("dm/v:/file", file);
    // The new end is there, also on the holder that has kept pages of the old one.
    machine.solera(&["cp", file, "dm/v:/second"]).ok();
    machine.has_same("dm/v:/second", file);
    machine.has_same("dm/v:/file", file);
    machine.solera(&["fsck", "--read-data", "dm/v"]).ok();
    let nodes = machine.status()["nodes"].clone();
    assert_eq!(nodes[0]["promised_bytes"], 60 * MIB, "{nodes}");
}

#[test]
fn a_snapshot_is_a_file_with_all_of_the_volume() {
    let domain = Domain::new();
    let machine = &domain.machine;
    assert!(domain.holder_has() > 8 * MIB);
    let copy = machine.0.text("copy");
    let report = machine.solera(&["snapshot", "--json", "dm/v", &copy]).json();
    assert!(report["bytes"].as_u64() > Some(24 * MIB), "{report}");
    machine.has_same(&format!("{copy}:/file"), &domain.file);
    machine.solera(&["fsck", "--read-data", &copy]).ok();
    // It is a volume of its own, which needs no node.
    let line = "cmp /pm/file \"$1\" && echo more > /pm/more && cat /pm/more";
    let ran = machine.solera(&[
        "run",
        "--volume",
        &copy,
        "--at",
        "/pm",
        "--",
        "sh",
        "-c",
        line,
        "sh",
        &domain.file,
    ]);
    assert_eq!(ran.ok(), "more\n");
    machine.solera(&["snapshot", "dm/v", &copy]).refused(1, &["it exists"]);
    machine.has_same("dm/v:/file", &domain.file);
}

/// While a program changes files whose pages leave, a snapshot is a volume without a fault.
#[test]
fn a_snapshot_is_made_while_programs_write() {
    let domain = Domain::new();
    let machine = &domain.machine;
    let line = "while echo $((n = n + 1)) > /dm/count; do cp /dm/count /dm/copy-$((n % 50)); done";
    let mut writes = machine.command(&["run", "--ddmap", "dm/v", "--", "sh", "-c", line]);
    let mut writes = writes.stdin(Stdio::null()).spawn().expect("it starts");
    for name in ["one", "two"] {
        let copy = machine.0.text(name);
        machine.solera(&["snapshot", "dm/v", &copy]).ok();
        machine.has_same(&format!("{copy}:/file"), &domain.file);
        machine.solera(&["fsck", "--read-data", &copy]).ok();
    }
    writes.kill().and_then(|()| writes.wait()).expect("it ends");
}

#[test]
fn commands_look_at_pages_that_are_elsewhere() {
    let domain = Domain::new();
    let machine = &domain.machine;
    let json = |line: &[&str]| machine.solera(line).json();
    let kept = domain.holder_has();
    assert_eq!(json(&["info", "--json", "dm/v"])["data_bytes"], 24 * MIB);
    assert_eq!(json(&["df", "--json", "dm/v"])[0]["size_bytes"], 40 * MIB);
    let map = json(&["map", "--json", "dm/v:/file"]);
    assert!(map.to_string().contains(&(24 * MIB).to_string()), "{map}");
    let fsck = json(&["fsck", "--json", "dm/v"]);
    assert_eq!((&fsck["clean"], &fsck["data_bytes"]), (&true.into(), &(24 * MIB).into()), "{fsck}");
    let read = json(&["fsck", "--json", "--read-data", "dm/v"]);
    assert_eq!(read["clean"], true, "{read}");
    assert!(kept > 8 * MIB);
    let detach = machine.solera(&["detach", "--json", "dm/v"]).json();
    assert_eq!(detach["attached"], Value::Array(Vec::new()));
    machine.solera(&["defrag", "dm/v"]).ok();
    machine.solera(&["defrag", "dm/v:/file"]).ok();
    machine.has_same("dm/v:/file", &domain.file);
    machine.solera(&["recover", "dm/v"]).ended_with(1);

    machine.solera(&["run", "--ddmap", "dm/v", "--", "rm", "/dm/file"]).ok();
    machine.solera(&["trim", "dm/v"]).ok();
    let begun = Instant::now();
    while domain.holder_has() > 0 {
        assert!(begun.elapsed().as_secs() < 120, "{}", machine.status());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The kernel's programs see the volume through a mount, with pages that are elsewhere.
#[test]
fn a_mount_shows_pages_that_are_elsewhere() {
    if !crate::support::can_mount() {
        eprintln!("skipped: nothing can be mounted here");
        return;
    }
    let domain = Domain::new();
    let machine = &domain.machine;
    let at = machine.0.path("mnt");
    fs::create_dir(&at).expect("made");
    machine.solera(&["mount", "dm/v", &machine.0.text("mnt")]).ok();
    let same = fs::read(at.join("file")).expect("read") == fs::read(&domain.file).expect("read");
    fs::write(at.join("more"), "more").expect("written");
    machine.solera(&["umount", &machine.0.text("mnt")]).ok();
    assert!(same, "other bytes");
    assert_eq!(machine.solera(&["cat", "dm/v:/more"]).ok(), "more");
}
