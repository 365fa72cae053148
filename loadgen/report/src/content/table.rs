//! A table as all renderers show it: columns, cells in their parts, and the sentences around them. Knows nothing of runs.

use crate::units::{NONE, dollars_interval, latency_interval, rate};
use tierlab_analysis::record::Interval;

/// Name of a column, and true if it holds numbers.
pub(crate) type Column = (String, bool);

/// Table with its heading and sentences.
#[derive(Clone, Default)]
pub struct Table {
    pub(crate) title: String,
    /// Explanation, without its last full stop.
    pub(crate) intro: String,
    pub(crate) columns: Vec<Column>,
    /// Rows of cells, one per column. An empty row separates groups of rows.
    pub(crate) rows: Vec<Vec<Cell>>,
    /// Sentences below it, without their full stops.
    pub(crate) notes: Vec<String>,
}

/// Figure with its interval and its place, or a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cell {
    pub(crate) value: String,
    /// Interval in brackets; empty without one.
    pub(crate) interval: String,
    /// Rate of the figure: `at 300/s`; empty if the column has it.
    pub(crate) at: String,
    /// Label beside the value, in its colour.
    pub(crate) badge: Option<Badge>,
    /// Details that a page shows on hovering.
    pub(crate) tip: String,
    /// If true, the value is a file in the run's folder, and a page links it.
    pub(crate) is_file: bool,
}

/// Label in a colour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Badge {
    /// CSS class: a verdict, `emulated` or `embedded`.
    pub(crate) class: &'static str,
    pub(crate) label: String,
    pub(crate) tip: String,
}

impl Cell {
    pub(crate) fn of(value: Option<String>) -> Self {
        value.unwrap_or_else(|| NONE.to_owned()).into()
    }

    pub(crate) fn plain(text: &str) -> Self {
        text.to_owned().into()
    }

    /// A latency with its interval; `n/a` without one.
    pub fn latency(us: Option<Interval>) -> Self {
        Self::split(&latency_interval(us.as_ref()))
    }

    /// Rate per second with its interval.
    pub(crate) fn rate(per_s: Interval) -> Self {
        let [value, lo, hi] = [per_s.value, per_s.lo, per_s.hi].map(rate);
        Self::split(&format!("{value} [{lo}–{hi}]"))
    }

    pub(crate) fn dollars(usd: Option<Interval>) -> Self {
        Self::split(&dollars_interval(usd.as_ref()))
    }

    /// Splits a text such as `812/s [780–850]`; `n/a` without one.
    pub fn split_or_none(text: Option<String>) -> Self {
        text.map_or_else(|| Self::of(None), |text| Self::split(&text))
    }

    /// Splits `12.3 ms [11.8–12.9]`. An interval without a width is left out: `$132 [132–132]`.
    pub(crate) fn split(text: &str) -> Self {
        let (value, interval) = text.split_once(" [").unwrap_or((text, ""));
        let ends = interval.strip_suffix(']').and_then(|ends| ends.split_once('–'));
        let is_shown = !interval.is_empty() && ends.is_none_or(|(lo, hi)| lo != hi);
        let shown = is_shown.then(|| format!("[{interval}"));
        Self {
            interval: shown.unwrap_or_default(),
            ..Self::plain(value)
        }
    }

    /// A word in a colour: `class` is a CSS class of `page.css`, such as `valid`.
    pub fn badge(class: &'static str, label: &str) -> Self {
        Self {
            badge: Some(Badge {
                class,
                label: label.to_owned(),
                tip: String::new(),
            }),
            ..Self::default()
        }
    }

    pub(crate) fn with_tip(mut self, tip: impl Into<String>) -> Self {
        self.tip = tip.into();
        self
    }

    /// True without a figure.
    pub(crate) fn is_empty(&self) -> bool {
        self.value == NONE
    }

    /// Text without the interval, and without the reason for a missing figure.
    pub(crate) fn without_interval(&self) -> String {
        let label = self.label();
        let at = if self.is_empty() { "" } else { &self.at };
        joined([&self.value, &label, at])
    }

    pub(crate) fn text(&self) -> String {
        let label = self.label();
        joined([&self.value, &label, &self.interval, &self.at])
    }

    /// Badge as text. Only emulation is named beside a value: no figure of a distribution passes for a measured one.
    fn label(&self) -> String {
        match &self.badge {
            Some(badge) if self.value.is_empty() => badge.label.clone(),
            Some(badge) if badge.class == "emulated" => "(emulated)".to_owned(),
            _ => String::new(),
        }
    }
}

fn joined<const N: usize>(parts: [&str; N]) -> String {
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}

/// Column of text.
pub(crate) fn text(name: impl Into<String>) -> Column {
    (name.into(), false)
}

/// Column of numbers.
pub(crate) fn figures(name: impl Into<String>) -> Column {
    (name.into(), true)
}

/// Cells of texts such as `12.3 ms [11.8–12.9]`.
pub(crate) fn cells(texts: impl IntoIterator<Item = String>) -> Vec<Cell> {
    texts.into_iter().map(|text| Cell::split(&text)).collect()
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }
}

impl Table {
    /// A table of ready cells, whose columns after the first `text_columns` hold figures.
    pub fn of_rows<C: Into<Cell>>(
        title: &str,
        header: &[&str],
        text_columns: usize,
        rows: impl IntoIterator<Item = Vec<C>>,
    ) -> Self {
        let column = |(index, name): (usize, &&str)| ((*name).to_owned(), index >= text_columns);
        let mut table = Self::new(header.iter().enumerate().map(column), []).titled(title);
        rows.into_iter().for_each(|row| table.push(row));
        table
    }

    /// Heading above the table; empty without one.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Adds a row.
    pub fn push<C: Into<Cell>>(&mut self, row: Vec<C>) {
        self.rows.push(row.into_iter().map(Into::into).collect());
    }

    /// Creates a table below a heading and an explanation; `None` without rows.
    pub(crate) fn section(
        title: &str,
        intro: &str,
        columns: impl IntoIterator<Item = Column>,
        rows: impl IntoIterator<Item = Vec<Cell>>,
    ) -> Option<Self> {
        let mut table = Self::new(columns, rows).titled(title);
        intro.clone_into(&mut table.intro);
        Some(table).filter(|table| !table.rows.is_empty())
    }

    pub(crate) fn new(columns: impl IntoIterator<Item = Column>, rows: impl IntoIterator<Item = Vec<Cell>>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: rows.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Sets the heading, which also labels the table for screen readers.
    pub(crate) fn titled(mut self, title: &str) -> Self {
        title.clone_into(&mut self.title);
        self
    }

    /// Returns the columns in which any row has a figure.
    pub fn filled(&self) -> Self {
        let has_figure = |row: &[Cell], index: usize| row.get(index).is_some_and(|cell| !cell.is_empty());
        self.only(|index| self.rows.iter().any(|row| has_figure(row, index)))
    }

    /// Returns the columns with these names.
    pub fn named(&self, is_selected: impl Fn(&str) -> bool) -> Self {
        self.only(|index| is_selected(&self.columns[index].0))
    }

    fn only(&self, is_selected: impl Fn(usize) -> bool) -> Self {
        let selected: Vec<usize> = (0..self.columns.len()).filter(|index| is_selected(*index)).collect();
        let cells = |row: &Vec<Cell>| selected.iter().filter_map(|&index| row.get(index).cloned()).collect();
        Self {
            title: self.title.clone(),
            intro: self.intro.clone(),
            columns: selected.iter().map(|&index| self.columns[index].clone()).collect(),
            rows: self.rows.iter().map(cells).collect(),
            notes: self.notes.clone(),
        }
    }

    /// Cells of each row as text.
    pub(crate) fn text(&self) -> impl Iterator<Item = Vec<String>> {
        self.rows.iter().map(|row| row.iter().map(Cell::text).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Cell;

    #[test]
    fn intervals_without_a_width_are_left_out() {
        assert_eq!(Cell::split("$132 [132–132]").text(), "$132");
        assert_eq!(Cell::split("$132 [128–136]").text(), "$132 [128–136]");
        assert_eq!(Cell::split("812/s [≥ 780]").text(), "812/s [≥ 780]");
    }
}
