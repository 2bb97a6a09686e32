//! What a holder keeps in vain: a page that it has given, and of which the one that fetched it died
//! before it said so; one that was sent to it by a message of which the host had no answer.
//!
//! When a connection stands, and when a process has died, the host has all claims of a holder told,
//! and has dropped what the directory does not place there. What is kept in the directory's own
//! version, by a holder that it does not name, has the page's bytes (a second one that did not
//! answer in time): the host names it, or moves the page, and says nothing to the holder (`mod.rs`,
//! invariant 8).

use super::inject::{Mistake, made};
use super::messages::KeptPage;
use super::{Host, Location, State};

/// What a holder is told of what it keeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// Nothing.
    Right,
    /// It is to drop the page, up to the claim's version.
    InVain,
    /// What it keeps is a spare.
    Spare,
    /// Nothing. It has the page as those have that the directory names: it is to be one of them, or
    /// the page is to move.
    Equal,
}

/// Compares a holder's claim with the directory. It is a machine of two steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reconcile {
    claim: KeptPage,
    looked: bool,
}

/// A claim of a holder's. To be made when the claim has come.
pub const fn reconcile(claim: KeptPage) -> Reconcile {
    Reconcile { claim, looked: false }
}

impl Reconcile {
    /// Takes a step; at the end: what the holder is told.
    ///
    /// The word is looked at first: while the page is leaving, the holder may have it, of which the
    /// directory will only say. If it has left by then, the directory says so.
    pub fn step<H: Host>(&mut self, holder: super::NodeId, host: &H) -> Option<Verdict> {
        let KeptPage { page, version, is_spare } = self.claim;
        let is_first = !std::mem::replace(&mut self.looked, true);
        let place_first = made(Mistake::PlaceFirst);
        if is_first != place_first {
            let leaving = host.word(page).state() == State::Leaving;
            let leaving = leaving && !made(Mistake::LeavingReconciled);
            if place_first {
                return Some(if leaving { Verdict::Right } else { Verdict::InVain });
            }
            return leaving.then_some(Verdict::Right);
        }
        let verdict = match host.place(page) {
            // A place that cannot be read: nothing is dropped for it.
            Err(_) => Verdict::Right,
            Ok(place) if place.version() == version && place.is_held_by(holder, host.here()) => {
                Verdict::Right
            }
            Ok(Location::Held(owner, of, _))
                if owner != host.here() && of == version && !made(Mistake::EqualInVain) =>
            {
                Verdict::Equal
            }
            // It may have been lost by others only: `domain repair` finds it.
            Ok(Location::Lost(_, of)) if of == version => Verdict::Right,
            Ok(Location::Held(_, of, Some(other))) if (other, of) == (holder, version.later(1)) => {
                if is_spare {
                    Verdict::Right
                } else {
                    Verdict::Spare
                }
            }
            Ok(_) => Verdict::InVain,
        };
        (!place_first || verdict != Verdict::InVain).then_some(verdict)
    }
}
