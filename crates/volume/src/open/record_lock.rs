//! Record locks: POSIX, open-file-description and `flock` locks; their table is
//! `lock_table/mod.rs`.
//!
//! Locks of a process go when it dies, locks of a description when its last holder goes. `flock`
//! locks do not see the others; POSIX and description locks exclude each other, as on Linux.
//! Waiters compete anew whenever something is unlocked in the chain. A process that waits for
//! another stands in the table: the one that closes a circle of them gets `EDEADLK`. A program that
//! a process serves (through the mount) counts as a process there.
//!
//! Locks: one chain at a time; the waiting room with no chain held.

use crate::Result;
use crate::inode::references::Phase;
use crate::medium::call_counters::LOCK_WAITS;
use crate::open::Opens;
use crate::open::lock_table::{CHANGE, Chain, Holder, Lock, WAITER, Who, unlocks};
use crate::process::SLOT_FREE;
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vfs::{Desc, LockKind, LockOwner, Node, RecordLock};

/// How long a waiter sleeps before it asks whether the holder lives.
const PATIENCE: Duration = Duration::from_millis(20);

/// What the table says of a call that waits: the entry, the holder it waits for, and how often
/// something had been unlocked in the chain by then. It waits no more when this is dropped.
struct Said<'a> {
    opens: &'a Opens,
    entry: Option<(u32, Holder, u64)>,
}

impl Said<'_> {
    fn unsay(&mut self) {
        if let Some((entry, ..)) = self.entry.take() {
            // Memory that is lost says nothing either.
            let _ = self.opens.unsay_waiting(entry);
        }
    }
}

impl Drop for Said<'_> {
    fn drop(&mut self) {
        self.unsay();
    }
}

/// Whether, and how, a lock is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    /// As a process: the table says for which holder it waits.
    InCircles,
    Apart,
}

impl Wait {
    fn only_if(self, wanted: bool) -> Self {
        if wanted { self } else { Self::No }
    }
}

impl Opens {
    fn holder(&self, desc: Desc, owner: LockOwner) -> Result<Holder> {
        Ok(match owner {
            LockOwner::Process => Holder::process(self.slot(), self.slot_generation()),
            LockOwner::Description => Holder::description(desc),
            LockOwner::Guest(guest) => Holder::guest(self.slot(), self.slot_generation(), guest)?,
        })
    }

    /// `fcntl` locks. `EAGAIN`, `EDEADLK`, `ENOLCK`, `EBADF` (not open for this kind).
    pub(crate) fn set_record_lock(
        &self,
        desc: Desc,
        owner: LockOwner,
        lock: &RecordLock,
        wait: bool,
    ) -> Result<()> {
        let opened = self.opened(desc)?;
        let allowed = match lock.kind {
            LockKind::Read => opened.flags.reads(),
            LockKind::Write => opened.flags.writes(),
            LockKind::Unlock => !opened.flags.path_only(),
        };
        if !allowed {
            return Err(Errno::BADF);
        }
        if lock.start > lock.end {
            return Err(Errno::INVAL);
        }
        let holder = self.holder(desc, owner)?;
        if owner != LockOwner::Description && lock.kind != LockKind::Unlock {
            self.has_locked.store(true, Ordering::Relaxed);
        }
        let in_circles = match owner {
            LockOwner::Process => true,
            LockOwner::Description => false,
            LockOwner::Guest(guest) => guest.is_process,
        };
        let wait = if in_circles { Wait::InCircles } else { Wait::Apart }.only_if(wait);
        self.set_lock(opened.node.ino, holder, lock, wait)
    }

    /// `flock`. `EWOULDBLOCK`, `ENOLCK`, `EBADF` (a mere path).
    pub(crate) fn set_flock(&self, desc: Desc, kind: LockKind, wait: bool) -> Result<()> {
        let opened = self.opened(desc)?;
        if opened.flags.path_only() {
            return Err(Errno::BADF);
        }
        let lock = RecordLock { kind, start: 0, end: u64::MAX, pid: 0 };
        self.set_lock(opened.node.ino, Holder::flock(desc), &lock, Wait::Apart.only_if(wait))
    }

    pub(crate) fn set_lock(
        &self,
        ino: u64,
        holder: Holder,
        lock: &RecordLock,
        wait: Wait,
    ) -> Result<()> {
        let unlock = lock.kind == LockKind::Unlock;
        if unlock && self.chain_is_empty(ino)? {
            return Ok(());
        }
        let write = lock.kind == LockKind::Write;
        let wanted = Lock { holder, write, start: lock.start, end: lock.end };
        let mut is_first = true;
        let mut said = Said { opens: self, entry: None };
        loop {
            let chain = self.chain(ino)?;
            if chain.set_alone(ino, &wanted, unlock)? || chain.set_apart(ino, &wanted, unlock)? {
                return Ok(());
            }
            let all = chain.locks(ino)?;
            let refuser = all.iter().find(|(_, lock)| !unlock && lock.refuses(&wanted));
            let Some(&(_, refuser)) = refuser else {
                // Before the lock is there: one that holds it waits for nobody.
                said.unsay();
                return chain.set(ino, &all, &wanted, unlock);
            };
            if holder.is_flock() {
                // As on Linux, a conversion first gives up what there was.
                chain.drop_all(ino, |other| other == holder)?;
            }
            if wait == Wait::No {
                drop(chain);
                if self.recover_holder(refuser.holder)? {
                    continue;
                }
                return Err(Errno::AGAIN);
            }
            self.wait_for(chain, ino, (holder, wait), (refuser.holder, &mut said), is_first)?;
            is_first = false;
        }
    }

    /// Sleeps until something changes in the chain, or the refuser turns out to be dead, or a
    /// signal comes (`INTERRUPTED`, `BEGIN_ANEW`). `first`: in this call. The table has the wait as
    /// long as it is for this refuser: a process that closes a circle over it finds it, and only
    /// that one looks for circles.
    #[cold]
    fn wait_for(
        &self,
        chain: Chain<'_>,
        ino: u64,
        (me, wait): (Holder, Wait),
        (refuser, said): (Holder, &mut Said<'_>),
        first: bool,
    ) -> Result<()> {
        if first {
            self.counters.one::<LOCK_WAITS>();
        }
        let change = chain.at + CHANGE;
        let unlocks = unlocks(self.rt.load(change)?);
        let stands = said.entry.is_some_and(|entry| (entry.1, entry.2) == (refuser, unlocks));
        if !stands {
            said.unsay();
            // A full table finds no circles, and tells nobody.
            let index = chain.say_waiting(ino, me, refuser).ok();
            said.entry = index.map(|index| (index, refuser, unlocks));
        }
        // One that says so is counted as long as it does.
        let is_unsaid = said.entry.is_none();
        if is_unsaid {
            self.rt.add(change, WAITER)?;
        }
        drop(chain);
        let circle = match said.entry {
            Some((entry, ..)) if !stands && wait == Wait::InCircles && refuser.is_process() => {
                let near = self.refuse_circle(entry);
                near.and_then(|()| self.refuse_wider_circle(entry))
            }
            _ => Ok(()),
        };
        if circle == Err(Errno::DEADLK) {
            said.entry = None;
        }
        let wait = |()| {
            let _waiting = self.stay_idle();
            vfs::lock_waits::begin();
            let waited = self.rt.wait_interruptible(change, unlocks as u32, PATIENCE);
            vfs::lock_waits::end_part(first, || self.process_of_holder(refuser));
            waited
        };
        let waited = circle.and_then(wait);
        if is_unsaid {
            self.rt.add(change, WAITER.wrapping_neg())?;
        }
        // Also after a signal: where they come often, no wait lasts until the end of patience.
        if waited != Ok(true) {
            self.recover_holder(refuser)?;
        }
        waited.map(|_| ())
    }

    /// The process that a lock is of; of a description: one that has it, another than this.
    fn process_of_holder(&self, holder: Holder) -> Option<u32> {
        let slot = match holder.who() {
            Who::Process { slot, .. } => slot,
            Who::Guest { pid, .. } => return Some(pid),
            Who::Description(desc) | Who::Flock(desc) => {
                let holders = self.holders(desc.index()).ok()?;
                holders.into_iter().find(|&slot| slot != self.slot())?
            }
        };
        self.slot_pid(slot).ok()
    }

    /// `EDEADLK` if the one for which `entry` waits does so, over others, for the holder that waits
    /// there, which then waits no more.
    fn refuse_circle(&self, entry: u32) -> Result<()> {
        let _room = self.waiting_room()?;
        if !self.closes_circle(entry)? {
            return Ok(());
        }
        self.unsay_waiting(entry)?;
        Err(Errno::DEADLK)
    }

    /// The same over other volumes. Nothing is held: they are looked at there, one after the other,
    /// and a wait may be over by the time that another one is seen. So they are looked at twice: a
    /// wait that is seen both times stood in between, when all the others did. Of two that close
    /// one in the same microsecond both may be refused.
    fn refuse_wider_circle(&self, entry: u32) -> Result<()> {
        let Some(beyond) = self.beyond.get() else { return Ok(()) };
        for _ in 0..2 {
            if !beyond(&self.waits_of_processes()?) {
                return Ok(());
            }
        }
        self.unsay_waiting(entry)?;
        Err(Errno::DEADLK)
    }

    /// Recovers the holder of a lock if it is dead, both parts; `true` if it was: what it held is
    /// gone, through this process or another. The caller holds no lock.
    pub(crate) fn recover_holder(&self, holder: Holder) -> Result<bool> {
        match holder.who() {
            Who::Process { slot, generation } | Who::Guest { slot, generation, .. } => {
                let dead = self.see_recovered(slot, generation, false)?;
                if dead {
                    // One that left in order while a thread of it was locking has left that lock.
                    self.drop_process_locks(slot, generation)?;
                }
                Ok(dead)
            }
            Who::Description(desc) | Who::Flock(desc) => {
                let state = self.desc_state(desc.index())?;
                if state.phase == Phase::Free || state.generation != desc.generation() {
                    // A thread was locking when another one closed it, or ended the process.
                    self.drop_locks_of(|other| other == holder)?;
                    return Ok(true);
                }
                let holders = self.holders(desc.index())?;
                let mut any = false;
                for &slot in &holders {
                    let state = self.slot_state(slot)?;
                    let used = state.state != SLOT_FREE;
                    any |= used && self.see_recovered(slot, state.generation, true)?;
                }
                if holders.is_empty() {
                    // The last holder gave it up and is about to drop it, or died before that.
                    self.begin_recoveries()?;
                }
                let recovered = self.standing.remains();
                self.finish_recoveries()?;
                Ok(any || recovered)
            }
        }
    }

    /// `F_GETLK`: the first lock that would refuse `lock`, in the order in which Linux lists them:
    /// by when holders came, then by range. To unlock: the first of the holder's own in the range.
    pub(crate) fn test_record_lock(
        &self,
        desc: Desc,
        owner: LockOwner,
        lock: &RecordLock,
    ) -> Result<Option<RecordLock>> {
        let opened = self.opened(desc)?;
        if opened.flags.path_only() {
            return Err(Errno::BADF);
        }
        if lock.start > lock.end {
            return Err(Errno::INVAL);
        }
        let ino = opened.node.ino;
        let holder = self.holder(desc, owner)?;
        let unlock = lock.kind == LockKind::Unlock;
        let write = lock.kind == LockKind::Write;
        let wanted = Lock { holder, write, start: lock.start, end: lock.end };
        loop {
            if self.chain_is_empty(ino)? {
                return Ok(None);
            }
            let all = self.chain(ino)?.locks(ino)?;
            let own = |lock: &Lock| lock.holder == holder && lock.overlaps(&wanted);
            let names = |lock: &Lock| if unlock { own(lock) } else { lock.refuses(&wanted) };
            let found = all.iter().find(|(_, lock)| names(lock));
            let Some(&(_, first)) = found else {
                return Ok(None);
            };
            if !unlock && self.recover_holder(first.holder)? {
                continue;
            }
            let pid = match first.holder.who() {
                Who::Process { slot, .. } => self.slot_pid(slot)? as i32,
                Who::Guest { pid, .. } => pid as i32,
                _ => -1,
            };
            let kind = if first.write { LockKind::Write } else { LockKind::Read };
            return Ok(Some(RecordLock { kind, start: first.start, end: first.end, pid }));
        }
    }

    /// Any close of a file drops the process's POSIX locks on it.
    #[inline]
    pub(crate) fn release_process_locks(&self, node: Node) -> Result<()> {
        if !self.has_locked.load(Ordering::Relaxed) || self.chain_is_empty(node.ino)? {
            return Ok(());
        }
        let me = Holder::process(self.slot(), self.slot_generation());
        self.chain(node.ino)?.drop_all(node.ino, |holder| holder == me)
    }

    // ---- at the end, and after a death ----------------------------------------------------------

    /// Drops the locks of a description that is being dropped.
    #[inline]
    pub(crate) fn drop_description_locks(&self, desc: Desc, ino: u64) -> Result<()> {
        if self.chain_is_empty(ino)? {
            return Ok(());
        }
        let of = |holder| holder == Holder::description(desc) || holder == Holder::flock(desc);
        self.chain(ino)?.drop_all(ino, of)
    }
}
