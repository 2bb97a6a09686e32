//! Medians of many times, and how far those lie apart.

/// The median, and the largest less the smallest in percent of it.
pub fn median_and_spread(times: &[f64]) -> (f64, f64) {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = match sorted.len() % 2 {
        0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    };
    (median, (sorted[sorted.len() - 1] - sorted[0]) * 100.0 / median)
}

/// The median of many (of an even number the lower), and how far the middle half of them lies
/// apart, in percent of it.
pub fn median_and_middle_half(times: &[f64]) -> (f64, f64) {
    let mut sorted = times.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |part: usize| sorted[(sorted.len() - 1) * part / 4];
    (at(2), (at(3) - at(1)) * 100.0 / at(2))
}

#[cfg(test)]
mod tests {
    use super::{median_and_middle_half, median_and_spread};

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median_and_spread(&[3.0, 1.0, 2.0]), (2.0, 100.0));
        assert_eq!(median_and_spread(&[4.0, 2.0]), (3.0, 200.0 / 3.0));
        assert_eq!(median_and_middle_half(&[9.0, 1.0, 4.0, 3.0, 5.0]), (4.0, 50.0));
    }
}
