//! The table of system calls (`crates/calls`) held against what the library exports and
//! `docs/support.md`, and each function of the C library that takes a path or a descriptor on a
//! volume beside a kernel file system, one by one.
//!
//! `UPDATE_SUPPORT=1 cargo test -p solera-preload --test interposition coverage::` (`make support`)
//! writes the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ::calls::{COMPOSED, LAST, ROWS, Server, What};
use object::{Object, ObjectSymbol, SymbolKind};

use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, run, text};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The functions that a shared library defines for others.
fn functions(path: &Path) -> BTreeSet<String> {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = object::File::parse(&*bytes).expect("a shared library");
    let found = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
        .map(|symbol| symbol.name().expect("a name").to_owned());
    found.collect()
}

/// Of liburing and libaio: they say that the kernel does not have what they would begin.
fn rings() -> BTreeSet<&'static str> {
    let rows = ROWS.iter().filter(|row| ["io_setup", "io_uring_setup"].contains(&row.name));
    rows.flat_map(|row| row.symbols).copied().collect()
}

/// What `solera run`, libsolera and the host ask for by their names.
const OWN: [&str; 4] = ["solera_preloaded", "solera_serves", "solera_shows", "solera_guest_start"];

/// More would be interposed than forks, programs, signals, threads and identities need, and
/// shortcuts.
const EXPORTS_MAX: usize = 130;

/// Every name of a call has what the table says of the call, for there is no other list: so each
/// exported function stands in one row, or among those that are composed of calls, and none stands
/// there that is not exported.
#[test]
fn every_export_stands_in_the_table_of_calls() {
    let mut exported = functions(&crate::support::library());
    assert!(exported.len() <= EXPORTS_MAX, "{} functions are exported", exported.len());
    assert!(OWN.iter().all(|name| exported.remove(*name)));
    let rows = ROWS.iter().flat_map(|row| row.symbols);
    let composed = COMPOSED.iter().flat_map(|function| function.symbols);
    let known: Vec<&str> = rows.chain(composed).copied().collect();
    let table: BTreeSet<String> = known.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(table.len(), known.len(), "a name stands twice");
    let missing: Vec<&String> = exported.difference(&table).collect();
    assert!(missing.is_empty(), "exported, and in no row of crates/calls: {missing:?}");
    let silent: Vec<&String> = table.difference(&exported).collect();
    assert!(silent.is_empty(), "in crates/calls, and not exported: {silent:?}");
}

/// GCC's unwinder does not come with the library, and the program's exceptions do not go through
/// the functions that stand for it.
#[test]
fn the_unwinder_is_neither_brought_nor_shown() {
    let bytes = std::fs::read(crate::support::library()).expect("the library");
    let file = object::File::parse(&*bytes).expect("a shared library");
    let names = file.dynamic_symbols().filter_map(|symbol| symbol.name().ok());
    let found: Vec<&str> = names.filter(|name| name.starts_with("_Unwind")).collect();
    assert!(found.is_empty(), "{found:?}");
}

/// What the page and the README say in numbers.
fn sentence() -> String {
    let count = |are: &dyn Fn(&Server) -> bool| ROWS.iter().filter(|row| are(&row.server)).count();
    format!(
        "Of {} system calls {} are served, {} are refused with a reason where they name something \
         on a volume, {} are not served, and all others have nothing to do with its files.",
        ROWS.len(),
        count(&|server| *server == Server::Volume),
        count(&|server| matches!(server, Server::Refused(..))),
        count(&|server| matches!(server, Server::Unserved(_))),
    )
}

fn in_code<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ")
}

/// What becomes of each system call, from the table.
fn calls_page() -> String {
    let names = |are: &dyn Fn(&Server) -> bool| {
        let rows = ROWS.iter().filter(|row| are(&row.server)).map(|row| row.name);
        (in_code(rows.clone()), rows.count())
    };
    let mut text = format!(
        "\n## System calls\n\n\
         From the table of crate `calls`: every number of x86-64's kernel up to {LAST}. A later \
         one is passed on.\n\n| calls | | |\n|---|---|---|\n"
    );
    let mut line = |(names, count): (String, usize), word: &str, reason: &str| {
        if count > 0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {names} | {word} | {reason} |");
        }
    };
    line(names(&|server| *server == Server::Volume), "served", "as Linux on a local file system");
    let mut seen = BTreeSet::new();
    for server in ROWS.iter().map(|row| row.server) {
        let (word, reason) = match server {
            Server::Refused(error, reason) => (format!("refused `{error}`"), reason),
            Server::Unserved(reason) => ("unserved `EOPNOTSUPP`".to_owned(), reason),
            _ => continue,
        };
        if seen.insert((word.clone(), reason)) {
            line(names(&|other| *other == server), &word, reason);
        }
    }
    for (what, reason) in [
        (What::Mappings, "the library follows what is mapped"),
        (What::Processes, "the library follows processes and threads"),
        (What::Signals, "the library follows actions and masks of signals"),
        (What::Limits, "the library is ready before the process may do less"),
    ] {
        line(names(&|server| *server == Server::Watched(what)), "passed", reason);
    }
    line(
        names(&|server| *server == Server::Kernel),
        "passed",
        "a file of a volume is none of theirs",
    );
    text
}

/// The page that people read.
fn page() -> String {
    let exported = ROWS.iter().flat_map(|row| row.symbols);
    let exported = exported.chain(COMPOSED.iter().flat_map(|function| function.symbols)).copied();
    let exported: BTreeSet<&str> = exported.collect();
    let mut text = format!(
        "# What is supported\n\n\
         Which system calls a volume serves, refuses, or leaves to the kernel; made by `make \
         support` from their table (`crates/calls`). {}\n\n\
         - **served**: on the volume the call does what Linux does on a local file system;\n\
         - **passed**: the kernel serves it;\n\
         - **refused**: on the volume the call gives the error named; `solera run --report` \
         counts it, `--strict-support` ends the program there;\n\
         - **unserved**: with a descriptor of the volume it gives the error named, and is \
         counted; a path on the volume is not seen.\n\n\
         Whichever function of the C library makes the call, it is served ([door.md](door.md)): \
         streams, directories, `fts`, `glob`, `dlopen`, `syscall`. System calls that a program \
         makes by instructions of its own are served as well from Linux 5.11 on \
         ([outside-calls.md](outside-calls.md)); where one slips past, a descriptor of the volume \
         gives `EBADF`, an inherited one `EISDIR` or `ENOTDIR`.\n\n\
         The kernel's own asynchronous calls cannot reach the volume. While one is attached, what \
         begins them gives `ENOSYS`, and is counted: {} (liburing, libaio). Programs then use \
         threads. `SOLERA_KERNEL_AIO=allow` leaves them to the kernel.\n\n\
         By name the library has {} functions: what forks, programs, signals, threads and \
         identities need, and shortcuts of the most frequent calls (`symbols` in that \
         table).\n",
        sentence(),
        in_code(rings()),
        exported.len(),
    );
    text.push_str(&calls_page());
    text
}

#[test]
fn the_page_says_what_the_table_says() {
    let (path, page) = (root().join("docs/support.md"), page());
    if std::env::var_os("UPDATE_SUPPORT").is_some() {
        std::fs::write(&path, &page).expect("the page is written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    // `scripts/wrap.py` breaks the lines of the written one.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&written) == words(&page), "docs/support.md is old: run `make support`");
    let plain = words(&read("README.md"));
    assert!(plain.contains(&sentence()), "README.md shall say: {}", sentence());
}

/// The name that a line of `symbols.c` is about.
fn subject_of(line: &str) -> Option<&str> {
    let end = line.find([':', ' '])?;
    line[..end].chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(&line[..end])
}

/// Symbols that this glibc may not have, or not for new programs.
const MAY_BE_ABSENT: [&str; 3] = ["llseek", "pidfd_spawn", "pidfd_spawnp"];

/// Every alias and variant, one by one: by name, on a kernel file system and on a volume, with the
/// same answers, errors and traces.
#[test]
fn every_symbol_does_on_the_volume_what_it_does_elsewhere() {
    every_symbol("plain", &["-O0", "-g"]);
}

/// Compiled with the checks of glibc's headers, which put other symbols in place of many.
#[test]
fn every_symbol_does_so_in_fortified_programs() {
    every_symbol("fortified-2", &["-O2", "-D_FORTIFY_SOURCE=2"]);
    every_symbol("fortified-3", &["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"]);
}

fn every_symbol(variant: &str, options: &[&str]) {
    let place = TestDir::new(&format!("symbols-{variant}"));
    let program = place.0.join("symbols");
    compile("symbols.c", &program, options);
    format(&place.volume());
    let expected = text(&run(&program, &place.0.join("reference"), None));
    let found = text(&run(&program, Path::new(PREFIX), Some(&place.volume())));
    let known: BTreeSet<&str> = expected.lines().filter_map(subject_of).collect();
    let absent = |line: &&str| {
        subject_of(line).is_some_and(|name| MAY_BE_ABSENT.contains(&name) && !known.contains(name))
    };
    // What a file holds may go on in the next line.
    let new: Vec<&str> = found.lines().filter(absent).collect();
    let kept: Vec<&str> = found.lines().filter(|line| !absent(line) && *line != "]").collect();
    let expected: Vec<&str> = expected.lines().filter(|line| *line != "]").collect();
    for (expected, found) in expected.iter().zip(&kept) {
        assert_eq!(expected, found, "expected (left), found (right)");
    }
    assert_eq!(expected.len(), kept.len());
    for line in new {
        let right = ["= 0", "= 7", "= -1 EINVAL", "n [said", "f [0123456789]", "n(100644 5) and 0"];
        assert!(right.iter().any(|end| line.ends_with(end)), "{line}");
    }
    check_left_in_order(&place.volume());
}

/// What is refused gives the error of the table, and the report tells of it.
#[test]
fn every_refused_call_gives_its_error() {
    let place = TestDir::new("refusals");
    let (program, report) = (place.0.join("refusals"), place.0.join("report"));
    compile("refusals.c", &program, &["-O1"]);
    format(&place.volume());
    let output = Command::new(&program)
        .arg(PREFIX)
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .env("SOLERA_REPORT", &report)
        .env("LD_PRELOAD", crate::support::library())
        .output()
        .expect("the program runs");
    let said = text(&output);
    let mut called: BTreeMap<&str, &str> = BTreeMap::new();
    for line in said.lines().filter(|line| !line.starts_with("mapped")) {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, value, error] = words[..] else { panic!("{line}") };
        assert_eq!(value, "-1", "{line}");
        assert!(called.insert(name, error).is_none_or(|before| before == error), "{line}");
    }
    assert!(said.ends_with("mapped t\n"), "{said}");
    // Node drops the error of a watch, where it watches a tree, and then waits for ever.
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors.matches("nobody is told of changes on a volume").count(), 1, "{errors}");
    let told = std::fs::read_to_string(&report).expect("a report");
    for within in [" fcntl-command fcntl EINVAL", " loop-device-of-volume ioctl EINVAL"] {
        assert!(told.lines().any(|line| line.ends_with(within)), "{within}: {told}");
    }
    for row in ROWS {
        let Server::Refused(error, _) = row.server else { continue };
        if !rings().contains(row.name) {
            assert_eq!(called.get(row.name), Some(&error), "{}", row.name);
            let tells = |line: &str| line.ends_with(&format!(" {} {error}", row.name));
            assert!(told.lines().any(tells), "{} is not in the report: {told}", row.name);
        }
    }
}

/// `--strict-support`: the first refused call ends the program, with a message that names it; calls
/// that are served do not.
#[test]
fn a_strict_program_ends_at_what_is_not_served() {
    use std::os::unix::process::ExitStatusExt;
    let place = TestDir::new("strict");
    format(&place.volume());
    let bash = |script: &str| {
        Command::new("bash")
            .args(["-c", &format!("cd {PREFIX} && {script}")])
            .env("SOLERA_VOLUME", place.volume())
            .env("SOLERA_AT", PREFIX)
            .env("SOLERA_STRICT_SUPPORT", "1")
            .env("LD_PRELOAD", crate::support::library())
            .output()
            .expect("bash runs")
    };
    assert_eq!(text(&bash("echo x > f && cp f g && cat g")), "x\n");
    let output = bash("exec /usr/sbin/chroot . true; echo after");
    assert_eq!(output.status.signal(), Some(6), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("solera: chroot") && message.contains("EPERM"), "{message}");
    check_left_in_order(&place.volume());
}

/// `--bypass`: a program of that name does not see the volume; what it starts does.
#[test]
fn a_bypassed_program_runs_without_the_volume() {
    let place = TestDir::new("bypass");
    format(&place.volume());
    let bash = |names: &str, script: &str| {
        let output = Command::new("bash")
            .args(["-c", script])
            .env("SOLERA_VOLUME", place.volume())
            .env("SOLERA_AT", PREFIX)
            .env("SOLERA_BYPASS", names)
            .env("LD_PRELOAD", crate::support::library())
            .output()
            .expect("bash runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let script = format!("echo x > {PREFIX}/f; cat {PREFIX}/f; env cat {PREFIX}/f; echo $?");
    assert_eq!(bash("other:env", &script), "x\nx\n0\n", "env starts a cat that sees the volume");
    assert_eq!(bash("cat", &script), "1\n", "no cat sees it");
    assert_eq!(bash("/no/such/cat", &script), "x\nx\n0\n", "a path means one executable");
    // One that a host would run.
    let program = place.0.join("static");
    compile("static.c", &program, &["-static"]);
    let script = format!("{} {PREFIX}/f; echo $?", program.display());
    assert_eq!(bash("other", &script), "0\n", "it sees the volume");
    for name in ["static", &program.display().to_string()] {
        assert_eq!(bash(name, &script), "1\n", "it does not, by {name}");
    }
    check_left_in_order(&place.volume());
}
