//! Percentiles over many histograms.
//!
//! In: one histogram per time block of each repeat. Out: a table from which any weighting of the blocks gives its
//! percentiles quickly. Knows nothing of the choice of weights.

use hdrhistogram::Histogram;
use std::ops::Range;

/// Cumulative counts of all blocks over one common, sorted table of values.
#[derive(Debug, Clone)]
pub struct BlockTable {
    /// Distinct recorded values, ascending, each the highest of its histogram bucket.
    values: Vec<u64>,
    /// `cumulative[value * blocks + block]`: samples of the block at or below the value.
    cumulative: Vec<u32>,
    /// `by_repeat[value * repeats + repeat]`: samples of the repeat at or below the value.
    by_repeat: Vec<u64>,
    /// Samples per block.
    totals: Vec<u32>,
    /// Blocks of each repeat that have samples.
    repeats: Vec<Range<usize>>,
}

impl BlockTable {
    /// Creates the table of some repeats. Blocks and repeats without samples are left out: they are no evidence about a
    /// percentile.
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
        // A stable sort, which is fast for blocks that are sorted already.
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
        let sum = |row: &[u32], range: &Range<usize>| row[range.clone()].iter().copied().map(u64::from).sum();
        let by_repeat = cumulative
            .chunks(blocks.len().max(1))
            .flat_map(|row| ranges.iter().map(move |range| sum(row, range)))
            .collect();
        Self {
            values,
            cumulative,
            by_repeat,
            totals,
            repeats: ranges,
        }
    }

    /// Recorded values, ascending, each with the number of samples of each repeat at or below it.
    pub fn counts_by_repeat(&self) -> impl DoubleEndedIterator<Item = (u64, &[u64])> + ExactSizeIterator {
        let counts = self.by_repeat.chunks(self.repeats.len().max(1));
        self.values.iter().copied().zip(counts)
    }

    /// Mean of each repeat's samples.
    pub fn means(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.repeats.len()];
        let mut before = &vec![0; self.repeats.len()][..];
        for (value, counts) in self.counts_by_repeat() {
            for ((sum, count), before) in sums.iter_mut().zip(counts).zip(before) {
                *sum += (count - before) as f64 * value as f64;
            }
            before = counts;
        }
        let sums = sums.iter().zip(before);
        sums.map(|(sum, count)| sum / *count as f64).collect()
    }

    /// Mean of all samples; `None` without samples.
    pub fn mean(&self) -> Option<f64> {
        let (_, counts) = self.counts_by_repeat().next_back()?;
        let sums = self.means().into_iter().zip(counts);
        let sum: f64 = sums.map(|(mean, count)| mean * *count as f64).sum();
        Some(sum / self.samples() as f64)
    }

    /// Blocks of each repeat, as indices into a weighting.
    pub fn repeats(&self) -> &[Range<usize>] {
        &self.repeats
    }

    /// Number of blocks, and length of a weighting.
    pub fn blocks(&self) -> usize {
        self.totals.len()
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.totals.iter().copied().map(u64::from).sum()
    }

    /// Returns the quantile of the blocks, each counted `weights[block]` times: the smallest value with at least the
    /// share `quantile` of the samples at or below it, as HdrHistogram defines it. `None` without samples.
    pub fn quantile(&self, weights: &[u32], quantile: f64) -> Option<u64> {
        let total = dot(weights, &self.totals);
        if total == 0 {
            return None;
        }
        // Sample counts are far below 2^53.
        let rank = ((quantile * total as f64).ceil() as u64).clamp(1, total);
        Some(self.at_rank(weights, rank))
    }

    /// Returns the smallest value with at least `rank` weighted samples at or below it; there must be that many.
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

    /// Returns the quantile of all blocks, each counted once.
    pub fn pooled_quantile(&self, quantile: f64) -> Option<u64> {
        self.quantile(&vec![1; self.blocks()], quantile)
    }

    /// Returns the share of the samples of some blocks at or below a value; `None` without samples.
    pub fn share_up_to(&self, blocks: Range<usize>, value: u64) -> Option<f64> {
        let rows = self.values.partition_point(|recorded| *recorded <= value);
        let sum = |counts: &[u32]| counts[blocks.clone()].iter().copied().map(u64::from).sum::<u64>();
        let below = rows.checked_sub(1).map_or(0, |last| sum(self.row(last)));
        let all = sum(&self.totals);
        (all > 0).then(|| below as f64 / all as f64)
    }

    /// Recorded values in a closed range.
    pub fn values_between(&self, from: u64, to: u64) -> &[u64] {
        let start = self.values.partition_point(|recorded| *recorded < from);
        let end = self.values.partition_point(|recorded| *recorded <= to);
        &self.values[start.min(end)..end]
    }

    /// Smallest and largest value of any block; `None` without samples.
    pub fn range(&self) -> Option<(u64, u64)> {
        Some((*self.values.first()?, *self.values.last()?))
    }

    fn row(&self, value: usize) -> &[u32] {
        &self.cumulative[value * self.blocks()..][..self.blocks()]
    }
}

fn dot(weights: &[u32], counts: &[u32]) -> u64 {
    let pairs = weights.iter().zip(counts);
    let products = pairs.map(|(&weight, &count)| u64::from(weight) * u64::from(count));
    products.sum()
}

/// Recorded values of a time block, ascending, each the highest of its bucket, with their counts.
pub(crate) type Counts = Vec<(u64, u32)>;

/// Counts of a histogram, without its empty buckets.
pub(crate) fn counts(block: &Histogram<u64>) -> Counts {
    let count = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let steps = block.iter_recorded();
    let counts = steps.map(|step| (step.value_iterated_to(), count(step.count_at_value())));
    counts.collect()
}

/// Significant decimal digits of every histogram.
const DIGITS: u8 = 3;

/// Creates a histogram just large enough for its values, because a run holds thousands of them.
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
    fn repeats_have_counts_and_means() {
        let repeats = [vec![histogram(&[5, 9]), histogram(&[7])], vec![histogram(&[9])]];
        let table = BlockTable::new(repeats.iter().map(Vec::as_slice));
        let counts: Vec<(u64, Vec<u64>)> = table
            .counts_by_repeat()
            .map(|(us, counts)| (us, counts.to_vec()))
            .collect();
        assert_eq!(counts, [(5, vec![1, 0]), (7, vec![2, 0]), (9, vec![3, 1])]);
        assert_eq!((table.means(), table.mean()), (vec![7.0, 9.0], Some(7.5)));
        assert_eq!(BlockTable::new([]).mean(), None);
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
        /// Weighted percentiles equal those of the histogram in which every block was recorded `weight` times.
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
