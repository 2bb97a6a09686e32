//! Volumes of two copies on nodes of this process: a holder goes with its store, and what it had is
//! copied anew.

use crate::control::local_socket::{LocalReply, LocalRequest};
use crate::control::registry::Registry;
use crate::control::status::{Status, VolumeStatus};
use crate::paging::pager::{PagerOptions, RegionPager};
use crate::paging::prefetch::PrefetchMode;
use crate::protocol::{Location, NodeId};
use crate::shared_memory::store::{Standing, Store};
use crate::tests::support::dir::TestDir;
use crate::tests::support::running::{PAGE, Running, region_of, store, touch};
use pmem::{Pager, Region};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pages of a host: 4 MiB.
const ROOM: u64 = 1024;
/// Pages of the region.
const PAGES: u64 = 3 * ROOM;
const LATE: Duration = Duration::from_mins(2);

struct World {
    region: Region,
    pager: Arc<RegionPager>,
    nodes: Vec<Running>,
    path: PathBuf,
    folder: TestDir,
}

impl World {
    /// A region of three times the room, and three holders; each page holds its number and 7.
    fn new() -> Self {
        let folder = TestDir::new();
        let host = Running::start(&folder.at("1"), ROOM * PAGE, None);
        let join = Some(host.address);
        let holder = |name: &str| Running::start(&folder.at(name), 3 * ROOM * PAGE, join);
        let mut nodes = vec![host];
        nodes.extend(["2", "3", "4"].map(holder));
        let path = Store::at(folder.at("1")).create_volume("v", PAGES * PAGE, 2).unwrap();
        let wishes = PagerOptions { ahead: PrefetchMode::Off, ..PagerOptions::default() };
        let (region, pager) = region_of(&path.join("region"), wishes);
        let world = Self { region, pager, nodes, path, folder };
        // The host has heard of all holders.
        world.until("it hears of them", |status| status.nodes.len() == 4);
        (0..PAGES).rev().for_each(|page| store(&world.region, page, page + 7));
        world
    }

    fn first(&self) -> SocketAddr {
        self.nodes[0].address
    }

    fn ask(&self, request: &LocalRequest) -> LocalReply {
        Registry::ask(&Store::at(self.nodes[0].store.clone()), request).unwrap()
    }

    fn until(&self, what: &str, is: impl Fn(&Status) -> bool) -> Status {
        let begun = Instant::now();
        loop {
            let LocalReply::Status(status) = self.ask(&LocalRequest::Status) else { panic!() };
            if is(&status) {
                return status;
            }
            assert!(begun.elapsed() < LATE, "{what}: {:?}", status.volumes);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn volume(status: &Status) -> &VolumeStatus {
        &status.volumes[0]
    }

    fn becomes_whole(&self) -> u64 {
        let is_whole = |status: &Status| Self::volume(status).single == 0 && self.single() == 0;
        Self::volume(&self.until("it becomes whole", is_whole)).healed
    }

    /// The holders of pages that are away.
    fn places(&self) -> impl Iterator<Item = [Option<NodeId>; 2]> + '_ {
        let ground = self.pager.ground();
        let of = |page| ground.place(page).map_or([None; 2], |place| place.holders(ground.here()));
        (0..PAGES).map(of).filter(|holders| holders[0].is_some())
    }

    fn single(&self) -> usize {
        self.places().filter(|holders| holders[1].is_none()).count()
    }

    /// A holder ends, and its store is gone; it is removed from the domain.
    fn lose(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.stop();
        std::fs::remove_dir_all(&node.store).unwrap();
        let number = node.number;
        let mark = LocalRequest::Mark { node: number, standing: Standing::Gone };
        let begun = Instant::now();
        // It is there until it was not heard of for 8 s.
        while self.ask(&mark) != LocalReply::Done {
            assert!(begun.elapsed() < LATE, "node {number} is not removed");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn check(&self, add: u64) {
        for page in 0..PAGES {
            touch(&self.region, page);
            assert_eq!(self.region.load64(page * PAGE), Ok(page + add), "page {page}");
        }
    }
}

#[test]
fn each_holder_in_turn_is_lost_with_its_store_and_no_page_is() {
    let mut world = World::new();
    assert!(world.places().count() as u64 > ROOM, "pages are away");
    world.becomes_whole();
    for at in 1..4 {
        let had = world
            .places()
            .flatten()
            .flatten()
            .filter(|node| node.number() == at as u16 + 1)
            .count();
        assert!(had > 0, "node {} has none", at + 1);
        world.lose(at);
        let name = format!("{}", at + 10);
        let new = Running::start(&world.folder.at(&name), 3 * ROOM * PAGE, Some(world.first()));
        world.nodes.push(new);
        let healed = world.becomes_whole();
        assert!(healed > 0, "{had} pages were there");
        world.check(7);
        assert!(world.path.exists());
    }
    for page in (0..PAGES).rev() {
        store(&world.region, page, page + 9);
    }
    world.check(9);
}

#[test]
fn what_left_for_one_holder_is_copied_when_there_is_another_one() {
    let folder = TestDir::new();
    let host = Running::start(&folder.at("1"), ROOM * PAGE, None);
    let join = Some(host.address);
    let second = Running::start(&folder.at("2"), 3 * ROOM * PAGE, join);
    let path = Store::at(folder.at("1")).create_volume("v", PAGES * PAGE, 2).unwrap();
    let wishes = PagerOptions { ahead: PrefetchMode::Off, ..PagerOptions::default() };
    let (region, pager) = region_of(&path.join("region"), wishes);
    let mut world = World { region, pager, nodes: vec![host, second], path, folder };
    (0..PAGES).rev().for_each(|page| store(&world.region, page, page + 7));
    let single = world.single() as u64;
    assert!(single > ROOM, "{single} pages have left");
    world.until("they are counted", |status| World::volume(status).single >= single);
    let third = Running::start(&world.folder.at("3"), 3 * ROOM * PAGE, join);
    world.nodes.push(third);
    assert!(world.becomes_whole() >= single);
    world.lose(1);
    world.check(7);
}

/// While copies are made pages move, and are stored to.
#[test]
fn pages_move_while_they_are_copied() {
    let mut world = World::new();
    for round in 0..2_u64 {
        world.lose(1 + round as usize);
        let name = format!("{}", round + 20);
        let new = Running::start(&world.folder.at(&name), 3 * ROOM * PAGE, Some(world.first()));
        world.nodes.push(new);
        for page in (0..PAGES).rev() {
            store(&world.region, page, page + 100 + round);
        }
        world.check(100 + round);
        world.becomes_whole();
    }
    world.check(101);
    let is_right = |holders: [Option<NodeId>; 2]| holders[0] != holders[1];
    assert!(world.places().all(is_right));
    assert!(world.places().flatten().flatten().all(|node| ![2, 3].contains(&node.number())));
}

#[test]
fn pages_of_a_draining_node_go_to_two_others() {
    let world = World::new();
    let mark = LocalRequest::Mark { node: 3, standing: Standing::Drains };
    assert_eq!(world.ask(&mark), LocalReply::Done);
    let begun = Instant::now();
    while world.places().flatten().flatten().any(|node| node.number() == 3) {
        assert!(begun.elapsed() < LATE, "it has some still");
        std::thread::sleep(Duration::from_millis(50));
    }
    world.becomes_whole();
    world.until("it keeps none", |status| {
        status.nodes.iter().any(|node| node.node == 3 && node.kept == 0)
    });
    world.check(7);
    let place = world.pager.ground().place(0);
    assert!(matches!(place, Ok(Location::Held(..))), "{place:?}");
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// What a touch of a page that is away costs where two holders have it, beside one: in turns, on
/// the same nodes.
#[test]
#[ignore = "a measurement: `nodes::copies -- --ignored --nocapture`"]
fn what_a_touch_costs_with_two_copies() {
    let folder = TestDir::new();
    let host = Running::start(&folder.at("1"), 4 * ROOM * PAGE, None);
    let join = Some(host.address);
    let _holders = ["2", "3"].map(|name| Running::start(&folder.at(name), 16 * ROOM * PAGE, join));
    let own = Store::at(folder.at("1"));
    let wishes = || PagerOptions { ahead: PrefetchMode::Off, ..PagerOptions::default() };
    let volumes = [("one", 1), ("two", 2)].map(|(name, copies)| {
        let path = own.create_volume(name, 8 * ROOM * PAGE, copies).unwrap();
        region_of(&path.join("region"), wishes())
    });
    for (region, _) in &volumes {
        (0..8 * ROOM).rev().for_each(|page| store(region, page, page + 1));
    }
    let (mut ratios, mut state) = (Vec::new(), 0x5EED_u64);
    for _ in 0..15 {
        let mut medians = [0.0; 2];
        for (at, (region, pager)) in volumes.iter().enumerate() {
            let mut times = Vec::new();
            while times.len() < 1000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let page = (state >> 33) % (8 * ROOM);
                if !pager.is_away(page * PAGE) {
                    continue;
                }
                let begun = Instant::now();
                pager.fault(page * PAGE, pmem::Access::Load).unwrap();
                times.push(begun.elapsed().as_secs_f64() * 1e6);
                assert_eq!(region.load64(page * PAGE), Ok(page + 1));
            }
            medians[at] = median(times);
        }
        println!("{:.1} us, {:.1} us", medians[0], medians[1]);
        ratios.push(medians[1] / medians[0]);
    }
    println!("ratio {:.3}, of {ratios:.2?}", median(ratios.clone()));
}

/// Pages that one node gives and another one keeps, one batch behind the other, in a second.
fn raw(from: &Running, to: &Running, volume: u8, pages: u64) -> f64 {
    use crate::control::node_messages::{self, NodeRequest};
    use crate::protocol::Version;
    use crate::protocol::messages::{Answer, PAGES as BATCH, Request};
    use crate::wire::link::Link;
    use crate::wire::{Hello, Wire};

    let wait = Duration::from_mins(1);
    let link = |to: &Running| {
        let (node, volume) = (NodeId::new(1).unwrap(), [volume; 16]);
        let hello = Hello { node, process: 7, session: 1, volume, term: 1, store: 0 };
        let mut link = Link::connect(to.address, wait, &hello, &Wire::Plain).unwrap();
        link.block();
        let text = node_messages::text(&NodeRequest::Hold { pages, node: to.number });
        link.ask(&Request::Control { text }, wait).unwrap();
        link
    };
    let (mut from, mut to) = (link(from), link(to));
    let all: Vec<_> = (0..pages).map(|page| (page, Version::new(1))).collect();
    for batch in all.chunks(BATCH) {
        let bytes = vec![3; batch.len() * PAGE as usize];
        from.ask(&Request::Store { pages: batch.to_vec(), bytes }, wait).unwrap();
    }
    let begun = Instant::now();
    for batch in all.chunks(BATCH) {
        let fetch = Request::Fetch { pages: batch.to_vec(), releases: Vec::new() };
        let Answer::Fetched { bytes, .. } = from.ask(&fetch, wait).unwrap() else { panic!() };
        to.ask(&Request::Store { pages: batch.to_vec(), bytes }, wait).unwrap();
    }
    let rate = pages as u32;
    let rate = f64::from(rate) / begun.elapsed().as_secs_f64();
    for link in [&mut from, &mut to] {
        let text = node_messages::text(&NodeRequest::Drop);
        link.ask(&Request::Control { text }, wait).unwrap();
    }
    rate
}

/// How fast copies are whole again, beside the same bytes fetched and stored by two connections;
/// and how fast a program is meanwhile. `SOLERA_HEAL_MIB` says how much (64).
#[test]
#[ignore = "a measurement: as above"]
fn how_fast_copies_are_whole_again() {
    let mib = std::env::var("SOLERA_HEAL_MIB").map_or(64, |mib| mib.parse().unwrap());
    let pages = mib * 256;
    let folder = TestDir::new();
    let host = Running::start(&folder.at("1"), pages / 8 * PAGE, None);
    let join = Some(host.address);
    let holder = |name: u32| Running::start(&folder.at(&name.to_string()), 3 * pages * PAGE, join);
    let nodes = vec![host, holder(2), holder(3)];
    let path = Store::at(folder.at("1")).create_volume("v", pages * PAGE, 2).unwrap();
    let wishes = PagerOptions { ahead: PrefetchMode::Off, ..PagerOptions::default() };
    let (region, pager) = region_of(&path.join("region"), wishes);
    let mut world = World { region, pager, nodes, path, folder };
    (0..pages).rev().for_each(|page| store(&world.region, page, page + 7));
    let mut state = 0x5EED_u64;
    let mut touches = |world: &World, until: &dyn Fn() -> bool| {
        let (begun, mut count) = (Instant::now(), 0);
        while !until() {
            for _ in 0..100 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                touch(&world.region, (state >> 33) % pages);
                count += 1;
            }
        }
        f64::from(count) / begun.elapsed().as_secs_f64()
    };
    for round in 0..6_u32 {
        let beside = round % 2 == 1;
        world.becomes_whole();
        let begun = Instant::now();
        let alone = touches(&world, &|| begun.elapsed().as_secs() >= 3);
        let at = 1 + round as usize;
        world.lose(at);
        let single = || {
            let gone = node_of(at);
            let here = world.pager.ground().here();
            let is = |page: &u64| {
                world.pager.ground().place(*page).is_ok_and(|place| place.is_held_by(gone, here))
            };
            (0..pages).filter(is).count()
        };
        let before = single();
        let join = Some(world.first());
        let new =
            Running::start(&world.folder.at(&format!("{}", round + 20)), 3 * pages * PAGE, join);
        while single() > before * 99 / 100 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (begun, first) = (Instant::now(), single());
        let is_over = || single() * 10 < before || begun.elapsed() > LATE;
        let meanwhile = if beside { touches(&world, &is_over) } else { 0.0 };
        while !is_over() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let rate = f64::from((first - single()) as u32) / begun.elapsed().as_secs_f64();
        world.nodes.push(new);
        world.becomes_whole();
        let raw = raw(&world.nodes[at + 1], &world.nodes[at + 2], round as u8 + 1, pages);
        println!(
            "{before} pages: {rate:.0} a second, raw {raw:.0}: {:.2}; touches {meanwhile:.0}, \
             alone {alone:.0}: {:.2}",
            rate / raw,
            meanwhile / alone
        );
    }
}

fn node_of(at: usize) -> NodeId {
    NodeId::new(at as u16 + 1).unwrap()
}
