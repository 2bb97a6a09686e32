//! The arguments of `solera bench mount`.

use clap::Args;
use console::size;

/// System calls on a mounted volume, beside a passthrough of tmpfs by FUSE (bindfs), in one run.
///
/// The volume's mount lets the kernel cache nothing that preloaded programs may change; bindfs is
/// measured under the same rule, and as it comes besides. Needs root, /dev/fuse and bindfs.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera bench mount
  solera bench mount --mode posix --repeat 9 --json")]
pub struct MountBenchArgs {
    /// What a write through the mount promises: posix, sync or strict.
    #[arg(long, default_value = "strict", value_parser = ["posix", "sync", "strict"])]
    pub mode: String,
    /// Bytes that the reads and overwrites range over.
    #[arg(long, default_value = "128M", value_parser = size::parse)]
    pub size: u64,
    /// How many times each row is measured; the median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..1000))]
    pub repeat: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
