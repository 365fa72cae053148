//! A run in a few lines: one sentence, and the remarks that matter most.
//!
//! In: a run and its groups of curves. Out: plain text for the terminal, `report.md` and the top of the page.

use super::answer::AnswerText;
use super::group::{Against, Group, Row};
use super::instrument::Instrument;
use super::percentiles;
use super::words;
use crate::units::{latency_interval, percent, rate};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tierlab_analysis::record::{Answer, MeetsObjective, Minimise, Point, Ranked, Repeat, Run, Verdict};

/// Names that a remark lists; more are counted.
const NAMES: usize = 3;

/// A run in a few lines.
pub(crate) struct Brief {
    /// The result in one sentence, without its full stop.
    pub(crate) sentence: String,
    /// Remarks of one line, the most important first, without their full stops.
    pub(crate) remarks: Vec<String>,
}

impl Brief {
    /// Summarises a run.
    pub(crate) fn of(
        run: &Run,
        answer: Option<&AnswerText>,
        groups: &[Group<'_>],
        instrument: &Instrument<'_>,
    ) -> Self {
        Self {
            sentence: answer.map_or_else(|| sentence(run, groups), |answer| answer.sentence.clone()),
            remarks: remarks(run, instrument),
        }
    }
}

/// The result of a run that was asked no question.
fn sentence(run: &Run, groups: &[Group<'_>]) -> String {
    let Some(group) = groups.first() else {
        return match (run.points.len(), run.cold_starts.len()) {
            (0, 0) => "Nothing was measured".to_owned(),
            (0, starts) => format!("{starts} cold starts were measured"),
            (points, _) => format!("{} of {points} points are valid", points - not_valid(run).len()),
        };
    };
    let who = |row: &Row<'_>| format!("{} {}", row.tier.printed, row.cache);
    let fastest = group
        .rows
        .iter()
        .find(|row| matches!(row.against_fastest, Against::Fastest));
    if let (Some(fastest), Some(rps), None, 2..) = (fastest, group.common_rps, run.slo, group.rows.len()) {
        let figure = fastest.at_common.and_then(group.tail.of);
        let others = group.rows.iter().filter(|row| !is_told_apart(row)).count();
        let doubt = match others {
            0 => String::new(),
            1 => ", not told apart from 1 other".to_owned(),
            others => format!(", not told apart from {others} others"),
        };
        return format!(
            "{} has the lowest {} of {} at {}/s: {}{doubt}",
            who(fastest),
            group.tail.name,
            group.rows.len(),
            rate(rps),
            latency_interval(figure.as_ref())
        );
    }
    let rows = group.rows.iter().filter_map(|row| Some((row, row.best.as_ref()?)));
    match rows.max_by(|(_, a), (_, b)| a.rps().total_cmp(&b.rps())) {
        Some((row, best)) => format!(
            "{}: {} {}{}",
            who(row),
            group.best_title,
            best.text(),
            tail_at(best.point)
        ),
        None => format!("No rate of {} was valid", group.name),
    }
}

/// False for a curve that may be as fast as the fastest.
fn is_told_apart(row: &Row<'_>) -> bool {
    match &row.against_fastest {
        Against::Fastest | Against::Other(None) => true,
        Against::Other(Some(difference)) => difference.is_significant(),
    }
}

/// `; p99 12.3 ms [11.8–12.9] there`, by the highest percentile that the point has.
fn tail_at(point: &Point) -> String {
    let tail = percentiles::highest(&[Some(point)]);
    tail.at(point).map_or_else(String::new, |interval| {
        format!("; {} {} there", tail.name, latency_interval(Some(&interval)))
    })
}

/// Everything that a reader has to know, each in a line of its own, the most important first.
fn remarks(run: &Run, instrument: &Instrument<'_>) -> Vec<String> {
    let mut remarks = Vec::new();
    if run.interrupted {
        remarks.push("stopped before its last point; what is here was finished".to_owned());
    }
    remarks.extend(
        run.search_stopped
            .iter()
            .map(|why| format!("search stopped early: {why}")),
    );
    remarks.extend(undecided(run.answer.as_ref()));
    remarks.extend(disturbed(run));
    remarks.extend(invalid_points(run));
    remarks.extend(failures(run));
    remarks.extend(unproven(run, instrument));
    remarks.extend(run.answer.as_ref().and_then(ties));
    remarks.extend(run.answer.as_ref().and_then(unconfirmed));
    remarks.extend(unchecked_prices(run));
    remarks.extend(stand_ins(run));
    remarks.extend(percentiles::missing_p99(run).map(|missing| first_clause(&missing)));
    remarks.extend(percentiles::rough_p99(run).map(|rough| first_clause(&rough).replace('`', "")));
    remarks
}

fn undecided(answer: Option<&Answer>) -> impl Iterator<Item = String> {
    let open = answer.into_iter().flat_map(|answer| &answer.open);
    open.map(|open| format!("open: {}", words::open(open)))
}

fn unconfirmed(answer: &Answer) -> Option<String> {
    (answer.best.is_some() && !answer.confirmed)
        .then(|| "not confirmed by fresh steps: the best's figures are of the steps that chose it".to_owned())
}

/// Variants that cost no more than the best within the tie.
fn ties(answer: &Answer) -> Option<String> {
    let best = answer
        .ranking
        .iter()
        .find(|ranked| Some(&ranked.variant) == answer.best.as_ref())?;
    let most = match answer.question.minimise {
        Minimise::UsdPerMonth => best.usd_per_month? * (1.0 + answer.question.tie),
        Minimise::UsdPer10k | Minimise::P99 | Minimise::Instances => return None,
    };
    let is_tied =
        |ranked: &&Ranked| ranked.outcome == MeetsObjective::Met && ranked.usd_per_month.is_some_and(|usd| usd <= most);
    let others = answer.ranking.iter().filter(|ranked| ranked.variant != best.variant);
    let tied: Vec<&str> = others.filter(is_tied).map(|ranked| ranked.variant.as_str()).collect();
    let within = percent(answer.question.tie);
    (!tied.is_empty()).then(|| format!("costs as much within {within}: {}", tied.join(", ")))
}

/// Steps that something foreign disturbed, those measured again among them.
fn disturbed(run: &Run) -> Option<String> {
    let repeats = || run.points.iter().flat_map(|point| &point.repeats);
    let is_disturbed = |repeat: &&Repeat| repeat.disturbed.is_some() || !repeat.disturbed_before.is_empty();
    let disturbed = repeats().filter(is_disturbed).count();
    if let (0, Some(answer)) = (
        disturbed,
        run.answer.as_ref().filter(|answer| answer.disturbed_steps > 0),
    ) {
        return Some(format!(
            "{} of {} steps disturbed by something foreign",
            answer.disturbed_steps, answer.steps
        ));
    }
    let example = repeats().find_map(|repeat| repeat.disturbed.as_ref().or(repeat.disturbed_before.last()));
    example.map(|by| format!("{disturbed} of {} steps disturbed: {by}", repeats().count()))
}

fn not_valid(run: &Run) -> Vec<&Point> {
    let is_valid = |point: &&Point| matches!(&point.summary, Some(summary) if summary.verdict == Verdict::Valid);
    run.points.iter().filter(|point| !is_valid(point)).collect()
}

/// Points where the instrument or the machine failed; a saturated server is a result.
fn invalid_points(run: &Run) -> Option<String> {
    let reason = |point: &&Point| match &point.summary.as_ref()?.verdict {
        Verdict::Invalid(reasons) => Some(first_clause(reasons.first()?)),
        Verdict::Valid | Verdict::Saturated(_) => None,
    };
    let reasons: Vec<String> = not_valid(run).iter().filter_map(reason).collect();
    let first = reasons.first()?;
    Some(format!(
        "{} of {} points invalid: {first}",
        reasons.len(),
        run.points.len()
    ))
}

/// Failed requests by reason, the most frequent first, with an example of it.
fn failures(run: &Run) -> Option<String> {
    let repeats = || run.points.iter().flat_map(|point| &point.repeats);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (reason, count) in repeats().flat_map(|repeat| &repeat.errors) {
        *counts.entry(reason).or_default() += count;
    }
    let mut counts: Vec<(&str, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(*count));
    let (first, _) = *counts.first()?;
    let failed: u64 = counts.iter().map(|(_, count)| count).sum();
    let scheduled: u64 = repeats().map(|repeat| repeat.scheduled).sum();
    let reasons: Vec<String> = counts
        .iter()
        .take(NAMES)
        .map(|(reason, count)| format!("{count} × {reason}"))
        .collect();
    let example = repeats().find_map(|repeat| repeat.examples.get(first));
    let example = example.map_or_else(String::new, |example| format!(" ({example})"));
    Some(format!(
        "{failed} of {scheduled} requests failed: {}{example}",
        reasons.join(", ")
    ))
}

/// Failed or missing proof of the instrument.
fn unproven(run: &Run, instrument: &Instrument<'_>) -> Option<String> {
    let failed = run.selfcheck.iter().filter(|check| !check.passed).count();
    if failed > 0 {
        return Some(format!(
            "{failed} of {} self-checks of the instrument failed",
            run.selfcheck.len()
        ));
    }
    instrument
        .refused()
        .next()
        .map(|_| "the instrument's certificate proves nothing of this run: run `tierlab-loadgen selfcheck`".to_owned())
}

fn unchecked_prices(run: &Run) -> Option<String> {
    let sources = run.pricing.iter().flat_map(|pricing| &pricing.sources);
    let unchecked = sources.filter(|source| source.contains("not checked"));
    let mut names: Vec<&str> = unchecked.filter_map(|source| source.split(": $").next()).collect();
    names.dedup();
    (!names.is_empty()).then(|| format!("prices not checked: {}", names.join(", ")))
}

/// Tiers that are not the service they stand for.
fn stand_ins(run: &Run) -> Option<String> {
    let of_kind = |kind: &str| -> Vec<&str> {
        let tiers = words::tiers(run).into_iter();
        tiers.filter(|tier| words::origin(run, tier) == kind).collect()
    };
    let kinds = [("emulated", "emulated"), ("embedded", "served by this machine")];
    let said: Vec<String> = kinds
        .into_iter()
        .map(|(kind, what)| (of_kind(kind), what))
        .filter(|(tiers, _)| !tiers.is_empty())
        .map(|(tiers, what)| match tiers.len() {
            ..=NAMES => format!("{what}: {}", tiers.join(", ")),
            more => format!("{what}: {more} of {} variants", words::tiers(run).len()),
        })
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// Text up to its first colon with a space, semicolon or full stop.
fn first_clause(text: &str) -> String {
    let end = [": ", "; ", ". "].iter().filter_map(|mark| text.find(mark)).min();
    text[..end.unwrap_or(text.len())].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_at_its_figures() {
        assert_eq!(first_clause("drifts: p50 is 0.5 ms; sent late"), "drifts");
        assert_eq!(first_clause("sent late"), "sent late");
    }
}
