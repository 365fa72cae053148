//! Conclusions of a run. In: a run with its repeats. Out: the same run with summaries of every point, findings of every
//! curve, and the answer if it has a question. Pure, as is this whole module.

use super::curve::curves;
use super::{knee, slo};
use crate::record::{Factors, Finding, Limits, Point, Run, Slo};
use crate::{decision, summarise};

/// Fills in the summaries of a run's points, its findings and its answer.
pub fn conclude(run: &mut Run) {
    summarise(&mut run.points, &run.limits, run.pricing.as_ref());
    run.findings = findings(&run.points, run.slo.as_ref(), &run.limits);
    run.answer = decision::answer(run);
}

/// Returns the finding of each curve of summarised points, in the order in which the curves first appear.
#[must_use]
pub fn findings(points: &[Point], objective: Option<&Slo>, limits: &Limits) -> Vec<Finding> {
    curves(points)
        .iter()
        .map(|curve| Finding {
            factors: Factors {
                offered_rps: 0.0,
                ..curve.factors().clone()
            },
            highest_valid_rps: curve.highest_valid().map(|point| point.factors.offered_rps),
            knee_rps: knee::knee(curve),
            slo: objective.and_then(|objective| slo::finding(curve, objective, limits)),
        })
        .collect()
}
