//! Report of a measurement, as text and as JSON.

use super::object::Subject;
use super::options::Workload;
use crate::drive::Driven;
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use tierlab_storage::TierInfo;

/// Percentiles, each with the samples that it needs.
const PERCENTILES: [(&str, f64, u64); 4] = [
    ("p50", 50.0, 1),
    ("p95", 95.0, 72),
    ("p99", 99.0, 368),
    ("p99.9", 99.9, 3688),
];

/// Report of one point. Rates are per second of the window, times are microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    tier: String,
    location: String,
    wrappers: Vec<String>,
    notes: Vec<String>,
    object: String,
    object_bytes: u64,
    workload: Workload,
    window_s: f64,
    pub(crate) interrupted: bool,
    calls: u64,
    /// Ranges read per second.
    iops: f64,
    mb_per_s: f64,
    p50_us: Option<f64>,
    p95_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
    mean_us: f64,
    max_us: f64,
    via: String,
    /// Reason for which the requested way of reading was not measured.
    pub(crate) invalid: Option<String>,
    requests_per_call: f64,
    retries: u64,
    /// Bytes moved per requested byte.
    wire_share: f64,
    cache_hit_ratio: Option<f64>,
    /// Highest hit ratio of any cache of this size in the long run, if known.
    pub(crate) best_hit_ratio: Option<f64>,
    /// Reads from the cache to the tier, warm-up included.
    pub(crate) tier_reads: Option<u64>,
    /// CPU time of the whole process while the tier was open and idle, as a share of one core.
    pub(crate) idle_cpu_share: Option<f64>,
    mean_queue_us: f64,
    mean_device_us: f64,
    mean_copy_us: f64,
}

impl Report {
    pub(crate) fn new(info: &TierInfo, subject: &Subject, workload: &Workload, driven: &Driven) -> Self {
        let (tally, sums) = (&driven.tally, &driven.tally.sums);
        let calls = sums.calls as f64;
        let seconds = driven.window.as_secs_f64();
        let mean_us = |sum: Duration| sum.as_secs_f64() * 1e6 / calls;
        let us = |ns: u64| ns as f64 / 1e3;
        let percentile = |i: usize| {
            let (_, percentile, samples) = PERCENTILES[i];
            (sums.calls >= samples).then(|| us(tally.latency_ns.value_at_percentile(percentile)))
        };
        let looked_up = sums.cache_hits + sums.cache_misses;
        Self {
            tier: info.kind.to_owned(),
            location: info.location.clone(),
            wrappers: info.wrappers.clone(),
            notes: info.notes.clone(),
            object: subject.object.path.to_string(),
            object_bytes: subject.object.size,
            workload: workload.clone(),
            window_s: seconds,
            interrupted: false,
            calls: sums.calls,
            iops: calls * f64::from(workload.ranges_per_call) / seconds,
            mb_per_s: sums.asked_bytes as f64 / 1e6 / seconds,
            p50_us: percentile(0),
            p95_us: percentile(1),
            p99_us: percentile(2),
            p999_us: percentile(3),
            mean_us: tally.latency_ns.mean() / 1e3,
            max_us: us(tally.latency_ns.max()),
            via: tally.via.to_string(),
            invalid: None,
            requests_per_call: sums.requests as f64 / calls,
            retries: sums.retries,
            wire_share: sums.wire_bytes as f64 / sums.asked_bytes.max(1) as f64,
            cache_hit_ratio: (looked_up > 0).then(|| sums.cache_hits as f64 / looked_up as f64),
            best_hit_ratio: None,
            tier_reads: None,
            idle_cpu_share: None,
            mean_queue_us: mean_us(sums.queue),
            mean_device_us: mean_us(sums.device),
            mean_copy_us: mean_us(sums.copy),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Workload {
            pattern,
            block_bytes,
            ranges_per_call,
            depth,
            ..
        } = &self.workload;
        writeln!(f, "tier      {} {}", self.tier, self.location)?;
        for wrapper in &self.wrappers {
            writeln!(f, "          behind {wrapper}")?;
        }
        for note in &self.notes {
            writeln!(f, "          {note}")?;
        }
        writeln!(f, "object    {}, {} bytes", self.object, self.object_bytes)?;
        let pattern = format!("{pattern:?}").to_lowercase();
        writeln!(
            f,
            "reads     {pattern}, {ranges_per_call} x {block_bytes} bytes a call, {depth} calls in flight"
        )?;
        writeln!(
            f,
            "window    {:.1} s after {:.1} s of warm-up",
            self.window_s,
            self.workload.warmup.as_secs_f64()
        )?;
        writeln!(
            f,
            "rate      {:.0} ranges/s, {:.1} MB/s, {} calls",
            self.iops, self.mb_per_s, self.calls
        )?;
        write!(f, "latency  ")?;
        let values = [self.p50_us, self.p95_us, self.p99_us, self.p999_us];
        for ((name, ..), value) in PERCENTILES.iter().zip(values) {
            match value {
                Some(us) => write!(f, " {name} {us:.1} us,")?,
                None => write!(f, " {name} n/a,")?,
            }
        }
        writeln!(f, " mean {:.1} us, max {:.1} us", self.mean_us, self.max_us)?;
        let (queue, device, copy) = (self.mean_queue_us, self.mean_device_us, self.mean_copy_us);
        writeln!(
            f,
            "of which  queue {queue:.1} us, device {device:.1} us, copy {copy:.1} us (means)"
        )?;
        writeln!(f, "via       {}", self.via)?;
        if let Some(why) = &self.invalid {
            writeln!(f, "INVALID   {why}")?;
        }
        let (requests, retries) = (self.requests_per_call, self.retries);
        writeln!(
            f,
            "requests  {requests:.2} a call, {retries} retries, {:.2} bytes moved per byte asked",
            self.wire_share
        )?;
        if let Some(ratio) = self.cache_hit_ratio {
            let reads = self.tier_reads.unwrap_or_default();
            writeln!(
                f,
                "cache     {:.1} % of blocks hit, {reads} reads of the tier",
                ratio * 100.0
            )?;
            if let Some(best) = self.best_hit_ratio {
                writeln!(
                    f,
                    "          {:.1} % is the most that a cache of as many blocks can reach",
                    best * 100.0
                )?;
            }
        }
        if let Some(share) = self.idle_cpu_share {
            writeln!(f, "idle      {:.3} % of a core", share * 100.0)?;
        }
        Ok(())
    }
}
