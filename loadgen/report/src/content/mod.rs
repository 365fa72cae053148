//! Content of a report without any markup: made once ([`Report::of`]), and shown by every renderer.
//!
//! - `table`: tables, as all renderers show them
//! - `report`, `group`, `point_row`: the whole, its groups of curves, its points
//! - `answer`, `answer_sentence`: the answer to a question, its sentence and the figures of a variant
//! - `best`: the point and the percentile that stand for a curve
//! - `remarks`, `requests`, `words`, `reach`, `costs`, `instrument`: sentences
//! - `side_tables`: streams, cold starts, closed loops, journeys, fleets, GPUs

pub(crate) mod answer;
pub(crate) mod answer_sentence;
pub(crate) mod best;
pub(crate) mod costs;
pub(crate) mod group;
mod instrument;
mod point_row;
pub(crate) mod reach;
mod remarks;
pub(crate) mod report;
pub(crate) mod requests;
pub(crate) mod side_tables;
pub(crate) mod table;
pub(crate) mod words;

pub(crate) use report::Report;
