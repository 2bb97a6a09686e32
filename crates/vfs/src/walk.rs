//! The path walk: from a text and a starting directory to a place in an engine's tree.
//!
//! Linux rules: `.` and `..` (`..` goes by the tree, not by the text), repeated slashes, symlinks
//! in the middle always followed, at the end only if asked or if a slash follows; 40 symlinks at
//! most (`ELOOP`); components of 255 bytes and paths of 4095 (`ENAMETOOLONG`); search permission in
//! every directory that is passed.
//!
//! The tree appears under a *prefix* of the process's name space. `..` out of its root and absolute
//! symlinks lead [`Place::Outside`]: the face hands the rest to the kernel. Absolute symlinks whose
//! text begins with the prefix stay inside.
//!
//! No locks. The tree may change underneath: the walk then sees each step as it was when it took
//! it.

use std::borrow::Cow;
use std::ops::Deref;

use crate::cred::{Cred, EXECUTE};
use crate::{
    Attr, Desc, Errno, FileSystem, FileSystemExt, Kind, LastName, Node, Result, WalkOutput,
};

/// Longest path, without the terminating NUL.
pub const PATH_BYTES_MAX: usize = 4095;
/// Longest name of a directory entry.
pub const NAME_BYTES_MAX: usize = 255;
/// Most symlinks that one walk follows.
pub const LINKS_MAX: u32 = 40;

/// The last component of a path: a part of the path's text, or, behind a symlink, its own.
#[derive(Clone)]
pub struct Name<'t>(Cow<'t, [u8]>);

impl<'t> Name<'t> {
    /// `ENAMETOOLONG` beyond 255 bytes.
    pub fn new(name: &'t [u8]) -> Result<Self> {
        if name.len() > NAME_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        Ok(Self(Cow::Borrowed(name)))
    }

    /// The name's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// How a path ends: only a name can be created, removed or renamed.
#[derive(Clone)]
pub enum Last<'t> {
    /// A name in the directory.
    Name(Name<'t>),
    /// `.`, `..`, the root itself, or nothing at all.
    Directory {
        /// Whether it was written `..`.
        parent: bool,
    },
}

/// Where a path led inside the tree.
#[derive(Clone)]
pub struct Found<'t> {
    /// The directory that holds (or would hold) the last component, and what is there.
    pub at: LastName,
    /// The last component.
    pub last: Last<'t>,
    /// The path ended in a slash: it means a directory.
    pub slash: bool,
}

impl Deref for Found<'_> {
    type Target = LastName;

    #[inline]
    fn deref(&self) -> &LastName {
        &self.at
    }
}

/// Whether a path goes on where it ends: at a symlink.
#[inline]
fn leads_on(at: &LastName) -> bool {
    at.attr.as_ref().is_some_and(|attr| attr.kind == Kind::Symlink)
}

impl Found<'_> {
    /// A placeholder, to be overwritten ([`Walk::plain_name`]). No constant: most of it is not
    /// stored then.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "made where it stays")]
    #[must_use]
    pub fn nothing() -> Self {
        let at = LastName { dir: Node { ino: 0, generation: 0 }, attr: None };
        Found { at, last: Last::Directory { parent: false }, slash: false }
    }

    /// The same, whatever becomes of the path's text.
    pub fn into_owned(self) -> Found<'static> {
        let last = match self.last {
            Last::Name(Name(name)) => Last::Name(Name(Cow::Owned(name.into_owned()))),
            Last::Directory { parent } => Last::Directory { parent },
        };
        Found { at: self.at, last, slash: self.slash }
    }

    /// What is there, or `ENOENT`; `ENOTDIR` where a slash followed something else.
    pub fn existing(&self) -> Result<Attr> {
        self.there().copied()
    }

    /// The same, where it stands.
    pub fn there(&self) -> Result<&Attr> {
        let attr = self.attr.as_ref().ok_or(Errno::NOENT)?;
        if self.slash && attr.kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        Ok(attr)
    }
}

/// The end of a walk.
#[allow(clippy::large_enum_variant)] // On the stack, short-lived: a box would cost more.
pub enum Place<'t> {
    /// In the tree.
    Inside(Found<'t>),
    /// Elsewhere: an absolute path for the kernel.
    Outside(Vec<u8>),
}

/// A tree, and where it appears.
pub struct Tree {
    /// Its root.
    pub root: Node,
    /// Where the root appears: an absolute normal path without a final slash. Empty: nothing is
    /// outside, and the root is its own parent.
    pub prefix: Vec<u8>,
}

/// A walk's surroundings.
#[derive(Clone, Copy)]
pub struct Walk<'a> {
    /// Where nodes are found.
    pub fs: &'a dyn FileSystem,
    /// The tree that is walked.
    pub tree: &'a Tree,
    /// The user that walks.
    pub cred: &'a Cred,
}

#[allow(clippy::large_enum_variant)] // On the stack, short-lived: a box would cost more.
enum Run<'t> {
    Done(Place<'t>),
    /// Go on from this directory with this text.
    Again(Node, Vec<u8>),
}

impl Walk<'_> {
    /// Walks `path` from `start`. `follow`: also a symlink at the end. A leading slash is the root
    /// of the tree. `ENOENT` for an empty path.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is found is long, and made where it stays")]
    pub fn walk<'t>(&self, start: Node, path: &'t [u8], follow: bool) -> Result<Place<'t>> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let mut at = LastName { dir: start, attr: None };
        if let Some(name) = self.find(path, &mut at)
            && !(follow && leads_on(&at))
        {
            return Ok(Place::Inside(Found { at, last: Last::Name(name), slash: false }));
        }
        self.walk_by_names(start, path, follow)
    }

    /// As [`Walk::walk`], of a path that is not empty, if the engine knows and everything on the
    /// way is plain: writes what is found to `found`, which says nothing otherwise.
    #[inline]
    pub fn plain_name<'t>(
        &self,
        start: Node,
        path: &'t [u8],
        follow: bool,
        found: &mut Found<'t>,
    ) -> bool {
        found.at.dir = start;
        let Some(name) = self.find(path, &mut found.at) else { return false };
        if follow && leads_on(&found.at) {
            return false;
        }
        found.last = Last::Name(name);
        found.slash = false;
        true
    }

    /// As [`Walk::walk`], name by name.
    #[inline(never)]
    fn walk_by_names<'t>(&self, start: Node, path: &'t [u8], follow: bool) -> Result<Place<'t>> {
        let dir = if path[0] == b'/' { self.tree.root } else { start };
        match self.run(dir, path, follow)? {
            Run::Done(place) => Ok(place),
            Run::Again(from, rest) => self.walk_on(from, rest, follow),
        }
    }

    /// Goes on behind a symlink, from `dir` with `text`.
    #[cold]
    fn walk_on(&self, dir: Node, text: Vec<u8>, follow: bool) -> Result<Place<'static>> {
        let (mut dir, mut text) = (dir, text);
        for _ in 0..LINKS_MAX {
            let (from, rest) = match self.run(dir, &text, follow)? {
                Run::Done(Place::Inside(found)) => return Ok(Place::Inside(found.into_owned())),
                Run::Done(Place::Outside(path)) => return Ok(Place::Outside(path)),
                Run::Again(from, rest) => (from, rest),
            };
            (dir, text) = (from, rest);
        }
        Err(Errno::LOOP)
    }

    /// Writes to `attr` the attributes of what a *plain* path leads to: names only, each of them
    /// there, no symlink among them. `false` says nothing: [`Walk::walk`] serves all paths. This is
    /// the fast path for most calls.
    #[inline]
    pub fn plain(&self, start: Node, path: &[u8], attr: &mut Attr) -> bool {
        let (node, rest) = match path.split_first() {
            Some((b'/', rest)) => (self.tree.root, rest),
            _ => (start, path),
        };
        if path.len() > PATH_BYTES_MAX {
            return false;
        }
        if self.cred.privileged() {
            return self.fs.find(node.into(), rest, attr) && attr.kind != Kind::Symlink;
        }
        self.plain_names(node, rest).is_some_and(|found| {
            *attr = found;
            true
        })
    }

    /// As [`Walk::plain`], from the directory behind a description; `path` does not begin with a
    /// slash.
    #[inline]
    pub fn plain_at(&self, dir: Desc, path: &[u8], attr: &mut Attr) -> bool {
        if !self.cred.privileged() {
            return self.fs.describe(dir).is_ok_and(|(node, _)| self.plain(node, path, attr));
        }
        let fits = path.len() <= PATH_BYTES_MAX;
        fits && self.fs.find(dir.into(), path, attr) && attr.kind != Kind::Symlink
    }

    /// As [`Walk::plain`], name by name, with a look at permissions.
    fn plain_names(&self, start: Node, names: &[u8]) -> Option<Attr> {
        let (mut node, mut rest) = (start, names);
        loop {
            let length = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
            let (name, after) = rest.split_at(length);
            if matches!(name, b"" | b"." | b"..") || length > NAME_BYTES_MAX {
                return None;
            }
            let attr = self.fs.attributes(node).ok()?;
            self.cred.check(&attr, EXECUTE).ok()?;
            // A node in the middle that is no directory has no entries.
            node = self.fs.lookup(node, name).ok()?;
            match after.split_first() {
                Some((_, after)) => rest = after,
                None => break,
            }
        }
        self.fs.attributes(node).ok().filter(|attr| attr.kind != Kind::Symlink)
    }

    /// The last name of `path` and where it leads (`at`, which begins where the walk does), if the
    /// engine knows and everything on the way is plain.
    #[inline]
    fn find<'t>(&self, path: &'t [u8], at: &mut LastName) -> Option<Name<'t>> {
        if !self.cred.privileged() || path.len() > PATH_BYTES_MAX {
            return None;
        }
        let (start, rest) = match path.strip_prefix(b"/") {
            Some(rest) => (self.tree.root, rest),
            None => (at.dir, path),
        };
        if self.fs.walk(start, rest, WalkOutput::Change(at)).ok()? == 0 {
            return None;
        }
        let cut = rest.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        Name::new(&rest[cut..]).ok()
    }

    /// The directory of the last name of `text`, and that name, if the engine knows the way to it.
    #[inline]
    fn leap<'t>(&self, start: Node, text: &'t [u8]) -> Option<(Node, &'t [u8])> {
        if !self.cred.privileged() {
            return None;
        }
        let cut = text.iter().rposition(|&byte| byte == b'/')?;
        if cut + 1 == text.len() {
            return None;
        }
        let mut dir = start;
        let walked = self.fs.walk(start, &text[..cut], WalkOutput::Directory(&mut dir)).ok()?;
        (walked > 0).then_some((dir, &text[cut + 1..]))
    }

    /// Walks until the end of `text` or the first symlink to follow. The attributes of what is
    /// passed are asked for only where something depends on them: an engine says itself (`ENOTDIR`)
    /// that a node in the middle has no entries, and only then it may be a symlink.
    fn run<'t>(&self, start: Node, text: &'t [u8], follow: bool) -> Result<Run<'t>> {
        if text.len() > PATH_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let mut dir = start;
        // The directory that `dir` was found in, and where the text after its name starts.
        let mut came: Option<(Node, usize)> = None;
        let mut at = 0;
        let names = text.iter().take_while(|&&byte| byte == b'/').count();
        if let Some((last, name)) = self.leap(start, &text[names..]) {
            (dir, at) = (last, text.len() - name.len());
        }
        loop {
            at += text[at..].iter().take_while(|&&byte| byte == b'/').count();
            let length = text[at..].iter().take_while(|&&byte| byte != b'/').count();
            let name = &text[at..at + length];
            at += length;
            let rest = &text[at..];
            let more = rest.iter().any(|&byte| byte != b'/');
            let dots = matches!(name, b"" | b"." | b"..");
            if name.len() > NAME_BYTES_MAX {
                return Err(Errno::NAMETOOLONG);
            }
            if dots || !self.cred.privileged() {
                let attr = self.fs.attributes(dir).map_err(removed)?;
                match (attr.kind, came) {
                    (Kind::Directory, _) => self.cred.check(&attr, EXECUTE)?,
                    (Kind::Symlink, Some((from, after))) => {
                        return self.follow(from, dir, &text[after..]);
                    }
                    _ => return Err(Errno::NOTDIR),
                }
            }
            if dots {
                let parent = name == b"..";
                if parent && dir == self.tree.root && !self.tree.prefix.is_empty() {
                    return Ok(Run::Done(Place::Outside(self.above(rest))));
                }
                if parent {
                    (dir, came) = (self.fs.lookup(dir, b"..").map_err(removed)?, None);
                }
                if more {
                    continue;
                }
                let attr = Some(self.fs.attributes(dir).map_err(removed)?);
                let last = Last::Directory { parent };
                return Ok(Run::Done(Place::Inside(Found {
                    at: LastName { dir, attr },
                    last,
                    slash: false,
                })));
            }
            let node = match self.fs.lookup(dir, name) {
                Ok(node) => Some(node),
                Err(Errno::NOENT | Errno::STALE) if !more => None,
                Err(Errno::NOTDIR) => {
                    let link = self.fs.attributes(dir).map_err(removed)?.kind == Kind::Symlink;
                    return match came.filter(|_| link) {
                        Some((from, after)) => self.follow(from, dir, &text[after..]),
                        None => Err(Errno::NOTDIR),
                    };
                }
                Err(errno) => return Err(removed(errno)),
            };
            if let (Some(next), true) = (node, more) {
                (dir, came) = (next, Some((dir, at)));
                continue;
            }
            return self.arrive(dir, (name, rest), node, follow);
        }
    }

    /// The last component: what is there, unless it is a symlink to follow.
    fn arrive<'t>(
        &self,
        dir: Node,
        (name, rest): (&'t [u8], &[u8]),
        node: Option<Node>,
        follow: bool,
    ) -> Result<Run<'t>> {
        let attr = match node.map(|node| self.fs.attributes(node)) {
            // Removed since it was found.
            None | Some(Err(Errno::STALE)) => None,
            Some(attr) => Some(attr?),
        };
        let slash = !rest.is_empty();
        if let Some(link) = attr.filter(|attr| attr.kind == Kind::Symlink)
            && (follow || slash)
        {
            return self.follow(dir, link.node, rest);
        }
        let last = Last::Name(Name::new(name)?);
        Ok(Run::Done(Place::Inside(Found { at: LastName { dir, attr }, last, slash })))
    }

    fn follow(&self, dir: Node, link: Node, rest: &[u8]) -> Result<Run<'static>> {
        let mut target = vec![0; PATH_BYTES_MAX + 1];
        let length = self.fs.read_link(link, &mut target)?;
        if length == 0 {
            return Err(Errno::NOENT);
        }
        target.truncate(length);
        target.extend_from_slice(rest);
        if target[0] != b'/' {
            return Ok(Run::Again(dir, target));
        }
        match strip_prefix(&self.tree.prefix, &target) {
            Some(inside) => {
                // An empty rest is the root itself.
                let text = if inside.is_empty() { b".".to_vec() } else { inside.to_vec() };
                Ok(Run::Again(self.tree.root, text))
            }
            None => Ok(Run::Done(Place::Outside(target))),
        }
    }

    /// The path above the root, followed by `rest`.
    fn above(&self, rest: &[u8]) -> Vec<u8> {
        let cut = self.tree.prefix.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        let mut path = self.tree.prefix[..cut].to_vec();
        path.extend_from_slice(rest);
        if path.is_empty() {
            path.push(b'/');
        }
        path
    }

    /// The name of an inode in a directory. `ENOENT`.
    pub fn name_in(&self, dir: Node, ino: u64) -> Result<Vec<u8>> {
        let mut name = None;
        self.fs.read_dir(dir, 0, &mut |entry| {
            let dots = entry.name == b"." || entry.name == b"..";
            if entry.ino == ino && !dots {
                name = Some(entry.name.to_vec());
            }
            name.is_none()
        })?;
        name.ok_or(Errno::NOENT)
    }

    /// The absolute path by which a directory is reached now: upwards by `..`, each name searched
    /// for in its parent. `ENOENT` if it was removed.
    pub fn path_of(&self, dir: Node) -> Result<Vec<u8>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut node = dir;
        while node != self.tree.root {
            let parent = self.fs.lookup(node, b"..").map_err(removed)?;
            names.push(self.name_in(parent, node.number())?);
            node = parent;
        }
        let mut path = self.tree.prefix.clone();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Ok(path)
    }
}

impl Walk<'_> {
    /// A path of any node, found by looking at every directory: for the rare caller that has
    /// nothing but an open file. `None`: it has no name (any more).
    pub fn path_of_any(&self, ino: u64) -> Result<Option<Vec<u8>>> {
        let mut waiting = vec![(self.tree.root, self.tree.prefix.clone())];
        while let Some((dir, path)) = waiting.pop() {
            let mut below = Vec::new();
            let mut found = None;
            let told = self.fs.read_dir(dir, 0, &mut |entry| {
                let dots = entry.name == b"." || entry.name == b"..";
                let whole = || [path.as_slice(), b"/", entry.name].concat();
                if entry.ino == ino && !dots {
                    found = Some(whole());
                } else if entry.kind == Kind::Directory && !dots {
                    below.push((entry.name.to_vec(), whole()));
                }
                found.is_none()
            });
            if found.is_some() {
                return Ok(found);
            }
            match told {
                Ok(()) | Err(Errno::STALE | Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
            for (name, path) in below {
                // What was removed meanwhile has no name below it.
                if let Ok(node) = self.fs.lookup(dir, &name) {
                    waiting.push((node, path));
                }
            }
        }
        Ok(None)
    }
}

/// A directory that was removed while it was a working directory has no names: `ENOENT`, as in the
/// kernel.
fn removed(errno: Errno) -> Errno {
    if errno == Errno::STALE { Errno::NOENT } else { errno }
}

/// What follows `prefix` in an absolute `path`, compared component by component after `.`, `..` and
/// repeated slashes outside the prefix have been resolved by text alone; `None` if the path never
/// reaches the prefix. What follows is as written.
pub fn strip_prefix<'a>(prefix: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    if prefix == b"/" || prefix.is_empty() {
        return path.starts_with(b"/").then_some(path);
    }
    // The usual case: written exactly as the prefix is.
    if let Some(rest) = path.strip_prefix(prefix)
        && (rest.is_empty() || rest[0] == b'/')
    {
        return Some(rest);
    }
    // Components of the prefix matched so far, and components beyond the last match.
    let (mut matched, mut astray, mut at) = (0_usize, 0_usize, 0);
    let wanted = prefix.split(|&byte| byte == b'/').count() - 1;
    while at < path.len() {
        at += path[at..].iter().take_while(|&&byte| byte == b'/').count();
        let length = path[at..].iter().take_while(|&&byte| byte != b'/').count();
        let name = &path[at..at + length];
        at += length;
        match name {
            b"" | b"." => {}
            b".." if astray > 0 => astray -= 1,
            b".." => matched = matched.saturating_sub(1),
            _ => {
                let next = prefix.split(|&byte| byte == b'/').nth(matched + 1);
                if astray == 0 && next == Some(name) {
                    matched += 1;
                } else {
                    astray += 1;
                }
            }
        }
        if astray == 0 && matched == wanted {
            return Some(&path[at..]);
        }
    }
    None
}
