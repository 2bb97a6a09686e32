//! Tells what each process does with a volume: what it has called and what it holds, and which ones
//! were found dead.
//!
//! A look at what goes on: no lock is taken, nothing is stored, and the numbers are of slightly
//! different moments.

use crate::check::Checks;
use crate::medium::layout::PROCESS_SLOTS;
use crate::process::counts::Counts;
use crate::process::liveness::Liveness;
use crate::process::{Attached, SLOT_DYING, SLOT_LIVE};
use crate::{Mode, Result};
use robust::slot;

/// A process that has a slot of a volume.
#[derive(Clone, Copy, Debug)]
pub struct ProcessUse {
    /// Which, and since when.
    pub attached: Attached,
    /// Whether it lives.
    pub life: Life,
    /// What its writes promise.
    pub mode: Mode,
    /// It changes nothing.
    pub read_only: bool,
    /// What it has called since it attached; `None`: the volume has no counters.
    pub counts: Option<Counts>,
    /// Calls under way that change something.
    pub calls: u64,
    /// Locks of inodes and of the volume that these calls hold.
    pub locks_held: u64,
    /// Such locks for which they wait.
    pub locks_awaited: u64,
    /// Open file descriptions that it holds.
    pub open_files: u64,
    /// Record locks and `flock` locks that it holds.
    pub file_locks: u64,
    /// Record locks and `flock` locks of others for which it waits.
    pub file_locks_awaited: u64,
}

/// Whether a process that has a slot lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// It does, as far as that can be asked.
    Lives,
    /// It is dead, and nobody has found it yet.
    Dead,
    /// It is dead, and is recovered, by this process if it has said so.
    Recovered(Option<u32>),
}

impl Checks {
    /// The processes that have slots, in their order.
    pub(crate) fn processes(&self, liveness: &Liveness) -> Result<Vec<ProcessUse>> {
        let uses = self.uses()?;
        let mut operations = vec![(0, 0, 0); PROCESS_SLOTS as usize];
        for at in 0..self.rt.layout.op_count as u32 {
            if let Some((owner, held, awaited)) = self.operation_locks(at)? {
                let of = &mut operations[owner.slot() as usize % PROCESS_SLOTS as usize];
                *of = (of.0 + 1, of.1 + held, of.2 + awaited);
            }
        }
        let mut found = Vec::new();
        for (slot, uses) in (0..PROCESS_SLOTS as u32).zip(uses) {
            let Some(life) = self.life_of(slot, liveness)? else { continue };
            let (calls, locks_held, locks_awaited) = operations[slot as usize];
            let (mode, read_only) = self.slot_mode(slot)?;
            found.push(ProcessUse {
                attached: Attached {
                    pid: self.slot_pid(slot)?,
                    slot,
                    since: self.slot_since(slot)?,
                },
                life,
                mode,
                read_only,
                counts: self.counts_of(slot)?,
                calls,
                locks_held,
                locks_awaited,
                open_files: uses.open_files,
                file_locks: uses.file_locks,
                file_locks_awaited: uses.file_locks_awaited,
            });
        }
        Ok(found)
    }

    /// `None`: no process has the slot.
    fn life_of(&self, slot: u32, liveness: &Liveness) -> Result<Option<Life>> {
        let by = slot::recoverer(self.process_slots(), slot)?;
        let by = by.map(|owner| self.slot_pid(owner.slot())).transpose()?;
        Ok(match self.slot_state(slot)?.state {
            SLOT_DYING => Some(Life::Recovered(by)),
            SLOT_LIVE if by.is_some() => Some(Life::Recovered(by)),
            SLOT_LIVE if liveness.alive(slot)? => Some(Life::Lives),
            SLOT_LIVE => Some(Life::Dead),
            _ => None,
        })
    }
}
