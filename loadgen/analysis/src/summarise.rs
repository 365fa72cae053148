//! The figures of a point. In: its repeats with their histograms, the limits and the prices. Out: its [`Summary`]. Pure: the same
//! repeats give the same summary.

use crate::costs::{cost, mix_shares};
use crate::curves::exponential;
use crate::gpu;
use crate::latency::{availability, bands, goodput, tail};
use crate::record::{Driven, Gap, Interval, Limits, Percentile, Point, Pricing, Repeat, Summary};
use crate::statistics::dependence::Dependence;
use crate::statistics::percentile::{BlockTable, is_printable};
use crate::statistics::{early_stopping, order, sections, student};
use crate::validity::disturbance::counted;
use crate::validity::evidence::{Evidence, StepEvidence};
use crate::validity::{closed_loop, littles_law, stationarity, verdict};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Fills in [`Point::summary`] of every point from its repeats and their histograms.
pub fn summarise(points: &mut [Point], limits: &Limits, pricing: Option<&Pricing>) {
    for point in &mut *points {
        point.summary = Some(all_figures(point, limits, pricing));
    }
    withhold(points);
}

/// Takes out of the summaries, which have every figure, the percentiles that there are too few samples for.
pub fn withhold(points: &mut [Point]) {
    let assumed = availability::assumed(points);
    for (point, assumed) in points.iter_mut().zip(assumed) {
        if let Some(summary) = &mut point.summary {
            keep_printable(summary, counted(&point.repeats).len(), assumed);
        }
    }
}

/// What the repeats of a point say together, by themselves.
#[must_use]
pub fn summary(point: &Point, limits: &Limits, pricing: Option<&Pricing>) -> Summary {
    let mut summary = all_figures(point, limits, pricing);
    keep_printable(&mut summary, counted(&point.repeats).len(), availability::alone(point));
    summary
}

/// Takes out the percentiles that there are too few samples for.
fn keep_printable(summary: &mut Summary, repeats: usize, assumed: Dependence) {
    (
        summary.assumed_autocorrelation_time,
        summary.assumed_tail_autocorrelation_time,
    ) = (assumed.body, assumed.tail);
    let samples = summary.samples;
    let printable = |quantile: f64| is_printable(quantile, samples, repeats, assumed.at(quantile));
    summary.p50_us = summary.p50_us.filter(|_| printable(0.5));
    summary.p95_us = summary.p95_us.filter(|_| printable(0.95));
    summary.p99_us = summary.p99_us.filter(|_| printable(0.99));
    for us in [&mut summary.service_p99_us, &mut summary.lag_p99_us] {
        *us = us.filter(|_| printable(0.99));
    }
    summary.gaps.retain(|gap| printable(gap.percentile.quantile()));
}

/// Every figure, whether or not there are samples enough to print it.
#[must_use]
pub fn all_figures(point: &Point, limits: &Limits, pricing: Option<&Pricing>) -> Summary {
    let repeats = &*counted(&point.repeats);
    let latency = clock(repeats, |repeat| &repeat.histograms.latency);
    let service_p99_us = clock(repeats, |repeat| &repeat.histograms.service).pooled_quantile(0.99);
    let lag_p99_us = clock(repeats, |repeat| &repeat.histograms.lag).pooled_quantile(0.99);
    let samples = latency.samples();
    let dependence = dependence(repeats);
    let [p50_us, p95_us, p99_us] = [0.5, 0.95, 0.99].map(|quantile| latency_interval(&latency, quantile));
    let [p95_bound_us, p99_bound_us] =
        [0.95, 0.99].map(|quantile| early_stopping::bound(&latency, quantile).map(|us| us as f64));
    let achieved_rps = rate_interval(repeats, |repeat| repeat.achieved_rps);
    let rows = repeats
        .iter()
        .map(|repeat| repeat.inferences_per_request(&point.factors));
    let rows = rows.sum::<f64>() / repeats.len().max(1) as f64;
    let inferences_per_s = Interval {
        value: achieved_rps.value * rows,
        lo: achieved_rps.lo * rows,
        hi: achieved_rps.hi * rows,
    };
    let drifts = stationarity::drifts(repeats);
    let evidence = Evidence {
        offered_rps: point.factors.offered_rps,
        samples,
        p50_us: latency.pooled_quantile(0.5).unwrap_or(0) as f64,
        p99_us: latency.pooled_quantile(0.99).unwrap_or(0) as f64,
        lag_p99_us: lag_p99_us.unwrap_or(0) as f64,
        drifts: drifts.iter().map(ToString::to_string).collect(),
        steps: repeats.iter().map(StepEvidence::from).collect(),
    };
    let (verdict, faults) = match &point.factors.driven {
        Some(Driven::ClosedLoop { .. }) => verdict::judge_closed_loop(&evidence, closed_loop::figures(repeats), limits),
        Some(Driven::Journey { step: Some(_), .. }) => verdict::judge_step(&evidence, limits),
        _ => verdict::judge(&evidence, limits),
    };
    // A journey is paid as a whole: its steps share the server's hour and the tier, and nobody knows what each has of them.
    let pricing = pricing.filter(|_| !matches!(&point.factors.driven, Some(Driven::Journey { step: Some(_), .. })));
    let cost = pricing.and_then(|pricing| cost::cost(&point.factors, repeats, &achieved_rps, pricing));
    let scheduled: u64 = repeats.iter().map(|repeat| repeat.scheduled).sum();
    let errors: u64 = repeats.iter().flat_map(|repeat| repeat.errors.values()).sum();
    Summary {
        samples,
        p50_us,
        p95_us,
        p99_us,
        p95_bound_us,
        p99_bound_us,
        autocorrelation_time: dependence.body,
        tail_autocorrelation_time: dependence.tail,
        assumed_autocorrelation_time: 1.0,
        assumed_tail_autocorrelation_time: 1.0,
        gaps: gaps(&latency),
        service_p99_us: service_p99_us.map(|us| us as f64),
        lag_p99_us: lag_p99_us.map(|us| us as f64),
        achieved_rps,
        goodput_rps: limits
            .objective_us
            .map(|limit_us| rate_interval(repeats, |repeat| goodput::rate(repeat, limit_us))),
        goodput_share: limits
            .objective_us
            .and_then(|limit_us| goodput::share(repeats, limit_us)),
        inferences_per_s,
        error_share: if scheduled == 0 {
            0.0
        } else {
            errors as f64 / scheduled as f64
        },
        errors,
        cache_hit_ratio: cost::hit_ratio(repeats),
        tier_requests_per_inference: cost::tier_requests_per_inference(repeats),
        in_flight: littles_law::in_flight(repeats),
        usd_per_10k: cost.as_ref().map(|cost| cost.usd_per_10k),
        mix_share: mix_shares::mean(repeats),
        usd_parts: cost.map(|cost| cost.parts).unwrap_or_default(),
        joules_per_inference: gpu::joules_per_inference(repeats),
        gpu_time: gpu::idle_by_cause(repeats),
        session_shares: session_shares(repeats),
        bands: bands::over_repeats(repeats),
        tail: tail::tail(repeats),
        drifts,
        faults,
        verdict,
    }
}

/// What the server's session threads spent their time on, all repeats together.
fn session_shares(repeats: &[Repeat]) -> Vec<(String, f64)> {
    let mut seconds: BTreeMap<&str, f64> = BTreeMap::new();
    for (state, s) in repeats
        .iter()
        .flat_map(|repeat| &repeat.server)
        .flat_map(|server| &server.session_seconds)
    {
        *seconds.entry(state).or_default() += s;
    }
    let all: f64 = seconds.values().sum();
    seconds
        .into_iter()
        .filter(|_| all > 0.0)
        .map(|(state, seconds)| (state.to_owned(), seconds / all))
        .collect()
}

fn clock(repeats: &[Repeat], of: impl Fn(&Repeat) -> &Vec<Histogram<u64>>) -> BlockTable {
    BlockTable::new(repeats.iter().map(|repeat| of(repeat).as_slice()))
}

/// Of all repeats: each counted by its samples.
fn dependence(repeats: &[Repeat]) -> Dependence {
    let scheduled: u64 = repeats.iter().map(|repeat| repeat.scheduled).sum();
    let mean = |of: fn(&Repeat) -> f64| {
        let weighted: f64 = repeats.iter().map(|repeat| of(repeat) * repeat.scheduled as f64).sum();
        (weighted / scheduled.max(1) as f64).max(1.0)
    };
    Dependence {
        body: mean(|repeat| repeat.autocorrelation_time),
        tail: mean(|repeat| repeat.tail_autocorrelation_time.unwrap_or(repeat.autocorrelation_time)),
    }
}

/// The percentiles that lie on a gap of the distribution.
fn gaps(latency: &BlockTable) -> Vec<Gap> {
    [Percentile::P50, Percentile::P95, Percentile::P99]
        .into_iter()
        .filter_map(|percentile| {
            let gap = order::interval(latency, percentile.quantile())?.gap?;
            Some(Gap {
                percentile,
                share: gap.share,
                from_us: gap.from_us,
                to_us: gap.to_us,
            })
        })
        .collect()
}

/// A percentile with its 95 % interval; `None` with fewer samples than independent ones would need, or with a single time
/// block and so nothing to tell a variation by.
///
/// The interval reaches as far as either of two says: the spread of the sections, and order statistics ([`order`]), which
/// know of a gap or a thin place that the percentile lies on.
///
/// An interval ends where the samples end. Three repeats of which one stalled have an interval of many decades by
/// Student's t; [`samples_needed`](crate::statistics::percentile::samples_needed) is the count from which the smallest and the largest sample enclose the
/// percentile in 95 % of all runs by themselves, so nothing is lost by stopping there.
#[must_use]
pub fn latency_interval(table: &BlockTable, quantile: f64) -> Option<Interval> {
    if !is_printable(quantile, table.samples(), table.repeats().len(), 1.0) {
        return None;
    }
    let interval = sections::log_quantile(table, quantile)?.interval(sections::OUTSIDE);
    let mut interval = exponential(interval);
    if let Some(order) = order::interval(table, quantile) {
        interval.lo = interval.lo.min(order.lo_us);
        interval.hi = interval.hi.max(order.hi_us);
    }
    let (least, most) = table.range()?;
    Some(Interval {
        lo: interval.lo.max(least as f64).min(interval.value),
        hi: interval.hi.min(most as f64).max(interval.value),
        ..interval
    })
}

/// Rate per second: the mean over the repeats with Student's interval, or for a single repeat the interval of a Poisson
/// count (Wilson and Hilferty's approximation, within a percent of the exact one).
fn rate_interval(repeats: &[Repeat], rate: impl Fn(&Repeat) -> f64) -> Interval {
    let rates: Vec<f64> = repeats.iter().map(rate).collect();
    if let Some(interval) = sections::mean_interval(&rates) {
        return Interval {
            lo: interval.lo.max(0.0),
            ..interval
        };
    }
    let (Some(&rate), Some(repeat)) = (rates.first().filter(|rate| **rate > 0.0), repeats.first()) else {
        return Interval::default();
    };
    let count = rate * repeat.window_s;
    let end = |count: f64, side: f64| {
        count
            * (1.0 - 1.0 / (9.0 * count) + side * student::Z95 / (3.0 * count.sqrt()))
                .max(0.05)
                .powi(3)
    };
    Interval {
        value: rate,
        lo: end(count, -1.0) / repeat.window_s,
        hi: end(count + 1.0, 1.0) / repeat.window_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Factors, Fault, Histograms, Mode, Verdict};
    use crate::statistics::histogram::histogram;

    /// Repeats of 1,000 requests, those disturbed of 50 ms and the others of 1 ms.
    fn summarised(disturbed: &[bool]) -> Summary {
        let repeats = (0..).zip(disturbed).map(|(index, &disturbed)| {
            let us: u64 = if disturbed { 50_000 } else { 1_000 };
            let blocks = |us: u64| vec![histogram(&[us; 100]); 10];
            Repeat {
                index,
                window_s: 10.0,
                scheduled: 1_000,
                completed: 1_000,
                achieved_rps: 100.0,
                disturbed: disturbed.then(|| "a compiler ran".to_owned()),
                histograms: Histograms {
                    block_s: 1.0,
                    latency: blocks(us),
                    service: blocks(us),
                    lag: blocks(1),
                    failed: Vec::new(),
                },
                ..Repeat::empty()
            }
        });
        let factors = Factors {
            variant: String::new(),
            tier: "t".into(),
            cache: "off".into(),
            cache_share: 0.0,
            model: "m".into(),
            mode: Mode::Realtime,
            batch_size: 1,
            offered_rps: 100.0,
            arrivals: "constant".into(),
            keys: "uniform".into(),
            mix: None,
            driven: None,
        };
        let point = Point {
            factors,
            repeats: repeats.collect(),
            summary: None,
        };
        summary(&point, &Limits::default(), None)
    }

    #[test]
    fn a_disturbed_repeat_does_not_spoil_the_others() {
        let found = summarised(&[false, true, false, false]);
        assert_eq!(found.samples, 3_000);
        assert!(found.p99_us.unwrap().hi < 2_000.0, "{:?}", found.p99_us);
        assert_eq!(found.verdict, Verdict::Valid);
    }

    #[test]
    fn where_too_few_others_remain_the_point_is_invalid() {
        let found = summarised(&[true, true, true, false]);
        assert_eq!(found.samples, 4_000);
        assert!(found.faults.contains(&Fault::Disturbed), "{:?}", found.faults);
        let verdict = found.verdict.to_string();
        assert!(
            verdict.contains("invalid: disturbed in 3 of 4 repeats: a compiler ran"),
            "{verdict}"
        );
    }
}
