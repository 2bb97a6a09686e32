//! `solera bench micro`: single calls on a volume beside tmpfs and the memory's own limit.
//!
//! One worker process per peer stays alive for the whole run and measures one row at a time when it
//! is told to; the peers take turns row by row, so that a noisy machine is noisy for all of them.
//! The worker of the volume runs under the preload library and calls the same libc functions as the
//! workers of tmpfs: what is timed is what a program would see.

mod counts;
pub mod report;
mod target;
pub mod testbed;

use console::failure::{Failure, Outcome};
use console::output::{self, Progress};
use solera_bench::MicroArgs;

use crate::harness::interrupt::Interrupt;
use crate::worker::peer::{self, Peer};
use crate::worker::row::{self, Row};
use testbed::Testbed;

/// Measures all rows and prints the table.
pub fn run(args: &MicroArgs) -> Outcome {
    check_size(args.size)?;
    if args.counts {
        let rows = counts::measure(args)?;
        return counts::print(&rows, args.json).map(|()| 0);
    }
    let stop = Interrupt::watch()?;
    let mut progress = Progress::new("measuring");
    let testbed = Testbed::make(args.size, peer::VOLUMES.len() as u64)?;
    let mut peers = Peer::start_all(&testbed, args)?;
    // Round 0 warms caches, page tables and the host's memory; it does not count.
    let rounds = args.repeat + 1;
    let total = u64::from(rounds) * Row::ALL.len() as u64;
    for round in 0..rounds {
        for (index, row) in Row::ALL.iter().enumerate() {
            for peer in &mut peers {
                stop.go_on()?;
                let time = peer.measure(*row)?;
                if round > 0 {
                    peer.keep(*row, time);
                }
            }
            progress.update(u64::from(round) * Row::ALL.len() as u64 + index as u64 + 1, total);
        }
    }
    drop(progress);
    let results = report::Results::new(&peers, &testbed, args);
    if args.json {
        output::emit_json(&results.to_json())?;
    } else {
        output::emit(results.to_text().as_bytes())?;
    }
    Ok(0)
}

pub fn check_size(size: u64) -> Result<(), Failure> {
    if size >= row::SIZE_MIN && size.is_multiple_of(row::SIZE_MIN) {
        return Ok(());
    }
    let asked = format!("measure over {size} bytes");
    let found = "the size is no multiple of 2 MiB";
    Err(Failure::new(asked, found, "give for example --size 256M").code(2))
}
