//! Positions: which thread fills what, up to where all is filled, and up to where all is durable.
//!
//! Three words, each of which only grows: *reserved*, with a bit by which one thread closes it;
//! *done*, below which all is filled; *committed*, below which all is durable. A thread takes a
//! range, fills it, waits for its turn, and finishes it: so ranges are done in order, whatever
//! order they are filled in.
//!
//! They are written over a trait of words, so that a model checker runs this very code
//! (`positions_model.rs`).

use std::sync::atomic::{AtomicU64, Ordering};

/// Of *reserved*: one thread writes a key or skips the rest of the ring, and all others wait.
const CLOSED: u64 = 1 << 63;
/// Looks before a waiting thread lets others run.
const SPINS: u32 = 200;

/// What a word can do.
pub trait Word {
    /// A word of this value.
    fn of(value: u64) -> Self;
    /// Loads it (acquire).
    fn load(&self) -> u64;
    /// Stores it (release).
    fn store(&self, value: u64);
    /// Replaces `old` by `new` if that is there (acquire, release).
    fn cas(&self, old: u64, new: u64) -> bool;
    /// Waits a little, the longer the more often.
    fn pause(looks: &mut u32);
}

impl Word for AtomicU64 {
    fn of(value: u64) -> Self {
        Self::new(value)
    }

    #[inline]
    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    #[inline]
    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }

    #[inline]
    fn cas(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn pause(looks: &mut u32) {
        *looks += 1;
        if looks.is_multiple_of(SPINS) { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// Mistakes that the models put back in, each of which they must catch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mistake {
    /// A range is finished before those in front of it.
    OutOfTurn,
    /// A closed word is opened without waiting for those that fill.
    ClosedUnasked,
    /// What is reserved is committed, filled or not.
    CommitsReserved,
    /// A range counts as durable though others in front of it do not.
    DurableAlone,
    /// A range is taken by a store.
    TakenByStore,
}

#[cfg(test)]
thread_local! {
    /// The mistake that is made on this thread: a model runs on one.
    pub static MADE: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
}

/// Whether a mistake is to be made.
#[cfg(test)]
fn made(mistake: Mistake) -> bool {
    MADE.get() == Some(mistake)
}

/// Whether a mistake is to be made: outside tests never.
#[cfg(not(test))]
#[inline]
const fn made(_: Mistake) -> bool {
    false
}

/// On lines of its own: threads that change one word do not take the others away.
#[repr(align(128))]
struct Apart<W>(W);

/// The three words.
pub struct Positions<W> {
    reserved: Apart<W>,
    done: Apart<W>,
    committed: Apart<W>,
}

impl<W: Word> Positions<W> {
    /// All is durable up to `end`, and nothing is behind it.
    pub fn at(end: u64) -> Self {
        let word = || Apart(W::of(end));
        Self { reserved: word(), done: word(), committed: word() }
    }

    /// Behind all that is reserved.
    #[inline]
    pub fn reserved(&self) -> u64 {
        self.reserved.0.load() & !CLOSED
    }

    /// Below this all is durable.
    #[inline]
    pub fn committed(&self) -> u64 {
        self.committed.0.load()
    }

    // ---- taking

    /// Takes the next `needed` bytes; gives where they begin. Where a position is not `usable`,
    /// `turn` makes the next ones so; what ends where it must not has no room.
    #[inline]
    pub fn take<E>(
        &self,
        needed: u64,
        usable: impl Fn(u64) -> bool,
        mut turn: impl FnMut(u64) -> Result<(), E>,
        has_room: impl Fn(u64, u64) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut looks = 0;
        loop {
            let at = self.reserved.0.load();
            if at & CLOSED != 0 {
                W::pause(&mut looks);
            } else if !usable(at) {
                turn(at)?;
            } else {
                has_room(at, at + needed)?;
                if made(Mistake::TakenByStore) {
                    self.reserved.0.store(at + needed);
                    return Ok(at);
                }
                if self.reserved.0.cas(at, at + needed) {
                    return Ok(at);
                }
            }
        }
    }

    /// Keeps all others from taking, from `at` on, and waits until all before that is done.
    /// `false`: another thread was faster.
    pub fn close(&self, at: u64) -> bool {
        if !self.reserved.0.cas(at, at | CLOSED) {
            return false;
        }
        if !made(Mistake::ClosedUnasked) {
            self.wait_for_turn(at);
        }
        true
    }

    /// Opens what [`Positions::close`] closed: what lies up to `end` is filled, and durable by
    /// itself. `tell` is called if all before it is durable, too.
    pub fn reopen<R>(&self, at: u64, end: u64, tell: impl FnOnce() -> R) -> Option<R> {
        let told = self.committed.0.cas(at, end).then(tell);
        self.done.0.store(end);
        self.reserved.0.store(end);
        told
    }

    /// Opens it again, and nothing was done.
    pub fn reopen_unchanged(&self, at: u64) {
        self.reserved.0.store(at);
    }

    // ---- finishing

    /// Returns when all before a position is done.
    #[inline]
    pub fn wait_for_turn(&self, position: u64) {
        let mut looks = 0;
        while self.done.0.load() != position {
            W::pause(&mut looks);
        }
    }

    /// Finishes a range that this thread has made durable, if `counts`, which is asked in turn. If
    /// all before it is durable, so is this: then `tell` is called before the next one's turn.
    #[inline]
    pub fn finish_durable<R>(
        &self,
        range: (u64, u64),
        counts: impl FnOnce() -> bool,
        tell: impl FnOnce() -> R,
    ) -> Option<R> {
        let (position, end) = range;
        if !made(Mistake::OutOfTurn) {
            self.wait_for_turn(position);
        }
        let alone = counts() && self.committed.0.cas(position, end);
        if made(Mistake::DurableAlone) {
            self.committed.0.store(end);
        }
        let told = alone.then(tell);
        self.done.0.store(end);
        told
    }

    /// Finishes a range that is filled and not yet durable. `before` is called in turn.
    #[inline]
    pub fn finish(&self, range: (u64, u64), before: impl FnOnce()) {
        if !made(Mistake::OutOfTurn) {
            self.wait_for_turn(range.0);
        }
        before();
        self.done.0.store(range.1);
    }

    /// What is to be made durable for a commit of all up to `end`, which waits until that is
    /// filled. `None`: it is.
    pub fn to_commit(&self, end: u64) -> Option<(u64, u64)> {
        let mut looks = 0;
        while !made(Mistake::CommitsReserved) && self.done.0.load() < end {
            W::pause(&mut looks);
        }
        let from = self.committed();
        let to = if made(Mistake::CommitsReserved) { self.reserved() } else { self.done.0.load() };
        (from < end).then_some((from, to))
    }

    /// All is durable up to `to`; whether that is news.
    pub fn commit(&self, to: u64) -> bool {
        loop {
            let known = self.committed.0.load();
            if known >= to {
                return false;
            }
            if self.committed.0.cas(known, to) {
                return true;
            }
        }
    }
}
