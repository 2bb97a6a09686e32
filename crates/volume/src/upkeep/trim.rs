//! Trim: the memory of free chunks goes back to the host.
//!
//! A chunk is taken from the allocator like for a file, its memory is punched out of the region's
//! file, and it is given back: so no operation uses it meanwhile. It is one operation a chunk, so
//! that a death in the middle is swept like any other. Files on tmpfs, hugetlbfs, ext4 and XFS can
//! be punched; devices cannot.

use crate::Result;
use crate::medium::layout::{BLOCK, CHUNK, CHUNK_BLOCKS, HEADER_TRIMS};
use crate::space::chunk::Kind;
use crate::upkeep::Upkeep;
use rustix::io::Errno;

impl Upkeep {
    /// Gives the memory of all free chunks back to the file system that holds the region; gives how
    /// many bytes that file system says it got. `EOPNOTSUPP` where the region cannot be punched.
    pub fn trim(&self) -> Result<u64> {
        if self.region.fd() < 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let held = || self.beneath().map_or(0, |beneath| beneath.allocated);
        let before = held();
        let backed = self.backed();
        let mut broken = 0;
        for chunk in (0..self.chunks()).filter(|&chunk| backed.has(chunk)) {
            match self.chunk_kind(chunk)? {
                Kind::Free => self.trim_chunk(chunk)?,
                _ => broken += 1,
            }
        }
        // Reserved memory lies in chunks that are not counted elsewhere.
        if held() > self.pool() + broken * CHUNK {
            for chunk in (0..self.chunks()).filter(|&chunk| !backed.has(chunk)) {
                self.trim_chunk(chunk)?;
            }
        }
        Ok(before.saturating_sub(held()))
    }

    fn trim_chunk(&self, chunk: u64) -> Result<()> {
        let mut op = self.begin()?;
        op.work()?;
        if self.claim_memory(chunk)? {
            let block = self.chunk_start(chunk);
            op.record_allocated(block, CHUNK_BLOCKS);
            // A process that has made it present must do so again.
            self.rt.add(HEADER_TRIMS, 1)?;
            self.region.punch(block * BLOCK, CHUNK)?;
            op.free_later(block, CHUNK_BLOCKS);
        }
        op.end()
    }
}
