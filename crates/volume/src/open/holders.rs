//! The holders of an open file description: a bit a process slot, in its entry's second line.
//!
//! Only a slot's own process changes its bit; but a parent sets its child's, and a recoverer clears
//! that of a dead process. A process that drops a description says so, then looks for holders once
//! more.
//!
//! Locks: none.

use crate::Result;
use crate::open::Opens;
use crate::open::description::{Lines, index};
use vfs::Desc;

/// The bitmap's place in an entry.
const HOLDERS: u64 = 64;
/// Its words.
const HOLDER_WORDS: u64 = crate::medium::layout::PROCESS_SLOTS / 64;

const _: () = assert!(HOLDERS == 64 && HOLDER_WORDS == 8);

impl Opens {
    /// An entry that is being claimed or dropped has no holders.
    #[inline]
    pub(crate) fn clear_holders(lines: &Lines<'_>) -> Result<()> {
        lines.store_four(index(HOLDERS), [0; 4])?;
        Ok(lines.store_four(index(HOLDERS) + 4, [0; 4])?)
    }

    /// The word, and the bit in it, by which this process holds an entry.
    #[inline]
    pub(crate) fn own_hold(&self) -> (usize, u64) {
        let slot = self.slot();
        (index(HOLDERS) + slot as usize / 64 % HOLDER_WORDS as usize, 1 << (slot % 64))
    }

    /// Sets or clears a process slot's hold; gives whether it held before.
    pub(crate) fn hold(&self, index: u32, slot: u32, hold: bool) -> Result<bool> {
        let at = self.rt.description(index) + HOLDERS + u64::from(slot / 64) * 8;
        let bit = 1 << (slot % 64);
        let held = self.rt.load(at)? & bit != 0;
        // Only the slot's own process changes its bit: what it reads is so.
        match (held, hold) {
            (false, true) => self.rt.or(at, bit)?,
            (true, false) => self.rt.and(at, !bit)?,
            _ => 0,
        };
        Ok(held)
    }

    pub(crate) fn is_held(&self, index: u32) -> Result<bool> {
        let words = self.rt.line(self.rt.description(index) + HOLDERS)?;
        Ok(words.iter().any(|&word| word != 0))
    }

    /// The slots of the processes that hold a description.
    pub(crate) fn holders(&self, index: u32) -> Result<Vec<u32>> {
        let at = self.rt.description(index) + HOLDERS;
        let mut found = Vec::new();
        for word in 0..HOLDER_WORDS {
            let bits = self.rt.load(at + word * 8)?;
            let set = (0..64).filter(|bit| bits >> bit & 1 != 0);
            found.extend(set.map(|bit| word as u32 * 64 + bit));
        }
        Ok(found)
    }

    /// Whether this process holds an entry, no other does, and it is not in flight.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "each last close asks twice")]
    pub(crate) fn is_own(&self, desc: Desc, lines: &Lines<'_>) -> Result<bool> {
        let (own, bit) = self.own_hold();
        let [first, a, b, c] = lines.four(index(HOLDERS))?;
        let [d, e, f, g] = lines.four(index(HOLDERS) + 4)?;
        let only = if own == index(HOLDERS) {
            first == bit && a | b | c | d | e | f | g == 0
        } else {
            let mut words = [first, a, b, c, d, e, f, g];
            words[own - index(HOLDERS)] ^= bit;
            words == [0; HOLDER_WORDS as usize]
        };
        Ok(only && !(self.was_handed(desc, lines)? && self.is_in_flight(desc)?))
    }
}
