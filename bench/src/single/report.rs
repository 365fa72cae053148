//! Report of a measurement, as text and as JSON.

use super::options::Options;
use crate::content::Data;
use crate::drive::Driven;
use crate::plan::word;
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use tierlab_analysis::record::samples_needed;
use tierlab_instrument::units::NONE;
use tierlab_storage::TierInfo;

/// Percentiles by name, as shares.
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)];

/// Report of one point. Rates are per second of the window, times are microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    tier: String,
    location: String,
    wrappers: Vec<String>,
    notes: Vec<String>,
    object: String,
    object_bytes: u64,
    workload: &'a Options,
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

impl<'a> Report<'a> {
    pub(crate) fn new(info: &TierInfo, data: &Data, workload: &'a Options, driven: &Driven) -> Self {
        let (tally, sums) = (&driven.tally, &driven.tally.sums);
        let calls = sums.calls as f64;
        let seconds = driven.window.as_secs_f64();
        let mean_us = |sum: Duration| sum.as_secs_f64() * 1e6 / calls;
        let us = |ns: u64| ns as f64 / 1e3;
        let percentile = |i: usize| {
            let (_, share) = PERCENTILES[i];
            (sums.calls >= samples_needed(share)).then(|| us(tally.latency_ns.value_at_quantile(share)))
        };
        let looked_up = sums.cache_hits + sums.cache_misses;
        Self {
            tier: info.kind.to_owned(),
            location: info.location.clone(),
            wrappers: info.wrappers.clone(),
            notes: info.notes.clone(),
            object: data.objects[0].path.to_string(),
            object_bytes: data.file_bytes,
            workload,
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

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options {
            pattern,
            block_bytes,
            ranges_per_call,
            depth,
            warmup,
            ..
        } = self.workload;
        let mut tier = vec![format!("{} {}", self.tier, self.location)];
        tier.extend(self.wrappers.iter().map(|wrapper| format!("behind {wrapper}")));
        tier.extend(self.notes.iter().cloned());
        let percentiles = [self.p50_us, self.p95_us, self.p99_us, self.p999_us];
        let percentiles = PERCENTILES.iter().zip(percentiles).map(|((name, _), us)| {
            let us = us.map_or_else(|| NONE.to_owned(), |us| format!("{us:.1} us"));
            format!("{name} {us}, ")
        });
        let mut lines = vec![
            ("tier", tier.join("\n          ")),
            ("object", format!("{}, {} bytes", self.object, self.object_bytes)),
            (
                "reads",
                format!(
                    "{}, {ranges_per_call} x {block_bytes} bytes a call, {depth} calls in flight",
                    word(pattern)
                ),
            ),
            (
                "window",
                format!("{:.1} s after {:.1} s of warm-up", self.window_s, warmup.as_secs_f64()),
            ),
            (
                "rate",
                format!(
                    "{:.0} ranges/s, {:.1} MB/s, {} calls",
                    self.iops, self.mb_per_s, self.calls
                ),
            ),
            (
                "latency",
                format!(
                    "{}mean {:.1} us, max {:.1} us",
                    percentiles.collect::<String>(),
                    self.mean_us,
                    self.max_us
                ),
            ),
            (
                "of which",
                format!(
                    "queue {:.1} us, device {:.1} us, copy {:.1} us (means)",
                    self.mean_queue_us, self.mean_device_us, self.mean_copy_us
                ),
            ),
            ("via", self.via.clone()),
            (
                "requests",
                format!(
                    "{:.2} a call, {} retries, {:.2} bytes moved per byte asked",
                    self.requests_per_call, self.retries, self.wire_share
                ),
            ),
        ];
        lines.extend(self.invalid.iter().map(|why| ("INVALID", why.clone())));
        lines.extend(self.cache_hit_ratio.map(|ratio| {
            let best = self.best_hit_ratio.map_or_else(String::new, |best| {
                format!(
                    "; {:.1} % is the most that a cache of as many blocks can reach",
                    best * 100.0
                )
            });
            let reads = self.tier_reads.unwrap_or_default();
            let hit = format!("{:.1} % of blocks hit, {reads} reads of the tier{best}", ratio * 100.0);
            ("cache", hit)
        }));
        let idle = self
            .idle_cpu_share
            .map(|share| format!("{:.3} % of a core", share * 100.0));
        lines.extend(idle.map(|share| ("idle", share)));
        lines
            .iter()
            .try_for_each(|(name, text)| writeln!(f, "{name:<9} {text}"))
    }
}
