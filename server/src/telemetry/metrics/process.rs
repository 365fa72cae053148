//! Process and async runtime: figures of the kernel and tokio, read before each scrape.
//!
//! In: nothing. Out: the process metrics of every Prometheus client, with their usual names, and tokio's threads and
//! tasks. Unreadable values stay unchanged.

use super::Registrar;
use crate::telemetry::AbandonedSession;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;
use procfs::process::Process;
use prometheus::{Counter, Gauge, IntGauge};
use std::time::{Duration, Instant};
use tierlab_protocol::metrics as names;

/// Metrics of the process.
pub(super) struct ProcessMetrics {
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
    pub(super) fn register(on: &Registrar<'_>) -> prometheus::Result<Self> {
        let metrics = Self {
            cpu_seconds: on.counter(names::PROCESS_CPU_SECONDS, "CPU time of the process, user and system.")?,
            resident_bytes: on.int_gauge(names::PROCESS_RESIDENT_BYTES, "Memory of the process in RAM.")?,
            virtual_bytes: on.int_gauge(names::PROCESS_VIRTUAL_BYTES, "Address space of the process.")?,
            threads: on.int_gauge(names::PROCESS_THREADS, "Threads of the process.")?,
            open_fds: on.int_gauge(names::PROCESS_OPEN_FDS, "Open file descriptors, including connections.")?,
            max_fds: on.int_gauge(names::PROCESS_MAX_FDS, "Maximum open file descriptors.")?,
            start_seconds: on.gauge(names::PROCESS_START_SECONDS, "When the process started, Unix time.")?,
            uptime_seconds: on.gauge(names::UPTIME_SECONDS, "Time since the start of the server.")?,
            runtime_workers: on.int_gauge(names::RUNTIME_WORKERS, "Threads of the async runtime.")?,
            runtime_tasks: on.int_gauge(names::RUNTIME_TASKS, "Tasks of the async runtime that have not ended.")?,
            runtime_busy_seconds: on.counter(
                names::RUNTIME_BUSY_SECONDS,
                "Time in which threads of the async runtime were not parked, summed over threads.",
            )?,
            stuck_decodes: on.int_gauge(
                names::STUCK_DECODES,
                "Threads stuck in decoding a damaged shard of a table.",
            )?,
            abandoned_sessions: on.int_gauge(
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

    /// Reads all values.
    pub(super) fn read(&self) {
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

/// Raises a counter to a value; concurrent scrapes may have raised it already.
fn raise(counter: &Counter, to: f64) {
    let by = to - counter.get();
    if by > 0.0 {
        counter.inc_by(by);
    }
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
}
