//! Telemetry settings.

use crate::values::millis;
use serde::Deserialize;
use std::time::Duration;

/// `[telemetry]`: span export and sampling, and the interval of GPU measurements.
#[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "only spans are made of it"))]
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TelemetryConfig {
    /// The URL that takes traces; none sends no spans. In the configuration, the path may be left out.
    #[serde(rename = "otlp_endpoint")]
    pub(crate) traces_url: Option<String>,
    /// The share of the requests that have a span, among those whose client does not say.
    pub(crate) sampling_ratio: f64,
    /// Requests whose spans wait to be sent at most.
    pub(crate) queue_requests: usize,
    /// The time of one export.
    #[serde(rename = "timeout_ms", deserialize_with = "millis")]
    pub(crate) timeout: Duration,
    /// Between two looks at the machine's GPUs; zero for none.
    #[serde(rename = "gpu_interval_ms", deserialize_with = "millis")]
    pub(crate) gpu_interval: Duration,
    /// The variant of a lab that this server is: a label of all of its metrics. None without one.
    pub(crate) variant: Option<String>,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            traces_url: None,
            sampling_ratio: 1.0,
            queue_requests: 2048,
            timeout: Duration::from_secs(5),
            gpu_interval: Duration::from_secs(1),
            variant: None,
        }
    }
}
