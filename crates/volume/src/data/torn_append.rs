//! Short appends with one fence.
//!
//! An append of at most [`CHECKSUMMED_MAX`] bytes into blocks that the file already has stores its
//! bytes *and* its commit slot before one fence (`write.rs`). The slot carries the sum of the bytes
//! ([`COMMIT_CHECKSUMMED`]): if a power cut leaves the slot without them, the sum does not fit, and
//! the slot before it counts, as if the call had never begun.
//!
//! Only the newest slot can be in doubt, and only until its call's fence. So the sum is asked for
//! after an unclean end, by [`Files::void_torn_tail`], and from then on the bytes may be what
//! anybody writes. A call that changes bytes below the end must therefore first store a slot
//! without a sum ([`Files::pend_clear_tail_sum`]), or a later recovery would take its bytes for
//! torn ones. A mapped file gets no checksummed slots, since stores to a mapping clear no sum.
//!
//! Locks: the inode's; `void_torn_tail`: the caller is alone (recovery).

use crate::Result;
use crate::data::Files;
use crate::data::file::File;
use crate::data::map::Map;
use crate::inject::{Bug, injected};
use crate::inode::{Inode, LIVE_CHECKSUMMED, LIVE_DIRTY};
use crate::medium::layout::{
    BLOCK, CHECKSUMMED_MAX, CHECKSUMMED_SHIFT, COMMIT, COMMIT_CHECKSUMMED, Commit, Identity,
};
use crate::txn::op::Op;
use pmem::FenceBatch;
use vfs::Kind;

/// Offset in a commit slot of the word that holds its sequence and its crc.
const SEQUENCE_WORD: u64 = std::mem::offset_of!(Commit, sequence) as u64;
const _: () = assert!(SEQUENCE_WORD.is_multiple_of(8) && CHECKSUMMED_MAX < 1 << CHECKSUMMED_SHIFT);

impl Commit {
    /// As it is, without a sum.
    pub(crate) fn without_sum(mut self) -> Self {
        if self.flags & COMMIT_CHECKSUMMED != 0 {
            self.flags &= ((1 << CHECKSUMMED_SHIFT) - 1) & !COMMIT_CHECKSUMMED;
            self.aux = 0;
        }
        self
    }

    /// The bytes that it sums, if it does: first and count.
    fn tail(&self) -> Option<(u64, u64)> {
        let count = u64::from(self.flags >> CHECKSUMMED_SHIFT);
        let checksummed =
            self.flags & COMMIT_CHECKSUMMED != 0 && count <= CHECKSUMMED_MAX.min(self.size);
        checksummed.then(|| (self.size - count, count))
    }
}

impl Files {
    /// Makes the newest commit slot one without a sum: bytes below the end are about to change.
    /// Durable on return.
    pub(crate) fn clear_tail_sum<'v>(&'v self, op: &mut Op<'v>, file: &File<'_>) -> Result<()> {
        if self.pend_clear_tail_sum(op, file)? {
            let _ = op.fence();
        }
        Ok(())
    }

    /// As [`Files::clear_tail_sum`], for a call that fences once more before the first of those
    /// bytes changes.
    /// Tells whether there is anything to fence.
    pub(crate) fn pend_clear_tail_sum<'v>(
        &'v self,
        op: &mut Op<'v>,
        file: &File<'_>,
    ) -> Result<bool> {
        if file.current.flags & LIVE_CHECKSUMMED == 0 || injected(Bug::TailSumNotCleared) {
            return Ok(false);
        }
        let generation = file.identity.generation;
        let (commit, _) = self.commit_line(file.inode, generation)?;
        if commit.flags & COMMIT_CHECKSUMMED == 0 {
            return Ok(false);
        }
        op.announce_line(file.inode.at(COMMIT))?;
        // CRASH: a lazy size is void beside another slot than it was marked with
        // (`locked_inodes.rs`): this one carries it.
        let is_lazy = file.current.flags & LIVE_DIRTY != 0;
        let next = if is_lazy { file.sizing(&file.current).commit } else { commit.without_sum() };
        // PERSIST: the bytes are durable since their call returned; this slot must be before any of
        // them changes. CRASH: with either slot the bytes are what they were.
        let stored = self.store_slot(file.inode, generation, next)?;
        op.pend(stored);
        Ok(true)
    }
}

impl Files {
    /// Takes a checksummed slot back whose bytes never became durable; tells whether it did. After
    /// a crash, with the lanes undone.
    pub(crate) fn void_torn_tail(&self, inode: Inode) -> Result<bool> {
        let identity = self.identity(inode)?;
        let (commit, at) = self.commit_line(inode, identity.generation)?;
        if injected(Bug::SumNotAsked) {
            return Ok(false);
        }
        if commit.tail().is_none() || self.tail_is_whole(inode, &identity, &commit)? {
            return Ok(false);
        }
        let word = inode.at(COMMIT) + at as u64 * 32 + SEQUENCE_WORD;
        // CRASH: one word: a slot without a sequence was never written.
        let _ = self.region.store64(word, 0)?.flush().fence();
        Ok(true)
    }

    /// Whether the bytes are there that a checksummed slot sums.
    fn tail_is_whole(&self, inode: Inode, identity: &Identity, commit: &Commit) -> Result<bool> {
        let mut bytes = [0; CHECKSUMMED_MAX as usize];
        let Some(tail) = commit.tail() else { return Ok(true) };
        self.each_tail_piece(inode, identity, tail, &mut |at, done, take| {
            Ok(self.region.read(at, &mut bytes[done..done + take])?)
        })?;
        Ok(crc32c::crc32c(&bytes[..tail.1 as usize]) == commit.aux)
    }

    /// Flushes the bytes that a dead process's checksummed slot sums: survivors build on it.
    pub(crate) fn flush_tail(&self, inode: Inode) -> Result<FenceBatch<'_>> {
        let mut pending = FenceBatch::default();
        self.forget_commit(inode)?;
        let Ok(identity) = self.identity(inode) else { return Ok(pending) };
        let Ok((commit, _)) = self.commit_line(inode, identity.generation) else {
            return Ok(pending);
        };
        let file = identity.kind() == Some(Kind::File);
        let Some(tail) = commit.tail().filter(|_| file) else { return Ok(pending) };
        if injected(Bug::DeadTailNotFlushed) {
            return Ok(pending);
        }
        self.each_tail_piece(inode, &identity, tail, &mut |at, _, take| {
            pending.add(self.region.flush(at, take as u64));
            Ok(())
        })?;
        Ok(pending)
    }

    /// Calls `each` with the written pieces of a range: offset in the region, bytes of the range
    /// before it, length.
    fn each_tail_piece(
        &self,
        inode: Inode,
        identity: &Identity,
        (first, count): (u64, u64),
        each: &mut dyn FnMut(u64, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let map = Map::new(self, inode, identity);
        let mut done = 0;
        while done < count {
            let at = first + done;
            let end = ((at / BLOCK + 1) * BLOCK).min(first + count);
            let run = map.run(at / BLOCK, 1)?;
            if run.is_written() {
                each(run.block * BLOCK + at % BLOCK, done as usize, (end - at) as usize)?;
            }
            done += end - at;
        }
        Ok(())
    }
}
