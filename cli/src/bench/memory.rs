//! The memory's own limit: the same bytes in the same pattern as a file's, without a file system.

use std::io::{Error, Result};
use std::path::Path;

use pmem::{OpenError, OpenOptions, Region};
use rustix::io::Errno;

use crate::bench::row::{BLOCK_BYTES, Row};
use crate::bench::worker::Measured;

/// A mapped region and a buffer.
pub struct Memory {
    region: Region,
    buffer: Vec<u8>,
}

impl Memory {
    /// Maps the file.
    pub fn open(path: &Path) -> std::result::Result<Self, OpenError> {
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        Ok(Self { region: Region::open(path, &options)?, buffer: vec![0xA5; BLOCK_BYTES] })
    }
}

impl Measured for Memory {
    fn begin(&mut self, _row: Row) -> Result<()> {
        Ok(())
    }

    fn call(&mut self, row: Row, _call: u64, offset: u64) -> Result<()> {
        let done = match row {
            Row::ReadSequential | Row::ReadRandom => self.region.read(offset, &mut self.buffer),
            // PERSIST: a write is done when it is durable; this fence is what is measured.
            _ => self.region.stream(offset, &self.buffer[..row.bytes()]).map(|flying| {
                flying.fence();
            }),
        };
        done.map_err(|fault| Error::from(Errno::from(fault)))
    }

    fn end(&mut self, _row: Row) -> Result<()> {
        Ok(())
    }
}
