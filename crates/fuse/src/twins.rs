//! What the kernel's page cache was given of files that may be mapped for writing.
//!
//! What a program stores through a mapping comes back as a write of whole pages. Of such a page
//! only the stored bytes are news: the others are as old as the page, and a `write`, by whatever
//! face, may have changed them in the file since. So a *twin* is kept of each page that the cache
//! gets: the bytes that it was given, or has written back since. A write-back changes those bytes
//! of the file in which the page differs from its twin, and no others.
//!
//! Words stay whole where they can: of an aligned word of 8 bytes that nobody else has changed all
//! is written at once, so that a power cut, or a reader by another face, finds it old or new.
//!
//! A file has twins while a handle is open by which it can be mapped so (for reading and writing);
//! a mapping keeps its handle. When that is released everything has been written back. Pages that
//! the cache had before are dropped by the kernel when the file is mapped.
//!
//! The kernel does not tell when it drops a page, so twins become many: of more than there is room
//! for the oldest go, and the kernel is told first to write back and drop their pages.
//!
//! Locks: `files`; a file's `changing`, while the engine is called; its `pages`, under no call,
//! alone or under `changing`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use vfs::{Desc, FileSystem, IoOffset, Result, UserIn, UserOut};

use crate::nodes::lock;

const PAGE: usize = 4096;
const WORD: usize = 8;
/// Of the machine's memory, the part that twins may take.
const PART: u64 = 16;
/// Of all twins, the part that goes when they are too many.
const GOING: usize = 4;

/// A page as the kernel had it.
struct Twin {
    /// When it was given: the number of the read.
    since: u64,
    bytes: Box<[u8; PAGE]>,
}

/// Those of one file.
#[derive(Default)]
pub struct File {
    /// Calls that change the file share it; what is stored through mappings comes alone.
    changing: RwLock<()>,
    pages: Mutex<HashMap<u64, Twin>>,
}

/// A file and how many handles are open by which it can be mapped for writing.
#[derive(Default)]
struct Open {
    handles: usize,
    file: Arc<File>,
}

/// Pages that the kernel is to give back, of one file: the twins as old go then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The file, as the kernel numbers it.
    pub number: u64,
    /// Where the pages begin in it.
    pub offset: u64,
    /// Their bytes.
    pub length: u64,
    until: u64,
}

/// All of a mount.
pub struct Twins {
    files: Mutex<HashMap<u64, Open>>,
    /// How many files there are: most calls have none to look for.
    count: AtomicUsize,
    reads: AtomicU64,
    /// Twins of all files, and how many there may be.
    pages: AtomicUsize,
    pages_max: usize,
}

impl File {
    /// While a call changes the file: no page is written back meanwhile.
    pub fn change(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what was stored in pages that begin at `offset`, as far as `data` goes: it ends where
    /// a page does, or the file.
    pub fn write_back(
        &self,
        fs: &dyn FileSystem,
        desc: Desc,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let _alone = self.changing.write().unwrap_or_else(PoisonError::into_inner);
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let inside = (at % PAGE as u64) as usize;
            let (part, behind) = rest.split_at((PAGE - inside).min(rest.len()));
            self.write_part(fs, desc, at, part)?;
            at += part.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    /// The same inside one page.
    fn write_part(&self, fs: &dyn FileSystem, desc: Desc, at: u64, part: &[u8]) -> Result<()> {
        let (page, inside) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let Some(bytes) = lock(&self.pages).get(&page).map(|twin| twin.bytes.clone()) else {
            return write_whole(fs, desc, at, part);
        };
        let twin = &bytes[inside..inside + part.len()];
        let mut now = [0; PAGE];
        let now = &mut now[..part.len()];
        let length = fs.read(desc, &mut [UserOut::new(&mut *now)], IoOffset::offset(at))?;
        for (start, end) in stored(part, twin, &now[..length]) {
            write_whole(fs, desc, at + start as u64, &part[start..end])?;
        }
        if let Some(twin) = lock(&self.pages).get_mut(&page) {
            twin.bytes[inside..inside + part.len()].copy_from_slice(part);
        }
        Ok(())
    }
}

fn write_whole(fs: &dyn FileSystem, desc: Desc, at: u64, data: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < data.len() {
        let rest = &[UserIn::new(&data[done..])];
        done += fs.write(desc, rest, IoOffset::offset(at + done as u64))?;
    }
    Ok(())
}

/// The runs of `page` to be written, each from its first byte to behind its last: what differs from
/// its `twin`, and all of a word that the file has (`now`) as the twin has it.
fn stored(page: &[u8], twin: &[u8], now: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut add = |start: usize, end: usize| match runs.last_mut() {
        Some(last) if last.1 == start => last.1 = end,
        _ => runs.push((start, end)),
    };
    for start in (0..page.len()).step_by(WORD) {
        let end = (start + WORD).min(page.len());
        if page[start..end] == twin[start..end] {
            continue;
        }
        if now.get(start..end) == Some(&twin[start..end]) {
            add(start, end);
            continue;
        }
        for at in (start..end).filter(|&at| page[at] != twin[at]) {
            add(at, at + 1);
        }
    }
    runs
}

impl Twins {
    /// None; as many as a sixteenth of the machine's memory holds at most.
    pub fn new() -> Self {
        let memory = rustix::system::sysinfo();
        let bytes = memory.totalram as u64 * u64::from(memory.mem_unit.max(1));
        Self::at_most((bytes / PART / PAGE as u64) as usize)
    }

    fn at_most(pages_max: usize) -> Self {
        Self {
            files: Mutex::default(),
            count: AtomicUsize::new(0),
            reads: AtomicU64::new(0),
            pages: AtomicUsize::new(0),
            pages_max,
        }
    }

    /// A handle with these `O_*` flags has been opened.
    pub fn open(&self, number: u64, flags: u32) {
        if !maps_for_writing(flags) {
            return;
        }
        let mut files = lock(&self.files);
        files.entry(number).or_default().handles += 1;
        self.count.store(files.len(), Ordering::Release);
    }

    /// One is released.
    pub fn release(&self, number: u64, flags: u32) {
        if !maps_for_writing(flags) {
            return;
        }
        let mut files = lock(&self.files);
        let Some(open) = files.get_mut(&number) else { return };
        open.handles -= 1;
        if open.handles > 0 {
            return;
        }
        let gone = files.remove(&number);
        self.count.store(files.len(), Ordering::Release);
        drop(files);
        let pages = gone.map_or(0, |open| lock(&open.file.pages).len());
        self.pages.fetch_sub(pages, Ordering::Relaxed);
    }

    /// A file that may be mapped for writing.
    pub fn of(&self, number: u64) -> Option<Arc<File>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        lock(&self.files).get(&number).map(|open| Arc::clone(&open.file))
    }

    /// The kernel is about to get whole pages from `offset` on: `data`, and zeros up to `size`.
    pub fn give(&self, number: u64, offset: u64, data: &[u8], size: usize) {
        let Some(file) = self.of(number) else { return };
        let since = self.reads.fetch_add(1, Ordering::Relaxed);
        let mut pages = lock(&file.pages);
        let before = pages.len();
        for start in (0..size).step_by(PAGE) {
            let mut bytes = Box::new([0; PAGE]);
            let given = data.get(start..).unwrap_or_default();
            let given = &given[..given.len().min(PAGE)];
            bytes[..given.len()].copy_from_slice(given);
            pages.insert((offset + start as u64) / PAGE as u64, Twin { since, bytes });
        }
        // Under the file's lock, so that its last release counts them too.
        self.pages.fetch_add(pages.len() - before, Ordering::Relaxed);
    }

    /// If there are too many: those that are to go. The kernel is told to drop their pages; then
    /// [`Twins::drop_old`].
    pub fn evictions(&self) -> Vec<Eviction> {
        let all = self.pages.load(Ordering::Relaxed);
        if all <= self.pages_max {
            return Vec::new();
        }
        let files: Vec<(u64, Arc<File>)> =
            lock(&self.files).iter().map(|(&n, open)| (n, Arc::clone(&open.file))).collect();
        let mut ages = Vec::with_capacity(all);
        for (number, file) in &files {
            ages.extend(lock(&file.pages).iter().map(|(&page, twin)| (twin.since, *number, page)));
        }
        let leave = (self.pages_max - self.pages_max / GOING).min(ages.len());
        let count = ages.len() - leave;
        if count < ages.len() {
            ages.select_nth_unstable(count);
        }
        ages.truncate(count);
        ages.sort_unstable_by_key(|&(_, number, page)| (number, page));
        let mut evictions: Vec<Eviction> = Vec::new();
        for (since, number, page) in ages {
            let offset = page * PAGE as u64;
            match evictions.last_mut() {
                Some(last) if (last.number, last.offset + last.length) == (number, offset) => {
                    last.length += PAGE as u64;
                    last.until = last.until.max(since);
                }
                _ => evictions.push(Eviction { number, offset, length: PAGE as u64, until: since }),
            }
        }
        evictions
    }

    /// The kernel has dropped the pages: twins that it has not been given anew go.
    pub fn drop_old(&self, eviction: &Eviction) {
        let Some(file) = self.of(eviction.number) else { return };
        let first = eviction.offset / PAGE as u64;
        let behind = first + eviction.length / PAGE as u64;
        let mut pages = lock(&file.pages);
        let before = pages.len();
        for page in first..behind {
            if pages.get(&page).is_some_and(|twin| twin.since <= eviction.until) {
                pages.remove(&page);
            }
        }
        self.pages.fetch_sub(before - pages.len(), Ordering::Relaxed);
    }
}

const fn maps_for_writing(flags: u32) -> bool {
    flags as i32 & libc::O_ACCMODE == libc::O_RDWR
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: u32 = libc::O_RDWR as u32;

    #[test]
    fn only_what_was_stored_is_written() {
        let twin = *b"aaaaaaaabbbbbbbbcccccccc";
        // Nobody else has changed anything: whole words, and words beside each other at once.
        let page = *b"aaaaXaaabXbbbbXbcccccccc";
        assert_eq!(stored(&page, &twin, &twin), [(0, 16)]);
        // Another face has changed a byte of the second word: the stored bytes alone.
        let now = *b"aaaaaaaabbZbbbbbcccccccc";
        assert_eq!(stored(&page, &twin, &now), [(0, 8), (9, 10), (14, 15)]);
        assert_eq!(stored(&twin, &twin, &now), []);
        // The file ends inside the page, or has become shorter.
        assert_eq!(stored(&page[..13], &twin[..13], &twin[..13]), [(0, 13)]);
        assert_eq!(stored(&page[..13], &twin[..13], &now[..4]), [(4, 5), (9, 10)]);
    }

    #[test]
    fn a_file_has_twins_while_it_may_be_mapped_for_writing() {
        let twins = Twins::at_most(100);
        twins.open(5, libc::O_WRONLY as u32);
        twins.give(5, 0, &[1; 5000], 2 * PAGE);
        assert!(twins.of(5).is_none());
        twins.open(5, BOTH);
        twins.open(5, BOTH);
        twins.give(5, 0, &[1; 5000], 2 * PAGE);
        twins.release(5, libc::O_WRONLY as u32);
        twins.release(5, BOTH);
        let file = twins.of(5).expect("one handle is left");
        let behind_the_end = lock(&file.pages)[&1].bytes[5000 - PAGE..].to_vec();
        assert_eq!(behind_the_end, vec![0; 2 * PAGE - 5000]);
        assert_eq!(twins.pages.load(Ordering::Relaxed), 2);
        twins.release(5, BOTH);
        assert!(twins.of(5).is_none());
        assert_eq!(twins.pages.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_oldest_go_unless_they_are_given_anew() {
        let twins = Twins::at_most(8);
        twins.open(5, BOTH);
        twins.open(6, BOTH);
        twins.give(5, 0, &[], 4 * PAGE);
        twins.give(6, 0, &[], 4 * PAGE);
        assert_eq!(twins.evictions(), []);
        twins.give(6, 8 * PAGE as u64, &[], PAGE);
        let evictions = twins.evictions();
        let length = 3 * PAGE as u64;
        assert_eq!(evictions.len(), 1, "{evictions:?}");
        assert_eq!((evictions[0].number, evictions[0].length), (5, length));
        let first = evictions[0].offset;
        twins.give(5, first, &[2; PAGE], PAGE);
        twins.drop_old(&evictions[0]);
        assert_eq!(twins.pages.load(Ordering::Relaxed), 7);
        assert_eq!(lock(&twins.of(5).unwrap().pages)[&(first / PAGE as u64)].bytes[0], 2);
    }
}
