//! Changes in place are told beside the sequence number: a reader of other blocks goes on.
//!
//! A call that changes nothing of a file but bytes of blocks that it has (and its times) says
//! which, when its number is odd and before its first store to them ([`Live::tell_in_place`]). Who
//! reads looks at the number before and behind its copy. If it moved, or is odd, what was copied
//! counts nevertheless if all changes meanwhile were such ones, of other blocks
//! ([`Live::has_passed`]); what a process remembers of the map counts as long as all changes since
//! were such ones, of whatever blocks. Two words of the line of hints say that:
//!
//! | word | what |
//! |---|---|
//! | last | the number that the last such change leaves behind it |
//! | blocks | how many followed each other up to that one; the blocks of the one before; its own |
//!
//! Any other change moves the number and leaves these words alone, so *last* is not the number that
//! stands any more, and what follows each other begins anew. A number never repeats.
//!
//! **Order.** Number odd; *blocks*; *last*; bytes; number even: each is seen in this order. (Bytes
//! may be streams: a record's fence stands before them, or, where there is no record, they are seen
//! as early as without these words; a reader of the same blocks waits.) Who reads loads the number,
//! bytes, the number again, *last*, *blocks*, and the number once more, which must be the same: so
//! *blocks* are those of the change that *last* names, and no later one's.
//!
//! **Deaths.** A writer that dies before *last* is as any other. One that dies behind it leaves an
//! odd number beside which readers of other blocks go on: nobody changes these before its recovery,
//! which clears the line of hints while the number is odd, and leaves a number that *last* was not
//! (`after_owner_died`). A call that fails leaves another number, too, or has changed nothing but
//! those blocks; one that goes on in another way under the same number takes back what it told
//! ([`Live::tell_nothing`]).
//!
//! Locks: the inode's, to tell. Persistence: none.

#![expect(clippy::inline_always, reason = "words that are handed on stay in registers")]

use crate::Result;
use crate::inode::{HINTS, Live, index};
use crate::medium::layout::BLOCK;

/// Hint words.
const HINT_LAST: u64 = 6;
const HINT_BLOCKS_OF: u64 = 7;
const LAST: usize = index(HINTS + HINT_LAST * 8);
const BLOCKS_OF: usize = index(HINTS + HINT_BLOCKS_OF * 8);

/// Bits of the first block: blocks are told modulo that, and what seems to meet is read again.
const FIRST_BITS: u32 = 20;
/// Bits of the number of blocks, less one.
const COUNT_BITS: u32 = 4;
/// Bits of some blocks.
const BITS: u32 = FIRST_BITS + COUNT_BITS;
/// The most that follow each other: what is older is looked at anew.
const FOLLOWED_MAX: u64 = u64::MAX >> (2 * BITS);

/// Blocks of a file that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Blocks {
    first: u64,
    count: u64,
}

impl Blocks {
    /// Those in which these bytes lie, of which there are some.
    #[inline(always)]
    pub(crate) fn of(offset: u64, length: u64) -> Self {
        let first = offset / BLOCK;
        let last = offset.saturating_add(length.saturating_sub(1)) / BLOCK;
        Self { first, count: last - first + 1 }
    }

    /// As some bits; `None`: they are too many.
    #[inline(always)]
    fn packed(self) -> Option<u64> {
        let first = self.first & ((1 << FIRST_BITS) - 1);
        (self.count <= 1 << COUNT_BITS).then_some(first << COUNT_BITS | (self.count - 1))
    }

    /// Whether some of them may be among those packed.
    fn may_meet(self, packed: u64) -> bool {
        let modulus = 1 << FIRST_BITS;
        let (first, count) =
            (packed >> COUNT_BITS & (modulus - 1), (packed & ((1 << COUNT_BITS) - 1)) + 1);
        first.wrapping_sub(self.first) % modulus < self.count
            || self.first.wrapping_sub(first) % modulus < count
    }
}

/// What both words become when blocks change under the number behind `even`: *blocks*, *last*.
#[inline(always)]
fn told(even: u64, (last, blocks_of): (u64, u64), packed: u64) -> (u64, u64) {
    let followed = if last == even { blocks_of >> (2 * BITS) } else { 0 };
    let followed = if followed == FOLLOWED_MAX { followed } else { followed + 1 };
    let before = blocks_of & ((1 << BITS) - 1);
    (followed << (2 * BITS) | before << BITS | packed, even + 2)
}

/// What a reader has seen of the number: when what it knows of the map was right (even), before it
/// copied, and behind that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) known: u64,
    pub(crate) before: u64,
    pub(crate) behind: u64,
}

impl Numbers {
    /// Whether these words, under the number behind, say that what was copied of `blocks` counts.
    fn passed(self, (last, blocks_of): (u64, u64), blocks: Blocks) -> bool {
        let Self { known, before, behind } = self;
        // A change is called by its odd number: those begun at the end, and ended before the start.
        let begun = behind.div_ceil(2);
        let since = begun.wrapping_sub(known / 2);
        let meanwhile = begun.wrapping_sub(before / 2);
        let told = last == begun * 2 && since <= blocks_of >> (2 * BITS);
        let others = match meanwhile {
            0 => true,
            1 => !blocks.may_meet(blocks_of),
            2 => !blocks.may_meet(blocks_of) && !blocks.may_meet(blocks_of >> BITS),
            _ => false,
        };
        told && others
    }
}

impl Live<'_> {
    /// Says that nothing but bytes of these blocks changes under the number behind `even`, which is
    /// that of now. Nothing if they are too many. Lock holder only.
    #[inline(always)]
    pub(crate) fn tell_in_place(&self, even: u64, blocks: Blocks) -> Result<()> {
        let Some(packed) = blocks.packed() else { return Ok(()) };
        let (blocks_of, last) = told(even, (self.0.load(LAST)?, self.0.load(BLOCKS_OF)?), packed);
        Ok(self.0.store_each([(BLOCKS_OF, blocks_of), (LAST, last)])?)
    }

    /// Takes that back, before anything else changes. Lock holder only.
    #[cold]
    pub(crate) fn tell_nothing(&self) -> Result<()> {
        Ok(self.0.store(LAST, 0)?)
    }

    /// Whether what was copied of these blocks counts, although the number moved, or is odd.
    #[cold]
    pub(crate) fn has_passed(&self, numbers: Numbers, blocks: Blocks) -> Result<bool> {
        let words = (self.0.load(LAST)?, self.0.load(BLOCKS_OF)?);
        Ok(numbers.passed(words, blocks) && self.sequence()? == numbers.behind)
    }
}

#[cfg(test)]
#[path = "in_place_tests.rs"]
mod tests;
