//! What other threads of the process do beside a call: they have the C library's locks while one
//! forks; a second C library has made them.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use volume::FormatOptions;

use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, library, same, text};

/// Each child of a process whose threads have the C library's locks again and again finds them
/// free, and this library's. What the longest fork took is printed beside the same on tmpfs.
#[test]
fn forks_beside_threads_that_allocate_and_flush() {
    let forks = if rotation::all() { "10000" } else { "150" };
    let place = TestDir::new("forks-beside");
    let program = place.0.join("forks_beside");
    compile("forks_beside.c", &program, &["-O1", "-g"]);
    format(&place.volume());
    let run = |directory: &Path, is_on_volume: bool| {
        let mut command = Command::new("timeout");
        // What takes longer hangs.
        command.args(["-k", "5", "3000", "env"]);
        if is_on_volume {
            let mut preload = OsString::from("LD_PRELOAD=");
            preload.push(library());
            command.arg(preload);
            command.env("SOLERA_VOLUME", place.volume()).env("SOLERA_AT", PREFIX);
        }
        let output = command.arg(&program).arg(directory).arg(forks).output().expect("it runs");
        eprint!("{}: {}", directory.display(), String::from_utf8_lossy(&output.stderr));
        text(&output)
    };
    let expected = run(&place.0.join("reference"), false);
    let found = run(Path::new(PREFIX), true);
    assert!(!expected.is_empty());
    assert_eq!(expected, found);
    check_left_in_order(&place.volume());
}

/// Eight threads, each with signals of its own, until they are killed: none finds anything wrong,
/// and all that they have synced is there. (The handlers of a child that ended found its volume
/// left, and its numbers closed: between its last call and the kernel's end of it.)
#[test]
fn all_that_takes_the_c_librarys_locks_under_a_timer_until_it_is_killed() {
    let place = TestDir::new("stress");
    let (program, shared) = (place.0.join("stress"), place.0.join("library.so"));
    compile("stress.c", &program, &["-O1", "-g"]);
    compile("stress.c", &shared, &["-O1", "-DLIBRARY", "-shared", "-fPIC"]);
    volume::format(&place.volume(), &FormatOptions { size: Some(1 << 30), ..Default::default() })
        .expect("format");
    let run = |directory: &Path, is_on_volume: bool, seconds: &str| {
        let in_place = |command: &mut Command, words: &[&OsStr]| {
            if is_on_volume {
                let mut preload = OsString::from("LD_PRELOAD=");
                preload.push(library());
                command.arg("env").arg(preload);
                command.env("SOLERA_VOLUME", place.volume()).env("SOLERA_AT", PREFIX);
            }
            command.arg(&program).args(words).output().expect("it runs")
        };
        let notes = place.0.join("notes");
        let seconds = OsStr::new(seconds);
        let paths = [directory.as_os_str(), notes.as_os_str(), shared.as_os_str(), seconds];
        // In a group of its own, which it kills; what takes longer hangs.
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "1500"]);
        let killed = in_place(&mut command, &[&[OsStr::new("run")], &paths[..]].concat());
        let said = String::from_utf8_lossy(&killed.stderr);
        let signal = ExitStatusExt::signal(&killed.status);
        assert_eq!(signal, Some(9), "it ended by itself: {said}");
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "600"]);
        let checked = in_place(&mut command, &[&[OsStr::new("check")], &paths[..2]].concat());
        eprint!("{}: {}", directory.display(), text(&checked));
    };
    run(&place.0.join("reference"), false, "2");
    run(Path::new(PREFIX), true, if rotation::all() { "600" } else { "8" });
    check_left_in_order(&place.volume());
}

/// The C library that the program calls believes to have one thread; there are two.
#[test]
fn a_thread_of_a_second_c_library() {
    same("second_libc");
}
