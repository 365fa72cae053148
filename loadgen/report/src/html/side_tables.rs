//! Tables beside the curves. In: what they say. Out: sections of the page.

use super::markup::escape;
use crate::content::side_tables::SideTable;
use std::fmt::Write as _;

/// A section for each table.
pub(super) fn sections(tables: &[SideTable]) -> String {
    tables.iter().map(section).collect()
}

fn section(side: &SideTable) -> String {
    let mut out = format!(
        "<section><h2>{}</h2><p class=\"soft\">{}.</p><div class=\"scroll\"><table><thead><tr>",
        escape(side.title),
        escape(&side.intro)
    );
    let class = |is_figure: bool| if is_figure { " class=\"n\"" } else { "" };
    for (name, is_figure) in &side.columns {
        let _ = write!(out, "<th{}>{}</th>", class(*is_figure), escape(name));
    }
    out += "</tr></thead><tbody>";
    for row in &side.rows {
        out += "<tr>";
        for (cell, (_, is_figure)) in row.iter().zip(&side.columns) {
            let _ = write!(out, "<td{}>{}</td>", class(*is_figure), escape(cell));
        }
        out += "</tr>";
    }
    out += "</tbody></table></div>";
    if side.notes.is_empty() {
        return out + "</section>\n";
    }
    out += "<ul class=\"findings\">";
    for note in &side.notes {
        let _ = write!(out, "<li>{}.</li>", escape(note));
    }
    out + "</ul></section>\n"
}
