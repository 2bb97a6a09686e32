//! What nodes say to each other.

use super::{PAGE, Version};

/// Pages in one request or answer, at most.
pub const PAGES: usize = 64;
/// Claims in one answer, at most.
pub const CLAIMS: usize = 4096;

/// Bytes of a text that nodes say, at most.
pub const CONTROL: usize = 64 << 10;

/// Bytes of a line: the least part of a page that is given.
pub const LINE: u64 = 64;
/// Lines of a page.
const LINES: u64 = PAGE / LINE;

/// Lines of a page, one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lines {
    /// Below 2^52.
    page: u64,
    first: u8,
    count: u8,
}

impl Lines {
    /// Those that have a range of bytes of one page. `None`: it has none, or those of several.
    pub fn of(at: u64, length: u64) -> Option<Self> {
        let (page, from) = (at / PAGE, at % PAGE);
        let end = from.checked_add(length)?;
        let inside = length > 0 && end <= PAGE && page < 1 << 52;
        let (first, end) = (from / LINE, end.div_ceil(LINE));
        inside.then_some(Self { page, first: first as u8, count: (end - first) as u8 })
    }

    /// The page.
    pub fn page(self) -> u64 {
        self.page
    }

    /// Where they are in the page.
    pub fn range(self) -> std::ops::Range<usize> {
        let line = LINE as usize;
        usize::from(self.first) * line..(usize::from(self.first) + usize::from(self.count)) * line
    }

    /// How many bytes they have.
    pub fn bytes(self) -> usize {
        self.range().len()
    }

    /// As one number: `| count - 1, 58..64 | first 52..58 | page 0..52 |`.
    pub fn number(self) -> u64 {
        u64::from(self.count - 1) << 58 | u64::from(self.first) << 52 | self.page
    }

    /// Those of a number.
    pub fn of_number(number: u64) -> Option<Self> {
        let (first, count) = (number >> 52 & 0x3F, (number >> 58) + 1);
        let page = number & ((1 << 52) - 1);
        let (first, count) = (first + count <= LINES).then_some((first as u8, count as u8))?;
        Some(Self { page, first, count })
    }
}

/// A page that a holder keeps, as it says itself; or as it is told: it is to drop it, up to this
/// version. If it is a *spare*, it is to know that the host has this version of it, too.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeptPage {
    /// Its number.
    pub page: u64,
    /// The version.
    pub version: Version,
    /// Whether it is a spare, which may be dropped.
    pub is_spare: bool,
}

impl KeptPage {
    /// One that is no spare.
    pub const fn new(page: u64, version: Version) -> Self {
        Self { page, version, is_spare: false }
    }
}

/// What one side of a connection asks the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Gives these pages, in these versions; and drops those, or takes them for spares.
    Fetch {
        /// At most [`PAGES`].
        pages: Vec<(u64, Version)>,
        /// At most [`PAGES`].
        releases: Vec<KeptPage>,
    },
    /// Keeps these pages from now on, in these versions.
    Store {
        /// At most [`PAGES`].
        pages: Vec<(u64, Version)>,
        /// The pages, one behind the other.
        bytes: Vec<u8>,
    },
    /// Has these pages of the tables of a volume that is about to move there
    /// (`shared_memory/migration.rs`).
    Tables {
        /// At most [`PAGES`], by their numbers; all in version 0.
        pages: Vec<(u64, Version)>,
        /// The pages, one behind the other.
        bytes: Vec<u8>,
    },
    /// Keeps these pages from now on, in these versions, of which it has the bytes: they are those
    /// of the versions two earlier.
    Keep {
        /// At most [`PAGES`].
        pages: Vec<(u64, Version)>,
    },
    /// Drops these pages, or takes them for spares.
    Release {
        /// At most [`PAGES`].
        pages: Vec<KeptPage>,
    },
    /// Gives lines of a page, in this version. The page stays.
    Lines {
        /// Which.
        lines: Lines,
        /// Of the page.
        version: Version,
    },
    /// Tells what is kept, from a page on.
    Claims {
        /// The first page.
        from: u64,
    },
    /// Says how it is.
    Ping,
    /// What nodes say to each other besides (`control/node_messages.rs`): at most [`CONTROL`]
    /// bytes.
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

    /// What an answer names in this order, to be told from others.
    pub(crate) fn names(&self, to: &mut Vec<(u64, Version)>) {
        to.clear();
        match self {
            Self::Fetch { pages, .. }
            | Self::Store { pages, .. }
            | Self::Tables { pages, .. }
            | Self::Keep { pages } => to.extend_from_slice(pages),
            Self::Lines { lines, version } => to.push((lines.number(), *version)),
            _ => {}
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
    /// The lines, if the page is kept in that version.
    Lined(Option<Vec<u8>>),
    /// What came of each page, in this order.
    Stored(Vec<super::holder::Stored>),
    /// So many pages were dropped.
    Released(u32),
    /// What is kept, in ascending order, and from which page on more may be.
    Claims {
        /// At most [`CLAIMS`].
        claims: Vec<KeptPage>,
        /// `None`: that was all.
        next: Option<u64>,
    },
    /// How the node is.
    Pong {
        /// Pages that it may keep.
        capacity: u64,
        /// Pages that it has, but for spares.
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
