//! The order of persistence, in types.
//!
//! ```text
//!   store64, write  ->  Dirty  --flush-->  InFlight  --fence-->  Durable
//!   stream, copy    ----------------------->  ^
//! ```
//!
//! A commit ([`Region::commit64`], [`Region::commit_write`]) takes `&Durable`, and only a fence
//! makes one: what a commit publishes cannot be forgotten in a cache. The types prove that *a*
//! fence stands between; that it covers the right stores is what the crash explorer proves.

use crate::region::Region;
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

/// Proof that a fence has completed (or that there was nothing to wait for).
#[derive(Clone, Debug)]
pub struct Durable {
    _only_from_fence: (),
}

impl Durable {
    /// For a commit that publishes nothing, but takes something away: there is nothing to prove.
    #[must_use]
    pub fn of_nothing() -> Self {
        Self { _only_from_fence: () }
    }
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

    /// Waits until everything that this thread has in flight is durable.
    #[track_caller]
    #[inline]
    pub fn fence(self) -> Durable {
        self.region.fence_at(Location::caller());
        Durable { _only_from_fence: () }
    }
}
