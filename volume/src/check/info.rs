//! Tells what a volume is and how its space is used.
//!
//! Four numbers add up to the volume's size: data, holes (free blocks in chunks that are partly in
//! use), whole free chunks, and metadata, to which everything before the pool belongs. They are
//! counted from the free map: the live one of a volume in use, the saved one after an orderly end,
//! and one rebuilt in a private view after a crash. Nothing is written.

use crate::Result;
use crate::attach::anchor::Anchor;
use crate::attach::no_permission;
use crate::attach::view::View;
use crate::ground::error::VolumeError;
use crate::ground::layout::{BLOCK, CHUNK, PROCESS_SLOTS};
use crate::process::liveness::{Liveness, Openness, anchor_path};
use crate::process::{Attached, SLOT_FREE};
use crate::space::alloc::Usage;
use crate::volume::Volume;
use pmem::{OpenOptions, Region};
use std::path::Path;

/// A volume, for people and for scripts.
#[derive(Clone, Debug)]
pub struct Info {
    /// The name given at format.
    pub label: String,
    /// Its unique number.
    pub uuid: String,
    /// Version of the format.
    pub version: u32,
    /// Allocation groups.
    pub groups: u32,
    /// The last process to detach left it in order, and none has attached it since.
    pub clean: bool,
    /// Bytes of the volume: the sum of the next four.
    pub size_bytes: u64,
    /// In use for file contents.
    pub data_bytes: u64,
    /// Free, in chunks that are partly in use.
    pub hole_bytes: u64,
    /// Free, in whole chunks of 2 MiB: what becomes huge pages.
    pub free_aligned_bytes: u64,
    /// In use for everything else: superblocks, lanes, runtime, inodes, directories, map nodes.
    pub metadata_bytes: u64,
    /// Holes and whole chunks together.
    pub free_bytes: u64,
    /// Of the free bytes those that can be had: the file system beneath may have less.
    pub available_bytes: u64,
    /// Bytes of memory that the region's file has.
    pub allocated_bytes: u64,
    /// Bytes that the file system beneath has left; `None` where there is no such limit.
    pub beneath_free_bytes: Option<u64>,
    /// Bytes of the volume that it could not supply, if all were wanted now.
    pub missing_bytes: u64,
    /// Files, directories and all other objects.
    pub inodes_used: u64,
    /// What a fence promises on this memory.
    pub class: String,
    /// How that was found.
    pub class_reason: String,
    /// The flush instruction in use.
    pub flush: String,
    /// The copy instructions in use.
    pub copy: String,
    /// The processes that have attached it.
    pub attached: Vec<Attached>,
    /// Why it could not be asked which of these live: then all that the volume has noted are
    /// listed.
    pub unasked: Option<&'static str>,
    /// What they use besides space; `None` if no process has attached it.
    pub runtime: Option<RuntimeUse>,
}

/// What the processes on a volume use of its tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuntimeUse {
    /// Process slots, also of dead processes that were not found yet.
    pub processes: u64,
    /// Open file descriptions.
    pub open_files: u64,
    /// Record locks and `flock` locks, held or waited for.
    pub file_locks: u64,
    /// Modifying calls under way.
    pub calls: u64,
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

impl Volume {
    /// Tells what this volume is.
    pub fn info(&self) -> Result<Info> {
        let runtime = Some(self.runtime_use()?);
        let space = self.free_space()?;
        Ok(Info { runtime, ..describe(self, &self.region, space, self.attached()?, false) })
    }

    fn runtime_use(&self) -> Result<RuntimeUse> {
        let mut used = RuntimeUse {
            processes: 0,
            open_files: self.descriptions_in_use()?,
            file_locks: self.locks_in_use()?,
            calls: 0,
        };
        for slot in 0..PROCESS_SLOTS as u32 {
            used.processes += u64::from(self.slot_state(slot)?.state != SLOT_FREE);
        }
        for index in 0..self.rt.layout.op_count as u32 {
            used.calls += u64::from(self.operation_owner(index)?.is_some());
        }
        Ok(used)
    }
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

fn describe(
    volume: &Volume,
    region: &Region,
    space: Usage,
    attached: Vec<Attached>,
    clean: bool,
) -> Info {
    let dispatch = region.dispatch();
    let fixed = volume.pool();
    let size_bytes = fixed + volume.chunks() * CHUNK;
    let free_bytes = space.free_blocks() * BLOCK;
    let beneath = region.beneath();
    let missing_bytes = beneath.map_or(0, |found| found.missing(size_bytes));
    Info {
        label: volume.superblock.label(),
        uuid: volume.superblock.uuid(),
        version: volume.superblock.version,
        groups: volume.superblock.groups,
        clean,
        size_bytes,
        data_bytes: space.data_blocks * BLOCK,
        hole_bytes: space.hole_blocks * BLOCK,
        free_aligned_bytes: space.free_chunks * CHUNK,
        metadata_bytes: fixed + space.metadata_blocks * BLOCK,
        free_bytes,
        available_bytes: beneath
            .map_or(free_bytes, |found| found.available(size_bytes, free_bytes)),
        allocated_bytes: beneath.map_or(size_bytes, |found| found.allocated.min(size_bytes)),
        beneath_free_bytes: beneath.and_then(|found| found.free),
        missing_bytes,
        inodes_used: space.inodes,
        class: region.class().to_string(),
        class_reason: region.class_reason().to_owned(),
        flush: format!("{:?}", dispatch.flush).to_lowercase(),
        copy: format!("{:?}", dispatch.copy).to_lowercase(),
        attached,
        unasked: None,
        runtime: None,
    }
}
