//! What the server tells of itself: metrics, spans and the log.

pub mod log;
pub(crate) mod metrics;
pub(crate) mod trace;
