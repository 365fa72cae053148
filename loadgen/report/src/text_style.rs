//! How tables of text look.

use comfy_table::{LineStyle, TableStyle};

/// A rule below the header and at the end, and nothing else: rows are told apart by their alignment.
pub(crate) const STYLE: TableStyle = TableStyle::new()
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));
