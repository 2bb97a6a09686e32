//! The free map as a whole: saved at the last orderly detach, loaded at the next first attach.
//!
//! It is not copied anywhere: the chunk records stay where they are in the runtime, the bitmaps of
//! inode slots in the extents' headers. Saving flushes them and gives a crc32c for the state block;
//! loading compares it. Whatever does not fit (a crash, another build, a flipped bit) means:
//! rebuild. Counters, cursors and hints are not saved but counted anew.
//!
//! Callers are alone: the last to detach, or the first to attach.

use crate::Result;
use crate::inject::{Bug, injected};
use crate::medium::layout::{BLOCK, CHUNK_BLOCKS, CHUNK_RECORD, EXTENT_BLOCKS, LINE, VOLATILE};
use crate::space::Space;
use crate::space::chunk::{Bitmap, Group, Kind, Mask, Record, count_free};
use crate::space::fullness::{Draft, Words};
use pmem::FenceBatch;
use std::ops::Range;

/// Sums of a group's chunks.
#[derive(Clone, Copy, Default)]
struct Sums {
    blocks: u64,
    chunks: u64,
    inodes: u64,
}

/// Chunks whose records lie in a page.
const PAGE_RECORDS: u64 = BLOCK / CHUNK_RECORD;

/// Their bytes where none was ever used.
const ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];

/// Chunks that may be in use, by the pages of their records; others in one part.
fn in_pages((chunks, may): (Range<u64>, bool)) -> impl Iterator<Item = (Range<u64>, bool)> {
    let mut at = chunks.start;
    std::iter::from_fn(move || {
        let start = at;
        let end = if may { (at / PAGE_RECORDS + 1) * PAGE_RECORDS } else { chunks.end };
        at = end.min(chunks.end);
        (start < at).then_some((start..at, may))
    })
}

/// Bytes that are summed up at once: a checksum of few bytes costs as much as one of many.
const PIECE: usize = 4096;

/// The checksum of the free map: of every chunk that is not wholly free its number, bitmap, kind
/// and extents, and the slots of every extent. So what a volume never used costs nothing.
struct Checksum {
    crc: u32,
    piece: Vec<u8>,
}

impl Checksum {
    fn new() -> Self {
        Self { crc: 0, piece: Vec::with_capacity(PIECE + LINE as usize) }
    }

    fn add(&mut self, word: u64) {
        self.piece.extend_from_slice(&word.to_le_bytes());
    }

    /// Between two chunks.
    fn step(&mut self) {
        if self.piece.len() >= PIECE {
            self.crc = crc32c::crc32c_append(self.crc, &self.piece);
            self.piece.clear();
        }
    }

    fn end(self) -> u32 {
        crc32c::crc32c_append(self.crc, &self.piece)
    }
}

impl Space {
    /// Adds a chunk to the checksum; gives its record and how many inodes it holds.
    fn sum_chunk(&self, chunk: u64, checksum: &mut Checksum) -> Result<(Record, u64)> {
        let record = self.record(chunk)?;
        if record.kind == Kind::Free && record.extents == 0 && record.bits == Bitmap::default() {
            return Ok((record, 0));
        }
        checksum.add(chunk);
        record.bits.iter().for_each(|&word| checksum.add(word));
        checksum.add(record.kind as u64);
        checksum.add(record.extents);
        let mut inodes = 0;
        for index in bits_of(record.extents) {
            let slots = self.extent_slots(chunk, index)?;
            inodes += u64::from(slots.count_ones()).saturating_sub(1);
            checksum.add(slots);
        }
        checksum.step();
        Ok((record, inodes))
    }

    /// The bitmap of slots in use of the inode extent that is number `index` of the chunk.
    pub(crate) fn extent_slots(&self, chunk: u64, index: u64) -> Result<u64> {
        Ok(self.region.shared_load(self.extent_slots_offset(chunk, index))?)
    }

    /// Where that bitmap lies in the region: in the extent's header.
    #[inline]
    pub(crate) fn extent_slots_offset(&self, chunk: u64, index: u64) -> u64 {
        (self.chunk_start(chunk) + index * EXTENT_BLOCKS) * BLOCK + VOLATILE
    }

    /// Whether the records of these chunks, of one page at most, are all zeros: free, with fresh
    /// hints.
    fn are_untouched(&self, chunks: &Range<u64>) -> Result<bool> {
        let (map, base) = self.rt.place();
        let mut bytes = ZEROS;
        let bytes = &mut bytes[..((chunks.end - chunks.start) * CHUNK_RECORD) as usize];
        map.shared_read(base + self.rt.layout.chunks + chunks.start * CHUNK_RECORD, bytes)?;
        Ok(*bytes == ZEROS[..bytes.len()])
    }

    /// The checksum of the free map as it is.
    fn free_map_crc(&self) -> Result<u32> {
        let mut checksum = Checksum::new();
        for chunk in self.backed().within(0..self.chunks()) {
            self.sum_chunk(chunk, &mut checksum)?;
        }
        Ok(checksum.end())
    }

    /// Makes the free map durable where it is; gives its crc for the state block. The caller has
    /// given back what records keep.
    pub(crate) fn save_free_map(&self) -> Result<u32> {
        let (map, base) = self.rt.place();
        let records = self.rt.layout.chunks;
        let mut pending = FenceBatch::default();
        for chunk in self.backed().within(0..self.chunks()) {
            let record = base + records + chunk * CHUNK_RECORD;
            pending.add(map.flush(record, CHUNK_RECORD));
            for index in bits_of(self.mask(chunk, Mask::Extents)?) {
                pending.add(self.region.flush(self.extent_slots_offset(chunk, index), LINE));
            }
        }
        // PERSIST: the map is durable before the state block says that it can be trusted.
        let _ = pending.fence();
        self.free_map_crc()
    }

    /// Takes the saved free map over if it has this crc, and counts what is counted; `false` if it
    /// cannot be trusted: the caller rebuilds it. Records whose hints are right already are not
    /// written: every page written would be a page fault.
    pub(crate) fn load_free_map(&self, crc: u32) -> Result<bool> {
        let (mut checksum, backed) = (Checksum::new(), self.backed());
        let (mut groups, mut stale) = (Vec::new(), Vec::new());
        let mut fullness = Draft::new(self.chunks());
        for group in 0..self.groups() {
            let mut sums = Sums::default();
            let parts = backed.parts(self.group_chunks(group)).flat_map(in_pages);
            for (chunks, may_be_used) in parts {
                if !may_be_used || self.are_untouched(&chunks)? {
                    let count = chunks.end - chunks.start;
                    sums.blocks += count * CHUNK_BLOCKS;
                    sums.chunks += count;
                    fullness.add_free(chunks);
                    continue;
                }
                for chunk in chunks {
                    let (record, inodes) = self.sum_chunk(chunk, &mut checksum)?;
                    let free = count_free(&record.bits);
                    sums.blocks += free;
                    sums.chunks += u64::from(record.kind == Kind::Free);
                    sums.inodes += inodes;
                    fullness.add(chunk, record.kind, free, record.extents);
                    if !record.has_fresh_hints(free) {
                        stale.push(chunk);
                    }
                }
            }
            groups.push((group, sums));
        }
        if checksum.end() != crc && !injected(Bug::MapBelieved) {
            return Ok(false);
        }
        for chunk in stale {
            let record = self.record(chunk)?;
            self.write_record(chunk, &record.bits, record.kind, record.extents)?;
        }
        for (group, sums) in groups {
            self.write_group(group, sums.blocks, sums.chunks, sums.inodes)?;
        }
        self.index_write(&fullness, Words::AsSummed)?;
        Ok(true)
    }

    /// Makes the free map say that nothing is in use. The caller forgets what records keep.
    pub(crate) fn forget_free_map(&self) -> Result<()> {
        let backed = self.backed();
        let mut fullness = Draft::new(self.chunks());
        for group in 0..self.groups() {
            let chunks = self.group_chunks(group);
            let count = chunks.end - chunks.start;
            for chunk in backed.within(chunks.clone()) {
                self.write_record(chunk, &Bitmap::default(), Kind::Free, 0)?;
            }
            fullness.add_free(chunks);
            self.write_group(group, count * CHUNK_BLOCKS, count, 0)?;
        }
        self.index_write(&fullness, Words::Any)
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
        let cursors = [Group::MetadataCursor, Group::InodeCursor];
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
