//! Chunk records: the free map of the pool, one record of two lines a chunk, in the runtime.
//!
//! | words | what | changed by |
//! |---|---|---|
//! | 0 to 7 | bitmap: bit n = block n of the chunk is in use | anyone, by compare-and-swap |
//! | 8 | kind ([`Kind`]): what the chunk is broken for | its taker, by compare-and-swap |
//! | 9 | extents: bit n = blocks 8n to 8n+7 are an inode extent | holder of the extent's busy bit |
//! | 10 | room: extents that may have a free slot (a hint) | anyone |
//! | 11 | busy: a token; its holder may allocate in, make or drop that extent | its holder |
//! | 12 | blocks in use (a hint, exact when nobody allocates) | anyone, by addition |
//!
//! The record of a free chunk is all zeros (`backing_store.rs`).
//!
//! No locks. The bitmap alone decides who owns a block; the rest is policy. Invariants, when
//! nothing is in flight: kind is free exactly if the bitmap is empty; the counters equal the
//! bitmaps. Whoever claims bits checks afterwards that the kind is still the one it chose the chunk
//! for, and gives them back otherwise; whoever clears a word's last bit retires the chunk if all
//! its words are empty. So a chunk never changes its purpose under an allocation. A process that
//! dies in the middle leaves at most bits that nothing reaches, or a token; the rebuild after its
//! death clears them.
//!
//! A group's line in the runtime's header holds the sums and the cursors of its chunks. Group
//! borders move when the volume grows, so a group's counters are hints; their sums are exact when
//! quiet.

use crate::Result;
use crate::medium::layout::{BLOCK, CHUNK_BLOCKS, EXTENT_BLOCKS, HEADER_FREE, LINE};
use crate::space::Space;
use crate::space::fullness::FREE as FREE_CHUNKS;
use pmem::Hint;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Words of a chunk's bitmap.
pub(crate) const BITMAP_WORDS: usize = CHUNK_BLOCKS as usize / 64;
/// A copy of a chunk's bitmap.
pub(crate) type Bitmap = [u64; BITMAP_WORDS];

/// Blocks in use up to which a chunk is worth emptying.
pub(crate) const SPARSE: u64 = CHUNK_BLOCKS / 2;

/// Record words, as offsets in the record.
const KIND: u64 = LINE;
const EXTENTS: u64 = KIND + 8;
const ROOM: u64 = EXTENTS + 8;
const BUSY: u64 = ROOM + 8;
const USED: u64 = BUSY + 8;

/// What a chunk's blocks are for. Policy only: on a full volume metadata may lie in data chunks and
/// data in metadata chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Kind {
    /// No block in use: a free huge page.
    Free = 0,
    Data = 1,
    Metadata = 2,
    /// Found empty, on its way to [`Kind::Free`], or about to be broken: belongs to who put this
    /// here.
    Retiring = 3,
}

impl Kind {
    fn of_word(word: u64) -> Self {
        match word {
            0 => Self::Free,
            1 => Self::Data,
            2 => Self::Metadata,
            _ => Self::Retiring,
        }
    }
}

/// A copy of a chunk's record.
pub(crate) struct Record {
    pub(crate) bits: Bitmap,
    pub(crate) kind: Kind,
    pub(crate) extents: u64,
    room: u64,
    busy: u64,
    free: u64,
}

impl Record {
    /// Whether its hints are what a fresh record of this bitmap, which has so many free blocks,
    /// would say.
    pub(crate) fn has_fresh_hints(&self, free: u64) -> bool {
        self.room == self.extents && self.busy == 0 && self.free == free
    }
}

/// Counters and cursors of a group, as offsets in its line of the runtime's header.
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum Group {
    /// Free blocks.
    Blocks = 0,
    /// Whole free chunks.
    Chunks = 8,
    /// Inodes in use.
    Inodes = 16,
    /// Chunk from which metadata is served.
    MetadataCursor = 32,
    /// Chunk from which inodes are served.
    InodeCursor = 48,
}

/// The masks of a chunk's inode extents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Mask {
    Extents = EXTENTS,
    Room = ROOM,
    Busy = BUSY,
}

/// First bit from `from` on that is set in the bitmap exclusive-or `flip`; `CHUNK_BLOCKS` if none.
fn next_bit(bits: &Bitmap, from: u64, flip: u64) -> u64 {
    if from >= CHUNK_BLOCKS {
        return CHUNK_BLOCKS;
    }
    let mut word = from as usize / 64;
    let mut rest = (bits[word] ^ flip) & (u64::MAX << (from % 64));
    while rest == 0 {
        word += 1;
        if word == BITMAP_WORDS {
            return CHUNK_BLOCKS;
        }
        rest = bits[word] ^ flip;
    }
    word as u64 * 64 + u64::from(rest.trailing_zeros())
}

/// The runs of clear bits {first, length}, ascending.
pub(crate) fn free_runs(bits: &Bitmap) -> impl Iterator<Item = (u64, u64)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let first = next_bit(bits, at, u64::MAX);
        at = next_bit(bits, first, 0);
        (first < CHUNK_BLOCKS).then_some((first, at - first))
    })
}

/// Number of clear bits.
pub(crate) fn count_free(bits: &Bitmap) -> u64 {
    if *bits == Bitmap::default() {
        // Most chunks of a young volume.
        return CHUNK_BLOCKS;
    }
    bits.iter().map(|word| u64::from(word.count_zeros())).sum()
}

/// Length of the longest run of clear bits.
pub(crate) fn longest_run(bits: &Bitmap) -> u64 {
    free_runs(bits).map(|(_, length)| length).max().unwrap_or(0)
}

/// The last aligned group of 8 free blocks: inode extents grow from a chunk's end, single blocks
/// from its start, so that they stay out of each other's way.
pub(crate) fn free_extent(bits: &Bitmap) -> Option<u64> {
    let extents = CHUNK_BLOCKS / EXTENT_BLOCKS;
    (0..extents)
        .rev()
        .find(|extent| (bits[*extent as usize / 8] >> (extent % 8 * 8)).trailing_zeros() >= 8)
}

/// The bits of word `word` that belong to `[first, first + count)`.
pub(crate) fn word_mask(word: u64, first: u64, count: u64) -> u64 {
    let low = first.max(word * 64) - word * 64;
    let high = (first + count).min(word * 64 + 64) - word * 64;
    (u64::MAX >> (64 - (high - low))) << low
}

impl Space {
    // ---- places
    // ----------------------------------------------------------------------------------

    /// The chunk that holds a block of the pool, and the block's index in it.
    #[inline]
    pub(crate) fn chunk_of(&self, block: u64) -> (u64, u64) {
        let index = block - self.pool() / BLOCK;
        (index / CHUNK_BLOCKS, index % CHUNK_BLOCKS)
    }

    /// First block of a chunk.
    pub(crate) fn chunk_start(&self, chunk: u64) -> u64 {
        self.pool() / BLOCK + chunk * CHUNK_BLOCKS
    }

    /// Number of allocation groups.
    pub(crate) fn groups(&self) -> u64 {
        u64::from(self.superblock.groups).max(1)
    }

    fn group_length(&self) -> u64 {
        self.chunks().div_ceil(self.groups()).max(1)
    }

    /// The group of a chunk.
    pub(crate) fn group_of(&self, chunk: u64) -> u64 {
        (chunk / self.group_length()).min(self.groups() - 1)
    }

    /// The chunks of a group.
    pub(crate) fn group_chunks(&self, group: u64) -> std::ops::Range<u64> {
        let length = self.group_length();
        let end = ((group + 1) * length).min(self.chunks());
        (group * length).min(end)..end
    }

    // ---- words
    // -----------------------------------------------------------------------------------

    fn group_word(group: u64, word: Group) -> u64 {
        HEADER_FREE + group * LINE + word as u64
    }

    pub(crate) fn group_load(&self, group: u64, word: Group) -> Result<u64> {
        Ok(self.rt.load(Self::group_word(group, word))?)
    }

    pub(crate) fn group_store(&self, group: u64, word: Group, value: u64) -> Result<()> {
        Ok(self.rt.store(Self::group_word(group, word), value)?)
    }

    /// Adds to a group's counter; `u64::MAX` takes one away.
    pub(crate) fn group_add(&self, group: u64, word: Group, delta: u64) -> Result<()> {
        self.rt.add(Self::group_word(group, word), delta)?;
        Ok(())
    }

    /// A chunk's record.
    pub(crate) fn record(&self, chunk: u64) -> Result<Record> {
        let (map, base) = self.rt.place();
        let mut bytes = [0; 2 * LINE as usize];
        map.shared_read(base + self.rt.chunk(chunk), &mut bytes)?;
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: u64| u64::from_le_bytes(words[at as usize / 8]);
        Ok(Record {
            bits: std::array::from_fn(|index| u64::from_le_bytes(words[index])),
            kind: Kind::of_word(word(KIND)),
            extents: word(EXTENTS),
            room: word(ROOM),
            busy: word(BUSY),
            free: CHUNK_BLOCKS.wrapping_sub(word(USED)),
        })
    }

    /// The sum of a counter over all groups.
    pub(crate) fn group_sum(&self, word: Group) -> Result<u64> {
        let mut sum = 0u64;
        for group in 0..self.groups() {
            sum = sum.wrapping_add(self.group_load(group, word)?);
        }
        // A counter that somebody is just moving may be off for a moment, even below zero.
        Ok(if sum as i64 >= 0 { sum } else { 0 })
    }
    pub(crate) fn bitmap(&self, chunk: u64) -> Result<Bitmap> {
        let (map, base) = self.rt.place();
        let mut bytes = [0; LINE as usize];
        map.shared_read(base + self.rt.chunk(chunk), &mut bytes)?;
        let mut bits = Bitmap::default();
        for (word, piece) in bits.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(piece.try_into().map_err(|_| Errno::IO)?);
        }
        Ok(bits)
    }

    /// Whether a block is in use.
    pub(crate) fn is_taken(&self, block: u64) -> Result<bool> {
        let (chunk, index) = self.chunk_of(block);
        Ok(self.rt.load(self.rt.chunk(chunk) + index / 64 * 8)? >> (index % 64) & 1 != 0)
    }

    pub(crate) fn chunk_kind(&self, chunk: u64) -> Result<Kind> {
        Ok(Kind::of_word(self.rt.load(self.rt.chunk(chunk) + KIND)?))
    }

    pub(crate) fn set_chunk_kind(&self, chunk: u64, kind: Kind) -> Result<()> {
        Ok(self.rt.store(self.rt.chunk(chunk) + KIND, kind as u64)?)
    }

    pub(crate) fn chunk_free(&self, chunk: u64) -> Result<u64> {
        Ok(CHUNK_BLOCKS.wrapping_sub(self.rt.load(self.rt.chunk(chunk) + USED)?))
    }

    #[inline]
    pub(crate) fn mask(&self, chunk: u64, mask: Mask) -> Result<u64> {
        Ok(self.rt.load(self.rt.chunk(chunk) + mask as u64)?)
    }

    /// Sets a bit of a mask; gives whether it was clear.
    pub(crate) fn mask_set(&self, chunk: u64, mask: Mask, bit: u64) -> Result<bool> {
        Ok(self.rt.or(self.rt.chunk(chunk) + mask as u64, 1 << bit)? >> bit & 1 == 0)
    }

    pub(crate) fn mask_clear(&self, chunk: u64, mask: Mask, bit: u64) -> Result<()> {
        self.rt.and(self.rt.chunk(chunk) + mask as u64, !(1 << bit))?;
        Ok(())
    }

    /// Writes a whole record: rebuild and grow only, while nobody allocates.
    pub(crate) fn write_record(
        &self,
        chunk: u64,
        bits: &Bitmap,
        kind: Kind,
        extents: u64,
    ) -> Result<()> {
        let record = self.rt.chunk(chunk);
        for (word, value) in bits.iter().enumerate() {
            self.rt.store(record + word as u64 * 8, *value)?;
        }
        self.rt.store(record + KIND, kind as u64)?;
        self.rt.store(record + EXTENTS, extents)?;
        self.rt.store(record + ROOM, extents)?;
        self.rt.store(record + BUSY, 0)?;
        self.note_written(chunk);
        Ok(self.rt.store(record + USED, CHUNK_BLOCKS - count_free(bits))?)
    }

    // ---- claiming and clearing
    // -----------------------------------------------------------------------

    /// Sets the bits of `[first, first + count)` if all are clear; `false`, and nothing changed, if
    /// not.
    fn claim_bits(&self, chunk: u64, first: u64, count: u64) -> Result<bool> {
        let record = self.rt.chunk(chunk);
        for word in first / 64..=(first + count - 1) / 64 {
            let mask = word_mask(word, first, count);
            let mut value = self.rt.load(record + word * 8)?;
            while value & mask == 0 {
                match self.rt.cas(record + word * 8, value, value | mask)? {
                    Ok(_) => break,
                    Err(found) => value = found,
                }
            }
            if value & mask != 0 {
                let claimed = (word * 64).saturating_sub(first);
                if claimed > 0 {
                    self.clear_bits(chunk, first, claimed)?;
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Clears bits; gives how many were set and whether a word became empty.
    fn clear_bits(&self, chunk: u64, first: u64, count: u64) -> Result<(u64, bool)> {
        let record = self.rt.chunk(chunk);
        let (mut cleared, mut emptied) = (0, false);
        for word in first / 64..=(first + count - 1) / 64 {
            let mask = word_mask(word, first, count);
            let before = self.rt.and(record + word * 8, !mask)?;
            cleared += u64::from((before & mask).count_ones());
            emptied |= before & !mask == 0;
        }
        Ok((cleared, emptied))
    }

    /// Moves the counters of free blocks by `delta` (two's complement); gives the chunk's.
    fn account(&self, chunk: u64, kind: Kind, delta: u64) -> Result<u64> {
        let used = self.rt.add(self.rt.chunk(chunk) + USED, delta.wrapping_neg())?;
        let before = CHUNK_BLOCKS.wrapping_sub(used);
        let now = before.wrapping_add(delta);
        if matches!(kind, Kind::Data | Kind::Metadata) {
            self.index_moved(chunk, kind, before, now)?;
        }
        self.group_add(self.group_of(chunk), Group::Blocks, delta)?;
        Ok(now)
    }

    /// Takes blocks of a chunk that is broken for `kind`. `false` if another was faster.
    pub(crate) fn claim(&self, chunk: u64, kind: Kind, first: u64, count: u64) -> Result<bool> {
        if !self.claim_bits(chunk, first, count)? {
            self.retire_if_empty(chunk)?;
            return Ok(false);
        }
        if self.chunk_kind(chunk)? != kind {
            self.clear_bits(chunk, first, count)?;
            self.retire_if_empty(chunk)?;
            return Ok(false);
        }
        self.account(chunk, kind, count.wrapping_neg())?;
        Ok(true)
    }

    /// Takes a free chunk for `kind`, and its blocks `[first, first + count)`. `false` if it is not
    /// free (any more). `ENOSPC`, and it stays free, if the file system beneath has no memory for
    /// it.
    pub(crate) fn claim_free(
        &self,
        chunk: u64,
        kind: Kind,
        first: u64,
        count: u64,
    ) -> Result<bool> {
        if !self.take_free(chunk)? {
            return Ok(false);
        }
        if let Err(errno) = self.back_chunk(chunk) {
            self.set_chunk_kind(chunk, Kind::Free)?;
            self.index_enter(FREE_CHUNKS, chunk)?;
            return Err(errno);
        }
        self.break_chunk(chunk, kind, first, count)
    }

    /// Takes all of a free chunk, whether it has memory or not.
    pub(crate) fn claim_memory(&self, chunk: u64) -> Result<bool> {
        Ok(self.take_free(chunk)? && self.break_chunk(chunk, Kind::Data, 0, CHUNK_BLOCKS)?)
    }

    /// Takes a chunk that is free: nobody else can have it meanwhile.
    fn take_free(&self, chunk: u64) -> Result<bool> {
        let word = self.rt.chunk(chunk) + KIND;
        if self.rt.cas(word, Kind::Free as u64, Kind::Retiring as u64)?.is_err() {
            return Ok(false);
        }
        self.index_not_free(chunk)?;
        Ok(true)
    }

    /// Opens a chunk that was taken for `kind`, and takes its blocks `[first, first + count)`.
    fn break_chunk(&self, chunk: u64, kind: Kind, first: u64, count: u64) -> Result<bool> {
        self.group_add(self.group_of(chunk), Group::Chunks, u64::MAX)?;
        // Before others can take blocks of it: pages are on their way meanwhile, and no access to
        // metadata waits for any.
        let is_metadata = kind == Kind::Metadata;
        self.say_of_chunk(chunk, if is_metadata { Hint::Stays } else { Hint::Large });
        self.set_chunk_kind(chunk, kind)?;
        let claimed = self.claim(chunk, kind, first, count)?;
        if !claimed {
            self.retire_if_empty(chunk)?;
        }
        Ok(claimed)
    }

    /// Clears the bits of blocks inside one chunk.
    pub(crate) fn clear(&self, chunk: u64, first: u64, count: u64) -> Result<()> {
        let kind = self.chunk_kind(chunk)?;
        let (cleared, emptied) = self.clear_bits(chunk, first, count)?;
        let free = self.account(chunk, kind, cleared)?;
        if kind == Kind::Data {
            self.note_sparse(chunk, cleared, free);
        }
        if free + 1 == CHUNK_BLOCKS {
            self.return_blocks_in(chunk)?;
        }
        if emptied {
            self.retire_if_empty(chunk)?;
        }
        Ok(())
    }

    /// Blocks of a data chunk were freed; it has `free` now. Each time what is left in it halves,
    /// and is little, it is a candidate.
    fn note_sparse(&self, chunk: u64, cleared: u64, free: u64) {
        let freed = self.freed_blocks.load(Ordering::Relaxed);
        self.freed_blocks.store(freed.wrapping_add(cleared), Ordering::Relaxed);
        let used = CHUNK_BLOCKS.saturating_sub(free);
        if used > 0 && used < SPARSE && used.ilog2() != (used + cleared).ilog2() {
            self.due.note_sparse(chunk);
        }
    }

    /// Makes a chunk without blocks in use a free one. Every clearing of bits is followed by a call
    /// of this, also those in here: so the last one to clear finds the chunk empty.
    fn retire_if_empty(&self, chunk: u64) -> Result<()> {
        loop {
            let kind = self.chunk_kind(chunk)?;
            if !matches!(kind, Kind::Data | Kind::Metadata)
                || self.bitmap(chunk)?.iter().any(|word| *word != 0)
            {
                return Ok(());
            }
            if !self.claim_bits(chunk, 0, CHUNK_BLOCKS)? {
                continue;
            }
            // All blocks are ours. Whoever still holds the old kind in mind finds another one after
            // its claim; only from `Free` on may the chunk be taken again.
            let word = self.rt.chunk(chunk) + KIND;
            let retiring = self.rt.cas(word, kind as u64, Kind::Retiring as u64)?.is_ok();
            self.clear_bits(chunk, 0, CHUNK_BLOCKS)?;
            if retiring {
                self.group_add(self.group_of(chunk), Group::Chunks, 1)?;
                self.set_chunk_kind(chunk, Kind::Free)?;
                return self.index_enter(FREE_CHUNKS, chunk);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cross_words() {
        let mut bits = [0; BITMAP_WORDS];
        assert_eq!(free_runs(&bits).collect::<Vec<_>>(), [(0, 512)]);
        bits[0] = 1 << 60;
        bits[2] = 1;
        bits[7] = 1 << 63;
        assert_eq!(free_runs(&bits).collect::<Vec<_>>(), [(0, 60), (61, 67), (129, 382)]);
        assert_eq!(longest_run(&bits), 382);
        assert_eq!(count_free(&bits), 509);
        assert_eq!(free_runs(&[u64::MAX; BITMAP_WORDS]).next(), None);
    }

    #[test]
    fn masks_cover_exactly_the_range() {
        assert_eq!(word_mask(0, 0, 512), u64::MAX);
        assert_eq!(word_mask(0, 60, 10), 0xF << 60);
        assert_eq!(word_mask(1, 60, 10), 0x3F);
        assert_eq!(free_extent(&[0; BITMAP_WORDS]), Some(63));
        let mut bits = [u64::MAX; BITMAP_WORDS];
        bits[3] = !0xFF00;
        assert_eq!(free_extent(&bits), Some(25));
        assert_eq!(free_extent(&[1 << 7 | 1 << 15 | 0x0101_0101_0101_0101; 8]), None);
    }
}
