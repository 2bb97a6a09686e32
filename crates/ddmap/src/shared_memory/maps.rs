//! The mappings of a region that a process has: a list in memory that its node maps too, so that
//! the node can take stores to a page away in all of them, whatever the process does meanwhile.
//!
//! A mapping is listed before its first page is shown. So a node that has changed a page's word and
//! reads the list then finds every mapping that shows the page: what is listed later looks at the
//! word first.
//!
//! So it is with mappings whose pages are to *stay* (`PagedMapping::stays`), since processes may
//! have locks there, at which the kernel looks: a node that has claimed pages to send them away
//! gives those back that such a mapping shows (`protocol/mod.rs`, invariant 6). They stay until the
//! mapping is gone, or the node finds its process dead. The kernel has looked at the locks of a
//! dead process before it closes the descriptors by which that is found.
//!
//! Beside it is a ring of pages at which the process is to *look* (`docs/engines.md`, "Looking").
//!
//! Locks: changes are made by one thread at a time (`Maps::changing`).

use crate::protocol::PAGE;
use pmem::{OpenError, OpenOptions, Region};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Counts changes: a reader that sees another number behind its reads begins anew.
const CHANGES: u64 = 0;
/// Entries below it were used at some time.
const USED: u64 = 8;
/// Pages at which the process is to look were put into the ring, ever.
const ASKED: u64 = 16;
const RING_AT: u64 = 64;
/// Pages in the ring: what it has no place for is not looked at.
pub const RING: u64 = 1024;
const MAGIC_AT: u64 = 32;
/// What tells this list from all others.
const TOKEN_AT: u64 = 40;
const MAGIC: u64 = u64::from_le_bytes(*b"SolMaps3");
const ENTRIES_AT: u64 = RING_AT + RING * 8;
/// Of an entry's first word: the mapping is private, and may have pages of its own.
const PRIVATE: u64 = 1;
/// And: its pages are to stay; and may be stored to.
const STAYS: u64 = 2;
const WRITES: u64 = 4;
const ENTRY_BYTES: u64 = 24;
/// More than a process can have mappings (`vm.max_map_count`), as that is mostly set.
const ENTRIES: u64 = 65_536;
const SIZE: u64 = ENTRIES_AT + ENTRIES * ENTRY_BYTES;

/// A mapping of a part of the region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagedMapping {
    /// Its first address.
    pub start: usize,
    /// The page of the region that is there.
    pub page: u64,
    /// How many pages.
    pub pages: u64,
    /// What is stored there is stored in the region.
    pub shared: bool,
    /// Its pages stay where they are while it is mapped.
    pub stays: bool,
    /// The program may store there, and what it stores is stored in the region; so may the kernel,
    /// for a call of which nobody hears.
    pub writes: bool,
}

impl PagedMapping {
    /// Whether the kernel may look at its pages, or store to them: none is clean.
    pub fn opens(&self) -> bool {
        self.stays || self.writes
    }

    /// The pages that are mapped.
    pub fn pages(&self) -> Range<u64> {
        self.page..self.page + self.pages
    }

    /// Where a page of the region is mapped.
    pub fn address_of(&self, page: u64) -> Option<usize> {
        let within = page.checked_sub(self.page).filter(|within| *within < self.pages)?;
        Some(self.start + (within * PAGE) as usize)
    }

    /// The part of pages in a row that is mapped: where, and how many.
    pub fn part_of(&self, page: u64, pages: u64) -> Option<(usize, u64)> {
        let first = page.max(self.page);
        let last = (page + pages).min(self.page + self.pages);
        let address = self.address_of(first)?;
        (first < last).then(|| (address, last - first))
    }

    /// The page at an address.
    pub fn page_at(&self, address: usize) -> Option<u64> {
        let within = address.checked_sub(self.start)? as u64 / PAGE;
        (within < self.pages).then_some(self.page + within)
    }
}

/// The list, of this process or of one that has handed it over.
pub struct Maps {
    region: Region,
    changing: Mutex<()>,
}

impl Maps {
    /// An empty one.
    pub fn new() -> Result<Self, OpenError> {
        let maps = Self { region: Region::anonymous(SIZE)?, changing: Mutex::new(()) };
        maps.set(MAGIC_AT, MAGIC);
        let mut token = [0; 8];
        // A kernel that has none yet gives one that is no secret, and need not be.
        let _ = rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty());
        maps.set(TOKEN_AT, u64::from_ne_bytes(token));
        Ok(maps)
    }

    /// One of another process. It may be any other file as well: that is refused.
    pub fn of_other(fd: OwnedFd) -> Result<Self, String> {
        let path = Path::new("(another process's mappings)");
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let region = Region::adopt(fd, path, &options).map_err(|error| error.to_string())?;
        let maps = Self { region, changing: Mutex::new(()) };
        if maps.region.len() != SIZE || maps.get(MAGIC_AT) != MAGIC {
            return Err("what was handed over is no list of mappings".to_owned());
        }
        Ok(maps)
    }

    /// What tells it from all others.
    pub fn token(&self) -> u64 {
        self.get(TOKEN_AT)
    }

    /// Its descriptor, to hand over.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the region's own, open as long as it.
        unsafe { BorrowedFd::borrow_raw(self.region.fd()) }
    }

    fn get(&self, word: u64) -> u64 {
        self.region.shared_load(word).unwrap_or(0)
    }

    fn set(&self, word: u64, value: u64) {
        // Memory of this process's own, or of another's that cuts it short: then it has no maps.
        let _ = self.region.shared_store(word, value);
    }

    /// Its length is read first: an entry that was used again behind that is counted as a change
    /// before its other words are written.
    fn entry(&self, at: u64) -> PagedMapping {
        let at = ENTRIES_AT + at * ENTRY_BYTES;
        let pages = self.get(at + 16);
        let start = self.get(at);
        let has = |flag| start & flag != 0;
        let (shared, stays, writes) = (!has(PRIVATE), has(STAYS), has(WRITES));
        let start = (start & !(PRIVATE | STAYS | WRITES)) as usize;
        PagedMapping { start, page: self.get(at + 8), pages, shared, stays, writes }
    }

    fn count_change(&self) {
        self.set(CHANGES, self.get(CHANGES) + 1);
    }

    /// Fills an entry that is free.
    fn put(&self, at: u64, map: PagedMapping) {
        let at = ENTRIES_AT + at * ENTRY_BYTES;
        self.count_change();
        let flags = [(!map.shared, PRIVATE), (map.stays, STAYS), (map.writes, WRITES)];
        let flags = flags.iter().filter(|one| one.0).fold(0, |all, one| all | one.1);
        self.set(at, map.start as u64 | flags);
        self.set(at + 8, map.page);
        self.set(at + 16, map.pages);
        self.count_change();
    }

    /// Cuts an entry's end off.
    fn cut(&self, at: u64, pages: u64) {
        self.set(ENTRIES_AT + at * ENTRY_BYTES + 16, pages);
        self.count_change();
    }

    /// A mapping is there, of which no page is shown yet. `false`: there are too many.
    pub fn add(&self, map: PagedMapping) -> bool {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.list(map).is_some()
    }

    /// The same, in place of what was mapped there: at any time one of them is listed.
    pub fn replace(&self, map: PagedMapping) -> bool {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(own) = self.list(map) else { return false };
        let end = map.start + (map.pages * PAGE) as usize;
        let cut = self.cut_out(map.start, end, Some(own));
        if !cut {
            self.cut(own, 0);
        }
        cut
    }

    fn list(&self, map: PagedMapping) -> Option<u64> {
        let used = self.get(USED).min(ENTRIES);
        let free = (0..used).find(|at| self.entry(*at).pages == 0).unwrap_or(used);
        if free == ENTRIES {
            return None;
        }
        self.put(free, map);
        if free == used {
            self.set(USED, used + 1);
            self.count_change();
        }
        Some(free)
    }

    /// What was mapped in a range of addresses is there no more. What lies around it is listed all
    /// the time: the node takes stores away by the list meanwhile. `false`: there are too many, and
    /// what could not be cut in two is listed as it was.
    pub fn remove(&self, start: usize, end: usize) -> bool {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.cut_out(start, end, None)
    }

    fn cut_out(&self, start: usize, end: usize, but: Option<u64>) -> bool {
        for at in 0..self.get(USED).min(ENTRIES) {
            let map = self.entry(at);
            let last = map.start + (map.pages * PAGE) as usize;
            if but == Some(at) || map.pages == 0 || map.start >= end || last <= start {
                continue;
            }
            let before = start.saturating_sub(map.start) as u64 / PAGE;
            let behind = last.saturating_sub(end) as u64 / PAGE;
            let skipped = map.pages - behind;
            let rest = PagedMapping { start: end, page: map.page + skipped, pages: behind, ..map };
            if behind > 0 && self.list(rest).is_none() {
                return false;
            }
            self.cut(at, before);
        }
        true
    }

    /// All of them, as they are at some moment since this was called.
    pub fn all(&self) -> Vec<PagedMapping> {
        loop {
            let changes = self.get(CHANGES);
            let maps: Vec<_> = self.listed().collect();
            if self.get(CHANGES) == changes {
                return maps;
            }
        }
    }

    /// Each of them, as it is when it comes.
    pub fn each(&self) -> impl Iterator<Item = PagedMapping> + '_ {
        self.listed()
    }

    /// The one at an address. For a signal handler, too: it allocates nothing.
    pub fn at(&self, address: usize) -> Option<PagedMapping> {
        loop {
            let changes = self.get(CHANGES);
            let found = self.listed().find(|map| map.page_at(address).is_some());
            if self.get(CHANGES) == changes {
                return found;
            }
        }
    }

    fn listed(&self) -> impl Iterator<Item = PagedMapping> + '_ {
        let used = self.get(USED).min(ENTRIES);
        (0..used).map(|at| self.entry(at)).filter(|map| map.pages > 0)
    }

    /// The process is to look at a page: whether it is wanted. The node's, one thread at a time.
    pub fn ask(&self, page: u64) {
        let asked = self.get(ASKED);
        self.set(RING_AT + asked % RING * 8, page);
        self.set(ASKED, asked + 1);
    }

    /// How many pages the process was to look at, ever.
    pub fn asked(&self) -> u64 {
        self.get(ASKED)
    }

    /// Pages at which the process is to look since there were `seen`. One that is overwritten
    /// meanwhile is another one by then: any page may be looked at.
    pub fn asked_since(&self, seen: u64) -> impl Iterator<Item = u64> + '_ {
        let asked = self.asked();
        (seen.max(asked.saturating_sub(RING))..asked)
            .map(|number| self.get(RING_AT + number % RING * 8))
    }

    /// Counts changes.
    pub fn changes(&self) -> u64 {
        self.get(CHANGES)
    }
}

impl std::fmt::Debug for Maps {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_tuple("Maps").field(&self.fd().as_raw_fd()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_is_cut_out_leaves_both_ends() {
        let maps = Maps::new().unwrap();
        let whole = PagedMapping {
            start: 0x10_0000,
            page: 7,
            pages: 16,
            shared: true,
            stays: true,
            writes: false,
        };
        assert!(maps.add(whole));
        maps.remove(0x10_2000, 0x10_5000);
        let ends = [
            PagedMapping { pages: 2, ..whole },
            PagedMapping { start: 0x10_5000, page: 12, pages: 11, ..whole },
        ];
        assert_eq!(maps.all(), ends);
        assert_eq!(ends[1].page_at(0x10_5fff), Some(12));
        assert_eq!(ends[1].address_of(22), Some(0x10_f000));
        assert_eq!(ends[1].address_of(23), None);
        maps.remove(0, usize::MAX);
        assert_eq!(maps.all(), []);
        assert!(maps.add(whole));
        assert_eq!(maps.all(), [whole], "a free entry is used again");
    }

    #[test]
    fn pages_to_look_at_are_the_last_that_were_asked_for() {
        let maps = Maps::new().unwrap();
        assert_eq!(maps.asked_since(0).count(), 0);
        (0..RING + 3).for_each(|page| maps.ask(page));
        assert_eq!(maps.asked_since(RING).collect::<Vec<_>>(), [RING, RING + 1, RING + 2]);
        assert_eq!(maps.asked_since(0).next(), Some(3), "three were overwritten");
        let private = PagedMapping {
            start: 0x10_0000,
            page: 7,
            pages: 16,
            shared: false,
            stays: false,
            writes: false,
        };
        assert!(maps.add(private));
        maps.remove(0x10_2000, 0x10_3000);
        assert!(maps.all().iter().all(|map| !map.shared && map.start.is_multiple_of(4096)));
    }

    #[test]
    fn what_lies_around_a_cut_is_listed_all_the_time() {
        let maps = Maps::new().unwrap();
        let whole = PagedMapping {
            start: 0x10_0000,
            page: 0,
            pages: 64,
            shared: false,
            stays: false,
            writes: false,
        };
        assert!(maps.add(whole));
        // Even: it is whole, or is being cut.
        let round = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..100_000 {
                    maps.remove(whole.start + 4096, whole.start + 63 * 4096);
                    round.fetch_add(1, Ordering::SeqCst);
                    maps.remove(0, usize::MAX);
                    assert!(maps.add(whole));
                    round.fetch_add(1, Ordering::SeqCst);
                }
                round.store(u64::MAX, Ordering::SeqCst);
            });
            loop {
                let before = round.load(Ordering::SeqCst);
                let all = maps.all();
                let after = round.load(Ordering::SeqCst);
                if after == u64::MAX {
                    break;
                }
                for page in
                    [0, 63].into_iter().filter(|_| before == after && before.is_multiple_of(2))
                {
                    let at = whole.start + page as usize * 4096;
                    let listed = all.iter().any(|map| map.page_at(at) == Some(page));
                    assert!(listed, "page {page} is mapped, and not listed: {all:?}");
                }
            }
        });
    }
}
