//! What a mapping has done beside it: a file is made whole first, as far as that is worth it
//! (`rewrite.rs`), and where memory can be mapped by 2 MiB only, the chunks that it shows must be.
//!
//! A whole chunk is a part of a file as one 2 MiB leaf, by a copy of its bytes.
//!
//! Persistence order: copies and zeros; fence; the words that lead to the new chunk; fence. CRASH:
//! before the commit the old blocks count, after it the new ones, which hold the same bytes.
//!
//! Locks: the inode's.

use crate::Result;
use crate::data::edit::{Change, Target};
use crate::data::file::expect_file;
use crate::data::map::Map;
use crate::data::mapping::{AROUND, Fill, PageFault, whole_blocks};
use crate::inode::{LIVE_DIRTY, Run};
use crate::medium::layout::{BLOCK, CHUNK_BLOCKS};
use crate::space::numa::pinned;
use crate::txn::op::Op;
use crate::upkeep::Upkeep;
use rustix::io::Errno;
use smallvec::SmallVec;
use vfs::{Mapped, Node, Piece};

/// The runs of a part of a file.
pub(crate) type Runs = SmallVec<[Run; 8]>;

impl Upkeep {
    /// The pieces of a range of bytes of a file: as [`Files::map_pieces`](crate::data::Files).
    pub(crate) fn map_range(
        &self,
        node: Node,
        range: (u64, u64),
        mapped: Mapped,
        fill: Fill,
    ) -> Result<Vec<Piece>> {
        let (first, last) = whole_blocks(range)?;
        self.rewrite_by_the_way(node);
        if fill == Fill::All && self.maps_chunks() && self.check_writable().is_ok() {
            self.make_all_whole(node, first, last)?;
        }
        self.map_pieces(node, range, mapped, fill)
    }

    /// The pieces around a page that faulted, in the order of the file; none if it lies beyond
    /// the end. `ENOSPC` if not even the page can have a block.
    pub(crate) fn map_faulted(
        &self,
        node: Node,
        fault: &PageFault,
        mapped: Mapped,
    ) -> Result<Vec<Piece>> {
        // A process that may only read, or maps privately, has copies.
        if self.maps_chunks() && mapped != Mapped::Private && self.check_writable().is_ok() {
            let first = fault.page - fault.page % CHUNK_BLOCKS;
            return self.with_orphans_dropped(|| {
                self.make_whole(node, first)?;
                self.map_chunk(node, first, mapped)
            });
        }
        let map = |frugal| self.map_faulted_page(node, fault, mapped, frugal);
        if self.is_read_only() && !self.is_unchanging() {
            // Others may store into what is shared: zeros of its own would not show that.
            return if mapped == Mapped::Private { self.show(node, fault) } else { map(true) };
        }
        match self.with_orphans_dropped(|| map(false)) {
            Err(Errno::NOSPC) => self.with_orphans_dropped(|| map(true)),
            done => done,
        }
    }

    /// The pieces around a page of a private mapping that faulted, of which none is filled; none if
    /// it lies beyond the end.
    fn show(&self, node: Node, fault: &PageFault) -> Result<Vec<Piece>> {
        let (page, end) = (fault.page, self.blocks_shown(node)?.min(fault.within.1));
        if !(fault.within.0..end).contains(&page) {
            return Ok(Vec::new());
        }
        let first = (page - page % AROUND).max(fault.within.0);
        let last = (first + AROUND).min(end);
        let range = (first * BLOCK, (last - first) * BLOCK);
        self.map_pieces(node, range, Mapped::Private, Fill::None)
    }

    /// One behind the last block of a file.
    fn blocks_shown(&self, node: Node) -> Result<u64> {
        self.read_steadily(node, |inode, identity| {
            expect_file(identity)?;
            Ok(self.current(inode)?.size.div_ceil(BLOCK))
        })
    }

    /// Makes whole what a mapping of `first..last` that is populated shows.
    fn make_all_whole(&self, node: Node, first: u64, last: u64) -> Result<()> {
        let end = self.blocks_shown(node)?;
        let chunks = first / CHUNK_BLOCKS..last.min(end).div_ceil(CHUNK_BLOCKS);
        for chunk in chunks {
            self.make_whole(node, chunk * CHUNK_BLOCKS)?;
        }
        Ok(())
    }

    /// Puts the chunk's worth of blocks from `first` on into one whole chunk of written bytes:
    /// zeros where there are holes, and behind the end. Also of a mapped file: where memory has
    /// pages of 2 MiB only, processes have mapped whole chunks only. `ENOSPC`.
    pub(super) fn make_whole(&self, node: Node, first: u64) -> Result<()> {
        let mut op = self.begin()?;
        let file = self.work_on(&mut op, node)?;
        self.clear_tail_sum(&mut op, &file)?;
        let runs = all_runs(&file.map, first, first + CHUNK_BLOCKS)?;
        if is_aligned(&runs) && !runs[0].unwritten || first >= file.end_block() {
            return op.end();
        }
        let chunk = self.allocate_chunk(&mut op, pinned(file.identity.flags))?;
        let chunk = chunk.ok_or(Errno::NOSPC)?;
        let (mut at, mut logical) = (chunk, first);
        for mut run in runs {
            let inside = run.blocks.min(file.end_block().saturating_sub(logical));
            self.fill_copy(&mut op, &run, at, inside, false)?;
            run.unwritten = true;
            self.fill_copy(&mut op, &run, at + inside, run.blocks - inside, false)?;
            (at, logical) = (at + run.blocks, logical + run.blocks);
        }
        let to = Target::Leaf { block: chunk, unwritten: false };
        let change = Change { logical: first, blocks: CHUNK_BLOCKS, to, frees: true };
        let words = self.plan_edit(&mut op, file.map, &[change])?;
        self.publish_edits(&mut op, &[&words], &[])?;
        let clean = file.current.flags & LIVE_DIRTY == 0;
        self.publish_current(&file, file.current, clean, words.delta)?;
        op.end()
    }

    /// Fills `count` blocks from `place` on with what a run holds.
    pub(crate) fn fill_copy<'v>(
        &'v self,
        op: &mut Op<'v>,
        run: &Run,
        place: u64,
        count: u64,
        unwritten: bool,
    ) -> Result<()> {
        let region = &self.region;
        let (to, length) = (place * BLOCK, count * BLOCK);
        if unwritten || count == 0 {
            return Ok(());
        }
        let filled = if run.unwritten {
            region.stream_zero(to, length)?
        } else {
            region.copy(run.block * BLOCK, to, length)?
        };
        op.pend(filled);
        Ok(())
    }
}

/// What stands in `first..last`; holes are as if they were there, unwritten.
fn all_runs(map: &Map<'_>, first: u64, last: u64) -> Result<Runs> {
    let mut runs: Runs = SmallVec::new();
    let mut at = first;
    while at < last {
        let mut run = map.run(at, last - at)?;
        at += run.blocks;
        run.unwritten |= run.is_hole();
        add_run(&mut runs, run);
    }
    Ok(runs)
}

/// Adds the run that stands behind others in the file: as part of the last one, if it is that.
pub(crate) fn add_run(runs: &mut Runs, run: Run) {
    match runs.last_mut() {
        Some(before)
            if before.block + before.blocks == run.block && before.unwritten == run.unwritten =>
        {
            before.blocks += run.blocks;
        }
        _ => runs.push(run),
    }
}

/// Whether runs are one chunk.
pub(crate) fn is_aligned(runs: &[Run]) -> bool {
    matches!(runs, [run] if run.blocks == CHUNK_BLOCKS && run.block.is_multiple_of(CHUNK_BLOCKS))
}
