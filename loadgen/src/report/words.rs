//! A run in words: names of parts and verdicts, one sentence per tier, and what to beware of.
//!
//! In: a summarised run. Out: plain text that the table and the page both print. Knows nothing of markup.

use super::units::{latency, latency_interval, percent, rate, thousands};
use crate::analysis::bands;
use crate::analysis::curves::{Curve, curves};
use crate::analysis::{knee, littles_law};
use crate::record::{Band, Factors, Finding, Point, Run, SloFinding, SloOutcome, Summary, Verdict};

/// A part of the latency as people say it.
pub(crate) fn part(name: &str) -> &str {
    match name {
        bands::SEND_LAG => "send lag",
        bands::NETWORK => "network and HTTP",
        bands::UNATTRIBUTED => "failed, no timing",
        "admit" => "admission",
        "cache" => "cache",
        "tier" => "tier wait",
        "join" => "joining rows",
        "batch" => "waiting for a batch",
        "infer" => "inference",
        other => other,
    }
}

/// The verdict in one word.
pub(crate) fn verdict(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Valid => "valid",
        Verdict::Saturated(_) => "saturated",
        Verdict::Invalid(_) => "invalid",
    }
}

/// What stands behind a tier in this run, in one word: `embedded`, `emulated`, `real`, or `unknown`.
pub(crate) fn origin<'a>(run: &'a Run, tier: &str) -> &'a str {
    let text = run.environment.origins.get(tier).map_or("unknown", String::as_str);
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .next()
        .unwrap_or("unknown")
}

/// Whether what is measured on the tier was drawn from a distribution, wholly or in part.
pub(crate) fn is_emulated(run: &Run, tier: &str) -> bool {
    run.environment
        .origins
        .get(tier)
        .is_some_and(|origin| origin.contains("emulated"))
}

/// The tier as printed: what is measured through emulation says so wherever it is named.
pub(crate) fn tier(run: &Run, tier: &str) -> String {
    if is_emulated(run, tier) {
        format!("{tier} (emulated)")
    } else {
        tier.to_owned()
    }
}

/// What a table or a chart holds together: everything but tier, cache and rate.
pub(crate) fn group(factors: &Factors) -> String {
    format!(
        "{} · {} · {} per request · {} arrivals · {} keys",
        factors.mode,
        factors.model,
        if factors.batch_size == 1 {
            "1 row".to_owned()
        } else {
            format!("{} rows", factors.batch_size)
        },
        factors.arrivals,
        factors.keys
    )
}

/// The cache state with its size, where it has one: `warm 10 %`.
pub(crate) fn cache(factors: &Factors) -> String {
    if factors.cache_share > 0.0 {
        format!("{} {}", factors.cache, percent(factors.cache_share))
    } else {
        factors.cache.clone()
    }
}

/// The slowest percentile band with requests.
pub(crate) fn slowest_band(summary: &Summary) -> Option<&Band> {
    summary.bands.last()
}

/// What the slowest requests spend most of their time on, with its share.
pub(crate) fn slowest(summary: &Summary) -> Option<(&str, f64)> {
    slowest_band(summary).and_then(bands::dominant)
}

/// The curves of a run by group, in the order in which they first appear.
pub(crate) fn groups(run: &Run) -> Vec<(String, Vec<Curve<'_>>)> {
    let mut groups: Vec<(String, Vec<Curve<'_>>)> = Vec::new();
    for curve in curves(&run.points) {
        let mut name = group(curve.factors());
        if run.protocol != "http" {
            name += &format!(" · over {}", run.protocol);
        }
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, curves)) => curves.push(curve),
            None => groups.push((name, vec![curve])),
        }
    }
    groups
}

/// A curve in one sentence: its highest valid rate, what the tail is there, and what the tail is made of.
pub(crate) fn sentence(run: &Run, curve: &Curve<'_>) -> String {
    let factors = curve.factors();
    let who = format!("{} {} {}", tier(run, &factors.tier), cache(factors), factors.mode);
    let Some(point) = curve.highest_valid() else {
        return format!("{who}: no valid point at any of {} rates", curve.points.len());
    };
    let Some(summary) = &point.summary else { return who };
    let mut text = format!("{who} at {} rps: ", rate(point.factors.offered_rps));
    match (&summary.p99_us, &summary.p95_us) {
        (Some(p99), _) => text += &format!("p99 {}", latency_interval(Some(p99))),
        (None, Some(p95)) => {
            text += &format!("p95 {} (too few samples for a p99)", latency_interval(Some(p95)));
        }
        (None, None) => text += "too few samples for a percentile",
    }
    if let (Some(band), Some((name, share))) = (slowest_band(summary), slowest(summary)) {
        let which = if band.name == "p99-100" {
            "the slowest 1 % of the requests"
        } else {
            "the slowest requests"
        };
        text += &format!(
            "; in {which} {} of {} is {}",
            percent(share),
            latency(band.mean_us),
            part(name)
        );
    }
    if run.slo.is_none()
        && let Some(knee) = knee::knee(curve)
    {
        text += &format!("; p95 turns up at {} rps", rate(knee));
    }
    text
}

/// What the interval of a highest rate is.
pub(crate) const REACH: &str = "Highest rate under the objective: [lo–hi] reaches from the highest rate that certainly meets it to \
                                the lowest that certainly does not.";

/// How far a curve goes under the run's objective, in one sentence; `None` without an objective.
pub(crate) fn reach(run: &Run, finding: &Finding) -> Option<String> {
    let slo = run.slo.as_ref()?;
    let objective = slo.objective.to_string();
    let factors = &finding.factors;
    let mut text = format!("{} {} {}", tier(run, &factors.tier), cache(factors), factors.mode);
    if factors.batch_size > 1 {
        text += &format!(" ×{}", factors.batch_size);
    }
    let Some(found) = &finding.slo else {
        return Some(format!(
            "{text}: no rate could be judged by {objective}: too few samples"
        ));
    };
    let not_met = |found: &SloFinding| {
        found
            .not_met
            .as_ref()
            .map_or_else(String::new, |next| format!("at {}/s {}", rate(next.rps), next.why))
    };
    text += &match (found.outcome, &found.highest_rps) {
        (SloOutcome::NeverMet, _) | (_, None) => {
            let why = not_met(found);
            let asked = found.not_met.as_ref().is_some_and(|next| next.rps <= slo.lowest_rps);
            let asked = if asked { ", the lowest rate asked" } else { "" };
            format!(": no rate with {objective}: {why}{asked}")
        }
        (outcome, Some(highest)) => {
            let [value, lo, hi] = [highest.value, highest.lo, highest.hi].map(rate);
            let at = format!(": highest rate with {objective}: {value}/s [{lo}–{hi}]");
            match outcome {
                SloOutcome::MetAtHighest => format!(
                    ": {objective} still holds at {value}/s, the highest rate asked; what the server can do lies above \
                     (raise `search.max_rate`)"
                ),
                SloOutcome::MetAsFarAsMeasured => {
                    format!(": {objective} still holds at {value}/s, the highest rate measured")
                }
                SloOutcome::Coarse => format!("{at}; the next rate measured is far above: {}", not_met(found)),
                _ => format!("{at}; {}", not_met(found)),
            }
        }
    };
    if !found.contradicting_rps.is_empty() {
        let rates: Vec<String> = found
            .contradicting_rps
            .iter()
            .map(|&rps| format!("{}/s", rate(rps)))
            .collect();
        text += &format!("; measured otherwise at {}", rates.join(", "));
    }
    if let Some(knee) = finding.knee_rps {
        text += &format!("; p95 turns up at {}/s", rate(knee));
    }
    Some(text)
}

/// What a reader has to know before using the numbers: verdicts with their reasons first, then what is odd.
pub(crate) fn cautions(run: &Run) -> Vec<String> {
    let mut cautions = Vec::new();
    if run.interrupted {
        cautions.push("The run was stopped before its last point; what is here was finished.".to_owned());
    }
    for resumed in &run.resumed {
        let mut text = format!(
            "Gone on with at {} after {} steps, servers and caches as they were then",
            resumed.at, resumed.finished_steps
        );
        for difference in &resumed.differences {
            text += &format!("; {difference}");
        }
        cautions.push(text + ".");
    }
    for failed in run.selfcheck.iter().filter(|check| !check.passed) {
        cautions.push(format!(
            "Self-check failed: {} (expected {}, measured {})",
            failed.name, failed.expected, failed.measured
        ));
    }
    for tier in tiers(run) {
        let what = match origin(run, tier) {
            _ if is_emulated(run, tier) => "latencies are drawn from a distribution, not measured on a service",
            "embedded" => "served on this machine by the project's own server: its latency is a floor, not a cloud's",
            _ => continue,
        };
        cautions.push(format!("{tier} is {}: {what}.", run.environment.origins[tier]));
    }
    if !run.environment.shared_cores.is_empty() {
        cautions.push(format!(
            "On the same cores ran: {}.",
            run.environment.shared_cores.join(", ")
        ));
    }
    for point in &run.points {
        cautions.extend(point_caution(run, point));
    }
    cautions
}

fn point_caution(run: &Run, point: &Point) -> Option<String> {
    let name = name(run, &point.factors);
    let Some(summary) = &point.summary else {
        return Some(format!("{name}: not summarised"));
    };
    match &summary.verdict {
        Verdict::Valid if littles_law::holds(summary.in_flight) => None,
        Verdict::Valid => Some(format!(
            "{name}: {:.2} in flight counted, {:.2} by Little's law: one of them is wrong",
            summary.in_flight.0, summary.in_flight.1
        )),
        verdict => Some(format!("{name}: {verdict}")),
    }
}

/// A point's full name within a run.
pub(crate) fn name(run: &Run, factors: &Factors) -> String {
    let Factors {
        mode,
        model,
        batch_size,
        ..
    } = factors;
    format!(
        "{} {} {mode} {model} ×{batch_size} at {} rps",
        tier(run, &factors.tier),
        cache(factors),
        rate(factors.offered_rps)
    )
}

/// The tiers of a run, in order.
pub(crate) fn tiers(run: &Run) -> Vec<&str> {
    let mut tiers: Vec<&str> = Vec::new();
    for point in &run.points {
        if !tiers.contains(&point.factors.tier.as_str()) {
            tiers.push(&point.factors.tier);
        }
    }
    tiers
}

/// The noise floor in one sentence; `None` where it was not measured.
pub(crate) fn noise_floor(run: &Run) -> Option<String> {
    let point = run.noise_floor.as_ref()?;
    let summary = point.summary.as_ref()?;
    let [p50, p99] = [&summary.p50_us, &summary.p99_us].map(|p| latency_interval(p.as_ref()));
    Some(format!(
        "Noise floor (the same load on a null endpoint, {} rps, {} samples): p50 {p50}, p99 {p99}",
        rate(point.factors.offered_rps),
        thousands(summary.samples)
    ))
}
