//! Domains of one to four nodes, each with a file that grows as they do: what a program does with
//! it, through one node's memory.
//!
//! The host may have as many of the file's bytes as one node's share of them. So of one node's file
//! all is there, of four nodes' file a quarter.

use std::sync::atomic::{AtomicBool, Ordering};

use console::failure::Failure;
use console::output::Progress;
use serde_json::json;

use super::rows::{Rows, Target};
use super::testbed::{FILE, Testbed, VolumeKind};

/// The most nodes, and those that they are compared with.
const MOST: usize = 4;
const BESIDE: (usize, &str) = (2, "2 nodes");
const IN_ORDER: [&str; MOST] = [
    "read in order, file of 1 node",
    "read in order, file of 2 nodes",
    "read in order, file of 3 nodes",
    "read in order, file of 4 nodes",
];
const ZIPF: [&str; MOST] = [
    "load at random, zipf 0.99, file of 1 node",
    "load at random, zipf 0.99, file of 2 nodes",
    "load at random, zipf 0.99, file of 3 nodes",
    "load at random, zipf 0.99, file of 4 nodes",
];
/// Loads of a round; as many before do not count.
const LOADS: usize = 1 << 15;

/// Makes the domains, each with its file.
fn make(testbed: &mut Testbed, size: u64) -> Result<(), Failure> {
    for nodes in 1..=MOST {
        testbed.scale(nodes as u16)?;
        let bytes = nodes as u64 * size;
        let fill = json!({ "do": "fill", "file": Testbed::at(FILE), "bytes": bytes });
        testbed.program(VolumeKind::Scaled(nodes as u16))?.ask(&fill)?;
    }
    Ok(())
}

/// GB/s of loading all of a file in order, and 1,000 loads at random in a second: each by a new
/// program, of what the one before has left on the host.
fn measure_one(testbed: &Testbed, nodes: usize, size: u64) -> Result<[f64; 2], Failure> {
    let ns = |said| testbed.program(VolumeKind::Scaled(nodes as u16))?.ns(&said);
    let in_order = ns(json!({ "do": "in order", "file": Testbed::at(FILE) }))?;
    let load = ns(json!({ "do": "zipf", "file": Testbed::at(FILE), "count": LOADS }))?;
    Ok([nodes as f64 * size as f64 / in_order, 1e6 / load])
}

/// All rows of it.
pub fn measure(
    testbed: &mut Testbed,
    size: u64,
    rounds: u32,
    rows: &mut Rows,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let mut progress = Progress::new("measuring 1 to 4 nodes");
    make(testbed, size)?;
    for round in 0..=rounds {
        rows.counts = round > 0;
        let mut found = [[0.0; 2]; MOST];
        for (at, found) in found.iter_mut().enumerate() {
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::new("measure", "interrupted", ""));
            }
            *found = measure_one(testbed, at + 1, size)?;
            progress.update(u64::from(round) * MOST as u64 + at as u64, u64::from(rounds + 1) * 4);
        }
        for (what, (names, unit)) in [(IN_ORDER, "GB/s"), (ZIPF, "1,000/s")].iter().enumerate() {
            for (name, found) in names.iter().zip(&found) {
                rows.add(name, unit, found[what]);
            }
            let (beside, name) = BESIDE;
            rows.beside(names[MOST - 1], name, Target::AtLeast(0.8), found[beside - 1][what]);
        }
    }
    Ok(())
}
