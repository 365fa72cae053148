//! Telemetry of the server: metrics, spans and the log.

pub(crate) mod config;
mod counters;
pub mod log;
pub(crate) mod metrics;
pub(crate) mod model_stats;
pub(crate) mod trace;

pub(crate) use counters::{AbandonedSession, Front, Mode, SessionSeconds, WaitPoint};
pub(crate) use metrics::{Metrics, ModelMetrics};
