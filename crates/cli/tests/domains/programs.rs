//! Unmodified programs on volumes that are larger than their node: `solera run --ddmap`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::domain::{MIB, Machine, Node};
use crate::support::{Ran, compiled};
use rustix::process::{Pid, Signal, kill_process};

/// A domain of three nodes of 16 MiB, with a volume of 40.
struct Domain {
    nodes: Vec<Node>,
    machine: Machine,
}

impl Domain {
    fn new() -> Self {
        let machine = Machine::new();
        let nodes = machine.domain_of_three();
        Self { nodes, machine }
    }

    fn command(&self, program: &[&str]) -> Command {
        let line = ["run", "--ddmap", "dm/v", "--at", "/dm", "--"];
        self.machine.command(&[&line[..], program].concat())
    }

    fn run(&self, program: &[&str]) -> String {
        Ran::of(&mut self.command(program)).ok()
    }

    fn sent_away(&self) -> u64 {
        let status = self.machine.status();
        status["volumes"][0]["evicted_pages"].as_u64().unwrap_or_else(|| panic!("{status}"))
    }
}

fn program() -> String {
    compiled("cli/tests/domains/pages.c", &[])
}

#[test]
fn a_program_maps_more_than_its_node_has() {
    let domain = Domain::new();
    let said = domain.run(&[&program(), "map", "/dm/big", "24"]);
    assert_eq!(said, "all pages are what was stored\n");
    assert!(domain.sent_away() > 2048, "{} pages", domain.sent_away());
}

/// One call of each kind. What a call had taken, and could not store to a page that is protected,
/// would be gone.
#[test]
fn the_kernel_stores_to_pages_that_were_only_loaded() {
    let domain = Domain::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/domains/out_pointers.py");
    let said = domain.run(&["python3", script, "/dm/big", "24"]);
    assert!(said.ends_with(" calls have stored\n"), "{said}");
    assert!(domain.sent_away() > 2048, "{} pages", domain.sent_away());
}

/// Four processes of two threads add to words of pages that leave and come meanwhile; each node is
/// stopped now and then.
#[test]
fn no_increment_is_lost_while_pages_leave() {
    let domain = Domain::new();
    let program = program();
    let times = if rotation::all() { 4000 } else { 1500 };
    let count = ["count", "/dm/counters", "24", "4", &times.to_string()];
    let said = while_nodes_stop(&domain, &mut domain.command(&[&[&*program], &count[..]].concat()));
    // No touch has died either, nor said anything.
    let all = format!("{0} of {0}\n", 4 * 2 * times);
    assert_eq!((said.code, said.out, said.err), (0, all, String::new()));
}

/// The same while each process takes its entries away: a page that is about to leave is protected
/// by a mark in its entry, and is shown without it by who touches it then.
#[test]
fn no_increment_is_lost_while_programs_give_up_pages_that_leave() {
    let domain = Domain::new();
    let program = program();
    let times = if rotation::all() { 2500 } else { 800 };
    let words = [&program, "count", "/dm/counters", "24", "3", &times.to_string(), "gives-up"];
    let said = while_nodes_stop(&domain, &mut domain.command(&words));
    let all = format!("{0} of {0}\n", 3 * 2 * times);
    assert_eq!((said.code, said.out, said.err), (0, all, String::new()));
    assert!(domain.sent_away() > 2048, "{} pages", domain.sent_away());
}

/// Runs a program; each node is stopped now and then meanwhile.
fn while_nodes_stop(domain: &Domain, counting: &mut Command) -> Ran {
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stopped = domain.nodes.iter().cycle();
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let Some(node) = stopped.next() else { return };
                let process = Pid::from_child(&node.child);
                for signal in [Signal::STOP, Signal::CONT] {
                    kill_process(process, signal).expect("it is there");
                    std::thread::sleep(Duration::from_millis(30));
                }
            }
        });
        let said = Ran::of(counting);
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        said
    })
}

/// Four processes of two threads add to the same words. Each page traps once in each process's
/// mapping, however often it is stored to there: nobody asks anybody for it, no holder is asked.
#[test]
fn processes_of_a_host_share_pages_and_ask_nobody_for_them() {
    let domain = Domain::new();
    let report = domain.machine.0.text("report");
    let program = program();
    let line = ["run", "--ddmap", "dm/v", "--at", "/dm", "--json", "--report-file", &report, "--"];
    let program = [&program, "count", "/dm/counters", "4", "4", "50000"];
    let said = Ran::of(&mut domain.machine.command(&[&line[..], &program].concat())).ok();
    assert_eq!(said, "400000 of 400000\n");
    let report = std::fs::read(report).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    let used = |what: &str| report["used"][what].as_u64().unwrap_or(0);
    let asked = ["ddmap:faults:remote", "ddmap:faults:line", "ddmap:fetch-bytes"].map(used);
    assert_eq!((asked, domain.sent_away()), ([0; 3], 0), "{report}");
    // The file's 1,024 pages in the maker and four others, and what the engine touches.
    let traps: u64 = ["local", "minor", "protect"]
        .map(|kind| used(&format!("ddmap:faults:{kind}")))
        .iter()
        .sum();
    assert!((1024..6 * 1024 + 2000).contains(&traps), "{traps} traps: {report}");
}

#[test]
fn file_calls_see_what_was_written() {
    let domain = Domain::new();
    let file = domain.machine.file(15 << 20);
    let line = "cp \"$1\" /dm/a && cmp \"$1\" /dm/a && mkdir /dm/d && cp /dm/a /dm/d/b \
                && rm /dm/a && cmp \"$1\" /dm/d/b && ls /dm/d";
    assert_eq!(domain.run(&["sh", "-c", line, "sh", &file]), "b\n");
    domain.machine.has_same("dm/v:/d/b", &file);
}

/// The kernel stores into mapped pages, which leave meanwhile: no datagram is lost.
#[test]
fn what_the_kernel_stores_into_mapped_pages_is_there() {
    let domain = Domain::new();
    let said = domain.run(&[&program(), "receive", "/dm/big", "24", "3000"]);
    assert_eq!(said, "all messages arrived\n");
}

/// Two processes read by calls of 1 KiB, which move no page, what a third one stores, while the
/// pages leave and come.
#[test]
fn short_reads_see_what_others_have_stored_though_pages_stay_away() {
    let domain = Domain::new();
    let report = domain.machine.0.text("report");
    let program = program();
    let line = ["run", "--ddmap", "dm/v", "--at", "/dm", "--json", "--report-file", &report, "--"];
    let program = [&program, "lines", "/dm/big", "24", "4000"];
    let said = Ran::of(&mut domain.machine.command(&[&line[..], &program].concat())).ok();
    assert_eq!(said, "24 MiB: no old byte was read\n");
    let report = std::fs::read_to_string(report).expect("a report");
    for what in ["ddmap:line-hit", "ddmap:line-miss"] {
        assert!(report.contains(what), "{report}");
    }
}

/// 192 pages that are away come by few requests, since the program says that it wants them.
#[test]
fn what_a_program_says_that_it_wants_comes_by_few_requests() {
    let domain = Domain::new();
    let report = domain.machine.0.text("report");
    let program = program();
    let line = ["run", "--ddmap", "dm/v", "--at", "/dm", "--prefetch", "off", "--json"];
    let file = ["--report-file", &report, "--", &program, "hints", "/dm/big", "24"];
    let said = Ran::of(&mut domain.machine.command(&[&line[..], &file].concat())).ok();
    assert_eq!(said, "all is there\n");
    let report = std::fs::read(report).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    let requests = report["used"]["ddmap:faults:remote"].as_u64().unwrap_or(0);
    assert!(requests <= 12, "{requests} touches were served by holders");
}

/// A process that does nothing holds its pages while its node is started anew: the node reaches it
/// all the same, so they can leave. A fork while the node is down is a fork.
#[test]
fn an_idle_process_is_reached_by_a_new_node() {
    let mut domain = Domain::new();
    let program = program();
    let mut idle = domain.command(&[&program, "idle", "/dm/idle", "10"]);
    idle.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut idle = idle.spawn().expect("it starts");
    let mut says = BufReader::new(idle.stdout.take().expect("a pipe")).lines();
    let mut hears = idle.stdin.take().expect("a pipe");
    let mut next = || says.next().expect("it says more").expect("text");
    assert_eq!(next(), "there");
    let first = domain.nodes.remove(0);
    let address = first.address().to_owned();
    first.end(Signal::KILL);
    hears.write_all(b"f").expect("it hears");
    assert_eq!(next(), "forked");
    domain.nodes.insert(0, domain.machine.node("1", &["--listen", &address]));
    let said = domain.run(&[&program, "map", "/dm/big", "20"]);
    assert_eq!(said, "all pages are what was stored\n");
    drop(hears);
    assert_eq!(next(), "all pages are what was stored");
    assert!(idle.wait().expect("it ends").success());
}

/// Of `--local` no more is on the host than that and what must stay, and the domain says so.
#[test]
fn a_program_runs_with_a_part_of_its_data_here() {
    let domain = Domain::new();
    let program = program();
    let line = ["run", "--ddmap", "dm/v", "--at", "/dm", "--local"];
    for size in ["0", "4095K", "9%", "0%", "101%", "x%", "x"] {
        let ran = domain.machine.solera(&[&line[..], &[size, "--", "true"]].concat());
        let ran = ran.ended_with(125);
        assert!(ran.err.contains("--local") && ran.err.contains(size), "{}", ran.err);
    }
    // Of 40 MiB.
    let mut idle = domain.machine.command(&[&line[..], &["10%", "--", &program]].concat());
    idle.args(["idle", "/dm/idle", "10"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut idle = idle.spawn().expect("it starts");
    let mut says = BufReader::new(idle.stdout.take().expect("a pipe")).lines();
    assert_eq!(says.next().expect("it says more").expect("text"), "there");
    let volume = domain.machine.status()["volumes"][0].clone();
    let bytes = |what: &str| volume[what].as_u64().unwrap_or_else(|| panic!("{volume}"));
    assert_eq!(bytes("local_bytes"), 4 * MIB);
    assert!(bytes("stays_bytes") > 0, "{volume}");
    assert!(bytes("here_bytes") <= bytes("local_bytes") + bytes("stays_bytes"), "{volume}");
    assert!(bytes("evicted_pages") > 1024, "{volume}");
    let text = domain.machine.solera(&["domain", "status", "dm"]).ok();
    assert!(text.contains("local") && text.contains("4.00 MiB"), "{text}");
    drop(idle.stdin.take());
    let end = says.next().expect("it says more").expect("text");
    assert_eq!(end, "all pages are what was stored");
    assert!(idle.wait().expect("it ends").success());
    let map = ["4M", "--", &program, "map", "/dm/big", "24"];
    let said = domain.machine.solera(&[&line[..], &map].concat()).ok();
    assert_eq!(said, "all pages are what was stored\n");
}

/// The kernel brings no page: it looks at locks of several processes when their owner dies, and
/// when a wait goes on that was stopped. Pages of the small files where they lie stay meanwhile.
#[test]
fn locks_in_mapped_files_work_while_all_other_pages_leave() {
    let domain = Domain::new();
    let program = compiled("cli/tests/domains/locks.c", &[]);
    for (words, said) in [
        (&["robust", "/dm/locks", "/dm/big", "24"][..], "locks of the dead are given back\n"),
        (&["wait", "/dm/locks", "/dm/big", "24"], "all have waited to the end\n"),
        (&["rounds", "/dm/locks", "/dm/big", "24", "300000"], "600000 of 600000 turns\n"),
        (&["many", "/dm", "/dm/big", "24", "900"], "900 semaphores\n"),
    ] {
        let before = domain.sent_away();
        // Also what is used all the time leaves.
        let line = ["run", "--ddmap", "dm/v", "--at", "/dm", "--policy", "fifo", "--", &program];
        let ran = Ran::of(&mut domain.machine.command(&[&line[..], words].concat()));
        assert_eq!(ran.ok(), said, "{words:?}");
        let sent = domain.sent_away() - before;
        assert!(sent > 1024, "{sent} pages were sent away beside {words:?}");
    }
}

/// The paged volume is refused where nobody brings its pages, and says why.
#[test]
fn a_build_without_pagers_refuses_the_region() {
    let domain = Domain::new();
    let region = domain.machine.0.path("1/volumes/v/region");
    let attached = volume::attach(&region, &volume::AttachOptions::default());
    let error = attached.err().expect("it is refused");
    assert!(error.to_string().contains("nodes of a domain"), "{error}");
}
