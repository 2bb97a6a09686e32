//! The arguments of a worker, which other commands start.

use std::path::PathBuf;

use clap::Args;

/// One peer of `bench micro`: takes the names of rows from standard input.
#[derive(Args)]
pub struct WorkerArgs {
    /// Bytes of the file that is read and overwritten.
    #[arg(long)]
    pub size: u64,
    /// Measure the memory itself, through a region, not a file system.
    #[arg(long)]
    pub memory: bool,
    /// Without a directory of many names, which no row lists, and with short runs where `fsync`
    /// follows often.
    #[arg(long)]
    pub few: bool,
    /// The directory to work in, or the region's file.
    pub place: PathBuf,
}
