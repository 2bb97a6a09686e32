//! A region on its host and a holder, both in this process: pages move as the node's capacity asks
//! for it, and the engine has them all.

use crate::control::preferences::{EvictionStart, Policy, Preferences};
use crate::node::eviction::Made;
use crate::node::held_region::HeldRegion;
use crate::paging::pager::PagerOptions;
use crate::paging::prefetch::PrefetchMode;
use crate::protocol::holder::Stored;
use crate::protocol::messages::{Answer, Request};
use crate::protocol::{
    Claimant, Evicted, Eviction, Flags, Installed, NodeId, Progress, Shown, Version,
};
use crate::shared_memory::capacity::Capacity;
use crate::shared_memory::counters::{Count, Touch};
use crate::shared_memory::maps::{Maps, PagedMapping};
use crate::shared_memory::view::{Mapper, REGION, View};
use crate::tests::support::dir::TestDir;
use crate::tests::support::pair::{PAGE, World, is_mapped, node, touch_by_instruction};
use pmem::Pager;
use pmem::Region;
use rustix::fs::FallocateFlags;
use std::cell::RefCell;
use std::sync::Arc;
use vfs::{FileSystem, IoOffset, Kind, NewNode, OpenFlags, UserIn, UserOut};
use volume::{AttachOptions, FormatOptions, attach, format_region};

const MIB: u64 = 1 << 20;

#[test]
fn a_page_goes_and_comes_back() {
    let world = World::new(64, 64);
    let region = world.region();
    // Not in ascending order, in which the next ones would be there, too.
    for page in (0..8).rev() {
        region.shared_store(page * PAGE, page + 100).unwrap();
    }
    assert_eq!(world.evict(8), Made::Room(8));
    assert_eq!((world.kept.pages_in_file(), world.pager.ground().pages_in_file()), (8, 0));
    region.load64(0).expect_err("it is elsewhere");
    let page = region.absent_page().expect("it was a touch of an absent page");
    region.pager().unwrap().fault(page, pmem::Access::Load).unwrap();
    assert_eq!(region.load64(0), Ok(100));
    region.pager().unwrap().ready(&[(PAGE, 7 * PAGE)], pmem::Access::Store);
    for page in 0..8 {
        assert_eq!(region.load64(page * PAGE), Ok(page + 100));
        region.shared_store(page * PAGE, page).unwrap();
    }
    world.pager.release_owed(true);
    assert_eq!(world.kept.pages_in_file(), 0, "the holder has given them up");
    assert_eq!(world.pager.ground().room.used(), 8);
    assert_eq!(world.evict(8), Made::Room(8));
    assert_eq!(world.pager.ground().room.used(), 0);
    assert_eq!(world.kept.pages_in_file(), 7, "page 0 is all zeros now, and was sent to nobody");
}

/// An evictor of pages that nobody has mapped.
struct NoMappings;

impl Mapper for NoMappings {
    fn install(&self, _: u64, _: Option<&[u8]>, _: bool) -> Installed {
        unreachable!("nothing is brought")
    }

    fn show(&self, _: u64, _: bool, _: bool) -> Shown {
        unreachable!("nothing is shown")
    }

    fn protect(&self, _: u64, _: u64) {}
}

/// The same, that notes what is protected together.
#[derive(Default)]
struct Noting(RefCell<Vec<(u64, u64)>>);

impl Mapper for &Noting {
    fn install(&self, _: u64, _: Option<&[u8]>, _: bool) -> Installed {
        unreachable!("nothing is brought")
    }

    fn show(&self, _: u64, _: bool, _: bool) -> Shown {
        unreachable!("nothing is shown")
    }

    fn protect(&self, page: u64, pages: u64) {
        self.0.borrow_mut().push((page, pages));
    }
}

/// Pages of a batch that lie in a row take one call; zeros between them are sent to nobody.
#[test]
fn a_batch_is_protected_and_read_in_rows() {
    let world = World::new(256, 256);
    let region = world.region();
    let pages: Vec<u64> = (0..20).chain(30..60).chain([70]).chain(80..93).collect();
    for page in pages.iter().rev() {
        region.shared_store(page * PAGE, if page % 3 == 0 { 0 } else { page + 9 }).unwrap();
    }
    let (ground, noting) = (world.evictor.ground(), Noting::default());
    let words = pages.iter().map(|page| (*page, ground.table.word(*page)));
    let mut eviction = Eviction::new(&[node(2)], &[], words);
    let view = View::new(ground, &noting);
    loop {
        match eviction.step(&view) {
            Progress::Step => {}
            Progress::Keep(_) => panic!("no page is clean"),
            Progress::Send(to) => {
                let (sent, places): (Vec<_>, Vec<_>) =
                    eviction.outgoing(to).map(|one| ((one.0, one.1), *one.2)).unzip();
                assert!(sent.iter().all(|one| one.0 % 3 != 0), "{sent:?}");
                let bytes = view.take_outgoing(&places);
                assert_eq!(bytes.len() as u64, sent.len() as u64 * PAGE);
                for (at, one) in sent.iter().enumerate() {
                    let first = &bytes[at * PAGE as usize..][..8];
                    assert_eq!(first, (one.0 + 9).to_le_bytes(), "page {}", one.0);
                }
                let Answer::Stored(stored) =
                    world.kept.serve(&Request::Store { pages: sent, bytes })
                else {
                    panic!("they are stored")
                };
                eviction.answered(to, stored.into_iter().map(|one| one == Stored::Kept));
            }
            Progress::Done(Evicted { gone, zeros, .. }) => {
                assert_eq!(
                    (gone, zeros),
                    (64, pages.iter().filter(|p| *p % 3 == 0).count() as u32)
                );
                break;
            }
        }
    }
    assert_eq!(*noting.0.borrow(), [(0, 20), (30, 30), (70, 1), (80, 13)]);
    assert_eq!(ground.pages_in_file(), 0);
    for page in pages {
        world.pager.fault(page * PAGE, pmem::Access::Load).unwrap();
        assert_eq!(region.load64(page * PAGE), Ok(if page % 3 == 0 { 0 } else { page + 9 }));
    }
}

#[test]
fn a_page_that_is_to_stay_since_it_was_chosen_stays() {
    let world = World::new(64, 64);
    let region = world.region();
    region.shared_store(0, 1).unwrap();
    let ground = world.evictor.ground();
    let view = View::new(ground, NoMappings);
    let mut eviction = Eviction::new(&[node(2)], &[], [(0, ground.table.word(0))]);
    world.pager.advise((0, PAGE), pmem::Hint::Stays);
    loop {
        match eviction.step(&view) {
            Progress::Step => {}
            Progress::Keep(_) | Progress::Send(_) => panic!("a page that stays is sent"),
            Progress::Done(Evicted { gone, .. }) => break assert_eq!(gone, 0),
        }
    }
    assert_eq!(region.load64(0), Ok(1));
}

#[test]
fn a_process_that_lives_is_reached_though_a_connection_of_it_has_ended() {
    let world = World::new(64, 64);
    let region = world.region();
    region.shared_store(0, 1).unwrap();
    // It has met its node twice, in two threads: the first connection ends behind the second hello.
    world.evictor.remove(world.pager.ground().table.me());
    assert_eq!(world.evict(1), Made::Room(1));
}

#[test]
fn what_a_process_wishes_stays_though_its_node_fetches_what_it_has_handed_over() {
    let world = World::new(4096, 4096);
    let me = world.pager.ground().table.me();
    let share = || world.pager.ground().table.share().local();
    let local = |pages| Preferences { local: Some(pages), ..Preferences::default() };
    world.meet(me, local(2048));
    // It is fetched while it comes.
    world.fetch(me);
    let second = world.second_pager(PagerOptions::default());
    world.meet(second.ground().table.me(), local(1024));
    assert_eq!(share(), Some(1024));
    drop(second);
    world.evictor.bury().unwrap();
    assert_eq!(share(), Some(2048));
    world.meet(me, Preferences::default());
    assert_eq!(share(), None);
}

#[test]
fn a_holder_that_died_as_it_made_a_folder_makes_it_anew() {
    let folder = TestDir::new();
    let path = folder.at("kept");
    Capacity::create(&folder.at("room")).unwrap().set_up(64, 0, 4);
    let room = Arc::new(Capacity::open(&folder.at("room")).unwrap());
    // All but the table's header.
    std::fs::create_dir(&path).unwrap();
    std::fs::File::create(path.join("pages")).unwrap().set_len(64 * PAGE).unwrap();
    std::fs::File::create(path.join("table")).unwrap().set_len(MIB).unwrap();
    HeldRegion::open(&path, (1, 1), 0, Arc::clone(&room))
        .err()
        .expect("nobody says how large it is");
    let kept = HeldRegion::open(&path, (1, 1), 64, Arc::clone(&room)).unwrap();
    assert_eq!(kept.pages_in_file(), 0);
    drop(kept);
    HeldRegion::open(&path, (1, 1), 0, room).unwrap();
}

#[test]
fn a_holder_hears_no_host_of_an_earlier_term() {
    let folder = TestDir::new();
    let path = folder.at("kept");
    Capacity::create(&folder.at("room")).unwrap().set_up(64, 0, 4);
    let room = Arc::new(Capacity::open(&folder.at("room")).unwrap());
    let kept = HeldRegion::open(&path, (1, 1), 64, Arc::clone(&room)).unwrap();
    let [first, second] = [1, 2].map(|node| NodeId::new(node).unwrap());
    kept.hears(first, 1).unwrap();
    assert!(kept.hears(second, 1).is_err(), "one host a term");
    kept.hears(second, 2).unwrap();
    drop(kept);
    // The volume has moved: its earlier host is not heard, also behind a new start.
    let kept = HeldRegion::open(&path, (1, 1), 0, room).unwrap();
    assert!(kept.hears(first, 1).unwrap_err().contains("node 2 is the host"));
    assert_eq!(kept.host(), Some(second));
}

#[test]
fn a_fault_where_a_mapping_was_is_not_served() {
    let world = World::new(64, 64);
    let region = world.region();
    region.shared_store(0, 1).unwrap();
    // Memory that the region does not know: it stands where a program had mapped the page.
    let other = Region::anonymous(PAGE).unwrap();
    let start = other.base() as usize;
    let pager = &world.pager;
    let [_, maps] = pager.descriptors().map(|fd| fd.try_clone_to_owned().unwrap());
    assert!(Maps::of_other(maps).unwrap().add(PagedMapping {
        start,
        page: 0,
        pages: 1,
        shared: true,
        stays: false,
        writes: false,
    }));
    assert_eq!(pager.page_at(start), Some(0));
    assert_eq!(pager.serve(start, true), Err(rustix::io::Errno::FAULT));
    assert_eq!(region.load64(0), Ok(1));
}

#[test]
fn addresses_that_another_region_gets_are_no_longer_of_the_first_one() {
    let world = World::new(64, 64);
    let first = world.region();
    first.shared_store(0, 1).unwrap();
    let address = first.base() as usize;
    drop(first);
    assert_eq!(world.pager.page_at(address), None);
    assert!(!world.pager.serve_here(address, true), "it is nobody's");
    let word = world.pager.ground().table.word(0);
    assert_eq!(word.state(), crate::protocol::State::Owned);
}

/// What a file holds in each of its pages.
fn stamp(page: u64) -> Vec<u8> {
    page.to_le_bytes().iter().copied().cycle().take(PAGE as usize).collect()
}

#[test]
fn a_file_of_twice_the_room_is_what_was_written() {
    let world = World::new(64 * MIB / PAGE, 16 * MIB / PAGE);
    let size = 32 * MIB / PAGE;
    world.evict_beside(|| {
        let region = world.region();
        format_region(&region, &FormatOptions::default()).unwrap();
        drop(region);
        let pager = Some(Arc::clone(&world.pager) as Arc<dyn Pager>);
        let options = AttachOptions { pager, ..AttachOptions::default() };
        let volume = attach(&world.folder.at(REGION), &options).unwrap();
        let new = NewNode { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: &[] };
        let node = volume.create(volume.root(), b"big", &new).unwrap();
        let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None).unwrap();
        for page in 0..size {
            let bytes = stamp(page);
            let wrote = volume.write(desc, &[UserIn::new(&bytes)], IoOffset::offset(page * PAGE));
            assert_eq!(wrote, Ok(PAGE as usize), "page {page}");
        }
        let mut bytes = vec![0; PAGE as usize];
        for page in (0..size).chain((0..size).rev().step_by(7)) {
            let read =
                volume.read(desc, &mut [UserOut::new(&mut bytes)], IoOffset::offset(page * PAGE));
            assert_eq!(read, Ok(PAGE as usize), "page {page}");
            assert_eq!(bytes, stamp(page), "page {page}");
        }
    });
    let ground = world.pager.ground();
    println!(
        "here {} of {}, there {}; {} fetched",
        ground.pages_in_file(),
        ground.room.used(),
        world.kept.pages_in_file(),
        world.pager.counted().get(Count::Fetched)
    );
    assert!(world.kept.pages_in_file() > size / 2);
    assert_eq!(ground.pages_in_file(), ground.room.used());
}

/// What a volume of 2 GiB keeps on its host, with files in it.
#[test]
fn what_stays_is_a_small_part_of_a_volume_and_of_each_file() {
    let (pages, files) = (512 << 10, 4000);
    let world = World::new(pages, pages);
    let region = world.region();
    format_region(&region, &FormatOptions::default()).unwrap();
    drop(region);
    let pager = Some(Arc::clone(&world.pager) as Arc<dyn Pager>);
    let options = AttachOptions { pager, ..AttachOptions::default() };
    let volume = attach(&world.folder.at(REGION), &options).unwrap();
    let stays = || world.pager.ground().table.share().stays() * PAGE;
    let empty = stays();
    assert!(empty <= pages * PAGE * 7 / 1000, "{empty} bytes stay of an empty volume");
    let new = NewNode { kind: Kind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0, target: &[] };
    for file in 0..files {
        let node = volume.create(volume.root(), format!("file-{file}").as_bytes(), &new).unwrap();
        let desc = volume.open(node.into(), OpenFlags(libc::O_RDWR), None).unwrap();
        let wrote = volume.write(desc, &[UserIn::new(&[7; 4096])], IoOffset::offset(0));
        assert_eq!(wrote, Ok(4096));
        volume.close(desc).unwrap();
    }
    let full = stays();
    println!("{empty} bytes stay of an empty volume, {full} with {files} files");
    assert!(full <= pages * PAGE * 7 / 1000 + 512 * files, "{full} bytes stay");
    assert_eq!(world.pager.ground().table.count_stays() * PAGE, full, "by the words themselves");
}

/// How a region is touched: by calls; by copies to and from memory that a program has mapped; or by
/// the program's own instructions, with whose pages others are mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Calls,
    Copies,
    Instructions,
}

/// Touches a tenth of a region's pages over and over while all others are read in order, in calls:
/// how many pages of the tenth had to be brought again. `looks`: it looks at what it is asked
/// about.
fn scan_beside_hot(ahead: PrefetchMode, by: By, looks: bool) -> u64 {
    let (pages, hot) = (8 << 10, 819);
    let world = World::with(pages, 2 << 10, ahead);
    let (engine, second) = (world.region(), world.region_alone());
    let start = second.base() as usize;
    world
        .pager
        .map(PagedMapping { start, page: 0, pages, shared: true, stays: false, writes: false })
        .unwrap();
    let region = if by == By::Calls { &engine } else { &second };
    let mut again = 0;
    let mut touch = |page: u64, counts: bool| {
        if by == By::Instructions {
            let word = world.pager.ground().table.word(page);
            again += u64::from(counts && word.state() == crate::protocol::State::Absent);
            touch_by_instruction(&world.pager, start + (page * PAGE) as usize);
        }
        // Zeros would go nowhere, and come from nowhere.
        while region.shared_store(page * PAGE, page + 1).is_err() {
            let word = world.pager.ground().table.word(page);
            again += u64::from(counts && word.state() == crate::protocol::State::Absent);
            world.pager.serve(region.base() as usize + (page * PAGE) as usize, true).unwrap();
        }
        let missing = world.pager.ground().room.missing();
        if missing > 0 {
            world.evict(missing);
        }
    };
    (0..pages).chain(0..hot).for_each(|page| touch(page, false));
    let mut next = (0..hot).cycle();
    for page in hot..pages {
        match (looks, by) {
            (true, By::Calls) => world.pager.begin(),
            (true, _) => world.pager.look_everywhere(),
            _ => {}
        }
        touch(page, false);
        next.by_ref().take(8).for_each(|page| touch(page, true));
    }
    again
}

/// Those runs that the commit chooses (`rotation`), one in three; with `SOLERA_TEST_LONG` all.
#[test]
fn what_is_used_stays_under_a_scan_since_processes_look() {
    let chosen = |run: &str| rotation::chosen(&format!("scan/{run}"), 3);
    for (ahead, by) in [
        (PrefetchMode::Off, By::Calls),
        (PrefetchMode::Off, By::Copies),
        (PrefetchMode::Auto, By::Copies),
        (PrefetchMode::Off, By::Instructions),
        (PrefetchMode::Auto, By::Instructions),
    ] {
        if !chosen(&format!("{ahead:?}/{by:?}")) {
            continue;
        }
        let again = scan_beside_hot(ahead, by, true);
        println!("prefetch {ahead:?}, by {by:?}: {again} of 819 again");
        assert!(again < 8, "{again} pages of 819 left");
    }
    if !chosen("without") {
        return;
    }
    let without = scan_beside_hot(PrefetchMode::Off, By::Copies, false);
    println!("without looking {without}");
    assert!(without > 400, "{without} left without looking");
}

#[test]
fn a_look_takes_nothing_from_private_mappings_and_from_what_is_not_the_regions() {
    let world = World::new(64, 64);
    let engine = world.region();
    engine.shared_store(0, 7).unwrap();
    // A private mapping with a page of its own.
    let copied = world.region_alone();
    let start = copied.base() as usize;
    let flags = rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::FIXED;
    let prot = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    // SAFETY: in the place of a mapping of this test's own, of the same file and length.
    unsafe {
        use std::os::fd::BorrowedFd;
        let file = BorrowedFd::borrow_raw(copied.fd());
        rustix::mm::mmap(start as *mut _, 64 * PAGE as usize, prot, flags, file, 0).unwrap();
    }
    world
        .pager
        .map(PagedMapping { start, page: 0, pages: 64, shared: false, stays: false, writes: false })
        .unwrap();
    world.pager.serve(start, true).unwrap();
    copied.shared_store(0, 8).unwrap();
    // Memory that a stale list takes for the region's.
    let other = vec![9_u8; 3 * PAGE as usize];
    let [_, maps] = world.pager.descriptors().map(|fd| fd.try_clone_to_owned().unwrap());
    let maps = Maps::of_other(maps).unwrap();
    let start = (other.as_ptr() as usize).next_multiple_of(PAGE as usize);
    let stale =
        PagedMapping { start, page: 0, pages: 1, shared: true, stays: false, writes: false };
    assert!(maps.add(stale));
    maps.ask(0);
    world.pager.look_everywhere();
    let local = || world.pager.counted().times(Touch::Minor).count();
    let before = local();
    assert_eq!(copied.load64(0), Ok(8));
    assert!(std::hint::black_box(&other).iter().all(|byte| *byte == 9));
    assert_eq!(local(), before);
    assert_eq!(engine.load64(0), Ok(7));
    assert_eq!(local(), before + 1, "the engine's entry was taken away");
    assert!(world.pager.ground().table.word(0).count() > 0);
}

#[test]
fn pages_behind_one_that_is_here_are_mapped_with_it_but_for_those_that_are_asked_about() {
    let world = World::new(64, 64);
    let (engine, second) = (world.region(), world.region_alone());
    // Pages 8 to 60 of the region: of them, 50 is a hole.
    let (start, first) = (second.base() as usize + 8 * PAGE as usize, 8);
    let map =
        PagedMapping { start, page: first, pages: 52, shared: true, stays: false, writes: false };
    world.pager.map(map).unwrap();
    // Not in ascending order, in which the next ones would be there, too.
    for page in (0..64).rev().filter(|page| *page != 50) {
        engine.shared_store(page * PAGE, page + 1).unwrap();
    }
    let at = |page: u64| second.base() as usize + (page * PAGE) as usize;
    let mapped = || (8..60).filter(|page| is_mapped(at(*page))).collect::<Vec<u64>>();
    let minor = || world.pager.counted().times(Touch::Minor).count();
    assert_eq!(mapped(), Vec::<u64>::new());
    let before = minor();
    touch_by_instruction(&world.pager, at(8));
    assert_eq!(mapped(), (8..24).collect::<Vec<_>>());
    let table = &world.pager.ground().table;
    assert!(table.ask(27, table.word(27)).is_some());
    touch_by_instruction(&world.pager, at(24));
    assert_eq!(mapped(), (8..27).collect::<Vec<_>>(), "its own touch is the answer");
    touch_by_instruction(&world.pager, at(27));
    assert!(!table.word(27).flags().has(Flags::ASKED));
    touch_by_instruction(&world.pager, at(43));
    assert_eq!(mapped(), (8..50).collect::<Vec<_>>(), "up to a page that is not here");
    touch_by_instruction(&world.pager, at(51));
    assert_eq!(mapped(), (8..60).filter(|page| *page != 50).collect::<Vec<_>>());
    assert_eq!(minor(), before + 5);
    // Nothing is named any more: all of it may leave.
    assert_eq!(table.names().len(), 0);
    for page in (8..60).filter(|page| *page != 50) {
        assert_eq!(second.load64(page * PAGE), Ok(page + 1));
    }
    assert_eq!(minor(), before + 5);
}

/// Which of 64 pages, which came in order and of which the first 16 were wanted again, leave as 16
/// do.
fn left(world: &World) -> Vec<u64> {
    let (engine, second) = (world.region(), world.region_alone());
    let start = second.base() as usize;
    world
        .pager
        .map(PagedMapping { start, page: 0, pages: 64, shared: true, stays: false, writes: false })
        .unwrap();
    for page in 0..64 {
        engine.shared_store(page * PAGE, page + 1).unwrap();
    }
    for page in 0..16 {
        assert_eq!(second.load64(page * PAGE), Ok(page + 1), "it traps there, and is served");
    }
    assert_eq!(world.evict(16), Made::Room(16));
    let table = &world.pager.ground().table;
    let gone = |page: &u64| table.word(*page).state() == crate::protocol::State::Absent;
    (0..64).filter(gone).collect()
}

#[test]
fn pages_leave_by_the_wish_of_the_program_that_came_last_of_those_that_are_here() {
    let wish = |policy| Preferences { policy, ..Preferences::default() };
    let other = Claimant { slot: 77, life: 1 };
    for policy in [None, Some(Policy::Lru), Some(Policy::Lfu), Some(Policy::Fifo)] {
        let world = World::new(64, 256);
        world.meet(world.pager.ground().table.me(), wish(policy));
        // It has no wish: the first one's counts.
        world.meet(other, wish(None));
        let left = left(&world);
        if policy == Some(Policy::Fifo) {
            // Words tell when a page came by 16 ticks, which are 16 pages here; and as many come
            // together, as they are touched in order.
            assert!(left.iter().all(|page| *page < 32), "{left:?}");
            assert_eq!(left[..12], (0..12).collect::<Vec<_>>());
        } else {
            assert_eq!(left, (16..32).collect::<Vec<_>>(), "{policy:?}");
        }
    }
    let world = World::new(64, 256);
    world.meet(other, wish(Some(Policy::Fifo)));
    world.evictor.remove(other);
    assert_eq!(left(&world)[0], 16, "it has gone, and its wish with it");
}

#[test]
fn on_demand_nothing_leaves_while_there_is_room() {
    let world = World::new(128, 64);
    let wish = Preferences { when: Some(EvictionStart::Demand), ..Preferences::default() };
    world.meet(world.pager.ground().table.me(), wish);
    let region = world.region();
    for page in 0..63 {
        region.shared_store(page * PAGE, page + 1).unwrap();
    }
    assert!(world.pager.ground().room.missing() > 0);
    assert_eq!(world.evict(8), Made::Nothing, "one page is free");
    region.shared_store(63 * PAGE, 64).unwrap();
    assert_eq!(world.evict(8), Made::Room(8));
}

/// Somebody had made holes of pages that a holder keeps, or cut its page file short: zeros were
/// given as the first, and the others kept their room for ever.
#[test]
fn pages_of_a_holder_whose_bytes_are_gone_are_kept_no_more() {
    let world = World::new(64, 32);
    let kept = &world.kept;
    let version = Version::new(4);
    let pages: Vec<_> = [3, 5, 60].map(|page| (page, version)).to_vec();
    let bytes: Vec<u8> = [7, 0, 9].iter().flat_map(|byte| [*byte; PAGE as usize]).collect();
    let store = || kept.serve(&Request::Store { pages: pages.clone(), bytes: bytes.clone() });
    let fetch = || kept.serve(&Request::Fetch { pages: pages.clone(), releases: Vec::new() });
    let used = || match kept.serve(&Request::Ping) {
        Answer::Pong { used, .. } => used,
        other => panic!("{other:?}"),
    };
    assert_eq!(store(), Answer::Stored(vec![Stored::Kept; 3]));
    assert_eq!(used(), 3);
    assert_eq!(fetch(), Answer::Fetched { found: vec![true; 3], bytes: bytes.clone() });
    let path = world.folder.at("kept/pages");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, flags, 3 * PAGE, PAGE).unwrap();
    file.set_len(60 * PAGE).unwrap();
    for _ in 0..2 {
        let found = Answer::Fetched { found: vec![false, true, false], bytes: vec![0; 4096] };
        assert_eq!(fetch(), found, "one that is zeros, and was stored so, is a page");
        assert_eq!(used(), 1);
    }
    file.set_len(64 * PAGE).unwrap();
    assert_eq!(store(), Answer::Stored(vec![Stored::Kept; 3]));
    assert_eq!((fetch(), used()), (Answer::Fetched { found: vec![true; 3], bytes }, 3));
}
