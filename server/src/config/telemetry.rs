//! `[log]` and `[telemetry]` of the server's configuration: how the log is written, where spans go, how often GPUs are
//! looked at.

use crate::error::{ConfigError, fail};
use crate::telemetry::config::TelemetryConfig;
use crate::telemetry::log::LogFormat;
use serde::Deserialize;
use std::time::Duration;
use tierlab_formats::model::is_plain_name;

/// `[log]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLog {
    pub(super) format: LogFormat,
    pub(super) level: String,
}

impl Default for RawLog {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            level: "info".into(),
        }
    }
}

/// `[telemetry]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTelemetry {
    otlp_endpoint: Option<String>,
    sampling_ratio: f64,
    queue_requests: usize,
    timeout_ms: u64,
    gpu_interval_ms: u64,
    variant: String,
}

impl Default for RawTelemetry {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            sampling_ratio: 1.0,
            queue_requests: 2048,
            timeout_ms: 5_000,
            gpu_interval_ms: 1_000,
            variant: String::new(),
        }
    }
}

impl RawTelemetry {
    pub(super) fn build(self, file: &str) -> Result<TelemetryConfig, ConfigError> {
        let bad = |key: &str, what: &str| fail(format!("{file}: `telemetry.{key}` {what}"));
        if !(0.0..=1.0).contains(&self.sampling_ratio) {
            return bad("sampling_ratio", "must be a share from 0 to 1");
        }
        if self.queue_requests == 0 || self.queue_requests > 1 << 20 {
            return bad("queue_requests", "must be from 1 to 1048576");
        }
        if self.timeout_ms == 0 {
            return bad("timeout_ms", "must be at least 1");
        }
        if self.gpu_interval_ms > 60_000 || (1..100).contains(&self.gpu_interval_ms) {
            return bad(
                "gpu_interval_ms",
                "must be from 100 to 60000, or 0 for no looks at the GPUs",
            );
        }
        if !self.variant.is_empty() && !is_plain_name(&self.variant) {
            return bad("variant", "is no plain name (letters, digits, `.`, `_`, `-`)");
        }
        let traces_url = match self.otlp_endpoint {
            None => None,
            Some(_) if !cfg!(feature = "otlp") => {
                return bad(
                    "otlp_endpoint",
                    "is set, and this server was built without the feature `otlp`: build it with `--features otlp`, or \
                     leave the key out",
                );
            }
            Some(endpoint) => match traces_url(&endpoint) {
                // The endpoint may hold a password: it is not repeated.
                None => return bad("otlp_endpoint", "is no URL such as http://127.0.0.1:4318"),
                url => url,
            },
        };
        Ok(TelemetryConfig {
            traces_url,
            sampling_ratio: self.sampling_ratio,
            queue_requests: self.queue_requests,
            timeout: Duration::from_millis(self.timeout_ms),
            gpu_interval: Duration::from_millis(self.gpu_interval_ms),
            variant: Some(self.variant).filter(|name| !name.is_empty()),
        })
    }
}

/// A collector's address, with the path for traces where it has none of its own.
fn traces_url(endpoint: &str) -> Option<String> {
    let uri: http::Uri = endpoint.parse().ok()?;
    let known = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty());
    known.then(|| match uri.path() {
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
            let raw: RawTelemetry = toml::from_str(text).unwrap();
            raw.build("server.toml").unwrap_err().to_string()
        };
        assert!(refused("sampling_ratio = 1.5").contains("telemetry.sampling_ratio"));
        assert!(refused("sampling_ratio = nan").contains("telemetry.sampling_ratio"));
        assert!(refused("queue_requests = 0").contains("telemetry.queue_requests"));
        assert!(refused("timeout_ms = 0").contains("telemetry.timeout_ms"));
        assert!(refused("gpu_interval_ms = 10").contains("telemetry.gpu_interval_ms"));
        let said = refused("otlp_endpoint = \"ftp://user:hunter2@host\"");
        assert!(said.contains("otlp_endpoint") && !said.contains("hunter2"), "{said}");
    }

    #[cfg(not(feature = "otlp"))]
    #[test]
    fn an_endpoint_that_nothing_can_send_to_is_refused() {
        let raw: RawTelemetry = toml::from_str("otlp_endpoint = \"http://127.0.0.1:4318\"").unwrap();
        let error = raw.build("server.toml").unwrap_err().to_string();
        assert!(
            error.contains("telemetry.otlp_endpoint") && error.contains("`otlp`"),
            "{error}"
        );
    }
}
