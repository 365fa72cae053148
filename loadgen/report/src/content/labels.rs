//! A run in words: names of parts, verdicts, tiers and points, and one sentence per curve.
//!
//! In: a summarised run. Out: plain text for every renderer. Knows nothing of markup.

use super::best;
use crate::units::{digits3, duration, latency, latency_interval, percent, percent_digits, rate};
use std::borrow::Cow;
use tierlab_analysis::curves::{Curve, curves, distinct, grouped, is_valid};
use tierlab_analysis::latency::bands;
use tierlab_analysis::record::{
    Band, Driven, Factors, Interval, OpenQuestion, Point, Pricing, Run, ServerStages, Summary, Tail, Variant, Verdict,
};

/// Number without the zeros that end its fraction.
pub(crate) fn trimmed(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}

/// Label of figures from a distribution instead of a service.
const EMULATED: &str = "emulated";

/// Part of the latency in words.
pub(crate) fn part(name: &str) -> &str {
    match name {
        bands::SEND_LAG => "send lag",
        bands::NETWORK => "network and HTTP",
        bands::UNATTRIBUTED => "failed, no timing",
        bands::UNREPORTED => "not reported by the server",
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

/// Origin of a tier or variant, by its label; empty if it is unknown. A server does not know that the plan slows it down, so the
/// text of an emulated variant names both.
pub(crate) fn origin_text<'a>(run: &'a Run, label: &str) -> Cow<'a, str> {
    let variant = variant(run, label);
    let recorded = run.environment.origins.get(label).map(String::as_str);
    match (recorded, variant) {
        (Some(recorded), Some(variant)) if variant.emulated.is_some() && !says_emulated(recorded) => {
            let (planned, below) = variant.origin.rsplit_once(' ').unwrap_or_default();
            Cow::Owned(match recorded.starts_with(below) && planned.contains(EMULATED) {
                true => format!("{planned} {recorded}"),
                false => format!("{EMULATED}; {recorded}"),
            })
        }
        (Some(recorded), _) => Cow::Borrowed(recorded),
        (None, variant) => Cow::Borrowed(variant.map_or("", |variant| &variant.origin)),
    }
}

/// Variant of a label; `None` for the label of a tier.
pub(crate) fn variant<'a>(run: &'a Run, label: &str) -> Option<&'a Variant> {
    run.variants.iter().find(|variant| variant.name == label)
}

/// Origin of a tier or variant in one word: `embedded`, `emulated`, `real`, or `unknown`.
pub(crate) fn origin(run: &Run, label: &str) -> String {
    if is_emulated(run, label) {
        return EMULATED.to_owned();
    }
    let text = origin_text(run, label);
    let first = text.split(|c: char| !c.is_ascii_alphanumeric()).next();
    first.filter(|word| !word.is_empty()).unwrap_or("unknown").to_owned()
}

/// True if any part of a latency on the tier or variant comes from a distribution.
pub(crate) fn is_emulated(run: &Run, label: &str) -> bool {
    variant(run, label).is_some_and(|variant| variant.emulated.is_some()) || says_emulated(&origin_text(run, label))
}

/// True if a part of a description says it; an address may contain any word.
fn says_emulated(description: &str) -> bool {
    description.split("; ").any(|part| part.starts_with(EMULATED))
}

/// Printed tier: an emulated one says so wherever it is named.
pub(crate) fn tier(run: &Run, tier: &str) -> String {
    match is_emulated(run, tier) {
        true => format!("{tier} (emulated)"),
        false => tier.to_owned(),
    }
}

/// Factors of a table or chart in words: all but tier, cache and rate.
pub(crate) fn group(factors: &Factors) -> String {
    let rows = if factors.batch_size == 1 { "row" } else { "rows" };
    let (mode, model, batch_size) = (factors.mode, &factors.model, factors.batch_size);
    let (arrivals, keys) = (arrivals(factors), &factors.keys);
    format!("{mode} · {model} · {batch_size} {rows} per request · {arrivals} arrivals · {keys} keys")
}

/// The arrival process, and what was sent at the same time.
pub(crate) fn arrivals(factors: &Factors) -> String {
    match &factors.mix {
        Some(mix) => format!("{} (in a mix of {mix})", factors.arrivals),
        None => factors.arrivals.clone(),
    }
}

/// The cache state with its share of the table, if it has one: `warm 10 %`. A larger cache counts as 100 %.
pub(crate) fn cache(factors: &Factors) -> String {
    match factors.cache_share > 0.0 {
        true => format!("{} {}", factors.cache, percent(factors.cache_share.min(1.0))),
        false => factors.cache.clone(),
    }
}

/// Part with the most time of the slowest requests, with its share.
pub(crate) fn slowest(summary: &Summary) -> Option<(&str, Interval)> {
    let tail = summary.tail.as_ref().filter(|tail| tail.exceeds.is_none())?;
    let (part, share) = tail.parts.first()?;
    Some((part, *share))
}

/// Dominant part in words: `92 % [88–95] tier wait`, or the first few parts if none stands out.
pub(crate) fn dominance(tail: &Tail) -> String {
    let share = |share: &Interval| {
        let (value, [lo, hi]) = (percent(share.value), [share.lo, share.hi].map(percent_digits));
        match share.hi > share.lo {
            true => format!("{value} [{lo}–{hi}]"),
            false => value,
        }
    };
    if let Some(times) = tail.exceeds {
        let times = digits3(times);
        return format!("unknown: the parts that the server reports are {times} times the latency");
    }
    match &tail.parts[..] {
        [] => "nothing".to_owned(),
        [(name, first), ..] if tail.clear => format!("{} {}", share(first), part(name)),
        several => {
            let describe = |(name, share): &(String, Interval)| format!("{} {}", percent(share.value), part(name));
            let first_parts: Vec<String> = several.iter().take(3).map(describe).collect();
            let first_parts = first_parts.join(", ");
            // Of several repeats at least one had another part first.
            match several[0].1.value > 0.5 {
                true => format!("{first_parts}, though not in every repeat"),
                false => format!("several things: {first_parts}"),
            }
        }
    }
}

/// A variant's name as the plan has it, without the number of its servers.
pub(crate) fn without_servers(variant: &Variant) -> String {
    let plural = if variant.servers == 1 { "" } else { "s" };
    let suffix = format!("-{}-server{plural}", variant.servers);
    variant.name.strip_suffix(&suffix).unwrap_or(&variant.name).to_owned()
}

/// Names of the prices that were written down from memory: of instances, or of storage behind its tier.
pub(crate) fn unchecked(pricing: &Pricing) -> impl Iterator<Item = &str> {
    let sources = pricing.sources.iter().filter(|source| source.contains("not checked"));
    sources.filter_map(|source| source.split(": $").next())
}

/// Curves of a run by group, in the order of their first points; those of the run's question come first.
pub(crate) fn groups(run: &Run) -> Vec<(String, Vec<Curve<'_>>)> {
    let over = match run.protocol.as_str() {
        "http" => String::new(),
        other => format!(" · over {other}"),
    };
    let named = curves(&run.points).into_iter();
    let mut groups = grouped(named.map(|curve| (group(curve.factors()) + &over, curve)));
    if let Some(question) = &run.question {
        let is_of_question = |curve: &Curve<'_>| {
            let factors = curve.factors();
            (factors.mode, factors.batch_size) == (question.mode, question.batch_size)
        };
        groups.sort_by_key(|(_, curves)| !curves.iter().any(is_of_question));
    }
    groups
}

/// A curve in one sentence, at its highest rate ([`best`]): what dominates its tail, and how long that is.
pub(crate) fn sentence(run: &Run, curve: &Curve<'_>) -> String {
    let factors = curve.factors();
    let subject = format!("{} {} {}", tier(run, factors.label()), cache(factors), factors.mode);
    let best = best::best(run, curve);
    let Some(point) = best.as_ref().map(|best| best.point).or_else(|| curve.highest_valid()) else {
        return format!("{subject}: {}", no_valid_rate(curve));
    };
    let mut text = format!("{subject}: {}", attribution(point));
    if let Some(stages) = server_stages(point) {
        text += &format!("; by the server's own statistics a request takes on average {stages}");
    }
    if let Some((best, cost)) = best.as_ref().and_then(|best| Some((best, best.cost()?))) {
        let title = best::title(run, curve);
        text += &format!("; {title} {}: {cost} per 10k inferences", best.text());
    }
    if run.slo.is_none()
        && let Some(knee) = curve.knee()
    {
        text += &format!("; knee of the p95 at {} rps", rate(knee));
    }
    text
}

/// Mean stages of a request by the server's own statistics: `queue 0.05 ms, inputs 0.01 ms, inference 0.9 ms, outputs 0.02 ms`.
fn server_stages(point: &Point) -> Option<String> {
    let servers = point.repeats.iter().filter_map(|repeat| repeat.server.as_ref());
    let stages: Vec<&ServerStages> = servers.filter_map(|server| server.stages.as_ref()).collect();
    let requests: f64 = stages.iter().map(|stages| stages.requests).sum();
    if requests <= 0.0 {
        return None;
    }
    let mean = |of: fn(&ServerStages) -> f64| {
        let sum: f64 = stages.iter().map(|stages| of(stages) * stages.requests).sum();
        latency(sum / requests)
    };
    let (queue, inputs) = (mean(|stages| stages.queue_us), mean(|stages| stages.input_us));
    let (infer, outputs) = (mean(|stages| stages.infer_us), mean(|stages| stages.output_us));
    Some(format!(
        "queue {queue}, inputs {inputs}, inference {infer}, outputs {outputs}"
    ))
}

/// Reason for a curve without a highest valid rate.
fn no_valid_rate(curve: &Curve<'_>) -> String {
    match curve.points.iter().filter(|point| is_valid(point)).count() {
        0 => format!("no valid point at any of {} rates", curve.points.len()),
        valid => {
            let lowest = rate(curve.factors().offered_rps);
            format!("no highest valid rate: the lowest, {lowest} rps, is not valid, and {valid} above it are")
        }
    }
}

/// Dominant part of a point's tail: `p99 at 400 rps is 92 % [88–95] tier wait (p99 14.2 ms [13.1–15.0]; the slowest
/// 1 % take 20.1 ms on average)`.
pub(crate) fn attribution(point: &Point) -> String {
    let at = rate(point.factors.offered_rps);
    let Some(summary) = &point.summary else {
        return format!("at {at} rps: not summarised");
    };
    let (name, interval) = match (&summary.p99_us, &summary.p95_us) {
        (Some(p99), _) => ("p99", Some(p99)),
        (None, Some(p95)) => ("p95", Some(p95)),
        (None, None) => ("the tail", None),
    };
    let figure = interval.map(|us| format!("{name} {}", latency_interval(Some(us))));
    let figure = figure.unwrap_or_else(|| "too few requests for a percentile".to_owned());
    let Some(tail) = &summary.tail else {
        return format!("at {at} rps: {figure}");
    };
    let which = if tail.band == "p99-100" {
        "slowest 1 %"
    } else {
        "slowest"
    };
    let mut details = vec![figure];
    if let Some(band) = summary.bands.iter().find(|band| band.name == tail.band) {
        let mean = band.over_repeats_us.as_ref();
        let mean = mean.map_or_else(|| latency(band.mean_us), |interval| latency_interval(Some(interval)));
        details.push(format!("the {which} take {mean} on average"));
        details.extend(tier_wait(tail, band));
        details.extend(misses(summary, band));
    }
    format!("{name} at {at} rps is {} ({})", dominance(tail), details.join("; "))
}

/// Longest part of the wait for the tier, if that wait dominates.
fn tier_wait(tail: &Tail, band: &Band) -> Option<String> {
    let wait = band.parts_us.iter().find(|(name, _)| name == "tier")?.1;
    let parts = [
        ("queueing for the tier", band.reads.queue_us),
        ("in the device or the remote store", band.reads.device_us),
        ("copying", band.reads.copy_us),
    ];
    let (what, us) = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let dominates = tail.parts.first().is_some_and(|(name, _)| name == "tier") && us > 0.0;
    dominates.then(|| format!("{} of {} tier wait {what}", latency(us), latency(wait)))
}

/// Time of the session threads in words; `None` if the server did not report it.
pub(crate) fn sessions(summary: &Summary) -> Option<String> {
    let part = |(state, share): &(String, f64)| {
        let what = match state.as_str() {
            "compute" => "computing",
            "queue_wait" => "idle with requests queued",
            "storage_wait" => "waiting for storage",
            "no_requests" => "without requests",
            other => other,
        };
        format!("{} {what}", percent(*share))
    };
    let shares: Vec<String> = summary.session_shares.iter().map(part).collect();
    (!shares.is_empty()).then(|| shares.join(", "))
}

/// Cache hits of the slowest requests, beside those of all.
fn misses(summary: &Summary, band: &Band) -> Option<String> {
    let all = summary.cache_hit_ratio?;
    let blocks = band.reads.cache_hits + band.reads.cache_misses;
    let [own, all] = [band.reads.cache_hits / blocks, all].map(percent);
    (blocks > 0.0).then(|| format!("{own} of their blocks came from the cache, {all} of all"))
}

/// Name of a curve within a run.
pub(crate) fn curve_name(run: &Run, factors: &Factors) -> String {
    let subject = format!("{} {}", tier(run, factors.label()), cache(factors));
    format!("{subject} {} {} ×{}", factors.mode, factors.model, factors.batch_size)
}

/// Offered rate of a point in requests per second; `None` for a closed loop, whose rate is a result.
pub(crate) fn offered_rps(factors: &Factors) -> Option<f64> {
    let is_closed = factors.driven.as_ref().is_some_and(Driven::is_closed);
    (!is_closed).then_some(factors.offered_rps)
}

/// Full name of a point within a run.
pub(crate) fn name(run: &Run, factors: &Factors) -> String {
    let (curve, at) = (
        curve_name(run, factors),
        format!("at {} rps", rate(factors.offered_rps)),
    );
    match &factors.driven {
        None => format!("{curve} {at}"),
        Some(driven @ Driven::ClosedLoop { .. }) => format!("{curve}, {driven}"),
        Some(driven @ Driven::BesideClosedLoop { .. }) => format!("{curve} {at}, {driven}"),
        Some(driven @ Driven::Journey { .. }) => {
            format!("{} {} {driven} {at}", tier(run, factors.label()), cache(factors))
        }
        Some(driven @ Driven::Ramp(_)) => format!("{curve} on a {driven}"),
    }
}

/// Tiers of a run, in order.
pub(crate) fn tiers(run: &Run) -> Vec<&str> {
    distinct(run.points.iter().map(|point| point.factors.label()))
}

/// Open question of a lab with the measuring that it needs, in a sentence.
pub(crate) fn open(open: &OpenQuestion) -> String {
    let more = match open.more_s {
        Some(more_s) => format!(" (about {} more needed)", duration(more_s)),
        None => " (time needed unknown)".to_owned(),
    };
    format!("{}: {}{more}", open.variants.join(", "), open.what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_question_names_variants_that_its_words_contain_by_chance() {
        let question = OpenQuestion {
            variants: vec!["fast".to_owned(), "a".to_owned()],
            what: "which of them is the fastest".to_owned(),
            more_s: None,
        };
        assert_eq!(
            open(&question),
            "fast, a: which of them is the fastest (time needed unknown)"
        );
    }
}
