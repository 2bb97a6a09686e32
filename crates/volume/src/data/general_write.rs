//! Writes that are not simple (`plan.rs`): what is written where, in which mode, and in which order
//! it becomes durable.
//!
//! A write is cut at the runs of the map. A run below the end is *visible*: a strict call must
//! change all of it at once. What lies beyond the end means nothing until the size moves.
//!
//! | run | strict | sync, posix |
//! |---|---|---|
//! | hole | fresh blocks, then their words | the same |
//! | unwritten | its own blocks, the rest zeroed, then the mark | the same |
//! | written, beyond the end | in place | in place |
//! | written, up to 1 KiB, or parts of blocks up to 16 KiB | in place, by a record | in place |
//! | written, whole blocks, or more | copied to fresh blocks, then the words | in place |
//! | written, up to 256 KiB of a 2 MiB leaf, or mapped | in place, by a record | in place |
//! | written, a whole 2 MiB leaf or most of one | a fresh chunk, then its word | in place |
//!
//! What goes to blocks that are there, and to a commit slot at most, is simple (`write.rs`).
//!
//! Persistence order: bytes (and the zeroed gap behind the old end) and new nodes; fence; words;
//! the commit slot if the durable size grows; fence. A strict call that changes visible bytes in
//! place does that, and all else that it changes, by one redo record (`atomic_change.rs`); one that
//! changes several visible words, by an undo transaction. An append needs no journal: its words lie
//! beyond the end, so they share the first fence with its bytes, and the commit slot is the second.
//!
//! Where a full volume has no room for the new bytes of a mapped file beside the old ones, a write
//! to it is atomic by steps of 64 KiB only.
//!
//! Locks: the inode's.

use crate::data::Files;
use crate::data::atomic_change::{AtOnce, InPlace};
use crate::data::bytes::{Part, Several};
use crate::data::edit::{Change, Changes, Sizing, Target, Words};
use crate::data::file::{File, Source};
use crate::data::plan::Position;
use crate::inject::Bug;
use crate::inode::{LIVE_BEYOND, LIVE_CHECKSUMMED, LIVE_REDO, LIVE_SCATTERED, Run};
use crate::medium::layout::{BLOCK, CHUNK, CHUNK_BLOCKS, FLAG_ALIGNED, SIZE_MAX};
use crate::space::numa::pinned;
use crate::txn::op::Op;
use crate::txn::redo::{LIVE_RECORD, Places};
use crate::{Mode, Result, space::alloc::Want};
use pmem::UserIn;
use rustix::io::Errno;
use smallvec::SmallVec;
use vfs::Node;

/// Visible bytes up to which a strict overwrite changes them in place at least.
const SMALL: u64 = 1024;
/// Visible bytes of a 2 MiB leaf up to which they change in place; more, and the chunk is copied.
const JOURNAL_MAX: u64 = 256 << 10;
/// Bytes of one step of a write to a mapped file for whose bytes there is no room beside it.
const STEP: u64 = 64 << 10;

/// How a strict write deals with what it cannot replace block by block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Care {
    /// Parts of 2 MiB leaves change in place, or are copied whole.
    KeepHuge,
    /// 2 MiB leaves are broken, mapped files written by steps: it takes less space.
    Frugal,
}

/// A part of a write that falls into one run.
#[derive(Clone, Copy)]
struct Piece<'s> {
    run: Run,
    /// Byte range in the file.
    at: u64,
    to: u64,
    source: Source<'s>,
    /// Where its bytes are in the source.
    from: u64,
}

/// A change of contents in the making: bytes are on their way, words are planned, nothing visible
/// has changed yet in strict mode.
pub(crate) struct Writer<'o, 'v, 's> {
    files: &'v Files,
    pub(crate) op: &'o mut Op<'v>,
    pub(crate) file: File<'v>,
    care: Care,
    visible: Changes,
    beyond: Changes,
    /// Visible bytes that change in place.
    in_place: SmallVec<[InPlace<'s>; 2]>,
    /// Something was stored that words or a size publish.
    publishes: bool,
    /// Where the file will end at least: the bytes below are right then.
    pub(crate) reach: u64,
    /// Appends may attach blocks ahead of the end.
    grows: bool,
    /// Live flags that the file has from then on: blocks lie ahead of the end.
    gains: u64,
    /// Live flags that it has no more: the newest commit slot has no sum.
    loses: u64,
}

impl Files {
    /// Writes the buffers at `position`, up to the first byte that cannot be read, waiting for the
    /// lock; gives the bytes written and the position behind them. All of it (of a step, see
    /// `Space::at_once`) or an error with nothing changed, but for the caution of the module's head
    /// and the largest size. `EFBIG`, `ENOSPC`, `EFAULT`, `EISDIR`, `EINVAL`.
    pub(crate) fn write_file(
        &self,
        node: Node,
        position: Position,
        data: &[UserIn<'_>],
    ) -> Result<(usize, u64)> {
        let mut bytes = Several::all(data);
        let readable = bytes.touch();
        if readable == 0 && bytes.count > 0 {
            return Err(Errno::FAULT);
        }
        bytes.count = bytes.count.min(readable);
        let mut care = Care::KeepHuge;
        if self.region.pager().is_some() {
            bytes.count = bytes.count.min(self.at_once() as usize);
            // A chunk and its copy are to be here at once.
            care = if self.at_once() < 2 * CHUNK { Care::Frugal } else { care };
        }
        let once = |care| self.write_once(node, position, &bytes, 0, care);
        let (mut done, mut end) = match once(care) {
            Err(Errno::NOSPC) if self.mode == Mode::Strict => once(Care::Frugal)?,
            other => other?,
        };
        while done < bytes.count && end < SIZE_MAX {
            // Others may have appended meanwhile.
            let next = if position == Position::End { position } else { Position::At(end) };
            let (written, next) = self.write_once(node, next, &bytes, done, Care::Frugal)?;
            (done, end) = (done + written, next);
        }
        Ok((done, end))
    }

    /// Writes the bytes from number `from` on, or some of them.
    fn write_once(
        &self,
        node: Node,
        position: Position,
        bytes: &Several<'_>,
        from: usize,
        care: Care,
    ) -> Result<(usize, u64)> {
        let mut op = self.begin()?;
        let mut file = self.work_on_beside_records(&mut op, node)?;
        let offset = match position {
            Position::At(offset) => offset,
            Position::End => file.current.size,
        };
        let mut length = (bytes.count - from) as u64;
        if length == 0 {
            op.end()?;
            return Ok((0, offset));
        }
        if offset >= SIZE_MAX {
            return Err(Errno::FBIG);
        }
        if from == 0 && self.write_simply(&mut op, &file, offset, bytes)? {
            op.end()?;
            return Ok((bytes.count, offset + length));
        }
        length = length.min(SIZE_MAX - offset);
        if file.is_mapped() && care == Care::Frugal {
            length = length.min(STEP - offset % STEP);
        }
        let size = file.current.size;
        if file.current.flags & (LIVE_REDO | LIVE_CHECKSUMMED) != 0 {
            // A simple write that found memory lost may have stored a slot.
            op.void_locked_redos(offset < size && self.mode == Mode::Strict)?;
            file.current = self.current(file.inode)?;
        }
        let mut writer = Writer::new(self, &mut op, file, care);
        writer.grows = true;
        writer.begin(offset)?;
        writer.put(Source::Caller(bytes.buffers), from as u64, offset, length)?;
        writer.finish(offset + length)?;
        op.end()?;
        if completes_chunk(size, offset, length) {
            self.due.note_filled(node.ino, (offset + length - 1) / CHUNK);
        }
        Ok((length as usize, offset + length))
    }
}

/// Whether an append has filled a chunk of the file that it did not begin.
fn completes_chunk(size: u64, offset: u64, length: u64) -> bool {
    let last = (offset + length - 1) / BLOCK;
    offset >= size && last % CHUNK_BLOCKS == CHUNK_BLOCKS - 1 && length < CHUNK / 2
}

impl<'o, 'v, 's> Writer<'o, 'v, 's> {
    pub(crate) fn new(files: &'v Files, op: &'o mut Op<'v>, file: File<'v>, care: Care) -> Self {
        let (visible, beyond) = (Changes::new(), Changes::new());
        let (in_place, reach) = (SmallVec::new(), file.current.size);
        let publishes = op.has_pending();
        Self {
            files,
            op,
            file,
            care,
            visible,
            beyond,
            in_place,
            publishes,
            reach,
            grows: false,
            gains: 0,
            loses: 0,
        }
    }

    /// Before bytes are put from `offset` on: a slot without a sum is stored, since recovery would
    /// take the tail for torn, and what lies between the end and them is zeroed.
    fn begin(&mut self, offset: u64) -> Result<()> {
        if offset < self.file.current.size {
            let pended = self.files.pend_clear_tail_sum(self.op, &self.file)?;
            // A strict call changes nothing visible before a fence.
            if pended && !self.is_strict() {
                let _ = self.op.fence();
            }
            // What comes next may be simple.
            self.loses = LIVE_CHECKSUMMED;
            // A slot may be on its way, which publishes nothing.
            self.publishes = false;
        }
        self.gap(offset)
    }

    fn is_strict(&self) -> bool {
        self.files.mode == Mode::Strict
    }

    /// Zeroes what lies between the end and `offset`, if the write starts behind the end.
    pub(crate) fn gap(&mut self, offset: u64) -> Result<()> {
        self.publishes |= offset > self.file.current.size;
        self.files.zero_written(self.op, self.file.map, self.file.current.size, offset)
    }

    /// Takes `length` bytes from position `from` of `source` for file offset `offset`. Calls must
    /// come in ascending order of offsets, at least a block apart.
    pub(crate) fn put(
        &mut self,
        source: Source<'s>,
        from: u64,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let (end, size) = (offset + length, self.file.current.size);
        let boundary = self.file.end_block() * BLOCK;
        // Whole blocks are stored once where they are copied, twice by a record.
        let whole = offset.is_multiple_of(BLOCK) && end.min(size).is_multiple_of(BLOCK);
        let visible = end.min(size).saturating_sub(offset);
        let small = visible <= SMALL || visible <= self.files.data_area_bytes && !whole;
        let mut at = offset;
        while at < end {
            let logical = at / BLOCK;
            let run = self.file.map.run(logical, end.div_ceil(BLOCK) - logical)?;
            let mut to = ((logical + run.blocks) * BLOCK).min(end);
            if at < boundary && !run.huge {
                to = to.min(boundary);
            }
            let piece = Piece { run, at, to, source, from: from + at - offset };
            if run.is_hole() {
                self.replace(&piece, logical, to.div_ceil(BLOCK), None)?;
            } else if run.unwritten {
                self.fill_unwritten(&piece)?;
            } else {
                self.overwrite(&piece, small)?;
            }
            at = to;
        }
        Ok(())
    }

    /// Makes whole blocks a hole; ascending order as for [`Writer::put`].
    pub(crate) fn punch(&mut self, logical: u64, blocks: u64) {
        self.change(Change { logical, blocks, to: Target::Hole, frees: true });
    }

    /// Plans a change of the map.
    pub(crate) fn change(&mut self, change: Change) {
        if change.logical < self.file.end_block() {
            self.visible.push(change);
        } else {
            self.beyond.push(change);
        }
    }

    fn overwrite(&mut self, piece: &Piece<'s>, small: bool) -> Result<()> {
        let &Piece { run, at, to, source, from } = piece;
        let visible_end = to.min(self.file.current.size);
        let offset = run.block * BLOCK + at % BLOCK;
        if !self.is_strict() || at >= visible_end {
            return self.stream(source, Part::near(from as usize, offset, (to - at) as usize));
        }
        let visible = visible_end - at;
        let keep_huge = run.huge && self.care == Care::KeepHuge;
        let must = self.file.is_mapped() || keep_huge && visible <= JOURNAL_MAX;
        let files = self.files;
        // Every page is looked at before the record is stored. What lies on one that is lost goes
        // to another, if it may.
        let looked = || files.look_at(&Places::one(offset), visible as usize);
        if must {
            looked()?;
        }
        if must || small && looked().is_ok() {
            // What is beyond the end in the last block goes with it: so the size has nothing else
            // to publish. (That page has been looked at.)
            let in_block = to <= visible_end.next_multiple_of(BLOCK);
            let length = if in_block { to - at } else { visible };
            self.in_place.push(InPlace { at: offset, length, source, from });
            let (from, rest) = ((from + length) as usize, (to - at - length) as usize);
            return self.stream(source, Part::cold(from, offset + length, rest));
        }
        let logical = at / BLOCK;
        let first = logical / CHUNK_BLOCKS * CHUNK_BLOCKS;
        let old = run.block.wrapping_sub(logical - first);
        if keep_huge && !files.has_lost(old, CHUNK_BLOCKS) {
            return self.replace(piece, first, first + CHUNK_BLOCKS, Some(old));
        }
        self.replace(piece, logical, to.div_ceil(BLOCK), Some(run.block))
    }

    fn stream(&mut self, source: Source<'s>, part: Part) -> Result<()> {
        if part.length > 0 {
            self.publishes = true;
            let pending = source.stream(&self.files.region, part)?;
            self.op.pend(pending);
        }
        Ok(())
    }

    fn zero(&mut self, at: u64, length: u64) -> Result<()> {
        if length > 0 {
            self.publishes = true;
            let pending = self.files.region.stream_zero(at, length)?;
            self.op.pend(pending);
        }
        Ok(())
    }

    /// Fills allocated blocks that read as zeros, and plans their mark.
    fn fill_unwritten(&mut self, piece: &Piece<'s>) -> Result<()> {
        let &Piece { run, at, to, source, from } = piece;
        let logical = at / BLOCK;
        let (first, last) = if run.huge {
            let first = logical / CHUNK_BLOCKS * CHUNK_BLOCKS;
            (first, first + CHUNK_BLOCKS)
        } else {
            (logical, to.div_ceil(BLOCK))
        };
        // Offset in the region of the file's byte 0, were it all contiguous.
        let place = |at: u64| (run.block - (logical - first)) * BLOCK + (at - first * BLOCK);
        self.zero(place(first * BLOCK), at - first * BLOCK)?;
        self.stream(source, Part::cold(from as usize, place(at), (to - at) as usize))?;
        let tail = (last * BLOCK).min(self.reach).saturating_sub(to);
        self.zero(place(to), tail)?;
        let to = Target::Mark { unwritten: false };
        self.change(Change { logical: first, blocks: last - first, to, frees: true });
        Ok(())
    }

    /// Puts fresh blocks in place of the logical blocks `first..last`, filled with the piece's
    /// bytes and around them with those of the `old` blocks or zeros.
    fn replace(
        &mut self,
        piece: &Piece<'s>,
        first: u64,
        last: u64,
        old: Option<u64>,
    ) -> Result<()> {
        for (logical, block, blocks) in self.allocate(first, last, old)? {
            let (start, end) = (logical * BLOCK, (logical + blocks) * BLOCK);
            let place = |at: u64| block * BLOCK + (at - start);
            let (from, to) = (piece.at.clamp(start, end), piece.to.clamp(start, end));
            let begin = (piece.from + (from - piece.at)) as usize;
            self.stream(piece.source, Part::cold(begin, place(from), (to - from) as usize))?;
            // Behind the end nothing needs to be right.
            let tail = end.min(self.reach).max(to);
            for (from, to) in [(start, from), (to, tail)] {
                match old {
                    Some(old) if from < to => {
                        let source = old * BLOCK + (from - first * BLOCK);
                        let region = &self.files.region;
                        let pending = region.copy(source, place(from), to - from)?;
                        self.op.pend(pending);
                    }
                    _ => self.zero(place(from), to - from)?,
                }
            }
            let to = Target::Leaf { block, unwritten: false };
            self.change(Change { logical, blocks, to, frees: true });
        }
        Ok(())
    }

    /// Fresh blocks for `first..last`: {logical, block, blocks}, whole chunks where whole chunks
    /// fit.
    pub(crate) fn allocate(
        &mut self,
        first: u64,
        last: u64,
        old: Option<u64>,
    ) -> Result<SmallVec<[(u64, u64, u64); 4]>> {
        let files = self.files;
        let mut placed = SmallVec::new();
        let mut place = |mut logical: u64, extents: &[(u64, u64)]| {
            for &(block, blocks) in extents {
                placed.push((logical, block, blocks));
                logical += blocks;
            }
        };
        let mut up = first.next_multiple_of(CHUNK_BLOCKS);
        let mut down = last / CHUNK_BLOCKS * CHUNK_BLOCKS;
        if up > down {
            // No chunk begins inside.
            (up, down) = (last, last);
        }
        let near = match old {
            None if first > 0 => self.block_before(first)?,
            _ => None,
        };
        let reserve = old.is_some();
        let node = pinned(self.file.identity.flags);
        let want = Want { near, reserve, node, ..Want::default() };
        place(first, &files.allocate_data(self.op, up - first, want)?);
        let aligned = Want { aligned: true, reserve, node, ..Want::default() };
        place(up, &files.allocate_data(self.op, down - up, aligned)?);
        if down < last {
            let tail = match old {
                None if self.grows => self.grow(down)?,
                _ => None,
            };
            match tail {
                Some(chunk) => place(down, &[(chunk, CHUNK_BLOCKS)]),
                None => place(down, &files.allocate_data(self.op, last - down, want)?),
            }
        }
        Ok(placed)
    }

    /// The block after which the file goes on at `logical`.
    fn block_before(&self, logical: u64) -> Result<Option<u64>> {
        let run = self.file.map.run(logical - 1, 1)?;
        Ok((!run.is_hole()).then_some(run.block))
    }

    /// A whole chunk for the appends to come, if the file grows past 2 MiB at `logical` and space
    /// is not scarce. Trimmed at the last close.
    fn grow(&mut self, logical: u64) -> Result<Option<u64>> {
        let files = self.files;
        let end = self.file.current.size;
        let start = logical * BLOCK;
        let appends =
            start >= CHUNK && start.is_multiple_of(CHUNK) && (end..end + CHUNK).contains(&start);
        let plenty = || Ok::<_, Errno>(files.free_blocks()? > files.chunks() * CHUNK_BLOCKS / 8);
        if !appends || !plenty()? {
            return Ok(None);
        }
        let run = self.file.map.run(logical, CHUNK_BLOCKS)?;
        if !run.is_hole() || run.blocks < CHUNK_BLOCKS {
            return Ok(None);
        }
        let chunk = files.allocate_chunk(self.op, pinned(self.file.identity.flags))?;
        if chunk.is_some() {
            self.gains = LIVE_BEYOND;
        }
        Ok(chunk)
    }

    /// Makes it happen, once: afterwards the file ends at `end`, or where it ended if that is more.
    pub(crate) fn finish(&mut self, end: u64) -> Result<()> {
        let files = self.files;
        if self.in_place.is_empty() {
            self.file.current = self.op.void_kept_redo(self.file.inode, self.file.current)?;
        }
        let mut next = self.file.written(end.max(self.file.current.size));
        next.flags = next.flags & !self.loses | self.gains;
        let mut commits =
            files.commits_file(&self.file)? && end > files.durable_size(&self.file)?;
        let sizing = commits.then(|| self.file.sizing(&next));
        let ordered = !self.visible.is_empty();
        self.visible.append(&mut self.beyond);
        let atomic = self.is_strict() && ordered || !self.in_place.is_empty();
        let mut words = Words::default();
        self.files.plan_into(self.op, self.file.map, &self.visible, atomic, &mut words)?;
        if !self.in_place.is_empty() {
            let (bytes, size) = (&self.in_place[..], sizing.as_ref());
            let publishes = self.publishes || words.fresh;
            let change = AtOnce { bytes, words: &words, size, publishes };
            next.flags |= self.files.change_at_once(self.op, &self.file, change)? & LIVE_RECORD;
            if self.file.is_mapped() {
                self.files.void_record_of(self.op, &self.file, &mut next)?;
                commits = true;
            }
        } else if atomic {
            self.files.publish_edits(self.op, &[&words], sizing.as_slice())?;
        } else {
            self.one_by_one(&words, ordered, sizing.as_ref())?;
        }
        if words.delta > 0 && self.file.identity.flags & FLAG_ALIGNED != 0 {
            next.flags |= LIVE_SCATTERED;
        }
        files.publish_current(&self.file, next, commits, words.delta)?;
        files.say_whether_small(&self.file, next.size)
    }

    /// Words one by one, then the size. `ordered`: some of the words are visible.
    fn one_by_one(&mut self, words: &Words, ordered: bool, size: Option<&Sizing>) -> Result<()> {
        if ordered && !words.fresh {
            // PERSIST: the bytes before the visible words that lead to them.
            let _ = self.op.fence_unless(Bug::WordsBeforeBytes);
        }
        // CRASH: any subset of the words is right: each visible one leads to durable bytes, the
        // others lie beyond the end. So what was allocated is in use, even if this call fails from
        // here on.
        self.op.keep_allocated();
        self.files.store_loose(self.op, words)?;
        if let Some(size) = size {
            return self.files.publish_size(self.op, size);
        }
        let _ = self.op.fence();
        Ok(())
    }
}
