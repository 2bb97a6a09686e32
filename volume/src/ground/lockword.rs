//! Lock words: owned, robust locks between threads and processes.
//!
//! A word is `epoch << 32 | waiters << 31 | owner` (see [`Owner`]); a word of another epoch counts
//! as free. Taking one is a compare-and-swap; a waiter spins, then sleeps, and every 20 ms asks
//! whether the owner's process is alive. Finding it dead it has it recovered
//! ([`Ground::recover_if_dead`]), which frees the word.

use crate::Result;
use crate::ground::Ground;
use crate::ground::runtime::{Owner, WAITERS};
use pmem::{Region, Span};
use std::time::Duration;

/// Spins before a waiter sleeps: about 2 us.
const SPINS: u32 = 200;
/// How long a waiter sleeps before it asks whether the owner lives.
const PATIENCE: Duration = Duration::from_millis(20);

/// Takes the lock at `offset` of `map` for `owner`.
#[inline]
pub(crate) fn acquire(ground: &Ground, map: &Region, offset: u64, owner: Owner) -> Result<()> {
    let free = u64::from(ground.epoch) << 32;
    match map.shared_cas(offset, free, owner.word(ground.epoch))? {
        Ok(_) => Ok(()),
        Err(_) => acquire_slowly(ground, map, offset, owner),
    }
}

/// As [`acquire`], of the lock that is word number `word` of words that were checked before.
#[inline]
pub(crate) fn acquire_word<const WORDS: usize>(
    ground: &Ground,
    words: &Span<'_, WORDS>,
    word: usize,
    owner: Owner,
) -> Result<()> {
    let free = u64::from(ground.epoch) << 32;
    if words.cas(word, free, owner.word(ground.epoch))?.is_ok() {
        return Ok(());
    }
    let (map, offset) = words.place(word);
    acquire_slowly(ground, map, offset, owner)
}

/// The lock has an owner, waiters, or was never used in this epoch.
#[cold]
fn acquire_slowly(ground: &Ground, map: &Region, offset: u64, owner: Owner) -> Result<()> {
    let mine = owner.word(ground.epoch);
    let mut spins = 0;
    loop {
        let word = map.shared_load(offset)?;
        let Some(holder) = Owner::of_word(word, ground.epoch) else {
            // A free word of this epoch may carry the waiters' bit: keep it.
            let keep = if (word >> 32) as u32 == ground.epoch { word & WAITERS } else { 0 };
            if map.shared_cas(offset, word, mine | keep)?.is_ok() {
                return Ok(());
            }
            continue;
        };
        spins += 1;
        if spins < SPINS {
            std::hint::spin_loop();
            continue;
        }
        if word & WAITERS == 0 && map.shared_cas(offset, word, word | WAITERS)?.is_err() {
            continue;
        }
        let asleep = (word | WAITERS) as u32;
        if !map.futex_wait(offset, asleep, Some(PATIENCE)) {
            ground.recover_if_dead(holder)?;
        }
    }
}

/// Frees the lock if `owner` holds it, and wakes who waits.
#[inline]
pub(crate) fn release(ground: &Ground, map: &Region, offset: u64, owner: Owner) -> Result<()> {
    let free = u64::from(ground.epoch) << 32;
    match map.shared_cas(offset, owner.word(ground.epoch), free)? {
        Ok(_) => Ok(()),
        Err(_) => release_slowly(ground, map, offset, owner),
    }
}

/// As [`release`], without a locked instruction: whoever calls has ordered what he stored.
///
/// A waiter that sets its bit between the look and the store is forgotten. It finds the word
/// changed when it goes to sleep, or, if the owner was preempted right there, looks again after
/// 20 ms.
#[inline]
pub(crate) fn release_quickly(
    ground: &Ground,
    map: &Region,
    offset: u64,
    owner: Owner,
) -> Result<()> {
    if map.shared_load(offset)? == owner.word(ground.epoch) {
        return Ok(map.shared_store(offset, u64::from(ground.epoch) << 32)?);
    }
    release_slowly(ground, map, offset, owner)
}

/// As [`release_quickly`], of word number `word` of words that were checked before.
#[expect(clippy::inline_always, reason = "its words stay in registers")]
#[inline(always)]
pub(crate) fn release_word_quickly<const WORDS: usize>(
    ground: &Ground,
    words: &Span<'_, WORDS>,
    word: usize,
    owner: Owner,
) -> Result<()> {
    if words.load(word)? == owner.word(ground.epoch) {
        return Ok(words.store(word, u64::from(ground.epoch) << 32)?);
    }
    let (map, offset) = words.place(word);
    release_slowly(ground, map, offset, owner)
}

/// Somebody waits, or the lock is not the owner's.
#[cold]
fn release_slowly(ground: &Ground, map: &Region, offset: u64, owner: Owner) -> Result<()> {
    let free = u64::from(ground.epoch) << 32;
    loop {
        let word = map.shared_load(offset)?;
        if Owner::of_word(word, ground.epoch) != Some(owner) {
            return Ok(());
        }
        if map.shared_cas(offset, word, free)?.is_ok() {
            if word & WAITERS != 0 {
                map.futex_wake(offset, u32::MAX);
            }
            return Ok(());
        }
    }
}
