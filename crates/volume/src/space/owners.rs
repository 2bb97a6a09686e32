//! Whose blocks they are: hints, by which blocks can be moved.
//!
//! A block does not tell which file it belongs to, and a search through all files would take too
//! long for a few blocks. So whoever plans to put a block into a file leaves the low half of the
//! file's inode number in a table of the runtime, a word a block. These are hints: never flushed,
//! never erased, of any age. Whoever reads one asks the file, under its lock, whether it has the
//! block.
//!
//! Whole chunks need no owner. Chunks that a volume has grown by share the tables of the others.

use crate::Result;
use crate::medium::layout::{CHUNK_BLOCKS, OWNER_TABLE};
use crate::space::Space;

/// Words written at once.
const STRIDE: u64 = 16;

impl Space {
    /// Offset of the word of a block of a chunk.
    fn owner_place(&self, chunk: u64, index: u64) -> u64 {
        let layout = &self.rt.layout;
        layout.owners + chunk % layout.owner_tables * OWNER_TABLE + index * 4
    }

    /// Notes that an inode is about to hold these blocks.
    pub(crate) fn note_owner(&self, ino: u64, block: u64, blocks: u64) -> Result<()> {
        let pattern = [(ino as u32).to_ne_bytes(); STRIDE as usize];
        let (mut block, end) = (block, block + blocks);
        while block < end {
            let (chunk, index) = self.chunk_of(block);
            let count = (end - block).min(CHUNK_BLOCKS - index);
            if count < CHUNK_BLOCKS {
                for at in (index..index + count).step_by(STRIDE as usize) {
                    let words = (index + count - at).min(STRIDE) as usize;
                    self.rt.write(self.owner_place(chunk, at), pattern[..words].as_flattened())?;
                }
            }
            block += count;
        }
        Ok(())
    }

    /// The inode that holds a block of a chunk, as far as known. It may be any, even none.
    pub(crate) fn noted_owner(&self, chunk: u64, index: u64) -> Result<u64> {
        let pair = self.rt.load(self.owner_place(chunk, index & !1))?;
        let low = (pair >> (index % 2 * 32)) as u32;
        // Beyond 2^32 inode numbers (2 TiB) the upper half is the chunk's neighbourhood: a guess.
        let high = (self.chunk_start(chunk) * 8) & !u64::from(u32::MAX);
        Ok(high | u64::from(low))
    }
}
