//! What processes share and none of them takes along when it dies: locks with owners, slots, and
//! the knowledge which processes are alive.
//!
//! A process may die between any two accesses. Then the kernel drops the bytes that it held
//! ([`bytes`]), and the process that meets what it left recovers it:
//!
//! | module | what it answers |
//! |---|---|
//! | [`word`] | what a shared word can do; the region's words, and a model checker's |
//! | [`bytes`] | which process holds a byte of a file: the kernel drops it with the process |
//! | [`owner`] | how a word names an operation of a process |
//! | [`lock`] | how a lock word is taken, released, and had from a dead owner |
//! | [`slot`] | how a process takes a slot, how another recovers it, what tells its next life |
//!
//! All of it is written over a trait of words, and each access may fail. So the models (`models/`)
//! run this very code: a death is that no access counts from here on.
//!
//! Invariants:
//!
//! - a slot's *live* state and a held byte go together: a process that holds no byte is dead;
//! - no two lives have the same slot and generation, as far as the generation's bits go;
//! - a lock's owner is alive, or a waiter can find out that it is not;
//! - a recovery is one process's: it holds the slot's byte and the byte of its recovery, and the
//!   slot's state is what it was when the process was found dead.

pub mod bytes;
pub mod lock;
pub mod owner;
pub mod slot;
pub mod word;

// Models name this crate as others do.
#[cfg(test)]
extern crate self as robust;
#[cfg(test)]
mod models;

/// Mistakes that the models put back in, each of which they must catch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mistake {
    /// A lock whose word was found free is taken by a store.
    TakenByStore,
    /// A lock is released, whichever process has it.
    ReleasedUnasked,
    /// A process is taken for dead though its byte is held.
    NobodyAsked,
    /// A new life has the generation of the last one.
    SameGeneration,
    /// A slot's state is moved whatever its generation.
    TurnedUnseen,
    /// The state is not looked at again when the bytes of a recovery are held.
    NoSecondLook,
    /// The bytes of a recovery are let go before the state says so.
    BytesFirst,
    /// A slot is prepared without its byte.
    PreparedUnheld,
    /// The state is not looked at again when the byte of a slot to be prepared is held.
    PreparedUnseen,
}

#[cfg(test)]
thread_local! {
    /// The mistake that is made on this thread: a model runs on one.
    pub(crate) static MADE: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
}

/// Whether a mistake is to be made.
#[cfg(test)]
pub(crate) fn made(mistake: Mistake) -> bool {
    MADE.get() == Some(mistake)
}

/// Whether a mistake is to be made: outside tests never.
#[cfg(not(test))]
#[inline]
pub(crate) const fn made(_: Mistake) -> bool {
    false
}
