//! The answer in one sentence: decided, undecided, or none. In: an answer. Out: plain text. Knows nothing of the table below it.

use super::figures::{highest, month, p99};
use super::point_row::Tier;
use super::words;
use crate::units::{dollars, duration, percent, rate};
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
    text
}

/// The best with the figures that the question is about.
fn described(run: &Run, answer: &Answer, best: &Ranked) -> String {
    let mut said = vec![name(run, best)];
    let figure = |minimise| match minimise {
        Minimise::UsdPerMonth => month(best).map(|usd| per_month(&usd)),
        Minimise::UsdPer10k => best
            .usd_per_10k
            .map(|usd| format!("{} per 10k inferences", dollars(usd))),
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
    said.extend(match (best.instances, highest(best)) {
        (Some(count), Some(rps)) => Some(format!(
            "{count} instance{} of up to {}",
            if count == 1 { "" } else { "s" },
            at_least(&rps)
        )),
        (Some(count), None) => Some(format!("{count} instance{}", if count == 1 { "" } else { "s" })),
        (None, Some(rps)) => Some(format!("up to {}", at_least(&rps))),
        (None, None) => None,
    });
    said.join(", ")
}

/// `$132/month [128–136]`.
fn per_month(usd: &str) -> String {
    match usd.split_once(' ') {
        Some((value, interval)) => format!("{value}/month {interval}"),
        None => format!("{usd}/month"),
    }
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

/// How another compares with the best in what was asked for: `costs 1.2×`.
fn against(minimise: Minimise, best: &Ranked, other: &Ranked) -> Option<String> {
    let times = |of: fn(&Ranked) -> Option<f64>| {
        let (other, best) = (of(other)?, of(best)?);
        // Of nothing there is no multiple: what is free is as much as what is free, and what is not has no factor.
        let times = if other == best { 1.0 } else { other / best };
        if !times.is_finite() {
            return None;
        }
        let times = format!("{times:.2}");
        Some(times.trim_end_matches('0').trim_end_matches('.').to_owned())
    };
    let costs = |times: String| {
        if times == "1" {
            "costs as much".to_owned()
        } else {
            format!("costs {times}×")
        }
    };
    Some(match minimise {
        Minimise::UsdPerMonth => costs(times(|ranked| ranked.usd_per_month)?),
        Minimise::UsdPer10k => costs(times(|ranked| ranked.usd_per_10k)?),
        Minimise::P99 => format!("has {}× the p99", times(|ranked| ranked.p99_us)?),
        Minimise::Instances => format!("carries up to {}", at_least(&highest(other)?)),
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
