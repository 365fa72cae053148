//! The answer in one sentence: decided, undecided, or none. In: an answer. Out: plain text. Knows nothing of the table below it.

use super::figures::{highest, instances, month, p99, per_10k};
use super::point_row::Tier;
use super::words;
use crate::units::{bytes, duration, percent, rate};
use tierlab_analysis::record::{
    Answer, AnswerOutcome, Demand, MeetsObjective, Minimise, Mode, Question, Ranked, Run, Variant,
};

/// Variants that the sentence tells beside the best, of those that meet the objective and of those that do not.
const TOLD: usize = 2;

/// What was asked: `p99 < 50 ms, errors < 0.1 % at 300/s`.
fn asked(question: &Question) -> String {
    let objectives: Vec<String> = question.objectives.iter().map(ToString::to_string).collect();
    let mut text = format!("{}, errors < {}", objectives.join(", "), percent(question.error_share));
    if question.mode == Mode::Batch {
        text += &format!(", batches of {}", question.batch_size);
    }
    text + &match question.demand {
        Some(Demand { average_rps, peak_rps }) if average_rps != peak_rps => {
            format!(" at {}/s (on average {}/s)", rate(peak_rps), rate(average_rps))
        }
        Some(demand) => format!(" at {}/s", rate(demand.peak_rps)),
        None => " on one instance".to_owned(),
    }
}

/// The answer in one sentence, without its full stop.
pub(super) fn sentence(run: &Run, answer: &Answer) -> String {
    let mut text = format!("For {}: ", asked(&answer.question));
    let best = answer
        .ranking
        .iter()
        .find(|ranked| Some(&ranked.variant) == answer.best.as_ref());
    match (answer.outcome, best) {
        (AnswerOutcome::Decided, Some(best)) => {
            text += &described(run, answer, best);
            text += &others(run, answer, best);
        }
        (AnswerOutcome::None, _) => text += &nothing(run, answer),
        (_, best) => text += &undecided(run, answer, best),
    }
    if answer.ranking.iter().any(|ranked| ranked.usd_per_10k.is_some()) {
        text += &priced_for(run);
    }
    text
}

/// `; priced for a table of 98 MiB, by prices of nfs that are not checked`.
fn priced_for(run: &Run) -> String {
    let Some(pricing) = &run.pricing else {
        return String::new();
    };
    let table = pricing.priced.as_ref().map_or(0, |priced| priced.stored.table_bytes);
    let mut text = match table {
        0 => String::new(),
        size => format!("; priced for a table of {}", bytes(size)),
    };
    let unchecked = pricing.sources.iter().filter(|source| source.contains("not checked"));
    let mut names: Vec<&str> = unchecked.filter_map(|source| source.split(": $").next()).collect();
    names.dedup();
    if !names.is_empty() {
        text += &format!("; prices not checked: {}", names.join(", "));
    }
    text
}

/// The best with the figures that the question is about.
fn described(run: &Run, answer: &Answer, best: &Ranked) -> String {
    let mut said = vec![name(run, best)];
    let figure = |minimise| match minimise {
        Minimise::UsdPerMonth => month(best).map(|usd| per_month(&usd)),
        Minimise::UsdPer10k => per_10k(best).map(|usd| format!("{} per 10k inferences", at_most(&usd))),
        Minimise::P99 => Some(p99(best))
            .filter(|cell| !cell.is_empty())
            .map(|cell| format!("p99 {}", cell.text())),
        Minimise::Instances => None,
    };
    said.extend(figure(answer.question.minimise));
    // Who asked for something else than dollars is told them all the same.
    if !matches!(answer.question.minimise, Minimise::UsdPerMonth) {
        said.extend(figure(Minimise::UsdPerMonth));
    }
    let count = instances(best).map(|count| {
        let plural = if count == "1" { "" } else { "s" };
        format!("{} instance{plural}", at_most(&count))
    });
    said.extend(match (count, highest(best)) {
        (Some(count), Some(rps)) => Some(format!("{count} of up to {}", at_least(&rps))),
        (Some(count), None) => Some(count),
        (None, Some(rps)) => Some(format!("up to {}", at_least(&rps))),
        (None, None) => None,
    });
    said.join(", ")
}

/// `$132/month [128–136]`.
fn per_month(usd: &str) -> String {
    match usd.split_once(" [") {
        Some((value, interval)) => format!("{}/month [{interval}", at_most(value)),
        None => format!("{}/month", at_most(usd)),
    }
}

/// `at most $265` for `≤ $265`.
fn at_most(figure: &str) -> String {
    figure
        .strip_prefix("≤ ")
        .map_or_else(|| figure.to_owned(), |figure| format!("at most {figure}"))
}

/// `up to ≥ 1,000/s` reads badly.
fn at_least(rate: &str) -> String {
    rate.strip_prefix("≥ ")
        .map_or_else(|| rate.to_owned(), |rate| format!("{rate} or more"))
}

/// A variant by name, with what it is beside its tier.
fn name(run: &Run, ranked: &Ranked) -> String {
    let printed = Tier::of(run, &ranked.variant).labelled();
    let variant = run.variants.iter().find(|variant| variant.name == ranked.variant);
    format!("{printed}{}", variant.map_or_else(String::new, cache))
}

/// What the name of a variant may leave out.
fn cache(variant: &Variant) -> String {
    if variant.cache_share > 0.0 {
        format!(" with a cache of {} of the table", percent(variant.cache_share))
    } else {
        " without a cache".to_owned()
    }
}

/// What is to be said of the others: how much more those take that meet the objective, and why some do not.
fn others(run: &Run, answer: &Answer, best: &Ranked) -> String {
    let mut text = String::new();
    let of = |outcome| {
        let others = answer.ranking.iter().filter(move |ranked| ranked.outcome == outcome);
        others.filter(|ranked| ranked.variant != best.variant)
    };
    for ranked in of(MeetsObjective::Met).take(TOLD) {
        if let Some(times) = against(answer.question.minimise, best, ranked) {
            text += &format!("; {} {times}", printed(run, ranked));
        }
    }
    for ranked in of(MeetsObjective::NotMet).take(TOLD) {
        text += &format!("; {} does not meet it{}", printed(run, ranked), because(ranked));
    }
    let more = of(MeetsObjective::NotMet).count().saturating_sub(TOLD);
    if more > 0 {
        text += &format!("; nor do{} {more} more", if more == 1 { "es" } else { "" });
    }
    let mut unknown: Vec<String> = of(MeetsObjective::Unknown).map(|ranked| printed(run, ranked)).collect();
    let further = unknown.len().saturating_sub(TOLD);
    if further > 0 {
        unknown.truncate(TOLD);
        unknown.push(format!("{further} more"));
    }
    match &unknown[..] {
        [] => {}
        [one] => text += &format!("; whether {one} meets it is not known"),
        [first @ .., last] => text += &format!("; whether {} or {last} meet it is not known", first.join(", ")),
    }
    text
}

fn printed(run: &Run, ranked: &Ranked) -> String {
    Tier::of(run, &ranked.variant).labelled()
}

/// Comparison of a variant with the best in the figure that was asked for: `costs 1.2×`, or `costs 1.2× [1.1–1.4]` if one of them has an interval.
fn against(minimise: Minimise, best: &Ranked, other: &Ranked) -> Option<String> {
    let figures = |ranked: &Ranked| match minimise {
        Minimise::P99 => [ranked.p99_us, ranked.p99_us_lo, ranked.p99_us_hi],
        Minimise::UsdPer10k => [ranked.usd_per_10k; 3],
        _ => [ranked.usd_per_month, ranked.usd_per_month_lo, ranked.usd_per_month_hi],
    };
    if minimise == Minimise::Instances {
        return Some(format!("carries up to {}", at_least(&highest(other)?)));
    }
    let times = times(figures(best), figures(other))?;
    Some(match (minimise, times.as_str()) {
        (Minimise::P99, _) => format!("has {times} the p99"),
        (_, "1×") => "costs as much".to_owned(),
        _ => format!("costs {times}"),
    })
}

/// One figure with the ends of its interval as a multiple of another: `1.2×`, `1.2× [1.1–1.4]`.
fn times(best: [Option<f64>; 3], other: [Option<f64>; 3]) -> Option<String> {
    // A figure of 0 has no multiple: two of them are equal, and any other has no factor.
    let ratio = |other: Option<f64>, best: Option<f64>| match (other?, best?) {
        (other, best) if other == best => Some(1.0),
        (other, best) => Some(other / best).filter(|times| times.is_finite()),
    };
    let text = |times: f64| {
        format!("{times:.2}")
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    };
    let value = text(ratio(other[0], best[0])?);
    let ends = ratio(other[1], best[2]).zip(ratio(other[2], best[1]));
    Some(match ends.map(|(lo, hi)| (text(lo), text(hi))) {
        Some((lo, hi)) if lo != value || hi != value => format!("{value}× [{lo}–{hi}]"),
        _ => format!("{value}×"),
    })
}

/// ` at any rate: 94 % of its slowest requests is tier wait`.
fn because(ranked: &Ranked) -> String {
    let anywhere = if ranked.highest_rps.is_none() {
        " at any rate"
    } else {
        ""
    };
    let part = ranked.dominant_part.as_deref().zip(ranked.dominant_share);
    let part = part.map_or_else(String::new, |(part, share)| {
        format!(": {} of its p99 is {}", percent(share), words::part(part))
    });
    format!("{anywhere}{part}")
}

fn undecided(run: &Run, answer: &Answer, best: Option<&Ranked>) -> String {
    let mut text = format!("not decided within {}", duration(answer.spent_s));
    if let Some(best) = best {
        text += &format!("; most likely {}", described(run, answer, best));
    }
    let open: Vec<String> = answer.open.iter().take(TOLD).map(words::open).collect();
    if !open.is_empty() {
        text += &format!("; open: {}", open.join("; "));
    }
    let more = answer.open.len().saturating_sub(TOLD);
    if more > 0 {
        text += &format!("; and {more} more below");
    }
    text
}

/// None meets it: the one that comes closest is the first of the ranking.
fn nothing(run: &Run, answer: &Answer) -> String {
    let Some(closest) = answer.ranking.first() else {
        return "no variant was measured".to_owned();
    };
    let figure = p99(closest);
    let figure = if figure.is_empty() {
        String::new()
    } else {
        format!(" with a p99 of {}", figure.text())
    };
    let part = because(closest).replacen(" at any rate", "", 1);
    format!(
        "no variant meets it; closest comes {}{figure}{part}",
        name(run, closest)
    )
}
