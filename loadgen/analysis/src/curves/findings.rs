//! From points to what a run says. In: a run with its repeats. Out: the same run with every point summarised and every
//! curve's finding, and with the answer where it was asked something. Pure, as all of this room.

use super::curve::curves;
use super::{knee, slo};
use crate::record::{Factors, Finding, Limits, Point, Run, Slo};
use crate::{decision, summarise};

/// Fills in the summaries of a run's points its findings, and the answer.
pub fn conclude(run: &mut Run) {
    summarise(&mut run.points, &run.limits, run.pricing.as_ref());
    run.findings = findings(&run.points, run.slo.as_ref(), &run.limits);
    run.answer = decision::answer(run);
}

/// What each curve of summarised points says, in the order in which the curves first appear.
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
