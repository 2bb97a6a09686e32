//! Nodes of a domain, each with a store of its own, over loopback: a volume's pages move between
//! them as a process touches them, through the node's socket and its connections.

mod running;

use ddmap::ground::counts::Touch;
use ddmap::ground::store::Store;
use ddmap::program::pager::Wishes;
use pmem::Pager;
use running::{Folder, PAGE, Running, region_of, store, touch};

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
    let (region, pager) = region_of(&path.join("region"), Wishes::default());
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
    let folder = Folder::new();
    let capacity = 4 << 20;
    let mut first = Running::start(&folder.at("1"), capacity, None);
    let mut second = Running::start(&folder.at("2"), capacity, Some(first.address));
    let pages = capacity / PAGE * 3 / 2;
    let path = Store::at(first.store.clone()).create_volume("v", pages * PAGE).unwrap();
    let (region, pager) = region_of(&path.join("region"), Wishes::default());
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
