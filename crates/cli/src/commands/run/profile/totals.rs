//! What all threads have counted, in nanoseconds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use record::{Area, BYS, By, FILES, Kind, Map, PATH_MAX, SIZES, TIMES, end_of_class};
use serde_json::{Value, json};

use super::Run;
use super::costs::Costs;
use crate::commands::run::report::Report;

/// Calls of one kind.
pub struct Call {
    pub kind: Kind,
    /// By whom they were served, in the order of [`By::ALL`].
    pub by: [u64; BYS],
    pub failed: u64,
    pub bytes: u64,
    pub time_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub longest_ns: u64,
    /// What they would take through the kernel, where that was measured.
    pub kernel_ns: Option<u64>,
    /// Waits in them for locks of volumes: how many, and what they took.
    pub waits: (u64, u64),
    /// Of those on the volume: served by a detour, refused.
    pub detours: u64,
    pub refused: u64,
}

impl Call {
    pub fn count(&self) -> u64 {
        self.by.iter().sum()
    }
}

/// Calls on descriptors of one file.
pub struct File {
    pub path: String,
    pub by: By,
    pub calls: u64,
    pub time_ns: u64,
    pub longest_ns: u64,
    pub read: u64,
    pub written: u64,
}

/// The profile.
pub struct Totals {
    pub wall_ns: u64,
    pub processes: u32,
    pub threads: u32,
    /// Threads that were not counted.
    pub without: u32,
    pub faults: (u64, u64),
    /// Where the kernel's times were measured.
    pub measured_on: Option<String>,
    /// Processes whose locks were waited for: how often, and how long; 0 stands for others.
    pub holders: Vec<(u64, u64, u64)>,
    /// What took longest comes first.
    pub calls: Vec<Call>,
    /// The same.
    pub files: Vec<File>,
}

fn get(word: &AtomicU64) -> u64 {
    word.load(Relaxed)
}

/// The path of a number.
pub fn path_of(map: &Map, number: usize) -> String {
    if number == 0 {
        return "(others)".to_owned();
    }
    let row = map.path(number);
    let length = (row.length.load(Relaxed) as usize).min(PATH_MAX);
    let bytes: Vec<u8> = row.bytes[..length].iter().map(|byte| byte.load(Relaxed)).collect();
    let head = if length == PATH_MAX { "..." } else { "" };
    format!("{head}{}", String::from_utf8_lossy(&bytes))
}

/// All areas that anyone has had.
pub fn areas(map: &Map) -> Vec<&Area> {
    // An area without calls holds nothing, and looking at it brings the hole that it is.
    let used = map.header().owners.iter().rposition(|owner| get(owner) != 0);
    let begun = map.header().threads.load(Relaxed) as usize;
    let count = used.map_or(0, |last| last + 1).max(begun.min(map.areas()));
    (0..count).filter_map(|number| map.area(number)).collect()
}

/// The time within which so many of a hundred were served.
fn within(times: &[u64; TIMES], of_100: u64) -> u64 {
    let all: u64 = times.iter().sum();
    let wanted = (all * of_100).div_ceil(100).max(1);
    let mut seen = 0;
    let class = times.iter().position(|count| {
        seen += count;
        seen >= wanted
    });
    class.map_or(0, end_of_class)
}

impl Totals {
    pub fn of(map: &Map, run: &Run, costs: &Costs, report: &Report) -> Self {
        let areas = areas(map);
        let ns = |ticks: u64| (ticks as f64 * run.ns_per_tick) as u64;
        let mut calls: Vec<Call> = Kind::ALL
            .iter()
            .map(|&kind| call(kind, &areas, ns, costs, report))
            .filter(|call| call.count() > 0)
            .collect();
        calls.sort_by_key(|call| std::cmp::Reverse(call.time_ns));
        let file = |number: usize| file(map, number, &areas, ns);
        let mut files: Vec<File> = (0..FILES).filter_map(file).collect();
        files.sort_by_key(|file| std::cmp::Reverse(file.time_ns));
        let short = |word: &AtomicU32| word.load(Relaxed);
        Self {
            wall_ns: run.wall_ns,
            processes: short(&map.header().processes),
            threads: short(&map.header().threads),
            without: short(&map.header().without),
            faults: run.faults,
            measured_on: costs.place.clone(),
            holders: holders(&areas, ns),
            calls,
            files,
        }
    }

    /// What all calls took.
    pub fn in_calls_ns(&self) -> u64 {
        self.calls.iter().map(|call| call.time_ns).sum()
    }

    /// Of those whose price through the kernel is known: what they took, and what they would take.
    pub fn compared_ns(&self) -> (u64, u64) {
        let known = self.calls.iter().filter_map(|call| Some((call.time_ns, call.kernel_ns?)));
        known.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// For programs: all kinds, and the `top` files.
    pub fn json(&self, top: usize) -> Value {
        let calls: Vec<Value> = self.calls.iter().map(call_json).collect();
        let files: Vec<Value> = self.files.iter().take(top).map(file_json).collect();
        let (took, would) = self.compared_ns();
        let holder = |&(process, count, time): &(u64, u64, u64)| {
            let process = (process != 0).then_some(process);
            json!({ "process": process, "count": count, "time_ns": time })
        };
        let holders: Vec<Value> = self.holders.iter().map(holder).collect();
        json!({
            "wall_ns": self.wall_ns,
            "in_calls_ns": self.in_calls_ns(),
            "share_of_wall": self.in_calls_ns() as f64 / self.wall_ns.max(1) as f64,
            "processes": self.processes,
            "threads": self.threads,
            "threads_not_counted": self.without,
            "faults": { "minor": self.faults.0, "major": self.faults.1 },
            "kernel": {
                "measured_on": self.measured_on,
                "compared_calls_ns": took,
                "would_take_ns": would,
            },
            "waited_for": holders,
            "calls": calls,
            "files": files,
            "files_in_all": self.files.len(),
        })
    }
}

fn call_json(call: &Call) -> Value {
    let by: serde_json::Map<String, Value> =
        By::ALL.iter().map(|by| (by.name().to_owned(), json!(call.by[*by as usize]))).collect();
    json!({
        "call": call.kind.name(),
        "count": call.count(),
        "served_by": by,
        "failed": call.failed,
        "refused": call.refused,
        "detours": call.detours,
        "bytes": call.bytes,
        "time_ns": call.time_ns,
        "p50_ns": call.p50_ns,
        "p99_ns": call.p99_ns,
        "max_ns": call.longest_ns,
        "kernel_ns": call.kernel_ns,
        "lock_waits": call.waits.0,
        "lock_wait_ns": call.waits.1,
    })
}

fn file_json(file: &File) -> Value {
    json!({
        "path": file.path,
        "served_by": file.by.name(),
        "calls": file.calls,
        "time_ns": file.time_ns,
        "max_ns": file.longest_ns,
        "read_bytes": file.read,
        "written_bytes": file.written,
    })
}

fn call(
    kind: Kind,
    areas: &[&Area],
    ns: impl Fn(u64) -> u64,
    costs: &Costs,
    report: &Report,
) -> Call {
    let all = || areas.iter().map(|area| &area.calls[kind as usize]);
    let sum = |word: fn(&record::Calls) -> &AtomicU64| all().map(|one| get(word(one))).sum::<u64>();
    let mut times = [0; TIMES];
    let mut sizes = [(0, 0); SIZES];
    let mut by = [0; BYS];
    for one in all() {
        for (sum, word) in times.iter_mut().zip(&one.times) {
            *sum += u64::from(word.load(Relaxed));
        }
        for (sum, size) in sizes.iter_mut().zip(&one.sizes) {
            *sum = (sum.0 + get(&size.count), sum.1 + get(&size.bytes));
        }
        for (sum, word) in by.iter_mut().zip(&one.by) {
            *sum += get(word);
        }
    }
    let longest = all().map(|one| get(&one.longest)).max().unwrap_or(0);
    let (detours, refused) = report.of_call(kind.name());
    Call {
        kind,
        by,
        failed: sum(|one| &one.failed),
        bytes: sizes.iter().map(|size| size.1).sum(),
        time_ns: ns(sum(|one| &one.ticks)),
        p50_ns: ns(within(&times, 50).min(longest)),
        p99_ns: ns(within(&times, 99).min(longest)),
        longest_ns: ns(longest),
        kernel_ns: costs.of(kind, by.iter().sum(), &sizes),
        waits: (sum(|one| &one.waits[0]), ns(sum(|one| &one.waits[1]))),
        detours,
        refused,
    }
}

/// Whose locks were waited for, the longest first.
fn holders(areas: &[&Area], ns: impl Fn(u64) -> u64) -> Vec<(u64, u64, u64)> {
    let mut all: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for holder in areas.iter().flat_map(|area| &area.holders) {
        let sum = all.entry(get(&holder.process)).or_default();
        *sum = (sum.0 + get(&holder.count), sum.1 + get(&holder.ticks));
    }
    let told = all.into_iter().filter(|(_, (count, _))| *count > 0);
    let mut told: Vec<_> = told.map(|(who, (count, ticks))| (who, count, ns(ticks))).collect();
    told.sort_by_key(|holder| std::cmp::Reverse(holder.2));
    told
}

fn file(map: &Map, number: usize, areas: &[&Area], ns: impl Fn(u64) -> u64) -> Option<File> {
    if number > 0 && get(&map.path(number).hash) == 0 {
        return None;
    }
    let all = || areas.iter().map(|area| &area.files[number]);
    let sum =
        |word: fn(&record::FileCalls) -> &AtomicU64| all().map(|one| get(word(one))).sum::<u64>();
    let calls = sum(|one| &one.calls);
    if calls == 0 {
        return None;
    }
    let by = all().filter(|one| get(&one.calls) > 0).map(|one| get(&one.by)).max().unwrap_or(0);
    Some(File {
        path: path_of(map, number),
        by: By::ALL[(by as usize).min(By::ALL.len() - 1)],
        calls,
        time_ns: ns(sum(|one| &one.ticks)),
        longest_ns: ns(all().map(|one| get(&one.longest)).max().unwrap_or(0)),
        read: sum(|one| &one.read),
        written: sum(|one| &one.written),
    })
}
