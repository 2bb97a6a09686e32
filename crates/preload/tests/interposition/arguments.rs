//! Wrong arguments of each system call, by its number, from the rows of the table: what a kernel
//! file system gives, a volume gives, and the second engine over a directory.
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
    ("rt_sigaction", "the handlers of the cases that follow; compared by signals.c"),
    ("rt_sigprocmask", "the mask of the cases that follow; compared by signals.c"),
    ("rt_sigsuspend", "waits for a signal"),
    ("rt_sigtimedwait", "waits for a signal"),
    ("ppoll", "may wait for ever"),
    ("pselect6", "may wait for ever"),
    ("epoll_pwait", "may wait for ever"),
    ("epoll_pwait2", "may wait for ever"),
    ("setgroups", "the identity of the cases that follow"),
    ("capset", "the identity of the cases that follow"),
    ("process_vm_readv", "the memory of another process"),
    ("process_vm_writev", "the memory of another process"),
];

/// An answer that may differ, and why: the call, words that its line has, the kernel file system's
/// answer, the volume's. Empty: any.
type Difference = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// Where the answers may differ.
const DIFFERENT: &[Difference] = &[
    ("setxattr", "5000", "0", "ENOSPC", "attributes of a file share a block, as on ext4"),
    ("setxattr", "4096", "0", "ENOSPC", "attributes of a file share a block, as on ext4"),
    ("fcntl", ", 1024, ", "", "EINVAL", "there are no leases"),
    ("fcntl", ", 1026, ", "", "EINVAL", "nobody is told of changes"),
    ("fcntl", ", 8, ", "", "", "which processes there are"),
    ("xattr", "(AT_FDCWD", "", "EBADF", "Linux 6.13 takes it for a descriptor"),
    (
        "mmap",
        "directory, -2^63",
        "EINVAL",
        "EOVERFLOW",
        "the number is held by one of another kind",
    ),
    ("fallocate", ", 80, ", "", "", "Linux 6.17 writes zeroes"),
    ("getcwd", "", "", "", "the paths of the two directories are not of one length"),
    ("fcntl", ", 1028, ", "0", "", "whether it was made is of Linux 6.12"),
    ("preadv2", "8): ", "EOPNOTSUPP", "", "RWF_NOWAIT: nothing waits here; tmpfs has it not"),
    ("pwritev2", "8): ", "EOPNOTSUPP", "", "RWF_NOWAIT: nothing waits here; tmpfs has it not"),
    ("fallocate", ", 8, ", "EOPNOTSUPP", "", "collapses a range, which tmpfs cannot"),
    ("fallocate", ", 10, ", "EOPNOTSUPP", "", "zeroes a range, which tmpfs cannot"),
    ("fallocate", ", 20, ", "EOPNOTSUPP", "", "inserts a range, which tmpfs cannot"),
    ("newfstatat", "all): ", "", "EINVAL", "Linux 6.11 ignores flags where there is no path"),
    ("renameat", "empty text", "ENOENT", "EBADF", "the second directory comes before its name"),
    ("linkat", "empty text", "ENOENT", "EBADF", "the second directory comes before its name"),
    ("rename", "long name", "", "ENAMETOOLONG", "the first name is looked up first"),
];

/// Whether an answer may be another one than the kernel file system's.
fn may_differ(expected: &str, found: &str, more: &[Difference]) -> bool {
    let (asked, theirs) = expected.rsplit_once(": ").expect("an answer");
    let ours = found.rsplit_once(": ").expect("an answer").1;
    let (name, _) = asked.split_once('(').expect("a call");
    // The number is held by one that was not opened so: the kernel, which serves the call, says
    // another error.
    let row = ROWS.iter().find(|row| row.name == name).expect("a row");
    let held =
        matches!(row.server, Server::Kernel | Server::Watched(_)) || OF_SOCKETS.contains(&name);
    if held && asked.contains("O_PATH") && theirs == "EBADF" && ours.starts_with('E') {
        return true;
    }
    DIFFERENT.iter().chain(more).any(|(call, words, one, other, _)| {
        name.contains(call)
            && expected.contains(words)
            && (one.is_empty() || *one == theirs)
            && (other.is_empty() || *other == ours)
    })
}

/// Calls whose bodies leave to the kernel what is no socket, or no name space.
const OF_SOCKETS: &[&str] = &[
    "accept",
    "accept4",
    "bind",
    "connect",
    "getpeername",
    "getsockname",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setns",
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

/// As [`DIFFERENT`], of the second engine.
const DIFFERENT_OVER_A_DIRECTORY: &[Difference] = &[
    ("getdents", "directory", "208", "248", "the engine has a directory of its own there"),
    ("getdents", "directory", "232", "272", "the engine has a directory of its own there"),
    ("lseek", "2^63 - 1", "", "EINVAL", "the engine's positions end before"),
];

/// Runs the program in a directory, on a kernel file system or with the library, and compares.
fn compare(name: &str, directory: &Path, with: &[String], more: &[Difference]) {
    for (name, _) in EXEMPT {
        assert!(ROWS.iter().any(|row| row.name == *name), "{name} has no row");
    }
    let place = TestDir::new(&format!("arguments-{name}"));
    let (program, list) = (place.0.join("arguments"), place.0.join("rows"));
    compile("arguments.c", &program, &["-O1"]);
    std::fs::write(&list, rows(is_tried)).expect("the rows");
    let seeds = if rotation::all() { 20 } else { 1 };
    for at in 0..seeds {
        let seed = rotation::turn(&format!("arguments/{at}"), u32::MAX);
        let run = |directory: &Path, with: &[String]| {
            let mut command = Command::new("timeout");
            command.args(["-k", "5", "900", "env"]).args(with);
            let arguments = [program.as_os_str(), directory.as_os_str(), list.as_os_str()];
            command.args(arguments).args([seed.to_string(), "40".to_owned()]);
            text(&command.output().expect("the program runs"))
        };
        let expected = run(&place.0.join("reference"), &[]);
        let found = run(directory, with);
        assert_eq!(expected.lines().count(), found.lines().count(), "seed {seed}");
        let differ: Vec<String> = expected
            .lines()
            .zip(found.lines())
            .filter(|(one, other)| one != other && !may_differ(one, other, more))
            .map(|(one, other)| {
                format!("{one}, found: {}", other.rsplit(": ").next().unwrap_or(""))
            })
            .collect();
        assert!(differ.is_empty(), "seed {seed}: {} differ: {differ:#?}", differ.len());
    }
}

#[test]
fn wrong_arguments_give_what_a_kernel_file_system_gives() {
    let place = TestDir::new("arguments");
    format(&place.volume());
    let with = [
        format!("SOLERA_VOLUME={}", place.volume().display()),
        format!("SOLERA_AT={PREFIX}"),
        format!("LD_PRELOAD={}", library().display()),
    ];
    compare("volume", Path::new(PREFIX), &with, &[]);
    check_left_in_order(&place.volume());
}

#[test]
fn wrong_arguments_over_a_kernel_file_system() {
    let place = TestDir::new("arguments-split");
    let directory = place.0.join("split");
    std::fs::create_dir(&directory).expect("a directory");
    let with = [
        format!("SOLERA_SPLIT={}", directory.display()),
        "SOLERA_MODE=posix".to_owned(),
        format!("LD_PRELOAD={}", library().display()),
    ];
    compare("directory", &directory, &with, DIFFERENT_OVER_A_DIRECTORY);
}
