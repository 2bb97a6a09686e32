//! `info` of a volume by its path: looks at it without attaching it.

use crate::Result;
use crate::attach::anchor::Anchor;
use crate::attach::no_permission;
use crate::attach::view::View;
use crate::check::info::{Info, describe};
use crate::ground::error::VolumeError;
use crate::process::Attached;
use crate::process::liveness::{Liveness, Openness, anchor_path};
use crate::space::alloc::Usage;
use pmem::{OpenOptions, Region};
use std::path::Path;

/// The UUID of the volume at `path`, in its usual form.
pub fn uuid_of(path: &Path) -> std::result::Result<String, VolumeError> {
    Ok(View::open("look at", path)?.found.superblock.uuid())
}

/// Tells what the volume at `path` is, without attaching it.
pub fn info(path: &Path) -> std::result::Result<Info, VolumeError> {
    let system = |what: &str, errno| VolumeError::system("look at", path, what, errno);
    let view = View::open("look at", path)?;
    let space = space_of(&view).map_err(|errno| system("counting its space", errno))?;
    let (attached, unasked) =
        if view.in_use { who_is_attached(&view, path)? } else { (Vec::new(), None) };
    let runtime = if view.in_use { Some(view.volume.runtime_use()) } else { None };
    let runtime = runtime.transpose().map_err(|errno| system("its tables", errno))?;
    let options = OpenOptions { allow_page: true, ..OpenOptions::default() };
    let region =
        Region::open(path, &options).map_err(|e| VolumeError::region("look at", path, &e))?;
    let described = describe(&view.volume, &region, space, attached, view.is_clean());
    Ok(Info { unasked, runtime, ..described })
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

/// The processes, and why they could not be asked.
fn who_is_attached(
    view: &View,
    path: &Path,
) -> std::result::Result<(Vec<Attached>, Option<&'static str>), VolumeError> {
    let system = |what: &str, errno| VolumeError::system("look at", path, what, errno);
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (region, uuid) = (view.volume.region.fd(), view.found.superblock.uuid());
    let beside = anchor_path(region, &path, &uuid).map_err(|e| system("its kind", e))?;
    // Where it cannot be asked which live, all slots in use are listed.
    let (liveness, unasked) =
        match Anchor::find(&view.volume.region, &view.found.superblock, &beside) {
            Anchor::At(directory) => {
                match Liveness::open("look at", &path, &directory, Openness::of_region(region)) {
                    Err(error) if no_permission(error.errno()) => {
                        (Liveness::private(), Some(CLOSED))
                    }
                    opened => (opened?, None),
                }
            }
            Anchor::Elsewhere(_) => (Liveness::private(), Some(ELSEWHERE)),
        };
    let attached = view.volume.attached_by(&liveness);
    Ok((attached.map_err(|errno| system("its process slots", errno))?, unasked))
}
