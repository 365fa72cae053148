//! Keys of a key-value tier's TOML.

use crate::tiers::number;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Key-value store with the Redis protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// `redis://host:port`, or `rediss://host:port` for TLS. In a cluster, any node.
    pub url: String,
    /// If true, the server is one node of a cluster, and keys are spread over its nodes.
    #[serde(default)]
    pub cluster: bool,
    /// User of the store's access control list (default: `default`).
    pub username: Option<String>,
    /// Environment variable that holds the password.
    pub password_env: Option<String>,
    /// File that holds the password.
    pub password_file: Option<PathBuf>,
    /// File of PEM certificates of the server's authority, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// First part of every key.
    #[serde(default = "default_prefix")]
    pub prefix: String,
    /// Rows of a feature table per key, when published. More rows save about 100 bytes of the store's memory per row,
    /// but each read transfers all rows of its keys.
    #[serde(default = "number::<1, u32>")]
    pub rows_per_key: u32,
    /// Number of connections to each node; each multiplexes requests.
    #[serde(default = "number::<4, u32>")]
    pub connections: u32,
    /// Maximum requests in flight.
    #[serde(default = "number::<64, u32>")]
    pub concurrency: u32,
    /// Maximum bytes per request; longer reads become several concurrent requests.
    #[serde(default = "number::<{ 1 << 20 }, u64>")]
    pub part_bytes: u64,
    /// Maximum retries of a call after a transient failure.
    #[serde(default = "number::<5, u32>")]
    pub retries: u32,
    /// Time limit of a call including retries, in milliseconds, plus the time of its bytes at 4 MB/s.
    #[serde(default = "number::<5_000, u64>")]
    pub timeout_ms: u64,
    /// Time limit of a request, in milliseconds, plus the time of its bytes at 4 MB/s, before it is retried on a new
    /// connection.
    #[serde(default = "number::<1_000, u64>")]
    pub attempt_ms: u64,
}

fn default_prefix() -> String {
    "tierlab".to_owned()
}
