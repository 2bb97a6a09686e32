//! Workloads in which the explorer found a bug, each with its story; all states of each.

use explorer::campaign::summary;
use explorer::sequences::workload_on;
use explorer::workload::Action;
use explorer::workload::short::{close, open};

fn holds(start: &str, actions: &[Action]) {
    let report = workload_on(start, actions);
    println!("{}", summary(&report));
    assert!(report.failures.is_empty() && report.calls > 0, "{}", summary(&report));
}

/// `fsync` and `msync` committed a file's size and flushed nothing: what a program had stored
/// through a shared mapping stayed in its caches, and a power cut long after the sync could lose it.
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
