//! From a summarised run to what people and other tools read: a terminal table, Markdown, an HTML page, CSV,
//! `answer.json`, JUnit XML, and comparisons.
//!
//! In: runs whose points are summarised. Out: text; nothing here reads or writes a file. Must not measure, and must not compute
//! statistics of its own.

mod answer_files;
mod compare;
/// Content of a report without any markup: made once ([`content::Report::of`]), and shown by every renderer.
///
/// - `table`: tables, as all renderers show them
/// - `report`, `group`, `point_row`: the whole, its groups of curves, its points
/// - `answer`, `answer_sentence`: the answer to a question, its sentence and the figures of a variant
/// - `best`: the point and the percentile that stand for a curve
/// - `remarks`, `requests`, `labels`, `highest_rate`, `costs`, `instrument`: sentences
/// - `side_tables`: streams, cold starts, closed loops, journeys, fleets, GPUs
mod content {
    pub(crate) mod answer;
    pub(crate) mod answer_sentence;
    pub(crate) mod best;
    pub(crate) mod costs;
    pub(crate) mod group;
    pub(crate) mod highest_rate;
    mod instrument;
    pub(crate) mod labels;
    mod point_row;
    mod remarks;
    pub(crate) mod report;
    pub(crate) mod requests;
    pub(crate) mod side_tables;
    pub(crate) mod table;

    pub(crate) use report::Report;
}
mod csv_files;
mod html;
mod markdown;
mod terminal;
mod terminal_brief;

use tierlab_instrument::units;

pub use answer_files::{Case, CaseResult, answer_json, answer_junit, junit};
pub use compare::{Change, Comparison, Outcome, comparison};
pub use csv_files::{cold_starts_csv, summary_csv};
pub use html::{document, page};
pub use markdown::markdown;
pub use terminal::{answer_text, table};
pub use terminal_brief::brief;

/// Parts for reports of other programs: charts as data, sections, lists of sentences, tables, and whole texts.
pub mod parts {
    pub use crate::content::table::{Cell, Table};
    pub use crate::html::chart::{Axis, Chart, Figure, Line, Unit};
    pub use crate::html::markup::{Section, findings, prose, scroll, sections, table as html_table};
    pub use crate::markdown::{Page as MarkdownPage, table as markdown_table};
    pub use crate::terminal::{text_table, wrapped};
    pub use crate::terminal_brief::brief_text;
}

/// Returns a point's full name within its run.
pub fn point_name(run: &tierlab_analysis::record::Run, point: &tierlab_analysis::record::Point) -> String {
    content::labels::name(run, &point.factors)
}
