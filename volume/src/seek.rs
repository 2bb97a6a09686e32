//! `SEEK_DATA` and `SEEK_HOLE`: where a file's written blocks are. Unwritten ones count as holes,
//! and the end of the file is one. Without a lock, as reads; nothing is stored.

use crate::Result;
use crate::file::expect_file;
use crate::layout::BLOCK;
use crate::map::Map;
use crate::volume::Volume;
use rustix::io::Errno;
use vfs::Node;

impl Volume {
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
