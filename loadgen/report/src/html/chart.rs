//! A figure of charts as data: what `page.js` draws with uPlot, and the same figures as a table for who has no script.
//!
//! In: series and their numbers. Out: a `<figure>` with its data as JSON. Knows nothing of what is drawn.

use super::markup::scroll;
use super::series::Series;
use crate::units::{dollars, latency, percent, rate};
use maud::{Markup, PreEscaped, html};
use serde::Serialize;

/// Charts that share their series and their legend.
#[derive(Serialize)]
pub struct Figure {
    series: Vec<Look>,
    charts: Vec<Chart>,
    #[serde(skip)]
    caption: String,
    /// True for the figure that a page opens with: its first chart is the widest.
    #[serde(skip)]
    is_leading: bool,
}

/// How a series looks wherever it is drawn.
#[derive(Serialize)]
struct Look {
    label: String,
    colour: usize,
    dash: usize,
    marker: usize,
}

/// A chart.
#[derive(Serialize)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series, those without numbers left out.
    pub lines: Vec<Line>,
    /// Limits across the whole chart: a value of the vertical axis with what it is.
    pub limits: Vec<(f64, String)>,
    /// A place on the horizontal axis that the run is about, with what it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub here: Option<(f64, String)>,
    /// Places that two lines have in common.
    pub crosses: Vec<(f64, f64)>,
    /// Where on the horizontal axis the table has a row, and up to how far from there it takes a number.
    #[serde(skip)]
    pub rows: (Vec<f64>, f64),
}

/// An axis.
#[derive(Serialize)]
pub struct Axis {
    /// What it counts.
    pub name: &'static str,
    /// What its numbers are.
    pub unit: Unit,
    /// Whether it is logarithmic.
    pub log: bool,
    /// Where it begins and ends.
    pub range: (f64, f64),
}

/// What numbers are, and so how they are written.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Microseconds.
    Latency,
    /// Per second.
    Rate,
    /// Things.
    Count,
    /// Dollars.
    Dollars,
    /// A share from 0 to 1.
    Share,
    /// `-log10(1 - share)`.
    Nines,
}

impl Unit {
    fn text(self, value: f64) -> String {
        match self {
            Self::Latency => latency(value),
            Self::Rate => format!("{}/s", rate(value)),
            Self::Count => rate(value),
            Self::Dollars => dollars(value),
            Self::Share => percent(value),
            Self::Nines => {
                format!("{:.4}", 100.0 - 100.0 / 10_f64.powf(value))
                    .trim_end_matches('0')
                    .trim_end_matches('.')
                    .to_owned()
                    + " %"
            }
        }
    }
}

/// A series in a chart. All lists are as long as each other.
#[derive(Default, Serialize)]
pub struct Line {
    /// Its number among the figure's series.
    pub series: usize,
    /// Places, rising.
    pub x: Vec<f64>,
    /// Values.
    pub y: Vec<f64>,
    /// Lower and upper ends of their intervals; empty without, and infinite where there is no upper end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lo: Vec<f64>,
    /// See `lo`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hi: Vec<f64>,
    /// What is wrong with a value that is not to be used, in a word; empty where nothing is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub off: Vec<&'static str>,
    /// The highest rate under the objective, with the ends of its interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub highest: Option<(f64, f64, f64)>,
    /// Where it turns upwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knee: Option<f64>,
    /// Whether a marker stands only at its beginning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
}

impl Line {
    /// Adds a value without an interval.
    pub fn push(&mut self, x: f64, y: f64) {
        self.x.push(short(x));
        self.y.push(short(y));
    }

    fn text(&self, unit: Unit, from: f64, slack: f64) -> String {
        let Some(index) = self
            .x
            .iter()
            .position(|x| *x >= from - 1e-9 && *x <= from + slack + 1e-9)
        else {
            return String::new();
        };
        let mut text = unit.text(self.y[index]);
        if let (Some(lo), Some(hi)) = (self.lo.get(index), self.hi.get(index)) {
            text += &if hi.is_infinite() {
                format!(" [≥ {}]", unit.text(*lo))
            } else {
                format!(" [{}–{}]", unit.text(*lo), unit.text(*hi))
            };
        }
        match self.off.get(index) {
            Some(off) if !off.is_empty() => format!("{text} ({off})"),
            _ => text,
        }
    }
}

/// Five significant digits: more cannot be seen, and every digit is a byte of the page.
pub(super) fn short(value: f64) -> f64 {
    format!("{value:.4e}").parse().unwrap_or(value)
}

impl Figure {
    /// A figure of charts over series that have nothing but names.
    #[must_use]
    pub fn of_names(names: impl IntoIterator<Item = String>, charts: Vec<Chart>, caption: &str) -> Self {
        let look = |(number, label): (usize, String)| Look {
            label,
            colour: number,
            dash: number / 7,
            marker: number,
        };
        Self {
            series: names.into_iter().enumerate().map(look).collect(),
            charts,
            caption: caption.to_owned(),
            is_leading: false,
        }
    }

    /// A figure of charts over the series of a group.
    pub(super) fn new(series: &[Series<'_>], charts: Vec<Chart>, caption: &str) -> Self {
        let look = |one: &Series<'_>| Look {
            label: one.label.clone(),
            colour: one.colour,
            dash: one.dash,
            marker: one.marker,
        };
        Self {
            series: series.iter().map(look).collect(),
            charts,
            caption: caption.to_owned(),
            is_leading: false,
        }
    }

    /// The same with other names of its series.
    pub(super) fn named(mut self, names: &[String]) -> Self {
        for (look, name) in self.series.iter_mut().zip(names) {
            look.label.clone_from(name);
        }
        self
    }

    /// The same as the figure that a page opens with.
    pub(super) const fn leading(mut self) -> Self {
        self.is_leading = true;
        self
    }

    /// The figure; nothing without a line in any chart.
    #[must_use]
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
                noscript { p.note { "The charts need a script; their figures stand in the tables." } }
                figcaption { (self.caption) }
                details {
                    summary { "As tables" }
                    @for chart in &self.charts { (self.table(chart)) }
                }
            }
        }
    }

    fn table(&self, chart: &Chart) -> Markup {
        let (rows, slack) = &chart.rows;
        html! {
            p.chart-title { (chart.title) }
            (scroll(&chart.title, &html! {
                table {
                    thead {
                        tr {
                            th { (chart.x.name) }
                            @for line in &chart.lines { th.n { (self.series[line.series].label) } }
                        }
                    }
                    tbody {
                        @for &at in rows {
                            tr {
                                td { (chart.x.unit.text(at)) }
                                @for line in &chart.lines { td.n { (line.text(chart.y.unit, at, *slack)) } }
                            }
                        }
                    }
                }
            }))
        }
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
