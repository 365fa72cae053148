//! A run in one table of text: a line for each variant of the answer, for each point, or for each curve.
//!
//! In: a report. Out: columns and cells for the terminal and `report.md`.

use super::Report;
use super::answer::AnswerText;
use super::best::Best;
use super::figures::{Cell, meets};
use super::point_row::PointRow;
use super::words;
use crate::units::{NONE, dollars, latency_interval, percent, rate, thousands};

/// A table of text.
pub(crate) struct Overview {
    /// Names, and true for columns of numbers.
    pub(crate) columns: Vec<(String, bool)>,
    /// Cells of each row, one per column.
    pub(crate) rows: Vec<Vec<Cell>>,
}

/// Column that goes first where there is no room for all.
pub(crate) const SLOWEST: &str = "dominant part";
/// Figures of a point, behind its name.
pub(crate) const OF_POINTS: [(&str, bool); 10] = [
    ("offered/s", true),
    ("p50", true),
    ("p95", true),
    ("p99", true),
    ("good/s", true),
    ("goodput/s", true),
    ("hits", true),
    ("errors", true),
    ("$/10k", true),
    ("verdict", false),
];
const OF_CURVES: [(&str, bool); 7] = [
    ("variant", false),
    ("highest rate", true),
    ("at", true),
    ("p50", true),
    ("p99", true),
    ("$/10k", true),
    (SLOWEST, false),
];

impl Overview {
    /// The variants of an answer, or else the points where they are no more than `points`, or else the curves.
    pub(crate) fn of(report: &Report<'_>, points: usize) -> Self {
        match &report.answer {
            Some(answer) => Self::of_answer(answer),
            None if report.points.len() <= points => Self::of_points(&report.points),
            None => Self::of_curves(report),
        }
    }

    /// The same without its last column.
    pub(crate) fn without_last(&self) -> Self {
        let rows = self.rows.iter().map(|row| row[..row.len() - 1].to_vec());
        Self {
            columns: self.columns[..self.columns.len() - 1].to_vec(),
            rows: rows.collect(),
        }
    }

    fn of_answer(answer: &AnswerText) -> Self {
        let deciding = answer.deciding_columns();
        let named = [("variant".to_owned(), false), ("SLO".to_owned(), false)];
        let figures = deciding.iter().map(|&index| answer.columns[index].clone());
        let rows = answer.rows.iter().map(|row| {
            let who = [row.tier.printed.as_str(), meets(row.outcome)].map(Cell::plain);
            let figures = deciding.iter().map(|&index| row.cells[index].clone());
            who.into_iter().chain(figures).collect()
        });
        Self {
            columns: named.into_iter().chain(figures).collect(),
            rows: rows.collect(),
        }
    }

    fn of_points(points: &[PointRow<'_>]) -> Self {
        let columns: Vec<(&str, bool)> = [("point", false)].into_iter().chain(OF_POINTS).collect();
        let rows = points.iter().map(|point| {
            let name = point.name.strip_suffix(&format!(" at {} rps", point.offered));
            let name = Cell::plain(name.unwrap_or(&point.name));
            [name].into_iter().chain(of_point(point)).collect()
        });
        Self::known(&columns, &rows.collect::<Vec<_>>())
    }

    fn of_curves(report: &Report<'_>) -> Self {
        let mut rows = Vec::new();
        for group in &report.groups {
            let at = group.common_rps.map(|rps| format!("{}/s", rate(rps)));
            for (row, curve) in group.rows.iter().zip(&group.curves) {
                let factors = curve.factors();
                let (best, at_common) = (row.best.as_ref(), row.at_common);
                let slowest = at_common.and_then(words::slowest);
                rows.push(vec![
                    Cell::plain(&format!(
                        "{} {} {}×{}",
                        row.tier.printed, row.cache, factors.mode, factors.batch_size
                    )),
                    Cell::plain(&best.map_or_else(|| "none".to_owned(), Best::text).replace(" rps", "/s")),
                    Cell::of(at.clone()),
                    Cell::split(&latency_interval(at_common.and_then(|summary| summary.p50_us).as_ref())),
                    Cell::split(&latency_interval(at_common.and_then(|summary| summary.p99_us).as_ref())),
                    Cell::of(best.and_then(Best::cost)).replaced("at most ", "≤ "),
                    Cell::of(slowest.map(|(part, share)| format!("{} {}", percent(share.value), words::part(part)))),
                ]);
            }
        }
        Self::known(&OF_CURVES, &rows)
    }

    /// The columns in which any row has a figure.
    pub(crate) fn known(columns: &[(&str, bool)], rows: &[Vec<Cell>]) -> Self {
        let is_known = |index: &usize| rows.iter().any(|row| !row[*index].is_empty());
        let known: Vec<usize> = (0..columns.len()).filter(is_known).collect();
        let rows = rows
            .iter()
            .map(|row| known.iter().map(|&index| row[index].clone()).collect());
        Self {
            rows: rows.collect(),
            columns: known
                .iter()
                .map(|&index| (columns[index].0.to_owned(), columns[index].1))
                .collect(),
        }
    }
}

/// The cells of [`OF_POINTS`].
pub(crate) fn of_point(point: &PointRow<'_>) -> Vec<Cell> {
    let Some(figures) = &point.figures else {
        let mut cells = vec![Cell::of(None); OF_POINTS.len()];
        cells[0] = Cell::plain(&point.offered);
        cells[OF_POINTS.len() - 1] = Cell::plain("not summarised");
        return cells;
    };
    let summary = figures.summary;
    let [p50, p95, p99] = [&summary.p50_us, &summary.p95_us, &summary.p99_us];
    vec![
        Cell::plain(&point.offered),
        Cell::split(&latency_interval(p50.as_ref())),
        Cell::split(&latency_interval(p95.as_ref())),
        Cell::split(&latency_interval(p99.as_ref())),
        Cell::plain(&rate(summary.achieved_rps.value)),
        Cell::plain(&figures.goodput()),
        Cell::plain(&summary.cache_hit_ratio.map_or_else(|| NONE.to_owned(), percent)),
        Cell::plain(&thousands(summary.errors)),
        Cell::of(summary.usd_per_10k.map(|usd| dollars(usd.value))),
        Cell::plain(figures.verdict),
    ]
}
