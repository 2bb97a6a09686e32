//! `solera bench door`: what the door at the system call costs.
//!
//! Calls: four workers stay alive for the whole run and take turns of some hundred microseconds,
//! row by row: two without Solera, two under `solera run` on one volume, of which one has a second
//! thread. A call by the door is one of the C library's own function, found by `dlsym` in the C
//! library alone; by the shortcut, of the first function of that name. What counts is the
//! difference of two turns beside each other, and of these the median.
//!
//! Starts: see `start.rs`.

mod calls;
mod report;
mod rows;
mod start;
mod testbed;
mod worker;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use console::failure::{Failure, Outcome};
use console::output::{self, Progress};
use solera_bench::{DoorBenchArgs, StartWay};

use crate::harness::conversation::Conversation;
use crate::harness::executable;
use crate::harness::interrupt::Interrupt;
use report::{Compared, Report, Started};
use rows::{Row, Who, Work};
pub use start::run as start;
use testbed::Testbed;
pub use worker::run as worker;

/// Starts of each program in a round: their times differ more than those of calls.
const STARTS: u32 = 4;

/// Measures all rows, and prints.
pub fn run(args: &DoorBenchArgs) -> Outcome {
    let stop = Interrupt::watch()?;
    let testbed = Testbed::make()?;
    let mut progress = Progress::new("measuring");
    let rows = rows::all();
    let total = u64::from(args.repeat + 1) * (rows.len() as u64 + 1);
    let mut done = 0..total;
    let mut step = || {
        progress.update(done.next().unwrap_or(total), total);
        stop.go_on()
    };
    let calls = measure_calls(args, &testbed, &rows, &mut step)?;
    let (starts, skipped) = measure_starts(args, &testbed, &mut step)?;
    drop(progress);
    let report = Report { mode: args.mode.clone(), repeat: args.repeat, calls, starts, skipped };
    if args.json {
        output::emit_json(&report.to_json())?;
    } else {
        output::emit(report.to_text().as_bytes())?;
    }
    Ok(0)
}

/// The workers that there are.
struct Workers(Vec<(Who, Conversation)>);

impl Workers {
    fn start(args: &DoorBenchArgs, testbed: &Testbed) -> Result<Self, Failure> {
        let mut workers = Vec::new();
        for who in Who::ALL {
            let mut conversation = Conversation::start(who.name(), command(who, args, testbed)?)?;
            conversation.await_ready()?;
            workers.push((who, conversation));
        }
        Ok(Self(workers))
    }

    /// Nanoseconds of a call.
    fn measure(&mut self, (who, turn): Work) -> Result<f64, Failure> {
        let found = self.0.iter_mut().find(|(worker, _)| *worker == who);
        let Some((_, worker)) = found else { return Err(Failure::new("measure", "no worker", "")) };
        let text = worker.ask(&turn.line())?;
        text.parse().map_err(|_| worker.unexpected(&text))
    }
}

fn command(who: Who, args: &DoorBenchArgs, testbed: &Testbed) -> Result<Command, Failure> {
    let failed = |error| Failure::new("find the programs of the benchmark", error, "");
    let own = executable::own().map_err(failed)?;
    let is_plain = matches!(who, Who::Plain | Who::PlainAgain);
    // A prefix that exists nowhere else, since nothing else is there.
    let at = PathBuf::from(format!("/solera-bench-{}", std::process::id()));
    let place: &Path = if is_plain { &testbed.outside } else { &at };
    let mut command = if is_plain {
        Command::new(own)
    } else {
        let mut command = Command::new(executable::solera().map_err(failed)?);
        command.args(["run", "--mode", &args.mode, "--volume"]).arg(&testbed.volume);
        command.arg("--at").arg(&at).arg("--").arg(own);
        command
    };
    command.args(["bench", "door-worker"]);
    if who == Who::Threads {
        command.arg("--threads");
    }
    command.arg(place).arg(&testbed.outside);
    Ok(command)
}

/// All rows of calls, round by round.
fn measure_calls(
    args: &DoorBenchArgs,
    testbed: &Testbed,
    rows: &[Row],
    step: &mut impl FnMut() -> Result<(), Failure>,
) -> Result<Vec<Compared>, Failure> {
    let mut workers = Workers::start(args, testbed)?;
    let mut found: Vec<Compared> = rows.iter().map(|row| Compared::new(*row)).collect();
    // Round 0 warms caches and page tables; it does not count.
    for round in 0..=args.repeat {
        for (row, found) in rows.iter().zip(&mut found) {
            step()?;
            let mut works = vec![row.own, row.peer];
            works.extend(row.control);
            let backwards = round % 2 == 1;
            if backwards {
                works.reverse();
            }
            let mut times = Vec::new();
            for work in works {
                times.push(workers.measure(work)?);
            }
            if backwards {
                times.reverse();
            }
            if round > 0 {
                found.keep(&times);
            }
        }
    }
    Ok(found)
}

/// Programs that start, in turns; and what is left out.
fn measure_starts(
    args: &DoorBenchArgs,
    testbed: &Testbed,
    step: &mut impl FnMut() -> Result<(), Failure>,
) -> Result<(Vec<Started>, Vec<String>), Failure> {
    let mut skipped = Vec::new();
    let mut rows = Started::all();
    let folder = |way: StartWay, told: &str| match (way, told) {
        (StartWay::File, "copied") => testbed.not_executed.clone(),
        _ => Ok(testbed.folder.clone()),
    };
    rows.retain(|row| match folder(row.way, row.told) {
        Ok(_) => true,
        Err(why) => {
            skipped.push(format!("{}: {why}", row.name));
            false
        }
    });
    for round in 0..=args.repeat * STARTS {
        if round % STARTS == 0 {
            step()?;
        }
        let mut took = BTreeMap::new();
        let (none, _) = start::measure(StartWay::Unarmed, &testbed.folder)?;
        for (index, row) in rows.iter().enumerate() {
            let Ok(folder) = folder(row.way, row.told) else { continue };
            let (start, said) = start::measure(row.way, &folder)?;
            took.insert(index, (start, said));
        }
        let (again, _) = start::measure(StartWay::Unarmed, &testbed.folder)?;
        for (index, (start, said)) in took {
            let row = &mut rows[index];
            if said != row.told {
                let told = format!("{}: the C library was armed otherwise: {said}", row.name);
                if !skipped.contains(&told) {
                    skipped.push(told);
                }
            } else if round > 0 {
                row.keep(start, [none, again]);
            }
        }
    }
    rows.retain(Started::is_measured);
    Ok((rows, skipped))
}
