//! What a report says of a run, without any markup: made once ([`Report::of`]), and shown by every renderer.
//!
//! - `brief`, `overview`: the run in one sentence and a few remarks, and in one table
//! - `answer`, `answer_sentence`, `figures`: what a question came to, its sentence, the figures of a variant
//! - `report`, `group`, `point_row`: the whole, its groups of curves, its points
//! - `best`, `percentiles`: which point and which percentile stand for a curve
//! - `requests`: what was sent, for the heading
//! - `words`, `reach`, `costs`, `cautions`, `instrument`: sentences; `gpus`: a table
//! - `side_tables`: the tables beside the curves, of cold starts (`cold_stages`), closed loops, journeys and fleets

pub(crate) mod answer;
mod answer_sentence;
pub(crate) mod best;
pub(crate) mod brief;
mod cautions;
pub(crate) mod cold_stages;
pub(crate) mod costs;
pub(crate) mod figures;
pub(crate) mod gpus;
pub(crate) mod group;
pub(crate) mod instrument;
pub(crate) mod overview;
mod percentiles;
pub(crate) mod point_row;
pub(crate) mod reach;
pub(crate) mod report;
pub(crate) mod requests;
pub(crate) mod side_tables;
pub(crate) mod words;

pub(crate) use report::Report;
