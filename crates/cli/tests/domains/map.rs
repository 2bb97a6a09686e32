//! `solera map` says on which nodes the pages of a file lie, and its sums are the file's bytes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::domain::{MIB, Machine};
use crate::support::solera;
use rustix::process::Signal;
use serde_json::Value;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// What `map --json` says of a file: bytes by where they are. All that it says fits together.
#[track_caller]
fn map(machine: &Machine, file: &str) -> BTreeMap<String, u64> {
    let told = machine.solera(&["map", "--json", file]).json();
    let name = |one: &Value| match one["node"].as_u64() {
        Some(node) => format!("{node}"),
        None => one["on"].as_str().unwrap_or_else(|| panic!("{one}")).to_owned(),
    };
    let list = |key: &str| told[key].as_array().unwrap_or_else(|| panic!("{told}")).clone();
    // The parts are the extents, in order and without a gap.
    let mut parts = list("pages").into_iter();
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for extent in list("extents") {
        let mut done = 0;
        while done < number(&extent["length"]) {
            let part = parts.next().unwrap_or_else(|| panic!("{told}"));
            assert_eq!(number(&part["file_offset"]), number(&extent["file_offset"]) + done);
            assert_eq!(number(&part["place"]), number(&extent["place"]) + done);
            done += number(&part["length"]);
            *sums.entry(name(&part)).or_default() += number(&part["length"]);
        }
        assert_eq!(done, number(&extent["length"]), "{told}");
    }
    assert_eq!(parts.next(), None);
    let places: BTreeMap<_, _> =
        list("places").iter().map(|one| (name(one), number(&one["bytes"]))).collect();
    sums.entry("1".to_owned()).or_default();
    assert_eq!(places, sums);
    let here: Vec<_> = list("places").into_iter().filter(|one| one["here"] == true).collect();
    assert_eq!(here.iter().map(name).collect::<Vec<_>>(), ["1"]);
    assert_eq!(places.values().sum::<u64>(), number(&told["allocated_bytes"]));
    places
}

/// What people are told has the same bytes.
#[track_caller]
fn lines_are(machine: &Machine, file: &str, places: &BTreeMap<String, u64>) {
    let text = machine.solera(&["map", file]).ok();
    let rows = text.lines().skip_while(|line| !line.starts_with("pages on")).skip(1);
    let rows: Vec<Vec<&str>> = rows.map(|line| line.split_whitespace().collect()).collect();
    for (place, bytes) in places {
        let bytes = bytes.to_string();
        let is = |row: &Vec<&str>| match row[0] {
            "node" => row[1] == place && row.contains(&bytes.as_str()),
            other => other == place && row[1] == bytes,
        };
        assert!(rows.iter().any(is), "{place} has {bytes} bytes: {text}");
    }
    let all = places.values().sum::<u64>().to_string();
    assert!(rows.iter().any(|row| row[0] == "all" && row[1] == all), "{text}");
}

fn kept(machine: &Machine) -> [u64; 2] {
    let status = machine.status();
    [1, 2].map(|node| number(&status["nodes"][node]["kept_bytes"]))
}

#[test]
fn a_file_is_where_its_node_is_and_then_on_all_nodes() {
    let machine = Machine::new();
    let mut nodes = machine.domain_of_three();
    let file = machine.file(24 * MIB);
    let small = machine.0.text("small");
    std::fs::write(&small, vec![7; 2 << 20]).expect("written");
    machine.solera(&["cp", &small, "dm/v:/small"]).ok();
    let before = map(&machine, "dm/v:/small");
    assert_eq!(before, BTreeMap::from([("1".to_owned(), 2 * MIB)]), "what is stored lies here");
    lines_are(&machine, "dm/v:/small", &before);

    // Half as much again as the node has room for: the rest goes to the two others in turn.
    machine.solera(&["cp", &file, "dm/v:/file"]).ok();
    let sum = |places: [&BTreeMap<String, u64>; 2], node: &str| {
        places.iter().filter_map(|one| one.get(node)).sum::<u64>()
    };
    let begun = Instant::now();
    // What nodes say is a second old, and what they keep in vain is dropped later.
    let [small, large] = loop {
        let [small, large] = ["dm/v:/small", "dm/v:/file"].map(|file| map(&machine, file));
        let mapped = ["2", "3"].map(|node| sum([&small, &large], node));
        if mapped == kept(&machine) {
            break [small, large];
        }
        let late = begun.elapsed() > Duration::from_mins(2);
        assert!(!late, "{small:?}, {large:?}; kept: {:?}", kept(&machine));
        std::thread::sleep(Duration::from_millis(200));
    };
    assert_eq!(large.values().sum::<u64>(), 24 * MIB);
    assert_eq!(small.values().sum::<u64>(), 2 * MIB);
    assert!(sum([&small, &large], "1") <= 16 * MIB, "{small:?}, {large:?}");
    for node in ["1", "2", "3"] {
        assert!(sum([&small, &large], node) >= 2 * MIB, "{small:?}, {large:?}");
    }
    lines_are(&machine, "dm/v:/file", &large);
    assert_eq!(map(&machine, "dm/v:/file"), large, "looking moves nothing");

    // The pages of a node that is gone are lost, and nothing else.
    nodes.remove(2).end(Signal::KILL);
    let begun = Instant::now();
    // It is taken for gone when it was not heard of for 8 s.
    while machine.solera(&["domain", "forget", "dm", "3"]).code != 0 {
        assert!(begun.elapsed() < Duration::from_mins(2));
        std::thread::sleep(Duration::from_millis(200));
    }
    // A page is found lost by the first touch of it.
    let read = machine.command(&["cat", "dm/v:/file"]).output().expect("it starts");
    assert!(!read.status.success());
    let now = map(&machine, "dm/v:/file");
    assert_eq!(now.values().sum::<u64>(), 24 * MIB);
    assert!(now.get("lost").is_some_and(|lost| *lost > 0), "{now:?}");
    lines_are(&machine, "dm/v:/file", &now);
}

#[test]
fn blocks_that_nobody_has_stored_to_are_nowhere() {
    let machine = Machine::new();
    let _nodes = machine.domain_of_three();
    let line = "fallocate -l 8M /dm/f && printf x | dd of=/dm/f bs=1 seek=4096 conv=notrunc";
    machine.solera(&["run", "--ddmap", "dm/v", "--", "sh", "-c", line]).ok();
    let places = map(&machine, "dm/v:/f");
    assert_eq!(places.values().sum::<u64>(), 8 * MIB);
    let here = places["1"];
    // Unwritten blocks beside it are zeroed, too, within its 2 MiB.
    assert!((4096..=4 * MIB).contains(&here), "{places:?}");
    assert_eq!(places.get("nowhere"), Some(&(8 * MIB - here)), "{places:?}");
    let text = machine.solera(&["map", "dm/v:/f"]).ok();
    assert!(text.contains("node 1 (here)") && text.contains("nowhere"), "{text}");
    // A file without blocks, and what is no file there.
    machine.solera(&["run", "--ddmap", "dm/v", "--", "truncate", "-s", "1G", "/dm/g"]).ok();
    assert_eq!(map(&machine, "dm/v:/g"), BTreeMap::from([("1".to_owned(), 0)]));
    machine.solera(&["map", "dm/v:/none"]).refused(1, &["map", "No such file"]);
}

/// A volume that is of no domain has no nodes.
#[test]
fn without_a_domain_the_map_is_as_it_was() {
    let machine = Machine::new();
    let volume = machine.0.volume("32M");
    let small = machine.0.text("small");
    std::fs::write(&small, vec![7; 4 << 20]).expect("written");
    let place = format!("{volume}:/small");
    solera(["cp", &small, &place]).ok();
    let told = solera(["map", "--json", &place]).json();
    assert!(told.get("pages").is_none() && told.get("places").is_none(), "{told}");
    let text = solera(["map", &place]).ok();
    assert!(text.contains("huge pages") && !text.contains("node"), "{text}");
}
