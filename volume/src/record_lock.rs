//! Record locks: POSIX, open-file-description and `flock` locks, in a table that all processes
//! share.
//!
//! An entry of the table is two things. As a *lock* it is a range of an inode, its kind and its
//! owner, chained to the others of its chain; as a *chain* (an inode's is found by hash) it carries
//! a lock word, the head, and a counter on which waiters sleep.
//!
//! | word | what | written by |
//! |---|---|---|
//! | state | epoch, next in the chain (claimed: claimer's slot), kind | claimer; chain's holder |
//! | ino, owner, start, end | the lock | holder of the chain |
//! | change | low half: counts unlocks; high half: waiters (a hint) | anyone, by addition |
//! | chain lock | a process's lock word | whoever takes it |
//! | head | epoch, first entry of the chain, index + 1 | holder of the chain |
//!
//! The entries are the truth, the chain only finds them: a chain whose holder died is strung anew.
//! Locks of a process go when it dies, locks of a description when its last holder goes. Where a
//! range is split, new entries are written before old ones shrink, so a death in between never
//! unlocks for others what a shared description still covers.
//!
//! `flock` locks do not see the others; POSIX and description locks exclude each other, as on
//! Linux.
//!
//! Locks: one chain at a time, and nothing is waited for under it.

use crate::Result;
use crate::layout::HEADER_LOCKS;
use crate::lockword;
use crate::process::{BLOCKED, process_owner};
use crate::runtime::Owner;
use crate::volume::Volume;
use rustix::io::Errno;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vfs::{Desc, LockKind, LockOwner, Node, RecordLock};

const STATE: u64 = 0;
const INO: u64 = 8;
const OWNER: u64 = 16;
const START: u64 = 24;
const END: u64 = 32;
const CHANGE: u64 = 40;
const CHAIN_LOCK: u64 = 48;
const HEAD: u64 = 56;
const _: () = assert!(HEAD + 8 == crate::layout::LOCK_RECORD);

/// Entry states, the low byte of the state word.
const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const READ: u64 = 2;
const WRITE: u64 = 3;
/// Bits of an index + 1, and of a claimer's slot, above them.
const NEXT_BITS: u64 = 20;
/// One waiter in the change word.
const WAITER: u64 = 1 << 32;
/// How long a waiter sleeps before it asks whether the holder lives.
const PATIENCE: Duration = Duration::from_millis(20);
/// Hops after which a chain of processes waiting for each other counts as a deadlock.
const HOPS: u32 = 64;

/// Whose a lock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    Process { slot: u32, generation: u32 },
    Description(Desc),
    Flock(Desc),
}

impl Holder {
    fn word(self) -> u64 {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 24;
        match self {
            Self::Process { slot, generation } => 1 << 60 | pair(slot, generation),
            Self::Description(desc) => 2 << 60 | pair(desc.index, desc.generation),
            Self::Flock(desc) => 3 << 60 | pair(desc.index, desc.generation),
        }
    }

    fn of_word(word: u64) -> Self {
        let (low, high) = ((word & 0xFF_FFFF) as u32, (word >> 24 & 0xFF_FFFF) as u32);
        match word >> 60 {
            1 => Self::Process { slot: low, generation: high },
            2 => Self::Description(Desc { index: low, generation: high }),
            _ => Self::Flock(Desc { index: low, generation: high }),
        }
    }

    fn sees(self, other: Self) -> bool {
        matches!(self, Self::Flock(_)) == matches!(other, Self::Flock(_))
    }
}

/// A lock as it stands in the table, or as it is wanted.
#[derive(Clone, Copy, Debug)]
struct Lock {
    holder: Holder,
    write: bool,
    start: u64,
    end: u64,
}

impl Lock {
    fn refuses(&self, wanted: &Self) -> bool {
        self.holder != wanted.holder
            && self.holder.sees(wanted.holder)
            && (self.write || wanted.write)
            && self.start <= wanted.end
            && wanted.start <= self.end
    }
}

/// A chain, held.
struct Chain<'v> {
    volume: &'v Volume,
    /// Offset of the entry that carries the chain.
    at: u64,
    owner: Owner,
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        let (map, base) = self.volume.rt.place();
        // If the runtime has vanished, every other call fails too.
        let _ = lockword::release(self.volume, map, base + self.at + CHAIN_LOCK, self.owner);
    }
}

type Entries = SmallVec<[(u32, Lock); 8]>;

impl Chain<'_> {
    /// All locks of an inode.
    fn locks(&self, ino: u64) -> Result<Entries> {
        let rt = &self.volume.rt;
        let mut found = Entries::new();
        let mut next = self.volume.chain_head(self.at)?;
        let mut left = rt.layout.lock_count;
        while next != 0 && next <= rt.layout.lock_count && left > 0 {
            let index = next as u32 - 1;
            let at = rt.lock_record(index);
            let state = rt.load(at + STATE)?;
            if rt.load(at + INO)? == ino {
                let lock = Lock {
                    holder: Holder::of_word(rt.load(at + OWNER)?),
                    write: state & 0xFF == WRITE,
                    start: rt.load(at + START)?,
                    end: rt.load(at + END)?,
                };
                found.push((index, lock));
            }
            next = state >> 8 & ((1 << NEXT_BITS) - 1);
            left -= 1;
        }
        Ok(found)
    }

    fn state(&self, next: u64, lock: &Lock) -> u64 {
        let kind = if lock.write { WRITE } else { READ };
        u64::from(self.volume.epoch) << 32 | next << 8 | kind
    }

    /// Writes a claimed entry and puts it first in the chain.
    fn push(&self, index: u32, ino: u64, lock: &Lock) -> Result<()> {
        let rt = &self.volume.rt;
        let at = rt.lock_record(index);
        rt.store(at + INO, ino)?;
        rt.store(at + OWNER, lock.holder.word())?;
        rt.store(at + START, lock.start)?;
        rt.store(at + END, lock.end)?;
        rt.store(at + STATE, self.state(self.volume.chain_head(self.at)?, lock))?;
        self.volume.set_chain_head(self.at, u64::from(index) + 1)
    }

    /// Changes range and kind of an entry of the chain.
    fn change(&self, index: u32, lock: &Lock) -> Result<()> {
        let rt = &self.volume.rt;
        let at = rt.lock_record(index);
        let next = rt.load(at + STATE)? >> 8 & ((1 << NEXT_BITS) - 1);
        rt.store(at + START, lock.start)?;
        rt.store(at + END, lock.end)?;
        Ok(rt.store(at + STATE, self.state(next, lock))?)
    }

    /// Takes an entry out of the chain and frees it.
    fn remove(&self, index: u32) -> Result<()> {
        let rt = &self.volume.rt;
        let next_of = |state: u64| state >> 8 & ((1 << NEXT_BITS) - 1);
        let at = rt.lock_record(index);
        let follower = next_of(rt.load(at + STATE)?);
        let mut next = self.volume.chain_head(self.at)?;
        if next == u64::from(index) + 1 {
            self.volume.set_chain_head(self.at, follower)?;
            next = 0;
        }
        let mut left = rt.layout.lock_count;
        while next != 0 && next <= rt.layout.lock_count && left > 0 {
            let before = rt.lock_record(next as u32 - 1);
            let state = rt.load(before + STATE)?;
            next = next_of(state);
            if next == u64::from(index) + 1 {
                rt.store(before + STATE, state & !(((1 << NEXT_BITS) - 1) << 8) | follower << 8)?;
                break;
            }
            left -= 1;
        }
        Ok(rt.store(at + STATE, u64::from(self.volume.epoch) << 32 | FREE)?)
    }

    /// Something was unlocked: who sleeps looks again.
    fn wake(&self) -> Result<()> {
        let rt = &self.volume.rt;
        let before = rt.add(self.at + CHANGE, 1)?;
        if before >= WAITER {
            rt.wake(self.at + CHANGE);
        }
        Ok(())
    }

    /// Makes `wanted` the holder's lock on its range (`None`: unlocks it); conflicts are excluded.
    /// `ENOLCK` if the table is full; then nothing has changed.
    fn set(&self, ino: u64, all: &Entries, range: &Lock, unlock: bool) -> Result<()> {
        let mut wanted = *range;
        let mut old: SmallVec<[u32; 4]> = SmallVec::new();
        let mut new: SmallVec<[Lock; 4]> = SmallVec::new();
        for &(index, lock) in all.iter().filter(|(_, lock)| lock.holder == range.holder) {
            let overlaps = lock.start <= range.end && range.start <= lock.end;
            let touches = lock.start <= range.end.saturating_add(1)
                && range.start <= lock.end.saturating_add(1);
            if !unlock && touches && lock.write == range.write {
                wanted.start = wanted.start.min(lock.start);
                wanted.end = wanted.end.max(lock.end);
                old.push(index);
            } else if overlaps {
                old.push(index);
                if lock.start < range.start {
                    new.push(Lock { end: range.start - 1, ..lock });
                }
                if lock.end > range.end {
                    new.push(Lock { start: range.end + 1, ..lock });
                }
            }
        }
        if !unlock {
            new.insert(0, wanted);
        }
        let mut claimed: SmallVec<[u32; 4]> = SmallVec::new();
        while old.len() + claimed.len() < new.len() {
            match self.volume.claim_lock() {
                Ok(index) => claimed.push(index),
                Err(errno) => {
                    for &index in &claimed {
                        self.volume.unclaim_lock(index)?;
                    }
                    return Err(errno);
                }
            }
        }
        for &index in &claimed {
            let Some(lock) = new.pop() else { break };
            self.push(index, ino, &lock)?;
        }
        for &index in &old {
            match new.pop() {
                Some(lock) => self.change(index, &lock)?,
                None => self.remove(index)?,
            }
        }
        // Unlocking, shrinking and turning into a read lock all go through an old entry.
        if old.is_empty() { Ok(()) } else { self.wake() }
    }

    /// Drops all locks of some holders on an inode.
    fn drop_all(&self, ino: u64, of: impl Fn(Holder) -> bool) -> Result<()> {
        let mut any = false;
        for (index, lock) in self.locks(ino)? {
            if of(lock.holder) {
                self.remove(index)?;
                any = true;
            }
        }
        if any { self.wake() } else { Ok(()) }
    }
}

impl Volume {
    /// Index of the chain of an inode.
    fn chain_of(&self, ino: u64) -> u32 {
        (ino.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32 % self.rt.layout.lock_count as u32
    }

    fn chain(&self, ino: u64) -> Result<Chain<'_>> {
        let at = self.rt.lock_record(self.chain_of(ino));
        let (map, base) = self.rt.place();
        let owner = self.own();
        lockword::acquire(self, map, base + at + CHAIN_LOCK, owner)?;
        Ok(Chain { volume: self, at, owner })
    }

    /// Whether there is certainly no lock on the inode.
    fn chain_is_empty(&self, ino: u64) -> Result<bool> {
        Ok(self.chain_head(self.rt.lock_record(self.chain_of(ino)))? == 0)
    }

    /// First entry of a chain, index + 1; 0: none.
    fn chain_head(&self, at: u64) -> Result<u64> {
        let word = self.rt.load(at + HEAD)?;
        Ok(if (word >> 32) as u32 == self.epoch { word & u64::from(u32::MAX) } else { 0 })
    }

    fn set_chain_head(&self, at: u64, head: u64) -> Result<()> {
        Ok(self.rt.store(at + HEAD, u64::from(self.epoch) << 32 | head)?)
    }

    fn claim_lock(&self) -> Result<u32> {
        let count = self.rt.layout.lock_count as u32;
        let hint = &self.local.next_lock;
        let start = hint.load(Ordering::Relaxed).wrapping_add(self.slot() * 32);
        let epoch = u64::from(self.epoch) << 32;
        for step in 0..count {
            let index = start.wrapping_add(step) % count;
            let at = self.rt.lock_record(index) + STATE;
            let word = self.rt.load(at)?;
            if (word >> 32) as u32 == self.epoch && word & 0xFF != FREE {
                continue;
            }
            let claimed = epoch | u64::from(self.slot()) << 8 | CLAIMED;
            // Before it is claimed, so that whoever recovers this process looks far enough.
            self.rt.raise(HEADER_LOCKS, u64::from(index) + 1)?;
            if self.rt.cas(at, word, claimed)?.is_ok() {
                hint.store(index.wrapping_sub(self.slot() * 32), Ordering::Relaxed);
                return Ok(index);
            }
        }
        Err(Errno::NOLCK)
    }

    /// Entries from this index on were never used as locks (as chains all may be).
    fn locks_used(&self) -> Result<u32> {
        Ok(self.rt.load(HEADER_LOCKS)?.min(self.rt.layout.lock_count) as u32)
    }

    fn unclaim_lock(&self, index: u32) -> Result<()> {
        let free = u64::from(self.epoch) << 32 | FREE;
        Ok(self.rt.store(self.rt.lock_record(index) + STATE, free)?)
    }

    // ---- the calls ------------------------------------------------------------------------------

    fn holder(&self, desc: Desc, owner: LockOwner) -> Holder {
        match owner {
            LockOwner::Process => {
                Holder::Process { slot: self.slot(), generation: self.slot_generation() }
            }
            LockOwner::Description => Holder::Description(desc),
        }
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
            LockKind::Unlock => true,
        };
        if !allowed {
            return Err(Errno::BADF);
        }
        if lock.start > lock.end {
            return Err(Errno::INVAL);
        }
        let holder = self.holder(desc, owner);
        if owner == LockOwner::Process && lock.kind != LockKind::Unlock {
            self.local.has_locked.store(true, Ordering::Relaxed);
        }
        self.set_lock(opened.node.ino, holder, lock, wait)
    }

    /// `flock`. `EWOULDBLOCK`, `ENOLCK`.
    pub(crate) fn set_flock(&self, desc: Desc, kind: LockKind, wait: bool) -> Result<()> {
        let opened = self.opened(desc)?;
        let lock = RecordLock { kind, start: 0, end: u64::MAX, pid: 0 };
        self.set_lock(opened.node.ino, Holder::Flock(desc), &lock, wait)
    }

    fn set_lock(&self, ino: u64, holder: Holder, lock: &RecordLock, wait: bool) -> Result<()> {
        let unlock = lock.kind == LockKind::Unlock;
        if unlock && self.chain_is_empty(ino)? {
            return Ok(());
        }
        let write = lock.kind == LockKind::Write;
        let wanted = Lock { holder, write, start: lock.start, end: lock.end };
        loop {
            let chain = self.chain(ino)?;
            let all = chain.locks(ino)?;
            let refuser = all.iter().find(|(_, lock)| !unlock && lock.refuses(&wanted));
            let Some(&(_, refuser)) = refuser else {
                return chain.set(ino, &all, &wanted, unlock);
            };
            if matches!(holder, Holder::Flock(_)) {
                // As on Linux, a conversion first gives up what there was.
                chain.drop_all(ino, |other| other == holder)?;
            }
            if !wait {
                drop(chain);
                if self.bury_holder(refuser.holder)? {
                    continue;
                }
                return Err(Errno::AGAIN);
            }
            self.wait_for(chain, wanted.holder, refuser.holder)?;
        }
    }

    /// Sleeps until something changes in the chain, or the refuser turns out to be dead.
    fn wait_for(&self, chain: Chain<'_>, me: Holder, refuser: Holder) -> Result<()> {
        let change = chain.at + CHANGE;
        let blocked = self.rt.process(self.slot()) + BLOCKED;
        if let (Holder::Process { .. }, Holder::Process { slot, generation }) = (me, refuser) {
            let other = process_owner(slot, generation);
            // Said before it is asked: of two that block each other at once, one sees the other.
            self.rt.swap(blocked, other.word(self.epoch))?;
            if self.waits_for_me(other)? {
                self.rt.store(blocked, 0)?;
                return Err(Errno::DEADLK);
            }
        }
        let seen = self.rt.add(change, WAITER)?;
        drop(chain);
        let in_time = self.rt.wait(change, seen as u32, PATIENCE);
        self.rt.add(change, WAITER.wrapping_neg())?;
        self.rt.store(blocked, 0)?;
        if !in_time {
            self.bury_holder(refuser)?;
        }
        Ok(())
    }

    /// Whether a process waits, over others, for a lock of this one.
    fn waits_for_me(&self, first: Owner) -> Result<bool> {
        let mut next = first;
        for _ in 0..HOPS {
            if next == self.own() {
                return Ok(true);
            }
            let word = self.rt.load(self.rt.process(next.slot()) + BLOCKED)?;
            match Owner::of_word(word, self.epoch) {
                Some(owner) => next = owner,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Buries who holds a lock if he is dead, both parts; `true` if something was buried. The
    /// caller holds no lock.
    fn bury_holder(&self, holder: Holder) -> Result<bool> {
        match holder {
            Holder::Process { slot, generation } => {
                self.bury_if_dead(process_owner(slot, generation))?;
            }
            Holder::Description(desc) | Holder::Flock(desc) => {
                for slot in self.holders(desc.index)? {
                    let state = self.slot_state(slot)?;
                    self.bury_if_dead(process_owner(slot, state.generation))?;
                }
            }
        }
        let buried = self.local.remains.load(Ordering::Acquire);
        self.finish_burials()?;
        Ok(buried)
    }

    /// `F_GETLK`: the first lock that would refuse `lock`.
    pub(crate) fn test_record_lock(
        &self,
        desc: Desc,
        owner: LockOwner,
        lock: &RecordLock,
    ) -> Result<Option<RecordLock>> {
        let ino = self.opened(desc)?.node.ino;
        if lock.kind == LockKind::Unlock || lock.start > lock.end {
            return Err(Errno::INVAL);
        }
        let holder = self.holder(desc, owner);
        let write = lock.kind == LockKind::Write;
        let wanted = Lock { holder, write, start: lock.start, end: lock.end };
        loop {
            if self.chain_is_empty(ino)? {
                return Ok(None);
            }
            let all = self.chain(ino)?.locks(ino)?;
            let refusers = all.iter().filter(|(_, lock)| lock.refuses(&wanted));
            let Some(&(_, first)) = refusers.min_by_key(|(_, lock)| lock.start) else {
                return Ok(None);
            };
            if self.bury_holder(first.holder)? {
                continue;
            }
            let pid = match first.holder {
                Holder::Process { slot, .. } => self.slot_pid(slot)? as i32,
                _ => 0,
            };
            let kind = if first.write { LockKind::Write } else { LockKind::Read };
            return Ok(Some(RecordLock { kind, start: first.start, end: first.end, pid }));
        }
    }

    /// Any close of a file drops the process's POSIX locks on it.
    pub(crate) fn release_process_locks(&self, node: Node) -> Result<()> {
        if !self.local.has_locked.load(Ordering::Relaxed) || self.chain_is_empty(node.ino)? {
            return Ok(());
        }
        let me = Holder::Process { slot: self.slot(), generation: self.slot_generation() };
        self.chain(node.ino)?.drop_all(node.ino, |holder| holder == me)
    }

    // ---- at the end, and after a death ----------------------------------------------------------

    /// Drops the locks of a description that is being dropped.
    pub(crate) fn drop_description_locks(&self, desc: Desc, ino: u64) -> Result<()> {
        if self.chain_is_empty(ino)? {
            return Ok(());
        }
        let of = |holder| holder == Holder::Description(desc) || holder == Holder::Flock(desc);
        self.chain(ino)?.drop_all(ino, of)
    }

    /// Drops all POSIX locks of a process: dead, or this one on its way out.
    pub(crate) fn drop_process_locks(&self, slot: u32, generation: u32) -> Result<()> {
        if slot == self.slot() && !self.local.has_locked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let holder = Holder::Process { slot, generation };
        for index in 0..self.locks_used()? {
            let at = self.rt.lock_record(index);
            let state = self.rt.load(at + STATE)?;
            let used = (state >> 32) as u32 == self.epoch && state & 0xFF >= READ;
            if used && self.rt.load(at + OWNER)? == holder.word() {
                let ino = self.rt.load(at + INO)?;
                self.chain(ino)?.drop_all(ino, |other| other == holder)?;
            }
        }
        Ok(())
    }

    /// Frees what a dead process held of the table itself: chains, which are strung anew, and
    /// entries that it had claimed.
    pub(crate) fn free_chain_locks(&self, slot: u32, generation: u32) -> Result<()> {
        let owner = process_owner(slot, generation);
        let (map, base) = self.rt.place();
        for index in 0..self.rt.layout.lock_count as u32 {
            let at = self.rt.lock_record(index);
            let state = self.rt.load(at + STATE)?;
            let claimed = u64::from(self.epoch) << 32 | u64::from(slot) << 8 | CLAIMED;
            if state == claimed {
                self.unclaim_lock(index)?;
            }
            if Owner::of_word(self.rt.load(at + CHAIN_LOCK)?, self.epoch) == Some(owner) {
                self.string_anew(index)?;
                self.rt.add(at + CHANGE, 1)?;
                lockword::release(self, map, base + at + CHAIN_LOCK, owner)?;
                self.rt.wake(at + CHANGE);
            }
        }
        Ok(())
    }

    /// Rebuilds a chain, which a dead process still holds, from the entries that belong to it.
    fn string_anew(&self, chain: u32) -> Result<()> {
        let mut head = 0;
        for index in 0..self.locks_used()? {
            let at = self.rt.lock_record(index);
            let state = self.rt.load(at + STATE)?;
            let used = (state >> 32) as u32 == self.epoch && state & 0xFF >= READ;
            if used && self.chain_of(self.rt.load(at + INO)?) == chain {
                let kept = state & !(((1 << NEXT_BITS) - 1) << 8);
                self.rt.store(at + STATE, kept | head << 8)?;
                head = u64::from(index) + 1;
            }
        }
        self.set_chain_head(self.rt.lock_record(chain), head)
    }
}
