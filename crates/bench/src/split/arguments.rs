//! The arguments of `solera bench split`.

use clap::Args;
use console::size;

/// Single calls on tmpfs, ext4 and XFS (in memory, by loop devices), with `run --split` and
/// without.
///
/// Peers take turns, row by row, and the memory's own limit with them. Three tables for each file
/// system: among equals (posix promises what the kernel does), durable at return (which the kernel
/// is not), and what the techniques of the engine are worth. Needs root, mkfs.ext4 and mkfs.xfs;
/// what is missing is left out, and said.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera bench split
  solera bench split --size 128M --repeat 9 --json")]
pub struct SplitBenchArgs {
    /// Bytes that the reads and overwrites range over.
    #[arg(long, default_value = "32M", value_parser = size::parse)]
    pub size: u64,
    /// How many times each row is measured; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..1000))]
    pub repeat: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
