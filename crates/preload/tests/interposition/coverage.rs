//! The support table, `crates/preload/support/files.txt`: held against the symbols of glibc, those
//! of the library and `docs/support.md`, so that no function is forgotten and none is promised in
//! vain.
//!
//! `UPDATE_SUPPORT=1 cargo test -p solera-preload --test interposition coverage::` (`make support`)
//! writes the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ::calls::{COMPOSED, LAST, Numbers, ROWS, Server, What};
use object::{Object, ObjectSymbol, SymbolKind};

use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, run, text};

/// What becomes of a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Status {
    Served,
    Refused,
    Passed,
    Unserved,
}

impl Status {
    const ALL: [Self; 4] = [Self::Served, Self::Refused, Self::Passed, Self::Unserved];

    fn word(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Refused => "refused",
            Self::Passed => "passed",
            Self::Unserved => "unserved",
        }
    }

    /// Whether the library has a function of that name.
    fn exported(self) -> bool {
        matches!(self, Self::Served | Self::Refused)
    }
}

/// Functions that are treated alike, for the same reason.
struct Entry {
    status: Status,
    error: Option<String>,
    reason: String,
    names: Vec<String>,
}

struct Subject {
    title: String,
    entries: Vec<Entry>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn head(line: &str) -> Entry {
    let (what, reason) = line.split_once(": ").unwrap_or_else(|| panic!("no reason: {line}"));
    let mut words = what.split(' ');
    let word = words.next().unwrap_or_default();
    let known = Status::ALL.into_iter().find(|status| status.word() == word);
    let status = known.unwrap_or_else(|| panic!("no status: {line}"));
    let error = words.next().map(str::to_owned);
    let fails = matches!(status, Status::Refused | Status::Unserved);
    assert_eq!(error.is_some(), fails, "an error exactly where there is one: {line}");
    assert!(reason.len() > 5, "a reason: {line}");
    Entry { status, error, reason: reason.to_owned(), names: Vec::new() }
}

fn table() -> Vec<Subject> {
    let mut subjects: Vec<Subject> = Vec::new();
    for line in read("crates/preload/support/files.txt").lines() {
        if let Some(title) = line.strip_prefix("## ") {
            subjects.push(Subject { title: title.to_owned(), entries: Vec::new() });
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let subject = subjects.last_mut().expect("a subject comes first");
        if line.starts_with("    ") {
            let entry = subject.entries.last_mut().expect("names follow their status");
            entry.names.extend(line.split_whitespace().map(str::to_owned));
        } else {
            subject.entries.push(head(line));
        }
    }
    for entry in subjects.iter().flat_map(|subject| &subject.entries) {
        assert!(!entry.names.is_empty(), "nobody is {}: {}", entry.status.word(), entry.reason);
    }
    subjects
}

/// Every function of the table, with its status.
fn statuses() -> BTreeMap<String, Status> {
    let mut all = BTreeMap::new();
    for entry in table().into_iter().flat_map(|subject| subject.entries) {
        for name in entry.names {
            let before = all.insert(name.clone(), entry.status);
            assert_eq!(before, None, "{name} stands in the table twice");
        }
    }
    all
}

/// The functions that take neither path nor descriptor.
fn others() -> BTreeSet<String> {
    let text = read("crates/preload/support/neither.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
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

/// The C library that this test runs on.
fn glibc() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the mappings of this process");
    let line = maps.lines().find(|line| line.ends_with("/libc.so.6")).expect("glibc is mapped");
    PathBuf::from(line.split_whitespace().next_back().expect("a path"))
}

#[test]
fn every_function_of_glibc_is_classified() {
    let (known, others) = (statuses(), others());
    let both: Vec<&String> = known.keys().filter(|name| others.contains(*name)).collect();
    assert!(both.is_empty(), "in both lists: {both:?}");
    let glibc = functions(&glibc());
    assert!(glibc.len() > 2000, "{} functions are not all of glibc", glibc.len());
    let unknown: Vec<&String> =
        glibc.iter().filter(|name| !known.contains_key(*name) && !others.contains(*name)).collect();
    assert!(
        unknown.is_empty(),
        "new in glibc, to be put into crates/preload/support/files.txt or neither.txt: {unknown:?}",
    );
}

/// Exported although they take neither path nor descriptor: so that handlers and cancellation wait
/// until a thread has left the library, missing pages of mappings can come at any time, and the
/// number that was closed last is free before there are threads or sandboxes.
const SIGNALS: [&str; 31] = [
    "__sigaction",
    "__sysv_signal",
    "bsd_signal",
    "getaddrinfo_a",
    "getrandom",
    "prctl",
    "pthread_cancel",
    "pthread_create",
    "pthread_setcanceltype",
    "pthread_sigmask",
    "sigaction",
    "sigaltstack",
    "sigblock",
    "siggetmask",
    "sighold",
    "sigignore",
    "siginterrupt",
    "signal",
    "sigpending",
    "sigprocmask",
    "sigrelse",
    "sigset",
    "sigsetmask",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "ssignal",
    "sysv_signal",
    "thrd_create",
    "timer_create",
];

/// Exported so that the volume's permissions follow what they change; glibc's own do the rest.
const IDENTITIES: [&str; 3] = ["capset", "setns", "unshare"];

/// Of liburing and libaio: they say that the kernel does not have what they would begin.
fn rings() -> BTreeSet<&'static str> {
    let rows = ROWS.iter().filter(|row| ["io_setup", "io_uring_setup"].contains(&row.name));
    rows.flat_map(|row| row.symbols).copied().collect()
}

/// Whether it is passed on once the number that was closed last is really free
/// (`crates/preload/src/entry/cached_fd.rs`).
fn concerns_numbers(name: &str) -> bool {
    ::calls::named(name).numbers != Numbers::Unchanged
}

/// What `solera run` and libsolera ask for by their names.
const OWN: [&str; 3] = ["solera_preloaded", "solera_serves", "solera_shows"];

#[test]
fn the_library_has_the_functions_that_the_table_says() {
    let mut exported = functions(&crate::support::library());
    assert!(OWN.iter().all(|name| exported.remove(*name)));
    let known = statuses();
    let promised: BTreeSet<&String> =
        known.iter().filter(|(_, status)| status.exported()).map(|(name, _)| name).collect();
    let missing: Vec<&&String> =
        promised.iter().filter(|name| !exported.contains(**name)).collect();
    let others = others();
    let is_signals = |name: &str| SIGNALS.contains(&name) && others.contains(name);
    let is_rings = |name: &str| rings().contains(name) && !known.contains_key(name);
    let is_numbers =
        |name: &str| known.get(name) == Some(&Status::Passed) && concerns_numbers(name);
    let silent: Vec<&String> = exported
        .iter()
        .filter(|name| !promised.contains(name) && !is_signals(name) && !is_rings(name))
        .filter(|name| !is_numbers(name) && !IDENTITIES.contains(&name.as_str()))
        .collect();
    assert!(rings().iter().all(|name| exported.contains(*name)), "{:?}", rings());
    assert!(IDENTITIES.iter().all(|name| exported.contains(*name)), "{IDENTITIES:?}");
    assert!(missing.is_empty(), "served or refused by the table, not exported: {missing:?}");
    assert!(
        silent.is_empty(),
        "exported, not served or refused by crates/preload/support/files.txt: {silent:?}",
    );
}

/// Every name of a call has what the table says of the call, for there is no other list: so each
/// exported function stands in one row, or among those that are composed of calls, and none stands
/// there that is not exported.
#[test]
fn every_export_stands_in_the_table_of_calls() {
    let mut exported = functions(&crate::support::library());
    exported.retain(|name| !OWN.contains(&name.as_str()));
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

fn count(status: Status) -> usize {
    statuses().into_values().filter(|each| *each == status).count()
}

/// What the page and the README say in numbers.
fn sentence() -> String {
    format!(
        "Of {} functions of glibc that take a path or a descriptor, {} are served, {} are glibc's \
         own and right, {} are refused with a reason, {} do not see the volume.",
        statuses().len(),
        count(Status::Served),
        count(Status::Passed),
        count(Status::Refused),
        count(Status::Unserved),
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
         one is passed on. By number (`syscall`) as by name.\n\n| calls | | |\n|---|---|---|\n"
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
    let mut text = format!(
        "# What is supported\n\n\
         Made by `make support` from the table of system calls (`crates/calls`) and from \
         `crates/preload/support/files.txt`, which a test holds \
         against the symbols of the\nlibrary and of glibc: 2.36 (Debian 12) and 2.41 (Debian \
         13), x86-64. The other {} functions of\n`libc.so.6` take neither path nor descriptor.\n\n\
         {}\n\n\
         - **served**: on the volume the function does what Linux does on a local file system;\n\
         - **passed**: the function is not the library's: glibc's own does the right thing on the \
         volume too;\n\
         - **refused**: on the volume the function gives the error named; `solera run --report` \
         counts it,\n  `--strict-support` ends the program there;\n\
         - **unserved**: glibc does it inside itself. By `--door symbols` the volume is not seen \
         there: it fails\n  with the error named, and is not counted.\n\n\
         By system calls (`--door auto`, the default) what glibc does inside itself arrives, too: \
         what is\nunserved here is then served, and so is `fts`, which is refused by symbols.\n\n\
         The kernel's own asynchronous calls cannot reach the volume. While one is attached, what \
         begins them gives\n`ENOSYS`, and is counted: {}\n(liburing, libaio), and both calls by \
         number. Programs then use threads. `SOLERA_KERNEL_AIO=allow` leaves them\nto the kernel. \
         There, and in system calls made without the C library, a descriptor of the volume gives\n\
         `EBADF`, an inherited one\n`EISDIR` or `ENOTDIR`.\n",
        others().len(),
        sentence(),
        in_code(rings()),
    );
    text.push_str(&calls_page());
    for Subject { title, entries } in table() {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## {title}\n\n| functions | | |\n|---|---|---|\n");
        for entry in entries {
            let names: Vec<String> = entry.names.iter().map(|name| format!("`{name}`")).collect();
            let error = entry.error.map_or_else(String::new, |error| format!(" `{error}`"));
            let (word, reason) = (entry.status.word(), entry.reason);
            let _ = writeln!(text, "| {} | {word}{error} | {reason} |", names.join(" "));
        }
    }
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

/// Symbols that other tests call: descriptors of other processes by `messages.c`.
const CALLED_ELSEWHERE: [&str; 1] = ["pidfd_getfd"];

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
    every_export_was_called(&found);
}

fn every_export_was_called(said: &str) {
    let mut called: BTreeSet<&str> = said.lines().filter_map(subject_of).collect();
    called.extend(CALLED_ELSEWHERE);
    let known = statuses();
    let forgotten: Vec<&String> = known
        .iter()
        .filter(|(name, status)| **status == Status::Served && !called.contains(name.as_str()))
        .map(|(name, _)| name)
        .collect();
    assert!(forgotten.is_empty(), "served, but not called by tests/c/symbols.c: {forgotten:?}");
}

/// What is refused gives the error of the table, and the report tells of it.
#[test]
fn every_refused_symbol_gives_its_error() {
    let place = TestDir::new("refusals");
    let (program, report) = (place.0.join("refusals"), place.0.join("report"));
    compile("refusals.c", &program, &["-O1"]);
    format(&place.volume());
    let output = Command::new(&program)
        .arg(PREFIX)
        .env("SOLERA_VOLUME", place.volume())
        .env("SOLERA_AT", PREFIX)
        .env("SOLERA_REPORT", &report)
        // By system calls `fts` is served.
        .env("SOLERA_DOOR", "symbols")
        .env("LD_PRELOAD", crate::support::library())
        .output()
        .expect("the program runs");
    let said = text(&output);
    let mut called: BTreeMap<&str, &str> = BTreeMap::new();
    for line in said.lines().filter(|line| !line.starts_with("mapped")) {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, value, error] = words[..] else { panic!("{line}") };
        assert!(value == "-1" || name.starts_with("fts") && value == "0", "{line}");
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
    for entry in table().into_iter().flat_map(|subject| subject.entries) {
        let Some(error) = entry.error.filter(|_| entry.status == Status::Refused) else { continue };
        for name in entry.names {
            assert_eq!(called.get(name.as_str()), Some(&error.as_str()), "{name}");
            let tells = |line: &str| line.ends_with(&format!(" {name} {error}"));
            assert!(told.lines().any(tells), "{name} is not in the report: {told}");
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
    check_left_in_order(&place.volume());
}
