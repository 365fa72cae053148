//! What a table or a chart holds together: curves of one mode, model and batch size, side by side.

use super::best::{self, Best};
use super::costs::{self, Costs};
use super::percentiles::{self, TailPercentile};
use super::point_row::{PointRow, Tier};
use super::{reach, words};
use tierlab_analysis::curves::{Curve, Difference, common_rate, difference};
use tierlab_analysis::record::{Interval, MeetsObjective, Objective, Point, Run, Summary};
use tierlab_analysis::statistics::sections::Pairing;

/// Curves that are compared with each other.
pub(crate) struct Group<'a> {
    /// What they have in common.
    pub(crate) name: String,
    /// The rate at which most are valid, the highest of several.
    pub(crate) common_rps: Option<f64>,
    /// What [`Row::best`] is: `highest rate with p99 < 20 ms`, or `highest valid rate`.
    pub(crate) best_title: String,
    /// The objectives that the run was made under, those of its question among them.
    pub(crate) objectives: Vec<Objective>,
    /// The percentile that stands for the tail at the common rate.
    pub(crate) tail: TailPercentile,
    /// A row for every curve.
    pub(crate) rows: Vec<Row<'a>>,
    /// The curves themselves, in the order of the rows: what charts are drawn of.
    pub(crate) curves: Vec<Curve<'a>>,
    /// What every curve says, in a sentence.
    pub(crate) sentences: Vec<String>,
    /// How far they go under the run's objective.
    pub(crate) reaches: Vec<String>,
    /// Who of a mix pays for what.
    pub(crate) mix_shares: Vec<String>,
    /// What they cost; absent without prices.
    pub(crate) costs: Option<Costs<'a>>,
}

/// A curve in a row.
pub(crate) struct Row<'a> {
    /// Its tier.
    pub(crate) tier: Tier,
    /// Its cache state with its size.
    pub(crate) cache: String,
    /// The point that stands for it.
    pub(crate) best: Option<Best<'a>>,
    /// The highest rate that stands for it, with what is known of the boundary: the answer's, where there is one. Absent where
    /// only the plan ended the rates.
    pub(crate) highest: Option<Interval>,
    /// The figures at the common rate; absent where it has no valid point there.
    pub(crate) at_common: Option<&'a Summary>,
    /// Its tail at the common rate beside that of the fastest.
    pub(crate) against_fastest: Against,
    /// Its points by rising rate.
    pub(crate) points: Vec<PointRow<'a>>,
}

/// A curve beside the fastest of its group.
pub(crate) enum Against {
    /// It is the fastest.
    Fastest,
    /// How it differs; absent where that cannot be said.
    Other(Option<Difference>),
}

impl<'a> Group<'a> {
    /// The curves of a group.
    pub(crate) fn of(run: &'a Run, name: String, curves: Vec<Curve<'a>>) -> Self {
        let common_rps = common_rate(&curves.iter().collect::<Vec<_>>());
        let at_common: Vec<Option<&Point>> = curves
            .iter()
            .map(|curve| common_rps.and_then(|rps| curve.valid_at(rps)))
            .collect();
        let tail = percentiles::highest(&at_common);
        let fails =
            |curve: &Curve<'_>| best::ranked(run, curve).is_some_and(|ranked| ranked.outcome == MeetsObjective::NotMet);
        // A variant that fails the objective is no measure of the others.
        let in_play = curves.iter().zip(&at_common).filter(|(curve, _)| !fails(curve));
        let fastest = fastest(in_play.filter_map(|(_, point)| *point), tail);
        let rows = curves
            .iter()
            .zip(at_common)
            .map(|(curve, point)| {
                let factors = curve.factors();
                let best = best::best(run, curve);
                Row {
                    tier: Tier::of(run, factors.label()),
                    cache: words::cache(factors),
                    highest: best.as_ref().and_then(reached),
                    best,
                    at_common: point.and_then(|point| point.summary.as_ref()),
                    against_fastest: against(point, fastest, tail),
                    points: curve.points.iter().map(|point| PointRow::of(run, point)).collect(),
                }
            })
            .collect();
        Self {
            name,
            common_rps,
            best_title: best::title(run),
            objectives: objectives(run),
            tail,
            rows,
            sentences: curves.iter().map(|curve| words::sentence(run, curve)).collect(),
            reaches: reach::reaches(run, &curves),
            mix_shares: costs::mix_shares(run, &curves),
            costs: Costs::of(run, &curves),
            curves,
        }
    }
}

fn objectives(run: &Run) -> Vec<Objective> {
    let mut objectives: Vec<Objective> = run.slo.iter().map(|slo| slo.objective).collect();
    for objective in run.question.iter().flat_map(|question| &question.objectives) {
        if !objectives.contains(objective) {
            objectives.push(*objective);
        }
    }
    objectives
}

/// The rate of the point that stands for a curve, where that is the server's own limit.
fn reached(best: &Best<'_>) -> Option<Interval> {
    let value = best.rps();
    let alone = Interval {
        value,
        lo: value,
        hi: value,
    };
    (!best.at_least).then(|| best.interval.unwrap_or(alone))
}

fn fastest<'a>(in_play: impl Iterator<Item = &'a Point>, tail: TailPercentile) -> Option<&'a Point> {
    in_play
        .filter_map(|point| tail.at(point).map(|interval| (point, interval.value)))
        .min_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(point, _)| point)
}

fn against(point: Option<&Point>, fastest: Option<&Point>, tail: TailPercentile) -> Against {
    match (point, fastest) {
        (Some(point), Some(fastest)) if !std::ptr::eq(point, fastest) => {
            Against::Other(difference(fastest, point, tail.quantile, Pairing::ByRepeat))
        }
        (Some(point), Some(_)) if tail.at(point).is_some() => Against::Fastest,
        _ => Against::Other(None),
    }
}
