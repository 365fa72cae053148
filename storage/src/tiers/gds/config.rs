//! Keys of a gds tier's TOML. In: TOML through serde. Opens nothing.

use crate::device::DevicePath;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Local files into device memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GdsConfig {
    /// The directory.
    pub root: PathBuf,
    /// The CUDA device.
    #[serde(default)]
    pub device: u32,
    /// The way that the bytes take.
    #[serde(default)]
    pub path: DevicePath,
    /// Maximum bytes of a cuFile read, or of a pinned buffer; longer ranges become several.
    #[serde(default = "default_chunk_bytes")]
    pub chunk_bytes: u32,
    /// Pinned host buffers of `chunk_bytes`, for `bounce` and `bounce-direct`.
    #[serde(default = "default_pinned_buffers")]
    pub pinned_buffers: u32,
    /// Threads that call cuFile, for `gds` and `compat`.
    #[serde(default = "default_threads")]
    pub threads: u32,
    /// Maximum device memory for reads.
    #[serde(default = "default_device_memory_bytes")]
    pub device_memory_bytes: u64,
    /// Folders searched first for NVIDIA's libraries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub libraries: Vec<PathBuf>,
}

/// Same size as the tasks of `KvikIO`.
const fn default_chunk_bytes() -> u32 {
    4 << 20
}
const fn default_pinned_buffers() -> u32 {
    4
}
const fn default_threads() -> u32 {
    4
}
const fn default_device_memory_bytes() -> u64 {
    2 << 30
}

impl GdsConfig {
    /// A folder on the first device, everything else as it is by default.
    #[must_use]
    pub fn new(root: PathBuf, path: DevicePath) -> Self {
        Self {
            root,
            device: 0,
            path,
            chunk_bytes: default_chunk_bytes(),
            pinned_buffers: default_pinned_buffers(),
            threads: default_threads(),
            device_memory_bytes: default_device_memory_bytes(),
            libraries: Vec::new(),
        }
    }
}
