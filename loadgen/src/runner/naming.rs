//! Names of points and steps: factors that identify a point, and a finished step in a line.
//!
//! In: plan, target and load; a finished repeat. Out: factors and text. Knows nothing of how a step is measured.

use super::target::{Content, Target};
use crate::plan::Plan;
use hdrhistogram::Histogram;
use tierlab_analysis::record::{Driven, Factors, Repeat};
use tierlab_load::schedule::Load;

/// Returns the factors of a point.
pub fn factors(plan: &Plan, target: &Target, load: Load, model: &str) -> Factors {
    Factors {
        variant: target.variant.clone(),
        tier: target.tier.clone(),
        cache: target.cache.clone(),
        cache_share: target.cache_share,
        model: model.to_owned(),
        mode: load.mode,
        batch_size: load.batch_size,
        offered_rps: load.rate,
        arrivals: plan.arrivals.to_string(),
        keys: match target.content_of(model) {
            Content::Joined(_) | Content::Custom { ids: Some(_), .. } => plan.keys.to_string(),
            Content::Mixed(..) => format!("{} and inline", plan.keys),
            Content::Inline(_) => "inline".into(),
            Content::Custom { ids: None, .. } => "recorded".into(),
        },
        mix: None,
        driven: plan.arrivals.ramp().map(Driven::Ramp),
    }
}

/// Returns the factors of a point that is not an open loop of single requests.
pub(super) fn driven_factors(plan: &Plan, target: &Target, load: Load, model: &str, driven: Driven) -> Factors {
    Factors {
        driven: Some(driven),
        ..factors(plan, target, load, model)
    }
}

/// Describes a point in a line.
pub(crate) fn name(factors: &Factors) -> String {
    let label = format!("{} {}", factors.label(), factors.cache);
    let kind = format!("{}×{}", factors.mode, factors.batch_size);
    let rate = match factors.offered_rps {
        plans if (plans * 1e3).fract() == 0.0 => plans,
        computed => four_digits(computed),
    };
    match &factors.driven {
        None => format!("{label} {kind} at {rate}/s"),
        Some(driven @ Driven::ClosedLoop { .. }) => format!("{label} {kind} {driven}"),
        Some(driven @ Driven::BesideClosedLoop { .. }) => format!("{label} {kind} at {rate}/s {driven}"),
        Some(driven @ Driven::Journey { .. }) => format!("{label} {driven} at {rate}/s"),
        Some(driven @ Driven::Ramp(_)) => format!("{label} {kind} on a {driven}"),
    }
}

/// Rounds a computed rate to four digits.
pub(super) fn four_digits(rps: f64) -> f64 {
    let unit = 10_f64.powf(rps.log10().floor() - 3.0);
    let rounded = (rps / unit).round() * unit;
    (rounded * 1e6).round() / 1e6
}

/// Describes a finished step in a line.
pub(super) fn line(factors: &Factors, repeat: &Repeat) -> String {
    let mut latency = match repeat.histograms.latency.first() {
        Some(first) => Histogram::new_from(first),
        None => return format!("{}: nothing was scheduled", name(factors)),
    };
    latency.auto(true);
    for block in &repeat.histograms.latency {
        // Cannot fail: the sum resizes itself.
        let _ = latency.add(block);
    }
    let millis = |quantile| latency.value_at_quantile(quantile) as f64 / 1_000.0;
    let percentiles = match latency.is_empty() {
        true => "no good reply".to_owned(),
        false => format!("p50 {:.2} ms, p99 {:.2} ms", millis(0.5), millis(0.99)),
    };
    let (name, number, failed) = (name(factors), repeat.index + 1, repeat.failed());
    // A ramp that stopped offered its rate for a part of the window; the results say the same.
    let rps = repeat.achieved_rps * (repeat.window_s / repeat.offered_s(factors));
    let mut line = format!("{name}, repeat {number}: {percentiles}, {rps:.0}/s, {failed} errors");
    if let Some(server) = &repeat.server {
        let lookups = server.cache_hits + server.cache_misses;
        if lookups > 0.0 {
            line += &format!(", {:.0} % hits", server.cache_hits / lookups * 100.0);
        }
        if let Some(doubt) = &server.doubt {
            line += &format!(", its counters are left out: {doubt}");
        }
        if server.restarts > 0 {
            line += &format!(", {} of its servers restarted", server.restarts);
        }
    }
    if let Some(stopped_rps) = repeat.driver.ramp().and_then(|ramp| ramp.stopped_rps) {
        line += &format!(", the ramp stopped at {stopped_rps:.0}/s");
    }
    if let Some(disturbed) = &repeat.disturbed {
        line += &format!(", disturbed: {disturbed}");
    }
    line
}
