//! The process and its async runtime: what the kernel and tokio say of them, read at each scrape.
//!
//! In: nothing. Out: the metrics that every Prometheus client exports of its process, with their usual names, and tokio's
//! threads and tasks. What cannot be read is left out of the scrape.

use crate::telemetry::counters::AbandonedSession;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, IntGauge};
use std::fs;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tierlab_protocol::metrics as names;

/// The unit of times in `/proc`: `USER_HZ`, 100 on every architecture that this runs on.
const TICKS_PER_S: f64 = 100.0;

/// Reads the process's own figures.
pub(super) struct ProcessCollector {
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

impl ProcessCollector {
    pub(super) fn new() -> prometheus::Result<Self> {
        let start_seconds = Gauge::new(names::PROCESS_START_SECONDS, "When the process started, Unix time.")?;
        start_seconds.set(start_time().unwrap_or_else(now).as_secs_f64());
        let max_fds = IntGauge::new(names::PROCESS_MAX_FDS, "File descriptors that may be open at most.")?;
        if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
            max_fds.set(i64::try_from(soft).unwrap_or(i64::MAX));
        }
        Ok(Self {
            cpu_seconds: Counter::new(names::PROCESS_CPU_SECONDS, "CPU time of the process, user and system.")?,
            resident_bytes: IntGauge::new(names::PROCESS_RESIDENT_BYTES, "Memory of the process in RAM.")?,
            virtual_bytes: IntGauge::new(names::PROCESS_VIRTUAL_BYTES, "Address space of the process.")?,
            threads: IntGauge::new(names::PROCESS_THREADS, "Threads of the process.")?,
            open_fds: IntGauge::new(
                names::PROCESS_OPEN_FDS,
                "Open file descriptors, connections among them.",
            )?,
            max_fds,
            start_seconds,
            uptime_seconds: Gauge::new(names::UPTIME_SECONDS, "Time since the server began to start.")?,
            runtime_workers: IntGauge::new(names::RUNTIME_WORKERS, "Threads of the async runtime.")?,
            runtime_tasks: IntGauge::new(names::RUNTIME_TASKS, "Tasks of the async runtime that have not ended.")?,
            runtime_busy_seconds: Counter::new(
                names::RUNTIME_BUSY_SECONDS,
                "Time in which threads of the async runtime were not parked, summed over them.",
            )?,
            stuck_decodes: IntGauge::new(
                names::STUCK_DECODES,
                "Threads that do not come to an end of decoding a damaged shard of a table.",
            )?,
            abandoned_sessions: IntGauge::new(
                names::ABANDONED_SESSIONS,
                "Sessions of loads that were given up and whose threads have not ended.",
            )?,
            started: Instant::now(),
        })
    }

    fn read_kernel(&self) {
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
            raise(&self.cpu_seconds, us as f64 / 1e6);
        }
        if let Ok(status) = fs::read_to_string("/proc/self/status") {
            let field = |name: &str| -> Option<i64> {
                let line = status.lines().find_map(|line| line.strip_prefix(name))?;
                line.split_whitespace().next()?.parse().ok()
            };
            for (gauge, name, unit) in [
                (&self.resident_bytes, "VmRSS:", 1024),
                (&self.virtual_bytes, "VmSize:", 1024),
                (&self.threads, "Threads:", 1),
            ] {
                if let Some(value) = field(name) {
                    gauge.set(value * unit);
                }
            }
        }
        if let Some(count) = open_fds() {
            self.open_fds.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    fn read_runtime(&self) {
        self.stuck_decodes
            .set(i64::try_from(stuck_decodes()).unwrap_or(i64::MAX));
        self.abandoned_sessions
            .set(i64::try_from(AbandonedSession::count()).unwrap_or(i64::MAX));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let runtime = runtime.metrics();
        let workers = runtime.num_workers();
        self.runtime_workers.set(i64::try_from(workers).unwrap_or(i64::MAX));
        self.runtime_tasks
            .set(i64::try_from(runtime.num_alive_tasks()).unwrap_or(i64::MAX));
        let busy: Duration = (0..workers)
            .map(|worker| runtime.worker_total_busy_duration(worker))
            .sum();
        raise(&self.runtime_busy_seconds, busy.as_secs_f64());
    }

    fn every(&self) -> [&dyn Collector; 13] {
        [
            &self.cpu_seconds,
            &self.resident_bytes,
            &self.virtual_bytes,
            &self.threads,
            &self.open_fds,
            &self.max_fds,
            &self.start_seconds,
            &self.uptime_seconds,
            &self.runtime_workers,
            &self.runtime_tasks,
            &self.runtime_busy_seconds,
            &self.stuck_decodes,
            &self.abandoned_sessions,
        ]
    }
}

/// Number of decodes of damaged shards that were given up and still run.
fn stuck_decodes() -> usize {
    #[cfg(feature = "layouts")]
    return tierlab_layouts::stuck_decodes();
    #[cfg(not(feature = "layouts"))]
    0
}

/// Lifts a counter to what it counts; two scrapes at once may have lifted it already.
fn raise(counter: &Counter, to: f64) {
    let by = to - counter.get();
    if by > 0.0 {
        counter.inc_by(by);
    }
}

/// Since Linux 6.2 the folder's size is the count; before, it has to be listed, with the listing itself counted.
fn open_fds() -> Option<u64> {
    match fs::metadata("/proc/self/fd").ok()?.len() {
        0 => Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64 - 1),
        count => Some(count),
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// When the process started, since 1970: its ticks after the boot, and the boot's time.
fn start_time() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, the name in brackets, may hold anything; field 22 is the twentieth behind it.
    let ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let boot: f64 = stat
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?
        .trim()
        .parse()
        .ok()?;
    Duration::try_from_secs_f64(boot + ticks / TICKS_PER_S).ok()
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.every().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.read_kernel();
        self.read_runtime();
        self.uptime_seconds.set(self.started.elapsed().as_secs_f64());
        self.every().into_iter().flat_map(Collector::collect).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_figures_are_those_of_this_process() {
        let process = ProcessCollector::new().unwrap();
        let spin = Instant::now();
        while getrusage(UsageWho::RUSAGE_SELF).unwrap().user_time().num_microseconds() < 1_000 {
            assert!(spin.elapsed() < Duration::from_secs(30));
        }
        assert_eq!(process.collect().len(), process.every().len());
        assert!(process.cpu_seconds.get() > 0.0);
        assert!(process.resident_bytes.get() > 1 << 20 && process.virtual_bytes.get() >= process.resident_bytes.get());
        assert!(process.threads.get() >= 1 && process.open_fds.get() >= 3);
        assert!(process.max_fds.get() > process.open_fds.get());
        assert!((now().as_secs_f64() - process.start_seconds.get()).abs() < 3600.0);
        assert_eq!(process.runtime_workers.get(), 1);
        let before = process.open_fds.get();
        let file = fs::File::open("/proc/self/status").unwrap();
        process.collect();
        assert!(process.open_fds.get() > before);
        drop(file);
    }
}
