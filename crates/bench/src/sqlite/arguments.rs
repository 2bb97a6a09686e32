//! The arguments of `solera bench sqlite`, and of its workers.

use std::path::PathBuf;

use clap::Args;

/// SQLite through solera's VFS, through its own, and through one that does nothing.
///
/// Each has a worker process, and those take turns, row by row and round by round. The first round
/// touches the memory and does not count. SQLite is the system's libsqlite3.so.0. Databases lie
/// below DIR, in a directory that goes with the run; a volume is a file there.
#[derive(Args)]
#[command(after_help = "\
Columns:
  nothing           a VFS that keeps files in memory of the process: SQLite's own work, the limit
  unix, solera      the VFS of this name, on DIR
  unix on a volume  the unmodified library under `solera run`
  solera on a volume
                    file:/my.db?vfs=solera&volume=VOLUME

Rows: one insert of 100 bytes and its commit (synchronous=FULL), in WAL mode, the same with
locking_mode=exclusive, and with a rollback journal (journal_mode=DELETE); a SELECT that reads a
whole table by a new connection, whose page cache is empty; the first query of a process: it loads
the VFS and opens a database.

SQLite: Debian's package libsqlite3-0. The VFS is solera_vfs.so, beside this program or in ../lib.

Examples:
  solera bench sqlite
  solera bench sqlite --json /mnt/dax
  solera bench sqlite --repeat 1 --inserts 100 --rows 1000       does it run at all?")]
pub struct SqliteBenchArgs {
    /// How many times each row is measured; the median counts.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..1000))]
    pub repeat: u32,
    /// Transactions of a round.
    #[arg(long, default_value_t = 5000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1_000_000))]
    pub inserts: u64,
    /// Rows of the table that is read.
    #[arg(long, default_value_t = 1_000_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..100_000_000))]
    pub rows: u64,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// A directory of a tmpfs, or with DAX.
    #[arg(default_value = "/dev/shm", value_name = "DIR")]
    pub place: PathBuf,
}

/// One peer of `bench sqlite`: takes the names of rows from standard input.
#[derive(Args)]
pub struct SqliteWorkerArgs {
    /// Which peer.
    #[arg(long)]
    pub who: String,
    /// As of the benchmark.
    #[arg(long)]
    pub inserts: u64,
    /// As of the benchmark.
    #[arg(long)]
    pub rows: u64,
    /// The loadable extension.
    #[arg(long)]
    pub extension: PathBuf,
    /// The volume on which the databases are.
    #[arg(long)]
    pub volume: Option<PathBuf>,
    /// The directory of the databases.
    pub place: PathBuf,
}
