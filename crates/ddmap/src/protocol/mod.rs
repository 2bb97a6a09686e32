//! How pages move between nodes: machines that take one step at a time, and wait for nothing.
//!
//! A region's *host* runs its programs. It has the directory, which says of each page where its
//! bytes are. A *holder* keeps pages for the host, and does what the host says. A page has one
//! place ([`Location`]), and each move of it has a version of its own. A page that is away lies
//! with one holder, or with two.
//!
//! | machine | runs in | what it does |
//! |---|---|---|
//! | [`Fault`] | a thread that touched a page | finds the page, brings it here |
//! | [`Eviction`] | the host's node | sends pages to a holder, or to two |
//! | [`Healing`] | the host's node | has the directory name other holders of the same bytes |
//! | [`Discard`] | a thread that frees pages | makes them void, wherever they were |
//! | [`holder`] | a holder | stores, keeps, gives and drops pages |
//! | [`reconcile`] | the host's node | finds what a holder keeps in vain, or as a spare |
//! | [`Poll`], [`Terms`] | any node | which node is the domain's first |
//! | [`Queue`] | the host's node | whose turn it is to use the volume |
//!
//! No machine has a clock, a socket or a thread. A step makes at most one access to what processes
//! share; so a simulator may run the machines of several processes in any order, and end one
//! behind any step (`simulation.rs` and `exhaustive.rs` in `tests/protocol/`; `concurrency.rs` for
//! a holder's operations). What those can find is shown by `mistakes.rs`.
//!
//! # Invariants
//!
//! 1. The directory is the truth: a page's bytes are where its place says, in that version. What
//!    another node has of it is stale.
//! 2. Only the host stores to a page: while its word is *owned*; *leaving*, before it is protected;
//!    or *busy*, if it is in the file, of which the directory may not say yet that it is here.
//!    While its word is *clean* it is protected in all mappings that can store to it; so it is from
//!    when it is a hole: no page that may be stored to becomes clean.
//! 3. A word that is *busy* or *leaving* names who is at it, by process and life. Nobody else
//!    changes the page's place or its hole, unless that process is dead.
//! 4. *Absent* means: a hole in the host's page file. So what is in the file of a page whose word
//!    is *busy* was installed whole. The word of one that was touched, and is zeros, says so
//!    ([`Flags::EMPTY`]), in the version of its place: nobody claims it if the directory is lost.
//! 5. Versions of a page only grow, also where nothing moved but a move was tried. So what a holder
//!    may have got by a message of which nobody knows whether it arrived is older than all that is
//!    sent behind it. What a holder keeps of a page that is placed elsewhere is older than the
//!    directory's version, but for what is on its way there. So the latest version among all claims
//!    is the newest page, once what is busy at the host is finished.
//! 6. A page that is mapped is in the file. It is protected before it is sent. Who maps it or takes
//!    its protection away names the page first, looks at the word then, and takes the name back at
//!    the end; who evicts it changes the word first, lets all processors see that, and looks at the
//!    names then. One of the two sees the other. A mapping whose pages are to stay is a name, too,
//!    from before its first page is shown until it is gone.
//! 7. A page that is *lost* is a hole. It is void again, in the version behind the lost one, when
//!    nobody wants what it held: it was freed, or is stored to whole. So what a holder that comes
//!    back has of it is stale. A page is lost when *all* holders that the directory names have said
//!    that they have not got it, or are removed from the domain: one that is silent may have it.
//! 8. All nodes that keep a page in the version that the directory names have the same bytes: those
//!    of a version never change. So a second holder can be given them without a claim. Nobody is
//!    told to drop a page, or to take it for a spare, in a version that the directory may name a
//!    holder of: what is said late would be heard by one that was named since.

mod discard;
mod eviction;
mod fault;
mod handover;
mod healing;
pub mod holder;
mod inject;
mod leadership;
pub mod messages;
mod reconciliation;
mod words;

pub use discard::Discard;
pub use eviction::{Evicted, Eviction, Progress};
pub use fault::{Fault, Next, Owed, ToInstall, Why};
#[cfg(test)]
pub use handover::LATE;
pub use handover::{Asked, Queue, Ticket, Use};
pub use healing::{Healed, Healing};
#[cfg(test)]
pub use inject::{Mistake, make, make_everywhere};
pub use leadership::{Poll, Reign, Terms};
#[cfg(test)]
pub use reconciliation::Reconcile;
pub use reconciliation::{Verdict, reconcile};
pub use words::{Claimant, DamagedPlace, Flags, Location, NodeId, State, Version, Word};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// The term of a volume that has not moved to another host yet.
pub(crate) const TERM: u32 = 1;

/// What came of putting a page's bytes into the page file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Installed {
    /// They are there, whole.
    Whole,
    /// Bytes are there already.
    Exists,
    /// The store's memory is used up.
    NoRoom,
}

/// What came of mapping a page that is in the page file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shown {
    /// The instruction can run again.
    Mapped,
    /// It is not in the file, though its word says so.
    Hole,
}

/// What is done to several pages next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Batch {
    /// [`Host::protect`].
    Protect,
    /// [`Host::read`].
    Read,
    /// [`Host::punch`].
    Punch,
}

/// What a host's machines work on: words, places, the page file, and the names of pages that
/// threads are about to map. Each method is one step, which a process ends behind or does not.
pub trait Host {
    /// A page's bytes.
    type Bytes;

    /// This host.
    fn here(&self) -> NodeId;

    /// Who this process is, in words.
    fn me(&self) -> Claimant;

    /// A page's word.
    fn word(&self, page: u64) -> Word;

    /// Replaces a page's word, if it is `from` still, and wakes all that wait for it. Flags are not
    /// compared, and stay as they are ([`Word::behind`]): they may change at any time.
    fn turn(&self, page: u64, from: Word, to: Word) -> bool;

    /// Where the page's bytes are.
    fn place(&self, page: u64) -> Result<Location, DamagedPlace>;

    /// Says where they are from now on. Durable when it returns, as the page file is.
    fn set_place(&self, page: u64, place: Location);

    /// Whether a node is known not to answer: of two that have a page the other one is asked first.
    fn is_silent(&self, _node: NodeId) -> bool {
        false
    }

    /// Whether a process is dead.
    fn is_dead(&self, claimant: Claimant) -> bool;

    /// Takes room for one page of this node's capacity; `false`: there is none.
    fn take_room(&self) -> bool;

    /// Gives it back.
    fn give_room(&self);

    /// Whether a page's bytes are in the page file.
    fn is_in_file(&self, page: u64) -> bool;

    /// Puts a page's bytes (`None`: zeros) into a hole of the page file, whole, in one step. Where
    /// it is mapped by that, it is protected if it is clean.
    fn install(&self, page: u64, bytes: Option<&Self::Bytes>, is_clean: bool) -> Installed;

    /// Lets this process load from a page that is in the file; and store to it, if it is not clean.
    /// Where it is mapped already that is changed only for one who `stores`.
    fn show(&self, page: u64, is_clean: bool, stores: bool) -> Shown;

    /// Makes a page a hole, in the page file and in all processes.
    fn punch(&self, page: u64);

    /// Names the page that this thread is about to map. Plain stores, ahead of the word's load.
    fn name(&self, page: u64);

    /// Takes the name back.
    fn unname(&self);

    /// All that other processors have stored before is seen from here on, and what this one has
    /// stored is seen by what they load from here on.
    fn meet(&self);

    /// Whether a thread has named the page; dead ones count until they are buried.
    fn is_named(&self, page: u64) -> bool;

    /// Takes stores to a page away from all processes. They can still load.
    fn protect(&self, page: u64);

    /// The page's bytes in the file. `None`: they are all zero.
    fn read(&self, page: u64) -> Option<Self::Bytes>;

    /// This is done to these pages next, one by one: a host may do it to all of them at once now,
    /// where that takes less.
    fn prepare(&self, _batch: Batch, _pages: &mut dyn Iterator<Item = u64>) {}

    /// Whether the page could not be read: it is not known what its bytes are.
    fn is_unreadable(&self, _page: u64) -> bool {
        false
    }
}
