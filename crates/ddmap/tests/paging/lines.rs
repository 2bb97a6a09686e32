//! Short loads of pages that a holder has, which stay there: what comes from the cache, what comes
//! over the wire, and that no old byte does.

#![allow(clippy::cast_precision_loss)] // Parts of counts.

use crate::node::eviction::Made;
use crate::paging::pager::{PagerOptions, RegionPager};
use crate::paging::prefetch::PrefetchMode;
use crate::paging::remote_reads::LineCache;
use crate::protocol::State;
use crate::shared_memory::counters::Count;
use crate::tests::support::pair::{PAGE, World};
use pmem::{Region, UserOut};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const VALUE: u64 = 1024;
/// Values, and loads that count.
const VALUES: u64 = 20_000;
const LOADS: u64 = 200_000;

fn wishes(lines: LineCache) -> PagerOptions {
    PagerOptions { ahead: PrefetchMode::Off, lines, ..PagerOptions::default() }
}

/// Reads as a call does that holds nothing.
fn read(region: &Region, at: u64, to: &mut [u8]) {
    let length = to.len();
    while region.read_apart(at, &UserOut::new(to), length).is_err() {
        let page = region.absent_page().expect("a touch of an absent page");
        region.pager().unwrap().fault(page, pmem::Access::Load).unwrap();
    }
}

fn drawn(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Values by zipf 0.99, which lie anywhere.
struct Zipf {
    sums: Vec<f64>,
    places: Vec<u64>,
    state: u64,
}

impl Zipf {
    fn new(values: u64) -> Self {
        let mut sum = 0.0;
        let add = |rank: u64| {
            sum += 1.0 / (rank as f64).powf(0.99);
            sum
        };
        let sums = (1..=values).map(add).collect();
        let (mut places, mut state): (Vec<u64>, _) =
            ((0..values).collect(), 88_172_645_463_325_252);
        for at in (1..places.len()).rev() {
            places.swap(at, (drawn(&mut state) % (at as u64 + 1)) as usize);
        }
        Self { sums, places, state }
    }

    fn next(&mut self) -> u64 {
        let part = (drawn(&mut self.state) >> 11) as f64 / (1_u64 << 53) as f64;
        let wanted = part * self.sums[self.sums.len() - 1];
        let rank = self.sums.partition_point(|sum| *sum <= wanted).min(self.sums.len() - 1);
        self.places[rank]
    }
}

/// LFU that counts all that was ever wanted, and has room for so many values.
#[derive(Default)]
struct Perfect {
    counts: HashMap<u64, u64>,
    here: HashSet<u64>,
    by_count: BTreeSet<(u64, u64)>,
    room: usize,
}

impl Perfect {
    fn wants(&mut self, value: u64) -> bool {
        let count = self.counts.entry(value).or_default();
        *count += 1;
        let count = *count;
        if self.here.contains(&value) {
            self.by_count.remove(&(count - 1, value));
            self.by_count.insert((count, value));
            return true;
        }
        if self.here.len() == self.room {
            let coldest = *self.by_count.first().unwrap();
            if coldest.0 >= count {
                return false;
            }
            self.by_count.remove(&coldest);
            self.here.remove(&coldest.1);
        }
        self.here.insert(value);
        self.by_count.insert((count, value));
        false
    }
}

/// A world whose values are all away: each of their words is the value's number.
fn values_away(values: u64, local: u64, lines: LineCache) -> (World, Region) {
    let pages = values * VALUE / PAGE;
    let world = World::wishing(pages, local, wishes(lines));
    let region = world.region();
    world.evict_beside(|| {
        for word in 0..pages * PAGE / 8 {
            while region.shared_store(word * 8, word * 8 / VALUE + 1).is_err() {
                let page = region.absent_page().expect("a touch");
                region.pager().unwrap().fault(page, pmem::Access::Store).unwrap();
            }
        }
    });
    // Of a batch some may stay, as others are at them.
    while matches!(world.evict(local), Made::Room(_)) {}
    let there = |page: &u64| world.pager.ground().table.word(*page).state() == State::Absent;
    assert_eq!((0..pages).filter(there).count() as u64, pages);
    world.holder.1.iter().for_each(|bytes| bytes.store(0, Ordering::Relaxed));
    (world, region)
}

fn load_all(world: &World, region: &Region, zipf: &mut Zipf, loads: u64) {
    let mut value = vec![0; VALUE as usize];
    world.evict_beside(|| {
        for _ in 0..loads {
            let number = zipf.next();
            read(region, number * VALUE, &mut value);
            let (words, _) = value.as_chunks::<8>();
            assert!(words.iter().all(|word| u64::from_ne_bytes(*word) == number + 1), "{number}");
        }
    });
}

fn hits(pager: &RegionPager) -> u64 {
    pager.apart.as_ref().unwrap().hits.load(Ordering::Relaxed)
}

/// At the commits that choose it (`rotation`), one in four; with `SOLERA_TEST_LONG` at each.
#[test]
fn a_fifth_of_the_values_serves_nearly_as_many_loads_as_a_perfect_lfu() {
    if !rotation::chosen("lines/lfu", 4) {
        return;
    }
    // What an entry has beside its bytes counts, too.
    let room = VALUES / 5;
    let bytes = room * (VALUE + 96);
    let (world, region) = values_away(VALUES, 256, LineCache::Bytes(bytes));
    let (mut zipf, mut model) =
        (Zipf::new(VALUES), Perfect { room: room as usize, ..Perfect::default() });
    load_all(&world, &region, &mut zipf, LOADS);
    let mut draws = Zipf::new(VALUES);
    (0..LOADS).for_each(|_| _ = model.wants(draws.next()));
    let before = hits(&world.pager);
    let fetched = || world.pager.counted().get(Count::Fetched);
    let (asked, pages) =
        (world.pager.apart.as_ref().unwrap().asked.load(Ordering::Relaxed), fetched());
    world.holder.1.iter().for_each(|bytes| bytes.store(0, Ordering::Relaxed));
    load_all(&world, &region, &mut zipf, LOADS);
    let perfect = (0..LOADS).filter(|_| model.wants(draws.next())).count() as f64;
    let from_cache = hits(&world.pager) - before;
    let apart = world.pager.apart.as_ref().unwrap();
    let lines = apart.asked.load(Ordering::Relaxed) - asked;
    let here = LOADS - from_cache - lines - (fetched() - pages);
    let served = (from_cache + here) as f64;
    let wire = world.holder.1.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
    assert!(apart.used() <= bytes, "{} of {bytes}", apart.used());

    let (plain, plain_region) = values_away(VALUES, room * VALUE / PAGE, LineCache::Off);
    let mut zipf = Zipf::new(VALUES);
    load_all(&plain, &plain_region, &mut zipf, LOADS);
    plain.holder.1.iter().for_each(|bytes| bytes.store(0, Ordering::Relaxed));
    load_all(&plain, &plain_region, &mut zipf, LOADS);
    let by_pages = plain.holder.1[0].load(Ordering::Relaxed);
    let part = (wire[0] + wire[1]) as f64 / by_pages as f64;
    println!(
        "cache {from_cache}, here {here}, lines {lines}, pages {}; perfect {perfect}; \
         wire {wire:?} of {by_pages}: {part:.3}",
        fetched() - pages
    );
    assert!(served >= 0.98 * perfect, "{served} of {perfect}");
    assert!(part <= 0.35, "{part}");
}

#[test]
fn lines_are_asked_for_once_and_their_page_stays() {
    let (world, region) = values_away(64, 64, LineCache::Bytes(1 << 20));
    let mut some = [0; 100];
    for _ in 0..3 {
        // Two lines of page 2, at 40 bytes into the first one.
        read(&region, 2 * PAGE + 104, &mut some[..64]);
        assert_eq!(u64::from_ne_bytes(*some.first_chunk().unwrap()), 9);
    }
    let wire = || world.holder.1.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
    assert_eq!(wire(), [0, 128]);
    // Over the end of a page: a line of each.
    read(&region, 6 * PAGE - 50, &mut some);
    assert_eq!(wire(), [0, 256]);
    assert_eq!(u64::from_ne_bytes(*some[2..].first_chunk().unwrap()), 24);
    assert_eq!(u64::from_ne_bytes(*some[90..].first_chunk().unwrap()), 25);
    assert_eq!(world.pager.ground().pages_in_file(), 0);
    assert_eq!(hits(&world.pager), 2);
}

#[test]
fn who_reads_in_order_gets_pages() {
    let (world, region) = values_away(64, 64, LineCache::Bytes(1 << 20));
    let mut some = [0; 512];
    (0..64).for_each(|at| read(&region, at * 512, &mut some));
    let wire = world.holder.1.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
    // The first read of a page is in order only behind the second.
    assert_eq!(wire, [8 * PAGE, 8 * 512]);
}

#[test]
fn a_page_whose_lines_do_not_fit_the_cache_is_brought_when_they_were_asked_for_often() {
    // Room for one value in each part of the cache, so that of a page's values the others are
    // asked for each time.
    let (world, region) = values_away(64, 64, LineCache::Bytes(8 * 1200));
    let mut value = [0; VALUE as usize];
    for at in 0..64 {
        // Not in order.
        read(&region, [0, 2, 1, 3][at % 4] * VALUE, &mut value);
    }
    let [pages, lines] = world.holder.1.each_ref().map(|bytes| bytes.load(Ordering::Relaxed));
    assert_eq!((pages, lines), (PAGE, 2 * PAGE));
}

#[test]
fn a_cache_that_nobody_uses_shrinks() {
    let (world, region) = values_away(4096, 256, LineCache::Bytes(1 << 20));
    let mut zipf = Zipf::new(4096);
    load_all(&world, &region, &mut zipf, 20_000);
    let full = world.pager.apart.as_ref().unwrap().used();
    assert!(full > 900_000, "it has grown to {full}");
    world.evict_beside(|| {
        for page in (0..1024).cycle().take(8 * 1024) {
            while region.load64(page * PAGE).is_err() {
                let at = region.absent_page().expect("a touch");
                region.pager().unwrap().fault(at, pmem::Access::Load).unwrap();
            }
        }
    });
    let left = world.pager.apart.as_ref().unwrap().used();
    assert!(left <= full / 16, "{left} of {full} are left");
}

/// One process stores, two others read through their caches, and pages leave all the time.
#[test]
fn no_old_byte_is_read_while_others_store_and_pages_leave() {
    const PAGES: u64 = 32;
    /// Pages that come back, at least.
    const MOVED: u64 = 1000;
    let world = World::wishing(PAGES, PAGES, wishes(LineCache::Bytes(1 << 20)));
    let region = world.region();
    let readers = [0, 1].map(|_| {
        let pager = world.second_pager(wishes(LineCache::Bytes(1 << 20)));
        (world.region_by(&pager), pager)
    });
    // Of each page: the number that was stored last in all of its words at 0, 512, 1024 ...
    let stored: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
    let over = AtomicBool::new(false);
    let store = |at: u64, value: u64| {
        while region.shared_store(at, value).is_err() {
            let page = region.absent_page().expect("a touch");
            region.pager().unwrap().fault(page, pmem::Access::Store).unwrap();
        }
    };
    let reads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (reader, (region, _)) in readers.iter().enumerate() {
            let (stored, over, reads) = (&stored, &over, &reads);
            scope.spawn(move || {
                let mut state = 7 + reader as u64;
                let mut bytes = [0; 8];
                while !over.load(Ordering::Relaxed) {
                    let (page, part) = (drawn(&mut state) % PAGES, drawn(&mut state) % 8);
                    let least = stored[page as usize].load(Ordering::Acquire);
                    read(region, page * PAGE + part * 512, &mut bytes);
                    let found = u64::from_ne_bytes(bytes);
                    assert!(found >= least, "page {page}: {found}, and {least} was stored before");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                world.evict(8);
            }
        });
        let mut state = 3;
        // As long as it takes to read and move enough, whatever else the machine does.
        let caches = || readers.iter().map(|reader| hits(&reader.1)).sum::<u64>();
        let came = || world.pager.counted().get(Count::Fetched);
        let mut number = 0;
        while number < 20_000 || caches() < 2_000 || came() <= MOVED {
            number += 1;
            let page = drawn(&mut state) % PAGES;
            (0..8).for_each(|part| store(page * PAGE + part * 512, number));
            stored[page as usize].store(number, Ordering::Release);
            if number % 16 == 0 {
                // Pages have a chance to leave, and lines to be read twice.
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    let moved = world.pager.counted().get(Count::Fetched);
    println!("{} reads, {} of the caches, {moved} pages came", reads.into_inner(), {
        readers.iter().map(|reader| hits(&reader.1)).sum::<u64>()
    });
}
