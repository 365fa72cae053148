//! A tier's TOML, one file per tier in `configs/tiers/`, and [`open`], which builds the tier.
//!
//! Parse, then build: nothing deeper reads files or the environment, but for S3 credentials, which come from the usual
//! AWS environment and profile through `object_store`.

use crate::error::{ErrorKind, StorageError};
use crate::tier::Tier;
use crate::tiers;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;

/// One tier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TierConfig {
    /// In this process; filled from a directory at the start when `root` is given.
    Memory {
        /// A directory whose files are loaded.
        #[serde(default)]
        root: Option<PathBuf>,
    },
    /// A local directory read through io_uring.
    Nvme {
        /// The directory.
        root: PathBuf,
        /// Reads in flight at most.
        #[serde(default = "default_depth")]
        queue_depth: u32,
        /// Whether to read with `O_DIRECT`; where the file system refuses, reads are buffered and say so.
        #[serde(default = "yes")]
        direct: bool,
    },
    /// An NFSv3 export read in user space, or a kernel mount.
    Nfs(NfsConfig),
    /// An S3-compatible bucket.
    S3(S3Config),
    /// GPUDirect Storage: local files into device memory through cuFile.
    Gds {
        /// The directory.
        root: PathBuf,
        /// The CUDA device.
        #[serde(default)]
        device: u32,
    },
}

/// An NFSv3 export, read in user space (`url`) or through a kernel mount (`path`): exactly one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NfsConfig {
    /// `nfs://host[:port]/export`; the port given serves both NFS and MOUNT, else the portmapper is asked.
    #[serde(default)]
    pub url: Option<String>,
    /// A kernel mount, instead of `url`.
    #[serde(default)]
    pub path: Option<PathBuf>,
    /// Connections in the pool.
    #[serde(default = "default_connections")]
    pub connections: u32,
    /// The limit of one call, in milliseconds.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
}

/// An S3-compatible bucket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Whether to send requests unsigned.
    #[serde(default)]
    pub anonymous: bool,
    /// Whether to allow plain HTTP (embedded and test origins).
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
}

const fn default_depth() -> u32 {
    128
}
const fn default_connections() -> u32 {
    4
}
const fn default_timeout_ms() -> u64 {
    5_000
}
const fn default_concurrency() -> u32 {
    32
}
const fn default_part_bytes() -> u64 {
    8 << 20
}
const fn default_coalesce_bytes() -> u64 {
    16 << 10
}
const fn default_retries() -> u32 {
    3
}
const fn yes() -> bool {
    true
}

impl TierConfig {
    /// The kind, as `--tier` names it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Memory { .. } => "memory",
            Self::Nvme { .. } => "nvme",
            Self::Nfs(_) => "nfs",
            Self::S3(_) => "s3",
            Self::Gds { .. } => "gds",
        }
    }

    /// Reads one tier's TOML.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming `source` and the key.
    pub fn parse(source: &str, text: &str) -> Result<Self, StorageError> {
        toml::from_str(text).map_err(|e| StorageError::new(ErrorKind::Invalid, source, e.to_string()))
    }
}

/// Builds a tier, without wrappers. Reaches out: a root must exist, a server must answer.
///
/// # Errors
/// What is missing, where, and what to do.
pub async fn open(config: &TierConfig) -> Result<Arc<dyn Tier>, StorageError> {
    tiers::open(config).await
}
