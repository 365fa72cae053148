//! Points in tables: their names and figures, and the tier with its origin.

use super::labels;
use super::table::{Badge, Cell, Column, Table, figures};
use crate::units::{digits3, latency, percent, rate, thousands};
use tierlab_analysis::record::{Percentile, Point, Run, StreamFigure, Summary, Verdict};
use tierlab_analysis::validity::laws;

/// Tier or variant by name, with its origin.
#[derive(Debug, Clone)]
pub(crate) struct Tier {
    pub(crate) name: String,
    /// Name with `(emulated)` if its figures come from a distribution.
    pub(crate) printed: String,
    /// Index among those of the run.
    pub(crate) number: usize,
    /// Origin; `None` for a real service.
    pub(crate) origin: Option<Origin>,
}

/// Stand-in for a real service.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// `emulated` or `embedded`.
    pub(crate) kind: &'static str,
    /// Profile of an emulated variant; `None` if only its kind is known.
    profile: Option<String>,
    /// Full description.
    description: String,
}

impl Tier {
    /// Tier or variant of a run, by its label.
    pub(crate) fn of(run: &Run, name: &str) -> Self {
        let description = labels::origin_text(run, name);
        let kind = match labels::is_emulated(run, name) {
            true => Some("emulated"),
            false => description.starts_with("embedded").then_some("embedded"),
        };
        Self {
            name: name.to_owned(),
            printed: labels::tier(run, name),
            number: labels::tiers(run).iter().position(|tier| *tier == name).unwrap_or(0),
            origin: kind.map(|kind| Origin {
                kind,
                profile: labels::variant(run, name).and_then(|variant| variant.emulated.clone()),
                description: description.clone().into_owned(),
            }),
        }
    }

    /// Name with its origin: `s3-express (emulated s3-express-2025)`, `nfs (embedded)`.
    pub(crate) fn labelled(&self) -> String {
        match &self.origin {
            Some(origin) => format!("{} ({})", self.name, origin.label()),
            None => self.name.clone(),
        }
    }

    pub(crate) fn cell(&self) -> Cell {
        let badge = self.origin.as_ref().map(|origin| Badge {
            class: origin.kind,
            label: origin.label(),
            tip: origin.description.clone(),
        });
        Cell {
            badge,
            ..Cell::plain(&self.name)
        }
    }
}

impl Origin {
    /// `emulated s3-express-2025`, `embedded`.
    fn label(&self) -> String {
        match &self.profile {
            Some(profile) => format!("{} {profile}", self.kind),
            None => self.kind.to_owned(),
        }
    }
}

/// Form of a figure in text tables, whose width is limited; a page shows every figure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InText {
    No,
    /// The value without its interval.
    Value,
    Whole,
}

type PointFigure = (&'static str, InText, fn(&Summary) -> Cell);

const FIGURES: [PointFigure; 19] = {
    use InText::{No, Value, Whole};
    [
        ("verdict", Whole, |summary| verdict(&summary.verdict)),
        ("p50", Whole, |summary| Cell::latency(summary.p50_us)),
        ("p90", No, |summary| Cell::latency(summary.p90_us)),
        ("p95", Whole, |summary| Cell::latency(summary.p95_us)),
        ("p99", Whole, |summary| Cell::latency(summary.p99_us)),
        ("ttft p99", Value, |summary| stream_p99(summary, StreamFigure::Ttft)),
        ("gap p99", Value, |summary| stream_p99(summary, StreamFigure::Gap)),
        ("p99.9", No, |summary| Cell::latency(summary.p999_us)),
        ("mean", No, |summary| Cell::latency(summary.mean_us)),
        ("max", No, |summary| Cell::of(summary.max_us.map(latency))),
        ("service p99", No, |summary| {
            Cell::of(summary.service_p99_us.map(latency))
        }),
        ("send lag p99", No, |summary| Cell::of(summary.lag_p99_us.map(latency))),
        ("good/s", Value, |summary| Cell::rate(summary.achieved_rps)),
        ("goodput/s", Whole, |summary| Cell::of(goodput(summary))),
        ("inferences/s", No, |summary| Cell::rate(summary.inferences_per_s)),
        ("hits", Whole, |summary| Cell::of(summary.cache_hit_ratio.map(percent))),
        ("errors", Whole, |summary| Cell::plain(&thousands(summary.errors))),
        ("in flight", No, |summary| in_flight(summary.in_flight)),
        ("$/10k", Value, |summary| Cell::dollars(summary.usd_per_10k)),
    ]
};

/// The p99 of a figure of streamed replies.
fn stream_p99(summary: &Summary, figure: StreamFigure) -> Cell {
    let figure = summary.streams.get(&figure);
    Cell::latency(figure.and_then(|figure| figure.percentiles.get(&Percentile::P99).copied()))
}

/// Goodput per second with its share of the requests: `196 (98 %)`.
fn goodput(summary: &Summary) -> Option<String> {
    let share = summary.goodput_share?;
    Some(format!("{} ({})", rate(summary.goodput_rps?.value), percent(share)))
}

/// Requests in flight as counted, with the count by Little's law as details.
fn in_flight((counted, by_law): (f64, f64)) -> Cell {
    let note = match laws::holds((counted, by_law)) {
        Some(_) => "",
        None => " (too few to check the law)",
    };
    let [counted, by_law] = [counted, by_law].map(digits3);
    let tip = format!("counted {counted}, by Little's law {by_law}{note}");
    Cell::from(counted).with_tip(tip)
}

/// Verdict in a word, with its reasons as details.
fn verdict(verdict: &Verdict) -> Cell {
    let word = labels::verdict(verdict);
    match verdict {
        Verdict::Valid => Cell::badge(word, word),
        Verdict::Saturated(reasons) | Verdict::Invalid(reasons) => Cell::badge(word, word).with_tip(reasons.join("\n")),
    }
}

/// Table of points with every figure that any of them has. `names` and `name` are the first columns and their cells; an empty
/// row separates curves.
pub(crate) fn table<'a>(
    names: &[Column],
    name: impl Fn(&Point) -> Vec<Cell>,
    curves: impl IntoIterator<Item = &'a [&'a Point]>,
) -> Table {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for points in curves {
        if !rows.is_empty() {
            rows.push(Vec::new());
        }
        for point in points {
            let mut row = name(point);
            row.push(Cell::of(labels::offered_rps(&point.factors).map(rate)));
            match &point.summary {
                Some(summary) => row.extend(FIGURES.iter().map(|(.., cell)| cell(summary))),
                None => {
                    row.push(Cell::plain("not summarised"));
                    row.resize(names.len() + 1 + FIGURES.len(), Cell::of(None));
                }
            }
            rows.push(row);
        }
    }
    let offered = std::iter::once(figures("offered/s"));
    let columns = FIGURES.iter().map(|(name, ..)| (name.to_string(), *name != "verdict"));
    let columns = names.iter().cloned().chain(offered).chain(columns);
    Table::new(columns, rows).filled().titled("Every point")
}

/// Columns of a table of points that text has room for.
pub(crate) fn short(table: &Table) -> Table {
    let in_text = |name: &str| {
        let figure = FIGURES.iter().find(|(column, ..)| *column == name);
        figure.map_or(InText::Whole, |(_, text, _)| *text)
    };
    let mut short = table.named(|name| in_text(name) != InText::No);
    for (index, (name, _)) in short.columns.iter().enumerate() {
        if in_text(name) == InText::Value {
            let cells = short.rows.iter_mut().filter_map(|row| row.get_mut(index));
            cells.for_each(|cell| cell.interval.clear());
        }
    }
    short
}
