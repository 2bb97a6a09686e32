//! Mends single structures, each as its fault's [`Action`] says.
//!
//! Mended on its own is what other structures prove: counts of names, `..`, kinds, identity lines,
//! directories. Only with `salvage`: commit lines of files, damaged words of maps (emptied), names
//! that lead to nothing readable (removed), lanes in use. Never: lost memory, a cut region. The
//! caller has the volume to itself, and the state line says *repair*: the next repair finds what a
//! crash left half done. Words change by one store, lines in a transaction, so nothing whole is
//! torn.
//!
//! Nothing here allocates or frees: the free map is rebuilt when all is mended.

use crate::Result;
use crate::cache::Target;
use crate::check::Checks;
use crate::data::map::MapItem;
use crate::inode::Inode;
use crate::medium::dirhash::{EXTRA_BITS, EXTRAS, KEY_BITS, checked, hash_of_key, unchecked};
use crate::medium::layout::{
    BLOCK, BUCKET_SLOTS, COMMIT, COMMIT_WRITTEN, Commit, IDENTITY, Identity, LANE, SLOT, SLOT_NAME,
    Slot,
};
use crate::medium::now;
use crate::namespace::bucket::{Bucket, Cell, Dir, Entry, header, occupancy_at, slot_at};
use crate::namespace::directory::{NODE, NODE_BITS, NODE_WORDS};
use crate::namespace::dirwalk::DirItem;
use crate::recovery::fault::{Action, EntryAt};
use crate::recovery::reachability::Reached;
use crate::txn::journal::{header_word, lane_offset};
use pmem::FenceBatch;
use rustix::io::Errno;
use vfs::{Kind, Node};
use zerocopy::{FromBytes, IntoBytes};

/// All slots of a bucket.
const ALL: u64 = (1 << BUCKET_SLOTS) - 1;

impl Checks {
    /// Does what the action says; `false` if it cannot be done after all. `reached` is what the
    /// last mark reached.
    pub(crate) fn mend(&self, action: &Action, reached: &Reached) -> Result<bool> {
        match *action {
            Action::None => return Ok(false),
            Action::Attach => {}
            Action::Lane(lane) => self.reset_lane(lane)?,
            Action::Names { inode, names } => {
                let identity = self.identity(inode)?;
                self.mend_identity(inode, Identity { nlink: names, ..identity })?;
            }
            Action::Subdirectories { inode, count } => {
                let identity = self.identity(inode)?;
                let (commit, _) = self.commit_line(inode, identity.generation)?;
                self.mend_commit(inode, identity.generation, Commit { aux: count, ..commit })?;
            }
            Action::Parent { inode, parent } => {
                let identity = self.identity(inode)?;
                let Node { ino: parent, generation: parent_generation } = parent;
                self.mend_identity(inode, Identity { parent_generation, parent, ..identity })?;
            }
            Action::Kind { at, kind } => self.mend_kind(at, kind)?,
            Action::Identity { inode, identity } => self.mend_identity(inode, identity)?,
            Action::Commit { inode, at } => return self.rebuild_commit(inode, at),
            Action::Bucket { dir, block, cell } => {
                self.rebuild_bucket(dir, block, cell, reached)?;
            }
            Action::DirWord { dir, at, lo, level } => self.mend_dir_word(dir, at, lo, level)?,
            Action::Clear { at } => self.mend_word(at, 0)?,
            Action::Entry { at } => self.remove_entry(at)?,
        }
        Ok(true)
    }

    /// Stores one word.
    fn mend_word(&self, at: u64, value: u64) -> Result<()> {
        // PERSIST: each step of a repair is durable before the next look.
        let _ = self.region.store64(at, value)?.flush().fence();
        Ok(())
    }

    /// Overwrites bytes of metadata in one transaction.
    fn mend_bytes(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut op = self.begin()?;
        op.work()?;
        op.undo(at, bytes.len() as u64)?;
        let _ = op.seal();
        let changes = self.region.write(at, bytes)?.flush();
        op.commit(changes)?;
        op.end()
    }

    fn mend_identity(&self, inode: Inode, identity: Identity) -> Result<()> {
        self.mend_bytes(inode.at(IDENTITY), identity.sealed(inode).as_bytes())
    }

    /// Replaces the whole commit line: one slot, and none beside it.
    fn mend_commit(&self, inode: Inode, generation: u32, commit: Commit) -> Result<()> {
        let commit = Commit { sequence: commit.sequence.max(1), ..commit };
        let line = [commit.sealed(inode, generation), Commit::default()];
        self.mend_bytes(inode.at(COMMIT), line.as_bytes())?;
        self.forget_commit(inode)
    }

    /// Lets a lane start anew.
    fn reset_lane(&self, lane: u64) -> Result<()> {
        let at = lane_offset(lane);
        // PERSIST: no entry of any former transaction may be left when the number starts anew.
        let durable = self.region.stream_zero(at, LANE)?.fence();
        let _ = self.region.commit64(at, header_word(lane, 1), &durable)?.flush().fence();
        Ok(())
    }

    // ---- commit lines
    // ---------------------------------------------------------------------------------

    /// Makes a commit line anew from a slot that is whole and from what is there; `false` if that
    /// does not tell enough.
    fn rebuild_commit(&self, inode: Inode, at: Option<EntryAt>) -> Result<bool> {
        let identity = self.identity(inode)?;
        let old = self.whole_slot(inode, identity.generation);
        let mut commit =
            old.unwrap_or(Commit { mtime: now(), flags: COMMIT_WRITTEN, ..Commit::default() });
        match identity.kind() {
            Some(Kind::Directory) => {
                (commit.size, commit.aux) = self.count_entries(inode, &identity)?;
            }
            Some(Kind::File) => commit.size = self.size_by_map(inode, &identity, old)?,
            Some(Kind::Symlink) => {
                // A target never changes: any slot that was ever valid tells it.
                let Some(_) = old else {
                    return at.map_or(Ok(false), |at| self.remove_entry(at).map(|()| true));
                };
            }
            _ => (commit.size, commit.aux) = (0, 0),
        }
        self.mend_commit(inode, identity.generation, commit)?;
        Ok(true)
    }

    /// A slot of the commit line that fits its checksum, though it is not the newest.
    fn whole_slot(&self, inode: Inode, generation: u32) -> Option<Commit> {
        let mut slots = [Commit::default(); 2];
        self.region.read(inode.at(COMMIT), slots.as_mut_bytes()).ok()?;
        let whole = |commit: &Commit| {
            commit.sequence != 0 && commit.sealed(inode, generation).crc == commit.crc
        };
        slots.into_iter().filter(whole).max_by_key(|commit| commit.sequence)
    }

    fn count_entries(&self, inode: Inode, identity: &Identity) -> Result<(u64, u32)> {
        let dir = Dir { inode, generation: identity.generation };
        let mut buckets = Vec::new();
        self.walk_words(dir, &mut |word| {
            buckets.extend(word.ok().filter(|w| w.kind != NODE).map(|w| (w.block, w.cell)));
            Ok(())
        })?;
        let (mut entries, mut directories) = (0, 0);
        for (block, cell) in buckets {
            self.walk_bucket(dir, block, cell, &mut |item| {
                if let DirItem::Entry { target, .. } = item {
                    entries += 1;
                    directories += u32::from(target.kind == Kind::Directory);
                }
                Ok(())
            })?;
        }
        Ok((entries, directories))
    }

    /// The size that loses nothing of what the map holds: the older one where it ends in the last
    /// block, or behind it; else all of that block.
    fn size_by_map(&self, inode: Inode, identity: &Identity, old: Option<Commit>) -> Result<u64> {
        let mut end = 0;
        self.walk_map(inode, identity, &mut |item| {
            if let MapItem::Data { blocks, logical, unwritten: false, .. } = item {
                end = end.max(logical + blocks);
            }
            Ok(())
        })?;
        let known = old.map(|commit| commit.size).filter(|size| size.div_ceil(BLOCK) >= end);
        Ok(known.unwrap_or(end * BLOCK))
    }

    // ---- directories
    // ----------------------------------------------------------------------------------

    fn mend_kind(&self, at: EntryAt, kind: Kind) -> Result<()> {
        let entry = self.read_entry(&self.read_bucket(at.dir, at.block)?, at.slot)?;
        let target = Target { kind, ..entry.target };
        self.mend_bytes(slot_at(at.block, at.slot), &entry.retargeted(target))
    }

    fn remove_entry(&self, at: EntryAt) -> Result<()> {
        let bucket = self.read_bucket(at.dir, at.block)?;
        let entry = self.read_entry(&bucket, at.slot)?;
        self.mend_word(occupancy_at(at.block), checked(bucket.occupancy & !entry.mask()))
    }

    /// Whether an entry says that it leads to a directory.
    pub(crate) fn leads_to_directory(&self, at: EntryAt) -> bool {
        let bucket = self.read_bucket(at.dir, at.block);
        let entry = bucket.and_then(|bucket| self.read_entry(&bucket, at.slot));
        entry.is_ok_and(|entry| entry.target.kind == Kind::Directory)
    }

    /// Puts a node's word back from the equal ones of its cell, or empties it.
    fn mend_dir_word(&self, dir: Dir, at: u64, lo: u64, level: usize) -> Result<()> {
        let (node, index) = (at / BLOCK, (at % BLOCK / 8) as usize);
        let mut value = 0;
        if level > 0 {
            for kind in 1..NODE_BITS {
                let length = NODE_WORDS >> kind;
                let first = index / length * length;
                for other in (first..first + length).filter(|other| *other != index) {
                    let raw = self.region.load64(node * BLOCK + other as u64 * 8)?;
                    let below = KEY_BITS - level as u32 * NODE_BITS;
                    let key = (lo >> below & !(NODE_WORDS as u64 - 1) | other as u64) << below;
                    let word = self.open_dir_word(dir, raw, key, level);
                    if word.is_ok_and(|word| word.is_some_and(|w| u32::from(w.kind) == kind)) {
                        value = raw;
                    }
                }
            }
        }
        self.mend_word(at, value)
    }

    /// Writes a bucket's head anew for the entries that can be read. If it is not known which slots
    /// were in use, an entry counts if its inode is in use and nothing else leads to it: others may
    /// be those of names that were removed.
    fn rebuild_bucket(&self, dir: Dir, block: u64, cell: Cell, reached: &Reached) -> Result<()> {
        let known = self.region.load64(occupancy_at(block)).ok();
        let known = known.and_then(|word| unchecked(word).ok());
        let bucket = self.bucket_regardless(block, known.unwrap_or(ALL));
        let (mut taken, mut stored) = (0, FenceBatch::default());
        for slot in 0..BUCKET_SLOTS {
            if bucket.occupancy >> slot & 1 == 0 || taken >> slot & 1 != 0 {
                continue;
            }
            let Some(entry) = self.readable_entry(&bucket, slot) else { continue };
            let wanted = known.is_some() || self.is_missed(entry.target, reached);
            if !cell.holds(entry.key) || !wanted || entry.mask() & taken != 0 {
                continue;
            }
            taken |= entry.mask();
            for index in 0..entry.slots() {
                let word = checked(if index == 0 { entry.key } else { 0 });
                stored.add(self.region.store64(bucket.hash_at(slot + index), word)?.flush());
            }
        }
        // PERSIST: the hash words before the head that makes them count.
        let durable = stored.fence();
        let head = header(dir, taken);
        let (at, head) = (block * BLOCK, head.as_bytes());
        let stored = match durable {
            Some(durable) => self.region.commit_write(at, head, &durable)?,
            // A bucket without an entry publishes nothing.
            None => self.region.write(at, head)?,
        };
        let _ = stored.flush().fence();
        Ok(())
    }

    /// The entry whose first slot this is; its key is told by its name where the hash word is
    /// damaged.
    fn readable_entry(&self, bucket: &Bucket<'_>, slot: usize) -> Option<Entry> {
        if let Ok(entry) = self.read_entry(bucket, slot)
            && self.name_hash(entry.name()) == hash_of_key(entry.key)
        {
            return Some(entry);
        }
        let mut bytes = [0; SLOT as usize * 5];
        let length_max = (BUCKET_SLOTS - slot).min(5) * SLOT as usize;
        self.region.read(slot_at(bucket.block, slot), &mut bytes[..length_max]).ok()?;
        let length = usize::from(Slot::read_from_bytes(&bytes[..SLOT as usize]).ok()?.name_length);
        let name = bytes[..length_max].get(SLOT as usize - SLOT_NAME..)?.get(..length)?;
        let first = self.name_hash(name) << EXTRA_BITS;
        (first..first + EXTRAS).find_map(|key| self.read_entry_as(bucket, slot, key).ok())
    }

    /// Whether an inode is in use, and nothing that the last mark met leads to it.
    fn is_missed(&self, target: Target, reached: &Reached) -> bool {
        let inode = self.inode(target.node.ino).ok().filter(|i| !reached.has_inode(self, *i));
        let identity = inode.and_then(|inode| self.identity(inode).ok());
        identity.is_some_and(|identity| {
            identity.generation == target.node.generation && identity.nlink > 0
        })
    }

    /// As [`Checks::mend`]; a structure that cannot be read is skipped.
    pub(crate) fn mend_or_skip(&self, action: &Action, reached: &Reached) -> Result<bool> {
        match self.mend(action, reached) {
            Err(Errno::IO | Errno::STALE | Errno::NOENT) => Ok(false),
            other => other,
        }
    }
}
