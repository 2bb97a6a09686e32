//! The order of persistence, proven by types.
//!
//! ```text
//!   store64, write  ->  Dirty  --flush-->  InFlight  --fence-->  Durable
//!   stream, copy    ----------------------->  ^
//! ```
//!
//! A commit ([`Region::commit64`], [`Region::commit_write`]) takes `&Durable`, and only a fence
//! makes one: what a commit publishes cannot be forgotten in a cache. A store that takes away and
//! publishes nothing needs no proof. The types prove that *a* fence stands between; that it covers
//! the right stores is proven by leaving out each flush and each fence in turn (`make mutate`).

use crate::region::Region;
use std::marker::PhantomData;
use std::panic::Location;

/// Stored, perhaps still in a cache only.
#[must_use = "a store that is never flushed is durable by luck only"]
#[derive(Debug)]
pub struct Dirty<'r> {
    region: &'r Region,
    off: u64,
    len: u64,
}

/// On its way to the persistence domain; a fence waits for it.
#[must_use = "what is in flight becomes durable by a fence only"]
#[derive(Debug)]
pub struct InFlight<'r> {
    region: &'r Region,
}

/// Stores that one fence shall cover, perhaps none: a loop, or an operation, adds to it.
#[must_use = "what is in flight becomes durable by a fence only"]
#[derive(Debug, Default)]
pub struct FenceBatch<'r>(Option<InFlight<'r>>);

/// Proof that a fence of this region has completed.
#[derive(Debug)]
pub struct Durable<'r> {
    _of: PhantomData<&'r Region>,
}

impl<'r> Dirty<'r> {
    #[inline]
    pub(crate) fn new(region: &'r Region, off: u64, len: u64) -> Self {
        Dirty { region, off, len }
    }

    /// Starts writing the stored lines back.
    #[track_caller]
    #[inline]
    pub fn flush(self) -> InFlight<'r> {
        self.region.flush_at(self.off, self.len, Location::caller());
        InFlight { region: self.region }
    }

    /// One token for two stores of one neighbourhood: its flush writes back everything from the
    /// first byte of either to the last, each line once. Meant for stores that share lines.
    #[expect(clippy::needless_pass_by_value, reason = "two tokens go in, one comes out")]
    #[inline]
    pub fn join(self, other: Dirty<'r>) -> Dirty<'r> {
        let end = (self.off + self.len).max(other.off + other.len);
        let off = self.off.min(other.off);
        Dirty { region: self.region, off, len: end - off }
    }
}

impl<'r> InFlight<'r> {
    #[inline]
    pub(crate) fn new(region: &'r Region) -> Self {
        InFlight { region }
    }

    /// Both, so that one fence serves them.
    #[inline]
    pub fn and(self, _other: InFlight<'_>) -> InFlight<'r> {
        self
    }

    /// The same, of stores that may be none.
    #[inline]
    pub fn and_any(self, _others: impl Into<FenceBatch<'r>>) -> InFlight<'r> {
        self
    }

    /// Waits until everything that this thread has in flight is durable.
    #[track_caller]
    #[inline]
    pub fn fence(self) -> Durable<'r> {
        self.region.fence()
    }
}

impl<'r> FenceBatch<'r> {
    /// Adds what one fence shall cover, too.
    #[inline]
    pub fn add(&mut self, stored: impl Into<FenceBatch<'r>>) {
        if let Some(stored) = stored.into().0 {
            self.0 = Some(match self.0.take() {
                Some(before) => before.and(stored),
                None => stored,
            });
        }
    }

    /// Whether nothing is on its way.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// One fence for all of it. `None`: there was nothing to wait for, and nothing is proven.
    #[expect(clippy::manual_map, reason = "a closure would be the place that calls, for hooks")]
    #[track_caller]
    #[inline]
    pub fn fence(self) -> Option<Durable<'r>> {
        match self.0 {
            Some(stored) => Some(stored.fence()),
            None => None,
        }
    }
}

impl<'r> From<Option<InFlight<'r>>> for FenceBatch<'r> {
    #[inline]
    fn from(stored: Option<InFlight<'r>>) -> Self {
        Self(stored)
    }
}

impl<'r> From<InFlight<'r>> for FenceBatch<'r> {
    #[inline]
    fn from(stored: InFlight<'r>) -> Self {
        Self(Some(stored))
    }
}

impl Region {
    /// Waits until everything that this thread has in flight is durable, also that of which the
    /// token is gone: a store that faults half-way gives none.
    #[track_caller]
    #[inline]
    pub fn fence(&self) -> Durable<'_> {
        self.fence_at(Location::caller());
        Durable { _of: PhantomData }
    }
}
