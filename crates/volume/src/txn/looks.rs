//! Looks at an inode that others change: a call that finds it locked, or changed since its look,
//! looks again a while later, when the inode is at rest.
//!
//! What is done without waiting for a lock is half of what is done under one that was waited for.
//! And who stays away for a while leaves the lines of the inode to the other process, which makes
//! some calls meanwhile at full speed: two that take turns at each call get all lines from each
//! other each time (a step of names in one directory took each of two processes 11.4 us in turns,
//! and takes 5.0 so, of 2.4 alone). Who has looked often enough waits for the lock, which is fair.
//!
//! Locks: none. Persistence: none.

use crate::Result;
use crate::txn::Operations;
use std::hint::cold_path;
use vfs::Node;

/// How often a call that others are in the way of looks again, before it waits for the lock.
const LOOKS: u32 = 8;
/// So many pauses before it does, twice as many the next times, at most four times as many.
const PAUSES: u32 = 200;
/// Whether the inode is at rest is looked at so many times, with so many pauses between.
const GLANCES: u32 = 200;
const BETWEEN: u32 = 8;

/// The looks of a call.
pub(crate) struct Looks {
    sequence: u64,
    left: u32,
}

impl Looks {
    /// Behind the first one, which found this number; 0: none.
    pub(crate) fn after(sequence: u64) -> Self {
        Self { sequence, left: LOOKS }
    }
}

/// What a try gives.
pub(crate) trait Tried {
    /// It has done what was to be done.
    fn is_done(&self) -> bool;
}

impl Tried for bool {
    fn is_done(&self) -> bool {
        *self
    }
}

impl<T> Tried for Option<T> {
    fn is_done(&self) -> bool {
        self.is_some()
    }
}

impl Operations {
    /// Tries what needs an inode that is at rest, again if others were in the way, until it is
    /// done; gives what the last try gave. A try says under which number it saw the inode.
    #[expect(clippy::inline_always, reason = "the first try is the usual one")]
    #[inline(always)]
    pub(crate) fn tries<T: Tried>(
        &self,
        node: Node,
        mut a_try: impl FnMut(&mut u64) -> Result<T>,
    ) -> Result<T> {
        let mut seen = 0;
        let tried = a_try(&mut seen)?;
        if tried.is_done() {
            return Ok(tried);
        }
        cold_path();
        let (mut last, mut looks) = (tried, Looks::after(seen));
        while !last.is_done() && self.look_again(node, &mut looks) {
            last = a_try(&mut seen)?;
        }
        Ok(last)
    }

    /// Whether to look once more, since others changed the inode between look and lock: when it is
    /// at rest.
    #[cold]
    pub(crate) fn look_again(&self, node: Node, looks: &mut Looks) -> bool {
        let mut now = self.sequence_of(node);
        let others = now & 1 != 0 || looks.sequence != 0 && now != looks.sequence;
        if !others || looks.left == 0 {
            return false;
        }
        pause(PAUSES << (LOOKS - looks.left).min(2));
        now = self.sequence_of(node);
        for _ in 0..GLANCES {
            if now & 1 == 0 {
                break;
            }
            pause(BETWEEN);
            now = self.sequence_of(node);
        }
        *looks = Looks { sequence: now, left: looks.left - 1 };
        now & 1 == 0
    }
}

fn pause(times: u32) {
    (0..times).for_each(|_| std::hint::spin_loop());
}
