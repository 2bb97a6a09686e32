//! Lock words: owned, robust locks between threads and processes.
//!
//! A word names its owner ([`Owner`]). Taking one is a compare-and-swap; a waiter spins, then
//! sleeps, and every 20 ms asks whether the owner's process is alive. Finding it dead it recovers
//! it, by what the caller has for that, which frees the word ([`release`], for the dead owner). The
//! caller hears of each wait, too, for who counts them.
//!
//! The functions differ in what a release costs: [`release`] asks first whether the lock is
//! the owner's; [`release_quickly`] is for the owner, which knows it.

use crate::owner::{Owner, WAITERS, free_word};
use crate::word::Word;
use crate::{Mistake, made};
use std::time::Duration;

/// How long a waiter sleeps before it asks whether the owner lives.
const PATIENCE: Duration = Duration::from_millis(20);

/// What a waiter says of the owner for which it waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// It begins.
    Begins,
    /// It has been long: if the owner's process is dead, its locks are to be free afterwards.
    Lasts,
    /// It is over: this was the first owner that was met.
    Ends,
}

/// Takes the lock for `owner`. `waits` is told of each wait.
#[inline]
pub fn acquire<W: Word, E: From<W::Error>>(
    word: W,
    epoch: u32,
    owner: Owner,
    waits: impl FnMut(Owner, Wait) -> Result<(), E>,
) -> Result<(), E> {
    match word.cas(free_word(epoch), owner.word(epoch))? {
        Ok(_) => Ok(()),
        Err(_) => acquire_slowly(word.far(), epoch, owner, waits),
    }
}

/// The lock has an owner, waiters, or was never used in this epoch.
#[cold]
fn acquire_slowly<W: Word, E: From<W::Error>>(
    lock: W,
    epoch: u32,
    owner: Owner,
    mut waits: impl FnMut(Owner, Wait) -> Result<(), E>,
) -> Result<(), E> {
    let mine = owner.word(epoch);
    let mut spins = 0;
    let mut first = None;
    loop {
        let word = lock.load()?;
        let Some(holder) = Owner::of_word(word, epoch) else {
            // A free word of this epoch may carry the waiters' bit: keep it.
            let keep = if (word >> 32) as u32 == epoch { word & WAITERS } else { 0 };
            if made(Mistake::TakenByStore) {
                return Ok(lock.store(mine | keep)?);
            }
            if lock.cas(word, mine | keep)?.is_ok() {
                return first.map_or(Ok(()), |holder| waits(holder, Wait::Ends));
            }
            continue;
        };
        if first.is_none() {
            first = Some(holder);
            waits(holder, Wait::Begins)?;
        }
        spins += 1;
        if spins < W::SPINS {
            W::relax();
            continue;
        }
        if word & WAITERS == 0 && lock.cas(word, word | WAITERS)?.is_err() {
            continue;
        }
        if !lock.wait((word | WAITERS) as u32, PATIENCE) {
            waits(holder, Wait::Lasts)?;
        }
    }
}

/// Frees the lock if `owner` holds it, and wakes those that wait.
#[inline]
pub fn release<W: Word>(word: W, epoch: u32, owner: Owner) -> Result<(), W::Error> {
    match word.cas(owner.word(epoch), free_word(epoch))? {
        Ok(_) => Ok(()),
        Err(_) => release_slowly(word.far(), epoch, owner),
    }
}

/// As [`release`], without a locked instruction: the caller has ordered what it stored.
///
/// A waiter that sets its bit between the look and the store is forgotten. It finds the word
/// changed when it goes to sleep, or, if the owner was preempted right there, looks again after
/// 20 ms.
#[expect(clippy::inline_always, reason = "the lock's place stays in registers")]
#[inline(always)]
pub fn release_quickly<W: Word>(word: W, epoch: u32, owner: Owner) -> Result<(), W::Error> {
    if word.load()? == owner.word(epoch) {
        return word.store(free_word(epoch));
    }
    release_slowly(word.far(), epoch, owner)
}

/// There are waiters, or the lock is not the owner's.
#[cold]
fn release_slowly<W: Word>(lock: W, epoch: u32, owner: Owner) -> Result<(), W::Error> {
    loop {
        let word = lock.load()?;
        if Owner::of_word(word, epoch) != Some(owner) && !made(Mistake::ReleasedUnasked) {
            return Ok(());
        }
        if lock.cas(word, free_word(epoch))?.is_ok() {
            if word & WAITERS != 0 {
                lock.wake();
            }
            return Ok(());
        }
    }
}
