//! Files of a store that processes map: how they are opened.

use pmem::{OpenError, OpenOptions, Region};
use std::path::Path;

/// Maps one that is there, to write. It is no medium of its own: what lies on a disk is taken, too.
pub fn open(path: &Path) -> Result<Region, OpenError> {
    Region::open(path, &options())
}

/// Makes one of so many bytes, which only this user can open, or takes the one that is there.
pub fn create(path: &Path, size: u64) -> Result<Region, OpenError> {
    Region::create_with(path, size, 0o600, false, &options())
}

fn options() -> OpenOptions {
    OpenOptions { write: true, allow_page: true, ..OpenOptions::default() }
}
