//! Space: chunks and their blocks, which blocks a request gets, the index over them, what a CPU
//! keeps, the memory beneath, and which memory is near.

pub(crate) mod alloc;
#[cfg(test)]
mod alloc_tests;
pub(crate) mod backing_store;
mod block_reserve;
pub(crate) mod chunk;
pub(crate) mod free_map;
pub(crate) mod fullness;
pub(crate) mod numa;
mod owners;
pub(crate) mod paging;
pub(crate) mod upkeep_hints;

use crate::process::Processes;
use crate::space::numa::NumaState;
use crate::space::upkeep_hints::Due;
use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The processes, and the space of the pool.
pub struct Space {
    processes: Processes,
    /// Chunks + 1 that this process has made present in its address space lately.
    populated: [AtomicU64; 32],
    /// The header's count of trims when those were noted.
    trims: AtomicU64,
    /// A private view, which only its own few stores change.
    pub(crate) looks_only: AtomicBool,
    /// The chunks whose records such a view has written.
    written: Mutex<Vec<u64>>,
    /// Upkeep that its calls have found due.
    pub(crate) due: Due,
    /// Data blocks that this process has freed.
    pub(crate) freed_blocks: AtomicU64,
    /// Its home among the machine's nodes.
    numa: NumaState,
}

impl Deref for Space {
    type Target = Processes;

    #[inline]
    fn deref(&self) -> &Processes {
        &self.processes
    }
}

impl Space {
    pub(crate) fn new(processes: Processes) -> Self {
        Self {
            processes,
            populated: Default::default(),
            trims: AtomicU64::new(0),
            looks_only: AtomicBool::new(false),
            written: Mutex::default(),
            due: Due::default(),
            freed_blocks: AtomicU64::new(0),
            numa: NumaState::default(),
        }
    }
}
