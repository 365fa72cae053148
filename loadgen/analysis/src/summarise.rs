//! Figures of points, and conclusions of a run. In: repeats with their histograms, the limits and the prices. Out: each point's
//! [`Summary`], the findings of each curve, and the answer to the run's question. Pure.

use crate::costs::{cost, mix_shares};
use crate::curve::{Curve, curves, without_rate};
use crate::curves::slo;
use crate::decision;
use crate::latency::{bands, grade, objective, tail};
use crate::record::{
    Driven, Factors, Finding, Grade, Grades, IdleByCause, Interval, Limits, Percentile, Point, Pricing, RAMP_BLOCKS,
    RampBlock, RampRates, Repeat, Run, ServerDelta, Slo, StreamFigure, StreamSummary, Summary, counted,
};
use crate::statistics::percentile::BlockTable;
use crate::statistics::{inversion, sections, student};
use crate::validity::rules::Evidence;
use crate::validity::verdict::judge_driven;
use crate::validity::{laws, stationarity};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Fills in the summaries of a run's points, its findings and its answer.
pub fn conclude(run: &mut Run) {
    run.limits.allow(run.question.as_ref());
    summarise(&mut run.points, &run.limits, run.pricing.as_ref());
    run.findings = findings(&run.points, run.slo.as_ref(), &run.limits);
    run.answer = decision::answer(run);
}

/// Returns the finding of each curve of summarised points, in the order in which the curves first appear.
pub fn findings(points: &[Point], objective: Option<&Slo>, limits: &Limits) -> Vec<Finding> {
    let finding = |curve: &Curve<'_>| Finding {
        factors: without_rate(curve.factors()),
        highest_valid_rps: curve.highest_valid().map(|point| point.factors.offered_rps),
        knee_rps: curve.knee(),
        slo: objective.and_then(|objective| slo::finding(curve, objective, limits)),
    };
    curves(points).iter().map(finding).collect()
}

/// Fills in [`Point::summary`] of every point from its repeats and their histograms.
pub fn summarise(points: &mut [Point], limits: &Limits, pricing: Option<&Pricing>) {
    for point in &mut *points {
        point.summary = Some(all_figures(point, limits, pricing));
    }
    withhold(points);
}

/// Removes the percentiles with too few requests from full summaries, and grades the others.
pub fn withhold(points: &mut [Point]) {
    let queueing = grade::queueing(points);
    for (point, queueing) in points.iter_mut().zip(queueing) {
        let repeats = counted(&point.repeats).len();
        if let Some(summary) = &mut point.summary {
            grade_percentiles(summary, repeats, queueing);
        }
    }
}

/// Summarises a point without the other points of its run.
pub fn summary(point: &Point, limits: &Limits, pricing: Option<&Pricing>) -> Summary {
    let mut points = [point.clone()];
    summarise(&mut points, limits, pricing);
    let [Point { summary, .. }] = points;
    summary.unwrap_or_else(|| unreachable!("it was filled in above"))
}

/// Removes the percentiles with too few requests, and grades the others: a rough percentile has no upper bound.
fn grade_percentiles(summary: &mut Summary, repeats: usize, queueing: f64) {
    let samples = summary.samples;
    let graded = |quantile: f64| grade::grade(quantile, samples, repeats, queueing);
    let show = |shown: &mut Option<Interval>, stored_grade: &mut Option<Grade>, grade: Option<Grade>| {
        *shown = shown.filter(|_| grade.is_some());
        *stored_grade = grade.filter(|_| shown.is_some());
        if let (Some(interval), Some(Grade::Rough)) = (shown, grade) {
            interval.hi = f64::INFINITY;
        }
    };
    for percentile in Percentile::ALL {
        let (shown, stored_grade) = summary.percentile_mut(percentile);
        show(shown, stored_grade, graded(percentile.quantile()));
    }
    // A mean is as uncertain as a p95 in simulation, and takes no more requests than a median.
    let of_mean =
        graded(Percentile::P50.quantile()).map(|_| graded(Percentile::P95.quantile()).unwrap_or(Grade::Rough));
    show(&mut summary.mean_us, &mut summary.grades.mean_grade, of_mean);
    for us in [&mut summary.service_p99_us, &mut summary.lag_p99_us] {
        *us = us.filter(|_| graded(0.99).is_some());
    }
    for figure in summary.streams.values_mut() {
        let percentiles = figure.percentiles.iter();
        let shown = percentiles.filter_map(|(&percentile, &interval)| {
            let (mut shown, mut stored_grade) = (Some(interval), None);
            show(&mut shown, &mut stored_grade, graded(percentile.quantile()));
            Some((percentile, shown?))
        });
        figure.percentiles = shown.collect();
    }
    summary.gaps.retain(|gap| graded(gap.percentile.quantile()).is_some());
}

/// Computes every figure, even those with too few samples to print.
pub fn all_figures(point: &Point, limits: &Limits, pricing: Option<&Pricing>) -> Summary {
    let repeats = &*counted(&point.repeats);
    let latency = block_table(repeats, |repeat| &repeat.histograms.latency);
    let gap = |percentile| inversion::gap(&latency, percentile);
    let lag = block_table(repeats, |repeat| &repeat.histograms.lag);
    let p99 = |table: &BlockTable| table.pooled_quantile(0.99).map(|us| us as f64);
    let [p50_us, p90_us, p95_us, p99_us, p999_us] =
        Percentile::ALL.map(|percentile| latency_interval(&latency, percentile.quantile()));
    let rate_of = |rate: &dyn Fn(&Repeat) -> f64| rate_interval(&point.factors, repeats, rate);
    let achieved_rps = rate_of(&|repeat| repeat.achieved_rps);
    let drifts = stationarity::drifts(repeats);
    let evidence = Evidence {
        drifts: drifts.iter().map(ToString::to_string).collect(),
        ..Evidence::of(&point.factors, repeats, &latency, &lag)
    };
    let (verdict, faults) = judge_driven(point.factors.driven.as_ref(), &evidence, limits);
    // A journey is paid as a whole: its steps share the server's hour and the tier, and the share of each is unknown.
    let pricing = pricing.filter(|_| !matches!(&point.factors.driven, Some(Driven::Journey { step: Some(_), .. })));
    let cost = pricing.and_then(|pricing| cost::cost(&point.factors, repeats, &achieved_rps, pricing));
    let scheduled: u64 = repeats.iter().map(|repeat| repeat.scheduled).sum();
    let errors: u64 = repeats.iter().flat_map(|repeat| repeat.errors.values()).sum();
    // An objective on streams is counted reply by reply, so that it needs no limit here.
    let by_reply = || repeats.iter().any(|repeat| repeat.in_time.is_some()).then_some(0.0);
    let limit_us = limits.objective_us.or(limits.goodput_us).or_else(by_reply);
    Summary {
        samples: latency.samples(),
        p50_us,
        p90_us,
        p95_us,
        p99_us,
        p999_us,
        mean_us: mean_interval(&latency),
        max_us: latency.range().map(|(_, most)| most as f64),
        grades: Grades::default(),
        autocorrelation_time: autocorrelation_time(repeats),
        gaps: Percentile::ALL.into_iter().filter_map(gap).collect(),
        service_p99_us: p99(&block_table(repeats, |repeat| &repeat.histograms.service)),
        lag_p99_us: p99(&lag),
        achieved_rps,
        goodput_rps: limit_us.map(|limit_us| rate_of(&|repeat| objective::rate(repeat, limit_us))),
        goodput_share: limit_us.and_then(|limit_us| objective::share(repeats, limit_us)),
        streams: streams(repeats),
        ramp: match &point.factors.driven {
            Some(Driven::Ramp(rates)) => {
                let block = |index| ramp_block(index, rates, &point.factors, repeats);
                (0..RAMP_BLOCKS).filter_map(block).collect()
            }
            _ => Vec::new(),
        },
        inferences_per_s: achieved_rps.map(|rps| rps * rows_per_request(&point.factors, repeats)),
        error_share: errors as f64 / scheduled.max(1) as f64,
        errors,
        cache_hit_ratio: cost::hit_ratio(repeats),
        tier_requests_per_inference: cost::tier_requests_per_inference(repeats),
        in_flight: laws::in_flight(repeats),
        usd_per_10k: cost.as_ref().map(|cost| cost.usd_per_10k),
        mix_share: mix_shares::mean(repeats),
        usd_parts: cost.map(|cost| cost.parts).unwrap_or_default(),
        joules_per_inference: joules_per_inference(repeats),
        gpu_time: idle_by_cause(repeats),
        session_shares: session_shares(repeats),
        bands: bands::over_repeats(repeats),
        tail: tail::tail(repeats),
        drifts,
        faults,
        verdict,
    }
}

/// Returns the figures of streamed replies.
fn streams<'a>(repeats: &'a [Repeat]) -> BTreeMap<StreamFigure, StreamSummary> {
    let of_figure = |figure: StreamFigure| {
        let blocks = |repeat: &'a Repeat| repeat.histograms.streams.get(&figure).map(Vec::as_slice);
        let table = BlockTable::new(repeats.iter().filter_map(blocks));
        let (mean, percentiles) = (table.mean()?, percentiles(&table, Percentile::ALL.into_iter()));
        Some((figure, StreamSummary { mean, percentiles }))
    };
    StreamFigure::ALL.into_iter().filter_map(of_figure).collect()
}

fn percentiles(table: &BlockTable, of: impl Iterator<Item = Percentile>) -> BTreeMap<Percentile, Interval> {
    let intervals = of.filter_map(|one| Some((one, latency_interval(table, one.quantile())?)));
    intervals.collect()
}

/// Returns a block of a ramp; `None` if nothing was sent in it. Replies count over the seconds in which a repeat
/// offered requests, and only in the repeats that offered them longest: after a stop the backlog is answered.
fn ramp_block<'a>(index: usize, rates: &RampRates, factors: &Factors, repeats: &'a [Repeat]) -> Option<RampBlock> {
    let of = |blocks: &Vec<Histogram<u64>>| blocks.get(index).map_or(0, Histogram::len);
    let latencies = |repeat: &'a Repeat| repeat.histograms.latency.get(index..=index);
    let table = BlockTable::new(repeats.iter().filter_map(latencies));
    let errors = repeats.iter().map(|repeat| of(&repeat.histograms.failed)).sum();
    let samples = table.samples();
    if samples + errors == 0 {
        return None;
    }
    let offered = |repeat: &Repeat| {
        let blocks = repeat.offered_s(factors) / repeat.window_s * RAMP_BLOCKS as f64;
        (blocks - index as f64).clamp(0.0, 1.0)
    };
    let most = repeats.iter().map(offered).fold(0.0, f64::max);
    let counted = || repeats.iter().filter(|repeat| offered(repeat) >= most);
    let figures = counted().filter_map(|repeat| repeat.driver.ramp());
    let answered: u64 = figures.map(|figures| figures.answered[index]).sum();
    // The estimated end of a ramp may lie just before its last request.
    let share = if most > 0.0 { most } else { 1.0 };
    let seconds = |repeat: &Repeat| share * repeat.window_s / RAMP_BLOCKS as f64;
    let seconds: f64 = counted().map(seconds).sum();
    let is_printed = |one: &Percentile| samples >= one.samples_needed();
    let at = |block: usize| rates.rate(block as f64 / RAMP_BLOCKS as f64);
    Some(RampBlock {
        offered_rps: [at(index), at(index + 1)],
        answered_rps: answered as f64 / seconds,
        samples,
        errors,
        percentiles: percentiles(&table, Percentile::ALL.into_iter().filter(is_printed)),
    })
}

/// Mean inferences of a request over the repeats.
fn rows_per_request(factors: &Factors, repeats: &[Repeat]) -> f64 {
    let rows = repeats.iter().map(|repeat| repeat.inferences_per_request(factors));
    rows.sum::<f64>() / repeats.len().max(1) as f64
}

/// Returns the shares of the server's session threads' time by activity, over all repeats.
fn session_shares(repeats: &[Repeat]) -> Vec<(String, f64)> {
    let mut seconds: BTreeMap<&str, f64> = BTreeMap::new();
    let servers = repeats.iter().flat_map(|repeat| &repeat.server);
    for (state, s) in servers.flat_map(|server| &server.session_seconds) {
        *seconds.entry(state).or_default() += s;
    }
    let all: f64 = seconds.values().sum();
    let shares = seconds.into_iter().filter(|_| all > 0.0);
    let shares = shares.map(|(state, seconds)| (state.to_owned(), seconds / all));
    shares.collect()
}

fn block_table(repeats: &[Repeat], of: impl Fn(&Repeat) -> &Vec<Histogram<u64>>) -> BlockTable {
    BlockTable::new(repeats.iter().map(|repeat| of(repeat).as_slice()))
}

/// Mean of the repeats' autocorrelation times, weighted by their requests.
fn autocorrelation_time(repeats: &[Repeat]) -> f64 {
    let scheduled: u64 = repeats.iter().map(|repeat| repeat.scheduled).sum();
    let of = |repeat: &Repeat| repeat.autocorrelation_time * repeat.scheduled as f64;
    (repeats.iter().map(of).sum::<f64>() / scheduled.max(1) as f64).max(1.0)
}

/// Returns a percentile with its 95 % interval; `None` without samples. With a single repeat the interval is open on
/// both sides.
///
/// The interval covers two others: the latencies up to which the share of the requests may be the percentile's by all
/// repeats ([`inversion`]), and the 90 % interval of the repeats' own percentiles ([`sections`]), which follows repeats
/// that differ as wholes. Together they cover 92 to 98 % in simulation (`results/coverage`).
pub fn latency_interval(table: &BlockTable, quantile: f64) -> Option<Interval> {
    let value = table.pooled_quantile(quantile)? as f64;
    let Some((lo, hi)) = inversion::interval(table, quantile) else {
        return Some(Interval::new(value, 0.0, f64::INFINITY));
    };
    let of_sections = sections::log_quantile(table, quantile)?;
    let of_sections = of_sections.interval(2.0 * sections::OUTSIDE).map(f64::exp);
    let (least, most) = table.range()?;
    let lo = of_sections.lo.min(lo as f64).max(least as f64).min(value);
    let hi = of_sections.hi.max(hi as f64).min(most as f64).max(value);
    Some(Interval::new(value, lo, hi))
}

/// Returns the mean with its 95 % interval; `None` without samples.
fn mean_interval(table: &BlockTable) -> Option<Interval> {
    let value = table.mean()?;
    let interval = inversion::mean_interval(&table.means());
    let ends = |interval: Interval| (interval.lo.clamp(0.0, value), interval.hi.max(value));
    let (lo, hi) = interval.map_or((0.0, f64::INFINITY), ends);
    Some(Interval::new(value, lo, hi))
}

/// Returns a rate per second of the offered time, from one per second of the window: the mean over the repeats with
/// Student's interval, or for a single repeat the interval of a Poisson count (Wilson and Hilferty's approximation,
/// within a percent of the exact one).
fn rate_interval(factors: &Factors, repeats: &[Repeat], rate: impl Fn(&Repeat) -> f64) -> Interval {
    let offered = |repeat: &Repeat| rate(repeat) * (repeat.window_s / repeat.offered_s(factors));
    let rates: Vec<f64> = repeats.iter().map(offered).collect();
    if let Some(interval) = sections::mean_interval(&rates) {
        return Interval::new(interval.value, interval.lo.max(0.0), interval.hi);
    }
    let (Some(&rate), Some(repeat)) = (rates.first().filter(|rate| **rate > 0.0), repeats.first()) else {
        return Interval::default();
    };
    let offered_s = repeat.offered_s(factors);
    let count = rate * offered_s;
    let end = |count: f64, side: f64| {
        let root = 1.0 - 1.0 / (9.0 * count) + side * student::Z95 / (3.0 * count.sqrt());
        count * root.max(0.05).powi(3)
    };
    Interval::new(rate, end(count, -1.0) / offered_s, end(count + 1.0, 1.0) / offered_s)
}

/// Returns joules per inference over all repeats and GPUs; `None` without a GPU or without inferences.
fn joules_per_inference(repeats: &[Repeat]) -> Option<f64> {
    let servers = repeats.iter().filter_map(|repeat| repeat.server.as_ref());
    let joules: f64 = servers.flat_map(|server| &server.gpus).map(|gpu| gpu.energy_j).sum();
    let has_gpus = |repeat: &&Repeat| repeat.server.as_ref().is_some_and(|server| !server.gpus.is_empty());
    let with_gpus = repeats.iter().filter(has_gpus);
    let inferences: f64 = with_gpus.filter_map(Repeat::served_inferences).sum();
    (joules > 0.0 && inferences > 0.0).then(|| joules / inferences)
}

/// Returns the shares of GPU time; `None` without a GPU, or without session times.
fn idle_by_cause(repeats: &[Repeat]) -> Option<IdleByCause> {
    let with_gpus = || {
        let repeats = repeats.iter();
        let servers = repeats.filter_map(|repeat| Some((repeat, repeat.server.as_ref()?)));
        servers.filter(|(_, server)| !server.gpus.is_empty())
    };
    let servers = || with_gpus().map(|(_, server)| server);
    let state = |name: &str| -> f64 { servers().filter_map(|server| server.session_seconds.get(name)).sum() };
    let waits = ["queue_wait", "storage_wait", "no_requests"].map(state);
    let total = state("compute") + waits.iter().sum::<f64>();
    if total <= 0.0 {
        return None;
    }
    // The busiest GPU, because sessions of one model run on one GPU.
    let busiest = |server: &ServerDelta| server.gpus.iter().map(|gpu| gpu.busy_s).fold(0.0, f64::max);
    let busy: f64 = servers().map(busiest).sum();
    let between = |(repeat, server): (&Repeat, &ServerDelta)| server.between_s.unwrap_or(repeat.window_s);
    let seconds: f64 = with_gpus().map(between).sum();
    let busy = (busy / seconds.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    // If sessions waited longer than the GPU was idle, their waits share the idle time.
    let idle = waits.iter().sum::<f64>() / total;
    let scale = ((1.0 - busy) / idle.max(f64::MIN_POSITIVE)).min(1.0);
    let [queue_wait, storage_wait, no_requests] = waits.map(|wait| wait / total * scale);
    Some(IdleByCause {
        busy,
        copy_and_host: (1.0 - busy - idle * scale).max(0.0),
        queue_wait,
        storage_wait,
        no_requests,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{DriverFigures, Fault, GpuUse, Histograms, Mode, RampFigures, Verdict};
    use crate::statistics::percentile::histogram;

    fn ramp_blocks(rates: &RampRates, factors: &Factors, repeats: &[Repeat]) -> Vec<RampBlock> {
        let blocks = (0..RAMP_BLOCKS).filter_map(|index| ramp_block(index, rates, factors, repeats));
        blocks.collect()
    }

    fn factors() -> Factors {
        Factors {
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
        }
    }

    /// Summarises repeats of 1,000 requests: 50 ms each in disturbed repeats, 1 ms in the others.
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
                    ..Histograms::default()
                },
                ..Repeat::empty()
            }
        });
        let point = Point {
            factors: factors(),
            repeats: repeats.collect(),
            summary: None,
        };
        summary(&point, &Limits::default(), None)
    }

    #[test]
    fn a_disturbed_repeat_does_not_spoil_the_others() {
        let found = summarised(&[false, true, false, false]);
        assert_eq!(found.samples, 3_000);
        assert!(found.p95_us.unwrap().hi < 2_000.0, "{:?}", found.p95_us);
        // 30 requests of 3 repeats lie beyond it: its value stands, and no upper bound.
        let p99 = found.p99_us.unwrap();
        assert!(p99.value < 2_000.0 && p99.hi.is_infinite(), "{p99:?}");
        assert_eq!((found.grades.p99_grade, found.p999_us), (Some(Grade::Rough), None));
        assert_eq!(found.grades.p95_grade, Some(Grade::Solid));
        assert!((found.mean_us.unwrap().value / 1_000.0 - 1.0).abs() < 1e-3 && found.max_us.unwrap() < 1_100.0);
        assert_eq!(found.verdict, Verdict::Valid);
    }

    #[test]
    fn a_gpu_is_busy_for_a_share_of_the_time_between_the_readings() {
        let busy = |between_s: Option<f64>| {
            let gpu = GpuUse {
                busy_s: 9.0,
                ..GpuUse::default()
            };
            let server = ServerDelta {
                gpus: vec![gpu],
                between_s,
                session_seconds: [("compute".to_owned(), 30.0), ("no_requests".to_owned(), 10.0)].into(),
                ..ServerDelta::default()
            };
            let repeat = Repeat {
                window_s: 10.0,
                server: Some(server),
                ..Repeat::empty()
            };
            idle_by_cause(&[repeat]).unwrap().busy
        };
        assert_eq!([busy(Some(12.0)), busy(None)], [0.75, 0.9]);
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

    #[test]
    fn blocks_have_their_rates_and_the_percentiles_that_they_hold() {
        let rates = RampRates {
            from: 10.0,
            to: 110.0,
            over: 0.5,
        };
        let mut latency = vec![histogram(&[]); RAMP_BLOCKS];
        latency[0] = histogram(&[1_000; 19]);
        latency[6] = histogram(&(1..=200).map(|us| us * 10).collect::<Vec<u64>>());
        let mut answered = [0; RAMP_BLOCKS];
        answered[6] = 150;
        let repeat = Repeat {
            window_s: 20.0,
            driver: DriverFigures::Ramp {
                ramp: RampFigures {
                    answered,
                    stopped_rps: None,
                },
            },
            histograms: Histograms {
                latency,
                ..Histograms::default()
            },
            ..Repeat::empty()
        };
        let factors = Factors {
            driven: Some(Driven::Ramp(rates)),
            ..factors()
        };
        let both = [repeat.clone(), repeat.clone()];
        let [first, last] = &ramp_blocks(&rates, &factors, &both)[..] else {
            panic!("two blocks have requests")
        };
        assert_eq!((first.offered_rps, first.samples), ([10.0, 30.0], 38));
        assert!(first.percentiles.keys().eq(&[Percentile::P50]));
        assert_eq!((last.offered_rps, last.answered_rps), ([110.0, 110.0], 75.0));
        assert!(
            last.percentiles
                .keys()
                .eq(&[Percentile::P50, Percentile::P90, Percentile::P95])
        );
        let p95_us = last.percentiles[&Percentile::P95].value;
        assert!((1_890.0..=1_902.0).contains(&p95_us), "{p95_us}");
        // A repeat that stopped in the first of these blocks does not lower the rate of the other.
        let mut stopped = repeat.clone();
        stopped.driver = DriverFigures::Ramp {
            ramp: RampFigures {
                answered: [9; RAMP_BLOCKS],
                stopped_rps: Some(20.0),
            },
        };
        let blocks = ramp_blocks(&rates, &factors, &[repeat, stopped.clone()]);
        assert_eq!([blocks[0].answered_rps, blocks[1].answered_rps], [0.0, 75.0]);
        // Half of its block of 2 s, alone.
        assert_eq!(
            ramp_blocks(&rates, &factors, std::slice::from_ref(&stopped))[0].answered_rps,
            9.0
        );
        stopped.achieved_rps = 1.0;
        assert_eq!(
            rate_interval(&factors, &[stopped], |repeat| repeat.achieved_rps).value,
            20.0
        );
    }
}
