//! Brief creates and unlinks: one name of a file in one bucket of a directory, by the protocol of
//! `txn/acquire.rs` without waiting for a lock, as `data/write.rs` does for writes.
//!
//! All that can be known before the first lock is looked up there, under the sequence numbers of
//! the inodes, and stands if these have not moved once the locks are held. Whatever is not that
//! simple (a bucket that is full, empty, or becomes so; a long name; two names of one hash; a file
//! with several names, with nodes or attributes, or open; somebody else who holds a lock or the
//! record; no inode that the record keeps; a closed gate; damage) is left to the long way
//! (`namespace/mod.rs`), with nothing done.
//!
//! What this process remembers is entered before the first store, under the numbers that the inodes
//! will have: those processor instructions that wait for all stores under way come before there are
//! any. An operation that fails or dies leaves other numbers, so nothing of that is ever believed.
//!
//! Persistence order, as in `namespace/mod.rs`. Create: inode and entry; fence; the directory's
//! commit line and the occupancy word; fence. Unlink: these two; fence; then the inode is free.
//!
//! Locks: the directory's inode, and the file's. None is waited for.

use crate::Result;
use crate::cache::Asked;
use crate::data::map::{KIND_LEAF, Map};
use crate::ground::layout::{
    ATIME, BLOCK, COMMIT, COMMIT_WRITTEN, Commit, DIRECT, IDENTITY, INODE, Identity, LINE,
    SLOT_NAME, VOLATILE, WORDS,
};
use crate::inject::{self, Bug, injected};
use crate::inode::commit::next_sequence;
use crate::inode::{
    COPY, Current, HINT_COPY, HINTS, Inode, LIVE_DAMAGED, LIVE_DIRTY, LIVE_REDO, LIVE_WRITTEN,
    OPENS_COUNT, SET_ID, index,
};
use crate::namespace::bucket::{Dir, Target, hash_word_at, occupancy_at, slot_at, slot_words};
use crate::namespace::directory::Spot;
use crate::namespace::dirhash::checked;
use crate::new_inode::inherited;
use crate::txn::acquire::{Anchor, Locked, Seen};
use crate::txn::record::Record;
use crate::txn::release::Freed;
use crate::volume::{Volume, now};
use pmem::{Durable, InFlight};
use rustix::io::Errno;
use std::hint::cold_path;
use std::sync::atomic::Ordering;
use vfs::{Desc, Kind, NewNode, Node, OpenFlags};
use zerocopy::IntoBytes;

/// Words of a line.
const LINE_WORDS: usize = (LINE / 8) as usize;

/// The locked inodes of a call that changes names in one bucket, the directory first.
#[derive(Clone, Copy)]
pub(crate) struct Named<'v, const N: usize> {
    pub(crate) locked: Locked<'v, N>,
    /// The directory's live flags.
    pub(crate) flags: u64,
}

/// What a look told of an inode, beside its identity.
#[derive(Clone, Copy)]
pub(crate) struct Looked<'v> {
    pub(crate) seen: Seen<'v>,
    pub(crate) flags: u64,
    pub(crate) opens: u64,
}

/// A name that comes or goes.
pub(crate) struct Step<'a> {
    pub(crate) dir: Node,
    pub(crate) asked: &'a Asked,
    pub(crate) spot: Spot,
    pub(crate) time: i64,
}

impl Volume {
    /// Makes a regular file and opens it, as [`Volume::create_opened`], if that is a brief matter.
    /// `None`: nothing has been done.
    pub(crate) fn create_briefly(
        &self,
        dir: Node,
        name: &[u8],
        new: &NewNode<'_>,
        flags: OpenFlags,
    ) -> Result<Option<Desc>> {
        let special = new.rdev != 0 || new.mode & SET_ID != 0;
        if new.kind != Kind::File || special || name.len() > SLOT_NAME {
            return Ok(None);
        }
        self.check_writable()?;
        let Some(asked) = self.ask_for(dir, name) else { return Ok(None) };
        asked.check()?;
        let Some((parent, identity)) = self.see_directory(dir) else { return Ok(None) };
        let at = Dir { inode: parent.seen.inode, generation: dir.generation };
        let absent = matches!(self.remembered(&asked), Some(Err(Errno::NOENT)));
        let hash = self.name_hash(asked.name());
        let Ok(Some(spot)) = self.spot_for(at, hash, absent) else { return Ok(None) };
        let index = self.own_record();
        let record = Record::new(self, index)?;
        if !self.keeps_at_home(&record)? {
            return Ok(None);
        }
        let step = Step { dir, asked: &asked, spot, time: now() };
        let Ok(claim) = self.claim_description() else { return Ok(None) };
        let named = match self.try_names(index, [parent.seen], parent.flags) {
            Ok(Some(named)) => named,
            other => {
                self.free_description(claim.0, claim.1)?;
                return other.map(|_| None);
            }
        };
        match named.create(&step, new, inherited(new.kind, &identity)) {
            Ok(Some(node)) => {
                // Nobody can find it yet: nobody can be executing it.
                let opened = self.open_claimed(claim, node, new.kind, flags, Some(dir));
                named.locked.end(LINES, Freed::default())?;
                opened.map(Some)
            }
            other => {
                self.free_description(claim.0, claim.1)?;
                named.locked.fail(LINES)?;
                other.map(|_| None)
            }
        }
    }

    /// Takes a file's only name, as [`Volume::unlink_known`], if that is a brief matter. `false`:
    /// nothing has been done.
    pub(crate) fn unlink_briefly(&self, dir: Node, name: &[u8], target: Target) -> Result<bool> {
        if target.kind != Kind::File || name.len() > SLOT_NAME {
            return Ok(false);
        }
        self.check_writable()?;
        let Some(asked) = self.ask_for(dir, name) else { return Ok(false) };
        asked.check()?;
        let Some((parent, _)) = self.see_directory(dir) else { return Ok(false) };
        let Some((child, identity)) = self.see(target.node) else { return Ok(false) };
        let file = identity.kind() == Some(Kind::File) && identity.nlink == 1;
        if !file || child.flags & LIVE_REDO != 0 || child.opens & OPENS_COUNT != 0 {
            return Ok(false);
        }
        let mut blocks = [0; DIRECT as usize];
        let Ok(Some(count)) = self.direct_blocks(child.seen.inode, &identity, &mut blocks) else {
            return Ok(false);
        };
        let at = Dir { inode: parent.seen.inode, generation: dir.generation };
        let hash = self.name_hash(asked.name());
        let Ok(Some(spot)) = self.spot_of(at, hash, asked.name(), target) else {
            return Ok(false);
        };
        let index = self.own_record();
        let step = Step { dir, asked: &asked, spot, time: now() };
        let seen = [parent.seen, child.seen];
        let Some(named) = self.try_names(index, seen, parent.flags)? else { return Ok(false) };
        match named.unlink(&step) {
            Ok(true) => {
                let freed = Freed { blocks: &blocks[..count], inode: Some(target.node.ino) };
                named.locked.end(LINES, freed)?;
                if self.local.sparse.load(Ordering::Relaxed) != 0 {
                    self.empty_sparse_chunk();
                }
                Ok(true)
            }
            other => named.locked.fail(LINES).and(other),
        }
    }

    /// Takes the locks of what was seen, without waiting; `None`: some of it is not to be had, or
    /// has changed.
    #[inline]
    pub(crate) fn try_names<'v, const N: usize>(
        &'v self,
        index: u32,
        seen: [Seen<'v>; N],
        flags: u64,
    ) -> Result<Option<Named<'v, N>>> {
        let Some(locked) = self.try_acquire(index, Anchor::InUse, seen)? else { return Ok(None) };
        if (0..N).any(|at| locked.seen[at].sequence != seen[at].sequence) {
            cold_path();
            // One of them may be free by now, and its extent wait for this call to look elsewhere.
            return locked.step_back(N).map(|()| None);
        }
        Ok(Some(Named { locked, flags }))
    }

    /// A look at an inode that is at rest and sound; `None` says nothing.
    #[inline]
    pub(crate) fn see(&self, node: Node) -> Option<(Looked<'_>, Identity)> {
        let inode = self.inode(node.ino).ok()?;
        let live = self.live_lines(inode).ok()?;
        let [_, sequence, _, _, _, opens, flags, ready] = live.0.eight(0).ok()?;
        if ready != u64::from(self.epoch) || sequence & 1 != 0 || flags & LIVE_DAMAGED != 0 {
            return None;
        }
        let identity = self.identity_of(node).ok()?.1;
        Some((Looked { seen: Seen { inode, live, sequence }, flags, opens }, identity))
    }

    /// The same, of a directory that has a name.
    #[inline]
    pub(crate) fn see_directory(&self, node: Node) -> Option<(Looked<'_>, Identity)> {
        self.see(node).filter(|(looked, identity)| {
            let directory = identity.kind() == Some(Kind::Directory) && identity.nlink != 0;
            directory && looked.flags & LIVE_DIRTY == 0
        })
    }

    /// All blocks of a file that has nothing but direct words, and how many; `None`: it has more.
    #[inline]
    fn direct_blocks(
        &self,
        inode: Inode,
        identity: &Identity,
        blocks: &mut [u64; DIRECT as usize],
    ) -> Result<Option<usize>> {
        let words = self.region.span::<{ 2 * LINE_WORDS }>(inode.at(WORDS))?;
        let (first, second) = (words.eight(0)?, words.eight(LINE_WORDS)?);
        let [a, b, c, d, root, attributes, ..] = second;
        if root | attributes != 0 {
            return Ok(None);
        }
        let mut count = 0;
        if first.iter().chain(&[a, b, c, d]).any(|&word| word != 0) {
            let map = Map::new(self, inode, identity);
            for (logical, &word) in first.iter().chain(&[a, b, c, d]).enumerate() {
                match self.open_word(word, map.key(logical as u64))? {
                    None => {}
                    Some(word) if word.kind == KIND_LEAF => {
                        blocks[count] = word.block;
                        count += 1;
                    }
                    Some(_) => return Ok(None),
                }
            }
        }
        Ok(Some(count))
    }
}

impl<const N: usize> Named<'_, N> {
    /// Makes the file and its name, durably; `None`: nothing has been done.
    fn create(&self, step: &Step<'_>, new: &NewNode<'_>, flags: u16) -> Result<Option<Node>> {
        let Locked { volume, owner, record, .. } = self.locked;
        let Some(ino) = record.take_kept()? else { return Ok(None) };
        let mut named = false;
        let made = self.make(step, new, (Inode(ino), flags), &mut named);
        if made.is_err() && !named && !volume.is_lost_block(ino * INODE / BLOCK) {
            volume.give_back_inode(&record, owner.op(), ino)?;
        }
        made.map(Some)
    }

    /// The same with an inode of its own. `named`: there may be such a file now.
    fn make(
        &self,
        step: &Step<'_>,
        new: &NewNode<'_>,
        (inode, flags): (Inode, u16),
        named: &mut bool,
    ) -> Result<Node> {
        let (Locked { volume, record, .. }, time, spot) = (self.locked, step.time, step.spot);
        let generation = volume.generation(record.generation(volume)?);
        let number = record.sequence(volume)? << 32;
        let identity = Identity {
            flags,
            generation,
            mode: new.kind.mode_bits() | new.mode & 0o7777,
            uid: new.uid,
            gid: new.gid,
            nlink: 1,
            btime: time,
            ctime: time,
            ..Identity::default()
        };
        let identity = identity.sealed(inode);
        let commit =
            Commit { mtime: time, flags: COMMIT_WRITTEN, sequence: 1, ..Commit::default() };
        let commit = commit.sealed(inode, generation);
        let mut image = [0_u64; VOLATILE as usize / 8];
        image[..LINE_WORDS].copy_from_slice(&zerocopy::transmute!(identity) as &[u64; LINE_WORDS]);
        let slots: [u64; LINE_WORDS] = zerocopy::transmute!([commit, Commit::default()]);
        image[LINE_WORDS..2 * LINE_WORDS].copy_from_slice(&slots);
        image[ATIME as usize / 8] = time.cast_unsigned();
        let node = Node { ino: inode.0, generation };
        let target = Target { node, kind: new.kind };

        let (line, newest) = self.directory_slots()?;
        let changed = changed(line[newest], 1, time);
        volume.enter_new_file(inode.0, &identity, number);
        self.carry(step, Some(target), changed.size);

        // Nobody can reach it. What says that the others are valid comes last.
        let live = volume.live_lines(inode)?;
        let mut hints = [0; LINE_WORDS];
        hints[HINT_COPY as usize] = 1;
        live.0.store_eight(index(HINTS), &hints)?;
        live.0.store_eight(index(COPY), &slots)?;
        let (free, ready) = (u64::from(volume.epoch) << 32, u64::from(volume.epoch));
        let now = time.cast_unsigned();
        live.0.store_eight(0, &[free, number, 0, now, now, 0, LIVE_WRITTEN, ready])?;

        let region = &volume.region;
        let stored = region.stream(inode.offset(), image.as_bytes())?;
        let entry = slot_words(spot.key, step.asked.padded(), step.asked.name().len(), target);
        let at = slot_at(spot.bucket, spot.slot);
        let stored = stored.and(region.write_line(at, &zerocopy::transmute!(entry))?);
        // Through the cache: the next search will read it.
        let word = region.store64(hash_word_at(spot.bucket, spot.slot), checked(spot.key))?;
        let stored = stored.and(word.flush());
        // PERSIST: inode and entry before the word that makes them count.
        // CRASH: until that is durable, the inode is not reachable, so not allocated.
        let durable = fence_unless(stored, Bug::NameBeforeInode);
        *named = true;
        let taken = spot.occupancy | 1 << spot.slot;
        self.commit(step, taken, (line, newest, changed), Some(&durable))?;
        Ok(node)
    }

    /// Takes the name and the file; `false`: somebody has opened it, and nothing has been done.
    fn unlink(&self, step: &Step<'_>) -> Result<bool> {
        let (Locked { volume, seen, .. }, spot) = (self.locked, step.spot);
        let child = &seen[1];
        if !volume.close_for_good(child.inode)? {
            return Ok(false);
        }
        let done = self.directory_slots().and_then(|(line, newest)| {
            let changed = changed(line[newest], -1, step.time);
            self.carry(step, None, changed.size);
            let left = spot.occupancy & !(1 << spot.slot);
            // A name that goes publishes nothing.
            self.commit(step, left, (line, newest, changed), None)
        });
        if let Err(errno) = done {
            volume.allow_opens(child.inode)?;
            return Err(errno);
        }
        // CRASH: as in `namespace/mod.rs`: nothing reaches the inode any more: this is not flushed.
        let _ = volume.region.store64(child.inode.at(IDENTITY), 0)?;
        Ok(true)
    }

    /// The commit slots of the directory, and which is the newest.
    #[inline]
    pub(crate) fn directory_slots(&self) -> Result<([Commit; 2], usize)> {
        let Locked { volume, seen, .. } = self.locked;
        let Seen { inode, live, .. } = seen[0];
        match volume.slots_beside(inode, live)? {
            (slots, Some(newest)) => Ok((slots, newest)),
            (slots, None) => {
                let identity = volume.identity(inode)?;
                Ok((slots, Volume::newest_slot(inode, identity.generation, slots)?.1))
            }
        }
    }

    /// Enters what the name means, and what the directory's attributes are, from this operation's
    /// end on.
    #[inline]
    fn carry(&self, step: &Step<'_>, meaning: Option<Target>, entries: u64) {
        let Locked { volume, seen, .. } = self.locked;
        let numbers @ (_, after) = (seen[0].sequence, seen[0].sequence + 2);
        let known = step.asked.enter(after, meaning);
        volume.carry_own(step.dir, numbers, known, false);
        volume.carry_directory(step.dir, numbers, (entries, step.time));
    }

    /// Stores the directory's commit line and the word that says which slots are in use, durably.
    #[inline]
    pub(crate) fn commit(
        &self,
        step: &Step<'_>,
        occupancy: u64,
        (mut line, newest, mut changed): ([Commit; 2], usize, Commit),
        after: Option<&Durable<'_>>,
    ) -> Result<()> {
        let (Locked { volume, record, seen, .. }, flags) = (self.locked, self.flags);
        let Seen { inode, live, .. } = seen[0];
        record.note(inode.at(COMMIT))?;
        changed.sequence = next_sequence(changed.sequence);
        let next = if injected(Bug::CommitInPlace) { newest } else { 1 - newest };
        line[next] = changed.sealed(inode, step.dir.generation);
        let line: [u8; LINE as usize] = zerocopy::transmute!(line);
        let stored = match after {
            Some(after) => volume.region.commit_line(inode.at(COMMIT), &line, after)?,
            None => volume.region.write_line(inode.at(COMMIT), &line)?,
        };
        live.set_copy(&line, next)?;
        let at = occupancy_at(step.spot.bucket);
        record.note_second(at)?;
        // PERSIST: what this word publishes is durable (the witness); the word itself must be
        // before the locks go.
        let word = match after {
            Some(after) => volume.region.commit64(at, checked(occupancy), after)?,
            None => volume.region.store64(at, checked(occupancy))?,
        };
        let word = (!injected(Bug::NameNotFlushed)).then(|| word.flush());
        let _ = stored.and_any(word).fence();
        let Commit { size, mtime, .. } = changed;
        live.set_current(&Current { size, mtime, ctime: mtime, flags: flags | LIVE_WRITTEN })
    }
}

/// Lines that these calls name in their records: a commit slot, a word of a bucket.
pub(crate) const LINES: usize = 2;

/// A directory's newest commit slot with so many entries more.
pub(crate) fn changed(newest: Commit, entries: i64, time: i64) -> Commit {
    Commit {
        size: newest.size.saturating_add_signed(entries),
        mtime: time,
        flags: newest.flags | COMMIT_WRITTEN,
        ..newest
    }
}

/// A fence for what is in flight, unless this fault is injected.
#[inline]
pub(crate) fn fence_unless(stored: InFlight<'_>, bug: Bug) -> Durable<'_> {
    if injected(bug) { inject::forged() } else { stored.fence() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, directory, faults, file, fresh, stay_on_one_cpu};
    use rustix::mm::MprotectFlags;
    use std::collections::BTreeMap;
    use vfs::FileSystem as _;

    const WRITES: OpenFlags = OpenFlags(libc::O_RDWR);

    fn target(volume: &Volume, dir: Node, name: &[u8]) -> Target {
        volume.lookup_target(dir, name).expect("a name")
    }

    #[test]
    fn a_usual_name_is_a_brief_matter() {
        stay_on_one_cpu();
        let (volume, root) = fresh();
        volume.create(root, b"first", &file()).unwrap();
        let before = volume.attributes(root).unwrap();
        let space = volume.free_space().unwrap();
        let desc = volume.create_briefly(root, b"a", &file(), WRITES).unwrap().expect("brief");
        let found = target(&volume, root, b"a");
        assert_eq!(volume.describe(desc).unwrap().0, found.node);
        let told = volume.attributes(found.node).unwrap();
        Volume::forget_attributes(found.node);
        assert_eq!(volume.attributes(found.node), Ok(told), "remembered as it is");
        let parent = volume.attributes(root).unwrap();
        Volume::forget_attributes(root);
        assert_eq!(volume.attributes(root), Ok(parent), "remembered as it is");
        assert_eq!((parent.size, parent.nlink), (before.size + 1, before.nlink));

        assert_eq!(volume.unlink_briefly(root, b"a", found), Ok(false), "it is open");
        volume.write(desc, &[vfs::UserIn::new(&[7; 9000])]).unwrap();
        volume.close(desc).unwrap();
        assert_eq!(volume.unlink_briefly(root, b"a", found), Ok(true));
        assert_eq!(volume.lookup(root, b"a"), Err(Errno::NOENT));
        assert_eq!(volume.attributes(found.node), Err(Errno::STALE));
        assert_eq!(volume.attributes(root).unwrap().size, before.size);
        assert_eq!((faults(&volume), volume.free_space()), (0, Ok(space)));
    }

    #[test]
    fn what_is_not_usual_is_left_alone() {
        stay_on_one_cpu();
        let (volume, root) = fresh();
        let brief = |name: &[u8]| volume.create_briefly(root, name, &file(), WRITES);
        assert_eq!(brief(b"first"), Ok(None), "no bucket");
        volume.create(root, b"first", &file()).unwrap();
        assert_eq!(brief(b"first"), Ok(None), "it is there");
        assert_eq!(brief(&[b'x'; 60]), Ok(None), "two slots");
        assert_eq!(brief(b"a/b"), Err(Errno::INVAL));
        let first = target(&volume, root, b"first");
        assert_eq!(volume.unlink_briefly(root, b"first", first), Ok(false), "the last one");
        let second = volume.create(root, b"second", &file()).unwrap();
        volume.link(second, root, b"third").unwrap();
        let linked = target(&volume, root, b"second");
        assert_eq!(volume.unlink_briefly(root, b"second", linked), Ok(false), "two names");
        volume.create(root, b"dir", &directory()).unwrap();
        let dir = target(&volume, root, b"dir");
        assert_eq!(volume.unlink_briefly(root, b"dir", dir), Ok(false), "a directory");
        assert_eq!(volume.unlink_briefly(root, b"second", first), Ok(false), "another file");
        // Somebody else works on the directory.
        let mut op = volume.begin().unwrap();
        op.lock(&[volume.inode_of(root).unwrap()]).unwrap();
        assert_eq!(brief(b"new"), Ok(None), "locked");
        assert_eq!(volume.unlink_briefly(root, b"first", first), Ok(false), "locked");
        drop(op);
        assert!(brief(b"new").unwrap().is_some());
        assert_eq!(faults(&volume), 0);
    }

    #[test]
    fn random_names_against_a_map() {
        let (volume, root) = fresh();
        volume.create(root, b"first", &file()).unwrap();
        let space = volume.free_space().unwrap();
        let (mut random, mut model) = (Random::new(7), BTreeMap::new());
        let (mut created, mut unlinked) = (0, 0);
        for step in 0..20_000 {
            let name = format!("name {}", random.below(600)).into_bytes();
            if random.below(10) < if step / 5_000 % 2 == 0 { 7 } else { 2 } {
                let brief = volume.create_briefly(root, &name, &file(), WRITES);
                created += u32::from(matches!(brief, Ok(Some(_))));
                let made = match brief.transpose() {
                    Some(made) => made,
                    None => volume.create_opened(root, &name, &file(), WRITES),
                };
                match (made, model.get(&name)) {
                    (Err(Errno::EXIST), Some(_)) => {}
                    (Ok(desc), None) => {
                        model.insert(name, volume.describe(desc).unwrap().0);
                        volume.close(desc).unwrap();
                    }
                    (found, known) => panic!("{found:?} {known:?}"),
                }
            } else {
                let found = volume.lookup_target(root, &name);
                assert_eq!(found.map(|found| found.node).ok(), model.remove(&name));
                if let Ok(found) = found {
                    assert_eq!(found.kind, Kind::File);
                    if volume.unlink_briefly(root, &name, found).unwrap() {
                        unlinked += 1;
                    } else {
                        volume.unlink_known(root, &name, Some(found)).unwrap();
                    }
                }
            }
            assert_eq!(volume.attributes(root).unwrap().size, model.len() as u64 + 1);
        }
        assert!(created > 0 && unlinked > 0, "{created} and {unlinked} were brief");
        for (name, node) in &model {
            assert_eq!(volume.lookup(root, name), Ok(*node));
            volume.unlink_known(root, name, Some(target(&volume, root, name))).unwrap();
        }
        assert_eq!((faults(&volume), volume.free_space()), (0, Ok(space)));
    }

    /// What a dying operation has entered is never believed; what one that ends has is.
    #[test]
    fn nothing_of_an_operation_that_dies_is_remembered() {
        let (volume, root) = fresh();
        volume.create(root, b"first", &file()).unwrap();
        let asked = volume.ask_for(root, b"absent").unwrap();
        let hash = volume.name_hash(asked.name());
        for dies in [true, false] {
            let looked = volume.see_directory(root).unwrap().0;
            let at = Dir { inode: looked.seen.inode, generation: root.generation };
            let spot = volume.spot_for(at, hash, false).unwrap().unwrap();
            let step = Step { dir: root, asked: &asked, spot, time: now() };
            let index = volume.own_record();
            let named = volume.try_names(index, [looked.seen], looked.flags).unwrap().unwrap();
            named.carry(&step, None, 1);
            if dies {
                volume.after_owner_died(looked.seen.inode).unwrap();
                named.locked.release().unwrap();
                named.locked.record.give_back(LINES).unwrap();
                assert_eq!(volume.remembered(&asked), None);
            } else {
                named.locked.end(LINES, Freed::default()).unwrap();
                assert_eq!(volume.remembered(&asked), Some(Err(Errno::NOENT)));
            }
        }
    }

    /// The second inode's page fails between the look and its lock: the first one's lock goes back
    /// too.
    #[test]
    fn a_lock_that_cannot_be_read_leaves_nothing_taken() {
        let (volume, root) = fresh();
        for number in 0..64 {
            volume.create(root, format!("n{number}").as_bytes(), &file()).unwrap();
        }
        let page = |node: Node| node.ino * INODE / BLOCK;
        let far = (0..64).map(|number| target(&volume, root, format!("n{number}").as_bytes()));
        let far = far.map(|far| far.node).find(|&node| page(node) != page(root)).unwrap();
        let seen = [volume.see_directory(root).unwrap().0.seen, volume.see(far).unwrap().0.seen];
        let at = volume.region.base().wrapping_add((page(far) * BLOCK) as usize);
        // SAFETY: a page of the region's own mapping, which only guarded copies touch.
        unsafe { rustix::mm::mprotect(at.cast(), BLOCK as usize, MprotectFlags::empty()) }.unwrap();
        let index = volume.own_record();
        assert!(matches!(volume.try_names(index, seen, 0), Err(Errno::IO)));
        assert_eq!(volume.operation_owner(index), Ok(None));
        assert_eq!(volume.operation_works(index), Ok(false));
        let now = seen[0].live.0.eight(0).unwrap();
        assert_eq!(now[..2], [u64::from(volume.epoch) << 32, seen[0].sequence], "free, and even");
        volume.create(root, b"new", &file()).unwrap();
    }
}
