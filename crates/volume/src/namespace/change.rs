//! The right to change names, and the change that is one word.
//!
//! A call looks up what its names mean without a lock (`see`, and what finds a slot in
//! `directory.rs`), then takes the locks of its inodes: without waiting ([`Names::try_names`], if
//! their sequence numbers have not moved since the look), or by an operation that waits, and looks
//! again ([`Names::named`]). Either way it then has a [`Named`], and what is one word (a name that
//! comes, a file's only name that goes, a name that moves within its bucket) becomes durable in the
//! same steps, here and in `create.rs`, `unlink.rs`, `rename.rs`:
//!
//! 1. what this process remembers is entered, under the numbers that the inodes will have: those
//!    processor instructions that wait for all stores under way come before there are any. An
//!    operation that fails or dies leaves other numbers, so nothing of that is ever believed.
//! 2. what the word publishes is stored aside, if there is any; fence.
//! 3. [`Named::publish`]: the directory's commit line and the word; fence.
//!
//! What changes more than one thing (directories, hard links, open files that lose their name) is a
//! transaction of an operation ([`Names::commit_held`]).
//!
//! Locks: the directory's inode, then the others, in the order of acquire.

#![expect(clippy::inline_always, reason = "words that are handed on stay in registers")]

use crate::Result;
use crate::cache::{Asked, EntryPlace, Target};
use crate::inject::{self, Bug, injected};
use crate::inode::commit::{SLOT_WORDS, newest_slot, next_sequence};
use crate::inode::{Current, Inode, LIVE_DAMAGED, LIVE_DIRTY, LIVE_WRITTEN};
use crate::medium::dirhash::checked;
use crate::medium::layout::{COMMIT, COMMIT_WRITTEN, Commit, LINE};
use crate::namespace::Names;
use crate::namespace::bucket::Dir;
use crate::namespace::directory::Hit;
use crate::txn::acquire::{Anchor, Locked, Seen};
use crate::txn::locked_inodes::{Held, SlotStore, Store};
use crate::txn::op::Op;
use crate::txn::record::Record;
use pmem::{Durable, InFlight};
use rustix::io::Errno;
use std::hint::cold_path;
use vfs::{Kind, Node};

/// The locked inodes of a call that changes names in one directory, the directory first.
#[derive(Clone, Copy)]
pub(crate) struct Named<'v, const N: usize> {
    pub(super) names: &'v Names,
    pub(crate) locked: Locked<'v, N>,
    /// The directory's live flags.
    flags: u64,
}

/// What a look told of an inode, beside what it is.
#[derive(Clone, Copy)]
pub(crate) struct Looked<'v> {
    pub(crate) seen: Seen<'v>,
    pub(crate) flags: u64,
    pub(crate) opens: u64,
    pub(crate) size: u64,
}

/// A name that comes or goes.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub(crate) dir: Node,
    /// How it is asked for, if such names are remembered.
    pub(crate) asked: Option<&'a Asked>,
    pub(crate) time: i64,
}

/// What the commit line of a directory becomes.
pub(crate) struct Next {
    line: [[u64; SLOT_WORDS]; 2],
    newest: usize,
    /// Its number of entries.
    size: u64,
    /// Blocks that come or go with it.
    blocks: i64,
}

/// Lines that a change by one word names in its record: a commit slot, the word.
pub(crate) const LINES: usize = 2;

impl Names {
    /// Takes the locks of what was seen, without waiting; `None`: some of it is not to be had, or
    /// has changed.
    #[inline(always)]
    pub(crate) fn try_names<'v, const N: usize>(
        &'v self,
        record: (u32, Record<'v>),
        seen: [Seen<'v>; N],
        flags: u64,
    ) -> Result<Option<Named<'v, N>>> {
        let Some(locked) = self.try_acquire(record, Anchor::InUse, seen)? else {
            return Ok(None);
        };
        // By exclusive or: no loop that ends early, which would stay one.
        let moved =
            (0..N).fold(0, |moved, at| moved | locked.seen[at].sequence ^ seen[at].sequence);
        if moved != 0 {
            cold_path();
            // One of them may be free by now, and its extent wait for this call to look elsewhere.
            return locked.step_back(N).map(|()| None);
        }
        Ok(Some(Named { names: self, locked, flags }))
    }

    /// A look at an inode that is at rest and sound, without its identity; `None` says nothing.
    #[inline(always)]
    fn look_at_inode(&self, node: Node) -> Option<Looked<'_>> {
        let inode = self.inode(node.ino).ok()?;
        let live = self.live_lines(inode).ok()?;
        let [_, sequence, size, _, _, opens, flags, ready] = live.0.eight(0).ok()?;
        let rests = ready == u64::from(self.epoch) && sequence & 1 == 0;
        let seen = Seen { inode, live, sequence };
        (rests && flags & LIVE_DAMAGED == 0).then_some(Looked { seen, flags, opens, size })
    }

    /// A look at an inode that is at rest and sound: and its kind, its number of names (of a
    /// directory: whether it has one), and its `FLAG_*`. `None` says nothing.
    #[inline(always)]
    pub(crate) fn see(&self, node: Node) -> Option<(Looked<'_>, (Kind, u32, u16))> {
        let looked = self.look_at_inode(node)?;
        let known = match self.remembered_kind(node, looked.seen.sequence) {
            Some(known) => known,
            None => self.kind_on_medium(node)?,
        };
        Some((looked, known))
    }

    #[cold]
    fn kind_on_medium(&self, node: Node) -> Option<(Kind, u32, u16)> {
        let identity = self.identity_of(node).ok()?.1;
        Some((identity.kind()?, identity.nlink, identity.flags))
    }

    /// As [`Names::see`], of a directory that has a name; with its `FLAG_*`. Writes the number that
    /// it has to `number`: others may be in the way (`txn/looks.rs`).
    #[inline(always)]
    pub(super) fn see_directory(&self, node: Node, number: &mut u64) -> Option<(Looked<'_>, u16)> {
        let Some((looked, (kind, names, flags))) = self.see(node) else {
            cold_path();
            *number = self.sequence_of(node);
            return None;
        };
        *number = looked.seen.sequence;
        let stays = kind == Kind::Directory && names != 0 && looked.flags & LIVE_DIRTY == 0;
        stays.then_some((looked, flags))
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
}

/// To change names in a directory that is gone is `ENOENT`.
pub(crate) fn gone(error: Errno) -> Errno {
    if error == Errno::STALE { Errno::NOENT } else { error }
}

impl<const N: usize> Named<'_, N> {
    /// What the directory's commit line becomes with so many entries and blocks more. Before the
    /// first store: nothing of it is made behind a fence, where it would wait for that.
    #[inline(always)]
    pub(crate) fn next(&self, step: &Step<'_>, (entries, blocks): (i64, i64)) -> Result<Next> {
        let (Locked { seen, .. }, names) = (self.locked, self.names);
        let Seen { inode, live, .. } = seen[0];
        let (line, newest) = match names.slots_beside(inode, live)? {
            (slots, Some(newest)) => (slots, newest),
            (slots, None) => {
                let identity = names.identity(inode)?;
                (slots, newest_slot(inode, identity.generation, slots)?.1)
            }
        };
        let last = line[newest];
        let changed = Commit {
            size: last.size.saturating_add_signed(entries),
            mtime: step.time,
            flags: last.flags | COMMIT_WRITTEN,
            sequence: next_sequence(last.sequence),
            ..last
        };
        let mut line = [line[0].words(), line[1].words()];
        let newest = if injected(Bug::CommitInPlace) { newest } else { 1 - newest };
        line[newest] = changed.sealed(inode, step.dir.generation).words();
        Ok(Next { line, newest, size: changed.size, blocks })
    }

    /// Enters what the directory's attributes are, from this operation's end on; `known`: so are
    /// all names that change. `takes`: a directory's name is among them that means something else
    /// now. `keeps`: the entries of all other names stay where they are.
    #[inline(always)]
    pub(crate) fn carry(
        &self,
        step: &Step<'_>,
        known: bool,
        (takes, keeps): (bool, bool),
        next: &Next,
    ) {
        let (Locked { seen, .. }, names) = (self.locked, self.names);
        let numbers = (seen[0].sequence, seen[0].sequence + 2);
        names.carry_own(step.dir, numbers, known, takes, keeps);
        names.carry_directory(step.dir, numbers, (next.size, next.blocks, step.time));
    }

    /// Enters what a name means from this operation's end on, and where its entry lies then, or
    /// would; whether it did, or such names are never remembered.
    #[inline(always)]
    pub(crate) fn enter(
        &self,
        asked: Option<&Asked>,
        meaning: Option<Target>,
        place: Option<EntryPlace>,
    ) -> bool {
        let after = self.locked.seen[0].sequence + 2;
        asked.is_none_or(|asked| asked.enter(after, meaning, place))
    }

    /// Stores the directory's commit line and the word that changes its names, durably. `after`:
    /// what the word publishes.
    ///
    /// CRASH: the commit line (times, number of entries) has no fence of its own: a crash may
    /// forget or foresee it, never tear it.
    #[inline(always)]
    pub(crate) fn publish(
        &self,
        step: &Step<'_>,
        word: Store,
        next: &Next,
        after: Option<&Durable<'_>>,
    ) -> Result<()> {
        let (Locked { record, seen, .. }, names, mut flags) = (self.locked, self.names, self.flags);
        let Seen { inode, live, .. } = seen[0];
        record.announce_line(inode.at(COMMIT))?;
        let line: &[u8; LINE as usize] = zerocopy::transmute_ref!(&next.line);
        let stored = match after {
            Some(after) => names.region.commit_line(inode.at(COMMIT), line, after)?,
            None => names.region.write_line(inode.at(COMMIT), line)?,
        };
        live.set_copy(line, next.newest)?;
        record.announce_second_line(word.at)?;
        // PERSIST: what this word publishes is durable (the witness); the word itself must be
        // before the locks go.
        let word = match after {
            Some(after) => names.region.commit64(word.at, word.value, after)?,
            None => names.region.store64(word.at, word.value)?,
        };
        let word = if injected(Bug::NameNotFlushed) { None } else { Some(word.flush()) };
        let _ = stored.and_any(word).fence();
        if flags & LIVE_DIRTY != 0 {
            cold_path();
            // What was newer than the old commit slot is so beside the new one.
            flags = names.dirty_flags(inode, step.dir.generation, flags)?;
        }
        if next.blocks != 0 {
            let identity = names.identity(inode)?;
            names.adjust_directory(inode, &identity, next.blocks)?;
        }
        let (size, time) = (next.size, step.time);
        let flags = flags | LIVE_WRITTEN;
        live.set_current(&Current { size, mtime: time, ctime: time, flags })
    }
}

impl Names {
    /// These inodes, whose locks the operation holds and on which it works: the right to change
    /// names in the first one by one word. [`Names::published`] comes behind that.
    pub(crate) fn named<'v, const N: usize>(
        &'v self,
        op: &Op<'v>,
        inodes: [Inode; N],
    ) -> Result<Named<'v, N>> {
        let look = |inode: Inode| {
            let live = self.live_lines(inode)?;
            Ok::<_, Errno>(Seen { inode, live, sequence: live.sequence()? & !1 })
        };
        let mut seen = [look(inodes[0])?; N];
        for at in 1..N {
            seen[at] = look(inodes[at])?;
        }
        let flags = seen[0].live.flags()?;
        let locked = Locked { engine: self, owner: op.owner, record: op.record, seen };
        Ok(Named { names: self, locked, flags })
    }

    /// Reads a locked directory in which names are to change: `ENOENT` if it was removed.
    pub(crate) fn held_directory(&self, node: Node) -> Result<(Held, Dir)> {
        let held = match self.held(node) {
            Err(Errno::STALE) => return Err(Errno::NOENT),
            held => held?,
        };
        let dir = Dir::of(held.inode, &held.identity)?;
        if held.identity.nlink == 0 { Err(Errno::NOENT) } else { Ok((held, dir)) }
    }

    /// As [`Op::commit_held`]; then what this process remembers of these inodes is what they are
    /// now.
    pub(crate) fn commit_held(
        &self,
        op: &mut Op<'_>,
        held: &[&Held],
        words: &[Store],
        slots: &[SlotStore],
    ) -> Result<()> {
        op.commit_held(held, words, slots)?;
        self.carry_all(op, held)
    }

    /// What is known of these inodes, a commit of which is durable, is what they are now.
    pub(crate) fn carry_all(&self, op: &mut Op<'_>, held: &[&Held]) -> Result<()> {
        self.count_reshaped(op)?;
        if op.has_reshaped {
            return Ok(());
        }
        held.iter().try_for_each(|one| self.carry_held(one))
    }

    /// What this process remembers of a locked inode's attributes becomes what it is now.
    fn carry_held(&self, held: &Held) -> Result<()> {
        let &Held { inode, identity, commit, current, .. } = held;
        let node = Node { ino: inode.0, generation: identity.generation };
        let odd = self.sequence(inode)?;
        self.carry_attributes(node, (odd - 1, odd + 1), identity.flags, |attr| {
            let subdirectories = held.is_directory() && identity.nlink > 0;
            attr.nlink = if subdirectories { 2 + commit.aux } else { identity.nlink };
            attr.mode = identity.mode & 0o7777;
            (attr.uid, attr.gid) = (identity.uid, identity.gid);
            attr.size = current.size;
            (attr.mtime, attr.ctime) = (current.mtime, current.ctime);
        });
        Ok(())
    }

    /// A change by one word is durable.
    pub(crate) fn published<'v>(&'v self, op: &mut Op<'v>) -> Result<()> {
        op.announced_lines(LINES);
        self.count_reshaped(op)
    }

    /// Notes what names mean from now on, after the commit that changed them
    /// (`cache/`).
    pub(crate) fn carry_changed(
        &self,
        dir: Node,
        changed: &[(&[u8], Option<Target>)],
        takes: bool,
    ) -> Result<()> {
        let odd = self.sequence(self.inode(dir.ino)?)?;
        self.carry_names(dir, (odd - 1, odd + 1), changed, takes);
        Ok(())
    }

    /// Prunes the bucket of an entry that is gone, if its occupancy word `left` says that it is
    /// empty.
    pub(crate) fn prune_after<'v>(
        &'v self,
        op: &mut Op<'v>,
        dir: Dir,
        hit: &Hit<'_>,
        left: u64,
    ) -> Result<()> {
        if left != checked(0) {
            return Ok(());
        }
        match self.prune(op, dir, hit.key) {
            // An empty bucket stays where it is: no room, or its neighbour is damaged.
            Err(Errno::NOSPC | Errno::IO) => Ok(()),
            other => other,
        }
    }
}

/// A fence for what is in flight, unless this fault is injected.
#[inline]
pub(crate) fn fence_unless(stored: InFlight<'_>, bug: Bug) -> Durable<'_> {
    if injected(bug) { inject::forged() } else { stored.fence() }
}
