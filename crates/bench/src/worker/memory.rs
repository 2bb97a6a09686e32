//! The memory's own limit: the same bytes in the same pattern as a file's, without a file system.

use std::io::{Error, Result};
use std::path::Path;

use pmem::{Fault, OpenError, OpenOptions, Region, UserOut};
use rustix::io::Errno;

use crate::worker::Measured;
use crate::worker::row::{LONGEST_BYTES, Row};

/// A mapped region and a buffer.
pub struct Memory {
    region: Region,
    buffer: Vec<u8>,
}

impl Memory {
    /// Maps the file.
    pub fn open(path: &Path) -> std::result::Result<Self, OpenError> {
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        Ok(Self { region: Region::open(path, &options)?, buffer: vec![0xA5; LONGEST_BYTES] })
    }

    /// Bytes and, for an append, the line that says so: each durable before the next.
    fn write(&mut self, row: Row, offset: u64) -> std::result::Result<(), Fault> {
        // PERSIST: a write is done when it is durable; these fences are what is measured.
        self.region.stream(offset, &self.buffer[..row.bytes()])?.fence();
        if row.appends() {
            self.region.write_line(0, &[0x5A; 64])?.fence();
        }
        Ok(())
    }
}

impl Measured for Memory {
    fn begin(&mut self, _row: Row) -> Result<()> {
        Ok(())
    }

    fn call(&mut self, row: Row, _call: u64, offset: u64) -> Result<()> {
        let done = match row {
            Row::ReadSequential | Row::ReadRandom | Row::Read64K | Row::Read2M => {
                let sink = UserOut::new(&mut self.buffer);
                self.region.read_to(offset, &sink, row.bytes())
            }
            _ => self.write(row, offset),
        };
        done.map_err(|fault| Error::from(Errno::from(fault)))
    }

    fn end(&mut self, _row: Row) -> Result<()> {
        Ok(())
    }
}
