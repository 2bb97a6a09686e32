//! What a thread does that has touched a page: it finds out what there is to do, and brings the
//! page here if it is elsewhere (`docs/engines.md`, "How a touch is served"; dissertation, 6.4.2).
//!
//! Persistence order of a move: the bytes are in the page file, then the directory says so, then
//! the word does; the old owner is told behind all that.
//!
//! CRASH: a process may die behind any step. The next one that meets its claim takes it over, and
//! decides by the page file: what is there came whole, and others may have stored to it already,
//! so it is *finished*; a hole is fetched again.
//!
//! A page that two holders have is asked of one, and of the other one if that has not got it or
//! does not answer. It is lost if both say that they have not got it.
//!
//! A page that is brought to be loaded is *clean*: the holder that gave it keeps a spare, by which
//! it leaves again without its bytes (`eviction.rs`). The first store takes the page's word, has
//! the directory say that it has no spare, gives the word back, owned, and only then opens the
//! page. What was taken over from the dead is never clean.

use super::inject::{Mistake, made};
use super::messages::KeptPage;
use super::{Flags, Host, Installed, Location, NodeId, Shown, State, Version, Word};

/// What a page's old owner is told behind a move.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Owed {
    /// The node.
    pub to: NodeId,
    /// What it is to drop; or to know for a spare.
    pub kept: KeptPage,
}

/// What old owners are told: one, or two.
pub type Owes = [Option<Owed>; 2];

/// Why a page cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Why {
    /// All its bytes are gone.
    Lost,
    /// The directory's word is no word of a directory's, or the page file has bytes where it must
    /// have none.
    Damaged,
}

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Next {
    /// The next step can be taken.
    Step,
    /// The page is here: the instruction runs again. Its old owners are to be told.
    Done(Owes),
    /// Another process is at the page: begin anew when its word is not this one any more; and after
    /// a while, since that process may die, which changes no word.
    Wait(Word),
    /// This node's capacity is used up: begin anew when there is room, or when the page's word has
    /// changed: another thread may have had the last room for this very page.
    Room,
    /// The owner is to be asked for this version of the page; then [`Fault::answered`],
    /// [`Fault::refused`] or [`Fault::unanswered`], and another one may be to be asked. Nobody may
    /// be held up meanwhile.
    Ask(NodeId, Version),
    /// The owner could not be asked: begin anew, for as long as patience lasts.
    Again,
    /// The page cannot be had.
    Fail(Why),
}

/// Where a fault stands. `busy` is the word by which this process has claimed the page; `was` the
/// one of the dead process that it has taken over, or that of the clean page that is stored to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Stage<B> {
    Name,
    Look,
    Show { word: Word, owed: Owes },
    TakeRoom(Word),
    Claim(Word),
    GiveRoom,
    Dead(Word),
    Take(Word),
    ClaimClean(Word),
    Spare { busy: Word, was: Word },
    InFile { busy: Word, was: Word },
    Left { busy: Word, was: Word },
    Punch { busy: Word },
    Finish { busy: Word, was: Word },
    Leave { busy: Word, was: Word },
    Where { busy: Word },
    Asked(Asked),
    Install { busy: Word, from: Option<Givers>, version: Version, bytes: Option<B> },
    Settle(Settled),
    Turn(Settled),
    Lose { busy: Word, owner: NodeId, version: Version },
    Undo { busy: Word, to: Word, next: Next },
    UndoRoom(Next),
    End(Next),
}

/// A page that a holder is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Asked {
    busy: Word,
    version: Version,
    at: NodeId,
    /// Who is asked next, if that one does not give it.
    next: Option<NodeId>,
    /// Who was asked before, and whether it has said that it has not got it.
    before: Option<(NodeId, bool)>,
}

/// Who has given a page, and who else has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Givers(NodeId, Option<NodeId>);

/// What becomes of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Settled {
    busy: Word,
    /// First the directory says so.
    place: Location,
    /// Then the word.
    to: Word,
    owed: Owes,
    /// The page was in the file before, and is to be shown then: the kernel may be about to store
    /// to it.
    was_here: bool,
}

/// A thread's way to a page.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Fault<B> {
    page: u64,
    /// It stores to the page, or may: so the page is not clean then.
    stores: bool,
    stage: Stage<B>,
}

/// A page to be put into the page file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ToInstall<'f, B> {
    /// `None`: zeros.
    pub bytes: Option<&'f B>,
    /// It is to be protected.
    pub is_clean: bool,
}

impl<B> Fault<B> {
    /// A thread has touched the page, to store to it or to load from it.
    pub fn new(page: u64, stores: bool) -> Self {
        let stage = if made(Mistake::NamedLate) { Stage::Look } else { Stage::Name };
        Self { page, stores, stage }
    }

    /// The page.
    pub fn page(&self) -> u64 {
        self.page
    }

    /// The owner has sent the page in the version that was asked for, and its sum is right.
    pub fn answered(&mut self, bytes: B) {
        if let Stage::Asked(Asked { busy, version, at, next, before }) = self.stage {
            let other = next.or(before.map(|before| before.0));
            let (from, bytes) = (Some(Givers(at, other)), Some(bytes));
            self.stage = Stage::Install { busy, from, version, bytes };
        }
    }

    /// Who is asked for the page now, and for which version, if somebody is.
    pub fn asks(&self) -> Option<(NodeId, Version)> {
        match &self.stage {
            Stage::Asked(asked) => Some((asked.at, asked.version)),
            _ => None,
        }
    }

    /// Whether another owner is asked for the page next, if this one does not give it.
    pub fn has_another(&self) -> bool {
        matches!(self.stage, Stage::Asked(Asked { next: Some(_), .. }))
    }

    /// The page is claimed, and is put into the page file by the next step. A caller may have put
    /// it there already, with others in a row.
    pub fn to_install(&self) -> Option<ToInstall<'_, B>> {
        match &self.stage {
            Stage::Install { busy, from, bytes, .. } => {
                let is_clean = self.is_clean(*busy, *from);
                Some(ToInstall { bytes: bytes.as_ref(), is_clean })
            }
            _ => None,
        }
    }

    /// Whether a page of this word that comes from there is clean. Locks lie in small files, and
    /// the kernel looks at them; what stays never leaves.
    fn is_clean(&self, busy: Word, from: Option<Givers>) -> bool {
        let has = |flag| busy.flags().has(flag);
        from.is_some() && !self.stores && !has(Flags::SMALL) && !has(Flags::STAYS)
    }

    fn owed(&self, to: NodeId, version: Version, is_spare: bool) -> Owed {
        Owed { to, kept: KeptPage { page: self.page, version, is_spare } }
    }

    /// The owner is there, and has not got the page in that version; or it is removed from the
    /// domain.
    pub fn refused(&mut self) {
        if let Stage::Asked(asked) = self.stage {
            self.stage = asked.missed(true);
        }
    }

    /// The owner could not be asked, or has not answered.
    pub fn unanswered(&mut self) {
        if let Stage::Asked(asked) = self.stage {
            self.stage = asked.missed(false);
        }
    }

    /// Takes a step.
    pub fn step(&mut self, host: &impl Host<Bytes = B>) -> Next {
        let page = self.page;
        let stage = std::mem::replace(&mut self.stage, Stage::Look);
        self.stage = match stage {
            Stage::Name => {
                host.name(page);
                Stage::Look
            }
            Stage::Look => look(host.word(page), self.stores),
            Stage::Show { word, owed } => {
                if made(Mistake::NamedLate) {
                    host.name(page);
                }
                let stores = self.stores || made(Mistake::LoadOpens);
                match host.show(page, word.state() == State::Clean, stores) {
                    Shown::Mapped => Stage::End(Next::Done(owed)),
                    Shown::Hole => {
                        // The page file was changed behind our back: never zeros.
                        let lost = word.turned(State::Lost, word.version());
                        if host.turn(page, word, lost) {
                            Stage::UndoRoom(Next::Fail(Why::Lost))
                        } else {
                            Stage::End(Next::Again)
                        }
                    }
                }
            }
            Stage::TakeRoom(word) if host.take_room() => Stage::Claim(word),
            Stage::TakeRoom(_) => Stage::End(Next::Room),
            Stage::Claim(word) => {
                let busy = word.turned(State::Busy, word.version()).claimed(host.me());
                if host.turn(page, word, busy) { Stage::Where { busy } } else { Stage::GiveRoom }
            }
            Stage::GiveRoom => {
                host.give_room();
                Stage::Look
            }
            Stage::Dead(word) => {
                let dead = host.is_dead(word.claimant()) || made(Mistake::TakenFromTheLiving);
                if dead { Stage::Take(word) } else { Stage::End(Next::Wait(word)) }
            }
            // What the dead one took of this node's room goes with its claim.
            Stage::Take(word) => {
                let busy = word.turned(State::Busy, word.version()).claimed(host.me());
                match (host.turn(page, word, busy), word.state()) {
                    (false, _) => Stage::Look,
                    (true, State::Leaving) => Stage::Left { busy, was: word },
                    (true, _) => Stage::InFile { busy, was: word },
                }
            }
            Stage::ClaimClean(word) => {
                let busy = word.turned(State::Busy, word.version()).claimed(host.me());
                let claimed = host.turn(page, word, busy);
                if claimed { Stage::Spare { busy, was: word } } else { Stage::Look }
            }
            Stage::Spare { busy, was } => {
                let version = was.version();
                // What the directory says, if it is damaged, is said anew.
                let keeps = match host.place(page) {
                    Ok(Location::Held(_, _, keeps)) => keeps,
                    _ => None,
                };
                // Any version that it may keep is earlier.
                let owed = [keeps.map(|node| self.owed(node, version, false)), None];
                let place = Location::Held(host.here(), version, None);
                let to = busy.turned(State::Owned, version).known_as(was);
                let settled = Settled { busy, place, to, owed, was_here: true };
                if made(Mistake::SpareBelieved) {
                    Stage::Turn(settled)
                } else {
                    Stage::Settle(settled)
                }
            }
            other => self.take_over(host, other),
        };
        self.said(host)
    }

    /// The steps of a process that has taken over a dead one's claim: until it is finished, or the
    /// page is a hole.
    fn take_over(&mut self, host: &impl Host<Bytes = B>, stage: Stage<B>) -> Stage<B> {
        let (page, here) = (self.page, host.here());
        match stage {
            Stage::InFile { busy, .. } if made(Mistake::FinishedUndone) => Stage::Punch { busy },
            Stage::InFile { busy, was } if host.is_in_file(page) => Stage::Finish { busy, was },
            Stage::InFile { busy, .. } => Stage::Where { busy },
            // Of a page that a dead node was sending away. CRASH: if this one dies, too, the page
            // is busy and in the file, and is finished: it has the bytes that were sent, since
            // nobody could store to it meanwhile.
            Stage::Left { busy, was } => match host.place(page) {
                Ok(Location::Held(owner, ..)) if owner == here => Stage::Finish { busy, was },
                Err(_) if made(Mistake::UnreadableDropped) => Stage::Punch { busy },
                Ok(_) => Stage::Punch { busy },
                Err(_) => Stage::Leave { busy, was },
            },
            Stage::Punch { busy } => {
                host.punch(page);
                Stage::Where { busy }
            }
            // It was being brought; or being sent, and a holder may have got it by a message of
            // which nobody knows: then what is here is two versions later, and what is kept is one
            // version later than the directory's, at most.
            Stage::Finish { busy, was } => match host.place(page) {
                Ok(Location::Held(owner, version, other)) if owner == here => {
                    let to = version.later(1 + u32::from(!made(Mistake::OneVersionOn)));
                    self.comes(host, busy, to, ([other, None], version.later(1)), true)
                }
                Ok(Location::Held(owner, version, other)) => {
                    let keep = ([Some(owner), other], version);
                    self.comes(host, busy, version.later(1), keep, true)
                }
                Ok(Location::Void(version) | Location::Lost(_, version)) => {
                    self.comes(host, busy, version.later(1), ([None; 2], version), true)
                }
                Err(_) => Stage::Leave { busy, was },
            },
            // The bytes in the file may be the only ones: they stay, and so does the dead one's
            // claim, until the directory is mended.
            Stage::Leave { busy, was } => {
                host.turn(page, busy, was);
                Stage::End(Next::Fail(Why::Damaged))
            }
            other => self.bring(host, other),
        }
    }

    /// The page is here in this version, and may be stored to; nodes are to drop what they keep, up
    /// to another version.
    fn comes(
        &self,
        host: &impl Host<Bytes = B>,
        busy: Word,
        version: Version,
        (keep, kept): ([Option<NodeId>; 2], Version),
        was_here: bool,
    ) -> Stage<B> {
        let place = Location::Held(host.here(), version, None);
        let owed = keep.map(|node| node.map(|node| self.owed(node, kept, false)));
        let to = busy.turned(State::Owned, version);
        Stage::Settle(Settled { busy, place, to, owed, was_here })
    }

    /// The page has come from a node, clean, in the version behind that node's. One node keeps a
    /// spare.
    fn comes_clean(
        &self,
        host: &impl Host<Bytes = B>,
        busy: Word,
        Givers(from, other): Givers,
        version: Version,
    ) -> Stage<B> {
        let place = Location::Held(host.here(), version.later(1), Some(from));
        let other = other.map(|node| self.owed(node, version, false));
        let owed = [Some(self.owed(from, version, true)), other];
        let to = busy.turned(State::Clean, version.later(1));
        Stage::Settle(Settled { busy, place, to, owed, was_here: false })
    }

    /// The steps of a process whose claim stands.
    fn bring(&mut self, host: &impl Host<Bytes = B>, stage: Stage<B>) -> Stage<B> {
        let (page, here) = (self.page, host.here());
        match stage {
            Stage::Where { busy } => match host.place(page) {
                Ok(Location::Void(version)) => {
                    Stage::Install { busy, from: None, version, bytes: None }
                }
                Ok(Location::Held(owner, version, _)) if owner == here => {
                    Stage::Lose { busy, owner, version }
                }
                Ok(place @ Location::Held(owner, version, _)) => {
                    let [at, next] = place.givers(here, |node| host.is_silent(node));
                    let at = at.unwrap_or(owner);
                    Stage::Asked(Asked { busy, version, at, next, before: None })
                }
                Ok(Location::Lost(..)) => lose(busy),
                Err(_) => undo(busy, Next::Fail(Why::Damaged)),
            },
            Stage::Install { busy, from, version, bytes } => {
                if made(Mistake::PlacedHereEarly)
                    && host.place(page) != Ok(Location::Held(here, version.later(1), None))
                {
                    host.set_place(page, Location::Held(here, version.later(1), None));
                    return Stage::Install { busy, from, version, bytes };
                }
                let clean = from.filter(|_| self.is_clean(busy, from));
                match host.install(page, bytes.as_ref(), clean.is_some()) {
                    Installed::Whole => {
                        let keep =
                            from.map_or([None; 2], |Givers(from, other)| [Some(from), other]);
                        let keep = (keep, version);
                        let dirty = || self.comes(host, busy, version.later(1), keep, false);
                        clean.map_or_else(dirty, |from| self.comes_clean(host, busy, from, version))
                    }
                    Installed::Exists => undo(busy, Next::Fail(Why::Damaged)),
                    // Also of a page whose word did not say so yet: the node died that sent it.
                    Installed::NoRoom if bytes.is_none() && version != Version::default() => {
                        Stage::Undo { busy, to: busy.emptied(version), next: Next::Room }
                    }
                    Installed::NoRoom => undo(busy, Next::Room),
                }
            }
            // PERSIST: the bytes are in the page file before the directory says so; and the
            // directory says that there is no spare before anybody stores to the page.
            Stage::Settle(settled) => {
                let late =
                    if settled.was_here { Mistake::SpareClearedLate } else { Mistake::OwnedEarly };
                if made(late) && host.word(page) != settled.to {
                    host.turn(page, settled.busy, settled.to);
                    return Stage::Settle(settled);
                }
                host.set_place(page, settled.place);
                Stage::Turn(settled)
            }
            Stage::Turn(Settled { busy, to, owed, was_here, .. }) => {
                host.turn(page, busy, to);
                if was_here { Stage::Show { word: to, owed } } else { Stage::End(Next::Done(owed)) }
            }
            Stage::Lose { busy, owner, version } => {
                host.set_place(page, Location::Lost(Some(owner), version));
                lose(busy)
            }
            Stage::Undo { busy, to, next } => {
                host.turn(page, busy, to);
                Stage::UndoRoom(next)
            }
            Stage::UndoRoom(next) => {
                host.give_room();
                Stage::End(next)
            }
            other => other,
        }
    }

    /// What the stage asks of the caller. A page is not named while its owner is asked: its word
    /// is busy.
    fn said(&mut self, host: &impl Host<Bytes = B>) -> Next {
        match &self.stage {
            Stage::Asked(asked) => {
                host.unname();
                Next::Ask(asked.at, asked.version)
            }
            Stage::End(next) => {
                let next = *next;
                host.unname();
                self.stage = Stage::Name;
                next
            }
            _ => Next::Step,
        }
    }
}

impl Asked {
    /// The one that was asked has not given the page: it has said that it has not got it (`is_no`),
    /// or nothing.
    fn missed<B>(self, is_no: bool) -> Stage<B> {
        let Self { busy, version, at, next, before } = self;
        let is_no = is_no || made(Mistake::UnansweredLost);
        let before_no = before.is_none_or(|before| before.1 || made(Mistake::SilentIsNo));
        match next.filter(|_| !made(Mistake::OneRefusedLost)) {
            Some(next) => {
                let before = Some((at, is_no));
                Stage::Asked(Self { at: next, next: None, before, ..self })
            }
            None if is_no && before_no => Stage::Lose { busy, owner: at, version },
            None => undo(busy, Next::Again),
        }
    }
}

/// What there is to do with a page of this word.
fn look<B>(word: Word, stores: bool) -> Stage<B> {
    match word.state() {
        State::Clean if stores => Stage::ClaimClean(word),
        State::Owned | State::Clean => Stage::Show { word, owed: [None; 2] },
        State::Absent => Stage::TakeRoom(word),
        State::Busy | State::Leaving => Stage::Dead(word),
        State::Lost => Stage::End(Next::Fail(Why::Lost)),
        // Of a holder's: no region of this node's own has it.
        State::Kept | State::Spare => Stage::End(Next::Fail(Why::Damaged)),
    }
}

fn undo<B>(busy: Word, next: Next) -> Stage<B> {
    Stage::Undo { busy, to: busy.turned(State::Absent, busy.version()), next }
}

fn lose<B>(busy: Word) -> Stage<B> {
    let to = busy.turned(State::Lost, busy.version());
    Stage::Undo { busy, to, next: Next::Fail(Why::Lost) }
}
