//! The answer in words: one sentence, the ranking, what was left open, and how sure it is.
//!
//! In: a run with an answer. Out: plain text for every renderer. Computes nothing: every figure stands in the record.

use super::point_row::Tier;
use super::words;
use crate::units::{NONE, digits3, dollars, dollars_interval, duration, latency_interval, percent, rate};
use tierlab_analysis::costs::over_demand::over_demand;
use tierlab_analysis::record::{
    Answer, AnswerOutcome, Demand, Interval, MeetsObjective, Minimise, Mode, Question, Ranked, Run, Variant,
};

/// Variants that the sentence tells beside the best, of those that meet the objective and of those that do not.
const TOLD: usize = 2;

/// The answer as its reader meets it.
pub(crate) struct AnswerText {
    /// Whether there is an answer.
    pub(crate) outcome: AnswerOutcome,
    /// The answer in one sentence, without its full stop.
    pub(crate) sentence: String,
    /// Names of the columns of [`RankRow::cells`], and whether they are numbers.
    pub(crate) columns: Vec<(&'static str, bool)>,
    /// Every variant, the best first.
    pub(crate) rows: Vec<RankRow>,
    /// Dollars a month over the demand, of those that have a price.
    pub(crate) months: Vec<Months>,
    /// The demand, in requests per second at the peak.
    pub(crate) peak_rps: Option<f64>,
    /// What was not decided, a sentence each.
    pub(crate) open: Vec<String>,
    /// How sure the answer is, a sentence each.
    pub(crate) how_sure: Vec<String>,
}

/// A variant's dollars a month over the demand.
pub(crate) struct Months {
    /// Its name, and what stands behind it.
    pub(crate) tier: Tier,
    /// Requests per second at the peak, with the dollars.
    pub(crate) curve: Vec<(f64, f64)>,
}

/// A variant in its place.
pub(crate) struct RankRow {
    /// Its place, from 1.
    pub(crate) rank: String,
    /// Its name, and what stands behind it.
    pub(crate) tier: Tier,
    /// Whether it meets the objective.
    pub(crate) outcome: MeetsObjective,
    /// Its figures, in the order of [`AnswerText::columns`].
    pub(crate) cells: Vec<Cell>,
    /// Why it is where it is.
    pub(crate) why: String,
}

/// A figure with what belongs to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    /// The figure.
    pub(crate) value: String,
    /// Its interval, in brackets; empty without one.
    pub(crate) interval: String,
    /// Where it holds: `at 300/s`; empty where that goes without saying.
    pub(crate) at: String,
}

impl Cell {
    fn of(value: Option<String>) -> Self {
        Self {
            value: value.unwrap_or_else(|| NONE.to_owned()),
            ..Self::default()
        }
    }

    /// Splits `12.3 ms [11.8–12.9]`.
    fn split(text: &str) -> Self {
        let (value, interval) = text.split_once(" [").unwrap_or((text, ""));
        Self {
            value: value.to_owned(),
            interval: if interval.is_empty() {
                String::new()
            } else {
                format!("[{interval}")
            },
            at: String::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.value == NONE
    }

    /// In one line.
    pub(crate) fn text(&self) -> String {
        let parts = [&self.value, &self.interval, &self.at].map(String::as_str);
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join(" ")
    }
}

impl AnswerText {
    /// Of a run; `None` where nothing was asked, or nothing is answered yet.
    pub(crate) fn of(run: &Run) -> Option<Self> {
        let answer = run.answer.as_ref()?;
        let mut text = Self {
            outcome: answer.outcome,
            sentence: sentence(run, answer),
            columns: COLUMNS.iter().map(|(name, is_number, _)| (*name, *is_number)).collect(),
            rows: answer
                .ranking
                .iter()
                .enumerate()
                .map(|(index, ranked)| row(run, index, ranked))
                .collect(),
            months: months(run, answer),
            peak_rps: answer.question.demand.map(|demand| demand.peak_rps),
            open: answer.open.iter().map(words::open).collect(),
            how_sure: how_sure(answer),
        };
        text.drop_empty_columns();
        Some(text)
    }

    /// A column in which no variant has anything is none: without a demand there are no instances, without prices no dollars.
    fn drop_empty_columns(&mut self) {
        for index in (0..self.columns.len()).rev() {
            if self.rows.iter().all(|row| row.cells[index].is_empty()) {
                self.columns.remove(index);
                for row in &mut self.rows {
                    row.cells.remove(index);
                }
            }
        }
    }

    /// The outcome in one word, as a badge shows it.
    pub(crate) const fn word(&self) -> &'static str {
        match self.outcome {
            AnswerOutcome::Decided => "decided",
            AnswerOutcome::Undecided => "undecided",
            AnswerOutcome::None => "none meets it",
        }
    }
}

/// Where months are told, as shares of the demand.
pub(crate) const AROUND: [f64; 5] = [0.2, 0.5, 1.0, 2.0, 5.0];

fn months(run: &Run, answer: &Answer) -> Vec<Months> {
    let Some(demand) = answer.question.demand else {
        return Vec::new();
    };
    let of = |ranked: &Ranked| Months {
        tier: Tier::of(run, &ranked.variant),
        curve: over_demand(&answer.question, ranked, &AROUND.map(|times| times * demand.peak_rps)),
    };
    let months = answer
        .ranking
        .iter()
        .filter(|ranked| ranked.outcome != MeetsObjective::NotMet);
    months.map(of).filter(|months| !months.curve.is_empty()).collect()
}

/// A column's name, whether it holds numbers, and its cell.
type Column = (&'static str, bool, fn(&Ranked) -> Cell);

const COLUMNS: [Column; 7] = [
    ("p99", true, p99),
    ("highest rate", true, |ranked| {
        Cell::split(&highest(ranked).unwrap_or_else(|| NONE.to_owned()))
    }),
    ("instances", true, |ranked| {
        Cell::of(ranked.instances.map(|count| count.to_string()))
    }),
    ("$/month", true, |ranked| {
        Cell::split(&month(ranked).unwrap_or_else(|| NONE.to_owned()))
    }),
    ("$/10k", true, |ranked| Cell::of(ranked.usd_per_10k.map(dollars))),
    ("slowest requests", false, |ranked| Cell::of(dominant(ranked))),
    ("steps", true, |ranked| Cell::of(Some(ranked.steps.to_string()))),
];

/// Whether a variant meets the objective, in one word.
pub(crate) const fn meets(outcome: MeetsObjective) -> &'static str {
    match outcome {
        MeetsObjective::Met => "pass",
        MeetsObjective::NotMet => "fail",
        MeetsObjective::Unknown => "unknown",
    }
}

fn row(run: &Run, index: usize, ranked: &Ranked) -> RankRow {
    RankRow {
        rank: (index + 1).to_string(),
        tier: Tier::of(run, &ranked.variant),
        outcome: ranked.outcome,
        cells: COLUMNS.iter().map(|(_, _, cell)| cell(ranked)).collect(),
        why: ranked.why.clone(),
    }
}

fn p99(ranked: &Ranked) -> Cell {
    let Some(value) = ranked.p99_us else {
        return Cell::of(None);
    };
    let text = match (ranked.p99_us_lo, ranked.p99_us_hi) {
        (Some(lo), Some(hi)) => latency_interval(Some(&Interval { value, lo, hi })),
        _ => crate::units::latency(value),
    };
    Cell {
        at: ranked
            .at_rps
            .map_or_else(String::new, |rps| format!("at {}/s", rate(rps))),
        ..Cell::split(&text)
    }
}

/// `812/s [780–850]`, `≥ 1,000/s` where every rate asked meets the objective, `none` where none does; `812/s [≥ 780]` where no
/// rate is known that certainly does not.
fn highest(ranked: &Ranked) -> Option<String> {
    let Some(value) = ranked.highest_rps else {
        return (ranked.outcome == MeetsObjective::NotMet).then(|| "none".to_owned());
    };
    Some(match (ranked.highest_rps_lo, ranked.highest_rps_hi) {
        (None, None) => format!("{}/s", rate(value)),
        (Some(lo), None) if lo < 0.999 * value => format!("{}/s [≥ {}]", rate(value), rate(lo)),
        (Some(_), None) => format!("≥ {}/s", rate(value)),
        (lo, Some(hi)) => format!("{}/s [{}–{}]", rate(value), rate(lo.unwrap_or(0.0)), rate(hi)),
    })
}

/// `$132 [128–136]`.
fn month(ranked: &Ranked) -> Option<String> {
    let value = ranked.usd_per_month?;
    Some(match (ranked.usd_per_month_lo, ranked.usd_per_month_hi) {
        (Some(lo), Some(hi)) => dollars_interval(Some(&Interval { value, lo, hi })),
        (Some(lo), None) => format!("{} [≥ {}]", dollars(value), digits3(lo)),
        _ => dollars(value),
    })
}

/// `94 % tier wait`.
fn dominant(ranked: &Ranked) -> Option<String> {
    let part = words::part(ranked.dominant_part.as_ref()?);
    Some(match ranked.dominant_share {
        Some(share) => format!("{} {part}", percent(share)),
        None => part.to_owned(),
    })
}

/// What was asked: `p99 < 50 ms, errors < 0.1 % at 300/s`.
pub(crate) fn asked(question: &Question) -> String {
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

fn sentence(run: &Run, answer: &Answer) -> String {
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
    let unknown: Vec<String> = of(MeetsObjective::Unknown).map(|ranked| printed(run, ranked)).collect();
    if !unknown.is_empty() {
        text += &format!(
            "; whether {} meet{} it is not known",
            unknown.join(", "),
            if unknown.len() == 1 { "s" } else { "" }
        );
    }
    text
}

fn printed(run: &Run, ranked: &Ranked) -> String {
    Tier::of(run, &ranked.variant).labelled()
}

/// How another compares with the best in what was asked for: `costs 1.2×`.
fn against(minimise: Minimise, best: &Ranked, other: &Ranked) -> Option<String> {
    let times = |of: fn(&Ranked) -> Option<f64>| {
        let times = format!("{:.2}", of(other)? / of(best)?);
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

fn confidence(answer: &Answer) -> String {
    let reached = percent(answer.confidence);
    match (answer.outcome, &answer.best) {
        (AnswerOutcome::Undecided, Some(best)) => format!(
            "Confidence {reached} of the {} asked for: the most with which the same steps would name {best}",
            percent(answer.question.confidence)
        ),
        (AnswerOutcome::Undecided, None) => format!(
            "Confidence {} was asked for; at none would the steps name a variant",
            percent(answer.question.confidence)
        ),
        _ => format!(
            "Confidence {reached}: how often an answer of this kind is right, by the rule that ended the measuring"
        ),
    }
}

fn how_sure(answer: &Answer) -> Vec<String> {
    let mut said = vec![confidence(answer)];
    if answer.best.is_some() {
        said.push(
            if answer.confirmed {
                "Confirmed by fresh steps that had no part in choosing the best"
            } else {
                "Not confirmed by fresh steps: the figures of the best are of the steps that chose it"
            }
            .to_owned(),
        );
    }
    let disturbed = match answer.disturbed_steps {
        0 => "none of them disturbed by anything foreign".to_owned(),
        count => format!("{count} of them disturbed by something foreign, which count for nothing"),
    };
    said.push(format!(
        "Measured for {} of at most {}: {} steps, {disturbed}",
        duration(answer.spent_s),
        duration(answer.question.budget_s),
        answer.steps
    ));
    said.push(answer.control_drift.map_or_else(
        || "Too little of the control point was measured to say whether the machine stayed what it was".to_owned(),
        |drift| {
            format!(
                "The control point moved by {}{} % from the first half of the measuring to the second",
                if drift < 0.0 { "−" } else { "+" },
                digits3(100.0 * drift.abs())
            )
        },
    ));
    said
}
