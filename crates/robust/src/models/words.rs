//! Words of a model checker, and processes that die.
//!
//! `loom` runs all orders in which the threads of a model may make their accesses (with at most two
//! switches that nothing forces: [`SWITCHES`]), and lets loads see every value that C11 allows. So
//! it finds what a store buffer does, which a checker of mere orders (`shuttle`) cannot. A locked
//! instruction is a read-modify-write between full fences.
//!
//! A thread is a process. A death is that no access counts from here on: at some access, in turn at
//! each, the kernel gives back what the process holds there, and that access and all later ones
//! fail. A wait ends as if its time were up: a lost wake costs 20 ms, and is not looked for.
//!
//! Other crates' models take this file, too.

use loom::sync::atomic::{AtomicU64, Ordering, fence};
use robust::word::Word;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The epoch of all words.
pub(crate) const EPOCH: u32 = 7;
/// Switches between threads, in one run, that nothing forces.
const SWITCHES: usize = 2;
/// No death.
const NEVER: u32 = u32::MAX;

/// No access counts any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Dead;

/// How long a process lives.
pub(crate) struct Life {
    /// Accesses until its death.
    left: Cell<u32>,
    /// Whether the next wait lets others go on.
    waits: Cell<bool>,
    /// Whether it died in a run.
    died: Arc<AtomicBool>,
}

impl Life {
    pub(crate) fn new(death: &Death) -> Self {
        let died = Arc::clone(&death.died);
        Self { left: Cell::new(death.at), waits: Cell::new(false), died }
    }

    /// An access, or the death instead, of which `end` is what the kernel does.
    pub(crate) fn step(&self, end: impl FnOnce()) -> Result<(), Dead> {
        match self.left.get() {
            NEVER => return Ok(()),
            0 => return Err(Dead),
            left => self.left.set(left - 1),
        }
        if self.left.get() > 0 {
            return Ok(());
        }
        self.died.store(true, std::sync::atomic::Ordering::Relaxed);
        end();
        Err(Dead)
    }
}

/// A process of a model.
pub(crate) trait Dies: Sized {
    fn life(&self) -> &Life;

    /// An access, or the death instead.
    fn access(&self) -> Result<(), Dead>;

    /// A word as this process sees it.
    fn see<'p>(&'p self, word: &'p AtomicU64) -> Seen<'p, Self> {
        Seen(self, word)
    }
}

/// A word as a process sees it.
pub(crate) struct Seen<'p, P>(&'p P, &'p AtomicU64);

impl<P> Clone for Seen<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Seen<'_, P> {}

impl<P: Dies> Word for Seen<'_, P> {
    type Error = Dead;
    type Far = Self;

    const SPINS: u32 = 1;

    fn far(self) -> Self {
        self
    }

    fn load(self) -> Result<u64, Dead> {
        self.0.access()?;
        Ok(self.1.load(Ordering::Acquire))
    }

    fn store(self, value: u64) -> Result<(), Dead> {
        self.0.access()?;
        // Loom knows no order between a store and another thread's read-modify-write; so a waiter
        // would perhaps never see the store. This one is no fence, and acquires nothing.
        self.1.swap(value, Ordering::Release);
        Ok(())
    }

    fn cas(self, old: u64, new: u64) -> Result<Result<u64, u64>, Dead> {
        self.0.access()?;
        fence(Ordering::SeqCst);
        let found = self.1.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        fence(Ordering::SeqCst);
        Ok(found)
    }

    fn swap(self, value: u64) -> Result<u64, Dead> {
        self.0.access()?;
        fence(Ordering::SeqCst);
        let found = self.1.swap(value, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        Ok(found)
    }

    fn wait(self, _: u32, _: Duration) -> bool {
        if self.0.life().waits.replace(!self.0.life().waits.get()) {
            // The others go on; without this they would perhaps never.
            loom::thread::yield_now();
        }
        false
    }

    fn wake(self) {}

    fn relax() {
        loom::thread::yield_now();
    }
}

/// When a process of a model dies, and whether it came to that.
#[derive(Clone)]
pub(crate) struct Death {
    at: u32,
    died: Arc<AtomicBool>,
}

impl Death {
    /// Never.
    pub(crate) fn never() -> Self {
        Self::at(NEVER)
    }

    /// At the access of this number, from 1 on.
    pub(crate) fn at(at: u32) -> Self {
        Self { at, died: Arc::default() }
    }

    /// Whether some run came to it.
    pub(crate) fn came(&self) -> bool {
        self.died.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Checks a model in all orders.
pub(crate) fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(SWITCHES);
    builder.max_branches = 5_000;
    builder.check(model);
}

/// Checks a model without a death, and with one at every access of a process; gives how many
/// accesses these were.
pub(crate) fn check_deaths<M: Fn() + Sync + Send + 'static>(model: impl Fn(Death) -> M) -> u32 {
    check(model(Death::never()));
    (1..1_000)
        .find(|&at| {
            let death = Death::at(at);
            check(model(death.clone()));
            !death.came()
        })
        .expect("a process that comes to its end")
}
