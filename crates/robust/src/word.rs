//! A shared word of 8 bytes, and what can be done with it.
//!
//! Loads acquire, stores release, and a read-modify-write orders everything before it before
//! everything behind it, as locked instructions do. Any access may fail: in a region because the
//! page has vanished, in a model because its process is dead.

#![expect(clippy::inline_always, reason = "a word's place stays in registers")]

use pmem::{Fault, Region, Span};
use std::time::Duration;

/// A shared word: where it is. It is handed on by value, so that no address of it is taken, which
/// would cost its holder the registers.
pub trait Word: Copy {
    /// Why an access failed.
    type Error;
    /// The word as it is handed to what runs seldom.
    type Far: Word<Error = Self::Error>;

    /// Looks of a waiter before it sleeps: about 2 us.
    const SPINS: u32 = 200;

    /// The same word, in few registers.
    fn far(self) -> Self::Far;

    /// Loads the word.
    fn load(self) -> Result<u64, Self::Error>;

    /// Stores it.
    fn store(self, value: u64) -> Result<(), Self::Error>;

    /// Replaces `old` by `new`: `Ok(old)`, or `Err` with what was found.
    fn cas(self, old: u64, new: u64) -> Result<Result<u64, u64>, Self::Error>;

    /// Exchanges it for `value`; gives the value before.
    fn swap(self, value: u64) -> Result<u64, Self::Error>;

    /// Sleeps while the low half of the word is `expected`, at most `patience`. `false`: time is
    /// up. `true`: woken, by whatever.
    fn wait(self, expected: u32, patience: Duration) -> bool;

    /// Wakes all that sleep on it.
    fn wake(self);

    /// Between two looks of a waiter.
    #[inline]
    fn relax() {
        std::hint::spin_loop();
    }
}

/// The shared word of a region at an offset.
#[derive(Clone, Copy)]
pub struct RegionWord<'r>(pub &'r Region, pub u64);

/// The same, of a word that others change also while this process works alone
/// ([`Region::set_alone`]).
#[derive(Clone, Copy)]
pub struct ContendedWord<'r>(pub &'r Region, pub u64);

/// A word, by its number, of words whose place was checked before.
#[derive(Clone, Copy)]
pub struct SpanWord<'r, const WORDS: usize>(pub Span<'r, WORDS>, pub usize);

impl Word for RegionWord<'_> {
    type Error = Fault;
    type Far = Self;

    #[inline(always)]
    fn far(self) -> Self {
        self
    }

    #[inline(always)]
    fn load(self) -> Result<u64, Fault> {
        self.0.shared_load(self.1)
    }

    #[inline(always)]
    fn store(self, value: u64) -> Result<(), Fault> {
        self.0.shared_store(self.1, value)
    }

    #[inline(always)]
    fn cas(self, old: u64, new: u64) -> Result<Result<u64, u64>, Fault> {
        self.0.shared_cas(self.1, old, new)
    }

    #[inline(always)]
    fn swap(self, value: u64) -> Result<u64, Fault> {
        self.0.shared_swap(self.1, value)
    }

    fn wait(self, expected: u32, patience: Duration) -> bool {
        self.0.futex_wait(self.1, expected, Some(patience))
    }

    fn wake(self) {
        self.0.futex_wake(self.1, u32::MAX);
    }
}

impl Word for ContendedWord<'_> {
    type Error = Fault;
    type Far = Self;

    #[inline(always)]
    fn far(self) -> Self {
        self
    }

    #[inline(always)]
    fn load(self) -> Result<u64, Fault> {
        self.0.shared_load(self.1)
    }

    #[inline(always)]
    fn store(self, value: u64) -> Result<(), Fault> {
        self.0.shared_store(self.1, value)
    }

    #[inline(always)]
    fn cas(self, old: u64, new: u64) -> Result<Result<u64, u64>, Fault> {
        self.0.contended_cas(self.1, old, new)
    }

    fn swap(self, value: u64) -> Result<u64, Fault> {
        let mut found = self.load()?;
        while let Err(other) = self.cas(found, value)? {
            found = other;
        }
        Ok(found)
    }

    fn wait(self, expected: u32, patience: Duration) -> bool {
        RegionWord(self.0, self.1).wait(expected, patience)
    }

    fn wake(self) {
        RegionWord(self.0, self.1).wake();
    }
}

impl<'r, const WORDS: usize> Word for SpanWord<'r, WORDS> {
    type Error = Fault;
    type Far = RegionWord<'r>;

    #[inline(always)]
    fn far(self) -> RegionWord<'r> {
        let (map, offset) = self.0.place(self.1);
        RegionWord(map, offset)
    }

    #[inline(always)]
    fn load(self) -> Result<u64, Fault> {
        self.0.load(self.1)
    }

    #[inline(always)]
    fn store(self, value: u64) -> Result<(), Fault> {
        self.0.store(self.1, value)
    }

    #[inline(always)]
    fn cas(self, old: u64, new: u64) -> Result<Result<u64, u64>, Fault> {
        self.0.cas(self.1, old, new)
    }

    #[inline(always)]
    fn swap(self, value: u64) -> Result<u64, Fault> {
        self.0.swap(self.1, value)
    }

    fn wait(self, expected: u32, patience: Duration) -> bool {
        self.far().wait(expected, patience)
    }

    fn wake(self) {
        self.far().wake();
    }
}
