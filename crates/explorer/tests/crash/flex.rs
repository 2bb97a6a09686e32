//! No power cut takes away what `flex` has promised: its log, and its files.

use explorer::{flex_file, flex_log};

fn many(found: Result<u64, String>, least: u64) {
    let states = found.unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(states > least, "{states}");
}

#[test]
fn three_records_at_the_end() {
    many(flex_log::three_records(), 100);
}

#[test]
fn around_the_end_of_the_ring_and_across_a_trim() {
    many(flex_log::around_the_end(), 1000);
}

#[test]
fn one_thread_inside_the_calls_of_another() {
    many(flex_log::two_threads(), 1000);
}

#[test]
fn what_was_waited_for_is_there() {
    many(flex_file::all(), 300);
}
