//! Analyses of several points.
//!
//! - a [`Curve`]: the points of one configuration by rising rate; [`mod@knee`]: its bend; [`slo`]: its highest rate
//!   under an objective; [`search`]: the rates to measure for that
//! - [`per_repeat`] and [`comparison`]: figures of two runs and the decisions on them

pub mod comparison;
mod curve;
pub mod knee;
mod multiplicity;
pub mod per_repeat;
pub mod search;
pub mod slo;

pub use curve::{Curve, Difference, all_curves, common_rate, curves, difference, is_valid, same_but_rate};
