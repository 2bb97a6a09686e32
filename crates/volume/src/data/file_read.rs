//! Reading files, and finding where their data is: without a lock, into the caller's memory.
//!
//! A piece of at most 256 KiB is copied under a sequence number that did not move, or that only
//! changes in place of other blocks moved (`read_beside`); what a retry overwrites had not been
//! told to anybody. For
//! `SEEK_DATA` and `SEEK_HOLE` unwritten blocks count as holes, and the end of the file is one.
//!
//! Persistence: only the access time is stored, lazily; it is never flushed by itself.

use crate::Result;
use crate::cache::extents::Seen;
use crate::data::Files;
use crate::data::file::{CALL_MAX, expect_file};
use crate::data::map::Map;
use crate::inode::Inode;
use crate::inode::references::{Opened, not_open};
use crate::medium::layout::{ATIME, BLOCK};
use crate::medium::now;
use pmem::Access;
use rustix::io::Errno;
use vfs::versions::Place;
use vfs::{Desc, Node, OpenFlags, UserOut};

/// Bytes copied under one sequence number.
const PIECE: u64 = 256 << 10;
/// An access time older than this moves even if nothing changed (relatime): a day, in ns.
const ACCESS_AGE: i64 = 86_400_000_000_000;

impl Files {
    /// Reads at `offset` into the buffers, in order, up to the first byte that cannot be written;
    /// gives the bytes read, 0 at the end. Holes read as zeros. `EISDIR`, `EINVAL` (not a regular
    /// file), `EFAULT` if nothing was read before.
    pub(crate) fn read_file(
        &self,
        node: Node,
        offset: u64,
        out: &mut [UserOut<'_>],
    ) -> Result<usize> {
        let read = self.read_buffers(node, offset, out, 0, &mut None)?;
        self.read_done(node, read, OpenFlags(0))
    }

    /// As [`Files::read_file`], through an open description, and remembers what it saw.
    pub(crate) fn read_opened(
        &self,
        desc: Desc,
        opened: &Opened,
        offset: u64,
        out: &mut [UserOut<'_>],
    ) -> Result<usize> {
        if let [only] = out
            && let Some(read) = self.read_changed(desc, opened, offset, only)
        {
            return self.read_done(opened.node, read as u64, opened.flags);
        }
        let mut seen = None;
        let ahead = self.blocks_ahead(desc, offset);
        let read = self.read_buffers(opened.node, offset, out, ahead, &mut seen);
        let read = read.map_err(not_open)?;
        if let Some(seen) = seen {
            self.remember_extent(desc, opened, &seen);
        }
        self.read_done(opened.node, read, opened.flags)
    }

    fn read_buffers(
        &self,
        node: Node,
        offset: u64,
        out: &mut [UserOut<'_>],
        ahead: u64,
        seen: &mut Option<Seen>,
    ) -> Result<u64> {
        let mut done = 0;
        for buffer in out.iter() {
            let mut filled = 0;
            while filled < buffer.len() as u64 && done < CALL_MAX {
                let want = PIECE.min(buffer.len() as u64 - filled).min(CALL_MAX - done);
                let sink = buffer.slice(filled as usize, want as usize);
                let at = offset + done;
                let read = match self.read_piece(node, at, &sink, ahead, seen) {
                    Ok(0) => return Ok(done),
                    Ok(read) => read,
                    Err(error) => {
                        match self.read_reachable(node, at, &sink, error, seen.as_ref()) {
                            // Its pages were missing only.
                            Ok(read) if read == want => read,
                            Ok(read) => return Ok(done + read),
                            Err(_) if done > 0 => return Ok(done),
                            Err(error) => return Err(error),
                        }
                    }
                };
                filled += read;
                done += read;
            }
        }
        Ok(done)
    }

    /// Reads once more what failed with `error`, with nothing held: when pages of the region that
    /// were absent have come, and as far as the caller's memory can be had.
    #[cold]
    fn read_reachable(
        &self,
        node: Node,
        offset: u64,
        sink: &UserOut<'_>,
        mut error: Errno,
        seen: Option<&Seen>,
    ) -> Result<u64> {
        if let Some(read) = seen.and_then(|seen| self.read_away(node, offset, sink, seen)) {
            return Ok(read);
        }
        let (range, mut times) = ((offset, sink.len() as u64), 0);
        loop {
            // A copy between files reads while it works alone.
            let waiting = self.stay_idle();
            let places = || self.places_of(node, range).into();
            if let Err(errno) = self.has_come(error, Access::Load, &mut times, places) {
                error = errno;
                break;
            }
            drop(waiting);
            match self.read_piece(node, offset, sink, 0, &mut None) {
                Err(next) => error = next,
                read => return read,
            }
        }
        let reach = if error == Errno::FAULT { sink.touch() } else { 0 };
        if reach == 0 {
            return Err(error);
        }
        self.read_piece(node, offset, &sink.slice(0, reach), 0, &mut None)
    }

    /// Copies (offset, length) into a file of the kernel's; gives the bytes there were, with holes.
    pub(crate) fn copy_out(&self, node: Node, range: (u64, u64), to: Place<'_>) -> Result<u64> {
        let (offset, (file, place)) = (range.0, to);
        let length = self.read_steadily(node, |inode, identity| {
            expect_file(identity)?;
            let length = range.1.min(self.current(inode)?.size.saturating_sub(offset));
            let map = Map::new(self, inode, identity);
            let (mut at, end) = (offset, offset + length);
            while at < end {
                let run = map.run(at / BLOCK, end.div_ceil(BLOCK) - at / BLOCK)?;
                let take = ((at / BLOCK + run.blocks) * BLOCK).min(end) - at;
                if run.is_written() {
                    let from = run.block * BLOCK + at % BLOCK;
                    self.region.copy_to_file(from, take, file, place + (at - offset))?;
                }
                at += take;
            }
            Ok(length)
        })?;
        self.read_done(node, length, OpenFlags(0)).map(|length| length as u64)
    }

    fn read_done(&self, node: Node, done: u64, flags: OpenFlags) -> Result<usize> {
        if !flags.has(libc::O_NOATIME) && !self.is_read_only() {
            self.touch_access(Inode(node.ino))?;
        }
        Ok(done as usize)
    }

    /// Reads up to a piece; tells the last run that it `seen`, up to `ahead` blocks further than it
    /// needed.
    fn read_piece(
        &self,
        node: Node,
        offset: u64,
        sink: &UserOut<'_>,
        ahead: u64,
        seen: &mut Option<Seen>,
    ) -> Result<u64> {
        self.read_beside(node, (offset, sink.len() as u64), |inode, identity| {
            expect_file(identity)?;
            let (current, sequence) = self.current_and_sequence(inode)?;
            // Of a change in place: the map is as it was before.
            let (size, sequence) = (current.size, sequence & !1);
            let length = (sink.len() as u64).min(size.saturating_sub(offset));
            let map = Map::new(self, inode, identity);
            let mut done = 0;
            while done < length {
                let at = offset + done;
                let logical = at / BLOCK;
                let run = map.run(logical, (offset + length).div_ceil(BLOCK) - logical + ahead)?;
                *seen = Some(Seen { sequence, size, logical, run });
                let take = ((logical + run.blocks) * BLOCK - at).min(length - done);
                let piece = sink.slice(done as usize, take as usize);
                if run.is_written() {
                    let from = run.block * BLOCK + at % BLOCK;
                    self.region.read_to(from, &piece, take as usize)?;
                } else {
                    piece.zero(take as usize)?;
                }
                done += take;
            }
            Ok(length)
        })
    }

    /// Moves the access time as `relatime` does. The caller holds the inode open.
    pub(crate) fn touch_access(&self, inode: Inode) -> Result<()> {
        let (before, current, now) = (self.access_time(inode)?, self.current(inode)?, now());
        let stale = before <= current.mtime
            || before <= current.ctime
            || now.saturating_sub(before) > ACCESS_AGE;
        if stale && before != now {
            // PERSIST: never flushed by itself; any value of this word is harmless.
            let _ = self.region.store64(inode.at(ATIME), now as u64)?;
        }
        Ok(())
    }

    /// The first byte at or behind `offset` that is data. `ENXIO` if there is none or `offset` is
    /// not inside the file.
    pub(crate) fn seek_data(&self, node: Node, offset: u64) -> Result<u64> {
        self.seek_run(node, offset, true)?.ok_or(Errno::NXIO)
    }

    /// The first byte at or behind `offset` that is in a hole, the end at the latest. `ENXIO` if
    /// `offset` is not inside the file.
    pub(crate) fn seek_hole(&self, node: Node, offset: u64) -> Result<u64> {
        self.seek_run(node, offset, false)?.ok_or(Errno::NXIO)
    }

    fn seek_run(&self, node: Node, offset: u64, data: bool) -> Result<Option<u64>> {
        self.read_steadily(node, |inode, identity| {
            expect_file(identity)?;
            let size = self.current(inode)?.size;
            if offset >= size {
                return Ok(None);
            }
            let map = Map::new(self, inode, identity);
            let (mut logical, end) = (offset / BLOCK, size.div_ceil(BLOCK));
            while logical < end {
                let run = map.run(logical, end - logical)?;
                if run.is_written() == data {
                    return Ok(Some(offset.max(logical * BLOCK)));
                }
                logical += run.blocks;
            }
            Ok((!data).then_some(size))
        })
    }
}
