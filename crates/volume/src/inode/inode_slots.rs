//! The inode allocator: slots in inode extents.
//!
//! An inode extent is 32 KiB, aligned: 64 slots, the first of which is no inode but the extent's
//! header. Its first volatile word is the bitmap of the slots in use (bit 0, the header's own, is
//! always set). Like all of the free map it is volatile: saved at an orderly detach, rebuilt after
//! a crash.
//!
//! Whoever allocates in an extent or drops it holds its *busy* bit in the chunk record: a token,
//! never waited for (there are other extents). Freeing a slot needs no token, since the slot itself
//! keeps the extent alive until its bit is cleared. An extent without inodes gives its blocks back,
//! unless an operation is about to lock one of its slots: then it is left (`inode_reserve.rs`), and
//! the operation that gives another extent back tries this one again.
//!
//! All of that is done by operations past the gate, or by a process that is alone. An operation
//! that announces a lock and takes that back, in its locking phase or for a dead process, changes
//! nothing here.

use crate::Result;
use crate::inode::Inode;
use crate::inode::Inodes;
use crate::inode::inode_reserve::{KEPT, SLOTS};
use crate::medium::layout::{BLOCK, EXTENT_BLOCKS, EXTENT_INODES, VOLATILE};
use crate::medium::record_words::Record;
use crate::space::chunk::{Group, Kind, Mask, free_extent};
use crate::space::fullness::ROOM;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Blocks' worth of an inode number.
const INODES_PER_BLOCK: u64 = EXTENT_INODES / EXTENT_BLOCKS;
/// The bitmap of an extent without inodes.
pub(crate) const EMPTY: u64 = 1;

/// The lowest free slot, and the free ones that a record keeps with it (`inode_reserve.rs`).
fn beside(slots: u64) -> u64 {
    !slots & SLOTS << (u64::from(slots.trailing_ones()) / KEPT * KEPT)
}

/// An inode extent: its chunk and its number in the chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) chunk: u64,
    pub(crate) index: u64,
}

impl Inodes {
    #[inline]
    fn extent_first_block(&self, extent: Extent) -> u64 {
        self.chunk_start(extent.chunk) + extent.index * EXTENT_BLOCKS
    }

    /// Offset in the region of an extent's bitmap of slots.
    #[inline]
    fn slots_offset(&self, extent: Extent) -> u64 {
        self.extent_slots_offset(extent.chunk, extent.index)
    }

    #[inline]
    pub(crate) fn slots(&self, extent: Extent) -> Result<u64> {
        Ok(self.region.shared_load(self.slots_offset(extent))?)
    }

    #[inline]
    pub(crate) fn extent_of(&self, ino: u64) -> Result<(Extent, u64)> {
        let (block, slot) = (ino / EXTENT_INODES * EXTENT_BLOCKS, ino % EXTENT_INODES);
        if slot == 0 || !self.in_pool(block, EXTENT_BLOCKS) {
            return Err(Errno::IO);
        }
        let (chunk, first) = self.chunk_of(block);
        Ok((Extent { chunk, index: first / EXTENT_BLOCKS }, slot))
    }

    /// The number of an extent's header.
    pub(crate) fn first_inode(&self, extent: Extent) -> u64 {
        self.extent_first_block(extent) * INODES_PER_BLOCK
    }

    /// Whether there is such an extent.
    #[inline]
    pub(crate) fn is_extent(&self, extent: Extent) -> Result<bool> {
        Ok(self.mask(extent.chunk, Mask::Extents)? >> extent.index & 1 != 0)
    }

    /// Whether the free map says that this inode is in use.
    #[inline]
    pub(crate) fn inode_in_use(&self, ino: u64) -> Result<bool> {
        let Ok((extent, slot)) = self.extent_of(ino) else { return Ok(false) };
        Ok(self.is_extent(extent)? && self.slots(extent)? >> slot & 1 != 0)
    }

    /// The same, of one that was found to be inside the pool ([`Inodes::inode`]).
    #[expect(clippy::inline_always, reason = "each call that takes a lock asks")]
    #[inline(always)]
    pub(crate) fn is_used(&self, inode: Inode) -> Result<bool> {
        let (extent, slot) = (inode.0 / EXTENT_INODES, inode.0 % EXTENT_INODES);
        let (chunk, first) = self.chunk_of(extent * EXTENT_BLOCKS);
        if !self.is_extent(Extent { chunk, index: first / EXTENT_BLOCKS })? {
            return Ok(false);
        }
        Ok(self.slots_of(Inode(extent * EXTENT_INODES))? >> slot & 1 != 0)
    }

    /// The bitmap of the extent whose header has this number.
    #[inline]
    pub(crate) fn slots_of(&self, header: Inode) -> Result<u64> {
        Ok(self.region.shared_load(header.at(VOLATILE))?)
    }

    /// Takes a free inode for an operation, of this record. `ENOSPC` if there is none and no room
    /// for another extent.
    pub(crate) fn take_inode(&self, record: &Record<'_>, op: u32) -> Result<Inode> {
        match self.take_own(record, op)? {
            Some(ino) => Ok(Inode(ino)),
            None => Ok(Inode(self.take_any(record)?.ok_or(Errno::NOSPC)?)),
        }
    }

    /// An inode that the record keeps, if it is at home.
    #[inline]
    fn take_own(&self, record: &Record<'_>, op: u32) -> Result<Option<u64>> {
        let Some(ino) = record.take_kept()? else { return Ok(None) };
        if self.is_home(ino)? {
            return Ok(Some(ino));
        }
        self.release_inode(ino)?;
        self.return_kept_by(op)?;
        Ok(None)
    }

    /// Whether this process may take an inode without a thought of memory nodes.
    #[inline]
    pub(crate) fn is_home(&self, ino: u64) -> Result<bool> {
        let group = || Ok::<_, Errno>(self.group_of(self.extent_of(ino)?.0.chunk));
        Ok(!self.numa_on() || group()? == self.local_group())
    }

    fn take_any(&self, record: &Record<'_>) -> Result<Option<u64>> {
        if let Some(ino) = self.take_slot(record)? {
            return Ok(Some(ino));
        }
        if let Some(ino) = self.take_new_extent(record)? {
            return Ok(Some(ino));
        }
        if !self.return_kept()? {
            return Ok(None);
        }
        // What was kept may have been all of its extent, which is blocks again.
        match self.take_slot(record)? {
            Some(ino) => Ok(Some(ino)),
            None => self.take_new_extent(record),
        }
    }

    /// A slot of an extent that exists: in the chunk that served this process last, if it is at
    /// home; in the one that served a group last, or gained room last, of any group; else in any
    /// that has room. (New extents only where there is none: extents with a few old inodes would
    /// stay as they are, and pin their chunks.)
    fn take_slot(&self, record: &Record<'_>) -> Result<Option<u64>> {
        let hint = &self.inode_chunk;
        if let Some(chunk) = hint.load(Ordering::Relaxed).checked_sub(1)
            && chunk < self.chunks()
            && (!self.numa_on() || self.group_of(chunk) == self.local_group())
            && let Some(ino) = self.take_slot_in(chunk, record)?
        {
            return Ok(Some(ino));
        }
        let found = self.take_slot_anywhere(record)?;
        if let Some(ino) = found {
            hint.store(self.extent_of(ino)?.0.chunk + 1, Ordering::Relaxed);
        }
        Ok(found)
    }

    fn take_slot_anywhere(&self, record: &Record<'_>) -> Result<Option<u64>> {
        let groups = self.groups_by_preference()?;
        for &group in &groups {
            let chunk = self.group_load(group, Group::InodeCursor)?;
            if self.group_chunks(group).contains(&chunk)
                && let Some(ino) = self.take_slot_in(chunk, record)?
            {
                return Ok(Some(ino));
            }
        }
        for group in groups {
            if let Some(ino) = self.search_slot(group, record)? {
                return Ok(Some(ino));
            }
        }
        Ok(None)
    }

    /// A slot in a chunk of a group that has room for inodes.
    fn search_slot(&self, group: u64, record: &Record<'_>) -> Result<Option<u64>> {
        let mut taken = None;
        let mut take = |chunk, _| {
            taken = self.take_slot_in(chunk, record)?;
            if taken.is_none() {
                self.note_no_room(chunk)?;
            }
            Ok(taken.is_some())
        };
        // Each that is asked in vain leaves the class, unless somebody works there.
        let found = self.index_find(ROOM, &self.group_chunks(group), u32::MAX, &mut take)?;
        if let Some(chunk) = found {
            self.group_store(group, Group::InodeCursor, chunk)?;
        }
        Ok(taken)
    }

    /// An extent may have a free slot (again); gives whether it had none as far as known.
    fn note_room(&self, extent: Extent) -> Result<bool> {
        let news = self.mask_set(extent.chunk, Mask::Room, extent.index)?;
        self.index_enter(ROOM, extent.chunk)?;
        Ok(news)
    }

    /// A chunk was asked for a slot in vain.
    fn note_no_room(&self, chunk: u64) -> Result<()> {
        let capacity =
            || Ok::<_, Errno>(self.mask(chunk, Mask::Extents)? & self.mask(chunk, Mask::Room)?);
        if capacity()? == 0 {
            self.index_leave(ROOM, chunk)?;
            if capacity()? != 0 {
                self.index_enter(ROOM, chunk)?;
            }
        }
        Ok(())
    }

    fn take_slot_in(&self, chunk: u64, record: &Record<'_>) -> Result<Option<u64>> {
        let mut candidates = self.mask(chunk, Mask::Extents)? & self.mask(chunk, Mask::Room)?;
        candidates &= !self.mask(chunk, Mask::Busy)?;
        while candidates != 0 {
            let extent = Extent { chunk, index: u64::from(candidates.trailing_zeros()) };
            candidates &= candidates - 1;
            if !self.mask_set(chunk, Mask::Busy, extent.index)? {
                continue;
            }
            // Only now is it certain that the extent is (still) one.
            let alive = self.mask(chunk, Mask::Extents)? >> extent.index & 1 != 0;
            let ino = if alive { self.take_slot_of(extent, record)? } else { None };
            self.mask_clear(chunk, Mask::Busy, extent.index)?;
            if ino.is_some() {
                // It keeps the extent alive.
                return Ok(ino);
            }
            self.drop_if_empty(extent)?;
        }
        Ok(None)
    }

    /// Takes a slot, and the free ones beside it for the record to keep; the caller holds the
    /// extent's token.
    fn take_slot_of(&self, extent: Extent, record: &Record<'_>) -> Result<Option<u64>> {
        let offset = self.slots_offset(extent);
        let mut slots = self.slots(extent)?;
        while slots != u64::MAX {
            let taken = beside(slots);
            match self.region.shared_cas(offset, slots, slots | taken)? {
                Ok(_) => return self.keep_but_one(extent, taken, record).map(Some),
                Err(found) => slots = found,
            }
        }
        self.mask_clear(extent.chunk, Mask::Room, extent.index)?;
        if self.slots(extent)? != u64::MAX {
            self.note_room(extent)?;
        }
        Ok(None)
    }

    /// Slots of an extent were taken: one for the operation, the others for its record to keep.
    fn keep_but_one(&self, extent: Extent, taken: u64, record: &Record<'_>) -> Result<u64> {
        let (first, slot) = (self.first_inode(extent), u64::from(taken.trailing_zeros()));
        record.keep_all(first, taken & (taken - 1))?;
        let group = self.group_of(extent.chunk);
        self.group_add(group, Group::Inodes, u64::from(taken.count_ones()))?;
        Ok(first + slot)
    }

    /// Drops an extent without inodes, unless somebody holds its token (who then does this), or a
    /// lock in it is announced: then it is left. Gives whether it was dropped.
    ///
    /// CRASH: the caller works, so a death at any step makes a sweep due, which waits for the
    /// others that work: it writes all masks anew (no token stays set), frees the blocks of an
    /// extent that no mask shows any more, drops one without inodes, and voids the words of what is
    /// left. (One that is alone dies before the volume is called clean: the next attach recovers.)
    pub(super) fn drop_if_empty(&self, extent: Extent) -> Result<bool> {
        let chunk = extent.chunk;
        while self.is_extent(extent)?
            && self.slots(extent)? == EMPTY
            && self.mask_set(chunk, Mask::Busy, extent.index)?
        {
            if !self.is_extent(extent)? || self.slots(extent)? != EMPTY {
                self.mask_clear(chunk, Mask::Busy, extent.index)?;
                continue;
            }
            self.mask_clear(chunk, Mask::Room, extent.index)?;
            self.mask_clear(chunk, Mask::Extents, extent.index)?;
            let start = self.extent_first_block(extent) * BLOCK;
            if self.is_announced(start..start + EXTENT_BLOCKS * BLOCK)? {
                // Somebody is about to lock a slot that he will find free: it must be one still.
                self.mask_set(chunk, Mask::Extents, extent.index)?;
                self.note_room(extent)?;
                self.mask_clear(chunk, Mask::Busy, extent.index)?;
                // Behind the token: who holds it sees to an extent that others find without inodes.
                self.leave_extent(extent)?;
                return Ok(false);
            }
            self.mask_clear(chunk, Mask::Busy, extent.index)?;
            self.clear(chunk, extent.index * EXTENT_BLOCKS, EXTENT_BLOCKS)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Makes an extent and takes its first slot.
    fn take_new_extent(&self, record: &Record<'_>) -> Result<Option<u64>> {
        if self.free_blocks()? < EXTENT_BLOCKS + self.reserve() {
            return Ok(None);
        }
        let Some(extent) = self.take_extent()? else { return Ok(None) };
        let (chunk, index) = (extent.chunk, extent.index);
        // The first slots are ours from the start and keep the extent alive, so no token is needed.
        let taken = beside(EMPTY);
        self.region.shared_store(self.slots_offset(extent), EMPTY | taken)?;
        self.mask_set(chunk, Mask::Extents, index)?;
        self.note_room(extent)?;
        self.group_store(self.group_of(chunk), Group::InodeCursor, chunk)?;
        self.keep_but_one(extent, taken, record).map(Some)
    }

    /// Eight aligned blocks: in a metadata chunk, in a chunk newly broken, or in a data chunk.
    fn take_extent(&self) -> Result<Option<Extent>> {
        let groups = self.groups_by_preference()?;
        if let Some(extent) = self.take_extent_of(&groups, Kind::Metadata)? {
            return Ok(Some(extent));
        }
        let index = EXTENT_INODES - 1;
        let last = index * EXTENT_BLOCKS;
        if let Some(chunk) = self.take_free_chunk(Kind::Metadata, last, EXTENT_BLOCKS)? {
            return Ok(Some(Extent { chunk, index }));
        }
        if let Some(extent) = self.take_extent_of(&groups, Kind::Data)? {
            return Ok(Some(extent));
        }
        // The index shows a few chunks of each class only: before a create fails, all are looked
        // at.
        for chunk in 0..self.chunks() {
            let kind = self.chunk_kind(chunk)?;
            if matches!(kind, Kind::Data | Kind::Metadata)
                && let Some(index) = free_extent(&self.bitmap(chunk)?)
                && self.claim(chunk, kind, index * EXTENT_BLOCKS, EXTENT_BLOCKS)?
            {
                return Ok(Some(Extent { chunk, index }));
            }
        }
        Ok(None)
    }

    fn take_extent_of(&self, groups: &[u64], kind: Kind) -> Result<Option<Extent>> {
        for &group in groups {
            let chunks = self.group_chunks(group);
            let mut fits = |chunk, _| Ok(free_extent(&self.bitmap(chunk)?).is_some());
            while let Some(chunk) = self.index_fullest(&chunks, kind, EXTENT_BLOCKS, &mut fits)? {
                let Some(index) = free_extent(&self.bitmap(chunk)?) else { continue };
                if self.claim(chunk, kind, index * EXTENT_BLOCKS, EXTENT_BLOCKS)? {
                    return Ok(Some(Extent { chunk, index }));
                }
            }
        }
        Ok(None)
    }

    /// Frees an inode; the last one of an extent takes the extent along. `EIO` if it is not in use.
    pub(crate) fn release_inode(&self, ino: u64) -> Result<()> {
        let (extent, slot) = self.extent_of(ino)?;
        if self.mask(extent.chunk, Mask::Extents)? >> extent.index & 1 == 0 {
            return Err(Errno::IO);
        }
        let before = self.region.shared_and(self.slots_offset(extent), !(1 << slot))?;
        if before >> slot & 1 == 0 {
            return Err(Errno::IO);
        }
        let group = self.group_of(extent.chunk);
        self.group_add(group, Group::Inodes, u64::MAX)?;
        // Whoever takes the bit of room away looks at the slots once more behind that.
        let known = self.mask(extent.chunk, Mask::Room)? >> extent.index & 1 != 0;
        if !known && self.note_room(extent)? {
            self.group_store(group, Group::InodeCursor, extent.chunk)?;
        }
        if before & !(1 << slot) == EMPTY {
            self.return_left()?;
            self.drop_if_empty(extent)?;
        }
        Ok(())
    }
}
