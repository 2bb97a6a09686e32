//! The tables of `bench flac`, for people.

use std::fmt::Write;

use console::output;
use console::size::show;
use serde_json::Value;

const HEAD: [&str; 7] =
    ["us a call (spread)", "cached", "peer", "of the peer", "ratio", "at most", "reached"];

/// All that was measured. (A string takes all that is written to it.)
pub fn text(report: &Value) -> String {
    let mut text = String::new();
    for model in list(report, "models") {
        let _ = writeln!(text, "memory {}", string(model, "memory"));
        let lines: Vec<Vec<String>> = list(model, "rows").iter().flat_map(lines).collect();
        text.push_str(&output::table(&HEAD, &lines));
        for why in list(model, "skipped").iter().filter_map(Value::as_str) {
            let _ = writeln!(text, "skipped: {why}");
        }
        text.push('\n');
    }
    let bytes = |key: &str| show(report[key].as_u64().unwrap_or_default());
    let _ = writeln!(
        text,
        "file {}; pages of the volume {}, of the cache {}; median of {}; ratio: time of the cache \
         over the peer's, below 1 is faster",
        bytes("size_bytes"),
        bytes("volume_page_bytes"),
        bytes("cache_page_bytes"),
        report["repeat"],
    );
    text
}

/// A line for each peer of a row.
fn lines(row: &Value) -> Vec<Vec<String>> {
    let line = |peer: &Value| {
        let (at_most, reached) = target(peer);
        vec![
            string(row, "row"),
            time(row),
            string(peer, "peer"),
            time(peer),
            format!("{:.2}", number(peer, "ratio").unwrap_or(f64::NAN)),
            at_most,
            reached,
        ]
    };
    list(row, "peers").iter().map(line).collect()
}

/// What was aimed at, and what was reached.
fn target(peer: &Value) -> (String, String) {
    let Some(met) = peer["met"].as_bool() else { return ("-".into(), "-".into()) };
    let word = if met { "met" } else { "missed" };
    match (number(peer, "at_most"), number(peer, "at_most_more_us"), number(peer, "more_us")) {
        (Some(most), ..) => (format!("{most:.2}"), word.into()),
        (_, Some(most), Some(more)) => (format!("{most:+.0} us"), format!("{more:+.0} us, {word}")),
        _ => ("-".into(), word.into()),
    }
}

fn time(value: &Value) -> String {
    let (us, spread) = (number(value, "us"), number(value, "spread_percent"));
    let us = us.unwrap_or(f64::NAN);
    let digits = if us < 10.0 { 3 } else { 1 };
    format!("{us:.digits$} ({:.0} %)", spread.unwrap_or(f64::NAN))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value, key: &str) -> Option<f64> {
    value[key].as_f64()
}
