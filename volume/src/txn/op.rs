//! An operation: one modifying call in flight.
//!
//! It owns an *operation record* of the runtime and the lane of the same index. Its life:
//!
//! 1. **locking**: it takes all the locks it needs, inodes in ascending order. Nothing is changed
//!    or allocated yet, so whoever finds a dead owner while waiting here may recover it.
//! 2. **working** ([`Op::work`], which passes the gate): sequence numbers are odd; it allocates,
//!    writes, commits. It waits for nothing that another process holds.
//! 3. [`Op::end`]: sequence numbers even, blocks given up are freed, locks released, record freed.
//!    Dropping an operation before that aborts it: its transaction is rolled back, what it
//!    allocated is freed.
//!
//! Lock order: a description's position lock, the rename lock, inodes by number. The record names
//! every lock *before* it is taken and every lone commit word before it is stored, so a recoverer
//! knows what to release and which lines to flush.

#![expect(clippy::inline_always, reason = "words that are handed on stay in registers")]

use crate::ground::layout::{BLOCK, HEADER_GATE, HEADER_RENAME, INODE, LINE, VOLATILE};
use crate::ground::runtime::Owner;
use crate::inject::{self, Bug, injected};
use crate::inode::{Inode, LIVE_REDO};
use crate::namespace::bucket::Dir;
use crate::volume::Volume;
use crate::{Result, ground::lockword, txn::journal::Transaction};
use pmem::{Dirty, Durable, Gathered, Span};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::hint::cold_path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Record word: the owner (a lock word).
const RECORD_OWNER: u64 = 0;
/// Record word: 0 while locking, 1 while working.
const RECORD_PHASE: u64 = 8;
/// Record words: addresses of the locks taken or being taken.
const RECORD_LOCKS: u64 = 16;
/// Locks an operation may hold.
const LOCKS_MAX: usize = 8;
/// Record words: lines of lone commit stores.
const RECORD_NOTES: u64 = RECORD_LOCKS + LOCKS_MAX as u64 * 8;
/// Notes kept.
const NOTES_MAX: u64 = 16;
/// Record words of `reserve.rs`; they outlive the operation.
pub(crate) const RECORD_INODES: u64 = RECORD_NOTES + NOTES_MAX * 8;
pub(crate) const RECORD_GENERATIONS: u64 = RECORD_INODES + 8;
pub(crate) const RECORD_SEQUENCES: u64 = RECORD_GENERATIONS + 8;
pub(crate) const RECORD_FREED: u64 = RECORD_SEQUENCES + 8;
pub(crate) const RECORD_BLOCK: u64 = RECORD_FREED + 8;
/// Record words of `redo.rs`; they outlive the operation.
pub(crate) const RECORD_REDO: u64 = RECORD_BLOCK + 8;
pub(crate) const RECORD_WORD: u64 = RECORD_REDO + 8;
const _: () = assert!(RECORD_WORD + 8 <= crate::ground::layout::OP_RECORD);

/// A lock's address: an offset in the runtime with this bit set, or one in the region.
const IN_RUNTIME: u64 = 1 << 63;

/// One modifying call in flight.
pub(crate) struct Op<'v> {
    pub(crate) volume: &'v Volume,
    pub(crate) owner: Owner,
    pub(crate) record: Record<'v>,
    pub(crate) transaction: Transaction,
    pub(crate) locks: SmallVec<[u64; 3]>,
    /// Past the gate: the sequence numbers of the locked inodes are odd.
    working: bool,
    notes: u64,
    pending: Gathered<'v>,
    // Most operations need none of these, and an operation is passed on by value: kept small.
    allocated: SmallVec<[(u64, u64); 1]>,
    allocated_inodes: SmallVec<[u64; 1]>,
    freed: SmallVec<[(u64, u64); 1]>,
    freed_inodes: SmallVec<[u64; 1]>,
    /// Unlinked by a step that is already durable: freed whatever comes.
    settled: Vec<(u64, u64)>,
    /// Directories whose number of blocks changes with the next commit, and by how much.
    pub(crate) reshaped: Vec<(Dir, i64)>,
    /// There were such directories, and their count has moved.
    pub(crate) has_reshaped: bool,
    ended: bool,
}

/// A claimed operation record.
#[derive(Clone, Copy)]
pub(crate) struct Record<'v>(pub(crate) Span<'v, RECORD_WORDS>);

/// Words of a record.
const RECORD_WORDS: usize = (crate::ground::layout::OP_RECORD / 8) as usize;

/// The place of a word in its record.
pub(crate) const fn index(word: u64) -> usize {
    (word / 8) as usize
}

impl<'v> Record<'v> {
    #[inline]
    pub(crate) fn new(volume: &'v Volume, index: u32) -> Result<Self> {
        Ok(Self(volume.rt.span(volume.rt.op(index))?))
    }

    /// Names the lock that is taken next; orders that before the loads that follow.
    #[inline(always)]
    pub(crate) fn announce(&self, inode: Inode) -> Result<()> {
        self.0.swap(index(RECORD_LOCKS), inode.lock_offset())?;
        Ok(())
    }

    /// Names a second lock; [`Record::announce`] of the first orders both.
    #[inline]
    pub(crate) fn announce_second(&self, inode: Inode) -> Result<()> {
        Ok(self.0.store(index(RECORD_LOCKS) + 1, inode.lock_offset())?)
    }

    #[inline(always)]
    pub(crate) fn set_working(&self, works: bool) -> Result<()> {
        Ok(self.0.store(index(RECORD_PHASE), u64::from(works))?)
    }

    /// Names the line of a lone commit store.
    #[inline]
    pub(crate) fn note(&self, line: u64) -> Result<()> {
        Ok(self.0.store(index(RECORD_NOTES), line)?)
    }

    /// Names the second such line.
    #[inline]
    pub(crate) fn note_second(&self, line: u64) -> Result<()> {
        Ok(self.0.store(index(RECORD_NOTES) + 1, line)?)
    }

    /// Takes the names of so many locks back, when they are released.
    #[inline]
    pub(crate) fn forget_locks(&self, count: usize) -> Result<()> {
        (0..count).try_for_each(|at| Ok(self.0.store(index(RECORD_LOCKS) + at, 0)?))
    }

    /// Takes the names of two lines back, and that it works.
    #[inline]
    pub(crate) fn forget_work(&self) -> Result<()> {
        self.0.store(index(RECORD_NOTES), 0)?;
        self.0.store(index(RECORD_NOTES) + 1, 0)?;
        self.set_working(false)
    }

    /// Takes the names of so many locks back that are not held; orders that before the loads that
    /// follow.
    pub(crate) fn withdraw_all(&self, count: usize) -> Result<()> {
        for at in 0..count {
            self.0.swap(index(RECORD_LOCKS) + at, 0)?;
        }
        Ok(())
    }

    /// Takes the names back, when the lock is released, and that it works; frees the record.
    #[inline(always)]
    pub(crate) fn give_back(&self, inode: Inode, noted: bool) -> Result<()> {
        debug_assert_eq!(self.0.load(index(RECORD_LOCKS)), Ok(inode.lock_offset()));
        let [lock, note, phase] =
            [RECORD_LOCKS, RECORD_NOTES, RECORD_PHASE].map(|at| (index(at), 0));
        let owner = (index(RECORD_OWNER), 0);
        if noted {
            self.0.store_each([lock, note, phase, owner])?;
        } else {
            self.0.store_each([lock, phase, owner])?;
        }
        Ok(())
    }

    /// Takes the lock's name back; orders that before the loads that follow.
    pub(crate) fn withdraw(&self) -> Result<()> {
        self.0.swap(index(RECORD_LOCKS), 0)?;
        Ok(())
    }

    /// Frees the record.
    #[inline]
    pub(crate) fn free(&self) -> Result<()> {
        Ok(self.0.store(index(RECORD_OWNER), 0)?)
    }
}

/// What a dead operation left, for the recoverer.
pub(crate) struct Remains {
    pub(crate) working: bool,
    pub(crate) locks: Vec<u64>,
    pub(crate) notes: Vec<u64>,
}

impl Volume {
    /// Starts an operation; waits while all records are in use.
    pub(crate) fn begin(&self) -> Result<Op<'_>> {
        self.check_writable()?;
        self.begin_any()
    }

    /// As [`Volume::begin`], also on a read-only attachment (to take locks for reading).
    pub(crate) fn begin_any(&self) -> Result<Op<'_>> {
        let owner = self.claim_record()?;
        Ok(Op {
            volume: self,
            owner,
            record: Record::new(self, owner.op())?,
            transaction: Transaction::default(),
            locks: SmallVec::new(),
            working: false,
            notes: 0,
            pending: Gathered::default(),
            allocated: SmallVec::new(),
            allocated_inodes: SmallVec::new(),
            freed: SmallVec::new(),
            freed_inodes: SmallVec::new(),
            settled: Vec::new(),
            reshaped: Vec::new(),
            has_reshaped: false,
            ended: false,
        })
    }

    /// Takes a free operation record, this CPU's if it is free.
    fn claim_record(&self) -> Result<Owner> {
        let count = self.rt.layout.op_count as u32;
        let first = self.own_record();
        let mut rounds = 0;
        loop {
            for step in 0..count {
                let index = first + step;
                let index = if index < count { index } else { index - count };
                if let Some(owner) = self.try_claim(&Record::new(self, index)?, index)? {
                    return Ok(owner);
                }
            }
            rounds += 1;
            if rounds % 8 == 0 {
                self.bury_dead_operations()?;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// This CPU's operation record.
    #[inline]
    pub(crate) fn own_record(&self) -> u32 {
        let (cpu, count) = (current_cpu(), self.rt.layout.op_count as u32);
        if cpu < count { cpu } else { cpu % count }
    }

    /// Takes an operation record, if it is free.
    #[inline(always)]
    pub(crate) fn try_claim(&self, record: &Record<'_>, at: u32) -> Result<Option<Owner>> {
        let owner = Owner::new(at, self.slot(), self.slot_generation());
        let word = record.0.load(index(RECORD_OWNER))?;
        if Owner::of_word(word, self.epoch).is_some()
            || record.0.cas(index(RECORD_OWNER), word, owner.word(self.epoch))?.is_err()
        {
            cold_path();
            return Ok(None);
        }
        if !self.local.attached.load(Ordering::SeqCst) && !self.is_leaving_thread() {
            cold_path();
            // Another thread is detaching this process, and looks for operations after it has said
            // so: it has seen this one, or this one sees that it must not be.
            self.clear_record(owner)?;
            return Err(Errno::BADF);
        }
        Ok(Some(owner))
    }

    /// The owner of an operation record, if it is in use.
    pub(crate) fn operation_owner(&self, index: u32) -> Result<Option<Owner>> {
        Ok(Owner::of_word(self.rt.load(self.rt.op(index) + RECORD_OWNER)?, self.epoch))
    }

    /// Whether the operation is past its locking phase.
    pub(crate) fn operation_works(&self, index: u32) -> Result<bool> {
        Ok(self.rt.load(self.rt.op(index) + RECORD_PHASE)? != 0)
    }

    /// What the dead owner of a record left behind.
    pub(crate) fn operation_remains(&self, index: u32) -> Result<Remains> {
        let record = self.rt.op(index);
        let words = |from: u64, count: u64| -> Result<Vec<u64>> {
            let all = (0..count).map(|i| self.rt.load(record + from + i * 8));
            let mut found = all.collect::<core::result::Result<Vec<_>, _>>()?;
            found.retain(|&word| word != 0);
            Ok(found)
        };
        Ok(Remains {
            working: self.operation_works(index)?,
            locks: words(RECORD_LOCKS, LOCKS_MAX as u64)?,
            notes: words(RECORD_NOTES, NOTES_MAX)?,
        })
    }

    /// Whether an operation has an inode's lock.
    pub(crate) fn owns_lock(&self, owner: Owner, inode: Inode) -> bool {
        let word = self.volatile_map().shared_load(inode.lock_offset());
        word.is_ok_and(|word| Owner::of_word(word, self.epoch) == Some(owner))
    }

    /// Frees what the dead `owner` holds: the sequence numbers it left odd become even, its locks
    /// are released, its record is free. The caller has undone its lane and flushed its lines.
    pub(crate) fn release_remains(&self, owner: Owner, remains: &Remains) -> Result<()> {
        for &lock in remains.locks.iter().rev() {
            if let Some(inode) = inode_of_lock(lock) {
                let (map, at) = self.lock_place(lock);
                if Owner::of_word(map.shared_load(at)?, self.epoch) == Some(owner) {
                    self.after_owner_died(inode)?;
                }
            }
            let (map, at) = self.lock_place(lock);
            lockword::release(self, map, at, owner)?;
        }
        self.clear_record(owner)?;
        let inodes = remains.locks.iter().filter_map(|&lock| inode_of_lock(lock));
        inodes.into_iter().try_for_each(|inode| self.retry_extent(inode))
    }

    /// The inodes that operations hold or wait for: not to be freed by a sweep while they wait at
    /// the gate.
    pub(crate) fn inodes_of_operations(&self) -> Result<Vec<Inode>> {
        let mut inodes = Vec::new();
        for index in 0..self.rt.layout.op_count as u32 {
            if self.operation_owner(index)?.is_some() {
                let locks = self.operation_remains(index)?.locks;
                inodes.extend(locks.iter().filter_map(|lock| inode_of_lock(*lock)));
            }
        }
        inodes.retain(|inode| self.identity(*inode).is_ok());
        Ok(inodes)
    }

    /// Whether an operation holds, or is about to take, a lock of an inode in this range of the
    /// region. Whoever wants to make something else of the range first takes its inodes out of use,
    /// then asks.
    pub(crate) fn is_announced(&self, range: std::ops::Range<u64>) -> Result<bool> {
        for index in 0..self.rt.layout.op_count as u32 {
            let record = self.rt.op(index) + RECORD_LOCKS;
            for word in 0..LOCKS_MAX as u64 {
                if range.contains(&self.rt.load(record + word * 8)?) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn clear_record(&self, owner: Owner) -> Result<()> {
        let record = self.rt.op(owner.op());
        for at in (RECORD_PHASE..RECORD_NOTES + NOTES_MAX * 8).step_by(8) {
            self.rt.store(record + at, 0)?;
        }
        self.rt.swap(record + RECORD_OWNER, 0)?;
        Ok(())
    }

    fn lock_place(&self, lock: u64) -> (&pmem::Region, u64) {
        if lock & IN_RUNTIME == 0 {
            (self.volatile_map(), lock)
        } else {
            let (map, base) = self.rt.place();
            (map, base + (lock & !IN_RUNTIME))
        }
    }
}

/// The CPU that this thread runs on, 0 if the kernel does not tell.
#[inline]
pub(crate) fn current_cpu() -> u32 {
    // SAFETY: no arguments; glibc reads it from memory that the kernel keeps up to date.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// The inode whose lock this is, if it is one's.
pub(crate) fn inode_of_lock(lock: u64) -> Option<Inode> {
    (lock & IN_RUNTIME == 0).then(|| Inode((lock - VOLATILE) / INODE))
}

impl<'v> Op<'v> {
    /// Index of the record and of the lane.
    pub(crate) fn index(&self) -> u32 {
        self.owner.op()
    }

    /// Takes the locks of all these inodes, in ascending order, each once.
    pub(crate) fn lock(&mut self, inodes: &[Inode]) -> Result<()> {
        // They are few: each time the least of those that are left.
        let mut next = inodes.iter().map(|inode| inode.0).min();
        while let Some(ino) = next {
            self.lock_one(Inode(ino))?;
            next = inodes.iter().map(|inode| inode.0).filter(|&other| other > ino).min();
        }
        Ok(())
    }

    fn lock_one(&mut self, inode: Inode) -> Result<()> {
        let (volume, lock) = (self.volume, inode.lock_offset());
        let word = self.announce(lock)?;
        // A name that was found a moment ago may be gone, and what was its inode a file's block
        // by now. If it is not: what is announced stays an inode ([`Volume::is_announced`]).
        if !volume.inode_in_use(inode.0)? && !volume.damaged()? {
            self.record.0.swap(word, 0)?;
            volume.retry_extent(inode)?;
            return Err(Errno::STALE);
        }
        let live = volume.live_lines(inode)?;
        let free = u64::from(volume.epoch) << 32;
        if live.swap_lock(free, self.owner.word(volume.epoch))? {
            self.locks.push(lock);
        } else {
            self.acquire(lock)?;
        }
        if live.is_ready(volume.epoch)? {
            return Ok(());
        }
        volume.first_use(inode, self.record.sequence(volume)?)
    }

    /// Takes the volume-wide lock for renames of directories; before any inode's.
    pub(crate) fn lock_rename(&mut self) -> Result<()> {
        self.take(HEADER_RENAME | IN_RUNTIME)
    }

    fn take(&mut self, lock: u64) -> Result<()> {
        self.announce(lock)?;
        self.acquire(lock)
    }

    /// Names in the record the lock that is taken next; gives the word's place in it.
    fn announce(&mut self, lock: u64) -> Result<usize> {
        assert!(!self.working && self.locks.len() < LOCKS_MAX, "locks come first");
        let word = index(RECORD_LOCKS) + self.locks.len();
        // A read-modify-write orders the announcement before the loads that follow it.
        self.record.0.swap(word, lock)?;
        Ok(word)
    }

    fn acquire(&mut self, lock: u64) -> Result<()> {
        let (map, offset) = self.volume.lock_place(lock);
        lockword::acquire(self.volume, map, offset, self.owner)?;
        self.locks.push(lock);
        Ok(())
    }

    /// Gives all locks back, still in the locking phase (a check under the locks failed: retry).
    pub(crate) fn unlock(&mut self) -> Result<()> {
        assert!(!self.working);
        self.release_locks()
    }

    fn release_locks(&mut self) -> Result<()> {
        while let Some(lock) = self.locks.pop() {
            let (map, offset) = self.volume.lock_place(lock);
            if self.working {
                lockword::release_quickly(self.volume, map, offset, self.owner)?;
            } else {
                // What was locked may be gone, and its number somebody else's, who has set the lock
                // free: between a look and a store a third one may have taken it.
                lockword::release(self.volume, map, offset, self.owner)?;
            }
            let word = index(RECORD_LOCKS) + self.locks.len();
            // One that worked on an inode knows that it was there.
            match inode_of_lock(lock) {
                Some(inode) if !self.working => {
                    // A read-modify-write, for the order that [`Volume::is_announced`] needs.
                    self.record.0.swap(word, 0)?;
                    self.volume.retry_extent(inode)?;
                }
                _ => self.record.0.store(word, 0)?,
            }
        }
        Ok(())
    }

    /// Ends the locking phase: passes the gate, and makes the sequence numbers of the locked inodes
    /// odd.
    pub(crate) fn work(&mut self) -> Result<()> {
        self.work_as(false)
    }

    /// As [`Op::work`], but its own lane's records of the locked inodes stand: it is about to store
    /// another one, or says that it does not ([`Op::settle_kept`]).
    pub(crate) fn work_keeping(&mut self) -> Result<()> {
        self.work_as(true)
    }

    fn work_as(&mut self, keeps: bool) -> Result<()> {
        let rt = &self.volume.rt;
        loop {
            // A read-modify-write orders this store before the load of the gate.
            self.record.0.swap(index(RECORD_PHASE), 1)?;
            let gate = rt.load(HEADER_GATE)?;
            match Owner::of_word(gate, self.volume.epoch) {
                Some(holder) if holder != self.owner => {
                    self.record.set_working(false)?;
                    if !rt.wait(HEADER_GATE, gate as u32, Duration::from_millis(20)) {
                        self.volume.bury_if_dead(holder)?;
                    }
                }
                _ => break,
            }
        }
        self.working = true;
        if !self.volume.local.worked.load(Ordering::Relaxed) {
            self.volume.local.worked.store(true, Ordering::Relaxed);
        }
        if self.turn_sequences(1)? & LIVE_REDO != 0 { self.settle_redos(keeps) } else { Ok(()) }
    }

    /// After a roll-back: the commit lines are what they were before.
    fn forget_commits(&self, undone: bool) -> Result<()> {
        let inodes = self.locks.iter().filter_map(|&lock| inode_of_lock(lock));
        if undone {
            inodes.into_iter().try_for_each(|ino| self.volume.forget_commit(ino))
        } else {
            Ok(())
        }
    }

    /// Makes the sequence numbers of the locked inodes odd (1) or even (0); gives all their flags.
    fn turn_sequences(&self, parity: u64) -> Result<u64> {
        let mut flags = 0;
        for &lock in &self.locks {
            if let Some(inode) = inode_of_lock(lock) {
                flags |= self.volume.live_lines(inode)?.turn(parity)?;
            }
        }
        Ok(flags)
    }

    /// Adds stores to what the next fence must cover.
    pub(crate) fn pend(&mut self, stores: impl Into<Gathered<'v>>) {
        self.pending.add(stores);
    }

    /// Whether there are stores that the next fence must cover.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// One fence for everything pended.
    pub(crate) fn fence(&mut self) -> Durable<'v> {
        let pending = std::mem::take(&mut self.pending);
        pending.fence().unwrap_or_else(|| self.volume.region.fence())
    }

    /// As [`Op::fence`], unless this fault is injected: then nothing is fenced.
    #[inline]
    pub(crate) fn fence_unless(&mut self, bug: Bug) -> Durable<'v> {
        if injected(bug) { inject::forged() } else { self.fence() }
    }

    /// Names a line that will be changed by a lone commit store (outside a transaction), so that a
    /// recoverer flushes it if this process dies before it has.
    pub(crate) fn note(&mut self, offset: u64) -> Result<()> {
        let word = index(RECORD_NOTES) + (self.notes % NOTES_MAX) as usize;
        self.notes += 1;
        Ok(self.record.0.store(word, offset / LINE * LINE)?)
    }

    /// Stores a lone commit word and makes it durable: the point at which the operation has
    /// happened.
    pub(crate) fn commit_word(
        &mut self,
        offset: u64,
        value: u64,
        after: &Durable<'_>,
    ) -> Result<Durable<'v>> {
        self.note(offset)?;
        // PERSIST: what this word publishes is durable (the witness); the word itself must be
        // before the locks go.
        let stored = self.volume.region.commit64(offset, value, after)?;
        Ok(self.settle_commit(stored))
    }

    /// As [`Op::commit_word`], of a word that takes something away and publishes nothing.
    pub(crate) fn withdraw_by_word(&mut self, offset: u64, value: u64) -> Result<Durable<'v>> {
        self.note(offset)?;
        let stored = self.volume.region.store64(offset, value)?;
        Ok(self.settle_commit(stored))
    }

    fn settle_commit(&mut self, stored: Dirty<'v>) -> Durable<'v> {
        if !injected(Bug::NameNotFlushed) {
            self.pend(stored.flush());
        }
        self.fence()
    }

    /// The allocator tells what it gave to this operation.
    pub(crate) fn record_allocated(&mut self, block: u64, blocks: u64) {
        self.allocated.push((block, blocks));
    }

    /// The allocator tells that it gave an inode to this operation.
    pub(crate) fn record_allocated_inode(&mut self, ino: u64) {
        self.allocated_inodes.push(ino);
    }

    /// Blocks that the operation unlinks: freed at its end, when the unlinking is durable.
    pub(crate) fn free_later(&mut self, block: u64, blocks: u64) {
        if injected(Bug::FreedEarly) && self.volume.release_blocks(block, blocks).is_ok() {
            return;
        }
        self.freed.push((block, blocks));
    }

    /// An inode that the operation unlinks: freed at its end.
    pub(crate) fn free_inode_later(&mut self, ino: u64) {
        self.freed_inodes.push(ino);
    }

    /// What was allocated so far is about to be reachable: it stays in use even if the operation is
    /// aborted.
    pub(crate) fn keep_allocated(&mut self) {
        self.allocated.clear();
    }

    /// A step of a longer operation is durable: what was allocated so far is in use, what was
    /// unlinked is free, even if the operation is aborted later.
    pub(crate) fn settle(&mut self) {
        self.allocated.clear();
        self.allocated_inodes.clear();
        self.settled.extend(self.freed.drain(..));
    }

    /// Ends the operation successfully. Everything it committed is durable.
    pub(crate) fn end(mut self) -> Result<()> {
        assert!(!self.transaction.is_open(), "a transaction is left open");
        self.ended = true;
        if self.has_pending() {
            let _ = self.fence();
        }
        self.finish(true)?;
        if self.volume.local.sparse.load(Ordering::Relaxed) != 0 {
            self.volume.empty_sparse_chunk();
        }
        Ok(())
    }

    /// Of what an abort would free, blocks whose memory cannot be read stay allocated until the
    /// next sweep: or the next operation would get the same ones again, and fail as this one.
    #[cold]
    fn keep_lost_blocks(&mut self) {
        let volume = self.volume;
        let lost = |run: &(u64, u64)| (run.0..run.0 + run.1).any(|at| volume.is_lost_block(at));
        if self.allocated.iter().any(lost) {
            let all = std::mem::take(&mut self.allocated);
            let blocks = all.iter().flat_map(|run| run.0..run.0 + run.1);
            self.allocated =
                blocks.filter(|at| !volume.is_lost_block(*at)).map(|at| (at, 1)).collect();
        }
        self.allocated_inodes.retain(|ino| !volume.is_lost_block(*ino * INODE / BLOCK));
    }

    fn finish(&mut self, committed: bool) -> Result<()> {
        let volume = self.volume;
        if self.working {
            self.turn_sequences(0)?;
        }
        if !committed {
            self.keep_lost_blocks();
        }
        let blocks = if committed { &self.freed } else { &self.allocated };
        for &(block, count) in blocks.iter().chain(&self.settled) {
            volume.release_blocks(block, count)?;
        }
        self.release_locks()?;
        // Behind the locks: an inode's extent is not given back while a lock in it is announced.
        let inodes = if committed { &self.freed_inodes } else { &self.allocated_inodes };
        for &ino in inodes {
            volume.give_back_inode(&self.record, self.index(), ino)?;
        }
        for note in 0..self.notes.min(NOTES_MAX) as usize {
            self.record.0.store(index(RECORD_NOTES) + note, 0)?;
        }
        self.record.set_working(false)?;
        self.record.free()
    }
}

impl Drop for Op<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        // An abort: nothing was committed. If even that fails (the region vanished), the record
        // stays taken and whoever recovers this process finds it.
        if self.has_pending() {
            let _ = self.fence();
        }
        let undone = self.transaction.is_open();
        if self.roll_back().and_then(|()| self.forget_commits(undone)).is_ok() {
            let _ = self.finish(false);
        }
    }
}
