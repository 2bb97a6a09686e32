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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::text;

    #[test]
    fn each_peer_has_a_line_with_what_was_aimed_at() {
        let peers = json!([
            { "peer": "DRAM", "us": 10.0, "spread_percent": 3.4, "ratio": 1.5, "at_most": 1.6,
              "met": true },
            { "peer": "alone", "us": 5.0, "spread_percent": 1.0, "ratio": 3.0,
              "at_most_more_us": 2.0, "more_us": 10.0, "met": false },
            { "peer": "volume", "us": 30.0, "spread_percent": 0.0, "ratio": 0.5 },
        ]);
        let row = json!({ "row": "hit", "us": 15.0, "spread_percent": 2.0, "peers": peers });
        let report = json!({
            "models": [{ "memory": "cxl", "rows": [row], "skipped": ["fio: not installed"] }],
            "size_bytes": 16 << 20, "volume_page_bytes": 4096, "cache_page_bytes": 2 << 20,
            "repeat": 1,
        });
        let text = text(&report);
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(lines[0], "memory cxl");
        assert_eq!(
            lines[2..6],
            [
                "hit 15.0 (2 %) DRAM 10.0 (3 %) 1.50 1.60 met",
                "hit 15.0 (2 %) alone 5.000 (1 %) 3.00 +2 us +10 us, missed",
                "hit 15.0 (2 %) volume 30.0 (0 %) 0.50 - -",
                "skipped: fio: not installed",
            ]
        );
        let end =
            "file 16.00 MiB; pages of the volume 4.00 KiB, of the cache 2.00 MiB; median of 1";
        assert!(lines.last().is_some_and(|line| line.starts_with(end)), "{text}");
    }
}
