//! A volume that a user may only read: programs read it directly, it can be mounted, nothing is
//! changed, also where it was not left in order; beside writers that is refused with a reason.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{TestDir, as_user, can_change_user, can_mount, compile, shell, solera};

/// The tree, made in the directory `$1`.
const TREE: &str = r#"
set -e; umask 022; cd "$1"
mkdir directory; seq 3000 > file; echo other > directory/other; mkfifo fifo; ln -s file link
echo secret > secret; chmod 600 secret
truncate -s 1M sparse; printf data | dd of=sparse bs=1 seek=70000 conv=notrunc status=none
python3 -c 'import os; os.setxattr("file", "user.name", b"value")' ||
    setfattr -n user.name -v value file
"#;

/// All that a command printed, but for the line that says that nothing can be changed.
fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    text.split_inclusive('\n').filter(|line| !line.contains("gives EROFS")).collect()
}

/// `solera`, as another user: its code and what it said.
fn other(solera: &str, arguments: &[&str]) -> (i32, String) {
    let output = as_user(4321, "", solera).args(arguments).output().expect("setpriv starts");
    (output.status.code().unwrap_or(-1), said(&output))
}

/// A volume with the tree in it, that others may read.
fn readable(place: &TestDir) -> String {
    let volume = place.volume("64M");
    let at = place.prefix();
    solera(["run", "--volume", &volume, "--at", &at, "--", "sh", "-c", TREE, "sh", &at]).ok();
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(place.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    volume
}

#[test]
fn what_may_only_be_read_is_as_on_a_file_system_mounted_read_only() {
    if !can_change_user() {
        return;
    }
    let place = TestDir::new();
    let (volume, at) = (readable(&place), place.prefix());
    let program = place.text("reading");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/tests/c/reading.c");
    compile(&source, Path::new(&program), &[]);
    // In a mount name space of its own, which goes with all that is mounted in it.
    let script = r#"
set -e; program=$1; solera=$2; volume=$3; at=$4; place=$5
mkdir "$place/reference" "$place/still"
mount -t tmpfs none "$place/reference"
sh -c "$6" sh "$place/reference"
mount -o remount,ro "$place/reference"
mount --bind "$place" "$place/still"; mount -o remount,bind,ro "$place/still"
user="setpriv --reuid=4321 --regid=4321 --clear-groups"
$user "$program" "$place/reference" > "$place/said.user.kernel"
$user "$solera" run --volume "$volume" --at "$at" -- "$program" "$at" > "$place/said.user.volume"
"$program" "$place/reference" > "$place/said.root.kernel"
"$solera" run --volume "$place/still/v.pm" --at "$at" -- "$program" "$at" \
    > "$place/said.root.volume"
"#;
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh", &program, &place.for_everyone(), &volume, &at])
        .args([&place.text("."), TREE])
        .output()
        .expect("unshare starts");
    assert!(output.status.success(), "{}", said(&output));
    for who in ["user", "root"] {
        let read =
            |face: &str| fs::read_to_string(place.path(&format!("said.{who}.{face}"))).unwrap();
        let (kernel, volume) = (read("kernel"), read("volume"));
        assert!(kernel.contains("EROFS") && kernel.lines().count() > 70, "{kernel}");
        let pairs = kernel.lines().zip(volume.lines());
        let differ: Vec<_> = pairs.filter(|(kernel, volume)| kernel != volume).collect();
        assert!(differ.is_empty(), "{who}: {differ:#?}");
        assert_eq!(kernel.lines().count(), volume.lines().count(), "{who}: {volume}");
    }
    solera(["fsck", &volume]).ok();
    // Nothing of the readers is left.
    let left = fs::read_dir("/dev/shm/solera-4321").map_or(0, |entries| {
        let of_here = rustix::fs::stat(&volume).unwrap().st_ino;
        let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
        entries.flatten().map(name).filter(|name| name.ends_with(&format!("-{of_here:x}"))).count()
    });
    assert_eq!(left, 0);
}

#[test]
fn everyday_programs_read_it() {
    if !can_change_user() {
        return;
    }
    let place = TestDir::new();
    let (volume, at, theirs) = (readable(&place), place.prefix(), place.for_everyone());
    let run = |line: &str| {
        other(&theirs, &["run", "--volume", &volume, "--at", &at, "--", "sh", "-c", line])
    };
    let whole = shell(&volume, &at, &format!("sha256sum < {at}/file; ls -ln {at}")).ok();
    assert_eq!(run(&format!("sha256sum < {at}/file; ls -ln {at}")), (0, whole));
    assert_eq!(run(&format!("cat {at}/directory/other")), (0, "other\n".into()));
    assert_eq!(run(&format!("cd {at}/directory && pwd && grep -c 7 ../link")).1.lines().count(), 2);
    // One description, read on by several programs.
    let line = format!("{{ head -c 4 > /dev/null; (read -r a; cat | head -n 1); }} < {at}/file");
    assert_eq!(run(&line).1, "4\n");
    let (code, said) = run(&format!("echo x > {at}/directory/new"));
    assert!(code != 0 && said.contains("Read-only file system"), "{said}");
    let found = run(&format!("find {at} -type f | wc -l; cp -r {at}/directory /dev/null; df {at}"));
    assert!(found.1.starts_with("4\n"), "{found:?}");
    // At once, many.
    let many = format!("seq 8 | xargs -P 4 -I N sh -c 'sha256sum {at}/file' | sort -u | wc -l");
    assert_eq!(run(&many), (0, "1\n".into()));
    solera(["fsck", &volume]).ok();
}

#[test]
fn nobody_reads_beside_writers_and_what_was_not_left_in_order_is_recovered_in_memory() {
    if !can_change_user() {
        return;
    }
    let place = TestDir::new();
    let (volume, at, theirs) = (readable(&place), place.prefix(), place.for_everyone());
    let look =
        ["run", "--volume", &volume, "--at", &at, "--", "cat", &format!("{at}/directory/other")];
    // A writer that says when it is there, and waits.
    let started = |line: &str| {
        let mut child = crate::support::command();
        child.args(["run", "--volume", &volume, "--at", &at, "--", "sh", "-c", line]);
        let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 2];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        child
    };
    let line = format!("exec 3>> {at}/file; echo r; read -r line; echo more >&3");
    let mut writer = started(&line);
    let (code, said) = other(&theirs, &look);
    assert!(code == 125 && said.contains("cannot read beside them"), "{code}: {said}");
    // It ends in order, and then it does not.
    drop(writer.stdin.take());
    assert!(writer.wait().unwrap().success());
    assert_eq!(other(&theirs, &look), (0, "other\n".into()));
    let mut writer = started(&line);
    writer.kill().unwrap();
    writer.wait().unwrap();
    let before = fs::read(&volume).unwrap();
    assert_eq!(other(&theirs, &look), (0, "other\n".into()));
    assert!(fs::read(&volume).unwrap() == before, "a reader changed it");
    solera(["ls", &volume]).ok();
    assert_eq!(other(&theirs, &look), (0, "other\n".into()));
    // A reader keeps writers waiting as long as it reads.
    let line = format!("exec 3< {at}/file; echo r; read -r line; head -n 1 <&3");
    let mut reader = as_user(4321, "", &theirs)
        .args(["run", "--volume", &volume, "--at", &at, "--", "sh", "-c", &line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = [0; 2];
    std::io::Read::read_exact(reader.stdout.as_mut().unwrap(), &mut ready).unwrap();
    assert_eq!(other(&theirs, &look), (0, "other\n".into()), "readers stand each other");
    let refused = shell(&volume, &at, &format!("echo x > {at}/new"));
    assert!(refused.code != 0 && refused.err.contains("may only read it"), "{}", refused.err);
    drop(reader.stdin.take());
    assert_eq!(reader.wait_with_output().unwrap().stdout, b"1\n");
    shell(&volume, &at, &format!("echo x > {at}/new")).ok();
    solera(["fsck", &volume]).ok();
}

#[test]
fn it_is_mounted_read_only() {
    if !can_change_user() || !can_mount() {
        return;
    }
    let place = TestDir::new();
    let (volume, at, theirs) = (readable(&place), place.prefix(), place.for_everyone());
    let mnt = place.text("mnt");
    fs::create_dir(&mnt).unwrap();
    // By root, of a file that no user may write to; a writable one with `-o ro`.
    let writes = format!("{mnt}/new");
    for options in ["ro,noallow_other", "ro"] {
        solera(["mount", "-o", options, &volume, &mnt]).ok();
        assert_eq!(fs::read_to_string(format!("{mnt}/directory/other")).unwrap(), "other\n");
        let refused = fs::write(&writes, "x").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
        assert!(fs::remove_file(format!("{mnt}/file")).is_err());
        // `solera run` under it uses the mount, which a preloaded writer stands beside.
        shell(
            &volume,
            &at,
            &format!("echo more >> {at}/directory/other; sed -i 2d {at}/directory/other"),
        )
        .ok();
        let read = other(&theirs, &["run", "--", "cat", &format!("{mnt}/directory/other")]);
        assert_eq!(read.0 == 0, options == "ro", "{read:?}");
        solera(["umount", &mnt]).ok();
    }
    solera(["fsck", &volume]).ok();
}

/// Of a volume that another user has in use, `info` said that its owner must use it once.
#[test]
fn a_volume_in_use_that_may_only_be_read_is_looked_at() {
    if !can_change_user() {
        return;
    }
    let place = TestDir::new();
    let (volume, at, theirs) = (readable(&place), place.prefix(), place.for_everyone());
    let mut child = crate::support::command();
    child.args([
        "run",
        "--volume",
        &volume,
        "--at",
        &at,
        "--",
        "sh",
        "-c",
        "echo r; read -r line; true",
    ]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 2];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let (code, text) = other(&theirs, &["info", &volume]);
    assert!(code == 0 && text.contains(&format!("{}", child.id())), "{code}: {text}");
    for word in ["another user", "may not be asked", "which of these live"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let (code, json) = other(&theirs, &["info", "--json", &volume]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(code == 0 && json["attached_asked"] == false && json["attached"][0].is_object());
    assert_eq!(other(&theirs, &["df", &volume]).0, 0);
    // What it says that others may do is so.
    let (code, told) = other(&theirs, &["cat", &format!("{volume}:/file")]);
    assert!(code == 1 && told.contains("ask root to mount it"), "{told}");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let (code, text) = other(&theirs, &["info", &volume]);
    assert!(code == 0 && text.contains("no process"), "{text}");
    assert_eq!(solera(["info", "--json", &volume]).json()["attached_asked"], true);
}

/// Programs met EROFS, and nothing had said why.
#[test]
fn that_nothing_can_be_changed_is_said_at_the_start() {
    if !can_change_user() {
        return;
    }
    let place = TestDir::new();
    let (volume, at, theirs) = (readable(&place), place.prefix(), place.for_everyone());
    let run = |options: &[&str]| {
        let line = "sh -c true; (true); exec sh -c true";
        let line = [&["run", "--volume", &volume, "--at", &at], options, &["--", "sh", "-c", line]];
        let output = as_user(4321, "", &theirs).args(line.concat()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let told = run(&[]);
    assert_eq!(told.lines().count(), 1, "{told}");
    for word in ["solera: ", &volume, "every change gives EROFS", "no permission to write"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    // A caller that asked for it is not told.
    assert_eq!(run(&["--read-only"]), "");
    assert_eq!(shell(&volume, &at, "true").err, "");
}
