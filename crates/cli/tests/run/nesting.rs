//! `solera run` inside a program that is served already, and which volume it takes where none is
//! named.

use std::fs;

use crate::support::{Mounted, Ran, TestDir, can_mount, command, solera, with_own_mounts};

/// A second volume.
fn other(place: &TestDir) -> String {
    let path = place.text("other.pm");
    solera(["format", "--size", "64M", &path]).ok();
    path
}

/// A shell on a volume; `$S` is the command.
fn inside(options: &[&str], line: &str) -> Ran {
    let line = format!("S={}; {line}", env!("CARGO_BIN_EXE_solera"));
    solera([&["run"], options, &["--", "sh", "-c", &line]].concat())
}

/// The inner `solera run` ended with 0, and the file was on the disk beneath: the library of the
/// outer one puts its own variables back at each exec.
#[test]
fn another_volume_inside_is_seen_too() {
    let place = TestDir::new();
    let (one, two) = (place.volume("64M"), other(&place));
    let (at, below) = (place.prefix(), place.text("b"));
    fs::create_dir(&below).unwrap();
    let outer = ["--volume", &one, "--at", &at];
    // Whatever environment the inner one is given, and whatever program starts it.
    for (number, by) in [
        "$S",
        "env -i $S",
        "env LD_PRELOAD= $S",
        "(unset LD_PRELOAD; exec $S)",
        "sh -c '\"$0\" \"$@\"' $S",
    ]
    .into_iter()
    .enumerate()
    {
        let writes = format!("echo {number} > {below}/f; echo {number} > {at}/f");
        let inner = format!("run --volume {two} --at {below} -- sh -c '{writes}'");
        let line = match by.strip_suffix("exec $S)") {
            Some(start) => format!("{start}exec $S {inner})"),
            None => format!("{by} {inner}"),
        };
        inside(&outer, &line).ok();
        assert_eq!(fs::read_dir(&below).unwrap().count(), 0, "nothing was written beneath");
        for volume in [&one, &two] {
            assert_eq!(
                solera(["cat", &format!("{volume}:/f")]).ok(),
                format!("{number}\n"),
                "{by}"
            );
        }
    }
    // The same volume elsewhere.
    let line = format!("$S run --volume {one} --at {below} -- true");
    inside(&outer, &line).refused(125, &[&below, &at]);
    inside(&outer, &format!("$S run --at {below} -- true")).refused(125, &[&below]);
    let line = format!("$S run --volume {two} --at {at}/in -- true");
    inside(&outer, &line).refused(125, &[&two, &at, &one]);
    solera(["fsck", &one]).ok();
    solera(["fsck", &two]).ok();
}

/// What asks for nothing else goes on; a script that says `solera run` in each of its lines works.
#[test]
fn the_same_volume_inside_goes_on() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = place.prefix();
    let outer = ["--volume", &volume, "--at", &at, "--mode", "sync"];
    let again = format!(
        "cd {at} && $S run --volume {volume} --at {at} --mode sync --numa place -- sh -c 'echo 1 > \
         a' && $S run --at {at}/../prefix --require {at} -- sh -c 'echo 2 > b' && \
         cp /bin/cat cat && $S run --volume {volume} -- ./cat a b && \
         $S run -- $S run -- {at}/cat {at}/a"
    );
    let ran = inside(&outer, &again).ended_with(0);
    assert_eq!(ran.out, "1\n2\n1\n", "{}", ran.err);
    assert!(ran.err.contains(&format!("goes on with the volume {volume} at {at}")), "{}", ran.err);
    let linked = place.text("linked.pm");
    std::os::unix::fs::symlink(&volume, &linked).unwrap();
    inside(&outer, &format!("$S run --volume {linked} -- true")).ok();
    inside(&outer, "$S run -- no-such-program").ended_with(127);
    inside(&outer, "$S run --require /etc -- true").refused(125, &["/etc", "no volume"]);
}

/// Options of the inner one were read, and of no effect.
#[test]
fn options_that_would_be_ignored_inside_are_refused() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = place.prefix();
    let outer = ["--volume", &volume, "--at", &at, "--bypass", "gdb"];
    let file = place.text("report");
    for wrong in [
        "--mode posix",
        "--numa off",
        "--no-guard",
        "--strict-support",
        "--report",
        &format!("--report-file {file}"),
        "--bypass cat",
        "--read-only",
    ] {
        let ran = inside(&outer, &format!("$S run {wrong} -- true"));
        let option = wrong.split(' ').next().unwrap().trim_end_matches("-file");
        ran.refused(125, &[option, "already", "give the option there"]);
    }
    inside(&outer, "$S run --mode strict --bypass gdb -- true").ok();
}

/// Over a directory of the kernel's the same holds.
#[test]
fn inside_split_another_engine_is_refused() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let (split, other, at) = (place.text("split"), place.text("other"), place.prefix());
    fs::create_dir(&split).unwrap();
    fs::create_dir(&other).unwrap();
    let outer = ["--split", &split];
    let told = &[split.as_str(), "--split", "already"];
    inside(&outer, &format!("$S run --volume {volume} --at {split} -- true"))
        .refused(125, &[&split, &volume]);
    inside(&outer, &format!("$S run --at {at} -- true")).refused(125, &[&at, "no volume"]);
    inside(&outer, &format!("$S run --split {other} -- true")).refused(125, told);
    inside(&outer, "$S run --mode sync -- true").refused(125, &["--mode sync", "already"]);
    let again =
        format!("$S run --split {split} --mode posix -- sh -c 'echo x > {split}/f; cat {split}/f'");
    assert_eq!(inside(&outer, &again).ok(), "x\n");
    assert_eq!(inside(&outer, &format!("$S run -- cat {split}/f")).ok(), "x\n");
}

/// A command that is bypassed, or was started without the library, is outside.
#[test]
fn a_command_that_is_not_served_itself_starts_anew() {
    let place = TestDir::new();
    let (one, two) = (place.volume("64M"), other(&place));
    let (at, below) = (place.prefix(), place.text("b"));
    let line = format!("$S run --volume {two} --at {below} -- sh -c 'echo x > {below}/f; ls {at}'");
    let outer = ["--volume", &one, "--at", &at, "--bypass", "solera"];
    let ran = inside(&outer, &line).ended_with(2);
    assert!(ran.err.contains(&at), "{}", ran.err);
    assert_eq!(solera(["ls", &two]).ok(), "f\n");
    // Variables without a library mean nothing.
    let mut alone = command();
    alone.envs([("SOLERA_VOLUME", &one), ("SOLERA_AT", &at)]);
    alone.args(["run", "--volume", &two, "--at", &below, "--", "cat", &format!("{below}/f")]);
    assert_eq!(alone.output().unwrap().stdout, b"x\n");
}

/// `solera run` was silent about the volume that it had found, and took the only mounted one even
/// where nothing spoke of it: a mount that was forgotten sent a database to the disk.
#[test]
fn without_a_name_it_says_which_volume_it_takes() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let (at, volume) = (&mounted.at, &mounted.volume);
    let forgotten = place.text("m2");
    fs::create_dir(&forgotten).unwrap();
    // `(cd; solera run ...)`, so that relative paths mean something.
    let run = |options: &[&str], line: &str| {
        let mut run = command();
        run.current_dir(place.text("")).arg("run").args(options).args(["--", "sh", "-c", line]);
        let output = run.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let taken = format!("solera: sh goes past the kernel below {at} (the volume {volume})");
    for spoken in ["echo x > mnt/f", "echo x > ./m2/../mnt/f", &format!("echo x > {at}/f")] {
        assert_eq!(run(&[], spoken), (Some(0), String::new(), format!("{taken}\n")));
        assert_eq!(fs::read(mounted.path("f")).unwrap(), b"x\n");
    }
    assert_eq!(run(&["--at", at], "true").2, format!("{taken}\n"));
    assert_eq!(run(&["--volume", volume], "true").2, "", "it was named");
    // Where no other volume is mounted.
    let alone = format!(
        "cd {at}/.. && exec {} run -- sh -c 'echo x > m2/file'",
        env!("CARGO_BIN_EXE_solera")
    );
    let output = with_own_mounts(at, &alone);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with(&taken) && said.contains("neither the working directory"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    // Required, it is not started.
    fs::remove_file(place.path("m2/file")).unwrap();
    for required in ["m2", &forgotten] {
        let (code, _, said) = run(&["--require", "mnt", "--require", required], "echo x > m2/file");
        assert_eq!(code, Some(125));
        assert!(said.contains("m2 on a volume: no volume is mounted there; mount one"), "{said}");
        assert!(!place.path("m2/file").exists());
    }
    let (code, _, said) = run(&["--require", "nothing"], "true");
    assert!(code == Some(125) && said.contains("does not exist"), "{said}");
    for required in ["mnt", "./mnt/", at, "m2/../mnt"] {
        assert_eq!(
            run(&["--require", required], "true"),
            (Some(0), String::new(), format!("{taken}\n"))
        );
    }
    // By another path of the kernel's it is the same volume.
    let bound = format!(
        "mount --bind {at} {forgotten} && exec {} run --require {forgotten} -- echo good",
        env!("CARGO_BIN_EXE_solera")
    );
    let output = with_own_mounts(at, &bound);
    assert_eq!(output.stdout, b"good\n", "{output:?}");
    mounted.end();
}

/// With a volume of its own, or over a directory, what is served there counts.
#[test]
fn what_is_served_meets_a_requirement() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let (at, split) = (place.prefix(), place.text("split"));
    fs::create_dir(&split).unwrap();
    let on_volume = ["--volume", &volume, "--at", &at, "--require"];
    for good in [at.clone(), format!("{at}/not/there/yet")] {
        inside(&[&on_volume[..], &[&good]].concat(), "true").ok();
    }
    inside(&[&on_volume[..], &[&split]].concat(), "true").refused(125, &[&split, "no volume"]);
    inside(&["--split", &split, "--require", &split], "true").ok();
    let elsewhere = ["--split", &split, "--require", "/etc"];
    inside(&elsewhere, "true").refused(125, &["/etc", "no volume"]);
}

/// Of several mounts the one that is required, or that an argument leads to, also by a relative
/// path.
#[test]
fn of_several_mounts_it_takes_the_one_that_is_meant() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let first = Mounted::new(&place, "64M", &[]);
    let second = place.text("mnt2");
    fs::create_dir(&second).unwrap();
    let volume = other(&place);
    solera(["mount", &volume, &second]).ok();
    let taken = |options: &[&str], arguments: &[&str]| {
        let mut run = command();
        run.current_dir(place.text("")).arg("run").args(options).arg("--").args(arguments);
        String::from_utf8(run.output().unwrap().stderr).unwrap()
    };
    let below = |at: &str| format!("below {at} ");
    assert!(taken(&[], &["ls", "mnt2"]).contains(&below(&second)));
    assert!(taken(&[], &["ls", "mnt"]).contains(&below(&first.at)));
    assert!(taken(&[], &["ls", &second]).contains(&below(&second)), "/mnt2 is not below /mnt");
    assert!(taken(&["--require", "mnt2"], &["ls", "mnt"]).contains(&below(&second)));
    assert!(taken(&[], &["true"]).contains("several volumes are mounted"));
    let mut end = command();
    while !end.args(["umount", &second]).status().unwrap().success() {}
    first.end();
}

/// `--class` inside was taken for the variable that the outer one had set, and of no effect.
#[test]
fn another_class_inside_is_refused() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = place.prefix();
    let outer = ["--volume", &volume, "--at", &at];
    let words = ["--class byte", "already", "give the option there"];
    inside(&outer, "$S run --class byte -- true").refused(125, &words);
    inside(&outer, "$S run --class volatile -- true").ok();
    let outer = [&outer[..], &["--class", "byte"]].concat();
    inside(&outer, "$S run --class byte -- true").ok();
    inside(&outer, "$S run --class volatile -- true")
        .refused(125, &["--class volatile", "already", "give the option there"]);
    let split = place.text("split");
    fs::create_dir(&split).unwrap();
    inside(&["--split", &split], "$S run --class page -- true").refused(125, &["--class page"]);
}
