//! Each family of calls, told by a C program that runs twice: on a kernel file system and,
//! preloaded, on a volume. Their outputs, result by result and errno by errno, must be the same.
//! The programs are compiled with and without `_FORTIFY_SOURCE`, which calls other symbols: each in
//! one of the two ways, by rotation.

use std::path::Path;
use std::process::Command;

use crate::support::{
    PREFIX, TestDir, assert_same, check_left_in_order, compile, format, library, run, same, text,
};

#[test]
fn files() {
    same("files");
}

#[test]
fn names() {
    same("names");
}

#[test]
fn unknown_flags() {
    same("flags");
}

#[test]
fn slashes_behind_names() {
    same("slashes");
}

#[test]
fn seldom_answers() {
    same("answers");
}

/// The second engine leaves these calls to the kernel, for the most part: an unknown flag of
/// `close_range` once closed its files, and a forked child was told of a signal stack of ours.
#[test]
fn seldom_answers_over_a_kernel_file_system() {
    for name in ["flags", "slashes", "answers", "small_stack"] {
        let place = TestDir::new(&format!("{name}-split"));
        let (program, directory) = (place.0.join(name), place.0.join("split"));
        compile(&format!("{name}.c"), &program, &["-O1"]);
        std::fs::create_dir(&directory).expect("a directory");
        let expected = text(&run(&program, &place.0.join("reference"), None));
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "600", "env"]).arg(&program).arg(&directory);
        command.env("SOLERA_SPLIT", &directory).env("SOLERA_MODE", "posix");
        let found = command.env("LD_PRELOAD", library()).output().expect("the program runs");
        assert_same(name, &expected, &text(&found));
    }
}

#[test]
fn streams() {
    same("streams");
}

#[test]
fn mapping() {
    same("mapping");
}

#[test]
fn sparse_files_are_mapped() {
    same("sparse");
}

#[test]
fn holes_and_ends_of_mapped_files() {
    same("holes");
}

#[test]
fn odd_uses_of_mapped_files() {
    same("mapped_oddly");
}

#[test]
fn many_mappings() {
    same("many_mapped");
}

#[test]
fn limits() {
    same("limits");
}

#[test]
fn processes() {
    same("processes");
}

#[test]
fn splice() {
    same("splice");
}

#[test]
fn sockets() {
    same("sockets");
}

#[test]
fn threads() {
    same("threads");
}

/// A volume that cannot be attached: the program does not run at all.
#[test]
fn without_a_volume_nothing_runs() {
    let place = TestDir::new("none");
    let none = place.0.join("none.pm");
    let output = run(Path::new("/bin/touch"), &place.0.join("touched"), Some(&none));
    assert_eq!(output.status.code(), Some(125));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("solera: "), "says why");
    assert!(!place.0.join("touched").exists());
}

/// What was not served stands in the report, from before an exec too.
#[test]
fn the_report_names_what_was_not_served() {
    let place = TestDir::new("report");
    format(&place.volume());
    let script = "cp /bin/true program && ./program && ! /usr/sbin/chroot . true 2>/dev/null";
    let report = place.0.join("report");
    let status = Command::new("bash")
        .args(["-c", &format!("cd {PREFIX} && {script}")])
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .env("SOLERA_REPORT", &report)
        .env("LD_PRELOAD", library())
        .status()
        .expect("bash runs");
    assert!(status.success());
    let report = std::fs::read_to_string(&report).expect("a report");
    assert!(report.contains("1 binary-copied-to-memory execve"), "{report}");
    assert!(report.contains("chroot-onto-volume chroot"), "{report}");
}

/// What inotify tells of a volume is what it tells of tmpfs, event by event.
#[test]
fn watches() {
    same("watches");
}

/// Random changes of names, files and attributes, in directories and files of which some are
/// watched: event by event as on tmpfs. Other seeds at each commit.
#[test]
fn random_changes_are_told_as_on_tmpfs() {
    let place = TestDir::new("watched-random");
    let program = place.0.join("watched_random");
    compile("watched_random.c", &program, &["-O1"]);
    let first = rotation::turn("watched_random", 1_000_000);
    let count = if rotation::all() { 2000 } else { 40 };
    for seed in first..first + count {
        let [reference, here] = ["reference", "here"].map(|name| place.0.join(name));
        for place in [&reference, &here] {
            let _ = std::fs::remove_dir_all(place);
            std::fs::create_dir(place).expect("a directory");
        }
        format(&place.volume());
        let told = |directory: &Path, volume: bool| {
            let mut command = Command::new(&program);
            command.arg(directory).arg(seed.to_string());
            if volume {
                // The volume is what the directory holds.
                command.env("SOLERA_VOLUME", place.volume()).env("SOLERA_AT", directory);
                command.env("LD_PRELOAD", library());
            }
            text(&command.output().expect("the program runs"))
        };
        let (expected, found) = (told(&reference, false), told(&here, true));
        assert!(expected.lines().count() > 100, "seed {seed}: {expected}");
        for (expected, found) in expected.lines().zip(found.lines()) {
            assert_eq!(expected, found, "seed {seed}: expected (left), found (right)");
        }
        assert_eq!(expected.len(), found.len(), "seed {seed}");
        std::fs::remove_file(place.volume()).expect("the volume");
    }
}

/// The events of four processes, replayed in their order, lead to what the directories hold.
#[test]
fn events_come_in_the_order_of_the_changes() {
    assert_eq!(
        watched("watched_by_many"),
        "a: the same\nb: the same\n0 events that could not be\n"
    );
}

/// Changers are killed in the middle of their changes: what they left untold is told with the next
/// change of each name, and what they held is free.
#[test]
fn killed_changers_leave_nothing_untold() {
    assert_eq!(watched("watched_by_killed"), "a: the same\nb: the same\n");
}

/// What a program says that watches; then nothing of its watches is left.
fn watched(name: &str) -> String {
    let place = TestDir::new(name);
    format(&place.volume());
    let program = place.0.join(name);
    compile(&format!("{name}.c"), &program, &["-O1"]);
    let output = Command::new("timeout")
        .args(["-k", "5", "600"])
        .arg(&program)
        .arg(format!("{PREFIX}/here"))
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .env("LD_PRELOAD", library())
        .output()
        .expect("the program runs");
    check_left_in_order(&place.volume());
    let shadows = place.volume().with_extension("pm.solera").join("open/shadows");
    let left: Vec<_> = std::fs::read_dir(&shadows).expect("shadows").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    text(&output)
}

/// Calls that a volume does not serve: each fails with its error, and is counted.
#[test]
fn what_is_not_served_is_refused() {
    let place = TestDir::new("refused");
    format(&place.volume());
    let program = place.0.join("refused");
    compile("refused.c", &program, &["-O1"]);
    let report = place.0.join("report");
    let output = Command::new(&program)
        .arg(PREFIX)
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .env("SOLERA_REPORT", &report)
        .env("LD_PRELOAD", library())
        .output()
        .expect("the program runs");
    let said = text(&output);
    let answers: Vec<&str> = said.lines().filter_map(|line| line.rsplit([' ']).next()).collect();
    assert_eq!(answers, ["EINVAL"], "{said}");
    let report = std::fs::read_to_string(&report).expect("a report");
    assert!(report.contains("fcntl-command"), "{report}");
}

/// A shell whose children are killed filled all process slots of the runtime with the dead, and
/// could not fork any more.
#[test]
fn killed_children_do_not_use_the_volume_up() {
    let place = TestDir::new("killed");
    format(&place.volume());
    let script = "for ((i = 0; i < 700; i++)); do (exec 3>f; kill -9 $BASHPID) & wait $!; done \
                  2>/dev/null; echo $i";
    let output = Command::new("bash")
        .args(["-c", &format!("cd {PREFIX} && {script}")])
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .env("LD_PRELOAD", library())
        .output()
        .expect("bash runs");
    assert_eq!(text(&output), "700\n");
    check_left_in_order(&place.volume());
}
