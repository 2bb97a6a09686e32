//! Programs that attach the volume at the first call that needs it, and those that never do.

use std::process::{Command, Stdio};

use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, library, text};

fn shell(place: &TestDir, script: &str) -> String {
    shell_without(place, script, "")
}

/// The same, where programs of that name are not served.
fn shell_without(place: &TestDir, script: &str, bypassed: &str) -> String {
    let mut command = Command::new("bash");
    command.args(["-c", script]).env("PLACE", &place.0).env("SOLERA_BYPASS", bypassed);
    command
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .env("LD_PRELOAD", library());
    text(&command.output().expect("bash runs"))
}

fn volume(name: &str) -> TestDir {
    let place = TestDir::new(name);
    format(&place.volume());
    place
}

/// Whether a process has the volume mapped, as a function of the shell's.
const MAPPED: &str =
    "mapped() { if grep -q \"$PLACE\" /proc/$1/maps; then echo yes; else echo no; fi; }; ";

#[test]
fn a_child_that_needs_no_volume_has_none() {
    let place = volume("late-none");
    let script = format!(
        "{MAPPED} cd {PREFIX}; echo text > file
         begun() {{ until [ \"$(cat /proc/$1/comm)\" = \"$2\" ]; do :; done; mapped $1; kill $1; }}
         # By its whole name: the shell looks at the directory first, if it has to search.
         /bin/sleep 100 & begun $! sleep
         /bin/sleep 100 < file & begun $! sleep
         /usr/bin/env /bin/sleep 100 & begun $! sleep
         /bin/cat file"
    );
    // The first and the third inherit nothing but the working directory.
    assert_eq!(shell(&place, &script), "no\nyes\nno\ntext\n");
    check_left_in_order(&place.volume());
}

/// The lists of mounts have the volume, and are the same before and after.
#[test]
fn a_child_that_reads_its_lists_of_mounts_has_no_volume() {
    let place = volume("late-lists");
    let script = format!(
        "cd {PREFIX}; echo text > file; cd /
         /usr/bin/env -u OLDPWD python3 -c '
import os, sys
volume = sys.argv[1] + \"/v.pm\"
lists = [\"/proc/self/mountinfo\", \"/proc/self/mounts\", \"/proc/mounts\"]
def ours(): return [line for name in lists for line in open(name) if volume in line]
def has_it(): return volume in open(\"/proc/self/maps\").read()
before, had = ours(), has_it()
device = os.stat(\"{PREFIX}/file\").st_dev
text = \"%d:%d\" % (os.major(device), os.minor(device))
print(had, has_it(), len(before), before == ours(), text in before[0].split(), before[1].split()[3])
' \"$PLACE\"; :"
    );
    assert_eq!(shell(&place, &script), "False True 3 True True rw,relatime\n");
    check_left_in_order(&place.volume());
}

/// What a child makes of it that was forked without a place.
#[test]
fn a_child_takes_a_place_when_it_needs_one() {
    let place = volume("late-fork");
    let script = format!(
        "cd {PREFIX}; echo one > file
         (cat file; echo two >> file); cat file
         (cd /; sh -c 'cd {PREFIX}; cat file; pwd'; cat {PREFIX}/file)
         python3 -c '
import os, threading
def add(): open(\"many\", \"a\").write(\"x\")
if os.fork() == 0:
    threads = [threading.Thread(target=add) for _ in range(8)]
    [thread.start() for thread in threads]; [thread.join() for thread in threads]
    if os.fork() == 0:
        os.execvp(\"cat\", [\"cat\", \"many\"])
    os._exit(os.wait()[1])
print(os.wait()[1])'"
    );
    let expected = format!("one\none\ntwo\none\ntwo\n{PREFIX}\none\ntwo\nxxxxxxxx0\n");
    assert_eq!(shell(&place, &script), expected);
    check_left_in_order(&place.volume());
}

/// Children without a place outlive all that had one, killed or not: they attach anew, and nobody
/// waits for them.
#[test]
fn a_child_outlives_all_that_are_attached() {
    let place = volume("late-alone");
    let plain = |script: &str| {
        let output = Command::new("bash").args(["-c", script]).current_dir(&place.0).output();
        text(&output.expect("bash runs"))
    };
    for end in ["exit", "kill -9 $$"] {
        plain("rm -f fork exec done; mkfifo fork exec done");
        let script = format!(
            "(read < \"$PLACE/fork\"; echo forked >> {PREFIX}/file; echo > \"$PLACE/done\") &
             sh -c 'cd \"$PLACE\"; read x < exec; echo executed >> {PREFIX}/file; echo > done' &
             {end}"
        );
        let mut first = Command::new("bash");
        first.args(["-c", &script]).env("PLACE", &place.0).stdout(Stdio::null());
        first.env("SOLERA_VOLUME", place.volume()).env("SOLERA_AT", PREFIX);
        first.env("LD_PRELOAD", library()).status().expect("bash runs");
        // Both children wait. Whoever attaches now waits for neither.
        assert_eq!(shell(&place, &format!("echo new > {PREFIX}/file; cat {PREFIX}/file")), "new\n");
        assert_eq!(plain("echo > fork; cat done; echo > exec; cat done"), "\n\n");
        let expected = "new\nforked\nexecuted\n";
        assert_eq!(shell(&place, &format!("cat {PREFIX}/file")), expected, "{end}");
        check_left_in_order(&place.volume());
    }
}

/// The user that a program becomes may not open the volume, and another root does not have it: the
/// program attaches before.
#[test]
fn another_user_before_the_first_call() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested: only root becomes other users");
        return;
    }
    let place = volume("late-user");
    let script = format!(
        "cd /; umask 0; echo text > {PREFIX}/file
         export FILE={PREFIX}/file
         setpriv --reuid 12345 --clear-groups sh -c 'id -u; cat $FILE; sh -c \"cat $FILE\"'
         sh -c 'setpriv --reuid 12345 --clear-groups cat {PREFIX}/file; echo $?'
         python3 -c '
import os
if os.fork() == 0:
    os.setuid(12345)
    print(open(\"{PREFIX}/file\").read(), end=\"\", flush=True)
    os.execvp(\"cat\", [\"cat\", \"{PREFIX}/file\"])
os.wait()
os.chroot(\"/proc\")
print(open(\"{PREFIX}/file\").read(), end=\"\")'"
    );
    assert_eq!(shell(&place, &script), "12345\ntext\ntext\ntext\n0\ntext\ntext\ntext\n");
    check_left_in_order(&place.volume());
}

/// The volume's file has another name by now: what is executed then inherits it.
#[test]
fn the_volume_is_renamed_while_in_use() {
    let place = volume("late-renamed");
    let script = format!(
        "cd {PREFIX}; echo text > file; mv {volume} {volume}.other
         cat file; (cat file); sh -c 'cat file'; mv {volume}.other {volume}; cat file",
        volume = place.volume().display()
    );
    assert_eq!(shell(&place, &script), "text\n".repeat(4));
    check_left_in_order(&place.volume());
}

/// Threads that attach at once, beside one that forks and executes.
#[test]
fn threads_attach_beside_forks() {
    let place = volume("late-threads");
    let script = format!(
        "cat > \"$PLACE/threads.py\" <<'END'
import os, subprocess, sys, threading
go = threading.Event()
def use(number):
    go.wait()
    with open(f'{PREFIX}/{{number}}', 'w') as file: file.write('x')
def fork():
    go.wait()
    for _ in range(3):
        child = os.fork()
        if child == 0:
            os._exit(0 if os.path.isdir('{PREFIX}') else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert subprocess.run(['true']).returncode == 0
threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
threads.append(threading.Thread(target=fork))
[thread.start() for thread in threads]
go.set()
[thread.join() for thread in threads]
END
         for i in $(seq 10)
         do python3 \"$PLACE/threads.py\" || echo failed; rm {PREFIX}/[0-3]
         done
         ls {PREFIX}"
    );
    assert_eq!(shell(&place, &script), "");
    check_left_in_order(&place.volume());
}

/// System calls that a program without use of the volume may make more than one without this
/// library: before the exec, to see what it needs and whether the volume is where it was (19); the
/// dynamic linker's for the library (7), the C library's patched file (12), handlers and their
/// masks, tables that wait, what user and what directory this is, the page that forks empty (28);
/// and a few that depend on the machine.
const CALLS_MAX: u64 = 73;

/// A program that is executed by one that holds nothing makes few system calls more.
#[test]
fn the_calls_of_a_program_without_use_are_counted() {
    let place = volume("late-calls");
    let count = place.0.join("calls");
    compile("calls.c", &count, &["-O1", "-DINHERITS"]);
    let plain = Command::new(&count).arg("/bin/true").env_clear().output().expect("it runs");
    let plain: u64 = text(&plain).trim().parse().expect("a number");
    let found: u64 = shell(&place, &format!("cd /; {} /bin/true", count.display()))
        .trim()
        .parse()
        .expect("a number");
    eprintln!("system calls of a program: {plain}, without use of the volume {found}");
    assert!(found - plain <= CALLS_MAX, "{found} instead of {plain}");
}

/// A child that needs nothing of the volume relocates few of the library's tables; the others are
/// there before anybody could miss them, also where the library does not know that they are needed.
#[test]
fn tables_that_were_put_off_are_there_when_they_are_needed() {
    let place = volume("late-tables");
    compile("closed_pages.c", &place.0.join("closed"), &["-O1", "-pthread"]);
    let ways = ["read", "fault", "block", "handler", "wait", "thread", "open", "fork", "spawn"];
    let script = format!(
        "echo text > {PREFIX}/file; cd /
         for way in {}; do \"$PLACE/closed\" $way {PREFIX}/file || echo $way; done",
        ways.join(" ")
    );
    assert_eq!(shell(&place, &script), "right\n".repeat(ways.len()));
    let script = format!("cd /; \"$PLACE/closed\" unserved {PREFIX}/file; :");
    assert_eq!(shell_without(&place, &script, "closed"), "right\n");
    check_left_in_order(&place.volume());
}

/// A signal that is kept back blocks what a fault raises: what waited for its first fault was
/// touched then, and the process ended by SIGSEGV (`timeout`, whose child ends at once).
#[test]
fn a_signal_within_the_first_call_finds_everything_there() {
    let place = volume("late-signal");
    compile("early_signal.c", &place.0.join("early"), &["-O1"]);
    let script = r#"for i in $(seq 60); do "$PLACE/early" || echo "early: $?"; timeout 100 false
         [ $? = 1 ] || echo "timeout: $?"; done"#;
    assert_eq!(shell(&place, script), "");
}

/// What a program executes of the library at its start lies together: each 64 KiB that it comes to
/// are a page fault. The list of functions that says so goes out of date without a word.
#[test]
fn code_of_a_start_lies_together() {
    /// 7 when the list was made anew, 14 with an old one. Other compilers inline other functions.
    const PLACES_MAX: usize = 10;
    let compiler = Command::new("rustc").arg("-V").output().expect("rustc").stdout;
    let of_costs = include_str!("../costs.txt").contains(String::from_utf8_lossy(&compiler).trim());
    let most = if of_costs { PLACES_MAX } else { 2 * PLACES_MAX };
    let place = volume("late-code");
    let (steps, out) = (place.0.join("steps"), place.0.join("out"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/link/steps.c");
    let compiled = Command::new("cc").args(["-O2", source, "-o"]).arg(&steps).status();
    assert!(compiled.expect("cc").success(), "cc could not compile {source}");
    let mut run = Command::new(&steps);
    run.arg(&out).arg("/bin/true").env("SOLERA_VOLUME", place.volume()).env("SOLERA_AT", PREFIX);
    assert!(run.env("LD_PRELOAD", library()).status().expect("it runs").success());
    let executed = std::fs::read_to_string(&out).expect("what was executed");
    let offset = |line: &str| usize::from_str_radix(line, 16).expect("an offset");
    // Behind the library's 32 MiB others are mapped.
    let places: std::collections::BTreeSet<_> =
        executed.lines().map(|line| offset(line) >> 16).filter(|place| *place < 0x200).collect();
    eprintln!("places of 64 KiB: {places:x?}");
    assert!(executed.lines().count() > 1000, "it runs with the library");
    assert!(places.len() <= most, "run crates/preload/link/first-used.py");
}
