//! The options of `solera run` that say where a program's time goes.

use std::path::PathBuf;

use clap::Args;

/// A profile of the program's file calls.
#[derive(Args, Clone)]
pub struct ProfileArg {
    /// When the program has ended, say on standard error where its time in file calls went, of it
    /// and of all that it started: by kind of call, beside what the same calls would take through
    /// the kernel on tmpfs, and by file, the N that took longest [default: 20]. Where no volume
    /// is named, the program sees what is mounted, all of it if it is not known what is meant.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
          default_missing_value = "20")]
    pub profile: Option<usize>,
    /// Write that profile to FILE instead.
    #[arg(long, value_name = "FILE")]
    pub profile_file: Option<PathBuf>,
    /// Profile the program as it runs without Solera: it sees no volume, also where some are
    /// mounted, and all of its calls are the kernel's.
    #[arg(long, requires = "profiled", conflicts_with_all = [
        "volume", "at", "split", "ddmap", "require", "mode", "class", "read_only", "numa", "cache",
        "report", "report_file", "strict_support", "no_guard"])]
    pub no_volume: bool,
    /// Write each file call to FILE, as Chrome and Perfetto read it (trace events in JSON).
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Calls that the trace has at most: the last ones, of each thread and of all.
    #[arg(long, value_name = "N", requires = "trace", default_value_t = 100_000,
          value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub trace_max: u32,
}

impl ProfileArg {
    /// Whether the program's calls are timed.
    pub fn is_asked(&self) -> bool {
        self.is_told() || self.trace.is_some()
    }

    /// Whether the sums are asked for.
    pub fn is_told(&self) -> bool {
        self.profile.is_some() || self.profile_file.is_some()
    }
}
