//! What an operation record keeps for the operations to come: free inodes, and fresh numbers.
//!
//! A record is its CPU's as long as there are enough of them (`op.rs`), so two CPUs whose calls have
//! nothing to do with each other write no line of both when they make and remove files.
//!
//! | word | what | written by |
//! |---|---|---|
//! | generations, sequences | the next number of a block of [`NUMBERS`] from the runtime's counter | the operation |
//! | inodes | up to 16 free slots of one inode extent, a bit each; above them, ino / 16 | the operation; who takes them back |
//!
//! A kept inode is in use as far as its extent's bitmap and the group's counter tell, and nothing
//! else leads to it. Whoever counts takes the kept ones off, and the blocks of extents that hold no
//! others ([`Volume::kept_extents`]); fsck does not miss them. They are given back when the map is
//! saved, when inodes or blocks run out, and with the last other inode of their extent. A sweep frees
//! them with all that nothing reaches, and so makes these words void.
//!
//! Inodes are kept and taken by operations past the gate only: a death between the two words leaves
//! what the sweep finds. Numbers are counted before they are used.
//!
//! Locks: none. Persistence: none, all of this is volatile.

use crate::Result;
use crate::inode_slots::{EMPTY, Extent};
use crate::layout::{EXTENT_BLOCKS, HEADER_GENERATION, HEADER_SEQUENCE};
use crate::op::{RECORD_GENERATIONS, RECORD_INODES, RECORD_SEQUENCES, Record, index};
use crate::volume::Volume;
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
    /// As in the extent's bitmap.
    slots: u64,
}

/// The inodes that a word tells of.
fn inodes_of(word: u64) -> impl Iterator<Item = u64> {
    crate::free_map::bits_of(word & SLOTS).map(move |bit| (word >> KEPT) * KEPT + bit)
}

impl Record<'_> {
    /// The next of the record's own numbers.
    #[inline]
    fn number(&self, volume: &Volume, word: u64, source: u64) -> Result<u64> {
        let mut next = self.0.load(index(word))?;
        if next.is_multiple_of(NUMBERS) {
            next = volume.rt.add(source, NUMBERS)?;
        }
        self.0.store(index(word), next + 1)?;
        Ok(next)
    }

    /// A number that no other call in this epoch gets, for a generation.
    #[inline]
    pub(crate) fn generation(&self, volume: &Volume) -> Result<u64> {
        self.number(volume, RECORD_GENERATIONS, HEADER_GENERATION)
    }

    /// The same, for sequence numbers.
    #[inline]
    pub(crate) fn sequence(&self, volume: &Volume) -> Result<u64> {
        self.number(volume, RECORD_SEQUENCES, HEADER_SEQUENCE)
    }

    /// Takes an inode that is kept.
    #[inline]
    pub(crate) fn take_kept(&self) -> Result<Option<u64>> {
        let mut word = self.0.load(index(RECORD_INODES))?;
        while let Some(ino) = inodes_of(word).next() {
            match self.0.cas(index(RECORD_INODES), word, word & (word - 1))? {
                Ok(_) => return Ok(Some(ino)),
                Err(found) => word = found,
            }
        }
        Ok(None)
    }

    /// Keeps a free inode; `false` if others are kept than its neighbours. `EIO` if it is kept already.
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

    /// Keeps inodes that were just taken for this record, which keeps none: slots `slots` of the extent
    /// whose header is `first`; all lie among the same [`KEPT`].
    pub(crate) fn keep_all(&self, first: u64, slots: u64) -> Result<()> {
        let Some(lowest) = crate::free_map::bits_of(slots).next() else { return Ok(()) };
        let group = lowest / KEPT;
        let word = (first / KEPT + group) << KEPT | slots >> (group * KEPT) & SLOTS;
        Ok(self.0.store(index(RECORD_INODES), word)?)
    }
}

impl Volume {
    /// Frees an inode for the next operation of this record, or for all. `EIO` if it is not in use.
    pub(crate) fn give_back_inode(&self, record: &Record<'_>, op: u32, ino: u64) -> Result<()> {
        if !self.inode_in_use(ino)? {
            return Err(Errno::IO);
        }
        if !record.keep(ino)? {
            self.release_inode(ino)?;
        }
        let kept = self.kept_by(op)?;
        if let Some(kept) = kept
            && self.slots(kept.extent)? == EMPTY | kept.slots
        {
            self.return_kept_by(op)?;
        }
        Ok(())
    }

    /// The slots that a record keeps, if it keeps any.
    fn kept_by(&self, op: u32) -> Result<Option<Kept>> {
        let word = self.rt.load(self.rt.op(op) + RECORD_INODES)?;
        let Some(first) = inodes_of(word).next() else { return Ok(None) };
        // What a crash left in the record of an image that is only looked at may be anything.
        let Ok((extent, slot)) = self.extent_of(first) else { return Ok(None) };
        let slots = (word & SLOTS) << (slot / KEPT * KEPT);
        Ok(Some(Kept { extent, slots }))
    }

    /// All slots that records keep, those of one extent together.
    fn all_kept(&self) -> Result<Vec<Kept>> {
        let mut all: Vec<Kept> = Vec::new();
        for op in 0..self.rt.layout.op_count as u32 {
            let Some(kept) = self.kept_by(op)? else { continue };
            match all.iter_mut().find(|one| one.extent == kept.extent) {
                Some(one) => one.slots |= kept.slots,
                None => all.push(kept),
            }
        }
        Ok(all)
    }

    /// How many inodes are kept.
    pub(crate) fn kept_inodes(&self) -> Result<u64> {
        Ok(self.all_kept()?.iter().map(|kept| u64::from(kept.slots.count_ones())).sum())
    }

    /// The extents without inodes that are there only for what is kept of them: chunk, and index in it.
    pub(crate) fn kept_extents(&self) -> Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        for kept in self.all_kept()? {
            if self.is_extent(kept.extent)? && self.slots(kept.extent)? == EMPTY | kept.slots {
                found.push((kept.extent.chunk, kept.extent.index));
            }
        }
        Ok(found)
    }

    /// Blocks of those extents.
    pub(crate) fn kept_blocks(&self) -> Result<u64> {
        Ok(self.kept_extents()?.len() as u64 * EXTENT_BLOCKS)
    }

    /// Calls `each` with the inodes that are kept, of extents that are there.
    pub(crate) fn each_kept(&self, mut each: impl FnMut(u64)) -> Result<()> {
        for kept in self.all_kept()? {
            if self.is_extent(kept.extent)? {
                let first = self.first_inode(kept.extent);
                crate::free_map::bits_of(kept.slots).for_each(|slot| each(first + slot));
            }
        }
        Ok(())
    }

    /// Gives back what all records keep; whether there was anything. For operations past the gate, or
    /// who is alone.
    pub(crate) fn return_kept(&self) -> Result<bool> {
        let mut any = false;
        for op in 0..self.rt.layout.op_count as u32 {
            any |= self.return_kept_by(op)?;
        }
        Ok(any)
    }

    pub(crate) fn return_kept_by(&self, op: u32) -> Result<bool> {
        let at = self.rt.op(op) + RECORD_INODES;
        let word = self.rt.load(at)?;
        if word & SLOTS == 0 || self.rt.cas(at, word, 0)?.is_err() {
            return Ok(false);
        }
        inodes_of(word).try_for_each(|ino| self.release_inode(ino))?;
        Ok(true)
    }

    /// The free map is made anew, without what was kept. Nobody works.
    pub(crate) fn forget_kept(&self) -> Result<()> {
        for op in 0..self.rt.layout.op_count as u32 {
            self.rt.store(self.rt.op(op) + RECORD_INODES, 0)?;
        }
        Ok(())
    }
}
