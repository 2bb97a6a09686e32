//! Which pages leave first: by what a page's word says of when it came, when it was wanted last,
//! and how often (`Word::came`, `heat`, `count`; dissertation, 6.4.4, "Tracking hot blocks").
//!
//! Pages are in two queues, as the paper has them. The cold one is a part of the owned pages, the
//! coldest first; all others are the hot one, which nobody has to list: a page that was wanted
//! since it was found cold has another word than then, and is skipped. So the order is that of the
//! policy itself, as exact as words tell time: a page that nobody wants overtakes no other one.
//!
//! No clock, no socket, no thread: the node's time goes by pages that come
//! (`shared_memory/capacity.rs`).

use crate::control::preferences::Policy;
use crate::protocol::{Flags, Word};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// Pages in the cold queue, at most; and the part of the pages that may leave.
const COLD: usize = 16 << 10;
const PART: usize = 8;
const LOCAL_LEAST: usize = 64;

/// How cold a page is: what is coldest leaves first.
pub fn coldness(policy: Policy, word: Word, now: u16) -> u32 {
    let age = u32::from(word.age(now));
    match policy {
        Policy::Lru => age,
        // Among those that came at about the same time, what was not wanted since came first.
        Policy::Fifo => u32::from(word.came_before(now)) << 12 | age,
        Policy::Lfu => u32::from(Word::COUNT_MAX - word.cooled(now)) << 12 | age,
    }
}

/// A page that may leave: whether it is of a large file, how cold it is, its number (among equals
/// the first one leaves first), its word.
type Candidate = (bool, u32, Reverse<u64>, u64);

/// Keeps the coldest ones, in no order.
fn keep(coldest: &mut Vec<Candidate>, most: usize) {
    if coldest.len() > most {
        coldest.select_nth_unstable_by(most, |one, other| other.cmp(one));
        coldest.truncate(most);
    }
}

/// The cold pages of a volume.
#[derive(Default)]
pub struct Cold {
    policy: Policy,
    queue: VecDeque<(u64, Word)>,
}

impl Cold {
    /// The next page to leave, and its word: nobody has wanted the page since it was found cold,
    /// where the policy asks for that.
    pub fn next(&mut self, policy: Policy, word: impl Fn(u64) -> Word) -> Option<(u64, Word)> {
        if self.policy != policy {
            self.queue.clear();
        }
        while let Some((page, seen)) = self.queue.pop_front() {
            let now = word(page);
            // When it came, and all above.
            let came = |word: Word| word.0 >> 16;
            if now == seen || policy == Policy::Fifo && came(now) == came(seen) {
                return Some((page, now));
            }
        }
        None
    }

    /// Fills the queue with the coldest of some pages: those of small files behind all others.
    pub fn fill(&mut self, policy: Policy, now: u16, pages: impl Iterator<Item = (u64, Word)>) {
        self.policy = policy;
        let (mut coldest, mut seen): (Vec<Candidate>, usize) = (Vec::new(), 0);
        for (page, word) in pages {
            if !word.state().is_here() || word.flags().has(Flags::STAYS) {
                continue;
            }
            seen += 1;
            let is_large = !word.flags().has(Flags::SMALL);
            coldest.push((is_large, coldness(policy, word, now), Reverse(page), word.0));
            if coldest.len() == 2 * COLD {
                keep(&mut coldest, COLD);
            }
        }
        keep(&mut coldest, (seen / PART).clamp(LOCAL_LEAST, COLD));
        coldest.sort_unstable_by(|one, other| other.cmp(one));
        self.queue =
            coldest.into_iter().map(|(_, _, Reverse(page), word)| (page, Word(word))).collect();
    }
}
