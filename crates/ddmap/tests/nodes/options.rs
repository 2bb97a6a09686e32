//! What a program asks of its node reaches it: of two runs on a node, one has room made before it
//! is short, the other one has not; a program has no more of its volume there than it asked for.

use crate::control::preferences::{EvictionStart, Preferences};
use crate::paging::pager::{PagerOptions, RegionPager};
use crate::shared_memory::store::Store;
use crate::tests::support::dir::TestDir;
use crate::tests::support::running::{PAGE, Running, region_of, store, touch};
use pmem::{Access, Hint, Pager, Region};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CAPACITY: u64 = 4 << 20;

#[test]
fn room_is_made_ahead_or_when_a_touch_finds_none() {
    let folder = TestDir::new();
    let first = Running::start(&folder.at("1"), CAPACITY, None);
    let second = Running::start(&folder.at("2"), CAPACITY, Some(first.address));
    assert_eq!((first.number, second.number), (1, 2));
    let (here, pages) = (CAPACITY / PAGE, CAPACITY / PAGE * 3 / 2);
    let path = Store::at(first.store.clone()).create_volume("v", pages * PAGE, 1).unwrap();
    let run = |when| {
        let wish = Preferences { when: Some(when), ..Preferences::default() };
        region_of(&path.join("region"), PagerOptions { wish, ..PagerOptions::default() })
    };
    {
        let (region, pager) = run(EvictionStart::Demand);
        let room = &pager.ground().room;
        for page in 0..here - 8 {
            store(&region, page, page + 1);
        }
        // Longer than the evictor sleeps.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!((room.used(), room.left()), (here - 8, 0), "8 pages are free, and nobody waits");
        for page in here - 8..pages {
            store(&region, page, page + 1);
        }
        assert!(room.left() >= pages - here, "{} left", room.left());
        // It is not what is kept free that was missing.
        assert!(room.left() < pages - here + 200, "{} left", room.left());
    }
    let (region, pager) = run(EvictionStart::Background);
    let (room, since) = (&pager.ground().room, Instant::now());
    while room.missing() > 0 || room.free() < 32 {
        assert!(since.elapsed() < Duration::from_mins(2), "{} are free", room.free());
        std::thread::sleep(Duration::from_millis(10));
    }
    for page in 0..pages {
        touch(&region, page);
        assert_eq!(region.load64(page * PAGE), Ok(page + 1));
    }
}

/// A node with two volumes, of which nothing was touched yet, and a holder.
struct Two {
    _nodes: [Running; 2],
    paths: [PathBuf; 2],
    _folder: TestDir,
}

impl Two {
    fn new(pages: u64) -> Self {
        let folder = TestDir::new();
        let first = Running::start(&folder.at("1"), 64 << 20, None);
        let second = Running::start(&folder.at("2"), 64 << 20, Some(first.address));
        let own = Store::at(first.store.clone());
        let paths =
            ["v", "w"].map(|name| own.create_volume(name, pages * PAGE, 1).unwrap().join("region"));
        Self { _nodes: [first, second], paths, _folder: folder }
    }

    fn run(&self, volume: usize, local: Option<u64>) -> (Region, Arc<RegionPager>) {
        let wish = Preferences { local, ..Preferences::default() };
        region_of(&self.paths[volume], PagerOptions { wish, ..PagerOptions::default() })
    }
}

fn wait_until(what: impl Fn() -> bool) {
    let since = Instant::now();
    while !what() {
        assert!(since.elapsed() < Duration::from_secs(50), "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_program_has_no_more_here_than_it_asks_for_and_other_volumes_keep_theirs() {
    let (pages, local, stays) = (4096, 1100, 40);
    let two = Two::new(pages);
    let (other, beside) = two.run(1, None);
    // Not in ascending order, in which the next ones would be there, too.
    for page in (0..1000).rev() {
        store(&other, page, page + 3);
    }
    let (region, pager) = two.run(0, Some(local));
    pager.advise((0, stays * PAGE), Hint::Stays);
    let share = pager.ground().table.share();
    assert_eq!((share.local(), share.stays()), (Some(local), stays));
    let most = std::cell::Cell::new(0);
    let look = || most.set(pager.ground().pages_in_file().max(most.get()));
    // In no order, so that nothing comes ahead; then in order.
    let shuffled = (0..pages).map(|page| page * 7919 % pages);
    shuffled.for_each(|page| {
        store(&region, page, page + 7);
        look();
    });
    for page in 0..pages {
        touch(&region, page);
        assert_eq!(region.load64(page * PAGE), Ok(page + 7), "page {page}");
        look();
    }
    assert!(most.get() <= local + stays, "{} pages were here", most.get());
    assert!(most.get() > local / 2, "{} pages were here at most", most.get());
    // What must stay is here, beside what is asked for.
    assert!((0..stays).all(|page| pager.ground().is_in_file(page)));
    assert_eq!(pager.ground().pages_in_file(), share.pages());
    assert_eq!(beside.ground().pages_in_file(), 1000, "the other volume has all its pages");
    assert_eq!(beside.ground().table.share().local(), None);
    for page in 0..1000 {
        assert_eq!(other.load64(page * PAGE), Ok(page + 3));
    }
}

#[test]
fn how_much_is_here_goes_by_the_program_that_came_last_of_those_that_wish() {
    let two = Two::new(4096);
    let (region, pager) = two.run(0, None);
    for page in 0..4096 {
        store(&region, page, page + 1);
    }
    let here = || pager.ground().pages_in_file();
    let share = pager.ground().table.share();
    assert_eq!((here(), share.local()), (4096, None));
    let first = two.run(0, Some(2048));
    wait_until(|| here() <= 2048);
    let second = two.run(0, Some(1024));
    wait_until(|| here() <= 1024);
    let none = two.run(0, None);
    assert_eq!(share.local(), Some(1024), "a program without a wish changes nothing");
    // They go: what the one before asked for counts again.
    drop(none);
    drop(second);
    wait_until(|| share.local() == Some(2048));
    drop(first);
    wait_until(|| share.local().is_none());
    for page in 0..4096 {
        touch(&region, page);
        assert_eq!(region.load64(page * PAGE), Ok(page + 1), "page {page}");
    }
    assert_eq!(here(), 4096);
}

#[test]
fn a_call_that_holds_much_gets_it_within_a_small_share() {
    let two = Two::new(4096);
    let (region, pager) = two.run(0, Some(1024));
    for page in 0..4096 {
        store(&region, page, page + 1);
    }
    // Each in one request, as calls of the engine announce what they touch.
    for first in (0..4096).step_by(64) {
        pager.ready(&[(first * PAGE, 64 * PAGE)], Access::Load);
        (first..first + 64).for_each(|page| touch(&region, page));
    }
    assert!(pager.ground().pages_in_file() <= 1024);
    assert_eq!(Preferences::local_of("4194304"), Some(1024));
    for text in ["", "-1", "4194303", "99999999999999999999"] {
        assert_eq!(Preferences::local_of(text), None, "{text}");
    }
}
