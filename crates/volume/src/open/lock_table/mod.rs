//! The table of record locks that all processes share: entries and chains.
//!
//! An entry of the table is two things. As a *lock* it is a range of an inode, its kind and its
//! holder, chained to the others of its chain; as a *chain* (an inode's is found by hash, among the
//! first entries) it carries a lock word, the head, and a counter on which waiters sleep. An entry
//! that carries a chain is a lock of that chain only: a file with one lock costs one cache line and
//! one locked instruction a call.
//!
//! | word | what | written by |
//! |---|---|---|
//! | state | epoch, next in the chain (claimed, waits: who), kind | claimer; chain's holder |
//! | ino, holder, start, end | the lock (of a wait: `wait_graph.rs`) | chain's holder; waiter |
//! | change | low half: counts unlocks; high half: waiters (a hint) | any process, by addition |
//! | chain lock | a process's lock word | its taker |
//! | head | epoch, first entry of the chain, index + 1 | holder of the chain |
//!
//! The locks of an inode stand in its chain as Linux keeps its list: the holders in the order in
//! which they came, the locks of one by their ranges. `F_GETLK` names the first. The entries are
//! the truth, the chain only finds them: a chain whose holder died is strung anew, in the order it
//! had. Where a range is split, new entries are written before old ones shrink, so a death in
//! between never unlocks for others what a shared description still covers.
//!
//! Locks: one chain at a time, and nothing is waited for under it.

mod wait_graph;

use crate::Result;
use crate::medium::layout::{HEADER_LOCKS, LOCK_RECORD, PROCESS_SLOTS};
use crate::medium::lockword;
use crate::open::Opens;
use pmem::Span;
use robust::owner::Owner;
use rustix::io::Errno;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use vfs::{Desc, Guest};
pub(crate) use wait_graph::unlocks;

const STATE: u64 = 0;
const INO: u64 = 8;
const HOLDER: u64 = 16;
const START: u64 = 24;
const END: u64 = 32;
/// Of the chain; behind the words of the lock, so that all but the state of a chain's only lock is
/// written at once.
const HEAD: u64 = 40;
/// Word of a chain: waiters sleep on it.
pub(crate) const CHANGE: u64 = 48;
const CHAIN_LOCK: u64 = 56;
const _: () = assert!(CHAIN_LOCK + 8 == LOCK_RECORD);

/// Entry states, the low byte of the state word.
const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const READ: u64 = 2;
const WRITE: u64 = 3;
/// Not a lock: which holder waits for which.
const WAITS: u64 = 4;
/// The bits of an index + 1, or of a claimer, above them.
const NEXT: u64 = 0xF_FFFF << 8;
const _: () = assert!(PROCESS_SLOTS <= 1 << 9);
/// One waiter in the change word.
pub(crate) const WAITER: u64 = 1 << 32;
/// Entries of a chain that are looked through without making a list of them.
const NEAR: u32 = 8;
/// Chains at most: what an end of a process that has locked looks through.
const CHAINS_MAX: u64 = 1024;

const fn next_of(state: u64) -> u64 {
    (state & NEXT) >> 8
}

/// Who has claimed an entry, or waits, as the state word has it: a slot, and the low 11 bits of its
/// generation. (What a life of the slot has left may be freed while the next one claims entries.)
const fn claimer(slot: u32, generation: u32) -> u64 {
    (slot as u64 | (generation as u64 & 0x7FF) << 9) << 8
}

/// The slot of the process that has claimed an entry.
const fn claiming_slot(state: u64) -> u32 {
    (state >> 8 & 0x1FF) as u32
}

/// Whose a lock is: as it stands in the table, kind (4 bits), then two numbers of 24 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holder(u64);

/// A holder, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Process {
        slot: u32,
        generation: u32,
    },
    Description(Desc),
    Flock(Desc),
    /// A program behind a process: low 12 bits of the slot's generation, and the program's id.
    Guest {
        slot: u32,
        generation: u32,
        pid: u32,
    },
}

impl Holder {
    const PROCESS: u64 = 1;
    const DESCRIPTION: u64 = 2;
    const FLOCK: u64 = 3;
    const EXECUTION: u64 = 4;
    const GUEST: u64 = 5;
    /// Beside the slot of an execution: not the process's own.
    const HOSTED: u32 = 1 << 23;
    /// Bits of a guest's number, above which its process id stands.
    const GUEST_BITS: u32 = 14;

    const fn new(kind: u64, low: u32, high: u32) -> Self {
        Self(kind << 60 | (high as u64) << 24 | low as u64)
    }

    /// A program that the process of a slot serves. Its number and process id must fit.
    pub(crate) fn guest(slot: u32, generation: u32, guest: Guest) -> Result<Self> {
        let number = u64::from(guest.number);
        if guest.pid >> (36 - Self::GUEST_BITS) != 0 || number >> Self::GUEST_BITS != 0 {
            return Err(Errno::INVAL);
        }
        let high = u64::from(guest.pid) << Self::GUEST_BITS | number;
        let low = (generation & 0xFFF) << 9 | slot;
        Ok(Self(Self::GUEST << 60 | high << 24 | u64::from(low)))
    }

    /// Whether it is a program that the process of a slot serves.
    pub(crate) const fn is_guest_of(self, slot: u32, generation: u32) -> bool {
        match self.who() {
            Who::Guest { slot: host, generation: of, .. } => {
                host == slot && of == generation & 0xFFF
            }
            _ => false,
        }
    }

    /// A process: its POSIX locks.
    pub(crate) const fn process(slot: u32, generation: u32) -> Self {
        Self::new(Self::PROCESS, slot, generation)
    }

    /// A description: its own record locks.
    pub(crate) const fn description(desc: Desc) -> Self {
        Self::new(Self::DESCRIPTION, desc.index(), desc.generation())
    }

    /// A description: its `flock` lock.
    pub(crate) const fn flock(desc: Desc) -> Self {
        Self::new(Self::FLOCK, desc.index(), desc.generation())
    }

    /// A process: the program that it executes. Nothing that a program asks for, but kept, found
    /// and dropped as its locks are.
    pub(crate) const fn execution(slot: u32, generation: u32) -> Self {
        Self::new(Self::EXECUTION, slot, generation)
    }

    /// A process: what programs execute that it serves.
    pub(crate) const fn hosted_execution(slot: u32, generation: u32) -> Self {
        Self::new(Self::EXECUTION, slot | Self::HOSTED, generation)
    }

    /// What it is.
    pub(crate) const fn who(self) -> Who {
        let (low, high) = ((self.0 & 0xFF_FFFF) as u32, (self.0 >> 24 & 0xFF_FFFF) as u32);
        match self.0 >> 60 {
            Self::PROCESS | Self::EXECUTION => {
                Who::Process { slot: low & !Self::HOSTED, generation: high }
            }
            Self::DESCRIPTION => Who::Description(Desc::new(low, high)),
            Self::GUEST => Who::Guest {
                slot: low & 0x1FF,
                generation: low >> 9,
                pid: (self.0 >> (24 + Self::GUEST_BITS)) as u32 & 0x3F_FFFF,
            },
            _ => Who::Flock(Desc::new(low, high)),
        }
    }

    /// Whether it may wait as a process does: descriptions are in no circle, as on Linux.
    pub(crate) const fn is_process(self) -> bool {
        matches!(self.0 >> 60, Self::PROCESS | Self::GUEST)
    }

    pub(crate) const fn is_flock(self) -> bool {
        self.0 >> 60 == Self::FLOCK
    }

    pub(crate) const fn is_execution(self) -> bool {
        self.0 >> 60 == Self::EXECUTION
    }

    pub(crate) const fn is_hosted(self) -> bool {
        self.is_execution() && self.0 & Self::HOSTED as u64 != 0
    }

    /// Whether locks of the two can exclude each other: `flock` locks are a world of their own.
    const fn sees(self, other: Self) -> bool {
        self.is_flock() == other.is_flock() && self.is_execution() == other.is_execution()
    }
}

/// A lock as it stands in the table, or as it is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock {
    pub(crate) holder: Holder,
    pub(crate) write: bool,
    pub(crate) start: u64,
    /// Inclusive.
    pub(crate) end: u64,
}

impl Lock {
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    fn touches(&self, other: &Self) -> bool {
        self.start <= other.end.saturating_add(1) && other.start <= self.end.saturating_add(1)
    }

    pub(crate) fn refuses(&self, wanted: &Self) -> bool {
        (self.write || wanted.write)
            && self.overlaps(wanted)
            && self.holder != wanted.holder
            && self.holder.sees(wanted.holder)
    }
}

/// Locks with the indices of their entries, in the chain's order.
pub(crate) type Entries = SmallVec<[(u32, Lock); 4]>;

/// What becomes of a holder's locks.
struct Plan {
    /// Entries that change or go, in the chain's order.
    old: SmallVec<[(u32, Lock); 4]>,
    /// What stands there afterwards, by ascending ranges.
    new: SmallVec<[Lock; 4]>,
    /// The entry before them in the chain, if they have one of the same inode.
    before: Option<u32>,
}

impl Plan {
    /// Makes `range` the holder's on all of it, or unlocks it.
    fn of(all: &Entries, range: &Lock, unlock: bool) -> Self {
        let mut plan = Self { old: SmallVec::new(), new: SmallVec::new(), before: None };
        let mut wanted = *range;
        let mut first = true;
        for &(index, lock) in all {
            if lock.holder != range.holder {
                if first {
                    plan.before = Some(index);
                }
                continue;
            }
            first = false;
            if !unlock && lock.write == range.write && lock.touches(range) {
                wanted.start = wanted.start.min(lock.start);
                wanted.end = wanted.end.max(lock.end);
                plan.old.push((index, lock));
            } else if lock.overlaps(range) {
                plan.old.push((index, lock));
                if lock.start < range.start {
                    plan.new.push(Lock { end: range.start - 1, ..lock });
                }
                if lock.end > range.end {
                    plan.new.push(Lock { start: range.end + 1, ..lock });
                }
            } else if lock.end < range.start {
                plan.before = Some(index);
            }
        }
        if !unlock {
            plan.new.push(wanted);
        }
        plan.new.sort_unstable_by_key(|lock| lock.start);
        plan
    }
}

/// A chain, held. In this order the error of a `Result` of it lies on `at`, which the usual way
/// does not look at: what it lies on is stored in pieces, and a load of the whole waits for these.
#[repr(C)]
pub(crate) struct Chain<'v> {
    volume: &'v Opens,
    /// Offset of the entry that carries the chain.
    pub(crate) at: u64,
    index: u32,
    line: Span<'v, 8>,
    owner: Owner,
}

/// The place of a word in its entry.
const fn index(word: u64) -> usize {
    (word / 8) as usize
}

impl Drop for Chain<'_> {
    fn drop(&mut self) {
        // If the runtime has vanished, every other call fails too.
        let (line, lock) = (&self.line, index(CHAIN_LOCK));
        let _ = lockword::release_word_quickly(self.volume, line, lock, self.owner);
    }
}

impl Chain<'_> {
    /// As [`Chain::set`] where the chain's own entry is all that there is or will be: by far the
    /// commonest case, without a list. `false`: it is not so, and nothing has changed.
    #[inline]
    pub(crate) fn set_alone(&self, ino: u64, range: &Lock, unlock: bool) -> Result<bool> {
        let line = &self.line;
        let [state, has_ino, holder, start] = line.four(index(STATE))?;
        let [end, head, change, _] = line.four(index(END))?;
        let epoch = u64::from(self.volume.epoch) << 32;
        let own = epoch | (u64::from(self.index) + 1);
        if head & !u64::from(u32::MAX) != epoch || head as u32 == 0 {
            if unlock {
                return Ok(true);
            }
            let claimed = state & !u64::from(u32::MAX) == epoch && state & 0xFF != FREE;
            if claimed {
                return Ok(false);
            }
            // The state last: a process that dies before it leaves no lock, and after it its own.
            line.store_four(index(INO), [ino, range.holder.0, range.start, range.end])?;
            line.store(index(HEAD), own)?;
            line.store(index(STATE), self.state(0, range))?;
            return Ok(true);
        }
        let same = head == own
            && next_of(state) == 0
            && (has_ino, holder) == (ino, range.holder.0)
            && (start, end) == (range.start, range.end);
        if !same {
            return Ok(false);
        }
        if unlock {
            line.store(index(HEAD), epoch)?;
            line.store(index(STATE), epoch | FREE)?;
        } else {
            line.store(index(STATE), self.state(0, range))?;
        }
        if change >= WAITER {
            self.wake()?;
        }
        Ok(true)
    }

    /// As [`Chain::set`] where one lock comes that stands apart from the holder's others, or one
    /// goes as a whole. `false`: it is not so, or another lock refuses it; nothing has changed.
    #[inline]
    pub(crate) fn set_apart(&self, ino: u64, range: &Lock, unlock: bool) -> Result<bool> {
        let rt = &self.volume.rt;
        let mut next = self.volume.chain_head(self.at)?;
        let (mut before, mut gone, mut own) = (None, None, false);
        for _ in 0..NEAR {
            let Some(index) = next.checked_sub(1) else { break };
            if next > rt.layout.lock_count {
                return Ok(false);
            }
            let index = index as u32;
            let [state, has_ino, holder, start, end, ..] = rt.line(rt.lock_record(index))?;
            next = next_of(state);
            if has_ino != ino {
                continue;
            }
            let lock = Lock { holder: Holder(holder), write: state & 0xFF == WRITE, start, end };
            if lock.holder != range.holder {
                if !unlock && lock.refuses(range) {
                    return Ok(false);
                }
                if !own {
                    before = Some(index);
                }
                continue;
            }
            own = true;
            if if unlock { lock.overlaps(range) } else { lock.touches(range) } {
                if !unlock || (start, end) != (range.start, range.end) {
                    return Ok(false);
                }
                gone = Some(index);
            } else if end < range.start {
                before = Some(index);
            }
        }
        match (next, unlock, gone) {
            (0, true, Some(index)) => self.remove(index).and_then(|()| self.wake())?,
            (0, true, None) => {}
            (0, false, _) => {
                self.insert(before, self.volume.claim_lock(self.index)?, ino, range)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// All locks of an inode.
    pub(crate) fn locks(&self, ino: u64) -> Result<Entries> {
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
                    holder: Holder(rt.load(at + HOLDER)?),
                    write: state & 0xFF == WRITE,
                    start: rt.load(at + START)?,
                    end: rt.load(at + END)?,
                };
                found.push((index, lock));
            }
            next = next_of(state);
            left -= 1;
        }
        Ok(found)
    }

    fn state(&self, next: u64, lock: &Lock) -> u64 {
        let kind = if lock.write { WRITE } else { READ };
        u64::from(self.volume.epoch) << 32 | next << 8 | kind
    }

    /// Writes a claimed entry and puts it behind another of the chain, or first.
    fn insert(&self, before: Option<u32>, index: u32, ino: u64, lock: &Lock) -> Result<()> {
        let rt = &self.volume.rt;
        let at = rt.lock_record(index);
        rt.store(at + INO, ino)?;
        rt.store(at + HOLDER, lock.holder.0)?;
        rt.store(at + START, lock.start)?;
        rt.store(at + END, lock.end)?;
        let Some(before) = before else {
            rt.store(at + STATE, self.state(self.volume.chain_head(self.at)?, lock))?;
            return self.volume.set_chain_head(self.at, u64::from(index) + 1);
        };
        let place = rt.lock_record(before) + STATE;
        let state = rt.load(place)?;
        rt.store(at + STATE, self.state(next_of(state), lock))?;
        Ok(rt.store(place, state & !NEXT | (u64::from(index) + 1) << 8)?)
    }

    /// Changes range and kind of an entry of the chain: an end that grows before the other moves.
    fn change(&self, index: u32, old: &Lock, new: &Lock) -> Result<()> {
        let rt = &self.volume.rt;
        let at = rt.lock_record(index);
        if new.end > old.end {
            rt.store(at + END, new.end)?;
            rt.store(at + START, new.start)?;
        } else {
            rt.store(at + START, new.start)?;
            rt.store(at + END, new.end)?;
        }
        Ok(rt.store(at + STATE, self.state(next_of(rt.load(at + STATE)?), new))?)
    }

    /// Takes an entry out of the chain and frees it.
    fn remove(&self, index: u32) -> Result<()> {
        let rt = &self.volume.rt;
        let at = rt.lock_record(index);
        let follower = next_of(rt.load(at + STATE)?);
        let mut next = self.volume.chain_head(self.at)?;
        if next == u64::from(index) + 1 {
            self.volume.set_chain_head(self.at, follower)?;
            next = 0;
        }
        let mut left = rt.layout.lock_count;
        while next != 0 && next <= rt.layout.lock_count && left > 0 {
            let before = rt.lock_record(next as u32 - 1) + STATE;
            let state = rt.load(before)?;
            next = next_of(state);
            if next == u64::from(index) + 1 {
                rt.store(before, state & !NEXT | follower << 8)?;
                break;
            }
            left -= 1;
        }
        self.volume.free_lock(index)
    }

    /// Something was unlocked: sleepers look again. (A waiter counts itself under the chain's lock,
    /// so none is overlooked.)
    fn wake(&self) -> Result<()> {
        let rt = &self.volume.rt;
        if rt.load(self.at + CHANGE)? >= WAITER {
            rt.add(self.at + CHANGE, 1)?;
            rt.wake(self.at + CHANGE);
        }
        Ok(())
    }

    /// Makes `range` the holder's (`unlock`: frees it); `all` are the inode's locks, none of which
    /// refuses it. `ENOLCK` if the table is full; then nothing has changed.
    pub(crate) fn set(&self, ino: u64, all: &Entries, range: &Lock, unlock: bool) -> Result<()> {
        let Plan { old, new, before } = Plan::of(all, range, unlock);
        let kept = old.len().min(new.len());
        let mut claimed: SmallVec<[u32; 4]> = SmallVec::new();
        while kept + claimed.len() < new.len() {
            match self.volume.claim_lock(self.index) {
                Ok(index) => claimed.push(index),
                Err(errno) => {
                    for &index in &claimed {
                        self.volume.free_lock(index)?;
                    }
                    return Err(errno);
                }
            }
        }
        let mut place = old.last().map(|&(index, _)| index).or(before);
        for (&index, lock) in claimed.iter().zip(&new[kept..]) {
            self.insert(place, index, ino, lock)?;
            place = Some(index);
        }
        for ((index, old), new) in old.iter().zip(&new).rev() {
            self.change(*index, old, new)?;
        }
        for (index, _) in &old[kept..] {
            self.remove(*index)?;
        }
        // Unlocking, shrinking and turning into a read lock all go through an old entry.
        if old.is_empty() { Ok(()) } else { self.wake() }
    }

    /// Drops all locks of some holders on an inode.
    pub(crate) fn drop_all(&self, ino: u64, of: impl Fn(Holder) -> bool) -> Result<()> {
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

/// How many of so many entries carry chains.
pub(super) fn chains(entries: u64) -> u64 {
    (entries / 16).clamp(2, CHAINS_MAX)
}

impl Opens {
    /// Index of the chain of an inode.
    #[inline]
    fn chain_of(&self, ino: u64) -> u32 {
        let hash = ino.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        ((hash * (self.chains_of_locks - 1)) >> 32) as u32 + 1
    }

    /// Takes the chain of an inode.
    #[inline]
    pub(crate) fn chain(&self, ino: u64) -> Result<Chain<'_>> {
        self.take_chain(self.chain_of(ino))
    }

    /// Takes the lock under which waiters look for a circle, one after another: that of the first
    /// chain, which is no inode's. The caller holds no chain.
    pub(crate) fn waiting_room(&self) -> Result<Chain<'_>> {
        self.take_chain(0)
    }

    #[inline]
    fn take_chain(&self, index: u32) -> Result<Chain<'_>> {
        let at = self.rt.lock_record(index);
        let (line, owner) = (self.rt.span(at)?, self.own());
        lockword::acquire_word(self, &line, self::index(CHAIN_LOCK), owner)?;
        Ok(Chain { volume: self, index, at, line, owner })
    }

    /// Whether there is certainly no lock on the inode.
    #[inline]
    pub(crate) fn chain_is_empty(&self, ino: u64) -> Result<bool> {
        Ok(self.chain_head(self.rt.lock_record(self.chain_of(ino)))? == 0)
    }

    /// First entry of a chain, index + 1; 0: none.
    #[inline]
    fn chain_head(&self, at: u64) -> Result<u64> {
        let word = self.rt.load(at + HEAD)?;
        Ok(if (word >> 32) as u32 == self.epoch { word & u64::from(u32::MAX) } else { 0 })
    }

    fn set_chain_head(&self, at: u64, head: u64) -> Result<()> {
        Ok(self.rt.store(at + HEAD, u64::from(self.epoch) << 32 | head)?)
    }

    /// The word of an entry that this process has claimed, without its kind.
    fn claimed_word(&self) -> u64 {
        u64::from(self.epoch) << 32 | claimer(self.slot(), self.slot_generation())
    }

    /// Claims an entry if it is free.
    fn claim_entry(&self, index: u32) -> Result<bool> {
        let at = self.rt.lock_record(index) + STATE;
        let word = self.rt.load(at)?;
        if (word >> 32) as u32 == self.epoch && word & 0xFF != FREE {
            return Ok(false);
        }
        Ok(self.rt.cas(at, word, self.claimed_word() | CLAIMED)?.is_ok())
    }

    /// Claims a free entry: the chain's own, which no other chain claims, or one that carries no
    /// chain.
    fn claim_lock(&self, chain: u32) -> Result<u32> {
        if self.claim_entry(chain)? {
            return Ok(chain);
        }
        let count = self.rt.layout.lock_count as u32;
        let chains = self.chains_of_locks as u32;
        let (hint, others) = (&self.next_lock, count - chains);
        let start = hint.load(Ordering::Relaxed).wrapping_add(self.slot() * 32);
        for step in 0..others {
            let place = start.wrapping_add(step) % others;
            let index = chains + place;
            if self.holds_lock(index)? {
                continue;
            }
            // Before it is claimed, so that a recoverer of this process looks far enough.
            self.rt.raise(HEADER_LOCKS, u64::from(index) + 1)?;
            if self.claim_entry(index)? {
                hint.store(place.wrapping_sub(self.slot() * 32), Ordering::Relaxed);
                return Ok(index);
            }
        }
        Err(Errno::NOLCK)
    }

    /// Whether an entry is in use, and not free.
    fn holds_lock(&self, index: u32) -> Result<bool> {
        let state = self.rt.load(self.rt.lock_record(index) + STATE)?;
        Ok((state >> 32) as u32 == self.epoch && state & 0xFF != FREE)
    }

    fn free_lock(&self, index: u32) -> Result<()> {
        let free = u64::from(self.epoch) << 32 | FREE;
        Ok(self.rt.store(self.rt.lock_record(index) + STATE, free)?)
    }

    /// Entries from this index on were never used as locks.
    fn locks_used(&self) -> Result<u32> {
        let high = self.rt.load(HEADER_LOCKS)?.max(self.chains_of_locks);
        Ok(high.min(self.rt.layout.lock_count) as u32)
    }

    /// How many entries are locks, or waits for some.
    pub(crate) fn locks_in_use(&self) -> Result<u64> {
        let mut count = 0;
        for index in 0..self.locks_used()? {
            count += u64::from(self.lock_kind(self.rt.lock_record(index))? != FREE);
        }
        Ok(count)
    }

    /// The kind of an entry in use; `FREE` if it is not.
    fn lock_kind(&self, at: u64) -> Result<u64> {
        let state = self.rt.load(at + STATE)?;
        Ok(if (state >> 32) as u32 == self.epoch { state & 0xFF } else { FREE })
    }

    // ---- at the end, and after a death ----------------------------------------------------------

    /// Drops all POSIX locks of a process and its guests, and those on programs: it is dead, or
    /// this one on its way out.
    pub(crate) fn drop_process_locks(&self, slot: u32, generation: u32) -> Result<()> {
        if slot == self.slot() && !self.has_locked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let own = [
            Holder::process(slot, generation),
            Holder::execution(slot, generation),
            Holder::hosted_execution(slot, generation),
        ];
        let is_own = |holder: Holder| own.contains(&holder) || holder.is_guest_of(slot, generation);
        self.drop_locks_of(is_own)
    }

    /// Drops all locks of holders that are gone, or going.
    pub(crate) fn drop_locks_of(&self, is_own: impl Fn(Holder) -> bool) -> Result<()> {
        for index in 0..self.locks_used()? {
            let at = self.rt.lock_record(index);
            let used = matches!(self.lock_kind(at)?, READ | WRITE);
            if used && is_own(Holder(self.rt.load(at + HOLDER)?)) {
                let ino = self.rt.load(at + INO)?;
                self.chain(ino)?.drop_all(ino, &is_own)?;
            }
        }
        Ok(())
    }

    /// Frees what a dead process held of the table itself: chains, which are strung anew, entries
    /// that it had claimed, and those that say for which holders it waits.
    pub(crate) fn free_chain_locks(&self, slot: u32, generation: u32) -> Result<()> {
        let owner = Owner::of_process(slot, generation);
        let (map, base) = self.rt.place();
        let own = u64::from(self.epoch) << 32 | claimer(slot, generation);
        for index in 0..self.locks_used()? {
            let at = self.rt.lock_record(index);
            let state = self.rt.load(at + STATE)?;
            if state == own | WAITS {
                self.count_waiter_out(self.rt.load(at + INO)?)?;
            }
            if state == own | CLAIMED || state == own | WAITS {
                self.free_lock(index)?;
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

    /// Rebuilds a chain, which a dead process still holds, from the entries that belong to it: in
    /// the order in which they stood there. One that it was putting in or taking out goes among
    /// those of its holder.
    fn string_anew(&self, chain: u32) -> Result<()> {
        let mut order = self.order_of_chain(chain)?;
        let what = |index: u32| {
            let at = self.rt.lock_record(index);
            let words = (self.rt.load(at + INO)?, self.rt.load(at + HOLDER)?);
            Ok::<_, Errno>((words, self.rt.load(at + START)?))
        };
        for index in 0..self.locks_used()? {
            if !self.is_lock_of(index, chain)? || order.contains(&index) {
                continue;
            }
            let (whose, start) = what(index)?;
            let mut place = order.len();
            for (at, &other) in order.iter().enumerate().rev() {
                let (of, begins) = what(other)?;
                if of == whose {
                    place = if begins <= start { at + 1 } else { at };
                    if begins <= start {
                        break;
                    }
                }
            }
            order.insert(place, index);
        }
        let mut head = 0;
        for &index in order.iter().rev() {
            let at = self.rt.lock_record(index) + STATE;
            let state = self.rt.load(at)?;
            self.rt.store(at, state & !NEXT | head << 8)?;
            head = u64::from(index) + 1;
        }
        self.set_chain_head(self.rt.lock_record(chain), head)
    }

    /// Whether an entry is a lock of a chain's.
    fn is_lock_of(&self, index: u32, chain: u32) -> Result<bool> {
        let at = self.rt.lock_record(index);
        let used = matches!(self.lock_kind(at)?, READ | WRITE);
        Ok(used && self.chain_of(self.rt.load(at + INO)?) == chain)
    }

    /// The locks of a chain whose holder has died, as far as they hang together.
    fn order_of_chain(&self, chain: u32) -> Result<Vec<u32>> {
        let mut order = Vec::new();
        let mut next = self.chain_head(self.rt.lock_record(chain))?;
        while next != 0 && next <= self.rt.layout.lock_count {
            let index = next as u32 - 1;
            if !self.is_lock_of(index, chain)? || order.contains(&index) {
                break;
            }
            order.push(index);
            next = next_of(self.rt.load(self.rt.lock_record(index) + STATE)?);
        }
        Ok(order)
    }
}

#[cfg(test)]
mod lock_table_tests;
#[cfg(test)]
mod wait_graph_tests;
