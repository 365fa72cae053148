//! Tables of the studies. In: rows of named cells. Out: a Markdown file for each table; rows that do not hold on
//! stdout.

use anyhow::{Context as _, Result, ensure};
use std::fmt::Display;
use std::fs;
use std::path::Path;

/// Column name and value.
pub(crate) type Cell = (&'static str, String);

/// Result of one simulated setting.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// True if the row is as promised, within the precision of its trials.
    pub(crate) holds: bool,
    /// Cells in the order of the columns.
    pub(crate) cells: Vec<Cell>,
}

/// Cell of a value as it is displayed.
pub(crate) fn cell(column: &'static str, value: impl Display) -> Cell {
    (column, value.to_string())
}

/// Cell of a number with so many decimals; `n/a` if it is NaN.
pub(crate) fn fixed(column: &'static str, decimals: usize, value: f64) -> Cell {
    let is_number = !value.is_nan();
    let text = is_number.then(|| format!("{value:.decimals$}"));
    (column, text.unwrap_or_else(|| "n/a".to_owned()))
}

impl Row {
    /// Number in a column; NaN without one.
    pub(crate) fn number(&self, column: &str) -> f64 {
        let cell = self.cells.iter().find(|(name, _)| *name == column);
        cell.and_then(|(_, value)| value.parse().ok()).unwrap_or(f64::NAN)
    }
}

/// Markdown table below some text; rows that do not hold are in bold.
pub(crate) fn markdown(about: &str, rows: &[Row]) -> String {
    let columns = rows.first().into_iter().flat_map(|row| &row.cells);
    let columns: Vec<&str> = columns.map(|(column, _)| *column).collect();
    let mut text = format!(
        "{about}\n| {} |\n|{}\n",
        columns.join(" | "),
        "---|".repeat(columns.len())
    );
    for row in rows {
        let mark = if row.holds { "" } else { "**" };
        let values = row.cells.iter().map(|(_, value)| format!(" {mark}{value}{mark} |"));
        text += &format!("|{}\n", values.collect::<String>());
    }
    text
}

/// Folder of tables, with a count of the rows in them.
pub(crate) struct Tables<'a> {
    folder: &'a Path,
    rows: usize,
    failed: usize,
}

impl<'a> Tables<'a> {
    /// Creates the folder.
    pub(crate) fn new(folder: &'a Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        Ok(Self {
            folder,
            rows: 0,
            failed: 0,
        })
    }

    /// Writes `NAME.md`, with `about` above the table; prints rows that do not hold.
    pub(crate) fn write(&mut self, name: &str, about: &str, rows: &[Row]) -> Result<()> {
        for row in rows.iter().filter(|row| !row.holds) {
            let named = row.cells.iter().map(|(column, value)| format!("{column} {value}"));
            println!("{name}: {}", named.collect::<Vec<_>>().join(", "));
            self.failed += 1;
        }
        self.rows += rows.len();
        let file = self.folder.join(format!("{name}.md"));
        fs::write(&file, markdown(about, rows)).with_context(|| file.display().to_string())
    }

    /// Prints how many rows hold; an error if any does not.
    pub(crate) fn finish(self) -> Result<()> {
        let (rows, folder) = (self.rows, self.folder.display());
        println!("{} of {rows} rows hold; the tables are in {folder}", rows - self.failed);
        ensure!(self.failed == 0, "{} rows are not as promised", self.failed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_its_columns_and_counts_rows_that_do_not_hold() {
        let folder = tempfile::tempdir().unwrap();
        let row = |holds, law: &str| Row {
            holds,
            cells: vec![cell("law", law), fixed("coverage", 4, 0.95)],
        };
        let mut tables = Tables::new(folder.path()).unwrap();
        tables
            .write("t", "# Title\n", &[row(true, "a, b"), row(false, "c")])
            .unwrap();
        assert_eq!(
            fs::read_to_string(folder.path().join("t.md")).unwrap(),
            "# Title\n\n| law | coverage |\n|---|---|\n| a, b | 0.9500 |\n| **c** | **0.9500** |\n"
        );
        assert_eq!(tables.finish().unwrap_err().to_string(), "1 rows are not as promised");
        assert_eq!(row(true, "a").number("coverage"), 0.95);
    }
}
