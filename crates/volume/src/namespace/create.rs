//! Names that come: of new inodes (`create`, `mkdir`, `symlink`, `mknod`), and further ones.
//!
//! A new inode that is no directory comes with one word (`change.rs`): the occupancy word of the
//! bucket in which its entry is put, or, where there is no such bucket yet, the word that leads to
//! one. Its lines and its entry are the only things that are stored before.
//!
//! [`Names::create_at_once`] does it without waiting or allocating: one slot in a bucket that has
//! room, or the directory's first bucket, where the operation record keeps an inode (and the
//! bucket's block) and all locks are free. Anything else is an operation's, which waits, makes
//! room, allocates ([`Names::create_waiting`]).
//!
//! Persistence order: inode and entry; fence; the directory's commit line and the word; fence. A
//! directory, and a further name, also change counts of names: that is a transaction.
//!
//! Locks: the directory's inode, and that of a file that gets a further name.

use crate::Result;
use crate::cache::{EntryPlace, Target};
use crate::inject::Bug;
use crate::inode::Inode;
use crate::medium::layout::{BLOCK, FLAG_LINKABLE, INODE, Identity, SLOT_NAME};
use crate::medium::name::own_name;
use crate::medium::now;
use crate::namespace::Names;
use crate::namespace::bucket::{Dir, slots_of};
use crate::namespace::change::{LINES, Named, Next, Step, fence_unless, gone};
use crate::namespace::dir_slot::DirSlot;
use crate::namespace::new_inode::{NewInode, check_new, inherited, is_inline};
use crate::namespace::{LINKS_MAX, check_asked};
use crate::txn::acquire::Locked;
use crate::txn::locked_inodes::Store;
use crate::txn::release::Freed;
use pmem::{Durable, InFlight};
use rustix::io::Errno;
use vfs::{Kind, NewNode, Node};

impl Names {
    /// Makes a new node under `name`.
    pub(crate) fn create(&self, dir: Node, name: &[u8], new: &NewNode<'_>) -> Result<Node> {
        self.create_and(dir, name, new, &|_| ()).map(|made| made.0)
    }

    /// Makes a new node under `name`, and calls `then` with it before anybody else can find it.
    #[inline]
    pub(crate) fn create_and<T>(
        &self,
        dir: Node,
        name: &[u8],
        new: &NewNode<'_>,
        then: &impl Fn(Node) -> T,
    ) -> Result<(Node, T)> {
        match self.tries(dir, |seen| self.create_at_once(dir, name, new, then, seen))? {
            Some(made) => Ok(made),
            None => self.create_waiting(dir, name, new, then),
        }
    }

    /// As [`Names::create_and`], if nothing is to be waited for or allocated. `None`: nothing has
    /// been done. (`seen`: the directory's number, as in `txn/looks.rs`.)
    #[inline(never)]
    pub(super) fn create_at_once<T>(
        &self,
        dir: Node,
        name: &[u8],
        new: &NewNode<'_>,
        then: &impl Fn(Node) -> T,
        seen: &mut u64,
    ) -> Result<Option<(Node, T)>> {
        if new.kind == Kind::Directory || name.len() > SLOT_NAME || !is_inline(new) {
            return Ok(None);
        }
        self.check_writable()?;
        let Some(asked) = self.ask_for(dir, name) else { return Ok(None) };
        check_asked(&asked)?;
        check_new(new)?;
        let Some((parent, flags)) = self.see_directory(dir, seen) else { return Ok(None) };
        let at = Dir { inode: parent.seen.inode, generation: dir.generation };
        let known = asked.known_at(parent.seen.sequence);
        let slot = if let Some((None, place)) = known {
            self.slot_at(at, place)
        } else {
            let absent = matches!(self.remembered(&asked), Some(Err(Errno::NOENT)));
            self.new_slot(at, self.name_hash(asked.name()), absent)
        };
        let Ok(Some(dir_slot)) = slot else { return Ok(None) };
        let (index, record) = self.record_here()?;
        if !self.keeps_at_home(&record)? || dir_slot.is_first() && !record.keeps_bucket()? {
            return Ok(None);
        }
        let Some(named) = self.try_names((index, record), [parent.seen], parent.flags)? else {
            return Ok(None);
        };
        let step = Step { dir, asked: Some(&asked), time: now() };
        match named.create(&step, dir_slot, new, inherited(new.kind, flags)) {
            Ok(Some(node)) => {
                let value = then(node);
                named.locked.end(LINES, Freed::default())?;
                Ok(Some((node, value)))
            }
            other => {
                named.locked.fail(LINES)?;
                other.map(|_| None)
            }
        }
    }

    /// As [`Names::create_and`], whatever it takes.
    pub(super) fn create_waiting<T>(
        &self,
        dir: Node,
        name: &[u8],
        new: &NewNode<'_>,
        then: &impl Fn(Node) -> T,
    ) -> Result<(Node, T)> {
        let name = &*own_name(name)?;
        let hash = self.name_hash(name);
        let mut op = self.begin()?;
        op.lock(&[self.inode_of(dir)?]).map_err(gone)?;
        let (mut parent, at) = self.held_directory(dir)?;
        let search = self.search(at, hash, name)?;
        if search.hit.is_some() {
            return Err(Errno::EXIST);
        }
        let key = search.vacant.ok_or(Errno::NOSPC)?;
        let directory = new.kind == Kind::Directory;
        if directory && parent.commit.aux >= LINKS_MAX {
            return Err(Errno::MLINK);
        }
        op.work()?;
        let bucket = self.make_room(&mut op, at, key, slots_of(name.len()), search.bucket)?;
        let made = self.new_inode(&mut op, new, &parent)?;
        let target = made.target();
        let word = self.insertion(&mut op, at, key, bucket, name, target)?;
        // CRASH: until the entry's word is durable, the new inode is not reachable, so not
        // allocated.
        if directory {
            op.pend(made.store(self)?);
            parent.change_entries(1, 1);
            self.commit_held(&mut op, &[&parent], &[word], &[])?;
            self.carry_changed(dir, &[(name, Some(target))], false)?;
        } else {
            let asked = self.ask_for(dir, name);
            let step = Step { dir, asked: asked.as_ref(), time: made.time() };
            let named = self.named(&op, [at.inode])?;
            let next = named.next(&step, (1, 0))?;
            let mut may_be_named = false;
            let change = (word, next, None);
            let brought = named
                .bring(&step, change, &made, &mut may_be_named, |stored| Ok(op.fence_with(stored)));
            if may_be_named {
                op.keep_allocated();
            }
            brought?;
            self.published(&mut op)?;
        }
        let value = then(target.node);
        op.end()?;
        Ok((target.node, value))
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
        if self.is_closed_for_good(child.inode) {
            // Who took its only name died before it freed it. (Had it died before the name went,
            // the sweep would have allowed opens, before this passed the gate.)
            return Err(Errno::NOENT);
        }
        let bucket = self.make_room(&mut op, at, key, slots_of(name.len()), search.bucket)?;
        let kind = child.identity.kind().ok_or(Errno::IO)?;
        let target = Target { node, kind };
        let word = self.insertion(&mut op, at, key, bucket, name, target)?;
        child.identity.nlink += 1;
        child.identity.flags &= !FLAG_LINKABLE;
        child.touch();
        parent.change_entries(1, 0);
        self.commit_held(&mut op, &[&parent, &child], &[word], &[])?;
        self.carry_changed(dir, &[(name, Some(target))], false)?;
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
        let bucket = self.make_room(&mut op, at, key, slots_of(name.len()), search.bucket)?;
        let kind = child.identity.kind().ok_or(Errno::IO)?;
        let word = self.insertion(&mut op, at, key, bucket, name, Target { node, kind })?;
        child.identity.nlink = 1;
        if kind == Kind::Directory {
            (child.identity.parent, child.identity.parent_generation) = (dir.ino, dir.generation);
        }
        parent.change_entries(1, i32::from(kind == Kind::Directory));
        self.commit_held(&mut op, &[&parent, &child], &[word], &[])?;
        op.end()?;
        Ok(true)
    }
}

impl<'v> Named<'v, 1> {
    /// Makes the node and its name, with what the record keeps; `None`: it keeps no inode, or no
    /// block for a first bucket, and nothing has been done.
    fn create(
        &self,
        step: &Step<'_>,
        mut dir_slot: DirSlot,
        new: &NewNode<'_>,
        flags: u16,
    ) -> Result<Option<Node>> {
        let (Locked { owner, record, .. }, names) = (self.locked, self.names);
        let Some(ino) = record.take_kept()? else { return Ok(None) };
        let mut block = None;
        if dir_slot.is_first() {
            block = record.take_bucket(names)?;
            let Some(block) = block else {
                return names.give_back_inode(&record, owner.op(), ino).map(|()| None);
            };
            dir_slot.place.bucket = block;
        }
        let mut named = false;
        let made = self.make(step, dir_slot, new, (Inode(ino), flags), &mut named);
        if made.is_err() && !named {
            // Memory that is lost is not tried again: it stays in use until the next sweep.
            if !names.is_lost_block(ino * INODE / BLOCK) {
                names.give_back_inode(&record, owner.op(), ino)?;
            }
            if let Some(block) = block.filter(|&block| !names.stays_lost(block)) {
                record.keep_bucket(names, block)?;
            }
        }
        made.map(Some)
    }

    /// The same with an inode of its own. `named`: there may be such a name now.
    #[inline]
    fn make(
        &self,
        step: &Step<'_>,
        dir_slot: DirSlot,
        new: &NewNode<'_>,
        (inode, flags): (Inode, u16),
        named: &mut bool,
    ) -> Result<Node> {
        let (Locked { record, seen, .. }, names) = (self.locked, self.names);
        let dir = Dir { inode: seen[0].inode, generation: step.dir.generation };
        let like = Identity { nlink: 1, flags, ..Identity::default() };
        let made = NewInode::new(names, &record, inode, new, step.time, like)?;
        let target = made.target();
        let word = dir_slot.insertion(dir);
        let next = self.next(step, (1, i64::from(dir_slot.is_first())))?;
        let place = dir_slot.place;
        self.bring(step, (word, next, Some(place)), &made, named, |stored| {
            let asked = step.asked.ok_or(Errno::IO)?;
            let EntryPlace { bucket, slot, key, .. } = place;
            let name = (asked.padded(), asked.name().len());
            let mut stored = stored.and(names.store_entry((bucket, slot, key), name, target)?);
            if dir_slot.is_first() {
                stored = stored.and(names.store_header(dir, bucket, 1 << slot)?);
            }
            Ok(fence_unless(stored, Bug::NameBeforeInode))
        })?;
        Ok(target.node)
    }

    /// Stores the new inode, and publishes its name by `word`: in an entry whose place is given if
    /// all others stay where they are. `prepare` stores what else the word publishes, and fences.
    /// `named`: there may be such a name now.
    #[inline]
    fn bring(
        &self,
        step: &Step<'_>,
        (word, next, place): (Store, Next, Option<EntryPlace>),
        made: &NewInode<'_>,
        named: &mut bool,
        prepare: impl FnOnce(InFlight<'v>) -> Result<Durable<'v>>,
    ) -> Result<()> {
        let names = self.names;
        let known = self.enter(step.asked, Some(made.target()), place);
        self.carry(step, known, (false, place.is_some()), &next);
        // PERSIST: inode and entry before the word that makes them count.
        // CRASH: until that is durable, the inode is not reachable, so not allocated.
        let durable = prepare(made.store(names)?)?;
        *named = true;
        self.publish(step, word, &next, Some(&durable))
    }
}
