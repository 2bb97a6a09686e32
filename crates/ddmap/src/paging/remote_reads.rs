//! Short loads of pages that other nodes have, which stay there: the engine's copies of at most 2
//! KiB, by the cache of lines (`line_cache.rs`).
//!
//! # Why no old byte is read
//!
//! While a page's word is *absent*, nobody can store to it: who would must bring it, and the word
//! is *busy* before the page is in the file (`protocol`, invariants 2 and 4). So if the word is
//! absent, and the directory says behind that that a holder has version *v*, the page's bytes are
//! those of *v*: at the time the word was looked at, or since, if the page has gone to that holder
//! in between. Each load looks at both, whatever the cache has; an entry is of one version, and a
//! version's bytes never change. What is asked of a holder is given in that version or not at all,
//! and used if the word is the same when it has come.
//!
//! Locks: a shard's, for a moment; none while a holder is asked.

use crate::control::interruption;
use crate::control::transport::Carrier;
use crate::paging::line_cache::{Found, Shard};
use crate::protocol::messages::{Answer, Lines, Request};
use crate::protocol::{NodeId, PAGE, State, Version, Word};
use crate::shared_memory::counters::Count;
use crate::shared_memory::fork_lock::ForkLock;
use crate::shared_memory::view::SharedRegion;
use std::cell::Cell;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

/// Parts of the cache, each with a lock of its own.
const SHARDS: usize = 8;
/// A holder that has not given lines by then is asked for the page, with patience.
const PATIENCE: Duration = Duration::from_secs(1);
/// By default the cache has this part of the node's capacity.
const PART: u64 = 16;
/// Ticks of the node in which as many pages come as it has room for.
const TURN: u16 = 256;

thread_local! {
    /// Where this thread's last short load ended, in which region.
    static END: Cell<(usize, u64)> = const { Cell::new((0, 0)) };
}

/// How large the cache of lines may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LineCache {
    /// 1/16 of the node's capacity.
    #[default]
    Auto,
    /// So many bytes.
    Bytes(u64),
    /// There is none.
    Off,
}

impl LineCache {
    /// What a text says: `auto`, `off`, or bytes.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "auto" => Self::Auto,
            "off" | "0" => Self::Off,
            bytes => Self::Bytes(bytes.parse().ok()?),
        })
    }
}

/// Loads apart of one process and region.
pub struct RemoteReads {
    most: u64,
    /// Made when they are wanted first.
    shards: [ForkLock<Option<Shard>>; SHARDS],
    /// When somebody loaded last, in ticks of the node.
    loaded_at: AtomicU16,
    /// Loads that were served from the cache, and by a holder; bytes that came.
    pub hits: AtomicU64,
    /// See `hits`.
    pub asked: AtomicU64,
    /// See `hits`.
    pub bytes: AtomicU64,
}

/// A page that is away, as it was seen.
#[derive(Clone, Copy)]
struct Seen {
    word: Word,
    owner: NodeId,
    version: Version,
}

/// A page's state and version, if it is absent and a holder has it.
fn seen(ground: &SharedRegion, page: u64) -> Option<Seen> {
    // In this order: see above.
    let word = ground.table.word(page);
    let (owner, version) = ground.giver(page).filter(|_| word.state() == State::Absent)?;
    Some(Seen { word, owner, version })
}

impl RemoteReads {
    /// On a node of so many pages. `None`: there is to be none.
    pub fn new(wish: LineCache, capacity: u64) -> Option<Self> {
        let most = match wish {
            LineCache::Auto => capacity * PAGE / PART,
            LineCache::Bytes(bytes) => bytes,
            LineCache::Off => 0,
        };
        (most > 0).then(|| Self {
            most,
            shards: std::array::from_fn(|_| ForkLock::new(None)),
            loaded_at: AtomicU16::new(0),
            hits: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        })
    }

    /// In a forked child, as soon as it may allocate: what its parent had is not its own.
    pub fn forked(&self) {
        self.shards.iter().for_each(|shard| shard.renew(None));
    }

    /// Bytes that the cache has now.
    pub fn used(&self) -> u64 {
        let used = |shard: &ForkLock<Option<Shard>>| shard.lock().as_ref().map_or(0, Shard::used);
        self.shards.iter().map(used).sum()
    }

    fn shard<T>(&self, page: u64, act: impl FnOnce(&mut Shard) -> T) -> T {
        let mut shard = self.shards[page as usize % SHARDS].lock();
        act(shard.get_or_insert_with(|| Shard::new(self.most / SHARDS as u64)))
    }

    /// Pages come: a cache that nobody has used for as long as an unwanted one stays here is
    /// halved.
    pub fn pages_come(&self, ground: &SharedRegion) {
        let now = ground.tick();
        let since = now.wrapping_sub(self.loaded_at.load(Ordering::Relaxed)) & 0xFFF;
        if since >= TURN {
            self.loaded_at.store(now, Ordering::Relaxed);
            let shards = self.shards.iter().filter_map(|shard| shard.get().try_lock().ok());
            for mut shard in shards {
                shard.as_mut().into_iter().for_each(Shard::shrink);
            }
        }
    }

    /// Copies bytes of a page that a holder has, which stays there. `false`: it is here, or is to
    /// be brought.
    pub fn load(
        &self,
        ground: &SharedRegion,
        carrier: &dyn Carrier,
        at: u64,
        to: &mut [u8],
    ) -> bool {
        let end = (std::ptr::from_ref(ground) as usize, at + to.len() as u64);
        let goes_on = END.replace(end) == (end.0, at) && !at.is_multiple_of(PAGE);
        let page = at / PAGE;
        if page >= ground.table.pages() {
            return false;
        }
        let Some(seen) = seen(ground, page) else { return false };
        // Who reads in order gets pages, ahead of the next calls.
        let Some(lines) = Lines::of(at, to.len() as u64).filter(|_| !goes_on) else { return false };
        let now = ground.tick();
        self.loaded_at.store(now, Ordering::Relaxed);
        let skip = (at % PAGE) as usize - lines.range().start;
        match self.shard(page, |shard| shard.find(lines, seen.version, (skip, to), now)) {
            Found::Here => {
                self.hits.fetch_add(1, Ordering::Relaxed);
                ground.count(Count::LineHit, 1);
                true
            }
            Found::Whole => false,
            Found::Ask => self.ask((ground, carrier), lines, seen, (skip, to)),
        }
    }

    fn ask(
        &self,
        (ground, carrier): (&SharedRegion, &dyn Carrier),
        lines: Lines,
        before: Seen,
        (skip, to): (usize, &mut [u8]),
    ) -> bool {
        let request = Request::Lines { lines, version: before.version };
        let answer = carrier.ask(before.owner, &request, PATIENCE);
        if interruption::interrupted().is_none() {
            ground.heard(before.owner, answer.is_ok());
        }
        let Ok(Answer::Lined(Some(bytes))) = answer else { return false };
        let is_same = |now: Seen| (now.word, now.version) == (before.word, before.version);
        if bytes.len() != lines.bytes() || !seen(ground, lines.page()).is_some_and(is_same) {
            return false;
        }
        to.copy_from_slice(&bytes[skip..skip + to.len()]);
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        ground.count(Count::LineMiss, 1);
        ground.count(Count::LineBytes, bytes.len() as u64);
        let is_current =
            |page, version| seen(ground, page).is_some_and(|seen| seen.version == version);
        self.shard(lines.page(), |shard| shard.keep(lines, before.version, &bytes, &is_current));
        true
    }
}
