//! The directory of a volume: where the bytes of each page are. A word of 8 bytes a page, in a
//! sparse file on the volume's host (`docs/format.md`, "ddmap").
//!
//! A word is written by the process whose claim stands in the page's word of the node table, and
//! is durable, as the store is, when [`Directory::set`] returns.

use crate::protocol::{DamagedPlace, Location, PAGE};
use crate::shared_memory::files;
use pmem::{OpenError, Region};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// The directory of a volume.
pub struct Directory(Region);

impl Directory {
    /// The name of the file in a volume's folder.
    pub const NAME: &str = "directory";

    /// The directory of a volume of which nothing was ever touched.
    pub fn create(path: &Path, pages: u64) -> Result<Self, OpenError> {
        files::create(path, pages * 8).map(Self)
    }

    /// A volume's.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        files::open(path).map(Self)
    }

    /// Where a page's bytes are.
    pub fn get(&self, page: u64) -> Result<Location, DamagedPlace> {
        // A word on a page that vanished says nothing that can be trusted.
        let word = self.0.load64(page * 8).map_err(|_| DamagedPlace(u64::MAX))?;
        Location::of_word(word, page)
    }

    /// Whether the file has memory for the word of a page.
    pub fn has_memory(&self, page: u64) -> bool {
        let at = page * 8;
        // SAFETY: the region's own descriptor, open as long as it.
        let fd = unsafe { BorrowedFd::borrow_raw(self.0.fd()) };
        rustix::fs::seek(fd, SeekFrom::Data(at)).is_ok_and(|data| data < at + PAGE)
    }

    /// They are there from now on.
    pub fn set(&self, page: u64, place: Location) -> Result<(), Errno> {
        // PERSIST: what tells others of the move does so behind this fence.
        let _ = self.0.store64(page * 8, place.word(page))?.flush().fence();
        Ok(())
    }
}
