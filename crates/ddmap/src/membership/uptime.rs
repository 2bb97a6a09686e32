//! A node's time as far as it was awake: what it did not hear while it was stopped, or had no
//! processor, says nothing of others.
//!
//! It is looked at at least five times a second while the node runs (`Node::run`). Where much more
//! has passed since the last look, nobody was there to hear.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most that counts between two looks.
const MOST: Duration = Duration::from_secs(1);
/// What it begins with: times before that are had, too.
const BEGIN: Duration = Duration::from_hours(24);

/// The clock.
pub struct Uptime {
    begun: Instant,
    /// When it was looked at last, by the machine's clock, and what it said.
    last: Mutex<(Duration, Duration)>,
}

impl Default for Uptime {
    fn default() -> Self {
        Self { begun: Instant::now(), last: Mutex::new((Duration::ZERO, BEGIN)) }
    }
}

impl Uptime {
    /// What time it is.
    pub fn now(&self) -> Duration {
        self.look(self.begun.elapsed())
    }

    fn look(&self, at: Duration) -> Duration {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = at.saturating_sub(last.0);
        *last = (at.max(last.0), last.1 + passed.min(MOST));
        last.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_a_node_is_stopped_does_not_count() {
        let clock = Uptime::default();
        let at = |ms| clock.look(Duration::from_millis(ms)).checked_sub(BEGIN).unwrap();
        assert_eq!(at(200), Duration::from_millis(200));
        assert_eq!(at(400), Duration::from_millis(400));
        assert_eq!(at(60_400), Duration::from_millis(1_400), "stopped for a minute");
        assert_eq!(at(60_300), Duration::from_millis(1_400), "another thread was late");
        assert_eq!(at(60_600), Duration::from_millis(1_600));
    }
}
