//! From a summarised run to what people and other tools read: a terminal table, Markdown, an HTML page, CSV,
//! `answer.json`, JUnit XML, and comparisons.
//!
//! In: runs whose points are summarised. Out: text; nothing here reads or writes a file. Must not measure, and must not compute
//! statistics of its own.

mod answer_json;
mod cold_starts_csv;
mod compare;
mod content;
mod csv_cell;
mod html;
mod junit;
mod markdown;
mod summary_csv;
mod terminal;
mod terminal_brief;
mod text_style;

use tierlab_instrument::units;

pub use answer_json::answer_json;
pub use cold_starts_csv::cold_starts_csv;
pub use compare::{Change, Comparison, Outcome, comparison};
pub use html::{document, page};
/// Parts for reports of other programs: charts as data, sections, lists of sentences, tables for a terminal.
pub mod parts {
    pub use crate::html::chart::{Axis, Chart, Figure, Line, Unit};
    pub use crate::html::markup::{closed, findings, scroll};
    pub use crate::text_style::table;
}
pub use junit::junit;
pub use markdown::markdown;
pub use summary_csv::summary_csv;
pub use terminal::{answer_text, table};
pub use terminal_brief::brief;
