//! What was measured: medians, spreads, ratios; as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use console::output;
use serde_json::{Map, Value, json};

use super::machine::Machine;
use super::regression::Regression;
use super::runner::{Measured, Row, Scale};
use super::suite::{Program, installation};
use crate::harness::statistics::median_and_spread;

/// What a place took for a row.
#[derive(Clone, Copy)]
pub struct Cell {
    pub ns: f64,
    /// Largest less smallest, in percent of the median.
    pub spread: f64,
    /// The share of a whole turn's time that was spent in file calls, if that was looked at.
    pub in_file_calls: Option<f64>,
}

/// A program that is not installed.
pub struct Skipped {
    pub program: &'static Program,
    pub packages: Vec<&'static str>,
}

pub struct Results {
    pub scale: Scale,
    pub repeat: u32,
    pub aged: Option<f64>,
    pub machine: Machine,
    /// Names of places, and which of them Solera serves.
    pub backends: Vec<String>,
    pub served: Vec<bool>,
    /// Peers that could not be had, and why.
    pub missing: Vec<(String, String)>,
    pub measured: Vec<Measured>,
    pub skipped: Vec<Skipped>,
    /// A signal came before all were measured.
    pub interrupted: bool,
    /// What is slower than on another build, if there was one.
    pub slower: Option<Vec<Regression>>,
}

impl Results {
    /// What each place took.
    pub fn cells(row: &Row) -> Vec<Option<Cell>> {
        let cell = |(times, &in_file_calls): (&Vec<f64>, &Option<f64>)| {
            let (ns, spread) = (!times.is_empty()).then(|| median_and_spread(times))?;
            Some(Cell { ns, spread, in_file_calls })
        };
        row.times.iter().zip(&row.in_file_calls).map(cell).collect()
    }

    /// The places by number that others are compared with: the kernel's, and of two builds the
    /// other one's.
    pub fn peers(&self) -> Vec<usize> {
        let is_peer =
            |number: &usize| !self.served[*number] || self.backends[*number].ends_with(", against");
        (0..self.backends.len()).filter(is_peer).collect()
    }

    /// Whether there is a failure to tell of.
    pub fn failed(&self) -> bool {
        let slower = self.slower.as_ref().is_some_and(|slower| !slower.is_empty());
        slower || self.measured.iter().any(|measured| !measured.failed.is_empty())
    }

    /// For programs. Ratios are the place's time over the peer's: below 1 it is faster.
    pub fn to_json(&self) -> Value {
        let backends: Vec<Value> = self
            .backends
            .iter()
            .zip(&self.served)
            .map(|(backend, served)| json!({ "place": backend, "served": served }))
            .collect();
        let missing = self.missing.iter().map(|(peer, why)| json!({ "peer": peer, "why": why }));
        let skipped = self.skipped.iter().map(
            |skipped| json!({ "program": skipped.program.name, "packages": skipped.packages }),
        );
        let slower = self.slower.as_ref().map(|slower| {
            let row = |it: &Regression| {
                json!({
                    "program": it.program, "row": it.row, "place": it.backend,
                    "percent": it.percent, "spread_percent": it.spread_percent,
                })
            };
            slower.iter().map(row).collect::<Vec<_>>()
        });
        json!({
            "scale": self.scale.name(), "repeat": self.repeat, "aged": self.aged,
            "machine": self.machine.to_json(), "places": backends,
            "missing_peers": missing.collect::<Vec<_>>(),
            "programs": self.measured.iter().map(|it| self.program(it)).collect::<Vec<_>>(),
            "skipped": skipped.collect::<Vec<_>>(), "interrupted": self.interrupted,
            "slower": slower,
        })
    }

    fn program(&self, measured: &Measured) -> Value {
        let rows: Vec<Value> = measured
            .rows
            .iter()
            .map(|row| {
                let cells = Self::cells(row);
                let backends: Map<String, Value> = self
                    .backends
                    .iter()
                    .zip(&cells)
                    .filter_map(|(backend, cell)| {
                        let cell = (*cell)?;
                        let value = json!({
                            "ns": cell.ns, "spread_percent": cell.spread,
                            "in_file_calls": cell.in_file_calls,
                        });
                        Some((backend.clone(), value))
                    })
                    .collect();
                json!({ "row": row.name, "places": backends, "ratios": self.ratios(&cells) })
            })
            .collect();
        let commands = self.backends.iter().cloned().zip(measured.commands.iter().cloned());
        let commands: BTreeMap<String, String> = commands.collect();
        let failed = measured.failed.iter().map(|failed| {
            json!({ "place": failed.backend, "command": failed.command, "found": failed.found })
        });
        json!({
            "program": measured.program.name, "title": measured.program.title,
            "commands": commands, "rows": rows,
            "failed": failed.collect::<Vec<_>>(),
        })
    }

    fn ratios(&self, cells: &[Option<Cell>]) -> Map<String, Value> {
        let of = |number: usize| -> Map<String, Value> {
            let ratio = |peer: &usize| {
                let ratio = ratio(cells, number, *peer)?;
                Some((self.backends[*peer].clone(), Value::from(ratio)))
            };
            self.peers().iter().filter_map(ratio).collect()
        };
        let served = (0..self.backends.len()).filter(|number| self.served[*number]);
        served.map(|number| (self.backends[number].clone(), of(number).into())).collect()
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for measured in &self.measured {
            let _ = writeln!(text, "{}: {}\n", measured.program.name, measured.program.title);
            for row in &measured.rows {
                text += &self.row_text(row);
                text.push('\n');
            }
        }
        for skipped in &self.skipped {
            let (name, how) = (skipped.program.name, installation(&skipped.packages));
            let _ = writeln!(text, "without {name}: not installed; {how}");
        }
        for it in self.slower.iter().flatten() {
            let _ = writeln!(
                text,
                "slower: {}, {} on {}: by {:.1} %, spread {:.1} %",
                it.program, it.row, it.backend, it.percent, it.spread_percent
            );
        }
        if self.interrupted {
            text += "interrupted: what was not whole is not shown\n";
        }
        let aged = self.aged.map_or_else(String::new, |part| format!(", aged to {part}"));
        let _ = writeln!(
            text,
            "scale {}{aged}, median of {}, spread: largest less smallest; in file calls: of all \
             threads, of one more turn; x: time of a place over the peer's, below 1 it is faster",
            self.scale.name(),
            self.repeat,
        );
        text
    }

    fn row_text(&self, row: &Row) -> String {
        let (cells, peers) = (Self::cells(row), self.peers());
        let mut head = ["", "time", "spread", "in file calls"].map(str::to_owned).to_vec();
        head[0].clone_from(&row.name);
        head.extend(peers.iter().map(|peer| format!("x {}", self.backends[*peer])));
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        let lines = self.backends.iter().enumerate().filter_map(|(number, backend)| {
            let cell = cells[number]?;
            let percent = |part: f64| format!("{part:.0} %");
            let share = cell.in_file_calls.map(|share| percent(share * 100.0));
            let mut line = vec![format!("  {backend}"), time(cell.ns), percent(cell.spread)];
            line.push(share.unwrap_or_else(|| "-".to_owned()));
            line.extend(peers.iter().map(|peer| ratio_text(ratio(&cells, number, *peer))));
            Some(line)
        });
        output::table(&head, &lines.collect::<Vec<_>>())
    }
}

/// A place's time over a peer's.
pub fn ratio(cells: &[Option<Cell>], backend: usize, peer: usize) -> Option<f64> {
    let (own, other) = (cells[backend]?, cells[peer]?);
    Some(own.ns / other.ns)
}

/// As tables show it.
pub fn ratio_text(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// Nanoseconds for people.
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        _ if ns < 10_000.0 => (ns, "ns"),
        _ if ns < 10_000_000.0 => (ns / 1e3, "us"),
        _ if ns < 1e10 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    if value < 100.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::{Cell, ratio, ratio_text, time};

    #[test]
    fn times_have_the_unit_that_fits() {
        assert_eq!(time(12.34), "12.3 ns");
        assert_eq!(time(9999.0), "9999 ns");
        assert_eq!(time(12_340.0), "12.3 us");
        assert_eq!(time(12_340_000.0), "12.3 ms");
        assert_eq!(time(12e9), "12.0 s");
    }

    #[test]
    fn a_ratio_takes_both() {
        let cell = |ns| Some(Cell { ns, spread: 0.0, in_file_calls: None });
        assert_eq!(ratio(&[cell(1.0), cell(4.0)], 0, 1), Some(0.25));
        assert_eq!(ratio_text(ratio(&[cell(1.0), None], 0, 1)), "-");
    }
}
