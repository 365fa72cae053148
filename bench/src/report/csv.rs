//! CSV files of a run. In: rows of named values. Out: text, empty where a value is not known.

use anyhow::{Context, Result};
use tierlab_analysis::record::Interval;

/// A row, in the order of its columns.
#[derive(Default)]
pub(crate) struct CsvRow(Vec<(String, String)>);

impl CsvRow {
    /// Adds a column.
    pub(crate) fn put(&mut self, name: &str, value: impl ToString + Copy) {
        self.0.push((name.to_owned(), value.to_string()));
    }

    /// Adds a column that may be empty.
    pub(crate) fn some(&mut self, name: &str, value: Option<impl ToString + Copy>) {
        self.put(name, value.map_or_else(String::new, |value| value.to_string()).as_str());
    }

    /// Adds a value and the ends of its interval, as `NAME`, `NAME_lo` and `NAME_hi`.
    pub(crate) fn interval(&mut self, name: &str, interval: impl Into<Option<Interval>>) {
        let interval = interval.into();
        self.some(name, interval.map(|of| of.value));
        self.some(&format!("{name}_lo"), interval.map(|of| of.lo));
        self.some(&format!("{name}_hi"), interval.map(|of| of.hi));
    }
}

/// The text of a file with the columns of its longest row. A row that lacks a column has an empty cell.
///
/// # Errors
/// The text cannot be made.
pub(crate) fn csv(rows: impl IntoIterator<Item = CsvRow>) -> Result<String> {
    let rows: Vec<CsvRow> = rows.into_iter().collect();
    let longest = rows.iter().max_by_key(|row| row.0.len());
    let header: Vec<&str> = longest.map_or_else(Vec::new, |row| row.0.iter().map(|(name, _)| name.as_str()).collect());
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&header)?;
    for CsvRow(cells) in &rows {
        let cell = |column: &&str| {
            cells
                .iter()
                .find(|(name, _)| name == column)
                .map_or("", |(_, value)| value.as_str())
        };
        writer.write_record(header.iter().map(cell))?;
    }
    let bytes = writer.into_inner().context("the CSV text cannot be made")?;
    Ok(String::from_utf8(bytes)?)
}
