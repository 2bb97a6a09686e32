//! `solera run`: the report of a program and all that it starts, strictness, bypassed programs,
//! volumes that are only read, programs that the dynamic loader starts.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Ran, TestDir, command, compiled, solera};

/// Four processes make the volume their root, which it does not serve. One program is executed from
/// the volume, which is a detour.
const SCRIPT: &str = "cd $0 && cp /bin/cat . && ./cat /dev/null; PATH=$PATH:/usr/sbin; \
                      { chroot .; chroot .; chroot .; } 2>/dev/null; \
                      sh -c 'chroot .' 2>/dev/null; exit 3";

fn run(place: &TestDir, volume: &str, options: &[&str], script: &str) -> Ran {
    let at = place.prefix();
    let head = ["run", "--volume", volume, "--at", &at];
    let program = ["--", "sh", "-c", script, &at];
    solera(head.iter().chain(options).chain(&program))
}

#[test]
fn the_report_counts_over_all_processes() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let told = run(&place, &volume, &["--report"], SCRIPT).ended_with(3).err;
    let row = |reason: &str| {
        let line = told.lines().find(|line| line.contains(reason));
        line.unwrap_or_else(|| panic!("{reason}: {told}")).to_owned()
    };
    let root = row("chroot-onto-volume");
    assert!(root.contains("refused: EPERM") && root.ends_with(" 4"), "{told}");
    let copied = row("binary-copied-to-memory");
    assert!(copied.contains("served by a detour") && copied.ends_with(" 1"), "{told}");
}

#[test]
fn the_report_is_cut_to_the_most_frequent_and_written_as_json() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let file = place.text("report");
    // Without the guard: on a machine without protection keys it would be reported too.
    let options = ["--no-guard", "--report=1", "--json", "--report-file", &file];
    let ran = run(&place, &volume, &options, SCRIPT).ended_with(3);
    assert_eq!(ran.err, "", "the report is in the file");
    let text = fs::read_to_string(&file).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&report["refused_calls"], &report["detour_calls"]), (&4.into(), &1.into()));
    assert_eq!(report["calls"].as_array().map(Vec::len), Some(1), "{text}");
    let first = &report["calls"][0];
    assert_eq!((&first["error"], &first["calls"]), (&"EPERM".into(), &4.into()), "{text}");
    run(&place, &volume, &["--report=many"], "true").ended_with(125);
}

#[test]
fn a_strict_program_is_ended_where_it_is_not_served() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let served = "cd $0 && echo x > f && cp f g && mv g h && cat h && rm f h";
    assert_eq!(run(&place, &volume, &["--strict-support"], served).ok(), "x\n");
    let ran = run(&place, &volume, &["--strict-support"], "cd $0 && /usr/sbin/chroot .; echo $?");
    assert_eq!(ran.out, format!("{}\n", 128 + libc::SIGABRT), "{}", ran.err);
    assert!(ran.err.contains("solera: chroot is not served"), "{}", ran.err);
    assert!(ran.err.contains("chroot-onto-volume, EPERM"), "{}", ran.err);
    solera(["fsck", &volume]).ok();
}

#[test]
fn a_bypassed_program_does_not_see_the_volume() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let script = "echo x > $0/f; cat $0/f || env cat $0/f || echo hidden";
    let twice = run(&place, &volume, &["--bypass", "other", "--bypass", "cat"], script);
    assert_eq!(twice.ok(), "hidden\n");
    let ran = run(&place, &volume, &["--bypass", "env"], "env cat $0/f; cat $0/f");
    assert_eq!(ran.ok(), "x\nx\n", "what a bypassed program starts sees it");
    // dash starts programs by `vfork`, in a process in which the library serves nothing: the shell
    // died of SIGSEGV, its stack overwritten by the child.
    let ran = run(&place, &volume, &["--bypass", "sh"], "env true && env echo started");
    assert_eq!(ran.ok(), "started\n", "a bypassed program starts others");
    let wrong = run(&place, &volume, &["--bypass", "a:b"], "true");
    wrong.refused(125, &["a:b", "colon"]);
}

/// How appended bytes are to be moved is told to the library; what is none of the ways is refused.
#[test]
fn the_way_of_relinks_is_passed_on() {
    let place = TestDir::new();
    let directory = place.text("files");
    fs::create_dir(&directory).expect("a directory");
    let told = |options: &[&str]| {
        let program = ["--", "sh", "-c", "echo ${SOLERA_SPLIT_RELINK-none}"];
        solera(["run", "--split", &directory].iter().chain(options).chain(&program))
    };
    for way in ["exchange", "clone", "copy"] {
        assert_eq!(told(&["--relink", way]).ok(), format!("{way}\n"));
    }
    assert_eq!(told(&[]).ok(), "none\n");
    let wrong = told(&["--relink", "move"]).ended_with(125).err;
    assert!(wrong.contains("'move'") && wrong.contains("exchange, clone, copy"), "{wrong}");
    let alone = solera(["run", "--relink", "copy", "--", "true"]).ended_with(125).err;
    assert!(alone.contains("--split <DIR>"), "{alone}");
}

/// The kernel tells which key a mapping lies under.
#[test]
fn the_volume_lies_under_a_protection_key_unless_it_is_not_wanted() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let script = format!(
        "exec awk -v file={volume} 'index($0, file) {{ r = 1 }} \
         r && /^ProtectionKey:/ {{ print $2; exit }}' /proc/self/smaps"
    );
    let json = solera(["info", "--json", &volume]).json();
    let guarded = pmem::key::available().is_ok();
    assert_eq!(json["protection_key"], serde_json::Value::Bool(guarded));
    let key = run(&place, &volume, &[], &script).ok();
    // A kernel without keys prints no such line.
    assert_eq!(!matches!(key.trim(), "" | "0"), guarded, "{key}");
    let without = run(&place, &volume, &["--no-guard"], &script).ok();
    assert!(matches!(without.trim(), "" | "0"), "{without}");
}

/// Options of the other engine, or of a report that was not asked for, were of no effect, in
/// silence.
#[test]
fn options_that_have_no_effect_are_refused() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let on_volume = ["--volume", &volume, "--at", &at];
    for (given, named) in [
        (&["--emulate"][..], "--emulate"),
        (&["--relink", "copy"], "--relink"),
        (&["--json"], "--json"),
    ] {
        let ran = run(&place, &volume, given, "true");
        assert!(ran.code == 125 && ran.err.contains(named), "{}: {}", ran.code, ran.err);
        let ran = solera([&["run"], given, &["--", "true"]].concat());
        assert!(ran.code == 125 && ran.err.contains(named), "{}: {}", ran.code, ran.err);
    }
    let split = place.text("split");
    fs::create_dir(&split).expect("made");
    let ran = solera(["run", "--split", &split, "--class", "page", "--", "true"]);
    assert!(ran.code == 125 && ran.err.contains("--class"), "{}: {}", ran.code, ran.err);
    let file = place.text("r.json");
    let report = ["--json", "--report-file", &file, "--", "true"];
    solera([&["run"], &on_volume[..], &report].concat()).ok();
    assert!(fs::read_to_string(&file).expect("a report").starts_with('{'));
}

/// In DRAM nothing is flushed, unless that is asked for; who asks is told which holds.
#[test]
fn what_stores_need_is_said_and_persistent_memory_can_be_emulated() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let info = |class: &[&str]| {
        let mut command = command();
        command.args([&["info"], class, &[&volume]].concat());
        Ran::of(&mut command).ok()
    };
    assert!(info(&[]).contains("plain: plain stores, without flushes and fences"), "{}", info(&[]));
    let run = |options: &[&str]| {
        let line = [&["run", "--volume", &volume, "--at", &at, "--report"], options];
        let ran = solera([&line.concat()[..], &["--", "touch", &format!("{at}/file")]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.err
    };
    let said = run(&[]);
    assert!(said.contains("is of class volatile: plain stores"), "{said}");
    let said = run(&["--emulate", "pm"]);
    assert!(said.contains("is of class cache-line: lines are flushed"), "{said}");
    let mut slowed = command();
    slowed.env("SOLERA_MEMORY", "cxl").args(["run", "--volume", &volume, "--at", &at]);
    let said = Ran::of(slowed.args(["--report", "--", "true"])).err;
    assert!(said.contains("is of class volatile: lines are flushed"), "{said}");
    let both = ["run", "--volume", &volume, "--at", &at, "--emulate", "pm", "--class", "byte"];
    let ran = solera([&both[..], &["--", "true"]].concat());
    assert!(ran.code == 125 && ran.err.contains("--emulate pm"), "{}: {}", ran.code, ran.err);
}

/// An unknown word was taken for the usual one.
#[test]
fn values_of_variables_that_nobody_knows_are_refused() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let split = place.text("split");
    fs::create_dir(&split).expect("made");
    let library = Path::new(env!("CARGO_BIN_EXE_solera")).with_file_name("libsolera_preload.so");
    let on_volume = ["run", "--volume", &volume, "--at", &at, "--", "true"];
    let over = ["run", "--split", &split, "--", "true"];
    // Those that are wrong are told by the command, and by the library alone.
    let by_command =
        |line: &[&str], name: &str, value: &str| Ran::of(command().args(line).env(name, value));
    let by_library = |place: &[(&str, &str)], name: &str, value: &str| {
        let mut command = Command::new("true");
        command.env("LD_PRELOAD", &library).envs(place.iter().copied()).env(name, value);
        Ran::of(&mut command)
    };
    let of_volume = [("SOLERA_VOLUME", &*volume), ("SOLERA_AT", &at)];
    let of_split = [("SOLERA_SPLIT", &*split)];
    let words = [
        ("SOLERA_MODE", "foo", "strict"),
        ("SOLERA_NUMA", "near", "place"),
        ("SOLERA_GUARD", "of", "off"),
        ("SOLERA_KERNEL_AIO", "yes", "allow"),
        ("SOLERA_CLASS", "bar", "cache-line"),
        ("SOLERA_MEMORY", "cxl2", "cxl-ssd"),
        ("SOLERA_NUMA_NODES", "0-;x", "0-3;4-7"),
    ];
    for (name, wrong, right) in words {
        by_command(&on_volume, name, wrong).refused(125, &[name, wrong, right]);
        by_library(&of_volume, name, wrong).refused(125, &[name, wrong, right]);
        by_command(&on_volume, name, right).ok();
        by_library(&of_volume, name, right).ok();
    }
    for (name, wrong, right) in [
        ("SOLERA_MODE", "foo", "posix"),
        ("SOLERA_SPLIT_WINDOW", "2M", "2097152"),
        ("SOLERA_SPLIT_STAGING", "-1", "167772160"),
        ("SOLERA_SPLIT_STAGING_FILES", "ten", "10"),
        ("SOLERA_SPLIT_LOG", "", "134217728"),
        ("SOLERA_SPLIT_PATIENCE", "2.5", "2"),
        ("SOLERA_SPLIT_WINDOWS", "x", "16384"),
        ("SOLERA_SPLIT_TECHNIQUE", "link", "relink"),
        ("SOLERA_SPLIT_RELINK", "fast", "copy"),
    ] {
        by_command(&over, name, wrong).refused(125, &[name, wrong]);
        by_library(&of_split, name, wrong).refused(125, &[name, wrong]);
        by_command(&over, name, right).ok();
        by_library(&of_split, name, right).ok();
    }
    let progress = "SOLERA_PROGRESS";
    by_command(&on_volume, progress, "soon").refused(125, &[progress, "soon", "seconds"]);
    by_command(&["fsck", &volume], progress, "soon").refused(16, &[progress, "soon"]);
    by_command(&["ls", &volume], progress, "soon").refused(2, &[progress, "soon"]);
    by_command(&["ls", &volume], progress, "3").ok();
}

/// Each process that attaches the volume is slowed, one that takes over from an exec, too; and they
/// share the bandwidth. Nothing here is said about how fast it may be.
#[test]
fn a_volume_is_as_slow_as_the_model_of_its_memory() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = place.prefix();
    let took = |script: &str| {
        let line = ["run", "--volume", &volume, "--at", &at, "--", "sh", "-c", script, &at];
        let mut command = command();
        command.args(line).env("SOLERA_MEMORY", "0/0.1,0/0.1");
        let start = Instant::now();
        Ran::of(&mut command).ok();
        start.elapsed()
    };
    // 8 MiB, 100 bytes in a microsecond.
    let least = Duration::from_millis(80);
    let wrote = took("head -c 8388608 /dev/zero > $0/file");
    assert!(wrote >= least, "writing took {wrote:?}");
    let read = took("exec cat $0/file > /dev/null");
    assert!(read >= least, "reading behind an exec took {read:?}");
    let both = took("cat $0/file > /dev/null & cat $0/file > /dev/null; wait");
    assert!(both >= 2 * least, "two processes took {both:?}");
}

/// The user may write the volume, and other processes do. Every mapping failed with `EROFS`, one
/// that only reads, too. A mapping must show what the others write.
#[test]
fn what_is_only_read_can_be_mapped() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let program = compiled("cli/tests/run/read_only.c", &[]);
    let caches = place.text("");
    let ways: [&[&str]; 4] = [
        &["--mode", "strict"],
        &["--mode", "sync"],
        &["--mode", "posix"],
        &["--cache", "16M", "--cache-dir", &caches],
    ];
    for way in ways {
        let fill = "cd $0; rm -f f sparse
                    i=0; while [ $i -lt 3000 ]; do printf abc; i=$((i + 1)); done > f
                    fallocate -l 64K sparse; truncate -s 1048575 sparse; printf x >> sparse";
        run(&place, &volume, &[], fill).ok();
        let mut command = command();
        command.args(["run", "--read-only", "--volume", &volume, "--at", &at]).args(way);
        command.args(["--", &program, &at]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut reader = command.spawn().expect("it starts");
        let mut said = BufReader::new(reader.stdout.take().expect("its output"));
        let mut line = String::new();
        said.read_line(&mut line).expect("a line");
        assert_eq!(line, "mapped\n", "{way:?}");
        let write = "cd $0; printf y | dd of=sparse bs=1 seek=524288 conv=notrunc status=none
                     printf tail >> f; truncate -s 12288 f; printf t >> f";
        run(&place, &volume, &[], write).ok();
        reader.stdin.take().expect("its input").write_all(b"go\n").expect("it reads");
        let mut rest = String::new();
        said.read_to_string(&mut rest).expect("text");
        assert_eq!(rest, "seen\n", "{way:?}");
        assert!(reader.wait().expect("its end").success(), "{way:?}");
        solera(["fsck", &volume]).ok();
    }
}

/// The loader names no interpreter, so it was taken for a static program. `ldd` failed in every
/// directory of the volume, and so did programs that ask the loader for the C library's version.
#[test]
fn the_dynamic_loader_starts_programs_that_see_the_volume() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let loader = "/lib64/ld-linux-x86-64.so.2";
    let script = format!(
        "set -e; cd $0; echo text > f; cp /bin/true prog; exec 9< f; L={loader}
         $L /bin/cat $0/f; $L --argv0 own /bin/sh -c 'echo $0; cat f; read x <&9; echo $x'
         $L --version | grep -c ld.so; $L --verify ./prog && $L --list /bin/true | grep -c libc.so
         ldd --version | grep -c ldd; ldd $0/prog | grep -c libc.so; ldd ./prog > listed
         grep -c libc.so listed; LD_TRACE_LOADED_OBJECTS=1 $L prog/../prog 2>&1 | grep -c prog
         ! grep libsolera listed; $L --list ../no-such || echo $?"
    );
    let ran = run(&place, &volume, &[], &script);
    let expected = "text\nown\ntext\ntext\n1\n1\n1\n1\n1\n1\n127\n";
    assert_eq!(ran.out, expected, "{}", ran.err);
    // Without a mount it would open these itself.
    let run = |script: &str| {
        let mut command = command();
        command.args(["run", "--volume", &volume, "--at", &at, "--", "sh", "-c", script, &at]);
        Ran::of(command.env("SOLERA_KEEPER", ""))
    };
    for refused in ["$L $0/prog", "cd $0; $L ./prog", "$L --library-path /x:$0 /bin/true"] {
        let ran = run(&format!("L={loader}; {refused}; exit $?"));
        assert!(ran.code == 126 && ran.err.contains("it is the dynamic loader"), "{}", ran.err);
        assert!(ran.err.contains("its argument"), "{}", ran.err);
    }
    let ran = run(&format!("cd $0; {loader} --list /bin/true > listed"));
    assert!(ran.code == 126 && ran.err.contains("descriptor 1"), "{}", ran.err);
    let ran = run(&format!("cd $0; {loader} --of-tomorrow /bin/true"));
    assert!(ran.code == 126 && ran.err.contains("option that is not known"), "{}", ran.err);
    let head = ["run", "--volume", &volume, "--at", &at, "--", loader];
    let own = format!("{at}/f");
    assert_eq!(solera(head.iter().chain(&["/bin/cat", &own])).ok(), "text\n");
    assert!(solera(head.iter().chain(&["--version"])).ok().contains("ld.so"));
    let alone = compiled("cli/tests/support/static.c", &["-static"]);
    let ran = Ran::of(command().args(head).arg(&alone).env("SOLERA_KEEPER", ""));
    ran.refused(126, &[&alone, "statically linked"]);
}

/// It is static, and is run by a host. It was refused where the working directory is on the volume:
/// Python's `find_library` found nothing.
#[test]
fn ldconfig_tells_its_cache_from_a_directory_of_the_volume() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    // There may be libraries of other machines besides.
    let script = "cd $0; /sbin/ldconfig -p | grep -c 'libc.so.6 (libc6,x86-64)'; \
                  /sbin/ldconfig -n .; echo $?";
    let ran = run(&place, &volume, &["--report"], script).ended_with(0);
    assert_eq!(ran.out, "1\n0\n", "{}", ran.err);
    assert!(!ran.err.contains("working-directory-not-seen"), "{}", ran.err);
}

/// A program that uses the volume for its temporary files has `TMPDIR` name a directory there,
/// which the kernel does not have: `solera run` put its own record there, too, and ended before it
/// started anything.
#[test]
fn the_report_needs_no_temporary_directory_of_the_kernels() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    run(&place, &volume, &[], "mkdir $0/t").ended_with(0);
    let [report, trace] = ["report", "trace"].map(|name| place.text(name));
    let ways: [&[&str]; 4] =
        [&["--report"], &["--report-file", &report], &["--profile"], &["--trace", &trace]];
    for way in ways {
        let mut solera = command();
        solera.env("TMPDIR", format!("{at}/t")).args(["run", "--volume", &volume, "--at", &at]);
        solera.args(way).args(["--", "sh", "-c", "mktemp && chroot . true; exit 3", &at]);
        let ran = Ran::of(&mut solera).ended_with(3);
        assert!(ran.out.starts_with(&format!("{at}/t/tmp.")), "{way:?}: {}", ran.out);
    }
}

/// The kernel finds no directory for a core file while the working directory is on a volume that is
/// not mounted: nobody was told why there is none.
#[test]
fn a_core_file_that_is_lost_is_reported() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").expect("a pattern");
    if pattern.trim().is_empty() || pattern.starts_with(['/', '|']) {
        eprintln!("core files go to {pattern}: nothing tested");
        return;
    }
    let place = TestDir::new();
    let volume = place.volume("64M");
    for (directory, lost) in [(place.prefix(), true), (place.text(""), false)] {
        let mut shell = Command::new("sh");
        let dies = "cd $0 && kill -SEGV $$";
        shell.args(["-c", "ulimit -c unlimited && exec \"$0\" \"$@\""]);
        shell.arg(command().get_program()).args(["run", "--report", "--volume", &volume, "--at"]);
        shell.args([&place.prefix(), "--", "sh", "-c", dies, &directory]);
        let told = Ran::of(&mut shell).ended_with(128 + 11).err;
        assert_eq!(told.contains("relative-core-pattern"), lost, "{directory}: {told}");
    }
}

/// A program that another one executes takes over its attachment. Under a limit of address space it
/// wanted room to grow in that was not to be had, attached anew, and was told that another copy of
/// the library had the volume.
#[test]
fn a_limit_of_address_space_is_enough_or_named() {
    let place = TestDir::new();
    let volume = place.volume("64M");
    let told = run(&place, &volume, &[], "ulimit -v 500000; echo there > $0/a; cat $0/a; true");
    assert_eq!(told.ended_with(0).out, "there\n");
    let told = run(&place, &volume, &[], "ulimit -v 60000; cat $0/a; exit $?").ended_with(125).err;
    let found = format!("solera: cannot attach {volume}: mapping 67108864 bytes gave: ");
    let advice = "; raise the limit of address space, which is 60000 KiB (`ulimit -v`)\n";
    assert!(told.starts_with(&found) && told.ends_with(advice), "{told}");
}
