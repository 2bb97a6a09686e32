//! What this process knows of its descriptors: one word a number.
//!
//! - *unknown*: it was not opened by a call that the engine saw, in this process. The kernel serves
//!   it.
//! - *plain*: it is no file that the engine serves.
//! - *fresh*: opened here; no other process has it. It is served from the first calls that move
//!   data.
//! - *served*: it stands for a [`Description`], shared by its duplicates.
//!
//! A description is private to the process until something may pass it on: then it is *handed*: the
//! kernel's own file position counts from there on, and the kernel serves its reads and writes.
//!
//! A word with a description counts as one reference to it. Bit 0 of the word is a lock, held for
//! the few instructions of taking another reference.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::file::File;

/// Descriptors at and beyond this number are the kernel's.
pub const NUMBERS: usize = 1 << 20;

const UNKNOWN: usize = 0;
const PLAIN: usize = 2;
/// Plus 4 for each call that has moved data.
const FRESH: usize = 4;
const FRESH_STEP: usize = 4;
/// Words from here on are addresses.
const ADDRESSES: usize = 4096;
const LOCKED: usize = 1;

static WORDS: [AtomicUsize; NUMBERS] = [const { AtomicUsize::new(UNKNOWN) }; NUMBERS];
/// No number beyond was ever used.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

/// A position that only the kernel knows: it has appended.
pub const AT_KERNEL: u64 = u64::MAX;

/// An open file description that is private to this process, or was.
pub struct Description {
    /// The file.
    pub file: Arc<File>,
    /// It may be read.
    pub reads: bool,
    /// It may be written.
    pub writes: bool,
    /// `O_APPEND`.
    pub appends: AtomicBool,
    handed: AtomicBool,
    /// Or [`AT_KERNEL`].
    position: Mutex<u64>,
}

impl Description {
    /// One that stands at `position`; it is counted among the file's users by now.
    pub fn new(file: Arc<File>, reads: bool, writes: bool, appends: bool, position: u64) -> Self {
        Self {
            file,
            reads,
            writes,
            appends: AtomicBool::new(appends),
            handed: AtomicBool::new(false),
            position: Mutex::new(position),
        }
    }

    /// Its position, locked.
    pub fn position(&self) -> MutexGuard<'_, u64> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the kernel's position counts.
    pub fn is_handed(&self) -> bool {
        self.handed.load(Ordering::Acquire)
    }

    /// From now on it does; the position is locked.
    pub fn hand(&self) {
        self.handed.store(true, Ordering::Release);
    }
}

/// What a number stands for.
pub enum Slot {
    /// See the head.
    Unknown,
    /// See the head.
    Plain,
    /// And so many calls have moved data.
    Fresh(usize),
    /// See the head.
    Served(Arc<Description>),
}

fn word(fd: RawFd) -> Option<&'static AtomicUsize> {
    WORDS.get(usize::try_from(fd).ok()?)
}

/// What `fd` stands for.
#[inline]
pub fn get(fd: RawFd) -> Slot {
    let Some(word) = word(fd) else { return Slot::Unknown };
    loop {
        let value = word.load(Ordering::Acquire);
        match value & !LOCKED {
            UNKNOWN => return Slot::Unknown,
            PLAIN => return Slot::Plain,
            fresh if fresh < ADDRESSES => return Slot::Fresh(fresh / FRESH_STEP - 1),
            address => {
                let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
                if value & LOCKED == 0
                    && word.compare_exchange(value, value | LOCKED, acquire, relaxed).is_ok()
                {
                    let at = address as *const Description;
                    // SAFETY: the word counts as a reference and is locked: it cannot go away.
                    let description = unsafe {
                        Arc::increment_strong_count(at);
                        Arc::from_raw(at)
                    };
                    word.store(value, Ordering::Release);
                    return Slot::Served(description);
                }
                std::hint::spin_loop();
            }
        }
    }
}

/// How many calls have moved data of `fd`, if it is fresh; `None`: it is something else.
#[inline]
pub fn fresh(fd: RawFd) -> Option<usize> {
    let value = word(fd)?.load(Ordering::Acquire) & !LOCKED;
    (FRESH..ADDRESSES).contains(&value).then(|| value / FRESH_STEP - 1)
}

/// Whether nothing is known of `fd`.
pub fn is_unknown(fd: RawFd) -> bool {
    word(fd).is_none_or(|word| word.load(Ordering::Acquire) & !LOCKED == UNKNOWN)
}

/// Whether `fd` still stands for `description`.
#[inline]
pub fn stands_for(fd: RawFd, description: &Arc<Description>) -> bool {
    word(fd).is_some_and(|word| {
        word.load(Ordering::Acquire) & !LOCKED == Arc::as_ptr(description) as usize
    })
}

/// A number is used: it only grows, so most calls look.
#[inline]
fn reaches(fd: RawFd) {
    if HIGHEST.load(Ordering::Acquire) < fd as usize {
        HIGHEST.fetch_max(fd as usize, Ordering::AcqRel);
    }
}

fn swap(fd: RawFd, new: usize) -> Option<Arc<Description>> {
    let word = word(fd)?;
    if new != UNKNOWN {
        reaches(fd);
    }
    loop {
        let value = word.load(Ordering::Acquire);
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        if value & LOCKED == 0 && word.compare_exchange(value, new, order.0, order.1).is_ok() {
            // SAFETY: the word counted as a reference, which the caller has now.
            return (value >= ADDRESSES)
                .then(|| unsafe { Arc::from_raw(value as *const Description) });
        }
        std::hint::spin_loop();
    }
}

/// Says what `fd` stands for if it is still fresh, as it was found; else gives `slot` back.
pub fn replace_fresh(fd: RawFd, calls: usize, slot: Slot) -> Result<(), Slot> {
    let Some(word) = word(fd) else { return Err(slot) };
    let found = word_of(&Slot::Fresh(calls));
    let new = word_of(&slot);
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    if word.compare_exchange(found, new, order.0, order.1).is_err() {
        return Err(slot);
    }
    reaches(fd);
    // The word counts for it now.
    std::mem::forget(slot);
    Ok(())
}

/// A number of which nothing is known is plain from now on.
pub fn unknown_is_plain(fd: RawFd) {
    let order = (Ordering::AcqRel, Ordering::Relaxed);
    if let Some(word) = word(fd)
        && word.compare_exchange(UNKNOWN, PLAIN, order.0, order.1).is_ok()
    {
        reaches(fd);
    }
}

fn word_of(slot: &Slot) -> usize {
    match slot {
        Slot::Unknown => UNKNOWN,
        Slot::Plain => PLAIN,
        Slot::Fresh(calls) => FRESH + (calls * FRESH_STEP).min(ADDRESSES / 2),
        Slot::Served(description) => Arc::as_ptr(description) as usize,
    }
}

/// Says what `fd` stands for; gives the description that it stood for.
pub fn set(fd: RawFd, slot: Slot) -> Option<Arc<Description>> {
    let before = swap(fd, word_of(&slot));
    // The word counts for it now.
    std::mem::forget(slot);
    before
}

/// All numbers that were ever known.
pub fn all() -> impl Iterator<Item = RawFd> {
    (0..=HIGHEST.load(Ordering::Acquire)).map(|fd| fd as RawFd)
}

/// In a forked child: nothing is known. What its parent's words counted for is left alone.
pub fn forget_all() {
    for word in &WORDS[..=HIGHEST.load(Ordering::Acquire)] {
        word.store(UNKNOWN, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, Options};
    use crate::testing::TestDir;
    use std::os::fd::AsRawFd;
    use std::sync::Barrier;

    /// Of threads that use a number at once, no more than its patience go to the kernel: the next
    /// one finds it served, at a position of the engine's.
    #[test]
    fn no_more_calls_than_patience_allows_are_the_kernels() {
        let directory = TestDir::new("fresh");
        let options = Options::new(&directory, crate::Mode::Posix);
        let patience = options.patience;
        let engine = Engine::start(options, |_| ()).expect("an engine");
        let file = std::fs::File::create_new(directory.join("f")).expect("a file");
        let fd = file.as_raw_fd();
        let (together, left) = (Barrier::new(3), AtomicUsize::new(0));
        let begin = || {
            for _ in 0..3000 {
                if together.wait().is_leader() {
                    left.store(0, Ordering::Relaxed);
                    engine.opened(fd, 0);
                }
                together.wait();
                let mine = (0..patience).filter(|_| engine.leaves_first(fd)).count();
                left.fetch_add(mine, Ordering::Relaxed);
                together.wait();
                assert!(left.load(Ordering::Relaxed) <= patience);
                together.wait();
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(begin);
            }
        });
    }
}
