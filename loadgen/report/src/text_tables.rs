//! Tables as text: how they look, and those that every renderer shows as text.

use crate::content::cold_starts::{self, ColdStarts};
use crate::content::fleet::{self, Fleets};
use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle};

/// A rule below the header and at the end, and nothing else: rows are told apart by their alignment.
pub(crate) const STYLE: TableStyle = TableStyle::new()
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// The cold starts.
pub(crate) fn cold_starts(starts: &ColdStarts) -> String {
    let table = table(&starts.header, &starts.rows);
    format!("cold starts, medians\n{table}\n{}\n\n", cold_starts::NOTE)
}

/// The fleets, with what they say.
pub(crate) fn fleets(fleets: &Fleets) -> String {
    let table = table(&fleets.header, &fleets.rows);
    let findings: String = fleets
        .findings
        .iter()
        .map(|finding| format!("\n- {finding}."))
        .collect();
    format!("fleets\n{table}\n{}\n{findings}\n\n", fleet::NOTE)
}

fn table(header: &[String], rows: &[Vec<String>]) -> Table {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header);
    for row in rows {
        table.add_row(row);
    }
    table
}
