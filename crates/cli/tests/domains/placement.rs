//! Which pages of a domain's volume leave their host, and which do not.

use crate::domain::{Machine, Node};
use crate::support::Ran;

/// A domain of three nodes of 16 MiB, with a volume of 40.
fn domain() -> (Machine, Vec<Node>) {
    let machine = Machine::new();
    let nodes = machine.domain_of_three();
    (machine, nodes)
}

/// How many touches of a shell's line are served by holders.
fn asked(machine: &Machine, line: &str) -> u64 {
    let report = machine.0.text("report");
    let run = ["run", "--ddmap", "dm/v", "--at", "/dm", "--json", "--report-file", &report, "--"];
    Ran::of(&mut machine.command(&[&run[..], &["sh", "-c", line]].concat())).ok();
    let report = std::fs::read(report).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    report["used"]["ddmap:faults:remote"].as_u64().unwrap_or(0)
}

/// A scan of what is larger than the node sends everything else away. Small files are not
/// part of that.
#[test]
fn small_files_stay_on_the_host() {
    let (machine, _nodes) = domain();
    let file = machine.file(22 << 20);
    let line = "mkdir /dm/s; for i in $(seq 1000); do printf '%04096d' $i > /dm/s/$i; done";
    asked(&machine, line);
    let large = format!("cp {file} /dm/big && cmp {file} /dm/big");
    assert!(asked(&machine, &large) > 0, "it is larger than the node");
    let small = "test $(cat /dm/s/* | wc -c) = 4096000";
    assert_eq!(asked(&machine, small), 0);
    assert_eq!(asked(&machine, small), 0);
}

/// Where a process has pages that leave, buffers are brought before the kernel gets them: those of
/// calls that are wrong, too.
#[test]
fn calls_on_what_is_no_file_are_refused_as_by_the_kernel() {
    let (machine, _nodes) = domain();
    let program = "import errno, os, sys
for call in (lambda: os.readv(-1, [bytearray(9)]), lambda: os.preadv(-1, [bytearray(9)], 0),
             lambda: os.preadv(-1, [bytearray(9)], 0, os.RWF_HIPRI), lambda: os.read(-1, 9),
             lambda: os.preadv(-7, [bytearray(9)], 0), lambda: os.preadv(999, [bytearray(9)], 0)):
    try: call(); sys.exit('not refused')
    except OSError as error: assert error.errno == errno.EBADF, error
print('all refused')";
    let run = ["run", "--ddmap", "dm/v", "--at", "/dm", "--", "python3", "-c", program];
    assert_eq!(Ran::of(&mut machine.command(&run)).ok(), "all refused\n");
}

/// A chunk that becomes one of metadata stays on the host from then on, which takes a while: others
/// are not to take it for full meanwhile.
#[test]
fn directories_come_and_go_in_many_processes() {
    let (machine, _nodes) = domain();
    let program = "import os, sys
for turn in range(400):
    one, two = f'/dm/{sys.argv[1]}-1', f'/dm/{sys.argv[1]}-2'
    os.mkdir(one); os.mkdir(two)
    for name in range(8):
        open(f'{one}/{name}', 'w').close()
        os.rename(f'{one}/{name}', f'{two}/{name}')
        os.unlink(f'{two}/{name}')
    os.rmdir(one); os.rmdir(two)";
    let line = "for i in 1 2 3 4 5 6; do python3 -c \"$1\" $i & all+=($!); done; \
                for one in ${all[*]}; do wait $one || exit 1; done; echo all";
    let run = ["run", "--ddmap", "dm/v", "--at", "/dm", "--", "bash", "-c", line, "bash", program];
    assert_eq!(Ran::of(&mut machine.command(&run)).ok(), "all\n");
}
