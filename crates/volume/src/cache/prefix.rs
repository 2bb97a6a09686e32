//! The prefix part of the path cache: directories that were reached by several plain names in a
//! row.
//!
//! Most paths that a program uses begin as others do. An entry holds such a beginning, the
//! directory to which it leads, and the sequence numbers of all directories on the way: it is right
//! as long as the names of directories in each of them stand ([`Caches::subdirectories_stand`]),
//! mostly one load for each.
//!
//! What is not remembered is walked (`namespace/walk.rs`).
//!
//! Locks: none. Persistence: none.

use crate::cache::{Caches, Entry, Table, mix};
use crate::medium::subword::padded;
use smallvec::SmallVec;
use vfs::Node;

/// Words of an entry beside its version.
const WORDS: usize = 47;
/// Words that tell the start, the target, and the lengths.
const HEAD: usize = 5;
/// Longest text, words.
pub(crate) const TEXT: usize = 18;
/// Directories on the way, at most: two words each.
pub(crate) const DIRS: usize = (WORDS - HEAD - TEXT) / 2;
/// Entries: few pages, as in `cache/names.rs`.
const ENTRIES: usize = 128;

static PREFIXES: Table<ENTRIES, WORDS> = Table([const { Entry::new() }; ENTRIES]);

/// Directories passed: inode and sequence number.
pub(crate) type Way = SmallVec<[(u64, u64); DIRS]>;

/// A prefix that is asked for.
pub(crate) struct Prefix {
    head: [u64; 2],
    length: u64,
    text: [u64; TEXT],
    entry: &'static Entry<WORDS>,
}

impl Caches {
    /// Prepares to look for what `text` leads to from `start`; `None` if it is too long.
    #[inline]
    pub(crate) fn ask_for_prefix(&self, start: Node, text: &[u8]) -> Option<Prefix> {
        let words = padded::<TEXT>(text)?;
        let used = &words[..text.len().div_ceil(8)];
        let entry = PREFIXES.entry(mix(&[start.ino, mix(used)]));
        Some(Prefix { head: self.head(start), length: text.len() as u64, text: words, entry })
    }

    /// The directory that it is remembered to lead to.
    #[inline]
    pub(crate) fn remembered_prefix(&self, asked: &Prefix) -> Option<Node> {
        let used = &asked.text[..asked.length.div_ceil(8) as usize];
        asked.entry.look(asked.head, |found| {
            let same = found.at(4) >> 32 == asked.length && found.are(HEAD, used);
            let node = Node { ino: found.at(2), generation: found.at(3) as u32 };
            (same && self.way_stands(|index| found.at(index))).then_some(node)
        })
    }

    /// Remembers that it leads to `end`, on this way.
    pub(crate) fn remember_prefix(&self, asked: &Prefix, end: Node, way: Way) {
        let mut fresh = [0; WORDS];
        [fresh[0], fresh[1]] = asked.head;
        (fresh[2], fresh[3]) = (end.ino, u64::from(end.generation));
        fresh[4] = asked.length << 32 | way.len() as u64;
        fresh[HEAD..HEAD + TEXT].copy_from_slice(&asked.text);
        for (index, (ino, sequence)) in way.into_iter().enumerate() {
            fresh[HEAD + TEXT + index * 2] = ino;
            fresh[HEAD + TEXT + index * 2 + 1] = sequence;
        }
        asked.entry.put(&fresh, || self.way_stands(|index| fresh[index]));
    }

    /// Whether the names stand in every directory on the way, which the words of an entry tell.
    #[inline]
    fn way_stands(&self, word: impl Fn(usize) -> u64) -> bool {
        let (volume, count) = (word(0), (word(4) as u32 as usize).min(DIRS));
        (0..count).all(|dir| {
            let at = HEAD + TEXT + dir * 2;
            self.subdirectories_stand([volume, word(at)], word(at + 1))
        })
    }
}
