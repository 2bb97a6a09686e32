//! What files say to the pager of the region, if it has one (`space/paging.rs`): where a call goes,
//! and whose blocks go last.
//!
//! Locks: none to look where a call goes; the inode's to say that a file is small, or no more.

use crate::Result;
use crate::data::Files;
use crate::data::file::{File, expect_file};
use crate::data::map::Map;
use crate::medium::layout::BLOCK;
use pmem::Hint;
use vfs::Node;

/// Bytes of a file that is small.
const SMALL_BYTES: u64 = 64 << 10;
/// Ranges that a pager is told at once: more than it brings by one request.
const RANGES: usize = 64;

impl Files {
    /// Where `[offset, offset + length)` of a file lies in the region: the first ranges, whatever
    /// can be found of them.
    #[cold]
    pub(crate) fn places_of(&self, node: Node, (offset, length): (u64, u64)) -> Vec<(u64, u64)> {
        let found = self.read_steadily(node, |inode, identity| {
            expect_file(identity)?;
            let size = self.current(inode)?.size;
            let map = Map::new(self, inode, identity);
            let (mut at, end) = (offset, offset.saturating_add(length).min(size));
            let mut places = Vec::new();
            while at < end && places.len() < RANGES {
                let (logical, last) = (at / BLOCK, end.div_ceil(BLOCK));
                let run = map.run(logical, last - logical)?;
                let next = ((logical + run.blocks) * BLOCK).min(end);
                if run.is_written() {
                    places.push((run.block * BLOCK + at % BLOCK, next - at));
                }
                at = next;
            }
            Ok(places)
        });
        found.unwrap_or_default()
    }

    /// Of a file that got blocks, and ends at `end` now.
    #[inline]
    pub(crate) fn say_whether_small(&self, file: &File<'_>, end: u64) -> Result<()> {
        if self.region.pager().is_none() || file.current.size > SMALL_BYTES {
            return Ok(());
        }
        self.say_hint(file, end)
    }

    #[cold]
    fn say_hint(&self, file: &File<'_>, end: u64) -> Result<()> {
        let Some(pager) = self.region.pager() else { return Ok(()) };
        let hint = if end <= SMALL_BYTES { Hint::Small } else { Hint::Large };
        let (mut at, last) = (0, end.min(SMALL_BYTES).div_ceil(BLOCK));
        while at < last {
            let run = file.map.run(at, last - at)?;
            if !run.is_hole() {
                pager.advise((run.block * BLOCK, run.blocks * BLOCK), hint);
            }
            at += run.blocks;
        }
        Ok(())
    }
}
