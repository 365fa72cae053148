//! Means over repeats with 95 % intervals. In: a value of each repeat. Out: an interval, open at both ends for a single value.

use tierlab_analysis::record::Interval;
use tierlab_analysis::statistics::sections::mean_interval;

/// Mean; 0 without values.
pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> Interval {
    let values: Vec<f64> = values.into_iter().collect();
    // The sum of no numbers is -0.
    let mean = values.iter().fold(0.0, |sum, value| sum + value) / values.len().max(1) as f64;
    mean_interval(&values).unwrap_or(Interval {
        value: mean,
        lo: f64::NEG_INFINITY,
        hi: f64::INFINITY,
    })
}

/// Geometric mean of values above 0 that differ by factors.
pub(crate) fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Interval {
    mean(values.into_iter().map(f64::ln)).map(f64::exp)
}

/// Value below which a share of the values is; `None` without values.
pub(crate) fn percentile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let at = (share * values.len() as f64).ceil() as usize;
    values.get(at.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_zero_without_a_sign() {
        assert!(mean([]).value.is_sign_positive());
    }

    #[test]
    fn a_single_value_is_compared_with_nothing() {
        let of = mean([3.0]);
        assert_eq!((of.value, of.lo, of.hi), (3.0, f64::NEG_INFINITY, f64::INFINITY));
        let of = geometric_mean([1.0]);
        assert_eq!((of.value, of.lo, of.hi), (1.0, 0.0, f64::INFINITY));
    }

    #[test]
    fn factors_have_a_mean_between_them() {
        let of = geometric_mean([0.5, 2.0, 1.0, 1.0]);
        assert!((of.value - 1.0).abs() < 1e-12 && of.lo < 1.0 && of.hi > 1.0);
        assert!(
            (of.lo * of.hi - 1.0).abs() < 1e-9,
            "as far up as down, as a factor: {of:?}"
        );
    }
}
