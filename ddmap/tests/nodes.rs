//! Nodes of a domain, each with a store of its own, over loopback: a volume's pages move between
//! them as a process touches them, through the node's socket and its connections.

use ddmap::ground::store::Store;
use ddmap::node::{Node, NodeOptions};
use ddmap::program::attach::pager_of;
use ddmap::program::pager::{RegionPager, Wishes};
use ddmap::wire::Wire;
use pmem::{Access, OpenOptions, Pager, Region};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

const PAGE: u64 = 4096;

struct Running {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
    number: u16,
    store: PathBuf,
}

impl Running {
    fn start(store: &Path, capacity: u64, join: Option<SocketAddr>) -> Self {
        let node = Node::start(NodeOptions {
            domain: "test".to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            store: store.to_owned(),
            capacity,
            reserve: 5,
            passive: false,
            join,
            wire: Wire::Plain,
        })
        .unwrap();
        let (address, number) = (node.address(), node.number());
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = std::thread::spawn(move || node.run(&ends).unwrap());
        Self { over, thread: Some(thread), address, number, store: store.to_owned() }
    }

    fn stop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/dev/shm/solera-nodes-{}-{number}", std::process::id());
        std::fs::create_dir_all(&path).unwrap();
        Self(PathBuf::from(path))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is seen in /dev/shm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn region_of(path: &Path) -> (Region, Arc<RegionPager>) {
    let pager = pager_of(path, Wishes::default()).unwrap().expect("a domain's region");
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let mut region = Region::open(path, &options).unwrap();
    region.set_pager(Arc::clone(&pager) as Arc<dyn Pager>);
    (region, pager)
}

fn touch(region: &Region, page: u64) {
    while region.load64(page * PAGE).is_err() {
        let at = region.absent_page().expect("a touch of an absent page");
        region.pager().unwrap().fault(at, Access::Load).unwrap();
    }
}

#[test]
fn a_volume_larger_than_its_node_lies_on_three() {
    let folder = Folder::new();
    let capacity = 4 << 20;
    let first = Running::start(&folder.at("1"), capacity, None);
    let others: Vec<Running> = ["2", "3"]
        .iter()
        .map(|name| Running::start(&folder.at(name), capacity, Some(first.address)))
        .collect();
    assert_eq!(others.iter().map(|node| node.number).collect::<Vec<_>>(), [2, 3]);
    let pages = 2 * capacity / PAGE;
    let path = Store::at(first.store.clone()).create_volume("big", pages * PAGE).unwrap();
    let (region, pager) = region_of(&path.join("region"));
    for page in 0..pages {
        while region.shared_store(page * PAGE, page + 7).is_err() {
            let at = region.absent_page().expect("a touch of an absent page");
            pager.fault(at, Access::Store).unwrap();
        }
    }
    let here = pager.ground().pages_in_file();
    let used = pager.ground().room.used();
    assert!(here * PAGE <= capacity, "{here} pages are here, {used} are counted");
    for page in 0..pages {
        touch(&region, page);
        assert_eq!(region.load64(page * PAGE), Ok(page + 7), "page {page}");
    }
    println!("{:?}", pager.counts);
    let faults = pager.counts.remote.load(Ordering::Relaxed);
    assert!(faults < pages / 4, "{faults} requests for {pages} pages in order");
}

#[test]
fn a_node_that_is_started_again_goes_on() {
    let folder = Folder::new();
    let capacity = 4 << 20;
    let mut first = Running::start(&folder.at("1"), capacity, None);
    let mut second = Running::start(&folder.at("2"), capacity, Some(first.address));
    let pages = capacity / PAGE * 3 / 2;
    let path = Store::at(first.store.clone()).create_volume("v", pages * PAGE).unwrap();
    let (region, pager) = region_of(&path.join("region"));
    let fill = |add: u64| {
        for page in 0..pages {
            pager.begin();
            while region.shared_store(page * PAGE, page + add).is_err() {
                let at = region.absent_page().expect("a touch of an absent page");
                pager.fault(at, Access::Store).unwrap();
            }
        }
    };
    fill(1);
    for _ in 0..2 {
        second.stop();
        second = Running::start(&folder.at("2"), capacity, Some(first.address));
        fill(2);
        first.stop();
        first = Running::start(&folder.at("1"), capacity, None);
        // The second one knows only the first one's old address.
        second.stop();
        second = Running::start(&folder.at("2"), capacity, Some(first.address));
        fill(3);
    }
    for page in 0..pages {
        touch(&region, page);
        assert_eq!(region.load64(page * PAGE), Ok(page + 3), "page {page}");
    }
}
