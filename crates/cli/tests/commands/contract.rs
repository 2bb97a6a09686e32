//! The command's own contract: the lines of the README as they stand, exit codes, JSON shapes.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Ran, TestDir, command, shell, solera};
use serde_json::Value;

fn sum(info: &Value, names: &[&str]) -> u64 {
    names.iter().map(|name| info[name].as_u64().unwrap_or_else(|| panic!("no {name}"))).sum()
}

const PARTS: [&str; 4] = ["data_bytes", "hole_bytes", "free_aligned_bytes", "metadata_bytes"];

#[test]
fn the_lines_of_the_readme_work() {
    let place = TestDir::new();
    let (volume, at) = (place.text("v.pm"), place.prefix());
    solera(["format", "--size", "4G", &volume]).ok();
    let database = format!("{at}/t.db");
    let run = ["run", "--volume", &volume, "--at", &at, "--mode", "strict", "--", "sqlite3"];
    let sql = "create table t(x); insert into t values(1)";
    solera(run.iter().chain(&[database.as_str(), sql])).ok();
    let rows = solera(run.iter().chain(&[database.as_str(), "select x from t"])).ok();
    assert_eq!(rows, "1\n");

    let info = solera(["info", "--json", &volume]).json();
    assert_eq!(info["size_bytes"], 4_u64 << 30);
    assert_eq!(sum(&info, &PARTS), 4 << 30);
    assert!(sum(&info, &["data_bytes"]) >= 8192, "{info}");
    assert!(sum(&info, &["free_bytes", "inodes_used"]) > 0);
    assert_eq!(info["class"], "volatile");
    assert_eq!(info["attached"], Value::Array(Vec::new()));

    solera(["fsck", &volume]).ok();
    assert_eq!(solera(["ls", &volume]).ok(), "t.db\n");
}

#[test]
fn starting_a_program_costs_little() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("256M"), place.prefix());
    let time = |run: bool| {
        let mut command = if run { command() } else { Command::new("true") };
        if run {
            command.args(["run", "--volume", &volume, "--at", &at, "--", "true"]);
        }
        let begun = Instant::now();
        assert!(command.status().expect("it starts").success());
        begun.elapsed()
    };
    let bare = (0..41).map(|_| time(false)).min().expect("some");
    // Attaching itself has a budget of 1 ms; this is also the start of `solera`. Machines under
    // test are busy: one undisturbed start is enough.
    let limit = bare + Duration::from_millis(10);
    let least = (0..2000).map(|_| time(true)).find(|time| *time < limit);
    assert!(least.is_some(), "a program's start takes more than 10 ms more on a volume");
}

#[test]
fn format_overwrites_only_by_force() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    shell(&volume, &at, &format!("echo kept > {at}/file")).ok();
    solera(["format", "--size", "64M", &volume]).refused(1, &["v.pm", "--force"]);
    assert_eq!(solera(["cat", &format!("{volume}:/file")]).ok(), "kept\n");

    let made = solera(["format", "--json", "--force", "--label", "new", &volume]).json();
    assert_eq!((&made["label"], &made["size_bytes"]), (&"new".into(), &(64_u64 << 20).into()));
    assert_eq!(solera(["ls", &volume]).ok(), "");

    let other = place.text("other");
    fs::write(&other, "something else").expect("a file is written");
    solera(["format", "--size", "64M", &other]).refused(1, &["other", "--force"]);
    assert_eq!(fs::read(&other).expect("it is there"), b"something else");
}

#[test]
fn the_region_gets_the_permissions_asked_for() {
    let place = TestDir::new();
    let mode = |path: &str| fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    assert_eq!(mode(&place.volume("64M")), 0o600);
    let group = place.text("group.pm");
    solera(["format", "--size", "64M", "--permissions", "660", &group]).ok();
    assert_eq!(mode(&group), 0o660);
}

#[test]
fn files_go_in_and_out() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("a/b")).expect("directories are made");
    fs::write(tree.join("a/b/script"), "#!/bin/sh\n").expect("written");
    let executable = fs::Permissions::from_mode(0o751);
    fs::set_permissions(tree.join("a/b/script"), executable).expect("changed");
    symlink("b/script", tree.join("a/link")).expect("linked");
    let sparse = fs::File::create(tree.join("sparse")).expect("made");
    sparse.set_len(1 << 30).expect("extended");
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 512 << 20).expect("written");

    let from = place.text("tree");
    solera(["cp", &from, &format!("{volume}:/")]).refused(1, &["directory", "-r"]);
    solera(["cp", "-r", &from, &format!("{volume}:/")]).ok();
    solera(["cp", "-r", &format!("{volume}:/tree"), &format!("{volume}:/again")]).ok();
    solera(["cp", "-r", &format!("{volume}:/again"), &place.text("out")]).ok();
    let same = Command::new("diff")
        .args(["-r", "--no-dereference", &from, &place.text("out")])
        .output()
        .expect("diff runs");
    assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stdout));
    let out = place.path("out");
    let meta = fs::metadata(out.join("a/b/script")).expect("copied");
    let original = fs::metadata(tree.join("a/b/script")).expect("there");
    assert_eq!((meta.mode(), meta.mtime_nsec()), (original.mode(), original.mtime_nsec()));
    let holes = fs::metadata(out.join("sparse")).expect("copied");
    assert!(holes.size() == 1 << 30 && holes.blocks() < 1 << 15, "{} blocks", holes.blocks());

    assert_eq!(solera(["cat", &format!("{volume}:/tree/a/link")]).ok(), "#!/bin/sh\n");
    let long = solera(["ls", "-l", &format!("{volume}:/tree/a")]).ok();
    assert!(long.lines().next().is_some_and(|line| line.starts_with("drwx")), "{long}");
    assert!(long.contains(" link -> b/script"), "{long}");
    let list = solera(["ls", "--json", &format!("{volume}:/tree")]).json();
    assert_eq!((&list[1]["name"], &list[1]["size"]), (&"sparse".into(), &(1_u64 << 30).into()));
    solera(["fsck", &volume]).ok();
}

#[test]
fn copies_that_make_no_sense_are_refused() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let root = format!("{volume}:/");
    solera(["cp", &place.text("missing"), &root]).refused(1, &["missing"]);
    solera(["cp", &format!("{volume}:/missing"), &place.text("x")]).refused(1, &["/missing"]);
    fs::write(place.path("f"), "f").expect("written");
    solera(["cp", &place.text("f"), &root]).ok();
    solera(["cp", &format!("{volume}:/f"), &format!("{volume}:/f")]).refused(1, &["same file"]);
    let many = [place.text("f"), place.text("f"), format!("{volume}:/f")];
    solera(["cp".to_owned()].iter().chain(&many)).refused(1, &["no directory"]);
    solera(["cp", "-r", &root, &format!("{volume}:/inside")]).refused(1, &["inside"]);
    solera(["cat", &root]).refused(1, &["irectory"]);
    solera(["cat", &place.text("f")]).refused(1, &["VOLUME:/path"]);
}

#[test]
fn volumes_grow_while_they_are_used() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    shell(&volume, &at, &format!("echo kept > {at}/file")).ok();
    let grown = solera(["grow", "--json", "--size", "+64M", &volume]).json();
    assert_eq!(grown["size_bytes"], 128 << 20);
    solera(["grow", "--size", "64M", &volume]).refused(1, &["v.pm"]);
    let more = format!("head -c 90000000 /dev/zero > {at}/large && cat {at}/file");
    assert_eq!(shell(&volume, &at, &more).ok(), "kept\n");
    let info = solera(["info", "--json", &volume]).json();
    assert_eq!(sum(&info, &PARTS), 128 << 20);
    solera(["fsck", &volume]).ok();

    shell(&volume, &at, &format!("rm {at}/large")).ok();
    let before = fs::metadata(&volume).expect("there").blocks();
    let trimmed = solera(["trim", "--json", &volume]).json();
    let after = fs::metadata(&volume).expect("there").blocks();
    assert!(trimmed["trimmed_bytes"].as_u64().is_some_and(|bytes| bytes > 80_000_000), "{trimmed}");
    assert!((before - after) * 512 > 80_000_000, "{before} to {after} blocks");
    assert_eq!(solera(["cat", &format!("{volume}:/file")]).ok(), "kept\n");
}

#[test]
fn df_and_detach_report() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let report = solera(["df", "--json", &volume]).json();
    assert_eq!(report[0]["size_bytes"], 64 << 20);
    assert_eq!(sum(&report[0], &["used_bytes", "free_bytes"]), 64 << 20);
    let missing = place.text("missing");
    let partly = solera(["df", &missing, &volume]).ended_with(1);
    assert!(partly.out.contains("v.pm") && partly.err.contains("missing"), "{}", partly.err);
    assert_eq!(solera(["detach", "--json", &volume]).json()["attached"], Value::Array(Vec::new()));
}

#[test]
fn who_is_attached_is_told_and_the_dead_are_not() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let mut sleeper = command()
        .args(["run", "--volume", &volume, "--at", &at, "--", "sh", "-c"])
        .arg(format!("exec 3> {at}/open; echo > {at}/ready; exec sleep 100"))
        .spawn()
        .expect("it starts");
    let ready = || solera(["ls", &volume]).ok().contains("ready");
    while !ready() {
        assert!(sleeper.try_wait().expect("it can be asked").is_none(), "it ended early");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let info = solera(["info", "--json", &volume]).json();
    assert_eq!(info["attached"][0]["pid"], sleeper.id(), "{info}");
    let told = solera(["detach", "--json", &volume]).ended_with(1);
    assert!(told.out.contains(&sleeper.id().to_string()), "{}", told.out);
    sleeper.kill().expect("it is killed");
    sleeper.wait().expect("it ends");
    solera(["detach", &volume]).ok();
    let info = solera(["info", "--json", &volume]).json();
    assert_eq!((&info["attached"], &info["clean"]), (&Value::Array(Vec::new()), &true.into()));
    solera(["fsck", &volume]).ok();
}

#[test]
fn run_ends_as_its_program_does() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    shell(&volume, &at, "exit 7").ended_with(7);
    // The program *is* the process that was started: its signal is its own.
    shell(&volume, &at, "kill -TERM $$").ended_with(1000 + libc::SIGTERM);
    let run = ["run", "--volume", &volume, "--at", &at];
    let report = run.iter().chain(&["--report", "--", "sh", "-c"]);
    let reported = solera(report.clone().chain(&["exit 7"])).ended_with(7);
    assert!(reported.err.starts_with("solera: "), "{}", reported.err);
    solera(report.clone().chain(&["kill -TERM $$"])).ended_with(128 + libc::SIGTERM);
    let file = place.text("report");
    solera(run.iter().chain(&["--report-file", &file, "true"])).ok();
    assert!(fs::read_to_string(&file).is_ok_and(|text| text.starts_with("solera: ")));

    solera(run.iter().chain(&["--", "/no/such/program"])).refused(127, &["/no/such/program"]);
    solera(run.iter().chain(&["--", "no-such-program"])).refused(127, &["PATH"]);
    let plain = place.text("plain");
    fs::write(&plain, "no program").expect("written");
    solera(run.iter().chain(&["--", &plain])).refused(126, &["not executable"]);
    solera(["run", "--at", &at, "--", "true"]).ended_with(125);
}

#[test]
fn scripts_run_and_programs_that_cannot_be_preloaded_do_not() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let program = |name: &str, text: &[u8], mode: u32| {
        fs::write(place.path(name), text).expect("written");
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(place.path(name), permissions).expect("changed");
        place.text(name)
    };
    let run = |path: &str| solera(["run", "--volume", &volume, "--at", &at, "--", path]);
    let script = format!("#!/bin/sh\necho here > {at}/made\n");
    run(&program("script", script.as_bytes(), 0o755)).ok();
    assert_eq!(solera(["ls", &volume]).ok(), "made\n");

    // A program that lies on the volume itself.
    solera(["cp", &place.text("script"), &format!("{volume}:/script")]).ok();
    solera(["cp", "/bin/echo", &format!("{volume}:/echo")]).ok();
    run(&format!("{at}/script")).ok();
    let echo = format!("{at}/echo");
    let said = solera(["run", "--volume", &volume, "--at", &at, &echo, "a  b", "$c"]).ok();
    assert_eq!(said, "a  b $c\n");
    run(&format!("{at}/missing")).ended_with(127);

    run(&program("lost", b"#!/no/such/interpreter\n", 0o755)).refused(126, &["/no/such/inter"]);
    run(&program("noise", b"no program at all", 0o755)).refused(126, &["#!"]);
    // A program without a dynamic loader, and without anything to load.
    let mut elf = vec![0_u8; 4096];
    elf[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    (elf[16], elf[18], elf[32], elf[54]) = (2, 62, 64, 56);
    run(&program("static", &elf, 0o755)).refused(126, &["static cannot be run", "damaged"]);
    elf[4] = 1;
    // Nor anything that may mount the volume for it.
    let narrow = program("narrow", &elf, 0o755);
    let mut command = command();
    command.args(["run", "--volume", &volume, "--at", &at, "--", &narrow]);
    Ran::of(command.env("SOLERA_KEEPER", "")).refused(126, &["64-bit"]);
}

#[test]
fn prefixes_that_are_something_else_are_refused() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let run = |at: &str| solera(["run", "--volume", &volume, "--at", at, "--", "true"]);
    run("pm").refused(125, &["relative", "--at /pm"]);
    run("/").refused(125, &["root"]);
    run("/etc").refused(125, &["/etc", "hidden"]);
    run("/etc/passwd").refused(125, &["not a directory"]);
    run("/etc/passwd/below").refused(125, &["/etc/passwd/below"]);
    let empty = place.text("empty");
    fs::create_dir(&empty).expect("made");
    run(&empty).ok();
}

#[test]
fn help_teaches_every_command() {
    for name in [
        "format", "info", "run", "ls", "cat", "cp", "df", "fsck", "snapshot", "grow", "trim",
        "detach", "node", "domain", "bench",
    ] {
        let help = solera([name, "--help"]).ok();
        assert!(help.lines().count() > 8, "{help}");
    }
    solera(["no-such-command"]).ended_with(2);
    solera(["fsck"]).ended_with(16);
    assert!(solera(["--version"]).ok().starts_with("solera 0."));
}
