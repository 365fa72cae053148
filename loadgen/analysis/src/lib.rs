//! From repeats to statements: percentiles with their intervals, cost, verdict.
//!
//! In: the record of a run, with the histograms of its repeats. Out: summaries, findings, comparisons. Pure: the same
//! repeats give the same statements, and nothing here reads a file, a clock or a network. Knows nothing of the load
//! generator and of presentation.
//!
//! - [`record`]: records of a run; the shape of `run.json`
//! - [`statistics`]: histograms, percentiles, intervals and dependence
//! - [`latency`]: printed percentiles, composition of the latency, dominant parts of the slowest requests,
//!   distributions
//! - [`validity`]: Little's law, stationarity, the verdict on a point
//! - [`costs`]: dollars per 10,000 inferences, shares of a mix, tiers over a cache's hit ratio
//! - [`curves`]: several points together: the highest rate under an objective and its search, comparisons of two runs
//! - [`decision`]: next measurement of a lab, and its answer
//! - [`summarise()`], [`conclude`]: summaries of points, and conclusions of a run

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
