//! Conversion of a run's record to evidence. In: the run, with the histograms of its repeats. Out: candidates. Knows
//! nothing of the rule.

use super::evidence::{Candidate, StepEvidence};
use crate::curve::distinct;
use crate::latency::objective;
use crate::record::{Fault, Limits, Mode, Objective, Point, Question, Repeat, Run, ServerDelta, Verdict};
use crate::statistics::percentile::BlockTable;
use crate::validity::rules::Evidence;
use crate::validity::verdict;

/// Quantile from which a percentile depends on the slow requests only, rather than on all.
const TAIL_FROM: f64 = 0.9;

/// Returns the run's variants with their steps of the question's kind of request, in the order of measurement; empty
/// without a question. A run without variants has one candidate per tier.
pub fn candidates(run: &Run) -> Vec<Candidate> {
    let Some(question) = &run.question else {
        return Vec::new();
    };
    let mut names: Vec<&str> = run.variants.iter().map(|variant| variant.name.as_str()).collect();
    if names.is_empty() {
        names = distinct(points(run, question).map(|point| point.factors.label()));
    }
    let terms = |name: &str| run.pricing.as_ref()?.terms_by_variant.get(name).cloned();
    let candidate = |name: &str| {
        let points = points(run, question).filter(|point| point.factors.label() == name);
        let repeats = points.flat_map(|point| point.repeats.iter().map(move |repeat| (point, repeat)));
        let mut repeats: Vec<(&Point, &Repeat)> = repeats.collect();
        // RFC 3339 in UTC sorts chronologically.
        repeats.sort_by(|a, b| a.1.started_at.cmp(&b.1.started_at));
        let steps = repeats.into_iter();
        let steps = steps.map(|(point, repeat)| step(question, &run.limits, point, repeat));
        Candidate {
            variant: name.to_owned(),
            terms: terms(name),
            steps: steps.collect(),
        }
    };
    names.into_iter().map(candidate).collect()
}

/// Points of the question's kind of request.
pub(super) fn points<'a>(run: &'a Run, question: &'a Question) -> impl Iterator<Item = &'a Point> {
    run.points.iter().filter(|point| {
        let factors = &point.factors;
        let rows = question.mode == Mode::Realtime || factors.batch_size == question.batch_size;
        factors.mode == question.mode && rows && factors.mix.is_none() && factors.driven.is_none()
    })
}

/// Returns one repeat as evidence.
pub fn step(question: &Question, limits: &Limits, point: &Point, repeat: &Repeat) -> StepEvidence {
    let latency = BlockTable::new([repeat.histograms.latency.as_slice()]);
    let failed = repeat.errors.values().sum::<u64>() as f64;
    let requests = repeat.scheduled as f64;
    let objectives = || question.objectives.iter().copied();
    let slow: Option<Vec<f64>> = objectives().map(|one| objective::misses(repeat, one)).collect();
    let quantiles = objectives().filter_map(|objective| measured_us(objective, repeat));
    let mut shares = objectives().filter_map(Objective::quantile);
    let is_tail = shares.any(|quantile| quantile >= TAIL_FROM);
    let of_tail = repeat.tail_autocorrelation_time.filter(|_| is_tail);
    let dependence = of_tail.unwrap_or(repeat.autocorrelation_time);
    let judged = match slow {
        Some(_) => judged(question, limits, point, repeat, &latency),
        None => Err("missing times of streamed events".to_owned()),
    };
    let served = repeat.served_inferences().filter(|served| *served > 0.0);
    let served = served.map(|served| served / inferences_ratio(question, point, repeat));
    let used = |of: fn(&ServerDelta) -> f64| Some(of(repeat.server.as_ref()?) / served?);
    StepEvidence {
        rps: point.factors.offered_rps,
        purpose: repeat.purpose,
        requests,
        slow: slow.unwrap_or_else(|| vec![0.0; question.objectives.len()]),
        failed,
        dependence: dependence.max(1.0),
        saturated: judged == Ok(true),
        usable: judged.map(|_| ()),
        tier_requests_per_inference: used(|server| server.tier_requests),
        tier_bytes_per_inference: used(|server| server.tier_wire_bytes),
        quantile_us: quantiles.collect(),
        block: repeat.index,
    }
}

/// Returns the inferences of a request of the point, divided by those of a request of the question.
pub(super) fn inferences_ratio(question: &Question, point: &Point, repeat: &Repeat) -> f64 {
    repeat.inferences_per_request(&point.factors) / f64::from(question.batch_size)
}

/// Returns the figure of a step that an objective limits, in microseconds.
fn measured_us(objective: Objective, repeat: &Repeat) -> Option<f64> {
    objective::measured_us(objective, &BlockTable::new([objective::limited(objective, repeat)]))
}

/// Judges a step by the rules for points: true if the server could not keep up, an error if the step is no evidence about it.
fn judged(
    question: &Question,
    limits: &Limits,
    point: &Point,
    repeat: &Repeat,
    latency: &BlockTable,
) -> Result<bool, String> {
    if let Some(disturbed) = &repeat.disturbed {
        return Err(disturbed.clone());
    }
    if repeat.completed > 0 && latency.samples() == 0 {
        return Err("missing histogram".to_owned());
    }
    let lag = BlockTable::new([repeat.histograms.lag.as_slice()]);
    let since_due = question.objectives.iter().filter_map(|one| one.limit_since_due_us());
    let limits = Limits {
        objective_us: since_due.reduce(f64::min).or(limits.objective_us),
        ..limits.clone()
    };
    let evidence = Evidence::of(&point.factors, std::slice::from_ref(repeat), latency, &lag);
    let (verdict, faults) = verdict::judge(&evidence, &limits);
    let has = |fault: Fault| faults.contains(&fault);
    // Failures above the plan's limit are counted as misses; they do not show a growing queue.
    if matches!(verdict, Verdict::Saturated(_)) && (has(Fault::Backlog) || has(Fault::Replies)) {
        return Ok(true);
    }
    // A late send is in the latency: an objective met despite it is met, an objective missed with it is unknown.
    let broken = question.objectives.iter().any(|one| {
        let limited = measured_us(*one, repeat).zip(one.limit_since_due_us());
        limited.is_some_and(|(us, limit_us)| us >= limit_us)
    });
    let late = has(Fault::Late) && !has(Fault::InFlight) && broken;
    if late || has(Fault::Device) || has(Fault::Skew) || has(Fault::Schedule) || repeat.scheduled == 0 {
        return Err(verdict.to_string());
    }
    Ok(false)
}
