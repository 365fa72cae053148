//! A figure of charts as data, which `page.js` draws with uPlot, and the same figures as a table for pages without scripts.
//!
//! In: series and their numbers. Out: a `<figure>` with its data as JSON. Knows nothing of the drawing.

use super::markup::table;
use crate::content::group::{Group, Row};
use crate::content::labels::trimmed;
use crate::content::table::{Table, cells, figures, text};
use crate::units::{dollars, latency, percent, rate};
use maud::{Markup, PreEscaped, html};
use serde::Serialize;
use tierlab_analysis::curves::{Curve, distinct};
use tierlab_analysis::record::Point;

/// Charts that share their series and their legend.
#[derive(Serialize)]
pub struct Figure {
    series: Vec<SeriesStyle>,
    charts: Vec<Chart>,
    #[serde(skip)]
    caption: String,
    /// True for the figure that a page opens with: its first chart is the widest.
    #[serde(skip)]
    pub(super) is_leading: bool,
}

/// Chart of one figure over another.
#[derive(Default, Serialize)]
pub struct Chart {
    /// Heading of the chart.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Series with numbers.
    pub lines: Vec<Line>,
    /// Limits across the whole chart: a value of the vertical axis with its name.
    pub limits: Vec<(f64, String)>,
    /// Marked value on the horizontal axis, such as the demand, with its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub here: Option<(f64, String)>,
    /// Crossings of two lines.
    pub crosses: Vec<(f64, f64)>,
    /// Values on the horizontal axis with a row in the table, and the distance within which a point belongs to a row.
    #[serde(skip)]
    pub rows: (Vec<f64>, f64),
}

/// Axis of a chart.
#[derive(Default, Serialize)]
pub struct Axis {
    /// Name of the figure.
    pub name: &'static str,
    /// Unit of its numbers.
    pub unit: Unit,
    /// True for a logarithmic axis.
    pub log: bool,
    /// Both ends.
    pub range: (f64, f64),
}

/// Unit of numbers, which decides their format.
#[derive(Clone, Copy, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Latency in microseconds.
    Latency,
    /// Rate per second.
    Rate,
    /// Plain number.
    #[default]
    Count,
    /// US dollars.
    Dollars,
    /// A share from 0 to 1.
    Share,
    /// `-log10(1 - share)`.
    Nines,
}

impl Axis {
    /// Linear axis between two ends.
    pub const fn linear(name: &'static str, unit: Unit, range: (f64, f64)) -> Self {
        let log = false;
        Self { name, unit, log, range }
    }

    /// Logarithmic axis between two ends above zero.
    pub const fn logarithmic(name: &'static str, unit: Unit, range: (f64, f64)) -> Self {
        let log = true;
        Self { name, unit, log, range }
    }
}

impl Unit {
    fn text(self, value: f64) -> String {
        match self {
            Self::Latency => latency(value),
            Self::Rate => format!("{}/s", rate(value)),
            Self::Count => rate(value),
            Self::Dollars => dollars(value),
            Self::Share => percent(value),
            Self::Nines => format!("{} %", trimmed(&format!("{:.4}", 100.0 - 100.0 / 10_f64.powf(value)))),
        }
    }
}

/// Series in a chart; all lists have the same length.
#[derive(Default, Serialize)]
pub struct Line {
    /// Index among the figure's series.
    pub series: usize,
    /// Values on the horizontal axis, rising.
    pub x: Vec<f64>,
    /// Value on the vertical axis for each `x`.
    pub y: Vec<f64>,
    /// Lower ends of the intervals; empty without intervals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lo: Vec<f64>,
    /// Upper ends of the intervals; infinite without an upper end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hi: Vec<f64>,
    /// Fault of an unusable value, in a word; empty for sound values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub off: Vec<&'static str>,
    /// Highest rate under the objective, with the ends of its interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highest: Option<(f64, f64, f64)>,
    /// Horizontal value of the knee.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knee: Option<f64>,
    /// True for a marker at the start only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
}

impl Line {
    /// Line through values, with a marker at its start only.
    pub(super) fn through(series: usize, values: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut line = Self {
            series,
            plain: true,
            ..Self::default()
        };
        values.into_iter().for_each(|(x, y)| line.push(x, y));
        line
    }

    /// Adds a value without an interval.
    pub fn push(&mut self, x: f64, y: f64) {
        self.x.push(short(x));
        self.y.push(short(y));
    }

    fn text(&self, unit: Unit, from: f64, slack: f64) -> String {
        let is_here = |x: &f64| *x >= from - 1e-9 && *x <= from + slack + 1e-9;
        let Some(index) = self.x.iter().position(is_here) else {
            return String::new();
        };
        let mut text = unit.text(self.y[index]);
        if let (Some(lo), Some(hi)) = (self.lo.get(index), self.hi.get(index)) {
            let (lo, end) = (unit.text(*lo), unit.text(*hi));
            text += &match (hi.is_infinite(), self.lo[index] > 0.0) {
                (true, true) => format!(" [≥ {lo}]"),
                (true, false) => String::new(),
                (false, _) => format!(" [{lo}–{end}]"),
            };
        }
        match self.off.get(index) {
            Some(off) if !off.is_empty() => format!("{text} ({off})"),
            _ => text,
        }
    }
}

/// Rounds to five significant digits: more digits are invisible and make the page larger.
pub(super) fn short(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

impl Figure {
    /// Figure of charts over series that have only names.
    pub fn of_names(names: impl IntoIterator<Item = String>, charts: Vec<Chart>, caption: &str) -> Self {
        let style = |(number, label): (usize, String)| SeriesStyle {
            label,
            colour: number,
            dash: number / 7,
            marker: number,
        };
        Self::of(names.into_iter().enumerate().map(style).collect(), charts, caption)
    }

    /// Figure of charts over the series of a group.
    pub(super) fn new(series: &[Series<'_>], charts: Vec<Chart>, caption: &str) -> Self {
        Self::of(series.iter().map(|one| one.style.clone()).collect(), charts, caption)
    }

    pub(super) fn of(series: Vec<SeriesStyle>, charts: Vec<Chart>, caption: &str) -> Self {
        Self {
            series,
            charts,
            caption: caption.to_owned(),
            is_leading: false,
        }
    }

    /// Figure as HTML; nothing without a line in any chart.
    pub fn html(mut self) -> Markup {
        self.charts.retain(|chart| !chart.lines.is_empty());
        if self.charts.is_empty() {
            return Markup::default();
        }
        // In a script element only `<` can end it.
        let json = serde_json::to_string(&self).unwrap_or_default().replace('<', "\\u003c");
        html! {
            figure.plot.leading[self.is_leading] {
                script type="application/json" { (PreEscaped(json)) }
                noscript { p.note { "The charts need JavaScript; their figures are in the tables." } }
                figcaption { (self.caption) }
                details {
                    summary { "As tables" }
                    @for chart in &self.charts { p.chart-title { (chart.title) } (table(&self.table(chart), "")) }
                }
            }
        }
    }

    fn table(&self, chart: &Chart) -> Table {
        let labels = chart.lines.iter().map(|line| figures(&self.series[line.series].label));
        let (values, slack) = &chart.rows;
        let rows = values.iter().map(|&at| {
            let values = chart.lines.iter().map(|line| line.text(chart.y.unit, at, *slack));
            cells([chart.x.unit.text(at)].into_iter().chain(values))
        });
        Table {
            title: chart.title.clone(),
            ..Table::new([text(chart.x.name)].into_iter().chain(labels), rows)
        }
    }
}

/// Style of a series in every chart: its name, and numbers of a colour, a dash and a marker of `page.css` and `page.js`,
/// used cyclically.
#[derive(Clone, Serialize)]
pub(super) struct SeriesStyle {
    pub(super) label: String,
    pub(super) colour: usize,
    pub(super) dash: usize,
    pub(super) marker: usize,
}

/// Curve with its style.
pub(super) struct Series<'a> {
    pub(super) curve: &'a Curve<'a>,
    pub(super) row: &'a Row<'a>,
    pub(super) style: SeriesStyle,
}

impl<'a> Series<'a> {
    /// Curves of a group with their styles.
    pub(super) fn of(group: &'a Group<'a>) -> Vec<Self> {
        let caches = distinct(group.rows.iter().map(|row| &row.cache));
        let mut names: Vec<&str> = group.rows.iter().map(|row| row.tier.name.as_str()).collect();
        names.sort_unstable();
        // Variants differ by name: they need neither a cache nor a dash.
        let are_variants = names.windows(2).all(|pair| pair[0] != pair[1]);
        let cache = |row: &Row<'_>| caches.iter().position(|cache| **cache == row.cache);
        let style = |row: &Row<'_>| SeriesStyle {
            label: match are_variants {
                true => row.tier.printed.clone(),
                false => format!("{}, {}", row.tier.printed, row.cache),
            },
            colour: row.tier.number,
            dash: cache(row).filter(|_| !are_variants).unwrap_or(0),
            marker: row.tier.number,
        };
        let curves = group.curves.iter().zip(&group.rows);
        let series = curves.map(|(curve, row)| (curve, row, style(row)));
        series.map(|(curve, row, style)| Self { curve, row, style }).collect()
    }

    /// Point to show beside those of other series: the valid one at the common rate, else the best, else the highest valid one.
    pub(super) fn shown_at(&self, common: Option<f64>) -> Option<&'a Point> {
        let at_common = common.and_then(|rps| self.curve.valid_at(rps));
        let best = at_common.or_else(|| Some(self.row.best.as_ref()?.point));
        best.or_else(|| self.curve.highest_valid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_table_take_the_number_that_is_near_and_no_other() {
        let mut line = Line::default();
        line.push(100.0, 1_240.0);
        line.push(200.0, 2_000.0);
        (line.lo, line.hi, line.off) = (vec![1_200.0, 1_900.0], vec![1_300.0, 2_100.0], vec!["", "saturated"]);
        assert_eq!(line.text(Unit::Latency, 100.0, 0.0), "1.24 ms [1.20 ms–1.30 ms]");
        assert_eq!(line.text(Unit::Latency, 150.0, 0.0), "");
        line.hi[0] = f64::INFINITY;
        assert_eq!(line.text(Unit::Latency, 100.0, 0.0), "1.24 ms [≥ 1.20 ms]");
        line.lo[0] = 0.0;
        assert_eq!(line.text(Unit::Latency, 100.0, 0.0), "1.24 ms");
        assert_eq!(
            line.text(Unit::Latency, 150.0, 60.0),
            "2.00 ms [1.90 ms–2.10 ms] (saturated)"
        );
        assert_eq!(
            [0.0, 1.0, 3.0].map(|nines| Unit::Nines.text(nines)),
            ["0 %", "90 %", "99.9 %"]
        );
    }
}
