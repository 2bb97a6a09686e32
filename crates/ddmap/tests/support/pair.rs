//! A region on its host and a holder, both in this process.

use crate::control::preferences::Preferences;
use crate::control::transport::{Carrier, Unreached};
use crate::node::eviction::{Evictor, Made, Peer};
use crate::node::held_region::HeldRegion;
use crate::paging::pager::{PagerOptions, RegionPager};
use crate::paging::pagers::Pagers;
use crate::paging::prefetch::PrefetchMode;
use crate::protocol::messages::{Answer, Request};
use crate::protocol::{Claimant, NodeId};
use crate::shared_memory::capacity::Capacity;
use crate::shared_memory::directory::Directory;
use crate::shared_memory::maps::Maps;
use crate::shared_memory::table::Table;
use crate::shared_memory::uffd::Uffd;
use crate::shared_memory::view::{REGION, SharedRegion};
use crate::tests::support::dir::TestDir;
use pmem::Pager;
use pmem::Region;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub const PAGE: u64 = 4096;
/// A holder in this process, and the bytes that it was asked for: of pages, of lines; and how often
/// it was asked for pages.
#[derive(Clone)]
pub struct Here(pub Arc<HeldRegion>, pub Arc<[AtomicU64; 2]>, pub Arc<AtomicU64>);

impl Carrier for Here {
    fn forked(&self, _: u16, _: u32) {}

    fn ask(&self, _: NodeId, request: &Request, _: Duration) -> Result<Answer, Unreached> {
        let answer = self.0.serve(request);
        match &answer {
            Answer::Fetched { bytes, .. } => {
                self.2.fetch_add(1, Ordering::Relaxed);
                self.1[0].fetch_add(bytes.len() as u64, Ordering::Relaxed)
            }
            Answer::Lined(Some(bytes)) => {
                self.1[1].fetch_add(bytes.len() as u64, Ordering::Relaxed)
            }
            _ => 0,
        };
        Ok(answer)
    }
}

fn pager(folder: &TestDir, holder: &Here, wishes: PagerOptions) -> Arc<RegionPager> {
    let room = Capacity::open(&folder.at("room")).unwrap();
    Arc::new(RegionPager::new(
        SharedRegion::attach(folder.path(), room, node(1)).unwrap(),
        Uffd::open().unwrap(),
        Maps::new().unwrap(),
        Box::new(holder.clone()),
        wishes,
        None,
    ))
}

pub struct World {
    pub pager: Arc<RegionPager>,
    pub evictor: Arc<Evictor>,
    pub holder: Here,
    pub kept: Arc<HeldRegion>,
    pub folder: TestDir,
}

pub fn node(number: u16) -> NodeId {
    NodeId::new(number).unwrap()
}

fn handed_over(pager: &RegionPager) -> (Uffd, Maps) {
    let [uffd, maps] = pager.descriptors().map(|fd| fd.try_clone_to_owned().unwrap());
    (Uffd::of_other(uffd), Maps::of_other(maps).unwrap())
}

impl World {
    /// A region of so many pages on a node that has room for `local`, and a holder.
    pub fn new(pages: u64, local: u64) -> Self {
        Self::with(pages, local, PrefetchMode::Auto)
    }

    pub fn with(pages: u64, local: u64, ahead: PrefetchMode) -> Self {
        Self::wishing(pages, local, PagerOptions { ahead, ..PagerOptions::default() })
    }

    pub fn wishing(pages: u64, local: u64, wishes: PagerOptions) -> Self {
        let folder = TestDir::new();
        let path = |name: &str| folder.at(name);
        drop(Region::create(&path(REGION), pages * PAGE, 0o600, true).unwrap());
        Table::create(folder.path(), pages).unwrap();
        drop(Directory::create(&path("directory"), pages).unwrap());
        let room = |name: &str, capacity| {
            Capacity::create(&path(name)).unwrap().set_up(capacity, 0, capacity / 20 + 1);
            Capacity::open(&path(name)).unwrap()
        };
        let ground = |room| SharedRegion::attach(folder.path(), room, node(1)).unwrap();
        let kept = HeldRegion::open(&path("kept"), (1, 1), pages, Arc::new(room("room-2", pages)))
            .unwrap();
        let kept = Arc::new(kept);
        let holder = Here(Arc::clone(&kept), Arc::default(), Arc::default());
        let evictor = Arc::new(Evictor::new(ground(room("room", local)), 1));
        let pager = pager(&folder, &holder, wishes);
        let world = Self { pager, evictor, holder, kept, folder };
        world.meet(world.pager.ground().table.me(), Preferences::default());
        world
    }

    /// The pager of another process, as far as the node can tell.
    pub fn second_pager(&self, wishes: PagerOptions) -> Arc<RegionPager> {
        let pager = pager(&self.folder, &self.holder, wishes);
        self.meet_pager(&pager, pager.ground().table.me(), Preferences::default());
        pager
    }

    /// The node hears of the process, under this name.
    pub fn meet(&self, claimant: Claimant, wish: Preferences) {
        self.meet_pager(&self.pager, claimant, wish);
    }

    fn meet_pager(&self, pager: &RegionPager, claimant: Claimant, wish: Preferences) {
        let (uffd, maps) = handed_over(pager);
        self.evictor.add(Peer::new(claimant, uffd, maps, wish));
    }

    /// The node has fetched what the process has to hand over.
    pub fn fetch(&self, claimant: Claimant) {
        let (uffd, maps) = handed_over(&self.pager);
        self.evictor.add(Peer::found(claimant, uffd, maps));
    }

    /// A mapping that no pager knows.
    pub fn region_alone(&self) -> Region {
        let options = pmem::OpenOptions { write: true, ..pmem::OpenOptions::default() };
        Region::open(&self.folder.at(REGION), &options).unwrap()
    }

    pub fn region(&self) -> Region {
        self.region_by(&self.pager)
    }

    pub fn region_by(&self, pager: &Arc<RegionPager>) -> Region {
        let mut region = self.region_alone();
        region.set_pager(Arc::clone(pager) as Arc<dyn Pager>);
        region
    }

    pub fn evict(&self, pages: u64) -> Made {
        self.evictor.make_room(pages, &[node(2)], &self.holder, Duration::from_secs(1))
    }

    /// Evicts whenever a touch wants room, until the world ends.
    pub fn evict_beside<T>(&self, work: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let room = Capacity::open(&self.folder.at("room")).unwrap();
                while !over.load(Ordering::Relaxed) {
                    room.wait_for_demand(Duration::from_millis(1));
                    self.evict(room.missing());
                }
            });
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            over.store(true, Ordering::Relaxed);
            done.unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        })
    }
}

/// Whether a page of this process's memory has an entry in its page table (`proc_pid_pagemap(5)`).
pub fn is_mapped(address: usize) -> bool {
    use std::os::unix::fs::FileExt;
    let mut entry = [0; 8];
    let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    pagemap.read_exact_at(&mut entry, address as u64 / PAGE * 8).unwrap();
    u64::from_le_bytes(entry) >> 63 != 0
}

/// Touches a page of a mapping as a program's own instruction does.
pub fn touch_by_instruction(pager: &RegionPager, address: usize) {
    if !is_mapped(address) {
        pager.serve(address, true).unwrap();
        // As the library does, where nobody changes a mapping.
        Pagers::map_others();
    }
}
