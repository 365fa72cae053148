//! The answer in words: one sentence, the ranking, what was left open, and how sure it is.
//!
//! In: a run with an answer. Out: plain text for every renderer. Computes nothing: every figure stands in the record.

use super::answer_sentence::{sentence, terms};
use super::figures::{Cell, dominant, highest, instances, month, p99, per_10k};
use super::point_row::Tier;
use super::words;
use crate::units::{NONE, bytes, digits3, duration, percent, rate};
use tierlab_analysis::costs::over_demand::over_demand;
use tierlab_analysis::costs::turns::{turns, turns_by_size};
use tierlab_analysis::record::{Answer, AnswerOutcome, BySize, CostTerms, MeetsObjective, Minimise, Ranked, Run};

/// The answer as its reader meets it.
pub(crate) struct AnswerText {
    /// Whether there is an answer.
    pub(crate) outcome: AnswerOutcome,
    /// The answer in one sentence, without its full stop.
    pub(crate) sentence: String,
    /// Objectives, limit of errors and demand in full, without the full stop.
    pub(crate) terms: String,
    /// Names of the columns of [`RankRow::cells`], and whether they are numbers.
    pub(crate) columns: Vec<(String, bool)>,
    /// Every variant, the best first.
    pub(crate) rows: Vec<RankRow>,
    /// Figure that the best has least of.
    minimise: Minimise,
    /// Dollars a month over the demand, of those that have a price.
    pub(crate) months: Vec<Months>,
    /// The demand, in requests per second at the peak.
    pub(crate) peak_rps: Option<f64>,
    /// At which other demands another variant costs less, a sentence each.
    pub(crate) elsewhere: Vec<String>,
    /// At which sizes of the table, a sentence each.
    pub(crate) other_sizes: Vec<String>,
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
    /// State of the objective: met, missed or unknown.
    pub(crate) outcome: MeetsObjective,
    /// Its figures, in the order of [`AnswerText::columns`].
    pub(crate) cells: Vec<Cell>,
    /// Why it is where it is.
    pub(crate) why: String,
}

impl AnswerText {
    /// Of a run; `None` where nothing was asked, or nothing is answered yet.
    pub(crate) fn of(run: &Run) -> Option<Self> {
        let answer = run.answer.as_ref()?;
        let mut text = Self {
            outcome: answer.outcome,
            sentence: sentence(run, answer),
            terms: terms(&answer.question),
            minimise: answer.question.minimise,
            columns: COLUMNS
                .iter()
                .map(|(name, is_number, _)| ((*name).to_owned(), *is_number))
                .collect(),
            rows: answer
                .ranking
                .iter()
                .enumerate()
                .map(|(index, ranked)| row(run, index, ranked))
                .collect(),
            months: months(run, answer),
            peak_rps: answer.question.demand.map(|demand| demand.peak_rps),
            elsewhere: elsewhere(answer),
            other_sizes: other_sizes(run, answer),
            open: answer.open.iter().map(words::open).collect(),
            how_sure: how_sure(answer),
        };
        text.drop_empty_columns();
        text.name_common_rates();
        if answer.question.demand.is_some() {
            let columns = text.columns.iter_mut().filter(|(name, _)| *name == PER_10K);
            columns.for_each(|column| PER_10K_AT_DEMAND.clone_into(&mut column.0));
        }
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

    /// Moves a rate that all figures of a column hold at into the column's name: `p99 at 300/s`.
    fn name_common_rates(&mut self) {
        for (index, (name, _)) in self.columns.iter_mut().enumerate() {
            let mut cells = self
                .rows
                .iter()
                .map(|row| &row.cells[index])
                .filter(|cell| !cell.is_empty());
            let Some(first) = cells.next().filter(|first| !first.at.is_empty()) else {
                continue;
            };
            if cells.any(|cell| cell.at != first.at) {
                continue;
            }
            *name += &format!(" {}", first.at);
            let of_column = self.rows.iter_mut().map(|row| &mut row.cells[index]);
            of_column
                .filter(|cell| !cell.is_empty())
                .for_each(|cell| cell.at.clear());
        }
    }

    /// Columns that a reader decides by; the others are of the full ranking.
    pub(crate) fn deciding_columns(&self) -> Vec<usize> {
        let has_month = self.columns.iter().any(|(name, _)| *name == PER_MONTH);
        let is_deciding = |name: &str| match name {
            INSTANCES => !has_month || self.minimise == Minimise::Instances,
            PER_10K | PER_10K_AT_DEMAND => !has_month || self.minimise == Minimise::UsdPer10k,
            STEPS => false,
            _ => true,
        };
        let columns = self.columns.iter().enumerate();
        columns
            .filter(|(_, (name, _))| is_deciding(name))
            .map(|(index, _)| index)
            .collect()
    }

    /// What follows the ranking, by its title; a list may be empty.
    pub(crate) const fn lists(&self) -> [(&'static str, &Vec<String>); 4] {
        [
            ("At another demand", &self.elsewhere),
            ("With a table of another size", &self.other_sizes),
            (NOT_DECIDED, &self.open),
            ("How sure", &self.how_sure),
        ]
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
    let of = |ranked: &Ranked| {
        let mut at_rps = AROUND.map(|times| times * demand.peak_rps).to_vec();
        if ranked.highest_is_bound {
            // Above what its instances are known to carry, their number is open.
            let carried = ranked.highest_rps.zip(ranked.instances);
            let end = carried.map_or(0.0, |(rps, count)| answer.question.utilisation * rps * f64::from(count));
            at_rps.retain(|rps| *rps < end);
            at_rps.push(end.max(demand.peak_rps));
        }
        Months {
            tier: Tier::of(run, &ranked.variant),
            curve: over_demand(&answer.question, ranked, &at_rps),
        }
    };
    let months = answer
        .ranking
        .iter()
        .filter(|ranked| ranked.outcome != MeetsObjective::NotMet);
    months.map(of).filter(|months| !months.curve.is_empty()).collect()
}

/// The best and the others that meet the objective, where dollars decide.
fn by_dollars(answer: &Answer) -> Option<(&Ranked, impl Iterator<Item = &Ranked>)> {
    let is_by_dollars = matches!(answer.question.minimise, Minimise::UsdPerMonth | Minimise::UsdPer10k);
    let (best, others) = answer.ranking.split_first()?;
    // A variant that costs less here too is within the tie, as the ranking says: where the order turns says nothing of it.
    let costs_less = |other: &&Ranked| other.usd_per_month < best.usd_per_month;
    let others = others.iter().filter(|other| other.outcome == MeetsObjective::Met);
    let others = others.filter(move |other| !costs_less(other));
    (is_by_dollars && Some(&best.variant) == answer.best.as_ref()).then_some((best, others))
}

/// Where the order of the months turns. Above the demand only of variants whose highest rate is known, and not only that it lies above
/// what was asked for.
fn elsewhere(answer: &Answer) -> Vec<String> {
    let Some((best, others)) = by_dollars(answer) else {
        return Vec::new();
    };
    let mut said = Vec::new();
    for other in others {
        let Some(turns) = turns(&answer.question, best, other) else {
            continue;
        };
        let are_bounded = best.highest_rps_hi.is_some() && other.highest_rps_hi.is_some();
        for (word, turn) in [("Below", turns.below), ("Above", turns.above.filter(|_| are_bounded))] {
            if let Some(at_rps) = turn {
                let (other, best) = (&other.variant, &best.variant);
                said.push(format!("{word} {}/s {other} costs less than {best}", rate(at_rps)));
            }
        }
    }
    said
}

/// Where the order of the months turns with the size of the table, if each instance carried then what it carried here.
fn other_sizes(run: &Run, answer: &Answer) -> Vec<String> {
    let terms_of = |ranked: &Ranked| run.pricing.as_ref()?.terms_by_variant.get(&ranked.variant);
    let Some((best, others)) = by_dollars(answer) else {
        return Vec::new();
    };
    let Some((terms, by_size)) = terms_of(best).and_then(|terms| Some((terms, terms.by_size.as_ref()?))) else {
        return Vec::new();
    };
    let mut said: Vec<String> = others
        .filter_map(|other| Some((other, terms_of(other)?)))
        .flat_map(|other| turns_of_sizes((best, terms), by_size, other))
        .collect();
    if let Some(largest) = by_size.largest_times {
        let (best, instance) = (&best.variant, &terms.instance);
        said.push(format!(
            "{best} is for tables of at most {}: {instance} has no disk or memory for more",
            size(by_size, largest)
        ));
    }
    if !said.is_empty() {
        said.push(
            "Copies and caches keep their share of the table; what an instance carries is taken as measured, and a larger table can change it"
                .to_owned(),
        );
    }
    said
}

fn turns_of_sizes(best: (&Ranked, &CostTerms), by_size: &BySize, other: (&Ranked, &CostTerms)) -> Vec<String> {
    let turns = turns_by_size(best, other).unwrap_or_default();
    let (other, best) = (&other.0.variant, &best.0.variant);
    [("less", turns.below), ("more", turns.above)]
        .into_iter()
        .filter_map(|(word, turn)| Some((word, turn.filter(|times| *times > 0.0)?)))
        .map(|(word, times)| {
            format!(
                "With {word} than {} {other} costs less than {best}",
                size(by_size, times)
            )
        })
        .collect()
}

/// `4.2 GiB (41.5 times the measured)`
fn size(by_size: &BySize, times: f64) -> String {
    let table = bytes((by_size.table_bytes as f64 * times) as u64);
    format!("{table} ({} times the measured)", digits3(times))
}

/// A column's name, whether it holds numbers, and its cell.
type Column = (&'static str, bool, fn(&Ranked) -> Cell);

/// Title of the list of open questions.
pub(crate) const NOT_DECIDED: &str = "Not decided";
const INSTANCES: &str = "instances";
const PER_MONTH: &str = "$/month";
const PER_10K: &str = "$/10k";
const PER_10K_AT_DEMAND: &str = "$/10k at demand";
const STEPS: &str = "steps";

const COLUMNS: [Column; 7] = [
    ("p99", true, p99),
    ("highest rate", true, |ranked| {
        Cell::split(&highest(ranked).unwrap_or_else(|| NONE.to_owned()))
    }),
    (INSTANCES, true, |ranked| Cell::of(instances(ranked))),
    (PER_MONTH, true, |ranked| {
        Cell::split(&month(ranked).unwrap_or_else(|| NONE.to_owned()))
    }),
    (PER_10K, true, |ranked| Cell::of(per_10k(ranked))),
    ("slowest requests", false, |ranked| Cell::of(dominant(ranked))),
    (STEPS, true, |ranked| Cell::of(Some(ranked.steps.to_string()))),
];

fn row(run: &Run, index: usize, ranked: &Ranked) -> RankRow {
    RankRow {
        rank: (index + 1).to_string(),
        tier: Tier::of(run, &ranked.variant),
        outcome: ranked.outcome,
        cells: COLUMNS.iter().map(|(_, _, cell)| cell(ranked)).collect(),
        why: ranked.why.clone(),
    }
}

fn confidence(answer: &Answer) -> String {
    let (reached, asked) = (percent(answer.confidence), percent(answer.question.confidence));
    if answer.outcome != AnswerOutcome::Undecided {
        return format!(
            "Confidence {reached}: how often an answer of this kind is right, by the rule that ended the measuring"
        );
    }
    let by_steps = match &answer.best {
        Some(best) if answer.confidence > 0.0 => format!(
            "{best} is the answer with a probability of {} %",
            digits3(100.0 * answer.confidence)
        ),
        Some(best) => format!("{best} is likely enough, but see what is open"),
        None => "no variant is likely".to_owned(),
    };
    format!("Not decided: by these steps {by_steps}; {asked} was asked for")
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
    said.extend(answer.control_drift.map(|drift| {
        format!(
            "The control point moved by {}{} % from the first half of the measuring to the second",
            if drift < 0.0 { "−" } else { "+" },
            digits3(100.0 * drift.abs())
        )
    }));
    said
}
