//! Keys of a Flight tier's TOML. In: TOML through serde. Out: checked values. Opens nothing.

#[cfg(feature = "flight")]
use crate::error::{ErrorKind, StorageError};
#[cfg(feature = "flight")]
use crate::tiers::check_not_zero;
use crate::tiers::number;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The column of ids.
pub(super) const ID_COLUMN: &str = "entity_id";

/// An Arrow Flight server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlightConfig {
    /// `grpc://host:port`.
    pub url: String,
    /// Int64 column of entity ids.
    #[serde(default = "default_id_column")]
    pub id_column: String,
    /// Number of connections; each carries many calls.
    #[serde(default = "number::<4, u32>")]
    pub connections: u32,
    /// Maximum DoGets in flight.
    #[serde(default = "number::<64, u32>")]
    pub concurrency: u32,
    /// Maximum rows per DoGet; longer reads become several DoGets in flight together.
    #[serde(default = "number::<4096, u32>")]
    pub ranges_per_request: u32,
    /// Maximum bytes per DoGet; longer reads become several DoGets in flight together.
    #[serde(default = "number::<{ 8 << 20 }, u64>")]
    pub part_bytes: u64,
    /// Maximum accepted size of a message in bytes; a message holds one batch.
    #[serde(default = "number::<{ 64 << 20 }, u64>")]
    pub max_message_bytes: u64,
    /// Maximum retries of a call after a failure that may pass.
    #[serde(default = "number::<5, u32>")]
    pub retries: u32,
    /// Time limit of a call with its retries, in milliseconds.
    #[serde(default = "number::<5_000, u64>")]
    pub timeout_ms: u64,
    /// Maximum silence of a server, in milliseconds, before the call is retried over a new connection.
    #[serde(default = "number::<1_000, u64>")]
    pub attempt_ms: u64,
}

fn default_id_column() -> String {
    ID_COLUMN.to_owned()
}

#[cfg(feature = "flight")]
impl FlightConfig {
    /// The address as gRPC takes it. No key may be zero.
    pub(super) fn checked_address(&self) -> Result<String, StorageError> {
        let invalid = |what: String| StorageError::new(ErrorKind::Invalid, self.url.as_str(), what);
        let keys = [
            ("connections", u64::from(self.connections)),
            ("concurrency", u64::from(self.concurrency)),
            ("ranges_per_request", u64::from(self.ranges_per_request)),
            ("part_bytes", self.part_bytes),
            ("max_message_bytes", self.max_message_bytes),
            ("timeout_ms", self.timeout_ms),
            ("attempt_ms", self.attempt_ms),
        ];
        check_not_zero(&self.url, &keys)?;
        if self.url.starts_with("grpc+tls://") {
            let what = "TLS is not spoken: put a proxy that ends it in front, and use grpc://host:port";
            return Err(invalid(what.into()));
        }
        let rest = self
            .url
            .strip_prefix("grpc://")
            .or_else(|| self.url.strip_prefix("grpc+tcp://"));
        let authority: Option<http::uri::Authority> = rest.and_then(|rest| rest.trim_end_matches('/').parse().ok());
        match authority {
            Some(authority) if authority.port().is_some() => Ok(format!("http://{authority}")),
            _ => Err(invalid("`url` must be grpc://host:port".into())),
        }
    }
}

#[cfg(all(test, feature = "flight"))]
mod tests {
    use super::*;

    fn config(text: &str) -> Result<FlightConfig, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn addresses_are_checked() {
        for (url, want) in [
            ("grpc://127.0.0.1:8815", "http://127.0.0.1:8815"),
            ("grpc+tcp://flight.example:1/", "http://flight.example:1"),
            ("grpc://[::1]:8815", "http://[::1]:8815"),
        ] {
            assert_eq!(
                config(&format!("url = \"{url}\"")).unwrap().checked_address().unwrap(),
                want
            );
        }
        for url in [
            "",
            "127.0.0.1:1",
            "http://h:1",
            "grpc://",
            "grpc://h",
            "grpc://h:1/x",
            "grpc+tls://h:1",
        ] {
            let error = config(&format!("url = \"{url}\""))
                .unwrap()
                .checked_address()
                .unwrap_err();
            assert_eq!((error.kind(), error.object()), (ErrorKind::Invalid, url));
        }
        let zero = config("url = \"grpc://h:1\"\npart_bytes = 0").unwrap();
        assert!(zero.checked_address().unwrap_err().detail().contains("part_bytes"));
        let unknown = config("url = \"grpc://h:1\"\ndialect = \"sql\"").unwrap_err();
        assert!(unknown.to_string().contains("dialect"), "{unknown}");
    }
}
