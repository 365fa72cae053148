//! Server counters over a step, from `/metrics` before and after it, with those of its GPUs.

use super::is_zero;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Server counters over a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerDelta {
    /// Inferred rows.
    pub inferences: f64,
    /// Requests to the feature tier.
    pub tier_requests: f64,
    /// Bytes over the wire or from the device.
    pub tier_wire_bytes: f64,
    /// Retries of the tier.
    pub tier_retries: f64,
    /// Blocks found in the cache.
    pub cache_hits: f64,
    /// Blocks not found in the cache.
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
    /// Seconds between the readings of its counters, warm-up and drain included; absent in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub between_s: Option<f64>,
    /// Servers behind it that were restarted during the step, and count from zero.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restarts: u32,
    /// Reason why its counters do not describe the step and are omitted; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

/// Mean stages of a request in a server with statistics, such as Triton, over all requests of a step, its warm-up
/// included, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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

/// Reads into device memory over a step, by the driver's own counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceReads {
    /// Requested path: `gds`, `compat`, `bounce`, `bounce-direct`, `pageable`.
    pub path: String,
    /// Missing parts of GPUDirect Storage on the server's machine, in words.
    pub missing: String,
    /// True if cuFile counts its reads.
    pub counted: bool,
    /// Bytes from the disk to the device, by PCI peer to peer.
    pub peer_to_peer: f64,
    /// Bytes from the disk to the device, by the nvidia-fs module.
    pub nvidia_fs: f64,
    /// Bytes through the host's memory.
    pub posix: f64,
    /// Requests of the tier in the step.
    pub requests: f64,
}

/// One GPU over a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuUse {
    /// Number of the GPU on the server's machine.
    pub gpu: String,
    /// Model name of the GPU.
    pub name: String,
    /// Seconds of the step with a running kernel.
    pub busy_s: f64,
    /// Energy in joules.
    pub energy_j: f64,
    /// Memory in use at the end, in bytes, by all processes.
    pub memory_used_bytes: f64,
    /// Clock of the streaming multiprocessors at the end, in hertz.
    pub sm_clock_hz: f64,
    /// PCIe traffic to the GPU at the end, in bytes per second.
    pub pcie_received_bytes_per_s: f64,
    /// PCIe traffic from the GPU at the end, in bytes per second.
    pub pcie_sent_bytes_per_s: f64,
}

impl DeviceReads {
    /// Returns the reason for which these reads are not the requested ones: GPUDirect Storage that the driver's
    /// counters do not confirm. `None` if another path was requested, or nothing was read.
    pub fn shortfall(&self) -> Option<String> {
        if self.path != "gds" || self.requests == 0.0 {
            return None;
        }
        let direct = self.peer_to_peer + self.nvidia_fs;
        let what = if !self.counted {
            "no counter confirms the path of its reads".to_owned()
        } else if self.posix > 0.0 {
            let (posix, all) = (self.posix, self.posix + direct);
            format!("{posix:.0} of {all:.0} reads went through POSIX")
        } else if direct == 0.0 {
            format!("the driver counted none of {:.0} reads", self.requests)
        } else {
            return None;
        };
        let missing = &self.missing;
        Some(format!(
            "GPUDirect Storage was requested, but {what}; missing: {missing}"
        ))
    }
}

/// GPU time over the repeats of a point, as shares that sum to 1. Time that is neither a kernel nor a wait of a
/// session's thread is time in which only the session ran: copies, launches, the host's part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IdleByCause {
    /// Share with a running kernel.
    pub busy: f64,
    /// Share in which a session ran without the GPU: copies over the bus, launches, layout.
    pub copy_and_host: f64,
    /// Idle share while a request of the model was queued: waiting for its batch, or for the session to wake.
    #[serde(default)]
    pub queue_wait: f64,
    /// Idle share while a request of the model read its features, and none was queued.
    pub storage_wait: f64,
    /// Idle share without requests.
    pub no_requests: f64,
}
