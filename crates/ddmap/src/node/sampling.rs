//! Looking: cold pages are asked about before they leave (`docs/engines.md`, "Looking").
//!
//! A page that is mapped and used traps no more, so it looks cold. So the node asks all processes
//! to take its entries away, and waits while as many pages come as a part of the capacity: who uses
//! the page traps, its word says so, and it stays. A process that does not look, since it runs no
//! code of ours, says nothing: then the page leaves as it would have without.
//!
//! No clock, no socket, no thread.

use crate::protocol::Word;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Ticks that a page is given: an eighth of the capacity comes meanwhile.
const TICKS: u16 = 32;
/// Milliseconds, where so many do not come.
const PATIENCE_MS: u64 = 300;

/// When something happens: the node's ticks, and milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Pages that have come (`Capacity::tick`).
    pub tick: u16,
    /// The clock, from any moment on.
    pub ms: u64,
}

/// Pages that were asked about, the first ones first.
#[derive(Default)]
pub struct Sample {
    asked: VecDeque<Asked>,
    /// Of each page that may leave yet, which question is about it: others are over.
    pages: HashMap<u64, u64, BuildHasherDefault<OfPage>>,
    /// Questions ever; and those of them that have left the queue.
    count: u64,
    gone: u64,
    /// Where the last glance ended.
    glance: u64,
}

/// A page's number is spread by a product: nobody chooses which pages there are, and each of some
/// thousands is looked up again and again.
#[derive(Default)]
struct OfPage(u64);

impl Hasher for OfPage {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u64(&mut self, number: u64) {
        let spread = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = spread ^ spread >> 32;
    }
}

#[derive(Clone, Copy)]
struct Asked {
    page: u64,
    word: Word,
    at: Moment,
    number: u64,
}

impl Sample {
    /// How many pages may leave yet.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether there are none.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Whether a page was asked about, and may leave yet.
    pub fn has(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }

    /// A page is asked about.
    pub fn ask(&mut self, (page, word): (u64, Word), at: Moment) {
        if let Entry::Vacant(place) = self.pages.entry(page) {
            place.insert(self.count);
            self.asked.push_back(Asked { page, word, at, number: self.count });
            self.count += 1;
        }
    }

    /// Whether a question is the one about its page, and nobody has wanted that since.
    fn stands(&self, asked: &Asked, word: impl Fn(u64) -> Word) -> bool {
        self.pages.get(&asked.page) == Some(&asked.number) && word(asked.page) == asked.word
    }

    fn is_over(&mut self, asked: &Asked) {
        if self.pages.get(&asked.page) == Some(&asked.number) {
            self.pages.remove(&asked.page);
        }
    }

    /// Sees which of so many pages were wanted: others are asked about in their place, before the
    /// first ones have left.
    pub fn glance(&mut self, pages: usize, word: impl Fn(u64) -> Word) {
        for _ in 0..pages.min(self.asked.len()) {
            let at = self.glance.saturating_sub(self.gone) as usize % self.asked.len();
            let asked = self.asked[at];
            // Of a question that is over by another one nothing is known: nothing is done.
            if word(asked.page) != asked.word {
                self.is_over(&asked);
            }
            self.glance = asked.number + 1;
        }
    }

    /// The next page that may leave: its time is over, or `at_once`, and nobody has wanted it.
    pub fn next(
        &mut self,
        now: Moment,
        at_once: bool,
        word: impl Fn(u64) -> Word,
    ) -> Option<(u64, Word)> {
        loop {
            let asked = *self.asked.front()?;
            let stands = self.stands(&asked, &word);
            let ticks = now.tick.wrapping_sub(asked.at.tick) & 0xFFF;
            let in_time = ticks < TICKS && now.ms.saturating_sub(asked.at.ms) < PATIENCE_MS;
            if stands && in_time && !at_once {
                return None;
            }
            self.asked.pop_front();
            self.gone += 1;
            self.is_over(&asked);
            if stands {
                return Some((asked.page, asked.word));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Flags, State, Version};

    #[test]
    fn a_glance_finds_who_is_wanted_behind_others() {
        let owned = Word::new(State::Owned, Flags::default(), Version::new(1)).arrived(3);
        let mut looked = Sample::default();
        let at = Moment { tick: 3, ms: 0 };
        (0..10).for_each(|page| looked.ask((page, owned), at));
        let word = |page| if page % 2 == 0 { owned } else { owned.wanted(9) };
        looked.glance(4, word);
        assert_eq!(
            (looked.len(), looked.has(1), looked.has(3), looked.has(5)),
            (8, false, false, true)
        );
        // Page 1 is asked about once more: its first question is not what it leaves by.
        looked.ask((1, word(1)), at);
        assert_eq!(looked.next(at, true, word), Some((0, owned)));
        assert_eq!(looked.next(at, true, word), Some((2, owned)));
        looked.glance(100, word);
        let left: Vec<u64> =
            std::iter::from_fn(|| looked.next(at, true, word)).map(|one| one.0).collect();
        assert_eq!(left, [4, 6, 8, 1]);
        assert!(looked.is_empty());
    }

    #[test]
    fn a_page_leaves_when_its_time_is_over_and_nobody_wants_it() {
        let owned = |tick| Word::new(State::Owned, Flags::default(), Version::new(1)).arrived(tick);
        let mut looked = Sample::default();
        let at = |tick, ms| Moment { tick, ms };
        for page in 0..4 {
            looked.ask((page, owned(3)), at(4090, 0));
            looked.ask((page, owned(3)), at(4090, 0));
        }
        assert_eq!(looked.len(), 4, "none is asked about twice");
        let word = |page| if page == 0 { owned(3).wanted(4091) } else { owned(3) };
        assert_eq!(looked.next(at(4095, 10), false, word), None);
        assert_eq!((looked.has(0), looked.has(1)), (false, true), "page 0 is wanted");
        assert_eq!(looked.next(at(26, 20), false, word), Some((1, owned(3))), "ticks go round");
        assert_eq!(looked.next(at(4095, 299), false, word), None);
        assert_eq!(looked.next(at(4095, 300), false, word), Some((2, owned(3))));
        assert_eq!(looked.next(at(4090, 0), true, word), Some((3, owned(3))));
        assert_eq!(looked.next(at(4090, 0), true, word), None);
    }
}
