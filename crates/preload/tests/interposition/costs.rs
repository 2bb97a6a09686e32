//! The regression guard: what key operations execute, beside the figures in `costs.txt`, or in
//! `costs.avx2.txt` where the CPU has no vectors of 512 bits: sums take more instructions there.
//! These are of class `cache-line`; in `costs.volatile.txt` and `costs.volatile.avx2.txt` is what
//! is executed in memory that a reboot empties: no flush, and fences around streams only.
//!
//! Fences, flushed and streamed lines, locked instructions and system calls must be exactly those;
//! instructions at most 3 % more. They depend on the compiler and the C library: with others than
//! the figures were taken with, 15 %. They depend on what the CPU can do, too (how wide copies are,
//! which routines the C library takes, whether there is a protection key to open): on another kind
//! of CPU 50 %, and a line may be stored around the cache that is flushed elsewhere, so only their
//! sum counts; the test says so. `make baseline` takes the figures anew, to be looked at and
//! checked in.
//!
//! `SOLERA_COSTS=NAME` shows, for the operation of that name, which function executes how much, and
//! how many of its instructions store something: what is stored behind a fence waits for it, and
//! there is room for about a hundred.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Counts, Followed, Range, Sample, follow};
use crate::support::{PREFIX, TestDir, check_left_in_order, compile, format, library};
use object::{Object, ObjectSegment, ObjectSymbol};

/// Groups of operations of `costs.c`, by mode; each line is a process, on a volume of its own.
const GROUPS: [(&str, &[&str]); 5] = [
    ("strict", &["large", "scattered", "appends", "names", "trees"]),
    ("strict", &["threads"]),
    ("strict", &["beside"]),
    ("sync", &["large", "appends"]),
    ("posix", &["durable"]),
];
/// Beyond the first mode, the rows whose cost the mode changes.
const CHANGED: [&str; 4] =
    ["overwrite 4K in an extent", "append 4K", "append 4K, fsync", "append 64 B, fsync"];

fn figures(class: &str) -> PathBuf {
    let wide = std::is_x86_feature_detected!("avx512f");
    let name = match class {
        "volatile" if wide => "costs.volatile.txt",
        "volatile" => "costs.volatile.avx2.txt",
        _ if wide => "costs.txt",
        _ => "costs.avx2.txt",
    };
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// What of a CPU decides about paths: its maker, and what this project and the C library ask for.
const OF_CPUS: [&str; 14] = [
    "GenuineIntel",
    "AuthenticAMD",
    "avx2",
    "avx512bw",
    "avx512f",
    "avx512vl",
    "bmi2",
    "clwb",
    "clflushopt",
    "erms",
    "fsrm",
    "movdir64b",
    "ospke",
    "rtm",
];

/// What the figures depend on besides the code: compiler and C library, and the CPU.
fn surroundings() -> (String, String) {
    let version = Command::new("rustc").arg("-V").output().expect("rustc").stdout;
    // SAFETY: a string that is there as long as the library.
    let libc = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    let version = String::from_utf8_lossy(&version).trim().to_owned();
    let version = format!("{version}, glibc {}", libc.to_string_lossy());
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has = |name: &str| cpus.split_whitespace().any(|word| word == name);
    (version, OF_CPUS.into_iter().filter(|name| has(name)).collect::<Vec<_>>().join(" "))
}

fn measure(
    place: &TestDir,
    program: &Path,
    class: &str,
    (mode, groups): (&str, &[&str]),
) -> Followed {
    let volume = place.0.join(format!("{class}-{mode}-{}.pm", groups[0]));
    format(&volume);
    let mut command = Command::new(program);
    command
        .arg(PREFIX)
        .args(groups)
        .env_clear()
        .env("PATH", "/bin:/usr/bin")
        .env("SOLERA_VOLUME", &volume)
        .env("SOLERA_AT", PREFIX)
        .env("SOLERA_MODE", mode)
        .env("SOLERA_CLASS", class)
        .env("LD_PRELOAD", library());
    let followed = follow(&mut command);
    check_left_in_order(&volume);
    followed
}

/// The run in the middle of each operation, in the order of the program.
fn medians(followed: Followed, mode: &str) -> Vec<Sample> {
    let mut rows: Vec<Vec<Sample>> = Vec::new();
    for mut sample in followed.samples {
        if mode != GROUPS[0].0 && !CHANGED.contains(&sample.name.as_str()) {
            continue;
        }
        sample.name = format!("{mode}: {}", sample.name);
        match rows.last_mut() {
            Some(row) if row[0].name == sample.name => row.push(sample),
            _ => rows.push(vec![sample]),
        }
    }
    let middle = |mut row: Vec<Sample>| {
        row.sort_by_key(|sample| sample.counts.instructions);
        let at = row.len() / 2;
        row.swap_remove(at)
    };
    rows.into_iter().map(middle).collect()
}

const COLUMNS: &str = "instructions  locked  fences  flushed  streamed  system calls";

fn line(name: &str, counts: &Counts) -> String {
    let Counts { instructions, locked, fences, flushed, streamed, system_calls } = counts;
    format!(
        "{name:40}{instructions:12}{locked:8}{fences:8}{flushed:9}{streamed:10}{system_calls:14}"
    )
}

fn parse(line: &str) -> Option<(String, Counts)> {
    let numbers: Vec<u64> =
        line.get(40..)?.split_whitespace().map_while(|w| w.parse().ok()).collect();
    let [instructions, locked, fences, flushed, streamed, system_calls] = numbers[..] else {
        return None;
    };
    let counts = Counts { instructions, locked, fences, flushed, streamed, system_calls };
    Some((line[..40].trim().to_owned(), counts))
}

/// What of `found` is not as `expected`.
fn differences(
    class: &str,
    (found, expected): (&Counts, &Counts),
    percent: u64,
    same_cpu: bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let most = expected.instructions * (100 + percent) / 100;
    if found.instructions > most {
        wrong.push(format!("{} instructions, at most {most}", found.instructions));
    }
    let lines = |counts: &Counts| counts.flushed + counts.streamed;
    // Which kind of CPU it is decides what is streamed in memory that a reboot empties.
    let order = same_cpu || class != "volatile";
    let columns = [
        ("system calls", found.system_calls, expected.system_calls, true),
        ("locked instructions", found.locked, expected.locked, true),
        ("fences", found.fences, expected.fences, order),
        ("lines to the medium", lines(found), lines(expected), order),
        ("flushed lines", found.flushed, expected.flushed, same_cpu),
        ("streamed lines", found.streamed, expected.streamed, same_cpu),
    ];
    for (what, found, expected, counts) in columns {
        if counts && found != expected {
            wrong.push(format!("{found} {what}, not {expected}"));
        }
    }
    wrong
}

#[test]
fn key_operations_cost_what_they_did() {
    if cfg!(debug_assertions) {
        println!("the figures are those of the release profile");
        return;
    }
    let place = TestDir::new("costs");
    let program = place.0.join("costs");
    compile("costs.c", &program, &["-O1"]);
    compare(&place, &program, "cache-line");
}

#[test]
fn nothing_is_flushed_in_memory_that_a_reboot_empties() {
    if cfg!(debug_assertions) {
        println!("the figures are those of the release profile");
        return;
    }
    let place = TestDir::new("costs-volatile");
    let program = place.0.join("costs");
    compile("costs.c", &program, &["-O1"]);
    for (name, counts) in compare(&place, &program, "volatile") {
        assert_eq!(counts.flushed, 0, "{name}");
        // A stream stands between two fences.
        let most = if counts.streamed == 0 { 0 } else { 2 };
        assert!(counts.fences <= most, "{name}: {} fences", counts.fences);
    }
}

/// Takes the figures of a class and holds them against those that are kept.
fn compare(place: &TestDir, program: &Path, class: &str) -> Vec<(String, Counts)> {
    let mut rows = Vec::new();
    for (mode, groups) in GROUPS {
        let followed = measure(place, program, class, (mode, groups));
        let maps = followed.maps.clone();
        for row in medians(followed, mode) {
            if std::env::var("SOLERA_COSTS").is_ok_and(|name| row.name.contains(&name)) {
                println!("{}", profile(&row, &maps));
            }
            rows.push((row.name, row.counts));
        }
    }
    assert!(rows.len() >= 20, "only {} operations", rows.len());
    let (compiler, cpu) = surroundings();
    let mut text = format!("# {compiler}\n# {cpu}\n# {:38}{COLUMNS}\n", "operation");
    for (name, counts) in &rows {
        writeln!(text, "{}", line(name, counts)).expect("text");
    }
    println!("{text}");
    if std::env::var_os("UPDATE_COSTS").is_some() {
        std::fs::write(figures(class), text).expect("the figures are written");
        return rows;
    }
    let kept = std::fs::read_to_string(figures(class)).expect("the figures");
    let same_cpu = kept.contains(&format!("# {cpu}\n"));
    let percent = match kept.contains(&format!("# {compiler}\n")) {
        _ if !same_cpu => 50,
        true => 3,
        false => 15,
    };
    if !same_cpu {
        println!(
            "the figures are those of another kind of CPU: {percent} % more instructions pass"
        );
    }
    let kept: BTreeMap<String, Counts> = kept.lines().filter_map(parse).collect();
    let mut wrong = Vec::new();
    for (name, counts) in &rows {
        match kept.get(name) {
            Some(expected) => {
                let found = differences(class, (counts, expected), percent, same_cpu);
                wrong.extend(found.into_iter().map(|what| format!("{name}: {what}")));
            }
            None => wrong.push(format!("{name}: no figures")),
        }
    }
    let missing = kept.keys().filter(|name| rows.iter().all(|(row, _)| row != *name));
    wrong.extend(missing.map(|name| format!("{name}: not measured")));
    assert!(wrong.is_empty(), "{}\n(if it is meant so: make baseline)", wrong.join("\n"));
    rows
}

/// The functions of a file (address in the file's own numbering, name) and its segments (offset,
/// length, address).
type Functions = (Vec<(u64, String)>, Vec<(u64, u64, u64)>);

fn functions(path: &str) -> Option<Functions> {
    let bytes = std::fs::read(path).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let named = symbols.filter_map(|s| Some((s.address(), s.name().ok()?.to_owned())));
    let mut named: Vec<_> = named.filter(|(address, _)| *address != 0).collect();
    named.sort();
    let segment = |s: object::Segment| (s.file_range().0, s.file_range().1, s.address());
    Some((named, file.segments().map(segment).collect()))
}

/// Instructions by function, most first, and stores.
fn profile(row: &Sample, maps: &[Range]) -> String {
    let mut files = BTreeMap::new();
    let mut by_function: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let all = row.path.iter().map(|at| (at, (1, 0)));
    for (&at, one) in all.chain(row.stores.iter().map(|at| (at, (0, 1)))) {
        let range = maps.iter().find(|range| (range.start..range.end).contains(&at));
        let name = range.and_then(|range| {
            let file = files.entry(range.name.clone()).or_insert_with(|| functions(&range.name));
            let (named, segments) = file.as_ref()?;
            let offset = at - range.start + range.offset;
            let segment = segments.iter().find(|s| (s.0..s.0 + s.1).contains(&offset))?;
            let address = offset - segment.0 + segment.2;
            let after = named.partition_point(|(start, _)| *start <= address);
            Some(named.get(after.checked_sub(1)?)?.1.clone())
        });
        let sum = by_function.entry(name.unwrap_or_default()).or_default();
        *sum = (sum.0 + one.0, sum.1 + one.1);
    }
    let mut all: Vec<_> = by_function.into_iter().map(|(name, count)| (count, name)).collect();
    all.sort_by(|a, b| b.cmp(a));
    let lines = all.iter().map(|((count, stores), name)| format!("{count:8}{stores:6}  {name}\n"));
    format!("{}\n  executed, storing\n{}", line(&row.name, &row.counts), lines.collect::<String>())
}
