//! Rows: what was measured, beside peers, and whether it is what was aimed at.

use serde_json::{Value, json};

use crate::harness::statistics::median_and_spread;

/// How a row is to compare with a peer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Target {
    /// At most so many times the peer's.
    AtMost(f64),
    /// At least so many times the peer's.
    AtLeast(f64),
    /// At most so much more than the peer's, in the row's unit.
    More(f64),
    /// It is shown, without a target.
    Shown,
}

struct Peer {
    name: &'static str,
    target: Target,
    values: Vec<f64>,
}

struct Row {
    name: &'static str,
    unit: &'static str,
    values: Vec<f64>,
    peers: Vec<Peer>,
}

/// All rows, in the order in which they came.
#[derive(Default)]
pub struct Rows {
    all: Vec<Row>,
    skipped: Vec<String>,
    /// Whether what comes counts.
    pub counts: bool,
}

impl Rows {
    /// A value of a row.
    pub fn add(&mut self, name: &'static str, unit: &'static str, value: f64) {
        if !self.counts {
            return;
        }
        match self.all.iter_mut().find(|row| row.name == name) {
            Some(row) => row.values.push(value),
            None => self.all.push(Row { name, unit, values: vec![value], peers: Vec::new() }),
        }
    }

    /// A value of a row's peer; the row was measured before.
    pub fn beside(&mut self, row: &str, name: &'static str, target: Target, value: f64) {
        let Some(row) = self.all.iter_mut().find(|one| self.counts && one.name == row) else {
            return;
        };
        match row.peers.iter_mut().find(|peer| peer.name == name) {
            Some(peer) => peer.values.push(value),
            None => row.peers.push(Peer { name, target, values: vec![value] }),
        }
    }

    /// Says once why something is missing.
    pub fn skip(&mut self, why: String) {
        if !self.skipped.contains(&why) {
            self.skipped.push(why);
        }
    }

    pub fn into_json(self) -> (Value, Value) {
        let rows: Vec<Value> = self.all.iter().map(Row::to_json).collect();
        (rows.into(), self.skipped.into())
    }
}

impl Row {
    fn to_json(&self) -> Value {
        let (value, spread) = middle(&self.values);
        let peers: Vec<Value> = self.peers.iter().map(|peer| peer.to_json(value)).collect();
        json!({ "row": self.name, "unit": self.unit, "value": value, "spread_percent": spread,
                "peers": peers })
    }
}

impl Peer {
    fn to_json(&self, own: f64) -> Value {
        let (value, spread) = middle(&self.values);
        let (ratio, more) = (own / value, own - value);
        let mut told = json!({
            "peer": self.name, "value": value, "spread_percent": spread, "ratio": ratio,
            "more": more,
        });
        match self.target {
            Target::AtMost(most) => told["at_most"] = most.into(),
            Target::AtLeast(least) => told["at_least"] = least.into(),
            Target::More(most) => told["at_most_more"] = most.into(),
            Target::Shown => return told,
        }
        told["met"] = self.target.is_met(ratio, more).into();
        told
    }
}

impl Target {
    /// As the numbers are printed.
    fn is_met(self, ratio: f64, more: f64) -> bool {
        let round = |value: f64| (value * 100.0).round();
        match self {
            Self::AtMost(most) => round(ratio) <= round(most),
            Self::AtLeast(least) => round(ratio) >= round(least),
            Self::More(most) => round(more) <= round(most),
            Self::Shown => true,
        }
    }
}

/// The median, and the spread in percent of it; of zeros there is none.
fn middle(values: &[f64]) -> (f64, f64) {
    let (median, spread) = median_and_spread(values);
    (median, if spread.is_finite() { spread } else { 0.0 })
}

/// The value below which so many of a thousand are.
pub fn quantile(values: &mut [f64], of_thousand: usize) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[(values.len() * of_thousand / 1000).min(values.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::{Rows, Target, quantile};

    #[test]
    fn a_target_that_is_missed_is_said_to_be() {
        let mut rows = Rows::default();
        rows.add("warm", "us", 1.0);
        rows.counts = true;
        rows.add("touch", "us", 30.0);
        rows.beside("touch", "round trip", Target::More(10.0), 20.0);
        rows.beside("touch", "thread", Target::AtMost(0.8), 36.0);
        rows.beside("touch", "memory", Target::Shown, 1.0);
        let (rows, _) = rows.into_json();
        assert_eq!(rows.as_array().map(Vec::len), Some(1), "the first round does not count");
        let met = |peer: usize| rows[0]["peers"][peer]["met"].as_bool();
        assert_eq!([met(0), met(1), met(2)], [Some(true), Some(false), None]);
    }

    #[test]
    fn quantiles_are_values() {
        let mut values = [4.0, 1.0, 3.0, 2.0];
        let found = [500, 990].map(|part| quantile(&mut values, part).to_string());
        assert_eq!(found, ["3", "4"]);
    }
}
