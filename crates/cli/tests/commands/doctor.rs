//! `solera doctor`: on this machine everything that is needed works; with each thing taken away it
//! says which, and what to do.
//!
//! Other tests have mounts and volumes here meanwhile, broken ones too: where the verdict counts, a
//! command has mounts and a `/dev/shm` of its own.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::domain::Machine;
use crate::group::Group;
use crate::support::{
    LIBRARY, Mounted, Ran, TestDir, as_user, built, can_change_user, can_mount, command, compiled,
    solera, with_own_mounts,
};

/// What a report says of one subject, where a text stands in it.
#[track_caller]
fn of<'v>(report: &'v Value, subject: &str, text: &str) -> &'v Value {
    let mut all = report["findings"].as_array().expect("findings").iter();
    let is_it = |one: &&Value| {
        one["subject"] == subject && one["found"].as_str().expect("a text").contains(text)
    };
    all.find(is_it).unwrap_or_else(|| panic!("no {subject} with `{text}` in {report:#}"))
}

/// It is so, and the advice says this.
#[track_caller]
fn is(finding: &Value, state: &str, advice: &str) {
    assert_eq!(finding["state"], state, "{finding:#}");
    let said = finding["advice"].as_str().unwrap_or_default();
    assert!(said.contains(advice) && said.is_empty() == advice.is_empty(), "{finding:#}");
}

fn report(arguments: &[&str]) -> Ran {
    solera(["doctor", "--json"].iter().chain(arguments))
}

/// What it printed, however it ended.
fn json(ran: &Ran) -> Value {
    assert!(ran.code < 2, "{} {}", ran.out, ran.err);
    // Other commands may have said something before.
    let at = ran.out.find("{\n").unwrap_or_default();
    serde_json::from_str(&ran.out[at..])
        .unwrap_or_else(|error| panic!("{error} in {} {}", ran.out, ran.err))
}

/// A shell's lines with mounts of their own, an empty `/dev/shm` and `/run`, where the last command
/// is the doctor's. Nothing else on this machine is seen, and nothing of it is changed. The command
/// is `$solera`.
fn alone(lines: &str, last: &str) -> Ran {
    let script = format!(
        "set -e; mount -t tmpfs none /run; mkdir /run/tools; cp {} {} /run/tools; \
         mount -t tmpfs -o mode=1777 none /dev/shm; \
         export HOME=/nonexistent XDG_RUNTIME_DIR= solera=/run/tools/solera; {lines}\n{last}",
        built("solera").display(),
        built(LIBRARY).display(),
    );
    Ran::new(script.clone(), &with_own_mounts("none", &script))
}

const DOCTOR: &str = "exec $solera doctor --json";

#[test]
fn this_machine_has_all_that_is_needed() {
    if !can_mount() {
        return;
    }
    let ran = alone("", DOCTOR);
    let said = json(&ran);
    assert_eq!((ran.code, &said["ok"]), (0, &Value::Bool(true)), "{said:#}");
    let subjects = [
        "cpu",
        "memory",
        "persistent",
        "/dev/shm",
        "library",
        "c library",
        "limits",
        "kernel",
        "own calls",
        "fuse",
        "userfaultfd",
        "mount",
        "volume",
        "cache",
        "domain",
    ];
    for subject in subjects {
        of(&said, subject, "");
    }
    for subject in ["mount", "volume", "cache", "domain"] {
        is(of(&said, subject, "none"), "ok", "");
    }
    is(of(&said, "fuse", "no library can enter"), "ok", "");
    is(of(&said, "library", "libsolera_preload.so"), "ok", "");
    is(of(&said, "limits", "none that matters"), "ok", "");
    // As text: a line for each, and the verdict.
    let text = alone("", "exec $solera doctor").ok();
    let (lines, verdict) = text.trim_end().rsplit_once('\n').expect("lines");
    assert_eq!(verdict, "all that is needed works");
    assert_eq!(lines.lines().count(), subjects.len(), "{text}");
    for line in lines.lines() {
        let word = line.split(' ').next().unwrap_or_default();
        assert!(["ok", "less"].contains(&word), "{line}");
    }
    solera(["doctor", "--unknown"]).ended_with(2);
}

#[test]
fn devices_and_mounts_that_are_taken_away_are_missed() {
    if !can_mount() {
        return;
    }
    let said = json(&alone("mount --bind /dev/null /dev/fuse", DOCTOR));
    is(of(&said, "fuse", "another device than FUSE's"), "less", "make it anew");
    let said = json(&alone("mount -t tmpfs none /dev", DOCTOR));
    is(of(&said, "fuse", "/dev/fuse cannot be opened"), "less", "load the kernel's module");
    is(of(&said, "/dev/shm", "there is none"), "less", "mount a tmpfs there");
    let said = json(&alone("mount -t tmpfs -o size=64M none /dev/shm", DOCTOR));
    is(of(&said, "/dev/shm", "a tmpfs of 64.00 MiB"), "less", "--shm-size");
    let said = json(&alone("mount -t tmpfs -o huge=advise none /dev/shm", DOCTOR));
    let told = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    if told.is_ok_and(|text| !text.contains("[deny]")) {
        is(of(&said, "/dev/shm", "huge pages"), "ok", "");
        let small = alone("mount -t tmpfs -o huge=never none /dev/shm", DOCTOR);
        is(of(&json(&small), "/dev/shm", "4 KiB"), "less", "huge=advise");
    } else {
        is(of(&said, "/dev/shm", "no huge pages"), "less", "shmem_enabled");
    }
    // A root that may not mount, as in most containers.
    let bare = "exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin $solera doctor --json";
    let said = json(&alone("", bare));
    is(of(&said, "fuse", "this root may not mount"), "less", "outside the container");
}

#[test]
fn calls_that_a_filter_forbids_are_missed() {
    let forbid = compiled("cli/tests/commands/forbid.c", &[]);
    let without = |number: libc::c_long, argument: i32, errno: i32| {
        let mut command = Command::new(&forbid);
        command.args([number.to_string(), argument.to_string(), errno.to_string()]);
        command.arg(built("solera")).args(["doctor", "--json"]).env_remove("LD_PRELOAD");
        json(&Ran::of(command.stdin(Stdio::null())))
    };
    for (errno, found, advice) in [
        (libc::EPERM, "forbidden here", "seccomp"),
        (libc::ENOSYS, "no userfaultfd", "CONFIG_USERFAULTFD"),
        (libc::EINVAL, "too old", "5.19"),
    ] {
        let said = without(libc::SYS_userfaultfd, -1, errno);
        is(of(&said, "userfaultfd", found), "less", advice);
        is(of(&said, "limits", "a filter of system calls is in force"), "ok", "");
    }
    // PR_SET_SYSCALL_USER_DISPATCH.
    let said = without(libc::SYS_prctl, 59, libc::EINVAL);
    is(of(&said, "own calls", "does not let them be served"), "less", "Linux 5.11");
    let all = json(&report(&[]));
    is(of(&all, "userfaultfd", "volumes of domains"), "ok", "");
}

/// `vm.unprivileged_userfaultfd` is 0 by default, and `/dev/userfaultfd` root's: neither matters,
/// since no process asks for the kernel's own accesses.
#[test]
fn another_user_needs_no_setting_for_userfaultfd() {
    if !can_change_user() {
        return;
    }
    let dir = TestDir::new();
    let mut command = as_user(4242, "", &dir.for_everyone());
    command.args(["doctor", "--json"]).env("HOME", "/nonexistent").env_remove("LD_PRELOAD");
    let said = json(&Ran::of(command.env_remove("XDG_RUNTIME_DIR")));
    is(of(&said, "userfaultfd", "volumes of domains"), "ok", "");
    // The helper of users that may not mount.
    let helper = of(&said, "fuse", "");
    if helper["values"]["helper"].is_null() {
        is(helper, "less", "fuse3");
    } else {
        is(of(&said, "fuse", "mounts for this user"), "ok", "");
    }
    // Without it.
    let program = dir.for_everyone();
    let mut command = as_user(4242, "", "env");
    command.args(["PATH=/nonexistent", "XDG_RUNTIME_DIR=", &program, "doctor", "--json"]);
    command.env_remove("LD_PRELOAD");
    let said = json(&Ran::of(&mut command));
    is(of(&said, "fuse", "there is no fusermount3"), "less", "fuse3");
}

#[test]
fn limits_are_told() {
    let dir = TestDir::new();
    let volume = dir.volume("256M");
    let limited = |limit: &str, rest: &[&str]| {
        let mut command = Command::new("prlimit");
        command.arg(limit).arg(built("solera")).args(["doctor", "--json"]).args(rest);
        json(&Ran::of(command.env_remove("LD_PRELOAD").stdin(Stdio::null())))
    };
    let said = limited("--nofile=64", &[]);
    is(of(&said, "limits", "64 descriptors"), "less", "raise");
    let said = limited("--fsize=1048576", &[]);
    is(of(&said, "limits", "files of 1.00 MiB (ulimit -f)"), "less", "raise");
    let said = limited("--as=4294967296", &[&volume]);
    is(of(&said, "limits", "address space 4.00 GiB"), "less", "raise");
    is(of(&said, "volume", &volume), "ok", "");
    let large = dir.text("large.pm");
    solera(["format", "--size", "2G", &large]).ok();
    let mut command = Command::new("prlimit");
    command.arg("--as=1073741824").arg(built("solera")).args(["doctor", "--json", &large]);
    let ran = Ran::of(command.env_remove("LD_PRELOAD").stdin(Stdio::null()));
    assert_eq!(ran.code, 1, "{}", ran.out);
    let said = json(&ran);
    is(of(&said, "volume", &large), "broken", "");
}

#[test]
fn a_control_group_is_told() {
    let Some(group) = Group::new(256 << 20) else { return };
    let line = format!("{} && exec {} doctor --json", group.entry(), built("solera").display());
    let ran = Ran::of(Command::new("sh").args(["-c", &line]).env_remove("LD_PRELOAD"));
    is(of(&json(&ran), "memory", "the control group may have 256 MiB"), "less", "the kernel kills");
}

#[test]
fn a_library_that_cannot_be_preloaded_is_broken() {
    let run = |library: &str| {
        let mut command = command();
        command.args(["doctor", "--json"]).env("SOLERA_PRELOAD", library);
        Ran::of(&mut command)
    };
    let ran = run("/nonexistent.so");
    assert_eq!(ran.code, 1);
    is(of(&json(&ran), "library", "/nonexistent.so"), "broken", "");
    if !can_mount() {
        return;
    }
    let lines = "mkdir /dev/shm/no; mount -t tmpfs -o noexec none /dev/shm/no; \
                 cp /run/tools/lib* /dev/shm/no; \
                 export SOLERA_PRELOAD=/dev/shm/no/libsolera_preload.so";
    let ran = alone(lines, DOCTOR);
    assert_eq!(ran.code, 1, "{}", ran.err);
    is(of(&json(&ran), "library", "mounted noexec"), "broken", "the loader maps nothing");
    // It is true: the loader says so, and the program sees no volume.
    let ran = alone(lines, "LD_PRELOAD=$SOLERA_PRELOAD /bin/true");
    assert!(ran.err.contains("cannot be preloaded"), "{}", ran.err);
}

/// The folder of the package, where it is: what is done there is done in mounts of its own.
#[test]
fn the_patched_text_of_the_c_library_is_judged() {
    if !can_mount() {
        return;
    }
    let folder = "/usr/lib/x86_64-linux-gnu/solera/door";
    // As root's `solera run` does.
    solera(["door", "prepare"]).ok();
    if !fs::metadata(folder).is_ok_and(|found| found.is_dir()) {
        eprintln!("skipped: this system's /usr cannot be changed");
        return;
    }
    let with = |options: &str, lines: &str| {
        let lines = format!(
            "mount -t tmpfs none /var/cache; mount -t tmpfs -o mode=755{options} none {folder}; \
             {lines}"
        );
        json(&alone(&lines, DOCTOR))
    };
    let said = with("", "");
    is(of(&said, "c library", "is not made yet"), "less", "solera door prepare");
    let prepare = "$solera door prepare > /dev/null";
    let said = with("", prepare);
    is(of(&said, "c library", "patched: "), "ok", "");
    let said = with(",noexec", prepare);
    is(of(&said, "c library", "noexec: each process copies it"), "less", "without noexec");
    let said = with("", &format!("{prepare}; chmod 777 {folder}"));
    is(of(&said, "c library", "others than its owner may write its folder"), "less", "prepare");
    let said = with("", &format!("{prepare}; chmod 666 {folder}/*"));
    is(of(&said, "c library", "others than its owner may write it"), "less", "prepare");
    let said = with("", &format!("{prepare}; for f in {folder}/*; do truncate -s 5000 $f; done"));
    let damaged = of(&said, "c library", "each process patches its own memory");
    is(damaged, "less", "prepare");
    // What is advised mends it.
    let mended = with(
        "",
        &format!("{prepare}; for f in {folder}/*; do truncate -s 5000 $f; done; {prepare}"),
    );
    is(of(&mended, "c library", "patched: "), "ok", "");
}

fn flip(volume: &str, at: u64) {
    let file = fs::File::options().read(true).write(true).open(volume).expect("it opens");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 0x40], at).expect("written");
}

#[test]
fn a_volume_is_told_as_it_is() {
    let dir = TestDir::new();
    let volume = dir.volume("64M");
    let said = report(&[&volume]);
    let said = json(&said);
    is(of(&said, "volume", &format!("{volume}: 64.00 MiB")), "ok", "");
    is(of(&said, "volume", "not in use; no fault"), "ok", "");

    // In use: it is not checked, since changes would wait.
    let at = dir.prefix();
    let mut user = command();
    user.args(["run", "--volume", &volume, "--at", &at, "--", "sh", "-c"]);
    user.args([&format!("exec 5> {at}/f; echo ready; read line")]);
    let mut user = user.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    user.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 6]).expect("it is ready");
    let said = json(&report(&[&volume]));
    is(of(&said, "volume", "in use by 1 process"), "ok", "");
    user.kill().and_then(|()| user.wait()).expect("killed");
    let said = json(&report(&[&volume]));
    is(of(&said, "volume", "the next program recovers it"), "ok", "");
    solera(["ls", &volume]).ok();

    // A flipped bit in the first superblock: there is a copy.
    flip(&volume, 40);
    let ran = report(&[&volume]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    is(of(&json(&ran), "volume", "1 fault"), "broken", "solera fsck --repair");
    solera(["fsck", "--repair", &volume]).ended_with(1);
    is(of(&json(&report(&[&volume])), "volume", "no fault"), "ok", "");
    // In both.
    flip(&volume, 40);
    flip(&volume, 4096 + 40);
    let ran = report(&[&volume]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    is(of(&json(&ran), "volume", &volume), "broken", "");

    for (path, found) in [("nothing", "No such file"), (".", "no file and no device")] {
        let ran = report(&[&dir.text(path)]);
        assert_eq!(ran.code, 1, "{}", ran.out);
        assert_eq!(of(&json(&ran), "volume", found)["state"], "broken");
    }
    fs::write(dir.path("text"), vec![b'x'; 8 << 20]).expect("written");
    let ran = report(&[&dir.text("text")]);
    assert_eq!(of(&json(&ran), "volume", &dir.text("text"))["state"], "broken");
}

#[test]
fn a_volume_of_another_user_is_not_read() {
    if !can_change_user() {
        return;
    }
    let dir = TestDir::new();
    let (volume, program) = (dir.volume("64M"), dir.for_everyone());
    let report = |volume: &str| {
        let mut command = as_user(4242, "", &program);
        command.args(["doctor", "--json", volume]).env_remove("LD_PRELOAD");
        Ran::of(command.env_remove("XDG_RUNTIME_DIR").env("HOME", "/nonexistent"))
    };
    let ran = report(&volume);
    assert_eq!(ran.code, 1, "{}", ran.out);
    let said = json(&ran);
    is(of(&said, "volume", "user 4242 may not read it (mode 0600"), "broken", "0660");
    let permissions = fs::Permissions::from_mode(0o644);
    fs::set_permissions(&volume, permissions).expect("its mode");
    let said = json(&report(&volume));
    is(of(&said, "volume", "this user may only read it"), "less", "--read-only");
}

#[test]
fn volumes_are_found_and_lack_of_memory_is_told() {
    if !can_mount() {
        return;
    }
    let lines = "for v in 256M/one.pm 32M/conf; do \
                 $solera format --size ${v%/*} /dev/shm/${v#*/}; done; \
                 mkdir /dev/shm/small; mount -t tmpfs -o size=48M none /dev/shm/small; \
                 $solera format --size 64M /dev/shm/small/two.pm; \
                 head -c 8M /dev/zero > /dev/shm/other; mkdir -p /dev/shm/.etc/solera; \
                 mv /dev/shm/conf /dev/shm/small/conf; \
                 printf 'VOLUME=/dev/shm/small/conf\\n' > /dev/shm/.etc/solera/db.conf; \
                 mount --bind /dev/shm/.etc /etc";
    let ran = alone(lines, "exec $solera doctor --json /dev/shm/small/two.pm");
    let said = json(&ran);
    is(of(&said, "volume", "/dev/shm/one.pm: 256 MiB"), "ok", "");
    is(of(&said, "volume", "lacks"), "less", "ENOSPC");
    is(of(&said, "volume", "/dev/shm/small/conf: 32.00 MiB"), "ok", "");
    assert!(!ran.out.contains("/dev/shm/other"), "{}", ran.out);
    assert_eq!(ran.code, 0);
    // A volume on a disk.
    let page = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("doctor.pm");
    let page = page.to_str().expect("our own names are UTF-8");
    let _ = fs::remove_file(page);
    solera(["format", "--class", "page", "--size", "16M", page]).ok();
    let said = json(&report(&[page]));
    let _ = fs::remove_file(page);
    if of(&said, "volume", page)["values"]["class"] == "page" {
        is(of(&said, "volume", "on an ordinary disk"), "less", "--class page");
    }
}

/// The process that serves a mount.
fn server(mounted: &Mounted) -> Pid {
    let mut pid = [0; 16];
    let length =
        rustix::fs::getxattr(&mounted.at, "solera.process", &mut pid[..]).expect("it says");
    let pid = std::str::from_utf8(&pid[..length]).expect("text").parse().expect("a number");
    Pid::from_raw(pid).expect("one")
}

#[test]
fn a_mount_that_does_not_serve_is_broken() {
    if !can_mount() {
        return;
    }
    let dir = TestDir::new();
    let mounted = Mounted::new(&dir, "64M", &[]);
    let said = json(&report(&[]));
    let serves = format!("{} serves {}", mounted.at, mounted.volume);
    is(of(&said, "mount", &serves), "ok", "");
    is(of(&said, "volume", &format!("{}: 64.00 MiB", mounted.volume)), "ok", "");

    let server = server(&mounted);
    kill_process(server, Signal::STOP).expect("stopped");
    let begun = Instant::now();
    let said = report(&[]);
    kill_process(server, Signal::CONT).expect("it goes on");
    assert_eq!(said.code, 1, "{}", said.out);
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
    let silent = format!("{} does not answer", mounted.at);
    is(of(&json(&said), "mount", &silent), "broken", "SIGCONT");

    // Another file is there now.
    let volume = mounted.volume.clone();
    solera(["format", "--size", "64M", &dir.text("new.pm")]).ok();
    fs::rename(&volume, dir.path("old")).expect("renamed");
    fs::rename(dir.path("new.pm"), &volume).expect("renamed");
    let said = json(&report(&[]));
    let lost = format!("{} serves a file that is no longer at {volume}", mounted.at);
    is(of(&said, "mount", &lost), "broken", "copy out");

    kill_process(server, Signal::KILL).expect("killed");
    let died = format!("{}: its process has died", mounted.at);
    let begun = Instant::now();
    let said = loop {
        let said = report(&[]);
        if said.out.contains(&died) || begun.elapsed() > Duration::from_mins(1) {
            break said;
        }
    };
    assert_eq!(said.code, 1, "{}", said.out);
    is(of(&json(&said), "mount", &died), "broken", "solera umount");
}

#[test]
fn a_cache_is_told() {
    if !can_mount() {
        return;
    }
    let lines = "$solera format --size 64M /dev/shm/v.pm; \
                 $solera run --cache 16M --volume /dev/shm/v.pm --at /pm -- sh -c \
                 'head -c 3M /dev/zero > /pm/f; cat /pm/f /pm/f > /dev/null'";
    let said = json(&alone(lines, DOCTOR));
    is(of(&said, "cache", "/dev/shm/solera-cache-"), "ok", "");
    // One that is damaged is nothing to lose: a program makes it anew.
    let damaged = format!(
        "{lines}; for f in $(find /dev/shm/solera-cache-* -name index); do \
         dd if=/dev/urandom of=$f bs=4k count=1 conv=notrunc status=none; done"
    );
    is(of(&json(&alone(&damaged, DOCTOR)), "cache", "makes it anew"), "ok", "");
    let open = format!("{lines}; chmod 777 /dev/shm/solera-cache-*");
    is(of(&json(&alone(&open, DOCTOR)), "cache", "it is not used"), "less", "--cache-dir");
}

#[test]
fn nodes_of_a_domain_are_asked_for() {
    let machine = Machine::new();
    let doctor = || machine.solera(&["doctor", "--json"]);
    is(of(&json(&doctor()), "domain", "none"), "ok", "");
    let mut nodes = machine.domain_of_three();
    let said = json(&doctor());
    is(of(&said, "domain", "dm: 3 nodes, "), "ok", "");
    // Ended in order it is not missed here, but by the others.
    let third = nodes.pop().expect("three");
    drop(third);
    let ran = doctor();
    assert_eq!(ran.code, 1, "{}", ran.out);
    let text = "dm: node 3 was started here, and does not run";
    is(of(&json(&ran), "domain", text), "broken", "start it as before: solera node --domain dm");
    // Of those that run there is something to tell all the same.
    of(&json(&ran), "domain", "dm: ");
    drop(nodes);
    let ran = doctor();
    assert_eq!(of(&json(&ran), "domain", "node 1 was started here")["state"], "broken");
    assert!(!ran.out.contains("127.0.0.1"), "{}", ran.out);
}

/// A report goes to strangers.
#[test]
fn a_report_has_no_secrets() {
    let dir = TestDir::new();
    let volume = dir.text("v.pm");
    solera(["format", "--size", "64M", "--label", "a-label-of-mine", &volume]).ok();
    let at = dir.prefix();
    let line = format!("echo a-line-of-mine > {at}/a-name-of-mine");
    solera(["run", "--volume", &volume, "--at", &at, "--", "sh", "-c", &line]).ok();
    let mut command = command();
    command.args(["doctor", "--json", &volume]).env("TOKEN", "a-token-of-mine");
    let ran = Ran::of(&mut command);
    assert!(!ran.out.contains("-of-mine"), "{}", ran.out);
}
