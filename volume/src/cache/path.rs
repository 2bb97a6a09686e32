//! The path cache: whole paths that this process asked for more than once, with the attributes of
//! what they lead to.
//!
//! An entry holds a path of plain names, the node that it leads to, that node's attributes, and the
//! sequence numbers under which all of it was read: of the directories on the way, of the last one,
//! of the node. It is right as long as the names of directories stand on the way
//! ([`Volume::subdirectories_stand`]) and the other two numbers have not moved; so nothing is ever
//! invalidated, and a hit writes no memory. `prefix.rs` and `cache/mod.rs` know the parts, and
//! serve what this table does not have.
//!
//! A path is entered when it is asked for four times in a row at its place in the table, with
//! nothing changed in between: a program that looks at a hundred thousand files and opens each, or
//! asks for the size of a file that grows, pays no more than a store for each.
//!
//! Locks: none. Persistence: none.

use crate::cache::prefix::{DIRS, TEXT, padded};
use crate::cache::{Entry, Looked, PACKED, Table, mix, packed, unpack};
use crate::inode::Inode;
use crate::volume::Volume;
use std::sync::atomic::{AtomicU64, Ordering};
use vfs::{Attr, Node};

/// Words of an entry beside its version: the last of the places below, and two for each directory.
const WORDS: usize = WAY + DIRS * 2;
/// Behind the start: length of the text and number of directories on the way.
const LENGTHS: usize = 2;
/// The directory of the last name: inode, generation, sequence number.
const DIR: usize = 3;
/// What has that name: the same.
const NODE: usize = 6;
const ATTRIBUTES: usize = 9;
const NAMES: usize = ATTRIBUTES + PACKED;
const WAY: usize = NAMES + TEXT;
/// Few pages, as in `cache/mod.rs`.
const ENTRIES: usize = 64;

static PATHS: Table<ENTRIES, WORDS> = Table([const { Entry::new() }; ENTRIES]);
/// For each entry the path that was asked for last and not found in it, with what it led to and
/// when: their hash, but for the low bits, which count how often it was asked for again.
static ASKED: [AtomicU64; ENTRIES] = [const { AtomicU64::new(0) }; ENTRIES];

/// What the low bits count to.
const ASKS: u64 = 4;
const LAST: u64 = 2;

/// The last eight bytes of a text that has as many, else all.
#[inline]
fn tail(text: &[u8]) -> u64 {
    match text.last_chunk() {
        Some(chunk) => u64::from_ne_bytes(*chunk),
        None => text.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

/// Whether an entry's text is `text`, given that it is as long. Its tail has been compared.
#[inline]
fn is_text(found: Looked<'_, WORDS>, text: &[u8]) -> bool {
    let (chunks, _) = text.as_chunks::<8>();
    chunks.iter().enumerate().all(|(at, chunk)| found.at(NAMES + at) == u64::from_ne_bytes(*chunk))
}

impl Volume {
    /// Writes to `attr` the attributes of what the text leads to from `start`. `false` says
    /// nothing.
    #[inline]
    pub(crate) fn find_path(&self, start: Node, text: &[u8], attr: &mut Attr) -> bool {
        let tail = tail(text);
        let hash = mix(&[start.ino ^ (text.len() as u64) << 40, tail]);
        self.known_path(start, text, tail, hash, attr)
            || self.find_unknown(start, text, (tail, hash), attr)
    }

    /// As [`Volume::find_path`], of a path that is not in the table.
    #[inline(never)]
    fn find_unknown(
        &self,
        start: Node,
        text: &[u8],
        (tail, hash): (u64, u64),
        attr: &mut Attr,
    ) -> bool {
        let Some(dir) = self.walk_path_to(start, text, attr) else { return false };
        let [dir, node] = [dir.ino, attr.node.ino].map(|ino| self.sequence(Inode(ino)));
        let now = mix(&[hash, dir.unwrap_or(0), node.unwrap_or(0)]);
        let asked = &ASKED[(hash >> 32) as usize % ENTRIES];
        let before = asked.load(Ordering::Relaxed);
        match before % ASKS {
            LAST if before / ASKS == now / ASKS => {
                self.enter_path(start, text, tail, hash);
            }
            _ if before / ASKS == now / ASKS => asked.store(before + 1, Ordering::Relaxed),
            _ => asked.store(now / ASKS * ASKS, Ordering::Relaxed),
        }
        true
    }

    #[inline]
    fn known_path(&self, start: Node, text: &[u8], tail: u64, hash: u64, attr: &mut Attr) -> bool {
        let known = PATHS.entry(hash).look(self.head(start), |found| {
            // The text's last word is its tail.
            let same = found.at(LENGTHS) >> 32 == text.len() as u64
                && found.at(WAY - 1) == tail
                && is_text(found, text);
            if !same || !self.path_stands(|index| found.at(index)) {
                return None;
            }
            let node = Node { ino: found.at(NODE), generation: found.at(NODE + 1) as u32 };
            let whole = unpack(node, |index| found.at(ATTRIBUTES + index), attr);
            attr.atime = self.access_time(Inode(node.ino)).ok()?;
            whole.then_some(())
        });
        known.is_some()
    }

    /// Whether everything is as it was when these words were read.
    #[inline]
    fn path_stands(&self, word: impl Fn(usize) -> u64) -> bool {
        let count = (word(LENGTHS) as u32 as usize).min(DIRS);
        self.unmoved(word(DIR), word(DIR + 2))
            && self.unmoved(word(NODE), word(NODE + 2))
            && (0..count).all(|dir| {
                let at = WAY + dir * 2;
                self.subdirectories_stand([word(0), word(at)], word(at + 1))
            })
    }

    /// Enters a path, if it is plain and leads to something.
    #[cold]
    fn enter_path(&self, start: Node, text: &[u8], tail: u64, hash: u64) -> Option<()> {
        // The last word is the tail's.
        let words = padded(text).filter(|words| words[TEXT - 1] == 0)?;
        let (dir, way, name) = match text.iter().rposition(|&byte| byte == b'/') {
            Some(cut) => {
                let (dir, way) = self.walk_prefix(start, &text[..cut])?;
                (dir, way, &text[cut + 1..])
            }
            None => (start, smallvec::SmallVec::new(), text),
        };
        if matches!(name, b"" | b"." | b"..") {
            return None;
        }
        let dir_sequence = self.sequence_of(dir);
        let node = self.lookup_target(dir, name).ok()?.node;
        let sequence = self.sequence_of(node);
        let attr = self.attributes(node).ok()?;
        let mut fresh = [0; WORDS];
        [fresh[0], fresh[1]] = self.head(start);
        fresh[LENGTHS] = (text.len() as u64) << 32 | way.len() as u64;
        fresh[DIR..NODE].copy_from_slice(&[dir.ino, u64::from(dir.generation), dir_sequence]);
        let told = [node.ino, u64::from(node.generation), sequence];
        fresh[NODE..ATTRIBUTES].copy_from_slice(&told);
        fresh[ATTRIBUTES..NAMES].copy_from_slice(&packed(&attr));
        fresh[NAMES..WAY].copy_from_slice(&words);
        fresh[WAY - 1] = tail;
        for (index, (ino, sequence)) in way.into_iter().enumerate() {
            fresh[WAY + index * 2] = ino;
            fresh[WAY + index * 2 + 1] = sequence;
        }
        PATHS.entry(hash).put(&fresh, || self.path_stands(|index| fresh[index]));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_told_apart_by_their_tails() {
        assert_eq!(tail(b"abc"), tail(b"abc"));
        assert_ne!(tail(b"abc"), tail(b"abd"));
        assert_ne!(tail(b"directory/a"), tail(b"directory/b"));
        assert_eq!(tail(b"a/directory"), tail(b"b/directory"), "the rest is compared");
    }
}
