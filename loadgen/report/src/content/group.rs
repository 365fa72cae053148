//! Curves of one mode, model and batch size, which a table or a chart shows together.

use super::best::{self, Best};
use super::costs::{self, Costs};
use super::point_row::Tier;
use super::table::{Cell, Table, figures, text};
use super::{answer_sentence, highest_rate, labels};
use crate::units::{digits3, percent, rate};
use tierlab_analysis::curves::{Curve, common_rate, distinct, ratio};
use tierlab_analysis::record::{Interval, MeetsObjective, Objective, Percentile, Point, Run, Summary};

/// Curves that are compared with each other.
pub(crate) struct Group<'a> {
    /// Factors that they share, in words.
    pub(crate) name: String,
    /// Rate at which most are valid, the highest of several.
    pub(crate) common_rps: Option<f64>,
    /// Meaning of [`Row::best`]: `highest rate with p99 < 20 ms`, or `highest valid rate`.
    pub(crate) best_title: String,
    /// Objectives of the run, those of its question among them.
    pub(crate) objectives: Vec<Objective>,
    /// Percentile of the tail at the common rate.
    pub(crate) tail: Percentile,
    /// One row per curve.
    pub(crate) rows: Vec<Row<'a>>,
    /// Curves in the order of the rows.
    pub(crate) curves: Vec<Curve<'a>>,
    /// One sentence per curve.
    pub(crate) sentences: Vec<String>,
    /// Highest rate of each curve under the run's objective, in a sentence.
    pub(crate) slo_rates: Vec<String>,
    /// Cost share of each part of a mix, in a sentence.
    pub(crate) mix_shares: Vec<String>,
    /// Costs; `None` without prices.
    pub(crate) costs: Option<Costs>,
}

/// Curve in a row.
pub(crate) struct Row<'a> {
    pub(crate) tier: Tier,
    /// Cache state with its size.
    pub(crate) cache: String,
    /// Best point of the curve.
    pub(crate) best: Option<Best<'a>>,
    /// Highest rate by the answer; `None` for curves that are no part of it.
    answered: Option<Cell>,
    /// Highest rate with the interval of the boundary; `None` if only the plan ended the rates.
    pub(crate) highest: Option<Interval>,
    /// Figures at the common rate; `None` without a valid point there.
    pub(crate) at_common: Option<&'a Summary>,
    /// True for the curve with the shortest tail at the common rate.
    pub(crate) is_fastest: bool,
    /// Ratio of the tail to that of the fastest; `None` if it is unknown.
    pub(crate) against_fastest: Option<Interval>,
}

impl<'a> Group<'a> {
    /// Group of some curves of a run.
    pub(crate) fn of(run: &'a Run, name: String, curves: Vec<Curve<'a>>) -> Self {
        let common_rps = common_rate(&curves.iter().collect::<Vec<_>>());
        let at_common = |curve: &Curve<'a>| common_rps.and_then(|rps| curve.valid_at(rps));
        let at_common: Vec<Option<&Point>> = curves.iter().map(at_common).collect();
        let tail = best::highest_percentile(&at_common);
        let fails =
            |curve: &Curve<'_>| best::ranked(run, curve).is_some_and(|ranked| ranked.outcome == MeetsObjective::NotMet);
        // A variant that fails the objective is not a reference for the others.
        let contenders = curves.iter().zip(&at_common).filter(|(curve, _)| !fails(curve));
        let fastest = fastest(contenders.filter_map(|(_, point)| *point), tail);
        let rows = curves.iter().zip(at_common);
        let rows = rows.map(|(curve, point)| row(run, curve, point, fastest, tail));
        Self {
            name,
            common_rps,
            best_title: curves.first().map_or_else(String::new, |curve| best::title(run, curve)),
            objectives: objectives(run),
            tail,
            rows: rows.collect(),
            sentences: curves.iter().map(|curve| labels::sentence(run, curve)).collect(),
            slo_rates: highest_rate::sentences(run, &curves),
            mix_shares: costs::mix_shares(run, &curves),
            costs: Costs::of(run, &curves),
            curves,
        }
    }
}

fn row<'a>(
    run: &Run,
    curve: &Curve<'a>,
    point: Option<&'a Point>,
    fastest: Option<&Point>,
    tail: Percentile,
) -> Row<'a> {
    let factors = curve.factors();
    let best = best::best(run, curve);
    let both = point.zip(fastest);
    let is_fastest = both.is_some_and(|(point, fastest)| std::ptr::eq(point, fastest));
    let others = fastest.zip(point).filter(|_| !is_fastest);
    Row {
        tier: Tier::of(run, factors.label()),
        cache: labels::cache(factors),
        answered: best::ranked(run, curve).map(|ranked| Cell::split_or_none(answer_sentence::highest(ranked))),
        highest: best.as_ref().and_then(|best| server_limit(run, best)),
        best,
        at_common: point.and_then(|point| point.summary.as_ref()),
        is_fastest,
        against_fastest: others.and_then(|(fastest, point)| ratio(fastest, point, tail.quantile())),
    }
}

fn objectives(run: &Run) -> Vec<Objective> {
    let of_question = run.question.iter().flat_map(|question| question.objectives.clone());
    distinct(run.slo.iter().map(|slo| slo.objective).chain(of_question))
}

/// Rate of the best point, if it is the server's own limit; without a width if an end of its interval is unknown.
fn server_limit(run: &Run, best: &Best<'_>) -> Option<Interval> {
    let most = run.slo.as_ref().map_or(f64::INFINITY, |slo| slo.highest_rps);
    let known = best.interval.filter(|ends| ends.lo > 0.0 && ends.hi < most);
    (!best.at_least).then(|| known.unwrap_or(Interval::exact(best.rps())))
}

fn fastest<'a>(contenders: impl Iterator<Item = &'a Point>, tail: Percentile) -> Option<&'a Point> {
    let values = contenders.filter_map(|point| Some((point, best::percentile_of(point, tail)?.value)));
    values.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(fastest, _)| fastest)
}

/// Columns that text has no room for.
const PAGE_ONLY: [&str; 2] = ["p95", "against the fastest"];

/// Curves side by side: highest rate, latency at the common rate, cost, and the dominant part of the slowest requests.
pub(crate) fn table<'a>(groups: impl IntoIterator<Item = &'a Group<'a>>) -> Table {
    let columns = [
        text("variant"),
        figures("highest rate"),
        figures("at"),
        figures("p50"),
        figures("p95"),
        figures("p99"),
        figures("against the fastest"),
        figures("$/10k"),
        text("dominant part"),
    ];
    let rows = groups.into_iter().flat_map(|group| {
        let rows = group.rows.iter().zip(&group.curves);
        rows.map(|(row, curve)| cells(group, row, curve))
    });
    Table::new(columns, rows).filled().titled("Curves side by side")
}

/// The table of [`table`] for text.
pub(crate) fn short_table<'a>(groups: impl IntoIterator<Item = &'a Group<'a>>) -> Table {
    table(groups).named(|name| !PAGE_ONLY.contains(&name))
}

fn cells(group: &Group<'_>, row: &Row<'_>, curve: &Curve<'_>) -> Vec<Cell> {
    let (best, summary) = (row.best.as_ref(), row.at_common);
    let factors = curve.factors();
    let first_cell = Cell {
        interval: format!("{} {}×{}", row.cache, factors.mode, factors.batch_size),
        ..row.tier.cell()
    };
    let latency = |of: fn(&Summary) -> Option<Interval>| Cell::latency(summary.and_then(of));
    let interval = row.highest.filter(|ends| ends.lo < ends.hi);
    let highest = || Cell {
        interval: interval.map_or_else(String::new, |ends| format!("[{}–{}]", rate(ends.lo), rate(ends.hi))),
        ..Cell::plain(&best.map_or_else(|| "none".to_owned(), Best::text).replace(" rps", "/s"))
    };
    let cost = best.and_then(Best::cost);
    vec![
        first_cell,
        row.answered.clone().unwrap_or_else(highest),
        Cell::of(group.common_rps.map(|rps| format!("{}/s", rate(rps)))),
        latency(|summary| summary.p50_us),
        latency(|summary| summary.p95_us),
        latency(|summary| summary.p99_us),
        against_fastest(row),
        Cell::split_or_none(cost.map(|cost| cost.replace("at most ", "≤ ").replace("at least ", "≥ "))),
        dominant(summary),
    ]
}

/// True if the interval of a ratio leaves 1 out.
pub(crate) fn is_distinguishable(ratio: &Interval) -> bool {
    ratio.lo > 1.0 || ratio.hi < 1.0
}

/// Ratio of the tail to that of the fastest.
fn against_fastest(row: &Row<'_>) -> Cell {
    let Some(ratio) = row.against_fastest else {
        return Cell::of(row.is_fastest.then(|| "fastest".to_owned()));
    };
    let [value, lo, hi] = [ratio.value, ratio.lo, ratio.hi].map(digits3);
    let note = match is_distinguishable(&ratio) {
        true => "",
        false => ", not distinguishable",
    };
    Cell {
        interval: format!("[{lo}–{hi}]{note}"),
        ..Cell::plain(&format!("{value} ×"))
    }
}

/// Dominant part of the slowest requests, with the other parts as details.
fn dominant(summary: Option<&Summary>) -> Cell {
    let slowest = summary.and_then(labels::slowest);
    let cell = Cell::of(slowest.map(|(part, share)| format!("{} {}", percent(share.value), labels::part(part))));
    match summary.and_then(|summary| summary.tail.as_ref()) {
        Some(tail) => cell.with_tip(labels::dominance(tail)),
        None => cell,
    }
}
