//! `solera bench micro` and `solera bench profile`: what they print, also of small working sets. No
//! figure is judged here.

use serde_json::Value;

use crate::support::solera;

fn rows(report: &Value) -> &[Value] {
    report["rows"].as_array().expect("rows")
}

/// The row of scattered overwrites ranged over 16 MiB, beyond the end of a smaller working set:
/// "measure in ...: EIO".
#[test]
fn a_small_working_set_is_measured() {
    let report = solera(["bench", "micro", "--size", "4M", "--repeat", "1", "--json"]).json();
    assert_eq!(rows(&report).len(), 19);
    for row in rows(&report) {
        let time = row["peers"]["solera"]["ns"].as_f64();
        assert!(time.is_some_and(|ns| ns > 0.0), "{row}");
    }
    let scattered = rows(&report).iter().find(|row| row["row"] == "overwrite 4K scattered");
    let scattered = scattered.expect("the row");
    assert!(scattered["peers"]["limit"]["ns"].as_f64().is_some_and(|ns| ns > 0.0), "{scattered}");
}

#[test]
fn a_profile_is_measured_beside_none() {
    let options = ["bench", "profile", "--size", "2M", "--repeat", "3"];
    let report = solera([&options[..], &["--json"]].concat()).json();
    assert_eq!(rows(&report)[0]["row"], "append 4K");
    for row in rows(&report) {
        for figure in ["without_ns", "with_ns", "ratio", "control"] {
            assert!(row[figure].as_f64().is_some_and(|value| value > 0.0), "{row}");
        }
    }
    let text = solera(options).ok();
    assert!(text.contains("append 4K") && text.contains("3 pairs of turns"), "{text}");
}

#[test]
fn a_size_that_is_no_multiple_is_refused() {
    for bench in ["micro", "profile"] {
        solera(["bench", bench, "--size", "3M"]).refused(2, &["multiple of 2 MiB", "256M"]);
        solera(["bench", bench, "--size", "0"]).refused(2, &["multiple of 2 MiB"]);
    }
}
