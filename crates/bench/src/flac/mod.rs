//! `solera bench flac`: the cache over a volume whose memory is slower than DRAM, beside the volume
//! without it, a copy out of DRAM, and the kernel's page cache.
//!
//! How slow a volume is, is settled when it is attached. So each model has a process of its own,
//! in which one attachment serves both sides: the engine, and the cache over it. Peers take turns,
//! row by row and round by round.
//!
//! `reads.rs` has reads that copy, `attachment.rs` those that map.

mod attachment;
mod programs;
mod reads;
mod report;
mod rows;
mod testbed;
mod worker;
mod writes;

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use console::failure::{Failure, Outcome};
use console::output::{self, Progress};
use emulation::Model;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use solera_bench::FlacBenchArgs;

use crate::harness::executable;
use testbed::Testbed;
pub use worker::run as worker;

/// The models that are measured where none is asked for.
const MODELS: [&str; 5] = ["dram", "cxl-ssd", "optane6", "cxl", "optane"];

/// Bytes of the longest read: the file is a multiple of them.
const LONGEST_BYTES: u64 = 16 << 20;

/// Measures all rows and prints the tables.
pub fn run(args: &FlacBenchArgs) -> Outcome {
    if args.size == 0 || !args.size.is_multiple_of(LONGEST_BYTES) {
        let asked = format!("measure over {} bytes", args.size);
        let found = "the size is no multiple of 16 MiB";
        return Err(Failure::new(asked, found, "give for example --size 64M").code(2));
    }
    // Workers of this process group die of the same signal; what was made is removed on the way
    // out, so the signal must not end this process at once.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::new("watch for signals", error, ""))?;
    }
    let models = match args.memory {
        Some(model) => vec![model],
        None => MODELS.into_iter().filter_map(|name| name.parse().ok()).collect(),
    };
    let testbed = Testbed::make(&args.place, args.size)?;
    let mut progress = Progress::new("measuring");
    let mut found = Vec::new();
    for (index, model) in models.iter().enumerate() {
        progress.update(index as u64, models.len() as u64);
        let measured = measure(args, &testbed, *model);
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::new("measure", "interrupted", "").code(130));
        }
        found.push(measured?);
    }
    drop(progress);
    let report = json!({
        "size_bytes": args.size,
        "repeat": args.repeat,
        "volume_page_bytes": page_bytes(testbed.volume_is_huge()),
        "cache_page_bytes": page_bytes(testbed.cache_is_huge()),
        "models": found,
    });
    if args.json {
        output::emit_json(&report)?;
    } else {
        output::emit(report::text(&report).as_bytes())?;
    }
    Ok(0)
}

fn page_bytes(huge: bool) -> u64 {
    if huge { 2 << 20 } else { 4096 }
}

/// What the worker of a model finds.
fn measure(args: &FlacBenchArgs, testbed: &Testbed, model: Model) -> Result<Value, Failure> {
    let asked = format!("measure {model}");
    let failed = |found: &dyn std::fmt::Display| Failure::new(&asked, found, "");
    let own = executable::own().map_err(|error| failed(&error))?;
    let ran = Command::new(own)
        .args(["bench", "flac-worker", "--memory", &model.to_string()])
        .args(["--size", &args.size.to_string(), "--repeat", &args.repeat.to_string()])
        .arg(&testbed.directory)
        .env("SOLERA_MEMORY", model.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(&error))?;
    if !ran.status.success() {
        let found = format!("its worker ended ({})", ran.status);
        return Err(Failure::new(&asked, found, "see what it said above"));
    }
    serde_json::from_slice(&ran.stdout).map_err(|error| failed(&error))
}
