//! The interval that the reports do not use: a two-level bootstrap, over repeats and then over time blocks, as its
//! coverage is printed beside that of the sections.
//!
//! In: a table of blocks. Out: the 95 % interval of a percentile by the bootstrap's own quantiles, and the same one
//! corrected for few repeats. Seeded and pure.
//!
//! Each resample draws as many repeats as there are, with replacement, then in each drawn repeat as many time blocks as
//! it has, with replacement (Davison and Hinkley, *Bootstrap Methods and their Application*, 1997, section 3.8). The plain
//! interval is that between the resamples' 2.5 % and 97.5 % quantiles. The variance between `R` drawn repeats is too small
//! by `(R-1)/R`, and a normal quantile knows nothing of `R-1` degrees of freedom; the corrected interval takes the
//! variance apart into the two levels, scales each by `n/(n-1)`, combines their degrees of freedom after Welch and
//! Satterthwaite, and stretches the plain one about the estimate by what comes out.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tierlab_analysis::statistics::percentile::BlockTable;
use tierlab_analysis::statistics::student::{Z95, t95};

/// Resamples drawn for an interval.
const RESAMPLES: usize = 400;

/// Lower and upper end, in microseconds.
pub(super) type Ends = (f64, f64);

/// The plain and the corrected interval of a quantile; `None` where there are no two blocks to tell a variation by.
pub(super) fn intervals(table: &BlockTable, quantile: f64, seed: u64) -> Option<(Ends, Ends)> {
    let levels = Levels::of(table);
    if levels.between.freedom == 0.0 && levels.within.freedom == 0.0 {
        return None;
    }
    let log = |weights: &[u32]| table.quantile(weights, quantile).map(|us| (us as f64).ln());
    let estimate = log(&vec![1; table.blocks()])?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (mut blocks, mut repeats) = (vec![0; table.blocks()], vec![0; table.blocks()]);
    let (mut both, mut between) = (Vec::with_capacity(RESAMPLES), Vec::with_capacity(RESAMPLES));
    for _ in 0..RESAMPLES {
        draw(table, &mut rng, &mut blocks, &mut repeats);
        both.extend(log(&blocks));
        between.extend(log(&repeats));
    }
    both.sort_by(f64::total_cmp);
    let plain = (at(&both, 0.025)?, at(&both, 0.975)?);
    let stretch = levels.stretch(variance(&both), variance(&between));
    let end = |end: f64| estimate + stretch * (end - estimate);
    // A skewed statistic can put both ends on one side of the estimate.
    let corrected = (end(plain.0).min(estimate), end(plain.1).max(estimate));
    Some(((plain.0.exp(), plain.1.exp()), (corrected.0.exp(), corrected.1.exp())))
}

/// Draws one resample: `blocks` of repeats and their blocks, `repeats` of the same repeats with all their blocks.
fn draw(table: &BlockTable, rng: &mut ChaCha8Rng, blocks: &mut [u32], repeats: &mut [u32]) {
    let of = table.repeats();
    blocks.fill(0);
    repeats.fill(0);
    for _ in 0..of.len() {
        let chosen = of[rng.random_range(0..of.len())].clone();
        for block in chosen.clone() {
            repeats[block] += 1;
            blocks[rng.random_range(chosen.clone())] += 1;
        }
    }
}

/// Degrees of freedom of a level, and the factor that makes the variance of its draws unbiased.
#[derive(Debug, Clone, Copy)]
struct Level {
    freedom: f64,
    factor: f64,
}

impl Level {
    fn of(members: usize, groups: usize) -> Self {
        let freedom = members.saturating_sub(groups) as f64;
        let factor = if freedom > 0.0 { members as f64 / freedom } else { 1.0 };
        Self { freedom, factor }
    }
}

#[derive(Debug, Clone, Copy)]
struct Levels {
    between: Level,
    within: Level,
}

impl Levels {
    fn of(table: &BlockTable) -> Self {
        let repeats = table.repeats().len();
        Self {
            between: Level::of(repeats, 1),
            within: Level::of(table.blocks(), repeats),
        }
    }

    /// By how much an interval of this variance, of which `between` is that between repeats, is too narrow.
    fn stretch(self, total: f64, between: f64) -> f64 {
        if total == 0.0 {
            return 1.0;
        }
        let within = (total - between).max(0.0) * self.within.factor;
        let between = between * self.between.factor;
        let weighted: f64 = [(between, self.between), (within, self.within)]
            .into_iter()
            .filter(|(share, _)| *share > 0.0)
            .map(|(share, level)| share * share / level.freedom.max(1.0))
            .sum();
        let corrected = between + within;
        t95(corrected * corrected / weighted) / Z95 * (corrected / total).sqrt()
    }
}

/// About the mean, divided by the count: that of a distribution, not of a sample.
fn variance(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count
}

fn at(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[((share * sorted.len() as f64) as usize).min(last)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tierlab_analysis::statistics::histogram::histogram;

    fn table(repeats: &[Vec<Vec<u64>>]) -> BlockTable {
        let repeats: Vec<Vec<_>> = repeats
            .iter()
            .map(|blocks| blocks.iter().map(|block| histogram(block)).collect())
            .collect();
        BlockTable::new(repeats.iter().map(Vec::as_slice))
    }

    #[test]
    fn what_does_not_vary_has_no_width_and_one_block_no_interval() {
        let constant = table(&vec![vec![vec![700; 20]; 3]; 3]);
        let (plain, corrected) = intervals(&constant, 0.5, 1).unwrap();
        assert_eq!(plain, corrected);
        assert!((plain.0 - plain.1).abs() < 1e-9);
        assert_eq!(intervals(&table(&[vec![vec![1, 2, 3]]]), 0.5, 1), None);
        assert_eq!(intervals(&table(&[]), 0.5, 1), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_corrected_interval_contains_the_plain_one(
            repeats in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(1_u64..100_000, 5..20), 2..5), 2..6),
            seed: u64,
        ) {
            let table = table(&repeats);
            let (plain, corrected) = intervals(&table, 0.5, seed).unwrap();
            prop_assert!(corrected.0 <= plain.0 * 1.000_001 && corrected.1 >= plain.1 * 0.999_999, "{:?} {:?}", plain, corrected);
            prop_assert_eq!(intervals(&table, 0.5, seed), Some((plain, corrected)));
        }
    }
}
