//! What a thread does that has touched a page: it finds out what there is to do, and brings the
//! page here if it is elsewhere (`docs/engines.md`, "How a touch is served"; dissertation, 6.4.2).
//!
//! Persistence order of a move: the bytes are in the page file, then the directory says so, then
//! the word does; the old owner is told behind all that.
//!
//! CRASH: a process may die behind any step. The next one that meets its claim takes it over, and
//! decides by the page file: what is there came whole, and others may have stored to it already,
//! so it is *finished*; a hole is fetched again.

use super::inject::{Mistake, made};
use super::{Host, Installed, Location, NodeId, Shown, State, Version, Word};

/// Why a page cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Why {
    /// Its only bytes are gone.
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
    /// The page is here: the instruction runs again. What its old owner keeps, in which version, is
    /// to be released.
    Done(Option<(NodeId, Version)>),
    /// Another process is at the page: begin anew when its word is not this one any more; and after
    /// a while, since that process may die, which changes no word.
    Wait(Word),
    /// This node's capacity is used up: begin anew when there is room, or when the page's word has
    /// changed: another thread may have had the last room for this very page.
    Room,
    /// The owner is to be asked for this version of the page; then [`Fault::answered`],
    /// [`Fault::refused`] or [`Fault::unanswered`]. Nobody may be held up meanwhile.
    Ask(NodeId, Version),
    /// The owner could not be asked: begin anew, for as long as patience lasts.
    Again,
    /// The page cannot be had.
    Fail(Why),
}

/// Where a fault stands. `busy` is the word by which this process has claimed the page; `was` the
/// one of the dead process that it has taken over.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Stage<B> {
    Name,
    Look,
    Show(Word),
    TakeRoom(Word),
    Claim(Word),
    GiveRoom,
    Dead(Word),
    Take(Word),
    InFile { busy: Word, was: Word },
    Left { busy: Word, was: Word },
    Punch { busy: Word },
    Finish { busy: Word, was: Word },
    Leave { busy: Word, was: Word },
    Where { busy: Word },
    Asked { busy: Word, owner: NodeId, version: Version },
    Install { busy: Word, from: Option<NodeId>, version: Version, bytes: Option<B> },
    Settle { busy: Word, from: Option<NodeId>, version: Version },
    Turn { busy: Word, owed: Option<(NodeId, Version)>, version: Version },
    Lose { busy: Word, owner: NodeId, version: Version },
    Undo { busy: Word, to: Word, next: Next },
    UndoRoom(Next),
    End(Next),
}

/// A thread's way to a page.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Fault<B> {
    page: u64,
    stage: Stage<B>,
}

impl<B> Fault<B> {
    /// A thread has touched the page.
    pub fn new(page: u64) -> Self {
        let stage = if made(Mistake::NamedLate) { Stage::Look } else { Stage::Name };
        Self { page, stage }
    }

    /// The page.
    pub fn page(&self) -> u64 {
        self.page
    }

    /// The owner has sent the page in the version that was asked for, and its sum is right.
    pub fn answered(&mut self, bytes: B) {
        if let Stage::Asked { busy, owner, version } = self.stage {
            let (from, bytes) = (Some(owner), Some(bytes));
            self.stage = Stage::Install { busy, from, version, bytes };
        }
    }

    /// The page is claimed, and is put into the page file by the next step: these bytes (`None`:
    /// zeros). A caller may have put it there already, with others in a row.
    #[expect(clippy::option_option, reason = "a page may be to be installed, and be zeros")]
    pub fn to_install(&self) -> Option<Option<&B>> {
        match &self.stage {
            Stage::Install { bytes, .. } => Some(bytes.as_ref()),
            _ => None,
        }
    }

    /// The owner is there, and has not got the page in that version.
    pub fn refused(&mut self) {
        if let Stage::Asked { busy, owner, version } = self.stage {
            self.stage = Stage::Lose { busy, owner, version };
        }
    }

    /// The owner could not be asked, or has not answered.
    pub fn unanswered(&mut self) {
        if let Stage::Asked { busy, owner, version } = self.stage {
            if made(Mistake::UnansweredLost) {
                self.stage = Stage::Lose { busy, owner, version };
                return;
            }
            self.stage = undo(busy, Next::Again);
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
            Stage::Look => look(host.word(page)),
            Stage::Show(word) => {
                if made(Mistake::NamedLate) {
                    host.name(page);
                }
                match host.show(page) {
                    Shown::Mapped => Stage::End(Next::Done(None)),
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
                Ok(Location::Held(owner, _)) if owner == here => Stage::Finish { busy, was },
                Err(_) if made(Mistake::UnreadableDropped) => Stage::Punch { busy },
                Ok(_) => Stage::Punch { busy },
                Err(_) => Stage::Leave { busy, was },
            },
            Stage::Punch { busy } => {
                host.punch(page);
                Stage::Where { busy }
            }
            // It was being brought; or being sent, and a holder may have got it by a message of
            // which nobody knows: then what is here is two versions later.
            Stage::Finish { busy, was } => match host.place(page) {
                Ok(Location::Held(owner, version)) if owner == here => {
                    let later = u32::from(!made(Mistake::OneVersionOn));
                    Stage::Settle { busy, from: None, version: version.later(later) }
                }
                Ok(Location::Held(owner, version)) => {
                    Stage::Settle { busy, from: Some(owner), version }
                }
                Ok(Location::Void(version) | Location::Lost(_, version)) => {
                    Stage::Settle { busy, from: None, version }
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

    /// The steps of a process whose claim stands.
    fn bring(&mut self, host: &impl Host<Bytes = B>, stage: Stage<B>) -> Stage<B> {
        let (page, here) = (self.page, host.here());
        match stage {
            Stage::Where { busy } => match host.place(page) {
                Ok(Location::Void(version)) => {
                    Stage::Install { busy, from: None, version, bytes: None }
                }
                Ok(Location::Held(owner, version)) if owner == here => {
                    Stage::Lose { busy, owner, version }
                }
                Ok(Location::Held(owner, version)) => Stage::Asked { busy, owner, version },
                Ok(Location::Lost(..)) => lose(busy),
                Err(_) => undo(busy, Next::Fail(Why::Damaged)),
            },
            Stage::Install { busy, from, version, bytes } => {
                if made(Mistake::PlacedHereEarly)
                    && host.place(page) != Ok(Location::Held(here, version.later(1)))
                {
                    host.set_place(page, Location::Held(here, version.later(1)));
                    return Stage::Install { busy, from, version, bytes };
                }
                match host.install(page, bytes.as_ref()) {
                    Installed::Whole => Stage::Settle { busy, from, version },
                    Installed::Exists => undo(busy, Next::Fail(Why::Damaged)),
                    // Also of a page whose word did not say so yet: the node died that sent it.
                    Installed::NoRoom if bytes.is_none() && version != Version::default() => {
                        Stage::Undo { busy, to: busy.emptied(version), next: Next::Room }
                    }
                    Installed::NoRoom => undo(busy, Next::Room),
                }
            }
            // PERSIST: the bytes are in the page file before the directory says so.
            Stage::Settle { busy, from, version } => {
                let owned = busy.turned(State::Owned, version.later(1));
                if made(Mistake::OwnedEarly) && host.word(page) != owned {
                    host.turn(page, busy, owned);
                    return Stage::Settle { busy, from, version };
                }
                host.set_place(page, Location::Held(here, version.later(1)));
                let owed = from.map(|owner| (owner, version));
                Stage::Turn { busy, owed, version: version.later(1) }
            }
            Stage::Turn { busy, owed, version } => {
                host.turn(page, busy, busy.turned(State::Owned, version));
                Stage::End(Next::Done(owed))
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
            Stage::Asked { owner, version, .. } => {
                host.unname();
                Next::Ask(*owner, *version)
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

/// What there is to do with a page of this word.
fn look<B>(word: Word) -> Stage<B> {
    match word.state() {
        State::Owned => Stage::Show(word),
        State::Absent => Stage::TakeRoom(word),
        State::Busy | State::Leaving => Stage::Dead(word),
        State::Lost => Stage::End(Next::Fail(Why::Lost)),
        // Of a holder's: no region of this node's own has it.
        State::Kept => Stage::End(Next::Fail(Why::Damaged)),
    }
}

fn undo<B>(busy: Word, next: Next) -> Stage<B> {
    Stage::Undo { busy, to: busy.turned(State::Absent, busy.version()), next }
}

fn lose<B>(busy: Word) -> Stage<B> {
    let to = busy.turned(State::Lost, busy.version());
    Stage::Undo { busy, to, next: Next::Fail(Why::Lost) }
}
