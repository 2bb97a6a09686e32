//! `solera bench ddmap`: volumes of a domain that are larger than their node, beside what the same
//! machine does without them, in one run.
//!
//! `testbed.rs` has the nodes and volumes, `program.rs` the program that touches pages under
//! `solera run`, `connection.rs` plain connections, `fault_thread.rs` the peer that serves faults
//! by a thread, `share.rs` those that are network file systems, `steps.rs` what is done in a round,
//! `traps.rs` what of it takes no message, `concurrency.rs` what a second thread brings, and
//! `scaling.rs` what more nodes bring.

mod concurrency;
mod connection;
mod fault_thread;
mod mapping;
mod program;
mod report;
mod rows;
mod scaling;
mod share;
mod steps;
mod testbed;
mod traps;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use console::failure::{Failure, Outcome};
use console::output::{self, Progress};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use solera_bench::{DdmapBenchArgs, DdmapPeer, DdmapWorkerArgs};

use connection::Responder;
use rows::Rows;
use share::Kind;
use steps::Bench;
use testbed::Testbed;

/// The size is a multiple of this.
const STEP_BYTES: u64 = 1 << 20;
const SIZE_MIN: u64 = 8 << 20;

/// A process of the benchmark.
pub fn worker(args: &DdmapWorkerArgs) -> Outcome {
    match (args.part.as_str(), &*args.rest) {
        ("remote", []) => connection::serve(),
        ("program", []) => program::run(),
        ("share", [kind, directory]) => share::hold(kind, directory.as_ref()),
        _ => Err(Failure::new("run a worker", "it takes other arguments", "").code(2)),
    }
}

/// Measures all rows and prints the table.
pub fn run(args: &DdmapBenchArgs) -> Outcome {
    if args.size < SIZE_MIN || !args.size.is_multiple_of(STEP_BYTES) {
        let asked = format!("measure over {} bytes", args.size);
        let found = "the size is no multiple of 1 MiB, or less than 8 MiB";
        return Err(Failure::new(asked, found, "give for example --size 32M").code(2));
    }
    // Nodes and programs of this process group die of the same signal; what was made is removed on
    // the way out, so the signal must not end this process at once.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::new("watch for signals", error, ""))?;
    }
    let measured = measure(args, &stop);
    if stop.load(Ordering::Relaxed) {
        return Err(Failure::new("measure", "interrupted", "").code(130));
    }
    let report = measured?;
    if args.json {
        output::emit_json(&report)?;
    } else {
        output::emit(report::text(&report).as_bytes())?;
    }
    Ok(0)
}

fn measure(args: &DdmapBenchArgs, stop: &AtomicBool) -> Result<serde_json::Value, Failure> {
    let mut progress = Progress::new("measuring");
    let mut rows = Rows::default();
    let wants = |peer| args.peers.is_empty() || args.peers.contains(&peer);
    let testbed = Testbed::make(&args.place, args.size, args.nodes)?;
    let mut command = testbed.worker()?;
    command.arg("remote");
    let remote = Responder::start(command)?;
    let mut bench = Bench::new(testbed, &remote, args.size)?;
    bench.by_thread = wants(DdmapPeer::Thread);
    mount(&mut bench, &mut rows, wants)?;
    let mut steps = steps::LARGE.to_vec();
    if wants(DdmapPeer::Local) {
        steps.extend(steps::LOCAL);
    }
    // Round 0 warms caches and touches memory; it does not count.
    let total = u64::from(args.rounds + 1) * steps.len() as u64;
    let mut done = 0;
    for round in 0..=args.rounds {
        rows.counts = round > 0;
        for step in &steps {
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::new("measure", "interrupted", ""));
            }
            step(&mut bench, &mut rows)?;
            done += 1;
            progress.update(done, total);
        }
    }
    drop(progress);
    scaling::measure(bench.testbed_mut(), args.size, args.rounds, &mut rows, stop)?;
    let (measured, skipped) = rows.into_json();
    Ok(json!({
        "size_bytes": args.size,
        "file_bytes": bench.file_bytes(),
        "nodes": args.nodes,
        "rounds": args.rounds,
        "away_percent": bench.away_percent(),
        "rows": measured,
        "skipped": skipped,
    }))
}

/// Mounts the network file systems that are wanted and can be had; says why others are not
/// measured.
fn mount(
    bench: &mut Bench<'_>,
    rows: &mut Rows,
    wants: impl Fn(DdmapPeer) -> bool,
) -> Result<(), Failure> {
    for kind in Kind::ALL {
        let gluster = kind == Kind::Gluster;
        if !wants(if gluster { DdmapPeer::Gluster } else { DdmapPeer::Sshfs }) {
            continue;
        }
        match kind.missing() {
            Some(why) => rows.skip(format!("{}: {why}", kind.name())),
            None => bench.mount(kind)?,
        }
    }
    if wants(DdmapPeer::Swap) {
        let why = "not here: this machine would hang with the server; `tests/vm/run swap` of the \
                   source counts its bytes and faults in a guest";
        rows.skip(format!("swap on a network block device: {why}"));
    }
    Ok(())
}
