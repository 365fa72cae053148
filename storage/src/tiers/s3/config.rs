//! Keys of an S3 tier's TOML. In: TOML through serde. Opens nothing.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// An S3-compatible bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct S3Config {
    /// The bucket.
    pub bucket: String,
    /// A prefix inside the bucket.
    #[serde(default)]
    pub prefix: Option<String>,
    /// The region; the environment's when left out.
    #[serde(default)]
    pub region: Option<String>,
    /// The endpoint of an S3-compatible server; AWS when left out.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// If true, the bucket's name is part of the host's name instead of the path (virtual-hosted style).
    #[serde(default)]
    pub virtual_host: bool,
    /// A file of PEM certificates that the endpoint's may be signed with, besides the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// If true, sends requests unsigned.
    #[serde(default)]
    pub anonymous: bool,
    /// File of AWS profiles to take keys from, instead of the environment.
    #[serde(default)]
    pub credentials_file: Option<PathBuf>,
    /// The profile in `credentials_file`; `default` when left out.
    #[serde(default)]
    pub profile: Option<String>,
    /// If true, allows plain HTTP (embedded and test origins).
    #[serde(default)]
    pub allow_http: bool,
    /// Maximum range GETs in flight.
    #[serde(default = "default_concurrency")]
    pub concurrency: u32,
    /// Bytes per range GET of a large object.
    #[serde(default = "default_part_bytes")]
    pub part_bytes: u64,
    /// Gaps up to this many bytes between two ranges are read over instead of making two requests.
    #[serde(default = "default_coalesce_bytes")]
    pub coalesce_bytes: u64,
    /// Maximum retries of a request.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// Time limit of a request with its retries, in milliseconds.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// Time limit of an attempt at a GET, in milliseconds, plus the time of its bytes at `min_bytes_per_s`. At the
    /// limit the attempt ends, and the next attempt continues from the byte reached.
    #[serde(default = "default_attempt_ms")]
    pub attempt_ms: u64,
    /// The speed below which an attempt is given up, in bytes per second.
    #[serde(default = "default_min_bytes_per_s")]
    pub min_bytes_per_s: u64,
    /// Quantile of recent reply times after which a GET is sent a second time; the first reply is read. Both count as
    /// requests (default: no hedging).
    #[serde(default)]
    pub hedge_after_quantile: Option<f64>,
    /// Maximum share of GETs that hedging sends a second time.
    #[serde(default = "default_hedge_max_share")]
    pub hedge_max_share: f64,
}

const fn default_concurrency() -> u32 {
    32
}
const fn default_part_bytes() -> u64 {
    8 << 20
}
const fn default_coalesce_bytes() -> u64 {
    64 << 10
}
const fn default_retries() -> u32 {
    3
}
const fn default_timeout_ms() -> u64 {
    5_000
}
const fn default_attempt_ms() -> u64 {
    1_000
}
const fn default_min_bytes_per_s() -> u64 {
    4_000_000
}
const fn default_hedge_max_share() -> f64 {
    0.05
}
