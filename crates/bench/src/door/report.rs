//! The tables of `bench door`.

use std::fmt::Write;

use console::output;
use serde_json::{Value, json};
use solera_bench::StartWay;

use super::rows::{Row, Target};
use super::start::Start;

/// The median of many, and between which two values the middle half of them lies apart.
fn median_and_range(all: &[f64]) -> (f64, f64) {
    let mut sorted = all.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |part: usize| sorted[(sorted.len() - 1) * part / 4];
    (at(2), at(3) - at(1))
}

/// What became of a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reached {
    Met,
    Missed,
    /// Chance may be more than what lies between.
    Unclear,
    /// There is none.
    Shown,
}

impl Reached {
    /// Whether a median is at most so much. It is good to how far the middle half of all lies
    /// apart, over the root of how many there are; twice that has to lie between.
    fn of(all: &[f64], most: f64) -> Self {
        let (median, range) = median_and_range(all);
        if (median - most).abs() < 2.0 * range / (all.len() as f64).sqrt() {
            return Self::Unclear;
        }
        if median <= most { Self::Met } else { Self::Missed }
    }

    /// Of both.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Shown, one) | (one, Self::Shown) => one,
            (Self::Missed, _) | (_, Self::Missed) => Self::Missed,
            (Self::Unclear, _) | (_, Self::Unclear) => Self::Unclear,
            (Self::Met, Self::Met) => Self::Met,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Unclear => "unclear",
            Self::Shown => "-",
        }
    }
}

/// A row of calls, with what was measured: nanoseconds.
pub struct Compared {
    row: Row,
    own: Vec<f64>,
    peer: Vec<f64>,
    control: Vec<f64>,
}

impl Compared {
    pub fn new(row: Row) -> Self {
        Self { row, own: Vec::new(), peer: Vec::new(), control: Vec::new() }
    }

    /// What a round took: the row's own work, the peer's, the control's.
    pub fn keep(&mut self, times: &[f64]) {
        self.own.push(times[0]);
        self.peer.push(times[1]);
        self.control.extend(times.get(2));
    }

    /// How one compares with the peer, round by round: nanoseconds more, or times.
    fn beside(&self, one: &[f64]) -> Vec<f64> {
        let both = one.iter().zip(&self.peer);
        match self.row.target {
            Target::Times(_) => both.map(|(one, peer)| one / peer).collect(),
            _ => both.map(|(one, peer)| one - peer).collect(),
        }
    }

    fn most(&self) -> Option<f64> {
        match self.row.target {
            Target::More(most) | Target::Times(most) => Some(most),
            Target::Shown => None,
        }
    }

    fn reached(&self) -> Reached {
        self.most().map_or(Reached::Shown, |most| Reached::of(&self.beside(&self.own), most))
    }

    fn shown(&self, one: &[f64]) -> String {
        let (value, range) = median_and_range(&self.beside(one));
        match self.row.target {
            Target::Times(_) => format!("{value:.2} ({range:.2})"),
            _ => format!("{value:+.1} ({range:.1})"),
        }
    }

    fn line(&self) -> Vec<String> {
        let median = |all: &[f64]| format!("{:.1}", median_and_range(all).0);
        let control =
            if self.control.is_empty() { "-".to_owned() } else { self.shown(&self.control) };
        let target = match self.row.target {
            Target::More(most) => format!("{most:+.0} ns"),
            Target::Times(most) => format!("{most} x"),
            Target::Shown => "-".to_owned(),
        };
        vec![
            format!("{}, {}", self.row.what.name(), self.row.how),
            median(&self.own),
            median(&self.peer),
            self.shown(&self.own),
            control,
            target,
            self.reached().name().to_owned(),
        ]
    }

    fn to_json(&self) -> Value {
        let (own, peer) = (median_and_range(&self.own), median_and_range(&self.peer));
        let (beside, range) = median_and_range(&self.beside(&self.own));
        let control = (!self.control.is_empty()).then(|| self.beside(&self.control));
        json!({
            "table": self.row.table, "row": self.row.what.name(), "how": self.row.how,
            "ns": own.0, "peer_ns": peer.0,
            "is_ratio": matches!(self.row.target, Target::Times(_)),
            "beside": beside, "middle_half": range,
            "control": control.map(|control| median_and_range(&control).0),
            "at_most": self.most(), "reached": self.reached().name(),
        })
    }
}

/// A row of starts, over programs that are not armed.
pub struct Started {
    pub name: &'static str,
    pub way: StartWay,
    /// What the program says if it was armed so.
    pub told: &'static str,
    most_us: Option<f64>,
    most_faults: Option<f64>,
    us: Vec<f64>,
    faults: Vec<f64>,
    unarmed_us: Vec<f64>,
    /// Of the two programs of a round that are not armed: the second over the first.
    control_us: Vec<f64>,
}

impl Started {
    /// All of them.
    pub fn all() -> Vec<Self> {
        let row = |name, way, told, most_us, most_faults| Self {
            name,
            way,
            told,
            most_us,
            most_faults,
            us: Vec::new(),
            faults: Vec::new(),
            unarmed_us: Vec::new(),
            control_us: Vec::new(),
        };
        vec![
            row("text mapped", StartWay::File, "mapped", Some(15.0), Some(8.0)),
            row("text read and copied (noexec)", StartWay::File, "copied", Some(300.0), None),
            row("text patched in memory", StartWay::Memory, "in memory", Some(500.0), None),
            row(
                "text mapped, dynamic linker in memory",
                StartWay::Linker,
                "mapped",
                Some(25.0),
                Some(18.0),
            ),
        ]
    }

    /// What a round took, between two programs that are not armed.
    pub fn keep(&mut self, start: Start, unarmed: [Start; 2]) {
        let [first, second] = unarmed;
        let beside = |of: fn(&Start) -> f64| of(&start) - f64::midpoint(of(&first), of(&second));
        self.us.push(beside(|start| start.microseconds));
        self.faults.push(beside(|start| start.faults));
        self.unarmed_us.push(first.microseconds);
        self.control_us.push(second.microseconds - first.microseconds);
    }

    pub fn is_measured(&self) -> bool {
        !self.us.is_empty()
    }

    fn reached(&self) -> Reached {
        let of = |all: &[f64], most: Option<f64>| {
            most.map_or(Reached::Shown, |most| Reached::of(all, most))
        };
        of(&self.us, self.most_us).and(of(&self.faults, self.most_faults))
    }

    fn line(&self) -> Vec<String> {
        let (us, range) = median_and_range(&self.us);
        let (control, of_control) = median_and_range(&self.control_us);
        let most = |most: Option<f64>| most.map_or("-".to_owned(), |most| format!("{most:+.0}"));
        vec![
            self.name.to_owned(),
            format!("{us:+.0} ({range:.0})"),
            format!("{:+.0}", median_and_range(&self.faults).0),
            format!("{control:+.0} ({of_control:.0})"),
            format!("{:.0}", median_and_range(&self.unarmed_us).0),
            most(self.most_us),
            most(self.most_faults),
            self.reached().name().to_owned(),
        ]
    }

    fn to_json(&self) -> Value {
        let (us, range) = median_and_range(&self.us);
        json!({
            "row": self.name, "more_us": us, "middle_half_us": range,
            "more_faults": median_and_range(&self.faults).0,
            "unarmed_us": median_and_range(&self.unarmed_us).0,
            "control_us": median_and_range(&self.control_us).0,
            "at_most_us": self.most_us, "at_most_faults": self.most_faults,
            "reached": self.reached().name(),
        })
    }
}

/// All of it.
pub struct Report {
    pub mode: String,
    pub repeat: u32,
    pub calls: Vec<Compared>,
    pub starts: Vec<Started>,
    pub skipped: Vec<String>,
}

impl Report {
    pub fn to_json(&self) -> Value {
        json!({
            "mode": self.mode, "repeat": self.repeat,
            "calls": self.calls.iter().map(Compared::to_json).collect::<Vec<_>>(),
            "starts": self.starts.iter().map(Started::to_json).collect::<Vec<_>>(),
            "skipped": self.skipped,
        })
    }

    /// For people. (A string takes all that is written to it.)
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut rest = &self.calls[..];
        while let Some(first) = rest.first() {
            let table = first.row.table;
            let end = rest.iter().position(|row| row.row.table != table).unwrap_or(rest.len());
            let lines: Vec<Vec<String>> = rest[..end].iter().map(Compared::line).collect();
            let head = ["ns a call", "own", "peer", "beside it", "control", "at most", "reached"];
            let _ = writeln!(text, "{table}\n{}", output::table(&head, &lines));
            rest = &rest[end..];
        }
        let head = [
            "a start",
            "more us",
            "more faults",
            "control us",
            "of us",
            "at most us",
            "faults",
            "reached",
        ];
        let lines: Vec<Vec<String>> = self.starts.iter().map(Started::line).collect();
        let _ = writeln!(text, "a program's start, over one that is not armed");
        let _ = writeln!(text, "{}", output::table(&head, &lines));
        for why in &self.skipped {
            let _ = writeln!(text, "skipped: {why}");
        }
        let _ = writeln!(
            text,
            "mode {}; median of {} rounds, how far the middle half of them lies apart in brackets",
            self.mode, self.repeat
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Reached;

    #[test]
    fn what_chance_may_be_is_neither_met_nor_missed() {
        let close = [4.0, 4.9, 5.0, 5.1, 6.0];
        assert_eq!(Reached::of(&close, 6.0), Reached::Met);
        assert_eq!(Reached::of(&close, 4.0), Reached::Missed);
        assert_eq!(Reached::of(&close, 5.1), Reached::Unclear);
        assert_eq!(Reached::of(&[8.0; 9], 8.0), Reached::Met);
        assert_eq!(Reached::Met.and(Reached::Unclear), Reached::Unclear);
        assert_eq!(Reached::Shown.and(Reached::Missed), Reached::Missed);
    }
}
