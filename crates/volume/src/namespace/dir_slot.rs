//! Slots of a directory: where the entry of a name of one slot lies, or may be put, as the calls
//! find it that change names without waiting.
//!
//! A place that the cache of names tells ([`EntryPlace`]) stands as long as the directory's
//! sequence number says so: then only the bucket's occupancy word and the entry's hash word are
//! looked at. Else the name's bucket is searched.
//!
//! Locks: none; a call compares the directory's sequence number under its lock.

use crate::Result;
use crate::cache::{EntryPlace, Target};
use crate::medium::dirhash::{EXTRA_BITS, EXTRAS, checked, unchecked};
use crate::medium::layout::{BLOCK, ROOT_WORD};
use crate::namespace::Names;
use crate::namespace::bucket::{Bucket, Cell, Dir, hash_word_at, occupancy_at};
use crate::namespace::directory::{ALL, LEVELS_MAX, NODE, word_index};
use crate::txn::locked_inodes::Store;
use rustix::io::Errno;

/// Where an entry of one slot lies, or may be put.
#[derive(Clone, Copy)]
pub(crate) struct DirSlot {
    /// Of an entry to come that brings its directory's first bucket: the block is still to be had.
    pub(crate) place: EntryPlace,
    /// The bucket's slots in use. Of an entry to come: none are, if it is the first bucket.
    pub(crate) occupancy: u64,
}

impl DirSlot {
    fn new(bucket: &Bucket<'_>, cell: Cell, (key, slot): (u64, usize)) -> Self {
        let place = EntryPlace { bucket: bucket.block, depth: cell.depth, key, slot };
        Self { place, occupancy: bucket.occupancy }
    }

    /// Whether an entry that comes brings its directory's first bucket.
    pub(crate) fn is_first(&self) -> bool {
        self.occupancy == 0
    }

    /// Whether an entry that goes takes its directory's only bucket along.
    pub(crate) fn is_last(&self) -> bool {
        self.place.depth == 0 && self.occupancy == 1 << self.place.slot
    }

    /// Where an entry of this one's key belongs once this one is gone.
    pub(crate) fn vacated(&self) -> EntryPlace {
        let bucket = if self.is_last() { 0 } else { self.place.bucket };
        EntryPlace { bucket, ..self.place }
    }

    /// The store that brings the entry.
    #[inline]
    pub(crate) fn insertion(&self, dir: Dir) -> Store {
        let EntryPlace { bucket, slot, .. } = self.place;
        if self.is_first() {
            return Store { at: dir.inode.at(ROOT_WORD), value: dir.seal(ALL, bucket, 0) };
        }
        Store { at: occupancy_at(bucket), value: checked(self.occupancy | 1 << slot) }
    }

    /// The store that takes it away.
    #[inline]
    pub(crate) fn removal(&self, dir: Dir) -> Store {
        if self.is_last() {
            return Store { at: dir.inode.at(ROOT_WORD), value: 0 };
        }
        let EntryPlace { bucket, slot, .. } = self.place;
        Store { at: occupancy_at(bucket), value: checked(self.occupancy & !(1 << slot)) }
    }
}

impl Names {
    /// The slots in use of a bucket that is known to be one.
    #[inline]
    fn occupancy(&self, block: u64) -> Result<u64> {
        unchecked(self.region.load64(occupancy_at(block))?)
    }

    /// A free slot of the bucket where a new entry is known to belong, or the directory's first
    /// one. `None`, and any error, says nothing.
    #[inline]
    pub(crate) fn slot_at(&self, dir: Dir, place: EntryPlace) -> Result<Option<DirSlot>> {
        if place.bucket == 0 {
            let none = self.region.load64(dir.inode.at(ROOT_WORD))? == 0;
            // Where it lay before is of a bucket that is no more.
            let place = EntryPlace { slot: 0, ..place };
            return Ok(none.then_some(DirSlot { place, occupancy: 0 }));
        }
        let occupancy = self.occupancy(place.bucket)?;
        let free = self.bucket_regardless(place.bucket, occupancy).free_slots(1);
        let free = free.filter(|_| occupancy != 0);
        Ok(free.map(|slot| DirSlot { place: EntryPlace { slot, ..place }, occupancy }))
    }

    /// The entry that is known to lie there, if its bucket has more, or is the only one. `None`,
    /// and any error, says nothing.
    #[inline]
    pub(crate) fn entry_at(&self, place: EntryPlace) -> Result<Option<DirSlot>> {
        let EntryPlace { bucket, depth, key, slot } = place;
        let occupancy = self.occupancy(bucket)?;
        let word = self.region.load64(hash_word_at(bucket, slot))?;
        if occupancy >> slot & 1 == 0 || word != checked(key) {
            return Ok(None);
        }
        let keeps = || {
            let cell = Cell::of(key, depth);
            self.bucket_regardless(bucket, occupancy).keeps(cell, 1 << slot)
        };
        Ok((depth == 0 || keeps()?).then_some(DirSlot { place, occupancy }))
    }

    /// The same of an entry that lies there, and of one that belongs there, if their bucket is one
    /// and has room.
    #[inline]
    pub(crate) fn entry_and_slot_at(
        &self,
        old: EntryPlace,
        new: EntryPlace,
    ) -> Result<Option<(DirSlot, DirSlot)>> {
        let EntryPlace { bucket, key, slot, .. } = old;
        let occupancy = self.occupancy(bucket)?;
        let word = self.region.load64(hash_word_at(bucket, slot))?;
        if new.bucket != bucket || occupancy >> slot & 1 == 0 || word != checked(key) {
            return Ok(None);
        }
        let free = self.bucket_regardless(bucket, occupancy).free_slots(1);
        let new = |slot| DirSlot { place: EntryPlace { slot, ..new }, occupancy };
        Ok(free.map(|slot| (DirSlot { place: old, occupancy }, new(slot))))
    }

    /// The bucket of all keys of a hash, and what it covers; `None` if there is none, or several.
    #[inline]
    fn only_bucket(&self, dir: Dir, hash: u64) -> Result<Option<(Bucket<'_>, Cell)>> {
        let key = hash << EXTRA_BITS;
        let mut at = dir.inode.at(ROOT_WORD);
        for level in 0..=LEVELS_MAX {
            let raw = self.region.load64(at)?;
            let Some(word) = self.open_dir_word(dir, raw, key, level)? else { return Ok(None) };
            if word.kind != NODE {
                let bucket = self.read_bucket(dir, word.block)?;
                let all = word.cell.last() >= key + (EXTRAS - 1);
                return Ok(all.then_some((bucket, word.cell)));
            }
            at = word.block * BLOCK + word_index(key, level + 1) as u64 * 8;
        }
        Err(Errno::IO)
    }

    /// Where the usual new entry of one slot goes: its bucket has room, and no entry has its hash;
    /// or the directory has no bucket. `None`, and any error, says nothing. `absent`: it is known
    /// that the directory has no such name.
    pub(crate) fn new_slot(&self, dir: Dir, hash: u64, absent: bool) -> Result<Option<DirSlot>> {
        let key = hash << EXTRA_BITS;
        let Some((bucket, cell)) = self.only_bucket(dir, hash)? else {
            let none = self.region.load64(dir.inode.at(ROOT_WORD))? == 0;
            let first = EntryPlace { bucket: 0, depth: 0, key, slot: 0 };
            let first = DirSlot { place: first, occupancy: 0 };
            return Ok(none.then_some(first));
        };
        let taken = bucket.candidates(hash)? != 0 || !(absent || bucket.is_sound()?);
        if taken || bucket.occupancy == 0 {
            return Ok(None);
        }
        Ok(bucket.free_slots(1).map(|slot| DirSlot::new(&bucket, cell, (key, slot))))
    }

    /// Where the entry of `name`, of one slot, lies that leads to `target`, if no other has its
    /// hash and its bucket has more, or is the only one. `None`, and any error, says nothing.
    pub(crate) fn entry_slot(
        &self,
        dir: Dir,
        hash: u64,
        name: &[u8],
        target: Target,
    ) -> Result<Option<DirSlot>> {
        let Some((bucket, cell)) = self.only_bucket(dir, hash)? else { return Ok(None) };
        let candidates = bucket.candidates(hash)?;
        if candidates.count_ones() != 1 {
            return Ok(None);
        }
        let slot = candidates.trailing_zeros() as usize;
        let key = bucket.key(slot)?;
        let found = cell.holds(key)
            && bucket.target(slot, name)? == Some(target)
            && bucket.is_sound()?
            && (cell == ALL || bucket.keeps(cell, candidates)?);
        Ok(found.then_some(DirSlot::new(&bucket, cell, (key, slot))))
    }

    /// As [`Names::entry_slot`], and where an entry of another hash goes that has no entry, if
    /// both lie in one bucket. `entry`: the words of the entry under a key.
    pub(crate) fn entry_and_new_slot(
        &self,
        dir: Dir,
        [hash, other]: [u64; 2],
        entry: impl FnOnce(u64) -> [u64; 8],
    ) -> Result<Option<(DirSlot, DirSlot)>> {
        let Some((bucket, cell)) = self.only_bucket(dir, hash)? else { return Ok(None) };
        let first = other << EXTRA_BITS;
        if !cell.holds(first) || !cell.holds(first + (EXTRAS - 1)) {
            return Ok(None);
        }
        let (candidates, others) = bucket.candidates_of([hash, other])?;
        let (slot, free) = (candidates.trailing_zeros() as usize, bucket.free_slots(1));
        let (1, 0, Some(free)) = (candidates.count_ones(), others, free) else { return Ok(None) };
        let key = bucket.key(slot)?;
        let found = cell.holds(key) && bucket.holds(slot, &entry(key))?;
        let old = DirSlot::new(&bucket, cell, (key, slot));
        Ok(found.then_some((old, DirSlot::new(&bucket, cell, (first, free)))))
    }
}
