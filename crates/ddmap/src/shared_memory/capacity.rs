//! How much of a node's capacity is in use: a file of its store that all processes of the node map.
//!
//! | word | what | written by |
//! |---|---|---|
//! | capacity | pages that the node may have | the node |
//! | used | pages that it has, or is about to get | whoever gets or drops one |
//! | reserve | pages that are to be free | the node |
//! | wanted | whether somebody wants more than is free; futex | who wants it, the evictor |
//! | room | counts pages that have left; futex | the evictor |
//! | starts | how often the node was started | the node |
//! | taken | pages that have come, ever: the node's time goes by it | each process that gets one |
//! | silent | 64 words, a bit a node: it was not heard of lately, or was removed | the node |
//!
//! A process that dies may leave a page counted that it has not got. The node counts anew when it
//! starts (`node/mod.rs`): a stale count is harmless, room is missing for a while.

use crate::protocol::NodeId;
use crate::shared_memory::files;
use pmem::{OpenError, Region};
use std::path::Path;
use std::time::Duration;

const CAPACITY: u64 = 0;
const USED: u64 = 64;
const RESERVE: u64 = 128;
const WANTED: u64 = 192;
const LEFT: u64 = 256;
const TAKEN: u64 = 320;
const STARTS: u64 = 384;
const SILENT: u64 = 1024;
const SILENT_WORDS: u64 = 64;
const SIZE: u64 = 4096;

const _: () = assert!(SILENT + SILENT_WORDS * 8 <= SIZE);
/// So many ticks pass while as many pages come as the node has room for.
pub(super) const TICKS: u64 = 256;
/// Pages that leave at once where nothing is kept free.
const AT_ONCE: u64 = 64;

/// A count of pages, in a file that processes share.
pub(super) struct Tally<'r>(&'r Region, u64);

impl<'r> Tally<'r> {
    pub(super) fn new(region: &'r Region, word: u64) -> Self {
        Self(region, word)
    }

    pub(super) fn get(&self) -> u64 {
        self.0.shared_load(self.1).unwrap_or(0)
    }

    /// One more, if that is not beyond a limit: how many there were.
    pub(super) fn take(&self, limit: u64) -> Option<u64> {
        let mut used = self.get();
        while used < limit {
            match self.0.shared_cas(self.1, used, used + 1) {
                Ok(Ok(before)) => return Some(before),
                Ok(Err(found)) => used = found,
                Err(_) => return None,
            }
        }
        None
    }

    /// So many less. Never below 0, whatever was counted twice.
    pub(super) fn give(&self, pages: u64) {
        let mut used = self.get();
        while let Ok(Err(found)) = self.0.shared_cas(self.1, used, used.saturating_sub(pages)) {
            used = found;
        }
    }

    /// Counts anew what is taken before it comes, and given back behind its going: only what is the
    /// same for `rest` is right. Whether it was: else the old count stays.
    pub(super) fn recount(&self, count: impl Fn() -> u64, rest: Duration) -> bool {
        let (before, counted) = (self.get(), count());
        if before == counted {
            return true;
        }
        std::thread::sleep(rest);
        count() == counted && matches!(self.0.shared_cas(self.1, before, counted), Ok(Ok(_)))
    }
}

/// A node's capacity. A word that cannot be accessed, since the file was cut short, reads as 0:
/// then there is no room.
pub struct Capacity(Region);

impl Capacity {
    /// The name of the file in a store.
    pub const NAME: &str = "room";

    /// Makes it, or takes the one that is there.
    pub fn create(path: &Path) -> Result<Self, OpenError> {
        Region::create(path, SIZE, 0o600, false).map(Self)
    }

    /// The room of a node that runs, or ran.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        files::open(path).map(Self)
    }

    fn get(&self, word: u64) -> u64 {
        self.0.shared_load(word).unwrap_or(0)
    }

    fn set(&self, word: u64, value: u64) {
        // A file that was cut short has no room at all.
        let _ = self.0.shared_store(word, value);
    }

    /// Sets what the node may have, has, and is to keep free, in pages.
    pub fn set_up(&self, capacity: u64, used: u64, reserve: u64) {
        self.set(CAPACITY, capacity);
        self.set(USED, used);
        self.set(RESERVE, reserve);
    }

    /// Says which nodes were not heard of lately, or were removed. A bit that is old has the other
    /// one of two nodes asked first.
    pub fn set_silent(&self, nodes: &[NodeId]) {
        for word in 0..SILENT_WORDS {
            let its = nodes.iter().map(|node| u64::from(node.number()));
            let its = its.filter(|number| number / 64 == word);
            let bits = its.fold(0, |bits, number| bits | 1 << (number % 64));
            if self.get(SILENT + word * 8) != bits {
                self.set(SILENT + word * 8, bits);
            }
        }
    }

    /// Whether a node is one of them.
    pub fn is_silent(&self, node: NodeId) -> bool {
        let number = u64::from(node.number());
        self.get(SILENT + number / 64 * 8) >> (number % 64) & 1 == 1
    }

    /// The node starts, and can be reached.
    pub fn start(&self) {
        self.set(STARTS, self.starts() + 1);
    }

    /// How often the node was started.
    pub fn starts(&self) -> u64 {
        self.get(STARTS)
    }

    /// Counts the pages anew that the node has, behind a death: what a dead process has taken room
    /// for and not got is free again. Whether that could be told: else this is done again later.
    pub fn recount(&self, count: impl Fn() -> u64, rest: Duration) -> bool {
        self.pages_used().recount(count, rest)
    }

    fn pages_used(&self) -> Tally<'_> {
        Tally::new(&self.0, USED)
    }

    /// Pages that the node may have.
    pub fn capacity(&self) -> u64 {
        self.get(CAPACITY)
    }

    /// Pages that it has.
    pub fn used(&self) -> u64 {
        self.get(USED)
    }

    /// Pages that it may have besides.
    pub fn free(&self) -> u64 {
        self.capacity().saturating_sub(self.used())
    }

    /// Sets how many pages are to be free. 0: room is made when a touch finds none.
    pub fn set_reserve(&self, pages: u64) {
        if self.get(RESERVE) != pages {
            self.set(RESERVE, pages);
        }
    }

    /// Pages that are missing until the reserve is free.
    pub fn missing(&self) -> u64 {
        (self.used() + self.get(RESERVE)).saturating_sub(self.capacity())
    }

    /// Whether less than half of what is to be free is so.
    pub fn is_short(&self) -> bool {
        self.free() == 0 || self.free() * 2 < self.get(RESERVE)
    }

    /// The same as [`Capacity::missing`] behind a request for room: a few, if no page is free.
    pub fn missing_now(&self) -> u64 {
        let least = if self.free() == 0 { AT_ONCE.min(self.capacity()) } else { 0 };
        self.missing().max(least)
    }

    /// Takes room for a page, and asks for more when the reserve is touched.
    pub fn take(&self) -> bool {
        let capacity = self.capacity();
        let Some(used) = self.pages_used().take(capacity) else {
            self.ask();
            return false;
        };
        // A file that was cut short has no room at all.
        let _ = self.0.shared_add(TAKEN, 1);
        if used + self.get(RESERVE) >= capacity {
            self.ask();
        }
        true
    }

    /// Gives the room of so many pages back.
    pub fn give(&self, pages: u64) {
        self.pages_used().give(pages);
    }

    /// Wakes the evictor, if it sleeps.
    pub(super) fn ask(&self) {
        if self.get(WANTED) == 0 && self.0.shared_swap(WANTED, 1) == Ok(0) {
            self.0.futex_wake(WANTED, 1);
        }
    }

    /// The evictor waits until somebody asks for room: whether that was so.
    pub fn wait_for_demand(&self, patience: Duration) -> bool {
        if self.get(WANTED) == 0 {
            self.0.futex_wait(WANTED, 0, Some(patience));
        }
        self.0.shared_swap(WANTED, 0) == Ok(1)
    }

    /// Pages have left: whoever waits for room looks again.
    pub fn tell(&self, pages: u64) {
        // As in `take`.
        let _ = self.0.shared_add(LEFT, pages);
        self.0.futex_wake(LEFT, u32::MAX);
    }

    /// Waits until pages have left since `seen` was read, or time is up.
    pub fn wait(&self, seen: u64, patience: Duration) {
        self.ask();
        self.0.futex_wait(LEFT, seen as u32, Some(patience));
    }

    /// How many pages have left.
    pub fn left(&self) -> u64 {
        self.get(LEFT)
    }

    /// The node's time, by which pages age: 12 bits. It goes by pages that come, so nothing ages
    /// while nothing comes, and nobody counts.
    pub fn tick(&self) -> u16 {
        let tick = self.get(TAKEN) / (self.capacity() / TICKS).max(1);
        (tick & 0xFFF) as u16
    }
}
