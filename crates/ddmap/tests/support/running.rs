//! Nodes of a domain in this process, each with a store of its own, over loopback.

use crate::node::{Node, NodeOptions};
use crate::paging::attachment::pager_of;
use crate::paging::pager::{PagerOptions, RegionPager};
use crate::wire::Wire;
use pmem::{Access, OpenOptions, Pager, Region};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// A region of a domain, with its pager.
pub fn region_of(path: &Path, wishes: PagerOptions) -> (Region, Arc<RegionPager>) {
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
