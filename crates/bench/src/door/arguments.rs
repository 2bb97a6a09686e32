//! The arguments of `solera bench door`, and of what it starts.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What the door at the system call costs: a call, a call that is passed on, a stream, a start.
///
/// Workers make the same calls in turns: without Solera, and under `solera run` on a volume in
/// memory; there by the exported function of the C library (the shortcut), and by the C library's
/// own, whose system call arrives by the door. Then a program is started in turns that arms its C
/// library in each way, or not at all.
#[derive(Args)]
#[command(after_help = "\
Of each row that is compared the difference of two turns beside each other counts: the median of all
rounds is shown, and how far the middle half of them lies apart. The control is the same of two
workers without Solera. A start takes the time of the processor, of the whole program.

Examples:
  solera bench door
  solera bench door --repeat 301 --json            a busy machine")]
pub struct DoorBenchArgs {
    /// What a write promises on the volume: posix, sync or strict.
    #[arg(long, default_value = "strict", value_parser = ["posix", "sync", "strict"])]
    pub mode: String,
    /// Rounds of turns.
    #[arg(long, default_value_t = 101, value_parser = clap::value_parser!(u32).range(1..10_000))]
    pub repeat: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// One peer of `bench door`: takes the names of turns from standard input.
#[derive(Args)]
pub struct DoorWorkerArgs {
    /// Beside a second thread, which waits.
    #[arg(long)]
    pub threads: bool,
    /// A directory for files of its own, on the volume if there is one.
    pub place: PathBuf,
    /// A directory of the kernel's.
    pub outside: PathBuf,
}

/// A program that arms itself and ends.
#[derive(Args)]
pub struct DoorStartArgs {
    /// In which way.
    pub way: StartWay,
    /// Where the patched file is.
    pub folder: PathBuf,
}

/// How a program that starts is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StartWay {
    /// Not at all.
    Unarmed,
    /// By the patched file: mapped, or read and copied where it may not be.
    File,
    /// Without a file.
    Memory,
    /// By the patched file, and the dynamic linker in memory.
    Linker,
}
