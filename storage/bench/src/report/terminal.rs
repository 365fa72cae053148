//! The tables as text.

use super::kept::Kept;
use super::rows::{HEADER, NOTE, families, row};
use super::sentences;
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// A rule below the header and at the end, as the load generator's tables have.
pub(crate) const STYLE: TableStyle = TableStyle::new()
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// All of it.
pub(super) fn text(kept: &Kept) -> String {
    let mut out = String::new();
    for family in families(&kept.points) {
        let mut table = Table::new();
        table
            .load_style(STYLE)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(HEADER);
        for summary in &family.points {
            table.add_row(row(summary));
        }
        for column in table.column_iter_mut().take(HEADER.len() - 1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        out += &format!("\n{}\n{table}\n", family.name);
    }
    out += &format!("{NOTE}\n");
    for (title, lines) in [
        ("Beside other tools", sentences::peers(&kept.points)),
        ("To beware of", sentences::cautions(kept)),
    ] {
        if !lines.is_empty() {
            out += &format!("\n{title}\n");
            out.extend(lines.iter().map(|line| format!("  {line}\n")));
        }
    }
    out
}
