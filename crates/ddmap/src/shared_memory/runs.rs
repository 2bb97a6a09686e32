//! Sets of pages, as runs of pages in a row.

use std::ops::Range;

/// Pages: runs in ascending order that do not meet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Runs(Vec<Range<u64>>);

impl Runs {
    /// All pages of these runs.
    pub fn of(runs: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut all: Vec<_> = runs.into_iter().filter(|run| !run.is_empty()).collect();
        all.sort_unstable_by_key(|run| run.start);
        all.dedup_by(|next, before| {
            let meets = next.start <= before.end;
            if meets {
                before.end = before.end.max(next.end);
            }
            meets
        });
        Self(all)
    }

    /// Whether a page is among them.
    pub fn has(&self, page: u64) -> bool {
        let behind = self.0.partition_point(|run| run.start <= page);
        behind > 0 && page < self.0[behind - 1].end
    }

    /// How many pages.
    pub fn pages(&self) -> u64 {
        self.0.iter().map(|run| run.end - run.start).sum()
    }

    /// The runs.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_runs_that_meet_are_counted_once() {
        let runs = Runs::of([7..9, 0..2, 1..3, 3..4, 8..8, 7..8]);
        assert_eq!(runs, Runs(vec![0..4, 7..9]));
        assert_eq!(runs.pages(), 6);
        assert_eq!((0..12).filter(|page| runs.has(*page)).collect::<Vec<_>>(), [0, 1, 2, 3, 7, 8]);
        assert!(!Runs::default().has(0));
    }
}
