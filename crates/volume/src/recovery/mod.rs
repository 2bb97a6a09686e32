//! Recovery: after a crash, at the first attach; and the rebuild of the free map after a death.
//!
//! The medium is always in one of two states: as before or as after each operation, once the lanes
//! are undone. Allocation is not stored at all: what the root directory reaches is allocated. So
//! recovery is: undo every lane, mark ([`Mark`]), publish the free map, trim what torn appends left
//! beyond the ends of files. Every step can be repeated; a crash inside recovery is recovered the
//! same way.
//!
//! If the mark finds damage, nothing is published and nothing is freed: `EIO`, and the volume is to
//! be attached read-only until fsck has named what is wrong.
//!
//! Locks: none; the caller has the volume to itself (first attach), or has closed the gate and
//! waited for quiet.

mod death;
pub(crate) mod fault;
pub(crate) mod mark;
pub(crate) mod reachability;
mod traversal;

use crate::Result;
use crate::inject::{Bug, injected};
use crate::inode::Inode;
use crate::inode::inode_slots::{EMPTY, Extent};
use crate::medium::layout::{BLOCK, CHUNK_BLOCKS, LANE};
use crate::recovery::mark::{Counts, Depth, Mark, all_threads};
use crate::recovery::reachability::Reached;
use crate::space::chunk::{self, Bitmap, Mask, count_free};
use crate::space::free_map::bits_of;
use crate::space::fullness::{Draft, Words};
use crate::txn::journal::{header_number, header_word, lane_offset};
use crate::upkeep::Upkeep;
use pmem::FenceBatch;
use rustix::io::Errno;
use std::ops::Deref;
use std::time::{Duration, Instant};

/// Upkeep, and the recovery of what died.
pub struct Recoveries {
    upkeep: Upkeep,
}

impl Deref for Recoveries {
    type Target = Upkeep;

    #[inline]
    fn deref(&self) -> &Upkeep {
        &self.upkeep
    }
}

impl Recoveries {
    pub(crate) fn new(upkeep: Upkeep) -> Self {
        Self { upkeep }
    }
}

/// What a recovery did, and how long each part of it took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recovery {
    /// Files, directories and other objects that were found.
    pub inodes: u64,
    /// Bytes of metadata that were read on the way.
    pub metadata_bytes: u64,
    /// Calls that were undone, or done to their end.
    pub undone: u64,
    /// Files whose ends were put right.
    pub ends: u64,
    /// Undoing the lanes.
    pub undo: Duration,
    /// Finding everything that is in use.
    pub mark: Duration,
    /// Writing the free map.
    pub publish: Duration,
    /// Cutting off what torn appends left, committing sizes that survived.
    pub recover_ends: Duration,
}

impl Recovery {
    /// All of it.
    pub fn elapsed(&self) -> Duration {
        self.undo + self.mark + self.publish + self.recover_ends
    }
}

/// What a rebuild found.
pub(crate) struct Rebuilt {
    /// Files with blocks beyond their end that no call asked for, or with a size that is newer than
    /// the durable one.
    pub(crate) leftovers: Vec<Inode>,
    /// Files whose newest commit slot is void if their tail does not match its checksum.
    pub(crate) checksummed: Vec<Inode>,
    /// Of the extra roots, those that no name leads to.
    pub(crate) nameless: Vec<Inode>,
    pub(crate) counts: Counts,
    mark: Duration,
    publish: Duration,
}

impl Recoveries {
    /// Makes the volume ready after an unclean end: the caller is the first to attach in this
    /// epoch. `alone`: makes no thread. `EIO` if there is damage: attach read-only then.
    pub(crate) fn recover(&self, alone: bool) -> Result<Recovery> {
        let mut done = Recovery::default();
        let begun = Instant::now();
        let mut lanes = u64::from(self.superblock.lanes);
        if injected(Bug::LanesByProcessors) {
            lanes = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        }
        let mut numbers = FenceBatch::default();
        for lane in 0..lanes {
            let (undone, number) = self.replay_lane(lane)?;
            done.undone += u64::from(undone);
            numbers.add(number);
        }
        // PERSIST: the transactions are void before others may change what they covered.
        let _ = numbers.fence();
        done.undo = begun.elapsed();
        let rebuilt = self.rebuild_with(&[], if alone { 1 } else { all_threads() })?;
        (done.mark, done.publish) = (rebuilt.mark, rebuilt.publish);
        let Counts { files, directories, others, metadata_blocks, .. } = rebuilt.counts;
        done.inodes = files + directories + others;
        done.metadata_bytes = metadata_blocks * BLOCK;
        let begun = Instant::now();
        let mut stale = injected(Bug::EndsBeforeMap).then(|| Mark::new(self, Depth::Structure, 1));
        if let Some(mark) = &mut stale {
            mark.run(&[], &mut |_, _| {});
        }
        done.ends = self.recover_ends(&rebuilt)?;
        if let Some(mark) = stale {
            self.publish(mark.reached())?;
        }
        done.recover_ends = begun.elapsed();
        Ok(done)
    }

    /// Puts the ends of files right that a crash left in doubt; gives how many.
    pub(crate) fn recover_ends(&self, rebuilt: &Rebuilt) -> Result<u64> {
        let mut recovered = rebuilt.leftovers.len() as u64;
        for &inode in &rebuilt.checksummed {
            // CRASH: as long as a slot stands whose bytes never came, recovery finds it again.
            let torn = self.void_torn_tail(inode)?;
            let leftover = |inode: &Inode| inode.0;
            if torn && rebuilt.leftovers.binary_search_by_key(&inode.0, leftover).is_err() {
                self.recover_end(inode)?;
                recovered += 1;
            }
        }
        for &inode in &rebuilt.leftovers {
            // CRASH: blocks beyond the end are harmless; the next recovery finds those that are
            // left.
            self.recover_end(inode)?;
        }
        Ok(recovered)
    }

    /// Makes damaged lanes whole again, and takes back what they say of overwrites. Only after an
    /// orderly end: then nothing in a lane is still wanted.
    pub(crate) fn repair_lanes(&self) -> Result<()> {
        for lane in 0..u64::from(self.superblock.lanes) {
            let at = lane_offset(lane);
            if self.has_redo(lane)? {
                self.void_redo(lane)?;
            }
            if header_number(lane, self.region.load64(at)?).is_some() {
                continue;
            }
            // PERSIST: no entry of any former transaction may be left when the number starts anew.
            let durable = self.region.stream_zero(at, LANE)?.fence();
            let _ = self.region.commit64(at, header_word(lane, 1), &durable)?.flush().fence();
        }
        Ok(())
    }

    /// Rebuilds the free map from what is reachable, now, from the root directory and from
    /// `extra_roots` (inodes without a name that are still open). `EIO`, and the map stays as it
    /// is, if anything is damaged.
    pub(crate) fn rebuild(&self, extra_roots: &[Inode]) -> Result<Rebuilt> {
        // One thread: this runs inside some call of a program that did not ask for more.
        self.rebuild_with(extra_roots, 1)
    }

    fn rebuild_with(&self, extra_roots: &[Inode], threads: usize) -> Result<Rebuilt> {
        // Another process may have grown the volume: what it put into the new part is no damage.
        self.refresh_size()?;
        let begun = Instant::now();
        let mut mark = Mark::new(self, Depth::Structure, threads);
        mark.run(extra_roots, &mut |_, _| {});
        if !mark.found.faults.is_empty() {
            return Err(Errno::IO);
        }
        let marked = begun.elapsed();
        self.publish(mark.reached())?;
        for &inode in &mark.found.spared {
            // The process about to free it died before it took the last name.
            self.allow_opens(inode)?;
        }
        let found = mark.found;
        Ok(Rebuilt {
            leftovers: found.leftovers,
            checksummed: found.checksummed,
            nameless: mark.nameless,
            counts: found.counts,
            mark: marked,
            publish: begun.elapsed().saturating_sub(marked),
        })
    }

    /// As [`Recoveries::rebuild`] from the root alone, in spite of damage: for counting in a
    /// private view.
    pub(crate) fn rebuild_regardless(&self) -> Result<()> {
        let mut mark = Mark::new(self, Depth::Structure, all_threads());
        mark.run(&[], &mut |_, _| {});
        self.publish(mark.reached())
    }

    /// Makes what was marked the free map. The slots' bitmaps come first: an extent counts as one
    /// only when its record says so.
    fn publish(&self, reached: &Reached) -> Result<()> {
        self.publish_as(reached, false)
    }

    /// As [`Recoveries::publish`]; what the free map says is in use stays so.
    pub(crate) fn publish_besides(&self, reached: &Reached) -> Result<()> {
        self.publish_as(reached, true)
    }

    fn publish_as(&self, reached: &Reached, besides: bool) -> Result<()> {
        if !besides {
            self.forget_kept()?;
        }
        let backed = self.backed();
        let left = if besides { Vec::new() } else { self.announced_extents(reached)? };
        let mut fullness = Draft::new(self.chunks());
        for group in 0..self.groups() {
            let (mut blocks, mut chunks, mut inodes) = (0, 0, 0);
            for chunk in self.group_chunks(group) {
                let (mut bits, mut extents) = (reached.bits(chunk), reached.extents(chunk));
                let besides = besides && backed.has(chunk);
                let before = if besides { self.mask(chunk, Mask::Extents)? } else { 0 };
                if besides {
                    let old = self.bitmap(chunk)?;
                    bits.iter_mut().zip(old).for_each(|(word, old)| *word |= old);
                    extents |= before;
                }
                for &Extent { index, .. } in left.iter().filter(|one| one.chunk == chunk) {
                    bits[index as usize / 8] |= 0xFF << (index % 8 * 8);
                    extents |= 1 << index;
                }
                for index in bits_of(extents) {
                    let mut slots = reached.slots(chunk, index) | EMPTY;
                    if before >> index & 1 != 0 {
                        slots |= self.extent_slots(chunk, index)?;
                    }
                    self.region.shared_store(self.extent_slots_offset(chunk, index), slots)?;
                    inodes += u64::from(slots.count_ones()) - 1;
                }
                let free = count_free(&bits);
                let kind = match free {
                    CHUNK_BLOCKS => chunk::Kind::Free,
                    _ if reached.holds_metadata(chunk) || extents != 0 => chunk::Kind::Metadata,
                    _ => chunk::Kind::Data,
                };
                if kind != chunk::Kind::Free || backed.has(chunk) {
                    self.write_record(chunk, &bits, kind, extents)?;
                }
                fullness.add(chunk, kind, free, extents);
                blocks += free;
                chunks += u64::from(kind == chunk::Kind::Free);
            }
            self.write_group(group, blocks, chunks, inodes)?;
        }
        self.index_write(&fullness, Words::Any)?;
        left.into_iter().try_for_each(|extent| self.leave_extent(extent))
    }

    /// The extents that nothing reaches and in which a lock is announced. Who has found its inode
    /// in use before this stores to its lock word: that must be one still.
    fn announced_extents(&self, reached: &Reached) -> Result<Vec<Extent>> {
        let (backed, mut found) = (self.backed(), Vec::new());
        // Out of use first, as where an extent is dropped: who announces a lock from here on finds
        // its inode so.
        for chunk in (0..self.chunks()).filter(|&chunk| backed.has(chunk)) {
            for index in bits_of(self.mask(chunk, Mask::Extents)? & !reached.extents(chunk)) {
                self.mask_clear(chunk, Mask::Extents, index)?;
            }
        }
        for inode in self.announced_inodes()? {
            let Ok((extent, _)) = self.extent_of(inode.0) else { continue };
            let blocks =
                |bits: Bitmap| bits[extent.index as usize / 8] >> (extent.index % 8 * 8) & 0xFF;
            // One that died while it dropped it may have cleared the bit above.
            if backed.has(extent.chunk)
                && blocks(self.bitmap(extent.chunk)?) == 0xFF
                && blocks(reached.bits(extent.chunk)) == 0
                && !found.contains(&extent)
            {
                found.push(extent);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;
    use crate::Volume;
    use crate::attach::{AttachOptions, attach_region};
    use crate::space::alloc::Want;
    use crate::testing::{Random, image, root, volume};
    use pmem::UserIn;
    use vfs::{EntryName, FileSystem, Kind, NewNode, Node, Removes};

    fn bitmaps(volume: &Volume) -> Vec<Bitmap> {
        (0..volume.chunks()).map(|chunk| volume.bitmap(chunk).unwrap()).collect()
    }

    fn work(volume: &Volume, seed: u64) -> Vec<Node> {
        let mut random = Random::new(seed);
        let mut files = Vec::new();
        for index in 0..400 {
            let name = format!("{index}");
            let kind = Kind::File;
            let new = NewNode { kind, mode: 0o600, uid: 0, gid: 0, rdev: 0, target: b"" };
            let node = volume.create(root(volume), name.as_bytes(), &new).unwrap();
            let bytes = vec![index as u8; 1 + random.below(60_000) as usize];
            let at = crate::data::plan::Position::At(random.below(1 << 22));
            volume.write_file(node, at, &[UserIn::new(&bytes)]).unwrap();
            files.push(node);
            if random.below(3) == 0 {
                let victim = random.below(index + 1);
                let _ = volume.remove(
                    &EntryName::new(root(volume), format!("{victim}").as_bytes()),
                    Removes::Name,
                );
            }
        }
        files
    }

    #[test]
    fn a_rebuild_finds_what_was_allocated() {
        for mode in [Mode::Posix, Mode::Sync, Mode::Strict] {
            let volume = volume(mode, 40);
            work(&volume, 11);
            volume.return_kept().unwrap();
            let (before, space) = (bitmaps(&volume), volume.free_space().unwrap());
            volume.rebuild(&[]).unwrap();
            assert_eq!(bitmaps(&volume), before);
            assert_eq!(volume.free_space().unwrap(), space);
            assert_eq!(volume.free_blocks().unwrap(), space.free_blocks());
        }
    }

    #[test]
    fn the_work_grows_with_the_files_and_not_with_the_volume() {
        let recovered = |chunks, files| {
            let volume = volume(Mode::Strict, chunks);
            let mut op = 0;
            while op < files {
                let new =
                    NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, rdev: 0, target: b"" };
                volume.create(root(&volume), format!("file {op}").as_bytes(), &new).unwrap();
                op += 1;
            }
            let after = attach_region(image(&volume), &AttachOptions::default()).unwrap();
            let done = after.recovery().unwrap();
            (done.inodes, done.metadata_bytes)
        };
        let (few, many) = (recovered(16, 300), recovered(16, 3000));
        assert_eq!(few.0, 301);
        assert_eq!(many.0, 3001);
        assert!(many.1 < 14 * few.1, "{few:?} {many:?}");
        // What is read differs by no more than by how the names fell into buckets.
        let large = recovered(160, 300);
        assert_eq!(large.0, few.0);
        assert!(large.1.abs_diff(few.1) < few.1 / 4, "{few:?} {large:?}");
    }

    #[test]
    fn a_crash_leaks_nothing() {
        let volume = volume(Mode::Strict, 40);
        work(&volume, 5);
        let space = volume.free_space().unwrap();
        // As if a call had died right after its allocations.
        let mut op = volume.begin().unwrap();
        op.work().unwrap();
        volume.allocate_data(&mut op, 700, Want { aligned: true, ..Want::default() }).unwrap();
        volume.allocate_metadata(&mut op, 9).unwrap();
        volume.allocate_inode(&mut op).unwrap();
        let after = attach_region(image(&volume), &AttachOptions::default()).unwrap();
        assert_eq!(after.free_space().unwrap(), space);
        drop(op);
        assert_eq!(volume.free_space().unwrap(), space);
    }

    #[test]
    fn an_open_file_without_a_name_survives_a_rebuild() {
        let volume = volume(Mode::Strict, 16);
        work(&volume, 3);
        let before = volume.free_space().unwrap();
        let new = NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, rdev: 0, target: b"" };
        let node = volume.create(root(&volume), b"doomed", &new).unwrap();
        let at = crate::data::plan::Position::At(0);
        volume.write_file(node, at, &[UserIn::new(&[7; 9000])]).unwrap();
        let desc = vfs::FileSystem::open(&*volume, node.into(), vfs::OpenFlags(libc::O_RDWR), None)
            .unwrap();
        volume.remove(&EntryName::new(root(&volume), b"doomed"), Removes::Name).unwrap();
        let with = bitmaps(&volume);
        let mut roots = volume.nameless_roots().unwrap();
        // Also one that has a name, as of an operation that waits at the gate.
        roots.push(Inode(volume.superblock.root));
        volume.rebuild(&roots).unwrap();
        assert_eq!(bitmaps(&volume), with);
        volume.close_description(desc).unwrap();
        assert_eq!(volume.free_space().unwrap(), before);
    }
}
