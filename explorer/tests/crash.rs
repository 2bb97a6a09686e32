//! Every single operation of the contract, on every relevant start state, in all modes and on both
//! classes of persistence: no power cut leaves anything but what the mode promises.

use explorer::campaign::{run, summary};

#[test]
fn no_crash_breaks_a_promise() {
    let report = run(&|_, _, _| true);
    println!("{}", summary(&report));
    assert!(report.failures.is_empty(), "{}", summary(&report));
    assert!(report.calls > 0, "nothing was explored");
}
