//! Histograms of latencies. In: microseconds. Out: an HDR histogram of three significant digits.

use hdrhistogram::Histogram;

/// Significant decimal digits of every histogram.
const DIGITS: u8 = 3;

/// Creates a histogram just large enough for its values, because a run holds thousands of them.
#[must_use]
pub fn histogram(values_us: &[u64]) -> Histogram<u64> {
    let most = values_us.iter().copied().max().unwrap_or_default().max(2);
    let Ok(mut histogram) = Histogram::new_with_bounds(1, most, DIGITS) else {
        unreachable!("1 and a maximum of at least 2 are bounds, and 3 digits are allowed");
    };
    for &value in values_us {
        histogram.saturating_record(value);
    }
    histogram
}
