//! 95 % intervals of percentiles, and of their differences, by sectioning.
//!
//! In: [`BlockTable`]s. Out: estimates with their standard errors and degrees of freedom, and intervals from them.
//! Pure: no random numbers. Knows nothing of latencies, points or tiers.
//!
//! The estimate is the percentile of all samples together. Each repeat is a *section*: the spread of the sections'
//! percentiles contains everything that makes samples of a run alike (queues, bursts, changes of the machine). With `k`
//! sections the standard error is `sqrt(Σ (section - estimate)² / (k - 1) / k)`, on `k - 1` degrees of freedom, about
//! the estimate from all samples rather than about the mean of the sections, which is biased in the tail (Asmussen &
//! Glynn, *Stochastic Simulation*, 2007, III.5a; Nakayama, *Confidence intervals for quantiles using sectioning*, ACM
//! TOMACS 24, 2014). Latencies are sectioned on the scale of their logarithm.
//!
//! A run of one repeat has sections of its time blocks instead. Those do not show how one run differs from another, so
//! the interval holds for that run only.
//!
//! `tierlab-dev coverage` simulates the coverage of the intervals; the table is in `results/coverage`. An earlier
//! two-level bootstrap (repeats, then blocks) covered 98.7 to 99.1 % if repeats do not differ and 92.5 % if three of
//! them differ by 10 %.

use super::mean;
use super::percentile::BlockTable;
use super::student::t_two_sided;
use crate::record::{Interval, Point, counted};
use std::ops::Range;

/// Share outside a 95 % interval.
pub const OUTSIDE: f64 = 0.05;
/// Sections of a single repeat: few, so that each has enough samples for its percentile.
const SECTIONS_OF_ONE: usize = 5;

/// Pairing of the repeats of two tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Repeats of one index were measured side by side (interleaved), so that common disturbances cancel.
    ByRepeat,
    /// Tables of separate runs.
    Independent,
}

/// Estimate with its standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Estimate from all samples.
    pub value: f64,
    /// Standard error of the value.
    pub error: f64,
    /// Degrees of freedom of the error.
    pub freedom: f64,
}

impl Estimate {
    /// Computes the estimate from the value of all samples and from each section; `None` for fewer than two sections.
    fn of(value: f64, sections: &[f64]) -> Option<Self> {
        if sections.len() < 2 {
            return None;
        }
        let count = sections.len() as f64;
        let squares: f64 = sections.iter().map(|section| (section - value).powi(2)).sum();
        Some(Self {
            value,
            error: (squares / (count - 1.0) / count).sqrt(),
            freedom: count - 1.0,
        })
    }

    /// Returns the difference `self - other` of independent estimates (Welch and Satterthwaite).
    fn minus(self, other: Self) -> Self {
        let (a, b) = (self.error.powi(2), other.error.powi(2));
        let weighted = a * a / self.freedom + b * b / other.freedom;
        Self {
            value: self.value - other.value,
            error: (a + b).sqrt(),
            freedom: match weighted > 0.0 {
                true => (a + b).powi(2) / weighted,
                false => self.freedom.min(other.freedom),
            },
        }
    }

    /// Returns the interval that leaves out the share `outside`.
    pub fn interval(self, outside: f64) -> Interval {
        let half = t_two_sided(outside, self.freedom) * self.error;
        Interval::new(self.value, self.value - half, self.value + half)
    }
}

/// Returns the logarithm of a percentile; `None` without samples or with a single section.
pub fn log_quantile(table: &BlockTable, quantile: f64) -> Option<Estimate> {
    let (all, sections) = quantiles(table, quantile)?;
    let logs: Vec<f64> = sections.iter().map(|us| us.ln()).collect();
    Estimate::of(all.ln(), &logs)
}

/// Returns the logarithm of the ratio `b / a` of a percentile of paired repeats; `None` for tables with different
/// numbers of repeats.
pub fn log_ratio(a: &BlockTable, b: &BlockTable, quantile: f64) -> Option<Estimate> {
    let ((all_a, sections_a), (all_b, sections_b)) = (quantiles(a, quantile)?, quantiles(b, quantile)?);
    let pairs = sections_a.iter().zip(&sections_b);
    let differences: Vec<f64> = pairs.map(|(a, b)| b.ln() - a.ln()).collect();
    let are_paired = sections_a.len() == sections_b.len();
    Estimate::of(all_b.ln() - all_a.ln(), &differences).filter(|_| are_paired)
}

/// True if the median is uncertain because repeats differ, rather than because each has few samples: its standard error
/// is more than twice the error of as many samples with their estimated dependence.
pub fn spread_dominates(point: &Point) -> bool {
    let repeats = counted(&point.repeats);
    let table = BlockTable::new(repeats.iter().map(|repeat| repeat.histograms.latency.as_slice()));
    let summary = point.summary.as_ref();
    let time = summary.map_or(1.0, |summary| summary.autocorrelation_time.max(1.0));
    let Some(estimate) = log_quantile(&table, 0.5).filter(|_| table.repeats().len() > 1) else {
        return false;
    };
    let error = (0.25 * time / table.samples().max(1) as f64).sqrt();
    let at = |share: f64| table.pooled_quantile(share).map_or(0.0, |us| (us.max(1) as f64).ln());
    estimate.error > (at((0.5 + error).min(1.0)) - at((0.5 - error).max(0.0))).max(1e-3)
}

/// Returns the difference of the mean of `b` less that of `a`, from values of their repeats; `None` for fewer than two,
/// or for pairs of unequal number.
pub fn of_means(a: &[f64], b: &[f64], pairing: Pairing) -> Option<Estimate> {
    match pairing {
        Pairing::ByRepeat if a.len() == b.len() => {
            let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| b - a).collect();
            Estimate::of(mean(&differences), &differences)
        }
        Pairing::ByRepeat => None,
        Pairing::Independent => Some(Estimate::of(mean(b), b)?.minus(Estimate::of(mean(a), a)?)),
    }
}

/// Returns the 95 % interval of a mean of independent values by Student's t; `None` for fewer than two values.
pub fn mean_interval(values: &[f64]) -> Option<Interval> {
    Estimate::of(mean(values), values).map(|estimate| estimate.interval(OUTSIDE))
}

/// Returns the percentile of all samples, and of each section, in microseconds and at least 1.
fn quantiles(table: &BlockTable, quantile: f64) -> Option<(f64, Vec<f64>)> {
    let us = |range: Range<usize>| {
        let mut weights = vec![0; table.blocks()];
        weights[range].fill(1);
        table.quantile(&weights, quantile).map(|us| us.max(1) as f64)
    };
    let all = us(0..table.blocks())?;
    let sections = sections(table).into_iter().map(us).collect::<Option<Vec<f64>>>()?;
    Some((all, sections))
}

/// Returns the repeats, or the blocks of a single repeat in a few groups.
pub(crate) fn sections(table: &BlockTable) -> Vec<Range<usize>> {
    match table.repeats() {
        [one] => {
            let groups = one.len().min(SECTIONS_OF_ONE);
            let edge = |group: usize| one.start + group * one.len() / groups.max(1);
            (0..groups).map(|group| edge(group)..edge(group + 1)).collect()
        }
        repeats => repeats.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::percentile::histogram;
    use hdrhistogram::Histogram;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, Exp1, StandardNormal};

    /// Simulates repeats of blocks of exponential latencies around 1 ms, each repeat slower by its factor.
    fn simulate(rng: &mut ChaCha8Rng, factors: &[f64], blocks: usize, samples: usize) -> BlockTable {
        let mut block = |factor: f64| {
            let values: Vec<u64> = (0..samples)
                .map(|_| {
                    let wait: f64 = Exp1.sample(rng);
                    (1_000.0 * factor * (1.0 + wait)) as u64
                })
                .collect();
            histogram(&values)
        };
        let repeats: Vec<Vec<Histogram<u64>>> = factors
            .iter()
            .map(|&factor| (0..blocks).map(|_| block(factor)).collect())
            .collect();
        BlockTable::new(repeats.iter().map(Vec::as_slice))
    }

    fn factors(rng: &mut ChaCha8Rng, repeats: usize, spread: f64) -> Vec<f64> {
        (0..repeats)
            .map(|_| {
                let z: f64 = StandardNormal.sample(rng);
                (spread * z).exp()
            })
            .collect()
    }

    #[test]
    fn paired_differences_cancel_what_both_share() {
        let (mut paired_hits, mut apart_hits, mut narrower) = (0, 0, 0);
        let trials = 200;
        let truth = 1.2_f64.ln();
        for trial in 0..trials {
            let mut rng = ChaCha8Rng::seed_from_u64(trial);
            // Both share the disturbances of a repeat; the second is 20 % slower.
            let shared = factors(&mut rng, 5, 0.2);
            let slower: Vec<f64> = shared.iter().map(|factor| factor * 1.2).collect();
            let (a, b) = (simulate(&mut rng, &shared, 4, 60), simulate(&mut rng, &slower, 4, 60));
            let paired = log_ratio(&a, &b, 0.5).unwrap().interval(OUTSIDE);
            let [of_a, of_b] = [&a, &b].map(|table| log_quantile(table, 0.5).unwrap());
            let differences = of_b.minus(of_a).interval(OUTSIDE);
            paired_hits += u32::from(paired.lo <= truth && truth <= paired.hi);
            apart_hits += u32::from(differences.lo <= truth && truth <= differences.hi);
            narrower += u32::from(paired.hi - paired.lo < differences.hi - differences.lo);
        }
        assert!(
            (184..=198).contains(&paired_hits),
            "paired intervals covered {paired_hits} of {trials}"
        );
        assert!(
            apart_hits >= 190,
            "independent intervals covered {apart_hits} of {trials}"
        );
        assert!(narrower >= 195, "pairing narrowed {narrower} of {trials}");
    }

    #[test]
    fn one_section_tells_no_variation_and_constant_sections_have_none() {
        let single = BlockTable::new([&[histogram(&[700; 50])][..]]);
        assert_eq!(log_quantile(&single, 0.5), None);
        let block = [histogram(&[700; 40])];
        let table = BlockTable::new([&block[..], &block[..], &block[..]]);
        let interval = log_quantile(&table, 0.5).unwrap().interval(OUTSIDE);
        assert!(interval.lo == interval.value && interval.value == interval.hi);
        assert_eq!(log_quantile(&BlockTable::new([]), 0.5), None);
    }

    #[test]
    fn a_single_repeat_is_cut_into_its_blocks() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (blocks, sections) in [(2, 2.0), (4, 4.0), (10, 5.0)] {
            let estimate = log_quantile(&simulate(&mut rng, &[1.0], blocks, 100), 0.9).unwrap();
            assert_eq!(estimate.freedom, sections - 1.0);
        }
    }

    #[test]
    fn means_have_student_intervals() {
        let interval = mean_interval(&[9.0, 10.0, 11.0]).unwrap();
        let half = 4.302_65 / 3.0_f64.sqrt();
        assert!((interval.value - 10.0).abs() < 1e-12);
        assert!((interval.hi - 10.0 - half).abs() < 1e-4 && (10.0 - interval.lo - half).abs() < 1e-4);
        assert_eq!(mean_interval(&[1.0]), None);
        assert_eq!(mean_interval(&[]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn an_interval_contains_its_estimate_and_grows_with_confidence(
            seed in any::<u64>(), repeats in 1_usize..6, blocks in 2_usize..6, quantile in 0.05_f64..0.99,
        ) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let factors = factors(&mut rng, repeats, 0.3);
            let table = simulate(&mut rng, &factors, blocks, 20);
            let estimate = log_quantile(&table, quantile).unwrap();
            let (wide, narrow) = (estimate.interval(0.01), estimate.interval(0.2));
            prop_assert!(wide.lo <= narrow.lo && narrow.lo <= estimate.value);
            prop_assert!(wide.hi >= narrow.hi && narrow.hi >= estimate.value);
            prop_assert!(wide.lo.is_finite() && wide.hi.is_finite());
        }
    }
}
