//! Telemetry settings.

use std::time::Duration;

/// Span export and sampling, and the interval of GPU measurements.
#[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "only spans are made of it"))]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TelemetryConfig {
    /// The URL that takes traces; none sends no spans.
    pub(crate) traces_url: Option<String>,
    /// The share of the requests that have a span, among those whose client does not say.
    pub(crate) sampling_ratio: f64,
    /// Requests whose spans wait to be sent at most.
    pub(crate) queue_requests: usize,
    /// The time of one export.
    pub(crate) timeout: Duration,
    /// Between two looks at the machine's GPUs; zero for none.
    pub(crate) gpu_interval: Duration,
    /// The variant of a lab that this server is: a label of all of its metrics. None without one.
    pub(crate) variant: Option<String>,
}
