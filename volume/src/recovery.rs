//! Recovery: after a crash, at the first attach; and the rebuild of the free map after a death.
//!
//! The medium is always in one of two states: as before or as after each operation, once the lanes are
//! undone. What is allocated is not stored at all: it is what the root directory reaches. So recovery
//! is: undo every lane, mark ([`Mark`]), publish the free map, trim what torn appends left beyond the ends
//! of files. Every step can be repeated; a crash inside recovery is recovered the same way.
//!
//! If the mark finds damage, nothing is published and nothing is freed: `EIO`, and the volume is to be
//! attached read-only until fsck has named what is wrong.
//!
//! Locks: none; the caller is alone (first attach), or has closed the gate and waited for quiet.

use crate::Result;
use crate::chunk::{Kind, count_free};
use crate::free_map::bits_of;
use crate::inode::Inode;
use crate::layout::{CHUNK_BLOCKS, EXTENT_BLOCKS};
use crate::mark::{Counts, Mark};
use crate::volume::Volume;
use rustix::io::Errno;

/// What a rebuild found.
pub(crate) struct Rebuilt {
    /// Files with blocks beyond their end that nobody asked for.
    pub(crate) leftovers: Vec<Inode>,
    pub(crate) counts: Counts,
}

impl Volume {
    /// Makes the volume ready after an unclean end: the caller is the first to attach in this epoch. `EIO`
    /// if there is damage: attach read-only then.
    pub(crate) fn recover(&self) -> Result<Counts> {
        for lane in 0..u64::from(self.superblock.lanes) {
            self.undo_lane(lane)?;
        }
        let rebuilt = self.rebuild(&[])?;
        for inode in rebuilt.leftovers {
            // CRASH: blocks beyond the end are harmless; the next recovery finds those that are left.
            self.trim_beyond(inode)?;
        }
        Ok(rebuilt.counts)
    }

    /// Rebuilds the free map from what is reachable, now, from the root directory and from
    /// `extra_roots` (inodes without a name that are still open). `EIO`, and the map stays as it is,
    /// if anything is damaged.
    pub(crate) fn rebuild(&self, extra_roots: &[Inode]) -> Result<Rebuilt> {
        let mut mark = Mark::new(self, false);
        mark.run(extra_roots, &mut |_, _| {});
        if !mark.faults.is_empty() {
            return Err(Errno::IO);
        }
        self.publish(&mark)?;
        Ok(Rebuilt { leftovers: mark.leftovers, counts: mark.counts })
    }

    /// As [`Volume::rebuild`] from the root alone, whatever is damaged: for counting in a private view.
    pub(crate) fn rebuild_regardless(&self) -> Result<()> {
        let mut mark = Mark::new(self, false);
        mark.run(&[], &mut |_, _| {});
        self.publish(&mark)
    }

    /// Makes what was marked the free map. The slots' bitmaps come first: an extent counts as one only when
    /// its record says so.
    fn publish(&self, mark: &Mark<'_>) -> Result<()> {
        for group in 0..self.groups() {
            let (mut blocks, mut chunks, mut inodes) = (0, 0, 0);
            for chunk in self.group_chunks(group) {
                let marked = &mark.chunks[chunk as usize];
                for index in bits_of(marked.extents) {
                    let block = self.chunk_start(chunk) + index * EXTENT_BLOCKS;
                    let slots = mark.slots.get(&block).copied().unwrap_or(1);
                    self.region.shared_store(self.extent_slots_offset(chunk, index), slots)?;
                    inodes += u64::from(slots.count_ones()) - 1;
                }
                let free = count_free(&marked.bits);
                let kind = match free {
                    CHUNK_BLOCKS => Kind::Free,
                    _ if marked.metadata => Kind::Metadata,
                    _ => Kind::Data,
                };
                self.write_record(chunk, &marked.bits, kind, marked.extents)?;
                blocks += free;
                chunks += u64::from(kind == Kind::Free);
            }
            self.write_group(group, blocks, chunks, inodes)?;
        }
        Ok(())
    }
}
