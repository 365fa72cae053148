//! Intervals of a percentile by order statistics, widened for dependence, and gaps that it may lie on.
//!
//! In: a table of blocks. Out: the interval between two percentiles that certainly lie to either side, and where a gap of
//! the distribution lies between them. Pure.
//!
//! The share of the samples at or below the percentile differs from section to section; how much tells how far the share
//! that was asked for may be from the one that was met, with everything in it that makes samples alike (Woodruff, J. Am.
//! Stat. Assoc. 47, 1952). No share is taken to vary less than that of independent samples. Shares are moved on the scale
//! of their odds, so that none leaves 0 to 1. Where a distribution has a gap (rows from a cache beside rows from a tier) a
//! percentile near it jumps from one side to the other: the interval by order statistics reaches over the gap, where the
//! spread of sections may see one side alone.

use super::percentile::BlockTable;
use super::sections::{OUTSIDE, sections};
use super::student::t_two_sided;

/// The least factor between two neighbouring values that makes a gap.
const GAP: f64 = 2.0;
/// A gap lies in the distribution, not between its last few samples: so many must lie above it, and so large a part of the
/// share above the percentile.
const ABOVE: f64 = 12.0;
/// See [`ABOVE`].
const SHARE_ABOVE: f64 = 0.25;

/// What order statistics say of a percentile, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OrderInterval {
    /// Lower end.
    pub lo_us: f64,
    /// Upper end.
    pub hi_us: f64,
    /// The gap that lies between the two ends, with the share of the samples below it.
    pub gap: Option<GapAt>,
}

/// A gap of the distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GapAt {
    /// The share of the samples below it.
    pub share: f64,
    /// Its lower side, in microseconds.
    pub from_us: f64,
    /// Its upper side, in microseconds.
    pub to_us: f64,
}

/// The interval of a percentile; `None` without samples or with a single section.
#[must_use]
pub fn interval(table: &BlockTable, quantile: f64) -> Option<OrderInterval> {
    let value = table.pooled_quantile(quantile)?;
    let shares: Vec<f64> = sections(table)
        .into_iter()
        .filter_map(|section| table.share_up_to(section, value))
        .collect();
    if shares.len() < 2 {
        return None;
    }
    let (count, samples) = (shares.len() as f64, table.samples() as f64);
    let met = table.share_up_to(0..table.blocks(), value)?;
    let squares: f64 = shares.iter().map(|share| (share - met).powi(2)).sum();
    let independent = quantile * (1.0 - quantile) / samples;
    let error = (squares / (count - 1.0) / count).max(independent).sqrt();
    let reach = t_two_sided(OUTSIDE, count - 1.0) * error / (quantile * (1.0 - quantile));
    let odds = (quantile / (1.0 - quantile)).ln();
    let share = |odds: f64| 1.0 / (1.0 + (-odds).exp());
    let [lo, hi] = [odds - reach, odds + reach].map(|odds| table.pooled_quantile(share(odds)));
    let (lo, hi) = (lo?, hi?);
    Some(OrderInterval {
        lo_us: lo as f64,
        hi_us: hi as f64,
        gap: gap(table, quantile, lo, hi),
    })
}

/// The widest gap between two values.
fn gap(table: &BlockTable, quantile: f64, lo: u64, hi: u64) -> Option<GapAt> {
    let ratio = |from: u64, to: u64| to as f64 / from.max(1) as f64;
    let (from, to) = table
        .values_between(lo, hi)
        .windows(2)
        .map(|pair| (pair[0], pair[1]))
        .max_by(|a, b| ratio(a.0, a.1).total_cmp(&ratio(b.0, b.1)))?;
    let share = table.share_up_to(0..table.blocks(), from)?;
    let above = 1.0 - share;
    let inside = above >= SHARE_ABOVE * (1.0 - quantile) && above * table.samples() as f64 >= ABOVE;
    (ratio(from, to) >= GAP && inside).then_some(GapAt {
        share,
        from_us: from as f64,
        to_us: to as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::histogram::histogram;
    use hdrhistogram::Histogram;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, Exp1};

    fn table(repeats: &[Vec<u64>]) -> BlockTable {
        let repeats: Vec<Vec<Histogram<u64>>> = repeats.iter().map(|all| vec![histogram(all)]).collect();
        BlockTable::new(repeats.iter().map(Vec::as_slice))
    }

    #[test]
    fn a_percentile_on_a_gap_is_told_and_the_interval_reaches_over_it() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let repeats: Vec<Vec<u64>> = (0..10)
            .map(|_| {
                let one = |rng: &mut ChaCha8Rng| if rng.random_bool(0.05) { 15_000 } else { 1_000 } + rng.random_range(0..300);
                (0..400).map(|_| one(&mut rng)).collect()
            })
            .collect();
        let table = table(&repeats);
        let p95 = interval(&table, 0.95).unwrap();
        let gap = p95.gap.unwrap();
        assert!((gap.share - 0.95).abs() < 0.02, "{gap:?}");
        assert!(gap.from_us < 1_400.0 && gap.to_us > 14_900.0 && p95.lo_us < 1_400.0 && p95.hi_us > 14_900.0);
        // The other percentiles are far from either side of it.
        assert_eq!(interval(&table, 0.5).unwrap().gap, None);
        assert_eq!(interval(&table, 0.99).unwrap().gap, None);
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
            let found = interval(&table(&repeats), 0.99).unwrap();
            assert_eq!(found.gap, None, "{found:?}");
        }
    }

    #[test]
    fn what_does_not_vary_has_its_value_and_one_section_says_nothing() {
        let same = interval(&table(&[vec![700; 40], vec![700; 40]]), 0.5).unwrap();
        assert_eq!((same.lo_us, same.hi_us, same.gap), (700.0, 700.0, None));
        assert_eq!(interval(&table(&[vec![700; 40]]), 0.5), None);
        assert_eq!(interval(&table(&[]), 0.5), None);
    }
}
