//! What each row was aimed at, so that the table says which rows reach it.

use pmem::Policy;
use std::fmt;

use crate::worker::row::Row;

/// What a row's time is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Baseline {
    /// The memory's own limit.
    Limit,
    /// A tmpfs with 4 KiB pages.
    Tmpfs,
    /// The volume's own row `append 4K` of the same run.
    Append,
    /// One nanosecond.
    Nanosecond,
}

/// At most so many times what it is compared with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Target {
    pub at_most: f64,
    pub of: Baseline,
}

impl Target {
    /// What `row` was aimed at in this mode, with stores of this policy.
    pub fn of(row: Row, mode: &str, policy: Policy) -> Option<Self> {
        if policy == Policy::Plain
            && let Some(at_most) = Self::plain(row, mode)
        {
            return Some(Self { at_most, of: Baseline::Tmpfs });
        }
        let (at_most, of) = match (row, mode) {
            (Row::ReadSequential | Row::ReadRandom, _) => (1.25, Baseline::Limit),
            (Row::Read64K | Row::Read2M, _) => (1.05, Baseline::Limit),
            (Row::OverwriteSequential | Row::OverwriteRandom, "strict") => (2.3, Baseline::Limit),
            (Row::OverwriteScattered, "strict") => (1.3, Baseline::Append),
            (Row::OverwriteSequential | Row::OverwriteRandom, "sync") => (1.15, Baseline::Limit),
            (Row::Append4K | Row::Append128 | Row::Append64, "strict")
            | (Row::AppendSync, "posix") => (1.2, Baseline::Limit),
            (Row::OpenClose | Row::Rename | Row::List, _) => (0.5, Baseline::Tmpfs),
            (Row::CreateCloseUnlink, _) => (0.4, Baseline::Tmpfs),
            (Row::Stat | Row::StatDeep, _) => (0.3, Baseline::Tmpfs),
            (Row::RecordLock, _) => (100.0, Baseline::Nanosecond),
            _ => return None,
        };
        Some(Self { at_most, of })
    }

    /// Of tmpfs, where nothing has to be durable.
    fn plain(row: Row, mode: &str) -> Option<f64> {
        Some(match (row, mode) {
            (Row::OverwriteSequential | Row::OverwriteRandom | Row::OverwriteScattered, _) => 0.5,
            (Row::Append4K | Row::AppendSync, _) => 0.37,
            (Row::Append128 | Row::Append64, _) => 0.7,
            (Row::CreateCloseUnlink, _) => 0.36,
            (Row::Rename, _) => 0.48,
            _ => return None,
        })
    }

    /// Whether a time of `reached` times that is no more, as both are printed.
    pub fn is_met(&self, reached: f64) -> bool {
        let round = |value: f64| (value * 100.0).round();
        round(reached) <= round(self.at_most)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_most = self.at_most;
        match self.of {
            Baseline::Limit => write!(out, "{at_most} x limit"),
            Baseline::Tmpfs => write!(out, "{at_most} x tmpfs 4K"),
            Baseline::Append => write!(out, "{at_most} x append 4K"),
            Baseline::Nanosecond => write!(out, "{at_most} ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_up_to_what_is_printed() {
        let target = Target::of(Row::ReadRandom, "strict", Policy::Plain).unwrap();
        assert_eq!(target.to_string(), "1.25 x limit");
        assert!(target.is_met(1.254) && !target.is_met(1.256));
        assert_eq!(Target::of(Row::ForeignRead, "strict", Policy::Plain), None);
        assert_eq!(Target::of(Row::OverwriteRandom, "posix", Policy::Flushed), None);
        let rename = |policy| Target::of(Row::Rename, "strict", policy).unwrap().at_most;
        assert!(rename(Policy::Plain) < rename(Policy::Flushed));
    }
}
