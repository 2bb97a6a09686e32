//! The commit line of an inode: two slots of which the newer valid one counts.
//!
//! Whoever holds the inode's lock stores the next slot over the older one. The line is stored
//! around the cache; what was stored last is read from its volatile copy.

use crate::Result;
use crate::inject::{Bug, injected};
use crate::inode::Inodes;
use crate::inode::{COPY, HINT_COPY, HINTS, Inode, LIVE_REDO, LOW_HALF, Live, index, lane_of};
use crate::medium::layout::{COMMIT, Commit};
use crate::medium::subword::halves;
use pmem::{Durable, InFlight, checksum_words};
use rustix::io::Errno;

const _: () = assert!(std::mem::offset_of!(Commit, crc) == 28);

impl Commit {
    pub(crate) fn sealed(mut self, inode: Inode, generation: u32) -> Self {
        self.crc = self.checksum(inode, generation);
        self
    }

    fn checksum(&self, inode: Inode, generation: u32) -> u32 {
        let [size, mtime, rest, last] = self.words();
        // The sequence stays, the crc counts as 0.
        slot_checksum(inode, generation, [size, mtime, rest, last & LOW_HALF])
    }

    /// The words of the slot.
    #[inline]
    pub(crate) fn words(&self) -> [u64; SLOT_WORDS] {
        let (rest, last) = (halves(self.aux, self.flags), halves(self.sequence, self.crc));
        [self.size, self.mtime as u64, rest, last]
    }
}

/// Words of a commit slot.
pub(crate) const SLOT_WORDS: usize = size_of::<Commit>() / 8;

/// The crc of a commit slot with these words, of which it is none yet.
#[inline]
fn slot_checksum(inode: Inode, generation: u32, words: [u64; SLOT_WORDS]) -> u32 {
    checksum_words(inode.0 ^ u64::from(generation) << 32, words)
}

/// The sequence number after `sequence`; 0 is none.
pub(crate) fn next_sequence(sequence: u32) -> u32 {
    sequence.wrapping_add(1).max(1)
}

/// Both slots of a commit line; which is the newest, if that is known; the newest, and which it is.
pub(crate) type Slots = [Commit; 2];
type Newest = Option<usize>;
type Newer = (Commit, usize);

/// The newest of the slots of a commit line, and which it is: as [`Inodes::commit_line`].
pub(crate) fn newest_slot(inode: Inode, generation: u32, slots: Slots) -> Result<Newer> {
    let good = slots
        .map(|commit| commit.sequence != 0 && commit.checksum(inode, generation) == commit.crc);
    let at = match good {
        [true, true] => {
            let ahead = slots[1].sequence.wrapping_sub(slots[0].sequence) as i32;
            return Ok(if ahead > 0 { (slots[1], 1) } else { (slots[0], 0) });
        }
        [false, false] => return Err(Errno::IO),
        [_, second] => usize::from(second),
    };
    let (valid, other) = (slots[at], slots[1 - at]);
    let torn = other.sequence == 0 || next_sequence(other.sequence) == valid.sequence;
    let newer = Commit { sequence: next_sequence(valid.sequence), ..other };
    if torn && newer.checksum(inode, generation) != other.crc {
        Ok((valid, at))
    } else {
        Err(Errno::IO)
    }
}

impl Inodes {
    /// The newer valid slot of the commit line, and its index. `EIO` if there is none, or if the
    /// newest one is damaged: an older size must not pass for the current one.
    ///
    /// CRASH: a slot that was being written is told from a damaged one by its sequence, which is
    /// stored last: it still is the one before the other slot's.
    pub(crate) fn commit_line(&self, inode: Inode, generation: u32) -> Result<(Commit, usize)> {
        let (slots, newest) = self.commit_slots(inode)?;
        match newest {
            Some(at) => Ok((slots[at], at)),
            None => newest_slot(inode, generation, slots),
        }
    }

    /// Both slots, and which is the newest if that is known: then they come from the copy.
    pub(crate) fn commit_slots(&self, inode: Inode) -> Result<(Slots, Option<usize>)> {
        self.slots_beside(inode, self.live_lines(inode)?)
    }

    #[inline]
    pub(crate) fn slots_beside(&self, inode: Inode, live: Live<'_>) -> Result<(Slots, Newest)> {
        if live.is_ready(self.epoch)?
            && let Some(at) = live.0.load(index(HINTS + HINT_COPY * 8))?.checked_sub(1)
        {
            let slots: Slots = zerocopy::transmute!(live.0.eight(index(COPY))?);
            return Ok((slots, Some(at as usize & 1)));
        }
        let words = self.region.span::<8>(inode.at(COMMIT))?.words()?;
        Ok((zerocopy::transmute!(words), None))
    }

    /// Writes the next commit slot over the older one: one line, atomic by its checksum. The
    /// sequence and crc of `commit` are filled in. Lock holder only.
    pub(crate) fn store_commit(
        &self,
        inode: Inode,
        generation: u32,
        commit: Commit,
        after: &Durable<'_>,
    ) -> Result<InFlight<'_>> {
        // What the slot publishes is durable.
        let _ = after;
        self.store_slot(inode, generation, commit)
    }

    /// As [`Inodes::store_commit`], of a slot that is void if what it publishes is not there.
    #[inline]
    pub(crate) fn store_slot(
        &self,
        inode: Inode,
        generation: u32,
        commit: Commit,
    ) -> Result<InFlight<'_>> {
        let [size, mtime, rest, _] = commit.words();
        self.store_words(inode, generation, size, mtime, rest)
    }

    /// The slot that [`Inodes::store_slot`] stores next: its offset in the region, and its words.
    pub(crate) fn next_slot(
        &self,
        inode: Inode,
        generation: u32,
        commit: Commit,
    ) -> Result<(u64, [u64; SLOT_WORDS])> {
        let (newest, at) = self.commit_line(inode, generation)?;
        let sequence = next_sequence(newest.sequence);
        let next = Commit { sequence, ..commit }.sealed(inode, generation);
        let offset = inode.at(COMMIT) + (1 - at as u64) * size_of::<Commit>() as u64;
        Ok((offset, next.words()))
    }

    /// The same, of a slot's words but the last.
    fn store_words(
        &self,
        inode: Inode,
        generation: u32,
        size: u64,
        mtime: u64,
        rest: u64,
    ) -> Result<InFlight<'_>> {
        let live = self.live_lines(inode)?;
        let known = match live.0.load(index(HINTS + HINT_COPY * 8))? {
            at if at != 0 && live.is_ready(self.epoch)? => (at as usize - 1) & 1,
            _ => self.copy_line(inode, generation, live)?,
        };
        let flags = live.flags()?;
        if flags & LIVE_REDO != 0 {
            self.persist_word(lane_of(flags))?;
        }
        let place = |slot: usize| index(COPY) + slot * SLOT_WORDS;
        let kept = live.0.four(place(known))?;
        let sequence = u64::from(next_sequence(kept[3] as u32));
        let next = if injected(Bug::CommitInPlace) { known } else { 1 - known };
        let crc = slot_checksum(inode, generation, [size, mtime, rest, sequence]);
        let new = [size, mtime, rest, sequence | u64::from(crc) << 32];
        // The newest slot is stored again as it is. In one piece, or word by word through the
        // cache, where a line's stores reach the medium in their order: the sequence is the last.
        let line = if next == 0 { [new, kept] } else { [kept, new] };
        let flight = self.region.write_line(inode.at(COMMIT), zerocopy::transmute_ref!(&line))?;
        for (word, value) in new.into_iter().enumerate() {
            live.0.store(place(next) + word, value)?;
        }
        live.0.store(index(HINTS + HINT_COPY * 8), next as u64 + 1)?;
        Ok(flight)
    }

    /// Copies the commit line from the medium; gives the index of its newest slot.
    #[cold]
    fn copy_line(&self, inode: Inode, generation: u32, live: Live<'_>) -> Result<usize> {
        let words = self.region.span::<8>(inode.at(COMMIT))?.words()?;
        let newest = newest_slot(inode, generation, zerocopy::transmute!(words))?.1;
        live.set_copy(&zerocopy::transmute!(words), newest)?;
        Ok(newest)
    }

    /// The commit line may be another than was stored last: it is read anew. Lock holder only.
    pub(crate) fn forget_commit(&self, inode: Inode) -> Result<()> {
        self.set_hint(inode, HINT_COPY, 0)
    }
}
