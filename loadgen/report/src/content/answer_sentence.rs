//! The answer in one sentence: decided, undecided, or none. In: an answer. Out: plain text. Knows nothing of the table below it.

use super::labels;
use super::point_row::Tier;
use super::table::Cell;
use crate::units::{amount, bytes, dollars, dollars_interval, duration, latency, latency_interval, percent, rate};
use tierlab_analysis::record::{
    Answer, AnswerOutcome, Demand, Grade, Interval, MeetsObjective, Minimise, Mode, Pricing, Question, Ranked, Run,
};

/// The answer in one sentence, without its full stop.
pub(super) fn sentence(run: &Run, answer: &Answer) -> String {
    let goal = goal(&answer.question);
    match (answer.outcome, answer.best()) {
        (AnswerOutcome::Decided, Some(best)) => format!("Use {}", recommendation(run, answer, best, &goal)),
        (AnswerOutcome::None, _) => none_meets(run, answer, &goal),
        (_, best) => {
            let spent = duration(answer.spent_s);
            let likely = best.map_or_else(
                || format!("no variant is likely for {goal}"),
                |best| format!("most likely {}", recommendation(run, answer, best, &goal)),
            );
            format!("Not decided within {spent}; {likely}")
        }
    }
}

/// Objective and demand in short: `p99 < 50 ms at 300/s`.
fn goal(question: &Question) -> String {
    let objectives: Vec<String> = question.objectives.iter().map(ToString::to_string).collect();
    let mut text = objectives.join(", ");
    if question.mode == Mode::Batch {
        text += &format!(", batches of {},", question.batch_size);
    }
    match question.demand {
        Some(demand) => format!("{text} at {}/s", rate(demand.peak_rps)),
        None => format!("{text} on one instance"),
    }
}

/// Terms of the question that the sentence leaves out.
pub(super) fn terms(question: &Question) -> String {
    let mut text = format!("Asked: {}, errors < {}", goal(question), percent(question.error_share));
    if let Some(Demand { average_rps, peak_rps }) = question.demand
        && average_rps != peak_rps
    {
        text += &format!(", {}/s on average", rate(average_rps));
    }
    text
}

/// `nvme: $132 a month (c7gd.xlarge, table of 98 MiB) for p99 < 50 ms at 300/s; measured p99 931 µs [863–1020]`.
fn recommendation(run: &Run, answer: &Answer, best: &Ranked, goal: &str) -> String {
    let minimise = answer.question.minimise;
    let p99 = p99(best);
    // At the demand itself, which is named already, or else with its own rate.
    let demand_rps = answer.question.demand.map(|demand| demand.peak_rps);
    let carried = demand_rps.zip(best.instances);
    let carried_rps = carried.map(|(rps, count)| rps / f64::from(count));
    let text = p99.text();
    let tail = match (best.at_rps, carried_rps) {
        (at_rps, _) if at_rps == demand_rps => value(&p99),
        (Some(at_rps), Some(carried_rps)) if at_rps > 1.002 * carried_rps => {
            format!("{text}, above the {}/s that an instance carries", rate(carried_rps))
        }
        _ => text,
    };
    let mut parts = Vec::new();
    match minimise {
        Minimise::UsdPerMonth => {}
        Minimise::UsdPer10k => parts.extend(per_10k(best).map(|usd| format!("{} per 10k inferences", at_most(&usd)))),
        Minimise::P99 => parts.extend((!p99.is_empty()).then(|| format!("p99 {tail}"))),
        Minimise::Instances => parts.extend(instances(best).map(|count| instances_text(&count))),
    }
    parts.extend(month(best).map(|usd| per_month(&Cell::split(&usd)) + &paid_for(run, best)));
    if let (Minimise::UsdPer10k, None, Some(usd)) = (minimise, best.usd_per_month, parts.last_mut()) {
        *usd += &paid_for(run, best);
    }
    if answer.question.demand.is_none() {
        parts.extend(highest(best).map(|rps| format!("up to {}", at_least(&rps))));
    }
    let measured = match minimise == Minimise::P99 || p99.is_empty() {
        true => String::new(),
        false => format!("; measured p99 {tail}"),
    };
    let name = Tier::of(run, &best.variant).labelled();
    let colon = if parts.is_empty() { "" } else { ": " };
    format!("{name}{colon}{} for {goal}{measured}", parts.join(", "))
}

/// A figure with its interval, without the rate that it was measured at.
fn value(cell: &Cell) -> String {
    Cell {
        at: String::new(),
        ..cell.clone()
    }
    .text()
}

/// `$132 a month`, `at most $265 a month [132–265]`.
fn per_month(usd: &Cell) -> String {
    let text = format!("{} a month {}", at_most(&usd.value), usd.interval);
    text.trim_end().to_owned()
}

/// ` (2 × c7gd.xlarge, table of 98 MiB, price unchecked)`.
fn paid_for(run: &Run, ranked: &Ranked) -> String {
    let Some(pricing) = &run.pricing else {
        return String::new();
    };
    let terms = pricing.terms_by_variant.get(&ranked.variant);
    let instance_name = terms.map_or(&pricing.instance, |terms| &terms.instance);
    let instance = instance_name.rsplit('/').next().unwrap_or(instance_name);
    let mut text = match ranked.instances {
        Some(count) if count > 1 => format!("{count} × {instance}"),
        _ => instance.to_owned(),
    };
    let table = pricing.priced.as_ref().map_or(0, |priced| priced.stored.table_bytes);
    if table > 0 {
        text += &format!(", table of {}", bytes(table));
    }
    let is_unchecked = is_unchecked(pricing, &ranked.variant, instance_name);
    format!(" ({text}{})", if is_unchecked { ", price unchecked" } else { "" })
}

/// True if the price of a variant's instance or storage was written down from memory.
fn is_unchecked(pricing: &Pricing, variant: &str, instance: &str) -> bool {
    let mut variants = pricing.priced.iter().flat_map(|priced| &priced.variants);
    let own = variants.find(|priced| priced.name == variant);
    let own = own.map(|own| (own.tier.as_str(), own.price.as_deref()));
    let is_own = |(tier, entry)| own == Some((tier, Some(entry))) || own == Some((tier, None));
    labels::unchecked(pricing).any(|name| name == instance || name.split_once(": ").is_some_and(is_own))
}

fn instances_text(count: &str) -> String {
    let plural = if count == "1" { "" } else { "s" };
    format!("{} instance{plural}", at_most(count))
}

/// `at most $265` for `≤ $265`.
fn at_most(figure: &str) -> String {
    figure.replacen("≤ ", "at most ", 1)
}

/// `1,000/s or more` for `≥ 1,000/s`.
fn at_least(rate: &str) -> String {
    let bound = rate.strip_prefix("≥ ");
    bound.map_or_else(|| rate.to_owned(), |bound| format!("{bound} or more"))
}

/// No variant meets the objective: the first of the ranking comes closest.
fn none_meets(run: &Run, answer: &Answer, goal: &str) -> String {
    let Some(closest) = answer.ranking.first() else {
        return format!("No variant was measured for {goal}");
    };
    let name = Tier::of(run, &closest.variant).labelled();
    let mut text = format!("No variant meets {goal}; {name} comes closest");
    let figure = p99(closest);
    if !figure.is_empty() {
        text += &format!(" with p99 {}", figure.text());
    }
    if let Some((part, share)) = closest.dominant_part.as_deref().zip(closest.dominant_share) {
        text += &format!(", {} of it {}", percent(share), labels::part(part));
    }
    text
}

/// State of the objective in one word.
pub(crate) const fn meets(outcome: MeetsObjective) -> &'static str {
    match outcome {
        MeetsObjective::Met => "pass",
        MeetsObjective::NotMet => "fail",
        MeetsObjective::Unknown => "open",
    }
}

/// Verdict and first reason without its figures, which the cautions have: `(invalid: drifts)`.
fn without_figures(missing: &str) -> String {
    let reason = missing.split("; ").next().unwrap_or(missing);
    match reason.splitn(3, ": ").collect::<Vec<_>>()[..] {
        ["invalid", reason, ..] => format!("(invalid: {reason})"),
        [verdict, ..] => format!("({verdict})"),
        [] => String::new(),
    }
}

/// `12.3 ms [11.8–12.9] at 300/s`; `≥ 98.2 ms at 134/s` if a lower percentile alone is known.
pub(super) fn p99(ranked: &Ranked) -> Cell {
    let at = ranked.at_rps.map(|rps| format!("at {}/s", rate(rps)));
    let at = at.unwrap_or_default();
    let text = match (ranked.p99_us, ranked.p99_us_lo) {
        (None, Some(lo)) => format!("≥ {}", latency(lo)),
        (None, None) => {
            let reason = ranked.p99_missing.as_deref().map(without_figures);
            let at = reason.map_or_else(String::new, |reason| format!("{at} {reason}"));
            return Cell { at, ..Cell::of(None) };
        }
        (Some(value), lo) => {
            let lo = lo.unwrap_or(0.0);
            let open = (ranked.p99_grade == Some(Grade::Rough)).then_some(f64::INFINITY);
            match ranked.p99_us_hi.or(open) {
                Some(hi) => latency_interval(Some(&Interval { value, lo, hi })),
                None => latency(value),
            }
        }
    };
    Cell {
        at,
        ..Cell::split(&text)
    }
}

/// `812/s [780–850]`, `≥ 1,000/s` if no measured rate breaks the objective, `none` if every rate does; `812/s [≥ 780]` if no rate is
/// known that certainly breaks it, `812/s [≤ 850]` if none is known that certainly meets it, `~812/s` if neither is.
pub(super) fn highest(ranked: &Ranked) -> Option<String> {
    let Some(value) = ranked.highest_rps else {
        return (ranked.outcome == MeetsObjective::NotMet).then(|| "none".to_owned());
    };
    Some(match (ranked.highest_rps_lo, ranked.highest_rps_hi) {
        (None, None) => format!("~{}/s", rate(value)),
        (Some(lo), None) if ranked.highest_is_bound => format!("≥ {}/s", rate(lo)),
        (Some(lo), None) => format!("{}/s [≥ {}]", rate(value), rate(lo)),
        (None, Some(hi)) => format!("{}/s [≤ {}]", rate(value), rate(hi)),
        (Some(lo), Some(hi)) => format!("{}/s [{}–{}]", rate(value), rate(lo), rate(hi)),
    })
}

/// `≤ ` if fewer instances may carry the demand: the highest rate of one is only known to be at least what was measured.
fn bound_sign(ranked: &Ranked) -> &'static str {
    let is_open = ranked.instances.is_none() || ranked.instances_lo < ranked.instances;
    if ranked.highest_is_bound && is_open { "≤ " } else { "" }
}

/// `2`, or `≤ 2` if fewer may carry the demand.
pub(super) fn instances(ranked: &Ranked) -> Option<String> {
    ranked.instances.map(|count| format!("{}{count}", bound_sign(ranked)))
}

/// `$132 [128–136]`, or `≤ $265 [132–265]` if fewer instances may carry the demand.
pub(super) fn month(ranked: &Ranked) -> Option<String> {
    let value = ranked.usd_per_month?;
    let text = match (ranked.usd_per_month_lo, ranked.usd_per_month_hi) {
        (Some(lo), Some(hi)) => dollars_interval(Some(&Interval { value, lo, hi })),
        (Some(lo), None) => format!("{} [≥ {}]", dollars(value), amount(lo)),
        _ => dollars(value),
    };
    Some(bound_sign(ranked).to_owned() + &text)
}

/// `$0.00168`, or `≤ $0.00118` where a higher rate of one instance would cost less.
pub(super) fn per_10k(ranked: &Ranked) -> Option<String> {
    let usd = ranked.usd_per_10k?;
    // Without a demand it is the price at `highest_rps`, of which only the lower end is certain.
    let is_open = ranked.highest_is_bound && ranked.instances.is_none();
    let certain = ranked.highest_rps.zip(ranked.highest_rps_lo).filter(|_| is_open);
    let usd = certain.map_or(usd, |(rps, lo)| usd * rps / lo);
    Some(bound_sign(ranked).to_owned() + &dollars(usd))
}

/// `94 % tier wait`.
pub(super) fn dominant(ranked: &Ranked) -> Option<String> {
    let part = labels::part(ranked.dominant_part.as_ref()?);
    let share = ranked.dominant_share;
    Some(share.map_or_else(|| part.to_owned(), |share| format!("{} {part}", percent(share))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_is_not_known_is_no_zero() {
        let ranked = |p99: [Option<f64>; 3], highest: [Option<f64>; 3]| -> Ranked {
            let [rps, rps_lo, rps_hi] = highest;
            let text = serde_json::json!({
                "variant": "a", "tier": "nvme", "outcome": "unknown", "at_rps": 134.0, "p99_us": p99[0], "p99_us_lo": p99[1],
                "p99_us_hi": p99[2], "highest_rps": rps, "highest_rps_lo": rps_lo, "highest_rps_hi": rps_hi, "instances": 1,
                "usd_per_month": 13_014.0, "usd_per_month_lo": 12_883.0, "usd_per_month_hi": null, "usd_per_10k": null,
                "dominant_part": null, "dominant_share": null, "why": "", "steps": 1
            });
            serde_json::from_value(text).unwrap()
        };
        let of = |p99_us, highest_rps| {
            let ranked = ranked(p99_us, highest_rps);
            (p99(&ranked).text(), highest(&ranked).unwrap_or_default())
        };
        let missing = of([None, Some(98_200.0), None], [Some(4_469.0), None, Some(7_680.0)]);
        assert_eq!(
            missing,
            ("≥ 98.2 ms at 134/s".to_owned(), "4,469/s [≤ 7,680]".to_owned())
        );
        let known = of(
            [Some(9_050.0), Some(6_960.0), Some(26_100.0)],
            [Some(812.0), Some(780.0), None],
        );
        assert_eq!(
            known,
            ("9.05 ms [6.96–26.1] at 134/s".to_owned(), "812/s [≥ 780]".to_owned())
        );
        assert_eq!(of([None; 3], [Some(812.0), None, None]).1, "~812/s");
        let mut bound = ranked([None; 3], [Some(400.0), Some(350.0), None]);
        (bound.instances, bound.highest_is_bound, bound.usd_per_10k) = (None, true, Some(7e-4));
        assert_eq!(
            [highest(&bound), per_10k(&bound)].map(Option::unwrap),
            ["≥ 350/s", "≤ $0.000800"]
        );
        assert_eq!(month(&ranked([None; 3], [None; 3])).unwrap(), "$13,014 [≥ 12,883]");
    }

    #[test]
    fn a_missing_p99_has_its_verdict_and_reason() {
        assert_eq!(
            without_figures("invalid: drifts: p50 is 0.535 ms up to repeat 16; sent late"),
            "(invalid: drifts)"
        );
        assert_eq!(without_figures("saturated: requests queue up"), "(saturated)");
        assert_eq!(without_figures("too few samples"), "(too few samples)");
    }
}
