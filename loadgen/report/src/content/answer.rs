//! The answer in words: one sentence, the ranking, open questions, and the confidence.
//!
//! In: a run with an answer. Out: plain text for every renderer. Computes nothing: every figure is in the record.

use super::answer_sentence::{dominant, highest, instances, meets, month, p99, per_10k, sentence, terms};
use super::labels;
use super::point_row::Tier;
use super::table::{Cell, Table, text};
use crate::units::{bytes, digits3, duration, percent, rate};
use tierlab_analysis::costs::crossovers::{CheaperRange, crossovers, crossovers_by_size};
use tierlab_analysis::costs::monthly::max_fill;
use tierlab_analysis::costs::over_demand::over_demand;
use tierlab_analysis::record::{Answer, AnswerOutcome, BySize, CostTerms, MeetsObjective, Minimise, Ranked, Run};

/// Answer in words.
pub(crate) struct AnswerText {
    pub(crate) outcome: AnswerOutcome,
    /// Answer in one sentence, without its full stop.
    pub(crate) sentence: String,
    /// Objectives, error limit and demand in full, without the full stop.
    pub(crate) terms: String,
    /// All variants, the best first: name, objective, figures, and the reason for the rank.
    pub(crate) ranking: Table,
    /// Figure that is minimised.
    minimise: Minimise,
    /// Variants with a price: requests per second at the peak, with the dollars a month.
    pub(crate) months: Vec<(String, Vec<(f64, f64)>)>,
    /// Demand, in requests per second at the peak.
    pub(crate) peak_rps: Option<f64>,
    /// Demands at which another variant costs less, in sentences.
    pub(crate) other_demands: Vec<String>,
    /// Sizes of the table at which another variant costs less, in sentences.
    pub(crate) other_sizes: Vec<String>,
    /// Open questions, in sentences.
    pub(crate) open: Vec<String>,
    /// Confidence and effort, in sentences.
    pub(crate) confidence_notes: Vec<String>,
}

impl AnswerText {
    /// Answer of a run; `None` without a question, or before the answer.
    pub(crate) fn of(run: &Run) -> Option<Self> {
        let answer = run.answer.as_ref()?;
        Some(Self {
            outcome: answer.outcome,
            sentence: sentence(run, answer),
            terms: terms(&answer.question),
            minimise: answer.question.minimise,
            ranking: ranking(run, answer),
            months: months(answer),
            peak_rps: answer.question.demand.map(|demand| demand.peak_rps),
            other_demands: other_demands(answer),
            other_sizes: other_sizes(run, answer),
            open: answer.open.iter().map(labels::open).collect(),
            confidence_notes: confidence_notes(answer),
        })
    }

    /// Ranking with the columns that a reader decides by.
    pub(crate) fn decision_columns(&self) -> Table {
        let has_month = self.ranking.columns.iter().any(|(name, _)| *name == PER_MONTH);
        self.ranking.named(|name| match name {
            INSTANCES => !has_month || self.minimise == Minimise::Instances,
            PER_10K | PER_10K_AT_DEMAND => !has_month || self.minimise == Minimise::UsdPer10k,
            STEPS | WHY => false,
            _ => true,
        })
    }

    /// Ranking without reasons.
    pub(crate) fn without_reasons(&self) -> Table {
        self.ranking.named(|name| name != WHY)
    }

    /// Lists below the ranking, by title; a list may be empty.
    pub(crate) const fn lists(&self) -> [(&'static str, &Vec<String>); 4] {
        [
            ("At another demand", &self.other_demands),
            ("With a table of another size", &self.other_sizes),
            (NOT_DECIDED, &self.open),
            ("How sure", &self.confidence_notes),
        ]
    }

    /// Outcome as a badge: its class, and its words.
    pub(crate) const fn badge(&self) -> (&'static str, &'static str) {
        match self.outcome {
            AnswerOutcome::Decided => ("valid", "decided"),
            AnswerOutcome::Undecided => ("saturated", "undecided"),
            AnswerOutcome::None => ("invalid", "none meets it"),
        }
    }
}

/// Returns the variants in their order. Columns without any figure are left out, and a rate that all figures of a column share
/// moves into the column's name: `p99 at 300/s`.
fn ranking(run: &Run, answer: &Answer) -> Table {
    let figures = COLUMNS.map(|(name, is_number, _)| (name.to_owned(), is_number));
    let first_cells = [text("variant"), text("SLO")].into_iter();
    let columns = first_cells.chain(figures).chain([text(WHY)]);
    let rows = answer.ranking.iter().map(|ranked| {
        let first_cells = [Tier::of(run, &ranked.variant).cell(), slo(ranked.outcome)].into_iter();
        let figures = COLUMNS.iter().map(|(.., cell)| cell(ranked));
        first_cells.chain(figures).chain([Cell::plain(&ranked.why)]).collect()
    });
    let mut table = Table::new(columns, rows).filled().titled("Variants in their order");
    for (index, (name, _)) in table.columns.iter_mut().enumerate() {
        if *name == PER_10K && answer.question.demand.is_some() {
            PER_10K_AT_DEMAND.clone_into(name);
        }
        let mut filled = table.rows.iter().map(|row| &row[index]).filter(|cell| !cell.is_empty());
        let at = filled.next().map_or_else(String::new, |cell| cell.at.clone());
        if !at.is_empty() && filled.all(|cell| cell.at == at) {
            *name += &format!(" {at}");
            // A missing figure keeps its reason, and its rate if that is another one.
            for cell in table.rows.iter_mut().map(|row| &mut row[index]) {
                if let Some(rest) = cell.at.strip_prefix(&at) {
                    cell.at = rest.trim_start().to_owned();
                }
            }
        }
    }
    table
}

fn slo(outcome: MeetsObjective) -> Cell {
    let class = match outcome {
        MeetsObjective::Met => "valid",
        MeetsObjective::NotMet => "invalid",
        MeetsObjective::Unknown => "saturated",
    };
    Cell::badge(class, meets(outcome))
}

/// Demands of the table of months, as shares of the question's.
pub(crate) const DEMAND_FACTORS: [f64; 5] = [0.2, 0.5, 1.0, 2.0, 5.0];

fn months(answer: &Answer) -> Vec<(String, Vec<(f64, f64)>)> {
    let Some(demand) = answer.question.demand else {
        return Vec::new();
    };
    let of = |ranked: &Ranked| {
        let mut at_rps = DEMAND_FACTORS.map(|times| times * demand.peak_rps).to_vec();
        if ranked.highest_is_bound {
            // Above the rate that its instances are known to carry, their number is unknown.
            let carried = ranked.highest_rps.zip(ranked.instances);
            let end = carried.map_or(0.0, |(rps, count)| max_fill(&answer.question) * rps * f64::from(count));
            at_rps.retain(|rps| *rps < end);
            at_rps.push(end.max(demand.peak_rps));
        }
        (ranked.variant.clone(), over_demand(&answer.question, ranked, &at_rps))
    };
    let ranking = answer.ranking.iter();
    let may_meet = |ranked: &&Ranked| ranked.outcome != MeetsObjective::NotMet;
    let months = ranking.filter(may_meet).map(of);
    months.filter(|(_, months)| !months.is_empty()).collect()
}

/// Best variant, and the others that meet the objective; `None` unless dollars decide.
fn by_dollars(answer: &Answer) -> Option<(&Ranked, impl Iterator<Item = &Ranked>)> {
    let is_by_dollars = matches!(answer.question.minimise, Minimise::UsdPerMonth | Minimise::UsdPer10k);
    let (best, others) = answer.ranking.split_first()?;
    // A variant that costs less here too is within the tie margin, as the ranking says.
    let costs_less = |other: &&Ranked| other.usd_per_month < best.usd_per_month;
    let others = others.iter().filter(|other| other.outcome == MeetsObjective::Met);
    let others = others.filter(move |other| !costs_less(other));
    (is_by_dollars && Some(&best.variant) == answer.best.as_ref()).then_some((best, others))
}

/// Demands at which the order of the months changes. Above the question's demand, both highest rates must be known, not
/// only bounded.
fn other_demands(answer: &Answer) -> Vec<String> {
    let Some((best, others)) = by_dollars(answer) else {
        return Vec::new();
    };
    let mut sentences = Vec::new();
    for other in others {
        let crossovers = crossovers(&answer.question, best, other).unwrap_or_default();
        let are_bounded = best.highest_rps_hi.is_some() && other.highest_rps_hi.is_some();
        let above = crossovers.above.filter(|_| are_bounded);
        for cheaper in crossovers.below.into_iter().chain(above) {
            let [from, to] = [cheaper.from, cheaper.to].map(|rps| rps.map(|rps| format!("{}/s", rate(rps))));
            let demands = range(["Below", "Above", "Between"], from, to);
            sentences.push(format!("{demands} {} costs less than {}", other.variant, best.variant));
        }
    }
    sentences
}

/// Range in words, by those for an upper end, a lower end, and both.
fn range([below, above, between]: [&str; 3], from: Option<String>, to: Option<String>) -> String {
    match (from, to) {
        (Some(from), Some(to)) => format!("{between} {from} and {to}"),
        (Some(from), None) => format!("{above} {from}"),
        (None, to) => format!("{below} {}", to.unwrap_or_default()),
    }
}

/// Sizes of the table at which the order of the months changes, if each instance carries its measured rate.
fn other_sizes(run: &Run, answer: &Answer) -> Vec<String> {
    let terms_of = |ranked: &Ranked| run.pricing.as_ref()?.terms_by_variant.get(&ranked.variant);
    let Some((best, others)) = by_dollars(answer) else {
        return Vec::new();
    };
    let Some((terms, by_size)) = terms_of(best).and_then(|terms| Some((terms, terms.by_size.as_ref()?))) else {
        return Vec::new();
    };
    let others = others.filter_map(|other| Some((other, terms_of(other)?)));
    let crossovers = others.flat_map(|other| size_crossovers((best, terms), by_size, other));
    let mut sentences: Vec<String> = crossovers.collect();
    if let Some(largest) = by_size.largest_times {
        let (best, instance) = (&best.variant, &terms.instance);
        sentences.push(format!(
            "{best} holds tables of at most {}: {instance} lacks disk or memory for larger ones",
            size(by_size, largest)
        ));
    }
    if !sentences.is_empty() {
        sentences.push(
            "Copies and caches keep their share of the table; instances are assumed to carry their measured rate, which a larger table can change"
                .to_owned(),
        );
    }
    sentences
}

fn size_crossovers(best: (&Ranked, &CostTerms), by_size: &BySize, other: (&Ranked, &CostTerms)) -> Vec<String> {
    let crossovers = crossovers_by_size(best, other).unwrap_or_default();
    let below = crossovers.below.filter(|cheaper| cheaper.to > Some(0.0));
    let describe = |cheaper: CheaperRange| {
        let [from, to] = [cheaper.from, cheaper.to].map(|times| times.map(|times| size(by_size, times)));
        let sizes = range(["With less than", "With more than", "Between"], from, to);
        format!("{sizes} {} costs less than {}", other.0.variant, best.0.variant)
    };
    below.into_iter().chain(crossovers.above).map(describe).collect()
}

/// `4.2 GiB (41.5 times the priced size)`
fn size(by_size: &BySize, times: f64) -> String {
    let table = bytes((by_size.table_bytes as f64 * times) as u64);
    format!("{table} ({} times the priced size)", digits3(times))
}

/// Title of the list of open questions.
pub(crate) const NOT_DECIDED: &str = "Not decided";
const INSTANCES: &str = "instances";
const PER_MONTH: &str = "$/month";
const PER_10K: &str = "$/10k";
const PER_10K_AT_DEMAND: &str = "$/10k at demand";
const STEPS: &str = "steps";
const WHY: &str = "why";

/// Name of a column, true for numbers, and its cell.
type AnswerFigure = (&'static str, bool, fn(&Ranked) -> Cell);

const COLUMNS: [AnswerFigure; 7] = [
    ("p99", true, p99),
    ("highest rate", true, |ranked| Cell::split_or_none(highest(ranked))),
    (INSTANCES, true, |ranked| Cell::of(instances(ranked))),
    (PER_MONTH, true, |ranked| Cell::split_or_none(month(ranked))),
    (PER_10K, true, |ranked| Cell::of(per_10k(ranked))),
    ("slowest requests", false, |ranked| Cell::of(dominant(ranked))),
    (STEPS, true, |ranked| Cell::of(Some(ranked.steps.to_string()))),
];

fn confidence(answer: &Answer) -> String {
    let (reached, required) = (percent(answer.confidence), percent(answer.question.confidence));
    if answer.outcome != AnswerOutcome::Undecided {
        return format!("Confidence {reached}: probability that the answer is right, by the stopping rule");
    }
    let by_steps = match &answer.best {
        Some(best) if answer.confidence > 0.0 => {
            let probability = digits3(100.0 * answer.confidence);
            format!("{best} is the answer with a probability of {probability} %")
        }
        Some(best) => format!("{best} is likely enough, but a question is open"),
        None => "no variant is likely".to_owned(),
    };
    format!("Not decided: {by_steps}; {required} is required")
}

fn confidence_notes(answer: &Answer) -> Vec<String> {
    let mut sentences = vec![confidence(answer)];
    if answer.best.is_some() {
        let confirmed = match answer.confirmed {
            true => "Confirmed by fresh steps, which did not choose the best",
            false => "Not confirmed by fresh steps: the figures of the best come from the steps that chose it",
        };
        sentences.push(confirmed.to_owned());
    }
    let disturbed = match answer.disturbed_steps {
        0 => "none disturbed by other activity".to_owned(),
        count => format!("{count} disturbed by other activity and ignored"),
    };
    let [spent, budget] = [answer.spent_s, answer.question.budget_s].map(duration);
    let steps = answer.steps;
    sentences.push(format!(
        "Measured for {spent} of at most {budget}: {steps} steps, {disturbed}"
    ));
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = r#"{
        "question": {
            "objectives": [{"percentile": "p99", "limit_us": 5e4}], "error_share": 0.001, "minimise": "usd_per_month",
            "demand": {"average_rps": 300.0, "peak_rps": 300.0}, "mode": "realtime", "batch_size": 1, "budget_s": 60.0,
            "confidence": 0.95, "tie": 0.05, "utilisation": 0.7, "least_instances": 1, "highest_rps": 1e4
        },
        "outcome": "decided", "best": "a", "confidence": 0.95, "confirmed": true, "spent_s": 60.0, "steps": 30,
        "disturbed_steps": 0,
        "ranking": [{
            "variant": "a", "tier": "nvme", "outcome": "met", "at_rps": 300.0, "p99_us": null, "p99_us_lo": null,
            "p99_us_hi": null, "highest_rps": 500.0, "highest_rps_lo": 500.0, "highest_rps_hi": null,
            "highest_is_bound": true, "instances": 1, "usd_per_month": 100.0, "usd_per_month_lo": 100.0,
            "usd_per_month_hi": 100.0, "usd_per_10k": null, "usd_parts": [["compute", 100.0]], "dominant_part": null,
            "dominant_share": null, "why": "", "steps": 30
        }]
    }"#;

    #[test]
    fn a_missing_figure_keeps_its_own_rate_below_that_of_the_column() {
        let mut answer: Answer = serde_json::from_str(ANSWER).unwrap();
        let best = &mut answer.ranking[0];
        best.p99_us = Some(931.0);
        for at_rps in [300.0, 107.0] {
            let mut other = answer.ranking[0].clone();
            (other.p99_us, other.at_rps) = (None, Some(at_rps));
            other.p99_missing = Some("too few samples".to_owned());
            answer.ranking.push(other);
        }
        let table = ranking(&Run::default(), &answer);
        let column = table
            .columns
            .iter()
            .position(|(name, _)| name == "p99 at 300/s")
            .unwrap();
        let cells: Vec<String> = table.rows.iter().map(|row| row[column].text()).collect();
        assert_eq!(
            cells,
            ["931 µs", "n/a (too few samples)", "n/a at 107/s (too few samples)"]
        );
    }

    #[test]
    fn months_end_where_a_bound_no_longer_tells_the_instances() {
        let last = |answer: &Answer| months(answer)[0].1.last().copied();
        let mut answer: Answer = serde_json::from_str(ANSWER).unwrap();
        // An instance that is filled to 70 % of 500/s carries 350/s.
        assert_eq!(last(&answer), Some((350.0, 100.0)));
        // A known limit has all demands, and tells the instances at each.
        answer.ranking[0].highest_is_bound = false;
        assert_eq!(last(&answer), Some((1_500.0, 500.0)));
    }

    #[test]
    fn a_variant_of_the_tie_that_costs_less_here_costs_less_at_no_other_demand() {
        let mut answer: Answer = serde_json::from_str(ANSWER).unwrap();
        let best = &mut answer.ranking[0];
        (best.highest_is_bound, best.highest_rps_hi) = (false, Some(600.0));
        let sentences = |usd: f64| {
            let mut answer = answer.clone();
            let mut other = answer.ranking[0].clone();
            "b".clone_into(&mut other.variant);
            (other.usd_per_month, other.usd_parts) = (Some(usd), vec![("capacity".to_owned(), usd)]);
            answer.ranking.push(other);
            other_demands(&answer)
        };
        assert_eq!(sentences(101.0), ["Above 350/s b costs less than a"]);
        assert_eq!(sentences(99.0), [""; 0]);
    }
}
