//! The mark phase: everything that is reachable from the root directory, verified on the way.
//!
//! What is reachable is allocated, everything else is free: recovery publishes this, fsck compares
//! it with the free map. It only reads, visits each inode once (hard links), and keeps what it
//! finds in memory of this process. A failed check is a [`FsckFault`]; the walk goes on beside it,
//! so what lies behind a damaged word is not marked: a mark with faults must not be published.
//!
//! Several threads share the work: an item is a directory, or some buckets of one, so that a single
//! directory with a million names is shared out as well. The work grows with the number of files
//! and of map nodes, not with the size of the volume (but for one record a chunk). A mark of one
//! thread asks nothing of the C library: it may run inside the program's first `malloc`, and to
//! make a thread, or only a scope of threads, takes memory from there.
//!
//! Nothing changes meanwhile: the caller is the first to attach, keeps the gate closed, or works on
//! a private copy.

use crate::inode::Inode;
use crate::recovery::Recoveries;
use crate::recovery::fault::{FsckFault, LostData};
use crate::recovery::reachability::Reached;
use crate::recovery::traversal::{NameSeen, Place, Visit, Work};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Threads of a mark at most: more wait for the memory.
const THREADS_MAX: usize = 8;
/// Items for which it is not worth starting threads.
const ENOUGH: u64 = 16;
/// Items after which the progress is told.
const STRIDE: u64 = 16;

/// Counts of what was found.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) files: u64,
    pub(crate) directories: u64,
    pub(crate) others: u64,
    pub(crate) data_blocks: u64,
    pub(crate) metadata_blocks: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.others += other.others;
        self.data_blocks += other.data_blocks;
        self.metadata_blocks += other.metadata_blocks;
    }
}

/// How thoroughly to look.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Depth {
    /// Structures that decide what is allocated.
    Structure,
    /// Also structures that only readers of contents use: targets, attributes.
    Thorough,
    /// Also which data a pager knows to be lost.
    Known,
    /// Also every byte of every file, whether it can be read at all.
    Data,
}

/// What one thread found, or all of them.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) faults: Vec<FsckFault>,
    /// What of files cannot be read.
    pub(crate) lost: Vec<LostData>,
    /// Files with blocks beyond their end that no call asked for, or with a size that is newer than
    /// the durable one.
    pub(crate) leftovers: Vec<Inode>,
    /// Files whose newest commit slot is void if their tail does not match its checksum.
    pub(crate) checksummed: Vec<Inode>,
    pub(crate) counts: Counts,
    /// Inodes with a name that a process that died was about to free.
    pub(crate) spared: Vec<Inode>,
    pub(crate) directories: Vec<Arc<Place>>,
    /// Names of inodes that have, or should have, other than one.
    pub(crate) names: Vec<NameSeen>,
}

impl Found {
    fn add(&mut self, mut other: Self) {
        self.faults.append(&mut other.faults);
        self.lost.append(&mut other.lost);
        self.leftovers.append(&mut other.leftovers);
        self.checksummed.append(&mut other.checksummed);
        self.counts.add(&other.counts);
        self.spared.append(&mut other.spared);
        self.directories.append(&mut other.directories);
        self.names.append(&mut other.names);
    }
}

/// What the threads of a mark share.
pub(crate) struct Shared<'v> {
    pub(crate) volume: &'v Recoveries,
    pub(crate) depth: Depth,
    pub(crate) reached: Reached,
    queue: Mutex<Vec<Work>>,
    /// Items in the queue, as a hint.
    queued: AtomicU64,
    /// Items known, and done.
    known: AtomicU64,
    done: AtomicU64,
    threads: u64,
}

impl Shared<'_> {
    /// Whether the queue has too little for all threads.
    pub(crate) fn is_hungry(&self) -> bool {
        self.threads > 1 && self.queued.load(Ordering::Relaxed) < 2 * self.threads
    }

    pub(crate) fn know_another(&self) {
        self.known.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn offer(&self, work: Work) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push(work);
        self.queued.store(queue.len() as u64, Ordering::Relaxed);
    }

    fn take(&self) -> Option<Work> {
        if self.queued.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let work = queue.pop();
        self.queued.store(queue.len() as u64, Ordering::Relaxed);
        work
    }

    /// Works until everything that is known is done.
    fn work(&self, visit: &mut Visit<'_, '_>, mut progress: impl FnMut(u64, u64)) {
        loop {
            if let Some(work) = visit.next().or_else(|| self.take()) {
                let item = Item(self);
                visit.perform(work);
                let done = item.done();
                if done.is_multiple_of(STRIDE) {
                    progress(done, self.known.load(Ordering::Relaxed));
                }
            } else {
                // An item is known before the one that it was found by is done.
                let done = self.done.load(Ordering::Acquire);
                if done == self.known.load(Ordering::Acquire) {
                    return;
                }
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }
}

/// An item that is being worked on. It counts as done even if the work panics, or the other threads
/// would wait for it for ever.
struct Item<'s, 'v>(&'s Shared<'v>);

impl Item<'_, '_> {
    /// The number of items done, this one included.
    fn done(self) -> u64 {
        let shared = self.0;
        drop(self);
        shared.done.load(Ordering::Relaxed)
    }
}

impl Drop for Item<'_, '_> {
    fn drop(&mut self) {
        self.0.done.fetch_add(1, Ordering::AcqRel);
    }
}

impl<'v> Shared<'v> {
    /// Works alone while there is little to do; `true` if all is done.
    fn work_alone(&self, visit: &mut Visit<'_, 'v>) -> bool {
        loop {
            let (done, known) =
                (self.done.load(Ordering::Relaxed), self.known.load(Ordering::Relaxed));
            if done == known {
                return true;
            }
            let Some(work) = visit.next().or_else(|| self.take()) else { return false };
            let item = Item(self);
            visit.perform(work);
            item.done();
            if known > done + ENOUGH {
                return false;
            }
        }
    }

    /// Works until all is done, beside other threads; gives what these found.
    fn work_with_helpers(
        &self,
        visit: &mut Visit<'_, 'v>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Vec<Found> {
        std::thread::scope(|scope| {
            self.volume.bring_helpers();
            let helper = || {
                let mut visit = Visit::new(self);
                self.work(&mut visit, |_, _| {});
                visit.found
            };
            // Where no thread can be had, this one does it all.
            let helpers: Vec<_> = (1..self.threads)
                .map_while(|_| std::thread::Builder::new().spawn_scoped(scope, helper).ok())
                .collect();
            self.work(visit, progress);
            let joined = helpers.into_iter().map(std::thread::ScopedJoinHandle::join);
            // A thread that panicked has not found all.
            joined.map(|found| found.unwrap_or_else(|why| std::panic::resume_unwind(why))).collect()
        })
    }
}

/// A mark in progress, then its result.
pub(crate) struct Mark<'v> {
    shared: Shared<'v>,
    pub(crate) found: Found,
    /// Of the extra roots, those that no name leads to.
    pub(crate) nameless: Vec<Inode>,
}

/// As many threads as there are CPUs, within reason.
pub(crate) fn all_threads() -> usize {
    os::processors().min(THREADS_MAX)
}

impl<'v> Mark<'v> {
    pub(crate) fn new(volume: &'v Recoveries, depth: Depth, threads: usize) -> Self {
        let shared = Shared {
            volume,
            depth,
            reached: Reached::new(volume.chunks()),
            queue: Mutex::new(Vec::new()),
            queued: AtomicU64::new(0),
            known: AtomicU64::new(0),
            done: AtomicU64::new(0),
            threads: threads.max(1) as u64,
        };
        Self { shared, found: Found::default(), nameless: Vec::new() }
    }

    /// What was reached.
    pub(crate) fn reached(&self) -> &Reached {
        &self.shared.reached
    }

    /// Marks everything reachable from the root directory and from `extra_roots` (inodes without a
    /// name that are open, or that a repair has found). `progress` hears items of work done and
    /// known.
    pub(crate) fn run(&mut self, extra_roots: &[Inode], progress: &mut dyn FnMut(u64, u64)) {
        let mut visit = Visit::new(&self.shared);
        visit.root();
        let more = if self.shared.work_alone(&mut visit) {
            Vec::new()
        } else if self.shared.threads == 1 {
            self.shared.work(&mut visit, &mut *progress);
            Vec::new()
        } else {
            self.shared.work_with_helpers(&mut visit, &mut *progress)
        };
        // After everything that has a name: some of these may have one.
        for &inode in extra_roots {
            if visit.nameless(inode) {
                self.nameless.push(inode);
            }
            self.shared.work(&mut visit, &mut *progress);
        }
        self.found.add(visit.found);
        for found in more {
            self.found.add(found);
        }
        self.finish();
    }

    /// Judges faults that only the whole mark shows, and puts all in an order that does not depend
    /// on the threads.
    fn finish(&mut self) {
        let mut faults = std::mem::take(&mut self.found.faults);
        for place in std::mem::take(&mut self.found.directories) {
            faults.extend(place.judge());
        }
        faults.append(&mut self.check_names());
        faults.sort_by(|a, b| (&a.place, a.code, &a.meaning).cmp(&(&b.place, b.code, &b.meaning)));
        self.found.faults = faults;
        self.found.leftovers.sort_unstable_by_key(|inode| inode.0);
        self.found.checksummed.sort_unstable_by_key(|inode| inode.0);
        self.found.spared.sort_unstable_by_key(|inode| inode.0);
    }

    fn check_names(&mut self) -> Vec<FsckFault> {
        let mut by_inode: HashMap<u64, Vec<NameSeen>> = HashMap::new();
        for name in std::mem::take(&mut self.found.names) {
            by_inode.entry(name.inode.0).or_default().push(name);
        }
        by_inode.into_values().filter_map(|seen| NameSeen::judge(&seen)).collect()
    }
}
