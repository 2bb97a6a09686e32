//! The positions of open descriptions, and the writes that move them: one at a time, behind a lock
//! of the description, so that each goes where the one before ended.
//!
//! A write marks the position while it is under way ([`MOVING`]): a call that reads it then waits
//! for the lock.
//!
//! The description may be closed under a write, and its entry be another's, with a position and a
//! lock that were set anew: generations tell.
//!
//! Locks: the description's, before any other.

use crate::Result;
use crate::inode::references::STATE;
use crate::inode::references::is_generation;
use crate::medium::lockword;
use crate::open::Opens;
use crate::open::description::{LOCK, POSITION, index, is_open};
use pmem::Span;
use robust::owner::Owner;
use rustix::io::Errno;
use vfs::Desc;

/// Position bit: a write holds the description's lock.
const MOVING: u64 = 1 << 63;

/// From [`Moving::begin`] until it is dropped this process moves the position of the description:
/// one write at a time.
pub(crate) struct Moving<'v> {
    opens: &'v Opens,
    desc: Desc,
    line: Span<'v, 8>,
    owner: Owner,
    /// The position at the start; [`MOVING`]: it has not begun.
    position: u64,
}

impl Moving<'_> {
    /// The position as it may be by then; `None`: a write is under way, which moves it.
    #[inline]
    pub(crate) fn glance(&self) -> Result<Option<u64>> {
        let position = self.line.load(index(POSITION))?;
        Ok((position & MOVING == 0).then_some(position))
    }

    /// Waits for its turn; gives the position. `EBADF`: it was closed, and the entry is another's.
    #[inline]
    pub(crate) fn begin(&mut self) -> Result<u64> {
        lockword::acquire_word(self.opens, &self.line, index(LOCK), self.owner)?;
        let mut position = self.line.load(index(POSITION))?;
        while let Err(found) = self.line.cas(index(POSITION), position, position | MOVING)? {
            position = found;
        }
        position &= !MOVING;
        // An entry's generation changes before its position is set anew.
        if !is_generation(self.line.load(index(STATE))?, self.desc) {
            return self.give_up(position);
        }
        self.position = position;
        Ok(position)
    }

    /// Lock and position that were taken are another description's.
    #[cold]
    fn give_up(&self, position: u64) -> Result<u64> {
        let _ = self.line.cas(index(POSITION), position | MOVING, position)?;
        self.unlock()?;
        Err(Errno::BADF)
    }

    #[inline]
    fn unlock(&self) -> Result<()> {
        lockword::release_word_quickly(self.opens, &self.line, index(LOCK), self.owner)
    }

    /// Ends what has begun.
    #[inline]
    fn end(&self) -> Result<()> {
        let state = self.line.load(index(STATE))?;
        if is_generation(state, self.desc) {
            self.line.store(index(POSITION), self.position)?;
            return self.unlock();
        }
        // The lock is a new one as soon as the entry is open anew; until then another thread may
        // wait for this one.
        if is_open(state) { Ok(()) } else { self.unlock() }
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
            let _ = self.end();
        }
    }
}

impl Opens {
    /// The position; waits for a write that moves it.
    #[inline]
    pub(crate) fn position(&self, desc: Desc) -> Result<u64> {
        let at = self.rt.description(desc.index()) + POSITION;
        let position = self.rt.load(at)?;
        if position & MOVING == 0 {
            return Ok(position);
        }
        self.moving(desc)?.begin()
    }

    /// The position, unless a write moves it.
    #[inline]
    pub(crate) fn resting_position(&self, desc: Desc) -> Result<Option<u64>> {
        let position = self.rt.load(self.rt.description(desc.index()) + POSITION)?;
        Ok((position & MOVING == 0).then_some(position))
    }

    /// Moves the position unless another call has moved it from `from`.
    #[inline]
    pub(crate) fn advance(&self, desc: Desc, from: u64, to: u64) -> Result<bool> {
        let at = self.rt.description(desc.index()) + POSITION;
        Ok(from == to || self.rt.cas(at, from, to)?.is_ok())
    }

    /// What moves the position, when it has begun.
    #[inline]
    pub(crate) fn moving(&self, desc: Desc) -> Result<Moving<'_>> {
        let line = self.rt.span(self.rt.description(desc.index()))?;
        Ok(Moving { opens: self, desc, line, owner: self.own(), position: MOVING })
    }

    /// Frees the position locks that a dead process held.
    pub(crate) fn drop_position_locks(&self, slot: u32, generation: u32) -> Result<()> {
        let owner = Owner::of_process(slot, generation);
        let (map, base) = self.rt.place();
        for index in 0..self.descriptions_used()? {
            let at = self.rt.description(index);
            if Owner::of_word(self.rt.load(at + LOCK)?, self.epoch) == Some(owner) {
                // The dead process's write has moved nothing that counts: it did not return.
                self.rt.and(at + POSITION, !MOVING)?;
                lockword::release(self, map, base + at + LOCK, owner)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Volume;
    use crate::testing::{file, fresh};
    use std::sync::Arc;
    use vfs::{FileSystem, IoOffset, Node, OpenFlags, UserIn, UserOut};

    fn opened(volume: &Volume, node: Node) -> Desc {
        volume.open(node.into(), OpenFlags(libc::O_RDWR), None).unwrap()
    }

    fn holder(volume: &Volume, desc: Desc) -> Option<Owner> {
        let word = volume.rt.load(volume.rt.description(desc.index()) + LOCK).unwrap();
        Owner::of_word(word, volume.epoch)
    }

    /// A volume, a description of its file `a`, and its file `b`.
    fn start() -> (Arc<Volume>, Desc, Node) {
        let (volume, root) = fresh();
        let [a, b] = [b"a", b"b"].map(|name| volume.create(root, name, &file()).unwrap());
        let desc = opened(&volume, a);
        (volume, desc, b)
    }

    /// Closes the description, and opens the file in its place.
    fn replace(volume: &Volume, desc: Desc, node: Node) -> Desc {
        volume.close_description(desc).unwrap();
        let other = opened(volume, node);
        assert_eq!(other.index(), desc.index());
        assert_ne!(other.generation(), desc.generation());
        other
    }

    #[test]
    fn a_write_that_ends_behind_the_close_moves_no_other_position_and_frees_no_other_lock() {
        let (volume, desc, b) = start();
        let mut moving = volume.moving(desc).unwrap();
        moving.begin().unwrap();
        moving.set(100);
        let other = replace(&volume, desc, b);
        drop(moving);
        assert_eq!(volume.position(other), Ok(0));

        let mut moving = volume.moving(other).unwrap();
        moving.begin().unwrap();
        let third = replace(&volume, other, b);
        let mut next = volume.moving(third).unwrap();
        assert_eq!(next.begin(), Ok(0));
        next.set(7);
        drop(moving);
        assert_eq!(holder(&volume, third), Some(volume.own()));
        assert_eq!(volume.resting_position(third), Ok(None));
        drop(next);
        assert_eq!((holder(&volume, third), volume.position(third)), (None, Ok(7)));
    }

    #[test]
    fn a_write_that_begins_behind_the_close_takes_no_other_position() {
        let (volume, desc, b) = start();
        let mut moving = volume.moving(desc).unwrap();
        let other = replace(&volume, desc, b);
        assert_eq!(volume.seek(other, 5, vfs::Whence::Set), Ok(5));
        assert_eq!(moving.begin(), Err(Errno::BADF));
        drop(moving);
        assert_eq!((holder(&volume, other), volume.position(other)), (None, Ok(5)));
        assert_eq!(
            volume.write(desc, &[UserIn::new(b"late")], IoOffset::POSITION),
            Err(Errno::BADF)
        );
    }

    #[test]
    fn a_lock_is_free_again_though_its_description_was_closed() {
        let (volume, desc, _) = start();
        let mut moving = volume.moving(desc).unwrap();
        moving.begin().unwrap();
        volume.close_description(desc).unwrap();
        assert_eq!(holder(&volume, desc), Some(volume.own()));
        drop(moving);
        assert_eq!(holder(&volume, desc), None);

        // The entry is claimed, for a file that is not opened after all.
        let (volume, desc, _) = start();
        let mut moving = volume.moving(desc).unwrap();
        moving.begin().unwrap();
        volume.close_description(desc).unwrap();
        let (claimed, lines) = volume.claim_description().unwrap();
        let state = volume.claimed(claimed);
        assert_eq!(claimed.index(), desc.index());
        volume.free_description(claimed, &lines, state).unwrap();
        drop(moving);
        assert_eq!(holder(&volume, desc), None);
    }

    #[test]
    fn writes_of_one_description_from_many_threads_lie_one_behind_another() {
        const EACH: usize = 200;
        let (volume, desc, _) = start();
        std::thread::scope(|scope| {
            for byte in 1..4 {
                let volume = &volume;
                scope.spawn(move || {
                    for _ in 0..EACH {
                        assert_eq!(
                            volume.write(desc, &[UserIn::new(&[byte; 3])], IoOffset::POSITION),
                            Ok(3)
                        );
                    }
                });
            }
        });
        let mut bytes = [0; EACH * 9];
        assert_eq!(
            volume.read(desc, &mut [UserOut::new(&mut bytes)], IoOffset::offset(0)),
            Ok(bytes.len())
        );
        assert!(bytes.chunks(3).all(|bytes| bytes[0] != 0 && bytes == [bytes[0]; 3]));
        assert_eq!(volume.position(desc), Ok(bytes.len() as u64));
    }
}
