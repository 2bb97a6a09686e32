//! Slots: which processes are attached, how a death is found, and how it is recovered.
//!
//! A slot's state word is `epoch << 32 | generation << 8 | state`; a word of another epoch says
//! *free*, generation 0. A process takes a free slot's byte, then moves the slot to *live*, in the
//! next generation. It goes the other way when it leaves. Of a dead process the byte is free: a
//! recoverer takes the byte of its recovery, then the slot's byte, looks at the state again, and
//! names itself in the slot's second word (for the threads of its own process, which bytes do not
//! keep apart). Then it alone moves the slot from *live* to *dying* to *free*.
//!
//! A user may have further states of its own, of processes that hold no byte yet.

use crate::owner::Owner;
use crate::word::Word;
use crate::{Mistake, made};
use std::ops::Range;

/// No process has it.
pub const FREE: u64 = 0;
/// A process holds its byte, or has died.
pub const LIVE: u64 = 1;
/// Its process is dead, and part of what it held is given back.
pub const DYING: u64 = 3;

/// A slot's state word, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotState {
    /// [`FREE`], [`LIVE`], [`DYING`], or a state of the user's: 8 bits.
    pub state: u64,
    /// 24 bits; owners carry the low 12.
    pub generation: u32,
}

impl SlotState {
    /// What a word says in an epoch.
    #[inline]
    pub fn of_word(word: u64, epoch: u32) -> Self {
        if (word >> 32) as u32 != epoch {
            return Self { state: FREE, generation: 0 };
        }
        Self { state: word & 0xFF, generation: (word >> 8 & 0xFF_FFFF) as u32 }
    }

    /// The word that says it.
    #[inline]
    pub fn word(self, epoch: u32) -> u64 {
        u64::from(epoch) << 32 | u64::from(self.generation & 0xFF_FFFF) << 8 | self.state
    }

    /// The generation of the slot's next life.
    pub fn next_generation(self) -> u32 {
        let next = u32::from(!made(Mistake::SameGeneration));
        self.generation.wrapping_add(next) & 0xFF_FFFF
    }
}

/// A table of slots: two words of each, and its bytes. Bytes do not exclude the threads of one
/// process: the functions here that take or give back bytes are called by one of them at a time.
pub trait Slots {
    /// Why a word cannot be had.
    type Fault;
    /// Why anything fails.
    type Error: From<Self::Fault>;
    /// A word of it.
    type Word<'s>: Word<Error = Self::Fault>
    where
        Self: 's;

    /// The epoch whose words count.
    fn epoch(&self) -> u32;

    /// A slot's state.
    fn state(&self, slot: u32) -> Self::Word<'_>;

    /// The recoverer of a slot's process.
    fn recoverer(&self, slot: u32) -> Self::Word<'_>;

    /// Takes a slot's byte as this process's own. `false`: it is, or another process holds it.
    fn hold(&self, slot: u32) -> Result<bool, Self::Error>;

    /// Gives it back.
    fn release(&self, slot: u32) -> Result<(), Self::Error>;

    /// Whether a process, this one or another, holds the slot's byte.
    fn is_held(&self, slot: u32) -> Result<bool, Self::Error>;

    /// Whether a slot is one of this process's own.
    fn is_own(&self, slot: u32) -> bool;

    /// Takes a dead process's bytes, to recover it. `false`: another holds one of them.
    fn begin_recovery(&self, slot: u32) -> Result<bool, Self::Error>;

    /// Gives them back.
    fn end_recovery(&self, slot: u32) -> Result<(), Self::Error>;
}

/// What came of claiming a recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It is the caller's to recover.
    Own,
    /// Another thread of this process is at it.
    Thread,
    /// Another process is at it, or has been.
    Refused,
}

/// What a slot's word says.
#[inline]
pub fn look<S: Slots>(slots: &S, slot: u32) -> Result<SlotState, S::Error> {
    Ok(SlotState::of_word(slots.state(slot).load()?, slots.epoch()))
}

/// Moves a slot from one state to another; `false` if it was in a third.
pub fn turn<S: Slots>(
    slots: &S,
    slot: u32,
    from: SlotState,
    to: SlotState,
) -> Result<bool, S::Error> {
    let at = slots.state(slot);
    let word = at.load()?;
    let found = SlotState::of_word(word, slots.epoch());
    let same = found == from || made(Mistake::TurnedUnseen) && found.state == from.state;
    Ok(same && at.cas(word, to.word(slots.epoch()))?.is_ok())
}

/// Takes the first free one of some slots for this process, with its byte: its number and its
/// generation. `None`: all are in use.
pub fn take<S: Slots>(slots: &S, range: Range<u32>) -> Result<Option<(u32, u32)>, S::Error> {
    for slot in range {
        let found = look(slots, slot)?;
        if found.state != FREE || !slots.hold(slot)? {
            continue;
        }
        let generation = found.next_generation();
        // A recoverer may have died between freeing the slot and striking itself out.
        slots.recoverer(slot).store(0)?;
        if turn(slots, slot, found, SlotState { state: LIVE, generation })? {
            return Ok(Some((slot, generation)));
        }
        slots.release(slot)?;
    }
    Ok(None)
}

/// Takes the first free one of some slots for a process to come, in a state of the user's: no
/// process holds its byte. `prepare` says in it, of which it is told the generation that it will
/// have, whose it is, before it is taken. The byte is held
/// meanwhile: a process that takes a slot, or prepares one, holds it, and writes in no other.
pub fn prepare<S: Slots>(
    slots: &S,
    range: Range<u32>,
    state: u64,
    prepare: impl Fn(u32, u32) -> Result<(), S::Error>,
) -> Result<Option<(u32, u32)>, S::Error> {
    for slot in range {
        let found = look(slots, slot)?;
        // A byte that is held belongs to a recoverer about to let go, or to one that takes it.
        let unheld = made(Mistake::PreparedUnheld);
        if found.state != FREE || !unheld && !slots.hold(slot)? {
            continue;
        }
        let taken = prepare_held(slots, slot, found, state, &prepare);
        if !unheld {
            slots.release(slot)?;
        }
        if let Some(generation) = taken? {
            return Ok(Some((slot, generation)));
        }
    }
    Ok(None)
}

/// Prepares a slot that was found free, and whose byte is held: its generation. `None`: since then
/// another process has prepared it, of which nobody holds the byte.
fn prepare_held<S: Slots>(
    slots: &S,
    slot: u32,
    found: SlotState,
    state: u64,
    prepare: impl Fn(u32, u32) -> Result<(), S::Error>,
) -> Result<Option<u32>, S::Error> {
    if !made(Mistake::PreparedUnseen) && look(slots, slot)? != found {
        return Ok(None);
    }
    let generation = found.next_generation();
    slots.recoverer(slot).store(0)?;
    prepare(slot, generation)?;
    let taken = turn(slots, slot, found, SlotState { state, generation })?;
    Ok(taken.then_some(generation))
}

/// The state of an owner's slot, if it is in that life still.
pub fn life<S: Slots>(slots: &S, owner: Owner) -> Result<Option<SlotState>, S::Error> {
    let state = look(slots, owner.slot())?;
    Ok(owner.is_of(state.generation).then_some(state))
}

/// Whether a slot's process, which was *live* or *dying*, is dead.
pub fn is_dead<S: Slots>(slots: &S, slot: u32, state: SlotState) -> Result<bool, S::Error> {
    let counts = matches!(state.state, LIVE | DYING);
    Ok(counts && (made(Mistake::NobodyAsked) || !slots.is_held(slot)?))
}

/// Whether a life has ended in order, or was recovered, though something is in its name.
pub fn is_gone<S: Slots>(slots: &S, owner: Owner) -> Result<bool, S::Error> {
    let state = look(slots, owner.slot())?;
    Ok(state.state == FREE || !owner.is_of(state.generation))
}

/// The recoverer of a slot's process.
pub fn recoverer<S: Slots>(slots: &S, slot: u32) -> Result<Option<Owner>, S::Error> {
    Ok(Owner::of_word(slots.recoverer(slot).load()?, slots.epoch()))
}

/// Takes the bytes of a slot that was found dead in `state`, and names the process `own` its
/// recoverer.
pub fn claim_recovery<S: Slots>(
    slots: &S,
    slot: u32,
    state: SlotState,
    own: Owner,
) -> Result<Claim, S::Error> {
    if slots.is_own(slot) || look(slots, slot)? != state {
        return Ok(Claim::Refused);
    }
    if !slots.begin_recovery(slot)? && !made(Mistake::NobodyAsked) {
        return Ok(Claim::Refused);
    }
    if let Some(other) = recoverer(slots, slot)?
        && (other == own || slots.is_own(other.slot()))
    {
        // The bytes are the process's: they stay held.
        return Ok(Claim::Thread);
    }
    // Another one that stands there has died, or the byte would not have been free.
    slots.recoverer(slot).store(own.word(slots.epoch()))?;
    if made(Mistake::NoSecondLook) || look(slots, slot)? == state {
        return Ok(Claim::Own);
    }
    give_up_recovery(slots, slot)?;
    Ok(Claim::Refused)
}

/// The opposite of [`claim_recovery`].
pub fn give_up_recovery<S: Slots>(slots: &S, slot: u32) -> Result<(), S::Error> {
    slots.recoverer(slot).store(0)?;
    slots.end_recovery(slot)
}

/// Ends a recovery, or a part of it: the slot goes on to the state `to`, and its bytes are free
/// again.
pub fn finish_recovery<S: Slots>(
    slots: &S,
    slot: u32,
    from: SlotState,
    to: u64,
) -> Result<(), S::Error> {
    if made(Mistake::BytesFirst) {
        give_up_recovery(slots, slot)?;
        return turn(slots, slot, from, SlotState { state: to, ..from }).map(drop);
    }
    turn(slots, slot, from, SlotState { state: to, ..from })?;
    give_up_recovery(slots, slot)
}
