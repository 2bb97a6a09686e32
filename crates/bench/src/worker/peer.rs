//! A peer of the table: its worker process and what it measured.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use console::failure::Failure;
use console::preload::{environment, find_library};
use solera_bench::MicroArgs;
use volume::FormatOptions;

use crate::harness::conversation::Conversation;
use crate::harness::executable;
use crate::micro::testbed::Testbed;
use crate::worker::Elapsed;
use crate::worker::row::Row;

/// Which part of the table a peer plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Volume,
    /// Another volume, its memory not closed to the program's code.
    Unguarded,
    Tmpfs,
    Limit,
}

/// Those that have a volume.
pub const VOLUMES: [(&str, Role); 2] = [("solera", Role::Volume), ("no guard", Role::Unguarded)];

/// A worker process, with what it took, in nanoseconds per call.
pub struct Peer {
    pub name: &'static str,
    pub part: Role,
    worker: Conversation,
    times: BTreeMap<Row, Vec<f64>>,
    cpu_times: BTreeMap<Row, Vec<f64>>,
    /// Another process on its volume, which does nothing.
    beside: Option<Box<Self>>,
}

impl Peer {
    /// Starts the volumes' workers first, then the others. Each has a volume of its own, which it
    /// shares with no process unless one is asked for.
    pub fn start_all(testbed: &Testbed, args: &MicroArgs) -> Result<Vec<Self>, Failure> {
        // A prefix that exists nowhere else, since nothing else is there.
        let at = PathBuf::from(format!("/solera-bench-{}", std::process::id()));
        let library = find_library()?;
        let on_volume = |name, part, region: &Path| -> Result<Self, Failure> {
            let options = FormatOptions { force: true, ..FormatOptions::default() };
            volume::format(region, &options)?;
            let start = || {
                let mut command = worker(args.size, &at, false)?;
                environment(&mut command, region, &at, &args.mode, &library);
                if part == Role::Unguarded {
                    command.env("SOLERA_GUARD", "off");
                }
                Self::start(name, part, command)
            };
            let mut peer = start()?;
            if args.beside {
                peer.beside = Some(Box::new(start()?));
            }
            Ok(peer)
        };
        let mut peers = Vec::new();
        for ((name, part), region) in VOLUMES.into_iter().zip(&testbed.regions) {
            peers.push(on_volume(name, part, region)?);
        }
        for tmpfs in &testbed.tmpfs {
            peers.push(Self::start(
                tmpfs.name,
                Role::Tmpfs,
                worker(args.size, &tmpfs.dir, false)?,
            )?);
        }
        let memory = worker(args.size, &testbed.memory, true)?;
        peers.push(Self::start("limit", Role::Limit, memory)?);
        Ok(peers)
    }

    /// A worker of its own command.
    pub fn start(name: &'static str, part: Role, command: Command) -> Result<Self, Failure> {
        let mut worker = Conversation::start(name, command)?;
        worker.await_ready()?;
        let (times, cpu_times) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { name, part, worker, times, cpu_times, beside: None })
    }

    /// What one run took, a call; `None` where the peer has nothing to measure.
    pub fn measure(&mut self, row: Row) -> Result<Option<Elapsed>, Failure> {
        if self.part == Role::Limit && row.bytes() == 0 {
            return Ok(None);
        }
        let text = self.worker.ask(row.name())?;
        let words = text.split_once(' ').map(|(clock, cpu)| (clock.parse(), cpu.parse()));
        let Some((Ok(clock), Ok(cpu))) = words else { return Err(self.worker.unexpected(&text)) };
        Ok(Some(Elapsed { clock, cpu }))
    }

    /// Lets it end by itself.
    pub fn end(&mut self) -> Result<(), Failure> {
        self.worker.end()
    }

    /// Remembers what a run took.
    pub fn keep(&mut self, row: Row, took: Option<Elapsed>) {
        self.times.entry(row).or_default().extend(took.map(|took| took.clock));
        self.cpu_times.entry(row).or_default().extend(took.map(|took| took.cpu));
    }

    /// As [`Peer::times`], of the processors.
    pub fn cpu_times(&self, row: Row) -> &[f64] {
        self.cpu_times.get(&row).map_or(&[], Vec::as_slice)
    }

    /// The times of a row, in the order in which they were taken.
    pub fn times(&self, row: Row) -> &[f64] {
        self.times.get(&row).map_or(&[], Vec::as_slice)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.beside.take());
    }
}

/// This program again, as a worker.
pub fn worker(size: u64, place: &Path, memory: bool) -> Result<Command, Failure> {
    let own = executable::own()
        .map_err(|error| Failure::new("find this program", error, "is /proc mounted?"))?;
    let mut command = Command::new(own);
    command.args(["bench", "worker", "--size", &size.to_string()]);
    if memory {
        command.arg("--memory");
    }
    command.arg(place);
    Ok(command)
}
