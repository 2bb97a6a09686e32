//! A peer of `bench sqlite`: its worker processes, and what they took.

use std::collections::BTreeMap;
use std::io::Error;
use std::path::Path;
use std::process::Command;

use console::failure::Failure;
use console::preload::{environment, find_library};
use solera_bench::SqliteBenchArgs;

use super::testbed::Testbed;
use super::worker::Elapsed;
use super::{Variant, Workload};
use crate::harness::conversation::Conversation;
use crate::harness::executable;
use crate::harness::statistics::median_and_spread;

/// A peer, with what it took.
pub struct Peer {
    pub variant: Variant,
    /// Rows but the first query of a process are all one worker's.
    worker: Worker,
    times: BTreeMap<Workload, Vec<Elapsed>>,
}

/// Medians of a row, in microseconds.
#[derive(Clone, Copy)]
pub struct Median {
    pub clock: f64,
    /// Largest less smallest, in percent.
    pub spread: f64,
    pub cpu: f64,
}

impl Peer {
    /// Starts it.
    pub fn start(
        variant: Variant,
        testbed: &Testbed,
        args: &SqliteBenchArgs,
    ) -> Result<Self, Failure> {
        Ok(Self { variant, worker: Worker::start(variant, testbed, args)?, times: BTreeMap::new() })
    }

    /// Measures a row once.
    pub fn measure(
        &mut self,
        workload: Workload,
        testbed: &Testbed,
        args: &SqliteBenchArgs,
    ) -> Result<Elapsed, Failure> {
        match workload {
            Workload::First => Worker::start(self.variant, testbed, args)?.measure(workload),
            _ => self.worker.measure(workload),
        }
    }

    /// Remembers it.
    pub fn keep(&mut self, workload: Workload, took: Elapsed) {
        self.times.entry(workload).or_default().push(took);
    }

    /// Of all that was kept; `None`: the row is not measured.
    pub fn median(&self, workload: Workload) -> Option<Median> {
        let times = self.times.get(&workload)?;
        let all = |of: fn(&Elapsed) -> f64| times.iter().map(of).collect::<Vec<f64>>();
        let (clock, spread) = median_and_spread(&all(|took| took.clock));
        let (cpu, _) = median_and_spread(&all(|took| took.cpu));
        Some(Median { clock, spread, cpu })
    }
}

struct Worker(Conversation);

impl Worker {
    fn start(variant: Variant, testbed: &Testbed, args: &SqliteBenchArgs) -> Result<Self, Failure> {
        let failed = |error: Error| {
            Failure::new(format!("start the worker for {}", variant.name()), error, "")
        };
        let own = executable::own().map_err(failed)?;
        let mut command = Command::new(own);
        command.args(["bench", "sqlite-worker", "--who", variant.name()]);
        command.args(["--inserts", &args.inserts.to_string(), "--rows", &args.rows.to_string()]);
        command.arg("--extension").arg(&testbed.extension);
        match variant {
            Variant::Nothing => command.arg(&testbed.directory),
            Variant::Unix | Variant::Solera => command.arg(testbed.kernel(variant)),
            Variant::UnixOnVolume => {
                let (volume, at) = (testbed.volume(variant), Path::new(&testbed.prefix));
                environment(&mut command, &volume, at, "strict", &find_library()?);
                command.arg(at)
            }
            Variant::SoleraOnVolume => {
                command.arg("--volume").arg(testbed.volume(variant)).arg(&testbed.prefix)
            }
        };
        Conversation::start(variant.name(), command).map(Self)
    }

    fn measure(&mut self, workload: Workload) -> Result<Elapsed, Failure> {
        let text = self.0.ask(workload.name())?;
        let words = text.split_once(' ').map(|(clock, cpu)| (clock.parse(), cpu.parse()));
        let Some((Ok(clock), Ok(cpu))) = words else {
            return Err(self.0.unexpected(&text));
        };
        Ok(Elapsed { clock, cpu })
    }
}
