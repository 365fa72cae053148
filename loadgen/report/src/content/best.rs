//! The point of a curve that stands for it: the highest rate under the run's objective, or else the highest valid one.
//!
//! In: a run and a curve. Out: the point, the rate with its interval, and what kind of rate that is. Knows nothing of how
//! it is shown.

use crate::units::{dollars_interval, rate};
use tierlab_analysis::curves::{Curve, same_but_rate};
use tierlab_analysis::record::{Interval, Point, Run, SloOutcome, Verdict};

/// The point that stands for a curve.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Best<'a> {
    /// The measured point.
    pub(crate) point: &'a Point,
    /// Where the boundary lies, as far as that was found out.
    pub(crate) interval: Option<Interval>,
    /// Whether the rate is only known to be at least this: the plan ended there, not the server.
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

    /// Goes before what an inference costs there: at a rate that only the plan set, the server's own highest would cost
    /// less.
    pub(crate) const fn at_most(&self) -> &'static str {
        if self.at_least { "at most " } else { "" }
    }

    /// `$0.0124 [0.0120–0.0130]`, `at most $0.0124 […]`; `None` without a price.
    pub(crate) fn cost(&self) -> Option<String> {
        let usd = self.point.summary.as_ref()?.usd_per_10k?;
        Some(format!("{}{}", self.at_most(), dollars_interval(Some(&usd))))
    }
}

/// Under the run's objective where it has one, else the highest valid rate; `None` where there is no such point.
pub(crate) fn best<'a>(run: &Run, curve: &Curve<'a>) -> Option<Best<'a>> {
    if run.slo.is_none() {
        return curve.highest_valid().map(|point| Best {
            point,
            interval: None,
            at_least: !ends_at_the_server(run, curve),
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

/// Whether the server ended the rates that were valid: by not keeping up at the next one, or by failing there. A plan
/// that asked for no more, or a measurement that broke its own rules, says nothing of the server's limit.
fn ends_at_the_server(run: &Run, curve: &Curve<'_>) -> bool {
    let next = curve.first_not_valid().and_then(|point| point.summary.as_ref());
    next.is_some_and(|summary| {
        matches!(summary.verdict, Verdict::Saturated(_)) || summary.error_share > run.limits.error_share
    })
}

/// What [`best`] is: `highest rate with p99 < 20 ms`, or `highest valid rate`.
pub(crate) fn title(run: &Run) -> String {
    run.slo.as_ref().map_or_else(
        || "highest valid rate".to_owned(),
        |slo| format!("highest rate with {}", slo.objective),
    )
}
