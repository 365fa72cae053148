//! Local files read into device memory, over the configured path. The server reads them as bytes on the host, or leaves
//! them on the device for its sessions there. In: object paths below a root. Out: bytes, and the path taken: `gds` only
//! if cuFile's own counters prove it.
//!
//! This module adds the parts of a tier: object paths, versions, jobs and their costs. The device and the paths to it
//! are in `tierlab-gds`.
//!
//! The tests run all of it against a stand-in for CUDA and cuFile, in which host memory plays the device;
//! `results/gpu-h200` has what ran on hardware. Without the feature `gds` only the configuration is built.

use crate::device::DevicePath;
use crate::tiers::number;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
#[cfg(feature = "gds")]
pub use tier::GdsTier;

#[cfg(feature = "gds")]
mod tier;

/// Local files read into device memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GdsConfig {
    /// Directory of the files.
    pub root: PathBuf,
    /// Number of the CUDA device.
    #[serde(default)]
    pub device: u32,
    /// Path of the bytes into device memory.
    #[serde(default)]
    pub path: DevicePath,
    /// Maximum bytes of a cuFile read, and size of a pinned buffer; longer ranges become several reads.
    #[serde(default = "number::<{ 4 << 20 }, u32>")]
    pub chunk_bytes: u32,
    /// Pinned host buffers of `chunk_bytes`, for `bounce` and `bounce-direct`.
    #[serde(default = "number::<8, u32>")]
    pub pinned_buffers: u32,
    /// Threads that call cuFile, for `gds` and `compat`, or read files, for `bounce`.
    #[serde(default = "number::<4, u32>")]
    pub threads: u32,
    /// Maximum device memory for reads, in bytes.
    #[serde(default = "number::<{ 2 << 30 }, u64>")]
    pub device_memory_bytes: u64,
    /// Folders searched first for NVIDIA's libraries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<PathBuf>,
}
