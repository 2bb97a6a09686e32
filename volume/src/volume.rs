//! A volume as one process sees it: the mapped region, the decoded superblock, the runtime, and
//! this process's place in it.

use crate::ground::layout::{ANNEX, BLOCK, CHUNK, RuntimeLayout, Superblock};
use crate::ground::runtime::Runtime;
use crate::process::Local;
use crate::process::alone::Words;
use crate::process::liveness::Liveness;
use crate::{Mode, Result};
use pmem::Region;
use pmem::key::Unguarded;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use vfs::mounts::Identity;

/// A volume, attached by this process. Detached when dropped.
pub struct Volume {
    pub(crate) region: Arc<Region>,
    pub(crate) rt: Runtime,
    pub(crate) superblock: Superblock,
    /// The first attach to which all volatile state belongs.
    pub(crate) epoch: u32,
    pub(crate) mode: Mode,
    pub(crate) read_only: bool,
    pub(crate) liveness: Liveness,
    /// What `alone.rs` looks at.
    pub(crate) words: Option<Words>,
    /// This process's slot; changes in a forked child.
    slot: AtomicU32,
    slot_generation: AtomicU32,
    /// Bytes in use; grows.
    size: AtomicU64,
    /// Bytes of a lane's annex.
    pub(crate) annex: u64,
    /// What only this process knows.
    pub(crate) local: Local,
}

/// What an attachment is made of.
pub(crate) struct Parts {
    pub(crate) region: Arc<Region>,
    /// Where volatile words lie, at the same offsets: the region itself, or a reader's shadow of
    /// it.
    pub(crate) volatile: Arc<Region>,
    pub(crate) superblock: Superblock,
    pub(crate) epoch: u32,
    pub(crate) mode: Mode,
    pub(crate) read_only: bool,
    pub(crate) liveness: Liveness,
}

impl Volume {
    /// Puts the parts together; the slot is still to be taken.
    pub(crate) fn assemble(parts: Parts) -> Self {
        let layout = Self::runtime_layout(&parts.superblock);
        let rt = Runtime::new(parts.volatile, parts.superblock.runtime, layout);
        let sb = &parts.superblock;
        let spare = sb.pool - (sb.runtime + sb.runtime_length);
        let annex = (spare / u64::from(sb.lanes)).min(ANNEX) / BLOCK * BLOCK;
        Self {
            words: Words::new(&rt),
            rt,
            annex,
            size: AtomicU64::new(parts.superblock.size),
            region: parts.region,
            superblock: parts.superblock,
            epoch: parts.epoch,
            mode: parts.mode,
            read_only: parts.read_only,
            liveness: parts.liveness,
            slot: AtomicU32::new(u32::MAX),
            slot_generation: AtomicU32::new(0),
            local: Local::default(),
        }
    }

    pub(crate) fn runtime_layout(superblock: &Superblock) -> RuntimeLayout {
        RuntimeLayout::new(
            u64::from(superblock.lanes),
            u64::from(superblock.tables),
            superblock.chunks_max,
        )
    }

    /// This process's slot.
    pub(crate) fn slot(&self) -> u32 {
        self.slot.load(Ordering::Relaxed)
    }

    /// The slot's generation.
    pub(crate) fn slot_generation(&self) -> u32 {
        self.slot_generation.load(Ordering::Relaxed)
    }

    /// A forked child has its own slot.
    pub(crate) fn set_slot(&self, slot: u32, generation: u32) {
        self.slot.store(slot, Ordering::Relaxed);
        self.slot_generation.store(generation, Ordering::Relaxed);
    }

    /// Bytes of the volume.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// The volume has grown (superblock written, region extended).
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }

    /// Offset of the pool's first byte.
    pub(crate) fn pool(&self) -> u64 {
        self.superblock.pool
    }

    /// Chunks in the pool now.
    pub(crate) fn chunks(&self) -> u64 {
        (self.size() - self.pool()) / CHUNK
    }

    /// Whether a block number lies in the pool.
    #[expect(clippy::inline_always, reason = "its words stay in registers")]
    #[inline(always)]
    pub(crate) fn in_pool(&self, block: u64, blocks: u64) -> bool {
        let Some(end) = block.checked_add(blocks).and_then(|end| end.checked_mul(BLOCK)) else {
            return false;
        };
        block >= self.pool() / BLOCK && self.reaches(end)
    }

    /// Whether a block's memory cannot be read.
    pub(crate) fn is_lost_block(&self, block: u64) -> bool {
        self.region.load64(block * BLOCK).is_err() && !self.region.is_hole(block * BLOCK)
    }

    /// The map that holds the inodes' volatile lines: where the runtime is.
    #[inline]
    pub(crate) fn volatile_map(&self) -> &Region {
        self.rt.place().0
    }

    /// `EROFS` on a read-only attachment, and on any when damage was found.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only || self.damaged()? { Err(Errno::ROFS) } else { Ok(()) }
    }

    /// Why every change gives `EROFS` to this attachment, if it does.
    pub fn unchangeable(&self) -> Option<&'static str> {
        if self.damaged() != Ok(false) {
            Some("damage was found on it (`solera fsck` tells which)")
        } else if self.read_only {
            Some("there is no permission to write to it, or its file system is read-only")
        } else {
            None
        }
    }

    /// Guards the volume's memory against the rest of this process: from here on a thread reaches
    /// it only between [`pmem::key::open`] and [`pmem::key::close`], which is the caller's to do
    /// around every call, this one's detaching included. For a process that runs code which is not
    /// trusted with pointers. No other thread uses the volume meanwhile.
    pub fn guard(&self) -> std::result::Result<(), Unguarded> {
        self.region.guard()
    }

    /// Which volume this is, whatever its path leads to by now.
    pub fn volume_identity(&self) -> Identity {
        Identity { file: self.region.file(), uuid: self.superblock.uuid() }
    }

    /// The mode this process attached with.
    pub fn mode(&self) -> Mode {
        self.mode
    }
}

/// Now, in nanoseconds since the epoch (the coarse clock: what the kernel's file systems use).
#[inline]
pub(crate) fn now() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
