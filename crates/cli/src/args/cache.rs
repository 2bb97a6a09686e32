//! Options of the cache, and `solera cache`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use console::size;

/// The cache that a command works with.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheArg {
    /// Keep what is read in a cache of so many bytes in DRAM, for a volume whose memory is slower
    /// (CXL, one DIMM of Optane). Writes go to the volume, with its guarantees; programs without
    /// --cache see the same. 2M at least, and no more than the machine has. See `solera cache
    /// --help`.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub cache: Option<u64>,
    /// The directory in which the cache lies, on a tmpfs [default: what `solera cache create` has
    /// made, else /dev/shm].
    #[arg(long, value_name = "DIR", requires = "cache")]
    pub cache_dir: Option<PathBuf>,
}

/// What of the cache is not copied; for programs that are run, not for mounts.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachArg {
    /// Map what is cached into the program's buffers instead of copying it, where that can be done:
    /// reads of 2 MiB and more into private memory of the program's, which it does not change
    /// afterwards, at addresses that are congruent to the file's offsets modulo 2 MiB. Needs a
    /// cache with huge pages (`solera cache create`) and Linux 6.12. Read "Attaching" in the
    /// caveats first: memory that a device, or `io_uring` by fixed buffers, uses is not to be read
    /// into.
    #[arg(long, requires = "cache")]
    pub attach: bool,
    /// Copy reads of fewer bytes [default: 2M].
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "attach")]
    pub attach_min: Option<u64>,
    /// When what is not cached is filled: sync (by the read that asks for it), or ahead (also by a
    /// thread of its own in each program, before a reader in order comes to it) [default: sync].
    #[arg(long, requires = "cache", value_parser = ["sync", "ahead"])]
    pub miss: Option<String>,
    /// With --cache: `malloc` and its kin give multiples of 2 MiB from 2 MiB on, as whole chunks of
    /// files need that are attached instead of copied. For programs whose buffers come from
    /// `malloc`; those of `mmap` lie so without. The program's own allocator gives them (glibc,
    /// jemalloc, tcmalloc, mimalloc). It takes more memory.
    #[arg(long, requires = "cache")]
    pub align: bool,
}

/// Look at the cache of a volume, empty it, or give it huge pages.
///
/// `solera run --cache SIZE` and `solera mount --cache SIZE` keep in DRAM what is read of a volume.
/// The cache holds nothing that could be lost: what is written goes to the volume at once, and a
/// file that anybody changes, with the cache or without, is read from the volume again. It stays
/// warm after the last program has ended, as long as the next one to use the volume knows it.
///
/// Who gains: volumes on memory that is slower than DRAM, and programs that read the same bytes
/// again. On DRAM it costs more than it gives.
#[derive(Args)]
#[command(after_help = "\
A cache lies in /dev/shm/solera-cache-UUID, with pages of 4 KiB, which the first program makes.
After `cache create` it lies in /run/solera/UUID/cache, a tmpfs of its own with pages of 2 MiB,
until the machine is started anew or `cache destroy`. Its memory is charged to the control group of
the program that fills it.

Exit code: 0, or 1 if there is no cache, or it cannot be used.

Examples:
  solera cache create v.pm                                as root, once
  solera run --cache 2G --volume v.pm --at /pm -- ./program
  solera cache status v.pm
  solera cache drop v.pm                                  for measurements: the next reads miss
  solera cache destroy v.pm
  solera cache list                                       those of volumes that are gone, too
  solera cache destroy --uuid UUID                        of such a one")]
pub struct CacheArgs {
    #[command(subcommand)]
    pub command: CacheCommand,
}

#[derive(Subcommand)]
pub enum CacheCommand {
    /// Make a tmpfs with huge pages for the volume's cache, as root.
    Create {
        /// The volume's file or device.
        volume: PathBuf,
    },
    /// Show the caches that are there, of all volumes, those that are gone as well.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// The directory that was given as --cache-dir.
        #[arg(long, value_name = "DIR")]
        cache_dir: Option<PathBuf>,
    },
    /// Show what the cache holds, and how often it served.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        of: CacheVolume,
    },
    /// Empty the cache. Programs that use it go on.
    Drop {
        /// Only what is cached of this file, by its path on the volume.
        #[arg(long, value_name = "PATH", conflicts_with = "uuid")]
        file: Option<PathBuf>,
        #[command(flatten)]
        of: CacheVolume,
    },
    /// Remove the cache, and what programs made before `cache create`. Programs that use it go on
    /// without.
    Destroy(CacheVolume),
}

#[derive(Args)]
pub struct CacheVolume {
    /// The directory that was given as --cache-dir.
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// The volume by its UUID, as `solera cache list` shows it: where the volume is gone.
    #[arg(long, value_name = "UUID", value_parser = uuid)]
    pub uuid: Option<String>,
    /// The volume's file or device.
    #[arg(required_unless_present = "uuid", conflicts_with = "uuid")]
    pub volume: Option<PathBuf>,
}

fn uuid(text: &str) -> Result<String, String> {
    let lower = text.to_ascii_lowercase();
    let advice = "it is no UUID as `solera cache list` shows them";
    if flac::is_uuid(&lower) { Ok(lower) } else { Err(advice.to_owned()) }
}
