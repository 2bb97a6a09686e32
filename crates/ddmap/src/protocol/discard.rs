//! What a thread does with pages that nobody wants any more: they are void from then on, wherever
//! they were, also with a node that has lost them.
//!
//! Order: the word is claimed, the directory says *void* in the next version, the page is a hole,
//! the word says so. The holder is told behind all that.
//!
//! CRASH: a process may die behind any step. What it had claimed is taken over as of a fault: what
//! is in the file counts, and is nobody's; what the directory calls void is zeros. Room is taken
//! for no page that was absent: that is counted anew, as behind any death. If the directory's word
//! cannot be read when such a claim is met, the page's word does not say that it is zeros: were the
//! whole directory lost then, the page would be called lost, which nobody wants.

use super::inject::{Mistake, made};
use super::{Batch, DamagedPlace, Host, Location, NodeId, State, Version, Word};

/// Moves by which what is held elsewhere may be ahead of its word here: it left, and came back.
const AHEAD: u32 = 2;

/// How far a page is. No page goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Stage {
    Claim,
    Where,
    Void,
    Punch,
    Turn,
    GiveRoom,
    Over,
}

impl Stage {
    fn next(self) -> Self {
        match self {
            Self::Claim => Self::Where,
            Self::Where => Self::Void,
            Self::Void => Self::Punch,
            Self::Punch => Self::Turn,
            Self::Turn => Self::GiveRoom,
            Self::GiveRoom | Self::Over => Self::Over,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Leaf {
    page: u64,
    /// As it was seen.
    word: Word,
    stage: Stage,
    /// What its word says in the end.
    after: Word,
    owed: ([Option<NodeId>; 2], Version),
}

/// Pages on their way to be void.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Discard {
    leaves: Vec<Leaf>,
    /// All pages take this step, one behind the other.
    stage: Stage,
    at: usize,
    /// Only what is lost.
    is_of_lost: bool,
}

impl Discard {
    /// Nobody wants what these pages held, whose words were seen so. What somebody is at stays.
    pub fn new(pages: impl IntoIterator<Item = (u64, Word)>) -> Self {
        let leaf = |(page, word)| {
            let owed = ([None; 2], Version::default());
            Leaf { page, word, stage: Stage::Claim, after: word, owed }
        };
        let leaves = pages.into_iter().map(leaf).collect();
        Self { leaves, stage: Stage::Claim, at: 0, is_of_lost: false }
    }

    /// All of a page is about to be stored to: what it held goes, if that is lost.
    pub fn of_lost(page: u64, word: Word) -> Self {
        Self { is_of_lost: true, ..Self::new([(page, word)]) }
    }

    /// Takes a step; at the end: true.
    pub fn step(&mut self, host: &impl Host) -> bool {
        loop {
            let Some(leaf) = self.leaves.get_mut(self.at) else {
                if self.stage == Stage::Over {
                    return true;
                }
                (self.stage, self.at) = (self.stage.next(), 0);
                self.prepare(host);
                continue;
            };
            self.at += 1;
            if self.stage != Stage::Over && leaf.stage == self.stage {
                leaf.step(host, self.is_of_lost);
                return false;
            }
        }
    }

    fn prepare(&self, host: &impl Host) {
        let are_holes = |leaf: &&Leaf| leaf.stage == Stage::Punch;
        if self.stage == Stage::Punch && self.leaves.iter().any(|leaf| are_holes(&leaf)) {
            let pages = self.leaves.iter().filter(are_holes).map(|leaf| leaf.page);
            host.prepare(Batch::Punch, &mut { pages });
        }
    }

    /// At the end: what holders are to drop.
    pub fn owed(&self) -> impl Iterator<Item = (u64, NodeId, Version)> {
        self.leaves.iter().flat_map(|leaf| {
            let (nodes, version) = leaf.owed;
            nodes.into_iter().flatten().map(move |node| (leaf.page, node, version))
        })
    }
}

impl Leaf {
    fn busy(&self, host: &impl Host) -> Word {
        self.word.turned(State::Busy, self.word.version()).claimed(host.me())
    }

    fn is_here(&self) -> bool {
        self.word.state().is_here()
    }

    fn step(&mut self, host: &impl Host, is_of_lost: bool) {
        let page = self.page;
        self.stage = match self.stage {
            Stage::Claim => self.claim(host, is_of_lost),
            Stage::Where => {
                let place = host.place(page);
                self.decide(host.here(), place, is_of_lost)
            }
            Stage::Void => {
                host.set_place(page, Location::Void(self.after.version()));
                if self.is_here() { Stage::Punch } else { Stage::Turn }
            }
            Stage::Punch if made(Mistake::DroppedInFile) => {
                host.turn(page, self.busy(host), self.after);
                Stage::Over
            }
            Stage::Punch => {
                host.punch(page);
                Stage::Turn
            }
            Stage::Turn => {
                host.turn(page, self.busy(host), self.after);
                if self.is_here() { Stage::GiveRoom } else { Stage::Over }
            }
            Stage::GiveRoom => {
                host.give_room();
                Stage::Over
            }
            Stage::Over => Stage::Over,
        };
    }

    fn claim(&self, host: &impl Host, is_of_lost: bool) -> Stage {
        let may = match self.word.state() {
            State::Owned | State::Clean => !is_of_lost,
            State::Absent | State::Lost => true,
            _ => false,
        };
        if may && host.turn(self.page, self.word, self.busy(host)) {
            Stage::Where
        } else {
            Stage::Over
        }
    }

    /// What becomes of a page that is at this place.
    fn decide(
        &mut self,
        here: NodeId,
        place: Result<Location, DamagedPlace>,
        is_of_lost: bool,
    ) -> Stage {
        let is_lost = self.word.state() == State::Lost || matches!(place, Ok(Location::Lost(..)));
        if is_of_lost && !is_lost && !made(Mistake::FoundGivenUp) {
            // It was not, or is no more.
            return Stage::Turn;
        }
        let version = match place {
            Ok(Location::Void(version)) => {
                self.after = self.word.emptied(version);
                return if self.is_here() { Stage::Punch } else { Stage::Turn };
            }
            // Its spare is in an earlier version.
            Ok(Location::Held(owner, version, other)) => {
                self.owed = ([Some(owner).filter(|owner| *owner != here), other], version);
                version.later(1)
            }
            Ok(Location::Lost(_, version)) if made(Mistake::LostKeepsVersion) => version,
            Ok(Location::Lost(_, version)) => version.later(1),
            // Later than whatever the directory said.
            Err(_) => self.word.version().later(AHEAD + 1),
        };
        self.after = self.word.emptied(version);
        if made(Mistake::VoidedLate) { Stage::Turn } else { Stage::Void }
    }
}
