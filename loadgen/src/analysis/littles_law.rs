//! Little's law as a check of a step: mean in flight = rate × mean time in flight.
//!
//! In: the repeats of a point. Out: both sides. Knows nothing of verdicts.

use crate::record::Repeat;

/// Both sides of Little's law over all repeats, each weighted by its window: the mean number in flight as the driver
/// counted it, and the requests per second times their mean service time, from the histograms. A request is in flight
/// from its actual send to its last byte. They are independent measurements of the same thing, so that they differ by
/// no more than the edges of the windows if both are right. J. D. C. Little, *Operations Research* 9 (1961).
#[must_use]
pub fn in_flight(repeats: &[Repeat]) -> (f64, f64) {
    let window: f64 = repeats.iter().map(|repeat| repeat.window_s).sum();
    if window <= 0.0 {
        return (0.0, 0.0);
    }
    let measured = repeats
        .iter()
        .map(|repeat| repeat.mean_in_flight * repeat.window_s)
        .sum::<f64>()
        / window;
    let service_s: f64 = repeats
        .iter()
        .flat_map(|repeat| &repeat.histograms.service)
        .map(|block| block.mean() * block.len() as f64 / 1e6)
        .sum();
    (measured, service_s / window)
}

/// Whether both sides agree: within 10 %, or within half a request, which is what the edges of a short window and the
/// three digits of the histograms can make of a small number.
#[must_use]
pub fn holds((measured, expected): (f64, f64)) -> bool {
    (measured - expected).abs() <= (0.1 * expected).max(0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agreement_is_relative_for_many_and_absolute_for_few() {
        assert!(holds((100.0, 95.0)) && !holds((100.0, 50.0)));
        assert!(holds((0.1, 0.4)) && !holds((0.1, 0.9)));
        assert_eq!(in_flight(&[]), (0.0, 0.0));
    }
}
