//! Working alone: calls of a process with one thread, while no other process has a slot.
//!
//! Locks, records, counts and bitmaps are words that change by locked instructions, each of which waits
//! until the stores before it have reached the memory: some 100 ns behind a streamed block. Where nobody
//! else can be they exclude nobody. There a call does the same, word for word and in the same order, by
//! plain instructions ([`pmem::Region::set_alone`]). So a death leaves what it leaves otherwise, and
//! whoever recovers it needs to know nothing.
//!
//! *Between a call and a newcomer* (asymmetric Dekker). A call stores [`WORKING`] in its process's slot,
//! then loads [`HEADER_COMPANY`]; if that is set it takes its word back and works as ever. A newcomer
//! takes a slot, sets that word, has the kernel put a barrier between the instructions of every process
//! that works alone (`membarrier`; each of these has registered for it), then waits until no slot says
//! [`WORKING`], or its process is dead. So either the newcomer sees the call, or the call the newcomer. A
//! call that ends stores [`IDLE`] behind all it has stored: what it streamed it has fenced. Until then a
//! newcomer changes words of process slots and this header word only, and those by
//! [`crate::runtime::Runtime::contended_cas`].
//!
//! *Who may.* A process that has said how many threads it has ([`Volume::may_work_alone`]) and has
//! registered. Its slot says so ([`IDLE`]), by a locked instruction behind the registration: a newcomer
//! that does not read it there has set the header word before, which that process's calls then see. A
//! newcomer to whom the kernel refuses the barrier (it is in a sandbox) sleeps a second instead, if any
//! slot says so: no store stays in a CPU that long.
//!
//! *Fork.* The parent makes the slot in use the second one, between its calls; nobody else works alone
//! meanwhile, so it sets the word and waits for nobody.
//!
//! *Alone again.* Who has freed a slot and finds one in use at most takes the word back, by a
//! compare-and-swap with what it was before that look: who comes takes his slot before he sets the word,
//! and each time makes it another one. A process that leaves while threads of it may still be inside
//! calls does not look. A stale 1 only costs time.
//!
//! *Threads.* A process has one thread when a call begins, and no call makes any but for a sweep, which
//! first stays idle. A wait for another program (a record lock's) is idle too.

use crate::Result;
use crate::layout::{HEADER_COMPANY, PROCESS_SLOT, PROCESS_SLOTS};
use crate::process::{ALONE, SLOT_FREE, SLOT_LIVE};
use crate::runtime::Runtime;
use crate::volume::Volume;
use pmem::Kept;
use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// Slot word: calls of the process may work alone; none does.
const IDLE: u64 = 1;
/// Slot word: a call of it works alone, or is about to find out whether it may.
const WORKING: u64 = 2;

/// Header bit: more than one slot may be in use.
const COMPANY: u64 = 1;
/// Header unit: how often that began.
const BEGUN: u64 = 2;

/// Between two looks at a call that works alone.
const NAP: Duration = Duration::from_micros(20);
/// Instead of a barrier.
const LONG: Duration = Duration::from_secs(1);

/// Words of all process slots.
const SLOTS: usize = (PROCESS_SLOTS * PROCESS_SLOT / 8) as usize;

/// What each call that changes something looks at.
pub(crate) struct Words {
    header: Kept<8>,
    slots: Kept<SLOTS>,
}

impl Words {
    /// `None`: the region has lost its end.
    pub(crate) fn new(rt: &Runtime) -> Option<Self> {
        let (map, base) = rt.place();
        let header = Kept::new(map, base).ok()?;
        Some(Self { header, slots: Kept::new(map, base + rt.layout.processes).ok()? })
    }

    #[inline]
    fn say(&self, slot: u32, word: u64) -> bool {
        let at = (u64::from(slot) * PROCESS_SLOT + ALONE) / 8;
        self.slots.span().store(at as usize, word).is_ok()
    }

    #[inline]
    fn has_company(&self) -> bool {
        let company = self.header.span().load(HEADER_COMPANY as usize / 8);
        company.map_or(true, |company| company & COMPANY != 0)
    }
}

/// While it lives, this process works alone, if it may.
#[must_use]
pub(crate) struct Alone<'v>(Option<(&'v Words, u32)>);

impl Drop for Alone<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((words, slot)) = self.0 {
            words.slots.region().set_alone(false);
            // If the runtime has vanished, every other call fails too.
            let _ = words.say(slot, IDLE);
        }
    }
}

/// While it lives, this process does not work alone; what it does so is under way.
#[must_use]
pub(crate) struct Idle<'v>(Option<&'v Volume>);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        if let Some(volume) = self.0 {
            // Ends with what it goes on with.
            std::mem::forget(volume.alone());
        }
    }
}

impl Volume {
    /// From now on this process works alone while nobody else is attached. `single` is not 0 only while the
    /// process has one thread; it changes between calls only. Where the kernel has no barrier this
    /// changes nothing.
    pub fn may_work_alone(&self, single: &'static AtomicU8) {
        self.local.single.store(std::ptr::from_ref(single).cast_mut(), Ordering::Relaxed);
        if self.begin_idle().is_err() {
            self.local.single.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
    }

    /// Says in this process's new slot whether it may work alone.
    pub(crate) fn begin_idle(&self) -> Result<()> {
        let at = self.alone_word();
        self.rt.store(at, 0)?;
        // With more threads registering takes long, and would be in vain.
        if self.is_single() && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok() {
            self.rt.contended_cas(at, 0, IDLE)?.map_err(|_| rustix::io::Errno::AGAIN)?;
        } else {
            self.local.single.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether this process has one thread, as far as it has said.
    #[inline]
    pub(crate) fn is_single(&self) -> bool {
        let single = self.local.single.load(Ordering::Relaxed);
        // SAFETY: what `may_work_alone` was given lives for ever.
        unsafe { single.as_ref() }.is_some_and(|single| single.load(Ordering::Relaxed) != 0)
    }

    fn alone_word(&self) -> u64 {
        self.rt.process(self.slot()) + ALONE
    }

    /// Begins to work alone, until what it gives is dropped; or not, where others may be.
    #[inline]
    pub(crate) fn alone(&self) -> Alone<'_> {
        if !self.is_single() {
            return Alone(None);
        }
        let Some(words) = &self.words else { return Alone(None) };
        let (map, slot) = (words.slots.region(), self.slot());
        // Or inside a call that does, or detached.
        if map.is_alone() || u64::from(slot) >= PROCESS_SLOTS || !words.say(slot, WORKING) {
            return Alone(None);
        }
        // Between that store and this load stands a newcomer's barrier.
        if words.has_company() {
            let _ = words.say(slot, IDLE);
            return Alone(None);
        }
        map.set_alone(true);
        Alone(Some((words, slot)))
    }

    /// Whether the call under way works alone: for tests.
    #[doc(hidden)]
    pub fn works_alone(&self) -> bool {
        self.volatile_map().is_alone()
    }

    /// Lets others in, in the middle of a call, until what it gives is dropped.
    pub(crate) fn stay_idle(&self) -> Idle<'_> {
        match &self.words {
            Some(words) if self.works_alone() => {
                drop(Alone(Some((words, self.slot()))));
                Idle(Some(self))
            }
            _ => Idle(None),
        }
    }

    /// Works no longer alone in this call, which is about to make threads.
    pub(crate) fn bring_helpers(&self) {
        self.volatile_map().set_alone(false);
    }

    /// A slot is taken besides this process's: nobody begins to work alone from here on.
    pub(crate) fn have_company(&self) -> Result<()> {
        let mut found = self.rt.load(HEADER_COMPANY)?;
        while let Err(other) =
            self.rt.contended_cas(HEADER_COMPANY, found, found.wrapping_add(BEGUN) | COMPANY)?
        {
            found = other;
        }
        Ok(())
    }

    /// This process has taken a slot, beside whoever is there: waits until nobody works alone.
    pub(crate) fn join_others(&self) -> Result<()> {
        if self.is_alone()? {
            return self.leave_company();
        }
        self.have_company()?;
        let barrier = membarrier(MembarrierCommand::GlobalExpedited).is_ok();
        let mut slept = false;
        for slot in 0..PROCESS_SLOTS as u32 {
            while slot != self.slot() && self.slot_state(slot)?.state == SLOT_LIVE {
                let word = self.rt.load(self.rt.process(slot) + ALONE)?;
                if word != 0 && !barrier && !slept {
                    std::thread::sleep(LONG);
                    slept = true;
                    continue;
                }
                if word != WORKING || !self.liveness.alive(slot)? {
                    break;
                }
                std::thread::sleep(NAP);
            }
        }
        Ok(())
    }

    /// Slots have become free: if one is in use at most, its process works alone from here on.
    pub(crate) fn leave_company(&self) -> Result<()> {
        let found = self.rt.load(HEADER_COMPANY)?;
        if found & COMPANY == 0 {
            return Ok(());
        }
        let mut used = 0;
        for slot in 0..PROCESS_SLOTS as u32 {
            used += u32::from(self.slot_state(slot)?.state != SLOT_FREE);
        }
        if used <= 1 {
            // If it is another one by now, somebody has come.
            let _ = self.rt.contended_cas(HEADER_COMPANY, found, found & !COMPANY)?;
        }
        Ok(())
    }
}
