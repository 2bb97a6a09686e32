//! `solera cache`, and what `run` and `mount` do about their cache.

use std::ffi::CString;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use flac::{Cached, Options, Whose};
use rustix::mount::{MountFlags, UnmountFlags};
use serde_json::json;
use std::sync::Arc;
use volume::Volume;

use crate::args::{AttachArg, CacheArg, CacheArgs, CacheCommand, CacheVolume};
use crate::failure::{Failure, Outcome, describe};
use crate::output;
use crate::size;
use crate::tree::VolumeTree;

/// Does what is asked of the cache of a volume.
pub fn run(args: &CacheArgs) -> Outcome {
    match &args.command {
        CacheCommand::Create(of) => create(of),
        CacheCommand::Status { json, of } => status(of, *json),
        CacheCommand::Drop { file, of } => empty(of, file.as_deref()),
        CacheCommand::Destroy(of) => destroy(of),
    }
}

fn whose(volume: &Path) -> Result<Whose, Failure> {
    let uuid = volume::uuid_of(volume)?;
    let owner = fs::metadata(volume).map_err(|error| Failure::new("look at it", error, ""))?.uid();
    Ok(Whose { uuid, owner })
}

fn create(of: &CacheVolume) -> Outcome {
    let whose = whose(&of.volume)?;
    let asked = format!("make a cache for {}", of.volume.display());
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
    let group = fs::metadata(&of.volume).map_or(0, |found| found.gid());
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
    let whose = whose(&of.volume)?;
    let found = flac::status(&whose, of.cache_dir.as_deref())
        .map_err(|found| refused(&of.volume, &found))?;
    let pages = if found.huge_pages { 2 << 20 } else { 4096 };
    if as_json {
        let mut value = json!({
            "place": found.place.display().to_string(),
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
    output::emit(text.as_bytes())?;
    Ok(0)
}

fn refused(volume: &Path, found: &str) -> Failure {
    Failure::new(format!("use the cache of {}", volume.display()), found, "")
}

fn empty(of: &CacheVolume, file: Option<&Path>) -> Outcome {
    let whose = whose(&of.volume)?;
    let place = of.cache_dir.as_deref();
    let gone = match file {
        None => flac::drop_all(&whose, place),
        Some(file) => {
            let tree = VolumeTree::attach(&of.volume)?;
            let node = tree
                .node(file.as_os_str().as_encoded_bytes())
                .map_err(|errno| Failure::errno(format!("look up {}", file.display()), errno))?;
            flac::drop_file(&whose, place, node)
        }
    };
    let gone = gone.map_err(|found| refused(&of.volume, &found))?;
    output::emit(format!("{gone} segments dropped\n").as_bytes())?;
    Ok(0)
}

fn destroy(of: &CacheVolume) -> Outcome {
    let whose = whose(&of.volume)?;
    let at = flac::destroy(&whose, of.cache_dir.as_deref())
        .map_err(|found| refused(&of.volume, &found))?;
    if is_mount(&at) {
        // Programs that use it keep its memory until they end.
        rustix::mount::unmount(&at, UnmountFlags::DETACH).map_err(|errno| {
            let asked = format!("unmount {}", at.display());
            Failure::new(asked, describe(errno), "it takes root to do so")
        })?;
        let _ = fs::remove_dir(&at);
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
    let Some(budget) = args.cache else { return Ok(Vec::new()) };
    let mut all = vec![("SOLERA_CACHE", budget.to_string().into())];
    let place = directory(args)?;
    for volume in volumes {
        tell_of_pages(&whose(volume)?, place.as_deref());
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

/// The directory that was asked for, as every process finds it.
fn directory(args: &CacheArg) -> Result<Option<PathBuf>, Failure> {
    let absolute = |place: &PathBuf| {
        place.canonicalize().map_err(|error| {
            let asked = format!("use the directory {}", place.display());
            Failure::new(asked, error, "give a directory that is there, on a tmpfs")
        })
    };
    args.cache_dir.as_ref().map(absolute).transpose()
}

/// Says what small pages cost.
fn tell_of_pages(whose: &Whose, asked: Option<&Path>) {
    let place = flac::place(whose, asked);
    if !flac::has_huge_pages(&place) {
        output::tell(format!(
            "the cache lies in {}, with pages of 4 KiB: filling it takes longer; `solera cache \
             create`, as root, gives it pages of 2 MiB",
            place.display()
        ));
    }
}

/// Lays the cache that is asked for over an engine of this process.
pub fn over(volume: &Arc<Volume>, args: &CacheArg) -> Result<Arc<dyn vfs::Engine>, Failure> {
    let Some(budget) = args.cache else { return Ok(Arc::clone(volume) as _) };
    let place = directory(args)?;
    let (uuid, owner) =
        volume.uuid_and_owner().map_err(|errno| Failure::errno("look at the volume", errno))?;
    let whose = Whose { uuid, owner };
    tell_of_pages(&whose, place.as_deref());
    let options = Options { budget, place, whose, attach: None, ahead: None, told: |_, _| {} };
    match Cached::over(Arc::clone(volume) as _, &options) {
        Ok(cached) => Ok(Arc::new(cached)),
        Err(found) => {
            output::tell(format!("there is no cache: {found}"));
            Ok(Arc::clone(volume) as _)
        }
    }
}
