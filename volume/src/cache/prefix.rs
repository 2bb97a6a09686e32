//! The prefix part of the path cache: directories that were reached by several plain names in a
//! row.
//!
//! Most paths that a program uses begin as others do. An entry holds such a beginning, the
//! directory to which it leads, and the sequence numbers of all directories on the way: it is right
//! as long as the names of directories in each of them stand ([`Volume::subdirectories_stand`]),
//! mostly one load for each.
//!
//! Locks: none. Persistence: none.

use crate::cache::{Entry, Table, mix};
use crate::namespace::bucket::Target;
use crate::volume::Volume;
use rustix::io::Errno;
use smallvec::SmallVec;
use vfs::{Attr, Kind, Node};

/// Words of an entry beside its version.
const WORDS: usize = 47;
/// Words that tell the start, the target, and the lengths.
const HEAD: usize = 5;
/// Longest text, words.
pub(crate) const TEXT: usize = 18;
/// Directories on the way, at most: two words each.
pub(crate) const DIRS: usize = (WORDS - HEAD - TEXT) / 2;
/// Entries: few pages, as in `cache/mod.rs`.
const ENTRIES: usize = 128;

static PREFIXES: Table<ENTRIES, WORDS> = Table([const { Entry::new() }; ENTRIES]);

/// Directories passed: inode and sequence number.
pub(crate) type Way = SmallVec<[(u64, u64); DIRS]>;

/// A text, padded with zeros; `None` if it is too long to be remembered.
#[inline]
pub(crate) fn padded(text: &[u8]) -> Option<[u64; TEXT]> {
    let mut bytes = [0; TEXT * 8];
    bytes.get_mut(..text.len())?.copy_from_slice(text);
    Some(zerocopy::transmute!(bytes))
}

impl Volume {
    /// What `path` leads to from `start` by plain names: the directory of the last name, and what
    /// has that name. `None` says nothing.
    #[inline]
    pub(crate) fn walk_path(&self, start: Node, path: &[u8]) -> Option<(Node, Option<Attr>)> {
        let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(cut) => (self.find_prefix(start, &path[..cut])?, &path[cut + 1..]),
            None => (start, path),
        };
        if matches!(name, b"" | b"." | b"..") {
            return None;
        }
        match self.lookup_target(dir, name) {
            Ok(target) => Some((dir, Some(self.attributes(target.node).ok()?))),
            Err(Errno::NOENT) => Some((dir, None)),
            Err(_) => None,
        }
    }

    /// As [`Volume::walk_path`], where something has the last name: its attributes are written to
    /// `attr`.
    #[inline]
    pub(crate) fn walk_path_to(&self, start: Node, path: &[u8], attr: &mut Attr) -> Option<Node> {
        let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(cut) => (self.find_prefix(start, &path[..cut])?, &path[cut + 1..]),
            None => (start, path),
        };
        if matches!(name, b"" | b"." | b"..") {
            return None;
        }
        let target = self.lookup_target(dir, name).ok()?;
        self.attributes_to(target.node, attr).ok()?;
        Some(dir)
    }

    /// The directory that `text` leads to from `start` by plain names, each of a directory. `None`
    /// says nothing.
    pub(crate) fn find_prefix(&self, start: Node, text: &[u8]) -> Option<Node> {
        let words = padded(text)?;
        let used = &words[..text.len().div_ceil(8)];
        let head = self.head(start);
        let entry = PREFIXES.entry(mix(&[start.ino, mix(used)]));
        let known = entry.look(head, |found| {
            let same = found.at(4) >> 32 == text.len() as u64 && found.are(HEAD, used);
            let node = Node { ino: found.at(2), generation: found.at(3) as u32 };
            (same && self.way_stands(|index| found.at(index))).then_some(node)
        });
        if known.is_some() {
            return known;
        }
        let (end, way) = self.walk_prefix(start, text)?;
        let mut fresh = [0; WORDS];
        [fresh[0], fresh[1]] = head;
        (fresh[2], fresh[3]) = (end.ino, u64::from(end.generation));
        fresh[4] = (text.len() as u64) << 32 | way.len() as u64;
        fresh[HEAD..HEAD + TEXT].copy_from_slice(&words);
        for (index, (ino, sequence)) in way.into_iter().enumerate() {
            fresh[HEAD + TEXT + index * 2] = ino;
            fresh[HEAD + TEXT + index * 2 + 1] = sequence;
        }
        entry.put(&fresh, || self.way_stands(|index| fresh[index]));
        Some(end)
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

    /// Walks the text, name by name; also gives the directories passed, with the sequence numbers
    /// under which they were.
    pub(crate) fn walk_prefix(&self, start: Node, text: &[u8]) -> Option<(Node, Way)> {
        let mut way = SmallVec::new();
        let mut dir = start;
        for name in text.split(|&byte| byte == b'/') {
            let special = matches!(name, b"" | b"." | b"..");
            if special || way.len() == DIRS {
                return None;
            }
            way.push((dir.ino, self.sequence_of(dir)));
            let Ok(Target { node, kind: Kind::Directory }) = self.lookup_target(dir, name) else {
                return None;
            };
            dir = node;
        }
        Some((dir, way))
    }
}
