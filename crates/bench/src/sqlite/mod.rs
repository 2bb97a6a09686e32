//! `solera bench sqlite`: SQLite through solera's VFS, through its own VFS, and through one that
//! does nothing.
//!
//! Each peer has a worker process, and those take turns, row by row and round by round, so that a
//! noisy machine is noisy for all of them.

mod library;
mod null_vfs;
mod peer;
mod report;
mod testbed;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use console::failure::{Failure, Outcome};
use console::output::{self, Progress};
use pmem::Class;
use signal_hook::consts::{SIGINT, SIGTERM};
use solera_bench::SqliteBenchArgs;

use crate::harness::bound::Bound;
use library::Sqlite;
use peer::Peer;
use report::Results;
use testbed::Testbed;
pub use worker::run as worker;

/// A row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Workload {
    /// Inserts, one a transaction, with a write-ahead log.
    Wal,
    /// The same, with the database locked throughout.
    Exclusive,
    /// The same, with a rollback journal that is deleted.
    Delete,
    /// Reads a table by a new connection.
    Select,
    /// The first query of a process.
    First,
}

impl Workload {
    /// The first query comes last: it asks the database that the row before has filled.
    const ALL: [Self; 5] = [Self::Wal, Self::Exclusive, Self::Delete, Self::Select, Self::First];

    fn name(self) -> &'static str {
        match self {
            Self::Wal => "wal",
            Self::Exclusive => "exclusive",
            Self::Delete => "delete",
            Self::Select => "select",
            Self::First => "first",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// For people.
    fn title(self, args: &SqliteBenchArgs) -> String {
        match self {
            Self::Wal => "insert 100 B, WAL".to_owned(),
            Self::Exclusive => "insert 100 B, WAL, exclusive".to_owned(),
            Self::Delete => "insert 100 B, DELETE".to_owned(),
            Self::Select => format!("select {} rows", args.rows),
            Self::First => "load, open, first query".to_owned(),
        }
    }

    /// Whether a peer has the row.
    fn has(self, variant: Variant) -> bool {
        match self {
            Self::Wal | Self::Delete | Self::Select => true,
            Self::Exclusive => variant != Variant::UnixOnVolume,
            // Of `unix on a volume` the loader does a part, before the process can look at a clock.
            Self::First => !matches!(variant, Variant::Nothing | Variant::UnixOnVolume),
        }
    }
}

/// A peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Variant {
    Nothing,
    Unix,
    Solera,
    UnixOnVolume,
    SoleraOnVolume,
}

impl Variant {
    const ALL: [Self; 5] =
        [Self::Nothing, Self::Unix, Self::Solera, Self::UnixOnVolume, Self::SoleraOnVolume];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Unix => "unix",
            Self::Solera => "solera",
            Self::UnixOnVolume => "unix on a volume",
            Self::SoleraOnVolume => "solera on a volume",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variant| variant.name() == name)
    }
}

/// A row, whose time it is, whose time it is compared with.
const COMPARED: [(Workload, Variant, Variant, Bound); 14] = [
    (Workload::Wal, Variant::Solera, Variant::Nothing, Bound::Times(1.35)),
    (Workload::Wal, Variant::Solera, Variant::Unix, Bound::Times(0.3)),
    (Workload::Wal, Variant::SoleraOnVolume, Variant::Nothing, Bound::Times(1.35)),
    (Workload::Wal, Variant::SoleraOnVolume, Variant::UnixOnVolume, Bound::Times(0.7)),
    (Workload::Wal, Variant::SoleraOnVolume, Variant::Unix, Bound::Times(0.3)),
    (Workload::Exclusive, Variant::Solera, Variant::Nothing, Bound::Shown),
    (Workload::Exclusive, Variant::Solera, Variant::Unix, Bound::Shown),
    (Workload::Delete, Variant::Solera, Variant::Nothing, Bound::Shown),
    (Workload::Delete, Variant::Solera, Variant::Unix, Bound::Shown),
    (Workload::Delete, Variant::SoleraOnVolume, Variant::UnixOnVolume, Bound::Times(0.7)),
    (Workload::Select, Variant::Solera, Variant::Unix, Bound::Times(1.0)),
    (Workload::Select, Variant::SoleraOnVolume, Variant::UnixOnVolume, Bound::Times(1.0)),
    (Workload::First, Variant::Solera, Variant::Unix, Bound::More(200.0)),
    (Workload::First, Variant::SoleraOnVolume, Variant::Unix, Bound::More(200.0)),
];

/// Measures all rows and prints the tables.
pub fn run(args: &SqliteBenchArgs) -> Outcome {
    let sqlite = Sqlite::load()?;
    // Workers of this process group die of the same signal; what was made is removed on the way
    // out, so the signal must not end this process at once.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::new("watch for signals", error, ""))?;
    }
    let place = flex::Place::open(&args.place, true)
        .map_err(|error| Failure::new("measure there", error, "give another directory"))?;
    let (class, why) = place.class();
    if class == Class::Page {
        let advice = "give the directory of a tmpfs, or one with DAX";
        return Err(Failure::new("measure there", why, advice).code(2));
    }
    let testbed = Testbed::make(args)?;
    let started = Variant::ALL.into_iter().map(|variant| Peer::start(variant, &testbed, args));
    let mut peers = started.collect::<Result<Vec<_>, _>>()?;
    let mut progress = Progress::new("measuring");
    // Round 0 touches the memory.
    let rounds = u64::from(args.repeat) + 1;
    for round in 0..rounds {
        for (index, workload) in Workload::ALL.into_iter().enumerate() {
            for peer in peers.iter_mut().filter(|peer| workload.has(peer.variant)) {
                if stop.load(Ordering::Relaxed) {
                    return Err(Failure::new("measure", "interrupted", "").code(130));
                }
                let took = peer.measure(workload, &testbed, args)?;
                if round > 0 {
                    peer.keep(workload, took);
                }
            }
            let count = Workload::ALL.len() as u64;
            progress.update(round * count + index as u64 + 1, rounds * count);
        }
    }
    drop(progress);
    let (version, why) = (sqlite.version(), why.to_owned());
    let results = Results { args, version, class, why, peers };
    if args.json {
        output::emit_json(&results.to_json())?;
    } else {
        output::emit(results.to_text().as_bytes())?;
    }
    Ok(0)
}
