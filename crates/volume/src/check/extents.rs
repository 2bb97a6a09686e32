//! Tells where the bytes of files lie, and what each chunk holds: for people and measuring tools.
//!
//! Nothing here changes anything; every answer is a snapshot that may be old when it is read. Files
//! are read as always, under their sequence number; chunk records are hints.

use crate::Result;
use crate::check::Checks;
use crate::data::file::expect_file;
use crate::data::map::{Map, MapItem};
use crate::inode::Inode;
use crate::medium::layout::{BLOCK, CHUNK_BLOCKS, Identity};
use crate::space::chunk::{Kind, count_free};
use rustix::io::Errno;
use vfs::Node;

/// Consecutive bytes of a file that lie together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Where they begin in the file: bytes, a multiple of 4096.
    pub file_offset: u64,
    /// Where they begin in the region.
    pub region_offset: u64,
    /// How many: bytes, a multiple of 4096.
    pub length: u64,
    /// Whether they were written; if not, they read as zeros.
    pub written: bool,
}

/// What a chunk of 2 MiB is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChunkUse {
    /// Nothing.
    Free,
    /// Contents of files, in so many of its 512 blocks.
    Data(u64),
    /// Inodes, directories, map nodes, in so many of its 512 blocks.
    Metadata(u64),
}

impl ChunkUse {
    /// Bytes in use.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Data(blocks) | Self::Metadata(blocks) => blocks * BLOCK,
        }
    }
}

impl Checks {
    /// Where the bytes of a regular file lie, in the order of the file; holes have no entry, and
    /// blocks beyond the end count. `EISDIR`, `EINVAL` (not a regular file), `ESTALE`, `EIO`.
    pub fn extents(&self, node: Node) -> Result<Vec<Extent>> {
        self.read_steadily(node, |inode, identity| {
            expect_file(identity)?;
            self.extents_of(inode, identity)
        })
    }

    fn extents_of(&self, inode: Inode, identity: &Identity) -> Result<Vec<Extent>> {
        let mut extents: Vec<Extent> = Vec::new();
        Map::new(self, inode, identity).walk(&mut |item| match item {
            MapItem::Data { block, blocks, logical, unwritten } => {
                extents.push(Extent {
                    file_offset: logical * BLOCK,
                    region_offset: block * BLOCK,
                    length: blocks * BLOCK,
                    written: !unwritten,
                });
                Ok(())
            }
            MapItem::Damaged { .. } => Err(Errno::IO),
            MapItem::Node { .. } | MapItem::Xattr { .. } => Ok(()),
        })?;
        extents.sort_unstable_by_key(|extent| extent.file_offset);
        extents.dedup_by(|next, last| {
            let joined = last.file_offset + last.length == next.file_offset
                && last.region_offset + last.length == next.region_offset
                && last.written == next.written;
            last.length += if joined { next.length } else { 0 };
            joined
        });
        Ok(extents)
    }

    /// What each chunk of the pool is used for, in the order of the region.
    pub fn chunk_uses(&self) -> Result<Vec<ChunkUse>> {
        let backed = self.backed();
        let one = |chunk| {
            if !backed.has(chunk) {
                return Ok(ChunkUse::Free);
            }
            let used = CHUNK_BLOCKS - count_free(&self.bitmap(chunk)?);
            Ok(match self.chunk_kind(chunk)? {
                _ if used == 0 => ChunkUse::Free,
                Kind::Metadata => ChunkUse::Metadata(used),
                _ => ChunkUse::Data(used),
            })
        };
        (0..self.chunks()).map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;
    use crate::medium::layout::CHUNK;
    use crate::testing::volume;
    use vfs::{FileSystem, IoOffset, Kind, NewNode, OpenFlags};

    #[test]
    fn extents_tell_every_allocated_byte_once() {
        let volume = volume(Mode::Strict, 16);
        let new = NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, rdev: 0, target: b"" };
        let node = volume.create(volume.root(), b"f", &new).unwrap();
        let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None).unwrap();
        assert_eq!(volume.extents(node).unwrap(), []);
        volume.write(desc, &[vfs::UserIn::new(&[7; 5000])], IoOffset::offset(8 << 12)).unwrap();
        volume.allocate(desc, 0, 2 * CHUNK, 2 * CHUNK).unwrap();
        volume.allocate(desc, libc::FALLOC_FL_KEEP_SIZE as u32, 9 << 20, 4096).unwrap();
        let extents = volume.extents(node).unwrap();
        let places: Vec<_> = extents.iter().map(|e| (e.file_offset, e.length, e.written)).collect();
        let kept = (9 << 20, 4096, false);
        assert_eq!(places[0], (8 << 12, 2 << 12, true));
        assert_eq!(*places.last().unwrap(), kept);
        assert_eq!(places.iter().map(|place| place.1).sum::<u64>(), (3 << 12) + 2 * CHUNK);
        let aligned = |e: &&Extent| (e.file_offset | e.region_offset).is_multiple_of(CHUNK);
        let huge: u64 = extents.iter().filter(aligned).map(|e| e.length / CHUNK).sum();
        assert_eq!(huge, 2);
        let attr = volume.attributes(node).unwrap();
        assert_eq!(attr.blocks * 512, extents.iter().map(|e| e.length).sum::<u64>());
        let used: u64 = volume
            .chunk_uses()
            .unwrap()
            .iter()
            .map(|used| if let ChunkUse::Data(_) = used { used.bytes() } else { 0 })
            .sum();
        assert_eq!(used, attr.blocks * 512);
    }
}
