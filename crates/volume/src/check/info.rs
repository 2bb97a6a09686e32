//! Tells what a volume is and how its space is used.
//!
//! Four numbers add up to the volume's size: data, holes (free blocks in chunks that are partly in
//! use), whole free chunks, and metadata, to which everything before the pool belongs. They are
//! counted from the free map: the live one of a volume in use, the saved one after an orderly end,
//! and one rebuilt in a private view after a crash. Nothing is written.

use crate::Result;
use crate::check::Checks;
use crate::medium::layout::{BLOCK, CHUNK, PROCESS_SLOTS};
use crate::process::{Attached, SLOT_FREE};
use crate::space::alloc::Usage;
use pmem::Region;

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
    /// Bytes to which it can grow, at most.
    pub size_max_bytes: u64,
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
    /// What stores of it need to be durable: `flushed`, `fenced` or `plain`.
    pub policy: String,
    /// The same in words.
    pub policy_reason: String,
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

impl Checks {
    /// Tells what this volume is.
    pub fn info(&self) -> Result<Info> {
        let runtime = Some(self.runtime_use()?);
        let space = self.free_space()?;
        Ok(Info { runtime, ..describe(self, &self.region, space, self.attached()?, false) })
    }

    pub(crate) fn runtime_use(&self) -> Result<RuntimeUse> {
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

pub(crate) fn describe(
    volume: &Checks,
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
        size_max_bytes: fixed + volume.superblock.chunks_max * CHUNK,
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
        policy: region.policy().to_string(),
        policy_reason: region.policy().reason().to_owned(),
        flush: format!("{:?}", dispatch.flush).to_lowercase(),
        copy: format!("{:?}", dispatch.copy).to_lowercase(),
        attached,
        unasked: None,
        runtime: None,
    }
}
