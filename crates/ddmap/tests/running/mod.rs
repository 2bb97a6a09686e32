//! Nodes of a domain in this process, each with a store of its own, over loopback.

// Each test binary uses a part of this.
#![allow(dead_code)]

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

pub const PAGE: u64 = 4096;

/// A node that runs, until it is dropped.
pub struct Running {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub address: SocketAddr,
    pub number: u16,
    pub store: PathBuf,
    pub metrics: SocketAddr,
}

impl Running {
    pub fn start(store: &Path, capacity: u64, join: Option<SocketAddr>) -> Self {
        let node = Node::start(NodeOptions {
            domain: "test".to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            store: store.to_owned(),
            capacity,
            reserve: 5,
            passive: false,
            join,
            wire: Wire::Plain,
            metrics: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        })
        .unwrap();
        let (address, number) = (node.address(), node.number());
        let metrics = node.metrics().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = std::thread::spawn(move || node.run(&ends).unwrap());
        Self { over, thread: Some(thread), address, number, store: store.to_owned(), metrics }
    }

    pub fn stop(&mut self) {
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

/// A folder in memory, which goes with it.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/dev/shm/solera-nodes-{}-{number}", std::process::id());
        std::fs::create_dir_all(&path).unwrap();
        Self(PathBuf::from(path))
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is seen in /dev/shm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A region of a domain, with its pager.
pub fn region_of(path: &Path, wishes: Wishes) -> (Region, Arc<RegionPager>) {
    let pager = pager_of(path, wishes).unwrap().expect("a domain's region");
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let mut region = Region::open(path, &options).unwrap();
    region.set_pager(Arc::clone(&pager) as Arc<dyn Pager>);
    (region, pager)
}

/// Loads a word of a page, wherever it is.
pub fn touch(region: &Region, page: u64) {
    while region.load64(page * PAGE).is_err() {
        let at = region.absent_page().expect("a touch of an absent page");
        region.pager().unwrap().fault(at, Access::Load).unwrap();
    }
}

/// Stores a word to a page, wherever it is.
pub fn store(region: &Region, page: u64, value: u64) {
    while region.shared_store(page * PAGE, value).is_err() {
        let at = region.absent_page().expect("a touch of an absent page");
        region.pager().unwrap().fault(at, Access::Store).unwrap();
    }
}
