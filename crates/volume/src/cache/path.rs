//! The path cache: whole paths that this process asked for more than once, with the attributes of
//! what they lead to.
//!
//! An entry holds a path of plain names, the node that it leads to, that node's attributes, and the
//! sequence numbers under which all of it was read: of the directories on the way, of the last one,
//! of the node. It is right as long as the names of directories stand on the way
//! ([`Caches::subdirectories_stand`]) and the other two numbers have not moved; so nothing is ever
//! invalidated, and a hit writes no memory. `prefix.rs` and `cache/names.rs` know the parts;
//! `namespace/walk.rs` walks what this table does not have.
//!
//! A path is entered when it is asked for four times in a row at its place in the table, with
//! nothing changed in between: a program that looks at a hundred thousand files and opens each, or
//! asks for the size of a file that grows, pays no more than a store for each.
//!
//! Locks: none. Persistence: none.

use crate::cache::Caches;
use crate::cache::prefix::{DIRS, TEXT, Way};
use crate::cache::{Entry, Looked, PACKED, Table, mix, packed, unpack};
use crate::inode::Inode;
use crate::medium::subword::padded;
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
/// Few pages, as in `cache/names.rs`.
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

/// A path that is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    pub(crate) start: Node,
    pub(crate) text: &'a [u8],
    tail: u64,
    hash: u64,
}

/// What a walk found, all of it under these sequence numbers.
pub(crate) struct Walked {
    /// The directory of the last name.
    pub(crate) dir: (Node, u64),
    pub(crate) node: (Node, u64),
    pub(crate) attr: Attr,
    /// The directories on the way.
    pub(crate) way: Way,
}

impl<'a> Path<'a> {
    /// The text, from `start` on.
    #[inline]
    pub(crate) fn new(start: Node, text: &'a [u8]) -> Self {
        let tail = tail(text);
        let hash = mix(&[start.ino ^ (text.len() as u64) << 40, tail]);
        Self { start, text, tail, hash }
    }

    /// Whether it was asked for so often in a row, with the same numbers of what it led to, that
    /// it is worth to be remembered. Counts.
    pub(crate) fn is_asked_often(&self, numbers: [u64; 2]) -> bool {
        let now = mix(&[self.hash, numbers[0], numbers[1]]);
        let asked = &ASKED[(self.hash >> 32) as usize % ENTRIES];
        let before = asked.load(Ordering::Relaxed);
        match before % ASKS {
            LAST if before / ASKS == now / ASKS => return true,
            _ if before / ASKS == now / ASKS => asked.store(before + 1, Ordering::Relaxed),
            _ => asked.store(now / ASKS * ASKS, Ordering::Relaxed),
        }
        false
    }
}

impl Caches {
    /// Writes to `attr` the attributes of what a path is remembered to lead to. `false` says
    /// nothing.
    #[inline]
    pub(crate) fn cached_path(&self, path: &Path<'_>, attr: &mut Attr) -> bool {
        let &Path { start, text, tail, hash } = path;
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

    /// Remembers what a path leads to.
    pub(crate) fn remember_path(&self, path: &Path<'_>, walked: &Walked) {
        let Walked { dir: (dir, dir_sequence), node: (node, sequence), attr, way } = walked;
        // The last word is the tail's.
        let words = padded::<TEXT>(path.text).filter(|words| words[TEXT - 1] == 0);
        let Some(words) = words else { return };
        let mut fresh = [0; WORDS];
        [fresh[0], fresh[1]] = self.head(path.start);
        fresh[LENGTHS] = (path.text.len() as u64) << 32 | way.len() as u64;
        fresh[DIR..NODE].copy_from_slice(&[dir.ino, u64::from(dir.generation), *dir_sequence]);
        let told = [node.ino, u64::from(node.generation), *sequence];
        fresh[NODE..ATTRIBUTES].copy_from_slice(&told);
        fresh[ATTRIBUTES..NAMES].copy_from_slice(&packed(attr));
        fresh[NAMES..WAY].copy_from_slice(&words);
        fresh[WAY - 1] = path.tail;
        for (index, &(ino, sequence)) in way.iter().enumerate() {
            fresh[WAY + index * 2] = ino;
            fresh[WAY + index * 2 + 1] = sequence;
        }
        PATHS.entry(path.hash).put(&fresh, || self.path_stands(|index| fresh[index]));
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
