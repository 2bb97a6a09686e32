//! Programs that no library can enter, on a volume that is not mounted: a keeper mounts it for
//! them, where nobody else sees that, and only for as long as they live.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;

use crate::support::{
    Ran, TestDir, as_user, can_change_user, can_mount, command, compiled, copy_program, solera,
};

/// A user that is not root.
const OTHER: u32 = 1000;

/// A volume that is not mounted, where it is to be seen, and a program of 32 bits.
struct Stage {
    place: TestDir,
    volume: String,
    at: String,
    program: String,
}

impl Stage {
    /// `None`: nothing can be tested here.
    fn new() -> Option<Self> {
        let place = TestDir::new();
        let program = compiled(
            "cli/tests/support/foreign.c",
            &["-m32", "-nostdlib", "-static", "-no-pie", "-fno-stack-protector", "-ffreestanding"],
        );
        let runs = Command::new(&program).args(["exit", "0"]).status().is_ok_and(|it| it.success());
        if !runs {
            eprintln!("this kernel runs no program of 32 bits: nothing tested");
        }
        if !runs || !can_mount() || !can_change_user() {
            return None;
        }
        leave_other_mounts();
        let volume = place.volume("64M");
        let at = place.prefix();
        Some(Self { place, volume, at, program })
    }

    fn command(&self) -> Command {
        let mut command = command();
        command.args(["run", "--volume", &self.volume, "--at", &self.at, "--"]);
        command.env("AT", &self.at).env("F", &self.program).env("DIR", self.place.text(""));
        command
    }

    /// Runs a shell's line, which has `$AT`, `$F`, the program, and `$DIR`.
    fn shell(&self, line: &str) -> Ran {
        Ran::of(self.command().args(["sh", "-c", line]))
    }

    /// The processes that keep mounts of the volume.
    fn keepers(&self) -> Vec<u32> {
        let of_volume = |process: &u32| {
            let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            let mut words = line.split(|&byte| byte == 0).skip(1);
            words.next() == Some(b"keeper") && words.next() == Some(self.volume.as_bytes())
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter(of_volume).collect()
    }

    /// Waits until no keeper is left.
    #[track_caller]
    fn wait_for_end(&self) {
        let begin = Instant::now();
        while !self.keepers().is_empty() {
            assert!(begin.elapsed() < Duration::from_mins(1), "a keeper stays");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A copy of a program with these mode bits, which belongs to another user.
    fn with_rights(&self, program: &str, name: &str, mode: u32) {
        let copy = self.place.path(name);
        copy_program(program, &copy);
        chown(&copy, Some(OTHER), Some(OTHER)).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Gives this thread, and what it starts, a name space of mounts of its own, without those of other
/// tests: a copy of them in a keeper's would outlast their end, since here mounts are private, and
/// what is mounted changes where they remove the directory beneath one, which makes another keeper.
fn leave_other_mounts() {
    // SAFETY: descriptors stay shared; this thread alone has another working directory.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
    let apart = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", apart).unwrap();
    let listed = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    let is_temporary = |at: &str| ["/dev/shm/", "/tmp/"].iter().any(|above| at.starts_with(above));
    // The uppermost first.
    for line in listed.lines().rev() {
        let at = line.split(' ').nth(4).unwrap();
        if line.contains(" fuse.solera ") || is_temporary(at) {
            // Its own test may be about to unmount it.
            let _ = rustix::mount::unmount(at, UnmountFlags::DETACH);
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for keeper in self.keepers() {
            let _ = Command::new("kill").args(["-KILL", &keeper.to_string()]).status();
        }
    }
}

/// They were refused. They see the same bytes, inherit the same descriptions, and start where the
/// program before them was.
#[test]
fn they_see_the_volume() {
    let Some(stage) = Stage::new() else { return };
    let said = stage.shell(
        "set -e; echo one > $AT/f; $F cat $AT/f; $F append $AT/f two; cat $AT/f
         { echo a; $F say b; echo c; $F say d; } > $AT/out; cat $AT/out
         { read x; echo -$x; $F line; read x; echo -$x; } < $AT/out
         mkdir $AT/dir; cd $AT/dir; $F pwd; $F append new three; cat new; rm new
         cd $DIR; $F pwd; cd /; $F pwd; $F say piped | cat; exec 7>> $AT/f; $F say four >&7
         cp $F $AT/own; cd $AT; ./own say on-it; $AT/own cat dir/../f
         printf '#!%s/own cat\\n' $AT > script; chmod +x script; ./script; $F run ./script",
    );
    let (at, dir) = (&stage.at, stage.place.text(""));
    let dir = dir.trim_end_matches('/');
    let script = format!("#!{at}/own cat\n");
    let expected = format!(
        "one\none\ntwo\na\nb\nc\nd\n-a\nb\n-c\n{at}/dir\nthree\n{dir}\n/\npiped\non-it\n\
         one\ntwo\nfour\n{script}{script}"
    );
    assert_eq!(said.ok(), expected);
    // The program itself.
    let own = |arguments: &[&str]| Ran::of(stage.command().arg(&stage.program).args(arguments));
    assert_eq!(own(&["cat", &format!("{at}/f")]).ok(), "one\ntwo\nfour\n");
    own(&["exit", "42"]).ended_with(42);
    let on_it = Ran::of(stage.command().args([&format!("{at}/own"), "say", "itself"]));
    assert_eq!(on_it.ok(), "itself\n");
}

/// Whatever starts them: the C library's ways, a thread, `make`, another such program, `solera run`
/// in `solera run`.
#[test]
fn whatever_starts_them() {
    let Some(stage) = Stage::new() else { return };
    stage.shell("echo one > $AT/f").ok();
    let script = "cli/tests/mounts/keeper.py";
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(script);
    let said = Ran::of(stage.command().args(["python3", script.to_str().unwrap()]));
    assert_eq!(said.ok(), "right\n");
    stage.shell("echo one > $AT/f").ok();
    fs::write(stage.place.path("Makefile"), "all:\n\t@$(F) cat $(AT)/f\n\t@$(F) exit 3\n").unwrap();
    let made = stage.shell("unset MAKEFLAGS MAKELEVEL; make -f $DIR/Makefile").ended_with(2);
    assert!(made.out.starts_with("one\n") && made.err.contains("Error 3"), "{}", made.err);
    let solera = command().get_program().to_str().unwrap().to_owned();
    let line = format!(
        "$F run $F cat $AT/f; env -i $F cat $AT/f; {solera} run -- $F cat $AT/f 2> $DIR/told
         $F run /bin/sh -c \"$F cat $AT/f; cat $AT/f; cd $AT; /bin/pwd; env -i /bin/cat f\"
         $F exit 5; echo $?; sh -c '$F kill 15' 2> $DIR/told; echo $?"
    );
    let said = stage.shell(&line).ok();
    let at = &stage.at;
    assert_eq!(said, format!("one\none\none\none\none\n{at}\none\n5\n143\n"));
}

/// Set-user-id and set-group-id programs get their user, and see what that user may see.
#[test]
fn they_keep_their_rights() {
    let Some(stage) = Stage::new() else { return };
    stage.with_rights("/usr/bin/id", "id", 0o6755);
    stage.with_rights("/usr/bin/id", "group-id", 0o2755);
    stage.with_rights("/bin/cat", "cat", 0o4755);
    stage.with_rights("/bin/tee", "tee", 0o4755);
    fs::set_permissions(stage.place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let said = stage.shell(
        "echo open > $AT/f; echo closed > $AT/closed; chmod 600 $AT/closed
         $DIR/id -u; $DIR/id -g; $DIR/group-id -u; $DIR/group-id -g; cd $DIR; ./id -u
         ./cat $AT/f; ./cat $AT/closed || echo $?; ./cat < $AT/closed; cd $AT; $DIR/cat f
         mkdir theirs; chmod 777 theirs; echo new | $DIR/tee theirs/f; stat -c %u theirs/f",
    );
    assert!(said.err.contains("closed: Permission denied"), "{}", said.err);
    let expected = "1000\n1000\n0\n1000\n1000\nopen\n1\nclosed\nopen\nnew\n1000\n";
    assert_eq!(said.ok(), expected);
}

/// One mount for all, which lasts while one of them lives, and two seconds more; nobody else sees
/// it.
#[test]
fn the_mount_goes_with_the_last_of_them() {
    let Some(stage) = Stage::new() else { return };
    let mut shell = stage
        .command()
        .args(["sh", "-c", "$F wait $AT/go & echo x > $AT/begun; wait $!; $F cat $AT/go"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while stage.keepers().is_empty() {
        assert!(begin.elapsed() < Duration::from_mins(1), "no keeper");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Longer than a keeper stays by itself.
    std::thread::sleep(Duration::from_secs(3));
    let first = stage.keepers();
    assert_eq!(first.len(), 1);
    let lists = |who: &str| fs::read_to_string(format!("/proc/{who}/mountinfo")).unwrap();
    assert!(!lists("thread-self").contains(&stage.at));
    assert!(!lists(&first[0].to_string()).contains(&stage.at), "the keeper is outside");
    assert!(!Path::new(&stage.at).exists());
    stage.shell("$F cat $AT/begun").ok();
    assert_eq!(stage.keepers(), first, "the second finds the first one's");
    let attached = solera(["info", "--json", &stage.volume]).ok();
    assert!(attached.contains(&first[0].to_string()), "{attached}");
    stage.shell("echo end > $AT/go").ok();
    assert!(shell.wait().unwrap().success());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut shell.stdout.take().unwrap(), &mut said).unwrap();
    assert_eq!(said, "end\n");
    stage.wait_for_end();
    assert!(solera(["info", &stage.volume]).ok().contains("no process"));
    solera(["fsck", &stage.volume]).ok();
}

/// What such a program leaves behind keeps the mount as well, though the keeper does not know it.
#[test]
fn what_they_leave_behind_keeps_it() {
    let Some(stage) = Stage::new() else { return };
    // Beside the prefix such a program makes no new file.
    fs::write(stage.place.path("said"), "").unwrap();
    stage
        .shell(
            "echo late > $AT/f; $F run /usr/bin/env -i /bin/sh -c \
             \"(sleep 4; cat $AT/f; grep -c $AT /proc/self/mountinfo) > $DIR/said 2>&1 &\"",
        )
        .ok();
    stage.wait_for_end();
    assert_eq!(fs::read_to_string(stage.place.path("said")).unwrap(), "late\n1\n");
    assert!(solera(["info", &stage.volume]).ok().contains("no process"));
}

/// Many that ask at once; keepers that die.
#[test]
fn many_ask_and_keepers_die() {
    let Some(stage) = Stage::new() else { return };
    let line = "for i in 1 2 3 4 5 6 7 8; do $F append $AT/f $i & done; wait; sort $AT/f";
    assert_eq!(stage.shell(line).ok(), "1\n2\n3\n4\n5\n6\n7\n8\n");
    for keeper in stage.keepers() {
        Command::new("kill").args(["-KILL", &keeper.to_string()]).status().unwrap();
    }
    assert_eq!(stage.shell("$F append $AT/g x; $F cat $AT/g").ok(), "x\n");
    stage.wait_for_end();
    solera(["fsck", &stage.volume]).ok();
}

/// Two that ask at once: the second found the first one's name, at which nobody listened yet, and
/// started a keeper of its own.
#[test]
fn who_comes_before_it_listens_waits() {
    let Some(stage) = Stage::new() else { return };
    let mut strace = Command::new("strace");
    let log = stage.place.text("log");
    strace.args(["-f", "-qq", "-o", &log, "-e", "trace=listen,connect"]);
    strace.args(["-e", "inject=listen:delay_enter=30000"]);
    let run = stage.command();
    strace.arg(run.get_program()).args(run.get_args());
    strace.args(["sh", "-c", "for i in 1 2 3 4; do $F append $AT/f $i & done; wait"]);
    strace.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let Ok(ended) = strace.status() else {
        eprintln!("strace cannot be had: nothing tested");
        return;
    };
    assert!(ended.success());
    let traced = fs::read_to_string(&log).unwrap();
    let begun = traced.lines().filter(|line| line.contains("listen(")).count();
    assert_eq!(begun, 1, "{traced}");
}

/// A keeper of a user name space is not that of others, whose programs may not enter its mounts.
#[test]
fn other_name_spaces_have_other_keepers() {
    let Some(stage) = Stage::new() else { return };
    let inner = "unshare -r true 2> $DIR/told || exit 77
        unshare -r sh -c '$F cat $AT/f'; $F cat $AT/f; unshare -m $F cat $AT/f; $F cat $AT/f";
    let said = stage.shell(&format!("echo x > $DIR/told; echo one > $AT/f; {inner}"));
    if said.code == 77 {
        eprintln!("there are no user name spaces: not tested");
        return;
    }
    assert_eq!(said.ok(), "one\none\none\none\n");
}

/// A prefix that is there, and one that is not: what lies beside it is there by both, and by the
/// second nothing new is made there.
#[test]
fn what_lies_beside_the_prefix() {
    let Some(stage) = Stage::new() else { return };
    let line =
        "cd $DIR; echo 1 > old; ln -s old link; $F append link 2; $F cat old; $F append new x
                echo $?; $F cat $AT/../old; rm -f old link new; echo 3 > $AT/f; $F cat $AT/f";
    // EROFS
    assert_eq!(stage.shell(line).ok(), "1\n2\n30\n1\n2\n3\n");
    fs::create_dir(&stage.at).unwrap();
    assert_eq!(stage.shell(line).ok(), "1\n2\n0\n1\n2\n3\n");
    assert_eq!(fs::read_dir(&stage.at).unwrap().count(), 0);
}

/// What cannot be changed, and what the dynamic loader is told of.
#[test]
fn other_ways() {
    let Some(stage) = Stage::new() else { return };
    stage.shell("echo one > $AT/f; cp /bin/cat $AT/cat").ok();
    let (at, loader) = (&stage.at, "/lib64/ld-linux-x86-64.so.2");
    let line = format!("{loader} $AT/cat $AT/f; {loader} --help > $AT/help; head -c 5 $AT/help");
    assert_eq!(stage.shell(&line).ok(), "one\nUsage");
    let read_only = ["run", "--read-only", "--volume", &stage.volume, "--at", at, "--", "sh", "-c"];
    let line = "$0 cat $1/f; $0 append $1/f two; echo $?";
    let said = solera(read_only.iter().chain(&[line, &stage.program, at]));
    assert_eq!(said.ok(), "one\n30\n");
}

/// Who may not mount is refused as before, and told why; so is who wants none.
#[test]
fn without_a_mount_they_are_refused() {
    let Some(stage) = Stage::new() else { return };
    stage.shell("echo one > $AT/f").ok();
    let words = ["not a 64-bit x86 program", "solera mount"];
    let without =
        |program: &[&str]| Ran::of(stage.command().env("SOLERA_KEEPER", "").args(program));
    without(&[&stage.program, "say", "x"]).refused(126, &words);
    let said = without(&["sh", "-c", "$F cat $AT/f || echo $?; $F say unseen"]);
    assert!(said.err.contains("no 64-bit x86 program"), "{}", said.err);
    assert_eq!(said.ok(), "126\nunseen\n");
    // One that cannot be started.
    let mut command = stage.command();
    command.env("SOLERA_KEEPER", "/bin/false").args([&stage.program, "say", "x"]);
    let said = Ran::of(&mut command).ended_with(126);
    assert!(said.err.contains("/bin/false does not start as its keeper"), "{}", said.err);
    assert_eq!(said.out, "");

    let program = stage.place.for_everyone();
    let theirs = stage.place.text("theirs");
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(OTHER), Some(OTHER)).unwrap();
    let volume = format!("{theirs}/v.pm");
    Ran::of(as_user(OTHER, "", &program).args(["format", "--size", "64M", &volume])).ok();
    assert_eq!(fs::metadata(&volume).unwrap().uid(), OTHER);
    let foreign = stage.place.text("foreign");
    copy_program(&stage.program, &foreign);
    let mut run = as_user(OTHER, "", &program);
    run.args(["run", "--volume", &volume, "--at", &stage.at, "--", &foreign, "say", "x"]);
    Ran::of(&mut run).refused(126, &words);
    stage.wait_for_end();
}
