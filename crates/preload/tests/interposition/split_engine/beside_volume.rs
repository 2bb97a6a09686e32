//! The second engine beside a volume, in one program: what goes between the two compared with two
//! file systems of the kernel's, the programs of other tests on each of them while the other is
//! there as well, and deaths, after which each recovers by itself.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::mounted::{Mounted, Small};
use crate::support::{
    Random, TestDir, assert_same, check_left_in_order, compile, format, is_installed, library,
    only_the_table_is_left, text,
};

const MODES: [&str; 3] = ["posix", "sync", "strict"];

/// A volume, and a directory of the kernel's beside the path where it is seen.
struct VolumeAndDirectory {
    place: TestDir,
    /// Where the volume is seen.
    at: PathBuf,
    directory: PathBuf,
}

impl VolumeAndDirectory {
    /// With the directory below `ground`, which is a file system of its own, or in the place.
    fn new(name: &str, ground: Option<&Path>) -> Self {
        let place = TestDir::new(&format!("beside-{name}"));
        let at = ground.unwrap_or(&place.0).join("volume");
        let directory = ground.unwrap_or(&place.0).join("served");
        std::fs::create_dir_all(&directory).expect("a directory");
        format(&place.volume());
        Self { place, at, directory }
    }

    fn program(&self, name: &str) -> PathBuf {
        let program = self.place.0.join(name);
        compile(&format!("{name}.c"), &program, &["-O1", "-D_FORTIFY_SOURCE=2"]);
        program
    }

    /// A command that has both, in this mode, and serves each file at once.
    fn direct(&self, program: impl AsRef<std::ffi::OsStr>, mode: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env("SOLERA_VOLUME", self.place.volume());
        command.env("SOLERA_AT", &self.at).env("SOLERA_MODE", mode);
        command.env("SOLERA_SPLIT", &self.directory).env("SOLERA_EMULATE", "1");
        command.env("SOLERA_SPLIT_PATIENCE", "0").env("SOLERA_SPLIT_MODE", mode);
        command
    }

    /// As above, ended in time.
    fn both(&self, program: impl AsRef<std::ffi::OsStr>, mode: &str) -> Command {
        let mut command = self.direct("timeout", mode);
        command.args(["-k", "5", "120"]).arg(program);
        command
    }

    fn shell(&self, script: &str) -> Output {
        let script = script.replace("@V", &self.at.to_string_lossy());
        let script = script.replace("@S", &self.directory.to_string_lossy());
        self.both("bash", "strict").args(["-ec", &script]).output().expect("bash runs")
    }

    /// The names of the two, taken out of what a program says.
    fn without_names(&self, said: &str) -> String {
        said.replace(&*self.at.to_string_lossy(), "@")
            .replace(&*self.directory.to_string_lossy(), "@")
    }

    /// Nobody has either, and nothing is left to be recovered.
    fn check(&self) {
        check_left_in_order(&self.place.volume());
        let recovered = split::recover(&self.directory).expect("recover");
        assert_eq!((recovered.runs, recovered.gone), (0, 0));
        only_the_table_is_left(&self.directory);
        assert!(!self.at.exists(), "what was written is on the kernel's file system");
    }
}

/// A program of two paths on two file systems of the kernel's, and on both of ours in each order.
fn between(name: &str, both: &VolumeAndDirectory, modes: &[&str]) {
    let program = both.program(name);
    let mounts = ["one", "other"].map(|name| Small::new(both.place.0.join(name), "size=64m"));
    let [Some(one), Some(other)] = mounts else {
        eprintln!("skipped: two tmpfs cannot be mounted here");
        return;
    };
    let expected = Command::new(&program).args([&one.0, &other.0]).arg("unlike").output();
    let expected = text(&expected.expect("the program runs"));
    let plain = |path: &Path| path.to_string_lossy().into_owned();
    let expected = expected.replace(&plain(&one.0), "@").replace(&plain(&other.0), "@");
    for mode in modes {
        for turned in [false, true] {
            let mut order = [&both.at, &both.directory];
            if turned {
                order.reverse();
            }
            let output = both.both(&program, mode).args(order).arg("unlike").output();
            let found = both.without_names(&text(&output.expect("the program runs")));
            assert_same(&format!("{name}, {mode}, turned {turned}"), &expected, &found);
            text(&both.shell("rm -rf @V/* @S/*"));
        }
    }
    both.check();
}

#[test]
fn between_two() {
    let own = TestDir::new("beside-between");
    let Some(ground) = Small::new(own.0.join("ground"), "size=128m") else {
        eprintln!("skipped: a tmpfs cannot be mounted here");
        return;
    };
    between("several", &VolumeAndDirectory::new("several", Some(&ground.0)), &MODES);
}

#[test]
fn what_is_on_its_way_is_found() {
    between("beside", &VolumeAndDirectory::new("beside", None), &MODES);
}

fn on(kind: &str) {
    let Some(mounted) = Mounted::new(kind) else {
        eprintln!("skipped: {kind} cannot be made and mounted here");
        return;
    };
    between(
        "beside",
        &VolumeAndDirectory::new(&format!("on-{kind}"), Some(&mounted.at)),
        &["posix", "strict"],
    );
}

#[test]
fn over_ext4() {
    on("ext4");
}

#[test]
fn over_xfs_by_exchange() {
    on("exchange");
}

/// A quarter of the programs, by rotation.
fn in_turn<'a>(what: &str, names: &[&'a str]) -> Vec<&'a str> {
    let chosen = |name: &&str| rotation::chosen(&format!("{what}/{name}"), 4);
    names.iter().copied().filter(chosen).collect()
}

/// Programs of the other tests below the directory, beside the volume.
#[test]
fn programs_over_the_directory() {
    let both = VolumeAndDirectory::new("over", None);
    let names = [
        "beneath", "files", "streams", "mapping", "sparse", "splice", "sockets", "threads",
        "messages", "moving", "buffers", "forks", "signals", "safety", "seen",
    ];
    for name in in_turn("beside-volume/over", &names) {
        let program = both.program(name);
        let plain = both.place.0.join("reference");
        let expected = text(&crate::support::run(&program, &plain, None));
        let expected = expected.replace(&*plain.to_string_lossy(), "@");
        for mode in ["posix", "strict"] {
            let below = both.directory.join(format!("{name}-{mode}"));
            std::fs::create_dir(&below).expect("a directory");
            let output = both.both(&program, mode).arg(&below).output();
            let found = text(&output.expect("the program runs"));
            let found = found.replace(&*below.to_string_lossy(), "@");
            assert_same(&format!("{name}, {mode}"), &expected, &found);
        }
        let _ = std::fs::remove_dir_all(&plain);
        std::fs::create_dir(&plain).expect("a directory");
    }
    both.check();
}

/// The same on the volume, beside the directory. Not `numbers`: the second engine keeps its own.
#[test]
fn programs_on_the_volume() {
    let names = [
        "files",
        "names",
        "streams",
        "links",
        "splice",
        "outside",
        "mapping",
        "holes",
        "messages",
        "control",
        "reused",
        "processes",
        "forks",
        "executes",
        "exits",
        "threads",
        "fifos",
        "signals",
        "closed",
    ];
    for name in in_turn("beside-volume/on", &names) {
        let both = VolumeAndDirectory::new(name, None);
        let program = both.program(name);
        let reference = both.place.0.join("reference");
        let expected = text(&crate::support::run(&program, &reference, None));
        let output = both.both(&program, "strict").arg(&both.at).output();
        let found = text(&output.expect("the program runs"));
        assert_same(name, &expected, &found);
        both.check();
    }
}

/// What `mv` and `cp` do when a file cannot be renamed, and programs that lie on either.
#[test]
fn tools_move_and_copy() {
    let both = VolumeAndDirectory::new("tools", None);
    let script =
        "cd @V; mkdir -p tree/deep; echo a > tree/a; ln -s a tree/link; ln tree/a tree/hard
         head -c 3000000 /dev/urandom > tree/deep/large; chmod 751 tree/deep; mkfifo tree/fifo
         cp -a tree @S/copy; diff -r --no-dereference --exclude=fifo tree @S/copy
         mv @S/copy moved; ! test -e @S/copy
         diff -r --no-dereference --exclude=fifo tree moved
         [ $(stat -c %a moved/deep) = 751 ] && [ -p moved/fifo ] && [ moved/a -ef moved/hard ]
         mv tree/a moved/deep/large @S; cmp tree/deep/large @S/large; rm @S/a
         tar cf - moved | tar xf - -C @S; diff -r --exclude=fifo moved @S/moved
         ! ln moved/hard @S/hard 2>/dev/null; ln -s @V/moved/hard @S/hard
         cat @S/hard; cat @S/large >> @S/more; tail -c 5 @S/more | cmp - <(tail -c 5 @S/large)
         cp /bin/cat @V/cat; cp /bin/cat @S/cat; cd @S; echo text > t; @V/cat t; ./cat @V/moved/hard
         printf '#!@V/cat\\n' > script; chmod 755 script; ./script | wc -l; ln -s @V/cat linked
         ./linked t; env -i ./linked t @V/moved/hard; cd @V; @S/cat moved/hard
         exec 5>> @S/log 6>> @V/log; for i in 1 2 3; do echo $i >&5; echo $i >&6; done
         (echo 4 >&5; echo 4 >&6); sh -c 'echo 5 >&5; echo 5 >&6'; cmp @S/log log; wc -l < log";
    assert_eq!(text(&both.shell(script)), "a\ntext\na\n1\ntext\ntext\na\na\n5\n");
    both.check();
}

#[test]
fn rsync_and_git_between_the_two() {
    if !is_installed("rsync") || !is_installed("git") {
        return;
    }
    let both = VolumeAndDirectory::new("rsync", None);
    let script = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_AUTHOR_NAME=A
         export GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=A GIT_PAGER=cat
         export GIT_COMMITTER_EMAIL=a@example.org
         cd @S; for d in 1 2 3 4 5; do mkdir -p t/$d; for f in 1 2 3 4 5 6 7 8; do
             head -c $((f * 7777 + d)) /dev/urandom > t/$d/$f; done; done
         ln -s 1/2 t/link; ln t/1/1 t/hard; touch -d '2001-02-03 04:05:06.7' t/2/2
         rsync -aHX t/ @V/t/; diff -r --no-dereference t @V/t
         echo more >> t/1/1; rm t/5/5; rsync -aH --delete --inplace t/ @V/t/
         diff -r --no-dereference t @V/t; ! test -e @V/t/5/5
         rsync -aHn --itemize-changes --delete t/ @V/t/ | wc -l
         rsync -aH --remove-source-files @V/t/ back/; diff -r --no-dereference t back
         git init -q -b main @S/repo; cd @S/repo; cp -r ../t .; git add .; git commit -qm one
         git clone -q . @V/clone; diff -r --exclude=.git . @V/clone; git -C @V/clone fsck --strict
         cd @V/clone; echo pushed > side; git add side; git commit -qm side
         git push -q origin HEAD:refs/heads/pushed; git -C @S/repo show pushed:side
         git worktree add -q -b other @S/tree; diff -r --exclude=.git . @S/tree; ls @S";
    assert_eq!(text(&both.shell(script)), "0\npushed\nback\nrepo\nt\ntree\n");
    both.check();
}

/// Killed at any moment, a process leaves in each what it was told is there; each recovers alone,
/// by a program that does not know of the other.
#[test]
fn each_recovers_by_itself() {
    let both = VolumeAndDirectory::new("killed", None);
    let program = both.program("on_both");
    let notes = both.place.0.join("notes");
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let rounds = if rotation::all() { 200 } else { 12 };
    for round in 0..rounds {
        std::fs::write(&notes, [0; 4096]).expect("the notes");
        let mut command = both.direct(&program, ["strict", "sync"][round % 2]);
        command.args([&both.at, &both.directory]).arg(&notes).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program runs");
        child.stdout.as_mut().expect("its output").read_exact(&mut [0]).expect("it begins");
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        let noted = std::fs::read(&notes).expect("the notes");
        let word =
            |at: usize| u64::from_le_bytes(noted[at * 8..at * 8 + 8].try_into().expect("a word"));
        split::recover(&both.directory).expect("recover");
        let alone = |served: bool, script: &str| {
            let mut command = Command::new("sh");
            if served {
                command.env("LD_PRELOAD", library()).env("SOLERA_VOLUME", both.place.volume());
                command.env("SOLERA_AT", &both.at);
            }
            let directory = if served { &both.at } else { &both.directory };
            let script = format!("cd {}; {script}", directory.display());
            text(&command.args(["-ec", &script]).output().expect("sh runs"))
        };
        for (number, served) in [true, false].into_iter().enumerate() {
            let (record, name) = (word(number * 2), word(number * 2 + 1));
            let told = format!("round {round}, {number}: {record} and {name} noted");
            let numbers: Vec<u64> = alone(served, "cat records")
                .lines()
                .map(|line| line.parse().unwrap_or_else(|_| panic!("{told}: {line:?}")))
                .collect();
            let last = numbers.len() as u64;
            assert!(numbers.iter().copied().eq(1..=last), "{told}: {numbers:?}");
            assert!(last == record || last == record + 1, "{told}: the last is {last}");
            let names = alone(served, "echo name-*");
            let expected = [name, name + 1].map(|number| format!("name-{number}\n"));
            assert!(expected.contains(&names), "{told}: {names}");
            alone(served, "rm -f records child name-*");
        }
        check_left_in_order(&both.place.volume());
    }
}
