//! What a holder keeps in vain: a page that it has given, and of which the one that fetched it died
//! before it said so; one that was sent to it by a message of which the host had no answer.
//!
//! When a connection stands, and when a process has died, the host has all claims of a holder told,
//! and has dropped what the directory does not place there.

use super::inject::{Mistake, made};
use super::{Host, Location, State, Version};

/// Compares a holder's claim with the directory. It is a machine of two steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reconcile {
    page: u64,
    version: Version,
    looked: bool,
}

/// A claim of a holder's: it keeps this version of the page. To be made when the claim has come.
pub const fn reconcile(page: u64, version: Version) -> Reconcile {
    Reconcile { page, version, looked: false }
}

impl Reconcile {
    /// Takes a step; at the end: whether the holder is to drop the page, up to this version.
    ///
    /// The word is looked at first: while the page is leaving, the holder may have it, of which the
    /// directory will only say. If it has left by then, the directory says so.
    pub fn step<H: Host>(&mut self, holder: super::NodeId, host: &H) -> Option<bool> {
        let is_first = !std::mem::replace(&mut self.looked, true);
        let place_first = made(Mistake::PlaceFirst);
        if is_first != place_first {
            let leaving = host.word(self.page).state() == State::Leaving;
            let leaving = leaving && !made(Mistake::LeavingReconciled);
            return if place_first { Some(!leaving) } else { leaving.then_some(false) };
        }
        // A place that cannot be read: nothing is dropped for it.
        let place = host.place(self.page).unwrap_or(Location::Held(holder, self.version));
        let in_vain = place != Location::Held(holder, self.version);
        if place_first { (!in_vain).then_some(false) } else { Some(in_vain) }
    }
}
