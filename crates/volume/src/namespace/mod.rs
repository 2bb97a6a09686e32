//! Names: what they lead to, and lists of them; how they change is in `create.rs`, `unlink.rs` and
//! `rename.rs`, by what is common to these, `change.rs`.
//!
//! Each changing call finds its inodes without a lock, then locks them all at once
//! (`txn/acquire.rs`: ascending), then looks again: if a name means something else by now, it
//! starts over. Splits and merges of buckets are steps of their own that change no name.

pub(crate) mod alignment;
pub(crate) mod attributes;
pub(crate) mod bucket;
pub(crate) mod change;
#[cfg(test)]
mod change_tests;
mod create;
pub(crate) mod dir_slot;
pub(crate) mod directory;
#[cfg(test)]
mod directory_tests;
pub(crate) mod dirwalk;
#[cfg(test)]
mod namespace_tests;
pub(crate) mod new_inode;
mod rename;
mod unlink;
mod walk;
mod xattr;

use crate::Result;
use crate::cache::{Asked, Target};
use crate::data::Files;
use crate::medium::layout::{IDENTITY, LINE, NAME_MAX, VOLATILE, WORDS};
use crate::medium::name::check_name;
use crate::namespace::bucket::Dir;
use rustix::io::Errno;
use std::ops::Deref;
use vfs::{DirEntry, Kind, Node};

/// The contents of files, and names.
pub struct Names {
    files: Files,
}

impl Deref for Names {
    type Target = Files;

    #[inline]
    fn deref(&self) -> &Files {
        &self.files
    }
}

impl Names {
    pub(crate) fn new(files: Files) -> Self {
        Self { files }
    }
}

/// Names of a file, and subdirectories of a directory, at most.
pub(crate) const LINKS_MAX: u32 = 1 << 31;
/// How often a name may mean something else under the locks than before them. Beyond that it leads
/// to an inode that does not exist: damage.
pub(crate) const RETRIES: u32 = 10_000;
/// `read_dir` positions after `.` and after `..`; those of entries are their keys, at least 16.
const COOKIE_SELF: i64 = 1;
const COOKIE_PARENT: i64 = 2;

/// As [`check_name`], of a name that is asked for.
#[inline]
pub(crate) fn check_asked(asked: &Asked) -> Result<()> {
    if asked.is_legal() { Ok(()) } else { check_name(asked.name()) }
}

impl Names {
    /// Finds `name` in `dir`.
    pub(crate) fn lookup(&self, dir: Node, name: &[u8]) -> Result<Node> {
        self.lookup_target(dir, name).map(|target| target.node)
    }

    /// Finds `name` in `dir`, with the kind that the entry tells.
    pub(crate) fn lookup_target(&self, dir: Node, name: &[u8]) -> Result<Target> {
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        if let Some(asked) = self.ask_for(dir, name)
            && let Some(found) = self.remembered(&asked)
        {
            return found;
        }
        self.look_up(dir, name)
    }

    /// As [`Names::lookup_target`], on the medium.
    #[inline(never)]
    fn look_up(&self, dir: Node, name: &[u8]) -> Result<Target> {
        let hash = self.name_hash(name);
        let before = self.sequence_of(dir);
        let (found, place) = self.read_steadily(dir, |inode, identity| {
            let at = Dir::of(inode, identity)?;
            let node = match name {
                b"." => dir,
                b".." => Node { ino: identity.parent, generation: identity.parent_generation },
                _ => return self.find(at, hash, name),
            };
            Ok((Some(Target { node, kind: Kind::Directory }), None))
        })?;
        if let Some(asked) = self.ask_for(dir, name) {
            self.remember(&asked, before, found, place);
        }
        found.ok_or(Errno::NOENT)
    }

    /// Tells the entries after `cookie`, `.` and `..` first, until `each` gives `false`. Every
    /// bucket is read at one moment; between buckets the directory may change.
    pub(crate) fn read_dir(
        &self,
        dir: Node,
        cookie: i64,
        each: &mut dyn FnMut(&DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let parent = self.read_steadily(dir, |inode, identity| {
            Dir::of(inode, identity)?;
            if identity.nlink == 0 { Err(Errno::NOENT) } else { Ok(identity.parent) }
        })?;
        let dots: [(&[u8], u64, i64); 2] =
            [(b".", dir.ino, COOKIE_SELF), (b"..", parent, COOKIE_PARENT)];
        for (name, ino, position) in dots {
            let entry = DirEntry { name, ino, kind: Kind::Directory, cookie: position };
            if cookie < position && !each(&entry) {
                return Ok(());
            }
        }
        let mut key = cookie.max(COOKIE_PARENT) as u64 + 1;
        let asked = self.asks_attributes(dir, key)?;
        loop {
            let before = self.sequence_of(dir);
            let (cell, entries) = self.read_steadily(dir, |inode, identity| {
                self.entries_from(Dir::of(inode, identity)?, key)
            })?;
            for (key, name, target) in entries.iter() {
                let ino = target.node.ino;
                if !each(&DirEntry { name, ino, kind: target.kind, cookie: key as i64 }) {
                    return Ok(());
                }
                if asked {
                    self.expect_question((dir, before), name, target);
                }
            }
            match cell.next() {
                Some(next) => key = next,
                None => return Ok(()),
            }
        }
    }

    /// Whether this process has asked for the attributes of what it was told last, right before
    /// `key`: it will ask for those of the next names too.
    fn asks_attributes(&self, dir: Node, key: u64) -> Result<bool> {
        if key <= COOKIE_PARENT as u64 + 1 {
            return Ok(false);
        }
        let last = self.read_steadily(dir, |inode, identity| {
            self.entry_before(Dir::of(inode, identity)?, key)
        })?;
        Ok(last.is_some_and(|last| self.remembered_attributes(last.node).is_some()))
    }

    /// Remembers what a name leads to that was read while the directory's sequence number was
    /// `sequence`, and brings the inode near.
    #[inline]
    fn expect_question(&self, (dir, sequence): (Node, u64), name: &[u8], target: Target) {
        if let Some(asked) = self.ask_for(dir, name) {
            self.remember(&asked, sequence, Some(target), None);
        }
        let Ok(inode) = self.inode(target.node.ino) else { return };
        for line in [IDENTITY, WORDS, WORDS + LINE, VOLATILE, VOLATILE + LINE] {
            self.region.prefetch(inode.at(line));
        }
    }
}
