//! Which chunks have how many free blocks: an index, so that the fullest one with room is found in
//! a few cache lines.
//!
//! Chunks that are broken for data and neither full nor empty stand in one of nine classes, by the
//! logarithm of their free blocks; those for metadata in nine others; free ones in [`FREE`]; those
//! with inode extents that may have a free slot in [`ROOM`] besides. A class is a bitmap over all
//! chunks of the volume, and a summary with a bit for each word of it. All of it lies in the
//! runtime and is a *hint*: whoever finds a chunk checks it, and puts it into its right class.
//! Whoever changes a chunk's number of free blocks takes it out of the class that it leaves before
//! he puts it into the new one; so whatever the interleaving, the last to come leaves it in at
//! least one. (A process that dies between the two loses the chunk for this index, until the next
//! change of it or the next rebuild of the free map.)
//!
//! No locks. Written anew with the free map, by callers that are alone.

use crate::Result;
use crate::medium::layout::{CHUNK_BLOCKS, CLASSES, class_words};
use crate::space::Space;
use crate::space::chunk::Kind;
use std::ops::Range;

/// Classes of a kind: 1, 2 and 3, 4 to 7, ... 256 to 511 free blocks.
const SIZES: u64 = CHUNK_BLOCKS.ilog2() as u64;
/// The class of free chunks.
pub(crate) const FREE: u64 = 2 * SIZES;
/// The class of chunks with room for inodes.
pub(crate) const ROOM: u64 = FREE + 1;
const _: () = assert!(ROOM + 1 == CLASSES);
/// Chunks of a class that a search looks at in vain before it goes on to the next.
const LOOKS: u32 = 16;

/// The first class of a kind's nine.
#[inline]
fn first_class(kind: Kind) -> u64 {
    if kind == Kind::Metadata { SIZES } else { 0 }
}

/// The class of a chunk that is broken for `kind` and has so many free blocks.
#[inline]
fn class_of(kind: Kind, free: u64) -> Option<u64> {
    match kind {
        Kind::Free => Some(FREE),
        Kind::Data | Kind::Metadata if (1..CHUNK_BLOCKS).contains(&free) => {
            Some(first_class(kind) + u64::from(free.ilog2()))
        }
        _ => None,
    }
}

/// Whether a chunk, given with its free blocks, is what a search is for.
pub(crate) type Accept<'a> = &'a mut dyn FnMut(u64, u64) -> Result<bool>;

impl Space {
    /// The words of a class that hold a chunk's bit and its summary's: their offsets, and the bits.
    #[inline]
    fn class_places(&self, class: u64, chunk: u64) -> [(u64, u64); 2] {
        let count = self.rt.layout.chunk_count;
        let start = self.rt.layout.fullness + class * class_words(count) * 8;
        let word = chunk / 64;
        let summary = start + (count.div_ceil(64) + word / 64) * 8;
        [(start + word * 8, 1 << (chunk % 64)), (summary, 1 << (word % 64))]
    }

    /// The number of free blocks of a chunk that is broken for `kind` has changed.
    pub(crate) fn index_moved(&self, chunk: u64, kind: Kind, before: u64, now: u64) -> Result<()> {
        let (from, to) = (class_of(kind, before), class_of(kind, now));
        if from == to {
            return Ok(());
        }
        if let Some(class) = from {
            self.index_leave(class, chunk)?;
        }
        match to {
            Some(class) => self.index_enter(class, chunk),
            None => Ok(()),
        }
    }

    pub(crate) fn index_enter(&self, class: u64, chunk: u64) -> Result<()> {
        for (at, bit) in self.class_places(class, chunk) {
            if self.rt.load(at)? & bit == 0 {
                self.rt.or(at, bit)?;
            }
        }
        Ok(())
    }

    pub(crate) fn index_leave(&self, class: u64, chunk: u64) -> Result<()> {
        let [(at, bit), (summary, summary_bit)] = self.class_places(class, chunk);
        if self.rt.and(at, !bit)? & !bit == 0 {
            self.rt.and(summary, !summary_bit)?;
            // Another chunk of the word may have entered between the two.
            if self.rt.load(at)? != 0 {
                self.rt.or(summary, summary_bit)?;
            }
        }
        Ok(())
    }

    /// Whether a class may have a chunk in `chunks`, by one word of its summary: most have none.
    #[inline]
    fn class_has(&self, class: u64, chunks: &Range<u64>) -> Result<bool> {
        let (first, last) = (chunks.start / 64, chunks.end.saturating_sub(1) / 64);
        if first / 64 != last / 64 {
            return Ok(true);
        }
        let [_, (summary, _)] = self.class_places(class, chunks.start);
        let covered = (u64::MAX << (first % 64)) & (u64::MAX >> (63 - last % 64));
        Ok(self.rt.load(summary)? & covered != 0)
    }

    /// The first chunk of a class in `chunks` that `accept` takes, of up to `most` that it is
    /// asked. Those that are in the wrong class are put right on the way.
    #[inline]
    pub(crate) fn index_find(
        &self,
        class: u64,
        chunks: &Range<u64>,
        most: u32,
        accept: Accept,
    ) -> Result<Option<u64>> {
        if !self.class_has(class, chunks)? {
            return Ok(None);
        }
        self.search_class(class, chunks, most, accept)
    }

    fn search_class(
        &self,
        class: u64,
        chunks: &Range<u64>,
        most: u32,
        accept: Accept,
    ) -> Result<Option<u64>> {
        let words = chunks.end.div_ceil(64);
        let (mut word, mut looks) = (chunks.start / 64, 0);
        while word < words {
            let [(at, _), (summary, bit)] = self.class_places(class, word * 64);
            let later = self.rt.load(summary)? & (u64::MAX << bit.trailing_zeros());
            if later & bit == 0 {
                // To the next word that has a chunk, or the next summary.
                word = word / 64 * 64 + u64::from(later.trailing_zeros());
                continue;
            }
            let mut bits = self.rt.load(at)?;
            while bits != 0 {
                let chunk = word * 64 + u64::from(bits.trailing_zeros());
                bits &= bits - 1;
                if !chunks.contains(&chunk) {
                    continue;
                }
                let free = self.chunk_free(chunk)?.min(CHUNK_BLOCKS);
                if class != ROOM && class_of(self.chunk_kind(chunk)?, free) != Some(class) {
                    self.index_correct(class, chunk)?;
                } else if accept(chunk, free)? {
                    return Ok(Some(chunk));
                }
                looks += 1;
                if looks == most {
                    return Ok(None);
                }
            }
            word += 1;
        }
        Ok(None)
    }

    /// A chunk was found in a class where it does not belong.
    fn index_correct(&self, class: u64, chunk: u64) -> Result<()> {
        self.index_leave(class, chunk)?;
        match class_of(self.chunk_kind(chunk)?, self.chunk_free(chunk)?) {
            Some(right) => self.index_enter(right, chunk),
            None => Ok(()),
        }
    }

    /// A free chunk of `chunks`.
    pub(crate) fn index_free(&self, chunks: &Range<u64>) -> Result<Option<u64>> {
        self.index_find(FREE, chunks, LOOKS, &mut |_, _| Ok(true))
    }

    /// The first free chunk of `chunks`.
    pub(crate) fn index_any_free(&self, chunks: &Range<u64>) -> Result<Option<u64>> {
        self.index_find(FREE, chunks, u32::MAX, &mut |_, _| Ok(true))
    }

    /// A chunk is free no more.
    pub(crate) fn index_not_free(&self, chunk: u64) -> Result<()> {
        self.index_leave(FREE, chunk)?;
        // It may be free again by now, and somebody may have said so before.
        if self.chunk_kind(chunk)? == Kind::Free {
            self.index_enter(FREE, chunk)?;
        }
        Ok(())
    }

    /// The chunk of `chunks`, broken for `kind`, with the fewest free blocks, but at least `need`,
    /// that `accept` takes; within a class all are equal.
    pub(crate) fn index_fullest(
        &self,
        chunks: &Range<u64>,
        kind: Kind,
        need: u64,
        accept: Accept,
    ) -> Result<Option<u64>> {
        let start = first_class(kind);
        let need = need.clamp(1, CHUNK_BLOCKS - 1);
        for class in start + u64::from(need.ilog2())..start + SIZES {
            let mut enough = |chunk, free| Ok(free >= need && accept(chunk, free)?);
            let found = self.index_find(class, chunks, LOOKS, &mut enough)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The data chunk of `chunks` with the most free blocks that `accept` takes, to the class.
    pub(crate) fn index_emptiest(
        &self,
        chunks: &Range<u64>,
        accept: Accept,
    ) -> Result<Option<u64>> {
        for class in (0..SIZES).rev() {
            let found = self.index_find(class, chunks, LOOKS, accept)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Writes the index anew over `words`. The caller is alone.
    pub(crate) fn index_write(&self, draft: &Draft, words: Words) -> Result<()> {
        let store = |at: u64, word: u64| match self.rt.load(at)? {
            same if same == word => Ok(()),
            _ => self.rt.store(at, word),
        };
        for (class, new) in draft.classes.iter().enumerate() {
            for first in (0..draft.words).step_by(64) {
                let [_, (place, _)] = self.class_places(class as u64, first as u64 * 64);
                let before = match words {
                    Words::Any => u64::MAX,
                    Words::AsSummed => self.rt.load(place)?,
                };
                if before == 0 && new.is_empty() {
                    continue;
                }
                let mut summary = 0;
                for index in 0..(draft.words - first).min(64) {
                    let word = new.get(first + index).copied().unwrap_or(0);
                    summary |= u64::from(word != 0) << index;
                    if word != 0 || before >> index & 1 != 0 {
                        let chunk = (first + index) as u64 * 64;
                        let [(at, _), _] = self.class_places(class as u64, chunk);
                        store(at, word)?;
                    }
                }
                store(place, summary)?;
            }
        }
        Ok(())
    }

    /// Makes the words ready that chunks from `before` on need, which nobody uses yet.
    pub(crate) fn index_extend(&self, before: u64) -> Result<()> {
        for class in 0..CLASSES {
            for chunk in (before.next_multiple_of(64)..self.chunks()).step_by(64) {
                let [(at, _), (summary, bit)] = self.class_places(class, chunk);
                self.rt.store(at, 0)?;
                if bit == 1 {
                    self.rt.store(summary, 0)?;
                }
            }
        }
        Ok(())
    }
}

/// What stands in the words of an index that is written anew.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Words {
    /// Anything.
    Any,
    /// What an orderly end left: a word whose bit in the summary is clear has no chunk, or one that
    /// the next search puts right.
    AsSummed,
}

/// An index in the making.
pub(crate) struct Draft {
    /// The words of each class; of one that has no chunk yet, none.
    classes: [Vec<u64>; CLASSES as usize],
    /// Words of a class.
    words: usize,
}

impl Draft {
    /// One without a chunk, for a volume of so many.
    pub(crate) fn new(chunks: u64) -> Self {
        Self {
            classes: [const { Vec::new() }; CLASSES as usize],
            words: chunks.div_ceil(64) as usize,
        }
    }

    fn class(&mut self, class: u64) -> &mut [u64] {
        let words = &mut self.classes[class as usize];
        if words.is_empty() {
            *words = vec![0; self.words];
        }
        words
    }

    /// Adds a chunk with these inode extents.
    pub(crate) fn add(&mut self, chunk: u64, kind: Kind, free: u64, extents: u64) {
        let room = (extents != 0).then_some(ROOM);
        for class in class_of(kind, free).into_iter().chain(room) {
            self.class(class)[chunk as usize / 64] |= 1 << (chunk % 64);
        }
    }

    /// Adds chunks that are free.
    pub(crate) fn add_free(&mut self, chunks: Range<u64>) {
        let words = self.class(FREE);
        let mut at = chunks.start;
        while at < chunks.end {
            let end = (at / 64 * 64 + 64).min(chunks.end);
            words[at as usize / 64] |= u64::MAX >> (64 - (end - at)) << (at % 64);
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;
    use crate::testing::volume;

    #[test]
    fn classes_are_logarithms() {
        assert_eq!(class_of(Kind::Data, 0), None);
        assert_eq!(class_of(Kind::Data, 1), Some(0));
        assert_eq!(class_of(Kind::Data, 7), Some(2));
        assert_eq!(class_of(Kind::Data, 511), Some(SIZES - 1));
        assert_eq!(class_of(Kind::Data, 512), None);
        assert_eq!(class_of(Kind::Metadata, 1), Some(SIZES));
        assert_eq!(class_of(Kind::Metadata, 511), Some(FREE - 1));
        assert_eq!(class_of(Kind::Free, 512), Some(FREE));
        assert_eq!(class_of(Kind::Retiring, 3), None);
        assert_eq!(class_words(64), 8);
        assert_eq!(class_words(64 * 64 * 8), 64 * 8 + 8);
    }

    /// Free chunks by ranges are what they are one by one, and an index over what an orderly end
    /// left is what it is over anything.
    #[test]
    fn a_draft_by_ranges_is_one_by_chunks() {
        let volume = volume(Mode::Strict, 130);
        let words = |volume: &crate::Volume| -> Vec<u64> {
            let (start, count) = (volume.rt.layout.fullness, volume.rt.layout.chunk_count);
            let end = start + CLASSES * class_words(count) * 8;
            (start..end).step_by(8).map(|at| volume.rt.load(at).unwrap()).collect()
        };
        for range in [0..1, 0..64, 1..63, 60..70, 63..65, 64..128, 5..129, 0..130, 7..7] {
            let (mut one, mut other) = (Draft::new(130), Draft::new(130));
            one.add_free(range.clone());
            range.clone().for_each(|chunk| other.add(chunk, Kind::Free, CHUNK_BLOCKS, 0));
            one.add(3, Kind::Data, 9, 1);
            other.add(3, Kind::Data, 9, 1);
            volume.index_write(&one, Words::AsSummed).unwrap();
            let first = words(&volume);
            volume.index_write(&other, Words::Any).unwrap();
            assert_eq!(first, words(&volume), "{range:?}");
        }
    }

    #[test]
    fn a_wrong_bit_is_put_right_and_a_lost_one_costs_only_the_hint() {
        let volume = volume(Mode::Strict, 70);
        let chunks = 0..volume.chunks();
        let all = &mut |_: u64, _: u64| Ok(true);
        let last = volume.chunks() - 1;
        assert!(volume.claim_free(last, Kind::Data, 0, 500).unwrap());
        assert_eq!(volume.index_fullest(&chunks, Kind::Data, 12, all).unwrap(), Some(last));
        assert_eq!(volume.index_fullest(&chunks, Kind::Data, 13, all).unwrap(), None);
        assert_eq!(volume.index_fullest(&(0..last), Kind::Data, 1, all).unwrap(), None);
        volume.index_enter(7, last).unwrap();
        volume.index_enter(7, 3).unwrap();
        assert_eq!(volume.index_emptiest(&chunks, all).unwrap(), Some(last), "by its right class");
        assert_eq!(volume.index_find(7, &chunks, LOOKS, all).unwrap(), None, "both were put right");
        volume.index_leave(3, last).unwrap();
        assert_eq!(volume.index_emptiest(&chunks, all).unwrap(), None);
        let mut draft = Draft::new(volume.chunks());
        draft.add(last, Kind::Data, 12, 0);
        draft.add(0, Kind::Metadata, 12, 1);
        volume.index_write(&draft, Words::Any).unwrap();
        assert_eq!(volume.index_emptiest(&chunks, all).unwrap(), Some(last));
        assert_eq!(volume.index_free(&chunks).unwrap(), None, "the draft has none");
        assert!(volume.claim(last, Kind::Data, 500, 12).unwrap());
        assert_eq!(volume.index_emptiest(&chunks, all).unwrap(), None, "full");
    }
}
