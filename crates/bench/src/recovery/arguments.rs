//! The arguments of `solera bench recovery`.

use std::path::PathBuf;

use clap::Args;
use console::size;

/// How long a volume with many files takes to attach after an unclean end, and to check.
///
/// A volume is made and filled by a process that then ends without detaching, as if it had been
/// killed. Recovery undoes what was open, finds everything that is in use from the root on, and
/// writes the free map; it grows with the number of files, not with the size of the volume.
#[derive(Args)]
#[command(after_help = "\
Examples:
  solera bench recovery
  solera bench recovery --files 1M --data 4G --json")]
pub struct RecoveryArgs {
    /// How many files (K and M are powers of 1024).
    #[arg(long, default_value = "100000", value_parser = size::parse)]
    pub files: u64,
    /// Bytes of data in all of them together.
    #[arg(long, default_value = "64M", value_parser = size::parse)]
    pub data: u64,
    /// Files of a directory.
    #[arg(long, default_value = "1000", value_parser = clap::value_parser!(u64).range(1..))]
    pub per_directory: u64,
    /// The directory for the volume.
    #[arg(long, default_value = "/dev/shm")]
    pub place: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
