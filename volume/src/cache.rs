//! What this process remembers: names that it looked up, attributes that it read.
//!
//! Each entry carries the sequence number of the inode under which it was read (of the directory,
//! for a name) and is right exactly as long as that number has not moved: whoever changes an inode
//! moves it, and numbers outlive the inode's reuse ([`crate::inode`]). So nothing is ever
//! invalidated, and a hit writes no memory at all.
//!
//! The tables are direct-mapped and shared by all threads and all volumes of the process, never
//! with other processes. An entry is guarded by a version, odd while it is filled; who finds it odd
//! goes without.
//!
//! Locks: none. Persistence: none.

use crate::Result;
use crate::bucket::Target;
use crate::inode::Inode;
use crate::volume::Volume;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use vfs::{Attr, Kind, Node};

/// Words of an entry beside its version.
const WORDS: usize = 15;
type Words = [u64; WORDS];
/// Words that all entries begin with: volume and generation, inode, sequence number.
const HEAD: usize = 3;
/// Words of a name's entry before the name.
const NAME: usize = HEAD + 2;
/// Longest name that is remembered.
const NAME_MAX: usize = (WORDS - NAME) * 8;
/// Entries of a table: few pages, since a short-lived process pays a fault for each that it uses.
const ENTRIES: usize = 512;

/// Two cache lines.
#[repr(align(128))]
struct Entry {
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

struct Table([Entry; ENTRIES]);

static NAMES: Table = Table([const { Entry::new() }; ENTRIES]);
static ATTRIBUTES: Table = Table([const { Entry::new() }; ENTRIES]);

impl Table {
    fn entry(&self, hash: u64) -> &Entry {
        &self.0[(hash >> 32) as usize % ENTRIES]
    }
}

impl Entry {
    const fn new() -> Self {
        Self { version: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// Its words, if nobody changes them meanwhile and the first ones are `head`.
    #[inline]
    fn get(&self, head: [u64; 2]) -> Option<Words> {
        let version = self.version.load(Ordering::Acquire);
        let mut words = [0; WORDS];
        for (to, from) in words.iter_mut().zip(&self.words) {
            *to = from.load(Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        let steady = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        (steady && words[..2] == head).then_some(words)
    }

    fn put(&self, words: &Words) {
        let version = self.version.load(Ordering::Relaxed);
        let odd = version | 1;
        let taken = version & 1 == 0
            && self
                .version
                .compare_exchange(version, odd, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !taken {
            return;
        }
        for (to, from) in self.words.iter().zip(words) {
            to.store(*from, Ordering::Release);
        }
        self.version.store(odd + 1, Ordering::Release);
    }
}

/// Mixes words to a hash, whose upper half is good.
#[inline]
pub(crate) fn mix(words: &[u64]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    words.iter().fold(0, |hash, word| (hash.rotate_left(23) ^ word).wrapping_mul(ODD))
}

/// A name, padded with zeros; `None` if it is too long to be remembered.
fn padded(name: &[u8]) -> Option<[u64; NAME_MAX / 8]> {
    let mut bytes = [0; NAME_MAX];
    bytes.get_mut(..name.len())?.copy_from_slice(name);
    Some(zerocopy::transmute!(bytes))
}

/// The kind of a `d_type`; `None` for 0.
fn kind_of(d_type: u8) -> Option<Kind> {
    Kind::from_mode(u32::from(d_type) << 12)
}

/// Tells the volumes of a process apart.
pub(crate) struct Instance(u32);

impl Default for Instance {
    fn default() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Instance {
    /// Never 0.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.0
    }
}

/// A name in a directory, on its way through the table.
pub(crate) struct Asked {
    dir: Node,
    head: [u64; 2],
    length: u64,
    name: [u64; NAME_MAX / 8],
    entry: &'static Entry,
}

impl Volume {
    fn head(&self, node: Node) -> [u64; 2] {
        [u64::from(self.local.instance.0) << 32 | u64::from(node.generation), node.ino]
    }

    /// Whether an inode's sequence number still is `sequence`.
    #[inline]
    fn unmoved(&self, ino: u64, sequence: u64) -> bool {
        sequence & 1 == 0 && self.sequence(Inode(ino)).is_ok_and(|now| now == sequence)
    }

    /// Prepares a search for `name`; `None` if such names are not remembered.
    #[inline]
    pub(crate) fn ask_for(&self, dir: Node, name: &[u8]) -> Option<Asked> {
        let words = padded(name)?;
        let used = &words[..name.len().div_ceil(8)];
        let entry = NAMES.entry(mix(&[dir.ino, mix(used)]));
        let length = name.len() as u64;
        Some(Asked { dir, head: self.head(dir), length, name: words, entry })
    }

    /// What the name led to, or that it led nowhere (`ENOENT`), if that is still so.
    #[inline]
    pub(crate) fn remembered(&self, asked: &Asked) -> Option<Result<Target>> {
        let words = asked.entry.get(asked.head)?;
        let same = words[4] >> 40 == asked.length && words[NAME..] == asked.name;
        if !same || !self.unmoved(asked.dir.ino, words[2]) {
            return None;
        }
        let node = Node { ino: words[3], generation: words[4] as u32 };
        Some(match kind_of((words[4] >> 32) as u8) {
            Some(kind) => Ok(Target { node, kind }),
            None => Err(Errno::NOENT),
        })
    }

    /// Remembers what was found while the directory's sequence number was `sequence`.
    pub(crate) fn remember(&self, asked: &Asked, sequence: u64, found: Option<Target>) {
        if !self.unmoved(asked.dir.ino, sequence) {
            return;
        }
        let mut words = [0; WORDS];
        [words[0], words[1]] = asked.head;
        words[2] = sequence;
        let told = found.map_or((0, 0), |target| {
            let kind = u64::from(target.kind.d_type()) << 32;
            (target.node.ino, u64::from(target.node.generation) | kind)
        });
        (words[3], words[4]) = (told.0, told.1 | asked.length << 40);
        words[NAME..].copy_from_slice(&asked.name);
        asked.entry.put(&words);
    }

    /// The attributes of a node as they were read last, but for the access time, if nothing has
    /// changed them.
    #[inline]
    pub(crate) fn remembered_attributes(&self, node: Node) -> Option<Attr> {
        let words = ATTRIBUTES.entry(mix(&[node.ino])).get(self.head(node))?;
        if !self.unmoved(node.ino, words[2]) {
            return None;
        }
        Some(Attr {
            node,
            kind: kind_of(words[3] as u8)?,
            mode: (words[3] >> 8) as u32 & 0o7777,
            nlink: (words[3] >> 32) as u32,
            uid: words[4] as u32,
            gid: (words[4] >> 32) as u32,
            rdev: words[5],
            size: words[6],
            blocks: words[7],
            atime: 0,
            mtime: words[8] as i64,
            ctime: words[9] as i64,
            btime: words[10] as i64,
        })
    }

    /// Remembers attributes that were read while the inode's sequence number was `sequence`.
    pub(crate) fn remember_attributes(&self, attr: &Attr, sequence: u64) {
        let node = attr.node;
        if !self.unmoved(node.ino, sequence) {
            return;
        }
        let mut words = [0; WORDS];
        [words[0], words[1]] = self.head(node);
        words[2] = sequence;
        words[3] = u64::from(attr.kind.d_type())
            | u64::from(attr.mode & 0o7777) << 8
            | u64::from(attr.nlink) << 32;
        words[4] = u64::from(attr.uid) | u64::from(attr.gid) << 32;
        (words[5], words[6], words[7]) = (attr.rdev, attr.size, attr.blocks);
        words[8] = attr.mtime as u64;
        words[9] = attr.ctime as u64;
        words[10] = attr.btime as u64;
        ATTRIBUTES.entry(mix(&[node.ino])).put(&words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_gives_what_was_put_and_nothing_while_it_is_filled() {
        let entry = Entry::new();
        assert_eq!(entry.get([1, 2]), None);
        let words = std::array::from_fn(|index| index as u64 + 1);
        entry.put(&words);
        assert_eq!(entry.get([1, 2]), Some(words));
        assert_eq!(entry.get([1, 3]), None);
        entry.version.fetch_add(1, Ordering::Relaxed);
        assert_eq!(entry.get([1, 2]), None);
        entry.put(&[9; WORDS]);
        assert_eq!(entry.words[0].load(Ordering::Relaxed), 1, "a taken entry is left alone");
    }

    #[test]
    fn names_are_padded_and_told_apart_by_their_length() {
        assert_eq!(padded(b"abc").unwrap()[0], 0x63_6261);
        assert_eq!(padded(&[b'x'; NAME_MAX]).unwrap()[9], 0x7878_7878_7878_7878);
        assert_eq!(padded(&[b'x'; NAME_MAX + 1]), None);
        assert_ne!(mix(&[1, 2]) >> 32, mix(&[2, 1]) >> 32);
    }
}
