//! The free map as a whole: saved at the last orderly detach, loaded at the next first attach.
//!
//! It is not copied anywhere: the chunk records stay where they are in the runtime, the bitmaps of
//! inode slots in the extents' headers. Saving flushes them and gives a crc32c for the state block;
//! loading compares it. Whatever does not fit (a crash, another build, a flipped bit) means: rebuild.
//! Counters, cursors and hints are not saved but counted anew.
//!
//! Callers are alone: the last to detach, or the first to attach.

use crate::Result;
use crate::chunk::{Group, Kind, Mask, RUN_BITS, count_free};
use crate::layout::{CHUNK_RECORD, LINE};
use crate::volume::Volume;

/// Sums of a group's chunks.
#[derive(Clone, Copy, Default)]
struct Sums {
    blocks: u64,
    chunks: u64,
    inodes: u64,
}

impl Volume {
    /// crc32c of the free map as it is: bitmap, kind and extents of every chunk, slots of every extent.
    fn free_map_crc(&self) -> Result<u32> {
        let mut crc = 0;
        for chunk in 0..self.chunks() {
            let extents = self.mask(chunk, Mask::Extents)?;
            for word in self.bitmap(chunk)? {
                crc = crc32c::crc32c_append(crc, &word.to_le_bytes());
            }
            crc = crc32c::crc32c_append(crc, &(self.chunk_kind(chunk)? as u64).to_le_bytes());
            crc = crc32c::crc32c_append(crc, &extents.to_le_bytes());
            for index in bits_of(extents) {
                let slots = self.extent_slots(chunk, index)?;
                crc = crc32c::crc32c_append(crc, &slots.to_le_bytes());
            }
        }
        Ok(crc)
    }

    /// Makes the free map durable where it is; gives its crc for the state block.
    pub(crate) fn save_free_map(&self) -> Result<u32> {
        let (map, base) = self.rt.place();
        let records = self.rt.layout.chunks;
        let mut pending =
            self.region.nothing().and(map.flush(base + records, self.chunks() * CHUNK_RECORD));
        for chunk in 0..self.chunks() {
            for index in bits_of(self.mask(chunk, Mask::Extents)?) {
                let line = self.region.flush(self.extent_slots_offset(chunk, index), LINE);
                pending = pending.and(line);
            }
        }
        // PERSIST: the map is durable before the state block says that it can be trusted.
        let _ = pending.fence();
        self.free_map_crc()
    }

    /// Takes the saved free map over if it has this crc, and counts what is counted; `false` if it
    /// cannot be trusted: the caller rebuilds it.
    pub(crate) fn load_free_map(&self, crc: u32) -> Result<bool> {
        if self.free_map_crc()? != crc {
            return Ok(false);
        }
        for group in 0..self.groups() {
            let mut sums = Sums::default();
            for chunk in self.group_chunks(group) {
                let bits = self.bitmap(chunk)?;
                let kind = self.chunk_kind(chunk)?;
                let extents = self.mask(chunk, Mask::Extents)?;
                self.write_record(chunk, &bits, kind, extents)?;
                sums.blocks += count_free(&bits);
                sums.chunks += u64::from(kind == Kind::Free);
                for index in bits_of(extents) {
                    sums.inodes += u64::from(self.extent_slots(chunk, index)?.count_ones()) - 1;
                }
            }
            self.write_group(group, sums.blocks, sums.chunks, sums.inodes)?;
        }
        Ok(true)
    }

    /// Sets a group's counters and puts its cursors to the group's start.
    pub(crate) fn write_group(
        &self,
        group: u64,
        blocks: u64,
        chunks: u64,
        inodes: u64,
    ) -> Result<()> {
        self.group_store(group, Group::Blocks, blocks)?;
        self.group_store(group, Group::Chunks, chunks)?;
        self.group_store(group, Group::Inodes, inodes)?;
        let cursors =
            [Group::DataCursor, Group::MetadataCursor, Group::FreeCursor, Group::InodeCursor];
        self.group_store(group, Group::Longest, RUN_BITS)?;
        for cursor in cursors {
            self.group_store(group, cursor, self.group_chunks(group).start)?;
        }
        Ok(())
    }
}

/// The numbers of the bits that are set, ascending.
pub(crate) fn bits_of(mut word: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = u64::from(word.trailing_zeros());
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}
