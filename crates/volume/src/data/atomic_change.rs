//! Changes of a file that happen at once: bytes in place, words of its block map, its commit slot.
//!
//! Persistence order: what the words or the slot publish; fence, if there is any of that; the new
//! bytes aside, a list of all changes, and the record that names it (`txn/change_list.rs`); fence;
//! the changes in place; fence. Of a file that somebody has mapped the record is void when the call
//! returns, since stores to a mapping ask for none: the commit slot moves on; fence. Otherwise it
//! stands, as any redo record, until the lane's next one, or until the slot moves.
//!
//! CRASH: before the record's fence nothing has changed; what it would have published is nobody's.
//! From there on recovery makes all changes (again).
//!
//! Locks: the inode's.

use crate::Result;
use crate::data::Files;
use crate::data::bytes::Part;
use crate::data::edit::{Sizing, Words};
use crate::data::file::{File, Source};
use crate::inject::{Bug, injected};
use crate::inode::Current;
use crate::medium::layout::{BLOCK, COMMIT, LINE, LISTED_MAX, LISTED_ZEROS, Listed};
use crate::txn::change_list::word_entry;
use crate::txn::op::Op;
use pmem::{Durable, FenceBatch};
use rustix::io::Errno;
use smallvec::SmallVec;

/// Bytes that change in place.
#[derive(Clone, Copy)]
pub(crate) struct InPlace<'s> {
    /// Offset in the region.
    pub(crate) at: u64,
    pub(crate) length: u64,
    pub(crate) source: Source<'s>,
    /// Where they begin in the source.
    pub(crate) from: u64,
}

/// What changes at once.
#[derive(Clone, Copy)]
pub(crate) struct AtOnce<'a, 's> {
    /// Their places have been looked at: none is lost.
    pub(crate) bytes: &'a [InPlace<'s>],
    pub(crate) words: &'a Words,
    pub(crate) size: Option<&'a Sizing>,
    /// Something that is pended must be durable before the record counts.
    pub(crate) publishes: bool,
}

/// A part of the data area: offset in the region, bytes.
type Room = (u64, u64);
/// An entry whose bytes are saved, and where they come from.
type Saved<'s> = (Listed, Source<'s>, u64);
type AllSaved<'s> = SmallVec<[Saved<'s>; 4]>;

impl Files {
    /// Makes all changes of a locked file, at once and durably. Gives the live flags that are right
    /// from then on. `EIO`, `EFAULT`, `ENOSPC`: nothing has been done, or memory that was there is
    /// lost meanwhile.
    pub(crate) fn change_at_once<'v>(
        &'v self,
        op: &mut Op<'v>,
        file: &File<'v>,
        change: AtOnce<'_, '_>,
    ) -> Result<u64> {
        for &(at, _) in &change.words.stores {
            self.region.load64(at)?;
        }
        let (saved, data_area) = self.save_bytes(op, &change)?;
        let mut list: SmallVec<[Listed; 16]> = saved.iter().map(|(entry, ..)| *entry).collect();
        list.extend(change.words.stores.iter().map(|&(at, word)| word_entry(at, word)));
        if let Some(size) = change.size {
            let (at, words) = self.next_slot(size.inode, size.generation, size.commit)?;
            let places = (at..).step_by(8);
            list.extend(places.zip(words).map(|(at, word)| word_entry(at, word)));
        }
        if change.publishes {
            // PERSIST: what words and slot lead to, before the record that makes them happen.
            let _ = op.fence_unless(Bug::WordsBeforeBytes);
        }
        let which = (file.inode, file.identity.generation);
        let moves = change.size.is_some();
        let (durable, current) = op.record_list(which, &list, data_area, moves)?;
        let stored = self.store_all(&change, &saved, &durable)?;
        op.pend(stored);
        if !injected(Bug::DataNotFenced) {
            // PERSIST: the next change of any of it needs no record.
            let _ = op.fence();
        }
        Ok(current.flags)
    }

    /// Moves the commit slot of a mapped file on, beside which its record counted: stores to the
    /// mapping change what that tells of. `next` is what is current from here on.
    pub(crate) fn void_record_of<'v>(
        &'v self,
        op: &mut Op<'v>,
        file: &File<'v>,
        next: &mut Current,
    ) -> Result<()> {
        if injected(Bug::RedoNotVoided) {
            return Ok(());
        }
        op.announce_line(file.inode.at(COMMIT))?;
        let stored = self.store_current(file.inode, file.identity.generation, next)?;
        op.pend(stored);
        // PERSIST: the slot before the call returns: another process may then store to the mapping,
        // and make that durable.
        let _ = op.fence();
        Ok(())
    }

    /// Stores new bytes where the record can name them; pended. Gives also what is left of the
    /// data area: offset and bytes.
    fn save_bytes<'v, 's>(
        &'v self,
        op: &mut Op<'v>,
        change: &AtOnce<'_, 's>,
    ) -> Result<(AllSaved<'s>, Room)> {
        let length = |part: &InPlace<'_>| match part.source {
            Source::Zero => 0,
            Source::Caller(_) => part.length.next_multiple_of(LINE),
        };
        let total: u64 = change.bytes.iter().map(length).sum();
        let list = size_of::<Listed>() as u64
            * (change.bytes.len() + change.words.stores.len() + 4) as u64;
        let data_area = (self.data_area(u64::from(op.index())), self.data_area_bytes);
        let (extents, data_area) = if total + list <= data_area.1 {
            let place: SmallVec<[(u64, u64); 2]> = SmallVec::from_slice(&[(data_area.0, total)]);
            (place, (data_area.0 + total, data_area.1 - total))
        } else {
            let blocks = op.allocate_aside(total.div_ceil(BLOCK))?;
            (
                blocks.iter().map(|&(block, count)| (block * BLOCK, count * BLOCK)).collect(),
                data_area,
            )
        };
        let mut extents = extents.into_iter();
        let (mut place, mut left) = extents.next().unwrap_or_default();
        let mut saved = SmallVec::new();
        for part in change.bytes {
            let mut done = 0;
            while done < part.length {
                let target = part.at + done;
                let mut take = (part.length - done).min(LISTED_MAX);
                if matches!(part.source, Source::Zero) {
                    let length = take as u32 | LISTED_ZEROS;
                    let entry = Listed { target, source: 0, length, sum: 0 };
                    saved.push((entry, part.source, part.from + done));
                    done += take;
                    continue;
                }
                while left == 0 {
                    (place, left) = extents.next().ok_or(Errno::NOSPC)?;
                }
                take = take.min(left);
                let from = part.from + done;
                let bytes = Part::near(from as usize, place, take as usize);
                let (stored, sum) = part.source.stream_checksummed(&self.region, bytes, 0)?;
                op.pend(stored);
                let entry = Listed { target, source: place, length: take as u32, sum };
                saved.push((entry, part.source, from));
                let used = take.next_multiple_of(LINE).min(left);
                (place, left, done) = (place + used, left - used, done + take);
            }
        }
        Ok((saved, data_area))
    }

    /// Makes the changes in place: in flight.
    fn store_all<'v>(
        &'v self,
        change: &AtOnce<'_, '_>,
        saved: &[Saved<'_>],
        durable: &Durable<'_>,
    ) -> Result<FenceBatch<'v>> {
        let region = &self.region;
        let mut flight = self.store_words(change.words, durable)?;
        if let Some(size) = change.size {
            flight.add(self.store_size(size, durable)?);
        }
        for &(entry, source, from) in saved {
            let length = u64::from(entry.length & !LISTED_ZEROS);
            if entry.length & LISTED_ZEROS != 0 {
                flight.add(region.stream_zero(entry.target, length)?);
                continue;
            }
            if region.is_plain() {
                // In the cache still: it is cheaper to read than the caller's bytes are to sum.
                flight.add(region.copy(entry.source, entry.target, length)?);
                continue;
            }
            let bytes = Part::near(from as usize, entry.target, length as usize);
            match source.stream_checksummed(region, bytes, 0) {
                Ok((stored, sum)) if sum == entry.sum => flight.add(stored),
                _ => {
                    // The caller's memory has changed, or has vanished: what was saved counts.
                    let _ = region.fence();
                    flight.add(region.copy(entry.source, entry.target, length)?);
                }
            }
        }
        Ok(flight)
    }
}
