//! A worker of `bench door`: makes calls in turns, as it is told.
//!
//! Protocol: it writes `ready`, then for each line on standard input ([`Turn`]) the nanoseconds of
//! a call on standard output. A failure is told on standard error and ends it.

use std::io::{self, BufRead, Error, Write};

use console::failure::{Failure, Outcome};
use solera_bench::DoorWorkerArgs;

use super::calls::{Calls, Turn};

/// Serves turns until standard input ends.
pub fn run(args: &DoorWorkerArgs) -> Outcome {
    let failed =
        |error: Error| Failure::new(format!("make calls in {}", args.place.display()), error, "");
    let calls = Calls::make(&args.place, &args.outside).map_err(failed)?;
    if args.threads {
        // It is there as long as the process is.
        std::thread::Builder::new()
            .spawn(|| {
                loop {
                    std::thread::park();
                }
            })
            .map_err(failed)?;
    }
    answer("ready").map_err(failed)?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(failed)?;
        let turn = Turn::of_line(&line)
            .ok_or_else(|| failed(Error::other(format!("there is no turn `{line}`"))))?;
        let ns =
            calls.time(turn).map_err(|error| failed(Error::other(format!("{line}: {error}"))))?;
        answer(&format!("{ns:.4}")).map_err(failed)?;
    }
    Ok(0)
}

fn answer(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}
