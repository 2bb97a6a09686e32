//! Exclusive running: calls of a process with one thread, while no other process has a slot.
//!
//! Locks, records, counts and bitmaps are words that change by locked instructions, each of which
//! waits until the stores before it have reached the memory: some 100 ns behind a streamed block.
//! Where nobody else can be they exclude nobody. There a call does the same, word for word and in
//! the same order, by plain instructions ([`pmem::Region::set_alone`]). So a death leaves what it
//! leaves otherwise, and whoever recovers it needs to know nothing.
//!
//! *Between a call and a newcomer* (asymmetric Dekker). A call stores [`WORKING`] in its process's
//! slot, then loads [`HEADER_SHARED_RUNNING`]; if that is set it takes its word back and works as
//! ever. A newcomer takes a slot, sets that word, has the kernel put a barrier between the
//! instructions of every process that works alone (`membarrier`; each has registered for it), then
//! waits until no slot says [`WORKING`], or its process is dead. So either the newcomer sees the
//! call, or the call the newcomer. A call that ends stores [`IDLE`] behind all it has stored: what
//! it streamed it has fenced. Until then a newcomer changes words of process slots and of the
//! header only: slots' states and [`HEADER_SHARED_RUNNING`] by
//! [`crate::medium::runtime::Runtime::contended_cas`], the rest of its own slot and that the epoch
//! is shared by plain stores, which is harmless, as no call that works alone changes those words.
//!
//! *Who may.* A process that has said how many threads it has
//! ([`Processes::may_run_exclusively`]) and has registered. Its slot says so ([`IDLE`]), by a
//! locked instruction behind the registration: a newcomer that does not read it there has set the
//! header word before, which that process's calls then see. A newcomer to whom the kernel refuses
//! the barrier (it is in a sandbox) sleeps a second instead, if any slot says so: no store stays in
//! a CPU that long.
//!
//! *Fork.* The parent makes the slot in use the second one, between its calls; nobody else works
//! alone meanwhile, so it sets the word and waits for nobody.
//!
//! *Alone again.* Who has freed a slot and finds one in use at most takes the word back, by a
//! compare-and-swap with what it was before that look: who comes takes his slot before he sets the
//! word, and each time makes it another one. A process that leaves while threads of it may still be
//! inside calls does not look (`Volume::leave_as`). So who stays looks too, once a second at
//! most, while it makes calls: if it is the only one in two looks, between which nobody came, it
//! takes the word back. Those threads are through by then. A stale 1 only costs time.
//!
//! *Threads.* A process has one thread when a call begins. A call that makes more (a mark with
//! helpers; a sweep has none) works by locked instructions from there on, while its slot still says
//! [`WORKING`]: newcomers wait for its end. In a wait for another program (a record lock's) the
//! slot says [`IDLE`].

use crate::Result;
use crate::medium::layout::{
    HEADER_SHARED_RUNNING, HEADER_SIZE, PROCESS_SLOT, PROCESS_SLOTS, SIZE_WATCHED,
};
use crate::medium::runtime::Runtime;
use crate::process::Processes;
use crate::process::{EXCLUSIVE, SLOT_FREE, SLOT_LIVE};
use pmem::OwnedSpan;
use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Slot word: calls of the process may work alone; none does.
const IDLE: u64 = 1;
/// Slot word: a call of it works alone, or is about to find out whether it may.
const WORKING: u64 = 2;

/// Header bit: more than one slot may be in use.
const SHARED: u64 = 1;
/// Header unit: how often that began.
const BEGUN: u64 = 2;

/// Between two looks at a call that works alone.
const NAP: Duration = Duration::from_micros(20);
/// Instead of a barrier.
const LONG: Duration = Duration::from_secs(1);
/// Between two looks at whether others are there still, at least.
const LOOK: Duration = Duration::from_secs(1);
/// So many calls among others ask for the time once.
const CALLS: u32 = 1024;

/// Words of all process slots.
const SLOTS: usize = (PROCESS_SLOTS * PROCESS_SLOT / 8) as usize;

/// What each call that changes something looks at.
pub(crate) struct Words {
    header: OwnedSpan<8>,
    slots: OwnedSpan<SLOTS>,
    /// Calls that ran shared.
    calls: AtomicU32,
    /// When this process looked last, ns of the monotonic clock.
    looked: AtomicU64,
    /// What the header's word was then, if nobody else had a slot; else 0.
    found: AtomicU64,
}

impl Words {
    /// `None`: the region has lost its end.
    pub(crate) fn new(rt: &Runtime) -> Option<Self> {
        let (map, base) = rt.place();
        let header = OwnedSpan::new(map, base).ok()?;
        Some(Self {
            header,
            slots: OwnedSpan::new(map, base + rt.layout.processes).ok()?,
            calls: AtomicU32::new(0),
            looked: AtomicU64::new(0),
            found: AtomicU64::new(0),
        })
    }

    /// Whether the slot says [`WORKING`].
    fn says_working(&self, slot: u32) -> bool {
        let at = (u64::from(slot) * PROCESS_SLOT + EXCLUSIVE) / 8;
        u64::from(slot) < PROCESS_SLOTS && self.slots.span().load(at as usize) == Ok(WORKING)
    }

    /// Counts a call that ran shared; now and then it is time for a look.
    #[inline]
    fn is_time_to_look(&self) -> bool {
        // Only calls of a process with one thread come here.
        let calls = self.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        calls.is_multiple_of(CALLS)
    }

    #[expect(clippy::inline_always, reason = "one store, in each call that changes something")]
    #[inline(always)]
    fn say(&self, slot: u32, word: u64) -> bool {
        let at = (u64::from(slot) * PROCESS_SLOT + EXCLUSIVE) / 8;
        self.slots.span().store(at as usize, word).is_ok()
    }

    #[inline]
    fn is_shared(&self) -> bool {
        let shared = self.header.span().load(HEADER_SHARED_RUNNING as usize / 8);
        shared.map_or(true, |shared| shared & SHARED != 0)
    }
}

/// While it lives, this process works alone, if it may.
#[must_use]
pub(crate) struct Exclusive<'v>(Option<(&'v Words, u32)>);

impl Drop for Exclusive<'_> {
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
pub(crate) struct Idle<'v>(Option<&'v Processes>);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        if let Some(processes) = self.0 {
            // Ends with what it goes on with.
            std::mem::forget(processes.exclusive());
        }
    }
}

impl Processes {
    /// From now on this process works alone while nobody else is attached. `single` is not 0 only
    /// while the process has one thread; it changes between calls only. Where the kernel has no
    /// barrier this changes nothing.
    pub fn may_run_exclusively(&self, single: &'static AtomicU8) {
        self.single.store(std::ptr::from_ref(single).cast_mut(), Ordering::Relaxed);
        if self.begin_idle().is_err() {
            self.single.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
    }

    /// Says in this process's new slot whether it may work alone.
    pub(crate) fn begin_idle(&self) -> Result<()> {
        let at = self.exclusive_word();
        self.rt.store(at, 0)?;
        // With more threads registering takes long, and would be in vain.
        if self.is_single() && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok() {
            self.rt.contended_cas(at, 0, IDLE)?.map_err(|_| rustix::io::Errno::AGAIN)?;
        } else {
            self.single.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether the header says that the volume has so many bytes, as every call asks.
    #[inline]
    pub(crate) fn has_size(&self, size: u64) -> bool {
        self.rt.header::<HEADER_SIZE>() == Ok(size)
    }

    /// Whether the header says that something is watched.
    #[inline]
    pub(crate) fn has_watches(&self) -> bool {
        self.rt.header::<HEADER_SIZE>().is_ok_and(|word| word & SIZE_WATCHED != 0)
    }

    /// Whether this process has one thread, as far as it has said.
    #[inline]
    pub(crate) fn is_single(&self) -> bool {
        let single = self.single.load(Ordering::Relaxed);
        // SAFETY: what `may_run_exclusively` was given lives for ever.
        unsafe { single.as_ref() }.is_some_and(|single| single.load(Ordering::Relaxed) != 0)
    }

    fn exclusive_word(&self) -> u64 {
        self.rt.process(self.slot()) + EXCLUSIVE
    }

    /// Begins to work alone, until what it gives is dropped; or not, where others may be.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "the shortest calls begin with it")]
    pub(crate) fn exclusive(&self) -> Exclusive<'_> {
        if !self.is_single() {
            return Exclusive(None);
        }
        let Some(words) = &self.words else { return Exclusive(None) };
        let (map, slot) = (words.slots.region(), self.slot());
        // Or inside a call that does, or detached.
        if map.is_alone() || u64::from(slot) >= PROCESS_SLOTS || !words.say(slot, WORKING) {
            return Exclusive(None);
        }
        // Between that store and this load stands a newcomer's barrier.
        if words.is_shared() {
            self.work_among_others(words);
            return Exclusive(None);
        }
        map.set_alone(true);
        Exclusive(Some((words, slot)))
    }

    /// This call does not work alone.
    fn work_among_others(&self, words: &Words) {
        // If the runtime has vanished, every other call fails too.
        let _ = words.say(self.slot(), IDLE);
        if words.is_time_to_look() {
            let _ = self.look_around(words);
        }
    }

    /// Takes the header's word back if nobody else is there, as at the look before, a second ago or
    /// more.
    #[cold]
    fn look_around(&self, words: &Words) -> Result<()> {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
        let now = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
        if now.wrapping_sub(words.looked.load(Ordering::Relaxed)) < LOOK.as_nanos() as u64 {
            return Ok(());
        }
        words.looked.store(now, Ordering::Relaxed);
        let found = self.rt.load(HEADER_SHARED_RUNNING)?;
        if found & SHARED == 0 || !self.is_alone()? {
            words.found.store(0, Ordering::Relaxed);
        } else if words.found.swap(found, Ordering::Relaxed) == found {
            // Nobody came in between, who would have made the word another one.
            return self.stop_sharing_if(found);
        }
        Ok(())
    }

    /// Whether the call under way works alone: for tests.
    #[doc(hidden)]
    pub fn runs_exclusively(&self) -> bool {
        self.volatile_map().is_alone()
    }

    /// How often others came, so that nobody worked alone, and whether they are there: for tests.
    #[doc(hidden)]
    pub fn times_shared(&self) -> Result<(u64, bool)> {
        let word = self.rt.load(HEADER_SHARED_RUNNING)?;
        Ok((word / BEGUN, word & SHARED != 0))
    }

    /// Lets others in, in the middle of a call, until what it gives is dropped.
    pub(crate) fn stay_idle(&self) -> Idle<'_> {
        match &self.words {
            // Also where it has brought helpers and works alone no longer.
            Some(words) if words.says_working(self.slot()) => {
                drop(Exclusive(Some((words, self.slot()))));
                Idle(Some(self))
            }
            _ => Idle(None),
        }
    }

    /// Works no longer alone in this call, which is about to make threads. Newcomers still wait for
    /// it.
    pub(crate) fn bring_helpers(&self) {
        self.volatile_map().set_alone(false);
    }

    /// A slot is taken besides this process's: nobody begins to work alone from here on.
    pub(crate) fn become_shared(&self) -> Result<()> {
        let mut found = self.rt.load(HEADER_SHARED_RUNNING)?;
        while let Err(other) = self.rt.contended_cas(
            HEADER_SHARED_RUNNING,
            found,
            found.wrapping_add(BEGUN) | SHARED,
        )? {
            found = other;
        }
        Ok(())
    }

    /// This process has taken a slot, beside whoever is there: waits until nobody works alone.
    pub(crate) fn join_others(&self) -> Result<()> {
        if self.is_alone()? {
            return self.stop_sharing();
        }
        self.become_shared()?;
        let barrier = membarrier(MembarrierCommand::GlobalExpedited).is_ok();
        let mut slept = false;
        for slot in 0..PROCESS_SLOTS as u32 {
            while slot != self.slot() && self.slot_state(slot)?.state == SLOT_LIVE {
                let word = self.rt.load(self.rt.process(slot) + EXCLUSIVE)?;
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
    pub(crate) fn stop_sharing(&self) -> Result<()> {
        let found = self.rt.load(HEADER_SHARED_RUNNING)?;
        if found & SHARED == 0 {
            return Ok(());
        }
        self.stop_sharing_if(found)
    }

    /// The same, if the header's word still is what was found in it.
    fn stop_sharing_if(&self, found: u64) -> Result<()> {
        let mut used = 0;
        for slot in 0..PROCESS_SLOTS as u32 {
            used += u32::from(self.slot_state(slot)?.state != SLOT_FREE);
        }
        if used <= 1 {
            // If it is another one by now, somebody has come.
            let _ = self.rt.contended_cas(HEADER_SHARED_RUNNING, found, found & !SHARED)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::format::FormatOptions;
    use crate::attach::format::format;
    use crate::attach::{AttachOptions, attach};
    use crate::volume::Volume;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::Instant;
    use vfs::Attached;

    /// As if glibc said it.
    static ONE: AtomicU8 = AtomicU8::new(1);

    /// A volume of a test's own, removed afterwards.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let base = std::env::var_os("SOLERA_TEST_DIR").map_or("/dev/shm".into(), PathBuf::from);
            let place = Self(base.join(format!("solera-alone-{}-{name}", std::process::id())));
            let options = FormatOptions { size: Some(64 << 20), ..FormatOptions::default() };
            format(&place.0, &options).unwrap();
            place
        }

        fn attach(&self) -> Arc<Volume> {
            attach(&self.0, &AttachOptions::default()).unwrap()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let mut anchor = self.0.clone().into_os_string();
            anchor.push(".solera");
            // What is not there need not go.
            let _ = std::fs::remove_file(&self.0);
            let _ = std::fs::remove_dir_all(anchor);
        }
    }

    fn is_shared(volume: &Volume) -> bool {
        volume.rt.load(HEADER_SHARED_RUNNING).unwrap() & SHARED != 0
    }

    fn runs_exclusively(volume: &Volume) -> bool {
        let _exclusive = volume.exclusive();
        volume.runs_exclusively()
    }

    /// One that may work alone, and one that has come beside it.
    fn two(place: &Place) -> (Arc<Volume>, Arc<Volume>) {
        let stays = place.attach();
        stays.may_run_exclusively(&ONE);
        assert!(runs_exclusively(&stays));
        let comes = place.attach();
        assert!(is_shared(&stays) && !runs_exclusively(&stays));
        (stays, comes)
    }

    #[test]
    fn who_leaves_quietly_leaves_the_other_alone() {
        let place = Place::new("quietly");
        let (stays, comes) = two(&place);
        comes.leave().unwrap();
        assert!(!is_shared(&stays) && runs_exclusively(&stays));
    }

    #[test]
    fn who_stays_finds_out_that_the_other_has_left() {
        let place = Place::new("finds-out");
        let (stays, comes) = two(&place);
        let left = Instant::now();
        // It has not said how many threads it has: one may still be inside a call.
        comes.detach().unwrap();
        assert!(is_shared(&stays));
        while !runs_exclusively(&stays) {
            assert!(left.elapsed() < Duration::from_mins(1));
            std::thread::sleep(Duration::from_micros(10));
        }
        assert!(!is_shared(&stays) && left.elapsed() >= LOOK);
        // Who comes then is seen as ever.
        let comes = place.attach();
        assert!(is_shared(&stays) && !runs_exclusively(&stays));
        drop(comes);
    }

    #[test]
    fn who_stays_does_not_run_exclusively_beside_those_who_are_there() {
        let place = Place::new("still-there");
        let (stays, comes) = two(&place);
        let looks = stays.words.as_ref().unwrap();
        for _ in 0..2 {
            looks.looked.store(0, Ordering::Relaxed);
            stays.look_around(looks).unwrap();
        }
        comes.detach().unwrap();
        looks.looked.store(0, Ordering::Relaxed);
        stays.look_around(looks).unwrap();
        // Another one comes and goes between two looks: the second is the first again.
        place.attach().detach().unwrap();
        looks.looked.store(0, Ordering::Relaxed);
        stays.look_around(looks).unwrap();
        assert!(is_shared(&stays));
        looks.looked.store(0, Ordering::Relaxed);
        stays.look_around(looks).unwrap();
        assert!(!is_shared(&stays));
    }

    #[test]
    fn a_wait_lets_others_in_also_where_helpers_were_brought() {
        let place = Place::new("helpers");
        let volume = place.attach();
        volume.may_run_exclusively(&ONE);
        let word = || volume.rt.load(volume.exclusive_word()).unwrap();
        let call = volume.exclusive();
        volume.bring_helpers();
        assert_eq!(word(), WORKING);
        let waits = volume.stay_idle();
        assert_eq!(word(), IDLE);
        drop(waits);
        drop(call);
        assert_eq!(word(), IDLE);
    }
}
