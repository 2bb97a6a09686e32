//! Processes: how they are made, what they execute, how they end.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{
    PREFIX, TestDir, check_left_in_order, compile, format, library, run, run_hosted, run_with,
    same, text,
};

/// A command that runs on the place's volume.
fn on_volume(place: &TestDir, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .env("LD_PRELOAD", library());
    command
}

fn shell(place: &TestDir, script: &str) -> Output {
    on_volume(place, "bash").args(["-c", script]).output().expect("bash runs")
}

#[test]
fn forks() {
    same("forks");
}

#[test]
fn forks_beside_forks() {
    same("beside_forks");
}

#[test]
fn a_program_that_runs_is_not_written_to() {
    same("busy");
}

/// Children that share their parent's memory until they execute something.
#[test]
fn lends() {
    same("lends");
}

#[test]
fn executes() {
    same("executes");
}

/// For the kernel it is a copy in memory: Node could not start itself again, nor Java find what
/// lies beside it.
#[test]
fn own_program() {
    same("own_program");
}

#[test]
fn exits() {
    same("exits");
}

/// A handler that came between the last served call of its process and the kernel's end of it found
/// its numbers closed (`EBADF`), and so did other threads.
#[test]
fn no_call_fails_while_its_process_ends() {
    same("ends");
}

/// The user that starts a program may open the volume; the one it becomes may not.
#[test]
fn another_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can become another user: nothing tested");
        return;
    }
    let place = TestDir::new("users");
    let program = place.0.join("users");
    compile("users.c", &program, &["-O1"]);
    format(&place.volume());
    let expected = text(&run(&program, &place.0.join("reference"), None));
    // What the other user executes loads the library anew.
    let library = place.library_for_everyone();
    let found = text(&run_with(&library, &program, Path::new(PREFIX), Some(&place.volume())));
    assert_eq!(expected, found);
    check_left_in_order(&place.volume());
}

/// A process that had been root when it attached, and became another user, wrote to set-user-id
/// files of others without taking the bits from them; `chown` without a change was refused to users
/// that did not own the file, and fifos opened only for the user that had attached. One process is
/// many users one after the other, and its threads at once, with every kind of file.
#[test]
fn a_process_that_is_many_users() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root can become another user: nothing tested");
        return;
    }
    let place = TestDir::new("users-change");
    let program = place.0.join("users_change");
    compile("users_change.c", &program, &["-O1"]);
    format(&place.volume());
    let expected = text(&run(&program, &place.0.join("reference"), None));
    let found = text(&run(&program, Path::new(PREFIX), Some(&place.volume())));
    let pairs = expected.lines().zip(found.lines());
    let differ: Vec<_> = pairs.filter(|(one, other)| one != other).take(20).collect();
    assert!(differ.is_empty(), "tmpfs, volume: {differ:#?}");
    assert_eq!(expected.lines().count(), found.lines().count());
    assert!(expected.lines().count() > 50_000, "each call by each user on each kind of file");
    check_left_in_order(&place.volume());
}

/// A place that makes a call again and again is patched if a move of the number stands before it,
/// with nothing but moves of arguments between; so is musl's function that is given the number. All
/// of musl's trapped.
#[test]
fn places_of_a_static_program_are_patched() {
    let place = TestDir::new("patched");
    let program = place.0.join("patched");
    compile("patched.c", &program, &["-O1", "-static"]);
    format(&place.volume());
    let native = text(&run(&program, &place.0.join("reference"), None));
    let found = text(&run_hosted(&program, Path::new(PREFIX), &place.volume()));
    let names = ["bare", "registers", "constants", "memory", "jumps", "other", "given"];
    let said = |is_patched: fn(&str) -> bool| -> String {
        let end = |name| if is_patched(name) { "patched" } else { "as it was" };
        names.map(|name| format!("{name}: right, {}\n", end(name))).concat()
    };
    assert_eq!(native, said(|_| false));
    assert_eq!(found, said(|name| !matches!(name, "jumps" | "other")));
    check_left_in_order(&place.volume());
}

/// A host runs a static program, whichever program starts it, in any directory.
#[test]
fn a_static_program_sees_the_volume() {
    let place = TestDir::new("hosted");
    format(&place.volume());
    let program = place.0.join("static");
    compile("static.c", &program, &["-static"]);
    let (program, outside) = (program.display(), place.0.display());
    let there = format!("echo x > {PREFIX}/x");
    for (script, expected) in [
        (format!("{program}"), "static\n"),
        (format!("{there}; {program} {PREFIX}/x"), ""),
        (format!("{program} {PREFIX}/none; echo $?"), "1\n"),
        (format!("cd {PREFIX}; {program} x; {program} > out; cat out"), "static\n"),
        (format!("cp {program} {PREFIX}/copy; {PREFIX}/copy {PREFIX}/x"), ""),
        (format!("cd {PREFIX}; exec 7< x; exec ./copy /proc/self/fd/7"), ""),
        (format!("cd {PREFIX}; printf '#!{program}\\n' > s; chmod 755 s; ./s"), ""),
        (
            format!(
                "printf '#!{PREFIX}/copy\\n' > {outside}/s; chmod 755 {outside}/s; {outside}/s"
            ),
            "",
        ),
        (
            format!("cd {PREFIX}; ./copy /proc/self/exe && env -i ./copy && nohup ./copy"),
            "static\nstatic\n",
        ),
    ] {
        let output = shell(&place, &script);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(text(&output), expected, "{script}: {said}");
    }
    check_left_in_order(&place.volume());
}

/// A program that a host runs waited at each thread that it made until that had run.
#[test]
fn a_static_programs_threads_begin_in_their_own_time() {
    let place = TestDir::new("makes-threads");
    format(&place.volume());
    let program = place.0.join("makes_threads");
    compile("makes_threads.c", &program, &["-O1", "-static"]);
    let expected = text(&run(&program, &place.0.join("reference"), None));
    let found = text(&run_hosted(&program, Path::new(PREFIX), &place.volume()));
    assert_eq!(expected, found, "the kernel (left), a host (right)");
    check_left_in_order(&place.volume());
}

/// Where there is no host, a static program runs if it would use nothing of the volume. Otherwise
/// it is refused before it runs, with a message and the shell's code 126.
#[test]
fn a_program_that_cannot_be_preloaded() {
    let place = TestDir::new("static");
    format(&place.volume());
    let program = place.0.join("static");
    compile("static.c", &program, &["-static"]);
    let library = place.library_for_everyone();
    let shell = |place: &TestDir, script: &str| {
        let mut bash = on_volume(place, "bash");
        bash.env("LD_PRELOAD", &library).args(["-c", script]).output().expect("bash runs")
    };
    let program = program.display();
    let plain = shell(&place, &format!("{program}; {program} /etc; echo $?"));
    assert_eq!(text(&plain), "static\n0\n");
    let uses = [
        (format!("{program} > {PREFIX}/out"), "descriptor 1"),
        (format!("echo x > {PREFIX}/in; exec 7< {PREFIX}/in; {program}"), "descriptor 7"),
        (format!("cd {PREFIX}; {program}"), "its working directory"),
        (format!("{program} {PREFIX}/x"), "its argument /solera-test/x"),
        (format!("cp {program} {PREFIX}/copy; {PREFIX}/copy {PREFIX}"), "its argument"),
        (format!("printf '#!{program}\\n' > {PREFIX}/s; chmod 755 {PREFIX}/s; {PREFIX}/s"), "its"),
    ];
    for (script, why) in uses {
        let output = shell(&place, &script);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(126), "{script}: {said}");
        assert!(output.stdout.is_empty(), "{script} ran");
        assert!(said.contains("statically linked") && said.contains(why), "{script}: {said}");
    }
    // Not inherited: close-on-exec.
    let output = shell(&place, &format!("exec 7> {PREFIX}/in; {program} 7>&-"));
    assert_eq!(text(&output), "static\n");
    check_left_in_order(&place.volume());
}

/// More processes at once than the volume has places. A child that holds a description has a place
/// from the fork on: the error is a clear one. One that holds none takes a place where it needs it,
/// and waits for one. All places come back.
#[test]
fn more_processes_than_places() {
    let place = TestDir::new("places");
    format(&place.volume());
    let hold = place.0.join("hold");
    let hold = hold.display();
    let script = format!(
        "cd {PREFIX}; mkfifo {hold}; exec 9<>{hold}
         many() {{ python3 -c '
import os, sys
kept = open(\"kept\", \"w\") if sys.argv[1] == \"holds\" else None
held, error = [], 0
for i in range(600):
    try:
        pid = os.fork()
    except OSError as failed:
        error = failed.errno
        break
    if pid == 0:
        open(\"f%d\" % i, \"w\").write(\"x\")
        os.read(9, 1)
        os._exit(0)
    held.append(pid)
print(len(held) > 400, error if kept else error in (0, 11))
sys.stdout.flush()
os.write(9, b\"x\" * len(held))
codes = set(os.waitpid(pid, 0)[1] for pid in held)
pid = os.fork()
if pid == 0: os._exit(0)
print(codes, os.waitpid(pid, 0)[1])
' $1; }}; many holds; many not"
    );
    let output = shell(&place, &script);
    assert_eq!(text(&output), format!("True {}\n{{0}} 0\nTrue True\n{{0}} 0\n", libc::EAGAIN));
    check_left_in_order(&place.volume());
}

/// Too little address space for the volume: said before the program runs.
#[test]
fn too_little_address_space() {
    let place = TestDir::new("space");
    format(&place.volume());
    let script = format!("ulimit -v 100000; exec env LD_PRELOAD={} true", library().display());
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .output()
        .expect("bash runs");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("solera: ") && said.contains("address space"), "{said}");
}

/// Short processes one after the other and side by side use no place up.
#[test]
fn short_processes() {
    let place = TestDir::new("short");
    format(&place.volume());
    let count = if rotation::all() { 5000 } else { 300 };
    let script = format!(
        "cd {PREFIX}; echo text > file
         many() {{ for ((i = 0; i < {count}; i++)); do /bin/true; test -f file; (:);
                   x=$(cat file); [ \"$x\" = text ] || echo wrong; done; }}
         many & many & wait; echo done"
    );
    assert_eq!(text(&shell(&place, &script)), "done\n");
    check_left_in_order(&place.volume());
}

/// System calls that attaching and detaching may add to a program's start: the dynamic linker's for
/// two libraries more (24), the volume's own, whose file says whose it is (6), those of the guard
/// against faults, whose signal must not be blocked (1), and of a process that joins others, to ask
/// for them once more when it has the region (1), and of the first one, which sees that what any
/// call may store to has its memory (4, and one more before Linux 6.5); and of all, to see which
/// anchor directory the region is used with (3), and to close tables to stores (1); and of the C
/// library's patched file, which is opened, believed and mapped (12).
const START_CALLS_MAX: u64 = 125;

/// What a start costs is mostly system calls: their number is guarded, for the first process on a
/// volume and for one that comes beside another.
#[test]
fn the_calls_of_a_start_are_counted() {
    let place = TestDir::new("start");
    format(&place.volume());
    let count = place.0.join("calls");
    compile("calls.c", &count, &["-O1"]);
    let environment = [
        format!("LD_PRELOAD={}", library().display()),
        format!("SOLERA_VOLUME={}", place.volume().display()),
        format!("SOLERA_AT={PREFIX}"),
    ];
    let calls = |environment: &[String]| -> u64 {
        let output = Command::new(&count).arg("/bin/true").args(environment).output();
        text(&output.expect("the counter runs")).trim().parse().expect("a number")
    };
    let plain = calls(&[]);
    let first = calls(&environment);
    let mut other = on_volume(&place, "cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("cat runs");
    // What comes back says that it is there: looking for it would keep it from attaching.
    let mut pipe = other.stdin.take().expect("a pipe");
    pipe.write_all(b"x").expect("it takes it");
    other.stdout.take().expect("a pipe").read_exact(&mut [0]).expect("it gives it back");
    let beside = calls(&environment);
    drop(pipe);
    other.wait().expect("it ends");
    eprintln!("system calls of a start: {plain}, on a volume {first}, beside another {beside}");
    assert!(first - plain <= START_CALLS_MAX, "{first} instead of {plain}");
    assert!(beside - plain <= START_CALLS_MAX, "{beside} instead of {plain}");
}

/// A program that executes another one makes fewer system calls than two programs that attach: the
/// new image takes over what this one has. Of those that it makes before, four look at what the new
/// program needs.
const EXEC_CALLS_SAVED: u64 = 17;

/// What a program needs at its start is looked for before the exec: one that needs nothing of a
/// volume costs no search.
#[test]
fn the_calls_of_an_exec_are_counted() {
    let place = TestDir::new("start-exec");
    format(&place.volume());
    let (count, execs) = (place.0.join("calls"), place.0.join("execs"));
    compile("calls.c", &count, &["-O1"]);
    compile("execs.c", &execs, &["-O1"]);
    let environment = [
        format!("LD_PRELOAD={}", library().display()),
        format!("SOLERA_VOLUME={}", place.volume().display()),
        format!("SOLERA_AT={PREFIX}"),
    ];
    let once = |program: &Path, more: &[&str]| -> u64 {
        let mut command = Command::new(&count);
        let output = command.arg(program).args(&environment).args(more).output();
        text(&output.expect("the counter runs")).trim().parse().expect("a number")
    };
    // Few depend on the moment.
    let calls = |program: &Path, more: &[&str]| {
        (0..3).map(|_| once(program, more)).min().expect("one of them")
    };
    let start = calls(Path::new("/bin/true"), &[]);
    let saved = 2 * start - calls(&execs, &[]);
    // The linker itself looks there: in both programs as often.
    let elsewhere = ["LD_LIBRARY_PATH=/no/such/directory"];
    let start = calls(Path::new("/bin/true"), &elsewhere);
    let with_path = 2 * start - calls(&execs, &elsewhere);
    eprintln!("system calls that an exec saves: {saved}, with a path {with_path}");
    assert!(saved >= EXEC_CALLS_SAVED, "{saved}");
    assert_eq!(saved, with_path);
}

/// A program whose allocator holds its lock while it asks for something, so that the library
/// attaches inside its first `malloc`.
fn allocator(place: &TestDir) -> std::path::PathBuf {
    let (library, program) = (place.0.join("allocator.so"), place.0.join("allocator"));
    compile("allocator.c", &library, &["-DLIBRARY", "-O1", "-fno-builtin", "-fPIC", "-shared"]);
    let library = library.to_str().expect("UTF-8");
    compile("allocator.c", &program, &["-O1", "-fno-builtin", "-Wl,--no-as-needed", library]);
    program
}

/// Runs it in `directory`, with these words in its environment.
fn allocates(program: &Path, directory: &Path, part: &str, words: &[(&str, &Path)]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "600", "env"]);
    // Of these two none attaches.
    for (name, word) in words.iter().copied().chain([("LD_PRELOAD", &*library())]) {
        command.arg(format!("{name}={}", word.display()));
    }
    command.arg(program).arg(directory).arg(part).output().expect("the program runs")
}

#[track_caller]
fn is_killed(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    // `timeout` ends by the same signal.
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(9), "{said}");
}

/// redis, whose allocator is jemalloc, hung for ever if it was the first to attach a volume after a
/// crash: recovery made threads, whose making asks for memory.
#[test]
fn what_a_crash_left_is_recovered_inside_the_first_malloc() {
    let place = TestDir::new("allocator");
    let program = allocator(&place);
    let (at, volume, cache) = (Path::new(PREFIX), place.volume(), place.0.join("cache"));
    std::fs::create_dir(&cache).expect("a directory");
    for mode in ["strict", "sync", "posix"] {
        let own = [("SOLERA_VOLUME", &*volume), ("SOLERA_AT", at), ("SOLERA_MODE", mode.as_ref())];
        let bytes = "67108864".as_ref();
        let cached = [
            ("SOLERA_CACHE", bytes),
            ("SOLERA_CACHE_DIR", &*cache),
            ("SOLERA_CACHE_ATTACH", bytes),
            ("SOLERA_CACHE_MISS", "ahead".as_ref()),
        ];
        let reads = [("SOLERA_READ_ONLY", "1".as_ref())];
        for words in [&[][..], &cached, &reads] {
            let _ = std::fs::remove_file(&volume);
            format(&volume);
            let words = [&own[..], words].concat();
            is_killed(&allocates(&program, at, "die", &own));
            assert_eq!(text(&allocates(&program, at, "look", &words)), "right\n", "{words:?}");
            // One that only reads has left it as it was.
            assert_eq!(text(&allocates(&program, at, "look", &own)), "right\n", "{words:?}");
            check_left_in_order(&volume);
        }
        // It dies beside another one.
        let _ = std::fs::remove_file(&volume);
        format(&volume);
        let mut other = on_volume(&place, "cat");
        let mut other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat");
        let (to, from) = (other.stdin.take(), other.stdout.take());
        let (mut to, mut from) = (to.expect("its input"), from.expect("its output"));
        to.write_all(b"x").expect("it reads");
        from.read_exact(&mut [0]).expect("it has attached");
        is_killed(&allocates(&program, at, "die", &own));
        assert_eq!(text(&allocates(&program, at, "look", &own)), "right\n", "{mode}");
        drop(to);
        assert!(other.wait().expect("it ends").success());
        check_left_in_order(&volume);
    }
}

/// The same over a kernel file system.
#[test]
fn what_was_staged_is_recovered_inside_the_first_malloc() {
    let place = TestDir::new("allocator-split");
    let program = allocator(&place);
    for mode in ["strict", "sync", "posix"] {
        let directory = place.0.join(mode);
        std::fs::create_dir(&directory).expect("a directory");
        let words = [
            ("SOLERA_SPLIT", &*directory),
            ("SOLERA_MODE", mode.as_ref()),
            ("SOLERA_EMULATE", "1".as_ref()),
            ("SOLERA_SPLIT_PATIENCE", "0".as_ref()),
        ];
        is_killed(&allocates(&program, &directory, "die", &words));
        assert_eq!(text(&allocates(&program, &directory, "look", &words)), "right\n", "{mode}");
    }
}

/// Node did not start: it has a copy of `__libc_stack_end`, which was read before it was filled.
#[test]
fn a_program_with_copies_of_the_linkers_variables() {
    let place = TestDir::new("copied");
    let program = place.0.join("copied");
    compile("copied.c", &program, &["-O1", "-fno-pie", "-no-pie"]);
    format(&place.volume());
    let plain = text(&run(&program, &place.0.join("reference"), None));
    let found = text(&run(&program, Path::new(PREFIX), Some(&place.volume())));
    assert_eq!(plain, found);
}
