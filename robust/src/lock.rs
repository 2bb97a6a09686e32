//! Lock words: owned, robust locks between threads and processes.
//!
//! A word names its owner ([`Owner`]). Taking one is a compare-and-swap; a waiter spins, then
//! sleeps, and every 20 ms asks whether the owner's process is alive. Finding it dead it recovers
//! it, by what the caller has for that, which frees the word ([`release`], for the dead owner).
//!
//! The functions differ in what a release costs: [`release`] asks first whether the lock is
//! the owner's; [`release_quickly`] is for the owner, which knows it.

use crate::owner::{Owner, WAITERS, free_word};
use crate::word::Word;
use crate::{Mistake, made};
use std::time::Duration;

/// How long a waiter sleeps before it asks whether the owner lives.
const PATIENCE: Duration = Duration::from_millis(20);

/// Takes the lock for `owner`. `recover` is told its owner after a while: if that one's
/// process is dead, its locks are free afterwards. Gives whether it had to wait for an owner.
#[inline]
pub fn acquire<W: Word, E: From<W::Error>>(
    word: W,
    epoch: u32,
    owner: Owner,
    recover: impl FnMut(Owner) -> Result<(), E>,
) -> Result<bool, E> {
    match word.cas(free_word(epoch), owner.word(epoch))? {
        Ok(_) => Ok(false),
        Err(_) => acquire_slowly(word.far(), epoch, owner, recover),
    }
}

/// The lock has an owner, waiters, or was never used in this epoch.
#[cold]
fn acquire_slowly<W: Word, E: From<W::Error>>(
    lock: W,
    epoch: u32,
    owner: Owner,
    mut recover: impl FnMut(Owner) -> Result<(), E>,
) -> Result<bool, E> {
    let mine = owner.word(epoch);
    let mut spins = 0;
    loop {
        let word = lock.load()?;
        let Some(holder) = Owner::of_word(word, epoch) else {
            // A free word of this epoch may carry the waiters' bit: keep it.
            let keep = if (word >> 32) as u32 == epoch { word & WAITERS } else { 0 };
            if made(Mistake::TakenByStore) {
                lock.store(mine | keep)?;
                return Ok(spins > 0);
            }
            if lock.cas(word, mine | keep)?.is_ok() {
                return Ok(spins > 0);
            }
            continue;
        };
        spins += 1;
        if spins < W::SPINS {
            W::relax();
            continue;
        }
        if word & WAITERS == 0 && lock.cas(word, word | WAITERS)?.is_err() {
            continue;
        }
        if !lock.wait((word | WAITERS) as u32, PATIENCE) {
            recover(holder)?;
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
