//! From repeats to statements: percentiles with their intervals, cost, verdict.
//!
//! In: the record of a run, with the histograms of its repeats. Out: summaries, findings, comparisons. Pure: the same repeats give
//! the same statements, and nothing here reads a file, a clock or a network. Must not know how a step is driven, nor how a summary
//! is shown.
//!
//! - [`record`]: what a run is; the shape of `run.json`
//! - [`statistics`]: histograms, percentiles, intervals and dependence
//! - [`latency`]: which percentiles are printed, where the time went, what dominates the slowest requests, distributions
//! - [`validity`]: whether a point may be believed: Little's law, stationarity, the verdict
//! - [`costs`]: dollars per 10,000 inferences, who of a mix pays for what, tiers over a cache's hit ratio
//! - [`curves`]: points seen together: the knee, the highest rate under an objective and how it is searched for, two runs compared,
//!   what a whole run says
//! - [`decision`]: what a lab measures next, and what it answers
//! - [`summarise()`], [`conclude`]: all of it, for points and for a run

pub mod costs;
mod curve;
pub mod curves;
pub mod decision;
pub mod latency;
pub mod record;
pub mod statistics;
mod summarise;
pub mod validity;

pub use costs::mix_shares::mix_shares;
pub use latency::bands::{backlog_slope, bands};
pub use summarise::{all_figures, conclude, findings, latency_interval, summarise, summary, withhold};
