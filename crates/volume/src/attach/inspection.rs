//! `info` and `activity` of a volume by its path: they look at it without attaching it.

use crate::Result;
use crate::attach::anchor::Anchor;
use crate::attach::no_permission;
use crate::attach::view::View;
use crate::check::extents::ChunkUse;
use crate::check::info::{Info, describe};
use crate::check::processes::ProcessUse;
use crate::medium::error::VolumeError;
use crate::medium::superblock;
use crate::process::counts::{Counts, Death};
use crate::process::liveness::{Liveness, Openness, anchor_path};
use crate::space::alloc::Usage;
use pmem::{OpenOptions, Region};
use std::path::Path;

/// The UUID of the volume at `path`, in its usual form.
pub fn uuid_of(path: &Path) -> std::result::Result<String, VolumeError> {
    Ok(View::open("look at", path)?.found.superblock.uuid())
}

/// What `st_dev` says of the files of the volume at `path`, to processes that have it attached.
pub fn device_of(path: &Path) -> std::result::Result<u64, VolumeError> {
    let region = pmem::open_to_read(path).and_then(Region::private_view);
    let region = region.map_err(|error| VolumeError::region("look at", path, &error))?;
    Ok(superblock::read(&region, path, "look at")?.superblock.device())
}

/// Tells what the volume at `path` is, without attaching it.
pub fn info(path: &Path) -> std::result::Result<Info, VolumeError> {
    Ok(look(path)?.1)
}

/// What goes on on a volume.
#[derive(Clone, Debug)]
pub struct Activity {
    /// What it is, and its space.
    pub info: Info,
    /// The processes that have slots, dead ones too.
    pub processes: Vec<ProcessUse>,
    /// What all processes have called that had it attached; `None`: it has no counters.
    pub counts: Option<Counts>,
    /// How many were found dead.
    pub deaths: u64,
    /// The last deaths, the latest first.
    pub last_deaths: Vec<Death>,
    /// What its chunks are used for, in the order of the region.
    pub chunks: Vec<ChunkUse>,
}

/// Tells what goes on on the volume at `path`, without attaching it.
pub fn activity(path: &Path) -> std::result::Result<Activity, VolumeError> {
    let system = |what: &str, errno| VolumeError::system("look at", path, what, errno);
    let (view, info, liveness) = look(path)?;
    let volume = &view.volume;
    let processes = liveness.map_or(Ok(Vec::new()), |liveness| volume.processes(&liveness));
    let tables = |errno| system("its tables", errno);
    let (deaths, last_deaths) = volume.deaths().map_err(tables)?;
    Ok(Activity {
        info,
        processes: processes.map_err(tables)?,
        counts: volume.counts().map_err(tables)?,
        deaths,
        last_deaths,
        chunks: volume.chunk_uses().map_err(|errno| system("its chunks", errno))?,
    })
}

/// A view of a volume, what it tells, and whom to ask which processes live, if any may.
fn look(path: &Path) -> std::result::Result<(View, Info, Option<Liveness>), VolumeError> {
    let system = |what: &str, errno| VolumeError::system("look at", path, what, errno);
    let view = View::open("look at", path)?;
    let space = space_of(&view).map_err(|errno| system("counting its space", errno))?;
    let (liveness, unasked) = match view.in_use.then(|| who_knows(&view, path)).transpose()? {
        Some((liveness, unasked)) => (Some(liveness), unasked),
        None => (None, None),
    };
    let attached = liveness.as_ref().map_or(Ok(Vec::new()), |of| view.volume.attached_by(of));
    let attached = attached.map_err(|errno| system("its process slots", errno))?;
    let runtime = if view.in_use { Some(view.volume.runtime_use()) } else { None };
    let runtime = runtime.transpose().map_err(|errno| system("its tables", errno))?;
    let options = OpenOptions { allow_page: true, ..OpenOptions::default() };
    let region =
        Region::open(path, &options).map_err(|e| VolumeError::region("look at", path, &e))?;
    let described = describe(&view.volume, &region, space, attached, view.is_clean());
    let info = Info { unasked, runtime, ..described };
    Ok((view, info, liveness))
}

/// The space as the free map tells; without a true one, as a mark in the view tells.
fn space_of(view: &View) -> Result<Usage> {
    let volume = &view.volume;
    if view.in_use {
        return volume.free_space();
    }
    let crc = view.state.map_or(0, |state| state.free_map_crc);
    if !(view.is_clean() && volume.load_free_map(crc)?) {
        // Whether lanes or structures are damaged is fsck's to tell; here the rest is counted.
        view.undo_lanes();
        volume.rebuild_regardless()?;
    }
    volume.free_space()
}

/// Another user's anchor directory cannot be entered.
const CLOSED: &str = "another user has it in use; to read its files wait until they have ended, or \
                      ask root to mount it (`solera mount`)";
const ELSEWHERE: &str =
    "it is in use by another name, whose anchor directory is not to be seen from here";

/// Where it is asked which processes live, and why it cannot be.
fn who_knows(
    view: &View,
    path: &Path,
) -> std::result::Result<(Liveness, Option<&'static str>), VolumeError> {
    let system = |what: &str, errno| VolumeError::system("look at", path, what, errno);
    let path = os::real_path(path).unwrap_or_else(|_| path.to_owned());
    let (region, uuid) = (view.volume.region.fd(), view.found.superblock.uuid());
    let beside = anchor_path(region, &path, &uuid).map_err(|e| system("its kind", e))?;
    // Where it cannot be asked which live, all slots in use are listed.
    Ok(match Anchor::find(&view.volume.region, &view.found.superblock, &beside) {
        Anchor::At(directory) => {
            match Liveness::open("look at", &path, &directory, Openness::of_region(region)) {
                Err(error) if no_permission(error.errno()) => (Liveness::private(), Some(CLOSED)),
                opened => (opened?, None),
            }
        }
        Anchor::Elsewhere(_) => (Liveness::private(), Some(ELSEWHERE)),
    })
}
