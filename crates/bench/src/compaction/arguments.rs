//! The arguments of `solera bench compaction`.

use std::path::PathBuf;

use clap::Args;

/// What a reader feels of compaction and of rewriting beside it.
///
/// One thread reads 4 KiB at random places of a file of 128 MiB, another one deletes and makes
/// files, with compaction switched off and on: a quarter of the deletions leave a chunk that is
/// worth emptying, so compaction goes on as fast as its limit allows. Then other files are
/// rewritten beside the reader, and at last those that it reads.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera bench compaction
  solera bench compaction --seconds 10 --json")]
pub struct CompactionBenchArgs {
    /// Seconds of each row.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..1000))]
    pub seconds: u64,
    /// The directory for the volume (512 MiB).
    #[arg(long, default_value = "/dev/shm")]
    pub place: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
