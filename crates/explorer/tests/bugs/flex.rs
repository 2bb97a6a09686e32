//! Each flush and each fence of `flex` is left out in turn, and it shows.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::ALONE;
use explorer::{flex_file, flex_log};
use pmem::inject::{Site, leave_out, reached};

/// Keys of a log are drawn each time, and threads meet as they do: seldom one try shows nothing.
const TRIES: usize = 5;

/// Leaves out each of the sites that `all` reaches in sources of this name; gives their number.
fn each_shows(all: &dyn Fn() -> Result<u64, String>, is_own: impl Fn(&Site) -> bool) -> usize {
    let _alone = ALONE.lock();
    let (sites, found) = reached(all);
    found.expect("nothing is wrong with all of them");
    let mut shown = 0;
    for site in sites.into_iter().filter(is_own) {
        let name = format!("{}:{} {:?}", site.at.file(), site.at.line(), site.does);
        leave_out(Some(site));
        let shows = (0..TRIES).any(|_| !matches!(catch_unwind(AssertUnwindSafe(all)), Ok(Ok(_))));
        leave_out(None);
        assert!(shows, "nothing shows that {name} is left out");
        println!("shows: {name}");
        shown += 1;
    }
    shown
}

#[test]
fn each_flush_and_each_fence_of_the_log_left_out_shows() {
    let all = || {
        let one = flex_log::three_records().and(flex_log::around_the_end());
        one.and(flex_log::a_gap()).and(flex_log::two_threads())
    };
    // A log is made under another name: no state of its making is ever found.
    let is_own = |site: &Site| {
        let file = site.at.file();
        file.contains("crates/flex/src/log/") && !file.contains("file.rs")
    };
    let shown = each_shows(&all, is_own);
    assert!(shown > 5, "{shown} sites were left out");
}

#[test]
fn each_fence_of_a_file_left_out_shows() {
    let is_own = |site: &Site| site.at.file().contains("crates/flex/src/file/");
    assert!(each_shows(&flex_file::all, is_own) > 0, "no site was left out");
}
