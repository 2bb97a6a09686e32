//! The arguments of `solera bench profile`.

use clap::Args;
use console::size;

/// What `solera run --profile` costs a call: the same calls with a profile and without.
///
/// Three programs, each alone on a new volume in memory (as root on a tmpfs with huge pages that is
/// mounted for the run), make the same calls in turns: without a profile, with one, and without one
/// more time.
#[derive(Args)]
#[command(after_help = "\
The ratio is the time of a turn with a profile over that of the turn without beside it; the median
of all pairs is shown, and how far the middle half of them lies apart. The control is the same of
the two without: how much of a ratio the places and the noise of the machine can be.

Examples:
  solera bench profile
  solera bench profile --repeat 301 --json         a busy machine")]
pub struct ProfileBenchArgs {
    /// What a write promises on the volumes: posix, sync or strict.
    #[arg(long, default_value = "strict", value_parser = ["posix", "sync", "strict"])]
    pub mode: String,
    /// Bytes that the reads range over, and that the appends of a turn add.
    #[arg(long, default_value = "64M", value_parser = size::parse)]
    pub size: u64,
    /// Pairs of turns.
    #[arg(long, default_value_t = 51, value_parser = clap::value_parser!(u32).range(1..10_000))]
    pub repeat: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}
