//! The command line of `solera age`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use console::class::ClassArg;
use console::size;

/// What kind of use a file system saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Profile {
    /// Files of all sizes come and go (Agrawal et al.): the one of the literature.
    Agrawal,
    /// Mostly large files.
    Hpc,
    /// Small files only.
    Small,
    /// Many files grow side by side by 4 KiB appends.
    Appends,
    /// Tables are overwritten in place, logs grow and are thrown away.
    Database,
}

/// How sizes are drawn from their histogram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Sizes {
    /// Spread: each is multiplied by 0.75 to 1.5, evenly drawn, so that holes rarely fit again.
    Prop,
    /// Exactly those of the histogram: powers of two, which hides fragmentation.
    Exact,
}

/// Age a file system as years of use do, and measure how much of it still comes in huge pages.
///
/// A trace of creates and deletes (or appends, or overwrites) is drawn from a profile and carried
/// out in a new directory `aged` of the target: a volume, or a directory of any mounted file
/// system. The same options draw the same trace for every target of the same capacity. The aged
/// files stay. An empty volume is aged at once; for any other target it is said how much is to be
/// written there, and nothing is done without --yes.
#[derive(Args)]
#[command(after_help = "\
The measures:
  aligned_free_pct       of the free bytes, those in whole aligned free 2 MiB
  new_file_huge_pct      of a new file of 512 MiB, the part in contiguous aligned 2 MiB
  new_file_bytes         that 512 MiB, or as much as could be had
  new_max_file_huge_pct  the same of a new file of 95 % of the free space
  live_huge_pct          the same of the live files of 2 MiB and more, of their whole chunks
  moved_bytes            bytes moved meanwhile to keep chunks whole
ext4 and XFS tell where bytes lie; on others (tmpfs) the measures are null. So is each for which
there is nothing to measure: no whole 2 MiB.

Exit code: 0 done, 1 failed, 2 a wrong command line, or --yes is missing: nothing has been written.

Examples:
  solera age --utilisation 0.9 --seed 1 --json /dev/shm/v.pm
  solera age --utilisation 0.7 --write-trace t.txt /dev/shm/v.pm
  solera age --yes --replay t.txt /mnt/ext4    the same life on another file system")]
pub struct AgeArgs {
    /// What part of the capacity files fill, 0.01 to 0.97.
    #[arg(long, default_value_t = 0.7, value_parser = part)]
    pub utilisation: f64,
    /// Creates, and deletes, for each file that lives in the end.
    #[arg(long, default_value_t = 38.5, value_parser = churn)]
    pub churn: f64,
    /// What kind of use it saw.
    #[arg(long, value_enum, default_value_t = Profile::Agrawal)]
    pub profile: Profile,
    /// Sizes spread around those of the profile, or exactly those.
    #[arg(long, value_enum, default_value_t = Sizes::Prop)]
    pub sizes: Sizes,
    /// Draws another trace.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Bytes to take as the target's capacity (default: what it says itself).
    #[arg(long, value_parser = size::parse)]
    pub capacity: Option<u64>,
    /// Of a million freed blocks, how many a volume may move to empty chunks (0: none).
    #[arg(long, value_name = "N")]
    pub compaction: Option<u32>,
    /// Keep the trace in FILE.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub write_trace: Option<PathBuf>,
    /// Draw what is free in the end, 2 MiB by 2 MiB, into FILE (SVG).
    #[arg(long, value_name = "FILE.svg")]
    pub picture: Option<PathBuf>,
    /// Take the trace from FILE instead of drawing one.
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["utilisation", "churn", "profile", "sizes", "seed"])]
    pub replay: Option<PathBuf>,
    /// Write as much as that to a directory of a file system, or to a volume that has files.
    #[arg(short = 'y', long)]
    pub yes: bool,
    #[command(flatten)]
    pub class: ClassArg,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// A volume's file or device, or a directory.
    pub target: PathBuf,
}

fn part(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|part| (0.01..=0.97).contains(part))
        .ok_or_else(|| format!("`{text}` is not a part of a whole: give 0.01 to 0.97"))
}

fn churn(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|churn| (0.0..=1000.0).contains(churn))
        .ok_or_else(|| format!("`{text}` is not a number of times: give 0 to 1000"))
}
