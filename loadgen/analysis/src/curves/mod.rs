//! Analyses of several points.
//!
//! - [`slo`]: the highest rate of a curve under an objective; [`search`]: the rates to measure for that
//! - [`per_repeat`] and [`comparison`]: figures of two runs and the decisions on them

pub mod comparison;
pub mod per_repeat;
pub mod search;
pub mod slo;

pub use crate::curve::{Curve, common_rate, curves, distinct, grouped, is_valid, same_but_rate};
pub use per_repeat::ratio;
