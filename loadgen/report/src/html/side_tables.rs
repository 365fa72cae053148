//! Tables beside the curves. In: what they say. Out: sections of the page.

use super::markup::{findings, number};
use crate::content::side_tables::SideTable;
use maud::{Markup, html};

/// A section for each table.
pub(super) fn sections(tables: &[SideTable]) -> Markup {
    html! { @for table in tables { (section(table)) } }
}

fn section(side: &SideTable) -> Markup {
    html! {
        section {
            h2 { (side.title) }
            p.soft { (side.intro) "." }
            div.scroll {
                table {
                    thead {
                        tr { @for (name, is_figure) in &side.columns { th class=[number(*is_figure)] { (name) } } }
                    }
                    tbody {
                        @for row in &side.rows {
                            tr {
                                @for (cell, (_, is_figure)) in row.iter().zip(&side.columns) {
                                    td class=[number(*is_figure)] { (cell) }
                                }
                            }
                        }
                    }
                }
            }
            (findings(&side.notes))
        }
        "\n"
    }
}
