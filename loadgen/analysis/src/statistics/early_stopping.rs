//! MLPerf's early stopping: how far a percentile of few samples can be trusted from above.
//!
//! In: a number of samples, a percentile. Out: how many of the slowest may be set aside so that the percentile still is,
//! with 99 % confidence, at most the next one. The rule of MLPerf LoadGen (MLPerf Inference Rules, "Early Stopping", with
//! tolerance 0 and confidence 0.99; `loadgen/early_stopping.cc` of mlcommons/inference): the chance that so few of `n`
//! independent samples lie above the percentile, the binomial `P(X <= t; n, 1 - q)`, is at most 1 %. A p90 takes 64
//! samples, a p99 662.
//!
//! It is one-sided, and takes samples for independent, where [`crate::statistics::sections`] takes the repeats for so: it says what
//! a submission to MLPerf could claim, and stands beside the interval, not in its place.

use super::beta::binomial_at_most;
use super::percentile::BlockTable;

/// What the claim may be wrong with.
const OUTSIDE: f64 = 0.01;

/// The most samples above the percentile's latency with which `samples` of them pass; `None` where there are too few to
/// pass at all.
#[must_use]
pub fn may_exceed(samples: u64, quantile: f64) -> Option<u64> {
    let passes = |above: u64| binomial_at_most(above, samples, 1.0 - quantile) <= OUTSIDE;
    if samples < 2 || !passes(1) {
        return None;
    }
    // Grows with the number above, and fails at the latest at all of them.
    let (mut low, mut high) = (1, samples);
    while low + 1 < high {
        let middle = low.midpoint(high);
        if passes(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low)
}

/// The latency that the percentile does not exceed, with 99 % confidence if the samples are independent: the `t`-th
/// largest sample, `t` as in [`may_exceed`].
#[must_use]
pub fn bound(table: &BlockTable, quantile: f64) -> Option<u64> {
    let above = may_exceed(table.samples(), quantile)?;
    table.largest(above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_published_counts() {
        for (quantile, fewest) in [(0.9, 64), (0.99, 662)] {
            assert_eq!(may_exceed(fewest - 1, quantile), None);
            assert_eq!(may_exceed(fewest, quantile), Some(1));
        }
        // By the normal approximation 2,703 less 2.33 standard deviations of 51.7.
        let above = may_exceed(270_336, 0.99).unwrap();
        assert!(above.abs_diff(2_583) < 5, "{above}");
    }

    proptest! {
        #[test]
        fn more_samples_allow_more_above_and_never_the_share_itself(samples in 700_u64..200_000, more in 0_u64..5_000) {
            let allowed = may_exceed(samples, 0.99).unwrap();
            prop_assert!(may_exceed(samples + more, 0.99).unwrap() >= allowed);
            prop_assert!((allowed as f64) < samples as f64 * 0.01);
            prop_assert!(binomial_at_most(allowed, samples, 0.01) <= OUTSIDE);
            prop_assert!(binomial_at_most(allowed + 1, samples, 0.01) > OUTSIDE);
        }
    }
}
