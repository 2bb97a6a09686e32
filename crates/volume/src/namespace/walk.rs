//! Walks of several plain names in a row, by what this process remembers (`cache/`).
//!
//! None of them fails: what they do not tell (a name that is a symlink's, a directory that may not
//! be searched, a damaged one) the caller walks name by name, and meets the error there.
//!
//! Locks: none. Persistence: none.

use crate::cache::Target;
use crate::cache::path::{Path, Walked};
use crate::cache::prefix::{DIRS, Way};
use crate::inode::Inode;
use crate::namespace::Names;
use rustix::io::Errno;
use smallvec::SmallVec;
use vfs::{Attr, Kind, LastName, Node};

impl Names {
    /// Writes to `attr` the attributes of what the text leads to from `start`. `false` says
    /// nothing.
    #[inline]
    pub(crate) fn find_path(&self, start: Node, text: &[u8], attr: &mut Attr) -> bool {
        let path = Path::new(start, text);
        self.cached_path(&path, attr) || self.find_unknown(&path, attr)
    }

    /// As [`Names::find_path`], of a path that is not remembered.
    #[inline(never)]
    fn find_unknown(&self, path: &Path<'_>, attr: &mut Attr) -> bool {
        let Some(dir) = self.walk_path_to(path.start, path.text, attr) else { return false };
        let numbers = [dir.ino, attr.node.ino].map(|ino| self.sequence(Inode(ino)).unwrap_or(0));
        if path.is_asked_often(numbers)
            && let Some(walked) = self.walk_whole(path.start, path.text)
        {
            self.remember_path(path, &walked);
        }
        true
    }

    /// Walks a path, if it is plain and leads to something, with all numbers.
    #[cold]
    fn walk_whole(&self, start: Node, text: &[u8]) -> Option<Walked> {
        let (dir, way, name) = match text.iter().rposition(|&byte| byte == b'/') {
            Some(cut) => {
                let (dir, way) = self.walk_prefix(start, &text[..cut])?;
                (dir, way, &text[cut + 1..])
            }
            None => (start, SmallVec::new(), text),
        };
        if is_special(name) {
            return None;
        }
        let dir = (dir, self.sequence_of(dir));
        let node = self.lookup_target(dir.0, name).ok()?.node;
        let node = (node, self.sequence_of(node));
        Some(Walked { dir, node, attr: self.attributes(node.0).ok()?, way })
    }

    /// Writes to `last` what `path` leads to from `start` by plain names. `false` says nothing.
    #[inline]
    pub(crate) fn walk_path(&self, start: Node, path: &[u8], last: &mut LastName) -> bool {
        let Some((dir, name)) = self.walk_to_last(start, path) else { return false };
        let found = self.lookup_target(dir, name);
        last.dir = dir;
        match found {
            // Written where it is wanted: it is long.
            Ok(Target { node, .. }) => {
                self.attributes_to(node, last.attr.insert(Attr::NONE)).is_ok()
            }
            Err(errno) => {
                last.attr = None;
                errno == Errno::NOENT
            }
        }
    }

    /// As [`Names::walk_path`], where something has the last name: its attributes are written to
    /// `attr`.
    #[inline]
    pub(crate) fn walk_path_to(&self, start: Node, path: &[u8], attr: &mut Attr) -> Option<Node> {
        let (dir, name) = self.walk_to_last(start, path)?;
        let target = self.lookup_target(dir, name).ok()?;
        self.attributes_to(target.node, attr).ok()?;
        Some(dir)
    }

    /// The directory of the last name of a path, and that name, if it is a plain one.
    #[inline]
    fn walk_to_last<'p>(&self, start: Node, path: &'p [u8]) -> Option<(Node, &'p [u8])> {
        let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(cut) => (self.find_prefix(start, &path[..cut])?, &path[cut + 1..]),
            None => (start, path),
        };
        (!is_special(name)).then_some((dir, name))
    }

    /// The directory that `text` leads to from `start` by plain names, each of a directory. `None`
    /// says nothing.
    pub(crate) fn find_prefix(&self, start: Node, text: &[u8]) -> Option<Node> {
        let asked = self.ask_for_prefix(start, text)?;
        let known = self.remembered_prefix(&asked);
        if known.is_some() {
            return known;
        }
        let (end, way) = self.walk_prefix(start, text)?;
        self.remember_prefix(&asked, end, way);
        Some(end)
    }

    /// Walks the text, name by name; also gives the directories passed, with the sequence numbers
    /// under which they were.
    fn walk_prefix(&self, start: Node, text: &[u8]) -> Option<(Node, Way)> {
        let mut way = SmallVec::new();
        let mut dir = start;
        for name in text.split(|&byte| byte == b'/') {
            if is_special(name) || way.len() == DIRS {
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

#[inline]
fn is_special(name: &[u8]) -> bool {
    matches!(name, b"" | b"." | b"..")
}
