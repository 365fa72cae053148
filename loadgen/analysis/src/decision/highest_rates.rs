//! Highest rate of each variant, including rates above those that the question needs.
//!
//! In: a lab. Out: rates of one instance. Knows nothing of the next measurement.

use super::evidence::Candidate;
use super::lab::{CandidateStatus, Lab};
use super::rate_points::{RatePoint, TOLERANCE, usable};
use super::rates;
use crate::costs::monthly::instances;
use crate::record::{Minimise, Question};

/// Highest rate of one instance under the objectives, in requests per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateEstimate {
    /// Most likely rate; 0 if the lowest rate is likely missed, `None` without a step.
    pub estimate: Option<f64>,
    /// Highest rate that certainly meets the objectives; 0 without one.
    pub lo: f64,
    /// Lowest rate that certainly misses them; infinite without one.
    pub hi: f64,
    /// True if every measured rate looks as if it met the objectives.
    pub is_bound: bool,
}

/// Returns the lab over all rates up to the question's highest, measured rates included.
pub(super) fn widened<'a>(question: &'a Question, candidates: &'a [Candidate]) -> Lab<'a> {
    let mut rates = rates::all(question);
    let steps = candidates.iter().flat_map(|candidate| &candidate.steps);
    let measured: Vec<f64> = steps.map(|step| step.rps).filter(|rps| *rps > rates[0]).collect();
    rates.extend(measured.into_iter().filter(|rps| *rps <= question.highest_rps));
    rates.sort_by(f64::total_cmp);
    rates.dedup_by(|next, rate| *next <= *rate * (1.0 + TOLERANCE));
    Lab::with_rates(question, candidates, rates)
}

/// Returns the highest rate of every variant. Within the rates that the question needs it agrees with the decision, and
/// so with the number of instances; above them it extends as far as was measured.
pub fn highest_rates(lab: &Lab<'_>) -> Vec<RateEstimate> {
    let question = lab.question;
    let wide = widened(question, lab.candidates);
    let widen = |(own, beyond): (&CandidateStatus, &CandidateStatus)| {
        let within = |rps: f64| rps.clamp(own.lo, own.hi.max(own.lo));
        let (lo, hi) = (within(beyond.lo), within(beyond.hi));
        let is_bound = own.missed.is_none() && usable(&beyond.rate_points).all(RatePoint::likely_met);
        let rate_estimate = |estimate, lo, hi| RateEstimate {
            estimate,
            lo,
            hi,
            is_bound,
        };
        let (Some(decided), Some(likely)) = (own.estimate.filter(|rps| *rps > 0.0), beyond.estimate) else {
            return rate_estimate(own.estimate, own.lo, own.hi);
        };
        let likely = likely.clamp(lo, hi.max(lo));
        let is_same = question.minimise == Minimise::P99 || instances(question, likely) == instances(question, decided);
        // Over fewer rates the decision may lie on the other side of a number of instances.
        let estimate = if is_same && likely > 0.0 { likely } else { decided };
        rate_estimate(Some(estimate), lo.min(estimate), hi.max(estimate))
    };
    lab.statuses.iter().zip(&wide.statuses).map(widen).collect()
}
