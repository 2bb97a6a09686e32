//! What a mark has reached so far: the blocks and inodes, one record a chunk, set atomically.
//!
//! Threads of one mark share it: the thread that sets a bit first visits what it stands for, so
//! every inode is visited once, and the second owner of a block is noticed. Nothing orders these
//! bits with anything else: what is behind them does not change while a mark runs.

use crate::inode::Inode;
use crate::medium::layout::{CHUNK_BLOCKS, EXTENT_BLOCKS, EXTENT_INODES};
use crate::recovery::Recoveries;
use crate::space::chunk::{Bitmap, word_mask};
use std::array;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Inode extents of a chunk.
const EXTENTS: usize = (CHUNK_BLOCKS / EXTENT_BLOCKS) as usize;

/// What is in use in a chunk.
#[derive(Default)]
struct ChunkMark {
    bits: [AtomicU64; 8],
    /// Which groups of eight blocks are inode extents.
    extents: AtomicU64,
    /// Whether any block holds metadata.
    metadata: AtomicBool,
    /// The slots in use of each extent.
    slots: OnceLock<Box<[AtomicU64; EXTENTS]>>,
}

/// Blocks and inodes that were reached.
pub(crate) struct Reached {
    chunks: Vec<ChunkMark>,
}

impl Reached {
    pub(crate) fn new(chunks: u64) -> Self {
        Self { chunks: (0..chunks).map(|_| ChunkMark::default()).collect() }
    }

    /// Marks blocks of the pool; `false` if one of them has been marked before.
    pub(crate) fn mark_blocks(
        &self,
        volume: &Recoveries,
        block: u64,
        blocks: u64,
        metadata: bool,
    ) -> bool {
        let mut fresh = true;
        let (mut at, end) = (block, block + blocks);
        while at < end {
            let (chunk, index) = volume.chunk_of(at);
            let count = (end - at).min(CHUNK_BLOCKS - index);
            let mark = &self.chunks[chunk as usize];
            if metadata && !mark.metadata.load(Ordering::Relaxed) {
                mark.metadata.store(true, Ordering::Relaxed);
            }
            for word in index / 64..=(index + count - 1) / 64 {
                let mask = word_mask(word, index, count);
                fresh &= mark.bits[word as usize].fetch_or(mask, Ordering::Relaxed) & mask == 0;
            }
            at += count;
        }
        fresh
    }

    /// Marks the extent of an inode; gives its first block if this was the first time.
    pub(crate) fn mark_extent(&self, volume: &Recoveries, inode: Inode) -> Option<u64> {
        let block = inode.0 / EXTENT_INODES * EXTENT_BLOCKS;
        let (chunk, first) = volume.chunk_of(block);
        let bit = 1 << (first / EXTENT_BLOCKS);
        let extents = &self.chunks[chunk as usize].extents;
        let known = extents.load(Ordering::Relaxed) & bit != 0
            || extents.fetch_or(bit, Ordering::Relaxed) & bit != 0;
        (!known).then_some(block)
    }

    /// Marks an inode; `true` the first time.
    pub(crate) fn mark_inode(&self, volume: &Recoveries, inode: Inode) -> bool {
        let (chunk, index, bit) = place(volume, inode);
        let slots = &self.chunks[chunk].slots;
        let slots = slots.get_or_init(|| Box::new(array::from_fn(|_| AtomicU64::new(0))));
        slots[index].fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    /// Whether an inode was reached.
    pub(crate) fn has_inode(&self, volume: &Recoveries, inode: Inode) -> bool {
        let (chunk, index, bit) = place(volume, inode);
        let slots = self.chunks[chunk].slots.get();
        slots.is_some_and(|slots| slots[index].load(Ordering::Relaxed) & bit != 0)
    }

    /// Whether any of these blocks of the pool was reached.
    pub(crate) fn has_any(&self, volume: &Recoveries, block: u64, blocks: u64) -> bool {
        (block..block + blocks).any(|block| {
            let (chunk, index) = volume.chunk_of(block);
            let word = &self.chunks[chunk as usize].bits[index as usize / 64];
            word.load(Ordering::Relaxed) >> (index % 64) & 1 != 0
        })
    }

    /// The blocks of a chunk that were reached.
    pub(crate) fn bits(&self, chunk: u64) -> Bitmap {
        array::from_fn(|word| self.chunks[chunk as usize].bits[word].load(Ordering::Relaxed))
    }

    /// The inode extents of a chunk that were reached.
    pub(crate) fn extents(&self, chunk: u64) -> u64 {
        self.chunks[chunk as usize].extents.load(Ordering::Relaxed)
    }

    /// Whether a chunk holds metadata.
    pub(crate) fn holds_metadata(&self, chunk: u64) -> bool {
        self.chunks[chunk as usize].metadata.load(Ordering::Relaxed)
    }

    /// The slots in use of an extent, the header's own among them; 0 if it was not reached.
    pub(crate) fn slots(&self, chunk: u64, index: u64) -> u64 {
        if self.extents(chunk) >> index & 1 == 0 {
            return 0;
        }
        let slots = self.chunks[chunk as usize].slots.get();
        1 | slots.map_or(0, |slots| slots[index as usize].load(Ordering::Relaxed))
    }
}

/// Chunk, extent in it, and bit of an inode.
fn place(volume: &Recoveries, inode: Inode) -> (usize, usize, u64) {
    let block = inode.0 / EXTENT_INODES * EXTENT_BLOCKS;
    let (chunk, first) = volume.chunk_of(block);
    (chunk as usize, (first / EXTENT_BLOCKS) as usize, 1 << (inode.0 % EXTENT_INODES))
}
