//! `solera mount` and `solera umount`: what programs see, how mounts begin and end, bad input.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::support::{
    Mounted, TestDir, as_user, can_mount, command, compile, compiled, solera, with_own_mounts,
};
use rustix::process::{Pid, Signal, kill_process};

/// Programs that say what each of their calls gave; written for the preload library's tests.
const PROGRAMS: [&str; 21] = [
    "buffers",
    "executes",
    "exits",
    "fifos",
    "files",
    "forks",
    "links",
    "mapping",
    "messages",
    "moving",
    "names",
    "nodes",
    "numbers",
    "open_flags",
    "own_names",
    "sockets",
    "splice",
    "streams",
    "threads",
    "users",
    "waits",
];

/// The process that serves a mount.
fn server(mounted: &Mounted) -> Pid {
    let mut value = [0; 16];
    let length = rustix::fs::getxattr(&mounted.at, "solera.process", &mut value[..]).unwrap();
    let text = std::str::from_utf8(&value[..length]).unwrap();
    Pid::from_raw(text.parse().unwrap()).unwrap()
}

fn is_mounted(at: &str) -> bool {
    vfs::mounts::at(Path::new(at)).unwrap().is_some()
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if done() {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within 2 minutes");
}

fn shell(line: &str) -> (bool, String) {
    let output = Command::new("sh").args(["-c", line]).output().expect("sh starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// As on tmpfs, call by call.
#[test]
fn programs_see_what_they_see_on_tmpfs() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "512M", &["-o", "suid,dev"]);
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/tests/c");
    for name in PROGRAMS {
        let program = place.path(name);
        compile(&sources.join(format!("{name}.c")), &program, &["-O0"]);
        let run = |directory: &Path| {
            fs::create_dir(directory).expect("a directory for the program");
            let output = Command::new("timeout")
                .args(["-k", "5", "600"])
                .args([&program, directory])
                .stdin(Stdio::null())
                .output()
                .expect("the program runs");
            assert!(output.status.success(), "{name} in {}", directory.display());
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let said = said.replace(directory.to_str().unwrap(), "DIRECTORY");
            // The kernel's protocol has no way to say that a lock is a description's (process -1).
            let lines = said.lines().filter(|line| !line.contains("l_pid == -1"));
            lines.collect::<Vec<&str>>().join("\n")
        };
        let expected = run(&place.path(&format!("{name}-dir")));
        let mut found = run(&mounted.path(name));
        if name == "buffers" && found != expected {
            // What was stored by a mapping may be read milliseconds late there (docs/mounts.md).
            fs::remove_dir_all(mounted.path(name)).expect("what it left can be removed");
            found = run(&mounted.path(name));
        }
        for (expected, found) in expected.lines().zip(found.lines()) {
            assert_eq!(expected, found, "{name}: on tmpfs (left), on the mount (right)");
        }
        assert_eq!(expected.lines().count(), found.lines().count(), "{name}");
        fs::remove_dir_all(mounted.path(name)).expect("what it left can be removed");
    }
    mounted.end();
}

/// What the other test's programs do not do.
#[test]
fn a_mounted_volume_is_a_directory_like_any() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "128M", &[]);
    let at = &mounted.at;
    // Names that are not UTF-8; the shell's `cd`; a program that lies there; a copy and its twin.
    let line = format!(
        "cd {at} && printf x > \"$(printf 'n\\377\\001')\" && ls | cat -v && pwd && \
         cp /bin/cat own && ./own own | cmp - /bin/cat && mkdir sub && cp -a own sub/ && \
         diff -r . . && tar cf - sub | tar tf - | sort && rm -rf sub own && ls | wc -l"
    );
    let (good, said) = shell(&line);
    assert!(good, "{said}");
    assert_eq!(said, format!("nM-^?^A\n{at}\nsub/\nsub/own\n1\n"));
    mounted.end();
}

#[test]
fn a_full_volume_says_so_and_can_be_emptied() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "16M", &[]);
    let path = mounted.path("big");
    let mut file = fs::File::create(&path).unwrap();
    let chunk = vec![7; 1 << 20];
    let error = (0..64).find_map(|_| file.write_all(&chunk).err()).expect("it is full");
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    drop(file);
    let made = (0..).find_map(|at| fs::write(mounted.path(&format!("f{at}")), b"x").err());
    assert_eq!(made.unwrap().raw_os_error(), Some(libc::ENOSPC));
    fs::remove_file(&path).unwrap();
    // The kernel tells of a close when it has returned, and the server waits for that; a child of
    // another test may have the file a moment longer.
    wait_until("room again", || fs::write(mounted.path("again"), vec![1; 4 << 20]).is_ok());
    mounted.end();
}

#[test]
fn it_ends_when_it_is_told_to() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = place.text("mnt");
    fs::create_dir(&at).unwrap();
    // In the foreground, ended by `umount`.
    let mut child = command().args(["mount", "-f", &volume, &at]).spawn().unwrap();
    wait_until("mounted", || is_mounted(&at));
    fs::write(format!("{at}/a"), "1").unwrap();
    // In use as long as a child of another test's has not executed its program.
    wait_until("unmounted", || shell(&format!("umount {at}")).0);
    assert!(child.wait().unwrap().success());
    // By a signal, also while it is in use; what was written is there.
    for (in_use, signal) in [(false, Signal::TERM), (true, Signal::TERM), (false, Signal::INT)] {
        let mut child = command().args(["mount", "-f", &volume, &at]).spawn().unwrap();
        wait_until("mounted", || is_mounted(&at));
        assert_eq!(fs::read(format!("{at}/a")).unwrap(), b"1");
        let file = in_use.then(|| fs::File::open(format!("{at}/a")).unwrap());
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(child.wait().unwrap().success(), "{in_use} {signal:?}");
        assert!(!is_mounted(&at));
        let gone = file.map(|file| file.metadata().unwrap_err().raw_os_error());
        assert!(gone.is_none_or(|error| error == Some(libc::ENOTCONN)), "{gone:?}");
        solera(["detach", &volume]).ok();
    }
    solera(["fsck", &volume]).ok();
}

/// Its process is killed: users get errors, the next mount goes on, nothing that returned is lost.
#[test]
fn a_killed_mount_is_a_dead_process_like_any_other() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    // Another process is attached meanwhile.
    let other = ["run", "--at", &mounted.at, "--", "sh", "-c"];
    let script = format!("cd {} && read x < wait; echo late > late", mounted.at);
    assert!(shell(&format!("mkfifo {}/wait", mounted.at)).0);
    let mut waiting = command().args(other).arg(&script).spawn().unwrap();
    fs::write(mounted.path("kept"), "before").unwrap();
    let held = fs::File::open(mounted.path("kept")).unwrap();
    kill_process(server(&mounted), Signal::KILL).unwrap();
    wait_until("dead", || {
        fs::metadata(&mounted.at).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
    });
    assert!(held.metadata().is_err());
    // As a user would: away with it, and a new one.
    assert!(shell(&format!("umount -l {}", mounted.at)).0);
    let volume = mounted.volume.clone();
    let again = Mounted::again(&place, volume, &[]);
    assert_eq!(fs::read(again.path("kept")).unwrap(), b"before");
    kill_process(server(&again), Signal::KILL).unwrap();
    wait_until("dead", || fs::metadata(&again.at).is_err());
    // Or just a new one.
    solera(["mount", &again.volume, &again.at]).ok();
    assert_eq!(fs::read(again.path("kept")).unwrap(), b"before");
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    drop(held);
    again.end();
}

#[test]
fn bad_input() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let (volume, at) = (&mounted.volume, &mounted.at);
    let other = place.text("other");
    fs::create_dir(&other).unwrap();
    solera(["mount", volume, at]).refused(1, &["is mounted there already", "umount"]);
    solera(["mount", volume, "/proc"]).refused(1, &["another file system is mounted there"]);
    solera(["mount", volume, &place.text("none")]).refused(1, &["make the directory first"]);
    solera(["mount", volume, volume]).refused(1, &["not a directory"]);
    solera(["mount", &place.text("none"), &other]).refused(1, &["solera format"]);
    fs::write(place.path("junk"), vec![1; 1 << 20]).unwrap();
    solera(["mount", &place.text("junk"), &other]).refused(1, &["cannot attach"]);
    let above = place.text("");
    solera(["mount", volume, above.trim_end_matches('/')]).refused(1, &["lies below it"]);
    solera(["mount", "-o", "quota", volume, &other]).refused(1, &["no such option"]);
    solera(["umount", &other]).refused(1, &["no volume is mounted there"]);
    solera(["run", "--volume", &place.text("junk"), "--", "true"]).refused(125, &["not mounted"]);
    // In use: refused, and nothing has happened; then lazily.
    let file = fs::File::create(mounted.path("open")).unwrap();
    solera(["umount", at]).refused(1, &["in use", "--lazy"]);
    assert!(is_mounted(at));
    solera(["umount", "--lazy", at]).ok();
    assert!(!is_mounted(at));
    drop(file);
    wait_until("detached", || solera(["detach", volume]).code == 0);
    // Another version of the format.
    let mut image = fs::read(volume).unwrap();
    for start in [0, 4096] {
        image[start + 8] = 0xEE;
    }
    fs::write(place.path("newer"), image).unwrap();
    solera(["mount", &place.text("newer"), &other]).refused(1, &["cannot attach"]);
    // A kernel without FUSE.
    let without = format!(
        "unshare -m sh -c 'mount -t tmpfs none /dev && exec {} mount {volume} {other}'",
        env!("CARGO_BIN_EXE_solera")
    );
    if !volume.starts_with("/dev/") {
        assert!(shell(&without).1.contains("/dev/fuse cannot be opened"));
    }
    let hidden = format!(
        "unshare -m sh -c 'mount --bind /dev/null /dev/fuse && exec {} mount {volume} {other}'",
        env!("CARGO_BIN_EXE_solera")
    );
    let (good, said) = shell(&hidden);
    assert!(!good && said.contains("another device than FUSE's"), "{said}");
}

/// `mount -t fuse.solera`, options, and a line of fstab.
#[test]
fn mount_knows_the_type() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = place.text("mnt");
    fs::create_dir(&at).unwrap();
    let table = place.text("fstab");
    fs::write(&table, format!("{volume} {at} fuse.solera ro,noauto,nofail,x-test 0 0\n")).unwrap();
    // The helper stands in /sbin, in a name space of this test's own. That has copies of the mounts
    // of other tests, whose processes would not end before it does: away with them.
    let script = format!(
        "set -e; findmnt -rn -t fuse.solera -o TARGET | xargs -r -n 1 umount -l || true; \
         mkdir {root}/up {root}/work; sbin=$(realpath /sbin); \
         mount -t overlay -o lowerdir=$sbin,upperdir={root}/up,workdir={root}/work none $sbin; \
         make -s -C {project} install BUILT={built} PREFIX={root}/usr; \
         {root}/usr/bin/solera run --volume {volume} --at /none -- sh -c 'echo > /none/i; rm \
         /none/i'; mount -t fuse.solera -o noatime,mode=sync {volume} {at}; \
         findmnt -n -o FSTYPE,SOURCE {at}; echo one > {at}/a; umount {at}; \
         mount -T {table} {at}; cat {at}/a; (echo no > {at}/b) 2>/dev/null || echo read-only; \
         umount {at}; mount -t fuse.solera -o quota {volume} {at} || echo refused",
        root = place.text("").trim_end_matches('/'),
        project = concat!(env!("CARGO_MANIFEST_DIR"), "/../.."),
        built = Path::new(env!("CARGO_BIN_EXE_solera")).parent().unwrap().display(),
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said, format!("fuse.solera {volume}\none\nread-only\nrefused\n"), "{errors}");
    wait_until("detached", || solera(["detach", &volume]).code == 0);
}

const NOBODY: u32 = 65534;

/// A command as another user: whether it went well, and what it said.
fn as_other(id: u32, program: &str, arguments: &[&str]) -> (bool, String) {
    let output = as_user(id, "", program).args(arguments).output().expect("setpriv starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// The kernel asks the volume's owners and modes; directly the region is closed.
#[test]
fn other_users() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let at = &mounted.at;
    let user = |line: &str| as_other(4321, "sh", &["-c", line]);
    fs::set_permissions(at, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(mounted.path("private"), "secret").unwrap();
    fs::set_permissions(mounted.path("private"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!user(&format!("cat {at}/private")).0);
    assert!(!user(&format!("rm -f {at}/private")).0, "the directory is sticky");
    assert!(!user(&format!("mv {at}/private {at}/mine")).0);
    let (good, said) = user(&format!(
        "cd {at} && umask 027 && echo x > mine && mkdir dir && ln -s mine link && mkfifo fifo"
    ));
    assert!(good, "{said}");
    for (name, mode) in [("mine", 0o640), ("dir", 0o750), ("fifo", 0o640)] {
        let meta = fs::metadata(mounted.path(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (4321, 4321, mode), "{name}");
    }
    assert!(!user(&format!("chown 0 {at}/mine")).0);
    assert!(!user(&format!("chgrp 0 {at}/mine")).0);
    assert!(!user(&format!("chmod 777 {at}/private")).0);
    assert!(!user(&format!("mknod {at}/device c 1 3")).0);
    assert!(!as_other(999, "sh", &["-c", &format!("ls {at}/dir || cat {at}/mine")]).0);
    // A set-group directory passes its group on, and the bit to directories.
    fs::create_dir(mounted.path("group")).unwrap();
    std::os::unix::fs::chown(mounted.path("group"), Some(4321), Some(77)).unwrap();
    fs::set_permissions(mounted.path("group"), fs::Permissions::from_mode(0o2775)).unwrap();
    assert!(user(&format!("touch {at}/group/file && mkdir {at}/group/sub")).0);
    let file = fs::metadata(mounted.path("group/file")).unwrap();
    let sub = fs::metadata(mounted.path("group/sub")).unwrap();
    assert_eq!((file.gid(), sub.gid(), sub.mode() & 0o7777), (77, 77, 0o2755));
    // A write by another than root takes the set-id bits; a change of owner takes them by anybody.
    fs::set_permissions(mounted.path("mine"), fs::Permissions::from_mode(0o6777)).unwrap();
    assert!(as_other(999, "sh", &["-c", &format!("echo y >> {at}/mine")]).0);
    assert_eq!(fs::metadata(mounted.path("mine")).unwrap().mode() & 0o7777, 0o777);
    // Access control lists are refused, not forgotten.
    let refused = rustix::fs::setxattr(
        mounted.path("mine"),
        "system.posix_acl_access",
        &[2, 0, 0, 0],
        rustix::fs::XattrFlags::empty(),
    );
    assert_eq!(refused, Err(rustix::io::Errno::OPNOTSUPP));
    let (good, said) = as_other(4321, &place.for_everyone(), &["ls", &mounted.volume]);
    assert!(!good && said.contains("no permission for reading"), "{said}");
    mounted.end();
}

/// README and help said that every user sees a volume that is mounted, but root's mount was closed
/// to all others.
#[test]
fn roots_mount_is_open_unless_it_is_closed() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = place.text("mnt");
    fs::create_dir(&at).unwrap();
    for (options, open) in [
        (&[][..], true),
        (&["-o", "noatime"], true),
        (&["-o", "allow_other"], true),
        (&["-o", "noallow_other"], false),
        (&["-o", "noallow_other,allow_other"], true),
        (&["-o", "allow_other", "-o", "noallow_other"], false),
    ] {
        let said = solera([&["mount"], options, &[&volume, &at]].concat()).ended_with(0);
        assert_eq!(said.err, "", "root has nothing to be told");
        fs::write(format!("{at}/file"), "x").unwrap();
        assert_eq!(as_other(4321, "cat", &[&format!("{at}/file")]).0, open, "{options:?}");
        fs::set_permissions(format!("{at}/file"), fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!as_other(4321, "cat", &[&format!("{at}/file")]).0, "{options:?}");
        fs::remove_file(format!("{at}/file")).unwrap();
        wait_until("unmounted", || solera(["umount", &at]).code == 0);
    }
}

/// A user that may open a mount to others, but has not, is told how; not of a mount that did not
/// come to be.
#[test]
fn a_user_who_may_open_a_mount_is_told_so() {
    if !can_mount() || !shell("command -v fusermount3").0 {
        return;
    }
    let place = TestDir::new();
    let program = place.text("solera");
    crate::support::copy_program(env!("CARGO_BIN_EXE_solera"), &program);
    fs::create_dir(place.path("own")).unwrap();
    std::os::unix::fs::chown(place.path("own"), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::write(place.path("conf"), "# of a test\nuser_allow_other\n").unwrap();
    let line = format!(
        "mount --bind {conf} /etc/fuse.conf; cd {own}; exec setpriv --reuid={NOBODY} \
         --regid={NOBODY} --clear-groups sh -c 'set -e; mkdir m; {program} format --size 64M v.pm \
         > /dev/null; ! {program} mount /dev/null m 2>&1 | grep \"only you\" >&2; {program} mount \
         v.pm m; {program} umount m; {program} mount -o allow_other v.pm m; grep -c \" $PWD/m \
         .*allow_other\" /proc/self/mountinfo; {program} umount m'",
        conf = place.text("conf"),
        own = place.text("own"),
    );
    let output = with_own_mounts("", &line);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told = "own/m: only you can use this mount; -o allow_other opens it to others\n";
    assert!(output.status.success() && said.ends_with(told), "{said}");
    assert_eq!((said.lines().count(), output.stdout), (1, b"1\n".to_vec()), "{said}");
}

/// Users that may not mount have `fusermount3`.
#[test]
fn an_unprivileged_user_mounts() {
    if !can_mount() || !shell("command -v fusermount3").0 {
        return;
    }
    let place = TestDir::new();
    // fusermount3 wants a user that has a name.
    let user = |line: &str| as_other(NOBODY, "sh", &["-c", line]);
    let (solera_path, at) = (&place.for_everyone(), place.text("own/m"));
    fs::create_dir(place.path("own")).unwrap();
    std::os::unix::fs::chown(place.path("own"), Some(NOBODY), Some(NOBODY)).unwrap();
    let volume = place.text("own/v.pm");
    let steps = format!(
        "set -e; mkdir {at}; {solera_path} format --size 64M {volume} > /dev/null; \
         {solera_path} mount {volume} {at}; echo own > {at}/a; \
         {solera_path} run -- sh -c 'cd {at}; echo run >> a'; cat {at}/a"
    );
    let (good, said) = user(&steps);
    let lines: Vec<&str> = said.lines().collect();
    // What it has written, then what it was told.
    let closed = "only you can use this mount; for others, root must mount it, or add the line \
                  user_allow_other to /etc/fuse.conf; then -o allow_other opens it";
    let [own, run] = [
        format!("solera: {at}: {closed}"),
        format!(
            "solera: sh goes past the kernel below \
                      {at} (the volume {volume})"
        ),
    ];
    assert!(good && lines == ["own", "run", &*own, &*run], "{said}");
    // No other user sees it, and none takes it away.
    assert!(!as_other(999, "ls", &[&at]).0 && fs::read_dir(&at).is_err());
    assert!(!as_other(999, solera_path, &["umount", &at]).0);
    let (good, said) = user(&format!("{solera_path} umount {at}"));
    assert!(good, "{said}");
    // A volume that may only be read is mounted read-only.
    std::os::unix::fs::chown(&volume, Some(0), None).unwrap();
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o444)).unwrap();
    let (good, said) = user(&format!(
        "{solera_path} mount {volume} {at} && cat {at}/a && ! touch {at}/b && \
         {solera_path} umount {at}"
    ));
    assert!(good && said.contains("mounting read-only") && said.contains("own\nrun\n"), "{said}");
    // One that a group shares is used by its members.
    std::os::unix::fs::chown(&volume, Some(0), Some(NOBODY)).unwrap();
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o660)).unwrap();
    let (good, said) = user(&format!(
        "{solera_path} mount {volume} {at} && echo group >> {at}/a && {solera_path} umount {at}"
    ));
    assert!(good, "{said}");
}

/// `fusermount3` leaves these options out of what a user mounts, and says so; the command kept that
/// to itself and ended with 0.
#[test]
fn options_that_a_user_cannot_have_are_told() {
    if !can_mount() || !shell("command -v fusermount3").0 {
        return;
    }
    let place = TestDir::new();
    let (solera_path, at) = (&place.for_everyone(), place.text("own/m"));
    fs::create_dir(place.path("own")).unwrap();
    std::os::unix::fs::chown(place.path("own"), Some(NOBODY), Some(NOBODY)).unwrap();
    let volume = place.text("own/v.pm");
    let (good, said) = as_other(
        NOBODY,
        "sh",
        &[
            "-c",
            &format!(
                "set -e; mkdir {at}; {solera_path} format --size 64M {volume} > /dev/null; \
                 {solera_path} mount -o suid,dev {volume} {at}; {solera_path} umount {at}"
            ),
        ],
    );
    assert!(good, "{said}");
    for option in ["suid", "dev"] {
        let line = format!("solera: {at}: fusermount3 says: unsafe option {option} ignored");
        assert!(said.lines().any(|told| told == line), "{said}");
    }
}

/// A mount at the place of a dead one took away what was mounted inside that, though its process
/// was alive.
#[test]
fn a_dead_mount_with_a_living_one_in_it_stays() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let inner = mounted.path("in");
    fs::create_dir(&inner).unwrap();
    let inner = inner.to_str().unwrap();
    let other = place.text("other.pm");
    solera(["format", "--size", "64M", &other]).ok();
    solera(["mount", &other, inner]).ok();
    let held = fs::File::open(inner).unwrap();
    kill_process(server(&mounted), Signal::KILL).unwrap();
    wait_until("dead", || fs::metadata(&mounted.at).is_err());
    solera(["mount", &mounted.volume, &mounted.at]).refused(1, &["another one in it", "--lazy"]);
    assert!(is_mounted(inner) && is_mounted(&mounted.at));
    assert!(held.metadata().is_ok());
    drop(held);
    // As it is advised; then the inner one's process ends as well.
    solera(["umount", "--lazy", &mounted.at]).ok();
    assert!(!is_mounted(inner));
    wait_until("detached", || solera(["detach", &other]).code == 0);
    Mounted::again(&place, mounted.volume.clone(), &[]).end();
}

/// A process that was told to end, and `umount` of a volume, took away whatever was mounted last at
/// the path.
#[test]
fn what_lies_over_a_mount_is_left_alone() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let (volume, at) = (&mounted.volume, &mounted.at);
    let process = server(&mounted);
    let tmpfs = || shell(&format!("findmnt -rn -t tmpfs {at}")).0;
    assert!(shell(&format!("mount -t tmpfs none {at} && touch {at}/over")).0);
    solera(["umount", volume]).refused(1, &["in use"]);
    assert!(tmpfs() && fs::exists(mounted.path("over")).unwrap());
    kill_process(process, Signal::TERM).unwrap();
    wait_until("ended", || solera(["detach", volume]).code == 0);
    assert!(tmpfs() && fs::exists(mounted.path("over")).unwrap());
    assert!(shell(&format!("umount {at}")).0);
    // What the process has left is a dead mount like any other.
    Mounted::again(&place, volume.clone(), &[]).end();
}

/// A program of `tests/mounts`.
fn program(name: &str) -> String {
    compiled(&format!("cli/tests/mounts/{name}.c"), &[])
}

/// A page that one thread stored to through a mapping came back whole, over what another one had
/// written to it meanwhile: 6 of 10,000 writes were lost. Behind a `copy_file_range` the kernel
/// dropped such a page: every fifth store or copy was.
#[test]
fn no_store_is_lost_beside_a_call() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let program = program("page_writers");
    let mounted = Mounted::new(&place, "64M", &[]);
    let file = mounted.path("file");
    for (how, rounds) in [("pwrite", "60"), ("copy", "10")] {
        let output = Command::new(&program).arg(&file).args([how, rounds]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*said), (Some(0), "lost: 0\n"), "{how}");
    }
    mounted.end();
}

/// While the kernel was told to drop the pages of a file, a write to it returned before its
/// program's mapping showed it: 31 of 20,000 were not seen, and an LMDB lost keys.
#[test]
fn a_write_is_seen_by_its_programs_mapping() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let program = program("own_writes");
    let mounted = Mounted::new(&place, "64M", &[]);
    // Of a hundred writes each.
    let rounds = if rotation::all() { "200" } else { "40" };
    let output = Command::new(&program).arg(mounted.path("file")).arg(rounds).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*said), (Some(0), "unseen: 0\n"));
    mounted.end();
}

/// What a preloaded program wrote beside stores through the mount's mapping was lost, each time.
#[test]
fn no_write_of_another_face_is_lost_beside_stores() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let program = program("page_writers");
    let mounted = Mounted::new(&place, "64M", &[]);
    let (prefix, rounds) = (place.prefix(), "5");
    let beneath = format!("{prefix}/file");
    let mut writer = command()
        .args(["run", "--volume", &mounted.volume, "--at", &prefix, "--"])
        .args([&program, &beneath, "writer", rounds])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = Command::new(&program)
        .arg(mounted.path("file"))
        .args(["other", rounds])
        .stdin(writer.stdout.take().unwrap())
        .stdout(writer.stdin.take().unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "lost: 0\n");
    assert!(writer.wait().unwrap().success());
    mounted.end();
}

/// An open file that lost its name took a second place in the volume's table: half as many could be
/// open at once.
#[test]
fn an_open_file_without_a_name_has_one_place() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let script = "import errno, os, resource, sys
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
files = []
try:
    while True:
        files.append(os.open('f%d' % len(files), os.O_CREAT | os.O_RDWR))
        if sys.argv[1] == 'unlinked': os.unlink('f%d' % (len(files) - 1))
except OSError as error:
    assert error.errno == errno.ENFILE, error
print(len(files))";
    let count = |kind: &str| -> usize {
        let mut python = Command::new("python3");
        let output = python.args(["-c", script, kind]).current_dir(&mounted.at).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kind}: {said}");
        String::from_utf8_lossy(&output.stdout).trim().parse().unwrap()
    };
    let named = count("named");
    // What was looked up just now has a place for a moment; and a close is told late.
    wait_until("as many without a name", || count("unlinked") + 70 > named);
    wait_until("all places are back", || count("unlinked") + 70 > named);
    // The last handle goes, and the kernel still has the node by a descriptor that opens nothing.
    fs::write(mounted.path("last"), "kept").unwrap();
    let handle = fs::File::open(mounted.path("last")).unwrap();
    let flags = rustix::fs::OFlags::PATH;
    let path_only =
        rustix::fs::open(mounted.path("last"), flags, rustix::fs::Mode::empty()).unwrap();
    fs::remove_file(mounted.path("last")).unwrap();
    drop(handle);
    let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&path_only));
    for _ in 0..3 {
        assert_eq!(fs::read(&again).unwrap(), b"kept");
    }
    drop(path_only);
    mounted.end();
}

/// overlayfs refused a mount as its upper layer: there was no `RENAME_WHITEOUT`. What is removed,
/// moved and made anew in it is as with an upper layer on tmpfs, also after it is mounted again.
#[test]
fn a_mount_is_the_upper_layer_of_an_overlay() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let mounted = Mounted::new(&place, "64M", &[]);
    let (lower, merged, plain) = (place.text("lower"), place.text("merged"), place.text("plain"));
    for dir in [&lower, &merged, &plain] {
        fs::create_dir(dir).unwrap();
    }
    let lines = format!(
        "mkdir -p {lower}/dir/sub {lower}/kept {lower}/gone/sub; cd {lower}; echo 1 > one; \
         echo 2 > two; echo in > dir/sub/in; echo x > kept/x; echo y > kept/y; echo z > kept/z"
    );
    assert!(shell(&lines).0);
    let run = |upper: &str| {
        let layers = format!("lowerdir={lower},upperdir={upper}/upper,workdir={upper}/work");
        let mount = format!("mount -t overlay none -o {layers} {merged}");
        let script = format!(
            "set -e; mkdir {upper}/upper {upper}/work; {mount}; cd {merged}; \
             rm one; mv two moved; rm -r dir; mkdir dir; echo new > dir/new; echo more >> kept/x; \
             ln kept/y hard; mv kept/z z; rm -r gone; mkdir made; echo a > made/a; \
             mv made again; chmod 640 again/a; echo b > gone; rm gone; mv z one; \
             cd /; umount {merged}; {mount}; cd {merged}; find . -printf '%P %y %m\\n' | sort; \
             find . -type f -exec cksum {{}} + | sort; cd /; umount {merged}; cd {upper}/upper; \
             find . -printf '%P %y %m\\n' | sort; stat -c '%n %F %t:%T' two gone kept/z"
        );
        let output = with_own_mounts(&mounted.at, &script);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{upper}: {errors}");
        let mut opaque = [0; 8];
        let dir = format!("{upper}/upper/dir");
        let length = rustix::fs::getxattr(dir, "trusted.overlay.opaque", &mut opaque[..]).unwrap();
        assert_eq!(&opaque[..length], b"y", "{upper}: what the lower layer has there is hidden");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let expected = run(&plain);
    assert!(expected.contains("gone character special file 0:0"), "{expected}");
    assert_eq!(run(&mounted.at), expected);
    mounted.end();
}
