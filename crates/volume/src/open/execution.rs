//! Programs that run from files of the volume, and files that are open for writing: the two exclude
//! each other (`ETXTBSY`).
//!
//! That a process executes a file stands in the table of record locks, where it is kept, found and
//! dropped as its locks are; there is one entry for a process's own program, and one for what
//! programs execute that it serves (through the mount). The table of descriptions says which
//! processes have a file open for writing.
//!
//! The kernel tells a process that serves programs of their end, and of the end of their handles, a
//! moment after it tells all other processes.
//!
//! Locks: one chain at a time.

use crate::Result;
use crate::open::Opens;
use crate::open::lock_table::{Holder, Lock};
use crate::open::record_lock::Wait;
use crate::process::SLOT_LIVE;
use robust::owner::Owner;
use rustix::io::Errno;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;
use vfs::{Desc, Kind, LockKind, Node, RecordLock};

/// How long the end of a program may be on its way, and how often it is looked for.
const END_TRIES: u32 = 200;
const END_STEP: Duration = Duration::from_millis(1);

impl Opens {
    /// This process executes `now`, and `before` no longer. `ENOLCK` if the table is full.
    pub(crate) fn set_executed(&self, before: Option<Node>, now: Option<Node>) -> Result<()> {
        let me = Holder::execution(self.slot(), self.slot_generation());
        if let Some(node) = before {
            self.chain(node.ino)?.drop_all(node.ino, |holder| holder == me)?;
        }
        now.map_or(Ok(()), |node| self.say_executed(me, node))
    }

    fn say_executed(&self, me: Holder, node: Node) -> Result<()> {
        self.has_locked.store(true, Ordering::Relaxed);
        // The file may lose its name and its inode be used for another: the range tells which it
        // is.
        let at = u64::from(node.generation);
        let lock = RecordLock { kind: LockKind::Read, start: at, end: at, pid: 0 };
        self.set_lock(node.ino, me, &lock, Wait::No)
    }

    /// Some program that this process serves executes a file, or (`begins` is false) none any more.
    /// `ETXTBSY` if another process has it open for writing, `ENOLCK` if the table is full.
    pub(crate) fn host_executed(&self, node: Node, begins: bool) -> Result<()> {
        let me = Holder::hosted_execution(self.slot(), self.slot_generation());
        if !begins {
            return self.chain(node.ino)?.drop_all(node.ino, |holder| holder == me);
        }
        self.say_executed(me, node)?;
        // Said before it is asked, as a process that opens for writing does: of two at once one
        // sees the other.
        fence(Ordering::SeqCst);
        if self.writes_now(node, true)? {
            self.chain(node.ino)?.drop_all(node.ino, |holder| holder == me)?;
            return Err(Errno::TXTBSY);
        }
        Ok(())
    }

    /// Whether some process that lives executes the file, or serves a program that does. What this
    /// process serves does not count: the kernel knows it.
    #[inline]
    pub(crate) fn is_executed_by_anyone(&self, node: Node) -> Result<bool> {
        Ok(!self.chain_is_empty(node.ino)? && self.is_executed_as_locks_say(node)?)
    }

    #[cold]
    fn is_executed_as_locks_say(&self, node: Node) -> Result<bool> {
        let own = Holder::hosted_execution(self.slot(), self.slot_generation());
        let executes = |lock: &Lock| {
            lock.holder.is_execution()
                && lock.start == u64::from(node.generation)
                && lock.holder != own
        };
        let mut tries = 0;
        loop {
            if self.chain_is_empty(node.ino)? {
                return Ok(false);
            }
            let all = self.chain(node.ino)?.locks(node.ino)?;
            let Some((_, lock)) = all.iter().find(|(_, lock)| executes(lock)) else {
                return Ok(false);
            };
            if self.recover_holder(lock.holder)? {
                continue;
            }
            if !lock.holder.is_hosted() || tries == END_TRIES {
                return Ok(true);
            }
            tries += 1;
            std::thread::sleep(END_STEP);
        }
    }

    /// Whether a process that lives has the file open for writing.
    pub(crate) fn is_written(&self, node: Node) -> Result<bool> {
        for _ in 0..END_TRIES {
            if !self.writes_now(node, false)? {
                return Ok(false);
            }
            std::thread::sleep(END_STEP);
        }
        self.writes_now(node, false)
    }

    /// The same at this moment: another process (`others`), or any.
    fn writes_now(&self, node: Node, others: bool) -> Result<bool> {
        for index in 0..self.descriptions_used()? {
            let generation = self.desc_state(index)?.generation;
            let Ok(opened) = self.opened(Desc::new(index, generation)) else { continue };
            if opened.node != node || opened.kind != Kind::File || !opened.flags.writes() {
                continue;
            }
            for slot in self.holders(index)? {
                let state = self.slot_state(slot)?;
                if slot == self.slot() {
                    if !others {
                        return Ok(true);
                    }
                } else {
                    self.recover_if_dead(Owner::of_process(slot, state.generation))?;
                    if state.state == SLOT_LIVE && self.slot_state(slot)? == state {
                        return Ok(true);
                    }
                }
            }
        }
        self.finish_recoveries()?;
        Ok(false)
    }
}
