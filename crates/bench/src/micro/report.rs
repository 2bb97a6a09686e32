//! The table of `bench micro`: medians, spread, ratios; as text and as JSON.

use console::output;
use console::size::show;
use pmem::Policy;
use serde_json::{Value, json};
use solera_bench::MicroArgs;

use crate::harness::statistics::median_and_spread;
use crate::harness::stores;
use crate::micro::target::{Baseline, Target};
use crate::micro::testbed::Testbed;
use crate::worker::peer::{Peer, Role};
use crate::worker::row::Row;

/// One peer's times of one row, nanoseconds per call.
struct Cell {
    name: &'static str,
    part: Role,
    median: f64,
    /// Largest less smallest, in percent of the median.
    spread: f64,
}

/// All that was measured.
pub struct Results {
    rows: Vec<(Row, Vec<Cell>)>,
    mode: String,
    class: String,
    policy: Policy,
    size: u64,
    repeat: u32,
    beside: bool,
    huge: bool,
}

impl Results {
    pub fn new(peers: &[Peer], testbed: &Testbed, args: &MicroArgs) -> Self {
        let cells = |row| {
            let measured = peers.iter().filter(|peer| !peer.times(row).is_empty());
            measured
                .map(|peer| {
                    let (median, spread) = median_and_spread(peer.times(row));
                    Cell { name: peer.name, part: peer.part, median, spread }
                })
                .collect()
        };
        let (class, policy) = stores::in_memory();
        Self {
            class,
            policy,
            rows: Row::ALL.into_iter().map(|row| (row, cells(row))).collect(),
            mode: args.mode.clone(),
            size: args.size,
            repeat: args.repeat,
            beside: args.beside,
            huge: testbed.huge,
        }
    }

    /// For programs. `ratios` are the volume's time over a peer's: below 1 the volume is faster.
    pub fn to_json(&self) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|(row, cells)| {
                let peers: serde_json::Map<String, Value> = cells
                    .iter()
                    .map(|cell| {
                        let times = json!({ "ns": cell.median, "spread_percent": cell.spread });
                        (cell.name.to_owned(), times)
                    })
                    .collect();
                let ratios: serde_json::Map<String, Value> =
                    ratios(cells).map(|(name, ratio)| (name.to_owned(), ratio.into())).collect();
                let target = self.reached(*row, cells).map(|(target, reached)| {
                    json!({
                        "text": target.to_string(), "at_most": target.at_most,
                        "reached": reached, "met": target.is_met(reached),
                    })
                });
                json!({
                    "row": row.name(), "calls": row.calls(self.size),
                    "peers": peers, "ratios": ratios, "target": target,
                })
            })
            .collect();
        json!({
            "mode": self.mode,
            "class": self.class,
            "policy": self.policy.to_string(),
            "size_bytes": self.size,
            "repeat": self.repeat,
            "beside": self.beside,
            "huge_pages": self.huge,
            "protection_key": pmem::key::available().is_ok(),
            "rows": rows,
        })
    }

    /// What a row was aimed at, and what it reached of that.
    fn reached(&self, row: Row, cells: &[Cell]) -> Option<(Target, f64)> {
        let target = Target::of(row, &self.mode, self.policy)?;
        let own = median_of(cells, Role::Volume)?;
        let other = match target.of {
            Baseline::Limit => median_of(cells, Role::Limit)?,
            Baseline::Tmpfs => median_of(cells, Role::Tmpfs)?,
            Baseline::Append => {
                let append = self.rows.iter().find(|(row, _)| *row == Row::Append4K)?;
                median_of(&append.1, Role::Volume)?
            }
            Baseline::Nanosecond => 1.0,
        };
        Some((target, own / other))
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let names: Vec<&str> = self.rows[0].1.iter().map(|cell| cell.name).collect();
        let mut head = vec!["ns a call (spread)".to_owned()];
        head.extend(names.iter().map(|&name| name.to_owned()));
        head.extend(names.iter().skip(1).map(|name| format!("x {name}")));
        head.extend(["target".to_owned(), "reached".to_owned()]);
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        let rows: Vec<Vec<String>> =
            self.rows.iter().map(|(row, cells)| self.line(*row, cells, &names)).collect();
        let pages = if self.huge {
            "on a tmpfs with huge pages"
        } else {
            "in /dev/shm with 4 KiB pages (as root: on a tmpfs with huge pages, as it should be)"
        };
        let sharing = if self.beside {
            "beside another process on the volume"
        } else {
            "alone on the volume"
        };
        format!(
            "{}\nmode {}, {sharing}, volume {pages}, working set {}, median of {}; x: time of \
             solera over the peer's, below 1 is faster\nclass {}: {}\nprotection key: {}\n",
            output::table(&head, &rows),
            self.mode,
            show(self.size),
            self.repeat,
            self.class,
            self.policy.reason(),
            console::preload::guard(),
        )
    }

    fn line(&self, row: Row, cells: &[Cell], names: &[&str]) -> Vec<String> {
        let mut line = vec![row.name().to_owned()];
        for name in names {
            let cell = cells.iter().find(|cell| cell.name == *name);
            line.push(cell.map_or_else(
                || "-".to_owned(),
                |cell| format!("{:.0} ({:.0} %)", cell.median, cell.spread),
            ));
        }
        for name in names.iter().skip(1) {
            let ratio = ratios(cells).find(|(peer, _)| peer == name);
            line.push(ratio.map_or_else(|| "-".to_owned(), |(_, ratio)| format!("{ratio:.2}")));
        }
        let reached = self.reached(row, cells);
        line.extend(reached.map_or_else(
            || ["-".to_owned(), "-".to_owned()],
            |(target, reached)| {
                let met = if target.is_met(reached) { "met" } else { "missed" };
                let reached = match target.of {
                    Baseline::Nanosecond => format!("{reached:.0} ns"),
                    _ => format!("{reached:.2}"),
                };
                [target.to_string(), format!("{reached}, {met}")]
            },
        ));
        line
    }
}

/// The first peer's of that part: of two tmpfs the one with 4 KiB pages.
fn median_of(cells: &[Cell], part: Role) -> Option<f64> {
    cells.iter().find(|cell| cell.part == part).map(|cell| cell.median)
}

/// The volume's time over each peer's.
fn ratios(cells: &[Cell]) -> impl Iterator<Item = (&'static str, f64)> {
    let own = median_of(cells, Role::Volume);
    cells
        .iter()
        .filter(|cell| cell.part != Role::Volume)
        .filter_map(move |cell| own.map(|own| (cell.name, own / cell.median)))
}
