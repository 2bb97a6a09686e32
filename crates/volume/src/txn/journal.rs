//! The undo journal: one transaction in one lane.
//!
//! Persistence order of a transaction:
//!
//! 1. an entry with the old bytes for everything that will change in place; flushed;
//! 2. fence ([`Op::seal`]): the entries, and all new structures they make way for, are durable;
//! 3. the changes in place, flushed; fence; 4. the lane's transaction number + 1; flushed; fence.
//!
//! It is for metadata of several words. Data, and what `chmod` and `chown` change of a file, change
//! by redo: the new bytes are stored aside, not the old ones (`redo.rs`, `change_list.rs`).
//!
//! A crash before 4 is durable leaves the number as it was: recovery restores the old bytes. After
//! it the entries are void, because they carry the former number. Locks are held until 4 is
//! durable, so no two open transactions ever cover the same byte, and lanes can be undone in any
//! order.

use crate::Result;
use crate::inject::{self, Bug, injected};
use crate::inode::Inode;
use crate::inode::commit::newest_slot;
use crate::medium::layout::{
    COMMIT, ENTRY_BYTES, Entry, IDENTITY, LANE, LANE_ENTRIES, LANES, LINE, checksum,
};
use crate::txn::Operations;
use crate::txn::op::Op;
use pmem::{Durable, FenceBatch, InFlight, Region, UserOut};
use rustix::io::Errno;
use zerocopy::IntoBytes;

/// Bytes that a checksum of a long range copies at a time: few to clear, enough to go fast.
const CRC_PIECE: usize = 1536;

/// The header word: number in the low 48 bits, its check above.
pub(crate) fn header_word(lane: u64, number: u64) -> u64 {
    let number = number & 0xFFFF_FFFF_FFFF;
    number | u64::from(checksum(lane, &number.to_le_bytes()) & 0xFFFF) << 48
}

/// The transaction number in a header word; `None` if its check fails.
pub(crate) fn header_number(lane: u64, word: u64) -> Option<u64> {
    let number = word & 0xFFFF_FFFF_FFFF;
    (header_word(lane, number) == word).then_some(number)
}

/// Offset of a lane's header line in the region.
pub(crate) fn lane_offset(lane: u64) -> u64 {
    LANES + lane * LANE
}

impl Entry {
    fn sealed(mut self, lane: u64) -> Self {
        self.crc = 0;
        self.crc = checksum(lane, self.as_bytes());
        self
    }

    pub(super) fn valid(self, lane: u64, number: u64) -> bool {
        self.transaction == number as u32 && self.sealed(lane).crc == self.crc
    }
}

/// What an open transaction has recorded so far: process-private, the medium has the rest.
#[derive(Default)]
pub(crate) struct Transaction {
    entries: u64,
    number: u64,
    sealed: bool,
}

impl Transaction {
    pub(crate) fn is_open(&self) -> bool {
        self.entries > 0
    }

    fn append<'v>(
        &mut self,
        (engine, lane): (&'v Operations, u64),
        offset: u64,
        length: u16,
        image: [u8; ENTRY_BYTES],
    ) -> Result<InFlight<'v>> {
        assert!(!self.sealed, "an undo entry after the seal protects nothing");
        let region = &engine.region;
        if self.entries == 0 {
            let word = region.load64(lane_offset(lane))?;
            self.number = header_number(lane, word).ok_or(Errno::IO)?;
        }
        if self.entries == LANE_ENTRIES {
            return Err(Errno::NOSPC);
        }
        let entry = Entry {
            transaction: self.number as u32,
            crc: 0,
            target: offset | u64::from(length) << 48,
            image,
        }
        .sealed(lane);
        self.entries += 1;
        Ok(region.stream(lane_offset(lane) + self.entries * LINE, entry.as_bytes())?)
    }

    /// Records `length` old bytes in entries.
    fn undo<'v>(
        &mut self,
        place: (&'v Operations, u64),
        offset: u64,
        length: u64,
    ) -> Result<FenceBatch<'v>> {
        let region = &place.0.region;
        let mut flight = FenceBatch::default();
        let mut done = 0;
        while done < length {
            let take = (length - done).min(ENTRY_BYTES as u64);
            let mut image = [0; ENTRY_BYTES];
            region.read(offset + done, &mut image[..take as usize])?;
            flight.add(self.append(place, offset + done, take as u16, image)?);
            done += take;
        }
        Ok(flight)
    }

    /// Ends the transaction: `changes` are the changes in place.
    pub(crate) fn commit<'v>(
        &mut self,
        place: (&'v Operations, u64),
        changes: impl Into<FenceBatch<'v>>,
    ) -> Result<()> {
        assert!(self.sealed && self.is_open());
        if injected(Bug::NumberBeforeChanges) {
            return self.next_number(place, &inject::forged());
        }
        // PERSIST: the changes must be durable before their undo images become void.
        let durable = changes.into().fence().unwrap_or_else(|| place.0.region.fence());
        self.next_number(place, &durable)
    }

    fn next_number(
        &mut self,
        (engine, lane): (&Operations, u64),
        durable: &Durable<'_>,
    ) -> Result<()> {
        let word = header_word(lane, self.number + 1);
        let mut line = [0; LINE as usize];
        line[..8].copy_from_slice(&word.to_le_bytes());
        let pending = engine.region.commit_line(lane_offset(lane), &line, durable)?;
        // PERSIST: the locks may be released only when the commit is durable.
        if !injected(Bug::NumberNotFenced) {
            let _ = pending.fence();
        }
        *self = Self::default();
        Ok(())
    }
}

impl<'v> Op<'v> {
    /// Where its transaction stands.
    fn place(&self) -> (&'v Operations, u64) {
        (self.engine, u64::from(self.index()))
    }

    /// Records the old bytes of `[offset, offset + length)` (metadata; 48 bytes an entry). `ENOSPC`
    /// if the lane is full.
    pub(crate) fn undo(&mut self, offset: u64, length: u64) -> Result<()> {
        let pending = self.transaction.undo(self.place(), offset, length)?;
        self.pend(pending);
        Ok(())
    }

    /// As [`Op::undo`], of at most 48 old bytes that are known.
    pub(crate) fn undo_known(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut image = [0; ENTRY_BYTES];
        image[..bytes.len()].copy_from_slice(bytes);
        self.append_entry(offset, bytes.len() as u16, image)
    }

    fn append_entry(&mut self, offset: u64, length: u16, image: [u8; ENTRY_BYTES]) -> Result<()> {
        let pending = self.transaction.append(self.place(), offset, length, image)?;
        self.pend(pending);
        Ok(())
    }

    /// PERSIST: the entries, and everything passed to [`Op::pend`] so far, are durable before the
    /// first change in place. Gives the witness that commits demand.
    pub(crate) fn seal(&mut self) -> Durable<'v> {
        self.transaction.sealed = true;
        self.fence_unless(Bug::ChangeBeforeUndo)
    }

    /// Ends the transaction: `changes` are the changes in place.
    pub(crate) fn commit(&mut self, changes: impl Into<FenceBatch<'v>>) -> Result<()> {
        self.transaction.commit(self.place(), changes)
    }

    /// Gives an open transaction up: the old bytes are put back.
    pub(crate) fn roll_back(&mut self) -> Result<()> {
        if !self.transaction.is_open() {
            return Ok(());
        }
        let (_, number) = self.engine.undo_lane(u64::from(self.index()))?;
        self.pend(number);
        // PERSIST: the old bytes and the number before the locks go.
        let _ = self.fence();
        self.transaction = Transaction::default();
        Ok(())
    }
}

impl Operations {
    /// Where a lane's data area begins.
    pub(crate) fn data_area(&self, lane: u64) -> u64 {
        self.pool() - (u64::from(self.superblock.lanes) - lane) * self.data_area_bytes
    }

    /// crc32c of a range of the region.
    pub(crate) fn region_crc(&self, offset: u64, length: u64) -> Result<u32> {
        crc_of(&self.region, offset, length)
    }
}

/// crc32c of a range of a region.
pub(crate) fn crc_of(region: &Region, offset: u64, length: u64) -> Result<u32> {
    let mut crc = 0;
    let mut buffer = [0; CRC_PIECE];
    let mut done = 0;
    while done < length {
        let take = (length - done).min(CRC_PIECE as u64) as usize;
        region.read_to(offset + done, &UserOut::new(&mut buffer[..take]), take)?;
        crc = crc32c::crc32c_append(crc, &buffer[..take]);
        done += take as u64;
    }
    Ok(crc)
}

impl Op<'_> {
    /// The undo image of the identity line.
    pub(crate) fn undo_identity(&mut self, inode: Inode) -> Result<()> {
        self.undo(inode.at(IDENTITY), LINE)
    }

    /// The undo images of the commit slot that `store_commit` will overwrite next.
    pub(crate) fn undo_commit(&mut self, inode: Inode, generation: u32) -> Result<()> {
        let (slots, known) = self.engine.commit_slots(inode)?;
        let newest = match known {
            Some(at) => at,
            None => newest_slot(inode, generation, slots)?.1,
        };
        let older = 1 - newest;
        self.undo_known(inode.at(COMMIT) + older as u64 * 32, slots[older].as_bytes())
    }
}
