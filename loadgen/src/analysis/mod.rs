//! From repeats to statements: percentiles with their intervals, cost, verdict.
//!
//! In: the repeats of a [`Point`] with their histograms, the limits and the prices. Out: its [`Summary`]. Pure and
//! seeded: the same repeats give the same summary. Must not know how a step is driven, nor how a summary is shown.
//!
//! - [`percentile`]: percentiles over many histograms, and from how many samples they may be printed
//! - [`bootstrap`], [`student`]: 95 % intervals
//! - [`mod@bands`]: where the time went, and whether the backlog grew
//! - [`littles_law`], [`verdict`]: whether to believe it
//! - [`cost`]: dollars per 10,000 inferences
//! - [`curves`]: points seen together

pub mod bands;
pub mod bootstrap;
pub mod cost;
pub mod curves;
pub mod littles_law;
pub mod percentile;
pub mod student;
pub mod verdict;

pub use bands::{backlog_slope, bands};

use crate::record::{Interval, Limits, Point, Pricing, Repeat, ServerDelta, Summary};
use bootstrap::{Pairing, RESAMPLES, Weights};
use hdrhistogram::Histogram;
use percentile::{BlockTable, samples_needed};

/// Fills in [`Point::summary`] of every point from its repeats and their histograms.
pub fn summarise(points: &mut [Point], limits: &Limits, pricing: Option<&Pricing>) {
    for point in points {
        point.summary = Some(summary(point, limits, pricing));
    }
}

/// What the repeats of a point say together.
#[must_use]
pub fn summary(point: &Point, limits: &Limits, pricing: Option<&Pricing>) -> Summary {
    let repeats = &point.repeats;
    let latency = clock(repeats, |repeat| &repeat.histograms.latency);
    let service_p99_us = clock(repeats, |repeat| &repeat.histograms.service).pooled_quantile(0.99);
    let lag_p99_us = clock(repeats, |repeat| &repeat.histograms.lag).pooled_quantile(0.99);
    let samples = latency.samples();
    let seed = repeats.first().map_or(0, |repeat| repeat.seed);
    let [p50_us, p95_us, p99_us] = latency_intervals(&latency, [0.5, 0.95, 0.99], seed);
    let achieved_rps = rate_interval(repeats);
    let rows = f64::from(point.factors.batch_size);
    let inferences_per_s = Interval {
        value: achieved_rps.value * rows,
        lo: achieved_rps.lo * rows,
        hi: achieved_rps.hi * rows,
    };
    let evidence = verdict::Evidence {
        offered_rps: point.factors.offered_rps,
        samples,
        p50_us: latency.pooled_quantile(0.5).unwrap_or(0) as f64,
        p99_us: latency.pooled_quantile(0.99).unwrap_or(0) as f64,
        lag_p99_us: lag_p99_us.unwrap_or(0) as f64,
        steps: repeats.iter().map(verdict::Step::from).collect(),
    };
    let printable = |us: Option<u64>| us.filter(|_| samples >= samples_needed(0.99)).map(|us| us as f64);
    let cost = pricing.and_then(|pricing| cost::cost(&point.factors, repeats, &achieved_rps, pricing));
    let scheduled: u64 = repeats.iter().map(|repeat| repeat.scheduled).sum();
    let errors: u64 = repeats.iter().flat_map(|repeat| repeat.errors.values()).sum();
    let server = |of: fn(&ServerDelta) -> f64| -> f64 { repeats.iter().flat_map(|r| &r.server).map(of).sum() };
    let lookups = server(|delta| delta.cache_hits + delta.cache_misses);
    let inferences = server(|delta| delta.inferences);
    Summary {
        samples,
        p50_us,
        p95_us,
        p99_us,
        service_p99_us: printable(service_p99_us),
        lag_p99_us: printable(lag_p99_us),
        achieved_rps,
        inferences_per_s,
        error_share: if scheduled == 0 {
            0.0
        } else {
            errors as f64 / scheduled as f64
        },
        errors,
        cache_hit_ratio: (lookups > 0.0).then(|| server(|delta| delta.cache_hits) / lookups),
        tier_requests_per_inference: (inferences > 0.0).then(|| server(|delta| delta.tier_requests) / inferences),
        in_flight: littles_law::in_flight(repeats),
        usd_per_10k: cost.as_ref().map(|cost| cost.usd_per_10k),
        usd_parts: cost.map(|cost| cost.parts).unwrap_or_default(),
        bands: bands::merge(repeats.iter().map(|repeat| repeat.bands.as_slice())),
        verdict: verdict::verdict(&evidence, limits),
    }
}

fn clock(repeats: &[Repeat], of: impl Fn(&Repeat) -> &Vec<Histogram<u64>>) -> BlockTable {
    BlockTable::new(repeats.iter().map(|repeat| of(repeat).as_slice()))
}

/// Percentiles with their intervals, from one bootstrap of their logarithms; `None` where there are too few samples,
/// or a single time block and so nothing to tell a variation by.
///
/// An interval ends where the samples end. Three repeats of which one stalled have an interval of many decades by
/// Student's t; [`samples_needed`] is the count from which the smallest and the largest sample enclose the percentile
/// in 95 % of all runs by themselves, so nothing is lost by stopping there.
fn latency_intervals<const N: usize>(table: &BlockTable, quantiles: [f64; N], seed: u64) -> [Option<Interval>; N] {
    let statistics =
        quantiles.map(|q| move |weights: &Weights| Some((table.quantile(&weights[0], q)?.max(1) as f64).ln()));
    let borrowed: Vec<bootstrap::Statistic<'_>> = statistics
        .iter()
        .map(|statistic| statistic as bootstrap::Statistic<'_>)
        .collect();
    let logs = bootstrap::intervals(&[table], Pairing::ByRepeat, &borrowed, RESAMPLES, seed);
    std::array::from_fn(|index| {
        let enough = table.samples() >= samples_needed(quantiles[index]);
        let interval = logs[index].filter(|_| enough).map(curves::exponential)?;
        let (least, most) = table.range()?;
        Some(Interval {
            lo: interval.lo.max(least as f64).min(interval.value),
            hi: interval.hi.min(most as f64).max(interval.value),
            ..interval
        })
    })
}

/// Good replies per second: the mean over the repeats with Student's interval, or for a single repeat the interval of
/// a Poisson count (Wilson and Hilferty's approximation, within a percent of the exact one).
fn rate_interval(repeats: &[Repeat]) -> Interval {
    let rates: Vec<f64> = repeats.iter().map(|repeat| repeat.achieved_rps).collect();
    if let Some(interval) = bootstrap::mean_interval(&rates) {
        return Interval {
            lo: interval.lo.max(0.0),
            ..interval
        };
    }
    let Some(repeat) = repeats.first().filter(|repeat| repeat.achieved_rps > 0.0) else {
        return Interval::default();
    };
    let count = repeat.achieved_rps * repeat.window_s;
    let end = |count: f64, side: f64| {
        count
            * (1.0 - 1.0 / (9.0 * count) + side * student::Z95 / (3.0 * count.sqrt()))
                .max(0.05)
                .powi(3)
    };
    Interval {
        value: repeat.achieved_rps,
        lo: end(count, -1.0) / repeat.window_s,
        hi: end(count + 1.0, 1.0) / repeat.window_s,
    }
}
