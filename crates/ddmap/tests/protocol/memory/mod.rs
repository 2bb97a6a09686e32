//! What machines work on in tests: a host's memory, a holder's memory, what is asked of a holder.
//! All of it can be copied, compared and hashed, so a simulation and a model checker share it.
//!
//! A page's bytes are one number, which no other store has written; 0 stands for zeros.

pub mod holder;
pub mod host;

pub use holder::{Answer, Desk, Died, HolderMemory, Request, serve};
pub use host::{HostMemory, Process, Seat, Work};

/// A page's bytes.
pub type Bytes = u32;

/// A mistake of the world around the machines.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flaw {
    /// A holder serves frames of a session that its peer has replaced.
    OldSession,
    /// An answer is taken for the one that is waited for, whatever was asked.
    UnaskedAnswer,
    /// Bytes whose sum is wrong are used.
    TornAnswer,
    /// Room is never given back.
    RoomKept,
    /// `meet` waits for nobody.
    MeetsNobody,
    /// A process that is stopped is taken for dead.
    StoppedIsDead,
    /// A holder that starts leaves what it was at as it is.
    BusyLeft,
    /// A holder says that it keeps a page before it has the bytes.
    StoredEarly,
    /// The old owner is told to drop its bytes when they have come, before the directory names
    /// the new one.
    ReleasedEarly,
    /// Protection reaches all processes but the first.
    OneUnprotected,
    /// A restarted host counts only pages in its file: the claims of the dead have room, too.
    ClaimsUncounted,
    /// A page is opened for a call of the kernel's first, and held then.
    OpenedBeforeHold,
    /// The directory names a new holder before that has said that it keeps the page.
    HealedEarly,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::OldSession,
        Self::UnaskedAnswer,
        Self::TornAnswer,
        Self::RoomKept,
        Self::MeetsNobody,
        Self::StoppedIsDead,
        Self::BusyLeft,
        Self::StoredEarly,
        Self::ReleasedEarly,
        Self::OneUnprotected,
        Self::ClaimsUncounted,
        Self::OpenedBeforeHold,
        Self::HealedEarly,
    ];
}
