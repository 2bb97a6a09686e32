//! Names that go, and the end of inodes without one.
//!
//! The only name of what is no directory, and is not open, goes with one word (`change.rs`): the
//! occupancy word of its bucket, or, with the last name of a bucket, the word that leads to the
//! bucket. Nothing is stored before, unless nodes of the directory have to be copied.
//!
//! [`Names::unlink_at_once`] does it without waiting or allocating: one slot, of what has nothing
//! but direct blocks, in a bucket that stays or was the only one, where all locks are free.
//! Anything else is an operation's, which waits, merges buckets, frees whole maps.
//!
//! Persistence order: the directory's commit line and the word; fence; then inode and blocks are
//! free. What keeps a name, is open, or is a directory: that is a transaction.
//!
//! An inode without a name and without an open description is freed by the operation that wins
//! `close_for_good` (`inode/references.rs`): the call that took the last name, or the last close.
//!
//! Locks: the directory's inode, and that of what loses its name.

use crate::Result;
use crate::cache::{EntryPlace, Target};
use crate::data::map::{KIND_LEAF, key_of};
use crate::inode::references::OPENS_COUNT;
use crate::inode::{Inode, LIVE_REDO};
use crate::medium::layout::{DIRECT, IDENTITY, Identity, LINE, SLOT_NAME, WORDS};
use crate::medium::name::own_name;
use crate::medium::now;
use crate::namespace::Names;
use crate::namespace::bucket::Dir;
use crate::namespace::change::{LINES, Looked, Named, Step, gone};
use crate::namespace::directory::Hit;
use crate::namespace::new_inode::INLINE_MAX;
use crate::namespace::{RETRIES, check_asked};
use crate::txn::acquire::Locked;
use crate::txn::locked_inodes::{Held, Store};
use crate::txn::op::Op;
use crate::txn::release::Freed;
use pmem::{Durable, Span};
use rustix::io::Errno;
use vfs::{Kind, Node};

/// Words of a line.
const LINE_WORDS: usize = (LINE / 8) as usize;

impl Names {
    /// Takes a name from something that is not a directory: from what the name was `found` to lead
    /// to a moment ago, or what it leads to by now.
    pub(crate) fn unlink_known(&self, dir: Node, name: &[u8], found: Option<Target>) -> Result<()> {
        match found {
            Some(target)
                if self.tries(dir, |seen| self.unlink_at_once(dir, name, target, seen))? =>
            {
                Ok(())
            }
            found => self.unlink_waiting(dir, name, found),
        }
    }

    /// As [`Names::unlink_known`], if nothing is to be waited for or allocated. `false`: nothing
    /// has been done. (`seen`: the directory's number, as in `txn/looks.rs`.)
    #[inline(never)]
    pub(super) fn unlink_at_once(
        &self,
        dir: Node,
        name: &[u8],
        target: Target,
        seen: &mut u64,
    ) -> Result<bool> {
        if target.kind == Kind::Directory || name.len() > SLOT_NAME {
            return Ok(false);
        }
        self.check_writable()?;
        let Some(asked) = self.ask_for(dir, name) else { return Ok(false) };
        let Some((parent, _)) = self.see_directory(dir, seen) else { return Ok(false) };
        let Some((child, (kind, names, _))) = self.see(target.node) else { return Ok(false) };
        let only = kind == target.kind && names == 1;
        if !only || child.flags & LIVE_REDO != 0 || child.opens & OPENS_COUNT != 0 {
            return Ok(false);
        }
        let mut blocks = [0; DIRECT as usize];
        let Ok(Some(count)) = self.direct_blocks(&child, target, &mut blocks) else {
            return Ok(false);
        };
        let at = Dir { inode: parent.seen.inode, generation: dir.generation };
        let slot = match asked.known_at(parent.seen.sequence) {
            Some((Some(known), place)) if known == target => self.entry_at(place),
            _ => {
                check_asked(&asked)?;
                self.entry_slot(at, self.name_hash(asked.name()), asked.name(), target)
            }
        };
        let Ok(Some(dir_slot)) = slot else { return Ok(false) };
        let inodes = [parent.seen, child.seen];
        let record = self.record_here()?;
        let Some(named) = self.try_names(record, inodes, parent.flags)? else { return Ok(false) };
        let step = Step { dir, asked: Some(&asked), time: now() };
        let blocks_more = -i64::from(dir_slot.is_last());
        let word = (dir_slot.removal(at), blocks_more, Some(dir_slot.vacated()));
        match named.take(&step, word, None) {
            Ok(true) => {
                let mut freed =
                    Freed { blocks: &blocks[..count], bucket: 0, inode: Some(target.node.ino) };
                if dir_slot.is_last() {
                    freed.bucket = dir_slot.place.bucket;
                }
                named.locked.end(LINES, freed).map(|()| true)
            }
            other => named.locked.fail(LINES).and(other),
        }
    }

    /// As [`Names::unlink_known`], whatever it takes.
    fn unlink_waiting(&self, dir: Node, name: &[u8], found: Option<Target>) -> Result<()> {
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
                self.unlink_locked(&mut op, (&mut parent, dir, name), &mut child, &hit)?;
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
            if !self.is_empty_directory(Dir::of(child.inode, &child.identity)?)? {
                return Err(Errno::NOTEMPTY);
            }
            op.work()?;
            let word = self.removal(&mut op, at, &hit, None)?;
            parent.change_entries(-1, -1);
            child.identity.nlink = 0;
            child.touch();
            self.commit_held(&mut op, &[&parent, &child], &[word], &[])?;
            self.carry_changed(dir, &[(name, None)], true)?;
            self.drop_if_closed(&mut op, &child)?;
            self.prune_after(&mut op, at, &hit, word.value)?;
            return op.end();
        }
        Err(Errno::IO)
    }

    /// All blocks of what has nothing but direct words, and how many; `None`: it has more.
    #[inline]
    fn direct_blocks(
        &self,
        looked: &Looked<'_>,
        target: Target,
        blocks: &mut [u64; DIRECT as usize],
    ) -> Result<Option<usize>> {
        let inode = looked.seen.inode;
        let words = self.region.span::<{ 2 * LINE_WORDS }>(inode.at(WORDS))?;
        let [root, attributes, ..] = words.four(DIRECT as usize)?;
        if root | attributes != 0 {
            return Ok(None);
        }
        if target.kind == Kind::Symlink {
            // Its target lies there, or in a block.
            return Ok((looked.size <= INLINE_MAX as u64).then_some(0));
        }
        let mut any = 0;
        for at in (0..DIRECT as usize).step_by(4) {
            any = words.four(at)?.iter().fold(any, |any, word| any | word);
        }
        if any == 0 {
            return Ok(Some(0));
        }
        self.leaves((inode, target.node.generation), words, blocks)
    }

    /// The blocks of these direct words, and how many; `None`: one is no leaf's.
    #[inline(never)]
    fn leaves(
        &self,
        (inode, generation): (Inode, u32),
        words: Span<'_, { 2 * LINE_WORDS }>,
        blocks: &mut [u64; DIRECT as usize],
    ) -> Result<Option<usize>> {
        let mut count = 0;
        for logical in 0..DIRECT {
            let word = words.load(logical as usize)?;
            match self.open_word(word, key_of(inode, generation, logical))? {
                None => {}
                Some(word) if word.kind == KIND_LEAF => {
                    blocks[count] = word.block;
                    count += 1;
                }
                Some(_) => return Ok(None),
            }
        }
        Ok(Some(count))
    }

    /// Frees an inode whose last name is gone, if its last description is too: for the last close.
    /// Nothing happens while it has a name, or if another operation frees it.
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
            self.drop_if_closed(&mut op, &held)?;
        }
        op.end()
    }

    /// Frees all that belongs to an inode without a name and without a description, and the inode
    /// itself, at the end of `op`, which holds its lock and works.
    pub(crate) fn drop_unlinked<'v>(
        &'v self,
        op: &mut Op<'v>,
        inode: Inode,
        identity: &Identity,
    ) -> Result<()> {
        if identity.kind() == Some(Kind::Directory) {
            self.free_directory(op, inode, identity)?;
        }
        self.free_contents(op, inode, identity)?;
        self.forget_identity(inode)?;
        op.free_inode_later(inode.0);
        Ok(())
    }

    /// Nothing is told of an inode any more that nothing reaches.
    ///
    /// CRASH: so this may become durable whenever it likes: it is not flushed, or the atomic
    /// instructions to come would wait for it.
    #[inline]
    pub(super) fn forget_identity(&self, inode: Inode) -> Result<()> {
        let _ = self.region.store64(inode.at(IDENTITY), 0)?;
        Ok(())
    }
}

impl<const N: usize> Named<'_, N> {
    /// Takes the only name of the second inode, which goes with it, by `word`, and as many blocks
    /// from the directory as `blocks` tells; `after`: what the word publishes. `vacated`: where the
    /// name belongs, if all other entries stay where they are. `false`: it has been opened, and
    /// nothing has been done.
    pub(super) fn take(
        &self,
        step: &Step<'_>,
        (word, blocks, vacated): (Store, i64, Option<EntryPlace>),
        after: Option<&Durable<'_>>,
    ) -> Result<bool> {
        let (Locked { seen, .. }, names) = (self.locked, self.names);
        let child = seen[1].inode;
        if !names.close_for_good(&seen[1].live)? {
            return Ok(false);
        }
        let done = self.next(step, (-1, blocks)).and_then(|next| {
            let known = self.enter(step.asked, None, vacated);
            self.carry(step, known, (false, vacated.is_some()), &next);
            self.publish(step, word, &next, after)
        });
        if let Err(errno) = done {
            names.allow_opens(child)?;
            return Err(errno);
        }
        names.forget_identity(child).map(|()| true)
    }
}

impl Names {
    /// Takes the entry at `hit`, that of a name in the locked `parent`, and a name from the locked
    /// `child`.
    fn unlink_locked<'v>(
        &'v self,
        op: &mut Op<'v>,
        (parent, dir, name): (&mut Held, Node, &[u8]),
        child: &mut Held,
        hit: &Hit<'_>,
    ) -> Result<()> {
        let at = Dir::of(parent.inode, &parent.identity)?;
        let word = self.removal(op, at, hit, None)?;
        if child.identity.nlink <= 1 {
            let after = op.prepared();
            let asked = self.ask_for(dir, name);
            let step = Step { dir, asked: asked.as_ref(), time: now() };
            let named = self.named(op, [parent.inode, child.inode])?;
            if named.take(&step, (word, 0, None), after.as_ref())? {
                self.published(op)?;
                self.free_forgotten(op, child)?;
                return self.prune_after(op, at, hit, word.value);
            }
        }
        parent.change_entries(-1, 0);
        child.identity.nlink = child.identity.nlink.saturating_sub(1);
        child.touch();
        self.commit_held(op, &[parent, child], &[word], &[])?;
        self.carry_changed(dir, &[(name, None)], false)?;
        self.drop_if_closed(op, child)?;
        self.prune_after(op, at, hit, word.value)
    }

    /// Frees what has lost its only name, and its identity, by a word, at the operation's end.
    pub(super) fn free_forgotten<'v>(&'v self, op: &mut Op<'v>, held: &Held) -> Result<()> {
        self.free_contents(op, held.inode, &held.identity)?;
        op.free_inode_later(held.inode.0);
        Ok(())
    }

    /// Frees an inode of which nothing but open descriptions is left, if there are none.
    pub(crate) fn drop_if_closed<'v>(&'v self, op: &mut Op<'v>, held: &Held) -> Result<()> {
        if held.identity.nlink == 0 && self.close_for_good(&self.live_lines(held.inode)?)? {
            self.drop_unlinked(op, held.inode, &held.identity)?;
        }
        Ok(())
    }
}
