//! The profile for people.

use std::fmt::Write as _;

use console::output;
use record::{BYS, By};

use super::totals::{Call, File, Totals};

/// A time with the unit that fits.
fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / of.max(1) as f64)
}

/// Who served how many, if it was not one alone.
fn served(by: &[u64; BYS]) -> String {
    let all: u64 = by.iter().sum();
    let part = |who: &By| {
        let count = by[*who as usize];
        match count {
            0 => None,
            _ if count == all => Some(who.name().to_owned()),
            _ => Some(format!("{} {count}", who.name())),
        }
    };
    By::ALL.iter().filter_map(part).collect::<Vec<_>>().join(", ")
}

fn number(count: u64) -> String {
    if count == 0 { String::new() } else { count.to_string() }
}

fn call_row(call: &Call, whole: u64, has_detours: bool) -> Vec<String> {
    let mut row = vec![
        call.kind.name().to_owned(),
        call.count().to_string(),
        number(call.failed),
        time(call.time_ns),
        percent(call.time_ns, whole),
        time(call.p50_ns),
        time(call.p99_ns),
        time(call.longest_ns),
        number(call.bytes),
        call.kernel_ns.map_or_else(|| "-".to_owned(), time),
    ];
    if has_detours {
        row.push(number(call.detours + call.refused));
    }
    row.push(served(&call.by));
    row
}

fn file_row(file: &File, whole: u64) -> Vec<String> {
    vec![
        file.path.clone(),
        file.calls.to_string(),
        time(file.time_ns),
        percent(file.time_ns, whole),
        time(file.longest_ns),
        number(file.read),
        number(file.written),
        file.by.name().to_owned(),
    ]
}

fn plural(count: u32, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// All kinds of calls, and the `top` files.
pub fn of(sums: &Totals, top: usize) -> String {
    let whole = sums.in_calls_ns();
    let count: u64 = sums.calls.iter().map(Call::count).sum();
    let mut text = format!(
        "solera: {}, of it {} in {count} file calls ({} of the time of one thread), of {}, {}\n",
        time(sums.wall_ns),
        time(whole),
        percent(whole, sums.wall_ns),
        plural(sums.processes, "process", "processes"),
        plural(sums.threads, "thread", "threads"),
    );
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "solera: page faults of all that it waited for: {} without, {} with input",
        sums.faults.0, sums.faults.1
    );
    if sums.without > 0 {
        let _ = writeln!(text, "solera: {} threads more were not counted", sums.without);
    }
    if sums.calls.is_empty() {
        text.push_str("solera: no file call was seen: no program was profiled, or it made none\n");
        return text;
    }
    if let Some(place) = &sums.measured_on {
        let (took, would) = sums.compared_ns();
        let _ = writeln!(
            text,
            "solera: calls that took {} would take {} through the kernel on tmpfs ({place})",
            time(took),
            time(would)
        );
    }
    for (process, count, ns) in &sums.holders {
        let whose = if *process == 0 { "others".to_owned() } else { format!("process {process}") };
        let _ = writeln!(text, "solera: {count} waits for locks of {whose} took {}", time(*ns));
    }
    let has_detours = sums.calls.iter().any(|call| call.detours + call.refused > 0);
    let mut titles = vec![
        "call", "count", "failed", "time", "share", "p50", "p99", "longest", "bytes", "on tmpfs",
    ];
    if has_detours {
        titles.push("detours");
    }
    titles.push("served by");
    let rows: Vec<_> = sums.calls.iter().map(|call| call_row(call, whole, has_detours)).collect();
    text.push_str(&output::table(&titles, &rows));
    let shown: Vec<_> = sums.files.iter().take(top).map(|file| file_row(file, whole)).collect();
    if !shown.is_empty() {
        let titles = ["file", "calls", "time", "share", "longest", "read", "written", "served by"];
        text.push_str(&output::table(&titles, &shown));
    }
    if sums.files.len() > shown.len() {
        let _ = writeln!(text, "and {} more files", sums.files.len() - shown.len());
    }
    text
}
