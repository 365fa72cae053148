//! The keys of an NFS tier's TOML. In: what serde reads. Opens nothing.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// An NFSv3 export, read in user space (`url`) or through a kernel mount (`path`): exactly one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NfsConfig {
    /// `nfs://host[:port]/export`; the port given serves NFS, and MOUNT unless `mount_port` says another; without one
    /// the portmapper is asked.
    #[serde(default)]
    pub url: Option<String>,
    /// The port of MOUNT, where it is not that of NFS and no portmapper tells it.
    #[serde(default)]
    pub mount_port: Option<u16>,
    /// A kernel mount, instead of `url`.
    #[serde(default)]
    pub path: Option<PathBuf>,
    /// Connections in the pool; each has many calls under way.
    #[serde(default = "default_connections")]
    pub connections: u32,
    /// Data asked for at once per connection by READs of more than 64 KiB; further ones wait their turn. More hides a
    /// longer way to the server, less keeps its buffers warm.
    #[serde(default = "default_in_flight_bytes")]
    pub in_flight_bytes: u64,
    /// Ranges of one read that follow each other with no more than this between them are read as one; 0 joins those
    /// that touch.
    #[serde(default)]
    pub coalesce_bytes: u64,
    /// The user that the server takes the calls to be from; without one, that of this process.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The group, likewise.
    #[serde(default)]
    pub gid: Option<u32>,
    /// The limit of one call with its repeats, in milliseconds.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
}

const fn default_connections() -> u32 {
    4
}
const fn default_in_flight_bytes() -> u64 {
    8 << 20
}
const fn default_timeout_ms() -> u64 {
    5_000
}
