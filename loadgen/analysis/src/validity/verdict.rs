//! Whether a point may be used, and if not, why.
//!
//! In: what the repeats of a point counted. Out: a [`Verdict`]. Pure: what the rules say together. Knows nothing of histograms, of how things
//! were measured, nor of other points.

use super::evidence::Evidence;
use super::rules::{
    backlog_growing, device_shortfall, disturbed, drifting, error_share, in_flight_limit, long_pauses, not_reached,
    reply_error, schedule_error, send_lag, start_skew, too_few_samples,
};
use crate::record::{ClosedLoopFigures, Fault, Limits, Verdict};

/// The verdict. A growing backlog makes a point saturated, and what follows from one (too few replies, errors, the
/// in-flight limit and with it a late send) is listed as its symptoms. A late send without the in-flight limit is the
/// generator's own fault, and a disturbance that of neither, so that such a point is invalid even where its latency grows.
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
    let backlog = backlog_growing(evidence, limits);
    let limit_hit = in_flight_limit(evidence);
    let late = send_lag(evidence, limits);
    let generator_late = late.is_some() && limit_hit.is_none();
    let device = device_shortfall(evidence);
    let disturbed = disturbed(evidence);
    let skewed = start_skew(evidence, limits);
    let sound = device.is_none() && disturbed.is_none() && skewed.is_none();
    let saturated = backlog.is_some() && !generator_late && sound;
    let (faults, reasons): (Vec<Fault>, Vec<String>) = [
        (Fault::Disturbed, disturbed),
        (Fault::Device, device),
        (Fault::Skew, skewed),
        (Fault::Schedule, schedule_error(evidence, limits)),
        (Fault::Backlog, backlog),
        (Fault::Replies, reply_error(evidence, limits)),
        (Fault::Errors, error_share(evidence, limits)),
        (Fault::InFlight, limit_hit),
        (Fault::Late, late),
        (Fault::Drift, drifting(evidence, saturated)),
        (Fault::Samples, too_few_samples(evidence)),
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
    invalid_for([
        (Fault::Disturbed, disturbed(evidence)),
        (Fault::Device, device_shortfall(evidence)),
        (Fault::Errors, error_share(evidence, limits)),
        (Fault::Late, figures.and_then(|figures| long_pauses(&figures, limits))),
        (Fault::Drift, drifting(evidence, false)),
        (Fault::Samples, too_few_samples(evidence)),
    ])
}

/// The verdict of one step of a journey: that of its requests, but for the rate, which those before it set. Where many never
/// came to it, it says nothing of all.
#[must_use]
pub fn judge_step(evidence: &Evidence, limits: &Limits) -> (Verdict, Vec<Fault>) {
    if evidence.scheduled() == 0.0 {
        return nothing_sent();
    }
    invalid_for([
        (Fault::Disturbed, disturbed(evidence)),
        (Fault::Device, device_shortfall(evidence)),
        (Fault::Schedule, not_reached(evidence, limits)),
        (Fault::Errors, error_share(evidence, limits)),
        (Fault::Late, send_lag(evidence, limits)),
        (Fault::Drift, drifting(evidence, false)),
        (Fault::Samples, too_few_samples(evidence)),
    ])
}

fn nothing_sent() -> (Verdict, Vec<Fault>) {
    let reasons = vec!["no requests in the window".to_owned()];
    (Verdict::Invalid(reasons), vec![Fault::Samples])
}

fn invalid_for<const N: usize>(found: [(Fault, Option<String>); N]) -> (Verdict, Vec<Fault>) {
    let found = found.into_iter().filter_map(|(fault, reason)| Some((fault, reason?)));
    let (faults, reasons): (Vec<Fault>, Vec<String>) = found.unzip();
    if reasons.is_empty() {
        (Verdict::Valid, faults)
    } else {
        (Verdict::Invalid(reasons), faults)
    }
}

#[cfg(test)]
mod tests;
