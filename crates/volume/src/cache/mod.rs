//! What this process remembers: names and attributes, paths, runs of blocks. Nothing is ever
//! invalidated: each entry carries the sequence numbers under which it is right (`names.rs`).

pub(crate) mod extents;
pub(crate) mod fsync_predictor;
mod names;
pub(crate) mod path;
mod place;
pub(crate) mod prefix;

use crate::txn::Operations;
use std::ops::Deref;

pub(crate) use names::{
    Asked, Entry, Instance, Looked, PACKED, Padded, Table, Target, mix, packed, unpack,
};
pub(crate) use place::EntryPlace;

/// The operations, and what this process remembers.
pub struct Caches {
    operations: Operations,
    /// The name of this attachment among the process's.
    instance: Instance,
}

impl Deref for Caches {
    type Target = Operations;

    #[inline]
    fn deref(&self) -> &Operations {
        &self.operations
    }
}

impl Caches {
    pub(crate) fn new(operations: Operations) -> Self {
        Self { operations, instance: Instance::default() }
    }
}
