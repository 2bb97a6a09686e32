//! The positions of open descriptions, and the writes that move them: one at a time, behind a lock of the
//! description, so that each goes where the one before ended.
//!
//! A write marks the position while it is under way ([`MOVING`]): who reads it then waits for the lock.
//!
//! Locks: the description's, before any other.

use crate::Result;
use crate::description::{LOCK, POSITION, index};
use crate::lockword;
use crate::process::process_owner;
use crate::runtime::Owner;
use crate::volume::Volume;
use pmem::Span;
use vfs::Desc;

/// Position bit: a write holds the description's lock.
const MOVING: u64 = 1 << 63;

/// From [`Moving::begin`] until it is dropped this process moves the position of the description: one write
/// at a time.
pub(crate) struct Moving<'v> {
    volume: &'v Volume,
    line: Span<'v, 8>,
    owner: Owner,
    /// The position at the start; [`MOVING`]: it has not begun.
    position: u64,
}

impl Moving<'_> {
    /// The position as it may be by then.
    #[inline]
    pub(crate) fn glance(&self) -> Result<u64> {
        Ok(self.line.load(index(POSITION))? & !MOVING)
    }

    /// Waits for its turn; gives the position.
    #[inline]
    pub(crate) fn begin(&mut self) -> Result<u64> {
        lockword::acquire_word(self.volume, &self.line, index(LOCK), self.owner)?;
        let mut position = self.line.load(index(POSITION))?;
        while let Err(found) = self.line.cas(index(POSITION), position, position | MOVING)? {
            position = found;
        }
        self.position = position & !MOVING;
        Ok(self.position)
    }

    /// The write is done: the position it leaves.
    #[inline]
    pub(crate) fn set(&mut self, position: u64) {
        self.position = position;
    }
}

impl Drop for Moving<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.position & MOVING == 0 {
            // If the runtime has vanished, every other call fails too.
            let _ = self.line.store(index(POSITION), self.position);
            let _ =
                lockword::release_word_quickly(self.volume, &self.line, index(LOCK), self.owner);
        }
    }
}

impl Volume {
    /// The position; waits for a write that moves it.
    #[inline]
    pub(crate) fn position(&self, desc: Desc) -> Result<u64> {
        let at = self.rt.description(desc.index) + POSITION;
        let position = self.rt.load(at)?;
        if position & MOVING == 0 {
            return Ok(position);
        }
        self.moving(desc)?.begin()
    }

    /// The position, unless a write moves it.
    #[inline]
    pub(crate) fn resting_position(&self, desc: Desc) -> Result<Option<u64>> {
        let position = self.rt.load(self.rt.description(desc.index) + POSITION)?;
        Ok((position & MOVING == 0).then_some(position))
    }

    /// Moves the position unless somebody else has moved it from `from`.
    #[inline]
    pub(crate) fn advance(&self, desc: Desc, from: u64, to: u64) -> Result<bool> {
        let at = self.rt.description(desc.index) + POSITION;
        Ok(from == to || self.rt.cas(at, from, to)?.is_ok())
    }

    /// What moves the position, when it has begun.
    #[inline]
    pub(crate) fn moving(&self, desc: Desc) -> Result<Moving<'_>> {
        let line = self.rt.span(self.rt.description(desc.index))?;
        Ok(Moving { volume: self, line, owner: self.own(), position: MOVING })
    }

    /// Frees the position locks that a dead process held.
    pub(crate) fn drop_position_locks(&self, slot: u32, generation: u32) -> Result<()> {
        let owner = process_owner(slot, generation);
        let (map, base) = self.rt.place();
        for index in 0..self.descriptions_used()? {
            let at = self.rt.description(index);
            if Owner::of_word(self.rt.load(at + LOCK)?, self.epoch) == Some(owner) {
                // The write has moved nothing that counts: it did not return.
                self.rt.and(at + POSITION, !MOVING)?;
                lockword::release(self, map, base + at + LOCK, owner)?;
            }
        }
        Ok(())
    }
}
