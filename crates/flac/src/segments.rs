//! The segments of a cache as one process sees them: files of at most 2 MiB, each mapped once, for
//! reading, so that a stray store of the program cannot change one.
//!
//! A window stays mapped while the process uses it often. The file behind it may be evicted by
//! anybody at any time: it is emptied then, and a copy out of it faults or gives zeros. So whoever
//! has copied asks the index again whether it still names the segment. One that may be attached
//! (`buffers.rs`) is not emptied: its name goes, and its memory with the last mapping.
//!
//! *A short read waits for memory*: so it asks for the lines that it will copy before it looks at
//! versions and at the index, where the chunk's segment was mapped at the last read
//! ([`Segments::ahead`]). That place is a guess. If the segment is another one by now, or another
//! mapping lies there, lines are brought near for nothing; what is copied, and whether it counts,
//! is found out as ever.
//!
//! Locks: one for each group of windows, shared while one is copied out of, whole while one is put
//! there or taken out; nobody waits for it whole. A forked child begins with none of the windows
//! ([`Segments::forget`]): the kernel does not give it any.

use crate::descriptors::TemporaryFd;
use crate::index::Gone;
use crate::layout::CHUNK;
use crate::program;
use pmem::{UserOut, prefetch};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard, TryLockError};
use vfs::Desc;
use window::Window;

/// Groups of windows.
const GROUPS: usize = 256;
/// Windows of a group, at most: more are unmapped, all of that group at once.
const GROUP_MAX: usize = 16;
/// Reads of these lengths ask for all their lines before they copy: a copy in one go waits for them
/// in turn.
const FAR: std::ops::RangeInclusive<usize> = 512..=8 << 10;
/// How often a group is tried that others copy out of.
const TRIES: u32 = 100;
/// Guesses of a process.
const GUESSES: usize = 256;

/// Windows with their segments' numbers.
type Windows = Vec<(u64, Window)>;

/// Where a chunk's segment was mapped when it was copied out of last: a guess.
#[derive(Default)]
struct Guess {
    /// The chunk, by [`chunk`].
    chunk: AtomicU64,
    start: AtomicUsize,
}

/// All windows of a process.
struct Groups {
    groups: [RwLock<Windows>; GROUPS],
    guesses: [Guess; GUESSES],
}

/// The windows on segments.
pub(crate) struct Segments {
    /// Null: none are made yet.
    groups: AtomicPtr<Groups>,
}

/// A segment's name in the directory of the cache.
pub(crate) fn name(number: u64) -> String {
    format!("{number:x}")
}

/// The number of a name.
pub(crate) fn number(name: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(name).ok()?;
    u64::from_str_radix(text, 16).ok().filter(|number| self::name(*number) == text)
}

/// The era of the name of its directory.
pub(crate) fn era(name: &str) -> Option<u64> {
    let era = u64::from_str_radix(name, 16).ok()?;
    (name == format!("{era:016x}")).then_some(era)
}

/// The chunk of an open file in which an offset lies, as a number that hardly another one has.
#[inline]
fn chunk(desc: Desc, offset: u64) -> u64 {
    desc.word().wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(offset / CHUNK)
}

/// Makes the file of a new segment.
pub(crate) fn create(dir: BorrowedFd<'_>, number: u64) -> Result<TemporaryFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let name = name(number);
    TemporaryFd::open(|| rustix::fs::openat(dir, &name, flags, Mode::from_raw_mode(0o600)))
}

/// Opens the file of a segment.
pub(crate) fn open(dir: BorrowedFd<'_>, number: u64, write: bool) -> Result<TemporaryFd, Errno> {
    let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
    let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let name = name(number);
    TemporaryFd::open(|| rustix::fs::openat(dir, &name, flags, Mode::empty()))
}

/// Before a part of a chunk, up to `end`, is put into its file: it is to take small pages, as the
/// budget counts it. A tmpfs with huge pages (`within_size`) gives one of 2 MiB to a write of
/// the last bytes of 2 MiB of which nothing is there; so a small page is put there first, while the
/// file is shorter.
pub(crate) fn keep_small(file: BorrowedFd<'_>, end: u64) {
    const PAGE: u64 = 4096;
    if end == CHUNK {
        let flags = rustix::fs::FallocateFlags::empty();
        // Where that cannot be done there are no huge pages, or writing fails too.
        let _ = rustix::fs::fallocate(file, flags, CHUNK - 2 * PAGE, PAGE);
    }
}

/// Notes at the file itself that it may be attached: an index may be damaged.
pub(crate) fn keep(file: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::fchmod(file, Mode::RUSR)
}

/// Takes a segment's name away, and, if nobody can have it attached, its memory, whoever has it
/// mapped.
pub(crate) fn remove(dir: BorrowedFd<'_>, gone: Gone) {
    // Whatever fails, a sweep finds the file again.
    if program::is_stopped() {
        return;
    }
    if !gone.attached
        && let Ok(file) = open(dir, gone.number, true)
        && rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_mode & Mode::WUSR.bits() != 0)
    {
        let _ = rustix::fs::ftruncate(&file, 0);
    }
    let _ = rustix::fs::unlinkat(dir, name(gone.number), rustix::fs::AtFlags::empty());
}

/// Copies from `at` of a window on to the caller.
#[inline]
fn read(window: &Window, at: usize, to: &UserOut<'_>) -> Option<()> {
    let length = to.len();
    if FAR.contains(&length) {
        // Also what `Segments::ahead` has asked for (at random places: 1.14 of the volume's
        // time, asked for once 1.28): a processor may drop what it has no room to wait for.
        window.prefetch(at, length);
        return window.read_near(at, to, length).ok();
    }
    window.read_to(at, to, length).ok()
}

impl Segments {
    pub(crate) fn new() -> Self {
        Self { groups: AtomicPtr::new(std::ptr::null_mut()) }
    }

    #[cold]
    fn make(&self) -> *mut Groups {
        let groups = std::array::from_fn(|_| RwLock::new(Windows::new()));
        let guesses = std::array::from_fn(|_| Guess::default());
        let made = Box::into_raw(Box::new(Groups { groups, guesses }));
        let (null, order) = (std::ptr::null_mut(), Ordering::AcqRel);
        match self.groups.compare_exchange(null, made, order, Ordering::Acquire) {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: made above, and nobody has seen it.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        }
    }

    #[inline]
    fn groups(&self) -> &Groups {
        let mut groups = self.groups.load(Ordering::Acquire);
        if groups.is_null() {
            groups = self.make();
        }
        // SAFETY: what the pointer leads to is given back when this is dropped, and not before.
        unsafe { &*groups }
    }

    #[inline]
    fn group(&self, number: u64) -> &RwLock<Windows> {
        &self.groups().groups[number as usize % GROUPS]
    }

    /// Asks for the lines that a short read will copy, where its chunk's segment was mapped when it
    /// was copied out of last.
    #[inline]
    pub(crate) fn ahead(&self, desc: Desc, offset: u64, length: usize) {
        if !FAR.contains(&length) {
            return;
        }
        let chunk = chunk(desc, offset);
        let guess = &self.groups().guesses[chunk as usize % GUESSES];
        if guess.chunk.load(Ordering::Relaxed) == chunk {
            let start = guess.start.load(Ordering::Relaxed) + (offset % CHUNK) as usize;
            prefetch(start as *const u8, length);
        }
    }

    /// Notes where a chunk's segment is mapped.
    #[inline]
    fn guess(&self, desc: Desc, offset: u64, window: &Window) {
        let Ok(start) = window.address(0, 0) else { return };
        let chunk = chunk(desc, offset);
        let guess = &self.groups().guesses[chunk as usize % GUESSES];
        let is_same = guess.chunk.load(Ordering::Relaxed) == chunk
            && guess.start.load(Ordering::Relaxed) == start;
        if !is_same {
            // Two threads may leave the one's chunk and the other's place.
            guess.chunk.store(chunk, Ordering::Relaxed);
            guess.start.store(start, Ordering::Relaxed);
        }
    }

    /// Copies a segment's bytes from an offset of the open file on to the caller. `None`: they
    /// cannot be had (it is gone, say, or the caller's memory is).
    #[inline]
    pub(crate) fn copy(
        &self,
        dir: BorrowedFd<'_>,
        number: u64,
        (desc, offset): (Desc, u64),
        to: &UserOut<'_>,
    ) -> Option<()> {
        let at = (offset % CHUNK) as usize;
        let group = self.group(number);
        let held = group.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, window)) = held.iter().find(|(held, _)| *held == number) {
            if FAR.contains(&to.len()) {
                self.guess(desc, offset, window);
            }
            return read(window, at, to);
        }
        drop(held);
        self.copy_first(dir, number, at, to)
    }

    /// The same of a segment that is not mapped yet.
    #[cold]
    fn copy_first(
        &self,
        dir: BorrowedFd<'_>,
        number: u64,
        at: usize,
        to: &UserOut<'_>,
    ) -> Option<()> {
        let file = open(dir, number, false).ok()?;
        let window = Window::map(file.as_fd(), 0, CHUNK as usize, false, false).ok()?;
        drop(file);
        read(&window, at, to)?;
        // Nobody needs it to stay.
        if let Some(mut held) = self.change(number) {
            if held.len() >= GROUP_MAX {
                held.clear();
            }
            // Another thread may have mapped it meanwhile: then there are two for a while.
            held.push((number, window));
        }
        Some(())
    }

    /// Unmaps a segment that is gone. Where its group cannot be changed now it goes with the group.
    pub(crate) fn drop(&self, number: u64) {
        if program::is_stopped() {
            return;
        }
        if let Some(mut held) = self.change(number) {
            held.retain(|(held, _)| *held != number);
        }
    }

    /// A group, to be changed. `None`: others copy out of it. They are not waited for: a thread of
    /// the program's may serve the page faults of their memory (`userfaultfd`), and read itself
    /// before it does. Who waited would also keep new readers out.
    fn change(&self, number: u64) -> Option<RwLockWriteGuard<'_, Windows>> {
        let group = self.group(number);
        for _ in 0..TRIES {
            match group.try_write() {
                Ok(held) => return Some(held),
                Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
        None
    }

    /// In a forked child: the windows are not there, and a lock may be held by a thread that is
    /// not. What is left behind stays as it is. Nothing is allocated.
    pub(crate) fn forget(&self) {
        self.groups.store(std::ptr::null_mut(), Ordering::Release);
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        let groups = *self.groups.get_mut();
        if !groups.is_null() {
            // SAFETY: made by `make`, and nothing else gives it back.
            drop(unsafe { Box::from_raw(groups) });
        }
    }
}
