//! What a program says of its mappings, by the requests that its touches make.

use crate::paging::hints::AccessPattern;
use crate::paging::pager::PagerOptions;
use crate::paging::pagers::Pagers;
use crate::paging::prefetch::PrefetchMode;
use crate::protocol::State;
use crate::shared_memory::counters::Count;
use crate::shared_memory::maps::PagedMapping;
use crate::tests::support::pair::{PAGE, World};
use crate::tests::support::process::alone;
use pmem::Region;
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::time::Duration;

const PAGES: u64 = 256;

/// A world of which all pages are away, and a program's mapping of them.
fn away(local: u64, ahead: PrefetchMode) -> (World, Region, Region) {
    let world = World::with(PAGES, local, ahead);
    let (engine, mapping) = (world.region(), world.region_alone());
    let start = mapping.base() as usize;
    world
        .pager
        .map(PagedMapping {
            start,
            page: 0,
            pages: PAGES,
            shared: true,
            stays: false,
            writes: false,
        })
        .unwrap();
    for page in 0..PAGES {
        while engine.shared_store(page * PAGE, page + 1).is_err() {
            world.pager.serve(engine.base() as usize + (page * PAGE) as usize, true).unwrap();
        }
        if world.pager.ground().room.missing() > 0 {
            world.evict(8);
        }
    }
    assert_eq!(send_away(&world), Vec::<u64>::new());
    (world, engine, mapping)
}

/// Sends away what leaves, however often it is looked at before: gives what stays.
fn send_away(world: &World) -> Vec<u64> {
    let table = &world.pager.ground().table;
    let here = || (0..PAGES).filter(|page| table.word(*page).state() == State::Owned);
    for _ in 0..60 {
        world.evict(PAGES);
        if here().next().is_none() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    here().collect()
}

fn requests(world: &World) -> u64 {
    world.holder.2.load(Ordering::Relaxed)
}

/// Touches pages in an order: how many requests that takes, and pages that came unasked.
fn touch(world: &World, mapping: &Region, pages: impl Iterator<Item = u64>) -> (u64, u64) {
    let counts = || [requests(world), world.pager.counted().get(Count::Ahead)];
    let before = counts();
    for page in pages {
        while mapping.load64(page * PAGE).is_err() {
            world.pager.serve(mapping.base() as usize + (page * PAGE) as usize, true).unwrap();
        }
        assert_eq!(mapping.load64(page * PAGE), Ok(page + 1));
    }
    let after = counts();
    (after[0] - before[0], after[1] - before[1])
}

#[test]
fn pages_that_are_wanted_soon_come_by_few_requests_as_far_as_there_is_room() {
    let _alone = alone();
    let (world, _engine, mapping) = away(PAGES, PrefetchMode::Off);
    let start = mapping.base() as usize;
    // 128 pages, from the middle of page 8 on.
    Pagers::will_need(start + 8 * PAGE as usize + 100, 127 * PAGE as usize + 200);
    assert_eq!(requests(&world), 2);
    assert_eq!(touch(&world, &mapping, (8..136).rev()), (0, 0));
    assert_eq!(touch(&world, &mapping, 136..140), (4, 0));

    let (world, _engine, mapping) = away(32, PrefetchMode::Off);
    Pagers::will_need(mapping.base() as usize, (PAGES * PAGE) as usize);
    assert_eq!(world.pager.counted().get(Count::WaitedForRoom), 0);
    assert_eq!(world.pager.ground().pages_in_file(), 32);
}

#[test]
fn a_mapping_that_is_read_in_no_order_has_nothing_brought_ahead() {
    let _alone = alone();
    let (world, _engine, mapping) = away(PAGES, PrefetchMode::Auto);
    let start = mapping.base() as usize;
    Pagers::reads(start, 64 * PAGE as usize, AccessPattern::Random);
    assert_eq!(touch(&world, &mapping, 0..64), (64, 0));
    // Behind it, and where the hint was taken back.
    let (requests, ahead) = touch(&world, &mapping, 64..128);
    assert!(requests < 16 && ahead > 40, "{requests} requests, {ahead} ahead");
    Pagers::reads(start, (PAGES * PAGE) as usize, AccessPattern::Random);
    Pagers::reads(start + 192 * PAGE as usize, 64 * PAGE as usize, AccessPattern::Normal);
    assert_eq!(touch(&world, &mapping, 160..176), (16, 0));
    let (requests, _) = touch(&world, &mapping, 192..256);
    assert!(requests < 16, "{requests} requests");
}

#[test]
fn a_mapping_that_is_read_in_order_has_no_strides_followed() {
    let _alone = alone();
    for (way, strides) in [(AccessPattern::Normal, true), (AccessPattern::InOrder, false)] {
        let (world, _engine, mapping) = away(PAGES, PrefetchMode::Auto);
        Pagers::reads(mapping.base() as usize, (PAGES * PAGE) as usize, way);
        let (requests, _) = touch(&world, &mapping, (0..PAGES).step_by(8));
        assert_eq!(requests < 16, strides, "{way:?}: {requests} requests");
        // The second touch in order brings pages ahead already, or the first one, behind page 0.
        let (requests, ahead) = touch(&world, &mapping, [1, 2].into_iter());
        assert!(requests <= 2, "{way:?}: {requests}");
        assert_eq!(ahead > 0, !strides, "{way:?}: {requests}");
    }
}

#[test]
fn locked_pages_stay_until_they_are_unlocked() {
    let _alone = alone();
    let (world, _engine, mapping) = away(PAGES, PrefetchMode::Off);
    let start = mapping.base() as usize;
    let length = |pages: u64| (pages * PAGE) as usize;
    assert_eq!(Pagers::lock(start + length(10), length(20)), Ok(()));
    // Once more, and a part beside.
    assert_eq!(Pagers::lock(start + length(20), length(20)), Ok(()));
    assert_eq!(touch(&world, &mapping, 0..64).0, 34, "30 are here");
    assert_eq!(send_away(&world), (10..40).collect::<Vec<_>>());
    // A quarter of the node's room, at most.
    assert_eq!(Pagers::lock(start + length(100), length(35)), Err(Errno::NOMEM));
    assert_eq!(Pagers::lock(start + length(100), length(34)), Ok(()));
    Pagers::unlock(start + length(100), length(34));
    Pagers::unlock(start + length(15), length(10));
    assert_eq!(send_away(&world), (10..15).chain(25..40).collect::<Vec<_>>());
    Pagers::unlock(0, usize::MAX);
    assert_eq!(send_away(&world), Vec::<u64>::new());
    // What is unmapped is not locked; nor is the whole address space more than its mappings.
    assert_eq!(Pagers::lock(start + length(10), length(20)), Ok(()));
    Pagers::will_need(0, usize::MAX);
    assert_eq!(world.pager.ground().pages_in_file(), PAGES);
    Pagers::unmap(start, start + length(PAGES));
    assert_eq!(send_away(&world), Vec::<u64>::new());
}

/// Pages of mappings that say so stay with them, whichever process has one; what is mapped besides
/// goes on leaving, and no more than a quarter stays.
#[test]
fn pages_stay_while_they_are_mapped_so() {
    let _alone = alone();
    let (world, _engine, mapping) = away(PAGES, PrefetchMode::Off);
    let start = mapping.base() as usize;
    let at = |page: u64| start + (page * PAGE) as usize;
    let map = |page: u64, pages: u64| {
        let map =
            PagedMapping { start: at(page), page, pages, shared: true, stays: true, writes: false };
        world.pager.map(map).unwrap();
    };
    let not_held = || world.pager.counted().get(Count::NotHeld);
    (0..40).for_each(|page| map(2 * page, 1));
    assert_eq!(touch(&world, &mapping, 0..PAGES).0, PAGES, "all were away");
    let even = |pages: u64| (0..pages).map(|page| 2 * page).collect::<Vec<_>>();
    assert_eq!(send_away(&world), even(40));
    // A look takes nothing of them, and they are here without a touch that is served.
    world.pager.look_everywhere();
    assert!((0..40).all(|page| mapping.load64(2 * page * PAGE) == Ok(2 * page + 1)));
    // Once more the same ones; then a quarter of the node's room, and no page more.
    (0..40).for_each(|page| map(2 * page, 1));
    map(100, 24);
    assert_eq!(not_held(), 0);
    map(200, 1);
    assert_eq!(not_held(), 1);
    touch(&world, &mapping, (100..124).chain([200]));
    let all: Vec<u64> = even(40).into_iter().chain(100..124).collect();
    assert_eq!(send_away(&world), all);
    // Of a process that came later as many stay as are left; those that both have count once.
    let (second, its_own) = (world.second_pager(PagerOptions::default()), world.region_alone());
    let start = its_own.base() as usize + (110 * PAGE) as usize;
    second
        .map(PagedMapping { start, page: 110, pages: 10, shared: true, stays: true, writes: false })
        .unwrap();
    Pagers::unmap(at(100), at(124));
    touch(&world, &mapping, 0..PAGES);
    let all: Vec<u64> = even(40).into_iter().chain(110..120).collect();
    assert_eq!(send_away(&world), all);
    // What is unmapped, or mapped over, in part; and what a process had that is gone.
    Pagers::unmap(at(0), at(3));
    let over =
        PagedMapping { start: at(4), page: 4, pages: 1, shared: true, stays: false, writes: false };
    world.pager.map(over).unwrap();
    let claimant = second.ground().table.me();
    drop(second);
    world.evictor.remove(claimant);
    assert_eq!(send_away(&world), even(40)[3..]);
    Pagers::unmap(0, usize::MAX / 2);
    assert_eq!(send_away(&world), Vec::<u64>::new());
}

/// A quarter of the pages are locked, and the coldest ones: others leave all the same.
#[test]
fn cold_pages_that_are_locked_keep_no_others_from_leaving() {
    let _alone = alone();
    let (world, _engine, mapping) = away(PAGES, PrefetchMode::Off);
    assert_eq!(Pagers::lock(mapping.base() as usize, (PAGES / 4 * PAGE) as usize), Ok(()));
    touch(&world, &mapping, PAGES / 4..PAGES);
    for _ in 0..4 {
        world.evict(PAGES);
    }
    assert_eq!(send_away(&world), (0..PAGES / 4).collect::<Vec<_>>());
    Pagers::unlock(0, usize::MAX);
}
