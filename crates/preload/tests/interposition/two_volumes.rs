//! Two volumes in one program: the programs of other tests on the second of them while the first
//! is there as well, what goes between the two compared with two kernel file systems, and deaths,
//! after which each volume recovers by itself.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::mounted::Small;
use crate::support::{
    PREFIX, Random, TestDir, assert_same, check_left_in_order, compile, format, is_installed,
    library, run, text,
};

/// Where the first volume appears; the second is at [`PREFIX`].
const FIRST: &str = "/solera-first";

/// Two volumes.
struct TwoVolumes {
    place: TestDir,
    volumes: [PathBuf; 2],
}

impl TwoVolumes {
    fn new(name: &str) -> Self {
        let place = TestDir::new(&format!("several-{name}"));
        let volumes = ["first.pm", "second.pm"].map(|name| place.0.join(name));
        for volume in &volumes {
            format(volume);
        }
        Self { place, volumes }
    }

    fn program(&self, name: &str) -> PathBuf {
        let program = self.place.0.join(name);
        compile(&format!("{name}.c"), &program, &["-O1"]);
        program
    }

    /// A command that has both.
    fn direct(&self, program: impl AsRef<OsStr>) -> Command {
        served(program, &[(&self.volumes[0], FIRST), (&self.volumes[1], PREFIX)])
    }

    /// As above, ended in time.
    fn both(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.direct("timeout");
        command.args(["-k", "5", "120"]).arg(program);
        command
    }

    fn shell(&self, script: &str) -> Output {
        self.both("bash").args(["-ec", script]).output().expect("bash runs")
    }

    /// Nobody has either, and the check finds nothing in them.
    fn check(&self) {
        for volume in &self.volumes {
            check_left_in_order(volume);
        }
    }
}

/// A command with volumes, and where they are seen.
fn served(program: impl AsRef<OsStr>, seen: &[(&Path, &str)]) -> Command {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library());
    for (number, (volume, at)) in (1..).zip(seen) {
        let behind = if number == 1 { String::new() } else { format!("_{number}") };
        command.env(format!("SOLERA_VOLUME{behind}"), volume);
        command.env(format!("SOLERA_AT{behind}"), at);
    }
    command
}

/// Programs of the other tests, with the working directory on the second volume.
fn on_the_second(names: &[&str]) {
    for name in names {
        // A quarter, by rotation.
        if !rotation::chosen(&format!("two-volumes/{name}"), 4) {
            continue;
        }
        let two = TwoVolumes::new(name);
        let program = two.program(name);
        let expected = text(&run(&program, &two.place.0.join("reference"), None));
        let found = text(&two.both(&program).arg(PREFIX).output().expect("the program runs"));
        assert_same(name, &expected, &found);
        two.check();
    }
}

#[test]
fn files_names_and_streams() {
    on_the_second(&["files", "names", "streams", "links", "identity", "splice", "outside"]);
}

#[test]
fn mappings() {
    on_the_second(&["mapping", "sparse", "mapped_oddly", "many_mapped", "holes"]);
}

#[test]
fn descriptors_and_locks() {
    on_the_second(&["messages", "numbers", "control", "parked", "reused", "waits", "limits"]);
}

#[test]
fn processes_and_threads() {
    on_the_second(&["processes", "forks", "executes", "exits", "busy", "threads"]);
}

#[test]
fn fifos_sockets_and_signals() {
    on_the_second(&["fifos", "sockets", "signals", "gives_way"]);
}

/// What a program may do between two file systems of the kernel's.
#[test]
fn between_two() {
    let two = TwoVolumes::new("between");
    let program = two.program("several");
    let mounts = ["one", "other"].map(|name| Small::new(two.place.0.join(name), "size=64m"));
    let [Some(one), Some(other)] = mounts else {
        eprintln!("two tmpfs cannot be mounted here: nothing tested");
        return;
    };
    let expected = Command::new(&program).args([&one.0, &other.0]).output();
    let expected = text(&expected.expect("the program runs"));
    for (here, there) in [(FIRST, PREFIX), (PREFIX, FIRST)] {
        let output = two.both(&program).args([here, there]).output().expect("the program runs");
        assert_same(here, &expected, &text(&output));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("EXDEV") && said.contains("it copies"), "{said}");
        text(&two.shell(&format!("rm -r {FIRST}/* {PREFIX}/*")));
    }
    two.check();
}

/// A user that may open neither volume's file, in a process that attached both as root.
#[test]
fn another_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can become another user: nothing tested");
        return;
    }
    let two = TwoVolumes::new("users");
    let program = two.program("users");
    let expected = text(&run(&program, &two.place.0.join("reference"), None));
    let library = two.place.library_for_everyone();
    let mut command = two.both(&program);
    let found = command.env("LD_PRELOAD", library).arg(PREFIX).output();
    assert_same("users", &expected, &text(&found.expect("the program runs")));
    two.check();
}

/// A static program, which a host runs, sees both, and dead children give back their places on
/// both.
#[test]
fn static_programs_and_killed_children() {
    let two = TwoVolumes::new("static");
    let program = two.place.0.join("static");
    compile("static.c", &program, &["-static"]);
    let program = program.display().to_string();
    assert_eq!(text(&two.shell(&format!("{program}; {program} /etc"))), "static\n");
    for at in [FIRST, PREFIX] {
        for uses in ["echo > AT/x; PROGRAM AT/x", "cd AT; PROGRAM x", "PROGRAM > AT/x; grep s AT/x"]
        {
            let uses = uses.replace("PROGRAM", &program).replace("AT", at);
            assert_eq!(two.shell(&uses).status.code(), Some(0), "{uses}");
        }
    }
    let script = format!(
        "cd {PREFIX}; for ((i = 0; i < 700; i++)); do
             (exec 3>f 4>{FIRST}/f; kill -9 $BASHPID) & wait $! || true; done 2>/dev/null; echo $i"
    );
    assert_eq!(text(&two.shell(&script)), "700\n");
    two.check();
}

/// Descriptors of both volumes reach a process that has them in another order, also through one
/// that has only the other volume: there it is a directory that fails, as without the library.
#[test]
fn a_descriptor_passes_through_a_process_with_the_other_volume() {
    let two = TwoVolumes::new("passing");
    let program = two.program("passing");
    let [first, second] = &two.volumes;
    for (sent_at, other) in [(PREFIX, (&**first, FIRST)), (FIRST, (&**second, PREFIX))] {
        let pair = || UnixStream::pair().expect("a pair of sockets");
        let ((to, from), (to_next, next)) = (pair(), pair());
        let path = format!("{sent_at}/sent");
        let mut send = two.both(&program);
        send.args(["send", &path, "0"]).stdin(Stdio::null()).stdout(OwnedFd::from(to));
        assert!(send.status().expect("a sender").success());
        drop(send);
        let mut pass = served(&program, &[other]);
        pass.args(["pass", "-", "0"]).stdin(OwnedFd::from(from)).stdout(OwnedFd::from(to_next));
        assert!(pass.status().expect("a middleman").success(), "sent at {sent_at}");
        drop(pass);
        let mut receive = served(&program, &[(second, "/elsewhere"), (first, "/nowhere")]);
        let received = receive.arg("receive").stdin(OwnedFd::from(next)).output();
        assert_eq!(text(&received.expect("a receiver")), "tail 8388608 0 13\n");
    }
    two.check();
}

/// What `mv` and `cp` do when a file cannot be renamed, and what reads the list of mounts.
#[test]
fn tools_move_and_copy() {
    let two = TwoVolumes::new("tools");
    let script = format!(
        "cd {FIRST}; mkdir -p tree/deep; echo a > tree/a; ln -s a tree/link; ln tree/a tree/hard
         head -c 3000000 /dev/urandom > tree/deep/large; chmod 751 tree/deep; mkfifo tree/fifo
         setfattr -n user.told -v x tree/a 2>/dev/null || true
         cp -a tree ../{second}/copy; diff -r --no-dereference --exclude=fifo tree {PREFIX}/copy
         mv {PREFIX}/copy moved; ! test -e {PREFIX}/copy
         diff -r --no-dereference --exclude=fifo tree moved
         [ $(stat -c %a moved/deep) = 751 ] && [ -p moved/fifo ] && [ moved/a -ef moved/hard ]
         mv tree/a moved/deep/large {PREFIX}; cmp tree/deep/large {PREFIX}/large; rm {PREFIX}/a
         tar cf - moved | tar xf - -C {PREFIX}; diff -r --exclude=fifo moved {PREFIX}/moved
         ! ln moved/hard {PREFIX}/hard 2>/dev/null; ln -s {FIRST}/moved/hard {PREFIX}/hard
         cat {PREFIX}/hard; rm -r {PREFIX}/moved
         grep -c ' solera ' /proc/mounts; grep -c ' - solera ' /proc/self/mountinfo
         find {FIRST} -xdev -name hard | wc -l
         df --output=target {FIRST} {PREFIX} | tail -n 2",
        second = &PREFIX[1..],
    );
    let said = text(&two.shell(&script));
    assert_eq!(said, format!("a\n2\n2\n2\n{FIRST}\n{PREFIX}\n"));
    two.check();
}

#[test]
fn rsync_between_two() {
    if !is_installed("rsync") {
        return;
    }
    let two = TwoVolumes::new("rsync");
    let script = format!(
        "cd {FIRST}; for d in 1 2 3 4 5; do mkdir -p t/$d; for f in 1 2 3 4 5 6 7 8; do
             head -c $((f * 7777 + d)) /dev/urandom > t/$d/$f; done; done
         ln -s 1/2 t/link; ln t/1/1 t/hard; chmod 700 t/3; touch -d '2001-02-03 04:05:06.7' t/2/2
         rsync -aHX t/ {PREFIX}/t/; diff -r --no-dereference t {PREFIX}/t
         told() {{ stat -c '%n %a %h' t/3 t/hard; stat -c %y t/2/2; }}; told > of-t
         cd {PREFIX}; told | cmp - {FIRST}/of-t; cd {FIRST}
         echo more >> t/1/1; rm t/5/5; rsync -aH --delete --inplace t/ {PREFIX}/t/
         diff -r --no-dereference t {PREFIX}/t; ! test -e {PREFIX}/t/5/5
         rsync -aHn --itemize-changes --delete t/ {PREFIX}/t/ | wc -l
         rsync -aH --remove-source-files {PREFIX}/t/ back/; diff -r --no-dereference t back
         find {PREFIX}/t -type f | wc -l"
    );
    assert_eq!(text(&two.shell(&script)), "0\n0\n");
    two.check();
}

#[test]
fn git_between_two() {
    if !is_installed("git") {
        return;
    }
    let two = TwoVolumes::new("git");
    let script = format!(
        "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=A
         export GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_PAGER=cat
         export GIT_COMMITTER_EMAIL=a@example.org
         git init -q -b main {FIRST}/repo; cd {FIRST}/repo
         for d in 1 2 3; do mkdir $d; for f in 1 2 3 4 5 6 7 8 9; do
             echo file $f of $d > $d/$f; done; done
         git add .; git commit -qm one; echo more >> 1/1; git commit -qam two
         git clone -q . {PREFIX}/clone; git clone -q file://{FIRST}/repo {PREFIX}/packed
         git clone -q --shared . {PREFIX}/shared
         for c in clone packed shared; do diff -r --exclude=.git . {PREFIX}/$c
             git -C {PREFIX}/$c fsck --full --strict; git -C {PREFIX}/$c status --porcelain; done
         git worktree add -q -b side {PREFIX}/tree; cd {PREFIX}/tree
         echo side > side; git add side; git commit -qm side; cd {FIRST}/repo; git merge -q side
         cat side; diff -r --exclude=.git . {PREFIX}/tree
         cd {PREFIX}/clone; git pull -q; cat side; echo pushed > side; git commit -qam pushed
         git push -q origin HEAD:refs/heads/pushed; git -C {FIRST}/repo show pushed:side
         git -C {FIRST}/repo worktree remove {PREFIX}/tree; ls {PREFIX}"
    );
    let said = text(&two.shell(&script));
    assert_eq!(said, "side\nside\npushed\nclone\npacked\nshared\n");
    two.check();
}

/// Killed at any moment, a process leaves each volume with what it was told is there; each is
/// recovered alone, by a program that does not know of the other.
#[test]
fn each_recovers_by_itself() {
    let two = TwoVolumes::new("killed");
    let program = two.program("on_both");
    let notes = two.place.0.join("notes");
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let rounds = if rotation::all() { 200 } else { 10 };
    for round in 0..rounds {
        std::fs::write(&notes, [0; 4096]).expect("the notes");
        let mut command = two.direct(&program);
        command.args([FIRST, PREFIX]).arg(&notes).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program runs");
        child.stdout.as_mut().expect("its output").read_exact(&mut [0]).expect("it begins");
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        let noted = std::fs::read(&notes).expect("the notes");
        let word =
            |at: usize| u64::from_le_bytes(noted[at * 8..at * 8 + 8].try_into().expect("a word"));
        for (number, volume) in two.volumes.iter().enumerate() {
            let (record, name) = (word(number * 2), word(number * 2 + 1));
            let told = format!("round {round}, volume {number}: {record} and {name} noted");
            judge(volume, record, name, &told);
        }
    }
    two.check();
}

fn judge(volume: &Path, record: u64, name: u64, told: &str) {
    let alone = |script: &str| {
        let mut command = served("sh", &[(volume, PREFIX)]);
        text(&command.args(["-ec", &format!("cd {PREFIX}; {script}")]).output().expect("sh runs"))
    };
    let records = alone("cat records");
    let number = |line: &str| line.parse().unwrap_or_else(|_| panic!("{told}: {line:?}"));
    let numbers: Vec<u64> = records.lines().map(number).collect();
    let last = numbers.len() as u64;
    assert!(numbers.iter().copied().eq(1..=last), "{told}: {numbers:?}");
    assert!(last == record || last == record + 1, "{told}: the last is {last}");
    let names = alone("echo name-*");
    let expected = [name, name + 1].map(|number| format!("name-{number}\n"));
    assert!(expected.contains(&names), "{told}: {names}");
    alone("rm -f records child name-*");
    check_left_in_order(volume);
}
