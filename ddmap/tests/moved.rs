//! Many random moves, by counts: no memory is left behind, no mapping is changed for a page, and
//! hardly a touch waits for room that is made ahead.

mod running;

use ddmap::ground::counts::Count;
use ddmap::ground::store::Store;
use ddmap::program::pager::{RegionPager, Wishes};
use ddmap::program::prefetch::Ahead;
use pmem::{Pager, Region};
use running::{Folder, PAGE, Running, region_of, store, touch};
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

fn long() -> bool {
    std::env::var_os("SOLERA_TEST_LONG").is_some()
}

/// A region of twice the room, and two holders.
struct World {
    region: Region,
    pager: Arc<RegionPager>,
    nodes: Vec<Running>,
    path: PathBuf,
    _folder: Folder,
}

impl World {
    fn new() -> Self {
        let folder = Folder::new();
        let host = Running::start(&folder.at("1"), ROOM * PAGE, None);
        let join = Some(host.address);
        let mut nodes = vec![host];
        nodes.extend(["2", "3"].map(|name| Running::start(&folder.at(name), ROOM * PAGE, join)));
        let path = Store::at(folder.at("1")).create_volume("v", 2 * ROOM * PAGE).unwrap();
        let wishes = Wishes { ahead: Ahead::Off, ..Wishes::default() };
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

/// Holes are reused: behind any number of moves page files have as many bytes as there are pages.
#[test]
fn page_files_have_as_many_bytes_as_there_are_pages() {
    let world = World::new();
    let wanted = if long() { 1_000_000 } else { 100_000 };
    let (mut value, mut state) = (vec![0; 2 * ROOM as usize], SEED);
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
        if host + holders == 2 * ROOM * PAGE {
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

/// The threads that make room, and those that take what leaves.
struct Makers(Vec<PathBuf>);

impl Makers {
    fn find() -> Self {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let makes = |task: &PathBuf| {
            let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
            name.starts_with("evictor") || name.starts_with("solera-wire")
        };
        Self(tasks.map(|task| task.path()).filter(makes).collect())
    }

    /// How long they were ready to run, and had no processor (`proc(5)`, schedstat).
    fn kept_off(&self) -> Duration {
        let of = |task: &PathBuf| {
            let text = std::fs::read_to_string(task.join("schedstat")).unwrap_or_default();
            text.split_ascii_whitespace().nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0)
        };
        Duration::from_nanos(self.0.iter().map(of).sum())
    }
}

/// Times of the last touches, each with how long the makers were kept off by then: of as many as
/// bring more pages than are kept free.
struct Lately {
    makers: Makers,
    looks: std::collections::VecDeque<(Instant, Duration)>,
}

impl Lately {
    const EVERY: u64 = 64;
    const LOOKS: usize = 6;

    fn look(&mut self) {
        self.looks.push_back((Instant::now(), self.makers.kept_off()));
        if self.looks.len() > Self::LOOKS {
            self.looks.pop_front();
        }
    }

    /// Whether somebody else had the processors for a good part of that time.
    fn had_no_processor(&mut self) -> bool {
        self.look();
        let [first, last] = [self.looks.front(), self.looks.back()].map(|one| *one.unwrap());
        let (kept_off, passed) = (last.1.saturating_sub(first.1), last.0 - first.0);
        println!("short of room: the makers were kept off for {kept_off:?} of {passed:?}");
        kept_off * 4 > passed
    }
}

/// Room is made ahead: where every second touch finds its page, none waits for an eviction, and a
/// hundredth of the room is free at each, as long as those that make room have a processor: others
/// have this machine's, too. At length (`SOLERA_TEST_LONG`) with 10^6 faults.
#[test]
fn no_touch_of_a_paced_program_waits_for_an_eviction() {
    let world = World::new();
    let wanted = if long() { 1_000_000 } else { 20_000 };
    let (mut value, mut state) = (vec![0; 2 * ROOM as usize], SEED);
    let count = |what| world.pager.counted().get(what);
    let room = &world.pager.ground().room;
    // The first touches came as fast as they could.
    let begun = Instant::now();
    while room.missing() > 0 {
        assert!(begun.elapsed() < LATE, "what is to be free is not");
        std::thread::sleep(Duration::from_millis(1));
    }
    let begin = [Count::Fetched, Count::WaitedForRoom].map(count);
    let mut lately = Lately { makers: Makers::find(), looks: [].into() };
    let (mut touches, mut waited, mut least) = (0_u64, begin[1], u64::MAX);
    let (mut without_reason, mut is_short, mut missed) = (0, false, false);
    while count(Count::Fetched) - begin[0] < wanted {
        if touches.is_multiple_of(Lately::EVERY) && !missed {
            lately.look();
        }
        world.touch_some(&mut state, &mut value);
        world.pager.begin();
        touches += 1;
        let (free, now) = (room.free(), count(Count::WaitedForRoom));
        least = least.min(free);
        // One that is short of it is so for some touches.
        let was_short = std::mem::replace(&mut is_short, free * 100 < ROOM);
        missed |= now > waited || is_short && !was_short;
        // What a thread waits is counted when it has its processor: then there is room again.
        if missed && !room.is_short() {
            without_reason += u64::from(!lately.had_no_processor());
            missed = false;
        }
        waited = now;
        std::thread::sleep(PACE);
    }
    let (fetched, waited) = (count(Count::Fetched) - begin[0], waited - begin[1]);
    println!("{touches} touches, {fetched} faults, {waited} waited, {least} pages free at least");
    let percent = fetched * 100 / touches;
    assert!((40..60).contains(&percent), "{percent} % of the touches find no page");
    assert_eq!(without_reason, 0, "touches that were short of room");
    assert!(waited * 1000 <= fetched, "{waited} of {fetched} faults");
}

/// Holders get as many pages as each other, whatever is wanted at a time.
#[test]
fn pages_leave_for_holders_in_turn() {
    let world = World::new();
    let (mut value, mut state, mut worst) = (vec![0; 2 * ROOM as usize], SEED, 0);
    // One that has not answered in time is left alone for a while: that is another matter.
    let refused = || world.pager.ground().counted_by_all().get(Count::Refused);
    let (begin, begun) = (refused(), Instant::now());
    let mut rounds = 0;
    while rounds < 50 {
        assert!(begun.elapsed() < LATE, "no {rounds} rounds without a refusal");
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
