//! GPU reports of a server over a step. In: two readings of `/metrics`. Out: the reads into device memory by path, and NVML's
//! figures. Independent of their measurement.

use super::scrape::Scrape;
use tierlab_analysis::record::{DeviceReads, GpuUse};
use tierlab_protocol::metrics;

/// Returns a counter's growth; a counter that fell counts from zero, because its server restarted.
fn grown(before: &Scrape, after: &Scrape, name: &str, labels: &[(&str, &str)]) -> f64 {
    let (before, after) = (before.sum(name, labels), after.sum(name, labels));
    if after >= before { after - before } else { after }
}

/// Returns the reads into device memory between two readings; `None` if the server has no tier that reads there.
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

/// Returns the GPUs between two readings; empty if the server sees none.
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
