//! The explicit library on volumes: the programs that show what `solera.h` says on directories show
//! the same there, by the library's own engine and by that of `solera run`, beside programs that
//! know nothing of it; and a process has one engine.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{
    Mounted, Ran, TestDir, can_mount, command, compile, compiled, create_cache, linked_library,
    solera, source,
};

const CAPI: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi");

/// Where the archive and the preload library are.
fn built() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_solera")).parent().expect("its directory").to_owned()
}

/// Compiles one of the library's own tests.
fn program(library: &str, source: &str) -> String {
    let (include, search) = (format!("-I{CAPI}/include"), format!("-L{library}"));
    let run = format!("-Wl,-rpath,{library}");
    let options = [&*include, &search, &run, "-pthread", "-Wl,--no-as-needed", "-lsolera", "-ldl"];
    compiled(&format!("capi/tests/c/{source}.c"), &options)
}

/// The class that a program found; everything else that it checks is right.
fn class(ran: Ran) -> String {
    ran.ok().lines().next().unwrap_or_default().to_owned()
}

/// The programs in each of the ways in which one comes to a volume; gives the classes found.
fn ways(source: &str) -> Vec<String> {
    let place = TestDir::new();
    let library = linked_library();
    let program = program(&library, source);
    let volume = place.volume("256M");
    let prefix = place.prefix();
    let own = |at: &str, seen: &str, beside: &str| {
        let mut command = Command::new(&program);
        command.arg(at).env("SOLERA_TEST_AT", seen).env("SOLERA_TEST_ATOMIC", "1");
        class(Ran::of(command.env("SOLERA_TEST_BESIDE", beside)))
    };
    let run = |mode: &str, at: &str| {
        let mut command = command();
        let options = ["--volume", &volume, "--at", &prefix, "--mode", mode, "--", &program, at];
        command.arg("run").args(options).env("SOLERA_TEST_AT", &prefix);
        if mode == "strict" {
            command.env("SOLERA_TEST_ATOMIC", "1");
        }
        class(Ran::of(&mut command))
    };
    let fresh = || {
        let empty = "rm -rf * .[!.]*";
        let options = ["--volume", &volume, "--at", &prefix, "--", "sh", "-c"];
        solera([&["run"][..], &options, &[&format!("cd {prefix} && {empty}")]].concat()).ok();
    };
    let beside = format!("{} run --volume {volume} --at {prefix} --", env!("CARGO_BIN_EXE_solera"));
    let mut found = vec![own(&volume, &prefix, &beside)];
    for (mode, at) in [("strict", &prefix), ("posix", &prefix), ("sync", &volume)] {
        fresh();
        found.push(run(mode, at));
    }
    if can_mount() {
        fresh();
        let mounted = Mounted::again(&place, volume.clone(), &[]);
        // The others go by the mount.
        found.push(own(&mounted.at, &mounted.at, ""));
        let directory = |name: &str| {
            let path = mounted.path(name);
            std::fs::create_dir(&path).expect("a directory of the mount");
            path.to_str().expect("our own names are UTF-8").to_owned()
        };
        let sub = directory("sub");
        found.push(own(&sub, &sub, ""));
        // The mount's path, where the program sees the volume at another one.
        let mut beside = command();
        beside.args(["run", "--volume", &volume, "--at", &prefix, "--", &program]);
        beside.arg(directory("other")).env("SOLERA_TEST_AT", format!("{prefix}/other"));
        found.push(class(Ran::of(beside.env("SOLERA_TEST_ATOMIC", "1"))));
        mounted.end();
    }
    solera(["fsck", &volume]).ok();
    let info = solera(["info", "--json", &volume]).json();
    assert_eq!(
        (&info["clean"], info["attached"].as_array().map(Vec::len)),
        (&true.into(), Some(0))
    );
    found
}

#[test]
fn files_are_the_same_on_volumes() {
    for class in ways("files") {
        assert!(class.starts_with("class 2: tmpfs"), "{class}");
    }
}

#[test]
fn logs_are_the_same_on_volumes() {
    ways("logs");
}

/// A script that succeeds if a process has the volume attached so often: by so many slots.
fn attached(place: &TestDir, volume: &str) -> String {
    let script = place.path("attached");
    let solera = env!("CARGO_BIN_EXE_solera");
    let counts = format!(
        "had=$({solera} info --json {volume} | grep -c \"\\\"pid\\\": $1,\")\ntest \"$had\" = $2\n"
    );
    std::fs::write(&script, counts).expect("a script");
    format!("sh {}", script.display())
}

/// Copies of the library's file are other libraries for the linker.
#[test]
fn a_process_has_one_engine() {
    let place = TestDir::new();
    let library = linked_library();
    let volume = place.volume("64M");
    let prefix = place.prefix();
    let shared = format!("{library}/libsolera.so.0");
    let include = format!("-I{CAPI}/include");
    let to = compiled("capi/tests/c/engines.c", &[&include, "-ldl"]);
    let count = attached(&place, &volume);
    // By its path, by a link of another name, and once more: one library, in any order.
    let link = place.text("linked.so");
    std::os::unix::fs::symlink(&shared, &link).expect("a link");
    for libraries in [[&shared, &link, &shared], [&link, &shared, &link]] {
        let mut alone = Command::new(&to);
        alone.arg(&volume).args(libraries).env("SOLERA_TEST_ATTACHED", &count);
        Ran::of(&mut alone).ok();
        for at in [&prefix, &volume] {
            let mut run = command();
            run.args(["run", "--volume", &volume, "--at", &prefix, "--", &to, at]).args(libraries);
            run.env("SOLERA_TEST_ATTACHED", &count).env("SOLERA_TEST_SERVED", "1");
            Ran::of(&mut run).ok();
        }
    }
    // A second copy of the code is refused, and the first lives on.
    let copy = place.text("copy.so");
    std::fs::copy(&shared, &copy).expect("a copy");
    let (own, archive) = (place.text("own"), built().join("libsolera.a"));
    let second = Command::new("cc")
        .args(["-w", "-D_GNU_SOURCE", "-DOWN", "-pthread", &include, "-o", &own])
        .args([&source("capi/tests/c/engines.c"), &archive])
        .args(["-ldl", "-lm"])
        .status()
        .expect("cc");
    assert!(second.success());
    let mut second = Command::new(&own);
    second.args([&volume, &shared, &copy]).env("SOLERA_TEST_ATTACHED", &count);
    Ran::of(&mut second).ok();
    solera(["fsck", &volume]).ok();
}

/// The command has an engine of its own, and under `solera run` one that serves its files: it is
/// not refused as a second one, and what it writes by the other arrives. (That neither takes the
/// other for dead rests on `robust::bytes::is_held_by`, which has a test of its own.)
#[test]
fn the_command_works_where_it_is_served() {
    let place = TestDir::new();
    let (volume, prefix) = (place.volume("64M"), place.prefix());
    let solera = env!("CARGO_BIN_EXE_solera");
    let script = format!(
        "cd {prefix} && echo text > file && {solera} ls {volume}:/ > list && cat list\n\
         {solera} cat {volume}:/file > copy && {solera} info {volume} > info && test -s info\n\
         {solera} cp {volume}:/file {volume}:/other && cat copy other\n\
         {solera} fsck {volume} > fsck"
    );
    let said = crate::support::shell(&volume, &prefix, &script).ok();
    assert_eq!(said, "file\nlist\ntext\ntext\n");
    crate::support::solera(["fsck", &volume]).ok();
}

/// Explicit buffers under `solera run`: without a cache, with one of small pages, which are copied,
/// and with one of pages of 2 MiB, which are mapped.
#[test]
fn buffers_are_attached_from_a_cache() {
    let place = TestDir::new();
    let library = linked_library();
    let program = program(&library, "buffers");
    let (volume, prefix) = (place.volume("256M"), place.prefix());
    let run = |options: &[&str], attached: bool| {
        let mut command = command();
        command.args(["run", "--volume", &volume, "--at", &prefix]).args(options);
        if attached {
            command.env("SOLERA_TEST_ATTACHED", "1");
        }
        Ran::of(command.args(["--", &program, &prefix]))
    };
    assert_eq!(run(&[], false).ok(), "right\n");
    let dir = place.text("");
    assert_eq!(run(&["--cache", "64M", "--cache-dir", &dir], false).ok(), "right\n");
    let status = solera(["cache", "status", "--json", "--cache-dir", &dir, &volume]).json();
    assert_eq!(status["bytes_attached"], 0);
    if !can_mount() {
        return;
    }
    create_cache(&volume);
    let ran = run(&["--cache", "64M"], true);
    let status = solera(["cache", "status", "--json", &volume]).json();
    let text = solera(["cache", "status", &volume]).ok();
    solera(["cache", "destroy", &volume]).ok();
    assert_eq!(ran.ok(), "right\n");
    assert!(status["bytes_attached"].as_u64().is_some_and(|bytes| bytes > 256 << 20), "{status}");
    assert!(text.contains("bytes attached"), "{text}");
}

/// A log on a volume is shown by each of its names.
#[test]
fn a_log_on_a_volume_is_shown() {
    let place = TestDir::new();
    let library = linked_library();
    let (volume, prefix) = (place.volume("256M"), place.prefix());
    Ran::of(Command::new(program(&library, "example")).arg(&volume)).ok();
    let name = crate::support::shell(&volume, &prefix, &format!("ls {prefix}")).ok();
    let name = name.trim();
    let shown = solera(["log", "check", &format!("{volume}:/{name}")]).ok();
    let whole = "1 records, whole\n";
    assert_eq!(shown.split(": ").last(), Some(whole));
    let line = format!("{} log check {prefix}/{name}", env!("CARGO_BIN_EXE_solera"));
    assert_eq!(crate::support::shell(&volume, &prefix, &line).ok().split(": ").last(), Some(whole));
    if can_mount() {
        let mounted = Mounted::again(&place, volume, &[]);
        let path = mounted.path(name);
        let shown = solera(["log".as_ref(), "check".as_ref(), path.as_os_str()]).ok();
        assert_eq!(shown.split(": ").last(), Some(whole));
        mounted.end();
    }
}

/// A preload library of another version is not gone by, and not attached beside.
#[test]
fn a_preload_library_of_another_version_is_refused() {
    let place = TestDir::new();
    let library = linked_library();
    let program = program(&library, "example");
    let source = place.path("other.c");
    let other = "static const char *table[] = {\"9.8.7\"};\n\
                 const void *solera_preloaded(void) { return table; }\n";
    std::fs::write(&source, other).expect("a source");
    let to = place.path("other.so");
    compile(&source, &to, &["-shared", "-fPIC"]);
    let mut command = Command::new(program);
    let ran = Ran::of(command.arg(place.volume("64M")).env("LD_PRELOAD", to));
    assert_ne!(ran.code, 0);
    let said = format!("{}{}", ran.out, ran.err);
    assert!(said.contains("of version 9.8.7") && said.contains("install both"), "{said}");
}

/// A program that ends without closing, or dies, or leaves a child behind, leaves the volume to
/// others at once.
#[test]
fn who_ends_gives_the_volume_back() {
    let place = TestDir::new();
    let library = linked_library();
    let volume = place.volume("64M");
    let program = program(&library, "ends");
    for how in ["exit", "killed", "child", "exec"] {
        let mut command = Command::new(&program);
        let ran = Ran::of(command.args([&volume, how]));
        assert_eq!(ran.code, if how == "killed" || how == "child" { 1009 } else { 0 }, "{how}");
        let info = solera(["info", "--json", &volume]).json();
        assert_eq!(info["attached"].as_array().map(Vec::len), Some(0), "{how}");
        // In order at once where it ended so; what is dead is cleaned up by the next one.
        assert_eq!(info["clean"], how == "exit", "{how}");
        solera(["fsck", &volume]).ok();
        let listed = solera(["cat", &format!("{volume}:/{how}")]).ok();
        assert_eq!(listed, "appended\n", "{how}");
    }
}
