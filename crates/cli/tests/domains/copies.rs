//! Volumes of two copies (`format --copies 2`): what is refused, what is shown, and which
//! nodes may be lost.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::domain::{Machine, Node};

/// A host of 16 MiB, and so many holders of these sizes.
fn domain(holders: &[&str]) -> (Machine, Vec<Node>) {
    let machine = Machine::new();
    let first = machine.node("1", &[]);
    let join = first.address().to_owned();
    let mut nodes = vec![first];
    for (at, size) in holders.iter().enumerate() {
        let options = ["--join", &join, "--passive", "--capacity", size];
        nodes.push(machine.node(&(at + 2).to_string(), &options));
    }
    heard_of(&machine, nodes.len());
    (machine, nodes)
}

fn heard_of(machine: &Machine, nodes: usize) {
    await_status(machine, "all are known", |status| {
        let known = status["nodes"].as_array().expect("a list").iter();
        known.filter(|node| node["silent_seconds"].as_u64() < Some(8)).count() == nodes
    });
}

#[track_caller]
fn await_status(machine: &Machine, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let status = machine.status();
        if is(&status) {
            return status;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "not {what}: {status}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn is_whole(status: &Value) -> bool {
    status["volumes"][0]["single_bytes"] == 0
}

#[test]
fn what_two_copies_have_no_room_for_is_refused() {
    let machine = Machine::new();
    let format = |name: &str, size: &str, copies: &str| {
        machine.solera(&["format", "--ddmap", name, "--size", size, "--copies", copies])
    };
    for copies in ["0", "3", "x"] {
        let said = format("dm/v", "16M", copies).ended_with(2).err;
        assert!(said.contains("--copies"), "{said}");
    }
    let file = machine.0.text("v.pm");
    machine.solera(&["format", "--size", "16M", "--copies", "2", &file]).ended_with(2);
    let first = machine.node("1", &[]);
    format("dm/v", "16M", "2").refused(1, &["no other node takes pages", "solera node --join"]);
    let join = first.address().to_owned();
    let second = machine.node("2", &["--join", &join, "--capacity", "160M"]);
    heard_of(&machine, 2);
    format("dm/v", "16M", "2").refused(1, &["one other node takes pages"]);
    let third = machine.node("3", &["--join", &join]);
    heard_of(&machine, 3);
    // 15.2 MiB here; as much twice on the others, however much one of these has.
    let words = ["40.0 MiB are to have two copies", "15.2 MiB", "2 other nodes for 15.2 MiB twice"];
    format("dm/v", "40M", "2").refused(1, &words);
    assert!(!machine.0.path("1/volumes/v").exists(), "nothing is left of it");
    format("dm/v", "24M", "2").ok();
    let status = machine.status();
    assert_eq!((&status["volumes"][0]["copies"], is_whole(&status)), (&Value::from(2), true));
    let table = machine.solera(&["domain", "status", "dm"]).ok();
    assert!(table.contains("copies"), "{table}");
    machine.solera(&["grow", "--size", "40M", "dm/v"]).refused(1, &["twice"]);
    machine.solera(&["grow", "--size", "28M", "dm/v"]).ok();
    // What has its room twice is no room for others.
    format("dm/w", "16M", "2").refused(1, &["to have two copies"]);
    machine.solera(&["domain", "move", "dm/v", "--to", "2"]).ok();
    // The second node hears of the third later than the first does.
    let begun = Instant::now();
    while machine.solera(&["domain", "move", "dm/v", "--to", "1"]).code != 0 {
        assert!(begun.elapsed() < Duration::from_mins(1), "it comes back");
        std::thread::sleep(Duration::from_millis(100));
    }
    for order in ["drain", "leave"] {
        let words = ["would have no room for the second", "start another node"];
        machine.solera(&["domain", order, "dm", "3"]).refused(1, &words);
    }
    drop((second, third));
}

/// Each holder in turn, while a program goes on; then two at once.
#[test]
fn a_holder_is_lost_and_no_page_is() {
    let (machine, mut nodes) = domain(&["40M", "40M", "40M"]);
    machine.solera(&["format", "--ddmap", "dm/v", "--size", "40M", "--copies", "2"]).ok();
    let file = machine.file(24 << 20);
    let copy = |to: &str| {
        machine.solera(&["run", "--ddmap", "dm/v", "--", "cp", &file, &format!("/dm/{to}")]).ok();
    };
    copy("one");
    await_status(&machine, "whole", is_whole);
    let join = nodes[0].address().to_owned();
    for number in 2..5 {
        drop(nodes.remove(1));
        fs::remove_dir_all(machine.0.path(&number.to_string())).expect("removed");
        machine.has_same("dm/v:/one", &file);
        machine.solera(&["domain", "forget", "dm", &number.to_string()]).ok();
        let name = (number + 10).to_string();
        nodes.push(machine.node(&name, &["--join", &join, "--passive", "--capacity", "40M"]));
        await_status(&machine, "whole", is_whole);
        machine.has_same("dm/v:/one", &file);
        machine.solera(&["fsck", "--read-data", "dm/v"]).ok();
    }
    let said = machine.solera(&["domain", "repair", "dm/v"]).ok();
    assert!(said.contains(" 0 placed anew, 0 lost"), "{said}");
    let two = [nodes.remove(1), nodes.remove(1)];
    drop(two);
    for number in ["12", "13"] {
        fs::remove_dir_all(machine.0.path(number)).expect("removed");
    }
    let numbers: Vec<String> = machine.status()["nodes"].as_array().expect("a list")[4..6]
        .iter()
        .map(|node| node["node"].to_string())
        .collect();
    for number in &numbers {
        machine.solera(&["domain", "forget", "dm", number]).ok();
    }
    let said = machine.solera(&["fsck", "--read-data", "dm/v"]).ended_with(4);
    let told = [said.out, said.err].concat();
    assert!(told.contains("/one") && told.contains("lost with node"), "{told}");
}
