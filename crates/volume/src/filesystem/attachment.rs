//! What a process holds of a volume when it forks, executes, hands descriptions over and ends.

use crate::Result;
use crate::process::{SLOT_FORK, SLOT_LIVE, SlotState};
use crate::volume::Volume;
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use vfs::{Attached, Desc, ForkTicket, Kind, Node};

fn slot_of_ticket(ticket: ForkTicket) -> (u32, SlotState) {
    let generation = (ticket.word() >> 32) as u32;
    (ticket.word() as u32, SlotState { state: SLOT_FORK, generation })
}

impl Attached for Volume {
    fn hand_over(&self, desc: Desc) -> Result<(u64, Kind)> {
        self.call()?.hand_over_description(desc)
    }

    fn adopt(&self, name: u64) -> Result<Desc> {
        self.call()?.adopt_name(name)
    }

    fn execute(&self, before: Option<Node>, now: Option<Node>) -> Result<()> {
        self.call()?.set_executed(before, now)
    }

    fn host_execution(&self, node: Node, begins: bool) -> Result<()> {
        self.call()?.host_executed(node, begins)
    }

    fn fork_prepare(&self, held: &[Desc]) -> Result<ForkTicket> {
        self.call()?;
        if self.anchor().is_none() {
            return Err(Errno::OPNOTSUPP);
        }
        self.look_for_children()?;
        let (slot, generation) = match self.take_fork_slot() {
            // A shell whose commands get killed never attaches anew: none has recovered them.
            Err(Errno::USERS) => {
                self.recover_the_dead()?;
                self.take_fork_slot()?
            }
            taken => taken?,
        };
        for &desc in held {
            if let Err(errno) = self.share_description(desc, slot) {
                self.drop_fork_slot(slot, SlotState { state: SLOT_FORK, generation })?;
                return Err(errno);
            }
        }
        // A child without its parent's watches changes nothing of what its parent is told.
        self.share_watches(slot);
        self.local.openings.hold();
        Ok(ForkTicket::new(u64::from(generation) << 32 | u64::from(slot)))
    }

    fn fork_parent(&self, ticket: ForkTicket, child: Option<u32>) {
        let (slot, prepared) = slot_of_ticket(ticket);
        self.local.openings.let_go();
        // If the runtime has vanished, every other call fails too.
        let _ = match child {
            Some(pid) => {
                self.expects.store(true, Ordering::Relaxed);
                self.name_child(slot, prepared.generation, pid)
            }
            None => self.drop_fork_slot(slot, prepared),
        };
    }

    fn fork_child(&self, ticket: ForkTicket) -> Result<()> {
        let (slot, prepared) = slot_of_ticket(ticket);
        self.region.born()?;
        self.forget_parent();
        while !self.liveness.hold(slot)? {
            // A recoverer looks at it; it will find that the slot is not dead.
            std::hint::spin_loop();
        }
        self.name_self(slot, prepared.generation)?;
        self.separate_region();
        let live = SlotState { state: SLOT_LIVE, ..prepared };
        if !self.turn_slot(slot, prepared, live)? {
            self.liveness.release(slot)?;
            return Err(Errno::STALE);
        }
        self.wake_slot(slot);
        self.set_slot(slot, prepared.generation);
        self.begin_idle()?;
        self.note_home()?;
        self.set_attached();
        Ok(())
    }

    fn may_fork_apart(&self) -> bool {
        // A child without its parent's watches changes nothing of what its parent is told.
        let watches = self.has_watches() || !self.local.openings.is_empty();
        // Where none is free, the dead may have them: this process recovers those.
        let is_free = self.has_free_slot().unwrap_or(false);
        let is_plain = !self.is_reader() && self.anchor().is_some();
        is_plain && !watches && is_free && self.may_reopen_region()
    }

    fn fork_apart(&self) {
        self.forget_parent();
        self.leave_parents_region();
        // Else it goes on sharing its parent's description.
        let _ = self.region.give_up();
    }

    fn home(&self) -> Option<u32> {
        self.numa_use().home
    }

    fn fork_unprepared(&self, held: &mut Vec<Desc>) -> Result<()> {
        self.region.take_back()?;
        self.region.born()?;
        self.forget_parent();
        self.rejoin()?;
        held.retain(|&desc| self.share_description(desc, self.slot()).is_ok());
        Ok(())
    }

    fn exec_prepare(&self) -> Result<String> {
        self.call()?;
        self.wait_for_children()?;
        self.prepare_exec()
    }

    fn exec_failed(&self) {
        self.undo_exec();
    }

    fn detach(&self) -> Result<()> {
        // Another thread may be inside a call, and go on with it for a moment.
        self.leave_as(self.is_single())
    }
}
