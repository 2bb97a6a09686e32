//! `solera cache`, and what `run` and `mount` do about their cache.

use std::ffi::CString;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use console::failure::{Failure, Outcome, describe};
use console::output;
use console::size;
use flac::{Cached, Options, VolumeId};
use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::json;
use volume::Volume;

use crate::tree::VolumeTree;

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
    /// cache with huge pages (`solera cache create`) and Linux 6.12. Read "Attaching" in
    /// docs/flac.md first: memory that a device, or `io_uring` by fixed buffers, uses is not to be
    /// read into.
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

/// Does what is asked of the cache of a volume.
pub fn run(args: &CacheArgs) -> Outcome {
    match &args.command {
        CacheCommand::Create { volume } => create(volume),
        CacheCommand::List { json, cache_dir } => list(cache_dir.as_deref(), *json),
        CacheCommand::Status { json, of } => status(of, *json),
        CacheCommand::Drop { file, of } => empty(of, file.as_deref()),
        CacheCommand::Destroy(of) => destroy(of),
    }
}

fn whose(volume: &Path) -> Result<VolumeId, Failure> {
    let uuid = volume::uuid_of(volume)?;
    let owner = fs::metadata(volume).map_err(|error| Failure::new("look at it", error, ""))?.uid();
    Ok(VolumeId { uuid, owner })
}

/// Whose caches a command is about.
fn whose_of(of: &CacheVolume) -> Result<VolumeId, Failure> {
    if let Some(volume) = &of.volume {
        return whose(volume)
            .map_err(|failure| if volume.exists() { failure } else { gone(volume) });
    }
    let uuid = of.uuid.clone().unwrap_or_default();
    // It is the owner's of the cache, then: nobody else is known.
    let mut whose = VolumeId { uuid, owner: rustix::process::geteuid().as_raw() };
    let places = flac::places(&whose, of.cache_dir.as_deref());
    let places = places.map_err(|found| refused(of, &found))?;
    let found = places.first().and_then(|place| fs::symlink_metadata(place).ok());
    whose.owner = found.map_or(whose.owner, |found| found.uid());
    Ok(whose)
}

fn gone(volume: &Path) -> Failure {
    let asked = format!("find the cache of {}", volume.display());
    let advice = "`solera cache list` shows the caches of volumes that are gone, `solera cache \
                  destroy --uuid UUID` removes one";
    Failure::new(asked, "there is no such volume", advice)
}

fn create(volume: &Path) -> Outcome {
    let whose = whose(volume)?;
    let asked = format!("make a cache for {}", volume.display());
    let at = flac::made(&whose);
    let fail = |what: &str, errno| {
        let advice = "it takes root to mount a tmpfs; without, the cache lies in /dev/shm";
        Failure::new(&asked, format!("{what}: {}", describe(errno)), advice)
    };
    if rustix::fs::statfs(&at).is_ok_and(|found| is_tmpfs(&found)) && is_mount(&at) {
        output::emit(format!("{} is there already\n", at.display()).as_bytes())?;
        return Ok(0);
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&at)
        .map_err(|error| Failure::new(&asked, error, "it takes root to make it"))?;
    let group = fs::metadata(volume).map_or(0, |found| found.gid());
    let options = format!("huge=within_size,mode=0700,uid={},gid={group}", whose.owner);
    let options = CString::new(options).unwrap_or_default();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("solera-cache", &at, "tmpfs", flags, Some(options.as_c_str()))
        .map_err(|errno| fail("mounting a tmpfs there", errno))?;
    output::emit(format!("{}\n", at.display()).as_bytes())?;
    Ok(0)
}

fn is_tmpfs(found: &rustix::fs::StatFs) -> bool {
    found.f_type == libc::TMPFS_MAGIC
}

/// Whether a file system begins at a directory.
fn is_mount(at: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    let (own, above) = (device(at), at.parent().and_then(device));
    own.is_some() && own != above
}

fn status(of: &CacheVolume, as_json: bool) -> Outcome {
    let whose = whose_of(of)?;
    let found = flac::status(&whose, of.cache_dir.as_deref());
    let found = found.map_err(|found| refused(of, &found))?;
    let pages = if found.huge_pages { 2 << 20 } else { 4096 };
    if as_json {
        let mut value = json!({
            "place": found.place.display().to_string(),
            "other_places": found.others.iter().map(|place| place.display().to_string())
                .collect::<Vec<_>>(),
            "budget_bytes": found.budget,
            "used_bytes": found.used,
            "segments": found.segments,
            "page_bytes": pages,
        });
        for (name, count) in &found.counts {
            value[*name] = json!(count);
        }
        output::emit_json(&value)?;
        return Ok(0);
    }
    let mut text = format!("{}\n", found.place.display());
    // A string takes all of it.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<16} {value}");
    };
    let share = format!("{} of {}", size::show(found.used), size::show(found.budget));
    line("in use", format!("{share}, {} segments", found.segments));
    line("pages", size::show(pages));
    for (name, count) in &found.counts {
        let shown = if name.starts_with("bytes") { size::show(*count) } else { count.to_string() };
        line(&name.replace('_', " "), shown);
    }
    for other in &found.others {
        let _ = writeln!(
            text,
            "{}\n  not used any more; `solera cache destroy` removes both",
            other.display()
        );
    }
    output::emit(text.as_bytes())?;
    Ok(0)
}

fn list(place: Option<&Path>, as_json: bool) -> Outcome {
    let all = flac::list(place);
    if as_json {
        let rows = all.iter().map(|one| {
            let place = one.place.display().to_string();
            json!({ "uuid": one.uuid, "place": place, "used_bytes": one.used })
        });
        output::emit_json(&rows.collect())?;
        return Ok(0);
    }
    let mut text = String::new();
    for one in &all {
        let used = one.used.map_or_else(|| "another user's".to_owned(), size::show);
        let _ = writeln!(text, "{}  {used:>14}  {}", one.uuid, one.place.display());
    }
    output::emit(text.as_bytes())?;
    Ok(0)
}

fn refused(of: &CacheVolume, found: &str) -> Failure {
    let volume = of.volume.as_ref().map(|volume| volume.display().to_string());
    let volume = volume.or_else(|| of.uuid.clone()).unwrap_or_default();
    Failure::new(format!("use the cache of {volume}"), found, "")
}

fn empty(of: &CacheVolume, file: Option<&Path>) -> Outcome {
    let whose = whose_of(of)?;
    let place = of.cache_dir.as_deref();
    let gone = match file.zip(of.volume.as_deref()) {
        None => flac::drop_all(&whose, place),
        Some((file, volume)) => {
            let tree = VolumeTree::attach(volume)?;
            let node = tree
                .node(file.as_os_str().as_encoded_bytes())
                .map_err(|errno| Failure::errno(format!("look up {}", file.display()), errno))?;
            flac::drop_file(&whose, place, node)
        }
    };
    let gone = gone.map_err(|found| refused(of, &found))?;
    output::emit(format!("{gone} segments dropped\n").as_bytes())?;
    Ok(0)
}

fn destroy(of: &CacheVolume) -> Outcome {
    let whose = whose_of(of)?;
    let places = flac::places(&whose, of.cache_dir.as_deref());
    let mut all = Ok(0);
    // One that cannot be removed keeps no other.
    for at in places.map_err(|found| refused(of, &found))? {
        let gone = flac::destroy(&whose, &at).map_err(|found| refused(of, &found));
        all = all.and(gone.and_then(|()| unmount(&at)));
    }
    all
}

/// Removes what `create` has made, if a directory is that.
fn unmount(at: &Path) -> Outcome {
    if is_mount(at) {
        // Programs that use it keep its memory until they end.
        rustix::mount::unmount(at, UnmountFlags::DETACH).map_err(|errno| {
            let asked = format!("unmount {}", at.display());
            Failure::new(asked, describe(errno), "it takes root to do so")
        })?;
        let _ = fs::remove_dir(at);
        let _ = at.parent().map(fs::remove_dir);
    }
    Ok(0)
}

/// What the library reads of the cache that is asked for.
pub fn variables(
    args: &CacheArg,
    attach: &AttachArg,
    volumes: &[&Path],
) -> Result<Vec<(&'static str, std::ffi::OsString)>, Failure> {
    let Some(budget) = budget(args)? else { return Ok(Vec::new()) };
    let mut all = vec![("SOLERA_CACHE", budget.to_string().into())];
    let place = directory(args)?;
    for volume in volumes {
        tell_of_place(&whose(volume)?, place.as_deref(), budget, attach.attach);
    }
    all.extend(place.map(|place| ("SOLERA_CACHE_DIR", place.into())));
    if let Some(miss) = &attach.miss {
        all.push(("SOLERA_CACHE_MISS", miss.into()));
    }
    if attach.attach {
        let min = attach.attach_min.unwrap_or(flac::CHUNK);
        all.push(("SOLERA_CACHE_ATTACH", min.to_string().into()));
    }
    Ok(all)
}

/// The bytes that were asked for. Fewer than one chunk cache nothing, and more than the machine has
/// are a slip of the keyboard.
fn budget(args: &CacheArg) -> Result<Option<u64>, Failure> {
    let Some(budget) = args.cache else { return Ok(None) };
    let asked = format!("keep a cache of {}", size::show(budget));
    if budget < flac::CHUNK {
        let least = size::show(flac::CHUNK);
        let found = format!("it holds pieces of files of {least}, so that is the least");
        return Err(Failure::new(asked, found, "give more; without --cache there is no cache"));
    }
    let memory = memory();
    if budget > memory {
        let found = format!("this machine has {} of memory", size::show(memory));
        return Err(Failure::new(asked, found, "give less: programs need some of it, too"));
    }
    Ok(Some(budget))
}

/// Bytes of the machine's memory, as far as the kernel tells.
fn memory() -> u64 {
    let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = told.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|total| total.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib << 10)
}

/// The directory that was asked for, as every process finds it.
fn directory(args: &CacheArg) -> Result<Option<PathBuf>, Failure> {
    let absolute = |place: &PathBuf| {
        let asked = format!("use the directory {}", place.display());
        let advice = "give a directory that is there, on a tmpfs";
        let found = place.canonicalize();
        let place = found.map_err(|error| Failure::new(&asked, error, advice))?;
        if !flac::is_memory(&place) {
            let found = "it is on no tmpfs: a cache there would be slower than the volume";
            return Err(Failure::new(&asked, found, advice));
        }
        Ok(place)
    };
    args.cache_dir.as_ref().map(absolute).transpose()
}

/// Says what a small tmpfs and small pages cost.
fn tell_of_place(whose: &VolumeId, asked: Option<&Path>, budget: u64, attach: bool) {
    let place = flac::place(whose, asked);
    let found = place.ancestors().find_map(|place| rustix::fs::statfs(place).ok());
    let room = found.map_or(0, |found| found.f_blocks.saturating_mul(found.f_bsize as u64));
    // 0: without a limit.
    if (1..budget).contains(&room) {
        output::tell(format!(
            "the cache lies in {}, which has {} in all: it holds no more than that",
            place.display(),
            size::show(room)
        ));
    }
    if attach && !flac::program::is_possible() {
        output::tell("--attach does nothing here: it takes Linux 6.12");
    } else if attach && !flac::has_huge_pages(&place) {
        output::tell(format!(
            "--attach does nothing here: the cache lies in {}, with pages of 4 KiB; `solera cache \
             create`, as root, gives it pages of 2 MiB",
            place.display()
        ));
    } else if !flac::has_huge_pages(&place) {
        output::tell(format!(
            "the cache lies in {}, with pages of 4 KiB: filling it takes longer; `solera cache \
             create`, as root, gives it pages of 2 MiB",
            place.display()
        ));
    }
}

/// Lays the cache that is asked for over an engine of this process.
pub fn over(volume: &Arc<Volume>, args: &CacheArg) -> Result<Arc<dyn vfs::Engine>, Failure> {
    let Some(budget) = budget(args)? else { return Ok(Arc::clone(volume) as _) };
    let place = directory(args)?;
    let (uuid, owner) =
        volume.uuid_and_owner().map_err(|errno| Failure::errno("look at the volume", errno))?;
    let whose = VolumeId { uuid, owner };
    tell_of_place(&whose, place.as_deref(), budget, false);
    let options = Options { budget, place, whose, attach: None, ahead: None, told: |_, _| {} };
    match Cached::over(Arc::clone(volume) as _, &options) {
        Ok(cached) => Ok(Arc::new(cached)),
        Err(found) => {
            output::tell(format!("there is no cache: {found}"));
            Ok(Arc::clone(volume) as _)
        }
    }
}
