//! `solera bench split`: single calls on kernel file systems, with the second engine and without.
//!
//! Each file system has a worker process of the kernel alone and one for each mode of the engine,
//! in directories of their own, and one that only copies memory (its limit); all take turns, row by
//! row. The first table is among equals: `posix` promises what the kernel does. The second is not.
//! ext4 and XFS lie in files of a tmpfs, behind loop devices: what stands behind them is memory, as
//! it would be behind DAX, but the page cache lies between. A third table says what each technique
//! of the engine is worth (split alone, with staging, with relinks).

use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};

use console::failure::{Failure, Outcome};
use console::output::{self, Progress};
use console::preload::find_library;
use console::size::show;
use serde_json::{Value, json};
use solera_bench::SplitBenchArgs;

use crate::harness::mounts;
use crate::harness::scratch::touch;
use crate::harness::statistics::median_and_spread;
use crate::worker::peer::{Peer, Role, worker};
use crate::worker::row::Row;

const ROWS: [Row; 18] = [
    Row::Open,
    Row::Close,
    Row::ReadSequential,
    Row::ReadRandom,
    Row::Read64K,
    Row::OverwriteSequential,
    Row::OverwriteRandom,
    Row::Append4K,
    Row::Append128,
    Row::AppendSync,
    Row::AppendSync10,
    Row::AppendSync100,
    Row::AppendSync1000,
    Row::Unlink,
    Row::OpenClose,
    Row::CreateCloseUnlink,
    Row::Rename,
    Row::Stat,
];
/// What the techniques change.
const TECHNIQUE_ROWS: [Row; 3] = [Row::OverwriteSync10, Row::AppendSync10, Row::AppendSync1000];
const TECHNIQUES: [(&str, &str); 3] =
    [("split", "split"), ("+staging", "staging"), ("+relink", "relink")];
const KINDS: [&str; 3] = ["tmpfs", "ext4", "xfs"];

/// The directories; unmounted and removed when it is dropped.
struct Testbed {
    dir: PathBuf,
    mounted: Vec<PathBuf>,
    /// For the memory's own limit.
    memory: PathBuf,
    kinds: Vec<(&'static str, PathBuf)>,
}

impl Testbed {
    fn make(size: u64) -> Result<Self, Failure> {
        let fail = |error: Error| Failure::new("make a place for the benchmark", error, "");
        mounts::own_namespace()
            .map_err(|error| Failure::new("measure on file systems", error, "this needs root"))?;
        let dir = std::env::temp_dir().join(format!("solera-bench-{}", std::process::id()));
        fs::create_dir(&dir).map_err(fail)?;
        let memory = dir.join("tmpfs");
        let limit = memory.join("limit");
        let mut testbed = Self { dir, mounted: Vec::new(), memory: limit, kinds: Vec::new() };
        // Workers' files, what is staged, and logs; three file systems.
        let bytes = size * 12 + (2 << 30);
        fs::create_dir(&memory).map_err(fail)?;
        mounts::tmpfs(&memory, bytes * 3, false).map_err(fail)?;
        testbed.mounted.push(memory.clone());
        touch(&testbed.memory, size).map_err(fail)?;
        for kind in KINDS {
            if kind == "tmpfs" || testbed.mount(kind, &memory, bytes).map_err(fail)? {
                let at =
                    if kind == "tmpfs" { memory.join("files") } else { testbed.dir.join(kind) };
                fs::create_dir_all(&at).map_err(fail)?;
                testbed.kinds.push((kind, at));
            } else {
                eprintln!("solera: without {kind}: it cannot be made and mounted here");
            }
        }
        Ok(testbed)
    }

    /// `false`: not with these tools.
    fn mount(&mut self, kind: &str, memory: &Path, bytes: u64) -> io::Result<bool> {
        let (image, at) = (memory.join(format!("{kind}.image")), self.dir.join(kind));
        let mounted = mounts::image(kind, &image, &at, bytes)?;
        if mounted {
            self.mounted.push(at);
        }
        Ok(mounted)
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for point in self.mounted.iter().rev() {
            mounts::unmount(point);
        }
        // What stays behind is empty, and in a place for temporary things.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// One column: a worker, and how it is called.
struct Column {
    name: &'static str,
    peer: Peer,
}

fn columns(at: &Path, memory: &Path, args: &SplitBenchArgs) -> Result<Vec<Column>, Failure> {
    let mut columns = vec![column("kernel", at, args, &[])?];
    for mode in ["posix", "sync", "strict"] {
        columns.push(column(mode, at, args, &[("SOLERA_MODE", mode)])?);
    }
    let peer = Peer::start("limit", Role::Limit, worker(args.size, memory, true)?)?;
    columns.push(Column { name: "limit", peer });
    Ok(columns)
}

/// A worker in a directory of its own; with the engine, if words for it are given.
fn column(
    name: &'static str,
    at: &Path,
    args: &SplitBenchArgs,
    words: &[(&str, &str)],
) -> Result<Column, Failure> {
    let place = at.join(name);
    fs::create_dir_all(&place)
        .map_err(|error| Failure::new(format!("make {}", place.display()), error, ""))?;
    let mut command = worker(args.size, &place, false)?;
    command.arg("--few");
    if !words.is_empty() {
        command.env("LD_PRELOAD", find_library()?).env("SOLERA_SPLIT", &place);
        command.env("SOLERA_EMULATE", "1").envs(words.iter().copied());
    }
    Ok(Column { name, peer: Peer::start(name, Role::Tmpfs, command)? })
}

/// What a row took: the median and its spread, and the median of the processors.
#[derive(Clone, Copy)]
struct Cost {
    ns: f64,
    spread: f64,
    cpu_ns: f64,
}
/// By column; `None`: there is nothing to measure.
type Cell = (&'static str, Option<Cost>);
/// By row and column.
type Table = Vec<(Row, Vec<Cell>)>;

fn measure(
    columns: &mut [Column],
    rows: &[Row],
    repeat: u32,
    progress: &mut dyn FnMut(),
) -> Result<Table, Failure> {
    // Round 0 warms up; it does not count.
    for round in 0..=repeat {
        for row in rows {
            for column in &mut *columns {
                let time = column.peer.measure(*row)?;
                if round > 0 {
                    column.peer.keep(*row, time);
                }
            }
            progress();
        }
    }
    let cells = |row: Row| {
        let cell = |column: &Column| {
            let times = column.peer.times(row);
            let cost = || {
                let (ns, spread) = median_and_spread(times);
                Cost { ns, spread, cpu_ns: median_and_spread(column.peer.cpu_times(row)).0 }
            };
            (column.name, (!times.is_empty()).then(cost))
        };
        columns.iter().map(cell).collect()
    };
    Ok(rows.iter().map(|&row| (row, cells(row))).collect())
}

/// Measures and prints the tables.
pub fn run(args: &SplitBenchArgs) -> Outcome {
    let testbed = Testbed::make(args.size)?;
    let mut progress = Progress::new("measuring");
    let rounds = u64::from(args.repeat + 1) * (ROWS.len() + TECHNIQUE_ROWS.len()) as u64;
    let (mut done, total) = (0, rounds * testbed.kinds.len() as u64);
    let mut tables = Vec::new();
    for (kind, at) in &testbed.kinds {
        let mut step = || {
            done += 1;
            progress.update(done, total);
        };
        let mut calls = columns(at, &testbed.memory, args)?;
        let table = measure(&mut calls, &ROWS, args.repeat, &mut step)?;
        drop(calls);
        let mut techniques = vec![column("kernel", at, args, &[])?];
        for (name, word) in TECHNIQUES {
            let words = [("SOLERA_MODE", "posix"), ("SOLERA_SPLIT_TECHNIQUE", word)];
            techniques.push(column(name, at, args, &words)?);
        }
        let broken = measure(&mut techniques, &TECHNIQUE_ROWS, args.repeat, &mut step)?;
        tables.push((*kind, table, broken));
    }
    drop(progress);
    if args.json {
        output::emit_json(&to_json(args, &tables))?;
    } else {
        output::emit(to_text(args, &tables).as_bytes())?;
    }
    Ok(0)
}

type Tables = Vec<(&'static str, Table, Table)>;

fn to_json(args: &SplitBenchArgs, tables: &Tables) -> Value {
    let rows = |table: &Table| -> Vec<Value> {
        let row = |(row, cells): &(Row, Vec<Cell>)| {
            let peers: serde_json::Map<String, Value> = cells
                .iter()
                .filter_map(|&(name, found)| {
                    let Cost { ns, spread, cpu_ns } = found?;
                    let cost = json!({ "ns": ns, "spread_percent": spread, "cpu_ns": cpu_ns });
                    Some((name.to_owned(), cost))
                })
                .collect();
            json!({ "row": row.name(), "peers": peers })
        };
        table.iter().map(row).collect()
    };
    let kinds: Vec<Value> = tables
        .iter()
        .map(|(kind, table, techniques)| {
            json!({ "file_system": kind, "rows": rows(table), "techniques": rows(techniques) })
        })
        .collect();
    json!({ "size_bytes": args.size, "repeat": args.repeat, "file_systems": kinds })
}

/// Stands for the kernel's time of the processors, beside another's: where a medium is written to
/// meanwhile, the clock tells how long that took.
const CPU: &str = "kernel, CPU";

/// A table's name, its columns, and the ratios that it shows.
type TableLayout = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);
const SHOWN: [TableLayout; 2] = [
    (
        "among equals",
        &["kernel", "posix", "limit"],
        &[("posix", "kernel"), ("posix", CPU), ("posix", "limit"), ("kernel", "limit")],
    ),
    (
        "durable at return (the kernel is not)",
        &["kernel", "sync", "strict", "limit"],
        &[("sync", "kernel"), ("strict", "kernel"), ("sync", "limit"), ("strict", "limit")],
    ),
];
const SHOWN_TECHNIQUES: TableLayout = (
    "techniques, posix",
    &["kernel", "split", "+staging", "+relink"],
    &[("split", "kernel"), ("+staging", "kernel"), ("+relink", "kernel")],
);

fn to_text(args: &SplitBenchArgs, tables: &Tables) -> String {
    let mut text = String::new();
    for (kind, table, techniques) in tables {
        let calls = SHOWN.iter().map(|&shown| (shown, table));
        for ((what, names, ratios), table) in calls.chain([(SHOWN_TECHNIQUES, techniques)]) {
            let mut head = vec![format!("{kind}, {what}: ns a call")];
            head.extend(names.iter().map(|&name| name.to_owned()));
            head.extend(ratios.iter().map(|(name, over)| format!("{name} / {over}")));
            let head: Vec<&str> = head.iter().map(String::as_str).collect();
            let rows: Vec<Vec<String>> = table.iter().map(|row| line(row, names, ratios)).collect();
            text += &output::table(&head, &rows);
            text.push('\n');
        }
    }
    text + &format!(
        "working set {}, median of {} (spread); a ratio below 1 is faster. posix promises what\n\
         the kernel does; sync and strict promise more, with --emulate: durable at return as far\n\
         as the page cache is. limit: the memory itself, by the fastest copy, or stores around\n\
         the cache and a fence\n",
        show(args.size),
        args.repeat,
    )
}

fn line((row, cells): &(Row, Vec<Cell>), names: &[&str], ratios: &[(&str, &str)]) -> Vec<String> {
    let found = |name: &str| cells.iter().find(|cell| cell.0 == name).and_then(|cell| cell.1);
    let time = |name: &&str| {
        let text = |cost: Cost| format!("{:.0} ({:.0} %)", cost.ns, cost.spread);
        found(name).map_or_else(|| "-".into(), text)
    };
    let ratio = |&(name, over): &(&str, &str)| {
        let times = match over {
            CPU => found(name).zip(found("kernel")).map(|(cost, over)| (cost.cpu_ns, over.cpu_ns)),
            _ => found(name).zip(found(over)).map(|(cost, over)| (cost.ns, over.ns)),
        };
        times.map_or_else(|| "-".into(), |(time, over)| format!("{:.2}", time / over))
    };
    let mut line = vec![row.name().to_owned()];
    line.extend(names.iter().map(time));
    line.extend(ratios.iter().map(ratio));
    line
}
