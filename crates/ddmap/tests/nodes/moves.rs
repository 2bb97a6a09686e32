//! Nodes of a domain, each with a store of its own, over loopback: a volume's pages move between
//! them as a process touches them, through the node's socket and its connections.

use crate::control::node_messages::{self, NodeReply, NodeRequest};
use crate::paging::pager::PagerOptions;
use crate::protocol::NodeId;
use crate::protocol::messages::{Answer, Request};
use crate::shared_memory::counters::Touch;
use crate::shared_memory::store::Store;
use crate::tests::support::dir::TestDir;
use crate::tests::support::running::{PAGE, Running, region_of, store, touch};
use crate::wire::link::Link;
use crate::wire::{Hello, Wire};
use pmem::Pager;
use std::time::Duration;

#[test]
fn a_volume_larger_than_its_node_lies_on_three() {
    let folder = TestDir::new();
    let capacity = 4 << 20;
    let first = Running::start(&folder.at("1"), capacity, None);
    let others: Vec<Running> = ["2", "3"]
        .iter()
        .map(|name| Running::start(&folder.at(name), capacity, Some(first.address)))
        .collect();
    assert_eq!(others.iter().map(|node| node.number).collect::<Vec<_>>(), [2, 3]);
    let pages = 2 * capacity / PAGE;
    let path = Store::at(first.store.clone()).create_volume("big", pages * PAGE, 1).unwrap();
    let (region, pager) = region_of(&path.join("region"), PagerOptions::default());
    for page in 0..pages {
        store(&region, page, page + 7);
    }
    let here = pager.ground().pages_in_file();
    let used = pager.ground().room.used();
    assert!(here * PAGE <= capacity, "{here} pages are here, {used} are counted");
    for page in 0..pages {
        touch(&region, page);
        assert_eq!(region.load64(page * PAGE), Ok(page + 7), "page {page}");
    }
    let faults = pager.counted().times(Touch::Remote).count();
    assert!(faults < pages / 4, "{faults} requests for {pages} pages in order");
}

#[test]
fn a_node_that_is_started_again_goes_on() {
    let folder = TestDir::new();
    let capacity = 4 << 20;
    let mut first = Running::start(&folder.at("1"), capacity, None);
    let mut second = Running::start(&folder.at("2"), capacity, Some(first.address));
    let pages = capacity / PAGE * 3 / 2;
    let path = Store::at(first.store.clone()).create_volume("v", pages * PAGE, 1).unwrap();
    let (region, pager) = region_of(&path.join("region"), PagerOptions::default());
    let fill = |add: u64| {
        for page in 0..pages {
            pager.begin();
            store(&region, page, page + add);
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

/// A holder maps what volumes can have, and no more: a peer that says so of 256 volumes of 16 TiB
/// took all its addresses.
#[test]
fn a_region_that_no_volume_can_have_is_not_held() {
    let folder = TestDir::new();
    let first = Running::start(&folder.at("1"), 16 << 20, None);
    let _second = Running::start(&folder.at("2"), 16 << 20, Some(first.address));
    let hold = |volume: u8, pages: u64| {
        let (node, volume) = (NodeId::new(2).unwrap(), [volume; 16]);
        let hello = Hello { node, process: 7, session: 1, volume, term: 1, store: 0 };
        let wait = Duration::from_mins(1);
        let mut link = Link::connect(first.address, wait, &hello, &Wire::Plain).unwrap();
        let text = node_messages::text(&NodeRequest::Hold { pages, node: 1 });
        match link.ask(&Request::Control { text }, wait).unwrap() {
            Answer::Control { text } => node_messages::parse::<NodeReply>(&text).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let is_refused = |told: NodeReply, words: &str| match told {
        NodeReply::Refused { text } => assert!(text.contains(words), "{text}"),
        other => panic!("{other:?}"),
    };
    for pages in [1 << 32, u64::MAX, 1 << 20] {
        is_refused(hold(9, pages), "none of this domain's, whose nodes have 8192");
    }
    assert_eq!(hold(1, 8192), NodeReply::Done);
    // Others that are as large are held, up to twice what a region may have.
    let held = (2..=255).take_while(|volume| hold(*volume, 60_000) == NodeReply::Done).count();
    assert_eq!(held, 2);
    is_refused(hold(99, 60_000), "beyond what the volumes of this domain can have");
    assert_eq!(hold(1, 8192), NodeReply::Done, "what is held stays so");
}
