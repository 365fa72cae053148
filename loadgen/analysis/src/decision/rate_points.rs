//! Steps of one candidate by rate. In: steps. Out: for each rate the likelihood under every objective, and whether the
//! rate can be measured; the lowest rate that they miss, and the steps that a p99 takes. Knows nothing of costs and of decisions.

use super::evidence::StepEvidence;
use super::likelihood::{Likelihood, StepCounts};
use crate::record::{Percentile, Purpose, Question};
use crate::statistics::mean;

/// Share within which two rates are the same, because a schedule may round.
pub(super) const TOLERANCE: f64 = 0.002;
/// Consecutive failed attempts after which a rate is skipped for a while.
pub(crate) const MAX_TRIES: u32 = 3;
/// Evidence of other rates for each failed attempt after which a rate is tried again: a disturbance of the machine passes, and attempts at
/// a rate that the instrument cannot offer stay few.
const REST_FACTOR: u32 = 2;
/// Failed requests below which any limit may be met by coincidence.
const MIN_FAILED: f64 = 2.0;
/// Lower end of the rates that are pooled for the dependence at a rate, as a share of it.
const DEPENDENCE_FROM: f64 = 0.5;
/// Upper end of the rates that are pooled for the dependence at a rate, as a share of it.
const DEPENDENCE_TO: f64 = 1.1;
/// Maximum load of a server in the estimate of a dependence.
const MAX_LOAD: f64 = 0.9;
/// Requests beyond a percentile from which it is printed and counts, less a margin for rounding.
pub(super) const MIN_BEYOND: f64 = 10.0 - 1e-5;
/// Maximum steps for a p99; a tail that needs more does not fit in a lab and is not measured.
const MAX_STEPS_FOR_P99: u32 = 64;

/// True if two rates are the same, up to the rounding of a schedule.
fn is_same(rps: f64, other: f64) -> bool {
    (rps / other - 1.0).abs() <= TOLERANCE
}

/// Steps of one rate.
#[derive(Debug, Clone, Default)]
pub(crate) struct RatePoint {
    /// Offered rate in requests per second.
    pub(crate) rps: f64,
    /// Steps that are evidence.
    pub(crate) usable: u32,
    /// Unusable steps since the last usable one.
    pub(crate) unusable: u32,
    /// Usable steps of other rates since the last unusable one.
    usable_elsewhere: u32,
    /// Likelihood under each objective, then of failures.
    pub(crate) likelihoods: Vec<Likelihood>,
    /// Requests per independent observation.
    pub(crate) dependence: f64,
    /// Log odds of the mean slow share relative to the limit, for the objective that looks worst.
    pub(crate) position: f64,
    requests: f64,
    failed: f64,
}

impl RatePoint {
    /// True if the rate looks as if it met the objectives.
    pub(crate) fn likely_met(&self) -> bool {
        self.usable > 0 && self.position < 0.0
    }

    /// True if the rate could not be measured, and is not worth another attempt yet.
    pub(crate) fn is_stuck(&self) -> bool {
        self.unusable >= MAX_TRIES && self.usable_elsewhere < REST_FACTOR * self.unusable
    }

    /// True if more requests failed than allowed. Short steps cannot show a share below one in a thousand, so such
    /// limits only have to look met.
    pub(crate) fn exceeds_errors(&self, question: &Question) -> bool {
        self.failed >= MIN_FAILED && self.failed > question.error_share * self.requests
    }

    fn add(&mut self, question: &Question, step: &StepEvidence) {
        if is_unusable(step) {
            self.unusable += 1;
            self.usable_elsewhere = 0;
            return;
        }
        let dependence = self.dependence;
        let counts = |slow: f64, saturated: bool| StepCounts {
            requests: step.requests,
            slow,
            dependence,
            saturated,
        };
        let limits = question.objectives.iter().map(|objective| objective.slow_share());
        for ((likelihood, limit), slow) in self.likelihoods.iter_mut().zip(limits).zip(&step.slow) {
            likelihood.add(counts(*slow, step.saturated), limit);
        }
        if let Some(failures) = self.likelihoods.last_mut() {
            failures.add(counts(step.failed, false), question.error_share.clamp(1e-6, 0.5));
        }
        self.unusable = 0;
        self.usable += 1;
        self.requests += step.requests;
        self.failed += step.failed;
    }

    fn set_position(&mut self, question: &Question) {
        let counted = question.objectives.len() + usize::from(self.exceeds_errors(question));
        let positions = self.likelihoods[..counted].iter().map(Likelihood::position);
        self.position = positions.fold(f64::NEG_INFINITY, f64::max);
    }
}

fn is_unusable(step: &StepEvidence) -> bool {
    step.requests <= 0.0 || step.usable.is_err()
}

/// Gathers the steps of one candidate with the given purposes by rate, rising.
pub(crate) fn gather(
    question: &Question,
    steps: &[StepEvidence],
    rates: &[f64],
    of: fn(Purpose) -> bool,
) -> Vec<RatePoint> {
    let mut points: Vec<RatePoint> = Vec::new();
    let depends = |rps: f64| {
        let is_evidence = |step: &&StepEvidence| {
            let is_self = is_same(step.rps, rps);
            let is_near = step.rps >= DEPENDENCE_FROM * rps && step.rps <= DEPENDENCE_TO * rps && !step.saturated;
            (is_self || is_near) && !is_unusable(step)
        };
        // In a queue at a load of ρ, the requests of a burst are about 1 / (1 - ρ)²: a step shows its load, and the load at
        // another rate.
        let load = |step: &StepEvidence| rps / step.rps * (1.0 - 1.0 / step.dependence.max(1.0).sqrt());
        let loads: Vec<f64> = steps.iter().filter(is_evidence).map(load).collect();
        let load = mean(&loads);
        (1.0 - load.min(MAX_LOAD)).powi(-2)
    };
    for step in steps.iter().filter(|step| of(step.purpose)) {
        let rate = rates.iter().copied().find(|rate| is_same(step.rps, *rate));
        let rps = rate.unwrap_or(step.rps);
        let index = points.iter().position(|one| is_same(one.rps, rps));
        let index = index.unwrap_or_else(|| {
            points.push(RatePoint {
                rps,
                likelihoods: vec![Likelihood::empty(); question.objectives.len() + 1],
                dependence: depends(rps),
                ..RatePoint::default()
            });
            points.len() - 1
        });
        points[index].add(question, step);
        if !is_unusable(step) {
            let others = points.iter_mut().enumerate().filter(|(other, _)| *other != index);
            others.for_each(|(_, other)| other.usable_elsewhere += 1);
        }
    }
    for point in &mut points {
        point.set_position(question);
    }
    points.sort_by(|a, b| a.rps.total_cmp(&b.rps));
    points
}

/// Returns the steps of a rate, if it was measured.
pub(crate) fn point_at(points: &[RatePoint], rps: f64) -> Option<&RatePoint> {
    points.iter().find(|point| is_same(point.rps, rps))
}

/// Rates with evidence.
pub(crate) fn usable(points: &[RatePoint]) -> impl DoubleEndedIterator<Item = &RatePoint> {
    points.iter().filter(|point| point.usable > 0)
}

/// Returns the highest rate with evidence.
pub(super) fn top_rate(points: &[RatePoint]) -> Option<f64> {
    usable(points).map(|point| point.rps).reduce(f64::max)
}

/// Returns the highest rate that looks as if it met the objectives; at least `least`.
pub(super) fn sustained(points: &[RatePoint], least: f64) -> f64 {
    let met = points.iter().filter(|point| point.likely_met());
    met.map(|point| point.rps).fold(least, f64::max)
}

/// Returns the lowest rate at which all steps together, for any purpose, have more slow or failed requests than an
/// objective allows, and enough for its percentile.
pub(super) fn missed_rps(question: &Question, steps: &[StepEvidence]) -> Option<f64> {
    let counts = |step: &&StepEvidence| !is_unusable(step);
    let is_missed = |rps: &f64| {
        let at_rate = || steps.iter().filter(counts).filter(|step| is_same(step.rps, *rps));
        let requests: f64 = at_rate().map(|step| step.requests).sum();
        question.objectives.iter().enumerate().any(|(index, objective)| {
            let allowed = objective.slow_share() * requests;
            let slow: f64 = at_rate().filter_map(|step| step.slow.get(index)).sum();
            allowed >= MIN_BEYOND && slow > allowed
        })
    };
    let rates = steps.iter().filter(counts).map(|step| step.rps);
    rates.filter(is_missed).reduce(f64::min)
}

/// Returns the number of steps from which the p99 at a rate is printed. 0 if the rate was not measured yet, or if it
/// would take more than 64.
pub(super) fn steps_for_p99(steps: &[StepEvidence], rps: f64) -> u32 {
    let is_at_rate = |step: &&StepEvidence| step.usable.is_ok() && is_same(step.rps, rps);
    let at_rate: Vec<f64> = steps.iter().filter(is_at_rate).map(|step| step.requests).collect();
    let requests = at_rate.iter().sum::<f64>() / at_rate.len() as f64;
    // Without steps the quotient is NaN, which becomes 0.
    let wanted = (Percentile::P99.samples_needed() as f64 / requests).ceil();
    match wanted <= f64::from(MAX_STEPS_FOR_P99) {
        true => wanted as u32,
        false => 0,
    }
}
