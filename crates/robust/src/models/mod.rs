//! Models of locks and slots, run by a model checker (`words.rs`).
//!
//! What a model demands stands in [`Ghost`], beside the words: it is kept in the order in which
//! things happen.

mod lock;
mod slot;
mod words;

use crate::lock::Wait;
use crate::owner::Owner;
use crate::slot::{Claim, FREE, LIVE, SlotState, Slots};
use crate::word::Word;
use crate::{MADE, Mistake};
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};
use words::{Dead, Death, Dies, EPOCH, Life, Seen};

/// The state of a slot that is prepared for a child.
const PREPARED: u64 = 2;
/// Slots of a world.
const SLOTS: usize = 3;
/// What must hold, kept beside the words.
#[derive(Default)]
struct Ghost {
    /// Slot and generation of every life.
    lives: Vec<(u32, u32)>,
    /// Lives that are being recovered, and by which process.
    recoveries: Vec<(u32, u32, u32)>,
}

/// What the processes of a model share.
pub(crate) struct World {
    lock: AtomicU64,
    states: [AtomicU64; SLOTS],
    recoverers: [AtomicU64; SLOTS],
    /// For which process's child a slot is prepared: process + 1.
    parents: [AtomicU64; SLOTS],
    /// Which process holds a slot's byte, and the byte of its recovery: process + 1.
    bytes: loom::sync::Mutex<[[u32; 2]; SLOTS]>,
    /// What the lock keeps: two that are at it at once are found.
    kept: loom::cell::UnsafeCell<u32>,
    ghost: Mutex<Ghost>,
}

// SAFETY: `kept` is what the model is about: loom finds two that are at it at once.
unsafe impl Sync for World {}

impl World {
    /// A world in which so many processes live, each in the slot of its number.
    pub(crate) fn new(living: u32) -> Self {
        let live = |slot: usize| {
            let lives = slot < living as usize;
            let state = if lives { LIVE } else { FREE };
            SlotState { state, generation: u32::from(lives) }
        };
        let byte = |slot| if slot < living as usize { [slot as u32 + 1, 0] } else { [0, 0] };
        let lives = (0..living).map(|slot| (slot, 1)).collect();
        Self {
            lock: AtomicU64::new(0),
            states: std::array::from_fn(|slot| AtomicU64::new(live(slot).word(EPOCH))),
            recoverers: std::array::from_fn(|_| AtomicU64::new(0)),
            parents: std::array::from_fn(|_| AtomicU64::new(0)),
            bytes: loom::sync::Mutex::new(std::array::from_fn(byte)),
            kept: loom::cell::UnsafeCell::new(0),
            ghost: Mutex::new(Ghost { lives, ..Ghost::default() }),
        }
    }

    fn ghost<T>(&self, of: impl FnOnce(&mut Ghost) -> T) -> T {
        of(&mut self.ghost.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A process: what it does, it does by one thread.
pub(crate) struct Process {
    world: Arc<World>,
    number: u32,
    /// Its slot and generation.
    name: Cell<(u32, u32)>,
    life: Life,
}

impl Process {
    /// Process `number`, in the slot of this number.
    pub(crate) fn new(world: &Arc<World>, number: u32, death: &Death) -> Self {
        Self {
            world: Arc::clone(world),
            number,
            name: Cell::new((number, 1)),
            life: Life::new(death),
        }
    }

    fn own(&self) -> Owner {
        let (slot, generation) = self.name.get();
        Owner::of_process(slot, generation)
    }

    fn lock(&self) -> Seen<'_, Self> {
        self.see(&self.world.lock)
    }

    /// An access, or the death instead.
    fn step(&self) -> Result<(), Dead> {
        self.life.step(|| {
            self.world.ghost(|ghost| ghost.recoveries.retain(|recovery| recovery.2 != self.number));
            self.kernel(|bytes, me| {
                let all = bytes.iter_mut().flatten();
                all.filter(|byte| **byte == me).for_each(|byte| *byte = 0);
            });
        })
    }

    /// A system call about bytes.
    fn kernel<T>(&self, call: impl FnOnce(&mut [[u32; 2]; SLOTS], u32) -> T) -> T {
        fence(Ordering::SeqCst);
        let done = call(&mut self.world.bytes.lock().unwrap(), self.number + 1);
        fence(Ordering::SeqCst);
        done
    }

    /// What the lock keeps is changed.
    fn change_what_is_kept(&self) -> Result<(), Dead> {
        self.step()?;
        // SAFETY: nobody else is at it, or loom ends the model.
        self.world.kept.with_mut(|kept| unsafe { *kept += 1 });
        let word = self.lock().load()?;
        assert_eq!(Owner::of_word(word, EPOCH), Some(self.own()), "a living owner's lock is freed");
        Ok(())
    }

    /// Takes the lock, changes what it keeps, and gives it back.
    pub(crate) fn work(&self, quickly: bool) -> Result<(), Dead> {
        let own = self.own();
        crate::lock::acquire(self.lock(), EPOCH, own, |holder, wait| match wait {
            Wait::Lasts => self.recover_owner_if_dead(holder),
            Wait::Begins | Wait::Ends => Ok(()),
        })?;
        self.change_what_is_kept()?;
        if quickly {
            crate::lock::release_quickly(self.lock(), EPOCH, own)
        } else {
            crate::lock::release(self.lock(), EPOCH, own)
        }
    }

    /// Buries an owner's process if it is dead.
    pub(crate) fn recover_owner_if_dead(&self, owner: Owner) -> Result<(), Dead> {
        match crate::slot::life(self, owner)? {
            Some(state) => self.recover(owner.slot(), state),
            None => Ok(()),
        }
    }

    /// Buries a slot's process if it is dead.
    pub(crate) fn recover(&self, slot: u32, state: SlotState) -> Result<(), Dead> {
        if !crate::slot::is_dead(self, slot, state)?
            || crate::slot::claim_recovery(self, slot, state, self.own())? != Claim::Own
        {
            return Ok(());
        }
        let recovered = (slot, state.generation, self.number);
        self.world.ghost(|ghost| {
            let another =
                ghost.recoveries.iter().find(|other| (other.0, other.1) == (slot, recovered.1));
            assert_eq!(another, None, "a life is recovered by two at once");
            ghost.recoveries.push(recovered);
        });
        assert_eq!(crate::slot::look(self, slot)?, state, "another life is recovered");
        let dead = Owner::of_process(slot, state.generation);
        crate::lock::release(self.lock(), EPOCH, dead)?;
        let finished = crate::slot::finish_recovery(self, slot, state, FREE);
        self.world.ghost(|ghost| ghost.recoveries.retain(|recovery| *recovery != recovered));
        finished
    }

    /// Takes a slot of these: the process begins another life. `false`: none is free.
    pub(crate) fn attach(&self, range: std::ops::Range<u32>) -> Result<bool, Dead> {
        let Some(life) = crate::slot::take(self, range)? else { return Ok(false) };
        self.name.set(life);
        self.world.ghost(|ghost| {
            assert!(!ghost.lives.contains(&life), "two lives have one name: {life:?}");
            ghost.lives.push(life);
        });
        Ok(true)
    }

    /// Prepares a slot of these for a child: its number.
    pub(crate) fn prepare(&self, range: std::ops::Range<u32>) -> Result<Option<u32>, Dead> {
        let own = u64::from(self.number) + 1;
        let say = |slot: u32, _| self.see(&self.world.parents[slot as usize]).store(own);
        let taken = crate::slot::prepare(self, range, PREPARED, say)?;
        Ok(taken.map(|(slot, _)| slot))
    }

    /// Whether a slot that this process has prepared is said to be for its child.
    pub(crate) fn is_parent(&self, slot: u32) -> Result<bool, Dead> {
        let said = self.see(&self.world.parents[slot as usize]).load()?;
        Ok(said == u64::from(self.number) + 1)
    }

    /// Gives its slot back.
    pub(crate) fn leave(&self) -> Result<(), Dead> {
        let (slot, generation) = self.name.get();
        let live = SlotState { state: LIVE, generation };
        crate::slot::turn(self, slot, live, SlotState { state: FREE, generation })?;
        self.release(slot)
    }
}

impl Dies for Process {
    fn life(&self) -> &Life {
        &self.life
    }

    fn access(&self) -> Result<(), Dead> {
        self.step()
    }
}

impl Slots for Process {
    type Fault = Dead;
    type Error = Dead;
    type Word<'s> = Seen<'s, Self>;

    fn epoch(&self) -> u32 {
        EPOCH
    }

    fn state(&self, slot: u32) -> Seen<'_, Self> {
        self.see(&self.world.states[slot as usize])
    }

    fn recoverer(&self, slot: u32) -> Seen<'_, Self> {
        self.see(&self.world.recoverers[slot as usize])
    }

    fn hold(&self, slot: u32) -> Result<bool, Dead> {
        self.step()?;
        Ok(self.kernel(|bytes, me| {
            let byte = &mut bytes[slot as usize][0];
            let free = *byte == 0;
            if free {
                *byte = me;
            }
            free
        }))
    }

    fn release(&self, slot: u32) -> Result<(), Dead> {
        self.step()?;
        self.kernel(|bytes, _| bytes[slot as usize][0] = 0);
        Ok(())
    }

    fn is_held(&self, slot: u32) -> Result<bool, Dead> {
        self.step()?;
        Ok(self.kernel(|bytes, _| bytes[slot as usize][0] != 0))
    }

    fn is_own(&self, slot: u32) -> bool {
        self.kernel(|bytes, me| bytes[slot as usize][0] == me)
    }

    fn begin_recovery(&self, slot: u32) -> Result<bool, Dead> {
        self.step()?;
        let taken = self.kernel(|bytes, me| {
            let byte = &mut bytes[slot as usize][1];
            let free = *byte == 0 || *byte == me;
            if free {
                *byte = me;
            }
            free
        });
        if !taken {
            return Ok(false);
        }
        let held = self.hold(slot)?;
        if !held {
            self.step()?;
            self.kernel(|bytes, _| bytes[slot as usize][1] = 0);
        }
        Ok(held)
    }

    fn end_recovery(&self, slot: u32) -> Result<(), Dead> {
        self.release(slot)?;
        self.step()?;
        self.kernel(|bytes, _| bytes[slot as usize][1] = 0);
        Ok(())
    }
}

/// What a model says that finds a mistake; empty if it finds none.
pub(crate) fn found(mistake: Mistake, model: impl FnOnce() + std::panic::UnwindSafe) -> String {
    MADE.set(Some(mistake));
    let found = std::panic::catch_unwind(model);
    MADE.set(None);
    let Err(said) = found else { return String::new() };
    match said.downcast::<String>() {
        Ok(said) => *said,
        Err(said) => said.downcast_ref::<&str>().map_or("?", |said| said).to_owned(),
    }
}
