//! What a check finds, and what can be done about it.
//!
//! A [`FsckFault`] is for people and scripts; the [`Action`] in it is for `repair.rs`, which does
//! what it says to the medium. The levels ([`Remedy`]) are a promise: mending a `Repair` fault
//! loses no contents of any file; mending a `Salvage` fault gives up what cannot be read any more,
//! so it is done only when asked for; no program can find a right answer to a `None` fault.

use crate::inode::Inode;
use crate::medium::layout::Identity;
use crate::namespace::bucket::{Cell, Dir};
use vfs::{Kind, Node};

/// How far a fault can be mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remedy {
    /// Nothing that was readable is lost.
    Repair,
    /// What cannot be read any more is given up: a name that leads nowhere, a damaged piece of a
    /// file, which becomes a hole.
    Salvage,
    /// Only a person can decide, or a copy from elsewhere help.
    None,
}

impl Remedy {
    /// The word for it in reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Repair => "repair",
            Self::Salvage => "salvage",
            Self::None => "none",
        }
    }
}

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsckFault {
    /// What kind of fault: a stable word for scripts.
    pub code: &'static str,
    /// Where: a path, an inode, a block.
    pub place: String,
    /// What it means, in a sentence.
    pub meaning: String,
    /// What it takes to mend it.
    pub remedy: Remedy,
    pub(crate) action: Action,
}

/// What of a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostData {
    /// The file, as the fault's place names it.
    pub place: String,
    /// Where it lies in the region: runs of bytes, {offset, length}.
    pub runs: Vec<(u64, u64)>,
    /// Byte of the file at which the first one begins.
    pub first: u64,
}

impl LostData {
    /// Bytes that cannot be read.
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|run| run.1).sum()
    }
}

/// Where an entry of a directory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryAt {
    pub(crate) dir: Dir,
    /// Block of the bucket.
    pub(crate) block: u64,
    /// First slot.
    pub(crate) slot: usize,
}

/// What is to be done on the medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing can be.
    None,
    /// Nothing: the attach for the repair, and the free map that it rebuilds, put it right.
    Attach,
    /// A lane's header starts anew.
    Lane(u64),
    /// The inode has this many names.
    Names { inode: Inode, names: u32 },
    /// The directory has this many subdirectories.
    Subdirectories { inode: Inode, count: u32 },
    /// A directory's `..`.
    Parent { inode: Inode, parent: Node },
    /// The kind that an entry tells.
    Kind { at: EntryAt, kind: Kind },
    /// The identity line, as far as its name and its parent tell it.
    Identity { inode: Inode, identity: Identity },
    /// The commit line: rebuilt from what is left of it, or from what the map tells. If that does
    /// not do, the name that leads to it is removed.
    Commit { inode: Inode, at: Option<EntryAt> },
    /// A bucket of which only some entries can be read.
    Bucket { dir: Dir, block: u64, cell: Cell },
    /// A word of a directory's node: put back from the equal ones beside it, or emptied.
    DirWord { dir: Dir, at: u64, lo: u64, level: usize },
    /// A word that is emptied.
    Clear { at: u64 },
    /// A name that is removed.
    Entry { at: EntryAt },
}

impl FsckFault {
    /// A fault that the attach of a repair puts right.
    pub(crate) fn repaired_by_attach(
        code: &'static str,
        place: String,
        meaning: impl Into<String>,
    ) -> Self {
        let meaning = meaning.into();
        Self { code, place, meaning, remedy: Remedy::Repair, action: Action::Attach }
    }
}
