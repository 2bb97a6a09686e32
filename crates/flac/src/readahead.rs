//! Misses ahead of a reader in order (`--miss ahead`): a thread of the cache's own fills the next
//! chunks of a file while the program works on what it has.
//!
//! The thread begins with the first read that continues another one. It has one request at a time,
//! that of the reader that asked last; a torn request names a chunk that nobody wants, or a file
//! that is not there. What it fills goes the way of every miss (`cache.rs`), so it may be wrong
//! about what is wanted, not about bytes. A reader that comes to the chunk that is being filled
//! waits for it, for a while.
//!
//! The thread holds no lock between chunks. It ends when nobody has asked for 0.1 s, before the
//! engine does, and when an exec is prepared. A forked child has none until it reads in order
//! itself.

use crate::layout::CHUNK;
use crate::program;
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vfs::Node;
use vfs::versions::Version;

/// Begins a thread that runs this, out of the way of the program: no signal of the program's is
/// handled there. `false`: it cannot be had.
pub type Spawn = fn(Box<dyn FnOnce() + Send>) -> bool;

/// Chunks that are filled ahead.
const CHUNKS: u64 = 4;
/// Files whose readers are known at once.
const READERS: usize = 64;
/// How long a reader waits for a chunk.
const PATIENCE: Duration = Duration::from_millis(50);

/// A thread that nobody has asked for so long ends.
const IDLE: Duration = Duration::from_millis(100);

/// States of the thread.
const NONE: u32 = 0;
const BEGUN: u32 = 1;
const ENDING: u32 = 2;

/// Chunks of a file that somebody is to read next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FillRequest {
    pub(crate) node: Node,
    pub(crate) first: u64,
    pub(crate) end: u64,
}

/// The readers, and what the thread is to do.
pub(crate) struct Readahead {
    pub(crate) spawn: Spawn,
    state: AtomicU32,
    /// Goes up with each request.
    requests: AtomicU32,
    wanted: [AtomicU64; 4],
    /// The key of the chunk that is being filled; 0: none.
    filling: AtomicU64,
    /// Goes up with each chunk that is through.
    filled: AtomicU32,
    /// Where the last reads of files ended.
    ends: [AtomicU64; READERS],
}

fn wait(word: &AtomicU32, value: u32, most: Option<Duration>) {
    let most = most.map(|most| futex::Timespec {
        tv_sec: most.as_secs().cast_signed(),
        tv_nsec: most.subsec_nanos().into(),
    });
    // It may have moved; then there is nothing to wait for.
    let _ = futex::wait(word, futex::Flags::PRIVATE, value, most.as_ref());
}

fn wake(word: &AtomicU32) {
    word.fetch_add(1, Ordering::AcqRel);
    // Nobody may wait.
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX.cast_unsigned());
}

impl Readahead {
    pub(crate) fn new(spawn: Spawn) -> Self {
        Self {
            spawn,
            state: AtomicU32::new(NONE),
            requests: AtomicU32::new(0),
            wanted: Default::default(),
            filling: AtomicU64::new(0),
            filled: AtomicU32::new(0),
            ends: [const { AtomicU64::new(0) }; READERS],
        }
    }

    // ---- readers

    /// A read of these bytes of a file was served. `true`: a thread is to be begun.
    pub(crate) fn read(&self, version: &Version, from: u64, to: u64) -> bool {
        if program::is_stopped() {
            return false;
        }
        let node = version.node;
        let reader = &self.ends[(node.ino ^ u64::from(node.generation)) as usize % READERS];
        if reader.swap(to, Ordering::Relaxed) != from || from == 0 {
            return false;
        }
        let first = to.div_ceil(CHUNK);
        let end = version.size.div_ceil(CHUNK).min(first + CHUNKS);
        let wanted = FillRequest { node, first, end };
        if first >= end || self.wanted() == wanted {
            return false;
        }
        let words = [node.ino, node.generation.into(), first, end];
        for (slot, word) in self.wanted.iter().zip(words) {
            slot.store(word, Ordering::Relaxed);
        }
        wake(&self.requests);
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        self.state.compare_exchange(NONE, BEGUN, order.0, order.1).is_ok()
    }

    /// Waits while a chunk is being filled. `true`: it was.
    pub(crate) fn wait_for(&self, key: u64) -> bool {
        let mut begun = None;
        loop {
            let filled = self.filled.load(Ordering::Acquire);
            if self.filling.load(Ordering::Acquire) != key || program::is_stopped() {
                return begun.is_some();
            }
            let passed = begun.get_or_insert_with(Instant::now).elapsed();
            let Some(left) = PATIENCE.checked_sub(passed) else { return false };
            wait(&self.filled, filled, Some(left));
        }
    }

    // ---- the thread

    fn wanted(&self) -> FillRequest {
        let [ino, generation, first, end] =
            std::array::from_fn(|at| self.wanted[at].load(Ordering::Relaxed));
        FillRequest { node: Node { ino, generation: generation as u32 }, first, end }
    }

    /// Does this with each request, until the end. It asks whether it is to go on.
    pub(crate) fn serve(&self, mut fill: impl FnMut(FillRequest, &dyn Fn() -> bool)) {
        let mut seen = self.requests.load(Ordering::Acquire).wrapping_sub(1);
        while self.state.load(Ordering::Acquire) == BEGUN {
            let now = self.requests.load(Ordering::Acquire);
            if now == seen {
                wait(&self.requests, now, Some(IDLE));
                if self.requests.load(Ordering::Acquire) == seen && self.leaves(seen) {
                    return;
                }
                continue;
            }
            seen = now;
            fill(self.wanted(), &|| self.requests.load(Ordering::Acquire) == now);
        }
        self.state.store(NONE, Ordering::Release);
        wake(&self.filled);
    }

    /// Nobody has asked for a while: the thread ends, so that a process whose other threads have
    /// ended can end. `false`: somebody has asked meanwhile.
    fn leaves(&self, seen: u32) -> bool {
        let order = (Ordering::SeqCst, Ordering::SeqCst);
        if self.state.compare_exchange(BEGUN, NONE, order.0, order.1).is_err() {
            // It is to end.
            return false;
        }
        wake(&self.filled);
        let asked = self.requests.load(Ordering::SeqCst) != seen;
        // Who asked may have begun another one already.
        !(asked && self.state.compare_exchange(NONE, BEGUN, order.0, order.1).is_ok())
    }

    /// A chunk is being filled by this.
    pub(crate) fn fill(&self, key: u64, fill: impl FnOnce()) {
        self.filling.store(key, Ordering::Release);
        fill();
        self.filling.store(0, Ordering::Release);
        wake(&self.filled);
    }

    /// The thread could not be begun.
    pub(crate) fn failed(&self) {
        self.state.store(NONE, Ordering::Release);
        wake(&self.filled);
    }

    // ---- its end

    /// Ends the thread, and waits until it has.
    pub(crate) fn end(&self) {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        if self.state.compare_exchange(BEGUN, ENDING, order.0, order.1).is_err() {
            return;
        }
        wake(&self.requests);
        loop {
            let filled = self.filled.load(Ordering::Acquire);
            if self.state.load(Ordering::Acquire) != ENDING {
                return;
            }
            wait(&self.filled, filled, None);
        }
    }

    /// In a forked child there is no thread.
    pub(crate) fn forked(&self) {
        self.state.store(NONE, Ordering::Release);
        self.filling.store(0, Ordering::Release);
    }
}
