//! Statistics of latencies that know nothing of runs.
//!
//! - [`mod@histogram`]: latencies as histograms; [`percentile`]: percentiles over many of them, and from how many samples they may
//!   be printed
//! - [`sections`], [`student`], [`beta`]: 95 % intervals over repeats; [`order`]: intervals by order statistics, and gaps
//! - [`dependence`]: how much samples depend on each other; [`early_stopping`]: what MLPerf's rule says of a percentile

pub mod beta;
pub mod dependence;
pub mod early_stopping;
pub mod histogram;
pub mod order;
pub mod percentile;
pub mod sections;
pub mod student;
