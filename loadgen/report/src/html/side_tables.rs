//! Tables beside the curves. In: what they say. Out: parts of a section.

use super::markup::{findings, number, scroll};
use crate::content::side_tables::SideTable;
use maud::{Markup, html};

/// Every table below its heading.
pub(super) fn sections(tables: &[SideTable]) -> Markup {
    html! { @for table in tables { (section(table)) } }
}

fn section(side: &SideTable) -> Markup {
    html! {
        h3 { (side.title) }
        p.soft { (side.intro) "." }
        (scroll(side.title, &html! {
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
        }))
        (findings(&side.notes))
        "\n"
    }
}
