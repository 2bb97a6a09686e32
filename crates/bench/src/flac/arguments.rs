//! The arguments of `solera bench flac`.

use std::path::PathBuf;

use clap::Args;
use console::size;
use emulation::Model;

/// The cache in DRAM over a volume whose memory is slower: hits, misses, writes, whole programs.
///
/// A volume and its cache are made for the run; as root, on two tmpfs of their own with huge pages.
/// For each model of slow memory one process measures all peers, which take turns, row by row. The
/// first round touches the memory and does not count.
#[derive(Args)]
#[command(after_help = "\
\"DRAM\" is a copy out of memory of this process; \"tmpfs\" and \"ext4\" are `pread` of a copy of
the file in the page cache, which no model slows but for misses.

Models of --memory: dram, cxl-ssd, optane6, cxl, optane (all of them without it), or NS/GBs,NS/GBs
(reads, writes), as in SOLERA_MEMORY.

Examples:
  solera bench flac
  solera bench flac --memory cxl-ssd --repeat 15 --json
  make flac                                          docs/figures/flac.md again")]
pub struct FlacBenchArgs {
    /// The model of the volume's memory.
    #[arg(long, value_name = "MODEL", value_parser = |text: &str| text.parse::<Model>())]
    pub memory: Option<Model>,
    /// Bytes of the file that is read, a multiple of 16 MiB.
    #[arg(long, default_value = "64M", value_parser = size::parse)]
    pub size: u64,
    /// How many times each row is measured; the median counts.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..1000))]
    pub repeat: u32,
    /// A directory of a tmpfs, where the volume and its cache are made for the run.
    #[arg(long, default_value = "/dev/shm")]
    pub place: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Measures one model; the environment says which. Prints JSON.
#[derive(Args)]
pub struct FlacWorkerArgs {
    /// As of the benchmark.
    #[arg(long, value_parser = |text: &str| text.parse::<Model>())]
    pub memory: Model,
    /// As of the benchmark.
    #[arg(long)]
    pub size: u64,
    /// As of the benchmark.
    #[arg(long)]
    pub repeat: u32,
    /// Where the benchmark has made its places.
    pub place: PathBuf,
}
