//! Percentiles over many histograms, and from how many samples they may be printed.
//!
//! In: one histogram per time block of each repeat. Out: a table from which any weighting of the blocks gives its
//! percentiles quickly. Knows nothing of how the weights are drawn.

use hdrhistogram::Histogram;
use std::ops::Range;

/// The fewest samples from which a percentile is printed: the smallest `n` for which a distribution-free 95 %
/// interval of the quantile has both its ends inside the sample. The upper end exists when the chance that all `n`
/// samples lie below the quantile, `q^n`, is at most 2.5 %, and likewise `(1-q)^n` for the lower end. So
/// `n = ceil(ln 0.025 / ln max(q, 1-q))`: 6 for the median, 72 for p95, 368 for p99, 3,688 for p99.9.
#[must_use]
pub fn samples_needed(quantile: f64) -> u64 {
    let side = quantile.max(1.0 - quantile);
    // The quotient is positive and small.
    (0.025_f64.ln() / side.ln()).ceil() as u64
}

/// How many times as many dependent samples as `samples_needed * time` it takes until an interval over the repeats covers
/// what it promises: repeats that are short beside the dependence have skewed percentiles. In simulation four times
/// (`results/coverage`).
const MARGIN: f64 = 4.0;
/// How many autocorrelation times a repeat lasts at least. It begins with an idle server, and so its first requests are
/// faster than those of a queue that has filled. In simulation (`results/coverage`) the intervals of shorter repeats miss the
/// median of a queue at nine tenths of its capacity.
const SETTLED: f64 = 8.0;
/// Requests that are each for themselves are taken to have this autocorrelation time, and need no time to settle.
pub const LEAST_TIME: f64 = 2.0;

/// Whether a percentile of so many samples in so many repeats may be printed, given the autocorrelation time that they are
/// taken to have.
///
/// That time is assumed ([`crate::latency::availability`]) and never that of the samples themselves: a run that by chance met no
/// burst shows both a shorter time and a smaller percentile, so that a rule by its own time prints the percentiles that are
/// too small.
#[must_use]
pub fn is_printable(quantile: f64, samples: u64, repeats: usize, assumed_time: f64) -> bool {
    samples >= samples_wanted(quantile, repeats, assumed_time)
}

/// From how many samples of this autocorrelation time a percentile is printed: `samples / time` of them would be as good
/// independently, and each of the repeats has to last until its queue has settled.
#[must_use]
pub fn samples_wanted(quantile: f64, repeats: usize, assumed_time: f64) -> u64 {
    let time = assumed_time.max(1.0);
    let enough = samples_needed(quantile) as f64 * time * time.min(MARGIN);
    enough.max(repeats as f64 * settled_after(time)).ceil() as u64
}

/// From how many requests on a repeat of this autocorrelation time no longer shows that its server was idle at first.
#[must_use]
pub fn settled_after(assumed_time: f64) -> f64 {
    SETTLED * (assumed_time - LEAST_TIME).max(0.0)
}

/// The cumulative counts of all blocks over one common, sorted table of values.
#[derive(Debug, Clone)]
pub struct BlockTable {
    /// Distinct recorded values, ascending, each the highest that its histogram bucket stands for.
    values: Vec<u64>,
    /// `cumulative[value * blocks + block]`: samples of the block at or below the value.
    cumulative: Vec<u32>,
    /// Samples per block.
    totals: Vec<u32>,
    /// The blocks of each repeat that have samples at all.
    repeats: Vec<Range<usize>>,
}

impl BlockTable {
    /// Lays out the blocks of some repeats. Blocks and repeats without samples are left out: they say nothing of a
    /// percentile.
    #[must_use]
    pub fn new<'a>(repeats: impl IntoIterator<Item = &'a [Histogram<u64>]>) -> Self {
        let mut blocks: Vec<Counts> = Vec::new();
        let mut ranges = Vec::new();
        for repeat in repeats {
            let start = blocks.len();
            blocks.extend(repeat.iter().filter(|block| !block.is_empty()).map(counts));
            if blocks.len() > start {
                ranges.push(start..blocks.len());
            }
        }
        let mut values: Vec<u64> = blocks.iter().flatten().map(|&(value, _)| value).collect();
        // Stable, since it finds the blocks' own order.
        values.sort();
        values.dedup();
        let mut cumulative = vec![0_u32; values.len() * blocks.len()];
        let mut totals = Vec::with_capacity(blocks.len());
        for (index, block) in blocks.iter().enumerate() {
            let mut counts = block.iter().peekable();
            let mut sum = 0_u32;
            for (row, value) in values.iter().enumerate() {
                if let Some((_, count)) = counts.next_if(|(at, _)| at == value) {
                    sum = sum.saturating_add(*count);
                }
                cumulative[row * blocks.len() + index] = sum;
            }
            totals.push(sum);
        }
        Self {
            values,
            cumulative,
            totals,
            repeats: ranges,
        }
    }

    /// The blocks of each repeat, as indices into a weighting.
    #[must_use]
    pub fn repeats(&self) -> &[Range<usize>] {
        &self.repeats
    }

    /// The number of blocks: the length of a weighting.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.totals.len()
    }

    /// All samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.totals.iter().copied().map(u64::from).sum()
    }

    /// The quantile of the blocks, each counted `weights[block]` times: the smallest value with at least the share
    /// `quantile` of the samples at or below it, as HdrHistogram defines it. `None` without samples.
    #[must_use]
    pub fn quantile(&self, weights: &[u32], quantile: f64) -> Option<u64> {
        let total = dot(weights, &self.totals);
        if total == 0 {
            return None;
        }
        // Sample counts are far below 2^53.
        let rank = ((quantile * total as f64).ceil() as u64).clamp(1, total);
        Some(self.at_rank(weights, rank))
    }

    /// The smallest value with at least `rank` weighted samples at or below it; there are that many.
    fn at_rank(&self, weights: &[u32], rank: u64) -> u64 {
        let (mut low, mut high) = (0, self.values.len() - 1);
        while low < high {
            let middle = low.midpoint(high);
            if dot(weights, self.row(middle)) >= rank {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        self.values[low]
    }

    /// The quantile of all blocks, each counted once.
    #[must_use]
    pub fn pooled_quantile(&self, quantile: f64) -> Option<u64> {
        self.quantile(&vec![1; self.blocks()], quantile)
    }

    /// The share of the samples of some blocks at or below a value; `None` where they have none.
    #[must_use]
    pub fn share_up_to(&self, blocks: Range<usize>, value: u64) -> Option<f64> {
        let rows = self.values.partition_point(|known| *known <= value);
        let sum = |counts: &[u32]| counts[blocks.clone()].iter().copied().map(u64::from).sum::<u64>();
        let below = rows.checked_sub(1).map_or(0, |last| sum(self.row(last)));
        let all = sum(&self.totals);
        (all > 0).then(|| below as f64 / all as f64)
    }

    /// The recorded values from one to another, both included.
    #[must_use]
    pub fn values_between(&self, from: u64, to: u64) -> &[u64] {
        let start = self.values.partition_point(|known| *known < from);
        let end = self.values.partition_point(|known| *known <= to);
        &self.values[start.min(end)..end]
    }

    /// The `k`-th largest sample, from 1; `None` with fewer samples.
    #[must_use]
    pub fn largest(&self, k: u64) -> Option<u64> {
        let all = vec![1; self.blocks()];
        let rank = self.samples().checked_sub(k)? + 1;
        (k > 0).then(|| self.at_rank(&all, rank))
    }

    /// The smallest and the largest value of any block; `None` without samples.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u64)> {
        Some((*self.values.first()?, *self.values.last()?))
    }

    fn row(&self, value: usize) -> &[u32] {
        &self.cumulative[value * self.blocks()..][..self.blocks()]
    }
}

fn dot(weights: &[u32], counts: &[u32]) -> u64 {
    weights
        .iter()
        .zip(counts)
        .map(|(&weight, &count)| u64::from(weight) * u64::from(count))
        .sum()
}

/// The recorded values of a time block, ascending, each the highest that its bucket stands for, and how often it was met.
pub(crate) type Counts = Vec<(u64, u32)>;

/// What a histogram holds, without its empty buckets.
pub(crate) fn counts(block: &Histogram<u64>) -> Counts {
    block
        .iter_recorded()
        .map(|step| {
            (
                step.value_iterated_to(),
                u32::try_from(step.count_at_value()).unwrap_or(u32::MAX),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(values: &[u64]) -> Histogram<u64> {
        let mut histogram = Histogram::new(3).unwrap();
        for &value in values {
            histogram.record(value).unwrap();
        }
        histogram
    }

    #[test]
    fn the_published_sample_counts() {
        let counts = [0.5, 0.95, 0.99, 0.999].map(samples_needed);
        assert_eq!(counts, [6, 72, 368, 3_688]);
    }

    #[test]
    fn one_sample_fewer_is_too_few() {
        for quantile in [0.95_f64, 0.99, 0.999] {
            let needed = i32::try_from(samples_needed(quantile)).unwrap();
            assert!(quantile.powi(needed) <= 0.025);
            assert!(quantile.powi(needed - 1) > 0.025);
        }
    }

    #[test]
    fn dependent_samples_count_for_fewer() {
        assert!(is_printable(0.99, 368, 10, 1.0) && !is_printable(0.99, 367, 10, 1.0));
        assert!(!is_printable(0.99, 368 * 16 - 1, 10, 4.0) && is_printable(0.99, 368 * 16, 10, 4.0));
        assert!(!is_printable(0.95, 72 * 40 - 1, 10, 10.0) && is_printable(0.95, 72 * 40, 10, 10.0));
        assert_eq!(samples_wanted(0.99, 10, 2.0), 368 * 4);
        assert!(is_printable(0.5, 6, 1, 0.0), "less than one is one");
    }

    #[test]
    fn repeats_too_short_to_settle_print_nothing() {
        // A queue of nine in flight: its median would be printed from 6 * 200 * 4 samples if they were one repeat.
        assert_eq!(samples_wanted(0.5, 1, 200.0), 6 * 200 * 4);
        assert_eq!(samples_wanted(0.5, 10, 200.0), 10 * 8 * 198);
        assert_eq!(
            samples_wanted(0.5, 10, LEAST_TIME),
            24,
            "what does not queue has nothing to settle"
        );
    }

    #[test]
    fn shares_and_values_of_some_blocks() {
        let table = BlockTable::new([&[histogram(&[5, 9]), histogram(&[7])][..]]);
        assert_eq!(
            [4, 5, 8, 9].map(|us| table.share_up_to(0..1, us)),
            [0.0, 0.5, 0.5, 1.0].map(Some)
        );
        assert_eq!(table.share_up_to(0..2, 7), Some(2.0 / 3.0));
        assert_eq!(table.share_up_to(1..1, 7), None);
        assert_eq!(table.values_between(6, 9), [7, 9]);
        assert_eq!(table.values_between(10, 6), [0; 0]);
    }

    #[test]
    fn the_largest_are_counted_from_the_end() {
        let table = BlockTable::new([&[histogram(&[5, 9]), histogram(&[7])][..]]);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|k| table.largest(k)),
            [None, Some(9), Some(7), Some(5), None]
        );
    }

    #[test]
    fn nothing_has_no_percentile() {
        assert_eq!(BlockTable::new([]).pooled_quantile(0.5), None);
        let empty = [histogram(&[])];
        assert_eq!(BlockTable::new([&empty[..]]).repeats().len(), 0);
        let table = BlockTable::new([&[histogram(&[5])][..]]);
        assert_eq!(table.quantile(&[0], 0.5), None);
        assert_eq!(table.quantile(&[7], 0.5), Some(5));
    }

    proptest! {
        /// Weighted percentiles are those of the histogram in which every block was recorded `weight` times.
        #[test]
        fn agrees_with_merged_histograms(
            blocks in prop::collection::vec(prop::collection::vec(1_u64..5_000_000, 0..60), 1..8),
            weights in prop::collection::vec(0_u32..4, 8),
            quantile in 0.001_f64..1.0,
        ) {
            let blocks: Vec<_> = blocks.iter().map(|values| histogram(values)).filter(|b| !b.is_empty()).collect();
            let table = BlockTable::new([&blocks[..]]);
            let mut merged = Histogram::<u64>::new(3).unwrap();
            for (block, &weight) in blocks.iter().zip(&weights) {
                for _ in 0..weight {
                    merged.add(block).unwrap();
                }
            }
            let expected = (!merged.is_empty()).then(|| merged.value_at_quantile(quantile));
            prop_assert_eq!(table.quantile(&weights[..blocks.len()], quantile), expected);
        }
    }
}
