//! Statistics of each repeat of two points, and their differences.
//!
//! In: two points. Out: their [`Figure`]s. Pure. Every statistic is one number per repeat, and repeats are independent,
//! so no figure needs a count of independent requests. Knows nothing of decisions.

use super::comparison::{Figure, Scale, SlowShare};
use crate::costs::cost;
use crate::record::{Interval, Point, Pricing, Repeat, StreamFigure, counted, samples_needed};
use crate::statistics::mean;
use crate::statistics::percentile::BlockTable;
use crate::statistics::sections::{OUTSIDE, Pairing, log_ratio, of_means};
use hdrhistogram::Histogram;
use std::ops::Range;
use std::slice::from_ref;

/// Returns the pairing of two points' repeats: by repeat if at least two have the same index and all of these have
/// equal seeds, and so equal arrivals and keys.
pub fn pairing(a: &Point, b: &Point) -> Pairing {
    Sides::new(&counted(&a.repeats), &counted(&b.repeats)).pairing
}

/// Percentiles of streamed replies, which are compared like latencies.
const STREAMS: [(StreamFigure, [(&str, f64); 2]); 2] = [
    (StreamFigure::Ttft, [("ttft p50", 0.5), ("ttft p99", 0.99)]),
    (StreamFigure::Gap, [("gap p50", 0.5), ("gap p99", 0.99)]),
];

/// Returns the figures of two points. A cost is a figure if either run has a price for it, and has no estimate if only
/// one has.
pub fn figures(a: &Point, b: &Point, pricing: [Option<&Pricing>; 2]) -> Vec<Figure> {
    let (counted_a, counted_b) = (counted(&a.repeats), counted(&b.repeats));
    let sides = Sides::new(&counted_a, &counted_b);
    let mut figures = sides.percentiles([("p50", 0.5), ("p95", 0.95), ("p99", 0.99)], |repeat| {
        &repeat.histograms.latency
    });
    for (of, names) in STREAMS {
        let mut repeats = sides.repeats.iter().flatten();
        if repeats.any(|repeat| !stream_blocks(repeat, of).is_empty()) {
            figures.extend(sides.percentiles(names, |repeat| stream_blocks(repeat, of)));
        }
    }
    figures.extend(sides.logarithms("mean", Scale::MoreIsWorse, |_, repeat| mean_latency(repeat)));
    figures.extend(throughput(a, b));
    let prices = [(a, pricing[0]), (b, pricing[1])];
    figures.extend(sides.logarithms("$/10k", Scale::MoreIsWorse, |side, repeat| {
        let (point, pricing) = prices[side];
        let usd: f64 = cost::parts(&point.factors, repeat, pricing?)?.iter().sum();
        (usd > 0.0).then_some(usd)
    }));
    figures
}

/// Returns failures and good replies per second, the figures that also hold at saturation.
pub fn throughput(a: &Point, b: &Point) -> Vec<Figure> {
    let (counted_a, counted_b) = (counted(&a.repeats), counted(&b.repeats));
    let sides = Sides::new(&counted_a, &counted_b);
    let rate = sides.logarithms("good/s", Scale::LessIsWorse, |side, repeat| {
        Some(cost::answered_rps(&[a, b][side].factors, repeat))
    });
    std::iter::once(errors(a, b)).chain(rate).collect()
}

/// Compares the failed shares of requests. If no request failed in either run, nothing needs a decision.
pub fn errors(a: &Point, b: &Point) -> Figure {
    let share = |repeat: &Repeat| repeat.errors.values().sum::<u64>() as f64 / repeat.scheduled.max(1) as f64;
    let [of_a, of_b] = [a, b].map(|point| counted(&point.repeats).iter().map(share).collect::<Vec<f64>>());
    Figure {
        values: Some((mean(&of_a), mean(&of_b))),
        // Failures in one run do not depend on those in the other, whatever the seed.
        estimate: of_means(&of_a, &of_b, Pairing::Independent),
        ..Figure::unknown("errors", Scale::Share)
    }
}

/// Returns the ratio `b / a` of a latency percentile of two points, with its 95 % interval, over the repeats that both have.
/// `None` if either has too few samples for the percentile.
pub fn ratio(a: &Point, b: &Point, quantile: f64) -> Option<Interval> {
    let (counted_a, counted_b) = (counted(&a.repeats), counted(&b.repeats));
    let table = |of: &[Repeat], others: &[Repeat]| {
        let paired = |index: u32| others.iter().any(|repeat| repeat.index == index);
        let mut repeats: Vec<_> = of.iter().filter(|repeat| paired(repeat.index)).collect();
        repeats.sort_by_key(|repeat| repeat.index);
        BlockTable::new(repeats.iter().map(|repeat| repeat.histograms.latency.as_slice()))
    };
    let (table_a, table_b) = (table(&counted_a, &counted_b), table(&counted_b, &counted_a));
    if table_a.samples().min(table_b.samples()) < samples_needed(quantile) {
        return None;
    }
    // A repeat without samples cannot be matched by position, so there is no difference then.
    let log_ratio = log_ratio(&table_a, &table_b, quantile)?;
    Some(log_ratio.interval(OUTSIDE).map(f64::exp))
}

/// Compared repeats of two points, in the order of their indices if paired.
struct Sides<'a> {
    repeats: [Vec<&'a Repeat>; 2],
    pairing: Pairing,
}

impl<'a> Sides<'a> {
    fn new(a: &'a [Repeat], b: &'a [Repeat]) -> Self {
        let other = |index: u32| b.iter().find(|repeat| repeat.index == index);
        let common = a.iter().filter_map(|repeat| Some((repeat, other(repeat.index)?)));
        let mut common: Vec<(&Repeat, &Repeat)> = common.collect();
        if common.len() >= 2 && common.iter().all(|(a, b)| a.seed == b.seed) {
            common.sort_by_key(|(repeat, _)| repeat.index);
            let (a, b) = common.into_iter().unzip();
            return Self {
                repeats: [a, b],
                pairing: Pairing::ByRepeat,
            };
        }
        let repeats = [a, b].map(|repeats| repeats.iter().collect());
        Self {
            repeats,
            pairing: Pairing::Independent,
        }
    }

    /// Compares a positive statistic of every repeat by its logarithm. `None` if neither side has it.
    fn logarithms(
        &self,
        what: &'static str,
        scale: Scale,
        of: impl Fn(usize, &Repeat) -> Option<f64>,
    ) -> Option<Figure> {
        let [a, b]: [Option<Vec<f64>>; 2] =
            [0, 1].map(|side| self.repeats[side].iter().map(|repeat| of(side, repeat)).collect());
        if a.is_none() && b.is_none() {
            return None;
        }
        let both = a.zip(b);
        Some(Figure {
            values: both.as_ref().map(|(a, b)| (mean(a), mean(b))),
            estimate: both.and_then(|(a, b)| of_means(&logarithms(&a), &logarithms(&b), self.pairing)),
            ..Figure::unknown(what, scale)
        })
    }

    /// Compares percentiles of the blocks of each repeat; without estimates if a repeat has no samples.
    fn percentiles<const N: usize>(
        &self,
        names: [(&'static str, f64); N],
        blocks: impl Fn(&'a Repeat) -> &'a [Histogram<u64>],
    ) -> Vec<Figure> {
        let table = BlockTable::new(self.repeats.iter().flatten().copied().map(blocks));
        let split = self.repeats[0].len();
        let complete = table.repeats().len() == split + self.repeats[1].len();
        let sides = complete.then(|| table.repeats().split_at(split));
        let figure = |(what, quantile)| {
            let compared = sides.and_then(|sides| self.percentile(&table, sides, what, quantile));
            compared.unwrap_or_else(|| Figure::unknown(what, Scale::MoreIsWorse))
        };
        names.map(figure).into()
    }

    /// Compares a percentile of all requests of each side, with the difference between the repeats' percentiles and the
    /// share of slow requests.
    fn percentile(
        &self,
        table: &BlockTable,
        (a, b): (&[Range<usize>], &[Range<usize>]),
        what: &'static str,
        quantile: f64,
    ) -> Option<Figure> {
        let at = |ranges: &[Range<usize>]| {
            let mut weights = vec![0; table.blocks()];
            for range in ranges {
                weights[range.clone()].fill(1);
            }
            table.quantile(&weights, quantile).map(|us| us.max(1) as f64)
        };
        let of_each = |ranges: &[Range<usize>]| {
            let values = ranges.iter().map(|range| at(from_ref(range)));
            values.collect::<Option<Vec<f64>>>()
        };
        let values = (at(a)?, at(b)?);
        // Between the two percentiles, so that requests of either side may lie beyond it.
        let beyond_us = (values.0 * values.1).sqrt();
        let slow = |ranges: &[Range<usize>]| {
            let share = |range: &Range<usize>| Some(1.0 - table.share_up_to(range.clone(), beyond_us as u64)?);
            ranges.iter().map(share).collect::<Option<Vec<f64>>>()
        };
        let (slow_a, slow_b) = (slow(a)?, slow(b)?);
        Some(Figure {
            values: Some(values),
            estimate: of_means(&logarithms(&of_each(a)?), &logarithms(&of_each(b)?), self.pairing),
            slow: of_means(&slow_a, &slow_b, self.pairing).map(|estimate| SlowShare {
                beyond_us,
                shares: (mean(&slow_a), mean(&slow_b)),
                estimate,
            }),
            ..Figure::unknown(what, Scale::MoreIsWorse)
        })
    }
}

/// Blocks of a figure of streamed replies; empty if the repeat has none.
fn stream_blocks(repeat: &Repeat, of: StreamFigure) -> &[Histogram<u64>] {
    repeat.histograms.streams.get(&of).map_or(&[], Vec::as_slice)
}

/// Mean latency of a repeat in microseconds.
fn mean_latency(repeat: &Repeat) -> Option<f64> {
    let blocks = repeat.histograms.latency.iter().filter(|block| !block.is_empty());
    let (sum, count) = blocks.fold((0.0, 0.0), |(sum, count), block| {
        (sum + block.mean() * block.len() as f64, count + block.len() as f64)
    });
    (count > 0.0).then(|| sum / count)
}

fn logarithms(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| value.max(1e-9).ln()).collect()
}
