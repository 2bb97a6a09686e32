//! `solera log`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Show what a write-ahead log of the library `flex` holds.
///
/// It is only read, also while a process writes to it.
#[derive(Args)]
#[command(after_help = "\
Exit code: 0; 1 if the file is no log, or a record is damaged that was committed.

Examples:
  solera log info /mnt/pm/wal                 what it is, and how full
  solera log info /dev/shm/v.pm:/wal          the same, of a volume that is not mounted
  solera log dump /mnt/pm/wal                 each record: position, length, bytes
  solera log dump --json /mnt/pm/wal | jq .position
  solera log check /mnt/pm/wal && echo whole")]
pub struct LogArgs {
    #[command(subcommand)]
    pub command: LogCommand,
}

/// What is to be shown.
#[derive(Subcommand)]
pub enum LogCommand {
    /// What the log is, and how full.
    Info(LogFile),
    /// Each record: its position, its length, and its bytes; with --json an object a line, the
    /// bytes in hexadecimal.
    Dump(LogFile),
    /// Whether all that was committed is there.
    Check(LogFile),
}

/// Which log, and how it is shown.
#[derive(Args)]
pub struct LogFile {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// The log's file; of a volume also `VOLUME:/path`.
    pub file: PathBuf,
}
