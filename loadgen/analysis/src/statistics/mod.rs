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

/// SplitMix64 (Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, 2014): maps neighbouring inputs to unrelated
/// outputs. A state that grows by the constant gives its sequence.
pub const fn split_mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

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
