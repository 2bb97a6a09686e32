//! The tables of `bench sqlite`, as text and as JSON.

use console::output;
use pmem::Class;
use serde_json::{Value, json};
use solera_bench::SqliteBenchArgs;

use super::peer::{Median, Peer};
use super::{COMPARED, Variant, Workload};
use crate::harness::bound::Bound;

/// All that was measured.
pub struct Results<'a> {
    pub args: &'a SqliteBenchArgs,
    /// Of SQLite.
    pub version: String,
    pub class: Class,
    pub why: String,
    pub peers: Vec<Peer>,
}

/// A comparison, as far as both were measured.
struct Comparison {
    clock: f64,
    cpu: f64,
}

impl Bound {
    /// What is compared: a ratio, or a difference.
    fn of(self, own: f64, other: f64) -> f64 {
        match self {
            Self::More(_) => own - other,
            Self::Times(_) | Self::Shown => own / other,
        }
    }

    /// Nothing, without a target.
    fn target(self) -> Option<f64> {
        match self {
            Self::More(most) | Self::Times(most) => Some(most),
            Self::Shown => None,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::More(_) => "us more",
            Self::Times(_) | Self::Shown => "times",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::More(_) => format!("{value:+.0} us"),
            Self::Times(_) | Self::Shown => format!("{value:.2}"),
        }
    }
}

/// Microseconds, with three digits at least.
fn show(time: f64) -> String {
    match time {
        ..10.0 => format!("{time:.2}"),
        ..100.0 => format!("{time:.1}"),
        _ => format!("{time:.0}"),
    }
}

impl Results<'_> {
    fn median(&self, workload: Workload, variant: Variant) -> Option<Median> {
        self.peers.iter().find(|peer| peer.variant == variant)?.median(workload)
    }

    fn reached(
        &self,
        workload: Workload,
        own: Variant,
        other: Variant,
        most: Bound,
    ) -> Option<Comparison> {
        let (own, other) = (self.median(workload, own)?, self.median(workload, other)?);
        Some(Comparison {
            clock: most.of(own.clock, other.clock),
            cpu: most.of(own.cpu, other.cpu),
        })
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let mut rows = Vec::new();
        for workload in Workload::ALL {
            for variant in Variant::ALL {
                if let Some(median) = self.median(workload, variant) {
                    rows.push(json!({
                        "row": workload.name(), "peer": variant.name(), "us": median.clock,
                        "spread_percent": median.spread, "cpu_us": median.cpu,
                    }));
                }
            }
        }
        let compared = COMPARED.map(|(workload, own, other, most)| {
            let reached = self.reached(workload, own, other, most);
            let clock = reached.as_ref().map(|reached| reached.clock);
            let met = most.target().zip(clock).map(|(most, reached)| reached <= most);
            json!({
                "row": workload.name(), "peer": own.name(), "over": other.name(),
                "unit": most.unit(), "at_most": most.target(), "met": met,
                "reached": clock, "reached_cpu": reached.map(|reached| reached.cpu),
            })
        });
        json!({
            "sqlite": self.version, "class": self.class.to_string(), "repeat": self.args.repeat,
            "inserts": self.args.inserts, "selected": self.args.rows,
            "rows": rows, "targets": compared,
        })
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let measured: Vec<Variant> = self.peers.iter().map(|peer| peer.variant).collect();
        let mut head = vec!["us (spread)"];
        head.extend(measured.iter().map(|variant| variant.name()));
        let rows = Workload::ALL.map(|workload| {
            let mut row = vec![workload.title(self.args)];
            row.extend(measured.iter().map(|variant| match self.median(workload, *variant) {
                Some(median) => format!("{} ({:.0} %)", show(median.clock), median.spread),
                None => String::new(),
            }));
            row
        });
        let compared = COMPARED.map(|(workload, own, other, most)| {
            let reached = self.reached(workload, own, other, most);
            let target = most.target().map_or_else(String::new, |target| most.show(target));
            let found = match (&reached, most.target()) {
                (None, _) => "not measured".to_owned(),
                (Some(reached), Some(target)) => {
                    let met = if reached.clock <= target { "met" } else { "missed" };
                    format!("{}, {met}", most.show(reached.clock))
                }
                (Some(reached), None) => most.show(reached.clock),
            };
            let cpu = reached.map_or_else(String::new, |reached| most.show(reached.cpu));
            let names = [own.name(), other.name()].map(str::to_owned);
            [vec![workload.title(self.args)], names.to_vec(), vec![target, found, cpu]].concat()
        });
        format!(
            "{}\n{}\nSQLite {}, class {} ({}), median of {} rounds, {} transactions each; x: time \
             over the other's, CPU: the same of the processor's time\n",
            output::table(&head, &rows),
            output::table(&["x", "of", "over", "at most", "reached", "CPU"], &compared),
            self.version,
            self.class,
            self.why,
            self.args.repeat,
            self.args.inserts,
        )
    }
}
