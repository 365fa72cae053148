//! Server counters over a step, from `/metrics` before and after it.

use super::{DeviceReads, GpuUse};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Server counters over a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerDelta {
    /// Inferred rows.
    pub inferences: f64,
    /// Requests of the feature tier.
    pub tier_requests: f64,
    /// Bytes over the wire or from the device.
    pub tier_wire_bytes: f64,
    /// Retries of the tier.
    pub tier_retries: f64,
    /// Blocks found in the cache.
    pub cache_hits: f64,
    /// Blocks not found.
    pub cache_misses: f64,
    /// Capacity of the cache in bytes; 0 without one.
    #[serde(default)]
    pub cache_capacity_bytes: f64,
    /// Seconds of all session threads by state: compute, queue_wait, storage_wait, no_requests.
    pub session_seconds: BTreeMap<String, f64>,
    /// Mean rows per run of the session.
    pub mean_batch_rows: f64,
    /// Reads into device memory; absent if no tier reads there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_reads: Option<DeviceReads>,
    /// GPUs visible to the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuUse>,
    /// Stage times from the server's own statistics; absent if every reply reports them, or nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<ServerStages>,
    /// Servers behind it that were restarted during the step, and count from zero.
    #[serde(default, skip_serializing_if = "is_none")]
    pub restarts: u32,
    /// Reason for which its counters do not describe the step, and are left out; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

/// Mean stages of a request in a server with statistics, such as Triton, over all requests of a step, its warm-up
/// included, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerStages {
    /// Number of requests.
    pub requests: f64,
    /// Wait before scheduling.
    pub queue_us: f64,
    /// Preparation of inputs.
    pub input_us: f64,
    /// Inference time.
    pub infer_us: f64,
    /// Preparation of outputs.
    pub output_us: f64,
}

const fn is_none(count: &u32) -> bool {
    *count == 0
}
