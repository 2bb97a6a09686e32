//! Recovers a process that died: its operations are undone or completed, its locks and holds are
//! given back.
//!
//! That has two parts. The first runs wherever a death is found, also under the locks of an
//! operation that is still in its locking phase, so it takes no inode lock:
//!
//! 1. the slot's byte is held and its recoverer word names this process (for its threads);
//! 2. the *gate* is closed: no operation passes from locking to working. The dead one's lanes are
//!    undone, the lines of its lone commits flushed, its locks released. If it was working: all
//!    live operations come to rest, and the free map is rebuilt from what can be reached;
//! 3. its record locks and its position locks are dropped; the slot is *dying*, its byte free
//!    again.
//!
//! The second part ([`Recoveries::finish_recoveries`]) holds the byte anew and drops the
//! descriptions that the dead one held, which may free files: it runs where no lock is held, at
//! this process's next call, or in another process that finds the dead one before. Then the slot is
//! free.
//!
//! A process that dies while recovering another is recovered like any; its recoverer finds the
//! first one's slot still to be done, and a begun sweep marked in the runtime's header.
//!
//! Locks: slot byte, then gate. While the gate is held nothing else is waited for, except that
//! working operations end, which wait for nothing.

use crate::Result;
use crate::inject::{Bug, injected};
use crate::inode::Inode;
use crate::medium::layout::{HEADER_GATE, HEADER_SWEEP, LINE, PROCESS_SLOTS};
use crate::medium::{Recover, now};
use crate::process::liveness::lock_slots;
use crate::process::{SLOT_DYING, SLOT_FORK, SLOT_FREE, SLOT_LIVE, SlotState};
use crate::recovery::Recoveries;
use crate::txn::gate;
use crate::txn::record::inode_of_lock;
use crate::watch;
use pmem::FenceBatch;
use robust::owner::{NO_OPERATION, Owner};
use robust::slot::{self, Claim};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a fork slot outlives the parent before it counts as dead: a child that was just forked
/// needs microseconds to take it.
const FORK_SLOT_NS: i64 = 1_000_000_000;
/// How long to sleep while other processes end their calls.
const NAP: Duration = Duration::from_micros(50);
/// How long a parent waits for its child between two looks at whether it has ended.
const CHILD_PATIENCE: Duration = Duration::from_millis(10);
/// How often: two seconds in all.
const CHILD_WAITS: u32 = 200;
/// How long a look waits for the calls that are under way: far longer than any takes.
const QUIET_PATIENCE: Duration = Duration::from_secs(5);
/// Naps between two looks at which processes live.
const NAPS: u32 = 200;

impl Recover for Recoveries {
    fn recover_if_dead(self: Arc<Self>, owner: Owner) -> Result<()> {
        self.recover_owner_if_dead(owner)
    }

    fn process_of(self: Arc<Self>, owner: Owner) -> Option<u32> {
        self.liveness.holder_of(owner.slot()).ok().flatten()
    }

    fn see_recovered(self: Arc<Self>, slot: u32, generation: u32, wholly: bool) -> Result<bool> {
        Self::see_recovered(&self, slot, generation, wholly)
    }

    fn begin_recoveries(self: Arc<Self>) -> Result<()> {
        Self::begin_recoveries(&self)
    }

    fn finish_recoveries(self: Arc<Self>) -> Result<()> {
        Self::finish_recoveries(&self)
    }
}

impl Recoveries {
    // ---- finding the dead -----------------------------------------------------------------------

    /// Recovers the owner's process if it is dead. Afterwards its locks are free.
    pub(crate) fn recover_owner_if_dead(&self, owner: Owner) -> Result<()> {
        let slot = owner.slot();
        if let Some(state) = slot::life(self.process_slots(), owner)?
            && self.is_dead(slot, state)?
        {
            self.recover_slot(slot, state)?;
        }
        self.release_gone(owner)
    }

    /// Recovers a process if it is dead, or waits for its recoverer: until its locks are gone, or
    /// (`wholly`) all that it held. `true`: it is dead. A dead process is not taken for alive
    /// because its recoverer holds the slot's byte. The caller holds no lock.
    pub(crate) fn see_recovered(&self, slot: u32, generation: u32, wholly: bool) -> Result<bool> {
        let (owner, begun) = (Owner::of_process(slot, generation), Instant::now());
        loop {
            let state = self.slot_state(slot)?;
            let other = !owner.is_of(state.generation) || state.state == SLOT_FREE;
            if other || state.state == SLOT_DYING && !wholly {
                return Ok(true);
            }
            if self.is_dead(slot, state)? {
                self.recover_slot(slot, state)?;
                self.finish_recoveries()?;
            } else if !self.is_being_recovered(slot, state)? {
                return Ok(false);
            }
            if self.slot_state(slot)? == state {
                if begun.elapsed() > QUIET_PATIENCE {
                    return Ok(false);
                }
                std::thread::sleep(NAP);
            }
        }
    }

    /// Whether a process whose slot's byte was just found held is dead and being recovered.
    fn is_being_recovered(&self, slot: u32, state: SlotState) -> Result<bool> {
        if self.liveness.is_own(slot) {
            return Ok(false);
        }
        // Or it was recovered between the two looks.
        Ok(slot::recoverer(self.process_slots(), slot)?.is_some()
            || self.liveness.is_being_recovered(slot)?
            || self.slot_state(slot)? != state)
    }

    /// Whether a process has detached in order, or was recovered, though something is in its name.
    fn is_gone(&self, owner: Owner) -> Result<bool> {
        if owner == self.own() {
            return Ok(false);
        }
        slot::is_gone(self.process_slots(), owner)
    }

    /// A process that detached while a thread of it was inside a call (which ended there) leaves no
    /// operation, but perhaps a lock outside of operations, or a closed gate.
    fn release_gone(&self, owner: Owner) -> Result<()> {
        if owner.op() != NO_OPERATION || !self.is_gone(owner)? {
            return Ok(());
        }
        self.free_chain_locks(owner.slot(), owner.generation())?;
        self.drop_position_locks(owner.slot(), owner.generation())?;
        watch::free_lock(self, owner.slot(), owner.generation())?;
        if Owner::of_word(self.rt.load(HEADER_GATE)?, self.epoch) == Some(owner) {
            self.recover_operations(false)?;
        }
        Ok(())
    }

    /// Recovers every dead process, both parts. The caller holds no lock.
    pub(crate) fn recover_the_dead(&self) -> Result<()> {
        self.begin_recoveries()?;
        self.finish_recoveries()
    }

    /// The first part of the recovery of every dead process.
    pub(crate) fn begin_recoveries(&self) -> Result<()> {
        for slot in 0..PROCESS_SLOTS as u32 {
            let state = self.slot_state(slot)?;
            if state.state != SLOT_FREE && self.is_dead(slot, state)? {
                self.recover_slot(slot, state)?;
            }
        }
        Ok(())
    }

    fn is_dead(&self, slot: u32, state: SlotState) -> Result<bool> {
        match state.state {
            SLOT_FORK => self.is_dead_fork_slot(slot),
            _ => slot::is_dead(self.process_slots(), slot, state),
        }
    }

    /// Whether this is a fork slot whose child never came. The parent looks for those itself, so
    /// only a parent that died can leave one behind.
    fn is_dead_fork_slot(&self, slot: u32) -> Result<bool> {
        let Some(parent) = self.slot_parent(slot)? else { return Ok(false) };
        let state = self.slot_state(parent.slot())?;
        let same = state.generation & 0xFFF == parent.generation() && state.state == SLOT_LIVE;
        if same && self.liveness.alive(parent.slot())? {
            return Ok(false);
        }
        Ok(now() - self.slot_since(slot)? as i64 > FORK_SLOT_NS && !self.liveness.alive(slot)?)
    }

    /// Whether an operation's owner is dead. A slot that has a recoverer is dead though its byte is
    /// held.
    fn is_dead_owner(&self, owner: Owner, old_image: bool) -> Result<bool> {
        let slot = owner.slot();
        if slot == self.slot() && owner.generation() == self.slot_generation() & 0xFFF {
            return Ok(old_image);
        }
        let state = self.slot_state(slot)?;
        if !owner.is_of(state.generation) || state.state == SLOT_FREE {
            return Ok(false);
        }
        Ok(slot::recoverer(self.process_slots(), slot)?.is_some() || self.is_dead(slot, state)?)
    }

    /// Ends the attachment as the death of its process does: nothing is given back, and waiting
    /// processes find it dead. For tests in which a thread stands for a process.
    #[doc(hidden)]
    pub fn forsake(&self) -> Result<()> {
        self.standing.detach();
        let slot = self.slot();
        self.set_slot(u32::MAX, 0);
        self.liveness.release(slot)
    }

    // ---- the first part -------------------------------------------------------------------------

    /// The first part of a recovery, unless another process is at it.
    fn recover_slot(&self, slot: u32, state: SlotState) -> Result<()> {
        if !self.claim_recovery(slot, state)? {
            return Ok(());
        }
        self.recover_operations(false)?;
        self.free_chain_locks(slot, state.generation)?;
        self.drop_process_locks(slot, state.generation)?;
        self.drop_position_locks(slot, state.generation)?;
        watch::free_lock(self, slot, state.generation)?;
        self.note_death(slot)?;
        // The next process to find it does the rest: this one may make no other call for long.
        let guard = lock_slots();
        slot::finish_recovery(self.process_slots(), slot, state, SLOT_DYING)?;
        drop(guard);
        self.standing.set_remains(true);
        Ok(())
    }

    /// The opposite of [`Recoveries::claim_recovery`].
    fn give_up_recovery(&self, slot: u32) -> Result<()> {
        let _guard = lock_slots();
        slot::give_up_recovery(self.process_slots(), slot)
    }

    /// Takes a dead slot's byte and names this process its recoverer.
    fn claim_recovery(&self, slot: u32, state: SlotState) -> Result<bool> {
        let guard = lock_slots();
        let claim = slot::claim_recovery(self.process_slots(), slot, state, self.own())?;
        drop(guard);
        if claim == Claim::Thread {
            std::thread::sleep(NAP);
        }
        Ok(claim == Claim::Own)
    }

    /// The second part of all recoveries that this process has begun. The caller holds no lock.
    #[cold]
    pub(crate) fn finish_recoveries(&self) -> Result<()> {
        while self.standing.remains() {
            if self.finishing.swap(true, Ordering::Acquire) {
                // Another thread does this, and looks again at its end.
                return Ok(());
            }
            self.standing.set_remains(false);
            let mut result = Ok(());
            for slot in 0..PROCESS_SLOTS as u32 {
                result = result.and(self.finish_recovery(slot));
            }
            self.finishing.store(false, Ordering::Release);
            result?;
        }
        Ok(())
    }

    fn finish_recovery(&self, slot: u32) -> Result<()> {
        let state = self.slot_state(slot)?;
        if state.state != SLOT_DYING || !self.claim_recovery(slot, state)? {
            return Ok(());
        }
        self.drop_holds_of(slot)?;
        // What it watched costs the others until a later look, if that cannot be done now.
        let _ = watch::drop_holds(self, slot);
        let _guard = lock_slots();
        slot::finish_recovery(self.process_slots(), slot, state, SLOT_FREE)?;
        self.stop_sharing()
    }

    /// After an exec: undoes or finishes what threads of the old image were doing.
    pub(crate) fn recover_own_operations(&self) -> Result<()> {
        let (slot, generation) = (self.slot(), self.slot_generation());
        self.recover_operations(true)?;
        self.free_chain_locks(slot, generation)?;
        self.drop_position_locks(slot, generation)?;
        watch::free_lock(self, slot, generation)?;
        self.finish_opens_and_closes(slot)?;
        self.resume_recoveries()
    }

    /// Recoveries that the old image had begun are given up, and begin again when a process finds
    /// the dead one.
    fn resume_recoveries(&self) -> Result<()> {
        for slot in 0..PROCESS_SLOTS as u32 {
            if slot::recoverer(self.process_slots(), slot)? == Some(self.own()) {
                self.give_up_recovery(slot)?;
                self.standing.set_remains(true);
            }
        }
        Ok(())
    }

    // ---- operations of the dead -----------------------------------------------------------------

    /// Undoes or keeps whole the operations of dead processes (`old_image`: of this one, before its
    /// exec, too), and sweeps if one of them was past its locking phase.
    fn recover_operations(&self, old_image: bool) -> Result<()> {
        let mut any = self.sweep_demanded()?;
        for index in 0..self.rt.layout.op_count as u32 {
            if let Some(owner) = self.operation_owner(index)? {
                any |= self.is_dead_owner(owner, old_image)?;
            }
        }
        let gate = Owner::of_word(self.rt.load(HEADER_GATE)?, self.epoch);
        if let Some(holder) = gate {
            any |= self.is_dead_owner(holder, old_image)? || self.is_gone(holder)?;
        }
        if !any {
            return Ok(());
        }
        loop {
            self.close_gate(old_image)?;
            let done = self.recover_behind_gate(old_image);
            let absent = done.as_ref().err().and_then(|error| self.absent_at(*error));
            match done.map_err(pmem::or_no_memory) {
                // A page is elsewhere, or what the dead one was bringing.
                _ if absent.is_some() => {}
                // For lack of memory: it is still due, and nothing is damaged.
                Ok(()) | Err(Errno::NOSPC) => {}
                Err(_) => self.mark_damaged()?,
            }
            self.open_gate()?;
            match absent {
                Some(page) => self.bring(page)?,
                None => return Ok(()),
            }
        }
    }

    /// Closes the gate for this process; takes it over from a dead recoverer.
    fn close_gate(&self, old_image: bool) -> Result<()> {
        gate::close(self.rt.word(HEADER_GATE), self.epoch, self.own(), |holder, first| {
            // At a second look this process's name there may be another thread's of this image.
            Ok(self.is_dead_owner(holder, old_image && first)? || self.is_gone(holder)?)
        })
    }

    fn open_gate(&self) -> Result<()> {
        Ok(gate::open(self.rt.word(HEADER_GATE), self.epoch, self.own())?)
    }

    fn recover_behind_gate(&self, old_image: bool) -> Result<()> {
        for index in 0..self.rt.layout.op_count as u32 {
            if let Some(owner) = self.operation_owner(index)?
                && self.is_dead_owner(owner, old_image)?
            {
                self.recover_operation(owner)?;
            }
        }
        if !self.sweep_demanded()? {
            return Ok(());
        }
        self.wait_for_quiet(None)?;
        self.sweep_behind_gate()
    }

    /// Frees what nothing reaches. The gate is closed, and no operation works.
    fn sweep_behind_gate(&self) -> Result<()> {
        self.refresh_size()?;
        // PERSIST: redo records of what is freed here are not voided one by one, so all are void
        // before the blocks get other owners. No operation works: what they list is in its place.
        self.void_redos()?;
        let open = self.nameless_roots()?;
        // An operation that waits at the gate has looked at its inodes, and will go on with them.
        let mut roots = open.clone();
        roots.extend(self.inodes_of_operations()?);
        let rebuilt = self.rebuild(&roots)?;
        // Inodes that were kept only for that are freed by another sweep.
        if rebuilt.nameless.iter().all(|inode| open.contains(inode)) {
            self.rt.store(HEADER_SWEEP, 0)?;
        }
        Ok(())
    }

    /// Undoes a dead operation's transaction, makes durable what it may have committed, and frees
    /// what it holds.
    fn recover_operation(&self, owner: Owner) -> Result<()> {
        let index = owner.op();
        let remains = self.operation_remains(index)?;
        if remains.working {
            // Before the record goes: if this process dies too, the sweep is still due.
            self.demand_sweep()?;
        }
        let inodes = remains.locks.iter().filter_map(|&lock| inode_of_lock(lock));
        let inodes: Vec<_> = inodes.collect();
        // Inodes that are only announced may be another operation's, and changing.
        let mut held = inodes.clone();
        held.retain(|inode| self.owns_lock(owner, *inode));
        held.iter().try_for_each(|&inode| self.forget_commit(inode))?;
        self.redo_of_dead(u64::from(index), &held)?;
        let mut pending = FenceBatch::default();
        pending.add(self.undo_lane(u64::from(index))?.1);
        for &line in remains.lines_to_flush.iter().filter(|_| !injected(Bug::DeadNotFlushed)) {
            pending.add(self.region.flush(line, LINE));
        }
        for inode in inodes {
            pending.add(self.flush_tail(inode)?);
        }
        // PERSIST: survivors will build on what the dead one committed, so it is durable before its
        // locks are free.
        let _ = pending.fence();
        self.release_remains(owner, &remains)
    }

    /// Waits until no operation is working; those that wait at the gate do not count. `ETIMEDOUT`
    /// if one still is after `patience`.
    fn wait_for_quiet(&self, patience: Option<Duration>) -> Result<()> {
        let begun = Instant::now();
        for index in 0..self.rt.layout.op_count as u32 {
            let mut naps = 0;
            while let Some(owner) = self.working_operation(index)? {
                naps += 1;
                std::thread::sleep(NAP);
                if naps % NAPS == 0 && self.is_dead_owner(owner, false)? {
                    self.recover_operation(owner)?;
                }
                if patience.is_some_and(|patience| begun.elapsed() > patience) {
                    return Err(Errno::TIMEDOUT);
                }
            }
        }
        Ok(())
    }

    /// Whether this process has closed the gate.
    pub(crate) fn holds_gate(&self) -> Result<bool> {
        Ok(Owner::of_word(self.rt.load(HEADER_GATE)?, self.epoch) == Some(self.own()))
    }

    /// Runs `look` while no operation of any process is under way: nothing changes meanwhile. It is
    /// told the open inodes without a name; it must not take locks, whose holders may wait for its
    /// end. `ETIMEDOUT` if a process does not end its call in time: it may have been stopped there.
    pub(crate) fn in_quiet<T>(&self, look: impl FnOnce(&[Inode]) -> Result<T>) -> Result<T> {
        self.close_gate(false)?;
        let result = self.wait_for_quiet(Some(QUIET_PATIENCE)).and_then(|()| {
            if self.sweep_demanded()? && !self.damaged()? {
                // Of an operation just recovered, or of what a reader closed as the last one. The
                // look reports what prevents it.
                let _ = self.sweep_behind_gate();
            }
            let roots = self.nameless_roots()?;
            self.refresh_size()?;
            look(&roots)
        });
        self.open_gate()?;
        result
    }

    // ---- fork -----------------------------------------------------------------------------------

    /// Waits until all children that this process has forked have taken their slots, or have ended
    /// without: before it detaches, for it would be the last one though a child is about to come,
    /// and before another program takes its place, which knows of none. Not in the fork itself: the
    /// C library's locks are held there, and a child may have to wait for a processor.
    pub(crate) fn wait_for_children(&self) -> Result<()> {
        self.see_children(CHILD_WAITS)
    }

    /// Takes back the slots of children that have ended without taking them.
    pub(crate) fn look_for_children(&self) -> Result<()> {
        self.see_children(0)
    }

    fn see_children(&self, waits: u32) -> Result<()> {
        if !self.expects.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        for slot in 0..PROCESS_SLOTS as u32 {
            let state = self.slot_state(slot)?;
            if state.state != SLOT_FORK || self.slot_parent(slot)? != Some(self.own()) {
                continue;
            }
            // 0: another thread is about to fork.
            let child = self.slot_pid(slot)?;
            if child != 0 && self.is_to_come(slot, state, child, waits)? {
                self.expects.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Whether a child has neither taken its slot nor ended, so many waits long.
    fn is_to_come(&self, slot: u32, prepared: SlotState, child: u32, waits: u32) -> Result<bool> {
        let options = rustix::process::WaitIdOptions::EXITED
            | rustix::process::WaitIdOptions::NOHANG
            | rustix::process::WaitIdOptions::NOWAIT;
        let pid = rustix::process::Pid::from_raw(child as i32).ok_or(Errno::INVAL)?;
        for wait in 0..=waits {
            let patience = if wait == 0 { Duration::ZERO } else { CHILD_PATIENCE };
            if !self.wait_for_slot(slot, prepared, patience)? {
                return Ok(false);
            }
            let child = rustix::process::WaitId::Pid(pid);
            let ended = match rustix::process::waitid(child, options) {
                Ok(status) => status.is_some(),
                // Not one that this process can wait for: a cloned one, one of its parent's, or one
                // that it has waited for.
                Err(_) => rustix::process::test_kill_process(pid) == Err(Errno::SRCH),
            };
            if ended {
                self.drop_fork_slot(slot, prepared)?;
                return Ok(false);
            }
        }
        // Stopped by a debugger, perhaps. It will come, or be found when this process ends.
        Ok(true)
    }

    /// The child will not come: takes its holds back.
    pub(crate) fn drop_fork_slot(&self, slot: u32, prepared: SlotState) -> Result<()> {
        self.recover_slot(slot, prepared)?;
        self.finish_recoveries()
    }
}
