//! Counters: words of a region that many threads add to and a reader sums.
//!
//! A *set* is a line of eight words for each of [`GROUPS`] groups of threads, [`APART`] bytes from
//! one to the next. A thread belongs to a group by where its vector of thread-local storage lies
//! (the word behind the thread pointer, x86-64's variant of it), so it needs no number of its own,
//! and two threads seldom add in one line. A word changes by one plain instruction: no lock prefix,
//! no wait. Three instructions count one, a fourth a number with it. Two threads of a group that
//! add to a word at the same moment may lose one of the two additions; nothing else is ever lost.
//!
//! An addition that faults (a page has vanished, or the file system beneath has no memory) counts
//! nowhere. No locks.

#![expect(clippy::inline_always, reason = "an addition is shorter than a call")]

use crate::region::Region;
use memory::instructions::copy::{count_one, count64};
use std::arch::asm;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Groups of threads.
pub const GROUPS: u64 = 8;
/// Bytes from the line of a group to that of the next one.
pub const APART: u64 = 4096;
/// Words of a line.
const WORDS: usize = 8;
/// From the first line of a set to the last one.
const LAST: u64 = (GROUPS - 1) * APART;
/// Vectors are told apart by a byte of their address, bits 8 to 15: each is some 300 bytes long.
const TOLD: usize = 256;

/// Where is counted what nobody asks for: as long as a set. Nothing reads it.
static NOWHERE: [AtomicU64; (LAST as usize + WORDS * 8) / 8] =
    [const { AtomicU64::new(0) }; (LAST as usize + WORDS * 8) / 8];

/// The set in which this process counts.
pub struct Counters {
    region: Arc<Region>,
    /// The line of each thread, as its group has it.
    lines: [AtomicPtr<u8>; TOLD],
}

impl Counters {
    /// It counts nowhere yet.
    pub fn new(region: &Arc<Region>) -> Self {
        let lines = std::array::from_fn(|told| AtomicPtr::new(line_of(nowhere(), told)));
        Self { region: Arc::clone(region), lines }
    }

    /// From now on counts in the set whose first line is at this multiple of 64; `None`: nowhere.
    pub fn set(&self, at: Option<u64>) {
        let inside = at.filter(|at| at.is_multiple_of(64) && self.region.writable());
        let first = inside.and_then(|at| self.region.range(at, LAST + 64).ok());
        let first = first.unwrap_or_else(nowhere);
        for (told, line) in self.lines.iter().enumerate() {
            line.store(line_of(first, told), Ordering::Relaxed);
        }
    }

    /// The line of this thread's group.
    #[inline(always)]
    fn line(&self) -> *mut u8 {
        let told: usize;
        // SAFETY: reads a byte of the word behind the thread pointer. Not `pure`: code may go on in
        // another thread.
        unsafe {
            asm!(
                "movzx {told:e}, byte ptr fs:[9]",
                told = out(reg) told,
                options(nostack, readonly, preserves_flags),
            );
            // A byte was read. (A mask of it would be an instruction more.)
            std::hint::assert_unchecked(told < TOLD);
        }
        self.lines[told].load(Ordering::Relaxed)
    }

    /// Adds one to a word.
    #[inline(always)]
    pub fn one<const WORD: usize>(&self) {
        const { assert!(WORD < WORDS) };
        // SAFETY: a word of the set, in the region, which lives as long, or nowhere.
        unsafe { count_one::<WORD>(self.line()) };
    }

    /// Adds one to a word, and a number to another one.
    #[inline(always)]
    pub fn one_and<const WORD: usize, const NEXT: usize>(&self, number: u64) {
        const { assert!(WORD < WORDS && NEXT < WORDS) };
        let line = self.line();
        // SAFETY: words of the set, in the region, which lives as long, or nowhere.
        unsafe {
            count_one::<WORD>(line);
            count64::<NEXT>(line, number);
        }
    }
}

fn line_of(first: *mut u8, told: usize) -> *mut u8 {
    first.wrapping_add(told % GROUPS as usize * APART as usize)
}

fn nowhere() -> *mut u8 {
    NOWHERE.as_ptr().cast_mut().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(region: &Region, at: u64, word: u64) -> u64 {
        let line = |group: u64| region.shared_load(at + group * APART + word * 8);
        (0..GROUPS).map(|group| line(group).expect("a word")).sum()
    }

    #[test]
    fn one_thread_counts_exactly_and_apart_from_its_neighbour() {
        let region = Arc::new(Region::zeros(1 << 20, None));
        let (counters, other) = (Counters::new(&region), Counters::new(&region));
        counters.one::<0>();
        counters.set(Some(4096));
        other.set(Some(4096 + 64));
        for _ in 0..1000 {
            counters.one::<1>();
            counters.one_and::<2, 3>(4096);
        }
        other.one::<1>();
        let found = [0, 1, 2, 3].map(|word| sum(&region, 4096, word));
        assert_eq!(found, [0, 1000, 1000, 4_096_000]);
        assert_eq!(sum(&region, 4096 + 64, 1), 1);
        counters.set(None);
        counters.one::<1>();
        assert_eq!(sum(&region, 4096, 1), 1000);
    }

    #[test]
    fn threads_count_in_lines_of_their_own() {
        let region = Arc::new(Region::zeros(1 << 20, None));
        let counters = Counters::new(&region);
        counters.set(Some(0));
        let begin = std::sync::Barrier::new(16);
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    begin.wait();
                    counters.one::<0>();
                });
            }
        });
        let lines = (0..GROUPS).filter(|group| region.shared_load(group * APART) != Ok(0));
        assert!(lines.count() >= 4, "sixteen threads share a few lines");
    }

    #[test]
    fn what_lies_outside_of_the_region_counts_nowhere() {
        let region = Arc::new(Region::zeros(1 << 16, None));
        let counters = Counters::new(&region);
        for at in [1 << 16, 40 << 10, 8] {
            counters.set(Some(at));
            counters.one::<7>();
        }
        assert!((0..1 << 13).all(|word| region.shared_load(word * 8) == Ok(0)));
    }
}
