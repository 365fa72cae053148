//! Telemetry of the server: metrics, spans and the log.

pub(crate) mod config;
pub(crate) mod counters;
pub(crate) mod labels;
pub mod log;
pub(crate) mod metrics;
pub(crate) mod model_stats;
pub(crate) mod trace;
