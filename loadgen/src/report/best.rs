//! The point of a curve that stands for it: the highest rate under the run's objective, or else the highest valid one.
//!
//! In: a run and a curve. Out: the point, the rate with its interval, and what kind of rate that is. Knows nothing of how
//! it is shown.

use super::units::rate;
use crate::analysis::curves::{Curve, same_but_rate};
use crate::record::{Interval, Point, Run, SloOutcome};

/// The point that stands for a curve.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Best<'a> {
    /// The measured point.
    pub(crate) point: &'a Point,
    /// Where the boundary lies, as far as that was found out.
    pub(crate) interval: Option<Interval>,
    /// Whether the rate is only known to be at least this.
    pub(crate) at_least: bool,
}

impl Best<'_> {
    /// Requests per second.
    pub(crate) fn rps(&self) -> f64 {
        self.point.factors.offered_rps
    }

    /// `420 rps`, `≥ 800 rps`.
    pub(crate) fn text(&self) -> String {
        format!("{}{} rps", if self.at_least { "≥ " } else { "" }, rate(self.rps()))
    }
}

/// Under the run's objective where it has one, else the highest valid rate; `None` where there is no such point.
pub(crate) fn best<'a>(run: &Run, curve: &Curve<'a>) -> Option<Best<'a>> {
    if run.slo.is_none() {
        return curve.highest_valid().map(|point| Best {
            point,
            interval: None,
            at_least: false,
        });
    }
    let finding = run
        .findings
        .iter()
        .find(|finding| same_but_rate(&finding.factors, curve.factors()))?;
    let slo = finding.slo.as_ref()?;
    let interval = slo.highest_rps?;
    let point = curve
        .points
        .iter()
        .copied()
        .find(|point| point.factors.offered_rps == interval.value)?;
    Some(Best {
        point,
        interval: Some(interval),
        at_least: matches!(slo.outcome, SloOutcome::MetAtHighest | SloOutcome::MetAsFarAsMeasured),
    })
}

/// What [`best`] is: `highest rate with p99 < 20 ms`, or `highest valid rate`.
pub(crate) fn title(run: &Run) -> String {
    run.slo.as_ref().map_or_else(
        || "highest valid rate".to_owned(),
        |slo| format!("highest rate with {}", slo.objective),
    )
}
