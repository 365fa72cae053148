//! 95 % intervals of a percentile by inverting Student's t over the repeats, and gaps that a percentile may lie on.
//!
//! In: a table of blocks. Out: the latencies up to which the share of the requests, averaged over the repeats, may be
//! the percentile's. Pure.
//!
//! Repeats are independent of each other whatever happens inside them, so no count of independent requests is needed.
//! The share of slow requests is skewed, because bursts make a few repeats much worse than the others: the statistic is
//! corrected for that (P. Hall, *On the removal of skewness by transformation*, J. R. Statist. Soc. B 54, 1992). If a
//! distribution has a gap (rows from a cache and rows from a tier), the interval reaches over it.

use super::percentile::BlockTable;
use super::sections::OUTSIDE;
use super::student::t_two_sided;
use crate::record::{Gap, Interval, Percentile};

/// Difference of shares below which it counts as rounding.
const TINY: f64 = 1e-12;
/// Minimum ratio of two neighbouring values that makes a gap.
const GAP: f64 = 2.0;
/// Minimum number of samples above a gap; a gap between the last few samples is not a property of the distribution.
const ABOVE: f64 = 12.0;
/// Minimum part of the share above the percentile that lies above a gap.
const SHARE_ABOVE: f64 = 0.25;

/// Returns the lower and upper end of the interval of a percentile, in microseconds; `None` without samples or with a
/// single repeat.
pub fn interval(table: &BlockTable, quantile: f64) -> Option<(u64, u64)> {
    let value = table.pooled_quantile(quantile)?;
    let (_, totals) = table.counts_by_repeat().next_back()?;
    if totals.len() < 2 {
        return None;
    }
    let critical = t_two_sided(OUTSIDE, totals.len() as f64 - 1.0);
    let mut deviations = vec![0.0; totals.len()];
    let mut is_possible = |counts: &[u64]| {
        for ((deviation, count), total) in deviations.iter_mut().zip(counts).zip(totals) {
            *deviation = *count as f64 / *total as f64 - quantile;
        }
        skew_corrected(&deviations).abs() <= critical
    };
    let lo = table.counts_by_repeat().find(|(_, counts)| is_possible(counts));
    // A share holds from its value up to the next one.
    let mut next = value;
    let mut hi = value;
    for (us, counts) in table.counts_by_repeat().rev() {
        if is_possible(counts) {
            hi = next.max(us);
            break;
        }
        next = us;
    }
    Some((lo.map_or(value, |(us, _)| us.min(value)), hi.max(value)))
}

/// Returns the 95 % interval of the mean of independent values, corrected for skewness as [`interval`] is; `None` for
/// fewer than two.
pub fn mean_interval(values: &[f64]) -> Option<Interval> {
    let count = values.len() as f64;
    if values.len() < 2 {
        return None;
    }
    let (mean, deviation, skewness) = moments(values);
    let critical = t_two_sided(OUTSIDE, count - 1.0) / count.sqrt();
    let end = |side: f64| {
        let cube = 1.0 + skewness * (side * critical - skewness / (6.0 * count));
        let z = match skewness.abs() < 1e-6 {
            true => side * critical,
            false => 3.0 / skewness * (cube.cbrt() - 1.0),
        };
        mean - deviation * z
    };
    Some(Interval::new(mean, end(1.0), end(-1.0)))
}

/// Returns mean, standard deviation and skewness of at least two values.
fn moments(values: &[f64]) -> (f64, f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let (squares, cubes) = values.iter().fold((0.0, 0.0), |(squares, cubes), value| {
        let offset = value - mean;
        (squares + offset * offset, cubes + offset * offset * offset)
    });
    let deviation = (squares / (count - 1.0)).sqrt();
    let skewness = match deviation < TINY {
        true => 0.0,
        false => cubes / count / deviation.powi(3),
    };
    (mean, deviation, skewness)
}

/// Returns Student's t statistic of a mean of 0, by Hall's transformation; infinite if the values do not vary about
/// another mean.
fn skew_corrected(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let (mean, deviation, skewness) = moments(values);
    if deviation < TINY {
        return if mean.abs() < TINY { 0.0 } else { f64::INFINITY };
    }
    let z = mean / deviation;
    let corrected = z + skewness * z.powi(2) / 3.0 + skewness.powi(2) * z.powi(3) / 27.0 + skewness / (6.0 * count);
    count.sqrt() * corrected
}

/// Returns the widest gap between the two ends of a percentile's interval, if it is a property of the distribution.
pub fn gap(table: &BlockTable, percentile: Percentile) -> Option<Gap> {
    let (lo, hi) = interval(table, percentile.quantile())?;
    let ratio = |from: u64, to: u64| to as f64 / from.max(1) as f64;
    let pairs = table.values_between(lo, hi).windows(2).map(|pair| (pair[0], pair[1]));
    let (from, to) = pairs.max_by(|a, b| ratio(a.0, a.1).total_cmp(&ratio(b.0, b.1)))?;
    let share = table.share_up_to(0..table.blocks(), from)?;
    let above = 1.0 - share;
    let is_inside = above >= SHARE_ABOVE * (1.0 - percentile.quantile()) && above * table.samples() as f64 >= ABOVE;
    (ratio(from, to) >= GAP && is_inside).then_some(Gap {
        percentile,
        share,
        from_us: from as f64,
        to_us: to as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::percentile::histogram;
    use hdrhistogram::Histogram;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, Exp1};

    fn table(repeats: &[Vec<u64>]) -> BlockTable {
        let repeats: Vec<Vec<Histogram<u64>>> = repeats.iter().map(|all| vec![histogram(all)]).collect();
        BlockTable::new(repeats.iter().map(Vec::as_slice))
    }

    fn gap_at(table: &BlockTable, percentile: Percentile) -> Option<Gap> {
        assert!(interval(table, percentile.quantile()).is_some());
        gap(table, percentile)
    }

    #[test]
    fn an_interval_reaches_over_the_gap_that_its_percentile_lies_on() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let repeats: Vec<Vec<u64>> = (0..10)
            .map(|_| {
                let one = |rng: &mut ChaCha8Rng| if rng.random_bool(0.05) { 15_000 } else { 1_000 } + rng.random_range(0..300);
                (0..400).map(|_| one(&mut rng)).collect()
            })
            .collect();
        let table = table(&repeats);
        let (lo, hi) = interval(&table, 0.95).unwrap();
        let gap = gap_at(&table, Percentile::P95).unwrap();
        assert!((gap.share - 0.95).abs() < 0.02, "{gap:?}");
        assert!(gap.from_us < 1_400.0 && gap.to_us > 14_900.0 && lo < 1_400 && hi > 14_900);
        // The other percentiles are far from either side of it.
        assert_eq!(gap_at(&table, Percentile::P50), None);
        assert_eq!(gap_at(&table, Percentile::P99), None);
    }

    #[test]
    fn the_last_few_samples_of_a_tail_are_no_gap() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        for _ in 0..50 {
            let repeats: Vec<Vec<u64>> = (0..5)
                .map(|_| {
                    let exponential = |rng: &mut ChaCha8Rng| -> f64 { Exp1.sample(rng) };
                    (0..300)
                        .map(|_| (1_000.0 * exponential(&mut rng).exp()) as u64)
                        .collect()
                })
                .collect();
            assert_eq!(gap_at(&table(&repeats), Percentile::P99), None);
        }
    }

    #[test]
    fn equal_repeats_have_no_width_and_one_repeat_has_no_interval() {
        assert_eq!(interval(&table(&[vec![700; 40], vec![700; 40]]), 0.5), Some((700, 700)));
        assert_eq!(interval(&table(&[vec![700; 40]]), 0.5), None);
        assert_eq!(interval(&table(&[]), 0.5), None);
    }

    #[test]
    fn a_burst_in_one_repeat_moves_the_upper_end_more_than_the_lower() {
        // One repeat in ten has 5 % of its requests beyond the limit, the others 0.5 %.
        let one = |slow: usize| {
            (0..1_000)
                .map(|i| if i < slow { 9_000 + i as u64 } else { 1_000 + i as u64 })
                .collect()
        };
        let repeats: Vec<Vec<u64>> = (0..10).map(|repeat| one(if repeat == 3 { 50 } else { 5 })).collect();
        let table = table(&repeats);
        let value = table.pooled_quantile(0.99).unwrap();
        let (lo, hi) = interval(&table, 0.99).unwrap();
        assert!(lo < value && hi > 9_000, "{lo} {value} {hi}");
    }

    #[test]
    fn means_of_symmetric_values_have_student_intervals_and_skewed_ones_reach_further_up() {
        let interval = mean_interval(&[9.0, 10.0, 11.0]).unwrap();
        let half = 4.302_65 / 3.0_f64.sqrt();
        assert!((interval.hi - 10.0 - half).abs() < 1e-4 && (10.0 - interval.lo - half).abs() < 1e-4);
        let skewed = mean_interval(&[1.0, 1.0, 1.1, 1.2, 5.0]).unwrap();
        assert!(
            skewed.hi - skewed.value > 1.5 * (skewed.value - skewed.lo),
            "{skewed:?}"
        );
        assert_eq!(mean_interval(&[1.0]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_ends_of_a_mean_are_where_its_statistic_is_the_point_of_t(
            values in prop::collection::vec(0.1_f64..100.0, 2..12),
        ) {
            let interval = mean_interval(&values).unwrap();
            prop_assert!(interval.lo <= interval.value + 1e-9 && interval.hi >= interval.value - 1e-9, "{:?}", interval);
            let critical = t_two_sided(OUTSIDE, values.len() as f64 - 1.0);
            for end in [interval.lo, interval.hi] {
                let deviations: Vec<f64> = values.iter().map(|value| value - end).collect();
                prop_assert!((skew_corrected(&deviations).abs() - critical).abs() < 1e-3 * critical, "{:?}", interval);
            }
        }

        #[test]
        fn an_interval_contains_its_percentile_and_lies_within_the_samples(
            repeats in prop::collection::vec(prop::collection::vec(1_u64..100_000, 1..60), 2..8), quantile in 0.05_f64..0.99,
        ) {
            let table = table(&repeats);
            let (lo, hi) = interval(&table, quantile).unwrap();
            let (least, most) = table.range().unwrap();
            let value = table.pooled_quantile(quantile).unwrap();
            prop_assert!(least <= lo && lo <= value && value <= hi && hi <= most);
        }
    }
}
