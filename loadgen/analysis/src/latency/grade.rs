//! Grades of percentiles: trust in the interval of a printed percentile.
//!
//! In: the points of a run with their means. Out: the queueing share of each latency, and grades. Pure.
//!
//! An interval over the repeats fails in one case: a queue near saturation, where a few busy periods make the tail.
//! Requests of a queue of one server with load `ρ` (M/M/1) depend on each other over some `1 / (1 - ρ)²` of them (J.
//! Abate and W. Whitt, *Transient behavior of the M/M/1 queue*, Queueing Systems 2, 1987), and `ρ` is the share of the
//! latency that is queueing. So `exceedances · (1 - queueing)²` of the requests beyond a percentile are worth as much
//! as independent requests.
//!
//! The dependence or the tail in the same samples never decides: a run without a burst shows little of either.

use super::bands::{SEND_LAG, band_total, reads_total};
use crate::curve::{all_curves, is_valid};
use crate::record::{Grade, Point, samples_needed};
use tierlab_protocol::timing::Stage;

/// Independent exceedances from which an interval over [`REPEATS`] repeats holds; found by simulation
/// (`results/coverage`).
const EXCEEDANCES: f64 = 15.0;
/// Repeats beyond which more make no difference; fewer take proportionally more exceedances.
const REPEATS: f64 = 10.0;
/// Minimum repeats of a solid percentile: Student's t is 12.7 for two.
const MIN_REPEATS: usize = 3;
/// Minimum ratio of two rates whose latencies are compared.
const MIN_RATE_RATIO: f64 = 1.05;

/// Returns the grade of a percentile; `None` if fewer than 10 requests lie beyond it.
///
/// `queueing` is the share of the mean latency that is queueing, from 0 to 1.
pub fn grade(quantile: f64, samples: u64, repeats: usize, queueing: f64) -> Option<Grade> {
    if samples < samples_needed(quantile) {
        return None;
    }
    let beyond = samples as f64 * quantile.min(1.0 - quantile) * (1.0 - queueing).powi(2);
    let is_solid = repeats >= MIN_REPEATS && beyond * (repeats as f64 / REPEATS).min(1.0) >= EXCEEDANCES - 1e-6;
    Some(if is_solid { Grade::Solid } else { Grade::Rough })
}

/// Returns the queueing share of each point's mean latency, in their order. Their summaries must have means.
pub fn queueing(points: &[Point]) -> Vec<f64> {
    let mut shares: Vec<f64> = points.iter().map(of_point).collect();
    for curve in all_curves(points) {
        let Some((lowest, higher)) = curve.points.split_first() else {
            continue;
        };
        let highest = higher.iter().rfind(|point| is_valid(point));
        for point in &curve.points {
            let other = Some(lowest).filter(|lowest| !std::ptr::eq(*point, **lowest));
            let grown = other.or(highest).and_then(|other| growth(point, other));
            if let (Some(grown), Some(index)) = (grown, points.iter().position(|one| std::ptr::eq(one, *point))) {
                shares[index] = grown.max(waits(point).unwrap_or(0.0)).min(max_queueing(point));
            }
        }
    }
    shares
}

/// Returns the queueing share of a single point: the server's own waits, and at most the share that its requests in
/// flight allow.
pub fn of_point(point: &Point) -> f64 {
    waits(point).unwrap_or(1.0).min(max_queueing(point))
}

fn max_queueing(point: &Point) -> f64 {
    let summary = point.summary.as_ref();
    of_in_flight(summary.map_or(0.0, |summary| summary.in_flight.0.max(summary.in_flight.1)))
}

/// Returns the queueing share of one server with exponential service, given its mean requests in flight. More servers
/// queue less.
pub fn of_in_flight(in_flight: f64) -> f64 {
    in_flight / (1.0 + in_flight)
}

fn growth(point: &Point, other: &Point) -> Option<f64> {
    let rate_and_mean = |point: &Point| Some((point.factors.offered_rps, point.summary.as_ref()?.mean_us?.value));
    of_growth(rate_and_mean(point)?, rate_and_mean(other)?)
}

/// Returns the queueing share at a rate from its mean latency and that of another rate: the reciprocal of a queue's
/// latency falls about linearly with the rate, and at rate 0 nothing queues. `None` for rates too close to each other.
pub fn of_growth((rps, mean_us): (f64, f64), (other_rps, other_mean_us): (f64, f64)) -> Option<f64> {
    if rps.max(other_rps) < MIN_RATE_RATIO * rps.min(other_rps) {
        return None;
    }
    let (at_rate, at_other) = (1.0 / mean_us, 1.0 / other_mean_us);
    let unloaded = at_rate + rps * (at_other - at_rate) / (rps - other_rps);
    (unloaded > 0.0).then(|| (1.0 - at_rate / unloaded).clamp(0.0, 1.0))
}

/// Returns the share of the mean latency that requests waited as the server reports it; `None` without a report.
fn waits(point: &Point) -> Option<f64> {
    let summary = point.summary.as_ref()?;
    let bands = &summary.bands;
    let [admit, batch, infer] =
        [Stage::Admit, Stage::Batch, Stage::Infer].map(|stage| band_total(bands, stage.as_str()));
    let all: f64 = bands.iter().map(|band| band.count as f64 * band.mean_us).sum();
    let waited = admit + batch + band_total(bands, SEND_LAG) + reads_total(bands, |reads| reads.queue_us);
    (infer > 0.0 && all > 0.0).then(|| (waited / all).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Band, Factors, Interval, Limits, Mode, Repeat};
    use crate::statistics::percentile::histogram;

    fn point(rps: f64, mean_us: f64, in_flight: f64, parts_us: Vec<(String, f64)>) -> Point {
        let mut repeat = Repeat {
            window_s: 1_000.0 / rps,
            scheduled: 1_000,
            completed: 1_000,
            achieved_rps: rps,
            mean_in_flight: in_flight,
            in_flight_by_stays: Some(in_flight),
            ..Repeat::empty()
        };
        repeat.histograms.latency = vec![histogram(&[mean_us as u64; 1_000])];
        repeat.bands = vec![Band {
            name: "p0-50".into(),
            count: 1_000,
            mean_us,
            over_repeats_us: None,
            parts_us,
            reads: crate::record::Reads::default(),
        }];
        let factors = Factors {
            variant: String::new(),
            tier: "t".into(),
            cache: "off".into(),
            cache_share: 0.0,
            model: "m".into(),
            mode: Mode::Realtime,
            batch_size: 1,
            offered_rps: rps,
            arrivals: "poisson".into(),
            keys: "uniform".into(),
            mix: None,
            driven: None,
        };
        Point {
            factors,
            repeats: vec![repeat],
            summary: None,
        }
    }

    fn shares(mut points: Vec<Point>) -> Vec<f64> {
        crate::summarise(&mut points, &Limits::default(), None);
        queueing(&points)
    }

    #[test]
    fn percentiles_are_graded_by_exceedances_repeats_and_queueing() {
        let of = |samples, repeats, queueing| grade(0.99, samples, repeats, queueing);
        assert_eq!(of(999, 10, 0.0), None);
        assert_eq!(of(1_000, 10, 0.0), Some(Grade::Rough));
        assert_eq!(of(1_500, 10, 0.0), Some(Grade::Solid));
        assert_eq!(of(1_500, 5, 0.0), Some(Grade::Rough));
        assert_eq!(of(3_000, 5, 0.0), Some(Grade::Solid));
        assert_eq!(of(1_000_000, 2, 0.0), Some(Grade::Rough));
        assert_eq!(of(6_000, 10, 0.6), Some(Grade::Rough));
        assert_eq!(of(10_000, 10, 0.6), Some(Grade::Solid));
        assert_eq!([0.5, 0.9, 0.95, 0.999].map(samples_needed), [20, 100, 200, 10_000]);
    }

    #[test]
    fn latency_that_grows_with_the_rate_is_queueing_and_a_long_service_is_none() {
        // M/M/1 with a service of 1 ms.
        let queue = |rps: f64| point(rps, 1e6 / (1_000.0 - rps), rps / (1_000.0 - rps), Vec::new());
        for (share, expected) in shares(vec![queue(200.0), queue(500.0), queue(900.0)])
            .into_iter()
            .zip([0.2, 0.5, 0.9])
        {
            assert!((share - expected).abs() < 0.01, "{share} {expected}");
        }
        let long = |rps: f64| point(rps, 1e5, rps / 10.0, Vec::new());
        for share in shares(vec![long(100.0), long(300.0)]) {
            assert!(share < 0.01, "{share}");
        }
    }

    #[test]
    fn a_lone_rate_is_judged_by_the_servers_waits_or_by_requests_in_flight() {
        let parts = |batch: f64| vec![("batch".to_owned(), batch), ("infer".to_owned(), 1e5 - batch)];
        let share = |in_flight, parts| shares(vec![point(100.0, 1e5, in_flight, parts)])[0];
        assert!((share(10.0, parts(6e4)) - 0.6).abs() < 0.01);
        assert!(share(10.0, parts(0.0)) < 0.01);
        assert!((share(10.0, Vec::new()) - 10.0 / 11.0).abs() < 0.01);
        assert!((share(0.25, parts(9e4)) - 0.2).abs() < 0.01);
    }

    #[test]
    fn a_summary_without_a_mean_has_no_growth() {
        let mut points = vec![point(100.0, 1e3, 0.1, Vec::new()), point(200.0, 9e3, 1.8, Vec::new())];
        crate::summarise(&mut points, &Limits::default(), None);
        for point in &mut points {
            point.summary.as_mut().unwrap().mean_us = None::<Interval>;
        }
        assert!((queueing(&points)[1] - 1.8 / 2.8).abs() < 1e-9);
    }
}
