//! What all calls on a regular file share: finding it under its lock, its current size and times,
//! and the bytes that a call brings along.
//!
//! Sizes: the volatile lines hold the *current* size, the commit line the *durable* one, which is
//! never larger. Bytes below the current size are durable or, for a moment, fenced; what lies
//! beyond it means nothing, and every increase of the size zeroes the gap first.

use crate::Result;
use crate::cache::fsync_predictor::commits_at_once;
use crate::data::Files;
use crate::data::bytes::Part;
use crate::data::edit::Sizing;
use crate::data::map::Map;
use crate::inject::{Bug, injected};
use crate::inode::{Current, Inode, LIVE_CHECKSUMMED, LIVE_DIRTY, LIVE_WRITTEN};
use crate::medium::layout::{BLOCK, COMMIT_WRITTEN, Commit, Identity};
use crate::medium::now;
use crate::txn::op::Op;
use pmem::{FenceBatch, Region, UserIn};
use rustix::io::Errno;
use vfs::{Kind, Node};

/// Largest number of bytes that one call moves, as in Linux.
pub(crate) const CALL_MAX: u64 = 0x7FFF_F000;

/// A regular file whose lock the operation holds.
#[derive(Clone, Copy)]
pub(crate) struct File<'v> {
    pub(crate) inode: Inode,
    pub(crate) identity: Identity,
    pub(crate) current: Current,
    pub(crate) map: Map<'v>,
}

impl File<'_> {
    /// Some process has mapped it: its blocks stay where they are.
    pub(crate) fn is_mapped(&self) -> bool {
        self.current.is_mapped()
    }

    /// First block wholly beyond the end.
    pub(crate) fn end_block(&self) -> u64 {
        self.current.size.div_ceil(BLOCK)
    }

    /// The size and times as a commit slot says them.
    pub(crate) fn sizing(&self, current: &Current) -> Sizing {
        let written = current.flags & LIVE_WRITTEN != 0;
        let flags = if written { COMMIT_WRITTEN } else { 0 };
        let commit =
            Commit { size: current.size, mtime: current.mtime, flags, ..Commit::default() };
        Sizing { inode: self.inode, generation: self.identity.generation, commit }
    }

    /// What is current after the contents changed just now.
    pub(crate) fn written(&self, size: u64) -> Current {
        let now = now();
        let flags = self.current.flags | LIVE_WRITTEN;
        Current { size, mtime: now, ctime: now, flags }
    }
}

impl Files {
    /// As [`commits_at_once`].
    pub(crate) fn commits_file(&self, file: &File<'_>) -> Result<bool> {
        let sequence = self.sequence(file.inode)?;
        Ok(commits_at_once(self.mode, file.inode, sequence, file.current.flags))
    }

    /// The size that a power cut would leave.
    pub(crate) fn durable_size(&self, file: &File<'_>) -> Result<u64> {
        if file.current.flags & LIVE_DIRTY == 0 {
            return Ok(file.current.size);
        }
        Ok(self.commit_line(file.inode, file.identity.generation)?.0.size)
    }

    /// Publishes a file's new current state after a change; `committed`: the commit line says the
    /// same.
    pub(crate) fn publish_current(
        &self,
        file: &File<'_>,
        mut current: Current,
        committed: bool,
        delta: i64,
    ) -> Result<()> {
        self.mark_current(file, &mut current, committed)?;
        self.adjust_blocks(file.inode, &file.identity, delta)?;
        self.set_current(file.inode, &current)
    }

    /// Says in a new current state whether the commit line says the same.
    pub(crate) fn mark_current(
        &self,
        file: &File<'_>,
        current: &mut Current,
        committed: bool,
    ) -> Result<()> {
        if committed {
            current.flags &= !(LIVE_DIRTY | LIVE_CHECKSUMMED);
        } else if file.current.flags & (LIVE_DIRTY | LIVE_CHECKSUMMED) != LIVE_DIRTY {
            // A checksummed file may have a newer slot than it is marked with (`torn_append.rs`).
            let generation = file.identity.generation;
            current.flags = self.dirty_flags(file.inode, generation, current.flags)?;
        }
        Ok(())
    }
}

impl Files {
    /// The file of a node, to be called under its lock. `EISDIR` for a directory, `EINVAL` for
    /// anything else that is not a regular file.
    pub(crate) fn file(&self, node: Node) -> Result<File<'_>> {
        let (inode, identity) = self.identity_of(node)?;
        expect_file(&identity)?;
        let current = self.current(inode)?;
        let map = Map::new(self, inode, &identity);
        Ok(File { inode, identity, current, map })
    }

    /// Locks a node's file, and works on it from here on.
    pub(crate) fn work_on<'v>(&'v self, op: &mut Op<'v>, node: Node) -> Result<File<'v>> {
        self.lock_still(op, node)?;
        // What is current may change while work begins (`redo.rs`).
        op.work()?;
        self.file(node)
    }

    /// As [`Files::work_on`], to write: see [`Op::work_beside_records`].
    pub(crate) fn work_on_beside_records<'v>(
        &'v self,
        op: &mut Op<'v>,
        node: Node,
    ) -> Result<File<'v>> {
        self.lock_still(op, node)?;
        op.work_beside_records()?;
        self.file(node)
    }

    fn lock_still<'v>(&'v self, op: &mut Op<'v>, node: Node) -> Result<()> {
        let inode = self.inode(node.ino).map_err(|_| Errno::STALE)?;
        op.lock(&[inode])?;
        if self.is_still(inode, node.generation).is_err() {
            // An operation has its inode to itself: not one that is another object by now.
            self.identity_of(node)?;
        }
        Ok(())
    }

    /// Zeroes `[from, to)` where written blocks lie, in place; pended. For bytes beyond the end,
    /// and for calls that need not be atomic.
    pub(crate) fn zero_written<'v>(
        &'v self,
        op: &mut Op<'v>,
        map: Map<'v>,
        from: u64,
        to: u64,
    ) -> Result<()> {
        let mut at = from;
        while at < to && !injected(Bug::GapNotZeroed) {
            let logical = at / BLOCK;
            let run = map.run(logical, to.div_ceil(BLOCK) - logical)?;
            let end = ((logical + run.blocks) * BLOCK).min(to);
            if run.is_written() {
                let offset = run.block * BLOCK + at % BLOCK;
                let pending = self.region.stream_zero(offset, end - at)?;
                op.pend(pending);
            }
            at = end;
        }
        Ok(())
    }
}

/// `EISDIR`, `EINVAL`, or nothing wrong.
pub(crate) fn expect_file(identity: &Identity) -> Result<()> {
    match identity.kind() {
        Some(Kind::File) => Ok(()),
        Some(Kind::Directory) => Err(Errno::ISDIR),
        _ => Err(Errno::INVAL),
    }
}

/// The bytes of a write: the caller's buffers, one after the other, or zeros.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Caller(&'a [UserIn<'a>]),
    Zero,
}

impl Source<'_> {
    /// Streams a part of it to the region. `EFAULT` if the caller's memory is not there; a part of
    /// that may be stored then.
    pub(crate) fn stream<'r>(&self, region: &'r Region, part: Part) -> Result<FenceBatch<'r>> {
        let Part { from, to, length, locality } = part;
        let Self::Caller(buffers) = self else {
            return Ok(region.stream_zero(to, length as u64)?.into());
        };
        let mut flight = FenceBatch::default();
        each_part(buffers, from as u64, length as u64, |piece, done| {
            flight.add(region.stream_from(to + done, &piece, locality)?);
            Ok(())
        })
        .inspect_err(|_| {
            // PERSIST: a part may be stored, and the next holder of the lock, which goes by a plain
            // store, may store there too.
            let _ = region.fence();
        })?;
        Ok(flight)
    }

    /// As [`Source::stream`], of the caller's bytes, with their crc32c behind others whose sum is
    /// `before`.
    pub(crate) fn stream_checksummed<'r>(
        &self,
        region: &'r Region,
        part: Part,
        before: u32,
    ) -> Result<(FenceBatch<'r>, u32)> {
        let Part { from, to, length, locality } = part;
        let (mut flight, mut all) = (FenceBatch::default(), before);
        let Self::Caller(buffers) = self else { return Err(Errno::INVAL) };
        each_part(buffers, from as u64, length as u64, |piece, done| {
            let (stored, sum) = region.stream_checksummed_on(to + done, &piece, all, locality)?;
            flight.add(stored);
            all = sum;
            Ok(())
        })
        .inspect_err(|_| {
            // PERSIST: as above.
            let _ = region.fence();
        })?;
        Ok((flight, all))
    }
}

/// Calls `each` with the parts of `length` bytes from position `from` of several buffers: the part,
/// and how many bytes came before it. `EFAULT` if they have not so many.
fn each_part<'b>(
    buffers: &'b [UserIn<'b>],
    from: u64,
    length: u64,
    mut each: impl FnMut(UserIn<'b>, u64) -> Result<()>,
) -> Result<()> {
    let (mut skip, mut done) = (from, 0);
    for buffer in buffers {
        let size = buffer.len() as u64;
        if skip >= size {
            skip -= size;
            continue;
        }
        let take = (size - skip).min(length - done);
        each(buffer.slice(skip as usize, take as usize), done)?;
        done += take;
        skip = 0;
        if done == length {
            return Ok(());
        }
    }
    if done == length { Ok(()) } else { Err(Errno::FAULT) }
}
