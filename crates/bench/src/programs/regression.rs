//! Whether this build is slower than another, beyond what a noisy machine explains.

use super::results::Results;
use crate::harness::statistics::median_and_middle_half;

/// A row that is slower on this build's volume than on the other's.
#[derive(Clone, PartialEq, Debug)]
pub struct Regression {
    pub program: &'static str,
    pub row: String,
    pub backend: String,
    /// How much slower, and how far the middle halves of the noisier one's times lie apart.
    pub percent: f64,
    pub spread_percent: f64,
}

/// The rows that are slower by more than `tolerance` percent beyond the spread.
pub fn slower(results: &Results, tolerance: f64) -> Vec<Regression> {
    let mut found = Vec::new();
    for measured in &results.measured {
        for row in &measured.rows {
            for (own, name) in results.backends.iter().enumerate() {
                let against = format!("{name}, against");
                let other = results.backends.iter().position(|backend| *backend == against);
                let Some(other) = other else { continue };
                let judged = judge(&row.times[own], &row.times[other], tolerance);
                if let Some((percent, spread_percent)) = judged {
                    let (program, backend) = (measured.program.name, name.clone());
                    let row = row.name.clone();
                    found.push(Regression { program, row, backend, percent, spread_percent });
                }
            }
        }
    }
    found
}

/// By how many percent the first are slower, and the spread; `None`: not by so much.
fn judge(own: &[f64], other: &[f64], tolerance: f64) -> Option<(f64, f64)> {
    if own.is_empty() || other.is_empty() {
        return None;
    }
    let ((own, own_half), (other, other_half)) =
        (median_and_middle_half(own), median_and_middle_half(other));
    let (percent, spread) = ((own / other - 1.0) * 100.0, own_half.max(other_half));
    (percent > tolerance + spread).then_some((percent, spread))
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn slower_is_what_lies_beyond_the_tolerance_and_the_spread() {
        let old = [100.0, 101.0, 100.0, 99.0, 100.0];
        assert_eq!(judge(&old, &old, 5.0), None);
        assert_eq!(judge(&[104.0; 5], &old, 5.0), None);
        assert!(judge(&[110.0; 5], &old, 5.0).is_some());
        assert_eq!(judge(&[110.0; 5], &old, 20.0), None);
        // Faster is never slower; a noisy machine explains much; one slow turn nothing.
        assert_eq!(judge(&[50.0; 5], &old, 5.0), None);
        assert_eq!(judge(&[90.0, 110.0, 100.0, 130.0, 120.0], &old, 5.0), None);
        assert_eq!(judge(&[100.0, 100.0, 900.0, 100.0, 101.0], &old, 5.0), None);
        assert_eq!(judge(&[], &old, 5.0), None);
    }
}
