//! The arguments of `solera bench programs`.

use std::path::PathBuf;

use clap::Args;

/// Whole programs, unchanged, on a volume and on what else there is: what is it worth here?
///
/// Programs run on a new volume in each mode, over a kernel file system with `solera run --split`,
/// and on that and other file systems by the kernel alone. These lie in memory: a tmpfs, ext4 and
/// XFS in files of a tmpfs, behind loop devices (as root). They take turns (A B C, A B C); a first
/// turn warms up and does not count. Programs that are not installed are left out, and it is said
/// which package has them.
#[derive(Args)]
#[command(after_help = "\
A ratio is the time of one over the peer's: below 1 it is faster. The spread is the largest less the
smallest, in percent of the median. Programs see places; what they read, their sockets and the
clients of servers are outside. Drivers of ours (sqlite, leveldb, lmdb, ycsb, threads) are compiled
when they are needed: this takes a compiler and the library's headers.

With --against, no peers are measured unless --peers says so: the volumes of this build and of
another take turns, and rows that are slower by more than --tolerance, beyond the spread, are
measured once more. What is slower in both is told, and the exit code is 1.

Exit code: 0; 1 if a program failed (what ran is printed all the same), or if something is slower
than in the build --against; 130 after a signal: all that was made is removed, and programs that
were measured by then are printed.

Examples:
  solera bench programs --list               what there is, and what is missing for it
  solera bench programs --quick              is it worth it? some minutes
  solera bench programs --report r.html      the same with more patience, as a page to look at
  solera bench programs --only sqlite,ycsb --modes strict --peers tmpfs,/srv/data --json
  solera bench programs --aged 0.75 --peers ext4,xfs
                                             after a life of creates and deletes (`solera age`)
  solera bench programs --against /opt/solera-0.1/bin --modes strict
                                             is this build slower than that one?")]
#[allow(clippy::struct_excessive_bools)] // Switches.
pub struct ProgramsBenchArgs {
    /// What to compare with: tmpfs, ext4, xfs, or a directory (with a slash in its name); none
    /// [default: tmpfs,ext4,xfs; tmpfs where this is not root].
    #[arg(long, value_name = "PEER", value_delimiter = ',')]
    pub peers: Vec<String>,
    /// What writes on a volume promise: each mode has a volume of its own; none for no volume.
    #[arg(long, value_name = "MODE", value_delimiter = ',', default_value = "strict,sync,posix",
          value_parser = ["strict", "sync", "posix", "none"])]
    pub modes: Vec<String>,
    /// Over which of the peers `solera run --split` is measured, too; none [default: the first].
    #[arg(long, value_name = "PEER", value_delimiter = ',')]
    pub split: Vec<String>,
    /// Only these programs; `sqlite` stands for all whose names begin with `sqlite-`.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Small and few: to see that it works, not for figures.
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Large and many (hours).
    #[arg(long)]
    pub full: bool,
    /// Turns that count [default: 5; with --quick 2, with --full 9].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..1000))]
    pub repeat: Option<u32>,
    /// Age volumes and peers first, until files fill this part of them.
    #[arg(long, value_name = "PART", value_parser = part)]
    pub aged: Option<f64>,
    /// A directory with another build: `solera` and its library, beside it or in ../lib.
    #[arg(long, value_name = "DIR")]
    pub against: Option<PathBuf>,
    /// With --against: percent that this build may be slower, beyond the spread.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, requires = "against")]
    pub tolerance: f64,
    /// Write all of it, with charts, into one HTML file that needs no network.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Say which programs there are and which of them are installed; measure nothing.
    #[arg(long)]
    pub list: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

fn part(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|part| (0.01..=0.9).contains(part))
        .ok_or_else(|| format!("`{text}` is not a part of a whole: give 0.01 to 0.9"))
}
