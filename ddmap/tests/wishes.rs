//! What a program asks of its node reaches it: of two runs on a node, one has room made before it
//! is short, the other one has not.

mod running;

use ddmap::ground::store::Store;
use ddmap::program::pager::Wishes;
use ddmap::reach::wish::{When, Wish};
use running::{Folder, PAGE, Running, region_of, store, touch};
use std::time::{Duration, Instant};

const CAPACITY: u64 = 4 << 20;

#[test]
fn room_is_made_ahead_or_when_a_touch_finds_none() {
    let folder = Folder::new();
    let first = Running::start(&folder.at("1"), CAPACITY, None);
    let second = Running::start(&folder.at("2"), CAPACITY, Some(first.address));
    assert_eq!((first.number, second.number), (1, 2));
    let (here, pages) = (CAPACITY / PAGE, CAPACITY / PAGE * 3 / 2);
    let path = Store::at(first.store.clone()).create_volume("v", pages * PAGE).unwrap();
    let run = |when| {
        let wish = Wish { policy: None, when: Some(when) };
        region_of(&path.join("region"), Wishes { wish, ..Wishes::default() })
    };
    {
        let (region, pager) = run(When::Demand);
        let room = &pager.ground().room;
        for page in 0..here - 8 {
            store(&region, page, page + 1);
        }
        // Longer than the evictor sleeps.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!((room.used(), room.left()), (here - 8, 0), "8 pages are free, and nobody waits");
        for page in here - 8..pages {
            store(&region, page, page + 1);
        }
        assert!(room.left() >= pages - here, "{} left", room.left());
        // It is not what is kept free that was missing.
        assert!(room.left() < pages - here + 200, "{} left", room.left());
    }
    let (region, pager) = run(When::Background);
    let (room, since) = (&pager.ground().room, Instant::now());
    while room.missing() > 0 || room.free() < 32 {
        assert!(since.elapsed() < Duration::from_secs(20), "{} are free", room.free());
        std::thread::sleep(Duration::from_millis(10));
    }
    for page in 0..pages {
        touch(&region, page);
        assert_eq!(region.load64(page * PAGE), Ok(page + 1));
    }
}
