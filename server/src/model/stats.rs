//! Triton's statistics of one model: counts and summed times since the start.
//!
//! In: the timings of every request. Out: one entry of the statistics document.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tierlab_protocol::metadata::{CountNs, InferenceStats, ModelStats};
use tierlab_protocol::timing::{Stage, StageTimings};

/// A count and its time.
#[derive(Debug, Default)]
struct Sum {
    count: AtomicU64,
    ns: AtomicU64,
}

impl Sum {
    fn add(&self, time: Duration) {
        self.count.fetch_add(1, Relaxed);
        self.ns
            .fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    fn get(&self) -> CountNs {
        CountNs {
            count: self.count.load(Relaxed),
            ns: self.ns.load(Relaxed),
        }
    }
}

/// The running statistics of one model.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    success: Sum,
    fail: Sum,
    queue: Sum,
    input: Sum,
    infer: Sum,
    output: Sum,
    rows: AtomicU64,
    last_ms: AtomicU64,
}

impl Stats {
    /// Counts a request that was answered well.
    pub(crate) fn count_answer(&self, rows: usize, timings: &StageTimings) {
        let sum = |stages: &[Stage]| stages.iter().map(|&stage| timings.get(stage)).sum::<Duration>();
        self.success.add(timings.total());
        self.queue.add(sum(&[Stage::Admit, Stage::Batch]));
        self.input
            .add(sum(&[Stage::Decode, Stage::Cache, Stage::Tier, Stage::Join]));
        self.infer.add(timings.get(Stage::Infer));
        self.output.add(timings.get(Stage::Encode));
        self.rows.fetch_add(rows as u64, Relaxed);
        self.touch();
    }

    /// Counts a request that was not.
    pub(crate) fn count_failure(&self, timings: &StageTimings) {
        self.fail.add(timings.total());
        self.touch();
    }

    fn touch(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_ms
            .store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// The entry of a document; `runs` is how often the sessions ran.
    pub(crate) fn entry(&self, name: &str, version: &str, runs: u64) -> ModelStats {
        ModelStats {
            name: name.to_owned(),
            version: version.to_owned(),
            last_inference: self.last_ms.load(Relaxed),
            inference_count: self.rows.load(Relaxed),
            execution_count: runs,
            inference_stats: InferenceStats {
                success: self.success.get(),
                fail: self.fail.get(),
                queue: self.queue.get(),
                compute_input: self.input.get(),
                compute_infer: self.infer.get(),
                compute_output: self.output.get(),
            },
            batch_stats: Vec::new(),
        }
    }
}
