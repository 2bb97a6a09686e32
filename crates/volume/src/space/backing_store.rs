//! The memory beneath a volume: its region's file may be sparse, and the file system that holds it
//! full.
//!
//! What has no memory yet is given it before it is used, in three places, so that a call which
//! lacks memory says `ENOSPC` before it has changed anything:
//!
//! - *fixed parts* (everything that any call may store to: superblocks, lanes, the runtime but for
//!   what belongs to single chunks, and the first chunk) at format and at a first attach;
//! - a *chunk* of the pool when it is broken, as a whole, by who breaks it (`chunk.rs`): so each
//!   block of a broken chunk has its memory, and calls that free or overwrite need none;
//! - a chunk's record and owners at the first store to them, which breaking the chunk begins with.
//!
//! The record of a free chunk is all zeros, as a page without memory is. So a large
//! volume's records get memory by what is in use, and whoever goes through all of them leaves out
//! those that have none ([`Space::backed`]): to look at them would give it to them.
//!
//! Locks: one around what a private view has written, for a moment.

use crate::Result;
use crate::medium::layout::{
    BLOCK, CHUNK, CHUNK_RECORD, CLASSES, HEADER_TRIMS, RuntimeLayout, Superblock, class_words,
};
use crate::space::Space;
use crate::space::chunk::Kind;
use pmem::{BackingSpace, Region};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

/// Bytes before the pool of a volume that gets all of them at once.
const SMALL: u64 = 16 << 20;

/// Gives the fixed parts of a volume their memory: `ENOSPC` if the file system beneath has none.
pub(crate) fn provide_fixed(region: &Region, superblock: &Superblock) -> Result<()> {
    let mut ranges = Vec::new();
    if superblock.pool <= SMALL {
        ranges.push(0..superblock.pool + CHUNK);
    } else {
        let layout = RuntimeLayout::of(superblock);
        let runtime = superblock.runtime;
        ranges.push(0..runtime + layout.chunks);
        let class = class_words(layout.chunk_count) * 8;
        let bits = superblock.chunks.div_ceil(64) * 8;
        for start in (0..CLASSES).map(|at| runtime + layout.fullness + at * class) {
            let summary = start + layout.chunk_count.div_ceil(64) * 8;
            ranges.push(start..start + bits);
            ranges.push(summary..summary + bits.div_ceil(64));
        }
        // The data areas stand right before the pool.
        ranges.push(runtime + superblock.runtime_length..superblock.pool + CHUNK);
    }
    for range in ranges {
        let (start, end) = (range.start / BLOCK * BLOCK, range.end.next_multiple_of(BLOCK));
        if region.next_hole_before(start, end) < end && region.populate(start, end - start).is_err()
        {
            return Err(Errno::NOSPC);
        }
    }
    Ok(())
}

/// Ranges of chunks, ascending.
pub(crate) struct Backed(Vec<Range<u64>>);

impl Backed {
    /// Whether a chunk's record may be other than that of a free chunk.
    pub(crate) fn has(&self, chunk: u64) -> bool {
        let at = self.0.partition_point(|range| range.end <= chunk);
        self.0.get(at).is_some_and(|range| range.start <= chunk)
    }

    /// Those of `chunks` whose records may be so.
    pub(crate) fn within(&self, chunks: Range<u64>) -> impl Iterator<Item = u64> {
        self.parts(chunks).filter(|(_, may)| *may).flat_map(|(part, _)| part)
    }

    /// The parts of `chunks`, ascending, and whether their records may be other than those of free
    /// chunks.
    pub(crate) fn parts(&self, chunks: Range<u64>) -> impl Iterator<Item = (Range<u64>, bool)> {
        let mut at = chunks.start;
        let mut next = self.0.partition_point(|range| range.end <= chunks.start);
        std::iter::from_fn(move || {
            let start = at;
            if start >= chunks.end {
                return None;
            }
            let (end, may) = match self.0.get(next) {
                None => (chunks.end, false),
                Some(range) if range.start > start => (range.start, false),
                Some(range) => {
                    next += 1;
                    (range.end, true)
                }
            };
            at = end.min(chunks.end);
            Some((start..at, may))
        })
    }
}

impl Space {
    /// The chunks whose records have memory. All others are free.
    pub(crate) fn backed(&self) -> Backed {
        let (map, base) = self.rt.place();
        let chunks = self.chunks();
        let looks_only = self.looks_only.load(Ordering::Relaxed);
        if self.pool() <= SMALL || map.is_private() && !looks_only {
            // They have their memory from the start; or the file does not know what was stored.
            return Backed(std::iter::once(0..chunks).collect());
        }
        let start = base + self.rt.layout.chunks;
        let end = start + chunks * CHUNK_RECORD;
        let mut ranges = Vec::new();
        let mut at = map.next_data(start);
        while at < end {
            let hole = map.next_hole_before(at, end);
            ranges.push((at - start) / CHUNK_RECORD..(hole - start).div_ceil(CHUNK_RECORD));
            at = if hole < end { map.next_data(hole) } else { end };
        }
        if looks_only {
            let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            ranges.extend(written.iter().map(|&chunk| chunk..chunk + 1));
            ranges.sort_unstable_by_key(|range| range.start);
            // Those that lie inside the one before them.
            ranges.dedup_by(|next, last| next.end <= last.end);
        }
        Backed(ranges)
    }

    /// A private view has written a chunk's record.
    pub(crate) fn note_written(&self, chunk: u64) {
        if self.looks_only.load(Ordering::Relaxed) {
            self.written.lock().unwrap_or_else(PoisonError::into_inner).push(chunk);
        }
    }

    /// Gives a chunk its memory and makes it present in this process's address space, unless that
    /// was done lately: its blocks are about to be filled one after the other. The caller has it
    /// for itself. `ENOSPC` if the file system beneath has no memory for all of it: then it keeps
    /// none.
    pub(crate) fn back_chunk(&self, chunk: u64) -> Result<()> {
        let trims = self.rt.load(HEADER_TRIMS)?;
        let populated = &self.populated;
        if self.trims.load(Ordering::Acquire) != trims {
            // Somebody has taken memory away. The number comes last, for other threads look at it
            // first.
            for lately in populated {
                lately.store(0, Ordering::Relaxed);
            }
            self.trims.store(trims, Ordering::Release);
        }
        let lately = &populated[chunk as usize % populated.len()];
        if lately.swap(chunk + 1, Ordering::Relaxed) == chunk + 1 {
            return Ok(());
        }
        let start = self.chunk_start(chunk) * BLOCK;
        let populated = self.region.populate(start, CHUNK);
        if populated.is_err() {
            lately.store(0, Ordering::Relaxed);
            self.rt.add(HEADER_TRIMS, 1)?;
            // What it got of the last memory others can use. Where it cannot be given back it stays
            // here.
            let _ = self.region.punch(start, CHUNK);
        }
        populated
    }

    /// Takes a free chunk that has memory already: where the file system beneath has none left.
    #[cold]
    pub(crate) fn take_chunk_with_memory(
        &self,
        groups: &[u64],
        kind: Kind,
        first: u64,
        count: u64,
    ) -> Result<Option<u64>> {
        for &group in groups {
            let chunks = self.group_chunks(group);
            let mut at = chunks.start;
            while let Some(chunk) = self.index_any_free(&(at..chunks.end))? {
                let start = self.chunk_start(chunk) * BLOCK;
                let data = self.region.next_data(start);
                at = chunk + 1;
                if data >= start + CHUNK {
                    at = at.max((data - self.pool()) / CHUNK);
                    continue;
                }
                match self.claim_free(chunk, kind, first, count) {
                    Ok(true) => return Ok(Some(chunk)),
                    Ok(false) | Err(Errno::NOSPC) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(None)
    }

    /// What the region's file has of its memory, and what it could get; `None` where it is all
    /// there.
    pub(crate) fn beneath(&self) -> Option<BackingSpace> {
        self.region.beneath()
    }

    /// How many of so many free bytes can be had, as much as the file system beneath has now.
    pub(crate) fn can_be_had(&self, free: u64) -> u64 {
        self.beneath().map_or(free, |beneath| beneath.available(self.size(), free))
    }
}
