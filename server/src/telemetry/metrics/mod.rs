//! The server's own metrics: registered here, typed, on the given registry; used through fields, never by name.
//!
//! Names, units and labels are in [`tierlab_protocol::metrics`]. The metrics of a request are resolved to plain
//! counters and histograms once per model, so that answering costs no label look-up.

pub(crate) mod gpu;

use crate::request::{Reason, Refusal};
use crate::telemetry::{AbandonedSession, Front, Mode, SessionSeconds, WaitPoint, trace};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;
use parking_lot::Mutex;
use procfs::process::Process;
use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Registry, Result,
};
use std::time::{Duration, Instant};
use tierlab_protocol::metrics as names;
use tierlab_protocol::timing::{Stage, StageTimings};
use tierlab_storage::wrappers::Registrar;

/// Upper bounds of the latency histograms, in seconds: 20 µs to 10 s, about three to a decade.
const LATENCY_BUCKETS: [f64; 19] = [
    0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_35, 0.000_5, 0.001, 0.002, 0.003_5, 0.005, 0.01, 0.02, 0.035, 0.05,
    0.1, 0.25, 1.0, 2.5, 10.0,
];
/// Upper bounds of the batch histogram, in rows.
const ROWS_BUCKETS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// Labels of the build information.
const BUILD_LABELS: [&str; 7] = [
    "version",
    "onnxruntime",
    "providers",
    "model_tier",
    "feature_tier",
    "feature_location",
    "feature_notes",
];

/// All metrics of the server.
pub(crate) struct Metrics {
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    stage_seconds: HistogramVec,
    inferences: IntCounterVec,
    refusals: IntCounterVec,
    cancelled: IntCounterVec,
    /// Requests between admission and reply.
    pub(crate) in_flight: IntGauge,
    /// Maximum requests between admission and reply.
    pub(crate) in_flight_limit: IntGauge,
    queue_depth: IntGaugeVec,
    stuck_sessions: IntGaugeVec,
    interrupted_runs: IntCounterVec,
    batch_rows: HistogramVec,
    session_seconds: CounterVec,
    /// Times of loading each model, by stage.
    pub(crate) load_seconds: GaugeVec,
    /// Build information, with the labels of [`BUILD_LABELS`].
    pub(crate) build_info: GaugeVec,
    /// Spans by outcome: `sent`, `failed`, or `dropped` because the queue was full.
    pub(crate) spans: IntCounterVec,
    process: ProcessMetrics,
    settled: Mutex<Vec<Box<dyn Fn() -> bool + Send>>>,
}

impl Metrics {
    /// Registers every metric.
    ///
    /// # Errors
    /// Fails if a name is already registered.
    pub(crate) fn register(registry: &Registry) -> Result<Self> {
        let on = Registrar(registry);
        let metrics = Self {
            requests: on.counters(
                names::REQUESTS,
                "Infer requests answered, including errors.",
                &["model", "mode", "protocol", "code"],
            )?,
            request_seconds: on.histograms(
                names::REQUEST_SECONDS,
                "Server time of a successful infer request.",
                &LATENCY_BUCKETS,
                &["model", "tier", "mode"],
            )?,
            stage_seconds: on.histograms(
                names::STAGE_SECONDS,
                "Time of a stage of a successful infer request.",
                &LATENCY_BUCKETS,
                &["stage", "model", "tier", "mode"],
            )?,
            inferences: on.counters(names::INFERENCES, "Rows inferred.", &["model"])?,
            refusals: on.counters(names::REFUSALS, "Infer requests refused or failed.", &["reason"])?,
            cancelled: on.counters(
                names::CANCELLED,
                "Infer requests whose client went away, by waiting point.",
                &["stage"],
            )?,
            in_flight: on.gauge(names::IN_FLIGHT, "Requests between admission and reply.")?,
            in_flight_limit: on.gauge(
                names::IN_FLIGHT_LIMIT,
                "Maximum requests between admission and reply; more are refused.",
            )?,
            queue_depth: on.gauges(names::QUEUE_DEPTH, "Requests waiting in the batch queue.", &["model"])?,
            stuck_sessions: on.gauges(
                names::STUCK_SESSIONS,
                "Sessions whose run was interrupted but continues.",
                &["model"],
            )?,
            interrupted_runs: on.counters(
                names::INTERRUPTED_RUNS,
                "Runs of a session interrupted because no client waited for them.",
                &["model"],
            )?,
            batch_rows: on.histograms(
                names::BATCH_ROWS,
                "Rows per run of a session.",
                &ROWS_BUCKETS,
                &["model"],
            )?,
            session_seconds: on.counters(
                names::SESSION_SECONDS,
                "Time of a session's thread: computing, idle while features are read, idle without requests.",
                &["model", "session", "state"],
            )?,
            load_seconds: on.gauges(names::MODEL_LOAD_SECONDS, "Time to load a model.", &["model", "stage"])?,
            build_info: on.gauges(names::BUILD_INFO, "Build information; the value is 1.", &BUILD_LABELS)?,
            spans: on.counters(names::SPANS, "Trace spans of requests, by outcome.", &["outcome"])?,
            process: ProcessMetrics::register(&on)?,
            settled: Mutex::default(),
        };
        metrics.start_at_zero();
        Ok(metrics)
    }

    /// Creates the series of refusals and spans: a series that first appears with a refusal has no rate.
    fn start_at_zero(&self) {
        for outcome in ["sent", "failed", "dropped"] {
            self.spans.with_label_values(&[outcome]);
        }
        for reason in Reason::all() {
            self.refusals.with_label_values(&[reason.as_str()]);
        }
        for point in [WaitPoint::Body, WaitPoint::Tier, WaitPoint::Batch] {
            self.cancelled.with_label_values(&[point.into_str()]);
        }
    }

    /// Counts a failed request. `model` is empty if it does not name a served model, so that clients cannot invent
    /// label values.
    pub(crate) fn count_refusal(&self, model: &str, mode: Option<Mode>, refusal: &Refusal) {
        self.refusals.with_label_values(&[refusal.reason.as_str()]).inc();
        if refusal.reason != Reason::Cancelled {
            let mode = mode.map_or("unknown", |mode| mode.into_str());
            let code = refusal.reason.status().to_string();
            let labels = [model, mode, trace::front().into_str(), &code];
            self.requests.with_label_values(&labels).inc();
        }
    }

    /// Counts a cancelled request by its waiting point.
    pub(crate) fn count_cancelled(&self, point: WaitPoint) {
        self.cancelled.with_label_values(&[point.into_str()]).inc();
    }

    /// Metrics of a model.
    pub(crate) fn for_model(&self, model: &str, tier: &str) -> ModelMetrics {
        let mode = |mode: Mode| ModeMetrics {
            ok: Front::ALL.map(|front| {
                self.requests
                    .with_label_values(&[model, mode.into_str(), front.into_str(), "200"])
            }),
            total: self.request_seconds.with_label_values(&[model, tier, mode.into_str()]),
            stages: Stage::ALL.map(|stage| {
                self.stage_seconds
                    .with_label_values(&[stage.as_str(), model, tier, mode.into_str()])
            }),
        };
        ModelMetrics {
            modes: [Mode::Realtime, Mode::Batch].map(mode),
            inferences: self.inferences.with_label_values(&[model]),
            queue_depth: self.queue_depth.with_label_values(&[model]),
            stuck_sessions: self.stuck_sessions.with_label_values(&[model]),
            interrupted_runs: self.interrupted_runs.with_label_values(&[model]),
            batch_rows: self.batch_rows.with_label_values(&[model]),
        }
    }

    /// Counters of a session's thread.
    pub(crate) fn for_session(&self, model: &str, instance: u32) -> SessionSeconds {
        let instance = instance.to_string();
        let state = |state: &str| self.session_seconds.with_label_values(&[model, &instance, state]);
        SessionSeconds {
            compute: state("compute"),
            queue_wait: state("queue_wait"),
            storage_wait: state("storage_wait"),
            no_requests: state("no_requests"),
        }
    }

    /// Has `settle` called before every scrape, so that a session's counters move while its thread only waits, until it
    /// reports that their owner is gone.
    pub(crate) fn settle_before_scrapes(&self, settle: impl Fn() -> bool + Send + 'static) {
        let mut settled = self.settled.lock();
        settled.retain(|settle| settle());
        settled.push(Box::new(settle));
    }

    /// Updates metrics that change by themselves; called before every scrape.
    pub(crate) fn settle(&self) {
        // One scrape at a time: each raises counters by what it finds missing.
        let mut settled = self.settled.lock();
        self.process.read();
        settled.retain(|settle| settle());
    }
}

/// Resolved metrics of a model.
pub(crate) struct ModelMetrics {
    /// By [`Mode`].
    modes: [ModeMetrics; 2],
    inferences: IntCounter,
    pub(crate) queue_depth: IntGauge,
    pub(crate) stuck_sessions: IntGauge,
    pub(crate) interrupted_runs: IntCounter,
    pub(crate) batch_rows: Histogram,
}

struct ModeMetrics {
    /// Counters in the order of [`Front::ALL`].
    ok: [IntCounter; Front::ALL.len()],
    total: Histogram,
    stages: [Histogram; Stage::COUNT],
}

impl ModelMetrics {
    /// Counts a successful request.
    pub(crate) fn count_answer(&self, rows: usize, timings: &StageTimings) {
        let mode = &self.modes[Mode::of_rows(rows) as usize];
        mode.ok[trace::front() as usize].inc();
        mode.total.observe(timings.total().as_secs_f64());
        for (stage, histogram) in Stage::ALL.into_iter().zip(&mode.stages) {
            histogram.observe(timings.get(stage).as_secs_f64());
        }
        self.inferences.inc_by(rows as u64);
    }
}

/// Metrics of the process.
struct ProcessMetrics {
    cpu_seconds: Counter,
    resident_bytes: IntGauge,
    virtual_bytes: IntGauge,
    threads: IntGauge,
    open_fds: IntGauge,
    max_fds: IntGauge,
    start_seconds: Gauge,
    uptime_seconds: Gauge,
    runtime_workers: IntGauge,
    runtime_tasks: IntGauge,
    runtime_busy_seconds: Counter,
    stuck_decodes: IntGauge,
    abandoned_sessions: IntGauge,
    started: Instant,
}

impl ProcessMetrics {
    fn register(on: &Registrar<'_>) -> Result<Self> {
        let metrics = Self {
            cpu_seconds: on.counter(names::PROCESS_CPU_SECONDS, "CPU time of the process, user and system.")?,
            resident_bytes: on.gauge(names::PROCESS_RESIDENT_BYTES, "Memory of the process in RAM.")?,
            virtual_bytes: on.gauge(names::PROCESS_VIRTUAL_BYTES, "Address space of the process.")?,
            threads: on.gauge(names::PROCESS_THREADS, "Threads of the process.")?,
            open_fds: on.gauge(names::PROCESS_OPEN_FDS, "Open file descriptors, including connections.")?,
            max_fds: on.gauge(names::PROCESS_MAX_FDS, "Maximum open file descriptors.")?,
            start_seconds: on.gauge(names::PROCESS_START_SECONDS, "When the process started, Unix time.")?,
            uptime_seconds: on.gauge(names::UPTIME_SECONDS, "Time since the start of the server.")?,
            runtime_workers: on.gauge(names::RUNTIME_WORKERS, "Threads of the async runtime.")?,
            runtime_tasks: on.gauge(names::RUNTIME_TASKS, "Tasks of the async runtime that have not ended.")?,
            runtime_busy_seconds: on.counter(
                names::RUNTIME_BUSY_SECONDS,
                "Time in which threads of the async runtime were not parked, summed over threads.",
            )?,
            stuck_decodes: on.gauge(
                names::STUCK_DECODES,
                "Threads stuck in decoding a damaged shard of a table.",
            )?,
            abandoned_sessions: on.gauge(
                names::ABANDONED_SESSIONS,
                "Sessions of abandoned loads whose threads have not ended.",
            )?,
            started: Instant::now(),
        };
        if let Ok(seconds) = start_seconds() {
            metrics.start_seconds.set(seconds);
        }
        if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
            metrics.max_fds.set(clamped(soft));
        }
        Ok(metrics)
    }

    /// Reads all values; those that cannot be read stay unchanged.
    fn read(&self) {
        self.uptime_seconds.set(self.started.elapsed().as_secs_f64());
        self.stuck_decodes.set(clamped(stuck_decodes()));
        self.abandoned_sessions.set(clamped(AbandonedSession::count()));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let runtime = runtime.metrics();
            let workers = runtime.num_workers();
            self.runtime_workers.set(clamped(workers));
            self.runtime_tasks.set(clamped(runtime.num_alive_tasks()));
            let busy = (0..workers).map(|worker| runtime.worker_total_busy_duration(worker));
            raise(&self.runtime_busy_seconds, busy.sum::<Duration>().as_secs_f64());
        }
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
            raise(&self.cpu_seconds, us as f64 / 1e6);
        }
        let Ok(process) = Process::myself() else { return };
        if let Ok(stat) = process.stat() {
            self.resident_bytes.set(clamped(stat.rss * procfs::page_size()));
            self.virtual_bytes.set(clamped(stat.vsize));
            self.threads.set(stat.num_threads);
        }
        if let Ok(count) = process.fd_count() {
            // Excludes the descriptor that `process` holds.
            self.open_fds.set(clamped(count.saturating_sub(1)));
        }
    }
}

/// Number of abandoned decodes of damaged shards that still run.
fn stuck_decodes() -> usize {
    #[cfg(feature = "layouts")]
    return tierlab_layouts::stuck_decodes();
    #[cfg(not(feature = "layouts"))]
    0
}

/// Raises a counter to a value. Not for concurrent callers.
fn raise(counter: &Counter, to: f64) {
    counter.inc_by((to - counter.get()).max(0.0));
}

fn clamped(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// Start time of the process, in Unix time.
fn start_seconds() -> procfs::ProcResult<f64> {
    let ticks = Process::myself()?.stat()?.starttime as f64;
    Ok(procfs::boot_time_secs()? as f64 + ticks / procfs::ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::Registry;

    #[tokio::test]
    async fn the_figures_are_those_of_this_process() {
        let process = ProcessMetrics::register(&Registrar(&Registry::new())).unwrap();
        let spin = Instant::now();
        while getrusage(UsageWho::RUSAGE_SELF).unwrap().user_time().num_microseconds() < 1_000 {
            assert!(spin.elapsed() < Duration::from_secs(30));
        }
        process.read();
        assert!(process.cpu_seconds.get() > 0.0);
        assert!(process.resident_bytes.get() > 1 << 20 && process.virtual_bytes.get() >= process.resident_bytes.get());
        assert!(process.threads.get() >= 1 && process.open_fds.get() >= 3);
        assert!(process.max_fds.get() > process.open_fds.get());
        assert!((std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64() - process.start_seconds.get()).abs() < 3600.0);
        assert_eq!(process.runtime_workers.get(), 1);
        let before = process.open_fds.get();
        let file = std::fs::File::open("/proc/self/status").unwrap();
        process.read();
        assert!(process.open_fds.get() > before);
        drop(file);
    }

    #[test]
    fn concurrent_scrapes_count_no_time_twice() {
        let metrics = Metrics::register(&Registry::new()).unwrap();
        let scrape = || {
            for _ in 0..500 {
                metrics.settle();
                let counted = metrics.process.cpu_seconds.get();
                let usage = getrusage(UsageWho::RUSAGE_SELF).unwrap();
                let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
                assert!(counted <= us as f64 / 1e6 + 1e-9, "{counted} s counted, {us} us used");
            }
        };
        std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(scrape))));
    }
}
