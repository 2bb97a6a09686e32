//! Brief renames: to a name that nothing has, in the bucket in which the old one lies, by the
//! protocol of `brief_names.rs` and in as few steps.
//!
//! Whatever is not that simple (two directories, two buckets, a name that is replaced, an exchange,
//! a long name, a full bucket, two names of one hash, a file whose size or bytes are not settled,
//! and what `brief_names.rs` leaves out) is left to the long way (`rename.rs`), with nothing done.
//!
//! Persistence order, as in `rename.rs`: the new entry and the moved inode's change time; fence;
//! the directory's commit line and the occupancy word; fence.
//!
//! Locks: the directory's inode, and that of what moves. None is waited for.

use crate::Result;
use crate::brief_names::{LINES, Looked, Named, Step, changed, fence_unless};
use crate::cache::Asked;
use crate::ground::layout::{MOVED, SLOT_NAME};
use crate::inject::{Bug, injected};
use crate::inode::{CTIME, LIVE_DAMAGED, LIVE_DIRTY, LIVE_REDO, index};
use crate::namespace::bucket::{Dir, Target, hash_word_at, slot_at, slot_words};
use crate::namespace::directory::Spot;
use crate::namespace::dirhash::checked;
use crate::txn::acquire::{Locked, Seen};
use crate::txn::release::Freed;
use crate::volume::{Volume, now};
use vfs::{Kind, Node};

impl Volume {
    /// Gives what `from` leads to (`source`, as was found a moment ago) the name `to`, which led
    /// nowhere, if that is a brief matter. `false`: nothing has been done.
    pub(crate) fn rename_briefly(
        &self,
        dir: Node,
        from: &[u8],
        to: &[u8],
        source: Target,
    ) -> Result<bool> {
        if from.len().max(to.len()) > SLOT_NAME || injected(Bug::RenameDropsFirst) {
            return Ok(false);
        }
        self.check_writable()?;
        let Some(from) = self.ask_for(dir, from) else { return Ok(false) };
        let Some(to) = self.ask_for(dir, to) else { return Ok(false) };
        from.check()?;
        to.check()?;
        let Some((parent, directory)) = self.see_kind(dir) else { return Ok(false) };
        let Some((child, (kind, _))) = self.see_kind(source.node) else { return Ok(false) };
        let is_parent = matches!(directory, (Kind::Directory, 1..));
        let busy = parent.flags & LIVE_DIRTY | child.flags & (LIVE_DIRTY | LIVE_REDO);
        if !is_parent || kind != source.kind || busy != 0 || child.seen.inode == parent.seen.inode {
            return Ok(false);
        }
        let at = Dir { inode: parent.seen.inode, generation: dir.generation };
        let hashes = [self.name_hash(from.name()), self.name_hash(to.name())];
        let entry = |key| slot_words(key, from.padded(), from.name().len(), source);
        let Ok(Some((old, spot))) = self.spots_of(at, hashes, entry) else { return Ok(false) };
        let own = self.own_record();
        let step = Step { dir, asked: &to, spot, time: now() };
        let seen = [parent.seen, child.seen];
        let Some(named) = self.try_names(own, seen, parent.flags)? else { return Ok(false) };
        match named.rename(&step, &from, old, source) {
            Ok(()) => named.locked.end(LINES, Freed::default()).map(|()| true),
            Err(errno) => named.locked.fail(LINES).and(Err(errno)),
        }
    }

    /// As [`Volume::see`], with kind and number of names of what was seen.
    #[inline]
    fn see_kind(&self, node: Node) -> Option<(Looked<'_>, (Kind, u32))> {
        let inode = self.inode(node.ino).ok()?;
        let live = self.live_lines(inode).ok()?;
        let [_, sequence, _, _, _, opens, flags, ready] = live.0.eight(0).ok()?;
        let rests = ready == u64::from(self.epoch) && sequence & 1 == 0;
        if let Some(known) = self.remembered_kind(node, sequence)
            && rests
            && flags & LIVE_DAMAGED == 0
        {
            return Some((Looked { seen: Seen { inode, live, sequence }, flags, opens }, known));
        }
        let (seen, identity) = self.see(node)?;
        Some((seen, (identity.kind()?, identity.nlink)))
    }
}

impl Named<'_, 2> {
    /// Takes the entry at `old`, that of `from`, away by the word that brings the new one, durably.
    fn rename(&self, step: &Step<'_>, from: &Asked, old: Spot, source: Target) -> Result<()> {
        let (Locked { volume, seen, .. }, spot) = (self.locked, step.spot);
        let child = &seen[1];
        let (line, newest) = self.directory_slots()?;
        let changed = changed(line[newest], 0, step.time);
        let numbers @ (_, after) = (seen[0].sequence, seen[0].sequence + 2);
        let known = from.enter(after, None) & step.asked.enter(after, Some(source));
        volume.carry_own(step.dir, numbers, known, source.kind == Kind::Directory);
        volume.carry_directory(step.dir, numbers, (changed.size, step.time));
        volume.carry_moved(source.node, (child.sequence, child.sequence + 2), step.time);

        let region = &volume.region;
        let entry = slot_words(spot.key, step.asked.padded(), step.asked.name().len(), source);
        let at = slot_at(spot.bucket, spot.slot);
        let stored = region.write_line(at, &zerocopy::transmute!(entry))?;
        // Through the cache: the next search will read it.
        let word = region.store64(hash_word_at(spot.bucket, spot.slot), checked(spot.key))?;
        // A word of its own: a crash may forget or foresee it, as it may a directory's times.
        let moved = region.store64(child.inode.at(MOVED), step.time.cast_unsigned())?;
        let stored = stored.and(word.flush()).and(moved.flush());
        // PERSIST: the new entry before the word that makes it count.
        let durable = fence_unless(stored, Bug::NameBeforeInode);
        // CRASH: that word takes the old name away too: one of both is there, never both or none.
        let left = (spot.occupancy | 1 << spot.slot) & !(1 << old.slot);
        self.commit(step, left, (line, newest, changed), Some(&durable))?;
        child.live.0.store(index(CTIME), step.time.cast_unsigned())?;
        child.live.keep_run(child.sequence, child.sequence + 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{directory, file, fresh};
    use rustix::io::Errno;
    use vfs::{FileSystem as _, RenameFlags};

    fn target(volume: &Volume, dir: Node, name: &[u8]) -> Target {
        volume.lookup_target(dir, name).expect("a name")
    }

    /// What must be the same whichever way a file was renamed.
    fn told(volume: &Volume, dir: Node, node: Node) -> [(u64, u32, bool, bool); 2] {
        let now = now();
        [dir, node].map(|node| {
            Volume::forget_attributes(node);
            let attr = volume.attributes(node).expect("attributes");
            let second = 1_000_000_000;
            (attr.size, attr.nlink, now - attr.mtime < second, now - attr.ctime < second)
        })
    }

    #[test]
    fn the_usual_rename_is_brief_and_does_what_the_long_way_does() {
        let (volume, root) = fresh();
        for (dir, kind) in [(b"p", file()), (b"q", directory())] {
            let dir = volume.create(root, dir, &directory()).expect("a directory");
            let node = volume.create(dir, b"a", &kind).expect("made");
            let source = target(&volume, dir, b"a");
            let before = (volume.sequence_of(dir), volume.sequence_of(node));
            assert_eq!(volume.rename_briefly(dir, b"a", b"b", source), Ok(true));
            let brief = told(&volume, dir, node);
            let after = (volume.sequence_of(dir), volume.sequence_of(node));
            assert_eq!(after, (before.0 + 2, before.1 + 2));
            for (name, meant) in [(b"a", Err(Errno::NOENT)), (b"b", Ok(source))] {
                let asked = volume.ask_for(dir, name).expect("a short name");
                assert_eq!(volume.remembered(&asked), Some(meant), "entered on the way");
            }
            let found = Some((source, None));
            volume
                .rename_at_length((dir, b"b"), (dir, b"a"), RenameFlags(0), found)
                .expect("the long way");
            assert_eq!(told(&volume, dir, node), brief);
            assert_eq!(volume.lookup(dir, b"a"), Ok(node));
            assert_eq!(volume.lookup(dir, b"b"), Err(Errno::NOENT));
        }
    }

    #[test]
    fn what_is_not_usual_is_left_alone() {
        let (volume, root) = fresh();
        let node = volume.create(root, b"a", &file()).expect("made");
        volume.create(root, b"there", &file()).expect("made");
        let source = target(&volume, root, b"a");
        let other = target(&volume, root, b"there");
        let number = volume.sequence_of(root);
        let long = [b'x'; SLOT_NAME + 1];
        for (from, to, source) in [
            (&b"a"[..], &b"there"[..], source),
            (b"a", b"a", source),
            (b"a", &long, source),
            (&long, b"b", source),
            (b"gone", b"b", source),
            (b"a", b"b", other),
        ] {
            assert_eq!(volume.rename_briefly(root, from, to, source), Ok(false), "{to:?}");
        }
        assert_eq!(volume.rename_briefly(root, b"a", b"..", source), Err(Errno::INVAL));
        assert_eq!(volume.rename_briefly(root, b"a", b"b/c", source), Err(Errno::INVAL));
        assert_eq!(volume.sequence_of(root), number, "nothing has been done");

        // Somebody holds a lock.
        for held in [root, node] {
            let mut op = volume.begin().expect("an operation");
            op.lock(&[volume.inode_of(held).expect("an inode")]).expect("locked");
            assert_eq!(volume.rename_briefly(root, b"a", b"b", source), Ok(false));
            op.end().expect("released");
        }
        // Of the names of many buckets few are in one; a rename succeeds either way.
        for number in 0..300 {
            volume.create(root, format!("n{number}").as_bytes(), &file()).expect("made");
        }
        let mut brief = 0;
        for number in 0..300 {
            let (from, to) = (format!("n{number}"), format!("m{number}"));
            let (from, to) = (from.as_bytes(), to.as_bytes());
            let source = target(&volume, root, from);
            if volume.rename_briefly(root, from, to, source).expect("no error") {
                brief += 1;
            } else {
                volume.rename(root, from, root, to, RenameFlags(0)).expect("the long way");
            }
            assert_eq!(volume.lookup(root, to), Ok(source.node));
            assert_eq!(volume.lookup(root, from), Err(Errno::NOENT));
        }
        assert!((1..300).contains(&brief), "{brief}");
        assert_eq!(volume.attributes(root).map(|attr| attr.size), Ok(302));
    }
}
