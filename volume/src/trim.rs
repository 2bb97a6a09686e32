//! Trim: the memory of free chunks goes back to the host.
//!
//! A chunk is taken from the allocator like for a file, its memory is punched out of the region's file, and
//! it is given back: so nobody can use it meanwhile. It is one operation a chunk, so that a death in the
//! middle is swept like any other. Files on tmpfs, hugetlbfs, ext4 and XFS can be punched; devices cannot.

use crate::Result;
use crate::chunk::Kind;
use crate::layout::{BLOCK, CHUNK, CHUNK_BLOCKS};
use crate::volume::Volume;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Bytes of a unit of `st_blocks`.
const STAT_BLOCK: u64 = 512;

impl Volume {
    /// Gives the memory of all free chunks back to the file system that holds the region; gives how many
    /// bytes that file system says it got. `EOPNOTSUPP` where the region cannot be punched.
    pub fn trim(&self) -> Result<u64> {
        if self.region.fd() < 0 {
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: the region, and with it its descriptor, lives as long as the volume.
        let file = unsafe { BorrowedFd::borrow_raw(self.region.fd()) };
        let held = || Ok::<_, Errno>(rustix::fs::fstat(file)?.st_blocks as u64 * STAT_BLOCK);
        let before = held()?;
        for chunk in 0..self.chunks() {
            if self.chunk_kind(chunk)? == Kind::Free {
                self.trim_chunk(chunk, file)?;
            }
        }
        Ok(before.saturating_sub(held()?))
    }

    fn trim_chunk(&self, chunk: u64, file: BorrowedFd<'_>) -> Result<()> {
        let mut op = self.begin()?;
        op.work()?;
        if self.claim_free(chunk, Kind::Data, 0, CHUNK_BLOCKS)? {
            let block = self.chunk_start(chunk);
            op.record_allocated(block, CHUNK_BLOCKS);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(file, flags, block * BLOCK, CHUNK)?;
            op.free_later(block, CHUNK_BLOCKS);
        }
        op.end()
    }
}
