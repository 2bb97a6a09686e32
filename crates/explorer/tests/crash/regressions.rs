//! Workloads in which the explorer found a bug, each with its story; all states of each.

use explorer::campaign::summary;
use explorer::deaths;
use explorer::exploration::Report;
use explorer::sequences::workload_on;
use explorer::workload::Action;
use explorer::workload::short::{close, open, write_at};

fn holds(start: &str, actions: &[Action]) {
    nothing_fails(&workload_on(start, actions));
}

fn nothing_fails(report: &Report) {
    println!("{}", summary(report));
    assert!(report.failures.is_empty() && report.calls > 0, "{}", summary(report));
}

/// `fsync` and `msync` committed a file's size and flushed nothing: what a program had stored
/// through a shared mapping stayed in its caches, and a power cut long after the sync could lose
/// it.
#[test]
fn a_sync_makes_stores_through_mappings_durable() {
    let store = Action::StoreMapped { slot: 1, tag: 110, offset: 27_804, length: 3361 };
    let sync = Action::Sync { slot: 1, data_only: true };
    holds("mixed", &[open("b", 1), store.clone(), sync]);
    holds("mixed", &[open("b", 1), store.clone(), Action::SyncAll]);
    // The sync comes when the file was closed by all, and was opened again.
    let sync = Action::Sync { slot: 2, data_only: false };
    holds("mixed", &[open("b", 1), store, close(1), open("b", 2), sync]);
}

/// A process died while it made a file without a name (`O_TMPFILE`): it had written into its
/// description which inode that is for, and had not counted the reference yet. The sweep of its
/// recovery spared the inode for the description's sake, then the description was put back as one
/// that had never counted: the inode was not freed until the next death.
#[test]
fn a_file_that_was_being_made_without_a_name_goes_with_its_maker() {
    nothing_fails(&deaths::everywhere("temporary"));
}

/// A size that `fallocate` had set in mode `posix`, lazily, was set once more by `ftruncate`, which
/// saw that nothing was to be done, and so made nothing durable.
#[test]
fn a_size_that_is_there_already_is_durable_when_it_is_set() {
    let grow = Action::Allocate { slot: 0, mode: 0, offset: 32_768, length: 20_480 };
    holds("mixed", &[open("a", 0), grow, Action::TruncateOpen { slot: 0, size: 53_248 }]);
}

/// A lane's record of bytes counted again when what the next one tells of had been overwritten by
/// the one after that, or when recovery had made void the later one only.
#[test]
fn an_earlier_record_does_not_count_beside_a_later_one() {
    let over = |tag, length| write_at(0, tag, 0, length);
    holds("mixed", &[open("c", 0), over(2, 973), over(3, 23), over(4, 537)]);
}
