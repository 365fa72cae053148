//! A report for the terminal.

use super::{Page, Part};
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// A rule below the header and at the end, as in the load generator's tables.
const STYLE: TableStyle = TableStyle::new()
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

impl Page<'_> {
    /// Tables, then lists.
    pub(crate) fn text(&self) -> String {
        let mut tables = String::new();
        let mut lists = String::new();
        for part in &self.parts {
            match part {
                Part::Tables { blocks, note, .. } if !blocks.is_empty() => {
                    for block in blocks {
                        let title = match block.title.as_str() {
                            "" => String::new(),
                            title => format!("{title}\n"),
                        };
                        let rows = block.rows.iter().map(|row| row.cells.as_slice());
                        tables += &format!("\n{title}{}\n", table(&block.header, block.words, rows));
                    }
                    tables += &format!("{note}\n");
                }
                Part::List { title, lines } if !lines.is_empty() => {
                    lists += &format!("\n{title}\n");
                    lists.extend(lines.iter().map(|line| format!("  {line}\n")));
                }
                _ => {}
            }
        }
        tables + &lists
    }
}

/// A table whose columns after the first `words` hold figures.
pub(crate) fn table<'a>(header: &[&str], words: usize, rows: impl Iterator<Item = &'a [String]>) -> Table {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.iter());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
