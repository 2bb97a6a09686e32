//! A volume changes hands by itself: `solera run --ddmap` on any node. Each node has a machine of
//! its own, which is a runtime directory.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::migration::{Domain, MACHINES};
use crate::support::Ran;
use serde_json::Value;

/// A program on a machine, in the background.
struct Started(Option<Child>);

impl Started {
    fn end(mut self) -> Ran {
        let child = self.0.take().expect("it was started");
        Ran::new("a program".to_owned(), &child.wait_with_output().expect("it ends"))
    }

    /// It has said that it waits, and then why it does not any more.
    #[track_caller]
    fn tells(self, words: &str) {
        let ran = self.end().ended_with(125);
        assert!(ran.err.contains(words), "{}", ran.err);
    }

    fn kill(mut self) {
        let mut child = self.0.take().expect("it was started");
        child.kill().and_then(|()| child.wait()).expect("it ends");
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Domain {
    fn program(&self, at: usize, options: &[&str], program: &[&str]) -> Command {
        let line = [&["run", "--ddmap", "dm/v"], options, &["--"], program].concat();
        self.machine.on(MACHINES[at], &line)
    }

    fn begin(&self, at: usize, options: &[&str], program: &[&str]) -> Started {
        // On a slow machine others may have the volume for longer than the usual minute.
        let patient = [&["--wait", "600s"], options].concat();
        let waits = if options.contains(&"--wait") { options } else { &patient };
        let mut command = self.program(at, waits, program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Started(Some(command.spawn().expect("it starts")))
    }

    fn run(&self, at: usize, options: &[&str], program: &[&str]) -> Ran {
        Ran::of(&mut self.program(at, options, program))
    }

    /// A program that has the volume on a machine until it is killed.
    fn has(&self, at: usize) -> Started {
        let program = self.begin(at, &[], &["sleep", "600"]);
        self.await_status(at, |status| status["volumes"][0]["processes"].as_u64() > Some(0));
        program
    }

    /// Programs of these nodes wait for the volume of a machine's node.
    fn await_waiting(&self, at: usize, nodes: &[u64]) {
        self.await_status(at, |status| {
            let all = status["volumes"][0]["waiting"].as_array().into_iter().flatten();
            all.filter_map(|one| one["node"].as_u64()).eq(nodes.iter().copied())
        });
    }
}

#[test]
fn a_volume_moves_to_the_program_that_wants_it() {
    let domain = Domain::new();
    for at in [1, 2, 0, 1] {
        domain.run(at, &[], &["cmp", &domain.file, "/dm/file"]).ok();
        assert_eq!(domain.hosts(), [at]);
    }
    domain.run(0, &[], &["sh", "-c", "echo said > /dm/note"]).ok();
    let said = domain.run(2, &[], &["cat", "/dm/note"]).ok();
    assert_eq!(said, "said\n");
    domain.has_file(2);
}

#[test]
fn a_volume_moves_to_the_program_that_wants_it_by_tls() {
    let domain = Domain::by_tls();
    domain.run(1, &[], &["cmp", &domain.file, "/dm/file"]).ok();
    assert_eq!(domain.hosts(), [1]);
    domain.has_file(1);
}

#[test]
fn who_wants_a_volume_waits_for_those_that_have_it() {
    let domain = Domain::new();
    let has = domain.has(0);
    let first = domain.begin(1, &[], &["cmp", &domain.file, "/dm/file"]);
    domain.await_waiting(0, &[2]);
    // It is told here and there.
    let status = domain.status(0);
    let process = status["volumes"][0]["attached"][0]["process"].as_str().unwrap_or_default();
    assert!(process.contains("(sleep)"), "{status}");
    domain.await_status(1, |status| {
        let ask = &status["asks"][0];
        let process = ask["attached"][0]["process"].as_str().unwrap_or_default();
        ask["volume"] == "v" && ask["host"] == 1 && process.contains("(sleep)")
    });
    let text = domain.on(0, &["domain", "status", "dm"]).ok();
    assert!(text.contains("(sleep) has it for") && text.contains("node 2 waits for"), "{text}");
    let text = domain.on(1, &["domain", "status", "dm"]).ok();
    assert!(text.contains("v: a program here waits for") && text.contains("node 1 has"), "{text}");
    // A time that is over: which process has it, since when, and how many others wait.
    let refused = domain.run(2, &["--wait", "1s"], &["true"]);
    let words = ["node 1 has it: ", "(sleep), for ", "1 program waits before this one", "--wait"];
    refused.refused(125, &words);
    domain.await_waiting(0, &[2]);
    domain.run(2, &["--wait", "0"], &["true"]).refused(125, &["node 1 at ", "is its host"]);
    assert_eq!(domain.hosts(), [0]);
    has.kill();
    first.end().ok();
    assert_eq!(domain.hosts(), [1]);
    domain.has_file(1);
}

/// `--hold`: newcomers on the host go ahead of those that have not waited for so long.
#[test]
fn newcomers_on_the_host_go_ahead_for_a_time() {
    let domain = Domain::new();
    let has = domain.has(0);
    let waits = domain.begin(1, &[], &["cmp", &domain.file, "/dm/file"]);
    domain.await_waiting(0, &[2]);
    domain.run(0, &[], &["cmp", &domain.file, "/dm/file"]).ok();
    // A command goes ahead, too.
    domain.on(0, &["ls", "dm/v:/file"]).ok();
    let behind = domain.run(0, &["--hold", "0", "--wait", "1s"], &["true"]);
    behind.refused(125, &["1 program waits before this one", "(sleep)"]);
    std::thread::sleep(Duration::from_secs(2));
    domain.run(0, &["--hold", "1s", "--wait", "1s"], &["true"]).refused(125, &["waits before"]);
    domain.run(0, &["--hold", "60s"], &["true"]).ok();
    domain.await_status(0, |status| {
        status["volumes"][0]["waiting"][0]["seconds"].as_u64() > Some(10)
    });
    domain.run(0, &["--wait", "1s"], &["true"]).refused(125, &["1 program waits before this one"]);
    // What looks waits for nobody; and what a program starts that has the volume.
    domain.on(0, &["info", "dm/v"]).ok();
    assert_eq!(domain.hosts(), [0]);
    has.kill();
    waits.end().ok();
    assert_eq!(domain.hosts(), [1]);
}

/// A program that executes others, one after the other, and forks: none of them is a newcomer, and
/// there is no moment at which the volume goes.
#[test]
fn what_a_program_starts_asks_nobody() {
    let domain = Domain::new();
    let script = domain.machine.0.text("script");
    let lines = "[ \"$1\" -gt 0 ] || { sh -c 'echo over >> /dm/done' & exit 0; }\n\
                 echo \"$1\" > /dm/count || exit 9\n\
                 exec sh \"$0\" $(($1 - 1))\n";
    fs::write(&script, lines).expect("written");
    let chain = domain.begin(0, &["--report"], &["sh", &script, "60"]);
    let waits = domain.begin(1, &["--hold", "0"], &["cat", "/dm/count", "/dm/done"]);
    assert_eq!(chain.end().code, 0);
    assert_eq!(waits.end().ok(), "1\nover\n");
    assert_eq!(domain.hosts(), [1]);
    // One that only executes, without a report: its number is the command's.
    let chain = domain.begin(1, &[], &["sh", &script, "60"]);
    domain.await_status(1, |status| status["volumes"][0]["processes"].as_u64() > Some(0));
    let waits = domain.begin(2, &[], &["cat", "/dm/count", "/dm/done"]);
    chain.end().ok();
    assert_eq!(waits.end().ok(), "1\nover\nover\n");
}

#[test]
fn who_waits_longest_comes_next() {
    let domain = Domain::new();
    let has = domain.has(0);
    let line = |name: &str| format!("echo {name} >> /dm/order; sleep 0.2");
    let mut waiting = Vec::new();
    let (mut begun, mut nodes) = (Vec::new(), [1, 2, 0, 1].into_iter());
    for name in ["a", "b", "c", "d"] {
        let at = nodes.next().expect("one for each");
        begun.push(domain.begin(at, &["--hold", "0"], &["sh", "-c", &line(name)]));
        waiting.push(at as u64 + 1);
        domain.await_waiting(0, &waiting);
    }
    has.kill();
    for program in begun {
        program.end().ok();
    }
    assert_eq!(domain.hosts(), [1]);
    assert_eq!(domain.run(1, &[], &["cat", "/dm/order"]).ok(), "a\nb\nc\nd\n");
}

/// The program that waits is killed, or its node: the next one gets the volume.
#[test]
fn who_waits_may_die() {
    let mut domain = Domain::new();
    let has = domain.has(0);
    let dies = domain.begin(1, &[], &["true"]);
    domain.await_waiting(0, &[2]);
    let next = domain.begin(2, &[], &["cmp", &domain.file, "/dm/file"]);
    domain.await_waiting(0, &[2, 3]);
    dies.kill();
    domain.await_waiting(0, &[3]);
    has.kill();
    next.end().ok();
    assert_eq!(domain.hosts(), [2]);

    let has = domain.has(2);
    let dies = domain.begin(1, &[], &["true"]);
    domain.await_waiting(2, &[2]);
    let next = domain.begin(0, &[], &["cmp", &domain.file, "/dm/file"]);
    domain.await_waiting(2, &[2, 1]);
    domain.nodes[1] = None;
    dies.tells("does not answer");
    has.kill();
    // What the dead node keeps comes when it is back.
    domain.start(1);
    next.end().ok();
    assert_eq!(domain.hosts(), [0]);
    domain.has_file(0);
}

/// The host's node dies: what waits is told.
#[test]
fn a_host_that_is_gone_is_said_to_be() {
    let mut domain = Domain::new();
    let has = domain.has(0);
    let waits = domain.begin(1, &[], &["true"]);
    domain.await_waiting(0, &[2]);
    domain.nodes[0] = None;
    waits.tells("node 1, which was its host, is not there");
    domain.start(0);
    // Its programs have it still, and who asks anew waits for them.
    let waits = domain.begin(1, &[], &["cmp", &domain.file, "/dm/file"]);
    domain.await_waiting(0, &[2]);
    assert_eq!(domain.hosts(), [0]);
    has.kill();
    waits.end().ok();
    assert_eq!(domain.hosts(), [1]);
}

#[test]
fn who_cannot_have_a_volume_is_told_why() {
    let domain = Domain::new();
    let join = ["--join", &domain.addresses[0]];
    fs::create_dir(domain.machine.0.path("four")).expect("made");
    let _passive = domain.machine.node_on("four", "4", &[&join[..], &["--passive"]].concat());
    let passive = domain.machine.on("four", &["run", "--ddmap", "dm/v", "--", "true"]);
    Ran::of(&mut { passive }).refused(125, &["passive"]);
    // A node that gives its pages up gets no volume.
    domain.on(0, &["domain", "drain", "dm", "3", "--patience", "1s"]);
    domain.run(2, &[], &["true"]).refused(125, &["give its pages up"]);
    domain.on(0, &["domain", "drain", "--cancel", "dm", "3"]).ok();
    let begun = Instant::now();
    let none = domain.machine.on("two", &["run", "--ddmap", "dm/none", "--", "true"]);
    Ran::of(&mut { none }).refused(125, &["its host"]);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(domain.hosts(), [0]);
    for wrong in [["--wait", "-1"], ["--hold", "x"]] {
        domain.run(0, &wrong, &["true"]).ended_with(125);
    }
    domain.has_file(0);
}

/// Either node is killed at each step of the change: a program that asks again has the volume in
/// the end, with its bytes.
#[test]
fn a_change_of_hands_survives_the_death_of_either_node_at_any_step() {
    let mut domain = Domain::new();
    let (mut from, mut to) = (0, 1);
    let mut deaths = [0, 0];
    let first = 1 + u64::from(rotation::turn("handover", 6));
    let (first, each) = if rotation::all() { (1, 1) } else { (first, 6) };
    for when in (first..=60).step_by(each) {
        let before = deaths;
        for (who, deaths) in deaths.iter_mut().enumerate() {
            let killed = if who == 0 { from } else { to };
            let Some(mut strace) = domain.kill_at(killed, when) else {
                eprintln!("skipped: strace cannot be had");
                return;
            };
            let program = domain.begin(to, &["--wait", "20s"], &["cmp", &domain.file, "/dm/file"]);
            let mut node = domain.nodes[killed].take().expect("it runs");
            let begun = Instant::now();
            let mut died = false;
            while !died && begun.elapsed() < Duration::from_millis(1500) {
                died = node.child.try_wait().expect("it can be asked").is_some();
                std::thread::sleep(Duration::from_millis(2));
            }
            drop(node);
            domain.start(killed);
            *deaths += u32::from(died);
            // It has had the volume, or was told; then another one has it.
            let ended = program.end();
            assert!([0, 1, 2, 125, 135].contains(&ended.code), "{}", ended.code);
            domain.run(to, &[], &["cmp", &domain.file, "/dm/file"]).ok();
            assert_eq!(domain.hosts(), [to], "{} killed at {when}", ["old", "new"][who]);
            domain.on(to, &["fsck", "dm/v"]).ok();
            strace.wait().expect("it ends");
            (from, to) = (to, from);
        }
        if before == deaths {
            break;
        }
    }
    assert!(deaths[0] > 0 && deaths[1] > 0, "{deaths:?}: it was to be killed at more steps");
}

/// How long a change of hands takes, from the end of one program to the first touch of the next.
#[test]
fn a_change_of_hands_is_quick() {
    let domain = Domain::new();
    let touch = "head -c 4096 /dm/file > /dev/null";
    let mut times = Vec::new();
    for at in [1, 0, 1, 0, 1] {
        let begun = Instant::now();
        domain.run(at, &[], &["sh", "-c", touch]).ok();
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    println!("{times:?}");
    let _: Value = domain.status(1);
    assert!(times[2] < Duration::from_secs(5), "{times:?}");
}
