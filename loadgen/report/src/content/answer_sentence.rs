//! The answer in one sentence: decided, undecided, or none. In: an answer. Out: plain text. Knows nothing of the table below it.

use super::figures::{highest, instances, month, p99, per_10k};
use super::point_row::Tier;
use super::table::Cell;
use super::words;
use crate::units::{bytes, duration, percent, rate};
use tierlab_analysis::record::{Answer, AnswerOutcome, Demand, Minimise, Mode, Question, Ranked, Run};

/// The answer in one sentence, without its full stop.
pub(super) fn sentence(run: &Run, answer: &Answer) -> String {
    let asked = asked(&answer.question);
    let best = answer
        .ranking
        .iter()
        .find(|ranked| Some(&ranked.variant) == answer.best.as_ref());
    match (answer.outcome, best) {
        (AnswerOutcome::Decided, Some(best)) => format!("Use {}", recommended(run, answer, best, &asked)),
        (AnswerOutcome::None, _) => nothing(run, answer, &asked),
        (_, best) => {
            let spent = duration(answer.spent_s);
            let likely = best.map_or_else(
                || format!("no variant is likely for {asked}"),
                |best| format!("most likely {}", recommended(run, answer, best, &asked)),
            );
            format!("Not decided within {spent}; {likely}")
        }
    }
}

/// Objective and demand in short: `p99 < 50 ms at 300/s`.
fn asked(question: &Question) -> String {
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
    let mut text = format!("Asked: {}, errors < {}", asked(question), percent(question.error_share));
    if let Some(Demand { average_rps, peak_rps }) = question.demand
        && average_rps != peak_rps
    {
        text += &format!(", {}/s on average", rate(average_rps));
    }
    text
}

/// `nvme: $132 a month (c7gd.xlarge, table of 98 MiB) for p99 < 50 ms at 300/s; measured p99 931 µs [863–1020]`.
fn recommended(run: &Run, answer: &Answer, best: &Ranked, asked: &str) -> String {
    let minimise = answer.question.minimise;
    let p99 = p99(best);
    // At the demand itself, which is named already, or else with its own rate.
    let is_at_demand = answer.question.demand.map(|demand| demand.peak_rps) == best.at_rps;
    let tail = if is_at_demand { value(&p99) } else { p99.text() };
    let mut said = Vec::new();
    match minimise {
        Minimise::UsdPerMonth => {}
        Minimise::UsdPer10k => said.extend(per_10k(best).map(|usd| format!("{} per 10k inferences", at_most(&usd)))),
        Minimise::P99 => said.extend((!p99.is_empty()).then(|| format!("p99 {tail}"))),
        Minimise::Instances => said.extend(instances(best).map(|count| instances_text(&count))),
    }
    said.extend(month(best).map(|usd| per_month(&Cell::split(&usd)) + &paid_for(run, best)));
    if answer.question.demand.is_none() {
        said.extend(highest(best).map(|rps| format!("up to {}", at_least(&rps))));
    }
    let measured = if minimise == Minimise::P99 || p99.is_empty() {
        String::new()
    } else {
        format!("; measured p99 {tail}")
    };
    let name = Tier::of(run, &best.variant).labelled();
    if said.is_empty() {
        format!("{name} for {asked}{measured}")
    } else {
        format!("{name}: {} for {asked}{measured}", said.join(", "))
    }
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

/// ` (2 × c7gd.xlarge, table of 98 MiB)`.
fn paid_for(run: &Run, ranked: &Ranked) -> String {
    let Some(pricing) = &run.pricing else {
        return String::new();
    };
    let terms = pricing.terms_by_variant.get(&ranked.variant);
    let instance = terms.map_or(&pricing.instance, |terms| &terms.instance);
    let instance = instance.rsplit('/').next().unwrap_or(instance);
    let mut text = match ranked.instances {
        Some(count) if count > 1 => format!("{count} × {instance}"),
        _ => instance.to_owned(),
    };
    let table = pricing.priced.as_ref().map_or(0, |priced| priced.stored.table_bytes);
    if table > 0 {
        text += &format!(", table of {}", bytes(table));
    }
    format!(" ({text})")
}

fn instances_text(count: &str) -> String {
    let plural = if count == "1" { "" } else { "s" };
    format!("{} instance{plural}", at_most(count))
}

/// `at most $265` for `≤ $265`.
fn at_most(figure: &str) -> String {
    figure
        .strip_prefix("≤ ")
        .map_or_else(|| figure.to_owned(), |figure| format!("at most {figure}"))
}

/// `1,000/s or more` for `≥ 1,000/s`.
fn at_least(rate: &str) -> String {
    rate.strip_prefix("≥ ")
        .map_or_else(|| rate.to_owned(), |rate| format!("{rate} or more"))
}

/// No variant meets the objective: the first of the ranking comes closest.
fn nothing(run: &Run, answer: &Answer, asked: &str) -> String {
    let Some(closest) = answer.ranking.first() else {
        return format!("No variant was measured for {asked}");
    };
    let name = Tier::of(run, &closest.variant).labelled();
    let mut text = format!("No variant meets {asked}; {name} comes closest");
    let figure = p99(closest);
    if !figure.is_empty() {
        text += &format!(" with p99 {}", figure.text());
    }
    if let Some((part, share)) = closest.dominant_part.as_deref().zip(closest.dominant_share) {
        text += &format!(", {} of it {}", percent(share), words::part(part));
    }
    text
}
