//! What other threads of the process do beside a call: they have the C library's locks while one
//! forks; a second C library has made them.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

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

/// The C library that the program calls believes to have one thread; there are two.
#[test]
fn a_thread_of_a_second_c_library() {
    same("second_libc");
}
