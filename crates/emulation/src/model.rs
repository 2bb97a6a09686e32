//! Models of memory that is slower than the memory at hand: a latency and a bandwidth, each for
//! reads and for writes.
//!
//! A model is named in text: one of [`Model::NAMES`], or `NS/GBs,NS/GBs`. GB are 10^9 bytes, so a
//! GB/s is a byte in a nanosecond.

use std::fmt;
use std::str::FromStr;

/// What memory takes to be read and to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    pub(super) read: Costs,
    pub(super) write: Costs,
}

/// What one direction takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Costs {
    /// Of a copy that begins where the last one of its thread ended.
    pub(super) latency_in_sequence_ns: u32,
    /// Of any other copy.
    pub(super) latency_random_ns: u32,
    /// What all threads and processes share; 0: there is no limit.
    pub(super) bandwidth_mb_per_s: u32,
}

const LATENCY_NS_MAX: u32 = 1_000_000;
const BANDWIDTH_MB_PER_S_MIN: u32 = 10;
const BANDWIDTH_MB_PER_S_MAX: u32 = 1_000_000;

const fn costs(in_sequence_ns: u32, random_ns: u32, mb_per_s: u32) -> Costs {
    Costs {
        latency_in_sequence_ns: in_sequence_ns,
        latency_random_ns: random_ns,
        bandwidth_mb_per_s: mb_per_s,
    }
}

/// The models that have a name.
const NAMED: [(&str, Model); 5] = [
    ("dram", Model { read: costs(0, 0, 0), write: costs(0, 0, 0) }),
    ("optane", Model { read: costs(169, 305, 6_600), write: costs(90, 90, 2_300) }),
    ("optane6", Model { read: costs(169, 305, 39_400), write: costs(90, 90, 13_900) }),
    ("cxl", Model { read: costs(250, 250, 20_000), write: costs(250, 250, 20_000) }),
    ("cxl-ssd", Model { read: costs(2_000, 2_000, 4_000), write: costs(2_000, 2_000, 2_000) }),
];

impl Model {
    /// Nothing is slowed.
    pub const DRAM: Model = NAMED[0].1;

    /// What can be asked for, for people.
    pub const NAMES: &str = "\
dram (nothing is slowed), optane (one DIMM: reads 169 ns in sequence, 305 ns elsewhere, 6.6 GB/s; \
writes 90 ns, 2.3 GB/s), optane6 (six DIMMs: 39.4 and 13.9 GB/s), cxl (250 ns, 20 GB/s), cxl-ssd \
(2000 ns, 4 and 2 GB/s), or NS/GBs,NS/GBs (reads, writes)";

    /// The name of a model with the same reads, and writes that are not slowed (1,000 GB/s); reads
    /// in sequence take what others take.
    #[must_use]
    pub fn with_fast_writes(&self) -> String {
        if self.read.bandwidth_mb_per_s == 0 {
            return Self::DRAM.to_string();
        }
        format!("{},0/{}", self.read, BANDWIDTH_MB_PER_S_MAX / 1000)
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bandwidth_gb_per_s = f64::from(self.bandwidth_mb_per_s) / 1000.0;
        write!(out, "{}/{bandwidth_gb_per_s}", self.latency_random_ns)
    }
}

impl fmt::Display for Model {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMED.iter().find(|(_, model)| model == self) {
            Some((name, _)) => out.write_str(name),
            None => write!(out, "{},{}", self.read, self.write),
        }
    }
}

impl FromStr for Costs {
    type Err = String;

    /// `NS/GBs`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (latency_ns, gb_per_s) =
            text.split_once('/').ok_or_else(|| format!("{text} is not NS/GBs"))?;
        let latency_ns: u32 =
            latency_ns.parse().ok().filter(|ns| *ns <= LATENCY_NS_MAX).ok_or_else(|| {
                format!("{latency_ns} is not a latency of 0 to {LATENCY_NS_MAX} ns")
            })?;
        let (least, most) = (BANDWIDTH_MB_PER_S_MIN, BANDWIDTH_MB_PER_S_MAX);
        let bandwidth: Option<f64> = gb_per_s.parse().ok();
        let mb_per_s = bandwidth
            .map(|gb_per_s| (gb_per_s * 1000.0).round())
            .filter(|mb_per_s| (f64::from(least)..=f64::from(most)).contains(mb_per_s))
            .ok_or_else(|| {
                let (least, most) = (f64::from(least) / 1000.0, most / 1000);
                format!("{gb_per_s} is not a bandwidth of {least} to {most} GB/s")
            })?;
        Ok(costs(latency_ns, latency_ns, mb_per_s as u32))
    }
}

impl FromStr for Model {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, model)) = NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(*model);
        }
        let refuse =
            |wrong| format!("{text} is no model of memory{wrong}; models: {}", Self::NAMES);
        let (read, write) = text.split_once(',').ok_or_else(|| refuse(String::new()))?;
        let parse = |costs: &str| costs.parse().map_err(|wrong| refuse(format!(" ({wrong})")));
        Ok(Self { read: parse(read)?, write: parse(write)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_and_written_and_told_of() {
        for (name, model) in NAMED {
            assert_eq!(name.parse(), Ok(model));
            assert_eq!(model.to_string(), name);
            assert!(Model::NAMES.contains(name));
        }
        assert_eq!("dram".parse(), Ok(Model::DRAM));
    }

    #[test]
    fn numbers_make_a_model() {
        let own: Model = "300/12.5,0/0.01".parse().unwrap();
        assert_eq!(own.read, costs(300, 300, 12_500));
        assert_eq!(own.write, costs(0, 0, 10));
        assert_eq!(own.to_string(), "300/12.5,0/0.01");
        assert_eq!("250/20,250/20".parse::<Model>().unwrap().to_string(), "cxl");
        let fast: Model = NAMED[4].1.with_fast_writes().parse().unwrap();
        assert_eq!((fast.read, fast.write), (NAMED[4].1.read, costs(0, 0, 1_000_000)));
        assert_eq!(Model::DRAM.with_fast_writes(), "dram");
    }

    #[test]
    fn anything_else_is_refused_with_what_is_wrong() {
        let wrong = |text: &str| text.parse::<Model>().unwrap_err();
        for (text, why) in [
            ("", " is no model of memory; models: dram ("),
            ("cxl2", "cxl2 is no model of memory; models: dram ("),
            ("1/2", "1/2 is no model of memory; models"),
            ("1,2/3", "(1 is not NS/GBs)"),
            ("-1/2,1/2", "(-1 is not a latency of 0 to 1000000 ns)"),
            ("1000001/2,1/2", "(1000001 is not a latency of 0 to 1000000 ns)"),
            ("1/2,1/0", "(0 is not a bandwidth of 0.01 to 1000 GB/s)"),
            ("1/NaN,1/1", "(NaN is not a bandwidth of 0.01 to 1000 GB/s)"),
            ("1/1,1/inf", "(inf is not a bandwidth of 0.01 to 1000 GB/s)"),
            ("1/1,1/1,1/1", "(1,1/1 is not a bandwidth"),
        ] {
            assert!(wrong(text).contains(why), "{text}: {}", wrong(text));
        }
    }
}
