//! Names: lookup, making and removing names, and the end of inodes without one.
//!
//! Each call finds its inodes without a lock, then locks them all at once (`txn/acquire.rs`:
//! ascending), then looks again: if a name means something else by now, it starts over. Renames
//! have a file of their own.
//!
//! Persistence: making a file is one occupancy (or map) word after a fence for the inode and its
//! entry; what changes more than one thing (directories, hard links, open files that lose their
//! name) is a transaction. Splits and merges of buckets are steps of their own that change no name.
//!
//! An inode without a name and without an open description is freed by whoever wins
//! [`Volume::close_for_good`]: the call that took the last name, or the last close.

pub(crate) mod attributes;
pub(crate) mod bucket;
pub(crate) mod directory;
#[cfg(test)]
mod directory_tests;
pub(crate) mod dirhash;
pub(crate) mod dirwalk;
#[cfg(test)]
mod namespace_tests;
mod xattr;

use crate::Result;
use crate::ground::layout::{FLAG_LINKABLE, IDENTITY, Identity, LINE, NAME_MAX, VOLATILE, WORDS};
use crate::inode::Inode;
use crate::namespace::bucket::{Dir, Target, slots_of};
use crate::namespace::directory::Hit;
use crate::namespace::dirhash::checked;
use crate::txn::held::{Held, as_directory};
use crate::txn::op::Op;
use crate::volume::Volume;
use rustix::io::Errno;
use smallvec::SmallVec;
use vfs::{Desc, DirEntry, Kind, NewNode, Node, OpenFlags};

/// Names of a file, and subdirectories of a directory, at most.
pub(crate) const LINKS_MAX: u32 = 1 << 31;
/// How often a name may mean something else under the locks than before them. Beyond that it leads
/// to an inode that does not exist: damage.
pub(crate) const RETRIES: u32 = 10_000;
/// `read_dir` positions after `.` and after `..`; those of entries are their keys, at least 16.
const COOKIE_SELF: i64 = 1;
const COOKIE_PARENT: i64 = 2;

/// Checks a name that is to be made or removed.
#[inline]
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        [] => Err(Errno::NOENT),
        _ if name.len() > NAME_MAX => Err(Errno::NAMETOOLONG),
        b"." | b".." => Err(Errno::INVAL),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

/// A legal name that is ours.
pub(crate) type OwnName = SmallVec<[u8; 256]>;

/// A name that is about to be stored, or taken away. The caller's text may be changed by another of
/// its threads while we read it again and again: what is hashed, compared and stored has to be one
/// name.
#[inline]
pub(crate) fn own_name(name: &[u8]) -> Result<OwnName> {
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let own = OwnName::from_slice(name);
    check_name(&own)?;
    Ok(own)
}

impl Volume {
    /// Finds `name` in `dir`.
    pub(crate) fn lookup(&self, dir: Node, name: &[u8]) -> Result<Node> {
        self.lookup_target(dir, name).map(|target| target.node)
    }

    /// Finds `name` in `dir`, with the kind that the entry tells.
    pub(crate) fn lookup_target(&self, dir: Node, name: &[u8]) -> Result<Target> {
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let asked = self.ask_for(dir, name);
        if let Some(found) = asked.as_ref().and_then(|asked| self.remembered(asked)) {
            return found;
        }
        let hash = self.name_hash(name);
        let before = self.sequence_of(dir);
        let found = self.read_steadily(dir, |inode, identity| {
            let at = as_directory(inode, identity)?;
            let node = match name {
                b"." => dir,
                b".." => Node { ino: identity.parent, generation: identity.parent_generation },
                _ => return self.find(at, hash, name),
            };
            Ok(Some(Target { node, kind: Kind::Directory }))
        })?;
        if let Some(asked) = &asked {
            self.remember(asked, before, found);
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
            as_directory(inode, identity)?;
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
                self.entries_from(as_directory(inode, identity)?, key)
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
            self.entry_before(as_directory(inode, identity)?, key)
        })?;
        Ok(last.is_some_and(|last| self.remembered_attributes(last.node).is_some()))
    }

    /// Remembers what a name leads to that was read while the directory's sequence number was
    /// `sequence`, and brings the inode near.
    #[inline]
    fn expect_question(&self, (dir, sequence): (Node, u64), name: &[u8], target: Target) {
        if let Some(asked) = self.ask_for(dir, name) {
            self.remember(&asked, sequence, Some(target));
        }
        let Ok(inode) = self.inode(target.node.ino) else { return };
        for line in [IDENTITY, WORDS, WORDS + LINE, VOLATILE, VOLATILE + LINE] {
            self.region.prefetch(inode.at(line));
        }
    }

    /// Makes a new node under `name`.
    pub(crate) fn create(&self, dir: Node, name: &[u8], new: &NewNode<'_>) -> Result<Node> {
        self.create_and(dir, name, new, |_| ()).map(|made| made.0)
    }

    /// Makes a regular file under `name`, and opens it.
    pub(crate) fn create_opened(
        &self,
        dir: Node,
        name: &[u8],
        new: &NewNode<'_>,
        flags: OpenFlags,
    ) -> Result<Desc> {
        if let Some(desc) = self.create_briefly(dir, name, new, flags)? {
            return Ok(desc);
        }
        self.with_orphans_dropped(|| {
            // As in the kernel: without a description nothing is made.
            let claim = self.claim_description()?;
            // Nobody finds it before the operation ends: nobody can be executing it.
            let open = |node| self.open_claimed(claim, node, new.kind, flags, Some(dir));
            match self.create_and(dir, name, new, open) {
                Ok((_, opened)) => opened,
                Err(errno) => {
                    self.free_description(claim.0, claim.1)?;
                    Err(errno)
                }
            }
        })
    }

    /// Makes a new node under `name`, and calls `then` with it before anybody else can find it.
    #[inline]
    fn create_and<T>(
        &self,
        dir: Node,
        name: &[u8],
        new: &NewNode<'_>,
        then: impl FnOnce(Node) -> T,
    ) -> Result<(Node, T)> {
        let name = &*own_name(name)?;
        let directories = i32::from(new.kind == Kind::Directory);
        let hash = self.name_hash(name);
        let mut op = self.begin()?;
        op.lock(&[self.inode_of(dir)?]).map_err(gone)?;
        let (mut parent, at) = self.held_directory(dir)?;
        let search = self.search(at, hash, name)?;
        if search.hit.is_some() {
            return Err(Errno::EXIST);
        }
        let key = search.vacant.ok_or(Errno::NOSPC)?;
        if directories > 0 && parent.commit.aux >= LINKS_MAX {
            return Err(Errno::MLINK);
        }
        op.work()?;
        let bucket = op.make_room(at, key, slots_of(name.len()), search.bucket)?;
        let node = op.new_inode(new, &parent)?;
        let target = Target { node, kind: new.kind };
        let store = op.insertion(at, key, bucket, name, target)?;
        parent.change_entries(1, directories);
        // CRASH: until the entry's word is durable, the new inode is not reachable, so not
        // allocated.
        if directories > 0 {
            op.commit_held(&[&parent], &[store], &[])?;
        } else {
            op.commit_lone(&[&parent], store)?;
        }
        op.carry_names(dir, &[(name, Some(target))], false)?;
        let value = then(node);
        op.end()?;
        Ok((node, value))
    }

    /// Gives `node` another name.
    pub(crate) fn link(&self, node: Node, dir: Node, name: &[u8]) -> Result<()> {
        let name = &*own_name(name)?;
        let hash = self.name_hash(name);
        let mut op = self.begin()?;
        op.lock(&[self.inode_of(dir)?, self.inode_of(node)?]).map_err(gone)?;
        let (mut parent, at) = self.held_directory(dir)?;
        let search = self.search(at, hash, name)?;
        if search.hit.is_some() {
            return Err(Errno::EXIST);
        }
        let key = search.vacant.ok_or(Errno::NOSPC)?;
        let mut child = self.held(node)?;
        if child.is_directory() {
            return Err(Errno::PERM);
        }
        if child.identity.nlink == 0 && child.identity.flags & FLAG_LINKABLE == 0 {
            return Err(Errno::NOENT);
        }
        if child.identity.nlink >= LINKS_MAX {
            return Err(Errno::MLINK);
        }
        op.work()?;
        let bucket = op.make_room(at, key, slots_of(name.len()), search.bucket)?;
        let kind = child.identity.kind().ok_or(Errno::IO)?;
        let target = Target { node, kind };
        let store = op.insertion(at, key, bucket, name, target)?;
        child.identity.nlink += 1;
        child.identity.flags &= !FLAG_LINKABLE;
        child.touch();
        parent.change_entries(1, 0);
        op.commit_held(&[&parent, &child], &[store], &[])?;
        op.carry_names(dir, &[(name, Some(target))], false)?;
        op.end()
    }

    /// Gives an inode that has lost its name another one; `false` if there is such a name.
    pub(crate) fn adopt(&self, inode: Inode, dir: Node, name: &[u8]) -> Result<bool> {
        let identity = self.identity(inode)?;
        let node = Node { ino: inode.0, generation: identity.generation };
        let mut op = self.begin()?;
        op.lock(&[self.inode_of(dir)?, inode])?;
        let (mut parent, at) = self.held_directory(dir)?;
        let search = self.search(at, self.name_hash(name), name)?;
        if search.hit.is_some() {
            return Ok(false);
        }
        let key = search.vacant.ok_or(Errno::NOSPC)?;
        let mut child = self.held(node)?;
        op.work()?;
        let bucket = op.make_room(at, key, slots_of(name.len()), search.bucket)?;
        let kind = child.identity.kind().ok_or(Errno::IO)?;
        let store = op.insertion(at, key, bucket, name, Target { node, kind })?;
        child.identity.nlink = 1;
        if kind == Kind::Directory {
            (child.identity.parent, child.identity.parent_generation) = (dir.ino, dir.generation);
        }
        parent.change_entries(1, i32::from(kind == Kind::Directory));
        op.commit_held(&[&parent, &child], &[store], &[])?;
        op.end()?;
        Ok(true)
    }

    /// Finds `name` again under the locks: `None` if it does not mean `target` any more.
    pub(crate) fn find_again(
        &self,
        dir: Dir,
        name: &[u8],
        target: Target,
    ) -> Result<Option<Hit<'_>>> {
        let hit = self.search(dir, self.name_hash(name), name)?.hit;
        Ok(hit.filter(|hit| hit.target == target))
    }

    /// Reads a locked inode to which an entry leads: if it is another object, the entry is damaged.
    pub(crate) fn held_target(&self, target: Target) -> Result<Held> {
        let held = self.held(target.node).map_err(|_| Errno::IO)?;
        if held.identity.kind() == Some(target.kind) { Ok(held) } else { Err(Errno::IO) }
    }

    /// Takes a name from something that is not a directory.
    pub(crate) fn unlink(&self, dir: Node, name: &[u8]) -> Result<()> {
        self.unlink_known(dir, name, None)
    }

    /// As [`Volume::unlink`]: from what the name was `found` to lead to a moment ago, or what it
    /// leads to by now.
    pub(crate) fn unlink_known(&self, dir: Node, name: &[u8], found: Option<Target>) -> Result<()> {
        if let Some(target) = found
            && self.unlink_briefly(dir, name, target)?
        {
            return Ok(());
        }
        let name = &*own_name(name)?;
        let mut found = found;
        for _ in 0..RETRIES {
            let target = match found.take() {
                Some(target) => target,
                None => self.lookup_target(dir, name).map_err(gone)?,
            };
            if target.kind == Kind::Directory {
                return Err(Errno::ISDIR);
            }
            let mut op = self.begin()?;
            if !op.lock_found(&[self.inode_of(dir)?, self.inode(target.node.ino)?])? {
                continue;
            }
            let (mut parent, at) = self.held_directory(dir)?;
            if let Some(hit) = self.find_again(at, name, target)? {
                let mut child = self.held_target(target)?;
                op.work()?;
                op.unlink_locked((&mut parent, dir, name), &mut child, &hit)?;
                return op.end();
            }
        }
        Err(Errno::IO)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_dir(&self, dir: Node, name: &[u8]) -> Result<()> {
        let name = &*own_name(name)?;
        for _ in 0..RETRIES {
            let target = self.lookup_target(dir, name).map_err(gone)?;
            if target.kind != Kind::Directory {
                return Err(Errno::NOTDIR);
            }
            let mut op = self.begin()?;
            if !op.lock_found(&[self.inode_of(dir)?, self.inode(target.node.ino)?])? {
                continue;
            }
            let (mut parent, at) = self.held_directory(dir)?;
            let Some(hit) = self.find_again(at, name, target)? else { continue };
            let mut child = self.held_target(target)?;
            if !self.is_empty_directory(child.directory()?)? {
                return Err(Errno::NOTEMPTY);
            }
            op.work()?;
            let store = op.removal(at, &hit, None)?;
            parent.change_entries(-1, -1);
            child.identity.nlink = 0;
            child.touch();
            op.commit_held(&[&parent, &child], &[store], &[])?;
            op.carry_names(dir, &[(name, None)], true)?;
            op.drop_if_closed(&child)?;
            op.prune_after(at, &hit, store.value)?;
            return op.end();
        }
        Err(Errno::IO)
    }

    /// Frees an inode whose last name is gone, if its last description is too: for the last close.
    /// Nothing happens while it has a name, or if somebody else frees it.
    pub(crate) fn drop_if_unlinked(&self, node: Node) -> Result<()> {
        let mut op = self.begin()?;
        if !op.lock_found(&[self.inode_of(node)?])? {
            return op.end();
        }
        let held = match self.held(node) {
            Err(Errno::STALE) => return op.end(),
            held => held?,
        };
        if held.identity.nlink == 0 {
            op.work()?;
            op.drop_if_closed(&held)?;
        }
        op.end()
    }

    /// Frees all that belongs to an inode without a name and without a description, and the inode
    /// itself, at the end of `op`, which holds its lock and works.
    pub(crate) fn drop_unlinked(
        &self,
        op: &mut Op<'_>,
        inode: Inode,
        identity: &Identity,
    ) -> Result<()> {
        if identity.kind() == Some(Kind::Directory) {
            op.free_directory(inode, identity)?;
        }
        self.free_contents(op, inode, identity)?;
        // CRASH: nothing reaches the inode any more, so this may become durable whenever it likes:
        // it is not flushed, or the atomic instructions to come would wait for it.
        let _ = self.region.store64(inode.at(IDENTITY), 0)?;
        op.free_inode_later(inode.0);
        Ok(())
    }
}

/// To change names in a directory that is gone is `ENOENT`.
pub(crate) fn gone(error: Errno) -> Errno {
    if error == Errno::STALE { Errno::NOENT } else { error }
}

impl Op<'_> {
    /// Locks inodes that names led to; `false`, and nothing is locked, if one of them is not in use
    /// any more: look again.
    pub(crate) fn lock_found(&mut self, inodes: &[Inode]) -> Result<bool> {
        match self.lock(inodes) {
            Err(Errno::STALE) => self.unlock().map(|()| false),
            locked => locked.map(|()| true),
        }
    }

    /// Notes what names mean from now on, after the commit that changed them
    /// ([`Volume::carry_names`]).
    pub(crate) fn carry_names(
        &self,
        dir: Node,
        changed: &[(&[u8], Option<Target>)],
        takes: bool,
    ) -> Result<()> {
        let odd = self.volume.sequence(self.volume.inode(dir.ino)?)?;
        self.volume.carry_names(dir, (odd - 1, odd + 1), changed, takes);
        Ok(())
    }

    /// Takes the entry at `hit`, that of a name in the locked `parent`, and a name from the locked
    /// `child`.
    fn unlink_locked(
        &mut self,
        (parent, dir, name): (&mut Held, Node, &[u8]),
        child: &mut Held,
        hit: &Hit<'_>,
    ) -> Result<()> {
        let volume = self.volume;
        let at = parent.directory()?;
        let store = self.removal(at, hit, None)?;
        parent.change_entries(-1, 0);
        if child.identity.nlink <= 1 && volume.close_for_good(child.inode)? {
            if let Err(error) = self.commit_lone(&[parent], store) {
                volume.allow_opens(child.inode)?;
                return Err(error);
            }
            self.carry_names(dir, &[(name, None)], false)?;
            volume.drop_unlinked(self, child.inode, &child.identity)?;
        } else {
            child.identity.nlink = child.identity.nlink.saturating_sub(1);
            child.touch();
            self.commit_held(&[parent, child], &[store], &[])?;
            self.carry_names(dir, &[(name, None)], false)?;
            self.drop_if_closed(child)?;
        }
        self.prune_after(at, hit, store.value)
    }

    /// Frees an inode of which nothing but open descriptions is left, if there are none.
    pub(crate) fn drop_if_closed(&mut self, held: &Held) -> Result<()> {
        let volume = self.volume;
        if held.identity.nlink == 0 && volume.close_for_good(held.inode)? {
            volume.drop_unlinked(self, held.inode, &held.identity)?;
        }
        Ok(())
    }

    /// Prunes the bucket of an entry that is gone, if its occupancy word `left` says that it is
    /// empty.
    pub(crate) fn prune_after(&mut self, dir: Dir, hit: &Hit<'_>, left: u64) -> Result<()> {
        if left != checked(0) {
            return Ok(());
        }
        match self.prune(dir, hit.key) {
            // An empty bucket stays where it is: no room, or its neighbour is damaged.
            Err(Errno::NOSPC | Errno::IO) => Ok(()),
            other => other,
        }
    }
}
