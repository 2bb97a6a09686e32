//! What recovery does with a lane: what its records tell of is done once more, what its transaction
//! had begun is undone.
//!
//! After a crash that is done to all lanes, in any order: of an inode at most one has records that
//! count, and what open transactions cover is disjoint. After a death it is done to the dead one's
//! lane, and of records only to those of inodes whose locks it holds; a survivor that takes a lane
//! back (a roll-back) undoes alone.
//!
//! Persistence order: record, list, bytes and slot; fence; what they tell of; fence; no record;
//! fence; the old bytes of the transaction; fence; the lane's number + 1; the caller's fence.
//! CRASH: each step may be repeated.
//!
//! Locks: none, nobody else works; or the dead process's, which are still held, behind the gate.

use crate::Result;
use crate::inject::{self, Bug, injected};
use crate::inode::Inode;
use crate::inode::commit::next_sequence;
use crate::medium::layout::{
    BLOCK, COMMIT, Entry, IDENTITY, Identity, LANE_ENTRIES, LINE, REDO_BYTES, REDO_MOVES,
    REDO_SLOTS, Redo,
};
use crate::txn::Operations;
use crate::txn::journal::{header_number, header_word, lane_offset};
use crate::txn::redo::record_offset;
use pmem::{FenceBatch, InFlight};
use rustix::io::Errno;
use smallvec::SmallVec;
use vfs::Kind;
use zerocopy::FromBytes;

impl Operations {
    /// Puts a lane right after a crash: its overwrite is done again, its transaction undone. Gives
    /// whether there was anything to do, and its number in flight. `EIO` as
    /// [`Operations::undo_lane`].
    pub(crate) fn replay_lane(&self, lane: u64) -> Result<(bool, InFlight<'_>)> {
        let redone = self.redo_lane(lane)?;
        let (undone, number) = self.undo_lane(lane)?;
        Ok((undone || redone, number))
    }

    /// Undoes the lane's open transaction, if any: recovery after a crash or a death, and
    /// roll-back. Idempotent; a second crash in the middle of it is undone by the next call. Gives
    /// whether there was one, and the lane's number in flight: the caller's fence comes before
    /// anybody else may change what it covered. `EIO` if the lane's header is damaged.
    pub(crate) fn undo_lane(&self, lane: u64) -> Result<(bool, InFlight<'_>)> {
        let head = lane_offset(lane);
        let number = header_number(lane, self.region.load64(head)?).ok_or(Errno::IO)?;
        let mut undone = false;
        let mut pending = FenceBatch::default();
        for index in (1..=LANE_ENTRIES).rev() {
            let mut bytes = [0; LINE as usize];
            self.region.read(head + index * LINE, &mut bytes)?;
            let Ok(entry) = Entry::read_from_bytes(&bytes) else { continue };
            if !entry.valid(lane, number) {
                continue;
            }
            pending.add(self.put_back(&entry)?);
            undone = true;
        }
        if undone {
            // PERSIST: the old bytes are durable before the entries become void.
            let durable = if injected(Bug::VoidBeforeUndone) {
                inject::forged()
            } else {
                pending.fence().unwrap_or_else(|| self.region.fence())
            };
            let _ = self.region.commit64(head, header_word(lane, number + 1), &durable)?;
        }
        // Also what the dead one committed, and may not have flushed: survivors build on it now.
        Ok((undone, self.region.flush(head, LINE)))
    }

    /// Whether no entry of any transaction stands in the lane: whatever its number, nothing is
    /// open.
    pub(crate) fn lane_is_empty(&self, lane: u64) -> Result<bool> {
        for index in 1..=LANE_ENTRIES {
            let mut bytes = [0; LINE as usize];
            self.region.read(lane_offset(lane) + index * LINE, &mut bytes)?;
            let entry = Entry::read_from_bytes(&bytes).map_err(|_| Errno::IO)?;
            if entry.valid(lane, u64::from(entry.transaction)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn put_back(&self, entry: &Entry) -> Result<InFlight<'_>> {
        let target = entry.target & 0xFFFF_FFFF_FFFF;
        let length = (entry.target >> 48) as u16;
        let bytes = entry.image.get(..usize::from(length)).ok_or(Errno::IO)?;
        Ok(self.region.write(target, bytes)?.flush())
    }

    /// What recovery goes by, the earlier one first.
    fn redo_records(&self, lane: u64) -> Result<SmallVec<[Redo; REDO_SLOTS as usize]>> {
        let mut found = self.record_lines(lane)?;
        // Bytes are in place, durably, when their call returns: before there is a later record. And
        // what that one has changed since must not become again what it was, whatever is left of
        // its own bytes.
        if found.len() > 1 && !found[0].is_replacement() {
            found.remove(0);
        }
        let mut whole = SmallVec::new();
        for record in found {
            if self.has_its_bytes(lane, &record)? {
                whole.push(record);
            }
        }
        Ok(whole)
    }

    /// The inode beside whose newest slot a record counts, if it does.
    fn inode_of_record(&self, record: &Redo) -> Option<Inode> {
        let inode = self.inode(record.ino).ok()?;
        let same = match self.identity(inode) {
            Ok(Identity { generation, .. }) if generation != record.generation => false,
            Ok(identity) => identity.kind() == Some(Kind::File),
            Err(_) => self.tears_identity(record, inode),
        };
        let (commit, _) = self.commit_line(inode, record.generation).ok()?;
        let moved =
            record.length & REDO_MOVES != 0 && commit.sequence == next_sequence(record.sequence);
        (same && (commit.sequence == record.sequence || moved)).then_some(inode)
    }

    /// Whether an identity line that is damaged is so because a record's change of it came in part:
    /// by words, of which that with the generation is not another's.
    fn tears_identity(&self, record: &Redo, inode: Inode) -> bool {
        let generation = self.names_of(inode, record.generation);
        generation.is_ok_and(|names| names.is_some())
            && self.list_of(record).is_some_and(|list| list.changes(inode.at(IDENTITY)))
    }

    /// After a crash: what a lane's record says is done once more, and the record is void.
    pub(crate) fn redo_lane(&self, lane: u64) -> Result<bool> {
        self.redo_if(lane, |_| true)
    }

    /// After a death: as [`Operations::redo_lane`], if it is of one of these inodes, whose locks
    /// the dead one holds. All others are as their records say, and may be changing.
    pub(crate) fn redo_of_dead(&self, lane: u64, inodes: &[Inode]) -> Result<bool> {
        self.redo_if(lane, |inode| inodes.contains(&inode))
    }

    fn redo_if(&self, lane: u64, is_wanted: impl Fn(Inode) -> bool) -> Result<bool> {
        if !self.has_redo(lane)? {
            return Ok(false);
        }
        let mut done = false;
        for record in self.redo_records(lane)? {
            let due = self.inode_of_record(&record).filter(|&inode| is_wanted(inode));
            let Some(inode) = due.filter(|_| !injected(Bug::RedoForgotten)) else { continue };
            // PERSIST: a dead process may not have come to its fence: the record, its bytes and the
            // slot that it names are durable before the first change in place. (The slot may have
            // been settled before the record was stored: until that is durable an append counts by
            // the sum of its bytes, which the change would spoil.)
            let mut kept = self.region.flush(record_offset(lane, record.number), LINE);
            kept = kept.and(self.region.flush(inode.at(COMMIT), LINE));
            if record.is_replacement() {
                kept = kept.and(self.region.flush(record.replacement().block * BLOCK, BLOCK));
            } else if let Some(list) = self.list_of(&record) {
                kept = kept.and_any(list.flush(&self.region));
            } else if record.length as usize > REDO_BYTES {
                kept = kept.and(self.region.flush(self.data_area(lane), u64::from(record.length)));
            }
            let _ = kept.fence();
            // PERSIST: what it tells of is there before the record is void. CRASH: it is done
            // again.
            let _ = self.store_recorded(lane, &record)?.fence();
            done = true;
        }
        self.void_redo(lane)?;
        Ok(done)
    }

    /// Whether a lane has a record, of whatever worth.
    pub(crate) fn has_redo(&self, lane: u64) -> Result<bool> {
        let mut lines = [0; (REDO_SLOTS * LINE) as usize];
        self.region.read(record_offset(lane, 0), &mut lines)?;
        Ok(lines.iter().any(|byte| *byte != 0))
    }

    /// Makes all records void, while nobody works; durable on return.
    pub(crate) fn void_redos(&self) -> Result<()> {
        for lane in 0..u64::from(self.superblock.lanes) {
            if self.has_redo(lane)? {
                self.void_redo(lane)?;
            }
        }
        Ok(())
    }
}
