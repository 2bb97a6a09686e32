//! The layer that every other one stands on: the region and the runtime of a volume, the layout of
//! both, checked words, lock words, and errors of whole volumes.
//!
//! [`Medium`] is what all layers have. Each layer's type owns the one of the layer below and derefs
//! to it (`volume.rs`).

pub(crate) mod call_counters;
pub(crate) mod dirhash;
pub(crate) mod error;
pub(crate) mod layout;
pub(crate) mod lockword;
pub(crate) mod map_word;
pub(crate) mod name;
pub(crate) mod record_words;
pub(crate) mod runtime;
pub(crate) mod subword;
pub(crate) mod superblock;

use crate::medium::layout::{
    BLOCK, CHUNK, DATA_AREA_MAX, HEADER_DAMAGED, HEADER_SIZE, HEADER_SWEEP, RuntimeLayout,
    SIZE_WATCHED, Superblock,
};
use crate::medium::runtime::Runtime;
use crate::{Mode, Result};
use pmem::counters::Counters;
use pmem::key::Unguarded;
use pmem::{Class, Policy, Region};
use robust::owner::Owner;
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vfs::mounts::Identity;

/// The mapped region, the decoded superblock, the runtime, and how this process attached.
pub struct Medium {
    pub(crate) region: Arc<Region>,
    pub(crate) rt: Runtime,
    pub(crate) superblock: Superblock,
    /// The first attach to which all volatile state belongs.
    pub(crate) epoch: u32,
    pub(crate) mode: Mode,
    /// Changes only while a reader recovers in memory what is its own.
    read_only: AtomicBool,
    /// Bytes in use; grows.
    size: AtomicU64,
    /// The same, or, where every call has something to do first, what no runtime says.
    calm_size: AtomicU64,
    /// Bytes of a lane's data area.
    pub(crate) data_area_bytes: u64,
    recover: Weak<dyn Recover>,
    /// Where this process counts its calls.
    pub(crate) counters: Counters,
}

/// What a ground is made of.
pub(crate) struct Parts {
    pub(crate) region: Arc<Region>,
    /// Where volatile words lie, at the same offsets: the region itself, or a reader's shadow of
    /// it.
    pub(crate) volatile: Arc<Region>,
    pub(crate) superblock: Superblock,
    pub(crate) epoch: u32,
    pub(crate) mode: Mode,
    pub(crate) read_only: bool,
}

/// The one way up, and a cold one: a waiter for a lock may find that its owner is dead, and
/// what is to be done then is known to the layers above.
pub(crate) trait Recover: Send + Sync {
    /// Recovers the owner's process if it is dead. Afterwards its locks are free.
    fn recover_if_dead(self: Arc<Self>, owner: Owner) -> Result<()>;

    /// The owner's process, if it is visible.
    fn process_of(self: Arc<Self>, owner: Owner) -> Option<u32>;

    /// Recovers a process if it is dead, until its locks are gone, or (`wholly`) all that it held;
    /// whether it is dead. The caller holds no lock.
    fn see_recovered(self: Arc<Self>, slot: u32, generation: u32, wholly: bool) -> Result<bool>;

    /// The first part of the recovery of every dead process.
    fn begin_recoveries(self: Arc<Self>) -> Result<()>;

    /// The second part of what this process has begun. The caller holds no lock.
    fn finish_recoveries(self: Arc<Self>) -> Result<()>;
}

impl Medium {
    /// `recover`: the layers that stand on it. They live as long as any call into them.
    pub(crate) fn new(parts: Parts, recover: Weak<dyn Recover>) -> Self {
        let superblock = parts.superblock;
        let layout = RuntimeLayout::of(&superblock);
        let spare = superblock.pool - (superblock.runtime + superblock.runtime_length);
        let calm_size = if parts.region.pager().is_some() { u64::MAX } else { superblock.size };
        Self {
            counters: Counters::new(&parts.region),
            rt: Runtime::new(parts.volatile, superblock.runtime, layout),
            region: parts.region,
            superblock,
            epoch: parts.epoch,
            mode: parts.mode,
            read_only: AtomicBool::new(parts.read_only),
            size: AtomicU64::new(superblock.size),
            calm_size: AtomicU64::new(calm_size),
            data_area_bytes: (spare / u64::from(superblock.lanes)).min(DATA_AREA_MAX) / BLOCK
                * BLOCK,
            recover,
        }
    }

    /// As [`Recover::recover_if_dead`].
    #[cold]
    pub(crate) fn recover_if_dead(&self, owner: Owner) -> Result<()> {
        // `None`: no call is under way.
        self.recover.upgrade().map_or(Ok(()), |engine| engine.recover_if_dead(owner))
    }

    /// As [`Recover::process_of`].
    #[cold]
    pub(crate) fn process_of(&self, owner: Owner) -> Option<u32> {
        self.recover.upgrade().and_then(|engine| engine.process_of(owner))
    }

    /// As [`Recover::see_recovered`].
    #[cold]
    pub(crate) fn see_recovered(&self, slot: u32, generation: u32, wholly: bool) -> Result<bool> {
        let engine = self.recover.upgrade();
        engine.map_or(Ok(false), |engine| engine.see_recovered(slot, generation, wholly))
    }

    /// As [`Recover::begin_recoveries`].
    #[cold]
    pub(crate) fn begin_recoveries(&self) -> Result<()> {
        self.recover.upgrade().map_or(Ok(()), Recover::begin_recoveries)
    }

    /// As [`Recover::finish_recoveries`].
    #[cold]
    pub(crate) fn finish_recoveries(&self) -> Result<()> {
        self.recover.upgrade().map_or(Ok(()), Recover::finish_recoveries)
    }

    /// Blocks are lost until the next sweep: after the next death, or at the next attach.
    pub(crate) fn demand_sweep(&self) -> Result<()> {
        Ok(self.rt.store(HEADER_SWEEP, u64::from(self.epoch))?)
    }

    /// Whether a sweep is due.
    pub(crate) fn sweep_demanded(&self) -> Result<bool> {
        Ok(self.rt.load(HEADER_SWEEP)? == u64::from(self.epoch))
    }

    /// Bytes of the volume.
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Bytes of the volume, if a call that finds the runtime saying so may begin.
    #[inline]
    pub(crate) fn calm_size(&self) -> u64 {
        self.calm_size.load(Ordering::Relaxed)
    }

    /// The volume has grown (superblock written, region extended).
    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
        if self.region.pager().is_none() {
            self.calm_size.store(size, Ordering::Relaxed);
        }
    }

    /// Maps what another process has grown the volume by.
    pub(crate) fn refresh_size(&self) -> Result<()> {
        let size = self.rt.load(HEADER_SIZE)? & !SIZE_WATCHED;
        if size > self.size() {
            if self.region.len() < size {
                self.region.extend().map_err(|error| error.errno())?;
            }
            if self.region.len() >= size {
                self.set_size(size);
            }
        }
        Ok(())
    }

    /// Whether the volume has bytes up to `end`, looking again if it seems not.
    #[inline]
    pub(crate) fn reaches(&self, end: u64) -> bool {
        end <= self.size() || self.reaches_now(end)
    }

    #[cold]
    fn reaches_now(&self, end: u64) -> bool {
        // A size that cannot be mapped is one that is not there.
        self.refresh_size().is_ok() && end <= self.size()
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
        let at = block * BLOCK;
        // A page that is only absent faults, too; and the fault would be asked for (`absent_page`).
        match self.region.pager() {
            Some(pager) => pager.is_lost(at),
            None => self.region.load64(at).is_err() && !self.region.is_hole(at),
        }
    }

    /// Whether this process only reads, and keeps the volatile lines to itself
    /// (`attach/read_only.rs`).
    pub(crate) fn is_reader(&self) -> bool {
        !std::ptr::eq(self.volatile_map(), &raw const *self.region)
    }

    /// Whether nothing in it changes while this process has it: readers keep writers out, and where
    /// damage was found nobody may change anything.
    pub(crate) fn is_unchanging(&self) -> bool {
        self.is_reader() || self.damaged() != Ok(false)
    }

    /// The map that holds the inodes' volatile lines: where the runtime is.
    #[inline]
    pub(crate) fn volatile_map(&self) -> &Region {
        self.rt.place().0
    }

    /// From now on nothing changes in this epoch.
    pub(crate) fn mark_damaged(&self) -> Result<()> {
        Ok(self.rt.store(HEADER_DAMAGED, u64::from(self.epoch))?)
    }

    /// Whether damage was found in this epoch.
    #[expect(clippy::inline_always, reason = "its words stay in registers")]
    #[inline(always)]
    pub(crate) fn damaged(&self) -> Result<bool> {
        Ok(self.rt.header::<HEADER_DAMAGED>()? == u64::from(self.epoch))
    }

    /// `EROFS` on a read-only attachment, and on any when damage was found.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() || self.damaged()? { Err(Errno::ROFS) } else { Ok(()) }
    }

    /// Whether it may not be changed by this process.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    pub(crate) fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Relaxed);
    }

    /// Why every change gives `EROFS` to this attachment, if it does.
    pub fn unchangeable(&self) -> Option<&'static str> {
        if self.damaged() != Ok(false) {
            Some("damage was found on it (`solera fsck` tells which)")
        } else if self.is_read_only() {
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

    /// Keeps the volume's memory from forked children, which would hold this process's place on it
    /// as long as they live. For a face whose children have nothing of it.
    pub fn keep_from_children(&self) -> Result<()> {
        self.region.keep_from_children()
    }

    /// Which volume this is, whatever its path leads to by now.
    pub fn volume_identity(&self) -> Identity {
        Identity { file: self.region.file(), uuid: self.superblock.uuid() }
    }

    /// What a fence promises on it, and why.
    pub fn class(&self) -> (Class, &str) {
        (self.region.class(), self.region.class_reason())
    }

    /// What stores of it need to be durable.
    pub fn policy(&self) -> Policy {
        self.region.policy()
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

/// The CPU that this thread runs on, 0 if the kernel does not tell.
#[inline]
pub(crate) fn current_cpu() -> u32 {
    // SAFETY: no arguments; glibc reads it from memory that the kernel keeps up to date.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}
