//! Pages that lie with two holders: one that does not answer, or has lost what it had, is no loss;
//! both are.

use crate::control::preferences::Preferences;
use crate::control::transport::{Carrier, Unreached};
use crate::node::eviction::{Evictor, Made, Peer};
use crate::node::held_region::HeldRegion;
use crate::paging::pager::{PagerOptions, RegionPager};
use crate::paging::prefetch::PrefetchMode;
use crate::protocol::messages::{Answer, Request};
use crate::protocol::{Location, NodeId, State};
use crate::shared_memory::capacity::Capacity;
use crate::shared_memory::counters::Count;
use crate::shared_memory::directory::Directory;
use crate::shared_memory::maps::Maps;
use crate::shared_memory::table::Table;
use crate::shared_memory::uffd::Uffd;
use crate::shared_memory::view::{REGION, SharedRegion};
use crate::tests::support::dir::TestDir;
use crate::tests::support::pair::{PAGE, node};
use pmem::{Access, Pager, Region};
use rustix::io::Errno;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How a holder is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    Good,
    /// It does not answer, which takes as long as somebody waits.
    Silent,
    /// Nobody is there, which is heard at once.
    Closed,
    /// It was removed from the domain.
    Gone,
}

/// Holders in this process: nodes 2, 3 and 4.
#[derive(Clone)]
struct Holders {
    kept: Vec<Arc<HeldRegion>>,
    lines: Arc<Mutex<Vec<Line>>>,
    /// Which was asked, and for how many pages.
    asked: Arc<Mutex<Vec<(u16, usize)>>>,
}

impl Carrier for Holders {
    fn forked(&self, _: u16, _: u32) {}

    fn ask(&self, to: NodeId, request: &Request, patience: Duration) -> Result<Answer, Unreached> {
        if let Request::Fetch { pages, .. } = request {
            self.asked.lock().unwrap().push((to.number(), pages.len()));
        }
        let at = usize::from(to.number()) - 2;
        let line = self.lines.lock().unwrap()[at];
        match line {
            Line::Good => Ok(self.kept[at].serve(request)),
            Line::Silent => {
                std::thread::sleep(patience);
                Err(Unreached::Silent)
            }
            Line::Closed => Err(Unreached::Silent),
            Line::Gone => Err(Unreached::Gone),
        }
    }
}

struct World {
    pager: Arc<RegionPager>,
    evictor: Evictor,
    holders: Holders,
    region: Region,
    _folder: TestDir,
}

const PAGES: u64 = 64;

impl World {
    /// Its first pages hold their number and 100, and are away.
    fn away(pages: u64) -> Self {
        let folder = TestDir::new();
        drop(Region::create(&folder.at(REGION), PAGES * PAGE, 0o600, true).unwrap());
        Table::create(folder.path(), PAGES).unwrap();
        drop(Directory::create(&folder.at("directory"), PAGES).unwrap());
        let room = |name: &str| {
            Capacity::create(&folder.at(name)).unwrap().set_up(PAGES, 0, 4);
            Capacity::open(&folder.at(name)).unwrap()
        };
        let kept = |number: u16| {
            let name = format!("room-{number}");
            let at = folder.at(&format!("kept-{number}"));
            Arc::new(HeldRegion::open(&at, (1, 1), PAGES, Arc::new(room(&name))).unwrap())
        };
        let kept = (2..5).map(kept).collect();
        let lines = Arc::new(Mutex::new(vec![Line::Good; 3]));
        let holders = Holders { kept, lines, asked: Arc::default() };
        let ground = |room| SharedRegion::attach(folder.path(), room, node(1)).unwrap();
        let evictor = Evictor::new(ground(room("room")), 2);
        let wishes = PagerOptions {
            ahead: PrefetchMode::Off,
            patience: Duration::from_secs(3),
            ..PagerOptions::default()
        };
        let pager = Arc::new(RegionPager::new(
            ground(Capacity::open(&folder.at("room")).unwrap()),
            Uffd::open().unwrap(),
            Maps::new().unwrap(),
            Box::new(holders.clone()),
            wishes,
            None,
        ));
        let [uffd, maps] = pager.descriptors().map(|fd| fd.try_clone_to_owned().unwrap());
        let (uffd, maps) = (Uffd::of_other(uffd), Maps::of_other(maps).unwrap());
        let claimant = pager.ground().table.me();
        evictor.add(Peer::new(claimant, uffd, maps, Preferences::default()));
        let options = pmem::OpenOptions { write: true, ..pmem::OpenOptions::default() };
        let mut region = Region::open(&folder.at(REGION), &options).unwrap();
        region.set_pager(Arc::clone(&pager) as Arc<dyn Pager>);
        let world = Self { pager, evictor, holders, region, _folder: folder };
        for page in (0..pages).rev() {
            world.region.shared_store(page * PAGE, page + 100).unwrap();
        }
        assert_eq!(world.evict(pages, &[2, 3]), Made::Room(pages));
        world
    }

    fn evict(&self, pages: u64, to: &[u16]) -> Made {
        let to: Vec<_> = to.iter().map(|number| node(*number)).collect();
        self.evictor.make_room(pages, &to, &self.holders, Duration::from_millis(50))
    }

    fn place(&self, page: u64) -> (u16, Option<u16>) {
        match self.pager.ground().place(page) {
            Ok(Location::Held(owner, _, other)) => (owner.number(), other.map(NodeId::number)),
            other => panic!("page {page}: {other:?}"),
        }
    }

    fn set(&self, number: u16, line: Line) {
        self.holders.lines.lock().unwrap()[usize::from(number) - 2] = line;
    }

    fn kept(&self) -> [u64; 3] {
        self.pager.release_owed(true);
        [0, 1, 2].map(|at| self.holders.kept[at].pages_in_file())
    }

    fn load(&self, page: u64) -> Result<(), Errno> {
        self.pager.fault(page * PAGE, Access::Load)?;
        assert_eq!(self.region.load64(page * PAGE), Ok(page + 100));
        Ok(())
    }

    fn asked(&self) -> Vec<u16> {
        let asked = std::mem::take(&mut *self.holders.asked.lock().unwrap());
        asked.into_iter().map(|one| one.0).collect()
    }

    fn counts(&self, of: [Count; 4]) -> [u64; 4] {
        let counted = self.evictor.ground().counted();
        of.map(|what| counted.get(what))
    }
}

const LEFT: [Count; 4] = [Count::Sent, Count::Second, Count::Clean, Count::Single];

#[test]
fn a_page_leaves_for_two_and_keeps_one_spare_when_it_is_back() {
    let world = World::away(4);
    assert_eq!(world.counts(LEFT), [4, 4, 0, 0]);
    assert_eq!(world.kept(), [4, 4, 0]);
    for page in 0..4 {
        assert!(matches!(world.place(page), (2, Some(3)) | (3, Some(2))));
    }
    world.load(0).unwrap();
    world.pager.fault(PAGE, Access::Store).unwrap();
    // A spare of the page that was loaded; nothing of the one that may be stored to.
    assert_eq!(world.kept().iter().sum::<u64>(), 4 + 1);
    assert_eq!(world.holders.kept.iter().map(|kept| kept.spares()).sum::<u64>(), 1);
    assert_eq!(world.pager.ground().table.word(0).state(), State::Clean);
    // Where the spare is no byte goes; the other one is another node's.
    assert_eq!(world.evict(2, &[2, 3, 4]), Made::Room(2));
    assert_eq!(world.counts(LEFT), [5, 6, 1, 0]);
    assert_eq!(world.kept().iter().sum::<u64>(), 8);
    assert_eq!(world.asked().len(), 2);
    for page in 0..4 {
        let (one, other) = world.place(page);
        assert_ne!(Some(one), other);
        world.load(page).unwrap();
    }
}

#[test]
fn a_holder_that_has_lost_its_pages_loses_none() {
    let world = World::away(4);
    let (first, second) = world.place(0);
    world.holders.kept[usize::from(first) - 2].drop_all();
    world.load(0).unwrap();
    assert_eq!(world.asked(), [first, second.unwrap()]);
    world.holders.kept.iter().for_each(|kept| kept.drop_all());
    assert_eq!(world.load(1), Err(Errno::IO));
    let place = world.pager.ground().place(1);
    assert!(matches!(place, Ok(Location::Lost(Some(_), _))), "{place:?}");
    // What is lost is void when it is stored to whole.
    assert!(world.pager.renew(PAGE));
}

#[test]
fn a_holder_that_is_silent_is_waited_for_once_and_for_a_second() {
    let world = World::away(6);
    let (first, second) = world.place(0);
    world.set(first, Line::Silent);
    let begun = Instant::now();
    world.load(0).unwrap();
    let waited = begun.elapsed();
    assert!((0.9..1.3).contains(&waited.as_secs_f64()), "{waited:?}");
    assert_eq!(world.asked(), [first, second.unwrap()]);
    // It is known by now.
    let begun = Instant::now();
    (1..6).for_each(|page| world.load(page).unwrap());
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    assert!(!world.asked().contains(&first));
    // What the machine's node knows is known to a process that has not waited yet.
    world.set(first, Line::Good);
}

#[test]
fn what_the_node_says_of_a_holder_is_believed_at_once() {
    let world = World::away(2);
    let (first, second) = world.place(0);
    world.pager.ground().room.set_silent(&[node(first)]);
    world.load(0).unwrap();
    assert_eq!(world.asked(), [second.unwrap()]);
    // Both are asked in turn where both are said to be silent.
    world.pager.ground().room.set_silent(&[node(first), node(second.unwrap())]);
    let (first, second) = world.place(1);
    world.set(first, Line::Closed);
    world.load(1).unwrap();
    assert_eq!(world.asked(), [first, second.unwrap()]);
}

#[test]
fn a_page_is_lost_if_one_says_no_and_the_other_is_removed_and_not_if_that_is_silent() {
    let world = World::away(2);
    let (first, second) = world.place(0);
    let second = second.unwrap();
    world.holders.kept[usize::from(second) - 2].drop_all();
    world.set(first, Line::Closed);
    assert_eq!(world.load(0), Err(Errno::IO), "for as long as patience lasts");
    assert!(matches!(world.pager.ground().place(0), Ok(Location::Held(..))), "it may come back");
    world.set(first, Line::Good);
    world.load(0).unwrap();
    world.set(first, Line::Gone);
    let begun = Instant::now();
    assert_eq!(world.load(1), Err(Errno::IO));
    assert!(begun.elapsed() < Duration::from_millis(500));
    assert!(matches!(world.pager.ground().place(1), Ok(Location::Lost(..))));
}

#[test]
fn where_only_one_takes_a_page_it_leaves_alone_and_is_counted() {
    let world = World::away(2);
    // In no order: what comes ahead is zeros.
    for page in [30, 20] {
        world.region.shared_store(page * PAGE, page + 100).unwrap();
    }
    world.set(3, Line::Closed);
    assert_eq!(world.evict(2, &[2, 3]), Made::Room(2));
    assert_eq!(world.counts(LEFT), [4, 2, 0, 2]);
    assert_eq!([world.place(20), world.place(30)], [(2, None); 2]);
    // Where there is only one it is the same.
    world.region.shared_store(50 * PAGE, 150).unwrap();
    assert_eq!(world.evict(1, &[4]), Made::Room(1));
    assert_eq!((world.place(50), world.counts(LEFT)[3]), ((4, None), 3));
    // And where nobody takes it, it stays.
    world.region.shared_store(40 * PAGE, 140).unwrap();
    world.set(2, Line::Closed);
    assert_eq!(world.evict(1, &[2, 3]), Made::NobodyTakes);
    assert_eq!(world.place(40), (1, None));
    world.set(2, Line::Good);
    for page in [20, 30, 40, 50] {
        world.load(page).unwrap();
    }
}

#[test]
fn lines_are_asked_of_the_other_holder() {
    let world = World::away(3);
    let (first, _) = world.place(0);
    world.pager.ground().room.set_silent(&[node(first)]);
    world.set(first, Line::Silent);
    let mut bytes = [0; 8];
    assert!(world.pager.load_apart(0, &mut bytes));
    assert_eq!(u64::from_le_bytes(bytes), 100);
    assert_eq!(world.asked(), [] as [u16; 0]);
}
