//! Inodes whose locks an operation holds, with what is to change about them.
//!
//! An operation reads them under their locks ([`Operations::held`]), changes the values, and
//! commits everything at once ([`Op::commit_held`]): in one transaction, or, of one file alone, by
//! a redo record, which takes a fence less. Where one word is the commit: `namespace/change.rs`.
//!
//! What is current (the volatile lines) moves last, when the change is durable.

use crate::Result;
use crate::inject::{Bug, injected};
use crate::inode::{Current, Inode, LIVE_DIRTY, LIVE_WRITTEN};
use crate::medium::layout::{
    COMMIT, COMMIT_CHECKSUMMED, COMMIT_WRITTEN, Commit, IDENTITY, Identity, LINE, Listed, SLOT,
};
use crate::medium::now;
use crate::txn::Operations;
use crate::txn::change_list::word_entry;
use crate::txn::op::Op;
use crate::txn::redo::LIVE_RECORD;
use pmem::FenceBatch;
use rustix::io::Errno;
use smallvec::SmallVec;
use vfs::{Kind, Node};
use zerocopy::IntoBytes;

/// A word to be stored: the step that makes a change happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Store {
    pub(crate) at: u64,
    pub(crate) value: u64,
}

/// A slot of a directory entry to be changed in place: its offset and its new bytes.
pub(crate) type SlotStore = (u64, [u8; SLOT as usize]);

/// A locked inode.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub(crate) inode: Inode,
    pub(crate) identity: Identity,
    pub(crate) commit: Commit,
    pub(crate) current: Current,
    before: (Identity, Commit),
}

impl Held {
    pub(crate) fn is_directory(&self) -> bool {
        self.identity.kind() == Some(Kind::Directory)
    }

    pub(crate) fn is_file(&self) -> bool {
        self.identity.kind() == Some(Kind::File)
    }

    /// A directory's contents change: entries and subdirectories come or go.
    pub(crate) fn change_entries(&mut self, entries: i64, directories: i32) {
        let time = now();
        self.commit.size = self.commit.size.saturating_add_signed(entries);
        self.commit.aux = self.commit.aux.saturating_add_signed(directories);
        self.commit.mtime = time;
        self.commit.flags |= COMMIT_WRITTEN;
        self.current.size = self.commit.size;
        self.current.mtime = time;
        self.current.ctime = time;
        self.current.flags |= LIVE_WRITTEN;
    }

    /// The identity changes: so does the change time.
    pub(crate) fn touch(&mut self) {
        let time = now();
        self.identity.ctime = time;
        self.commit.flags &= !COMMIT_WRITTEN;
        self.current.ctime = time;
        self.current.flags &= !LIVE_WRITTEN;
    }
}

impl Operations {
    /// The inode number of a node that a caller named.
    pub(crate) fn inode_of(&self, node: Node) -> Result<Inode> {
        self.inode(node.ino).map_err(|_| Errno::STALE)
    }

    /// Reads an inode whose lock the caller's operation holds.
    pub(crate) fn held(&self, node: Node) -> Result<Held> {
        let (inode, identity) = self.identity_of(node)?;
        let (mut commit, _) = self.commit_line(inode, identity.generation)?;
        if identity.kind() == Some(Kind::File) && commit.flags & COMMIT_CHECKSUMMED != 0 {
            // The bytes that it sums are durable since its call returned.
            commit = commit.without_sum();
        }
        let current = self.current(inode)?;
        let before = (identity, commit);
        if identity.kind() == Some(Kind::File) && current.flags & LIVE_DIRTY != 0 {
            // CRASH: a lazy size is newer than one slot, by its number. A commit of something else
            // would pass for newer, and lose the size if this process died then: it carries it.
            commit.size = current.size;
        }
        Ok(Held { inode, identity, commit, current, before })
    }
}

impl Op<'_> {
    /// Commits all changes of the locked inodes, words and slots at once.
    pub(crate) fn commit_held(
        &mut self,
        held: &[&Held],
        words: &[Store],
        slots: &[SlotStore],
    ) -> Result<()> {
        if let ([one], [], []) = (held, words, slots)
            && one.is_file()
        {
            return self.commit_file(one);
        }
        let engine = self.engine;
        for word in words {
            self.undo(word.at, 8)?;
        }
        for &(at, _) in slots {
            self.undo(at, SLOT)?;
        }
        for one in held {
            if one.identity != one.before.0 && !injected(Bug::LinkCountOutside) {
                self.undo_identity(one.inode)?;
            }
            if one.commit != one.before.1 {
                self.undo_commit(one.inode, one.identity.generation)?;
            }
        }
        if !self.transaction.is_open() {
            // A change to what already is, within one tick of the clock.
            return self.publish_held(held);
        }
        // PERSIST: the undo images, and all new structures that the words publish, are durable
        // before anything changes in place.
        // CRASH: until the lane's number moves, recovery puts everything back.
        let durable = self.seal();
        let mut changes = FenceBatch::default();
        for word in words {
            changes.add(engine.region.store64(word.at, word.value)?.flush());
        }
        for (at, bytes) in slots {
            changes.add(engine.region.write(*at, bytes)?.flush());
        }
        for one in held {
            if one.identity != one.before.0 {
                let sealed = one.identity.sealed(one.inode);
                let at = one.inode.at(IDENTITY);
                changes.add(engine.region.write(at, sealed.as_bytes())?.flush());
            }
            if one.commit != one.before.1 {
                let generation = one.identity.generation;
                let stored = engine.store_commit(one.inode, generation, one.commit, &durable)?;
                changes.add(stored);
            }
        }
        self.commit(changes)?;
        self.publish_held(held)
    }

    /// The same of one file alone, by a redo record, which nobody has to take back: one fence less.
    /// It tells of words of the identity line, which change only when somebody works on the inode,
    /// and of the commit slot, beside which it counts.
    fn commit_file(&mut self, held: &Held) -> Result<()> {
        let (engine, inode, generation) = (self.engine, held.inode, held.identity.generation);
        let identity = held.identity.sealed(inode);
        let moves = held.commit != held.before.1;
        let words = identity_words(&held.before.0.sealed(inode), &identity);
        let mut list: SmallVec<[Listed; 12]> =
            words.map(|(at, word)| word_entry(inode.at(IDENTITY) + at, word)).collect();
        if list.is_empty() && !moves {
            // A change to what already is, within one tick of the clock.
            return self.publish_held(&[held]);
        }
        // A page that is lost shows before the record counts.
        engine.region.load64(inode.at(IDENTITY))?;
        if moves {
            let (at, words) = engine.next_slot(inode, generation, held.commit)?;
            list.extend((at..).step_by(8).zip(words).map(|(at, word)| word_entry(at, word)));
        }
        let data_area = (engine.data_area(u64::from(self.index())), engine.data_area_bytes);
        let (durable, recorded) = self.record_list((inode, generation), &list, data_area, moves)?;
        let mut changes = FenceBatch::default();
        let at = inode.at(IDENTITY);
        changes.add(engine.region.commit_write(at, identity.as_bytes(), &durable)?.flush());
        if moves {
            changes.add(engine.store_commit(inode, generation, held.commit, &durable)?);
        }
        self.pend(changes);
        if !injected(Bug::DataNotFenced) {
            // PERSIST: the next change of any of it needs no record.
            let _ = self.fence();
        }
        let flags = held.current.flags & !LIVE_RECORD | recorded.flags & LIVE_RECORD;
        let current = Current { flags, ..held.current };
        self.publish_held(&[&Held { current, ..*held }])
    }

    /// Stores the size of a file that is newer than its commit slot: in flight. What is committed
    /// beside it is not newer than its bytes, then.
    pub(crate) fn pend_size(&mut self, held: &Held) -> Result<()> {
        if held.commit != held.before.1 {
            self.announce_line(held.inode.at(COMMIT))?;
            let generation = held.identity.generation;
            let stored = self.engine.store_slot(held.inode, generation, held.commit)?;
            self.pend(stored);
        }
        Ok(())
    }

    /// What is current of these inodes is what was committed.
    pub(crate) fn publish_held(&mut self, held: &[&Held]) -> Result<()> {
        for one in held {
            let (engine, mut current) = (self.engine, one.current);
            if current.flags & LIVE_DIRTY != 0 {
                // The size and times that were newer than the old commit slot are so beside the
                // new.
                let generation = one.identity.generation;
                current.flags = engine.dirty_flags(one.inode, generation, current.flags)?;
            }
            engine.set_current(one.inode, &current)?;
        }
        Ok(())
    }
}

/// The words in which an identity line differs from another: place in the line, and the new word.
fn identity_words(before: &Identity, after: &Identity) -> impl Iterator<Item = (u64, u64)> + use<> {
    let [before, after]: [[u64; (LINE / 8) as usize]; 2] =
        [zerocopy::transmute!(*before), zerocopy::transmute!(*after)];
    (0..)
        .step_by(8)
        .zip(before.into_iter().zip(after))
        .filter_map(|(at, (old, new))| (old != new).then_some((at, new)))
}

const _: () = assert!(SLOT == LINE);
