//! What a server says of its GPUs over a step. In: two readings of `/metrics`. Out: the reads into device memory by the
//! way that they took, and what NVML saw. Knows nothing of how either was measured.

use crate::record::Repeat;
use crate::scrape::Scrape;
use serde::{Deserialize, Serialize};
use tierlab_protocol::metrics;

/// Reads into device memory over a step, by the driver's own counters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceReads {
    /// The way that the tier was asked for: `gds`, `compat`, `bounce`, `bounce-direct`, `pageable`.
    pub path: String,
    /// What GPUDirect Storage lacks on the server's machine, in words.
    pub missing: String,
    /// Whether cuFile counts its reads.
    pub counted: bool,
    /// From the disk to the device, by PCI peer to peer.
    pub peer_to_peer: f64,
    /// The same, by the nvidia-fs module.
    pub nvidia_fs: f64,
    /// Through the host's memory.
    pub posix: f64,
    /// Requests that the tier made in the step.
    pub requests: f64,
}

/// One GPU over a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuUse {
    /// Its number on the server's machine.
    pub gpu: String,
    /// Its name.
    pub name: String,
    /// Seconds of the step in which it ran a kernel.
    pub busy_s: f64,
    /// Joules that it took.
    pub energy_j: f64,
    /// Memory in use at the end, in bytes, by all processes.
    pub memory_used_bytes: f64,
    /// Of its streaming multiprocessors at the end, in hertz.
    pub sm_clock_hz: f64,
    /// Over the bus to it at the end, in bytes per second.
    pub pcie_received_bytes_per_s: f64,
    /// Over the bus from it at the end, in bytes per second.
    pub pcie_sent_bytes_per_s: f64,
}

/// A counter's growth; one that went down counts from zero, as of a server that was started anew.
fn grown(before: &Scrape, after: &Scrape, name: &str, labels: &[(&str, &str)]) -> f64 {
    let (before, after) = (before.sum(name, labels), after.sum(name, labels));
    if after >= before { after - before } else { after }
}

/// The reads into device memory between two readings; `None` where the server has no tier that reads there.
#[must_use]
pub fn device_reads(before: &Scrape, after: &Scrape) -> Option<DeviceReads> {
    let label = |label: &str| after.label(metrics::DEVICE_PATH, label).map(str::to_owned);
    let path = label("path")?;
    let way = |way: &str| grown(before, after, metrics::DEVICE_READS, &[("way", way)]);
    Some(DeviceReads {
        path,
        missing: label("missing").unwrap_or_default(),
        counted: after.sum(metrics::DEVICE_PATH, &[]) > 0.0,
        peer_to_peer: way("p2p"),
        nvidia_fs: way("nvfs"),
        posix: way("posix"),
        requests: grown(before, after, metrics::TIER_REQUESTS, &[("tier", "gds")]),
    })
}

/// The GPUs between two readings; none where the server sees none.
#[must_use]
pub fn gpus(before: &Scrape, after: &Scrape) -> Vec<GpuUse> {
    let of = |(gpu, name): (&str, &str)| {
        let labels = [("gpu", gpu)];
        let now = |name: &str, more: &[(&str, &str)]| after.sum(name, &[&labels, more].concat());
        GpuUse {
            gpu: gpu.to_owned(),
            name: name.to_owned(),
            busy_s: grown(before, after, metrics::GPU_BUSY_SECONDS, &labels),
            energy_j: grown(before, after, metrics::GPU_ENERGY_JOULES, &labels),
            memory_used_bytes: now(metrics::GPU_MEMORY_USED_BYTES, &[]),
            sm_clock_hz: now(metrics::GPU_CLOCK_HZ, &[("clock", "sm")]),
            pcie_received_bytes_per_s: now(metrics::GPU_PCIE_BYTES_PER_S, &[("direction", "received")]),
            pcie_sent_bytes_per_s: now(metrics::GPU_PCIE_BYTES_PER_S, &[("direction", "sent")]),
        }
    };
    let known = after.label_pairs(metrics::GPU_INFO, "gpu", "name");
    known.into_iter().map(of).collect()
}

impl DeviceReads {
    /// Why these reads are not what was asked for: GPUDirect Storage that the driver's counters do not prove. `None`
    /// where something else was asked for, or nothing was read.
    #[must_use]
    pub fn shortfall(&self) -> Option<String> {
        if self.path != "gds" || self.requests == 0.0 {
            return None;
        }
        let direct = self.peer_to_peer + self.nvidia_fs;
        let what = if !self.counted {
            "no counter says which way its reads took".to_owned()
        } else if self.posix > 0.0 {
            format!(
                "{:.0} of {:.0} reads went through POSIX",
                self.posix,
                self.posix + direct
            )
        } else if direct == 0.0 {
            format!("the driver counted none of {:.0} reads", self.requests)
        } else {
            return None;
        };
        Some(format!(
            "GPUDirect Storage was asked for and {what}; missing: {}",
            self.missing
        ))
    }
}

/// Joules for one inference over all repeats and GPUs; `None` without a GPU or without inferences.
#[must_use]
pub fn joules_per_inference(repeats: &[Repeat]) -> Option<f64> {
    let servers = || repeats.iter().filter_map(|repeat| repeat.server.as_ref());
    let joules: f64 = servers().flat_map(|server| &server.gpus).map(|gpu| gpu.energy_j).sum();
    let inferences: f64 = servers()
        .filter(|server| !server.gpus.is_empty())
        .map(|server| server.inferences)
        .sum();
    (joules > 0.0 && inferences > 0.0).then(|| joules / inferences)
}

/// Where the time of the GPUs went over the repeats of a point, as shares that sum to 1. What is neither a kernel nor a
/// wait of a session's thread is time in which a session ran and the GPU did not: copies, launches, the host's part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct IdleByCause {
    /// Running kernels.
    pub busy: f64,
    /// A session ran, the GPU did not: copies over the bus, launches, laying out.
    pub copy_and_host: f64,
    /// Idle while a request of the model was queued: waiting for company in its batch, or for the session to wake.
    #[serde(default)]
    pub queue_wait: f64,
    /// Idle while a request of the model read its features, and none was queued.
    pub storage_wait: f64,
    /// Idle without anything to do.
    pub no_requests: f64,
}

/// The shares; `None` without a GPU, or without a session's time.
#[must_use]
pub fn idle_by_cause(repeats: &[Repeat]) -> Option<IdleByCause> {
    let servers = || {
        repeats
            .iter()
            .filter_map(|repeat| repeat.server.as_ref())
            .filter(|server| !server.gpus.is_empty())
    };
    let state = |name: &str| -> f64 { servers().filter_map(|server| server.session_seconds.get(name)).sum() };
    let waits = ["queue_wait", "storage_wait", "no_requests"].map(state);
    let whole = state("compute") + waits.iter().sum::<f64>();
    if whole <= 0.0 {
        return None;
    }
    // Of the busiest GPU: sessions of one model run on one.
    let busy: f64 = servers()
        .map(|server| server.gpus.iter().map(|gpu| gpu.busy_s).fold(0.0, f64::max))
        .sum();
    let windows: f64 = repeats
        .iter()
        .filter(|repeat| repeat.server.is_some())
        .map(|repeat| repeat.window_s)
        .sum();
    let busy = (busy / windows.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    // The sessions' waits share what is left when they say that they waited longer than the GPU was idle.
    let idle = waits.iter().sum::<f64>() / whole;
    let scale = ((1.0 - busy) / idle.max(f64::MIN_POSITIVE)).min(1.0);
    let [queue_wait, storage_wait, no_requests] = waits.map(|wait| wait / whole * scale);
    Some(IdleByCause {
        busy,
        copy_and_host: (1.0 - busy - idle * scale).max(0.0),
        queue_wait,
        storage_wait,
        no_requests,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(p2p: u32, posix: u32, requests: u32, counted: u32) -> Scrape {
        Scrape::parse(&format!(
            "tierlab_device_path_info{{tier=\"gds\",path=\"gds\",missing=\"nvidia-fs\"}} {counted}\n\
             tierlab_device_reads_total{{tier=\"gds\",way=\"p2p\"}} {p2p}\n\
             tierlab_device_reads_total{{tier=\"gds\",way=\"posix\"}} {posix}\n\
             tierlab_tier_requests_total{{tier=\"gds\",role=\"feature\"}} {requests}\n"
        ))
        .unwrap()
    }

    #[test]
    fn only_proven_reads_are_direct() {
        let start = text(5, 5, 10, 1);
        let judge = |after: &Scrape| device_reads(&start, after).unwrap().shortfall();
        assert_eq!(judge(&text(105, 5, 110, 1)), None);
        assert_eq!(judge(&text(5, 5, 10, 1)), None, "nothing was read");
        let posix = judge(&text(65, 45, 110, 1)).unwrap();
        assert!(
            posix.contains("40 of 100 reads went through POSIX") && posix.ends_with("missing: nvidia-fs"),
            "{posix}"
        );
        assert!(judge(&text(5, 5, 110, 1)).unwrap().contains("none of 100 reads"));
        assert!(judge(&text(105, 5, 110, 0)).unwrap().contains("no counter"));
        assert_eq!(device_reads(&start, &Scrape::default()), None);
        let bounce = DeviceReads {
            path: "bounce".into(),
            posix: 5.0,
            requests: 5.0,
            ..DeviceReads::default()
        };
        assert_eq!(bounce.shortfall(), None, "that was not asked for");
    }

    #[test]
    fn a_gpus_step_is_the_difference_of_its_counters() {
        let at = |busy: f64, joules: f64| {
            Scrape::parse(&format!(
                "tierlab_gpu_info{{gpu=\"0\",name=\"X\",uuid=\"u\",driver=\"1\"}} 1\n\
                 tierlab_gpu_busy_seconds_total{{gpu=\"0\"}} {busy}\ntierlab_gpu_energy_joules_total{{gpu=\"0\"}} {joules}\n\
                 tierlab_gpu_clock_hertz{{gpu=\"0\",clock=\"sm\"}} 2e9\ntierlab_gpu_clock_hertz{{gpu=\"0\",clock=\"memory\"}} 3e9\n"
            ))
            .unwrap()
        };
        let seen = gpus(&at(1.0, 100.0), &at(3.5, 600.0));
        assert_eq!(seen.len(), 1);
        assert_eq!(
            (seen[0].busy_s, seen[0].energy_j, seen[0].sm_clock_hz),
            (2.5, 500.0, 2e9)
        );
        assert_eq!(seen[0].name, "X");
        assert_eq!(gpus(&Scrape::default(), &Scrape::default()), []);
    }
}
