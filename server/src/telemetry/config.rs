//! Telemetry settings, and their checks: destination of spans, interval of GPU measurements.

use crate::Millis;
use crate::error::{ConfigError, fail};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;
use tierlab_formats::model::is_plain_name;

/// Span export and sampling, and the interval of GPU measurements.
#[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "only spans are made of it"))]
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TelemetryConfig {
    /// URL that receives traces; if unset, no spans are sent. In the configuration, the path is optional.
    #[serde(rename = "otlp_endpoint")]
    pub(crate) traces_url: Option<String>,
    /// Share of requests that have a span, among those whose client does not decide it.
    pub(crate) sampling_ratio: f64,
    /// Maximum requests whose spans wait to be sent.
    pub(crate) queue_requests: usize,
    /// Time limit of an export, in milliseconds.
    #[serde(rename = "timeout_ms", with = "Millis")]
    pub(crate) timeout: Duration,
    /// Interval between two measurements of the machine's GPUs, in milliseconds; 0 disables them.
    #[serde(rename = "gpu_interval_ms", with = "Millis")]
    pub(crate) gpu_interval: Duration,
    /// Variant of a lab, as a label of all metrics of this server.
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

impl TelemetryConfig {
    /// Checks the values, and completes the URL.
    pub(crate) fn check(&mut self, file: &str) -> Result<(), ConfigError> {
        let bad = |key: &str, what: &str| fail(format!("{file}: `telemetry.{key}` {what}"));
        if !(0.0..=1.0).contains(&self.sampling_ratio) {
            return bad("sampling_ratio", "must be a share from 0 to 1");
        }
        if self.queue_requests == 0 || self.queue_requests > 1 << 20 {
            return bad("queue_requests", "must be from 1 to 1048576");
        }
        if self.timeout.is_zero() {
            return bad("timeout_ms", "must be at least 1");
        }
        let pauses = Duration::from_millis(100)..=Duration::from_secs(60);
        if !self.gpu_interval.is_zero() && !pauses.contains(&self.gpu_interval) {
            let what = "must be from 100 to 60000, or 0 to disable GPU measurements";
            return bad("gpu_interval_ms", what);
        }
        self.variant.take_if(|name| name.is_empty());
        if self.variant.as_ref().is_some_and(|name| !is_plain_name(name)) {
            return bad("variant", "is an invalid name: use letters, digits, `.`, `_` and `-`");
        }
        if let Some(endpoint) = &self.traces_url {
            if !cfg!(feature = "otlp") {
                return bad(
                    "otlp_endpoint",
                    "is set, but this server was built without the feature `otlp`: build it with `--features otlp`, or \
                     remove the key",
                );
            }
            self.traces_url = traces_url(endpoint);
            if self.traces_url.is_none() {
                // The endpoint may contain a password, so the error omits it.
                return bad("otlp_endpoint", "is not a URL: use a URL such as http://127.0.0.1:4318");
            }
        }
        Ok(())
    }
}

/// Collector's address, with the default path for traces if it has no path.
fn traces_url(endpoint: &str) -> Option<String> {
    let uri: http::Uri = endpoint.parse().ok()?;
    let is_http = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty());
    is_http.then(|| match uri.path() {
        "" | "/" => format!("{}/v1/traces", endpoint.trim_end_matches('/')),
        _ => endpoint.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_base_or_a_whole_url() {
        for (endpoint, url) in [
            ("http://127.0.0.1:4318", Some("http://127.0.0.1:4318/v1/traces")),
            (
                "https://collector.example/",
                Some("https://collector.example/v1/traces"),
            ),
            ("http://c/otlp/v1/traces", Some("http://c/otlp/v1/traces")),
            ("127.0.0.1:4318", None),
            ("grpc://c:4317", None),
            ("", None),
        ] {
            assert_eq!(traces_url(endpoint).as_deref(), url, "{endpoint}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_key_without_secrets() {
        let refused = |text: &str| {
            let mut raw: TelemetryConfig = toml::from_str(text).unwrap();
            raw.check("server.toml").unwrap_err().to_string()
        };
        assert!(refused("sampling_ratio = 1.5").contains("telemetry.sampling_ratio"));
        assert!(refused("sampling_ratio = nan").contains("telemetry.sampling_ratio"));
        assert!(refused("queue_requests = 0").contains("telemetry.queue_requests"));
        assert!(refused("timeout_ms = 0").contains("telemetry.timeout_ms"));
        assert!(refused("gpu_interval_ms = 10").contains("telemetry.gpu_interval_ms"));
        let error = refused("otlp_endpoint = \"ftp://user:hunter2@host\"");
        assert!(error.contains("otlp_endpoint") && !error.contains("hunter2"), "{error}");
    }

    #[cfg(not(feature = "otlp"))]
    #[test]
    fn an_endpoint_that_nothing_can_send_to_is_refused() {
        let mut raw: TelemetryConfig = toml::from_str("otlp_endpoint = \"http://127.0.0.1:4318\"").unwrap();
        let error = raw.check("server.toml").unwrap_err().to_string();
        assert!(
            error.contains("telemetry.otlp_endpoint") && error.contains("`otlp`"),
            "{error}"
        );
    }
}
