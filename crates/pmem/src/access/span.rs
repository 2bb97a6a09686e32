//! A *span*: a few words of a region whose place is checked only once.
//!
//! Volatile structures are lines of words at computed offsets, and a call touches many words of few
//! lines. A [`Span`] is checked to lie inside the region when it is made; its words are then
//! reached without a check: their indices are constants, compared with its length at compile time.
//! Regions never shrink, so what was inside stays inside; a page that vanishes is a
//! [`Fault::Region`], as everywhere.

#![expect(clippy::inline_always, reason = "the holder of a span keeps its words in registers")]

use crate::region::Region;
use memory::faults::user_memory::Fault;
use memory::instructions::copy;
use memory::instructions::copy_words;
use std::sync::Arc;

/// `WORDS` shared words of a region, from a multiple of 8 on.
#[derive(Clone, Copy)]
pub struct Span<'r, const WORDS: usize> {
    region: &'r Region,
    at: *mut u8,
    off: u64,
}

impl Region {
    /// The `WORDS` words from `off` on.
    #[inline]
    pub fn span<const WORDS: usize>(&self, off: u64) -> Result<Span<'_, WORDS>, Fault> {
        Ok(Span { region: self, at: self.words::<WORDS>(off)?, off })
    }
}

/// A [`Span`] that is kept, together with its region.
pub struct OwnedSpan<const WORDS: usize> {
    region: Arc<Region>,
    at: *mut u8,
    off: u64,
}

// SAFETY: the pointer is into the region, which is sent along.
unsafe impl<const WORDS: usize> Send for OwnedSpan<WORDS> {}
// SAFETY: the region's words are reached by guarded accesses that allow races.
unsafe impl<const WORDS: usize> Sync for OwnedSpan<WORDS> {}

impl<const WORDS: usize> OwnedSpan<WORDS> {
    /// The `WORDS` words from `off` on.
    pub fn new(region: &Arc<Region>, off: u64) -> Result<Self, Fault> {
        let Span { at, off, .. } = region.span::<WORDS>(off)?;
        Ok(Self { region: Arc::clone(region), at, off })
    }

    /// The words.
    #[inline]
    pub fn span(&self) -> Span<'_, WORDS> {
        Span { region: &self.region, at: self.at, off: self.off }
    }

    /// Their region.
    #[inline]
    pub fn region(&self) -> &Region {
        &self.region
    }
}

impl<'r, const WORDS: usize> Span<'r, WORDS> {
    #[inline(always)]
    fn word(&self, index: usize) -> *mut u8 {
        assert!(index < WORDS, "a word of the span");
        self.at.wrapping_add(index * 8)
    }

    /// A word that is about to change.
    #[inline(always)]
    fn changing(&self, index: usize) -> *mut u8 {
        if self.region.hook().is_some() {
            self.region.tell(self.off + index as u64 * 8);
        }
        self.word(index)
    }

    /// Where a word lies.
    #[inline(always)]
    pub fn place(&self, index: usize) -> (&'r Region, u64) {
        (self.region, self.off + index as u64 * 8)
    }

    /// Loads a word (acquire).
    #[inline(always)]
    pub fn load(&self, index: usize) -> Result<u64, Fault> {
        // SAFETY: a word of the mapping.
        unsafe { copy::load64(self.word(index)) }.ok_or(Fault::Region)
    }

    /// Stores a word (release).
    #[inline(always)]
    pub fn store(&self, index: usize, value: u64) -> Result<(), Fault> {
        let at = self.changing(index);
        // SAFETY: a word of the mapping.
        if unsafe { copy::store64(at, value) } { Ok(()) } else { Err(Fault::Region) }
    }

    /// Stores some words (release), in this order.
    #[inline(always)]
    pub fn store_each<const COUNT: usize>(
        &self,
        words: [(usize, u64); COUNT],
    ) -> Result<(), Fault> {
        let tells = self.region.hook().is_some();
        for (index, value) in words {
            if tells {
                self.region.tell(self.off + index as u64 * 8);
            }
            // SAFETY: a word of the mapping.
            if !unsafe { copy::store64(self.word(index), value) } {
                return Err(Fault::Region);
            }
        }
        Ok(())
    }

    /// Replaces `old` by `new` (acquire and release): `Ok(old)`, or `Err` with what was found.
    #[inline(always)]
    pub fn cas(&self, index: usize, old: u64, new: u64) -> Result<Result<u64, u64>, Fault> {
        let at = self.changing(index);
        // SAFETY: a word of the mapping.
        let found = unsafe { self.region.cas_word(at, old, new) }.ok_or(Fault::Region)?;
        Ok(if found == old { Ok(found) } else { Err(found) })
    }

    /// Exchanges a word for `value`; gives the value before.
    #[inline(always)]
    pub fn swap(&self, index: usize, value: u64) -> Result<u64, Fault> {
        let at = self.changing(index);
        // SAFETY: a word of the mapping.
        unsafe { self.region.swap_word(at, value) }.ok_or(Fault::Region)
    }
}

impl<const WORDS: usize> Span<'_, WORDS> {
    /// Eight words from `first` on, each loaded whole, in ascending order.
    #[inline(always)]
    pub fn eight(&self, first: usize) -> Result<[u64; 8], Fault> {
        assert!(first + 8 <= WORDS, "words of the span");
        // SAFETY: words of the mapping.
        unsafe { copy_words::load_line(self.at.wrapping_add(first * 8)) }.ok_or(Fault::Region)
    }

    /// Four words from `first` on, each loaded whole, in ascending order: for few of a line, which
    /// then never pass through memory of ours.
    #[inline(always)]
    pub fn four(&self, first: usize) -> Result<[u64; 4], Fault> {
        assert!(first + 4 <= WORDS, "words of the span");
        // SAFETY: words of the mapping.
        unsafe { copy_words::load_four(self.at.wrapping_add(first * 8)) }.ok_or(Fault::Region)
    }

    /// Stores four words from `first` on, each whole, in ascending order.
    #[inline(always)]
    pub fn store_four(&self, first: usize, words: [u64; 4]) -> Result<(), Fault> {
        assert!(first + 4 <= WORDS, "words of the span");
        let at = self.changing(first);
        // SAFETY: words of the mapping.
        if unsafe { copy_words::store_four(at, words) } { Ok(()) } else { Err(Fault::Region) }
    }

    /// Stores eight words from `first` on, each whole, in ascending order.
    #[inline(always)]
    pub fn store_eight(&self, first: usize, words: &[u64; 8]) -> Result<(), Fault> {
        assert!(first + 8 <= WORDS, "words of the span");
        let at = self.changing(first);
        // SAFETY: words of the mapping, from as many of ours.
        unsafe { copy::copy64(at, words.as_ptr().cast()) }.map_err(|_| Fault::Region)
    }
}

impl Span<'_, 8> {
    /// All words, each loaded whole, in ascending order.
    #[inline(always)]
    pub fn words(&self) -> Result<[u64; 8], Fault> {
        self.eight(0)
    }
}
