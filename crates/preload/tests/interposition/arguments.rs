//! Wrong arguments of each system call, by its number, from the rows of the table: what a kernel
//! file system gives, a volume gives.
//!
//! `tests/c/arguments.c` makes the calls: one wrong argument beside right ones, all of those; and
//! several by chance, of a seed that the commit draws (`SOLERA_TEST_LONG`: of twenty seeds).

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use ::calls::{Argument, ROWS, Row, Server};

use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, library, text};

/// Calls that are not made here, and why.
const EXEMPT: &[(&str, &str)] = &[
    ("execve", "another program would run"),
    ("execveat", "another program would run"),
    ("setrlimit", "the limits of the cases that follow"),
    ("prlimit64", "the limits of the cases that follow"),
    ("finit_module", "changes the kernel"),
    ("kexec_file_load", "changes the kernel"),
    ("sync", "takes no argument"),
    ("sigaltstack", "its answers are compared by signals.c"),
    ("setgroups", "the identity of the cases that follow"),
    ("capset", "the identity of the cases that follow"),
    ("io_setup", "refused while a volume is attached"),
    ("io_uring_setup", "refused while a volume is attached"),
];

/// Whether its wrong arguments are tried: it is served, or has a descriptor.
fn is_tried(row: &Row) -> bool {
    let concerns = match row.server {
        Server::Volume => row.arguments.iter().any(|argument| {
            !matches!(argument, Argument::Number | Argument::AnyFlags | Argument::Mode)
        }),
        Server::Kernel | Server::Watched(_) => row.has_descriptor(),
        Server::Refused(..) | Server::Unserved(_) => false,
    };
    concerns && EXEMPT.iter().all(|(name, _)| *name != row.name)
}

/// The rows, as the program reads them.
fn rows(are: impl Fn(&Row) -> bool) -> String {
    let mut text = String::new();
    for row in ROWS.iter().filter(|row| are(row)) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{} {}", row.number, row.name);
        for argument in row.arguments {
            let _ = write!(text, " {}", format!("{argument:?}").replace('(', ":").replace(')', ""));
        }
        text.push('\n');
    }
    text
}

#[test]
fn wrong_arguments_give_what_a_kernel_file_system_gives() {
    for (name, _) in EXEMPT {
        assert!(ROWS.iter().any(|row| row.name == *name), "{name} has no row");
    }
    let place = TestDir::new("arguments");
    let (program, list) = (place.0.join("arguments"), place.0.join("rows"));
    compile("arguments.c", &program, &["-O1"]);
    std::fs::write(&list, rows(is_tried)).expect("the rows");
    format(&place.volume());
    let seeds = if rotation::all() { 20 } else { 1 };
    for at in 0..seeds {
        let seed = rotation::turn(&format!("arguments/{at}"), u32::MAX);
        let run = |directory: &Path, on_volume: bool| {
            let mut command = Command::new("timeout");
            command.args(["-k", "5", "300", "env"]);
            if on_volume {
                command.arg(format!("SOLERA_VOLUME={}", place.volume().display()));
                command.arg(format!("SOLERA_AT={PREFIX}"));
                command.arg(format!("LD_PRELOAD={}", library().display()));
            }
            let arguments = [program.as_os_str(), directory.as_os_str(), list.as_os_str()];
            command.args(arguments).args([seed.to_string(), "40".to_owned()]);
            text(&command.output().expect("the program runs"))
        };
        let expected = run(&place.0.join("reference"), false);
        let found = run(Path::new(PREFIX), true);
        assert_eq!(expected.lines().count(), found.lines().count(), "seed {seed}");
        let differ: Vec<String> = expected
            .lines()
            .zip(found.lines())
            .filter(|(one, other)| one != other)
            .map(|(one, other)| {
                format!("{one}, found: {}", other.rsplit(": ").next().unwrap_or(""))
            })
            .collect();
        assert!(differ.is_empty(), "seed {seed}: {} differ: {differ:#?}", differ.len());
    }
    check_left_in_order(&place.volume());
}
