//! `solera run` with several volumes: named on one command line, or one more inside a program that
//! is served already; a mount, or a directory that is served, beside a volume that is named; and
//! what is refused.

use std::fs;
use std::path::Path;

use crate::support::{Mounted, Ran, TestDir, can_mount, command, compile, solera};

/// Volumes of a place, and where each is to be seen.
struct Volumes {
    place: TestDir,
    files: Vec<String>,
    prefixes: Vec<String>,
}

impl Volumes {
    fn new(count: usize) -> Self {
        let place = TestDir::new();
        let volume = |number: usize| {
            let path = place.text(&format!("{number}.pm"));
            solera(["format", "--size", "64M", &path]).ok();
            path
        };
        let files = (1..=count).map(volume).collect();
        let prefixes = (1..=count).map(|number| place.text(&format!("at-{number}"))).collect();
        Self { place, files, prefixes }
    }

    /// The options that name the first ones.
    fn named(&self, count: usize) -> Vec<&str> {
        let both = self.files.iter().zip(&self.prefixes).take(count);
        both.flat_map(|(volume, at)| ["--volume", volume, "--at", at]).collect()
    }

    /// A shell line; `$S` is the command, `$V1` the first volume and `$A1` where it is to be.
    fn line(&self, options: &[&str], line: &str) -> Ran {
        let mut run = command();
        run.env("S", env!("CARGO_BIN_EXE_solera")).arg("run").args(options);
        run.current_dir(self.place.path(""));
        for (number, (volume, at)) in (1..).zip(self.files.iter().zip(&self.prefixes)) {
            run.env(format!("V{number}"), volume).env(format!("A{number}"), at);
        }
        Ran::of(run.args(["--", "sh", "-c", line]))
    }

    /// Each is in order, and nothing was written beneath.
    fn check(&self) {
        for (volume, at) in self.files.iter().zip(&self.prefixes) {
            solera(["fsck", volume]).ok();
            assert!(!fs::exists(at).unwrap(), "{at} is on the disk");
        }
    }
}

#[test]
fn each_path_is_served_by_its_volume() {
    let both = Volumes::new(2);
    let line = "echo 1 > $A1/f; echo 2 > $A2/f; cp $A1/f $A2/g; mv $A2/f $A1/h; cat $A1/f $A1/h";
    assert_eq!(both.line(&both.named(2), line).ok(), "1\n2\n");
    // In the other order, and each alone.
    let [one, other] = [0, 1].map(|number| (&*both.files[number], &*both.prefixes[number]));
    let turned = ["--volume", other.0, "--at", other.1, "--volume", one.0, "--at", one.1];
    assert_eq!(both.line(&turned, "ls $A1; cat $A2/g; exit 7").ended_with(7).out, "f\nh\n1\n");
    assert_eq!(solera(["ls", one.0]).ok(), "f\nh\n");
    assert_eq!(both.line(&both.named(1), "ls $A1; ls $A2").ended_with(2).out, "f\nh\n");
    // Options in any order: the first path is the first volume's.
    let apart = ["--volume", one.0, "--volume", other.0, "--at", one.1, "--at", other.1];
    assert_eq!(both.line(&apart, "ls $A2; echo $$ >&2; kill -9 $$").ended_with(1009).out, "g\n");
    both.check();
}

/// All that is started has both, and a program may lie on either.
#[test]
fn what_is_started_has_both() {
    let both = Volumes::new(2);
    let named = both.named(2);
    both.line(&named, "cp /bin/cat $A2/cat; cp /bin/sh $A1/sh; echo text > $A1/f").ok();
    let cat = format!("{}/cat", both.prefixes[1]);
    let file = format!("{}/f", both.prefixes[0]);
    let of_second = [&["run"], &named[..], &["--", &cat, &file]].concat();
    assert_eq!(solera(&of_second).ok(), "text\n");
    let line = "cd $A1; env -i PATH=/bin $A1/sh -c \"cd $A2; exec ./cat $A1/f\"; \
                exec $S run -- cat f";
    let ran = both.line(&named, line).ended_with(0);
    assert_eq!(ran.out, "text\ntext\n");
    let [one, other] = [&both.prefixes[0], &both.prefixes[1]];
    for told in both.files.iter().chain([one, other]) {
        assert!(ran.err.contains(told), "{told}: {}", ran.err);
    }
    let require = |at: &str| both.line(&[&named[..], &["--require", at]].concat(), "true");
    require(one).ok();
    require(other).ok();
    require("/etc").refused(125, &["/etc", "no volume"]);
    let report = both.place.text("report");
    let line = "/usr/sbin/chroot $A1 true; /usr/sbin/chroot $A2 true; true";
    both.line(&[&named[..], &["--report", "--report-file", &report]].concat(), line).ended_with(0);
    let told = fs::read_to_string(&report).unwrap();
    for at in [one, other] {
        let root = |line: &&str| line.contains("chroot-onto-volume") && line.contains(&**at);
        let root = told.lines().find(root).unwrap_or_default();
        assert!(root.ends_with(" 1"), "{told}");
    }
    both.check();
}

#[test]
fn wrong_combinations_are_refused() {
    let both = Volumes::new(2);
    let [one, other] = [&*both.files[0], &*both.files[1]];
    let [at, next] = [&*both.prefixes[0], &*both.prefixes[1]];
    let (v, a) = ("--volume", "--at");
    let refused = |options: &[&str], words: &[&str]| both.line(options, "true").refused(125, words);
    // Not as many paths as volumes.
    let counts = "say for each volume where the program is to see it";
    refused(&[v, one, v, other, a, at], &["2 --volume and 1 --at", counts]);
    refused(&[v, one, a, at, a, next], &["1 --volume and 2 --at", counts]);
    refused(&[v, one, v, other], &["2 --volume and 0 --at", counts]);
    refused(&[a, at, a, next], &[at, "no volume is mounted there", "--volume"]);
    // One volume at two places, by whatever name.
    let linked = both.place.text("linked.pm");
    std::os::unix::fs::symlink(one, &linked).unwrap();
    for again in [one, &linked] {
        refused(&[v, one, a, at, v, again, a, next], &[at, "give each volume once"]);
    }
    // One of which hides the other, or two at one.
    let below = format!("{at}/below");
    let winding = format!("{at}/../at-1/./x");
    for (first, second) in [(at, &*below), (&*below, at), (at, at), (at, &*winding)] {
        let named = [v, one, a, first, v, other, a, second];
        refused(&named, &[one, other, "choose paths of which none lies below another"]);
    }
    // What begins with the same letters does not lie below.
    let beside = format!("{at}-beside");
    both.line(&[v, one, a, at, v, other, a, &beside], "true").ok();
    // The second is looked at as the first is.
    let none = both.place.text("none.pm");
    refused(&[v, one, a, at, v, &none, a, next], &[&none, "check the path"]);
    refused(&[v, one, a, at, v, other, a, "relative"], &["relative", "absolute"]);
    refused(&[v, one, a, at, v, other, a, "/"], &["root directory"]);
    refused(&[v, one, a, at, v, other, a, "/etc"], &["/etc", "hidden"]);
    let foreign = both.place.text("foreign");
    fs::write(&foreign, vec![7; 1 << 16]).unwrap();
    refused(&[v, one, a, at, v, &foreign, a, next], &[&foreign]);
    // A directory that the program would not see.
    let hidden = both.place.text("hidden");
    fs::create_dir(&hidden).unwrap();
    refused(&[v, one, a, &hidden, "--split", &hidden], &[&hidden, one, "does not lie there"]);
    refused(&["--split", &hidden, "--no-guard"], &["--no-guard is about a volume"]);
    refused(&["--split", &hidden, "--class", "byte"], &["--class is about a volume"]);
    refused(&[v, one, a, at, "--split", "/no-such"], &["/no-such", "name a directory"]);
    both.check();
}

/// A directory of the kernel's beside a volume: each with its own mode, files and report.
#[test]
fn split_beside_a_volume() {
    let one = Volumes::new(1);
    let split = one.place.text("split");
    fs::create_dir(&split).unwrap();
    let both = [&one.named(1)[..], &["--split", &split]].concat();
    let line = |rest: &str| rest.replace("@S", &split);
    let served = line(
        "echo 1 > $A1/f; echo 2 > @S/f; cat $A1/f @S/f > $A1/g; mv @S/f $A1/h; cp $A1/g @S/g; \
         echo $SOLERA_MODE $SOLERA_SPLIT_MODE; cd @S; sh -c 'cat g $A1/h; exec 5>> g; echo 3 >&5; \
         exec $S run -- cat $A1/g g'",
    );
    let ran = one.line(&both, &served).ended_with(0);
    assert_eq!(ran.out, "strict posix\n1\n2\n2\n1\n2\n1\n2\n3\n", "{}", ran.err);
    assert!(ran.err.contains(&format!("and --split {split}")), "{}", ran.err);
    assert_eq!(solera(["ls", &one.files[0]]).ok(), "f\ng\nh\n");
    assert_eq!(fs::read(format!("{split}/g")).unwrap(), b"1\n2\n3\n");
    // Volumes and directories may be required; a mode is for both.
    let at = &*one.prefixes[0];
    for required in [at, &split] {
        let all = [&both[..], &["--require", required]].concat();
        one.line(&all, "true").ok();
    }
    let all = [&both[..], &["--mode", "strict"]].concat();
    one.line(&all, "true").refused(125, &[&split, "MAP_SYNC", "--emulate"]);
    let all = [&all[..], &["--emulate"]].concat();
    let ran = one.line(&all, "echo $SOLERA_MODE $SOLERA_SPLIT_MODE").ended_with(0);
    assert_eq!(ran.out, "strict strict\n");
    assert!(ran.err.contains("emulated memory"), "{}", ran.err);
    // The report has what both say.
    let report = one.place.text("report.json");
    let told = ["--report", "--report-file", &report, "--json"];
    let ran = [&both[..], &told].concat();
    let appends =
        line("i=0; exec 5>> @S/log; while [ $i -lt 20 ]; do echo $i >&5; i=$((i+1)); done");
    one.line(&ran, &format!("{appends}; /usr/sbin/chroot $A1 true; true")).ended_with(0);
    let report = fs::read_to_string(&report).unwrap();
    assert!(report.contains("chroot-onto-volume"), "{report}");
    assert!(report.contains("bytes-relinked"), "{report}");
    // The directory above the volume's path: what belongs to the volume stays its own.
    let above = one.place.text("");
    let line = "echo 5 > $A1/in; echo 6 > beside; cat $A1/in beside; ls -d $A1";
    let ran = one.line(&[&one.named(1)[..], &["--split", &above]].concat(), line).ended_with(0);
    assert_eq!(ran.out, format!("5\n6\n{at}\n"), "{}", ran.err);
    solera(["recover", &above]).ok();
    one.check();
}

/// Inside: a directory where there was none, and a volume where there was only a directory.
#[test]
fn split_comes_to_a_volume_inside() {
    let two = Volumes::new(2);
    let split = two.place.text("split");
    fs::create_dir(&split).unwrap();
    let line = |rest: &str| rest.replace("@S", &split);
    let inner = line(
        "cd $A1; echo 1 > f; exec 5>> @S/log; echo outer >&5; \
         $S run --split @S -- sh -c 'echo 2 > @S/f; cat f @S/f; echo inner >&5; \
         echo $SOLERA_MODE $SOLERA_SPLIT_MODE'; echo outer >&5; cat @S/log; \
         env -i PATH=$PATH A1=$A1 $S run --split @S --volume $V2 --at $A2 -- \
         sh -c 'cat @S/f > '$A2'/g; cat '$A2'/g $A1/f'",
    );
    let ran = two.line(&two.named(1), &inner).ended_with(0);
    let said = "1\n2\nstrict posix\nouter\ninner\nouter\n2\n1\n";
    assert_eq!(ran.out, said, "{}", ran.err);
    let inner = line(
        "cd @S; exec 5>> log; echo again >&5; \
         $S run --volume $V1 --at $A1 -- sh -c 'cat f $A1/f; echo more >&5; cp log $A1/log; \
         echo $SOLERA_MODE $SOLERA_SPLIT_MODE; $S run --volume $V2 --at $A2 -- cat $A2/g'; \
         tail -n 2 log; $S run -- sh -c 'ls $A1 || echo gone'",
    );
    let ran = two.line(&["--split", &split], &inner).ended_with(0);
    let said = "2\n1\nstrict posix\n2\nagain\nmore\ngone\n";
    assert_eq!(ran.out, said, "{}", ran.err);
    // What would be lost in silence is refused.
    let other = two.place.text("other");
    fs::create_dir(&other).unwrap();
    let both = [&two.named(1)[..], &["--split", &split]].concat();
    let inner = format!("$S run --split {other} -- true");
    two.line(&both, &inner).refused(125, &[&other, &split, "already"]);
    two.line(&both, "$S run --relink copy --split $PWD/split -- true")
        .refused(125, &["--relink copy", "give the option there"]);
    let inner = format!("$S run --volume $V2 --at {split} -- true");
    two.line(&both, &inner).refused(125, &[&split, "hidden"]);
    two.check();
}

/// As many as a descriptor can tell apart.
#[test]
fn sixteen_are_the_most() {
    let most = vfs::composite::MEMBERS_MAX;
    let all = Volumes::new(most + 1);
    let line = "for n in 1 5 16; do eval \"echo $n > \\$A$n/f\"; done; cat $A16/f $A1/f; ls $A2";
    assert_eq!(all.line(&all.named(most), line).ok(), "16\n1\n");
    let named = all.named(most + 1);
    all.line(&named, "true").refused(125, &["show 17 volumes", "can see 16", "mount the others"]);
    let line = "$S run --volume $V17 --at $A17 -- true";
    all.line(&all.named(most), line).refused(125, &["show 17 volumes", "can see 16"]);
    all.check();
}

/// One more inside: what it starts has both, what runs already goes on with its own.
#[test]
fn one_more_inside() {
    let three = Volumes::new(3);
    let first = three.named(1);
    let line = "cd $A1; echo 1 > f; exec 5>> f; $S run --volume $V2 --at $A2 -- sh -c \
                'pwd; cat f; echo 2 > $A2/f; cp f $A2/g; echo more >&5; \
                 $S run --volume $V3 --at $A3 -- sh -c \"echo 3 > \\$A3/f; \
                 cat f \\$A2/f \\$A3/f\"; ls $A3; exit 5'; echo $?; cat f; ls $A2; echo end";
    let ran = three.line(&first, line).ended_with(0);
    let at = &three.prefixes[0];
    assert_eq!(ran.out, format!("{at}\n1\n1\nmore\n2\n3\n5\n1\nmore\nend\n"), "{}", ran.err);
    assert_eq!(solera(["ls", &three.files[1]]).ok(), "f\ng\n");
    // Named once more, what is there is there; what is not comes to it.
    let line = "$S run --volume $V1 --at $A1 --volume $V3 --at $A3 -- cat $A1/f $A3/f; \
                $S run --volume $V1 -- cat $A1/f; env -i $S run --volume $V2 --at $A2 -- cat $A2/f";
    let line = line.replace("env -i", "env -i PATH=$PATH");
    assert_eq!(three.line(&first, &line).ok(), "1\nmore\n3\n1\nmore\n2\n");
    // A program that lies on the new one.
    let line = "$S run --volume $V2 --at $A2 -- cp /bin/cat $A2/cat; \
                $S run --volume $V2 --at $A2 -- $A2/cat $A2/f";
    assert_eq!(three.line(&first, line).ok(), "2\n");
    three.check();
}

/// Exit codes and refusals of the inner one.
#[test]
fn inside_it_refuses_as_outside() {
    let both = Volumes::new(2);
    let first = both.named(1);
    let inner = |rest: &str| both.line(&first, &format!("$S run {rest}"));
    let new = "--volume $V2 --at $A2";
    for code in [0, 3, 125, 126] {
        inner(&format!("{new} -- sh -c 'exit {code}'")).ended_with(code);
    }
    inner(&format!("{new} -- no-such-program")).ended_with(127);
    inner(&format!("{new} -- /etc/passwd")).ended_with(126);
    let [one, at] = [&*both.files[0], &*both.prefixes[0]];
    let other = &*both.files[1];
    inner("--volume $V1 --at $A2 -- true").refused(125, &[at, "give each volume once"]);
    inner("--volume $V2 --at $A1 -- true").refused(125, &[one, "none lies below another"]);
    inner("--volume $V2 --at $A1/x -- true").refused(125, &[one, other, "none lies below another"]);
    inner("--volume $V2 -- true").refused(125, &[other, "not mounted"]);
    inner("--at $A2 -- true").refused(125, &[&*both.prefixes[1], "no volume is mounted there"]);
    inner("--volume $V2 --volume $V2 --at $A2 -- true").refused(125, &["--volume and 1 --at"]);
    inner("--volume none.pm --at $A2 -- true").refused(125, &["none.pm", "check the path"]);
    inner(&format!("{new} --mode posix -- true")).refused(125, &["--mode posix", "already"]);
    inner(&format!("{new} --require /etc -- true")).refused(125, &["/etc"]);
    inner(&format!("{new} --require $A2 -- true")).ok();
    // Nothing of a refusal is left to what runs next.
    let line = "$S run --volume $V2 --at $A2 -- no-such-program; ls $A2; $S run -- ls $A2; true";
    let ran = both.line(&first, line).ended_with(0);
    assert_eq!(ran.out, "", "{}", ran.err);
    both.check();
}

/// Only the new one is read-only.
#[test]
fn one_more_that_is_read_only() {
    let both = Volumes::new(2);
    both.line(&both.named(2), "echo 1 > $A1/f; echo 2 > $A2/f").ok();
    let line = "$S run --read-only --volume $V2 --at $A2 -- sh -c \
                'cat $A2/f; echo x 2>/dev/null > $A2/new || echo refused; echo more >> $A1/f; \
                 mv $A1/f $A2/f 2>/dev/null || echo stays; \
                 ln $A1/f $A2/n 2>&1 | grep -o Read-only; ln $A1/f $A2/f 2>&1 | grep -o exists; \
                 cat $A1/f; grep -c \" solera ro,\" /proc/mounts; \
                 $S run -- touch $A2/f 2>/dev/null || echo still'";
    let said = both.line(&both.named(1), line).ok();
    assert_eq!(said, "2\nrefused\nstays\nRead-only\nexists\n1\nmore\n1\nstill\n");
    assert_eq!(solera(["ls", &both.files[1]]).ok(), "f\n");
    // Asked for without a new one, it is still refused; the outer one's holds for its volumes only.
    both.line(&both.named(1), "$S run --read-only -- true").refused(125, &["--read-only"]);
    let read_only = [&both.named(1)[..], &["--read-only"]].concat();
    let line = "$S run --volume $V2 --at $A2 -- sh -c 'echo 3 > $A2/f; touch $A1/f || cat $A2/f'";
    assert_eq!(both.line(&read_only, line).ok(), "3\n");
    // All of one command line.
    let all = [&both.named(2)[..], &["--read-only"]].concat();
    both.line(&all, "touch $A1/f || touch $A2/f").ended_with(1);
    both.check();
}

/// A mount beside a volume that is named; the kernel knows the one, not the other.
/// `EDEADLK` says the one that closes a circle of waits, and nobody else.
#[test]
fn circles_of_locks_run_over_volumes() {
    let all = Volumes::new(3);
    let program = all.place.path("circles");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run/lock_cycles.c");
    compile(&source, &program, &["-O1"]);
    for line in [
        "./circles passed $A1/f $A2/f",
        "./circles closed $A1/f $A2/f",
        "./circles closed $A1/f $A1/g $A2/f",
        "./circles closed $A3/f $A2/f $A1/f",
        "./circles stopped $A1/f $A1/g",
        "./circles stopped $A1/f $A2/f",
        // The kernel's say the same.
        "./circles passed f g && ./circles closed f g && ./circles closed f g h",
        "./circles stopped f g",
    ] {
        println!("{line}");
        all.line(&all.named(3), line).ended_with(0);
    }
    all.check();
}

#[test]
fn a_mount_beside_a_volume() {
    if !can_mount() {
        return;
    }
    let other = Volumes::new(1);
    let mounted = Mounted::new(&other.place, "64M", &[]);
    let (volume, at) = (&*mounted.volume, &*mounted.at);
    for first in [true, false] {
        let mount = ["--volume", volume, "--at", at];
        let named = other.named(1);
        let options =
            if first { [&mount[..], &named].concat() } else { [&named[..], &mount].concat() };
        let line = format!(
            "cd {at}; echo mounted > f; cp f $A1/g; cd $A1; cp g {at}/h; mv g {at}/i; pwd; \
             cd {at}; pwd; /bin/pwd; cat h i; grep -c ' {at} ' /proc/mounts; ln i $A1/j || echo no"
        );
        let ran = other.line(&options, &line).ended_with(0);
        let said = format!("{}\n{at}\n{at}\nmounted\nmounted\n1\nno\n", other.prefixes[0]);
        assert_eq!(ran.out, said, "{}", ran.err);
        assert_eq!(fs::read(mounted.path("i")).unwrap(), b"mounted\n");
    }
    // Inside.
    let line = format!("$S run --at {at} -- sh -c 'cat {at}/i; echo x > {at}/j; ls $A1'");
    assert_eq!(other.line(&other.named(1), &line).ok(), "mounted\n");
    assert_eq!(fs::read(mounted.path("j")).unwrap(), b"x\n");
    let inside = ["--volume", volume];
    let line = format!("$S run --volume $V1 --at $A1 -- sh -c 'cp {at}/j $A1; cat $A1/j'");
    assert_eq!(other.line(&inside, &line).ok(), "x\n");
    let wrong = ["--volume", &other.files[0], "--at", at];
    other.line(&wrong, "true").refused(125, &[volume, "is mounted there"]);
    let twice = [&["--at", at, "--at", at][..]].concat();
    other.line(&twice, "true").refused(125, &["none lies below another"]);
    mounted.end();
    other.check();
}
