//! Process slots: who is attached.
//!
//! | word | what | written by |
//! |---|---|---|
//! | state | epoch, generation, `SLOT_*` | see below, by compare-and-swap |
//! | pid | the process's number, below the generation that it is of | the process, or its parent |
//! | since, mode | of the process, for people | the process, or its parent |
//! | home | its memory node (`numa.rs`) | the process |
//! | parent | slot owner that prepared a fork slot | the parent |
//! | recoverer | slot owner that recovers it | the recoverer |
//! | exclusive | whether it is in a call that runs exclusively (`exclusive.rs`) | the process |
//! | begun | what its counters said when it was taken (`counts.rs`) | as pid |
//! | deaths; pid, finder, time of the last one | of its processes (`counts.rs`) | recoverers |
//!
//! free -> live (its process, holding the byte) -> free, generation + 1 (its process, or the
//! recoverer that holds the byte). free -> fork slot (the parent, before fork) -> live (the child)
//! or dying. live -> dying (its recoverer) -> free.

pub(crate) mod carriers;
pub(crate) mod counts;
pub(crate) mod exclusive;
pub(crate) mod liveness;
mod service_state;

use crate::medium::layout::{HEADER_SHARED, PROCESS_SLOT, PROCESS_SLOTS};
use crate::medium::{Medium, now};
use crate::process::exclusive::Words;
use crate::process::liveness::{Liveness, lock_slots, own_pid};
use crate::process::service_state::Standing;
use crate::{Mode, Result};
use robust::owner::Owner;
use robust::slot::{self, Slots};
pub(crate) use robust::slot::{
    DYING as SLOT_DYING, FREE as SLOT_FREE, LIVE as SLOT_LIVE, SlotState,
};
use robust::word::{ContendedWord, Word};
use rustix::io::Errno;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

const STATE: u64 = 0;
const PID: u64 = 8;
const SINCE: u64 = 16;
const MODE: u64 = 24;
const PARENT: u64 = 32;
/// Slot word: who recovers it.
const RECOVERER: u64 = 40;
/// Slot word: the process's home + 1 (`numa.rs`).
pub(crate) const HOME: u64 = 48;
/// Slot word, in a line of its own: `exclusive.rs`.
pub(crate) const EXCLUSIVE: u64 = 64;
/// Slot words of `counts.rs`.
const BEGUN: u64 = 128;
const DEATHS: u64 = BEGUN + 64;
const _: () = assert!(DEATHS + 32 <= PROCESS_SLOT);

/// Prepared by a parent for a child that has not come yet: it has no byte.
pub(crate) const SLOT_FORK: u64 = 2;

/// The ground, and this process's place among those that have the volume attached.
pub struct Processes {
    ground: Medium,
    pub(crate) liveness: Liveness,
    /// What `exclusive.rs` looks at.
    words: Option<Words>,
    /// This process's slot; changes in a forked child.
    slot: AtomicU32,
    slot_generation: AtomicU32,
    /// The process whose attachment this is: a child that was forked behind our back has none.
    process: AtomicU32,
    /// Whether calls are served at once.
    pub(crate) standing: Standing,
    /// The thread that attaches or detaches it, which works although it is not attached.
    leaving: AtomicU32,
    /// A thread of it is dropping the holds of processes it has recovered.
    pub(crate) finishing: AtomicBool,
    /// A child that this process has forked may not have taken its slot yet.
    pub(crate) expects: AtomicBool,
    /// Not 0 only while the process has one thread, if it may work alone; else null.
    single: AtomicPtr<AtomicU8>,
}

impl Deref for Processes {
    type Target = Medium;

    #[inline]
    fn deref(&self) -> &Medium {
        &self.ground
    }
}

/// A process that is attached, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attached {
    /// Process id as it sees itself; another in another container.
    pub pid: u32,
    /// Its slot.
    pub slot: u32,
    /// When it attached, ns since 1970.
    pub since: u64,
}

/// The words of the slots, and their bytes.
impl Slots for Processes {
    type Fault = pmem::Fault;
    type Error = Errno;
    type Word<'s> = ContendedWord<'s>;

    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn state(&self, slot: u32) -> ContendedWord<'_> {
        self.rt.contended(self.rt.process(slot) + STATE)
    }

    fn recoverer(&self, slot: u32) -> ContendedWord<'_> {
        self.rt.contended(self.rt.process(slot) + RECOVERER)
    }

    fn hold(&self, slot: u32) -> Result<bool> {
        self.liveness.hold(slot)
    }

    fn release(&self, slot: u32) -> Result<()> {
        self.liveness.release(slot)
    }

    fn is_held(&self, slot: u32) -> Result<bool> {
        self.liveness.alive(slot)
    }

    fn is_own(&self, slot: u32) -> bool {
        self.liveness.is_own(slot)
    }

    fn begin_recovery(&self, slot: u32) -> Result<bool> {
        self.liveness.begin_recovery(slot)
    }

    fn end_recovery(&self, slot: u32) -> Result<()> {
        self.liveness.end_recovery(slot)
    }
}

/// What a slot's word of the process says: in its lower half the number, above the generation.
fn pid_word(generation: u32, pid: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(pid)
}

fn own_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

impl Processes {
    /// This process's slot is still to be taken.
    pub(crate) fn new(ground: Medium, liveness: Liveness) -> Self {
        Self {
            words: Words::new(&ground.rt),
            ground,
            liveness,
            slot: AtomicU32::new(u32::MAX),
            slot_generation: AtomicU32::new(0),
            process: AtomicU32::new(0),
            standing: Standing::default(),
            leaving: AtomicU32::new(0),
            finishing: AtomicBool::new(false),
            expects: AtomicBool::new(false),
            single: AtomicPtr::default(),
        }
    }

    /// This process's slot.
    pub(crate) fn slot(&self) -> u32 {
        self.slot.load(Ordering::Relaxed)
    }

    /// The slot's generation.
    pub(crate) fn slot_generation(&self) -> u32 {
        self.slot_generation.load(Ordering::Relaxed)
    }

    /// A forked child has its own slot.
    pub(crate) fn set_slot(&self, slot: u32, generation: u32) {
        self.count_in(slot);
        self.slot.store(slot, Ordering::Relaxed);
        self.slot_generation.store(generation, Ordering::Relaxed);
    }

    /// From now on calls are served.
    pub(crate) fn set_attached(&self) {
        self.process.store(own_pid(), Ordering::Relaxed);
        self.standing.attach();
    }

    /// Whether the calling thread is the one that attaches or detaches this process.
    #[cold]
    pub(crate) fn is_leaving_thread(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) == own_thread()
    }

    /// From now on the calling thread may work although the process is not, or no longer, attached.
    pub(crate) fn set_leaving(&self) {
        self.leaving.store(own_thread(), Ordering::Relaxed);
    }

    /// Whether the attachment (or what there is of it) is this process's to give up.
    pub(crate) fn is_own_process(&self) -> bool {
        let process = self.process.load(Ordering::Relaxed);
        process == 0 || process == own_pid()
    }

    /// This process as an owner outside operations.
    #[inline]
    pub(crate) fn own(&self) -> Owner {
        Owner::of_process(self.slot(), self.slot_generation())
    }

    /// The slots, for what is the same wherever processes have slots.
    pub(crate) fn process_slots(&self) -> &Self {
        self
    }

    pub(crate) fn slot_state(&self, slot: u32) -> Result<SlotState> {
        slot::look(self, slot)
    }

    /// Moves a slot from one state to another; `false` if it was in a third.
    pub(crate) fn turn_slot(&self, slot: u32, from: SlotState, to: SlotState) -> Result<bool> {
        slot::turn(self, slot, from, to)
    }

    /// Takes a free slot for this process, with its byte. `EUSERS` if all are in use.
    pub(crate) fn take_process_slot(&self) -> Result<(u32, u32)> {
        let _guard = lock_slots();
        let taken = slot::take(self, 0..PROCESS_SLOTS as u32)?.ok_or(Errno::USERS)?;
        self.describe_slot(taken.0, taken.1, own_pid(), None)?;
        Ok(taken)
    }

    /// Whether a slot is free.
    pub(crate) fn has_free_slot(&self) -> Result<bool> {
        for slot in 0..PROCESS_SLOTS as u32 {
            if self.slot_state(slot)?.state == SLOT_FREE {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether all slots but this process's are free.
    pub(crate) fn is_alone(&self) -> Result<bool> {
        for slot in 0..PROCESS_SLOTS as u32 {
            if slot != self.slot() && self.slot_state(slot)?.state != SLOT_FREE {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// From now on others may change the volume in this epoch.
    pub(crate) fn share_epoch(&self) -> Result<()> {
        if self.rt.load(HEADER_SHARED)? != u64::from(self.epoch) {
            self.rt.store(HEADER_SHARED, u64::from(self.epoch))?;
        }
        Ok(())
    }

    /// Takes a free slot for a child to come. `EUSERS`.
    pub(crate) fn take_fork_slot(&self) -> Result<(u32, u32)> {
        self.share_epoch()?;
        let _guard = lock_slots();
        let parent = Some(self.own());
        let describe = |slot, generation| self.describe_slot(slot, generation, 0, parent);
        let slots = 0..PROCESS_SLOTS as u32;
        let taken = slot::prepare(self, slots, SLOT_FORK, describe)?.ok_or(Errno::USERS)?;
        self.become_shared()?;
        Ok(taken)
    }

    fn describe_slot(
        &self,
        slot: u32,
        generation: u32,
        pid: u32,
        parent: Option<Owner>,
    ) -> Result<()> {
        let at = self.rt.process(slot);
        self.rt.store(at + PID, pid_word(generation, pid))?;
        self.rt.store(at + SINCE, now() as u64)?;
        self.rt.store(at + MODE, self.mode as u64 | u64::from(self.is_read_only()) << 8)?;
        self.rt.store(at + HOME, 0)?;
        self.begin_counting(slot)?;
        Ok(self.rt.store(at + PARENT, parent.map_or(0, |owner| owner.word(self.epoch)))?)
    }

    /// Sleeps until the slot is in another state; `false` if it is.
    pub(crate) fn wait_for_slot(
        &self,
        slot: u32,
        from: SlotState,
        patience: Duration,
    ) -> Result<bool> {
        if self.slot_state(slot)? == from {
            let low = from.word(self.epoch) as u32;
            self.rt.wait(self.rt.process(slot) + STATE, low, patience);
        }
        Ok(self.slot_state(slot)? == from)
    }

    /// Wakes who waits for the slot.
    pub(crate) fn wake_slot(&self, slot: u32) {
        self.rt.wake(self.rt.process(slot) + STATE);
    }

    /// Says of a child for which a slot was prepared which process it is, as its parent sees it.
    /// Nothing happens if the child has said so, or has gone: the slot may be another process's by
    /// now, or another child's.
    pub(crate) fn name_child(&self, slot: u32, generation: u32, pid: u32) -> Result<()> {
        let word = self.rt.contended(self.rt.process(slot) + PID);
        let _ = word.cas(pid_word(generation, 0), pid_word(generation, pid))?;
        Ok(())
    }

    /// This process says which one it is, in a slot that was prepared for it; nothing happens if
    /// that is another's by now.
    pub(crate) fn name_self(&self, slot: u32, generation: u32) -> Result<()> {
        let word = self.rt.contended(self.rt.process(slot) + PID);
        let named = pid_word(generation, own_pid());
        let mut found = word.load()?;
        while found >> 32 == named >> 32
            && let Err(now) = word.cas(found, named)?
        {
            found = now;
        }
        Ok(())
    }

    /// The process of a slot, as it sees itself; 0: a child's that has not been named.
    pub(crate) fn slot_pid(&self, slot: u32) -> Result<u32> {
        Ok(self.rt.load(self.rt.process(slot) + PID)? as u32)
    }

    /// The parent of a fork slot.
    pub(crate) fn slot_parent(&self, slot: u32) -> Result<Option<Owner>> {
        Ok(Owner::of_word(self.rt.load(self.rt.process(slot) + PARENT)?, self.epoch))
    }

    /// The mode of a slot's process, and whether it only reads.
    pub(crate) fn slot_mode(&self, slot: u32) -> Result<(Mode, bool)> {
        let word = self.rt.load(self.rt.process(slot) + MODE)?;
        let modes = [Mode::Posix, Mode::Sync, Mode::Strict];
        let mode = modes.into_iter().find(|&mode| mode as u64 == word & 0xFF);
        Ok((mode.unwrap_or_default(), word >> 8 & 1 != 0))
    }

    /// When the slot was taken, ns since 1970.
    pub(crate) fn slot_since(&self, slot: u32) -> Result<u64> {
        Ok(self.rt.load(self.rt.process(slot) + SINCE)?)
    }

    /// Frees a slot whose byte this process holds, or a fork slot.
    pub(crate) fn free_slot(&self, slot: u32, from: SlotState) -> Result<bool> {
        self.turn_slot(slot, from, SlotState { state: SLOT_FREE, ..from })
    }

    /// Everybody who is attached now.
    pub(crate) fn attached(&self) -> Result<Vec<Attached>> {
        self.attached_by(&self.liveness)
    }

    /// As [`Processes::attached`], asked of a volume that this process only looks at.
    pub(crate) fn attached_by(&self, liveness: &Liveness) -> Result<Vec<Attached>> {
        let mut found = Vec::new();
        for slot in 0..PROCESS_SLOTS as u32 {
            if self.slot_state(slot)?.state == SLOT_LIVE && liveness.alive(slot)? {
                let since = self.slot_since(slot)?;
                found.push(Attached { pid: self.slot_pid(slot)?, slot, since });
            }
        }
        Ok(found)
    }
}
