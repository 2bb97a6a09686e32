//! Two looks at a volume, and the processes with what they did in between.

use std::cmp::{Ordering, Reverse};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use console::runs::CHUNK;
use console::size;
use console::size::percent;
use volume::{Activity, ChunkUse, Counts, Life, ProcessUse, VolumeError};

use crate::commands::top::Column;
use crate::commands::top::process::{self, File};

/// A look at a volume.
pub struct Sample {
    at: Instant,
    pub activity: Activity,
    file: Option<File>,
}

/// What is done in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    pub calls: f64,
    /// Bytes.
    pub read: f64,
    pub written: f64,
    pub lock_waits: f64,
}

impl Rates {
    fn new(done: Counts, seconds: f64) -> Self {
        let rate = |number: u64| number as f64 / seconds.max(1e-9);
        Self {
            calls: rate(done.calls()),
            read: rate(done.bytes_read),
            written: rate(done.bytes_written),
            lock_waits: rate(done.lock_waits),
        }
    }
}

/// A process.
#[derive(Clone, Debug)]
pub struct Row {
    pub is: ProcessUse,
    /// Empty where it is not known.
    pub program: String,
    pub rates: Option<Rates>,
    pub mapped: Option<u64>,
}

impl Row {
    fn locks(&self) -> u64 {
        self.is.locks_held + self.is.file_locks
    }

    fn awaited(&self) -> u64 {
        self.is.locks_awaited + self.is.file_locks_awaited
    }

    fn rate(&self, of: fn(Rates) -> f64) -> f64 {
        self.rates.map_or(0.0, of)
    }
}

impl Sample {
    pub fn take(volume: &Path) -> Result<Self, VolumeError> {
        let activity = volume::activity(volume)?;
        let file = File::of(volume, activity.info.size_bytes);
        Ok(Self { at: Instant::now(), activity, file })
    }

    pub fn seconds_since(&self, before: &Self) -> f64 {
        self.at.duration_since(before.at).as_secs_f64()
    }

    /// What all processes did since the look before. `None`: nothing is counted.
    pub fn rates(&self, before: &Self) -> Option<Rates> {
        let done = self.activity.counts?.since(before.activity.counts?);
        Some(Rates::new(done, self.seconds_since(before)))
    }

    /// The processes, with what each did since the look before.
    pub fn rows(&self, before: &Self) -> Vec<Row> {
        let row = |is: &ProcessUse| {
            let same = |one: &&ProcessUse| {
                (one.attached.slot, one.attached.since) == (is.attached.slot, is.attached.since)
            };
            let first = before.activity.processes.iter().find(same);
            // One that has come since did all of it since.
            let first = first.map_or(Some(Counts::default()), |one| one.counts);
            let done = is.counts.zip(first).map(|(now, first)| now.since(first));
            let pid = is.attached.pid;
            Row {
                is: *is,
                program: process::program(pid).unwrap_or_default(),
                rates: done.map(|done| Rates::new(done, self.seconds_since(before))),
                mapped: self.file.and_then(|file| file.mapped_by(pid)),
            }
        };
        self.activity.processes.iter().map(row).collect()
    }
}

/// What its free space and its chunks come to.
pub struct Fragmentation {
    /// Of the free space, in whole chunks.
    pub aligned_percent: f64,
    pub free: usize,
    pub full: usize,
    pub partly: usize,
    pub metadata: usize,
}

impl Fragmentation {
    pub fn of(activity: &Activity) -> Self {
        let count =
            |is: fn(&ChunkUse) -> bool| activity.chunks.iter().filter(|one| is(one)).count();
        let info = &activity.info;
        Self {
            aligned_percent: percent(info.free_aligned_bytes, info.free_bytes),
            free: count(|one| matches!(one, ChunkUse::Free)),
            full: count(|one| matches!(one, ChunkUse::Data(_)) && one.bytes() == CHUNK),
            partly: count(|one| matches!(one, ChunkUse::Data(_)) && one.bytes() < CHUNK),
            metadata: count(|one| matches!(one, ChunkUse::Metadata(_))),
        }
    }
}

/// Names and pids ascend, numbers descend; the same ones by pid.
pub fn sorted(mut rows: Vec<Row>, by: Column) -> Vec<Row> {
    let descending = |a: f64, b: f64| b.partial_cmp(&a).unwrap_or(Ordering::Equal);
    rows.sort_by(|a, b| {
        let order = match by {
            Column::Pid => Ordering::Equal,
            Column::Program => a.program.cmp(&b.program),
            Column::Calls => descending(a.rate(|of| of.calls), b.rate(|of| of.calls)),
            Column::Read => descending(a.rate(|of| of.read), b.rate(|of| of.read)),
            Column::Written => descending(a.rate(|of| of.written), b.rate(|of| of.written)),
            Column::Locks => Reverse(a.locks()).cmp(&Reverse(b.locks())),
            Column::Awaited => Reverse(a.awaited()).cmp(&Reverse(b.awaited())),
            Column::Files => Reverse(a.is.open_files).cmp(&Reverse(b.is.open_files)),
            Column::Mapped => Reverse(a.mapped).cmp(&Reverse(b.mapped)),
        };
        order.then(a.is.attached.pid.cmp(&b.is.attached.pid))
    });
    rows
}

/// Above [`cells`].
pub const HEAD: [&str; 11] = [
    "pid",
    "program",
    "mode",
    "calls/s",
    "read/s",
    "written/s",
    "locks",
    "awaited",
    "files",
    "mapped",
    "state",
];

/// A process as the table shows it.
pub fn cells(row: &Row) -> [String; HEAD.len()] {
    let rate = |of: fn(Rates) -> f64, show: fn(f64) -> String| {
        row.rates.map_or_else(|| "-".to_owned(), |rates| show(of(rates)))
    };
    let known = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    [
        row.is.attached.pid.to_string(),
        known(&row.program),
        format!("{}{}", row.is.mode, if row.is.read_only { ", ro" } else { "" }),
        rate(|of| of.calls, number),
        rate(|of| of.read, bytes),
        rate(|of| of.written, bytes),
        row.locks().to_string(),
        row.awaited().to_string(),
        row.is.open_files.to_string(),
        row.mapped.map_or_else(|| "-".to_owned(), size::show),
        match row.is.life {
            Life::Lives => "lives".to_owned(),
            Life::Dead => "dead".to_owned(),
            Life::Recovered(Some(by)) => format!("recovered by {by}"),
            Life::Recovered(None) => "recovering".to_owned(),
        },
    ]
}

/// Bytes of a second, for people.
pub fn bytes(value: f64) -> String {
    size::show(value as u64)
}

/// A number of calls for people: as few digits as tell it.
pub fn number(value: f64) -> String {
    match value {
        value if value < 10.0 && value > 0.0 => format!("{value:.1}"),
        value if value < 100_000.0 => format!("{value:.0}"),
        value if value < 1e8 => format!("{:.0}k", value / 1e3),
        value => format!("{:.0}M", value / 1e6),
    }
}

/// How long ago a time is (ns since 1970), in one unit.
pub fn age(time: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    match now.saturating_sub(time / 1_000_000_000) {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds if seconds < 7200 => format!("{} min", seconds / 60),
        seconds if seconds < 172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use volume::{Attached, Mode};

    /// A process that did so much in a second.
    pub fn row(pid: u32, program: &str, calls: f64, mapped: Option<u64>) -> Row {
        let is = ProcessUse {
            attached: Attached { pid, slot: pid, since: 0 },
            life: Life::Lives,
            mode: Mode::Strict,
            read_only: pid == 3,
            counts: None,
            calls: 0,
            locks_held: 1,
            locks_awaited: 0,
            open_files: 9 - u64::from(pid),
            file_locks: 2,
            file_locks_awaited: u64::from(pid == 2),
        };
        let rates = Rates { calls, read: calls * 4096.0, written: 100.0 / calls, lock_waits: 0.0 };
        Row { is, program: program.to_owned(), rates: Some(rates), mapped }
    }

    #[test]
    fn processes_are_sorted_by_any_column() {
        let rows = [row(2, "b", 5.0, None), row(1, "c", 1.0, Some(7)), row(3, "a", 9.0, Some(9))];
        let order = |by| -> Vec<u32> {
            sorted(rows.to_vec(), by).iter().map(|row| row.is.attached.pid).collect()
        };
        assert_eq!(order(Column::Pid), [1, 2, 3]);
        assert_eq!(order(Column::Program), [3, 2, 1]);
        assert_eq!(order(Column::Calls), [3, 2, 1]);
        assert_eq!(order(Column::Read), [3, 2, 1]);
        assert_eq!(order(Column::Written), [1, 2, 3]);
        assert_eq!(order(Column::Locks), [1, 2, 3]);
        assert_eq!(order(Column::Awaited), [2, 1, 3]);
        assert_eq!(order(Column::Files), [1, 2, 3]);
        assert_eq!(order(Column::Mapped), [3, 1, 2]);
    }

    #[test]
    fn a_row_says_what_is_not_known() {
        let mut one = row(3, "", 2.5, None);
        let text = cells(&one).join("|");
        assert_eq!(text, "3|-|strict, ro|2.5|10.00 KiB|40 B|3|0|6|-|lives");
        one.rates = None;
        one.is.life = Life::Recovered(Some(7));
        let text = cells(&one).join("|");
        assert_eq!(text, "3|-|strict, ro|-|-|-|3|0|6|-|recovered by 7");
    }

    #[test]
    fn numbers_stay_short() {
        let shown = [0.0, 0.44, 9.9, 10.2, 99_999.0, 123_456.0, 2.5e8].map(number);
        assert_eq!(shown, ["0", "0.4", "9.9", "10", "99999", "123k", "250M"]);
    }
}
