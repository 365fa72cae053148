//! Representative point of a curve: the highest rate under the run's objective, or else the highest valid one; and the percentile that
//! represents a tail: the highest that all shown points have.
//!
//! In: a run and a curve. Out: the point, the rate with its interval, and the kind of rate. Knows nothing of
//! presentation.

use crate::units::{dollars_interval, rate};
use tierlab_analysis::curves::{Curve, is_valid, same_but_rate};
use tierlab_analysis::record::{Interval, Percentile, Point, Ranked, Run, SloFinding, SloOutcome, Verdict};

/// Best point of a curve.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Best<'a> {
    pub(crate) point: &'a Point,
    /// Interval of the boundary; `None` if it is unknown.
    pub(crate) interval: Option<Interval>,
    /// True if the rate is only a lower bound: the plan ended there, not the server.
    pub(crate) at_least: bool,
    /// Highest rate by the answer of a lab; absent if the point's own rate is the highest.
    answered_rps: Option<f64>,
}

impl Best<'_> {
    /// Requests per second.
    pub(crate) fn rps(&self) -> f64 {
        self.answered_rps.unwrap_or(self.point.factors.offered_rps)
    }

    /// `420 rps`, `≥ 800 rps`.
    pub(crate) fn text(&self) -> String {
        format!("{}{} rps", if self.at_least { "≥ " } else { "" }, rate(self.rps()))
    }

    /// Prefix of the cost of an inference: at the highest rate it is less than below it, and more than above it.
    pub(crate) fn bound(&self) -> &'static str {
        match self.point.factors.offered_rps / self.rps() {
            ratio if self.at_least || ratio < 0.99 => "at most ",
            ratio if ratio > 1.01 => "at least ",
            _ => "",
        }
    }

    /// `$0.0124 [0.0120–0.0130]`, `at most $0.0124 […]`; `None` without a price.
    pub(crate) fn cost(&self) -> Option<String> {
        let usd = self.point.summary.as_ref()?.usd_per_10k?;
        Some(format!("{}{}", self.bound(), dollars_interval(Some(&usd))))
    }
}

/// Returns the highest rate under the run's objective, or the highest valid rate without an objective.
pub(crate) fn best<'a>(run: &Run, curve: &Curve<'a>) -> Option<Best<'a>> {
    if let Some(ranked) = ranked(run, curve) {
        return from_answer(curve, ranked);
    }
    let (point, interval, at_least) = match run.slo {
        None => (curve.highest_valid()?, None, !server_is_limit(run, curve)),
        Some(_) => {
            let slo = slo_finding(run, curve)?;
            let highest = slo.highest_rps?;
            let mut points = curve.points.iter().copied();
            let point = points.find(|point| point.factors.offered_rps == highest.value)?;
            let at_least = matches!(slo.outcome, SloOutcome::MetAtHighest | SloOutcome::MetAsFarAsMeasured);
            (point, Some(highest), at_least)
        }
    };
    Some(Best {
        point,
        interval,
        at_least,
        answered_rps: None,
    })
}

/// Finding of the run's search about a curve.
pub(crate) fn slo_finding<'a>(run: &'a Run, curve: &Curve<'_>) -> Option<&'a SloFinding> {
    let mut findings = run.findings.iter();
    let of_curve = findings.find(|finding| same_but_rate(&finding.factors, curve.factors()))?;
    of_curve.slo.as_ref()
}

/// Variant of the run's answer that a curve belongs to.
pub(crate) fn ranked<'a>(run: &'a Run, curve: &Curve<'_>) -> Option<&'a Ranked> {
    let (answer, factors) = (run.answer.as_ref()?, curve.factors());
    let question = &answer.question;
    let is_same = factors.mode == question.mode && factors.batch_size == question.batch_size && factors.mix.is_none();
    let mut ranking = answer.ranking.iter().filter(|_| is_same);
    ranking.find(|ranked| ranked.variant == factors.label())
}

/// Highest rate of the answer, with the nearest valid point; `None` if the variant has none.
fn from_answer<'a>(curve: &Curve<'a>, ranked: &Ranked) -> Option<Best<'a>> {
    let value = ranked.highest_rps?;
    let lo = ranked.highest_rps_lo.unwrap_or(value);
    let at_least = ranked.highest_rps_hi.is_none();
    let rps = if at_least { lo } else { value };
    let valid = curve.points.iter().copied().filter(|point| is_valid(point));
    let distance = |point: &Point| (point.factors.offered_rps / rps).ln().abs();
    Some(Best {
        point: valid.min_by(|a, b| distance(a).total_cmp(&distance(b)))?,
        interval: ranked.highest_rps_hi.map(|hi| Interval { value, lo, hi }),
        at_least,
        answered_rps: Some(rps),
    })
}

/// True if the server ended the valid rates, by not keeping up at the next one or by failing there. The end of a plan, or a
/// measurement that broke its own rules, says nothing about the server's limit.
fn server_is_limit(run: &Run, curve: &Curve<'_>) -> bool {
    let next = curve.points.iter().find(|point| !is_valid(point));
    let next = next.and_then(|point| point.summary.as_ref());
    next.is_some_and(|summary| {
        matches!(summary.verdict, Verdict::Saturated(_)) || summary.error_share > run.limits.error_share
    })
}

/// Meaning of [`best`]: `highest rate with p99 < 20 ms`, or `highest valid rate`. An answer is about its own curves alone.
pub(crate) fn title(run: &Run, curve: &Curve<'_>) -> String {
    match &run.slo {
        _ if ranked(run, curve).is_some() => "highest rate under the objective".to_owned(),
        Some(slo) => format!("highest rate with {}", slo.objective),
        None => "highest valid rate".to_owned(),
    }
}

/// Percentiles of a tail, the highest first.
pub(crate) const TAILS: [Percentile; 3] = [Percentile::P99, Percentile::P95, Percentile::P50];

/// Percentile of a point.
pub(crate) fn percentile_of(point: &Point, percentile: Percentile) -> Option<Interval> {
    point.summary.as_ref()?.percentile(percentile)
}

/// Returns the highest percentile that every point has, or else the median.
pub(crate) fn highest_percentile(points: &[Option<&Point>]) -> Percentile {
    let summaries = || points.iter().flatten().filter_map(|point| point.summary.as_ref());
    let all_have = |percentile: &Percentile| summaries().all(|summary| summary.percentile(*percentile).is_some());
    TAILS.into_iter().find(all_have).unwrap_or(Percentile::P50)
}
