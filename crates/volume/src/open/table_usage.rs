//! What each process uses of the tables, for people: it changes while it is counted.
//!
//! Locks: none.

use crate::Result;
use crate::inode::references::Phase;
use crate::medium::layout::PROCESS_SLOTS;
use crate::open::Opens;
use crate::open::lock_table::Who;

/// What the process of a slot uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Uses {
    /// Open file descriptions that it holds.
    pub(crate) open_files: u64,
    /// Record locks and `flock` locks.
    pub(crate) file_locks: u64,
    /// Record locks and `flock` locks of others for which it waits.
    pub(crate) file_locks_awaited: u64,
}

impl Opens {
    /// Of each slot.
    pub(crate) fn uses(&self) -> Result<Vec<Uses>> {
        let mut uses = vec![Uses::default(); PROCESS_SLOTS as usize];
        for index in 0..self.descriptions_used()? {
            if self.desc_state(index)?.phase != Phase::Open {
                continue;
            }
            for slot in self.holders(index)? {
                uses[slot as usize].open_files += 1;
            }
        }
        self.each_lock(|who| {
            match who {
                Who::Process { slot, .. } | Who::Guest { slot, .. } => {
                    uses[slot as usize % PROCESS_SLOTS as usize].file_locks += 1;
                }
                Who::Description(desc) | Who::Flock(desc) => {
                    for slot in self.holders(desc.index())? {
                        uses[slot as usize].file_locks += 1;
                    }
                }
            }
            Ok(())
        })?;
        self.each_wait(|slot, _, _| {
            uses[slot as usize % PROCESS_SLOTS as usize].file_locks_awaited += 1;
            Ok(())
        })?;
        Ok(uses)
    }
}
