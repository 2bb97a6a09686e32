//! Emulated slow memory: what was copied is waited for until it would have arrived.
//!
//! A copy says what it is about to move, is made, then waits. So its time is the larger one of the
//! copy's and of the [`Model`]'s:
//!
//! - a latency: one for each copy, the lower one if it begins where the last copy of its thread, in
//!   this direction, ended;
//! - the bandwidth, which all share: a word for each direction says until when the memory is *busy*
//!   with copies that were begun before. A copy moves whole lines of 256 bytes; the first one not
//!   again, if the copy before it in sequence ended in it.
//!
//! Invariants: the words hold ticks of the time-stamp counter, and any value is harmless. A time in
//! the past is now. One that is further ahead than a second is garbage, and now, too: so no copy
//! waits longer than a second, its own transfer and its latency. A process that dies leaves behind
//! at most a time that passes.
//!
//! Locks: none.

mod clock;
mod model;

pub use model::Model;

use clock::FRACTION;
use memory::instructions::copy;
use model::Costs;
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Bytes that the medium moves at once.
const LINE: u64 = 256;
/// How far ahead a busy word can be.
const AHEAD_NS_MAX: u32 = 1_000_000_000;

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Out of the memory.
    Read,
    /// Into it.
    Write,
}

thread_local! {
    /// Where this thread's last copies ended, by direction.
    static ENDS: [Cell<u64>; 2] = const { [const { Cell::new(u64::MAX) }; 2] };
}

/// [`Costs`] in ticks.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    latency_in_sequence: u64,
    latency_random: u64,
    /// In 2^-[`FRACTION`] ticks.
    per_byte: u64,
}

impl Ticks {
    /// `rate` as of [`clock::rate`].
    fn of(costs: Costs, rate: u64) -> Self {
        let per_byte = |mb_per_s| (u128::from(rate) * 1000).checked_div(mb_per_s).unwrap_or(0);
        Self {
            latency_in_sequence: ticks(costs.latency_in_sequence_ns, rate),
            latency_random: ticks(costs.latency_random_ns, rate),
            per_byte: per_byte(u128::from(costs.bandwidth_mb_per_s)) as u64,
        }
    }

    fn transfer(&self, bytes: u64) -> u64 {
        ((u128::from(bytes) * u128::from(self.per_byte)) >> FRACTION) as u64
    }
}

fn ticks(ns: u32, rate: u64) -> u64 {
    ((u128::from(ns) * u128::from(rate)) >> FRACTION) as u64
}

/// Memory that is slowed as a [`Model`] says.
#[derive(Debug)]
pub struct SlowMemory {
    model: Model,
    ways: [Ticks; 2],
    ahead_max: u64,
    /// Two words of a region; null: `own` are used.
    shared: AtomicPtr<u8>,
    own: [AtomicU64; 2],
}

/// A copy that has begun.
#[must_use = "a copy is slowed by waiting for it"]
#[derive(Debug)]
pub struct Transfer {
    /// When the medium is through with it.
    moved: u64,
    latency: u64,
}

impl Transfer {
    /// Waits until the copy would have arrived.
    pub fn wait(self) {
        clock::wait_until(self.moved.wrapping_add(self.latency), clock::now);
    }

    /// The same of one of several copies that are one in the model: of all but the last only the
    /// transfer is waited for, and the last one has the latency of the first.
    fn wait_in_row(self, first_latency: u64, last: bool) {
        let latency = if last { first_latency } else { 0 };
        Self { latency, ..self }.wait();
    }
}

impl SlowMemory {
    /// Memory whose bandwidth the threads of this process share: for benchmarks, which slow other
    /// file systems by it. It takes a millisecond, once in a process.
    #[must_use]
    pub fn new(model: Model) -> Self {
        Self::at_rate(model, clock::rate())
    }

    /// The same, with the busy words (reads, writes) at `words`, which all processes share.
    ///
    /// # Safety
    ///
    /// `words` is a word's address, and what is mapped there and at the next word as long as this
    /// lives is for this alone.
    pub unsafe fn shared(model: Model, words: *mut u8) -> Self {
        Self { shared: AtomicPtr::new(words), ..Self::new(model) }
    }

    fn at_rate(model: Model, rate: u64) -> Self {
        Self {
            model,
            ways: [model.read, model.write].map(|costs| Ticks::of(costs, rate)),
            ahead_max: ticks(AHEAD_NS_MAX, rate),
            shared: AtomicPtr::new(std::ptr::null_mut()),
            own: [const { AtomicU64::new(0) }; 2],
        }
    }

    /// What it is slowed as.
    #[must_use]
    pub fn model(&self) -> Model {
        self.model
    }

    /// `bytes` are about to be copied out of the memory. `place` is where they lie in it, by any
    /// numbering: it says whether the copy begins where the last one of this thread ended.
    pub fn read(&self, place: u64, bytes: u64) -> Transfer {
        self.begin(Way::Read, place, bytes)
    }

    /// The same of bytes that are about to be copied into it.
    pub fn write(&self, place: u64, bytes: u64) -> Transfer {
        self.begin(Way::Write, place, bytes)
    }

    fn begin(&self, way: Way, place: u64, bytes: u64) -> Transfer {
        self.begin_at(clock::now(), way, place, bytes)
    }

    /// As [`SlowMemory::begin`], at the tick `now`.
    fn begin_at(&self, now: u64, way: Way, place: u64, bytes: u64) -> Transfer {
        if bytes == 0 {
            return Transfer { moved: now, latency: 0 };
        }
        let ticks = &self.ways[way as usize];
        let end = place.wrapping_add(bytes);
        let in_sequence = ENDS.with(|ends| ends[way as usize].replace(end)) == place;
        let latency = if in_sequence { ticks.latency_in_sequence } else { ticks.latency_random };
        let transfer = ticks.transfer(lines(place, bytes, in_sequence) * LINE);
        Transfer { moved: self.reserve(now, way, transfer), latency }
    }

    /// Takes the next `transfer` ticks of the medium; gives their end.
    fn reserve(&self, now: u64, way: Way, transfer: u64) -> u64 {
        let mut busy = self.busy(way);
        loop {
            let end = free_from(busy, now, self.ahead_max).wrapping_add(transfer);
            match self.set_busy(way, busy, end) {
                Ok(()) => return end,
                Err(found) => busy = found,
            }
        }
    }

    fn shared_word(&self, way: Way) -> Option<*mut u8> {
        let words = self.shared.load(Ordering::Relaxed);
        (!words.is_null()).then(|| words.wrapping_add(way as usize * 8))
    }

    fn busy(&self, way: Way) -> u64 {
        match self.shared_word(way) {
            // SAFETY: a word that is this one's, as `shared` was promised. One that has vanished
            // says nothing.
            Some(word) => unsafe { copy::load64(word) }.unwrap_or(0),
            None => self.own[way as usize].load(Ordering::Relaxed),
        }
    }

    fn set_busy(&self, way: Way, old: u64, new: u64) -> Result<(), u64> {
        let found = if let Some(word) = self.shared_word(way) {
            // SAFETY: as above.
            unsafe { copy::cas64(word, old, new) }.unwrap_or(old)
        } else {
            let order = Ordering::Relaxed;
            let set = self.own[way as usize].compare_exchange(old, new, order, order);
            set.unwrap_or_else(|found| found)
        };
        if found == old { Ok(()) } else { Err(found) }
    }

    /// A copy of several parts, one in the model: `parts` says how far each is from the start and
    /// how long, and `copy` makes it.
    pub fn in_parts<E>(
        &self,
        way: Way,
        place: u64,
        parts: impl Iterator<Item = (u64, u64)>,
        mut copy: impl FnMut(u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut first_latency, mut parts) = (None, parts.peekable());
        while let Some((done, bytes)) = parts.next() {
            let moving = self.begin(way, place.wrapping_add(done), bytes);
            let latency = *first_latency.get_or_insert(moving.latency);
            copy(done, bytes)?;
            moving.wait_in_row(latency, parts.peek().is_none());
        }
        Ok(())
    }
}

/// From when on the medium is free.
fn free_from(busy: u64, now: u64, ahead_max: u64) -> u64 {
    // A time in the past is far ahead in this arithmetic.
    if busy.wrapping_sub(now) <= ahead_max { busy } else { now }
}

/// How many lines a copy moves.
fn lines(place: u64, bytes: u64, in_sequence: bool) -> u64 {
    let into_line = place % LINE;
    let touched = into_line.saturating_add(bytes).div_ceil(LINE);
    touched - u64::from(in_sequence && into_line > 0)
}

#[cfg(test)]
#[path = "emulation_tests.rs"]
mod tests;
