//! Statistics of latencies that know nothing of runs.
//!
//! - [`percentile`]: histograms of latencies, and percentiles over many of them
//! - [`sections`], [`student`]: 95 % intervals over repeats; [`inversion`]: intervals of percentiles, and
//!   gaps
//! - [`dependence`]: dependence of samples on each other

pub mod dependence;
pub mod inversion;
pub mod percentile;
pub mod sections;
pub mod student;

/// Returns the mean of values; 0 if empty.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Halves an interval `times` times, towards the point up to which `is_below` is true.
pub fn bisect((mut low, mut high): (f64, f64), times: usize, is_below: impl Fn(f64) -> bool) -> (f64, f64) {
    for _ in 0..times {
        let middle = f64::midpoint(low, high);
        if is_below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low, high)
}
