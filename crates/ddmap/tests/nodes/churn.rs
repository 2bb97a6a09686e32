//! Many random moves, by counts: no memory is left behind, no mapping is changed for a page, and
//! hardly a touch waits for room that is made ahead.

use crate::paging::pager::{PagerOptions, RegionPager};
use crate::paging::prefetch::PrefetchMode;
use crate::protocol::Location;
use crate::shared_memory::counters::Count;
use crate::shared_memory::store::Store;
use crate::tests::support::dir::TestDir;
use crate::tests::support::running::{PAGE, Running, region_of, store, touch};
use pmem::{Pager, Region};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pages that a host has room for: 8 MiB.
const ROOM: u64 = 2048;
/// What is to come comes within that time.
const LATE: Duration = Duration::from_mins(2);
const SEED: u64 = 0x5EED_5EED;
/// Between two touches of a program that does something else, too.
const PACE: Duration = Duration::from_micros(20);

/// Where the numbers of a test begin, in no order: elsewhere at each commit (`rotation`).
fn seed(test: &str) -> u64 {
    SEED + u64::from(rotation::turn(&format!("churn/{test}"), 1 << 20))
}

/// A region of twice the room, and two holders.
struct World {
    region: Region,
    pager: Arc<RegionPager>,
    nodes: Vec<Running>,
    path: PathBuf,
    _folder: TestDir,
}

impl World {
    fn new() -> Self {
        let folder = TestDir::new();
        let host = Running::start(&folder.at("1"), ROOM * PAGE, None);
        let join = Some(host.address);
        let mut nodes = vec![host];
        nodes.extend(["2", "3"].map(|name| Running::start(&folder.at(name), ROOM * PAGE, join)));
        let path = Store::at(folder.at("1")).create_volume("v", 2 * ROOM * PAGE, 1).unwrap();
        let wishes = PagerOptions { ahead: PrefetchMode::Off, ..PagerOptions::default() };
        let (region, pager) = region_of(&path.join("region"), wishes);
        // Not in ascending order, in which the next ones would be there, too.
        (0..2 * ROOM).rev().for_each(|page| store(&region, page, page + 1));
        Self { region, pager, nodes, path, _folder: folder }
    }

    /// Touches a page at random; one of three times to store: whose `value` is known then.
    fn touch_some(&self, state: &mut u64, value: &mut [u64]) {
        let page = draw(state) % (2 * ROOM);
        if draw(state).is_multiple_of(3) {
            value[page as usize] = *state;
            store(&self.region, page, *state);
        } else {
            touch(&self.region, page);
        }
    }

    fn moves(&self) -> u64 {
        let counted = self.pager.ground().counted_by_all();
        counted.get(Count::Fetched) + counted.get(Count::Sent)
    }
}

/// Numbers in no order.
fn draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn allocated(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

/// Bytes of the page files of what a node keeps.
fn kept(node: &Running) -> u64 {
    let folders = std::fs::read_dir(node.store.join("kept")).into_iter().flatten().flatten();
    folders.map(|folder| allocated(&folder.path().join("pages"))).sum()
}

/// Holes are reused: behind any number of moves page files have as many bytes as there are pages,
/// and spares of those that are clean.
#[test]
fn page_files_have_as_many_bytes_as_there_are_pages() {
    let world = World::new();
    let wanted = if rotation::all() { 1_000_000 } else { 25_000 };
    let (mut value, mut state) = (vec![0; 2 * ROOM as usize], seed("bytes"));
    while world.moves() < wanted {
        (0..1000).for_each(|_| world.touch_some(&mut state, &mut value));
        world.pager.begin();
    }
    // What holders keep in vain is dropped later, and pages leave until what is to be free is.
    world.pager.release_owed(true);
    let begun = Instant::now();
    let host = loop {
        let host = allocated(&world.path.join("region"));
        let holders: u64 = world.nodes.iter().map(kept).sum();
        let place = |page: &u64| world.pager.ground().place(*page);
        let has_spare = |page: &u64| matches!(place(page), Ok(Location::Held(_, _, Some(_))));
        let spares = (0..2 * ROOM).filter(has_spare).count() as u64 * PAGE;
        let least = 2 * ROOM * PAGE;
        // Holders may have dropped some.
        if (least..=least + spares).contains(&(host + holders)) {
            break host;
        }
        let late = begun.elapsed() > LATE;
        assert!(!late, "{host} bytes are here, {holders} there, of {}", 2 * ROOM * PAGE);
        std::thread::sleep(Duration::from_millis(20));
    };
    let ground = world.pager.ground();
    let (used, moves) = (ground.room.used(), world.moves());
    println!("{moves} moves; {host} bytes are here, {used} pages are counted");
    assert_eq!(used * PAGE, host);
    for page in 0..2 * ROOM {
        touch(&world.region, page);
        let expected = match value[page as usize] {
            0 => page + 1,
            value => value,
        };
        assert_eq!(world.region.load64(page * PAGE), Ok(expected), "page {page}");
    }
}

/// Room is made ahead: where every second touch finds its page, of a thousand faults at most one
/// waits for an eviction, and at most one sees less than a hundredth of the room free. None would
/// where those that make room always had a processor when they want one: others have this
/// machine's, too. At length (`SOLERA_TEST_LONG`) with 10^6 faults.
#[test]
fn no_touch_of_a_paced_program_waits_for_an_eviction() {
    let world = World::new();
    let wanted = if rotation::all() { 1_000_000 } else { 5_000 };
    let (mut value, mut state) = (vec![0; 2 * ROOM as usize], seed("paced"));
    let count = |what| world.pager.counted().get(what);
    let room = &world.pager.ground().room;
    // The first touches came as fast as they could.
    let begun = Instant::now();
    while room.missing() > 0 {
        assert!(begun.elapsed() < LATE, "what is to be free is not");
        std::thread::sleep(Duration::from_millis(1));
    }
    let begin = [Count::Fetched, Count::WaitedForRoom].map(count);
    let (mut touches, mut least) = (0_u64, u64::MAX);
    let (mut times_short, mut is_short) = (0_u64, false);
    while count(Count::Fetched) - begin[0] < wanted {
        world.touch_some(&mut state, &mut value);
        world.pager.begin();
        touches += 1;
        let free = room.free();
        least = least.min(free);
        // One that is short of it is so for some touches.
        let was_short = std::mem::replace(&mut is_short, free * 100 < ROOM);
        times_short += u64::from(is_short && !was_short);
        std::thread::sleep(PACE);
    }
    let [fetched, waited] =
        [count(Count::Fetched) - begin[0], count(Count::WaitedForRoom) - begin[1]];
    println!(
        "{touches} touches, {fetched} faults, {waited} waited, {times_short} times short of room, \
         {least} pages free at least"
    );
    let percent = fetched * 100 / touches;
    assert!((40..60).contains(&percent), "{percent} % of the touches find no page");
    assert!(times_short * 1000 <= fetched, "{times_short} times short of room in {fetched} faults");
    assert!(waited * 1000 <= fetched, "{waited} of {fetched} faults");
}

/// Holders get as many pages as each other, whatever is wanted at a time.
#[test]
fn pages_leave_for_holders_in_turn() {
    let world = World::new();
    let (mut value, mut state, mut worst) = (vec![0; 2 * ROOM as usize], seed("turns"), 0);
    // One that has not answered in time is left alone for a while: that is another matter.
    let refused = || world.pager.ground().counted_by_all().get(Count::Refused);
    let begin = refused();
    let mut rounds = 0;
    while rounds < 50 {
        (0..400).for_each(|_| world.touch_some(&mut state, &mut value));
        world.pager.begin();
        if refused() != begin {
            println!("a holder was late: {rounds} rounds are what could be had");
            break;
        }
        let [one, other] = [1, 2].map(|node: usize| kept(&world.nodes[node]) / PAGE);
        worst = worst.max(one.abs_diff(other));
        rounds += 1;
    }
    println!("{worst} pages more with one than with the other, at most");
    assert!(worst < ROOM / 4, "{worst} pages more with one than with the other");
}
