//! Empties chunks that hold little, so that they become huge pages again.
//!
//! Placement alone cannot keep free space whole: where many small files lived and few are left,
//! each keeps its chunk broken. The call that leaves less than half of a chunk therefore moves the
//! blocks that are left in it into holes of fuller chunks, right behind its own work: at most
//! [`SPARSE`] blocks, and in the long run no more than one block for 16 that were freed
//! ([`MAY_MOVE`]). It takes no lock that is held, moves nothing of a file that is mapped, and gives
//! up a chunk at the first block that it cannot move. On ageing traces this moves well under one
//! percent of what is written (`solera age` prints it).
//!
//! Which files the blocks belong to is a hint (`owners.rs`), verified under the file's lock.
//!
//! Persistence order, a file at a time: copies of the bytes, and new nodes; fence; words, in any
//! order (each replaces a block by one with the same bytes); fence; then the old blocks are free.
//! CRASH: any subset of the words is right. Nothing else of the file changes: not its size, not its
//! times.
//!
//! Locks: an inode's; none is waited for.

use crate::Result;
use crate::data::edit::{Change, Changes, Target};
use crate::data::file::File;
use crate::data::map::MapItem;
use crate::inject::Bug;
use crate::inode::Inode;
use crate::medium::layout::{BLOCK, CHUNK_BLOCKS};
use crate::space::alloc::Want;
use crate::space::chunk::{Kind, SPARSE};
use crate::txn::op::Op;
use crate::upkeep::Upkeep;
use robust::owner::Owner;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Of a million freed blocks so many may be moved: one for 16.
const MAY_MOVE: u64 = MILLION / 16;
const MILLION: u64 = 1_000_000;

/// A part of a file that lies in a chunk that is being emptied: logical block, block, blocks,
/// unwritten.
type Part = (u64, u64, u64, bool);

impl Upkeep {
    /// Empties a chunk that has become sparse, if the limit allows it. On any error it stays as it
    /// is.
    pub(crate) fn empty_sparse_chunk(&self, chunk: u64) {
        let moved = self.moved_blocks.load(Ordering::Relaxed);
        let freed = self.freed_blocks.load(Ordering::Relaxed);
        let most = self.compaction();
        if most == 0 || moved * MILLION > freed * most {
            return;
        }
        if self.moving.swap(true, Ordering::Acquire) {
            return;
        }
        // A chunk that cannot be emptied is no error of the call that made it sparse.
        let _ = self.empty_chunk(chunk);
        self.moving.store(false, Ordering::Release);
        // What this freed may have made another chunk sparse: no chain of them.
        let _ = self.due.take_sparse();
    }

    /// Moves all chunks' blocks that lie in almost empty chunks into holes, as far as there are
    /// holes in fuller ones; gives how many. On request, without a limit.
    pub fn compact(&self) -> Result<u64> {
        let before = self.moved_bytes();
        for chunk in 0..self.chunks() {
            self.empty_chunk(chunk)?;
        }
        Ok(self.moved_bytes() - before)
    }

    /// Of a million blocks that this attachment frees, how many its calls may move to empty chunks.
    pub fn compaction(&self) -> u64 {
        match self.may_move.load(Ordering::Relaxed) {
            0 => MAY_MOVE,
            most => most - 1,
        }
    }

    /// Sets what [`Upkeep::compaction`] gives, for this attachment; 0: none are moved.
    pub fn set_compaction(&self, of_a_million: u32) {
        self.may_move.store(u64::from(of_a_million) + 1, Ordering::Relaxed);
    }

    /// Bytes that this attachment has moved, to keep chunks whole and to make files so.
    pub fn moved_bytes(&self) -> u64 {
        let blocks = [&self.moved_blocks, &self.rewritten_blocks];
        blocks.map(|count| count.load(Ordering::Relaxed)).iter().sum::<u64>() * BLOCK
    }

    /// Moves what is left in a chunk elsewhere, if it is little; stops at what cannot be moved.
    fn empty_chunk(&self, chunk: u64) -> Result<()> {
        if self.chunk_kind(chunk)? != Kind::Data {
            return Ok(());
        }
        let mut used = self.used_in(chunk)?;
        if used.len() as u64 > SPARSE {
            return Ok(());
        }
        if self.kept_singles()?.iter().any(|&block| self.chunk_of(block).0 == chunk) {
            let mut op = self.begin()?;
            op.work()?;
            self.return_blocks_in(chunk)?;
            op.end()?;
            used = self.used_in(chunk)?;
        }
        let mut owners = Vec::new();
        for &index in &used {
            owners.push(Inode(self.noted_owner(chunk, index)?));
        }
        owners.sort_unstable_by_key(|inode| inode.0);
        owners.dedup();
        for owner in owners {
            match self.move_out(owner, chunk) {
                Ok(moved) if moved > 0 => {
                    self.moved_blocks.fetch_add(moved, Ordering::Relaxed);
                }
                Ok(_) | Err(Errno::STALE | Errno::NOSPC | Errno::INVAL | Errno::ISDIR) => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// The blocks in use of a chunk, by their place in it.
    fn used_in(&self, chunk: u64) -> Result<Vec<u64>> {
        let bits = self.bitmap(chunk)?;
        let taken = |index: &u64| bits[*index as usize / 64] >> (index % 64) & 1 != 0;
        Ok((0..CHUNK_BLOCKS).filter(taken).collect())
    }

    /// Moves the blocks that a file has in a chunk into holes of fuller ones; gives how many.
    fn move_out(&self, inode: Inode, chunk: u64) -> Result<u64> {
        let inode = self.inode(inode.0).map_err(|_| Errno::STALE)?;
        let lock = self.volatile_map().shared_load(inode.lock_offset())?;
        if !self.inode_in_use(inode.0)? || Owner::of_word(lock, self.epoch).is_some() {
            return Err(Errno::STALE);
        }
        let mut op = self.begin()?;
        op.lock(&[inode])?;
        // Its last name may have gone meanwhile, and the inode be set aside for the next file.
        let node = self.node_in(inode)?;
        let file = self.file(node)?;
        if file.is_mapped() {
            return Ok(0);
        }
        let parts = parts_in(&file, chunk)?;
        let blocks: u64 = parts.iter().map(|part| part.2).sum();
        if blocks == 0 || blocks > SPARSE {
            return Ok(0);
        }
        op.work()?;
        let file = self.file(node)?;
        self.clear_tail_sum(&mut op, &file)?;
        self.move_parts(&mut op, &file, chunk, &parts, blocks)?;
        op.end()?;
        Ok(blocks)
    }
}

/// What a file has in a chunk, in the order of the file.
fn parts_in(file: &File<'_>, chunk: u64) -> Result<Vec<Part>> {
    let first = file.map.files.chunk_start(chunk);
    let range = first..first + CHUNK_BLOCKS;
    let mut parts: Vec<Part> = Vec::new();
    file.map.walk(&mut |item| match item {
        MapItem::Data { block, blocks, logical, unwritten } => {
            let (from, to) = (block.max(range.start), (block + blocks).min(range.end));
            if from < to {
                parts.push((logical + (from - block), from, to - from, unwritten));
            }
            Ok(())
        }
        MapItem::Damaged { .. } => Err(Errno::STALE),
        MapItem::Node { .. } | MapItem::Xattr { .. } => Ok(()),
    })?;
    parts.sort_unstable_by_key(|part| part.0);
    Ok(parts)
}

impl Upkeep {
    fn move_parts<'v>(
        &'v self,
        op: &mut Op<'v>,
        file: &File<'v>,
        chunk: u64,
        parts: &[Part],
        blocks: u64,
    ) -> Result<()> {
        // Blocks stay on their memory node.
        let here = self.node_of(self.chunk_start(chunk) * BLOCK);
        let want = Want { fuller_than: Some(chunk), node: Some(here), ..Want::default() };
        let places = self.allocate_data(op, blocks, want)?;
        if self.numa_on() && !self.lies_on(here, places.iter().copied()) {
            return Err(Errno::NOSPC);
        }
        let mut places = places.iter().copied();
        let (mut place, mut capacity) = (0, 0);
        let mut changes = Changes::new();
        for &(mut logical, mut block, mut left, unwritten) in parts {
            while left > 0 {
                if capacity == 0 {
                    (place, capacity) = places.next().ok_or(Errno::IO)?;
                }
                let count = left.min(capacity);
                if !unwritten {
                    let bytes = count * BLOCK;
                    let copied = self.region.copy(block * BLOCK, place * BLOCK, bytes)?;
                    op.pend(copied);
                }
                let to = Target::Leaf { block: place, unwritten };
                changes.push(Change { logical, blocks: count, to, frees: true });
                (logical, block, place) = (logical + count, block + count, place + count);
                (left, capacity) = (left - count, capacity - count);
            }
        }
        let words = self.plan_loose(op, file.map, &changes)?;
        // PERSIST: the copies before the words that lead to them.
        let _ = op.fence_unless(Bug::WordsBeforeBytes);
        op.keep_allocated();
        self.store_loose(op, &words)?;
        let _ = op.fence();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;
    use crate::Volume;
    use crate::check::extents::Extent;
    use crate::data::plan::Position;
    use crate::testing::{Random, file, root, volume};
    use std::sync::Arc;
    use vfs::{
        EntryName, FileSystem, Fill, Mapped, Maps, Node, OpenFlags, Removes, UserIn, UserOut,
    };

    fn made(volume: &Volume, name: &str, blocks: u64, tag: u8) -> Node {
        let node = volume.create(root(volume), name.as_bytes(), &file()).unwrap();
        let bytes = vec![tag; (blocks * BLOCK) as usize];
        volume.write_file(node, Position::At(0), &[UserIn::new(&bytes)]).unwrap();
        node
    }

    fn check(volume: &Volume, node: Node, blocks: u64, tag: u8) {
        let mut bytes = vec![!tag; (blocks * BLOCK) as usize + 1];
        let read = volume.read_file(node, 0, &mut [UserOut::new(&mut bytes)]).unwrap();
        assert_eq!(read as u64, blocks * BLOCK);
        assert!(bytes[..read].iter().all(|&byte| byte == tag), "file {tag}");
    }

    fn chunks_of(volume: &Volume, node: Node) -> Vec<u64> {
        let chunk = |at: u64| volume.chunk_of(at / BLOCK).0;
        let extents = volume.extents(node).unwrap().into_iter();
        let last = |extent: &Extent| extent.region_offset + extent.length - 1;
        let mut chunks: Vec<u64> =
            extents.flat_map(|e| chunk(e.region_offset)..=chunk(last(&e))).collect();
        chunks.dedup();
        chunks
    }

    /// A chunk with 500 blocks of one file and 12 of another, whose other 88 lie in a second.
    fn crowded() -> (Arc<Volume>, Node) {
        let volume = volume(Mode::Strict, 16);
        made(&volume, "large", 500, 1);
        let left = made(&volume, "left", 100, 2);
        assert_eq!(chunks_of(&volume, left).len(), 2);
        (volume, left)
    }

    #[test]
    fn what_is_left_moves_to_a_fuller_chunk() {
        let (volume, left) = crowded();
        let free = volume.free_space().unwrap().free_chunks;
        let times = volume.attributes(left).unwrap();
        volume.remove(&EntryName::new(root(&volume), b"large"), Removes::Name).unwrap();
        assert_eq!(chunks_of(&volume, left).len(), 1);
        assert_eq!(volume.free_space().unwrap().free_chunks, free + 1);
        assert_eq!(volume.moved_bytes(), 12 * BLOCK);
        assert_eq!(volume.attributes(left).unwrap(), times, "no attribute tells");
        check(&volume, left, 100, 2);
    }

    #[test]
    fn nothing_moves_where_that_is_switched_off() {
        let (volume, left) = crowded();
        volume.set_compaction(0);
        volume.remove(&EntryName::new(root(&volume), b"large"), Removes::Name).unwrap();
        assert_eq!((volume.compaction(), volume.moved_bytes()), (0, 0));
        assert_eq!(chunks_of(&volume, left).len(), 2);
        assert_eq!(volume.compact().unwrap(), 12 * BLOCK, "but who asks for it has it");
    }

    #[test]
    fn no_more_is_moved_than_freeing_has_earned() {
        let moved = |of_a_million| {
            let volume = volume(Mode::Strict, 48);
            volume.set_compaction(of_a_million);
            let name = |n: u64| format!("large{n}");
            for n in 0..20 {
                made(&volume, &name(n), 400, 1);
                made(&volume, &format!("left{n}"), 100, 2);
            }
            (0..20).for_each(|n| {
                volume
                    .remove(&EntryName::new(root(&volume), name(n).as_bytes()), Removes::Name)
                    .unwrap();
            });
            volume.moved_bytes() / BLOCK
        };
        let (little, much) = (moved(10_000), moved(1_000_000));
        assert!(little > 0 && much > 2 * little, "{little} of {much}");
        assert!(little <= 20 * 400 / 100 + SPARSE, "{little}");
    }

    #[test]
    fn what_is_left_of_a_huge_page_has_an_owner() {
        let volume = volume(Mode::Strict, 16);
        made(&volume, "fuller", 400, 1);
        let node = made(&volume, "f", CHUNK_BLOCKS, 2);
        let whole = volume.free_space().unwrap().free_chunks;
        volume.truncate(node, 5 * BLOCK).unwrap();
        assert_eq!(volume.free_space().unwrap().free_chunks, whole + 1);
        assert_eq!(volume.moved_bytes(), 5 * BLOCK);
        check(&volume, node, 5, 2);
    }

    #[test]
    fn nothing_of_a_mapped_file_moves() {
        let (volume, left) = crowded();
        let desc = volume.open(left.into(), OpenFlags(libc::O_RDWR), None).unwrap();
        let pieces = volume.map(desc, (0, 100 * BLOCK), Mapped::Write, Fill::All).unwrap();
        volume.remove(&EntryName::new(root(&volume), b"large"), Removes::Name).unwrap();
        assert_eq!(volume.compact().unwrap(), 0);
        assert_eq!(volume.map(desc, (0, 100 * BLOCK), Mapped::Write, Fill::All).unwrap(), pieces);
        volume.close(desc).unwrap();
        assert_eq!(volume.compact().unwrap(), 12 * BLOCK);
        check(&volume, left, 100, 2);
    }

    #[test]
    fn a_wrong_owner_moves_nothing() {
        let (volume, left) = crowded();
        let (chunk, other) = (chunks_of(&volume, left)[0], made(&volume, "other", 3, 3));
        volume.note_owner(other.ino, volume.chunk_start(chunk), 500).unwrap();
        volume.note_owner(u64::MAX, volume.chunk_start(chunk) + 500, 12).unwrap();
        volume.remove(&EntryName::new(root(&volume), b"large"), Removes::Name).unwrap();
        assert_eq!(volume.moved_bytes(), 0);
        check(&volume, left, 100, 2);
        check(&volume, other, 3, 3);
    }

    #[test]
    fn files_stay_what_they_are_through_a_long_life() {
        let volume = volume(Mode::Strict, 24);
        let mut random = Random::new(5);
        let mut alive: Vec<(String, Node, u64, u8)> = Vec::new();
        for round in 0..1500 {
            let most = if random.below(10) == 0 { 400 } else { 12 };
            let blocks = 1 + random.below(most);
            let name = format!("f{round}");
            let tag = (round % 251) as u8;
            alive.push((name.clone(), made(&volume, &name, blocks, tag), blocks, tag));
            let held: u64 = alive.iter().map(|file| file.2).sum();
            // Now and then nearly everything goes.
            let keep = if round % 300 == 299 { 300 } else { 5000 };
            let mut held = held;
            while held > keep {
                let (name, _, blocks, _) =
                    alive.swap_remove(random.below(alive.len() as u64) as usize);
                volume
                    .remove(&EntryName::new(root(&volume), name.as_bytes()), Removes::Name)
                    .unwrap();
                held -= blocks;
            }
            if round % 50 == 49 {
                for (_, node, blocks, tag) in &alive {
                    check(&volume, *node, *blocks, *tag);
                }
            }
        }
        assert!(volume.moved_bytes() > 0);
        volume.compact().unwrap();
        for (_, node, blocks, tag) in &alive {
            check(&volume, *node, *blocks, *tag);
        }
        let space = volume.free_space().unwrap();
        let held: u64 = alive.iter().map(|file| file.2).sum();
        assert_eq!(space.data_blocks, held);
        let chunks = held.div_ceil(CHUNK_BLOCKS);
        assert!(space.free_chunks + chunks + 3 >= 24, "{held} blocks: {space:?}");
    }
}
