//! The gate: operations that work, and one process that waits until none does.
//!
//! An operation says in its record that it works, then looks at the gate; a process that closes
//! the gate says so, then looks at the records. A read-modify-write stands between the two of each:
//! so one sees the other (Dekker). An operation that finds the gate closed takes its word back, and
//! waits. The gate is a lock word of a process; a dead one's is taken over.

use robust::owner::{Owner, WAITERS, free_word};
use robust::word::Word;
use std::time::Duration;

/// How long to sleep before another look.
const PATIENCE: Duration = Duration::from_millis(20);

/// Says in an operation's phase word that it works, unless the gate is closed: then it gives the
/// gate's word and the process that closed it, and the operation does not work.
#[inline]
pub(crate) fn pass<P: Word, G: Word<Error = P::Error>>(
    phase: P,
    gate: G,
    epoch: u32,
    owner: Owner,
) -> Result<Option<(u64, Owner)>, P::Error> {
    // A read-modify-write orders this store before the load of the gate.
    phase.swap(1)?;
    let word = gate.load()?;
    match Owner::of_word(word, epoch) {
        Some(holder) if holder != owner => {
            phase.store(0)?;
            Ok(Some((word, holder)))
        }
        _ => Ok(None),
    }
}

/// Waits at the gate for a while. `false`: its time is up.
pub(crate) fn wait<G: Word>(gate: G, word: u64) -> bool {
    gate.wait(word as u32, PATIENCE)
}

/// Closes the gate for the process `own`. While another has closed it, it waits, unless `is_void`
/// calls that one dead; `is_void` is told, too, whether this is the first look.
pub(crate) fn close<G: Word, E: From<G::Error>>(
    gate: G,
    epoch: u32,
    own: Owner,
    is_void: impl Fn(Owner, bool) -> Result<bool, E>,
) -> Result<(), E> {
    let mut first = true;
    loop {
        let word = gate.load()?;
        let free = match Owner::of_word(word, epoch) {
            None => true,
            Some(holder) => is_void(holder, first)?,
        };
        if free && gate.cas(word, own.word(epoch))?.is_ok() {
            return Ok(());
        }
        if !free {
            wait(gate, word);
        }
        first = false;
    }
}

/// Opens the gate, if it is the process's.
pub(crate) fn open<G: Word>(gate: G, epoch: u32, own: Owner) -> Result<(), G::Error> {
    if gate.load()? & !WAITERS == own.word(epoch) {
        gate.store(free_word(epoch))?;
    }
    gate.wake();
    Ok(())
}

/// The operation of a record, if it works.
pub(crate) fn works<W: Word>(owner: W, phase: W, epoch: u32) -> Result<Option<Owner>, W::Error> {
    match Owner::of_word(owner.load()?, epoch) {
        Some(owner) if phase.load()? != 0 => Ok(Some(owner)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    //! The gate by a model checker: a sweep is alone, with a death at any access.

    use super::*;
    use crate::words::{Dead, Death, Dies, EPOCH, Life, Seen, check_deaths};
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{AtomicU64, Ordering, fence};
    use loom::thread;
    use std::sync::Arc;

    /// How often an operation looks at the gate: it would wait longer, and the sweep, which it
    /// meets each time anew, too.
    const TRIES: u32 = 2;

    /// How an operation comes to work, or a mistake in that.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Way {
        /// It passes the gate.
        Passes,
        /// Its lock's compare-and-swap stands between what it says and its look ([`Locked`]).
        ///
        /// [`Locked`]: crate::txn::acquire::Locked
        ByLock,
        /// It says that it works by a plain store.
        Unordered,
        /// It says so behind its look.
        LooksFirst,
    }

    /// Processes 0 and 1 sweep, process 2 has an operation.
    struct World {
        gate: AtomicU64,
        lock: AtomicU64,
        operation: AtomicU64,
        phase: AtomicU64,
        /// Which processes are dead: a bit each. The kernel's.
        dead: AtomicU64,
        kept: UnsafeCell<u32>,
    }

    // SAFETY: `kept` is what the model is about: loom finds two that are at it at once.
    unsafe impl Sync for World {}

    impl World {
        fn new() -> Arc<Self> {
            let word = || AtomicU64::new(0);
            let (gate, lock, dead) = (word(), word(), word());
            let operation = AtomicU64::new(Owner::new(5, 2, 1).word(EPOCH));
            let (phase, kept) = (word(), UnsafeCell::new(0));
            Arc::new(Self { gate, lock, operation, phase, dead, kept })
        }
    }

    struct Process {
        world: Arc<World>,
        number: u32,
        life: Life,
    }

    impl Dies for Process {
        fn life(&self) -> &Life {
            &self.life
        }

        fn access(&self) -> Result<(), Dead> {
            self.life.step(|| {
                fence(Ordering::SeqCst);
                self.world.dead.fetch_or(1 << self.number, Ordering::AcqRel);
            })
        }
    }

    /// A word whose exchange is a store.
    #[derive(Clone, Copy)]
    struct Plain<'p>(Seen<'p, Process>);

    impl Word for Plain<'_> {
        type Error = Dead;
        type Far = Self;

        fn far(self) -> Self {
            self
        }

        fn load(self) -> Result<u64, Dead> {
            self.0.load()
        }

        fn store(self, value: u64) -> Result<(), Dead> {
            self.0.store(value)
        }

        fn cas(self, old: u64, new: u64) -> Result<Result<u64, u64>, Dead> {
            self.0.cas(old, new)
        }

        fn swap(self, value: u64) -> Result<u64, Dead> {
            self.0.store(value).map(|()| 0)
        }

        fn wait(self, expected: u32, patience: Duration) -> bool {
            self.0.wait(expected, patience)
        }

        fn wake(self) {}
    }

    impl Process {
        fn new(world: &Arc<World>, number: u32, death: &Death) -> Self {
            Self { world: Arc::clone(world), number, life: Life::new(death) }
        }

        fn is_dead(&self, owner: Owner) -> bool {
            fence(Ordering::SeqCst);
            // The kernel is asked: it knows.
            self.world.dead.fetch_or(0, Ordering::AcqRel) >> owner.slot() & 1 != 0
        }

        fn change_what_is_kept(&self) -> Result<(), Dead> {
            self.access()?;
            // SAFETY: nobody else is at it, or loom ends the model.
            self.world.kept.with_mut(|kept| unsafe { *kept += 1 });
            self.access()
        }

        /// The operation tries to work: whether it may.
        fn begins(&self, way: Way) -> Result<bool, Dead> {
            let (phase, gate) = (self.see(&self.world.phase), self.see(&self.world.gate));
            let own = Owner::new(5, 2, 1);
            match way {
                Way::Passes => Ok(pass(phase, gate, EPOCH, own)?.is_none()),
                Way::Unordered => Ok(pass(Plain(phase), gate, EPOCH, own)?.is_none()),
                Way::LooksFirst => {
                    let open = Owner::of_word(gate.load()?, EPOCH).is_none();
                    phase.swap(u64::from(open))?;
                    Ok(open)
                }
                Way::ByLock => {
                    phase.store(1)?;
                    let lock = self.see(&self.world.lock);
                    assert!(lock.cas(0, own.word(EPOCH))?.is_ok(), "nobody else takes it");
                    let open = Owner::of_word(gate.load()?, EPOCH).is_none();
                    if !open {
                        lock.cas(own.word(EPOCH), 0)?.expect("it is this one's");
                        phase.store(0)?;
                    }
                    Ok(open)
                }
            }
        }

        fn operates(&self, way: Way) -> Result<(), Dead> {
            for _ in 0..TRIES {
                if self.begins(way)? {
                    self.change_what_is_kept()?;
                    return self.see(&self.world.phase).store(0);
                }
                wait(self.see(&self.world.gate), 0);
            }
            Ok(())
        }

        /// Closes the gate, waits until nothing works, and opens it.
        fn sweeps(&self) -> Result<(), Dead> {
            let own = Owner::of_process(self.number, 1);
            let gate = self.see(&self.world.gate);
            close(gate, EPOCH, own, |holder, _| Ok::<_, Dead>(self.is_dead(holder)))?;
            let (operation, phase) = (self.see(&self.world.operation), self.see(&self.world.phase));
            while let Some(owner) = works(operation, phase, EPOCH)? {
                if self.is_dead(owner) {
                    phase.store(0)?;
                }
                wait(phase, 1);
            }
            self.change_what_is_kept()?;
            open(gate, EPOCH, own)
        }
    }

    /// An operation that may die, and a sweep.
    fn one_sweep(death: &Death, way: Way) {
        let world = World::new();
        let operation = Process::new(&world, 2, death);
        let first = thread::spawn(move || {
            // It may have died.
            let _ = operation.operates(way);
        });
        assert_eq!(Process::new(&world, 0, &Death::never()).sweeps(), Ok(()));
        first.join().unwrap();
    }

    /// A sweep that may end in the middle, another one, and an operation.
    fn two_sweeps(death: &Death) {
        let world = World::new();
        let dies = Process::new(&world, 0, death);
        let first = thread::spawn(move || {
            // It may have died.
            let _ = dies.sweeps();
        });
        let operation = Process::new(&world, 2, &Death::never());
        let second = thread::spawn(move || {
            assert_eq!(operation.operates(Way::Passes), Ok(()));
        });
        assert_eq!(Process::new(&world, 1, &Death::never()).sweeps(), Ok(()));
        first.join().unwrap();
        second.join().unwrap();
    }

    #[test]
    fn nothing_works_beside_a_sweep() {
        for way in [Way::Passes, Way::ByLock] {
            let points = check_deaths(|death| move || one_sweep(&death, way));
            assert!(points > 4, "{points}");
        }
    }

    #[test]
    fn a_gate_is_taken_over_from_a_dead_sweep() {
        let points = check_deaths(|death| move || two_sweeps(&death));
        assert!(points > 6, "{points}");
    }

    #[test]
    #[should_panic(expected = "Concurrent write")]
    fn an_operation_that_says_so_by_a_store_is_caught() {
        check_deaths(|death| move || one_sweep(&death, Way::Unordered));
    }

    #[test]
    #[should_panic(expected = "Concurrent write")]
    fn an_operation_that_looks_first_is_caught() {
        check_deaths(|death| move || one_sweep(&death, Way::LooksFirst));
    }
}
