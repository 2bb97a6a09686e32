//! Clean pages: those that were only loaded since they came. They leave by the spare that their
//! holder keeps, without their bytes; the first store is seen, in whichever process.

use crate::node::eviction::Made;
use crate::paging::pager::{PagerOptions, RegionPager};
use crate::paging::pagers::Pagers;
use crate::paging::prefetch::PrefetchMode;
use crate::protocol::messages::{Answer, Request};
use crate::protocol::{Flags, Location, State, Version};
use crate::shared_memory::capacity::Capacity;
use crate::shared_memory::counters::Count;
use crate::shared_memory::maps::PagedMapping;
use crate::tests::support::pair::{PAGE, World, node};
use pmem::{Access, Hint, Pager, Region};
use std::io::Write;
use std::os::fd::AsRawFd;

/// A world whose first pages hold their number and 100, and are with the holder.
fn away(pages: u64) -> (World, Region) {
    let world = World::with(256, 128, PrefetchMode::Off);
    let region = world.region();
    for page in (0..pages).rev() {
        region.shared_store(page * PAGE, page + 100).unwrap();
    }
    assert_eq!(world.evict(pages), Made::Room(pages));
    (world, region)
}

impl World {
    fn state(&self, page: u64) -> State {
        self.pager.ground().table.word(page).state()
    }

    fn load(&self, pages: u64) {
        for page in 0..pages {
            self.pager.fault(page * PAGE, Access::Load).unwrap();
        }
    }

    /// What was sent, and what has left by its spare.
    fn left(&self) -> (u64, u64) {
        let counted = self.evictor.ground().counted();
        (counted.get(Count::Sent), counted.get(Count::Clean))
    }

    /// A mapping of the program's, by a pager.
    fn mapped(&self, pager: &RegionPager, shared: bool, stays: bool) -> Region {
        use std::os::fd::BorrowedFd;
        let region = self.region_alone();
        let start = region.base() as usize;
        if !shared {
            let flags = rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::FIXED;
            let prot = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
            // SAFETY: in the place of a mapping of this test's own, of the same file and length.
            unsafe {
                let file = BorrowedFd::borrow_raw(region.fd());
                let length = 256 * PAGE as usize;
                rustix::mm::mmap(start as *mut _, length, prot, flags, file, 0).unwrap();
            }
        }
        // No more than may stay.
        let pages = if stays { 16 } else { 256 };
        pager.map(PagedMapping { start, page: 0, pages, shared, stays, writes: false }).unwrap();
        region
    }
}

#[test]
fn a_page_that_was_only_loaded_leaves_without_its_bytes() {
    let (world, region) = away(8);
    world.pager.ready(&[(0, 8 * PAGE)], Access::Load);
    assert!((0..8).all(|page| world.state(page) == State::Clean));
    let (sent, clean) = world.left();
    assert_eq!((sent, clean), (8, 0));
    // The holder was not told yet, and keeps them all the same.
    assert_eq!((world.kept.pages_in_file(), world.kept.spares()), (8, 0));
    assert_eq!(world.evict(8), Made::Room(8));
    assert_eq!(world.left(), (8, 8));
    assert_eq!(world.pager.ground().pages_in_file(), 0);
    world.pager.release_owed(true);
    assert_eq!(world.kept.spares(), 0, "what it is told of an earlier version changes nothing");
    for page in 0..8 {
        world.pager.fault(page * PAGE, Access::Load).unwrap();
        assert_eq!(region.load64(page * PAGE), Ok(page + 100));
    }
    world.pager.release_owed(true);
    assert_eq!((world.kept.pages_in_file(), world.kept.spares()), (8, 8));
}

#[test]
fn the_first_store_takes_the_spare_away_in_whichever_mapping_it_is() {
    let (world, region) = away(4);
    let second = world.second_pager(PagerOptions::default());
    let other = world.region_by(&second);
    let own = world.mapped(&world.pager, true, false);
    world.load(4);
    // Loads find them in all mappings, and open none.
    for page in 0..4 {
        for (pager, region) in [(&world.pager, &own), (&second, &other)] {
            pager.serve(region.base() as usize + (page * PAGE) as usize, false).unwrap();
            assert_eq!(region.load64(page * PAGE), Ok(page + 100));
        }
        assert_eq!(world.state(page), State::Clean);
    }
    for (page, region) in [(0, &region), (1, &own), (2, &other)] {
        region.shared_store(page * PAGE, page + 7).unwrap();
        assert_eq!(world.state(page), State::Owned, "page {page}");
        let place = world.pager.ground().place(page);
        assert!(matches!(place, Ok(Location::Held(_, _, None))), "{place:?}");
    }
    // What the others have mapped is protected still.
    for region in [&own, &other, &region] {
        region.shared_store(8, 9).unwrap();
    }
    let before = world.left();
    assert_eq!(world.evict(4), Made::Room(4));
    assert_eq!(world.left(), (before.0 + 3, before.1 + 1));
    for (page, value) in [(0, 7), (1, 8), (2, 9), (3, 103)] {
        world.pager.fault(page * PAGE, Access::Load).unwrap();
        assert_eq!(region.load64(page * PAGE), Ok(value));
    }
    world.pager.release_owed(true);
    second.release_owed(true);
    assert_eq!(world.kept.pages_in_file(), 4);
}

/// Where the program may store the kernel may, too, for a call of which nobody hears: no page that
/// it shows is clean.
#[test]
fn a_page_is_not_clean_where_the_program_may_store() {
    let (world, region) = away(4);
    world.pager.ready(&[(0, 4 * PAGE)], Access::Load);
    let own = world.mapped(&world.pager, true, false);
    let start = own.base() as usize;
    let at = |page: u64| start + (page * PAGE) as usize;
    world.pager.serve(at(0), false).unwrap();
    assert!(crate::tests::support::pair::is_mapped(at(0)));
    world.pager.may_store(&(start..at(4)));
    assert!(!crate::tests::support::pair::is_mapped(at(0)), "its entry was protected");
    for page in [0, 1] {
        assert_eq!(world.state(page), State::Clean);
        world.pager.serve(at(page), false).unwrap();
        Pagers::map_others();
        assert_eq!(world.state(page), State::Owned);
    }
    assert!(!crate::tests::support::pair::is_mapped(at(2)), "it is left to its own touch");
    let (mut from, mut into) = std::io::pipe().unwrap();
    into.write_all(&[5; 8]).unwrap();
    // SAFETY: memory of this test's own.
    assert_eq!(unsafe { libc::read(from.as_raw_fd(), at(1) as *mut _, 8) }, 8);
    assert_eq!(region.load64(PAGE), Ok(0x0505_0505_0505_0505));
    drop(into);
    assert_eq!(std::io::Read::read(&mut from, &mut [0]).unwrap(), 0);
}

/// Two threads load one page: the second one finds it mapped. It opened it, and the next store was
/// not seen.
#[test]
fn a_load_that_finds_its_page_mapped_does_not_open_it() {
    let (world, _region) = away(1);
    let own = world.mapped(&world.pager, true, false);
    for _ in 0..3 {
        world.pager.serve(own.base() as usize, false).unwrap();
        assert!(world.pager.serve_here(own.base() as usize, false));
    }
    own.shared_store(0, 5).unwrap();
    assert_eq!(world.state(0), State::Owned, "the store was seen");
}

#[test]
fn a_page_that_comes_to_be_stored_to_is_not_clean() {
    let (world, region) = away(4);
    world.pager.fault(0, Access::Store).unwrap();
    world.pager.ready(&[(PAGE, 3 * PAGE)], Access::Whole);
    assert!((0..4).all(|page| world.state(page) == State::Owned));
    region.shared_store(PAGE, 1).unwrap();
    world.pager.release_owed(true);
    assert_eq!(world.kept.pages_in_file(), 0);
}

#[test]
fn pages_of_small_files_and_those_that_are_to_stay_are_never_clean() {
    let (world, region) = away(3);
    world.pager.advise((0, PAGE), Hint::Small);
    let own = world.mapped(&world.pager, true, true);
    world.pager.serve(own.base() as usize + PAGE as usize, false).unwrap();
    world.load(3);
    assert_eq!([0, 1, 2].map(|page| world.state(page)), [State::Owned, State::Owned, State::Clean]);
    // A neighbour that is clean is left to its own touch where the kernel looks at it.
    let at = |page: u64| own.base() as usize + (page * PAGE) as usize;
    world.pager.serve(at(1), false).unwrap();
    Pagers::map_others();
    assert!(!crate::tests::support::pair::is_mapped(at(2)));
    world.pager.serve(at(2), false).unwrap();
    assert_eq!(world.state(2), State::Owned);
    // One that is made to stay is opened.
    world.pager.release_owed(true);
    assert_eq!(world.evict(3), Made::Nothing, "they stay");
    drop(region);
    let (world, _region) = away(1);
    world.load(1);
    world.pager.advise((0, PAGE), Hint::Stays);
    assert_eq!(world.state(0), State::Owned);
    assert!(world.pager.ground().table.word(0).flags().has(Flags::STAYS));
}

#[test]
fn a_store_to_a_private_mapping_stores_nothing_to_the_page() {
    let (world, region) = away(2);
    let copied = world.mapped(&world.pager, false, false);
    for page in 0..2 {
        // By a store, as by a load.
        world.pager.serve(copied.base() as usize + (page * PAGE) as usize, page == 0).unwrap();
        copied.shared_store(page * PAGE, 1).unwrap();
        assert_eq!(world.state(page), State::Clean);
        assert_eq!(region.load64(page * PAGE), Ok(page + 100));
    }
    assert_eq!(world.evict(2), Made::Room(2));
    assert_eq!(world.left(), (2, 2));
    assert_eq!([copied.load64(0), copied.load64(PAGE)], [Ok(1), Ok(1)], "the copies are its own");
}

/// Pages around one that was touched are mapped with it: each as its word says.
#[test]
fn runs_around_a_touch_are_split_by_what_is_clean() {
    let (world, region) = away(12);
    world.load(12);
    let dirty = |page: u64| page.is_multiple_of(3);
    (0..12).filter(|page| dirty(*page)).for_each(|page| {
        region.shared_store(page * PAGE, 1).unwrap();
    });
    let own = world.mapped(&world.pager, true, false);
    let at = |page: u64| own.base() as usize + (page * PAGE) as usize;
    world.pager.serve(at(0), false).unwrap();
    Pagers::map_others();
    for page in 0..12 {
        assert!(crate::tests::support::pair::is_mapped(at(page)), "page {page}");
        let clean = world.state(page) == State::Clean;
        assert_eq!(clean, !dirty(page));
        own.shared_store(page * PAGE, 2).unwrap();
        assert_eq!(world.state(page), State::Owned, "page {page}");
    }
}

/// What a call had taken out of a pipe was gone: the page was protected when the kernel stored to
/// it.
#[test]
fn a_call_of_the_kernels_finds_a_page_that_was_loaded() {
    let (world, _region) = away(4);
    let own = world.mapped(&world.pager, true, false);
    world.load(2);
    let start = own.base() as usize + 8;
    let (mut from, mut into) = std::io::pipe().unwrap();
    into.write_all(&[5; 3 * PAGE as usize]).unwrap();
    Pagers::ready(start, 3 * PAGE as usize);
    assert_eq!(world.evict(4), Made::Nothing, "they are held");
    // SAFETY: memory of this test's own.
    let read = unsafe { libc::read(from.as_raw_fd(), start as *mut _, 3 * PAGE as usize) };
    assert_eq!(read, 3 * PAGE as isize);
    Pagers::let_go();
    assert_eq!(own.load64(3 * PAGE), Ok(0x0505_0505_0505_0505));
    assert_eq!(own.load64(0), Ok(100));
    assert!((0..4).all(|page| world.state(page) == State::Owned));
    drop(into);
    assert_eq!(std::io::Read::read(&mut from, &mut [0]).unwrap(), 0);
}

#[test]
fn a_page_that_was_looked_at_is_protected_when_it_is_mapped_again() {
    let (world, region) = away(2);
    world.load(2);
    let [_, maps] = world.pager.descriptors().map(|fd| fd.try_clone_to_owned().unwrap());
    let maps = crate::shared_memory::maps::Maps::of_other(maps).unwrap();
    (0..2).for_each(|page| maps.ask(page));
    world.pager.look_everywhere();
    assert_eq!(region.load64(0), Ok(100));
    assert_eq!(world.state(0), State::Clean);
    for page in 0..2 {
        region.shared_store(page * PAGE, 3).unwrap();
        assert_eq!(world.state(page), State::Owned);
    }
}

/// A spare that its holder has dropped, and one that it never had: the page is sent.
#[test]
fn what_the_holder_has_not_got_is_sent() {
    let (world, region) = away(4);
    world.load(4);
    world.pager.release_owed(true);
    assert_eq!(world.kept.spares(), 4);
    assert_eq!(world.kept.drop_spares(2), 2);
    assert_eq!((world.kept.spares(), world.kept.pages_in_file()), (2, 2));
    assert_eq!(world.evict(4), Made::Room(4));
    assert_eq!(world.left(), (4 + 2, 2));
    for page in 0..4 {
        world.pager.fault(page * PAGE, Access::Load).unwrap();
        assert_eq!(region.load64(page * PAGE), Ok(page + 100));
    }
    // A node that gets no pages is not asked.
    let (carrier, patience) = (&world.holder, std::time::Duration::from_secs(1));
    assert_eq!(world.evictor.make_room(4, &[node(3)], carrier, patience), Made::Room(4));
    assert_eq!(world.left(), (6 + 4, 2));
}

/// Spares make room for what has none.
#[test]
fn a_holder_drops_spares_when_it_needs_their_room() {
    let (world, region) = away(64);
    // They came first, and leave first.
    for page in (64..74).rev() {
        region.shared_store(page * PAGE, page).unwrap();
    }
    world.load(40);
    world.pager.release_owed(true);
    assert_eq!((world.kept.spares(), world.kept.pages_in_file()), (40, 64));
    let room = Capacity::open(&world.folder.at("room-2")).unwrap();
    room.set_up(64, 64, 0);
    // The first one that has no room finds some for a batch.
    assert_eq!(world.evict(10), Made::Room(10));
    assert_eq!((world.kept.spares(), room.used(), world.kept.pages_in_file()), (0, 34, 34));
    assert_eq!(world.evict(40), Made::Room(30), "there is no room for more");
    assert_eq!(room.used(), 64);
    for page in 0..64 {
        world.pager.fault(page * PAGE, Access::Load).unwrap();
        assert_eq!(region.load64(page * PAGE), Ok(page + 100));
    }
}

/// What a holder keeps, and does not know for a spare, it never drops.
#[test]
fn a_page_that_was_given_and_never_claimed_stays() {
    let (world, region) = away(4);
    let pages = (0..4).map(|page| (page, Version::new(2))).collect();
    let given = world.kept.serve(&Request::Fetch { pages, releases: Vec::new() });
    assert!(matches!(given, Answer::Fetched { found, .. } if found == [true; 4]));
    assert_eq!(world.kept.drop_spares(4), 0);
    world.pager.ready(&[(0, 2 * PAGE)], Access::Load);
    let claims = |from| match world.kept.serve(&Request::Claims { from }) {
        Answer::Claims { claims, .. } => claims,
        other => panic!("{other:?}"),
    };
    assert!(claims(0).iter().all(|one| !one.is_spare && one.version == Version::new(2)));
    world.pager.release_owed(true);
    let is_spare: Vec<bool> = claims(0).iter().map(|one| one.is_spare).collect();
    assert_eq!(is_spare, [true, true, false, false]);
    assert_eq!(world.kept.drop_spares(4), 2);
    world.load(4);
    for page in 0..4 {
        assert_eq!(region.load64(page * PAGE), Ok(page + 100));
    }
}
