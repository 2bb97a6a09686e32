//! Map words: how an inode refers to a block.
//!
//! A word is one 8-byte store, so a block, a subtree or a 2 MiB chunk is swapped atomically. It carries
//! its own check, because no checksum around it could be changed in the same store: 16 bits mixed from
//! the word, the inode, its generation and the word's position. A word that was read from elsewhere, of a
//! former life of the inode or with a flipped bit is refused before it is followed.
//!
//! ```text
//!  63        48 47  45   44    43    40 39                                 0
//! +------------+------+-------+--------+------------------------------------+
//! |   check    |  0   | unwr. |  kind  |            block number            |
//! +------------+------+-------+--------+------------------------------------+
//! ```

use crate::Result;
use crate::inode::Inode;
use rustix::io::Errno;

/// Kind of a word: one block of data (also of names, of attributes).
pub(crate) const KIND_LEAF: u8 = 0;
/// Kinds 1 to this: a node whose words cover 512^(kind - 1) blocks each.
pub(crate) const LEVEL_MAX: u8 = 6;
/// Kind of a word: a whole chunk of data.
pub(crate) const KIND_HUGE: u8 = 15;
/// Position of the extended attributes' word: no logical block has it.
pub(crate) const XATTR_POSITION: u64 = u64::MAX;

const BLOCK_BITS: u64 = (1 << 40) - 1;
const KIND_SHIFT: u32 = 40;
const UNWRITTEN: u64 = 1 << 44;
const RESERVED: u64 = 7 << 45;
const CHECK_SHIFT: u32 = 48;

/// What a word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    pub(crate) block: u64,
    pub(crate) kind: u8,
    /// Allocated, reads as zeros.
    pub(crate) unwritten: bool,
}

/// Seals and checks the words of one inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WordKey(u64);

impl WordKey {
    pub(crate) fn new(inode: Inode, generation: u32) -> Self {
        Self(mix(inode.0 ^ mix(u64::from(generation) | 1 << 40)))
    }

    fn check(self, position: u64, low: u64) -> u64 {
        mix(mix(self.0 ^ position) ^ low) >> CHECK_SHIFT
    }

    /// The word for `word` at `position` (for a map: the first logical block that it covers).
    pub(crate) fn seal(self, position: u64, word: Word) -> u64 {
        debug_assert!(word.block != 0 && word.block <= BLOCK_BITS && word.kind < 16);
        let unwritten = if word.unwritten { UNWRITTEN } else { 0 };
        let low = word.block | u64::from(word.kind) << KIND_SHIFT | unwritten;
        low | self.check(position, low) << CHECK_SHIFT
    }

    /// What a stored word says; `None` for a hole, `EIO` if its check fails.
    #[inline]
    pub(crate) fn open(self, position: u64, stored: u64) -> Result<Option<Word>> {
        if stored == 0 {
            return Ok(None);
        }
        let low = stored & ((1 << CHECK_SHIFT) - 1);
        let block = low & BLOCK_BITS;
        if stored >> CHECK_SHIFT != self.check(position, low) || block == 0 || low & RESERVED != 0 {
            return Err(Errno::IO);
        }
        let kind = (low >> KIND_SHIFT & 15) as u8;
        Ok(Some(Word { block, kind, unwritten: low & UNWRITTEN != 0 }))
    }
}

/// A bijection in which every input bit reaches the upper 16 output bits.
fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    let value = (value ^ value >> 29).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    value ^ value >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: Word = Word { block: 0x12_3456, kind: 3, unwritten: true };

    #[test]
    fn a_word_says_what_was_sealed() {
        let key = WordKey::new(Inode(77), 5);
        assert_eq!(key.open(512, key.seal(512, WORD)), Ok(Some(WORD)));
        assert_eq!(key.open(512, 0), Ok(None));
    }

    #[test]
    fn a_flipped_bit_is_refused() {
        let key = WordKey::new(Inode(77), 5);
        let word = key.seal(9, WORD);
        for bit in 0..64 {
            assert_eq!(key.open(9, word ^ 1 << bit), Err(Errno::IO), "bit {bit}");
        }
    }

    #[test]
    fn a_word_out_of_place_is_refused() {
        let word = WordKey::new(Inode(77), 5).seal(9, WORD);
        assert_eq!(WordKey::new(Inode(77), 5).open(10, word), Err(Errno::IO));
        assert_eq!(WordKey::new(Inode(77), 6).open(9, word), Err(Errno::IO));
        assert_eq!(WordKey::new(Inode(78), 5).open(9, word), Err(Errno::IO));
    }
}
