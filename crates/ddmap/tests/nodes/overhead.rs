//! What a volume takes beside its pages.

use crate::paging::pager::PagerOptions;
use crate::shared_memory::store::Store;
use crate::tests::support::dir::TestDir;
use crate::tests::support::running::{PAGE, Running, region_of, store};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn allocated(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

/// Bytes of a node table, but for its header, slots and names.
fn words(folder: &Path) -> u64 {
    allocated(&folder.join("table")).saturating_sub(512 << 10)
}

#[test]
fn a_page_takes_16_bytes_on_its_host_and_8_on_its_holder() {
    let (folder, pages) = (TestDir::new(), 16_384);
    let first = Running::start(&folder.at("1"), 16 << 20, None);
    let second = Running::start(&folder.at("2"), 80 << 20, Some(first.address));
    let own = Store::at(first.store.clone());
    let path = own.create_volume("v", pages * PAGE, 1).unwrap();
    let empty = words(&path) + allocated(&path.join("directory"));
    assert!(empty <= 2 * PAGE, "{empty} bytes before a page was touched");
    let (region, pager) = region_of(&path.join("region"), PagerOptions::default());
    (0..pages).for_each(|page| store(&region, page, page + 1));
    let here = pager.ground().pages_in_file();
    assert!(here <= 4096, "{here} pages are here, all others with the holder");
    let host = words(&path) + allocated(&path.join("directory"));
    assert!(host <= pages * 16 + 2 * PAGE, "{host} bytes for {pages} pages");
    let kept = std::fs::read_dir(second.store.join("kept")).unwrap().next().unwrap().unwrap();
    let (holder, held) = (words(&kept.path()), pages - here);
    assert!(held > 12_000);
    // It has memory for whole pages of words.
    assert!(holder <= pages * 8 + 2 * PAGE, "{holder} bytes for {held} pages");
    // A process counts in pages of its own.
    let counts = allocated(&path.join("counts"));
    assert!(counts <= 2 * 2 * PAGE, "{counts} bytes: the node's and this process's");
}
