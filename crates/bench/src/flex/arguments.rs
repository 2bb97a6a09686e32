//! The arguments of `solera bench flex`.

use std::path::PathBuf;

use clap::Args;

/// The explicit library beside the memory's own limit, libpmemlog, and system calls.
///
/// Logs and files of the library, in one directory; peers take turns, row by row. The first round
/// touches the memory and does not count. "limit" is what the memory takes for the same bytes: a
/// streaming copy and a fence.
#[derive(Args)]
#[command(after_help = "\
libpmemlog is measured if it is there (Debian: libpmemlog1).

Examples:
  solera bench flex
  solera bench flex --place /mnt/dax --repeat 9 --json")]
pub struct FlexBenchArgs {
    /// The directory: of tmpfs, or with DAX (half a GiB).
    #[arg(long, default_value = "/dev/shm")]
    pub place: PathBuf,
    /// How many times each row is measured; the median counts.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..1000))]
    pub repeat: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
