//! A process's cache of lines: short parts of pages that other nodes have, which are read and stay
//! there (dissertation, 6.4.4, "Fine-grained caching").
//!
//! An entry has the lines of one load, under its first line and the page's version. It is never
//! invalidated: who looks says which version the page has now (`remote_reads.rs`), and bytes of a
//! version never change. What is stale goes when it is met.
//!
//! Which stay is by how often they are wanted (LFU): all loads are counted, of what is in the cache
//! and of what is not, in counters that many share (a count-min sketch, as `TinyLFU` has it), and
//! halved from time to time. Of 16 entries drawn the one that is wanted least gives way, if what
//! comes is wanted more often.
//!
//! The cache begins with an eighth of its bytes and doubles where it has no room, while at least
//! one of 16 loads is served; it halves where it serves less than one of 64, or nobody has asked
//! for as long as an unwanted page stays on the host.
//!
//! No clock, no socket, no lock: `remote_reads.rs` has one for each shard.

use crate::protocol::Version;
use crate::protocol::messages::Lines;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// What an entry costs beside its bytes.
const ENTRY: u64 = 96;
/// Entries of which one gives way.
const DRAWN: usize = 16;
/// Counters of loads are halved when there were so many loads for each.
const LOADS: usize = 16;
/// Rows of counters.
const ROWS: usize = 4;
/// Loads after which it is seen whether the cache is of use.
const WINDOW: u64 = 16_384;
/// A page whose lines are asked for until these are so many bytes is brought whole: two pages,
/// since one that comes has another one leave.
pub const WHOLE: usize = 2 * 4096;
/// Bytes that a page's counter counts by one.
const STEP: usize = 256;
/// Ticks of the node in which as many pages come as it has room for.
const TURN: u16 = 256;
/// A tick has 12 bits.
const TICKS: u16 = 0xFFF;

/// Mixes a number's bits.
fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (number ^ number >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mixed(self.0 ^ number);
    }
}

/// How often things are wanted, about: never less than they were since the last halving.
struct Sketch {
    counters: Vec<u8>,
    mask: u64,
    left: usize,
}

impl Sketch {
    fn new(width: usize) -> Self {
        Self { counters: vec![0; width * ROWS], mask: width as u64 - 1, left: width * LOADS }
    }

    fn places(&self, key: u64) -> [usize; ROWS] {
        let (hash, row) = (mixed(key), self.mask as usize + 1);
        let (start, step) = (hash & 0xFFFF_FFFF, hash >> 32 | 1);
        std::array::from_fn(|at| {
            at * row + (start.wrapping_add(step.wrapping_mul(at as u64)) & self.mask) as usize
        })
    }

    fn count(&self, key: u64) -> u8 {
        self.places(key).map(|at| self.counters[at]).into_iter().min().unwrap_or_default()
    }

    /// Counts one more. Whether all were halved.
    fn add(&mut self, key: u64) -> bool {
        let (places, least) = (self.places(key), self.count(key));
        for at in places {
            let counter = &mut self.counters[at];
            // Only those that say what is known: the others count something else, too.
            if *counter == least {
                *counter = counter.saturating_add(1);
            }
        }
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.left = (self.mask as usize + 1) * LOADS;
        self.counters.iter_mut().for_each(|counter| *counter /= 2);
        true
    }
}

struct Entry {
    key: u64,
    version: Version,
    /// How often it was wanted, halved with all others up to this time.
    count: u32,
    halved: u32,
    bytes: Box<[u8]>,
}

impl Entry {
    fn count(&self, halved: u32) -> u32 {
        self.count >> halved.wrapping_sub(self.halved).min(31)
    }

    fn cost(&self) -> u64 {
        self.bytes.len() as u64 + ENTRY
    }
}

/// What is to be done for a load.
#[derive(PartialEq, Eq, Debug)]
pub enum Found {
    /// Its bytes were here.
    Here,
    /// Its lines are to be asked for.
    Ask,
    /// The page is to be brought.
    Whole,
}

/// A part of the cache.
pub struct Shard {
    places: HashMap<u64, u32, BuildHasherDefault<Mixed>>,
    entries: Vec<Entry>,
    used: u64,
    /// Bytes that it may have now, and ever.
    limit: u64,
    most: u64,
    sketch: Sketch,
    halved: u32,
    /// What was asked for of each page, in steps: several pages may share one.
    asked: Vec<u8>,
    asked_at: u16,
    /// Loads, and those that were served, since it was seen whether it is of use.
    loads: u64,
    served: u64,
    drawn: u64,
}

/// What an entry is found by.
fn key(lines: Lines) -> u64 {
    // The page, and the first line.
    lines.number() & ((1 << 58) - 1)
}

impl Shard {
    /// One that has so many bytes, at most.
    pub fn new(most: u64) -> Self {
        let width = (most / STEP as u64).clamp(1 << 10, 1 << 22).next_power_of_two() as usize;
        Self {
            places: HashMap::default(),
            entries: Vec::new(),
            used: 0,
            limit: most / 8,
            most,
            sketch: Sketch::new(width),
            halved: 0,
            asked: vec![0; width],
            asked_at: 0,
            loads: 0,
            served: 0,
            drawn: 1,
        }
    }

    /// Bytes that it has, with what they cost beside.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Looks for lines of a page in this version: copies from `skip` on, if they are here. `now`: a
    /// tick of the node.
    pub fn find(
        &mut self,
        lines: Lines,
        version: Version,
        (skip, to): (usize, &mut [u8]),
        now: u16,
    ) -> Found {
        self.halved = self.halved.wrapping_add(u32::from(self.sketch.add(key(lines))));
        self.loads += 1;
        if let Some(at) = self.places.get(&key(lines)).copied() {
            let halved = self.halved;
            let entry = &mut self.entries[at as usize];
            if entry.version == version
                && let Some(bytes) = entry.bytes.get(skip..skip + to.len())
            {
                to.copy_from_slice(bytes);
                (entry.count, entry.halved) = (entry.count(halved) + 1, halved);
                self.served += 1;
                return Found::Here;
            }
            self.remove(at);
        }
        self.see_use();
        if self.is_worth_a_page(lines, now) { Found::Whole } else { Found::Ask }
    }

    /// Whether the page's lines have been asked for so often, in the time in which it would have
    /// stayed here, that it should have been brought.
    fn is_worth_a_page(&mut self, lines: Lines, now: u16) -> bool {
        if now.wrapping_sub(self.asked_at) & TICKS >= TURN {
            self.asked_at = now;
            self.asked.iter_mut().for_each(|asked| *asked /= 2);
        }
        let at = mixed(lines.page()) as usize & (self.asked.len() - 1);
        let asked = usize::from(self.asked[at]) * STEP + lines.bytes().next_multiple_of(STEP);
        let whole = asked > WHOLE;
        self.asked[at] = if whole { 0 } else { (asked / STEP) as u8 };
        whole
    }

    /// Halves where it serves next to nothing.
    fn see_use(&mut self) {
        if self.loads >= WINDOW {
            if self.served < self.loads / 64 {
                self.shrink();
            }
            (self.loads, self.served) = (0, 0);
        }
    }

    /// Has half of what it may have.
    pub fn shrink(&mut self) {
        self.limit = (self.limit / 2).max(self.most / 64);
        while self.used > self.limit {
            match self.coldest(&|_, _| true) {
                Some((at, _)) => self.remove(at),
                None => break,
            }
        }
    }

    /// Keeps lines of a page in this version, unless what is here is wanted more. `is_current`:
    /// whether a page has a version still.
    pub fn keep(
        &mut self,
        lines: Lines,
        version: Version,
        bytes: &[u8],
        is_current: &impl Fn(u64, Version) -> bool,
    ) {
        if let Some(at) = self.places.get(&key(lines)).copied() {
            self.remove(at);
        }
        let count = u32::from(self.sketch.count(key(lines)));
        let cost = bytes.len() as u64 + ENTRY;
        while self.used + cost > self.limit {
            if self.limit < self.most && self.served >= self.loads / 16 {
                self.limit = (self.limit * 2).min(self.most);
                continue;
            }
            match self.coldest(is_current) {
                Some((at, wanted)) if wanted < count => self.remove(at),
                _ => return,
            }
        }
        self.used += cost;
        self.places.insert(key(lines), self.entries.len() as u32);
        let (key, halved, bytes) = (key(lines), self.halved, bytes.into());
        self.entries.push(Entry { key, version, count, halved, bytes });
    }

    /// Of some entries the one that is wanted least, and how often: one that is stale, not at all.
    fn coldest(&mut self, is_current: &impl Fn(u64, Version) -> bool) -> Option<(u32, u32)> {
        let mut coldest: Option<(u32, u32)> = None;
        for _ in 0..DRAWN.min(self.entries.len()) {
            self.drawn = self.drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (((self.drawn >> 32) * self.entries.len() as u64) >> 32) as u32;
            let entry = &self.entries[at as usize];
            let page = entry.key & ((1 << 52) - 1);
            if !is_current(page, entry.version) {
                return Some((at, 0));
            }
            let count = entry.count(self.halved);
            if coldest.is_none_or(|coldest| count < coldest.1) {
                coldest = Some((at, count));
            }
        }
        coldest
    }

    fn remove(&mut self, at: u32) {
        let gone = self.entries.swap_remove(at as usize);
        self.used -= gone.cost();
        self.places.remove(&gone.key);
        if let Some(moved) = self.entries.get(at as usize) {
            self.places.insert(moved.key, at);
        }
    }
}
