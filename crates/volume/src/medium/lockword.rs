//! Lock words of a volume: [`robust::lock`], where a waiter recovers the process of a dead owner
//! ([`Medium::recover_if_dead`]).

use crate::Result;
use crate::medium::Medium;
use crate::medium::call_counters::LOCK_WAITS;
use pmem::{Region, Span};
use robust::lock::{self, Wait};
use robust::owner::Owner;
use robust::word::{RegionWord, SpanWord};

/// Takes the lock at `offset` of `map` for `owner`.
#[inline]
pub(crate) fn acquire(ground: &Medium, map: &Region, offset: u64, owner: Owner) -> Result<()> {
    let waits = |holder, wait| waits(ground, holder, wait);
    lock::acquire(RegionWord(map, offset), ground.epoch, owner, waits)
}

/// As [`acquire`], of the lock that is word number `word` of words that were checked before.
#[inline]
pub(crate) fn acquire_word<const WORDS: usize>(
    ground: &Medium,
    words: &Span<'_, WORDS>,
    word: usize,
    owner: Owner,
) -> Result<()> {
    let waits = |holder, wait| waits(ground, holder, wait);
    lock::acquire(SpanWord(*words, word), ground.epoch, owner, waits)
}

/// A lock is waited for.
#[cold]
fn waits(ground: &Medium, holder: Owner, wait: Wait) -> Result<()> {
    match wait {
        Wait::Begins => vfs::lock_waits::begin(),
        Wait::Lasts => ground.recover_if_dead(holder)?,
        Wait::Ends => {
            ground.counters.one::<LOCK_WAITS>();
            vfs::lock_waits::end(|| ground.process_of(holder));
        }
    }
    Ok(())
}

/// Frees the lock if `owner` holds it, and wakes those that wait.
#[inline]
pub(crate) fn release(ground: &Medium, map: &Region, offset: u64, owner: Owner) -> Result<()> {
    Ok(lock::release(RegionWord(map, offset), ground.epoch, owner)?)
}

/// As [`release`], by the owner, without a locked instruction: the caller has ordered what it
/// stored.
#[inline]
pub(crate) fn release_quickly(
    ground: &Medium,
    map: &Region,
    offset: u64,
    owner: Owner,
) -> Result<()> {
    Ok(lock::release_quickly(RegionWord(map, offset), ground.epoch, owner)?)
}

/// As [`release_quickly`], of word number `word` of words that were checked before.
#[expect(clippy::inline_always, reason = "its words stay in registers")]
#[inline(always)]
pub(crate) fn release_word_quickly<const WORDS: usize>(
    ground: &Medium,
    words: &Span<'_, WORDS>,
    word: usize,
    owner: Owner,
) -> Result<()> {
    Ok(lock::release_quickly(SpanWord(*words, word), ground.epoch, owner)?)
}
