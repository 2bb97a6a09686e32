//! `solera bench profile`: what `solera run --profile` costs a call.
//!
//! Three workers, each under `solera run` and alone on a volume of its own: one without a profile,
//! one with, and one more without, which shows what the places alone make of it. They live for the
//! whole run, so no start is timed, and take turns, row by row, in one order and then in the other.
//! What counts is the ratio of two turns beside each other, and of these ratios the median: a
//! noisy machine is noisy for both, and a turn that was disturbed is left out with its pair.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use console::failure::{Failure, Outcome};
use console::output::{self, Progress};
use console::size::show;
use serde_json::{Value, json};
use solera_bench::ProfileBenchArgs;
use volume::FormatOptions;

use crate::harness::executable;
use crate::harness::interrupt::Interrupt;
use crate::harness::statistics::median_and_middle_half;
use crate::micro::check_size;
use crate::micro::testbed::Testbed;
use crate::worker::peer::{Peer, Role, worker};
use crate::worker::row::Row;

/// What is measured: calls of all lengths.
const ROWS: [Row; 6] =
    [Row::Append4K, Row::Append64, Row::ReadSequential, Row::ReadRandom, Row::Stat, Row::OpenClose];
/// The workers.
const WITHOUT: usize = 0;
const WITH: usize = 1;
const AGAIN: usize = 2;
const NAMES: [&str; 3] = ["without", "with", "without, again"];

/// Measures, and prints.
pub fn run(args: &ProfileBenchArgs) -> Outcome {
    check_size(args.size)?;
    let stop = Interrupt::watch()?;
    let mut progress = Progress::new("measuring");
    let testbed = Testbed::make(args.size, NAMES.len() as u64)?;
    let profile = testbed.memory.with_file_name("profile.json");
    let mut peers = Vec::new();
    for (number, region) in testbed.regions.iter().enumerate() {
        peers.push(start(number, region, &profile, args)?);
    }
    // Round 0 warms caches, page tables and the host's memory; it does not count.
    let rounds = args.repeat + 1;
    let total = u64::from(rounds) * ROWS.len() as u64;
    for round in 0..rounds {
        for (index, row) in ROWS.into_iter().enumerate() {
            let mut order = [WITHOUT, WITH, AGAIN];
            if round % 2 == 1 {
                order.reverse();
            }
            for peer in order {
                stop.go_on()?;
                let took = peers[peer].measure(row)?;
                if round > 0 {
                    peers[peer].keep(row, took);
                }
            }
            progress.update(u64::from(round) * ROWS.len() as u64 + index as u64 + 1, total);
        }
    }
    drop(progress);
    let results = Results {
        rows: ROWS.into_iter().map(|row| Measured::of(row, &peers)).collect(),
        mode: args.mode.clone(),
        size: args.size,
        repeat: args.repeat,
        huge: testbed.huge,
    };
    peers[WITH].end()?;
    check(&profile, args.size, rounds)?;
    if args.json {
        output::emit_json(&results.to_json())?;
    } else {
        output::emit(results.to_text().as_bytes())?;
    }
    Ok(0)
}

/// A worker on a new volume.
fn start(
    number: usize,
    region: &Path,
    profile: &Path,
    args: &ProfileBenchArgs,
) -> Result<Peer, Failure> {
    let options = FormatOptions { force: true, ..FormatOptions::default() };
    volume::format(region, &options)?;
    // A prefix that exists nowhere else, since nothing else is there.
    let at = PathBuf::from(format!("/solera-bench-{}", std::process::id()));
    let mut inner = worker(args.size, &at, false)?;
    inner.arg("--few");
    let solera = executable::solera().map_err(|error| Failure::new("find solera", error, ""))?;
    let mut command = Command::new(solera);
    command.args(["run", "--mode", &args.mode, "--volume"]).arg(region).arg("--at").arg(&at);
    if number == WITH {
        command.args(["--json", "--profile-file"]).arg(profile);
    }
    command.arg("--").arg(inner.get_program()).args(inner.get_args());
    Peer::start(NAMES[number], Role::Volume, command)
}

/// Makes sure that the worker with a profile had one: all of its appends are counted.
fn check(profile: &Path, size: u64, rounds: u32) -> Result<(), Failure> {
    let asked = "profile the worker";
    let text = fs::read(profile).map_err(|error| Failure::io(asked, &error))?;
    let told: Value = serde_json::from_slice(&text).map_err(|error| {
        Failure::new(asked, format!("what it has written is no JSON: {error}"), "")
    })?;
    let calls = told["calls"].as_array().map_or(&[][..], Vec::as_slice);
    let writes = calls.iter().find(|call| call["call"] == "write");
    let counted = writes.and_then(|call| call["served_by"]["volume"].as_u64()).unwrap_or(0);
    let made = Row::Append4K.calls(size) + Row::Append64.calls(size);
    let made = made * u64::from(rounds);
    if counted < made {
        let found = format!("it made {made} appends on its volume, and {counted} were counted");
        return Err(Failure::new(asked, found, "report this"));
    }
    Ok(())
}

/// A ratio, and how far the middle half of all lies apart, in percent of it.
struct Ratio {
    value: f64,
    spread: f64,
}

/// What was measured of a row.
struct Measured {
    row: Row,
    /// Nanoseconds of a call.
    without: f64,
    with: f64,
    /// With over without, turn by turn.
    ratio: Ratio,
    /// Without over without.
    control: Ratio,
}

impl Measured {
    fn of(row: Row, peers: &[Peer]) -> Self {
        let times = |peer: usize| peers[peer].times(row);
        let ratio = |peer: usize| {
            let pairs = times(peer).iter().zip(times(WITHOUT));
            let all: Vec<f64> = pairs.map(|(one, without)| one / without).collect();
            let (value, spread) = median_and_middle_half(&all);
            Ratio { value, spread }
        };
        let median = |peer: usize| median_and_middle_half(times(peer)).0;
        Self {
            row,
            without: median(WITHOUT),
            with: median(WITH),
            ratio: ratio(WITH),
            control: ratio(AGAIN),
        }
    }

    fn line(&self) -> Vec<String> {
        let ratio = |ratio: &Ratio| format!("{:.3} ({:.1} %)", ratio.value, ratio.spread);
        vec![
            self.row.name().to_owned(),
            format!("{:.0}", self.without),
            format!("{:.0}", self.with),
            format!("{:.0}", self.with - self.without),
            ratio(&self.ratio),
            ratio(&self.control),
        ]
    }
}

/// All of it.
struct Results {
    rows: Vec<Measured>,
    mode: String,
    size: u64,
    repeat: u32,
    huge: bool,
}

impl Results {
    fn to_json(&self) -> Value {
        let row = |it: &Measured| {
            json!({
                "row": it.row.name(), "calls": it.row.calls(self.size),
                "without_ns": it.without, "with_ns": it.with,
                "ratio": it.ratio.value, "ratio_spread_percent": it.ratio.spread,
                "control": it.control.value, "control_spread_percent": it.control.spread,
            })
        };
        json!({
            "mode": self.mode, "size_bytes": self.size, "repeat": self.repeat,
            "huge_pages": self.huge, "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
        })
    }

    fn to_text(&self) -> String {
        let head = ["ns a call", "without", "with", "more", "ratio (spread)", "control (spread)"];
        let lines: Vec<Vec<String>> = self.rows.iter().map(Measured::line).collect();
        let pages = if self.huge { "huge pages" } else { "4 KiB pages (as root: huge ones)" };
        format!(
            "{}\nmode {}, volumes on {pages}, working set {}, {} pairs of turns; ratio: the median \
             of the pairs, spread: their middle half; control: without a profile over without, on \
             another volume\n",
            output::table(&head, &lines),
            self.mode,
            show(self.size),
            self.repeat,
        )
    }
}
