//! The table of `bench ddmap`, for people.

use std::fmt::Write;

use console::output;
use console::size::show;
use serde_json::Value;

const HEAD: [&str; 7] = ["row", "measured (spread)", "beside", "that", "ratio", "aim", "reached"];

/// All that was measured. (A string takes all that is written to it.)
pub fn text(report: &Value) -> String {
    let lines: Vec<Vec<String>> = list(report, "rows").iter().flat_map(lines).collect();
    let mut text = output::table(&HEAD, &lines);
    for why in list(report, "skipped").iter().filter_map(Value::as_str) {
        let _ = writeln!(text, "skipped: {why}");
    }
    let _ = writeln!(
        text,
        "{} nodes on loopback, the host's {}; file {}, of which {:.0} % were away; median of {}",
        report["nodes"],
        show(report["size_bytes"].as_u64().unwrap_or_default()),
        show(report["file_bytes"].as_u64().unwrap_or_default()),
        report["away_percent"].as_f64().unwrap_or_default(),
        report["rounds"],
    );
    text
}

/// A line for each peer of a row, or one.
fn lines(row: &Value) -> Vec<Vec<String>> {
    let unit = row["unit"].as_str().unwrap_or_default();
    let name = row["row"].as_str().unwrap_or_default().to_owned();
    let own = measured(row, unit);
    let peers = list(row, "peers");
    if peers.is_empty() {
        let none = || "-".to_owned();
        return vec![vec![name, own, none(), none(), none(), none(), none()]];
    }
    let line = |(number, peer): (usize, &Value)| {
        let (name, own) =
            if number == 0 { (name.clone(), own.clone()) } else { Default::default() };
        let (aim, reached) = target(peer, unit);
        vec![
            name,
            own,
            peer["peer"].as_str().unwrap_or_default().to_owned(),
            measured(peer, unit),
            format!("{:.2}", peer["ratio"].as_f64().unwrap_or(f64::NAN)),
            aim,
            reached,
        ]
    };
    peers.iter().enumerate().map(line).collect()
}

/// What was aimed at, and what was reached.
fn target(peer: &Value, unit: &str) -> (String, String) {
    let Some(met) = peer["met"].as_bool() else { return ("-".into(), "-".into()) };
    let word = if met { "met" } else { "missed" };
    let number = |key: &str| peer[key].as_f64();
    let more = number("more").unwrap_or(f64::NAN);
    match (number("at_most"), number("at_least"), number("at_most_more")) {
        (Some(most), ..) => (format!("<= {most:.2}"), word.into()),
        (_, Some(least), _) => (format!(">= {least:.2}"), word.into()),
        (.., Some(most)) => (format!("<= +{most} {unit}"), format!("{more:+.1} {unit}, {word}")),
        _ => ("-".into(), word.into()),
    }
}

fn measured(value: &Value, unit: &str) -> String {
    let (number, spread) = (value["value"].as_f64(), value["spread_percent"].as_f64());
    let number = number.unwrap_or(f64::NAN);
    let digits = if number.abs() < 10.0 { 2 } else { 1 };
    format!("{number:.digits$} {unit} ({:.0} %)", spread.unwrap_or_default()).replace("  ", " ")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::text;

    #[test]
    fn each_peer_has_a_line_with_what_was_aimed_at() {
        let peers = json!([
            { "peer": "TCP round trip", "value": 20.0, "spread_percent": 3.4, "ratio": 1.25,
              "at_most_more": 10, "more": 5.0, "met": true },
            { "peer": "thread", "value": 5.0, "spread_percent": 1.0, "ratio": 5.0,
              "at_most": 0.8, "met": false },
        ]);
        let report = json!({
            "rows": [
                { "row": "touch", "unit": "us", "value": 25.0, "spread_percent": 2.0,
                  "peers": peers },
                { "row": "read", "unit": "GB/s", "value": 2.5, "spread_percent": 0.0, "peers": [] },
            ],
            "skipped": ["sshfs: not installed"],
            "nodes": 2, "size_bytes": 8 << 20, "file_bytes": 4 << 20, "away_percent": 93.7,
            "rounds": 1,
        });
        let lines: Vec<String> = text(&report)
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            lines[1..],
            [
                "touch 25.0 us (2 %) TCP round trip 20.0 us (3 %) 1.25 <= +10 us +5.0 us, met",
                "thread 5.00 us (1 %) 5.00 <= 0.80 missed",
                "read 2.50 GB/s (0 %) - - - - -",
                "skipped: sshfs: not installed",
                "2 nodes on loopback, the host's 8.00 MiB; file 4.00 MiB, of which 94 % were away; \
                 median of 1",
            ]
        );
    }
}
