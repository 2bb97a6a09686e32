//! Rewriting: moves a scattered file's bytes into whole aligned chunks, so that a mapping of it
//! gets huge pages (`WineFS`, section 5.5, "Reactively rewriting a file").
//!
//! A file comes to lie scattered over holes by small writes. It is rewritten before its first
//! mapping, behind the last close after one, and on request; the first two move at most
//! [`OCCASION`] bytes at a time, in the call that finds it. None of these moves a file that a
//! process has mapped.
//!
//! It goes chunk by chunk of the file, an operation each: so writers wait for 2 MiB at most, the
//! space that is needed ahead is one chunk, and stopping half-way is no loss. A chunk that has
//! holes keeps them. A chunk that small appends have filled is gathered in the append that
//! completes it, if it came to lie in many pieces: so files that grow side by side come apart, and
//! no byte is moved twice for that. One whose blocks lie right already, named one by one, becomes a
//! single word without being copied. Where memory can be mapped by 2 MiB only, a page fault makes
//! the chunk of a mapped file whole, holes included (`promotion.rs`). What is left behind
//! the last whole chunk is gathered into fewer runs, if there is a place.
//!
//! Persistence order of a chunk: copies of the bytes, and new nodes; fence; the word that leads to
//! the new chunk (with the direct words and the nodes above, where there are such: one undo
//! transaction); fence; then the old blocks are free. CRASH: before the commit the old blocks
//! count, after it the new one, which holds the same bytes. Nothing else of the file changes: not
//! its size, not its times.
//!
//! Locks: the inode's. Readers go by its sequence number, as beside any write.

use crate::Result;
use crate::data::edit::{Change, Changes, Target};
use crate::data::file::{File, expect_file};
use crate::data::map::Map;
use crate::inode::LIVE_MAPPED;
use crate::inode::Run;
use crate::medium::layout::{BLOCK, CHUNK, CHUNK_BLOCKS};
use crate::space::alloc::Want;
use crate::space::numa::pinned;
use crate::txn::op::Op;
use crate::upkeep::Upkeep;
use crate::upkeep::promotion::{Runs, add_run, is_aligned};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use vfs::Node;

/// Bytes that are moved at most by a call that is not about moving.
const OCCASION: u64 = 256 << 20;
/// Runs of a file's last part from which on it is gathered on such an occasion.
const RUNS_MANY: usize = 16;

/// Blocks of a last part from which on it gets a chunk for itself; fewer go into holes.
const MOST_OF_CHUNK: u64 = CHUNK_BLOCKS / 2;

impl Upkeep {
    /// Moves what a regular file has of 2 MiB and more into whole aligned chunks, and gathers the
    /// rest. `each` is told how many parts of the file are done, of how many, and stops it by
    /// `false`. Gives the bytes moved. `EBUSY`: some process has mapped it; `ENOSPC`: there is no
    /// free chunk (any more), what was moved stays so; `EISDIR`, `EINVAL` (not a regular file),
    /// `ESTALE`, `EIO`, `EROFS`.
    pub fn rewrite(&self, node: Node, each: &mut dyn FnMut(u64, u64) -> bool) -> Result<u64> {
        self.rewrite_parts(node, u64::MAX, 2, each)
    }

    /// As [`Upkeep::rewrite`] of a file of at least one chunk, beside another call: within limits,
    /// and on any error the file stays as it is.
    pub(crate) fn rewrite_by_the_way(&self, node: Node) {
        let worth = self.read_steadily(node, |inode, _| {
            let current = self.current(inode)?;
            Ok(current.size >= CHUNK && current.flags & LIVE_MAPPED == 0)
        });
        if matches!(worth, Ok(true)) && !self.is_read_only() {
            // A file that cannot be rewritten is no error of the call that found it.
            let _ = self.rewrite_parts(node, OCCASION, RUNS_MANY, &mut |_, _| true);
        }
    }

    /// Appends have filled a chunk of a file, a little each: makes it whole, if it came to lie in
    /// many pieces. So each byte is moved once at most while a file grows.
    #[cold]
    pub(crate) fn gather_chunk(&self, node: Node, chunk: u64) {
        let first = chunk * CHUNK_BLOCKS;
        let scattered = self.read_steadily(node, |inode, identity| {
            let map = Map::new(self, inode, identity);
            let runs = runs_of(&map, first, first + CHUNK_BLOCKS)?;
            Ok(runs.is_some_and(|runs| runs.len() >= RUNS_MANY || is_aligned(&runs)))
        });
        if matches!(scattered, Ok(true)) {
            // A missing chunk, or a file that a process has mapped, is no error of the append.
            let _ = self.rewrite_part(node, first, first + CHUNK_BLOCKS, RUNS_MANY);
        }
    }

    fn rewrite_parts(
        &self,
        node: Node,
        most: u64,
        runs: usize,
        each: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<u64> {
        let parts = self.read_steadily(node, |inode, identity| {
            expect_file(identity)?;
            let size = self.current(inode)?.size;
            scattered(&Map::new(self, inode, identity), size.div_ceil(BLOCK), runs)
        })?;
        let (mut moved, count) = (0, parts.len() as u64);
        for (done, (first, last)) in (0..).zip(parts) {
            if moved >= most || !each(done, count) {
                return Ok(moved);
            }
            moved += self.rewrite_part(node, first, last, runs)? * BLOCK;
        }
        each(count, count);
        Ok(moved)
    }

    /// Rewrites one part of a file, if that is still worth it; gives how many blocks were moved.
    fn rewrite_part(&self, node: Node, first: u64, last: u64, many: usize) -> Result<u64> {
        let mut op = self.begin()?;
        op.lock(&[self.inode(node.ino).map_err(|_| Errno::STALE)?])?;
        let file = self.file(node)?;
        if file.is_mapped() {
            return Err(Errno::BUSY);
        }
        let whole = last - first == CHUNK_BLOCKS;
        if !whole && last != file.end_block() {
            return Ok(0);
        }
        let Some(runs) = runs_of(&file.map, first, last)? else { return Ok(0) };
        let aligned = whole && is_aligned(&runs);
        if if whole { aligned && runs[0].huge } else { runs.len() < many } {
            return Ok(0);
        }
        op.work()?;
        let file = self.file(node)?;
        self.clear_tail_sum(&mut op, &file)?;
        let node_wanted = pinned(file.identity.flags);
        let moved = if aligned {
            self.join(&mut op, &file, first, &runs[0])?
        } else if whole {
            let chunk = self.allocate_chunk(&mut op, node_wanted)?.ok_or(Errno::NOSPC)?;
            self.replace_runs(&mut op, &file, first, &runs, &[(chunk, CHUNK_BLOCKS)])?
        } else {
            let blocks = last - first;
            let want = Want { whole: blocks >= MOST_OF_CHUNK, ..Want::default() };
            match self.allocate_data(&mut op, blocks, want) {
                Ok(places) if places.len() < runs.len() => {
                    self.replace_runs(&mut op, &file, first, &runs, &places)?
                }
                // There is no better place for it. No huge page is lost by that.
                Ok(_) | Err(Errno::NOSPC) => return Ok(0),
                Err(errno) => return Err(errno),
            }
        };
        op.end()?;
        self.rewritten_blocks.fetch_add(moved, Ordering::Relaxed);
        Ok(moved)
    }

    /// Moves what a file has in the chunk's worth of blocks from `first` on to a memory node, a run
    /// without a hole at a time; gives how many blocks. `EBUSY`, `ENOSPC`.
    pub(crate) fn move_part(&self, node: Node, first: u64, to: u32) -> Result<u64> {
        let (mut at, mut moved) = (first, 0);
        while at < first + CHUNK_BLOCKS {
            let mut op = self.begin()?;
            op.lock(&[self.inode(node.ino).map_err(|_| Errno::STALE)?])?;
            let file = self.file(node)?;
            if file.is_mapped() {
                return Err(Errno::BUSY);
            }
            let run = file.map.run(at, first + CHUNK_BLOCKS - at)?;
            at += run.blocks;
            if run.is_hole() || self.lies_on(to, [(run.block, run.blocks)].into_iter()) {
                continue;
            }
            op.work()?;
            self.clear_tail_sum(&mut op, &file)?;
            let want = Want { aligned: true, node: Some(to), ..Want::default() };
            let places = self.allocate_data(&mut op, run.blocks, want)?;
            if !self.lies_on(to, places.iter().copied()) {
                return Err(Errno::NOSPC);
            }
            moved += self.replace_runs(&mut op, &file, at - run.blocks, &[run], &places)?;
            op.end()?;
        }
        self.rewritten_blocks.fetch_add(moved, Ordering::Relaxed);
        Ok(moved)
    }
}

/// The parts of a file of so many blocks that are worth a closer look: whole chunks without a hole
/// that are not a 2 MiB leaf, and the last part if it has at least `many` runs.
fn scattered(map: &Map<'_>, end: u64, many: usize) -> Result<Vec<(u64, u64)>> {
    let mut parts = Vec::new();
    let mut first = 0;
    while first < end {
        let run = map.run(first, u64::MAX - first)?;
        let last = first + CHUNK_BLOCKS;
        if run.is_hole() && run.blocks >= CHUNK_BLOCKS {
            first += run.blocks / CHUNK_BLOCKS * CHUNK_BLOCKS;
            continue;
        }
        if !run.huge {
            match runs_of(map, first, last)? {
                Some(_) => parts.push((first, last)),
                None if last > end => {
                    let tail = runs_of(map, first, end)?;
                    parts.extend(tail.filter(|runs| runs.len() >= many).map(|_| (first, end)));
                }
                None => {}
            }
        }
        first = last;
    }
    Ok(parts)
}

/// What stands in `first..last`; `None` if there is a hole.
fn runs_of(map: &Map<'_>, first: u64, last: u64) -> Result<Option<Runs>> {
    let mut runs: Runs = SmallVec::new();
    let mut at = first;
    while at < last {
        let run = map.run(at, last - at)?;
        if run.is_hole() {
            return Ok(None);
        }
        at += run.blocks;
        add_run(&mut runs, run);
    }
    Ok(Some(runs))
}

impl Upkeep {
    /// Names a chunk that lies whole by one word. Nothing is moved.
    fn join<'v>(&'v self, op: &mut Op<'v>, file: &File<'v>, first: u64, run: &Run) -> Result<u64> {
        let to = Target::Leaf { block: run.block, unwritten: run.unwritten };
        let change = Change { logical: first, blocks: CHUNK_BLOCKS, to, frees: false };
        let words = self.plan_edit(op, file.map, &[change])?;
        self.publish_edits(op, &[&words], &[])?;
        Ok(0)
    }

    /// Puts a copy of `runs`, which stand from block `first` of the file on, into `places`; gives
    /// how many blocks that are.
    fn replace_runs<'v>(
        &'v self,
        op: &mut Op<'v>,
        file: &File<'v>,
        first: u64,
        runs: &[Run],
        places: &[(u64, u64)],
    ) -> Result<u64> {
        // A chunk is written or not as a whole.
        let unwritten = runs.iter().all(|run| run.unwritten);
        let mut changes = Changes::new();
        let mut runs = runs.iter().copied();
        let (mut logical, mut left) = (first, None);
        for &(place, blocks) in places {
            let mut at = place;
            while at < place + blocks {
                let mut run: Run = left.take().or_else(|| runs.next()).ok_or(Errno::IO)?;
                let count = run.blocks.min(place + blocks - at);
                self.fill_copy(op, &run, at, count, unwritten)?;
                (run.block, run.blocks, at) = (run.block + count, run.blocks - count, at + count);
                left = (run.blocks > 0).then_some(run);
            }
            let to = Target::Leaf { block: place, unwritten };
            changes.push(Change { logical, blocks, to, frees: true });
            logical += blocks;
        }
        let words = self.plan_edit(op, file.map, &changes)?;
        self.publish_edits(op, &[&words], &[])?;
        Ok(logical - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;
    use crate::Volume;
    use crate::data::plan::Position;
    use crate::testing::{Random, file, root, volume};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use vfs::{Desc, FileSystem, Fill, IoOffset, Mapped, Maps, OpenFlags, UserIn, UserOut};

    fn made(volume: &Volume, name: &str) -> Node {
        volume.create(root(volume), name.as_bytes(), &file()).unwrap()
    }

    fn write(volume: &Volume, node: Node, offset: u64, bytes: &[u8]) {
        volume.write_file(node, Position::At(offset), &[UserIn::new(bytes)]).unwrap();
    }

    /// What block `at` of a file holds.
    fn tag(at: u64) -> u8 {
        (at % 251) as u8 + 1
    }

    /// A file of so many blocks, written in the order of a shuffle (so that none follows another),
    /// on a volume whose holes are single blocks.
    fn shuffled(volume: &Volume, name: &str, blocks: u64) -> Node {
        let mut random = Random::new(blocks);
        let mut order: Vec<u64> = (0..blocks).collect();
        (1..order.len()).rev().for_each(|i| order.swap(i, random.below(i as u64 + 1) as usize));
        let node = made(volume, name);
        for at in order {
            write(volume, node, at * BLOCK, &[tag(at); BLOCK as usize]);
        }
        node
    }

    fn check(volume: &Volume, node: Node, blocks: u64) {
        let mut bytes = vec![0; (blocks * BLOCK) as usize + 1];
        let read = volume.read_file(node, 0, &mut [UserOut::new(&mut bytes)]).unwrap();
        assert_eq!(read as u64, blocks * BLOCK);
        for (at, block) in bytes.chunks_exact(BLOCK as usize).enumerate() {
            assert!(block.iter().all(|&byte| byte == tag(at as u64)), "block {at}");
        }
    }

    /// Chunks of a file that can be huge pages, and its runs.
    fn layout(volume: &Volume, node: Node) -> (u64, usize) {
        let extents = volume.extents(node).unwrap();
        let huge = |e: &crate::Extent| {
            let ends = (e.file_offset.next_multiple_of(CHUNK), e.file_offset + e.length);
            let alike = e.file_offset % CHUNK == e.region_offset % CHUNK;
            if alike { (ends.1 / CHUNK).saturating_sub(ends.0 / CHUNK) } else { 0 }
        };
        (extents.iter().map(huge).sum(), extents.len())
    }

    fn opened(volume: &Volume, node: Node) -> Desc {
        volume.open(node.into(), OpenFlags(libc::O_RDWR), None).unwrap()
    }

    fn rewrite(volume: &Volume, node: Node) -> Result<u64> {
        volume.rewrite(node, &mut |_, _| true)
    }

    #[test]
    fn a_scattered_file_becomes_whole_and_stays_what_it_was() {
        for mode in [Mode::Strict, Mode::Posix] {
            let volume = volume(mode, 32);
            let node = shuffled(&volume, "f", 1400);
            let before = (volume.attributes(node).unwrap(), volume.free_space().unwrap());
            assert!(layout(&volume, node).1 > 1000);
            let mut told = Vec::new();
            let moved = volume.rewrite(node, &mut |done, of| {
                told.push((done, of));
                true
            });
            assert_eq!(moved.unwrap(), 1400 * BLOCK);
            assert_eq!(told, [(0, 3), (1, 3), (2, 3), (3, 3)]);
            assert_eq!(layout(&volume, node).0, 2);
            assert!(layout(&volume, node).1 <= 4, "{:?}", layout(&volume, node));
            let after = (volume.attributes(node).unwrap(), volume.free_space().unwrap());
            check(&volume, node, 1400);
            assert_eq!(after.0, before.0, "size, times and blocks are as they were");
            assert_eq!(after.1.data_blocks, before.1.data_blocks);
            assert_eq!(rewrite(&volume, node).unwrap(), 0, "nothing is left to do");
            assert_eq!(volume.rewritten_blocks.load(Ordering::Relaxed), 1400);
            let report = volume.check(&crate::FsckOptions::default()).unwrap();
            assert!(report.faults.is_empty(), "{:?}", report.faults);
        }
    }

    #[test]
    fn a_chunk_with_holes_and_an_end_is_made_whole_and_shows_zeros_there() {
        for mode in [Mode::Strict, Mode::Posix] {
            let volume = volume(mode, 32);
            let node = shuffled(&volume, "f", 700);
            let desc = opened(&volume, node);
            let punch = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as u32;
            volume.allocate(desc, punch, 100 * BLOCK, 7 * BLOCK).unwrap();
            volume.allocate(desc, libc::FALLOC_FL_KEEP_SIZE as u32, 0, 2 * CHUNK).unwrap();
            volume.map(desc, (0, CHUNK), Mapped::Write, Fill::None).unwrap();
            volume.make_whole(node, 0).unwrap();
            volume.make_whole(node, CHUNK_BLOCKS).unwrap();
            let whole = layout(&volume, node);
            assert_eq!(whole.0, 2);
            volume.make_whole(node, 0).unwrap();
            volume.make_whole(node, 2 * CHUNK_BLOCKS).unwrap();
            assert_eq!(layout(&volume, node), whole, "nothing is left to do, nor behind the end");
            volume.truncate(node, 2 * CHUNK).unwrap();
            let mut bytes = vec![7; 2 * CHUNK as usize];
            volume.read_file(node, 0, &mut [UserOut::new(&mut bytes)]).unwrap();
            for (at, block) in (0..).zip(bytes.chunks_exact(BLOCK as usize)) {
                let expected = if at < 700 && !(100..107).contains(&at) { tag(at) } else { 0 };
                assert!(block.iter().all(|&byte| byte == expected), "block {at}");
            }
            assert_eq!(volume.attributes(node).unwrap().blocks * 512, 2 * CHUNK);
            volume.close(desc).unwrap();
            let report = volume.check(&crate::FsckOptions::default()).unwrap();
            assert!(report.faults.is_empty(), "{:?}", report.faults);
        }
    }

    #[test]
    fn it_is_rewritten_before_its_first_mapping_and_behind_its_last_and_never_between() {
        let volume = volume(Mode::Strict, 32);
        let node = shuffled(&volume, "f", 1024);
        let desc = opened(&volume, node);
        let pieces = volume.map(desc, (0, 2 * CHUNK), Mapped::Read, Fill::All).unwrap();
        assert!(pieces.len() <= 2 && layout(&volume, node).0 == 2, "{pieces:?}");
        // A hole of two blocks in the middle, filled by a mapping that must not wait.
        volume.truncate(node, 3 * CHUNK).unwrap();
        for at in 1024..1536 {
            write(&volume, node, at * BLOCK, &[tag(at); BLOCK as usize]);
        }
        let scattered = layout(&volume, node);
        assert_eq!(rewrite(&volume, node), Err(Errno::BUSY));
        volume.map(desc, (0, 3 * CHUNK), Mapped::Write, Fill::All).unwrap();
        assert_eq!(layout(&volume, node), scattered);
        let second = opened(&volume, node);
        volume.close(desc).unwrap();
        assert_eq!(layout(&volume, node), scattered, "somebody has it open still");
        volume.close(second).unwrap();
        assert_eq!(layout(&volume, node).0, 3);
        check(&volume, node, 1536);
    }

    #[test]
    fn holes_stay_holes_and_what_is_unwritten_stays_so() {
        let volume = volume(Mode::Strict, 32);
        let node = shuffled(&volume, "f", 512);
        write(&volume, node, 2 * CHUNK - BLOCK, &[9; BLOCK as usize]);
        let desc = opened(&volume, node);
        // The third chunk is allocated piece by piece and written in its middle only.
        for at in (1024..1536).rev() {
            volume.allocate(desc, 0, at * BLOCK, BLOCK).unwrap();
        }
        for at in (1536..2048).rev() {
            volume.allocate(desc, 0, at * BLOCK, BLOCK).unwrap();
        }
        write(&volume, node, 1100 * BLOCK, &[8; BLOCK as usize]);
        let before = volume.extents(node).unwrap();
        let blocks = volume.attributes(node).unwrap().blocks;
        rewrite(&volume, node).unwrap();
        let after = volume.extents(node).unwrap();
        assert_eq!(layout(&volume, node).0, 3, "{after:?}");
        assert_eq!(volume.attributes(node).unwrap().blocks, blocks);
        // (Where its only block lies is `compact.rs`'s affair.)
        let alone = |extent: &&crate::Extent| extent.file_offset == 2 * CHUNK - BLOCK;
        assert_eq!(before.iter().filter(alone).count(), 1);
        assert_eq!(after.iter().filter(alone).count(), 1, "the chunk with a hole is left alone");
        let last = after.last().unwrap();
        assert!(!last.written && last.file_offset == 3 * CHUNK, "{last:?}");
        let mut bytes = vec![7; 2 * CHUNK as usize];
        volume.read_file(node, 2 * CHUNK, &mut [UserOut::new(&mut bytes)]).unwrap();
        let at = (1100 - 1024) * BLOCK as usize;
        let (written, rest) = (at..at + BLOCK as usize, |i: usize| bytes[i]);
        assert!((0..bytes.len()).all(|i| rest(i) == if written.contains(&i) { 8 } else { 0 }));
        volume.close(desc).unwrap();
    }

    #[test]
    fn without_a_free_chunk_everything_stays() {
        let volume = volume(Mode::Strict, 16);
        let node = shuffled(&volume, "f", 600);
        let filler = made(&volume, "filler");
        let desc = opened(&volume, filler);
        let mut length = 16 * CHUNK;
        while length > 0 {
            let size = volume.attributes(filler).unwrap().size;
            if volume.allocate(desc, 0, size, length).is_err() {
                length /= 2;
                length -= length % BLOCK;
            }
        }
        let before = (volume.extents(node).unwrap(), volume.free_space().unwrap());
        assert_eq!(rewrite(&volume, node), Err(Errno::NOSPC));
        assert_eq!((volume.extents(node).unwrap(), volume.free_space().unwrap()), before);
        check(&volume, node, 600);
    }

    #[test]
    fn blocks_that_lie_right_are_joined_without_a_copy() {
        let volume = volume(Mode::Strict, 32);
        let node = shuffled(&volume, "f", 512);
        rewrite(&volume, node).unwrap();
        let place = volume.extents(node).unwrap();
        // Two relinks break the leaf into single words and put them back.
        let other = made(&volume, "g");
        volume.relink_file(node, 0, other, 0, 8 * BLOCK).unwrap();
        volume.relink_file(other, 0, node, 0, 8 * BLOCK).unwrap();
        assert_eq!(volume.extents(node).unwrap(), place);
        let moved = volume.moved_bytes();
        assert_eq!(rewrite(&volume, node).unwrap(), 0);
        assert_eq!((volume.extents(node).unwrap(), volume.moved_bytes()), (place, moved));
        let run = volume.read_steadily(node, |inode, id| Map::new(&volume, inode, id).run(0, 512));
        assert!(run.unwrap().huge, "one word names it");
        check(&volume, node, 512);
    }

    #[test]
    fn files_that_grow_in_turns_come_apart() {
        let volume = volume(Mode::Strict, 48);
        let names = ["a", "b", "c"];
        let nodes = names.map(|name| made(&volume, name));
        let alone = made(&volume, "alone");
        // Through the contract: the end of a call does what has become due.
        let append = |desc: Desc, at: u64| {
            let bytes = [tag(at); BLOCK as usize];
            volume.write(desc, &[UserIn::new(&bytes)], IoOffset::offset(at * BLOCK)).unwrap();
        };
        let descs = nodes.map(|node| opened(&volume, node));
        for at in 0..1100 {
            for desc in descs {
                append(desc, at);
            }
        }
        let moved = volume.moved_bytes();
        for &node in &nodes {
            assert!(layout(&volume, node).0 >= 2, "{:?}", layout(&volume, node));
            check(&volume, node, 1100);
        }
        assert!(moved > 0 && moved <= 3 * 2 * CHUNK, "{moved}: each byte once at most");
        // One that grows by itself has nothing to come apart from.
        let desc = opened(&volume, alone);
        for at in 0..600 {
            append(desc, at);
        }
        assert_eq!(volume.moved_bytes(), moved);
        let report = volume.check(&crate::FsckOptions::default()).unwrap();
        assert!(report.faults.is_empty(), "{:?}", report.faults);
    }

    #[test]
    fn readers_and_writers_beside_it_notice_nothing() {
        let volume: Arc<Volume> = volume(Mode::Strict, 48);
        let (blocks, done) = (2048, AtomicBool::new(false));
        let node = shuffled(&volume, "f", blocks);
        std::thread::scope(|scope| {
            let (volume, done) = (&volume, &done);
            for seed in 1..3 {
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    let mut bytes = vec![0; 5 * BLOCK as usize];
                    while !done.load(Ordering::Relaxed) {
                        let at = random.below(blocks - 5);
                        if seed == 1 {
                            write(volume, node, at * BLOCK, &[tag(at); BLOCK as usize]);
                            continue;
                        }
                        let out = &mut [UserOut::new(&mut bytes)];
                        volume.read_file(node, at * BLOCK, out).unwrap();
                        for (i, block) in (at..).zip(bytes.chunks_exact(BLOCK as usize)) {
                            assert!(block.iter().all(|&byte| byte == tag(i)), "block {i}");
                        }
                    }
                });
            }
            for _ in 0..20 {
                rewrite(volume, node).unwrap();
                // Scattered again: strict overwrites of what is no leaf go elsewhere.
                volume.truncate(node, blocks * BLOCK).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        rewrite(&volume, node).unwrap();
        assert_eq!(layout(&volume, node).0, 4);
        check(&volume, node, blocks);
    }
}
