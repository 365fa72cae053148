//! Triton's statistics of a version of a model: counts and summed times since it was loaded.
//!
//! In: the timings of every request, and of every run of a session. Out: an entry of the statistics document. Source of
//! the meanings: Triton's `extension_statistics.md`.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tierlab_protocol::grpc::messages::{InferBatchStatistics, InferStatistics, ModelStatistics, StatisticDuration};
use tierlab_protocol::timing::{Stage, StageTimings};

/// Adds a time to a count and a total.
fn add(sum: &mut StatisticDuration, time: Duration) {
    sum.count += 1;
    sum.ns = sum
        .ns
        .saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

/// Maximum distinct batch sizes; runs of further sizes count with the largest size below them.
const MAX_SIZES: usize = 1024;

/// Runs of a version's sessions, by batch size: laying out, ONNX Runtime, cutting.
#[derive(Debug, Default)]
pub(crate) struct RunStats(Mutex<BTreeMap<usize, [StatisticDuration; 3]>>);

impl RunStats {
    /// Counts a successful run of `rows` rows; `times` are the times of laying the batch out, of ONNX Runtime, and of
    /// cutting the outputs.
    pub(crate) fn count(&self, mut rows: usize, times: [Duration; 3]) {
        let mut sizes = self.0.lock();
        if sizes.len() >= MAX_SIZES && !sizes.contains_key(&rows) {
            rows = sizes.range(..rows).next_back().map_or(1, |(&below, _)| below);
        }
        let sums = sizes.entry(rows).or_default();
        for (sum, time) in sums.iter_mut().zip(times) {
            add(sum, time);
        }
    }

    fn get(&self) -> Vec<InferBatchStatistics> {
        let sizes = self.0.lock();
        let size = |(&rows, &[input, infer, output]): (&usize, &[StatisticDuration; 3])| InferBatchStatistics {
            batch_size: rows as u64,
            compute_input: Some(input),
            compute_infer: Some(infer),
            compute_output: Some(output),
        };
        sizes.iter().map(size).collect()
    }
}

/// Sums over the requests of a version.
#[derive(Debug, Default)]
struct RequestSums {
    success: StatisticDuration,
    fail: StatisticDuration,
    queue: StatisticDuration,
    input: StatisticDuration,
    infer: StatisticDuration,
    output: StatisticDuration,
    rows: u64,
    last_ms: u64,
}

/// Running statistics of a version.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    sums: Mutex<RequestSums>,
    /// Run counters of the sessions.
    pub(crate) runs: Arc<RunStats>,
}

impl RequestSums {
    fn touch(&mut self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.last_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    }
}

impl Stats {
    /// Counts a successful request.
    pub(crate) fn count_answer(&self, rows: usize, timings: &StageTimings) {
        let sum = |stages: &[Stage]| stages.iter().map(|&stage| timings.get(stage)).sum::<Duration>();
        let input = sum(&[Stage::Decode, Stage::Cache, Stage::Tier, Stage::Join]);
        let mut sums = self.sums.lock();
        add(&mut sums.success, timings.total());
        add(&mut sums.queue, sum(&[Stage::Admit, Stage::Batch]));
        add(&mut sums.input, input);
        add(&mut sums.infer, timings.get(Stage::Infer));
        add(&mut sums.output, timings.get(Stage::Encode));
        sums.rows += rows as u64;
        sums.touch();
    }

    /// Counts a failed request.
    pub(crate) fn count_failure(&self, timings: &StageTimings) {
        let mut sums = self.sums.lock();
        add(&mut sums.fail, timings.total());
        sums.touch();
    }

    /// Entry of a document.
    pub(crate) fn entry(&self, name: &str, version: &str) -> ModelStatistics {
        let (batch_stats, sums) = (self.runs.get(), self.sums.lock());
        let runs = batch_stats.iter().filter_map(|size| Some(size.compute_infer?.count));
        ModelStatistics {
            name: name.to_owned(),
            version: version.to_owned(),
            last_inference: sums.last_ms,
            inference_count: sums.rows,
            execution_count: runs.sum(),
            inference_stats: Some(InferStatistics {
                success: Some(sums.success),
                fail: Some(sums.fail),
                queue: Some(sums.queue),
                compute_input: Some(sums.input),
                compute_infer: Some(sums.infer),
                compute_output: Some(sums.output),
                // Triton's cache of whole replies, which is not offered.
                cache_hit: Some(StatisticDuration::default()),
                cache_miss: Some(StatisticDuration::default()),
            }),
            batch_stats,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_told_apart_by_size_up_to_a_bound() {
        let runs = RunStats::default();
        let time = Duration::from_nanos(7);
        for rows in (1..=2 * MAX_SIZES).chain([5, 5]) {
            runs.count(rows, [time, 2 * time, 3 * time]);
        }
        let sizes = runs.get();
        assert_eq!(sizes.len(), MAX_SIZES);
        assert_eq!(sizes[4].batch_size, 5);
        assert_eq!(sizes[4].compute_infer, Some(StatisticDuration { count: 3, ns: 42 }));
        assert_eq!(sizes[4].compute_output, Some(StatisticDuration { count: 3, ns: 63 }));
        let all: u64 = sizes.iter().map(|size| size.compute_input.unwrap().count).sum();
        assert_eq!(all, 2 * MAX_SIZES as u64 + 2);
    }
}
