//! Report of a measurement, as text and as JSON.

use super::options::SingleOptions;
use crate::content::Data;
use crate::drive::Driven;
use crate::report::columns;
use anyhow::Result;
use serde::Serialize;
use std::time::Duration;
use tierlab_analysis::record::samples_needed;
use tierlab_instrument::units::digits3;
use tierlab_storage::TierInfo;

/// Report of one point. Rates are per second of the window, times are microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct SingleReport<'a> {
    tier: String,
    location: String,
    wrappers: Vec<String>,
    notes: Vec<String>,
    object: String,
    object_bytes: u64,
    workload: &'a SingleOptions,
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

impl<'a> SingleReport<'a> {
    pub(crate) fn new(info: &TierInfo, data: &Data, workload: &'a SingleOptions, driven: &Driven) -> Self {
        let (tally, sums) = (&driven.tally, &driven.tally.sums);
        let calls = sums.calls as f64;
        let seconds = driven.window.as_secs_f64();
        let mean_us = |sum: Duration| sum.as_secs_f64() * 1e6 / calls;
        let us = |ns: u64| ns as f64 / 1e3;
        let percentile =
            |share: f64| (sums.calls >= samples_needed(share)).then(|| us(tally.latency_ns.value_at_quantile(share)));
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
            p50_us: percentile(0.5),
            p95_us: percentile(0.95),
            p99_us: percentile(0.99),
            p999_us: percentile(0.999),
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

    /// A line for each value that is known, by the names of the JSON.
    ///
    /// # Errors
    /// The report cannot be serialised.
    pub(crate) fn text(&self) -> Result<String> {
        let line = |(name, text): &(String, String)| match text.parse() {
            Ok(number) if text.contains('.') => format!("{name:<24}{}\n", digits3(number)),
            _ => format!("{name:<24}{text}\n"),
        };
        let known = columns(self)?.into_iter().filter(|(_, text)| !text.is_empty());
        Ok(known.map(|column| line(&column)).collect())
    }
}
