//! Verdict on a point, with the reason.
//!
//! In: counts of a point's repeats. Out: a [`Verdict`]. Pure: the combination of the rules. Independent of histograms, of
//! measuring, and of other points.

use super::rules::{
    Evidence, Growth, backlog_growing, device_shortfall, disturbed, drifting, error_share, in_flight_limit,
    long_pauses, not_reached, schedule_error, send_lag, start_skew, too_few_samples,
};
use crate::record::{ClosedLoopFigures, Fault, Limits, Verdict};

/// Returns the verdict with the faults behind it. A point is saturated if the server could not keep up (latency grows, or
/// replies fall behind the schedule) or failed more requests than the plan allows. Consequences of saturation (drift, the
/// in-flight limit and with it a late send) are listed as its symptoms. A late send without the in-flight limit is the
/// generator's own fault, and a disturbance is the fault of neither: such a point is invalid even if its latency grows.
/// Failures count against the server despite a late send. Any other fault makes the point invalid.
#[must_use]
pub fn judge(evidence: &Evidence<'_>, limits: &Limits) -> (Verdict, Vec<Fault>) {
    if evidence.scheduled() == 0.0 {
        return nothing_sent();
    }
    let growth = Growth::of(evidence, limits);
    let backlog = backlog_growing(evidence, limits).filter(|_| growth.is_large());
    let limit_hit = in_flight_limit(evidence);
    let late = send_lag(evidence, limits);
    // The wait for a fixed number of connections is not part of this lag.
    let has_pool = evidence.pools().next().is_some();
    let generator_late = late.is_some() && (limit_hit.is_none() || has_pool);
    let device = device_shortfall(evidence);
    let disturbed = disturbed(evidence);
    let skewed = start_skew(evidence, limits);
    let schedule = schedule_error(evidence, limits);
    let errors = error_share(evidence, limits);
    let sound = device.is_none() && disturbed.is_none() && skewed.is_none() && schedule.is_none();
    // A drift or an exhausted in-flight limit alone does not prove a growing queue, but it does beside replies that
    // fall behind.
    let behind = growth.behind(limit_hit.is_some() || !evidence.drifts.is_empty());
    let cannot_keep_up = (backlog.is_some() || behind.is_some()) && !generator_late;
    let saturated = sound && (cannot_keep_up || errors.is_some());
    let drift = drifting(evidence).filter(|_| !(sound && cannot_keep_up));
    // A plan's own connections may all be busy, and the wait for them counts.
    let limit_hit = limit_hit.filter(|_| !has_pool || saturated);
    let found = [
        (Fault::Disturbed, disturbed),
        (Fault::Device, device),
        (Fault::Skew, skewed),
        (Fault::Schedule, schedule),
        (Fault::Backlog, backlog),
        (Fault::Replies, behind.or_else(|| growth.ahead())),
        (Fault::Errors, errors),
        (Fault::InFlight, limit_hit),
        (Fault::Late, late),
        (Fault::Drift, drift),
        (Fault::Samples, too_few_samples(evidence, limits)),
    ];
    concluded(found, |_| saturated)
}

/// Combines the faults that rules found.
fn concluded(
    found: impl IntoIterator<Item = (Fault, Option<String>)>,
    is_saturated: impl Fn(&[Fault]) -> bool,
) -> (Verdict, Vec<Fault>) {
    let found = found.into_iter().filter_map(|(fault, reason)| Some((fault, reason?)));
    let (faults, reasons): (Vec<Fault>, Vec<String>) = found.unzip();
    let verdict = match reasons.is_empty() {
        true => Verdict::Valid,
        false if is_saturated(&faults) => Verdict::Saturated(reasons),
        false => Verdict::Invalid(reasons),
    };
    (verdict, faults)
}

/// Returns the verdict of a closed loop. It offers no rate, cannot grow a backlog, and has no schedule: the remaining
/// rules are failures, drift, disturbance, samples, and the length of users' pauses.
#[must_use]
pub fn judge_closed_loop(
    evidence: &Evidence<'_>,
    figures: Option<ClosedLoopFigures>,
    limits: &Limits,
) -> (Verdict, Vec<Fault>) {
    let rules = [
        (Fault::Errors, error_share(evidence, limits)),
        (Fault::Late, figures.and_then(|figures| long_pauses(&figures, limits))),
        (Fault::Drift, drifting(evidence)),
        (Fault::Samples, too_few_samples(evidence, limits)),
    ];
    without_rate(evidence, rules)
}

/// Returns the verdict of one step of a journey: that of its requests, except for the rate, which earlier steps set. If
/// many journeys never reached the step, it is invalid.
#[must_use]
pub fn judge_step(evidence: &Evidence<'_>, limits: &Limits) -> (Verdict, Vec<Fault>) {
    let rules = [
        (Fault::Schedule, not_reached(evidence, limits)),
        (Fault::Errors, error_share(evidence, limits)),
        (Fault::Late, send_lag(evidence, limits)),
        (Fault::Drift, drifting(evidence)),
        (Fault::Samples, too_few_samples(evidence, limits)),
    ];
    without_rate(evidence, rules)
}

/// Returns the verdict of a ramp. Its latency changes with its rate, and it may end early: what remains are failures,
/// disturbance, late sends and samples.
#[must_use]
pub fn judge_ramp(evidence: &Evidence<'_>, limits: &Limits) -> (Verdict, Vec<Fault>) {
    let has_pool = evidence.pools().next().is_some();
    let late = send_lag(evidence, limits).filter(|_| has_pool || in_flight_limit(evidence).is_none());
    let rules = [
        (Fault::Errors, error_share(evidence, limits)),
        (Fault::Late, late),
        (Fault::Samples, too_few_samples(evidence, limits)),
    ];
    without_rate(evidence, rules)
}

fn nothing_sent() -> (Verdict, Vec<Fault>) {
    let reasons = vec!["no requests in the window".to_owned()];
    (Verdict::Invalid(reasons), vec![Fault::Samples])
}

/// Returns the verdict without a comparison of rate and replies: only failures are the server's.
fn without_rate<const N: usize>(evidence: &Evidence<'_>, rules: [(Fault, Option<String>); N]) -> (Verdict, Vec<Fault>) {
    if evidence.scheduled() == 0.0 {
        return nothing_sent();
    }
    let of_any = [
        (Fault::Disturbed, disturbed(evidence)),
        (Fault::Device, device_shortfall(evidence)),
    ];
    concluded(of_any.into_iter().chain(rules), |faults| {
        let unsound = [Fault::Disturbed, Fault::Device, Fault::Schedule];
        faults.contains(&Fault::Errors) && !unsound.iter().any(|fault| faults.contains(fault))
    })
}

#[cfg(test)]
mod tests;
