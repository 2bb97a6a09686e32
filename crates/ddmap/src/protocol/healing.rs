//! How the directory comes to name other holders of a page that is away, in the same version: a
//! second one, to which it was copied, or one less, which was removed from the domain.
//!
//! The bytes are brought to the new holder first, past the host's room. That takes no claim: those
//! of a version never change (`mod.rs`, invariant 8). The word is claimed for the directory's
//! change alone, so a touch waits for two steps at most.
//!
//! Order: the new holder has said that it keeps the page; the word is claimed; the directory is
//! changed, if it says what it said before; the word is given back.
//!
//! CRASH: a word that is *busy* names the node that died. Whoever meets it fetches the page, as of
//! any claim: both words of the directory are true. Room is taken for no page that is absent; that
//! is counted anew, as behind any death.

use super::inject::{Mistake, made};
use super::{Host, Location, State, Word};

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Healed {
    /// The next step can be taken.
    Step,
    /// The directory says so.
    Placed,
    /// The page has moved since: what a new holder keeps of it is to be dropped.
    Moved,
    /// Nothing has changed: somebody was at the page, or it lies with other nodes by now.
    Stays,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Look,
    Claim(Word),
    Where { busy: Word },
    Place { busy: Word },
    Turn { busy: Word, is_placed: bool },
    Behind,
    Over(Healed),
}

/// A change of the holders of one page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Healing {
    page: u64,
    seen: Location,
    to: Location,
    stage: Stage,
}

impl Healing {
    /// A page was seen at a place, and is to be at another one, of the same version, all of whose
    /// holders keep it.
    pub fn new(page: u64, seen: Location, to: Location) -> Self {
        debug_assert_eq!(seen.version(), to.version(), "it does not move");
        let unclaimed = made(Mistake::HealedUnclaimed);
        let stage = if unclaimed { Stage::Where { busy: Word(0) } } else { Stage::Look };
        Self { page, seen, to, stage }
    }

    /// The page.
    #[cfg(test)]
    pub fn page(&self) -> u64 {
        self.page
    }

    /// Takes a step.
    pub fn step(&mut self, host: &impl Host) -> Healed {
        let page = self.page;
        self.stage = match self.stage {
            Stage::Look => match host.word(page) {
                word if word.state() == State::Absent => Stage::Claim(word),
                _ => Stage::Behind,
            },
            Stage::Claim(word) => {
                let busy = word.turned(State::Busy, word.version()).claimed(host.me());
                if host.turn(page, word, busy) { Stage::Where { busy } } else { Stage::Behind }
            }
            Stage::Where { busy } => {
                let is_there = host.place(page) == Ok(self.seen) || made(Mistake::HealedBlindly);
                if is_there {
                    Stage::Place { busy }
                } else {
                    Stage::Turn { busy, is_placed: false }
                }
            }
            Stage::Place { busy } => {
                host.set_place(page, self.to);
                Stage::Turn { busy, is_placed: true }
            }
            Stage::Turn { busy, is_placed } => {
                if !made(Mistake::HealedUnclaimed) {
                    host.turn(page, busy, busy.turned(State::Absent, busy.version()));
                }
                if is_placed { Stage::Over(Healed::Placed) } else { Stage::Behind }
            }
            Stage::Behind => match host.place(page) {
                Ok(place) if place.version().is_later_than(self.seen.version()) => {
                    Stage::Over(Healed::Moved)
                }
                _ if made(Mistake::ThirdReleased) => Stage::Over(Healed::Moved),
                _ => Stage::Over(Healed::Stays),
            },
            over @ Stage::Over(_) => over,
        };
        match self.stage {
            Stage::Over(healed) => healed,
            _ => Healed::Step,
        }
    }
}
