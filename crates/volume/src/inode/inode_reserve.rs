//! What an operation record keeps for the operations to come: free inodes, fresh numbers, an extent
//! to be given back. (It keeps blocks, too: `space/block_reserve.rs`.)
//!
//! A record is its CPU's as long as there are enough of them (`acquire.rs`), so two CPUs whose
//! calls have nothing to do with each other write no line of both when they make and remove files.
//!
//! - *generations, sequences*: the next number of a block of [`NUMBERS`] from the runtime's
//!   counter; written by the operation;
//! - *inodes*: up to 16 free slots of one inode extent, a bit each; above them, ino / 16; written
//!   by the operation, and by a call that takes them back;
//! - *freed*: one more, which an unlink has just freed: the next create takes it. Not 0 only by a
//!   plain store of the operation, which so waits for none of its stores that are under way; back
//!   to 0 by the operation, and by a call that takes it back;
//! - *left*: the number of a slot of an extent without inodes, which could not be given back since
//!   a lock in it was announced; written by any operation. It may be out of date: the extent may
//!   have inodes again, or be gone.
//!
//! A kept inode is in use as far as its extent's bitmap and the group's counter tell, and nothing
//! else leads to it. Whoever counts takes the kept ones off, and the blocks of extents that hold no
//! others ([`Inodes::kept_extents`]); fsck does not miss them. They are given back when the map is
//! saved, when inodes or blocks run out, and with the last other inode of their extent; an extent
//! that is left, with the next one that is given back. A sweep frees them with all that nothing
//! reaches, and so makes these words void.
//!
//! Inodes are kept and taken, and extents left, by operations past the gate only: a death between
//! two words leaves what the sweep finds. Numbers are counted before they are used.
//!
//! Locks: none. Persistence: none, all of this is volatile.

use crate::Result;
use crate::inode::inode_slots::{EMPTY, Extent};
use crate::inode::{Inode, Inodes};
use crate::medium::layout::{
    CHUNK_BLOCKS, EXTENT_BLOCKS, EXTENT_INODES, HEADER_GENERATION, HEADER_SEQUENCE,
};
use crate::medium::record_words::{
    RECORD_FREED, RECORD_GENERATIONS, RECORD_INODES, RECORD_LEFT, RECORD_SEQUENCES, Record, index,
};
use crate::space::alloc::Usage;
use crate::space::chunk::{Group, Kind, count_free};
use crate::space::free_map::bits_of;
use rustix::io::Errno;

/// Numbers that are taken from a counter at a time.
const NUMBERS: u64 = 256;
/// Slots of an extent that a record keeps at most: those whose number has the same quotient.
pub(crate) const KEPT: u64 = 16;
/// The bits of a word that stand for kept slots.
pub(crate) const SLOTS: u64 = (1 << KEPT) - 1;

/// Slots of an extent that a record keeps.
struct Kept {
    extent: Extent,
    /// As in the extent's bitmap; 0 of one that is left.
    slots: u64,
}

/// The inodes that a word tells of.
fn inodes_of(word: u64) -> impl Iterator<Item = u64> {
    bits_of(word & SLOTS).map(move |bit| (word >> KEPT) * KEPT + bit)
}

impl Record<'_> {
    /// The next of the record's own numbers.
    #[inline]
    fn number(&self, inodes: &Inodes, word: u64, source: u64) -> Result<u64> {
        let mut next = self.0.load(index(word))?;
        if next.is_multiple_of(NUMBERS) {
            next = inodes.rt.add(source, NUMBERS)?;
        }
        self.0.store(index(word), next + 1)?;
        Ok(next)
    }

    /// A number that no other call in this epoch gets, for a generation.
    #[inline]
    pub(crate) fn generation(&self, inodes: &Inodes) -> Result<u64> {
        self.number(inodes, RECORD_GENERATIONS, HEADER_GENERATION)
    }

    /// The same, for sequence numbers.
    #[inline]
    pub(crate) fn sequence(&self, inodes: &Inodes) -> Result<u64> {
        self.number(inodes, RECORD_SEQUENCES, HEADER_SEQUENCE)
    }

    /// Takes an inode that is kept.
    #[inline]
    pub(crate) fn take_kept(&self) -> Result<Option<u64>> {
        let freed = self.0.load(index(RECORD_FREED))?;
        if freed != 0 && self.0.cas(index(RECORD_FREED), freed, 0)?.is_ok() {
            return Ok(Some(freed));
        }
        let mut word = self.0.load(index(RECORD_INODES))?;
        while let Some(ino) = inodes_of(word).next() {
            match self.0.cas(index(RECORD_INODES), word, word & (word - 1))? {
                Ok(_) => return Ok(Some(ino)),
                Err(found) => word = found,
            }
        }
        Ok(None)
    }

    /// Keeps a free inode by itself; `false` if there is such a one.
    #[inline]
    fn keep_freed(&self, ino: u64) -> Result<bool> {
        // Nobody else makes it anything but 0.
        let free = self.0.load(index(RECORD_FREED))? == 0;
        if free {
            self.0.store(index(RECORD_FREED), ino)?;
        }
        Ok(free)
    }

    /// Keeps a free inode; `false` if others are kept than its neighbours. `EIO` if it is kept
    /// already.
    #[inline]
    fn keep(&self, ino: u64) -> Result<bool> {
        let (group, bit) = (ino / KEPT, 1 << (ino % KEPT));
        let word = self.0.load(index(RECORD_INODES))?;
        let kept = match word & SLOTS {
            0 => 0,
            kept if word >> KEPT == group => kept,
            _ => return Ok(false),
        };
        if kept & bit != 0 {
            return Err(Errno::IO);
        }
        Ok(self.0.cas(index(RECORD_INODES), word, group << KEPT | kept | bit)?.is_ok())
    }

    /// Keeps inodes that were just taken for this record, which keeps none: slots `slots` of the
    /// extent whose header is `first`; all lie among the same [`KEPT`].
    pub(crate) fn keep_all(&self, first: u64, slots: u64) -> Result<()> {
        let Some(lowest) = bits_of(slots).next() else { return Ok(()) };
        let group = lowest / KEPT;
        let word = (first / KEPT + group) << KEPT | slots >> (group * KEPT) & SLOTS;
        Ok(self.0.store(index(RECORD_INODES), word)?)
    }
}

impl Inodes {
    /// Frees an inode for the next operation of this record, or for all. `EIO` if it is not in use.
    pub(crate) fn give_back_inode(&self, record: &Record<'_>, op: u32, ino: u64) -> Result<()> {
        if !self.inode_in_use(ino)? {
            return Err(Errno::IO);
        }
        self.keep_inode(record, op, ino)
    }

    /// As [`Inodes::give_back_inode`], of an inode that is in use.
    #[inline]
    pub(crate) fn keep_inode(&self, record: &Record<'_>, op: u32, ino: u64) -> Result<()> {
        if !record.keep_freed(ino)? && !record.keep(ino)? {
            self.release_inode(ino)?;
        }
        // The extents of what it keeps, by the numbers of their headers; 0: none.
        let (word, freed) =
            (record.0.load(index(RECORD_INODES))?, record.0.load(index(RECORD_FREED))?);
        let first = |ino: u64| ino / EXTENT_INODES * EXTENT_INODES;
        let (group, own) = ((word >> KEPT) * KEPT, word & SLOTS);
        let mut kept = (if own == 0 { 0 } else { first(group) }, own << (group % EXTENT_INODES));
        let mut one = (first(freed), 1 << (freed % EXTENT_INODES));
        if kept.0 == one.0 {
            (kept.1, one.0) = (kept.1 | one.1, 0);
        }
        for (header, slots) in [kept, one] {
            if header != 0 && self.slots_of(Inode(header))? == EMPTY | slots {
                return self.return_kept_by(op).map(drop);
            }
        }
        Ok(())
    }

    /// Whether a record keeps an inode that is at home here, by a look.
    #[inline]
    pub(crate) fn keeps_at_home(&self, record: &Record<'_>) -> Result<bool> {
        let freed = record.0.load(index(RECORD_FREED))?;
        if freed != 0 {
            return self.is_home(freed);
        }
        let word = record.0.load(index(RECORD_INODES))?;
        let Some(ino) = inodes_of(word).next() else { return Ok(false) };
        self.is_home(ino)
    }

    /// The slots that a record keeps, and the one freed last, as far as there are any.
    fn kept_by(&self, op: u32) -> Result<[Option<Kept>; 2]> {
        let record = Record::new(self, op)?;
        let word = record.0.load(index(RECORD_INODES))?;
        // What a crash left in the record of an image that is only looked at may be anything.
        let place = |ino| self.extent_of(ino).ok();
        let kept = inodes_of(word).next().and_then(place).map(|(extent, slot)| {
            let slots = (word & SLOTS) << (slot / KEPT * KEPT);
            Kept { extent, slots }
        });
        let freed = Some(record.0.load(index(RECORD_FREED))?).filter(|&ino| ino != 0);
        let freed = freed.and_then(place);
        Ok([kept, freed.map(|(extent, slot)| Kept { extent, slots: 1 << slot })])
    }

    /// The extent that a record names as left, if it does.
    fn left_by(&self, op: u32) -> Result<Option<Kept>> {
        let ino = self.rt.load(self.rt.op(op) + RECORD_LEFT)?;
        Ok(self.extent_of(ino).ok().map(|(extent, _)| Kept { extent, slots: 0 }))
    }

    /// All slots that records keep, those of one extent together, and what is left.
    fn all_kept(&self) -> Result<Vec<Kept>> {
        let mut all: Vec<Kept> = Vec::new();
        for op in 0..self.rt.layout.op_count as u32 {
            for kept in self.kept_by(op)?.into_iter().chain([self.left_by(op)?]).flatten() {
                match all.iter_mut().find(|one| one.extent == kept.extent) {
                    Some(one) => one.slots |= kept.slots,
                    None => all.push(kept),
                }
            }
        }
        Ok(all)
    }

    /// How many inodes are kept.
    pub(crate) fn kept_inodes(&self) -> Result<u64> {
        Ok(self.all_kept()?.iter().map(|kept| u64::from(kept.slots.count_ones())).sum())
    }

    /// The extents without inodes that are there only for what is kept of them, or are left: chunk,
    /// and index in it.
    pub(crate) fn kept_extents(&self) -> Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        for kept in self.all_kept()? {
            // A header that cannot be read is found by who needs it.
            let slots = self.is_extent(kept.extent)?.then(|| self.slots(kept.extent));
            if slots == Some(Ok(EMPTY | kept.slots)) {
                found.push((kept.extent.chunk, kept.extent.index));
            }
        }
        Ok(found)
    }

    /// How many blocks are kept, those of extents included.
    pub(crate) fn kept_blocks(&self) -> Result<u64> {
        let extents = self.kept_extents()?.len() as u64;
        Ok(extents * EXTENT_BLOCKS + self.kept_singles()?.len() as u64)
    }

    /// Inodes in use; exact when nobody creates or removes any.
    pub(crate) fn inodes_used(&self) -> Result<u64> {
        Ok(self.group_sum(Group::Inodes)?.saturating_sub(self.kept_inodes()?))
    }

    /// Counts the pool's blocks by what they are used for. Exact when nobody allocates or frees.
    pub(crate) fn free_space(&self) -> Result<Usage> {
        let mut space = Usage { inodes: self.inodes_used()?, ..Usage::default() };
        let (kept, singles) = (self.kept_extents()?, self.kept_singles()?);
        let backed = self.backed();
        for chunk in 0..self.chunks() {
            if !backed.has(chunk) {
                space.free_chunks += 1;
                continue;
            }
            let bits = self.bitmap(chunk)?;
            // One that was given back meanwhile counts once.
            let there = |index: u64| bits[index as usize / 8] >> (index % 8 * 8) & 0xFF == 0xFF;
            let kept = kept.iter().filter(|extent| extent.0 == chunk && there(extent.1)).count();
            let singles = singles.iter().filter(|&&block| self.chunk_of(block).0 == chunk).count();
            let free = count_free(&bits) + kept as u64 * EXTENT_BLOCKS + singles as u64;
            let used = CHUNK_BLOCKS - free;
            match self.chunk_kind(chunk)? {
                _ if used == 0 => space.free_chunks += 1,
                Kind::Metadata => space.metadata_blocks += used,
                _ => space.data_blocks += used,
            }
            if used > 0 {
                space.hole_blocks += free;
            }
        }
        Ok(space)
    }

    /// Calls `each` with the extents of which something is kept, or that are left, as far as they
    /// are there: by the number of a header, and of the inodes that are kept.
    pub(crate) fn each_kept(
        &self,
        mut each: impl FnMut(u64, &mut dyn Iterator<Item = u64>),
    ) -> Result<()> {
        for kept in self.all_kept()? {
            if self.is_extent(kept.extent)? {
                let first = self.first_inode(kept.extent);
                each(first, &mut bits_of(kept.slots).map(|slot| first + slot));
            }
        }
        Ok(())
    }

    /// Gives back what all records keep; whether there was anything. For operations past the gate,
    /// or a process that is alone.
    pub(crate) fn return_kept(&self) -> Result<bool> {
        let mut any = false;
        for op in 0..self.rt.layout.op_count as u32 {
            any |= self.return_kept_by(op)?;
            any |= self.return_blocks_by(op, |_| true)?;
        }
        Ok(any | self.return_left()?)
    }

    /// An extent without inodes stays, since a lock in it is announced: a record that names none
    /// names it, whichever.
    #[cold]
    pub(crate) fn leave_extent(&self, extent: Extent) -> Result<()> {
        let ino = self.first_inode(extent) + 1;
        for op in 0..self.rt.layout.op_count as u32 {
            let at = self.rt.op(op) + RECORD_LEFT;
            let found = self.rt.load(at)?;
            if found == ino || found == 0 && self.rt.cas(at, 0, ino)?.is_ok() {
                return Ok(());
            }
        }
        // A sweep finds it.
        self.demand_sweep()
    }

    /// Tries again to give back the extents that are left; whether one was. For operations past the
    /// gate, or a process that is alone.
    pub(super) fn return_left(&self) -> Result<bool> {
        let mut any = false;
        for op in 0..self.rt.layout.op_count as u32 {
            let at = self.rt.op(op) + RECORD_LEFT;
            let ino = self.rt.load(at)?;
            if ino == 0 || self.rt.cas(at, ino, 0)?.is_err() {
                continue;
            }
            match self.extent_of(ino).and_then(|(extent, _)| self.drop_if_empty(extent)) {
                Ok(dropped) => any |= dropped,
                // The call is about other inodes: it need not fail.
                Err(_) => self.demand_sweep()?,
            }
        }
        Ok(any)
    }

    pub(crate) fn return_kept_by(&self, op: u32) -> Result<bool> {
        let take = |word: u64| {
            let at = self.rt.op(op) + word;
            let found = self.rt.load(at)?;
            let taken = found != 0 && self.rt.cas(at, found, 0)?.is_ok();
            Ok::<_, Errno>(if taken { found } else { 0 })
        };
        let (word, freed) = (take(RECORD_INODES)?, take(RECORD_FREED)?);
        // One that fails leaves the others their way back.
        let mut all = Ok(());
        let mut any = false;
        for ino in inodes_of(word).chain((freed != 0).then_some(freed)) {
            any = true;
            all = all.and(self.release_inode(ino));
        }
        all?;
        Ok(any)
    }

    /// The free map is made anew, without what was kept. Nobody works.
    pub(crate) fn forget_kept(&self) -> Result<()> {
        for op in 0..self.rt.layout.op_count as u32 {
            self.rt.store(self.rt.op(op) + RECORD_INODES, 0)?;
            self.rt.store(self.rt.op(op) + RECORD_FREED, 0)?;
            self.rt.store(self.rt.op(op) + RECORD_LEFT, 0)?;
        }
        self.forget_kept_blocks()
    }
}

#[cfg(test)]
mod tests {
    use crate::inode::Inode;
    use crate::inode::inode_slots::{EMPTY, Extent};
    use crate::medium::record_words::{LOCKS_MAX, RECORD_LOCKS, RECORD_OWNER};
    use crate::testing::{faults, file, fresh, volume};
    use crate::volume::Volume;
    use crate::{Mode, Result};
    use robust::owner::Owner;
    use rustix::io::Errno;
    use std::collections::BTreeSet;
    use vfs::{EntryName, FileSystem, Node, Removes};

    /// Makes files until it fails, in several directories of numbers.
    fn fill(volume: &Volume, root: Node) -> (u32, Errno) {
        let mut made = 0;
        let made_one = |made: u32| volume.create(root, format!("f{made}").as_bytes(), &file());
        loop {
            match made_one(made) {
                Ok(_) => made += 1,
                Err(errno) => return (made, errno),
            }
        }
    }

    #[test]
    fn what_is_kept_counts_as_free_and_no_check_misses_it() {
        let (volume, root) = fresh();
        let before = volume.free_space().unwrap();
        for round in 0..100 {
            let name = format!("{round}");
            volume.create(root, name.as_bytes(), &file()).unwrap();
            let full = volume.free_space().unwrap();
            assert_eq!(full.inodes, before.inodes + 1);
            assert!(volume.kept_inodes().unwrap() > 0, "nothing is kept");
            assert_eq!(faults(&volume), 0);
            volume.remove(&EntryName::new(root, name.as_bytes()), Removes::Name).unwrap();
            assert_eq!(volume.free_space().unwrap(), before);
        }
        assert!(volume.return_kept().unwrap());
        assert_eq!((volume.kept_inodes(), volume.free_space()), (Ok(0), Ok(before)));
        assert_eq!(faults(&volume), 0);
    }

    #[test]
    fn a_sweep_frees_what_is_kept() {
        let (volume, root) = fresh();
        volume.create(root, b"a", &file()).unwrap();
        let before = volume.free_space().unwrap();
        assert!(volume.kept_inodes().unwrap() > 0);
        volume.rebuild(&[]).unwrap();
        assert_eq!((volume.kept_inodes(), volume.free_space()), (Ok(0), Ok(before)));
    }

    #[test]
    fn the_last_inodes_are_had_whichever_record_keeps_them() {
        let volume = volume(Mode::Strict, 8);
        let root = crate::testing::root(&volume);
        let empty = volume.free_space().unwrap();
        let (made, errno) = fill(&volume, root);
        assert_eq!((errno, volume.kept_inodes()), (Errno::NOSPC, Ok(0)));
        // Another record keeps what is freed, as if another CPU had.
        let gone: BTreeSet<u32> = (0..8).map(|index| made / 2 + index).collect();
        for index in &gone {
            volume
                .remove(&EntryName::new(root, format!("f{index}").as_bytes()), Removes::Name)
                .unwrap();
        }
        for op in 0..volume.rt.layout.op_count as u32 {
            let at = volume.rt.op(op) + super::RECORD_INODES;
            let word = volume.rt.swap(at, 0).unwrap();
            if word & super::SLOTS != 0 {
                // One that keeps none: this thread may have moved between two unlinks.
                let place = |op| volume.rt.op(op) + super::RECORD_INODES;
                let keeps = |op: u32| volume.rt.load(place(op)).unwrap() & super::SLOTS != 0;
                let count = volume.rt.layout.op_count as u32;
                let other = (0..count).find(|&other| other != op && !keeps(other)).unwrap();
                volume.rt.store(place(other), word).unwrap();
                break;
            }
        }
        for index in &gone {
            let again = volume.create(root, format!("f{index}").as_bytes(), &file());
            assert!(again.is_ok(), "{index}: {again:?}");
        }
        for index in 0..made {
            volume
                .remove(&EntryName::new(root, format!("f{index}").as_bytes()), Removes::Name)
                .unwrap();
        }
        assert_eq!(volume.free_space(), Ok(empty));
    }

    #[test]
    fn the_last_inode_of_an_extent_takes_what_is_kept_of_it_along() -> Result<()> {
        let (volume, root) = fresh();
        let before = volume.free_space()?;
        let nodes: Vec<_> = (0..200)
            .map(|index| volume.create(root, format!("{index}").as_bytes(), &file()))
            .collect::<Result<_>>()?;
        for index in 0..200 {
            volume.remove(&EntryName::new(root, format!("{index}").as_bytes()), Removes::Name)?;
        }
        assert_eq!(volume.free_space()?, before);
        let extents = nodes.iter().map(|node| volume.extent_of(node.ino).map(|found| found.0));
        for extent in extents.collect::<Result<Vec<_>>>()? {
            let kept = volume.kept_extents()?.contains(&(extent.chunk, extent.index));
            let there = volume.is_extent(extent)?;
            assert!(!there || kept || volume.slots(extent)? != EMPTY, "an extent of nobody's");
        }
        Ok(())
    }

    /// Names a lock as an operation does that is about to take it, in place `at` of all records:
    /// the last ones come first, which no call takes here. 0: none any more.
    fn announce(volume: &Volume, at: u64, lock: u64) {
        let (record, word) = (at / LOCKS_MAX as u64 + 1, at % LOCKS_MAX as u64);
        let number = (volume.rt.layout.op_count - record) as u32;
        let owner = Owner::new(number, volume.slot(), volume.slot_generation());
        let owner = if lock == 0 { 0 } else { owner.word(volume.epoch) };
        let record = volume.rt.op(number);
        volume.rt.store(record + RECORD_LOCKS + word * 8, lock).unwrap();
        volume.rt.store(record + RECORD_OWNER, owner).unwrap();
    }

    /// Makes so many files, and removes them when the lock of the first one in each extent but the
    /// root's is announced; gives these extents.
    fn announced_and_emptied(volume: &Volume, root: Node, files: u64) -> Vec<Extent> {
        let mut extents = Vec::new();
        for index in 0..files {
            let node = volume.create(root, format!("{index}").as_bytes(), &file()).unwrap();
            let extent = volume.extent_of(node.ino).unwrap().0;
            if extent != volume.extent_of(root.ino).unwrap().0 && !extents.contains(&extent) {
                announce(volume, extents.len() as u64, Inode(node.ino).lock_offset());
                extents.push(extent);
            }
        }
        for index in 0..files {
            volume
                .remove(&EntryName::new(root, format!("{index}").as_bytes()), Removes::Name)
                .unwrap();
        }
        extents
    }

    fn there(volume: &Volume, extents: &[Extent]) -> usize {
        extents.iter().filter(|&&extent| volume.is_extent(extent).unwrap()).count()
    }

    #[test]
    fn an_extent_in_which_a_lock_is_announced_is_left_and_given_back_later() {
        let (volume, root) = fresh();
        let before = volume.free_space().unwrap();
        for gives_back in [
            |volume: &Volume, _| assert_eq!(volume.return_kept(), Ok(true)),
            // Another one becomes empty, and the free ones of its record are not all that is left.
            |volume: &Volume, root| drop(announced_and_emptied(volume, root, 200)),
        ] {
            let extents = announced_and_emptied(&volume, root, 100);
            volume.return_kept().unwrap();
            assert_eq!((extents.len(), there(&volume, &extents)), (1, 1));
            assert_eq!((volume.kept_extents().unwrap().len(), faults(&volume)), (1, 0));
            assert_eq!(volume.free_space().unwrap(), before);
            announce(&volume, 0, 0);
            gives_back(&volume, root);
            (0..4).for_each(|at| announce(&volume, at, 0));
            volume.return_kept().unwrap();
            assert_eq!((there(&volume, &extents), faults(&volume)), (0, 0));
            assert_eq!(volume.free_space().unwrap(), before);
        }
    }

    #[test]
    fn a_sweep_leaves_an_extent_in_which_a_lock_is_announced() {
        let (volume, root) = fresh();
        let before = volume.free_space().unwrap();
        let extents = announced_and_emptied(&volume, root, 100);
        volume.rebuild(&[]).unwrap();
        assert_eq!((extents.len(), there(&volume, &extents)), (1, 1));
        assert_eq!((volume.free_space().unwrap(), faults(&volume)), (before, 0));
        announce(&volume, 0, 0);
        assert_eq!((volume.return_kept(), there(&volume, &extents)), (Ok(true), 0));
        assert_eq!((volume.free_space().unwrap(), faults(&volume)), (before, 0));
    }

    #[test]
    fn of_more_extents_than_records_the_rest_is_swept() {
        let (volume, root) = fresh();
        let before = volume.free_space().unwrap();
        let records = volume.rt.layout.op_count;
        let extents = announced_and_emptied(&volume, root, (records + 3) * 63);
        volume.return_kept().unwrap();
        assert!(extents.len() as u64 > records && volume.sweep_demanded().unwrap());
        assert_eq!(there(&volume, &extents), extents.len());
        (0..extents.len() as u64).for_each(|at| announce(&volume, at, 0));
        assert_eq!((faults(&volume), there(&volume, &extents)), (0, 0));
        assert_eq!(volume.free_space().unwrap(), before);
    }

    #[test]
    fn numbers_never_repeat() {
        let (volume, _) = fresh();
        let mut seen = BTreeSet::new();
        for _ in 0..3000 {
            let op = volume.begin().unwrap();
            assert!(seen.insert(op.record.sequence(&volume).unwrap()));
            // Another operation at the same time has another record.
            let beside = volume.begin().unwrap();
            assert!(seen.insert(beside.record.sequence(&volume).unwrap()));
        }
    }
}
