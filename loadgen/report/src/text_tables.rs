//! Tables as text: how they look, and those that every renderer shows as text.

use crate::content::cold_starts::{ColdStarts, NOTE};
use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle};

/// A rule below the header and at the end, and nothing else: rows are told apart by their alignment.
pub(crate) const STYLE: TableStyle = TableStyle::new()
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// The cold starts.
pub(crate) fn cold_starts(starts: &ColdStarts) -> String {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(&starts.header);
    for row in &starts.rows {
        table.add_row(row);
    }
    format!("cold starts, medians\n{table}\n{NOTE}\n\n")
}
