//! `solera top`: what the processes on a volume do, on a terminal, as text or as JSON.

mod arguments;
mod process;
mod rows;
mod screen;
mod terminal;

use std::io::{self, IsTerminal};
use std::thread;

use console::failure::Outcome;
use console::output;
use console::size;
use serde_json::{Value, json};
use volume::{Activity, Counts, Death, Life};

use crate::commands::info;
use crate::commands::top::rows::{Fragmentation, HEAD, Rates, Row, Sample, cells, sorted};
pub use arguments::{Column, TopArgs};

/// Shows it until it is ended, or once.
pub fn run(args: &TopArgs) -> Outcome {
    let first = Sample::take(&args.volume)?;
    if !args.once && io::stdout().is_terminal() && io::stdin().is_terminal() {
        return terminal::run(args, first);
    }
    thread::sleep(args.interval);
    let second = Sample::take(&args.volume)?;
    let rows = sorted(second.rows(&first), args.sort);
    let rates = second.rates(&first);
    if args.json {
        output::emit_json(&to_json(&second, &first, &rows, rates))?;
    } else {
        output::emit(to_text(&second.activity, &rows, rates).as_bytes())?;
    }
    Ok(0)
}

fn counts(counts: Option<Counts>) -> Value {
    counts.map_or(Value::Null, |of| {
        json!({
            "reads": of.reads,
            "read_bytes": of.bytes_read,
            "writes": of.writes,
            "written_bytes": of.bytes_written,
            "opens": of.opens,
            "names": of.names,
            "syncs": of.syncs,
            "lock_waits": of.lock_waits,
        })
    })
}

fn rates_to_json(rates: Option<Rates>) -> Value {
    rates.map_or(Value::Null, |of| {
        json!({
            "calls_per_second": of.calls,
            "read_bytes_per_second": of.read,
            "written_bytes_per_second": of.written,
            "lock_waits_per_second": of.lock_waits,
        })
    })
}

fn life(row: &Row) -> &'static str {
    match row.is.life {
        Life::Lives => "lives",
        Life::Dead => "dead",
        Life::Recovered(_) => "recovering",
    }
}

fn process_to_json(row: &Row) -> Value {
    let recovered_by = if let Life::Recovered(by) = row.is.life { by } else { None };
    json!({
        "pid": row.is.attached.pid,
        "slot": row.is.attached.slot,
        "since_ns": row.is.attached.since,
        "program": row.program,
        "state": life(row),
        "recovered_by": recovered_by,
        "mode": row.is.mode.to_string(),
        "read_only": row.is.read_only,
        "counts": counts(row.is.counts),
        "rates": rates_to_json(row.rates),
        "calls_under_way": row.is.calls,
        "locks_held": row.is.locks_held,
        "locks_awaited": row.is.locks_awaited,
        "open_files": row.is.open_files,
        "file_locks": row.is.file_locks,
        "file_locks_awaited": row.is.file_locks_awaited,
        "mapped_bytes": row.mapped,
    })
}

fn death_to_json(death: &Death) -> Value {
    json!({ "pid": death.pid, "found_by": death.found_by, "found_ns": death.found_at })
}

/// All of it, for programs. Names are stable: fields are added, never renamed.
fn to_json(now: &Sample, before: &Sample, rows: &[Row], rates: Option<Rates>) -> Value {
    let activity = &now.activity;
    let pieces = Fragmentation::of(activity);
    json!({
        "volume": info::to_json(&activity.info),
        "interval_seconds": now.seconds_since(before),
        "counts": counts(activity.counts),
        "rates": rates_to_json(rates),
        "chunks": {
            "free": pieces.free,
            "full": pieces.full,
            "partly_used": pieces.partly,
            "metadata": pieces.metadata,
        },
        "free_in_whole_chunks_percent": pieces.aligned_percent,
        "recoveries": rows.iter().filter(|row| row.is.life != Life::Lives).count(),
        "deaths": activity.deaths,
        "last_deaths": activity.last_deaths.iter().map(death_to_json).collect::<Vec<_>>(),
        "processes": rows.iter().map(process_to_json).collect::<Vec<_>>(),
    })
}

/// The lines above the processes.
fn summary(activity: &Activity, rates: Option<Rates>) -> [String; 3] {
    let info = &activity.info;
    let part =
        |bytes| format!("{} ({:.0} %)", size::show(bytes), size::percent(bytes, info.size_bytes));
    let space = format!(
        "{}: data {}, holes {}, free aligned {}, metadata {}",
        size::show(info.size_bytes),
        part(info.data_bytes),
        part(info.hole_bytes),
        part(info.free_aligned_bytes),
        part(info.metadata_bytes),
    );
    let pieces = Fragmentation::of(activity);
    let fragmentation = format!(
        "{:.1} % of the free space is whole chunks; {} of {} chunks are used in part",
        pieces.aligned_percent,
        pieces.partly,
        activity.chunks.len()
    );
    let calls = match (rates, activity.counts) {
        (Some(rates), _) => format!(
            "{} calls/s, {}/s read, {}/s written, {} lock waits/s",
            rows::number(rates.calls),
            rows::bytes(rates.read),
            rows::bytes(rates.written),
            rows::number(rates.lock_waits),
        ),
        (None, Some(_)) => "what is called in a second is known from the next look on".to_owned(),
        (None, None) => "no counters: another build made it, or used it last".to_owned(),
    };
    [space, fragmentation, calls]
}

/// What a volume says that nobody uses, and that its last process did not leave in order.
fn unclean(activity: &Activity) -> Option<&'static str> {
    let left = activity.processes.is_empty() && !activity.info.clean;
    left.then_some("it was not left in order: the next process to attach it recovers it")
}

/// What dead processes have left that is not recovered, or not all of it.
fn recoveries(rows: &[Row]) -> Vec<String> {
    let under_way = rows.iter().filter_map(|row| {
        let Life::Recovered(by) = row.is.life else { return None };
        let dead = row.is.attached.pid;
        Some(match by {
            Some(by) => {
                format!("recovery in progress: process {by} recovers what process {dead} left")
            }
            None => format!("recovery in progress: what process {dead} had open is still held"),
        })
    });
    let dead = rows.iter().filter(|row| row.is.life == Life::Dead).count();
    let found = (dead > 0).then(|| {
        format!("{dead} dead: the next that waits for a lock there, or attaches, recovers that")
    });
    under_way.chain(found).collect()
}

/// Who died, where anybody did.
fn deaths(activity: &Activity) -> Option<String> {
    let last = activity.last_deaths.first()?;
    Some(format!(
        "{} found dead, the last one process {}, by process {}, {} ago",
        activity.deaths,
        last.pid,
        last.found_by,
        rows::age(last.found_at)
    ))
}

fn to_text(activity: &Activity, rows: &[Row], rates: Option<Rates>) -> String {
    let mut text = String::new();
    let notes = recoveries(rows).into_iter().chain(unclean(activity).map(str::to_owned));
    for line in summary(activity, rates).into_iter().chain(notes).chain(deaths(activity)) {
        text.push_str(&line);
        text.push('\n');
    }
    if let Some(why) = activity.info.unasked {
        text.extend(["which processes live may not be asked: ", why, "\n"]);
    }
    if rows.is_empty() {
        text.push_str("no process has attached it\n");
        return text;
    }
    text.push('\n');
    let rows: Vec<Vec<String>> = rows.iter().map(|row| cells(row).to_vec()).collect();
    text.push_str(&output::table(&HEAD, &rows));
    text
}
