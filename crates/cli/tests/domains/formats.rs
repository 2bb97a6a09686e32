//! Domains that earlier releases made, as `tests/formats/keep` kept them: this build converts their
//! stores, and reads what they hold; not while a process of that release may have them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::domain::{Machine, Node};
use crate::support::Ran;
use rustix::process::Signal;
use serde_json::Value;

const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/formats/domains/0.2.0.tar.xz");
const READ: &str = "seq 700000 | cmp - /dm/one && seq 400000 | cmp - /dm/two && echo same";

/// The two stores of a domain of release 0.2.
fn unpacked() -> Machine {
    let machine = Machine::new();
    let place = machine.0.text(".");
    Ran::of(Command::new("tar").args(["-C", &place, "-xJSf", KEPT])).ok();
    machine
}

fn format(machine: &Machine, file: &str) -> Value {
    let text = fs::read(machine.0.path(file)).expect("it is there");
    serde_json::from_slice::<Value>(&text).expect("JSON")["format"].clone()
}

fn nodes(machine: &Machine) -> [Node; 2] {
    let first = machine.node("1", &["--capacity", "8M"]);
    let join = first.address().to_owned();
    [first, machine.node("2", &["--join", &join])]
}

#[test]
fn a_domain_of_release_0_2_is_converted_and_holds_what_it_held() {
    let machine = unpacked();
    machine.solera(&["info", &machine.0.text("1/volumes/v/region")]).refused(1, &["format 2"]);
    let both = nodes(&machine);
    for file in ["1/node", "2/node", "1/volumes/v/about"] {
        assert_eq!(format(&machine, file), 3, "{file}");
    }
    let run = ["run", "--ddmap", "dm/v", "--", "sh", "-c", READ];
    assert_eq!(machine.solera(&run).ok(), "same\n");
    machine.solera(&["run", "--ddmap", "dm/v", "--", "sh", "-c", "seq 9 > /dm/new"]).ok();
    for node in both {
        assert!(node.end(Signal::INT).success());
    }
    // It goes on so.
    let _both = nodes(&machine);
    assert_eq!(machine.solera(&run).ok(), "same\n");
    machine.solera(&["fsck", "--read-data", "dm/v"]).ok();
}

/// A process of 0.2 would open pages that are clean.
#[test]
fn a_store_is_not_converted_while_a_process_of_release_0_2_has_it() {
    let machine = unpacked();
    let volume = machine.0.path("1/volumes/v");
    let live = File::options().write(true).open(volume.join("live")).expect("it is there");
    // As that release holds its slot, and says who it is.
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 3,
        l_len: 1,
        l_pid: 0,
    };
    let set = |lock: &mut libc::flock| {
        // SAFETY: the structure that this command takes.
        unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&live), libc::F_OFD_SETLK, lock) }
    };
    assert_eq!(set(&mut lock), 0);
    let table = File::options().write(true).open(volume.join("table")).expect("it is there");
    let me = std::process::id();
    table.write_all_at(&u64::from(me).to_le_bytes(), (416 << 10) + 3 * 40).expect("said");
    let process = format!("{me} (");
    machine.refuses(("dm", "1"), &["--capacity", "8M"], &["release 0.2", &process, "end them"]);
    for file in ["1/node", "1/volumes/v/about"] {
        assert_eq!(format(&machine, file), 2, "{file}");
    }
    drop(live);
    let _both = nodes(&machine);
    let run = ["run", "--ddmap", "dm/v", "--", "sh", "-c", READ];
    assert_eq!(machine.solera(&run).ok(), "same\n");
}

/// Another store under a node's number is not that node: it was asked for its pages, had none, and
/// they were called lost.
#[test]
fn another_store_under_a_number_is_not_asked_for_its_pages() {
    let machine = unpacked();
    let [first, second] = nodes(&machine);
    let address = second.address().to_owned();
    // The list is written with the second's store before it is asked.
    machine.solera(&["run", "--ddmap", "dm/v", "--", "true"]).ok();
    assert!(second.end(Signal::INT).success());
    // A domain of the same name, whose second node stands where the second one stood.
    let others = Machine::new();
    let other = others.node("1", &[]);
    let join = other.address().to_owned();
    let stranger = others.node("2", &["--join", &join, "--listen", &address]);
    let run = ["run", "--ddmap", "dm/v", "--patience", "1s", "--", "sh", "-c", READ];
    let ran = machine.solera(&run).ended_with(2);
    assert!(ran.err.contains("Input/output error"), "{}", ran.err);
    drop(stranger);
    let _second = machine.node("2", &["--join", first.address()]);
    let run = ["run", "--ddmap", "dm/v", "--", "sh", "-c", READ];
    assert_eq!(machine.solera(&run).ok(), "same\n", "nothing is lost");
}
