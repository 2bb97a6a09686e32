//! `solera bench door`: all rows are measured, and the ways in which a program is armed are those
//! that the rows say. No figure is judged here.

use serde_json::Value;

use crate::support::solera;

fn rows<'a>(report: &'a Value, table: &str) -> &'a [Value] {
    report[table].as_array().expect("rows")
}

#[test]
fn each_way_of_a_call_and_of_a_start_is_measured() {
    let report = solera(["bench", "door", "--repeat", "2", "--json"]).json();
    let calls = rows(&report, "calls");
    assert_eq!(calls.len(), 27);
    for row in calls {
        assert!(row["ns"].as_f64().is_some_and(|ns| ns > 0.0), "{row}");
        assert!(row["peer_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{row}");
        assert!(row["beside"].is_f64(), "{row}");
        assert_eq!(row["reached"] == "-", row["at_most"].is_null(), "{row}");
    }
    let starts = rows(&report, "starts");
    let skipped = report["skipped"].as_array().expect("what is skipped");
    assert_eq!(starts.len() + skipped.len(), 4, "{report}");
    for row in starts {
        // A patched page is a page fault more, in whichever way.
        assert!(row["more_faults"].as_f64().is_some_and(|more| more > 0.0), "{row}");
        assert!(row["more_us"].is_f64(), "{row}");
    }
    let text = solera(["bench", "door", "--repeat", "1"]).ok();
    assert!(text.contains("passed on to the kernel") && text.contains("1 rounds"), "{text}");
}

#[test]
fn a_place_that_is_no_directory_is_refused() {
    let worker = ["bench", "door-worker", "/dev/null/here", "/dev/null/there"];
    solera(worker).refused(1, &["make calls in /dev/null/here"]);
}
