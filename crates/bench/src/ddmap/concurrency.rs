//! One thread, then two, that touch pages at random in a file of twice the node's bytes: each page
//! that comes has another one leave. The host's node and the holders have the same processors, so
//! what each of them takes of a page is shown, and how many pages the processors allow by that.

use console::failure::Failure;
use serde_json::json;

use super::connection::PAGE;
use super::rows::{Rows, Target};
use super::steps::Bench;
use super::testbed::{Consumer, Testbed, VolumeKind};

/// Touches of a run, of all its threads. Half as many before do not count.
const TOUCHES: usize = 1 << 15;
const ROW: &str = "pages that come as others leave, 2 threads";

/// What one has of a page.
type Metric = fn(&Run) -> f64;
const METRICS: [(&str, Metric); 3] = [
    ("the program's processor, a page at random", |run| run.program_us),
    ("the evictor's processor, a page at random", |run| run.evictor_us),
    ("the holders' processor, a page at random", |run| run.holders_us),
];

/// What a run has brought: pages of 1,000/s, and microseconds of processors for each.
struct Run {
    rate: f64,
    program_us: f64,
    evictor_us: f64,
    holders_us: f64,
}

impl Run {
    fn of(testbed: &Testbed, threads: usize) -> Result<Self, Failure> {
        let file = Testbed::at("pages");
        let mut program = testbed.program(VolumeKind::Large(false))?;
        let touch =
            |count| json!({ "do": "at random", "file": file, "count": count, "threads": threads });
        program.ask(&touch(TOUCHES / 2))?;
        let used = || {
            let [evictor, holders] =
                [Consumer::Evictor, Consumer::Holders].map(|by| testbed.used_us(by));
            Ok::<_, Failure>((testbed.evicted()?, evictor?, holders?))
        };
        let before = used()?;
        let told = program.ask(&touch(TOUCHES))?;
        let after = used()?;
        let pages = after.0.saturating_sub(before.0).max(1) as f64;
        let number = |key: &str| told[key].as_f64().unwrap_or(f64::NAN);
        Ok(Self {
            rate: pages * 1e6 / number("ns"),
            program_us: number("processor_ns") / 1000.0 / pages,
            evictor_us: (after.1 - before.1) / pages,
            holders_us: (after.2 - before.2) / pages,
        })
    }

    /// Pages of 1,000/s where all processors do nothing else.
    fn most(&self) -> f64 {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let us = self.program_us + self.evictor_us + self.holders_us;
        processors as f64 * 1000.0 / us
    }
}

/// A step of a round.
pub fn measure(bench: &mut Bench<'_>, rows: &mut Rows) -> Result<(), Failure> {
    let (testbed, bytes) = (bench.testbed(), 2 * bench.node_bytes());
    let fill = json!({ "do": "fill", "file": Testbed::at("pages"), "bytes": bytes });
    testbed.program(VolumeKind::Large(true))?.ask(&fill)?;
    let [one, two] = [1, 2].map(|threads| Run::of(testbed, threads));
    let (one, two) = (one?, two?);
    rows.add(ROW, "1,000/s", two.rate);
    rows.beside(ROW, "1 thread", Target::AtLeast(1.5), one.rate);
    rows.beside(ROW, "what the processors allow", Target::Shown, two.most());
    for (row, of) in METRICS {
        rows.add(row, "us", of(&two));
        rows.beside(row, "1 thread", Target::Shown, of(&one));
    }
    let remove = json!({ "do": "remove", "file": Testbed::at("pages") });
    testbed.program(VolumeKind::Large(true))?.ask(&remove)?;
    testbed.wait_for_room(bench.node_bytes() / PAGE as u64 / 2);
    Ok(())
}
