//! Bugs that real file systems had, built in again: the explorer must catch each.
//!
//! `cargo test -p solera-explorer --features bug-size-before-data,bug-rename-drops-first --test bugs`.
//! Without a feature its bug is not there, and nothing may be caught.

use explorer::campaign::{run, settings, summary};
use volume::Mode;

/// Explores one case in mode strict, class cache-line; the bug must be caught exactly if it is there.
fn is_caught(start: &str, case: &str, injected: bool) {
    let strict = settings().into_iter().find(|setting| setting.mode == Mode::Strict);
    let report = run(&|setting, some_start, some_case| {
        Some(setting) == strict && some_start.name == start && some_case.name == case
    });
    println!("{}", summary(&report));
    assert!(report.calls > 0, "the case was not explored");
    assert_eq!(!report.failures.is_empty(), injected, "{}", summary(&report));
}

/// PMFS and NOVA could commit an append's size while its bytes were still in flight.
#[test]
fn size_before_data() {
    is_caught("small", "append-5000", cfg!(feature = "bug-size-before-data"));
}

/// NOVA invalidated the old name of a rename before the new one was committed: a crash between lost
/// the file.
#[test]
fn rename_drops_the_old_name_first() {
    is_caught("names", "rename-below", cfg!(feature = "bug-rename-drops-first"));
}
