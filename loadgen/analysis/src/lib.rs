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

/// Costs of points and variants.
///
/// - [`mod@costs::cost`]: dollars per 10,000 inferences and their parts; [`mod@costs::mix_shares`]: shares of a mix's parts
/// - [`mod@costs::monthly`]: a month at a demand; [`mod@costs::over_demand`]: over demands; [`mod@costs::crossovers`]: demands and
///   sizes at which another variant is cheaper
/// - [`costs::economics`]: costs on several instances, and of tiers over a cache's hit ratio
pub mod costs {
    pub mod cost;
    pub mod crossovers;
    pub mod economics;
    pub mod mix_shares;
    pub mod monthly;
    pub mod over_demand;
}
mod curve;
/// Analyses of several points.
///
/// - [`curves::slo`]: the highest rate of a curve under an objective; [`curves::search`]: the rates to measure for that
/// - [`curves::per_repeat`] and [`curves::comparison`]: figures of two runs and the decisions on them
pub mod curves {
    pub mod comparison;
    pub mod per_repeat;
    pub mod search;
    pub mod slo;

    pub use crate::curve::{Curve, common_rate, curves, distinct, grouped, is_valid, same_but_rate};
    pub use per_repeat::ratio;
}
pub mod decision;
/// Analysis of a point's latencies.
///
/// - [`latency::grade`]: printed percentiles, and the trust in their intervals
/// - [`mod@latency::bands`]: composition of the latency, and growth of the backlog; [`mod@latency::tail`]: dominant parts of the slowest
///   requests
/// - [`latency::distribution`]: cumulative curves, and latency over time
/// - [`latency::objective`]: latencies compared with an objective, and good replies within a limit
pub mod latency {
    pub mod bands;
    pub mod distribution;
    pub mod grade;
    pub mod objective;
    pub mod tail;
}
pub mod record;
pub mod statistics;
mod summarise;
/// Validity of a point.
///
/// - [`validity::laws`]: requests in flight, counted and by Little's law; the law of users who wait for their replies
/// - [`validity::stationarity`]: constancy of the latency
/// - [`validity::rules`]: the rules and their inputs; [`validity::verdict`]: their combination
pub mod validity {
    pub mod laws;
    pub mod rules;
    pub mod stationarity;
    pub mod verdict;
}

pub use costs::mix_shares::mix_shares;
pub use latency::bands::{backlog_slope, bands};
pub use summarise::{all_figures, conclude, findings, latency_interval, summarise, summary, withhold};
