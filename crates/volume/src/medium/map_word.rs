//! Map words: the 8-byte pointers in inodes, map nodes and directory nodes.
//!
//! A word changes by one store, so no block checksum can cover it: it carries its own check, keyed
//! by the inode, its generation and the word's position, so that a flipped bit or a word of another
//! place is found before it is followed. 0 is "nothing here".
//!
//! ```text
//! | check 48..64 | 0 45..48 | unwritten 44 | kind 40..44 | block number 0..40 |
//! ```

use crate::Result;
use crate::medium::Medium;
use rustix::io::Errno;

/// An odd constant without a run of eight equal bits: flipping one bit of a factor always changes
/// the product's upper byte.
pub(crate) const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

const BLOCK_BITS: u32 = 40;
const UNWRITTEN: u64 = 1 << 44;
const LOW: u64 = (1 << 48) - 1;

/// Whose word it is and where it stands: part of its check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) ino: u64,
    pub(crate) generation: u32,
    /// Unique among the words of an inode at which an equal word could stand.
    pub(crate) position: u64,
}

/// A decoded word, not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) block: u64,
    /// 0 to 15; what it says is up to the structure.
    pub(crate) kind: u8,
    pub(crate) unwritten: bool,
}

impl Key {
    fn seed(self) -> u64 {
        let inode = (self.ino ^ u64::from(self.generation) << 32).wrapping_mul(MIX);
        (inode.rotate_left(29) ^ self.position).wrapping_mul(MIX).rotate_left(31)
    }

    fn check(self, low: u64) -> u64 {
        low.wrapping_mul(MIX).wrapping_add(self.seed()) & !LOW
    }
}

impl Word {
    /// The word to store.
    pub(crate) fn sealed(self, key: Key) -> u64 {
        debug_assert!(self.block != 0 && self.block >> BLOCK_BITS == 0 && self.kind < 16);
        let unwritten = if self.unwritten { UNWRITTEN } else { 0 };
        let low = self.block | u64::from(self.kind) << BLOCK_BITS | unwritten;
        low | key.check(low)
    }

    /// The kind in a word that is not checked yet: where it decides about the position.
    pub(crate) fn kind_of(stored: u64) -> u8 {
        (stored >> BLOCK_BITS & 0xF) as u8
    }

    /// The block in a word that is not checked: 0 where it is 0.
    pub(crate) fn block_of(stored: u64) -> u64 {
        stored & ((1 << BLOCK_BITS) - 1)
    }

    /// Decodes a stored word: `None` for 0, `EIO` if its check fails.
    pub(crate) fn open(word: u64, key: Key) -> Result<Option<Self>> {
        if word == 0 {
            return Ok(None);
        }
        let low = word & LOW;
        if key.check(low) != word & !LOW {
            return Err(Errno::IO);
        }
        Ok(Some(Self {
            block: Self::block_of(low),
            kind: Self::kind_of(low),
            unwritten: low & UNWRITTEN != 0,
        }))
    }
}

impl Medium {
    /// Decodes a word that names one metadata block; `EIO` also if the block is not in the pool.
    #[inline]
    pub(crate) fn open_word(&self, word: u64, key: Key) -> Result<Option<Word>> {
        match Word::open(word, key)? {
            Some(found) if !self.in_pool(found.block, 1) => Err(Errno::IO),
            other => Ok(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_found() {
        let key = Key { ino: 77, generation: 3, position: 5 };
        for block in [1, 0x1234, (1 << BLOCK_BITS) - 1] {
            let word = Word { block, kind: 9, unwritten: true };
            let sealed = word.sealed(key);
            assert_eq!(Word::open(sealed, key), Ok(Some(word)));
            for bit in 0..64 {
                assert_eq!(Word::open(sealed ^ 1 << bit, key), Err(Errno::IO), "bit {bit}");
            }
        }
    }

    #[test]
    fn a_word_of_another_place_is_found() {
        let key = Key { ino: 77, generation: 3, position: 5 };
        let sealed = Word { block: 9, kind: 0, unwritten: false }.sealed(key);
        assert!(Word::open(sealed, Key { position: 6, ..key }).is_err());
        assert!(Word::open(sealed, Key { ino: 78, ..key }).is_err());
        assert!(Word::open(sealed, Key { generation: 4, ..key }).is_err());
    }
}
