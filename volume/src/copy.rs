//! `copy_file_range` inside the volume: reads and writes by pieces, each with the guarantees of a
//! write of its own.

use crate::Result;
use crate::file_write::Position;
use crate::volume::Volume;
use pmem::{UserIn, UserOut};
use rustix::io::Errno;
use vfs::Node;

/// Bytes of a piece.
const PIECE: u64 = 256 << 10;

impl Volume {
    /// Copies up to `length` bytes; gives how many, short at the end of `from` or if an error came
    /// after the first piece. `EINVAL` if the ranges overlap in one file.
    pub(crate) fn copy_file(
        &self,
        from: Node,
        from_offset: u64,
        to: Node,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let ends = from_offset.checked_add(length).zip(to_offset.checked_add(length));
        let (from_end, to_end) = ends.ok_or(Errno::OVERFLOW)?;
        if from == to && from_offset < to_end && to_offset < from_end {
            return Err(Errno::INVAL);
        }
        let mut buffer = vec![0; PIECE.min(length) as usize];
        let mut done = 0;
        while done < length {
            let take = (length - done).min(PIECE) as usize;
            let moved = self.copy_piece(
                (from, from_offset + done),
                (to, to_offset + done),
                &mut buffer[..take],
            );
            match moved {
                Ok(0) => break,
                Ok(moved) => done += moved,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn copy_piece(&self, from: (Node, u64), to: (Node, u64), buffer: &mut [u8]) -> Result<u64> {
        let read = self.read_file(from.0, from.1, &mut [UserOut::new(buffer)])?;
        let data = [UserIn::new(&buffer[..read])];
        let (written, _) = self.write_file(to.0, Position::At(to.1), &data)?;
        Ok(written as u64)
    }
}
