//! Pages that come ahead of a process, between two nodes in this one: counted, never timed. Of each
//! kind of touches a part is tried, which the commit chooses (`rotation`); with `SOLERA_TEST_LONG`
//! all.

use crate::paging::pager::{PagerOptions, RegionPager};
use crate::paging::prefetch::PrefetchMode;
use crate::protocol::State;
use crate::shared_memory::counters::{Count, Touch};
use crate::shared_memory::store::Store;
use crate::tests::support::dir::TestDir;
use crate::tests::support::running::{PAGE, Running, region_of, store, touch};
use pmem::{Access, Pager, Region};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Pages of the region: 64 MiB.
const PAGES: u64 = 16 << 10;
/// Pages that its node has room for.
const HERE: u64 = 8 << 10;

/// A region of which all pages but the first are at another node.
struct World {
    path: PathBuf,
    _nodes: [Running; 2],
    _folder: TestDir,
}

impl World {
    fn new() -> Self {
        let folder = TestDir::new();
        let first = Running::start(&folder.at("1"), HERE * PAGE, None);
        let second = Running::start(&folder.at("2"), 2 * PAGES * PAGE, Some(first.address));
        assert_eq!((first.number, second.number), (1, 2));
        let volume = Store::at(first.store.clone()).create_volume("v", PAGES * PAGE, 1).unwrap();
        let world = Self { path: volume.join("region"), _nodes: [first, second], _folder: folder };
        let (region, _) = world.attach(PrefetchMode::Off);
        for page in (0..PAGES).rev() {
            store(&region, page, page + 1);
        }
        world
    }

    fn attach(&self, ahead: PrefetchMode) -> (Region, Arc<RegionPager>) {
        region_of(&self.path, PagerOptions { ahead, ..PagerOptions::default() })
    }
}

/// What came of touches.
#[derive(Debug)]
struct Outcome {
    /// Requests to the other node.
    remote: u64,
    fetched: u64,
    /// Pages that came, and were not asked for.
    ahead: u64,
    /// Of them, those that were touched then, of 1000.
    used: u64,
}

/// Touches pages in a thread of its own: with no touches before.
fn run(world: &World, ahead: PrefetchMode, pages: &[u64]) -> Outcome {
    let (region, pager) = world.attach(ahead);
    let elsewhere = |page: &&u64| pager.ground().table.word(**page).state() == State::Absent;
    let elsewhere = pages.iter().filter(elsewhere).collect::<BTreeSet<_>>().len() as u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for page in pages {
                touch(&region, *page);
                assert_eq!(region.load64(page * PAGE), Ok(page + 1), "page {page}");
            }
        });
    });
    let counted = pager.counted();
    let remote = counted.times(Touch::Remote).count();
    let (fetched, brought) = (counted.get(Count::Fetched), counted.get(Count::Ahead));
    // What was elsewhere, was touched, and did not come on demand has come ahead.
    let used = elsewhere.saturating_sub(fetched - brought) * 1000 / brought.max(1);
    let outcome = Outcome { remote, fetched, ahead: brought, used };
    println!("{ahead:?}, {} touches: {outcome:?}", pages.len());
    outcome
}

#[test]
fn pages_in_order_take_a_request_a_window() {
    let world = World::new();
    let pages: Vec<u64> = (0..PAGES).collect();
    // Twice: the first time the pages that were stored to last are here still.
    run(&world, PrefetchMode::Off, &pages);
    let off = run(&world, PrefetchMode::Off, &pages);
    assert_eq!(off.ahead, 0);
    let turn = rotation::turn("prefetch/order", 3);
    for (at, ahead) in (0..).zip([PrefetchMode::Auto, PrefetchMode::Seq, PrefetchMode::Stride]) {
        if at != turn && !rotation::all() {
            continue;
        }
        let with = run(&world, ahead, &pages);
        assert!(with.remote * 100 <= off.remote * 3, "{with:?}, and off {off:?}");
        assert!(with.fetched <= off.fetched + PAGES / 100, "{with:?}, and off {off:?}");
    }
}

#[test]
fn what_comes_ahead_of_strides_is_used() {
    if !rotation::chosen("prefetch/strides", 2) {
        return;
    }
    let world = World::new();
    // The pages that were stored to last, the first ones, leave.
    run(&world, PrefetchMode::Off, &(HERE..PAGES).collect::<Vec<_>>());
    let strides: Vec<u64> = (0..HERE - 128).step_by(3).collect();
    let outcome = run(&world, PrefetchMode::Auto, &strides);
    assert!(outcome.ahead > 1000, "{outcome:?}");
    assert!(outcome.used >= 900, "{outcome:?}");
}

#[test]
fn what_comes_ahead_of_streams_in_turns_is_used() {
    if !rotation::chosen("prefetch/streams", 2) {
        return;
    }
    let world = World::new();
    run(&world, PrefetchMode::Off, &(0..HERE).rev().collect::<Vec<_>>());
    // Beyond what is here.
    let turns: Vec<u64> =
        (HERE + 512..PAGES - 4096).flat_map(|page| [page, page + 3500]).take(5000).collect();
    let outcome = run(&world, PrefetchMode::Auto, &turns);
    assert!(outcome.ahead > 1000, "{outcome:?}");
    assert!(outcome.used >= 900, "{outcome:?}");
}

#[test]
fn nothing_comes_ahead_of_touches_at_random() {
    if !rotation::chosen("prefetch/random", 2) {
        return;
    }
    let world = World::new();
    let mut state = 88_172_645_463_325_252_u64;
    let random = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % PAGES
    });
    let outcome = run(&world, PrefetchMode::Auto, &random.take(PAGES as usize).collect::<Vec<_>>());
    assert!(outcome.fetched > PAGES / 3, "{outcome:?}");
    assert!(outcome.ahead * 50 < outcome.fetched, "{outcome:?}");
}

#[test]
fn calls_in_order_bring_ahead_too() {
    if !rotation::chosen("prefetch/calls", 2) {
        return;
    }
    let world = World::new();
    run(&world, PrefetchMode::Off, &(0..PAGES).rev().collect::<Vec<_>>());
    let (_region, pager) = world.attach(PrefetchMode::Auto);
    // As the engine does where a call meets an absent page: all that the call goes to is said.
    let (first, calls) = (PAGES - 4096, 1000);
    for page in (first..).step_by(4).take(calls) {
        pager.begins_anew(0).unwrap();
        while let Some(at) =
            (page..page + 4).find(|page| pager.ground().table.word(*page).state() == State::Absent)
        {
            pager.ready(&[(page * PAGE, 4 * PAGE)], Access::Load);
            pager.fault(at * PAGE, Access::Load).unwrap();
        }
    }
    let counted = pager.counted();
    let remote = counted.times(Touch::Remote).count();
    // Nearly all were away.
    assert!(counted.get(Count::Fetched) >= 3900);
    assert!(remote < calls as u64 / 8, "{remote} requests for {calls} calls");
}
