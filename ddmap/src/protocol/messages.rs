//! What nodes say to each other.

use super::Version;

/// Pages in one request or answer, at most.
pub const PAGES: usize = 64;
/// Claims in one answer, at most.
pub const CLAIMS: usize = 4096;

/// Bytes of a text that nodes say, at most.
pub const CONTROL: usize = 64 << 10;

/// What one side of a connection asks the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Gives these pages, in these versions; and drops those, up to these versions.
    Fetch {
        /// At most [`PAGES`].
        pages: Vec<(u64, Version)>,
        /// At most [`PAGES`].
        releases: Vec<(u64, Version)>,
    },
    /// Keeps these pages from now on, in these versions.
    Store {
        /// At most [`PAGES`].
        pages: Vec<(u64, Version)>,
        /// The pages, one behind the other.
        bytes: Vec<u8>,
    },
    /// Has these pages of the tables of a volume that is about to move there (`ground/moving.rs`).
    Tables {
        /// At most [`PAGES`], by their numbers; all in version 0.
        pages: Vec<(u64, Version)>,
        /// The pages, one behind the other.
        bytes: Vec<u8>,
    },
    /// Drops these pages, up to these versions.
    Release {
        /// At most [`PAGES`].
        pages: Vec<(u64, Version)>,
    },
    /// Tells what is kept, from a page on.
    Claims {
        /// The first page.
        from: u64,
    },
    /// Says how it is.
    Ping,
    /// What nodes say to each other besides (`reach/control.rs`): at most [`CONTROL`] bytes.
    Control {
        /// JSON.
        text: String,
    },
}

impl Request {
    /// What can be done behind the answer, which does not tell of it: taken out of the request.
    pub fn take_behind(&mut self) -> Option<Self> {
        match self {
            Self::Fetch { releases, .. } if !releases.is_empty() => {
                Some(Self::Release { pages: std::mem::take(releases) })
            }
            _ => None,
        }
    }
}

/// What is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Which of the pages are here, and those, one behind the other.
    Fetched {
        /// Of each page that was asked for, in this order.
        found: Vec<bool>,
        /// The pages that are.
        bytes: Vec<u8>,
    },
    /// What came of each page, in this order.
    Stored(Vec<super::keep::Stored>),
    /// So many pages were dropped.
    Released(u32),
    /// What is kept, in ascending order, and from which page on more may be.
    Claims {
        /// At most [`CLAIMS`].
        claims: Vec<(u64, Version)>,
        /// `None`: that was all.
        next: Option<u64>,
    },
    /// How the node is.
    Pong {
        /// Pages that it may keep.
        capacity: u64,
        /// Pages that it has.
        used: u64,
    },
    /// The answer to [`Request::Control`].
    Control {
        /// JSON: at most [`CONTROL`] bytes.
        text: String,
    },
    /// The request was refused.
    Refused {
        /// An errno value.
        errno: u16,
        /// What was found, and what to do: at most 512 bytes.
        text: String,
    },
}
