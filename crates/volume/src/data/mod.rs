//! The bytes of files: their map, reads, writes, sizes, holes, relinks, mappings.

mod atomic_change;
pub(crate) mod bytes;
pub(crate) mod edit;
pub(crate) mod fallocate;
pub(crate) mod file;
pub(crate) mod file_read;
pub(crate) mod general_write;
pub(crate) mod map;
pub(crate) mod mapping;
mod paging;
pub(crate) mod plan;
mod relink;
mod replacement;
mod torn_append;
mod truncate;
pub(crate) mod write;

#[cfg(test)]
mod tests;

use crate::cache::Caches;
use std::ops::Deref;

/// What this process remembers, and the contents of files.
pub struct Files {
    caches: Caches,
}

impl Deref for Files {
    type Target = Caches;

    #[inline]
    fn deref(&self) -> &Caches {
        &self.caches
    }
}

impl Files {
    pub(crate) fn new(caches: Caches) -> Self {
        Self { caches }
    }
}
