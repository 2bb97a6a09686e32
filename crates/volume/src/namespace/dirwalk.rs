//! Walks over a whole directory for recovery, `fsck` and accounting: every node, bucket and entry,
//! and every damaged place, which does not end the walk.
//!
//! The caller sees to it that the directory does not change: its lock, the gate, or an unattached
//! volume.

use crate::Result;
use crate::cache::Target;
use crate::inode::Inode;
use crate::medium::layout::{BLOCK, Identity, ROOT_WORD};
use crate::namespace::Names;
use crate::namespace::bucket::{Cell, Dir};
use crate::namespace::directory::{DirWord, LEVELS_MAX, NODE, NODE_BITS};
use crate::txn::op::Op;

/// What a walk over a bucket meets.
pub(crate) enum DirItem<'a> {
    /// A name, and the first slot of its entry.
    Entry { name: &'a [u8], target: Target, slot: usize },
    /// A check failed at this offset of the region; what it hides is not told.
    Damaged { at: u64, what: &'static str },
}

/// A damaged word of a directory.
#[derive(Clone, Copy)]
pub(crate) struct BadWord {
    /// Its offset in the region.
    pub(crate) at: u64,
    /// The first key that it stands for.
    pub(crate) lo: u64,
    /// Nodes passed on the way to it.
    pub(crate) level: usize,
}

/// Receives the items; an error ends the walk.
type Visitor<'a> = dyn FnMut(DirItem<'_>) -> Result<()> + 'a;

/// A word, or a damaged one.
pub(crate) type Met<'a> = std::result::Result<&'a DirWord, BadWord>;

impl Names {
    /// Number of blocks that a directory's nodes and buckets take. Damaged parts are not counted.
    pub(crate) fn directory_blocks(&self, inode: Inode, identity: &Identity) -> Result<u64> {
        let mut blocks = 0;
        let dir = Dir { inode, generation: identity.generation };
        self.walk_words(dir, &mut |word| {
            blocks += u64::from(word.is_ok());
            Ok(())
        })?;
        Ok(blocks)
    }

    /// Tells each distinct word, or a damaged one; parents first.
    pub(crate) fn walk_words(
        &self,
        dir: Dir,
        each: &mut dyn FnMut(Met<'_>) -> Result<()>,
    ) -> Result<()> {
        let root = dir.inode.at(ROOT_WORD);
        // Block, first key, level, and the word that names it.
        let mut nodes: Vec<(u64, u64, usize, u64)> = Vec::new();
        match self.open_dir_word(dir, self.region.load64(root)?, 0, 0) {
            Ok(None) => {}
            Ok(Some(word)) => {
                each(Ok(&word))?;
                if word.kind == NODE {
                    nodes.push((word.block, 0, 1, root));
                }
            }
            Err(_) => each(Err(BadWord { at: root, lo: 0, level: 0 }))?,
        }
        while let Some((block, lo, level, pointer)) = nodes.pop() {
            let mut bytes = [0; BLOCK as usize];
            if self.region.read(block * BLOCK, &mut bytes).is_err() {
                // The page cannot be read at all.
                each(Err(BadWord { at: pointer, lo, level: level - 1 }))?;
                continue;
            }
            let mut covered = None;
            for (index, raw) in bytes.chunks_exact(8).enumerate() {
                let raw = u64::from_le_bytes(raw.try_into().unwrap_or_default());
                let at = block * BLOCK + index as u64 * 8;
                let key = lo
                    | (index as u64)
                        << (crate::medium::dirhash::KEY_BITS - level as u32 * NODE_BITS);
                match self.open_dir_word(dir, raw, key, level) {
                    Ok(None) => {}
                    Ok(Some(word)) if covered == Some((word.block, word.cell)) => {}
                    Ok(Some(word)) => {
                        each(Ok(&word))?;
                        covered = Some((word.block, word.cell));
                        if word.kind == NODE && level < LEVELS_MAX {
                            nodes.push((word.block, key, level + 1, at));
                        }
                    }
                    Err(_) => each(Err(BadWord { at, lo: key, level }))?,
                }
            }
        }
        Ok(())
    }

    /// Tells every entry of a bucket, and its damage.
    pub(crate) fn walk_bucket(
        &self,
        dir: Dir,
        block: u64,
        cell: Cell,
        visitor: &mut Visitor<'_>,
    ) -> Result<()> {
        let damaged = |what| DirItem::Damaged { at: block * BLOCK, what };
        let Ok(bucket) = self.read_bucket(dir, block) else {
            return visitor(damaged("a bucket's header or occupancy word"));
        };
        if bucket.live(cell).is_err() {
            visitor(damaged("a bucket's hash words"))?;
        }
        for key in bucket.keys().unwrap_or_default() {
            let Ok((slot, key)) = key else { continue };
            if !cell.holds(key) {
                continue;
            }
            match self.read_entry(&bucket, slot) {
                Ok(entry)
                    if self.name_hash(entry.name()) == crate::medium::dirhash::hash_of_key(key) =>
                {
                    visitor(DirItem::Entry { name: entry.name(), target: entry.target, slot })?;
                }
                _ => visitor(DirItem::Damaged {
                    at: crate::namespace::bucket::slot_at(block, slot),
                    what: "a directory entry",
                })?,
            }
        }
        Ok(())
    }
}

impl Names {
    /// Frees the blocks that an empty directory still holds: empty buckets and their nodes.
    pub(crate) fn free_directory<'v>(
        &'v self,
        op: &mut Op<'v>,
        inode: Inode,
        identity: &Identity,
    ) -> Result<()> {
        let dir = Dir { inode, generation: identity.generation };
        self.walk_words(dir, &mut |word| {
            // What a damaged word hides stays allocated: a failed check frees nothing.
            if let Ok(word) = word {
                op.free_later(word.block, 1);
            }
            Ok(())
        })
    }
}
