//! The arguments of `solera bench micro`.

use clap::Args;
use console::size;

/// Single calls on a volume, on tmpfs, and the memory's own limit, side by side.
///
/// Two volumes (one without the guard) are made for the run and touched beforehand, on a tmpfs with
/// huge pages that is mounted for the run (this needs root; otherwise /dev/shm serves, and the
/// table says so). Peers take turns, row by row, so that a noisy machine is noisy for all of them.
#[derive(Args)]
#[command(after_help = "\
\"limit\" is what the memory itself takes for the same bytes in the same pattern: for writes a
streaming copy and a fence, or in class `volatile` a copy; for reads a plain copy. The table says
the class; SOLERA_CLASS=cache-line gives the figures of persistent memory.

Examples:
  solera bench micro
  solera bench micro --mode posix --repeat 9 --json
  solera bench micro --counts            fences and flushed lines of each call, not times")]
pub struct MicroArgs {
    /// What a write promises on the volume: posix, sync or strict.
    #[arg(long, default_value = "strict", value_parser = ["posix", "sync", "strict"])]
    pub mode: String,
    /// Bytes that the reads and overwrites range over.
    #[arg(long, default_value = "256M", value_parser = size::parse)]
    pub size: u64,
    /// How many times each row is measured; the median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..1000))]
    pub repeat: u32,
    /// Attach another process to each volume meanwhile, so that the worker shares it.
    #[arg(long)]
    pub beside: bool,
    /// Count stores, fences and flushed lines instead of time.
    #[arg(long)]
    pub counts: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
