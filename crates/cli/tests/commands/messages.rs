//! What people are told: progress on a terminal, why a signal ended a program, advice that fits.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;

use crate::support::{
    Mounted, TestDir, can_mount, command, compiled, shell, solera, with_own_mounts,
};

/// A terminal: the end that a person looks at, and the one for programs.
fn terminal() -> (File, OwnedFd) {
    // SAFETY: numbers; a name in a buffer of our own.
    unsafe {
        let seen = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC);
        assert!(seen >= 0 && libc::grantpt(seen) == 0 && libc::unlockpt(seen) == 0);
        let mut name = [0; 64];
        assert_eq!(libc::ptsname_r(seen, name.as_mut_ptr(), name.len()), 0);
        let path = CStr::from_ptr(name.as_ptr()).to_str().unwrap();
        // Not this test's controlling terminal: its end would be a SIGHUP.
        let flags = libc::O_NOCTTY;
        let file = File::options().read(true).write(true).custom_flags(flags).open(path).unwrap();
        (File::from_raw_fd(seen), file.into())
    }
}

/// What a command shows on a terminal at its standard error.
fn shown(seconds: &str, arguments: &[&str]) -> String {
    let (mut seen, programs) = terminal();
    let mut command = command();
    command.args(arguments).env("SOLERA_PROGRESS", seconds).env("TERM", "xterm");
    let mut child = command
        .stdout(Stdio::null())
        .stderr(programs.as_fd().try_clone_to_owned().unwrap())
        .spawn()
        .unwrap();
    drop((programs, command));
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        // The end is an error (EIO) on a terminal.
        let _ = seen.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    assert!(child.wait().unwrap().success(), "{arguments:?}");
    reader.join().unwrap()
}

/// Only `snapshot`, `defrag`, `fsck` and `age` said that they were at work.
#[test]
fn what_takes_long_shows_its_progress_on_a_terminal() {
    let place = TestDir::new();
    let volume = place.text("v.pm");
    fs::create_dir(place.path("dir")).unwrap();
    fs::write(place.path("dir/file"), vec![1; 3 << 20]).unwrap();
    let (file, root) = (place.text("dir/file"), format!("{volume}:/"));
    let dir = place.text("dir");
    let mut lines: Vec<(&[&str], &str)> = Vec::new();
    let format = ["format", "--size", "64M", &volume];
    let (one, all) = (["cp", &file, &root], ["cp", "-r", &dir, &root]);
    let grow = ["grow", "--size", "+64M", &volume];
    let (trim, list) = (["trim", &volume], ["ls", &volume]);
    lines.extend([(&format[..], "formatting"), (&one, "copying"), (&all, "copying")]);
    lines.extend([(&grow[..], "growing"), (&trim, "trimming"), (&list, "attaching")]);
    for (line, word) in lines {
        let said = shown("0", line);
        assert!(said.contains(word), "{line:?}: {said:?}");
        assert!(said.ends_with("\x1b[2K") || said.ends_with('\r'), "{line:?} leaves {said:?}");
        if word == "formatting" {
            // No call waits here as long as a day.
            fs::remove_file(&volume).unwrap();
            assert_eq!(shown("86400", line), "");
        }
    }
    // Not on a terminal there is nothing but what was asked for.
    let mut quiet = command();
    quiet.args(["trim", &volume]).env("SOLERA_PROGRESS", "0");
    assert_eq!(quiet.output().unwrap().stderr, b"");
}

#[test]
fn a_mount_shows_that_it_recovers() {
    if !can_mount() {
        return;
    }
    let place = TestDir::new();
    let volume = place.volume("64M");
    let at = place.text("mnt");
    fs::create_dir(&at).unwrap();
    let said = shown("0", &["mount", &volume, &at]);
    assert!(said.contains("attaching"), "{said:?}");
    solera(["umount", "--lazy", &at]).ok();
    drop(Mounted::again(&place, volume, &[]));
}

/// A store into a hole of a mapped file on a full volume ended the program by a bare "Bus error".
#[test]
fn a_program_that_finds_no_room_for_a_page_is_told_so() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    let program = compiled("cli/tests/commands/no_space.c", &[]);
    let run = |how: &str| {
        let file = format!("{at}/file");
        solera(["run", "--volume", &volume, "--at", &at, "--", &program, &file, "256", how])
    };
    for how in ["", "ignored"] {
        let ran = run(how).ended_with(1000 + libc::SIGBUS);
        assert!(ran.err.starts_with("solera: SIGBUS: "), "{how}: {}", ran.err);
        assert!(ran.err.contains("the volume is full; make room"), "{how}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{how}: {}", ran.err);
    }
    // A handler of its own knows what it does, and beyond the end it is as on any file system.
    assert_eq!(run("handled").ended_with(7).err, "");
    assert_eq!(run("beyond").ended_with(1000 + libc::SIGBUS).err, "");
    solera(["fsck", &volume]).ok();
}

/// `solera ls V > /dev/full` advised `solera grow`.
#[test]
fn a_full_standard_output_is_not_the_volumes() {
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    shell(&volume, &at, &format!("echo x > {at}/file")).ok();
    let place_of = |path: &str| format!("{volume}:{path}");
    let (file, root) = (place_of("/file"), place_of("/"));
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let lines: [&[&str]; 12] = [
        &["ls", &root],
        &["cat", &file],
        &["info", &volume],
        &["info", "--json", &volume],
        &["df", &volume],
        &["map", &file],
        &["fsck", &volume],
        &["trim", &volume],
        &["grow", "--size", "+64M", &volume],
        &["detach", &volume],
        &["defrag", &volume],
        &["format", "--force", &volume],
    ];
    for line in lines {
        let output = command().args(line).stdout(full()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{line:?}");
        assert!(said.contains("standard output"), "{line:?}: {said}");
        assert!(!said.contains("grow") && !said.contains("df"), "{line:?}: {said}");
    }
    for line in [&["--help"][..], &["run", "--help"], &["--version"]] {
        let status = command().args(line).stdout(full()).status().unwrap();
        assert_eq!(status.code(), Some(1), "{line:?}");
    }
    // Nor did a full standard error end a command otherwise than its failure does.
    let status = command().args(["ls", &place.text("none")]).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

/// A copy that does not fit on a disk is not helped by a larger volume.
#[test]
fn a_full_disk_is_not_the_volumes() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("root is needed: nothing tested");
        return;
    }
    let place = TestDir::new();
    let (volume, at) = (place.volume("64M"), place.prefix());
    shell(&volume, &at, &format!("head -c 8M /dev/zero | tr '\\0' x > {at}/file")).ok();
    let small = place.text("small");
    fs::create_dir(&small).unwrap();
    let line = format!(
        "mount -t tmpfs -o size=1M none {small} && exec {} cp {volume}:/file {small}",
        env!("CARGO_BIN_EXE_solera")
    );
    let output = with_own_mounts("", &line);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("No space left") && !said.contains("grow"), "{said}");
}
