//! Environment of a run: machine, software, and the origin behind each tier.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Environment of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// CPU model as the kernel names it.
    pub cpu: String,
    /// Logical cores.
    pub cores: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// File system and mount options below the data, by path.
    pub filesystems: BTreeMap<String, String>,
    /// GPUs with their driver; empty without one.
    pub gpus: Vec<String>,
    /// ONNX Runtime's version and providers, as the server reports them.
    pub onnxruntime: String,
    /// Git commit of the project, with `-dirty` if the tree had changes; `unknown` outside a checkout.
    pub git_commit: String,
    /// Version of the load generator.
    pub version: String,
    /// Processes on the same cores: load generator, server, origins.
    pub shared_cores: Vec<String>,
    /// Properties of the machine that slow a run, from `tierlab-storage-bench doctor`; empty if it was not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine_warnings: Vec<String>,
    /// Per tier: `embedded`, `emulated` or `real`, and the tier's own notes.
    pub origins: BTreeMap<String, String>,
}
