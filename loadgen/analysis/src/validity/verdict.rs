//! Verdict on a point, with the reason.
//!
//! In: counts of a point's repeats. Out: a [`Verdict`]. Pure: the combination of the rules. Independent of histograms, of
//! measuring, and of other points.

use super::evidence::Evidence;
use super::growth::Growth;
use super::rules::{
    backlog_growing, device_shortfall, disturbed, drifting, error_share, in_flight_limit, long_pauses, not_reached,
    schedule_error, send_lag, start_skew, too_few_samples,
};
use crate::record::{ClosedLoopFigures, Fault, Limits, Verdict};

/// The verdict. A point is saturated if the server could not keep up (latency grows, or replies fall behind the schedule) or
/// failed more requests than the plan allows. What follows from that (drift, the in-flight limit and with it a late send) is
/// listed as its symptoms. A late send without the in-flight limit is the generator's own fault, and a disturbance that of
/// neither: such a point is invalid even if its latency grows. Failures count against the server in spite of a late send.
/// Everything else that fails makes it invalid.
#[must_use]
pub fn verdict(evidence: &Evidence, limits: &Limits) -> Verdict {
    judge(evidence, limits).0
}

/// The verdict, and the rules that it rests on.
#[must_use]
pub fn judge(evidence: &Evidence, limits: &Limits) -> (Verdict, Vec<Fault>) {
    if evidence.scheduled() == 0.0 {
        return nothing_sent();
    }
    let growth = Growth::of(evidence, limits);
    let backlog = backlog_growing(evidence, limits).filter(|_| growth.is_large());
    let limit_hit = in_flight_limit(evidence);
    let late = send_lag(evidence, limits);
    let generator_late = late.is_some() && limit_hit.is_none();
    let device = device_shortfall(evidence);
    let disturbed = disturbed(evidence);
    let skewed = start_skew(evidence, limits);
    let schedule = schedule_error(evidence, limits);
    let errors = error_share(evidence, limits);
    let sound = device.is_none() && disturbed.is_none() && skewed.is_none() && schedule.is_none();
    // A drift or a full line of users is no proof of a queue that grows, but beside replies that fall behind it is.
    let behind = growth.behind(limit_hit.is_some() || !evidence.drifts.is_empty());
    let cannot_keep_up = (backlog.is_some() || behind.is_some()) && !generator_late;
    let saturated = sound && (cannot_keep_up || errors.is_some());
    let drift = drifting(evidence).filter(|_| !(sound && cannot_keep_up));
    let (faults, reasons): (Vec<Fault>, Vec<String>) = [
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
    ]
    .into_iter()
    .filter_map(|(fault, reason)| Some((fault, reason?)))
    .unzip();
    let verdict = match (saturated, reasons.is_empty()) {
        (true, _) => Verdict::Saturated(reasons),
        (false, true) => Verdict::Valid,
        (false, false) => Verdict::Invalid(reasons),
    };
    (verdict, faults)
}

/// The verdict of a closed loop. It offers no rate, cannot grow a backlog, and sends when it sends: what is left are failures,
/// drift, disturbance and samples, and that users pause no longer than they were to.
#[must_use]
pub fn judge_closed_loop(
    evidence: &Evidence,
    figures: Option<ClosedLoopFigures>,
    limits: &Limits,
) -> (Verdict, Vec<Fault>) {
    if evidence.scheduled() == 0.0 {
        return nothing_sent();
    }
    without_rate([
        (Fault::Disturbed, disturbed(evidence)),
        (Fault::Device, device_shortfall(evidence)),
        (Fault::Errors, error_share(evidence, limits)),
        (Fault::Late, figures.and_then(|figures| long_pauses(&figures, limits))),
        (Fault::Drift, drifting(evidence)),
        (Fault::Samples, too_few_samples(evidence, limits)),
    ])
}

/// The verdict of one step of a journey: that of its requests, but for the rate, which those before it set. Where many never
/// came to it, it says nothing of all.
#[must_use]
pub fn judge_step(evidence: &Evidence, limits: &Limits) -> (Verdict, Vec<Fault>) {
    if evidence.scheduled() == 0.0 {
        return nothing_sent();
    }
    without_rate([
        (Fault::Disturbed, disturbed(evidence)),
        (Fault::Device, device_shortfall(evidence)),
        (Fault::Schedule, not_reached(evidence, limits)),
        (Fault::Errors, error_share(evidence, limits)),
        (Fault::Late, send_lag(evidence, limits)),
        (Fault::Drift, drifting(evidence)),
        (Fault::Samples, too_few_samples(evidence, limits)),
    ])
}

fn nothing_sent() -> (Verdict, Vec<Fault>) {
    let reasons = vec!["no requests in the window".to_owned()];
    (Verdict::Invalid(reasons), vec![Fault::Samples])
}

/// The verdict where no rate is held against the replies: only failures are the server's.
fn without_rate<const N: usize>(found: [(Fault, Option<String>); N]) -> (Verdict, Vec<Fault>) {
    let found = found.into_iter().filter_map(|(fault, reason)| Some((fault, reason?)));
    let (faults, reasons): (Vec<Fault>, Vec<String>) = found.unzip();
    let has = |fault: Fault| faults.contains(&fault);
    let sound = !has(Fault::Disturbed) && !has(Fault::Device) && !has(Fault::Schedule);
    let verdict = if reasons.is_empty() {
        Verdict::Valid
    } else if sound && has(Fault::Errors) {
        Verdict::Saturated(reasons)
    } else {
        Verdict::Invalid(reasons)
    };
    (verdict, faults)
}

#[cfg(test)]
mod tests;
