//! From repeats to statements: percentiles with their intervals, cost, verdict.
//!
//! In: the repeats of a [`Point`] with their histograms, the limits and the prices. Out: its [`Summary`]. Pure and
//! seeded: the same repeats give the same summary. Must not know how a step is driven, nor how a summary is shown.
//!
//! [`Summary`]: crate::record::Summary

pub mod bands;

pub use bands::{backlog_slope, bands};

use crate::record::{Limits, Point, Pricing};

/// Fills in [`Point::summary`] of every point.
pub fn summarise(points: &mut [Point], limits: &Limits, pricing: Option<&Pricing>) {
    let _ = (points, limits, pricing);
}
