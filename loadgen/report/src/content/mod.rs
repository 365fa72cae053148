//! What a report says of a run, without any markup: made once ([`Report::of`]), and shown by every renderer.
//!
//! - `answer`: what a question came to
//! - `report`, `group`, `point_row`: the whole, its groups of curves, its points
//! - `best`, `percentiles`: which point and which percentile stand for a curve
//! - `words`, `reach`, `costs`, `cautions`, `instrument`: sentences; `cold_starts`, `gpus`: tables

pub(crate) mod answer;
pub(crate) mod best;
mod cautions;
pub(crate) mod cold_starts;
pub(crate) mod costs;
pub(crate) mod gpus;
pub(crate) mod group;
pub(crate) mod instrument;
mod percentiles;
pub(crate) mod point_row;
pub(crate) mod reach;
pub(crate) mod report;
pub(crate) mod words;

pub(crate) use report::Report;
