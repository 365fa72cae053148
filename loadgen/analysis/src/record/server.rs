//! The server's counters over a step, from `/metrics` before and after it.

use super::{DeviceReads, GpuUse};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The server's counters over a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerDelta {
    /// Rows inferred.
    pub inferences: f64,
    /// Requests made by the feature tier.
    pub tier_requests: f64,
    /// Bytes over the wire or from the device.
    pub tier_wire_bytes: f64,
    /// Retries of the tier.
    pub tier_retries: f64,
    /// Blocks found in the cache.
    pub cache_hits: f64,
    /// Blocks not found.
    pub cache_misses: f64,
    /// Bytes that the cache may hold; 0 without one.
    #[serde(default)]
    pub cache_capacity_bytes: f64,
    /// Seconds of all session threads by state: compute, queue_wait, storage_wait, no_requests.
    pub session_seconds: BTreeMap<String, f64>,
    /// Mean rows per run of the session.
    pub mean_batch_rows: f64,
    /// Reads into device memory; absent where no tier reads there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_reads: Option<DeviceReads>,
    /// The GPUs that the server sees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuUse>,
    /// Stage times from its own statistics; absent if every reply reports them, or nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<ServerStages>,
    /// Servers behind it that were started anew during the step, and count from zero.
    #[serde(default, skip_serializing_if = "is_none")]
    pub restarts: u32,
    /// Why its counters say nothing of the step, and are left out; absent where they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

/// The mean way of a request through a server that keeps statistics of it, as Triton does; over all requests of a step, its warm-up
/// included, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerStages {
    /// Requests that it counted.
    pub requests: f64,
    /// Waiting to be scheduled.
    pub queue_us: f64,
    /// Inputs made ready.
    pub input_us: f64,
    /// Inference.
    pub infer_us: f64,
    /// Outputs made ready.
    pub output_us: f64,
}

const fn is_none(count: &u32) -> bool {
    *count == 0
}
