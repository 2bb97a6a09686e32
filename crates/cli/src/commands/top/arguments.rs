//! `solera top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

/// Watch what the processes on a volume do.
///
/// Shows the space of the volume as a picture, and each process that has attached it: what it calls
/// and moves in a second, the locks that it holds and waits for, its open files and mapped bytes.
/// Dead processes are shown until another one has recovered what they left, with its number.
/// Looking attaches nothing, and no process waits for it.
///
/// Keys: p sorts by pid, n by program, c calls, r read, w written, l locks, a awaited, f files, m
/// mapped; left and right by the next column; space looks at once, Ctrl-Z gives the terminal to
/// the shell until `fg`, q ends.
#[derive(Args)]
#[command(after_help = "\
Where the output is no terminal it prints once, as with --once. Rates are those between two looks,
which are an interval apart. A volume that was made by a build before 0.2 has no counters: its
processes have no rates.

Exit code: 0; 1 if the volume cannot be read.

Examples:
  solera top /dev/shm/v.pm                       until q
  solera top --interval 0.5 --sort written /dev/shm/v.pm
  solera top --once --json /dev/shm/v.pm         for programs")]
pub struct TopArgs {
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub interval: Duration,
    /// Print it, and end.
    #[arg(long)]
    pub once: bool,
    /// Print JSON.
    #[arg(long, requires = "once")]
    pub json: bool,
    /// The column by which processes are sorted.
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t = Column::Calls)]
    pub sort: Column,
    /// The volume's file or device, or `DOMAIN/VOLUME`.
    pub volume: PathBuf,
}

/// A column of processes by which they can be sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Column {
    Pid,
    Program,
    Calls,
    Read,
    Written,
    Locks,
    Awaited,
    Files,
    Mapped,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "seconds from 0.1 to 3600".to_owned())
}
