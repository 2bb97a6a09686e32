//! How the host's node sends pages to a holder, or to two, to make room (`docs/engines.md`, "How
//! pages leave"; dissertation, 6.4.2).
//!
//! Persistence order: the holders have the bytes, then the directory says so, then the page is a
//! hole here, then the word says so. A page that is all zeros goes nowhere: the directory says
//! *void*, and the word does, at the end.
//!
//! A *clean* page is protected, and goes to the node that keeps a spare of it, which is asked to
//! keep that in the version in which the page would be sent. What the node says it has not got is
//! sent to the batch's holders, as all others are, behind that. Whether a page is clean its state
//! says, which is compared when it is claimed.
//!
//! Of two holders both are asked, one behind the other; the directory names those that have said
//! that they keep the page. Where only one does, the page lies there alone (a host whose second
//! holder is away must not stop) until it is given to another one (`healing.rs`). The other one may
//! have it all the same, in that version and with those bytes.
//!
//! CRASH: a word that is *leaving* names the node that died. Whoever wants the page, or the node
//! when it is back, goes by the directory: if the page is held here still, it stays, in a version
//! that is later than what may have been sent; else it is made a hole.

use super::inject::{Mistake, made};
use super::{Batch, Host, Location, NodeId, State, Version, Word};

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Progress {
    /// The next step can be taken.
    Step,
    /// This node is to keep [`Eviction::clean`]; then [`Eviction::kept`].
    Keep(NodeId),
    /// [`Eviction::outgoing`] is to be sent to this node; then [`Eviction::answered`] or
    /// [`Eviction::unanswered`].
    Send(NodeId),
    /// It is over.
    Done(Evicted),
}

/// What came of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Evicted {
    /// Pages that are holes now.
    pub gone: u32,
    /// Of them, pages that were sent to nobody, since they are zeros.
    pub zeros: u32,
    /// Of them, pages that one holder has, or no more.
    pub single: u32,
    /// Pages that nobody has taken, and that are here as before.
    pub stayed: u32,
}

/// How far a page is. No page goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Stage {
    /// Its word was seen, and is to be claimed.
    Claim,
    /// It is leaving.
    Claimed,
    /// Nobody has named it, and it is clean.
    Clean,
    /// A node keeps a spare of it, and is to keep that.
    Keep,
    /// Nobody has named it, and it is to be sent.
    Free,
    /// Stores to it are taken away.
    Protected,
    /// Its bytes are to be sent.
    Read,
    /// It is zeros, or a hole.
    Empty,
    /// It is zeros.
    Zeros,
    /// A holder has it, or all do.
    Stored,
    /// The directory says so.
    Placed,
    /// It is a hole.
    Punched,
    /// Its word says so.
    Absent,
    /// Nobody has it but this node, or so it seems.
    Refused,
    /// The directory has its later version.
    Renewed,
    /// It is over.
    Over,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Leaf<B> {
    page: u64,
    /// As it was seen, here.
    word: Word,
    /// The node that keeps a spare of it, if it is asked to keep that.
    keeper: Option<NodeId>,
    /// The holders that have it: as many as there are to be, at most.
    has: [Option<NodeId>; 2],
    stage: Stage,
    bytes: Option<B>,
    /// It is zeros, which go nowhere.
    zeros: bool,
}

/// A batch of pages on their way to holders.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Eviction<B> {
    /// One or two, all of which are to have each page.
    to: Vec<NodeId>,
    /// How many of them were sent their pages.
    asked: usize,
    /// Nodes that may keep spares: others are not asked.
    keepers: Vec<NodeId>,
    leaves: Vec<Leaf<B>>,
    /// Pages that are furthest behind are so far: those in front of this one are further.
    level: Option<(Stage, usize)>,
    met: bool,
    evicted: Evicted,
}

impl<B: Clone> Eviction<B> {
    /// These pages, whose words were seen so, are to go to one holder or to two; also to those that
    /// keep spares of them, if they are among these, in place of one of the two.
    pub fn new(
        to: &[NodeId],
        keepers: &[NodeId],
        pages: impl IntoIterator<Item = (u64, Word)>,
    ) -> Self {
        debug_assert!(matches!(to.len(), 1 | 2), "{to:?}");
        let leaf = |(page, word)| {
            let (stage, keeper, has) = (Stage::Claim, None, [None; 2]);
            Leaf { page, word, keeper, has, stage, bytes: None, zeros: false }
        };
        Self {
            to: to.to_vec(),
            asked: 0,
            keepers: keepers.to_vec(),
            leaves: pages.into_iter().map(leaf).collect(),
            level: None,
            met: false,
            evicted: Evicted::default(),
        }
    }

    /// What a node is to keep: pages, and the versions that they get there.
    pub fn clean(&self, at: NodeId) -> impl Iterator<Item = (u64, Version)> {
        let its = move |leaf: &&Leaf<B>| leaf.stage == Stage::Keep && leaf.keeper == Some(at);
        self.leaves.iter().filter(its).map(|leaf| (leaf.page, leaf.word.version().later(1)))
    }

    /// The node has answered: of each of these pages, in this order, whether it keeps it. `None`:
    /// it could not be reached, or has not answered: it may keep them.
    pub fn kept(&mut self, at: NodeId, answer: Option<&[bool]>) {
        let wanted = self.to.len();
        let is_its = |leaf: &&mut Leaf<B>| leaf.stage == Stage::Keep && leaf.keeper == Some(at);
        for (number, leaf) in self.leaves.iter_mut().filter(is_its).enumerate() {
            leaf.stage = match answer.map(|kept| kept.get(number)) {
                Some(Some(true)) => {
                    leaf.has[0] = Some(at);
                    // It is protected already, and another one is to have it, too.
                    if wanted == 1 { Stage::Stored } else { Stage::Protected }
                }
                Some(_) => Stage::Free,
                None => Stage::Refused,
            };
        }
        self.level = None;
    }

    /// What is to be sent to a node: pages, the versions that they get there, bytes.
    pub fn outgoing(&self, at: NodeId) -> impl Iterator<Item = (u64, Version, &B)> {
        let wanted = self.to.len();
        let its = self.leaves.iter().filter(move |leaf| leaf.goes_to(at, wanted));
        its.filter_map(|leaf| {
            leaf.bytes.as_ref().map(|bytes| (leaf.page, leaf.word.version().later(1), bytes))
        })
    }

    /// The node has answered: of each page that was sent there, in this order, whether it has it.
    pub fn answered(&mut self, at: NodeId, stored: impl IntoIterator<Item = bool>) {
        let wanted = self.to.len();
        let sent = self.leaves.iter_mut().filter(|leaf| leaf.goes_to(at, wanted));
        for (leaf, stored) in sent.zip(stored) {
            if stored || made(Mistake::SecondUnheard) && leaf.has[0].is_some() {
                let free = leaf.has.iter_mut().find(|has| has.is_none());
                *free.expect("it goes where it is wanted") = Some(at);
            }
        }
        self.next_holder();
    }

    /// The node could not be reached, or has not answered.
    pub fn unanswered(&mut self, at: NodeId) {
        if made(Mistake::SecondUnheard) {
            return self.answered(at, std::iter::repeat(false));
        }
        self.next_holder();
    }

    /// One has had its pages. Behind the last one they have left, or stay.
    fn next_holder(&mut self) {
        self.asked += 1;
        if self.asked < self.to.len() {
            return;
        }
        for leaf in self.leaves.iter_mut().filter(|leaf| leaf.stage == Stage::Read) {
            leaf.stage = if leaf.has[0].is_some() { Stage::Stored } else { Stage::Refused };
            leaf.bytes = None;
        }
        self.level = None;
    }

    /// Takes a step: the one that is next for the page that is furthest behind.
    pub fn step(&mut self, host: &impl Host<Bytes = B>) -> Progress {
        let claimed = || self.leaves.iter().all(|leaf| leaf.stage != Stage::Claim);
        if !self.met && (made(Mistake::NamesCollectedEarly) || claimed()) {
            host.meet();
            self.met = true;
            return Progress::Step;
        }
        let Some(at) = self.furthest_behind(host) else {
            let keeper = |leaf: &Leaf<B>| leaf.keeper.filter(|_| leaf.stage == Stage::Keep);
            if let Some(keeper) = self.leaves.iter().find_map(keeper) {
                return Progress::Keep(keeper);
            }
            return match self.to.get(self.asked).copied() {
                Some(to) if self.outgoing(to).next().is_some() => Progress::Send(to),
                Some(_) => {
                    self.next_holder();
                    Progress::Step
                }
                None => Progress::Done(self.evicted),
            };
        };
        let leaf = &mut self.leaves[at];
        let before = leaf.stage;
        leaf.step(host, &self.keepers, self.to[0]);
        let has_left = leaf.stage == Stage::Over && before == Stage::Absent;
        self.evicted.gone += u32::from(has_left);
        self.evicted.zeros += u32::from(before == Stage::Zeros);
        self.evicted.single += u32::from(has_left && !leaf.zeros && leaf.has[1].is_none());
        self.evicted.stayed += u32::from(before == Stage::Refused);
        Progress::Step
    }

    /// The first one of the pages that are furthest behind, of those that are not over and do not
    /// wait for bytes to be sent. `None`: there is none, or these wait for an answer. (Nothing is
    /// read before all that is to be kept is: what is not is read with the others.)
    fn furthest_behind(&mut self, host: &impl Host<Bytes = B>) -> Option<usize> {
        if let Some((stage, from)) = self.level
            && let Some(next) = self.leaves[from..].iter().position(|leaf| leaf.stage == stage)
        {
            self.level = Some((stage, from + next));
            return Some(from + next);
        }
        let stages = self.leaves.iter().map(|leaf| leaf.stage);
        let stage = stages.filter(|stage| !matches!(stage, Stage::Read | Stage::Over)).min()?;
        if stage == Stage::Keep {
            return None;
        }
        let first = self.leaves.iter().position(|leaf| leaf.stage == stage)?;
        self.level = Some((stage, first));
        let batch = match stage {
            Stage::Free if !made(Mistake::SentUnprotected) => Batch::Protect,
            Stage::Protected => Batch::Read,
            Stage::Placed => Batch::Punch,
            _ => return Some(first),
        };
        let together = self.leaves.iter().filter(|leaf| leaf.stage == stage);
        host.prepare(batch, &mut together.map(|leaf| leaf.page));
        Some(first)
    }
}

impl<B> Leaf<B> {
    /// Whether a node, one of as many as are to have the page, is sent it.
    fn goes_to(&self, at: NodeId, wanted: usize) -> bool {
        let has = self.has.iter().flatten();
        self.stage == Stage::Read
            && has.clone().count() < wanted
            && !has.clone().any(|one| *one == at)
    }

    /// Where the page is when it has left.
    fn away(&self, to: NodeId) -> Location {
        let version = self.word.version().later(1);
        Location::Held(self.has[0].unwrap_or(to), version, self.has[1])
    }

    /// The word by which the page is leaving.
    fn leaving(&self, host: &impl Host<Bytes = B>) -> Word {
        self.word.turned(State::Leaving, self.word.version()).claimed(host.me())
    }

    /// Claims the page.
    fn claim(&self, host: &impl Host<Bytes = B>) -> bool {
        let owned = self.word.turned(State::Owned, self.word.version());
        host.turn(self.page, self.word, self.leaving(host))
            || made(Mistake::CleanIsFlag)
                && host.turn(self.page, owned.known_as(host.word(self.page)), self.leaving(host))
    }

    fn step(&mut self, host: &impl Host<Bytes = B>, keepers: &[NodeId], to: NodeId) {
        let (page, version) = (self.page, self.word.version());
        self.stage = match self.stage {
            Stage::Claim if !self.word.state().is_here() => Stage::Over,
            Stage::Claim if self.claim(host) => Stage::Claimed,
            Stage::Claim => Stage::Over,
            Stage::Claimed if host.is_named(page) && !made(Mistake::NamedEvicted) => {
                // Nothing was sent: the version stays.
                self.give_back(host, self.word);
                Stage::Over
            }
            Stage::Claimed if self.word.state() == State::Clean || made(Mistake::SpareBelieved) => {
                Stage::Clean
            }
            Stage::Claimed => Stage::Free,
            Stage::Clean => match host.place(page) {
                Ok(Location::Held(_, _, Some(keeps))) if keepers.contains(&keeps) => {
                    self.keeper = Some(keeps);
                    Stage::Keep
                }
                _ => Stage::Free,
            },
            Stage::Free => {
                if !made(Mistake::SentUnprotected) {
                    host.protect(page);
                }
                Stage::Protected
            }
            Stage::Protected => {
                self.bytes = host.read(page);
                if made(Mistake::PlacedEarly) {
                    host.set_place(page, self.away(to));
                }
                if self.bytes.is_some() { Stage::Read } else { Stage::Empty }
            }
            // Its keeper has it.
            Stage::Empty if self.has[0].is_some() => Stage::Stored,
            // It stays; a load from it shows why.
            Stage::Empty if host.is_unreadable(page) => Stage::Refused,
            Stage::Empty if host.is_in_file(page) => {
                self.zeros = true;
                Stage::Zeros
            }
            Stage::Empty => {
                // The page file was changed behind our back: never zeros.
                self.give_back(host, self.word.turned(State::Lost, version));
                Stage::Absent
            }
            later => self.settle(host, later, to),
        };
    }

    /// The steps behind the sending: the page is gone, or has not left.
    fn settle(&self, host: &impl Host<Bytes = B>, stage: Stage, to: NodeId) -> Stage {
        let (page, version) = (self.page, self.word.version());
        match stage {
            Stage::Zeros => {
                host.set_place(page, Location::Void(self.void_version()));
                Stage::Placed
            }
            Stage::Stored if made(Mistake::HoleBeforePlaced) => {
                host.punch(page);
                Stage::Placed
            }
            Stage::Placed if made(Mistake::HoleBeforePlaced) => {
                host.set_place(page, self.away(to));
                Stage::Punched
            }
            // PERSIST: holders have the bytes before the directory says so.
            Stage::Stored => {
                host.set_place(page, self.away(to));
                Stage::Placed
            }
            Stage::Placed if made(Mistake::AbsentBeforeHole) => {
                self.give_back(host, self.gone());
                Stage::Punched
            }
            Stage::Placed => {
                host.punch(page);
                Stage::Punched
            }
            Stage::Punched if made(Mistake::AbsentBeforeHole) => {
                host.punch(page);
                Stage::Absent
            }
            Stage::Punched => {
                self.give_back(host, self.gone());
                Stage::Absent
            }
            Stage::Absent => {
                host.give_room();
                Stage::Over
            }
            Stage::Refused if made(Mistake::SameVersionAgain) => {
                self.give_back(host, self.word);
                Stage::Over
            }
            Stage::Refused => {
                host.set_place(page, Location::Held(host.here(), renewed(version), None));
                Stage::Renewed
            }
            Stage::Renewed => {
                self.give_back(host, self.word.turned(State::Owned, renewed(version)));
                Stage::Over
            }
            other => other,
        }
    }

    /// The version of a page of zeros that goes nowhere.
    fn void_version(&self) -> Version {
        let forgets = made(Mistake::ZerosForgetVersion);
        if forgets { Version::default() } else { self.word.version().later(1) }
    }

    /// The word of the page that is here no more.
    fn gone(&self) -> Word {
        if self.zeros && !made(Mistake::ZerosUnmarked) {
            return self.word.emptied(self.void_version());
        }
        self.word.turned(State::Absent, self.word.version())
    }

    /// Ends the page's leaving. A process that took the node for dead may have done so before: then
    /// this one is dead, and does nothing any more.
    fn give_back(&self, host: &impl Host<Bytes = B>, to: Word) {
        host.turn(self.page, self.leaving(host), to);
    }
}

/// The version of a page that has not left, later than the one that was sent: so it is the latest
/// even among claims, if the directory is lost.
fn renewed(version: Version) -> Version {
    version.later(if made(Mistake::OneVersionOn) { 1 } else { 2 })
}
