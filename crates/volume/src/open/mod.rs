//! Open files: descriptions, their holders, positions, record locks, the last close.

pub(crate) mod close;
#[cfg(test)]
mod counts_tests;
pub(crate) mod description;
mod execution;
mod holders;
mod inflight;
mod lock_table;
mod position;
mod record_lock;
mod table_usage;

use crate::namespace::Names;
use crate::open::description::{HINTS, Hint};
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32};
use vfs::Beyond;

/// Names, and what is open.
pub struct Opens {
    names: Names,
    /// This process has set record locks of its own, so closing may have to drop some.
    pub(crate) has_locked: AtomicBool,
    /// What is asked about circles of waits that run over other volumes.
    pub(crate) beyond: OnceLock<Beyond>,
    /// How many entries of record locks carry chains.
    chains_of_locks: u64,
    /// Where it looks for a free record lock first.
    next_lock: AtomicU32,
    /// Where it looks for a free description first, by CPU.
    next_description: [Hint; HINTS],
}

impl Deref for Opens {
    type Target = Names;

    #[inline]
    fn deref(&self) -> &Names {
        &self.names
    }
}

impl Opens {
    pub(crate) fn new(names: Names) -> Self {
        let chains_of_locks = lock_table::chains(names.rt.layout.lock_count);
        Self {
            names,
            chains_of_locks,
            has_locked: AtomicBool::default(),
            beyond: OnceLock::new(),
            next_lock: AtomicU32::default(),
            next_description: Default::default(),
        }
    }
}
