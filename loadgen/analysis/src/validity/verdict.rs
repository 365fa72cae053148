//! Verdict on a point, with the reason.
//!
//! In: counts of a point's repeats. Out: a [`Verdict`]. Pure: the combination of the rules. Independent of histograms, of
//! measuring, and of other points.

use super::laws::closed_loop_figures;
use super::rules::{
    Evidence, Growth, backlog_growing, device_shortfall, disturbed, drifting, error_share, in_flight_limit,
    long_pauses, not_reached, schedule_error, send_lag, start_skew, too_few_samples,
};
use crate::record::{Driven, Fault, Limits, Verdict};

/// Returns the verdict with the faults behind it. A point is saturated if the server could not keep up (latency grows, or
/// replies fall behind the schedule) or failed more requests than the plan allows. Consequences of saturation (drift, the
/// in-flight limit and with it a late send) are listed as its symptoms. A late send without the in-flight limit is the
/// generator's own fault, and a disturbance is the fault of neither: such a point is invalid even if its latency grows.
/// Failures count against the server despite a late send. Any other fault makes the point invalid.
pub fn judge(evidence: &Evidence<'_>, limits: &Limits) -> (Verdict, Vec<Fault>) {
    if evidence.scheduled() == 0.0 {
        return no_requests();
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
    combined(found, |_| saturated)
}

/// Combines the faults that rules found.
fn combined(
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

/// Returns the verdict by the rules of the point's driver.
///
/// A closed loop offers no rate, cannot grow a backlog, and has no schedule: the remaining rules are failures, drift, disturbance,
/// samples, and the length of users' pauses. A step of a journey is judged by its requests, except for the rate, which earlier steps set;
/// if many journeys never reached the step, it is invalid. The latency of a ramp changes with its rate, and it may end early: what
/// remains are failures, disturbance, late sends and samples. In all of these only failures are the server's.
pub fn judge_driven(driven: Option<&Driven>, evidence: &Evidence<'_>, limits: &Limits) -> (Verdict, Vec<Fault>) {
    let (schedule, late, drift) = match driven {
        Some(Driven::ClosedLoop { .. }) => {
            let figures = closed_loop_figures(&evidence.steps);
            let late = figures.and_then(|figures| long_pauses(&figures, limits));
            (None, late, drifting(evidence))
        }
        Some(Driven::Journey { step: Some(_), .. }) => (
            not_reached(evidence, limits),
            send_lag(evidence, limits),
            drifting(evidence),
        ),
        Some(Driven::Ramp(_)) => {
            let has_pool = evidence.pools().next().is_some();
            let late = send_lag(evidence, limits);
            (
                None,
                late.filter(|_| has_pool || in_flight_limit(evidence).is_none()),
                None,
            )
        }
        _ => return judge(evidence, limits),
    };
    if evidence.scheduled() == 0.0 {
        return no_requests();
    }
    let found = [
        (Fault::Disturbed, disturbed(evidence)),
        (Fault::Device, device_shortfall(evidence)),
        (Fault::Schedule, schedule),
        (Fault::Errors, error_share(evidence, limits)),
        (Fault::Late, late),
        (Fault::Drift, drift),
        (Fault::Samples, too_few_samples(evidence, limits)),
    ];
    combined(found, |faults| {
        let unsound = [Fault::Disturbed, Fault::Device, Fault::Schedule];
        faults.contains(&Fault::Errors) && !unsound.iter().any(|fault| faults.contains(fault))
    })
}

fn no_requests() -> (Verdict, Vec<Fault>) {
    let reasons = vec!["no requests in the window".to_owned()];
    (Verdict::Invalid(reasons), vec![Fault::Samples])
}

#[cfg(test)]
mod tests;
