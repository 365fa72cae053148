//! Request in progress: counting, timing and refusals of every stage. Below telemetry, the queue and the models.

mod admission;
mod parts;
mod refusal;

pub(crate) use admission::{Account, AccountBudget, Admission, CountedBytes, Limits, ModelShare, Writing};
pub(crate) use parts::{DeviceRows, Elements, Part, rows_of};
pub(crate) use refusal::{Reason, Refusal};
use std::time::{Duration, Instant};
use tierlab_protocol::timing::{Stage, StageTimings};

/// Stopwatch of a request in progress. It starts when the last byte of the body arrives. Each mark assigns the time
/// since the last one to a stage, so the stages add up to the elapsed time, to the microsecond.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    pub(crate) started: Instant,
    /// Microseconds already assigned to a stage.
    assigned_us: u64,
    /// Stage times, with counts, paths, and the split of the tier stage.
    pub(crate) timings: StageTimings,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
            assigned_us: 0,
            timings: StageTimings::default(),
        }
    }

    /// Assigns the time since the last mark to `stage`.
    pub(crate) fn mark(&mut self, stage: Stage) {
        self.mark_at(stage, Instant::now());
    }

    /// Assigns the time from the last mark to `moment` to `stage`; nothing if `moment` is earlier.
    pub(crate) fn mark_at(&mut self, stage: Stage, moment: Instant) {
        let at = moment.saturating_duration_since(self.started);
        let at_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        let lap_us = at_us.saturating_sub(self.assigned_us);
        self.assigned_us += lap_us;
        self.timings.add(stage, Duration::from_micros(lap_us));
    }

    /// Assigns the time since the last mark to `first`, up to `limit`; the rest to `second`.
    pub(crate) fn mark_split(&mut self, first: Stage, limit: Duration, second: Stage) {
        let now = Instant::now();
        let split_at = self.started + Duration::from_micros(self.assigned_us) + limit;
        self.mark_at(first, split_at.min(now));
        self.mark_at(second, now);
    }
}

/// Size whose copy takes about a tenth of a millisecond, longer than moving the tasks.
pub(crate) const LARGE_BYTES: usize = 1 << 20;

/// Does work that costs as much as copying `bytes` bytes.
pub(crate) fn offload_large<R>(bytes: usize, work: impl FnOnce() -> R) -> R {
    offload_if(bytes >= LARGE_BYTES, work)
}

/// Does work that is known to be large or small. Large work would delay other requests, so the runtime first moves its
/// thread's other tasks to another thread.
pub(crate) fn offload_if<R>(large: bool, work: impl FnOnce() -> R) -> R {
    if large {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::mpsc;

    proptest! {
        #[test]
        fn stages_partition_the_time(marks in prop::collection::vec((0_usize..Stage::COUNT, 0_u64..50_000_000), 1..20)) {
            let mut watch = Stopwatch::start();
            let mut last = Duration::ZERO;
            for (stage, after_ns) in marks {
                // Some marks lie before the last one, as two clocks read on two threads may.
                let moment = Duration::from_nanos(after_ns);
                watch.mark_at(Stage::ALL[stage], watch.started + moment);
                last = last.max(moment);
            }
            prop_assert_eq!(watch.timings.total().as_micros(), last.as_micros());
        }
    }

    #[test]
    fn a_split_gives_no_more_than_its_limit_to_the_first() {
        let mut watch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(2));
        watch.mark_split(Stage::Cache, Duration::from_micros(300), Stage::Tier);
        assert_eq!(watch.timings.get(Stage::Cache), Duration::from_micros(300));
        assert!(watch.timings.get(Stage::Tier) >= Duration::from_micros(1_700));
        let so_far = watch.timings.total();
        watch.mark_split(Stage::Cache, Duration::from_secs(9), Stage::Join);
        assert_eq!(watch.timings.get(Stage::Join), Duration::ZERO);
        assert!(watch.timings.total() >= so_far);
    }

    /// Far more than it takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn others_are_served_while_heavy_work_is_done_on_the_only_thread() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let (ready, is_ready) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        // The work ends only when the other task has run, which has no thread of its own.
        let heavy = runtime.spawn(async move {
            offload_large(LARGE_BYTES, || {
                ready.send(()).unwrap();
                answered.recv_timeout(PATIENCE)
            })
        });
        is_ready.recv_timeout(PATIENCE).unwrap();
        runtime.spawn(async move { answer.send("served").unwrap() });
        assert_eq!(runtime.block_on(heavy).unwrap(), Ok("served"));
    }
}
