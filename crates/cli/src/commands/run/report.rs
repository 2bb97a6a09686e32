//! What `solera run --report` prints: the lines that the processes left, summed up.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use console::output;
use ddmap::TimeHistogram;
use pmem::{Class, Policy};
use serde_json::{Value, json};

/// What the library says of a call that was served in a roundabout way.
const FELL_BACK: &str = "fell-back";
/// What it says of what the second engine used.
const RESOURCE: &str = "resource";

/// One kind of call that was not served as a file system serves it.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    calls: u64,
    function: String,
    reason: String,
    /// Bytes that the calls concerned, where that is counted.
    bytes: u64,
    /// The error that the program got; none: the call fell back.
    error: Option<String>,
    /// The file of the code that made the calls, if that was not the C library's.
    by: Option<String>,
    /// Where the program saw the volume that they concerned, if it had several.
    at: Option<String>,
}

/// What the library says of the times of touches: `ddmap:fault-ns:KIND:BUCKET`, and the longest.
const TIMES: &str = "ddmap:fault-ns:";

/// Counts of times by the bucket become the times within which half of the touches, and 99 of 100,
/// were served.
fn with_quantiles(used: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let mut kinds: BTreeMap<String, TimeHistogram> = BTreeMap::new();
    let (mut told, mut longest) = (Vec::new(), BTreeMap::new());
    for (name, count) in used {
        let of = name.strip_prefix(TIMES).and_then(|rest| rest.split_once(':'));
        if let Some((kind, bucket)) = of {
            let times = kinds.entry(kind.to_owned()).or_default();
            if let Some(place) = bucket.parse().ok().and_then(|at: usize| times.buckets.get_mut(at))
            {
                *place += count;
            }
            continue;
        }
        if let Some(kind) = name.strip_prefix(TIMES).and_then(|rest| rest.strip_suffix("-most")) {
            longest.insert(kind.to_owned(), count);
        }
        told.push((name, count));
    }
    for (kind, mut times) in kinds {
        times.longest_ns = longest.get(&kind).copied().unwrap_or(u64::MAX);
        for (name, of_100) in [("p50", 50), ("p99", 99)] {
            told.push((format!("{TIMES}{kind}-{name}"), times.within(of_100)));
        }
    }
    told.sort();
    told
}

/// What stands behind the outcome: the file of the code that made the calls, whose blanks and the
/// like are `\` and three digits, and the path of a volume.
fn made_by(rest: Option<&str>) -> (Option<String>, Option<String>) {
    let owned = |text: &str| Some(text.to_owned());
    let Some(rest) = rest else { return (None, None) };
    let Some(by) = rest.strip_prefix("by=") else { return (None, owned(rest)) };
    let (by, at) = by.split_once(' ').map_or((by, None), |(by, at)| (by, owned(at)));
    let mut bytes = Vec::new();
    let mut left = by.as_bytes();
    while let [first, others @ ..] = left {
        let code = if *first == b'\\' { others.get(..3) } else { None };
        let code = code.and_then(|code| u8::from_str_radix(str::from_utf8(code).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        left = if code.is_some() { &others[3..] } else { others };
    }
    (Some(String::from_utf8_lossy(&bytes).into_owned()), at)
}

/// The report of one run: all processes of the program.
#[derive(Debug)]
pub struct Report {
    /// Most frequent first.
    rows: Vec<Row>,
    /// What the second engine used: name and number, the sum of all processes, or of what ends in
    /// `-most` the largest.
    resources: Vec<(String, u64)>,
    /// The volumes that were named.
    volumes: Vec<Medium>,
}

/// What a volume lies on.
#[derive(Debug)]
struct Medium {
    volume: PathBuf,
    class: Class,
    policy: Policy,
}

impl Report {
    /// Tells of these volumes, too: of which class they are, and what stores need there.
    /// `emulated`: their memory stands for another, and is flushed whatever it is.
    pub fn on(mut self, volumes: Vec<PathBuf>, emulated: bool) -> Self {
        let medium = |volume: PathBuf| {
            // One that is gone by now is none any more.
            let (class, found) = pmem::policy_of(&volume).ok()?;
            let policy = if emulated { Policy::Flushed } else { found };
            Some(Medium { volume, class, policy })
        };
        self.volumes = volumes.into_iter().filter_map(medium).collect();
        self
    }

    /// Sums up lines of `count reason function outcome`, and perhaps `by=` and a file, and a path.
    pub fn from_lines(lines: &[u8]) -> Self {
        type Key = (String, String, String, Option<String>, Option<String>);
        let mut counts: BTreeMap<Key, (u64, u64)> = BTreeMap::new();
        for line in String::from_utf8_lossy(lines).lines() {
            let words: Vec<&str> = line.splitn(5, ' ').collect();
            let [count, reason, function, outcome, ref at @ ..] = words[..] else { continue };
            let (by, at) = made_by(at.first().copied());
            let (outcome, bytes) = outcome.split_once(':').unwrap_or((outcome, "0"));
            let key = (function.to_owned(), reason.to_owned(), outcome.to_owned(), by, at);
            let count = count.parse::<u64>().unwrap_or(0);
            let sum = counts.entry(key).or_default();
            sum.0 = if reason.ends_with("-most") { sum.0.max(count) } else { sum.0 + count };
            sum.1 += bytes.parse::<u64>().unwrap_or(0);
        }
        let mut resources = Vec::new();
        counts.retain(|(_, name, outcome, ..), (count, _)| {
            if outcome == RESOURCE {
                resources.push((name.clone(), *count));
            }
            outcome != RESOURCE
        });
        let mut rows: Vec<Row> = counts
            .into_iter()
            .map(|((function, reason, outcome, by, at), (calls, bytes))| {
                let error = (outcome != FELL_BACK).then_some(outcome);
                Row { calls, function, reason, bytes, error, by, at }
            })
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.calls));
        Self { rows, resources: with_quantiles(resources), volumes: Vec::new() }
    }

    /// Of calls of this kind: those that were served by a detour, and those that were refused,
    /// under whichever name of the function.
    pub fn of_call(&self, kind: &str) -> (u64, u64) {
        let named =
            |row: &&Row| row.function.trim_start_matches('_').trim_end_matches("64") == kind;
        self.rows.iter().filter(named).fold((0, 0), |(detours, refused), row| match row.error {
            None => (detours + row.calls, refused),
            Some(_) => (detours, refused + row.calls),
        })
    }

    /// For people: the `top` most frequent.
    pub fn text(&self, top: usize) -> String {
        let mut used = String::new();
        for (name, count) in &self.resources {
            // Writing to a string cannot fail.
            let _ = writeln!(used, "solera: {name} {count}");
        }
        let without_resources = used.is_empty();
        for Medium { volume, class, policy } in &self.volumes {
            let (volume, why) = (volume.display(), policy.reason());
            let _ = writeln!(used, "solera: {volume} is of class {class}: {why}");
        }
        if self.rows.is_empty() {
            let what = if without_resources { " on the volume" } else { "" };
            return format!("solera: every call{what} was served\n{used}");
        }
        let by_file = self.rows.iter().any(|row| row.by.is_some());
        let by_volume = self.rows.iter().any(|row| row.at.is_some());
        let by_bytes = self.rows.iter().any(|row| row.bytes > 0);
        let shown: Vec<Vec<String>> = self
            .rows
            .iter()
            .take(top)
            .map(|row| {
                let outcome = match &row.error {
                    Some(error) => format!("refused: {error}"),
                    None => "served by a detour".to_owned(),
                };
                let mut cells = vec![row.function.clone(), row.reason.clone(), outcome];
                if by_file {
                    cells.push(row.by.clone().unwrap_or_default());
                }
                if by_volume {
                    cells.push(row.at.clone().unwrap_or_default());
                }
                if by_bytes {
                    let bytes = (row.bytes > 0).then(|| row.bytes.to_string());
                    cells.push(bytes.unwrap_or_default());
                }
                cells.push(row.calls.to_string());
                cells
            })
            .collect();
        let mut titles = vec!["function", "reason", "outcome", "calls"];
        if by_file {
            titles.insert(titles.len() - 1, "made by");
        }
        if by_volume {
            titles.insert(titles.len() - 1, "volume at");
        }
        if by_bytes {
            titles.insert(titles.len() - 1, "bytes");
        }
        let table = output::table(&titles, &shown);
        let mut text = format!("solera: some calls were refused or served by a detour\n{table}");
        let rest = &self.rows[shown.len()..];
        if !rest.is_empty() {
            let calls: u64 = rest.iter().map(|row| row.calls).sum();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "and {} more kinds, {calls} calls", rest.len());
        }
        text + &used
    }

    /// For programs: all rows, or the `top` most frequent, and the totals of all.
    pub fn json(&self, top: usize) -> Value {
        let total = |refused: bool| -> u64 {
            self.rows.iter().filter(|row| row.error.is_some() == refused).map(|row| row.calls).sum()
        };
        let rows: Vec<Value> = self
            .rows
            .iter()
            .take(top)
            .map(|row| {
                json!({
                    "function": row.function,
                    "reason": row.reason,
                    "refused": row.error.is_some(),
                    "error": row.error,
                    "by": row.by,
                    "at": row.at,
                    "calls": row.calls,
                    "bytes": row.bytes,
                })
            })
            .collect();
        let used: serde_json::Map<String, Value> =
            self.resources.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
        let volumes: Vec<Value> = self
            .volumes
            .iter()
            .map(|medium| {
                json!({
                    "volume": medium.volume.to_string_lossy(),
                    "class": medium.class.to_string(),
                    "policy": medium.policy.to_string(),
                })
            })
            .collect();
        json!({
            "volumes": volumes,
            "refused_calls": total(true),
            "detour_calls": total(false),
            "calls": rows,
            "used": used,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Report;

    const LINES: &[u8] = b"2 reflink ioctl EOPNOTSUPP\n1 copied execve fell-back\n\
                           3 reflink ioctl EOPNOTSUPP\n9 inotify inotify_add_watch EOPNOTSUPP\n";

    #[test]
    fn the_lines_of_all_processes_add_up() {
        let report = Report::from_lines(LINES);
        let text = report.text(usize::MAX);
        assert!(
            text.lines().any(|line| line.contains("reflink") && line.ends_with(" 5")),
            "{text}"
        );
        assert!(text.contains("served by a detour"), "{text}");
        let json = report.json(usize::MAX);
        assert_eq!((&json["refused_calls"], &json["detour_calls"]), (&14.into(), &1.into()));
    }

    #[test]
    fn the_most_frequent_come_first_and_the_rest_is_counted() {
        let report = Report::from_lines(LINES);
        let text = report.text(1);
        assert!(text.contains("inotify") && !text.contains("reflink"), "{text}");
        assert!(text.contains("and 2 more kinds, 6 calls"), "{text}");
        assert_eq!(report.json(1)["calls"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn times_of_all_processes_are_told_by_quantiles() {
        // Buckets 20 and 30 end at 32,768 and 196,608 ns.
        let lines = b"60 ddmap:fault-ns:remote:20 (touch) resource\n\
                      20 ddmap:fault-ns:remote:20 (touch) resource\n\
                      20 ddmap:fault-ns:remote:30 (touch) resource\n\
                      100 ddmap:faults:remote (touch) resource\n\
                      150000 ddmap:fault-ns:remote-most (touch) resource\n\
                      90 ddmap:fault-ns:remote-most (touch) resource\n";
        let json = Report::from_lines(lines).json(usize::MAX);
        let used = |name: &str| json["used"][format!("ddmap:{name}")].as_u64();
        assert_eq!(used("faults:remote"), Some(100));
        assert_eq!(used("fault-ns:remote-p50"), Some(32_768));
        assert_eq!(used("fault-ns:remote-p99"), Some(150_000), "never above the longest one");
        assert_eq!(used("fault-ns:remote-most"), Some(150_000));
        assert_eq!(used("fault-ns:remote:20"), None);
    }

    #[test]
    fn bytes_add_up_where_they_are_counted() {
        let lines = b"2 attach:short read fell-back:100\n1 attach:short read fell-back:50\n\
                      1 copied execve fell-back\n";
        let report = Report::from_lines(lines);
        let row = |line: &str| line.contains("attach:short") && line.ends_with("150 3");
        let text = report.text(usize::MAX);
        assert!(
            text.lines().any(|line| row(&line.split_whitespace().collect::<Vec<_>>().join(" ")))
        );
        assert_eq!(report.json(1)["calls"][0]["bytes"], 150);
    }

    /// Of several volumes each has rows of its own; a path may have blanks.
    #[test]
    fn several_volumes_are_told_apart() {
        let lines = b"1 inotify inotify_add_watch EOPNOTSUPP /a\n\
                      2 inotify inotify_add_watch EOPNOTSUPP /b c\n\
                      4 inotify inotify_add_watch EOPNOTSUPP /a\n\
                      1 openat2-resolve syscall ENOSYS\n";
        let report = Report::from_lines(lines);
        let text = report.text(usize::MAX);
        for (at, calls) in [(" /a ", " 5"), (" /b c ", " 2")] {
            let row = |line: &str| line.contains(at) && line.ends_with(calls);
            assert!(text.lines().any(row), "{text}");
        }
        let json = report.json(usize::MAX);
        let told = |number: usize| {
            (json["calls"][number]["at"].clone(), json["calls"][number]["calls"].clone())
        };
        assert_eq!(told(0), ("/a".into(), 5.into()));
        assert_eq!(told(1), ("/b c".into(), 2.into()));
        assert_eq!(told(2), (serde_json::Value::Null, 1.into()));
    }

    /// The file that made a call stands before the volume's path; both may have blanks.
    #[test]
    fn who_made_a_call_is_told() {
        let lines = b"1 ring io_uring_setup ENOSYS by=/a\\040b\\134c /v w\n\
                      2 ring io_uring_setup ENOSYS by=[anonymous]\n\
                      4 ring io_uring_setup ENOSYS\n";
        let report = Report::from_lines(lines);
        let json = report.json(usize::MAX);
        let told = |at: usize| {
            let row = &json["calls"][at];
            (row["by"].as_str(), row["at"].as_str(), row["calls"].as_u64())
        };
        assert_eq!(told(0), (None, None, Some(4)));
        assert_eq!(told(1), (Some("[anonymous]"), None, Some(2)));
        assert_eq!(told(2), (Some("/a b\\c"), Some("/v w"), Some(1)));
        let text = report.text(usize::MAX);
        assert!(text.contains("made by") && text.contains("/a b\\c"), "{text}");
    }

    #[test]
    fn nothing_to_tell_is_said() {
        assert!(Report::from_lines(b"").text(usize::MAX).contains("every call"));
    }
}
