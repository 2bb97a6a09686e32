//! The file or device of a region: which it is, its descriptor, and its path.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use rustix::io::{DupFlags, Errno};

use crate::region::Region;
use os::{InternalFd, put_at};

impl Region {
    /// The descriptor of the file or device; -1 if there is none.
    pub fn fd(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Device and inode number of the file or device, whatever its path leads to by now; zeros if
    /// there is none.
    pub fn file(&self) -> (u64, u64) {
        self.file
    }

    /// Goes on under another number of its descriptor; the old one stays open for the caller.
    pub fn vacate_fd(&self) -> Result<(), Errno> {
        self.fd.as_ref().map_or(Err(Errno::BADF), InternalFd::vacate)?;
        self.list_anew();
        Ok(())
    }

    /// Goes on by another open description, under the same number where the limit of numbers
    /// allows it.
    pub fn replace_fd(&self, new: OwnedFd) -> Result<(), Errno> {
        let fd = self.fd.as_ref().ok_or(Errno::BADF)?;
        let number = fd.as_raw_fd();
        if put_at(&new, number, DupFlags::CLOEXEC).is_ok() {
            return Ok(());
        }
        fd.replace(InternalFd::new(new));
        // SAFETY: this region's own until now.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
        self.list_anew();
        Ok(())
    }

    /// The path it was opened by.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}
