//! The keys of an S3 tier's TOML. In: what serde reads. Opens nothing.

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
    /// A file of AWS profiles whose keys are used, instead of what the environment has.
    #[serde(default)]
    pub credentials_file: Option<PathBuf>,
    /// The profile in `credentials_file`; `default` when left out.
    #[serde(default)]
    pub profile: Option<String>,
    /// If true, allows plain HTTP (embedded and test origins).
    #[serde(default)]
    pub allow_http: bool,
    /// Range GETs in flight at most.
    #[serde(default = "default_concurrency")]
    pub concurrency: u32,
    /// Bytes of one range GET of a large object.
    #[serde(default = "default_part_bytes")]
    pub part_bytes: u64,
    /// Gaps up to this many bytes between two ranges are read over instead of making two requests.
    #[serde(default = "default_coalesce_bytes")]
    pub coalesce_bytes: u64,
    /// Retries of one request.
    #[serde(default = "default_retries")]
    pub retries: u32,
    /// The limit of one request with its retries, in milliseconds.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// The limit of one attempt at a GET, in milliseconds, to which the time of its bytes at `min_bytes_per_s` is
    /// added; the attempt is then given up, and the next one goes on from the byte reached.
    #[serde(default = "default_attempt_ms")]
    pub attempt_ms: u64,
    /// The speed below which an attempt is given up, in bytes per second.
    #[serde(default = "default_min_bytes_per_s")]
    pub min_bytes_per_s: u64,
    /// Sends a GET a second time when its reply has not begun after this quantile of the recent ones; the first reply
    /// is read. Both are counted as requests. Left out: never.
    #[serde(default)]
    pub hedge_after_quantile: Option<f64>,
    /// The GETs sent a second time by hedging at most, as a share of all GETs.
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
