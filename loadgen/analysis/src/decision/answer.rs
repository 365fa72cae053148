//! Answer to a run's question. In: a run with a question and summarised points. Out: the variants in order, with
//! reasons, and open questions. Another question about the same run is answered from the same steps. Knows nothing of
//! how the answer is shown.

use super::evidence::StepEvidence;
use super::from_run::{candidates, inferences_ratio, points};
use super::highest_rates::{RateEstimate, highest_rates};
use super::lab::{Lab, LabVerdict};
use super::next::shown_rps;
use super::rate_points::{MIN_BEYOND, RatePoint, TOLERANCE, gather, point_at, usable};
use super::why::{open_questions, why};
use crate::costs::monthly::{Monthly, instances, monthly};
use crate::record::{Answer, AnswerOutcome, Interval, MeetsObjective, Point, Ranked, Repeat, Run, Verdict};
use crate::statistics::mean;
use crate::statistics::percentile::BlockTable;

/// Returns the answer to the run's question; `None` if the run has no question.
pub fn answer(run: &Run) -> Option<Answer> {
    let question = run.question.as_ref()?;
    let candidates = candidates(run);
    let lab = Lab::new(question, &candidates);
    let repeats: Vec<&Repeat> = points(run, question).flat_map(|point| &point.repeats).collect();
    // A step that was measured again took as long each time.
    let measured = |repeat: &&Repeat| repeat.window_s * f64::from(1 + repeat.attempt);
    let measured_s = || repeats.iter().map(measured).sum();
    let spent_s = run.question_spent_s.unwrap_or_else(measured_s);
    let verdict = LabVerdict::of(&lab);
    let highest_rates = highest_rates(&lab);
    let ranked = |index: usize| ranked(run, &lab, &verdict, (index, highest_rates[index]));
    let step_s = spent_s / repeats.len().max(1) as f64;
    Some(Answer {
        question: question.clone(),
        outcome: verdict.outcome,
        best: verdict.best.map(|best| candidates[best].variant.clone()),
        confidence: match (verdict.outcome, verdict.best) {
            // An answer that is likely enough and still open is open for another reason, so no probability is claimed.
            (AnswerOutcome::Undecided, Some(best)) if lab.p_best[best] < question.confidence => lab.p_best[best],
            (AnswerOutcome::Undecided, _) => 0.0,
            _ => question.confidence,
        },
        confirmed: verdict.confirmed,
        spent_s,
        steps: repeats.len() as u32,
        disturbed_steps: repeats.iter().filter(|repeat| repeat.disturbed.is_some()).count() as u32,
        ranking: order(&lab, &verdict).into_iter().map(ranked).collect(),
        open: match verdict.outcome {
            AnswerOutcome::Undecided => open_questions(&lab, &verdict, step_s),
            _ => Vec::new(),
        },
    })
}

/// Orders the best first, then variants that meet the objective, undecided variants and variants that miss it; each
/// group by score, except the last, which is ordered by the excess over the limit.
pub(super) fn order(lab: &Lab<'_>, verdict: &LabVerdict) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..lab.statuses.len()).collect();
    let rank = |index: usize| {
        let status = &lab.statuses[index];
        match status.outcome {
            _ if verdict.best == Some(index) => 0,
            MeetsObjective::NotMet => 3,
            _ if status.score.is_finite() && lab.is_eligible(index) => 1,
            _ => 2,
        }
    };
    indices.sort_by(|&a, &b| {
        let (first, second) = (&lab.statuses[a], &lab.statuses[b]);
        rank(a)
            .cmp(&rank(b))
            .then(first.score.total_cmp(&second.score))
            .then(first.lower.total_cmp(&second.lower))
            .then_with(|| excess(lab, a).total_cmp(&excess(lab, b)))
    });
    indices
}

/// Returns the largest of a variant's figures and failed share at its lowest measured rate, each over its limit;
/// infinite without a usable step.
fn excess(lab: &Lab<'_>, index: usize) -> f64 {
    let question = lab.question;
    let Some(lowest) = usable(&lab.statuses[index].rate_points).next() else {
        return f64::INFINITY;
    };
    let steps = lab.candidates[index].steps.iter();
    let here = steps.filter(|step| step.usable.is_ok() && (step.rps / lowest.rps - 1.0).abs() <= TOLERANCE);
    let of_step = |step: &StepEvidence| {
        let limits = question.objectives.iter().map(|objective| objective.limit_us());
        let figures = step.quantile_us.iter().zip(limits).map(|(us, limit_us)| us / limit_us);
        let failed = step.failed / step.requests.max(1.0);
        let refused = (failed > question.error_share).then(|| failed / question.error_share.max(f64::MIN_POSITIVE));
        figures.chain(refused).fold(0.0, f64::max)
    };
    mean(&here.map(of_step).collect::<Vec<_>>())
}

/// Returns the lower bound of a p99 that has too few samples: the latency in us that as many requests exceed as a percentile needs.
fn bound_of_p99(latencies: &BlockTable) -> Option<f64> {
    let quantile = 1.0 - MIN_BEYOND.round() / latencies.samples() as f64;
    let us = (quantile > 0.0).then(|| latencies.pooled_quantile(quantile.min(0.99)));
    us.flatten().map(|us| us as f64)
}

fn ranked(run: &Run, lab: &Lab<'_>, verdict: &LabVerdict, (index, highest): (usize, RateEstimate)) -> Ranked {
    let (candidate, status, question) = (&lab.candidates[index], &lab.statuses[index], lab.question);
    let estimate = highest.estimate.filter(|rps| *rps > 0.0);
    // A variant that carries no rate is shown at the lowest that matters, as evidence.
    let is_missed = status.outcome == MeetsObjective::NotMet;
    let shown = shown_rps(lab, index).or_else(|| is_missed.then(|| lab.rates[0]));
    let of_variant = points(run, question).filter(|point| point.factors.label() == candidate.variant);
    let of_variant: Vec<&Point> = of_variant.collect();
    let point = shown.and_then(|rps| shown_at(&showing(lab, index, &of_variant), question.demand.is_some(), rps));
    let summary = point.and_then(|point| point.summary.as_ref());
    // A point that is not valid says nothing about the server.
    let sound = summary.filter(|summary| summary.verdict == Verdict::Valid);
    let p99 = sound.and_then(|summary| summary.p99_us);
    let missed_at = point.filter(|_| sound.is_some() && is_missed && p99.is_none());
    let below = missed_at.and_then(|point| {
        let counted = point.repeats.iter().filter(|repeat| repeat.disturbed.is_none());
        bound_of_p99(&BlockTable::new(
            counted.map(|repeat| repeat.histograms.latency.as_slice()),
        ))
    });
    let tail = sound.and_then(|summary| summary.tail.as_ref()?.parts.first());
    let month = |rps: f64| -> Option<Monthly> {
        let terms = candidate.terms.as_ref().filter(|_| rps > 0.0)?;
        let charged = terms.usd_per_request > 0.0 || terms.usd_per_byte > 0.0;
        let used = status.use_per_inference.or((!charged).then(Default::default))?;
        Some(monthly(terms, used, question, rps.min(question.highest_rps)))
    };
    let now = estimate.and_then(month);
    let of_first = |point: &&Point| Some(inferences_ratio(question, point, point.repeats.first()?));
    let inferences_ratio = of_variant.iter().find_map(of_first).unwrap_or(1.0);
    let demand = question.demand.is_some();
    let count = |rps: f64| demand.then(|| instances(question, rps.min(question.highest_rps)) as u32);
    let usd = |month: &Option<Monthly>| month.as_ref().map(|month| month.usd_per_month).filter(|_| demand);
    let variant = run.variants.iter().find(|variant| variant.name == candidate.variant);
    Ranked {
        variant: candidate.variant.clone(),
        tier: variant.map_or_else(|| candidate.variant.clone(), |variant| variant.tier.clone()),
        outcome: status.outcome,
        at_rps: point.map(|point| point.factors.offered_rps).or(shown),
        p99_us: p99.map(|interval| interval.value),
        p99_us_lo: below.or_else(|| p99.map(|interval| interval.lo).filter(|us| *us > 0.0)),
        p99_us_hi: p99.map(|interval| interval.hi).filter(|us| us.is_finite()),
        p99_grade: summary.and_then(|summary| summary.grades.p99_grade),
        p99_missing: match summary.map(|summary| &summary.verdict) {
            None => shown.map(|_| "not measured".to_owned()),
            Some(Verdict::Valid) => p99.is_none().then(|| "too few samples".to_owned()),
            Some(other) => Some(other.to_string()),
        },
        highest_rps: estimate,
        highest_rps_lo: Some(highest.lo).filter(|rps| *rps > 0.0),
        highest_rps_hi: Some(highest.hi).filter(|rps| rps.is_finite()),
        highest_is_bound: estimate.is_some() && highest.is_bound,
        instances_lo: estimate.and_then(|_| count(status.hi * (1.0 - 1e-6))),
        instances: estimate.and_then(count),
        usd_per_month: usd(&now),
        usd_per_month_lo: estimate.and_then(|_| usd(&month(status.hi * (1.0 - 1e-6)))),
        usd_per_month_hi: usd(&month(status.lo)),
        usd_per_10k: now.as_ref().map(|month| month.usd_per_10k / inferences_ratio),
        usd_parts: now.map(|month| month.parts).unwrap_or_default(),
        dominant_part: tail.map(|(name, _)| name.clone()),
        dominant_share: tail.map(|(_, share): &(String, Interval)| share.value),
        why: why(lab, verdict, index),
        steps: candidate.steps.len() as u32,
    }
}

/// Returns the points that agree with a variant's outcome: all, or without those that look met if it misses the objective.
pub(super) fn showing<'a>(lab: &Lab<'_>, index: usize, points: &[&'a Point]) -> Vec<&'a Point> {
    let all = gather(lab.question, &lab.candidates[index].steps, &lab.rates, |_| true);
    let looks_met = |point: &Point| point_at(&all, point.factors.offered_rps).is_some_and(RatePoint::likely_met);
    let is_missed = lab.statuses[index].outcome == MeetsObjective::NotMet;
    let points = points.iter().copied();
    points.filter(|point| !(is_missed && looks_met(point))).collect()
}

/// Returns the point that shows a variant at a rate: preferably valid with a p99, else valid, else any. With a demand it
/// is the nearest at or above the rate, because a lower one would flatter the variant.
pub(super) fn shown_at<'a>(points: &[&'a Point], has_demand: bool, rps: f64) -> Option<&'a Point> {
    let distance = |point: &Point| (point.factors.offered_rps / rps).ln().abs();
    let points = || points.iter().copied();
    let nearest = points().map(distance).reduce(f64::min)?;
    let lacks = |point: &Point| match &point.summary {
        Some(summary) if summary.verdict == Verdict::Valid => u8::from(summary.p99_us.is_none()),
        _ => 2,
    };
    let is_shown = |point: &&Point| match has_demand {
        true => point.factors.offered_rps >= rps * (1.0 - TOLERANCE),
        // Only points near the rate, not at another end of the curve.
        false => distance(point) <= nearest + 0.1,
    };
    let shown = points().filter(is_shown);
    shown.min_by(|a, b| lacks(a).cmp(&lacks(b)).then(distance(a).total_cmp(&distance(b))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::percentile::histogram;

    #[test]
    fn a_p99_of_too_few_requests_is_at_least_the_latency_that_ten_exceed() {
        let of = |count: u64| {
            let latencies: Vec<u64> = (1..=count).collect();
            bound_of_p99(&BlockTable::new([&[histogram(&latencies)][..]]))
        };
        assert_eq!((of(10), of(500)), (None, Some(490.0)));
    }
}
