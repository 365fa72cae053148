//! Four measurements of one workload on one tier. In: a table and sessions. Out: for each, rows per second and the
//! breakdown of time.

use super::loader::{LoaderFigures, LoaderSource, Queue, pieces};
use super::plan::{Accelerator, OfflinePlan};
use super::workload::Batch;
use crate::machine::{MachineMonitor, MachineUse};
use crate::stop::{POLL_INTERVAL, Stop, sleep_until};
use anyhow::{Context, Result, anyhow, ensure};
use ort::session::Session;
use procfs::process::Process;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Bytes of the batches for the model alone: more than the processor's caches hold, like a loader's batches.
const IN_MEMORY_BYTES: u64 = 128 << 20;
/// Minimum batches of a window, which is extended until they have ended.
const MIN_BATCHES: usize = 8;
/// Maximum length of an extended window, in windows.
const MAX_WINDOWS: u32 = 20;

/// Figures of one measurement.
#[derive(Debug, Clone, Default)]
pub(super) struct StreamFigures {
    pub(super) rows: u64,
    /// Time from the end of the window's first batch to the end of its last; at least the time of the later batches per session.
    pub(super) elapsed_s: f64,
    /// Time in which the sessions ran the model, summed over all sessions.
    pub(super) running_s: f64,
    /// Time in which sessions waited for a batch, summed over all sessions.
    pub(super) waiting_s: f64,
    /// Machine during the window.
    pub(super) machine: MachineUse,
    pub(super) window_s: f64,
    /// Peak memory of the process.
    pub(super) peak_bytes: u64,
    /// Work of the loader, including warm-up.
    pub(super) loaded: LoaderFigures,
}

impl StreamFigures {
    /// Rows per second.
    pub(super) fn rate(&self) -> f64 {
        self.rows as f64 / self.elapsed_s.max(1e-9)
    }

    /// CPU time of the whole process per row, in microseconds.
    pub(super) fn cpu_us(&self) -> f64 {
        1e6 * self.machine.own_cpu_s / (self.rate() * self.window_s).max(1.0)
    }

    /// Share of all cores used by others.
    pub(super) fn others_share(&self) -> f64 {
        let machine = &self.machine;
        machine.foreign_cpu_share.unwrap_or(0.0) + machine.steal_share.unwrap_or(0.0)
    }
}

/// One repeat of the four measurements.
#[derive(Debug, Clone)]
pub(super) struct OfflineRepeat {
    pub(super) loader: StreamFigures,
    pub(super) inference: StreamFigures,
    pub(super) both: StreamFigures,
    pub(super) naive: StreamFigures,
    /// Loader with `count` accelerators.
    pub(super) by_count: BTreeMap<u32, StreamFigures>,
}

/// Finished batch.
struct Done {
    at: Instant,
    rows: usize,
    waiting: Duration,
    running: Duration,
}

/// Consumer of batches: a session, or nobody.
type Consumer<'a> = Box<dyn FnMut(&Batch) -> Result<()> + Send + 'a>;

/// Measured case, with the runtime of its loader.
pub(super) struct Case<'a> {
    pub(super) runtime: &'a Runtime,
    pub(super) source: LoaderSource,
    pub(super) plan: &'a OfflinePlan,
    pub(super) interrupt: &'a Stop,
}

/// Accelerators that compute for a fixed time per batch, or until an interrupt.
fn accelerators<'a>(of: &Accelerator, count: u32, interrupt: &'a Stop) -> Vec<Consumer<'a>> {
    let one = |_| -> Consumer<'a> {
        let compute = of.compute();
        Box::new(move |_| {
            // Otherwise the kernel wakes it up to 50 µs late, which counts as waiting for data.
            let _ = nix::sys::prctl::set_timerslack(1);
            sleep_until(Instant::now() + compute, POLL_INTERVAL, || interrupt.is_requested());
            Ok(())
        })
    };
    (0..count).map(one).collect()
}

impl Case<'_> {
    /// Runs all measurements once.
    pub(super) fn measure(&self, sessions: &mut [Session]) -> Result<OfflineRepeat> {
        let loader = self.measure_stream(vec![Box::new(|_| Ok(()))])?;
        let inference = self.measure_in_memory(self.runners(sessions))?;
        let both = self.measure_stream(self.runners(sessions))?;
        let first = sessions.len().min(1);
        let naive = self.measure_sequential(self.runners(&mut sessions[..first]))?;
        let mut by_count = BTreeMap::new();
        if let Some(accelerator) = &self.source.workload.accelerator {
            for &count in &accelerator.count {
                let all = accelerators(accelerator, count, self.interrupt);
                by_count.insert(count, self.measure_stream(all)?);
            }
        }
        Ok(OfflineRepeat {
            loader,
            inference,
            both,
            naive,
            by_count,
        })
    }

    /// Returns the sessions, or accelerators instead.
    fn runners<'s>(&'s self, sessions: &'s mut [Session]) -> Vec<Consumer<'s>> {
        let workload = &self.source.workload;
        if let Some(accelerator) = &workload.accelerator {
            return accelerators(accelerator, 1, self.interrupt);
        }
        let runner = |session: &'s mut Session| -> Consumer<'s> { Box::new(move |batch| workload.run(session, batch)) };
        sessions.iter_mut().map(runner).collect()
    }

    /// Measures batches from the loader.
    fn measure_stream(&self, consumers: Vec<Consumer<'_>>) -> Result<StreamFigures> {
        // Scoped threads panic if they cannot start.
        tierlab_program::can_start_workers(consumers.len())?;
        let stop = Arc::new(AtomicBool::new(false));
        let queue = Queue::new(self.source.workload.batches_in(self.plan.loader.ready_bytes.0));
        std::thread::scope(|scope| {
            let loading = {
                let (queue, stop) = (&queue, Arc::clone(&stop));
                scope.spawn(move || {
                    let _guard = queue.close_on_drop();
                    self.source.load(self.runtime, queue, &stop)
                })
            };
            // Batches that are ready at the end are not consumed: a slow session would take minutes for them.
            let next = || queue.take().filter(|_| !stop.load(Ordering::Acquire));
            let feeds = consumers.into_iter().map(|consumer| (next, consumer));
            let figures = self.feed(feeds.collect(), &stop, || loading.is_finished());
            // After a session failed, the loader must not wait for it.
            while queue.take().is_some() {}
            let loaded = loading.join().map_err(|_| anyhow!("the loader panicked"))??;
            Ok(StreamFigures { loaded, ..figures? })
        })
    }

    /// Measures batches that are in memory.
    fn measure_in_memory(&self, consumers: Vec<Consumer<'_>>) -> Result<StreamFigures> {
        tierlab_program::can_start_workers(consumers.len())?;
        let workload = &self.source.workload;
        let mut rows = workload.table.rows().cycle();
        let mut batches = Vec::new();
        // Accelerators look at no bytes: one batch is enough.
        let is_emulated = workload.accelerator.is_some();
        let bytes = if is_emulated { 0 } else { IN_MEMORY_BYTES };
        for _ in 0..workload.batches_in(bytes) {
            let mut batch = workload.batch();
            while batch.rows < workload.batch_rows {
                workload.add(&mut batch, rows.next().context("the table has no rows")?)?;
            }
            batches.push(batch);
        }
        let stop = AtomicBool::new(false);
        let feeds = consumers.into_iter().map(|consumer| {
            let (mut ring, stop) = (batches.iter().cycle(), &stop);
            let next = move || ring.next().filter(|_| !stop.load(Ordering::Acquire));
            (next, consumer)
        });
        self.feed(feeds.collect(), &stop, || false)
    }

    /// Measures one read, then its batch, then the next read.
    fn measure_sequential(&self, consumers: Vec<Consumer<'_>>) -> Result<StreamFigures> {
        let LoaderSource {
            table, workload, seed, ..
        } = &self.source;
        let stop = AtomicBool::new(false);
        let (mut loaded, mut failed) = (LoaderFigures::default(), None);
        let mut pieces = pieces(&workload.table.header.ids(), workload.batch_rows as u64, *seed);
        let next = || {
            let ids = pieces.next().filter(|_| !stop.load(Ordering::Acquire))?;
            let started = Instant::now();
            let read = self.runtime.block_on(table.look_up(&ids));
            let batch = read.map_err(anyhow::Error::from).and_then(|rows| {
                loaded.add(&rows, started.elapsed());
                let mut batch = workload.batch();
                rows.iter().try_for_each(|row| workload.add(&mut batch, row))?;
                Ok(batch)
            });
            batch.map_err(|error| failed = Some(error)).ok()
        };
        let feeds = std::iter::once(next).zip(consumers).collect();
        let figures = self.feed(feeds, &stop, || false);
        failed.map_or_else(|| Ok(StreamFigures { loaded, ..figures? }), Err)
    }

    /// Feeds each consumer on a thread of its own for the time of a measurement, then sets `stop`, which ends the feeds. Ends early if a
    /// consumer ends, or once `is_over`.
    fn feed<B: Borrow<Batch>>(
        &self,
        feeds: Vec<(impl FnMut() -> Option<B> + Send, Consumer<'_>)>,
        stop: &AtomicBool,
        is_over: impl Fn() -> bool,
    ) -> Result<StreamFigures> {
        let ended = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let spawn = |(next, mut consumer)| {
                let ended = &ended;
                scope.spawn(move || consume(next, &mut consumer, ended))
            };
            let threads: Vec<ScopedJoinHandle<'_, _>> = feeds.into_iter().map(spawn).collect();
            let sessions = threads.len();
            let is_over = || is_over() || threads.iter().any(ScopedJoinHandle::is_finished);
            let (window, of_window) = self.wait(&ended, is_over);
            stop.store(true, Ordering::Release);
            let mut done = Vec::new();
            for thread in threads {
                done.extend(thread.join().map_err(|_| anyhow!("a session's thread panicked"))??);
            }
            figures(done, sessions, &window, of_window)
        })
    }

    /// Waits for the warm-up and the window, which is extended if few batches end, or until the measurement is over or interrupted. Returns
    /// the window, and the figures of the machine and the process.
    fn wait(&self, ended: &AtomicUsize, is_over: impl Fn() -> bool) -> (RangeInclusive<Instant>, StreamFigures) {
        let is_over = || self.interrupt.is_requested() || is_over();
        let sleep = |time: Duration| sleep_until(Instant::now() + time, POLL_INTERVAL, is_over);
        sleep(self.plan.warmup());
        let before = ended.load(Ordering::Relaxed);
        // Resets the kernel's count of peak memory.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let (window, monitor) = (self.plan.window(), MachineMonitor::default());
        let (started, first) = (Instant::now(), monitor.sample());
        sleep(window);
        let has_few_batches = || ended.load(Ordering::Relaxed) - before < MIN_BATCHES;
        while has_few_batches() && started.elapsed() < window * MAX_WINDOWS && !is_over() {
            sleep(POLL_INTERVAL);
        }
        let (ended, last) = (Instant::now(), monitor.sample());
        let status = Process::myself().and_then(|own| own.status()).ok();
        let figures = StreamFigures {
            machine: last.since(&first),
            window_s: (ended - started).as_secs_f64(),
            peak_bytes: status.and_then(|status| status.vmhwm).unwrap_or(0) * 1024,
            ..StreamFigures::default()
        };
        (started..=ended, figures)
    }
}

/// Consumes batches until there are no more.
fn consume<B: Borrow<Batch>>(
    mut next: impl FnMut() -> Option<B>,
    consumer: &mut dyn FnMut(&Batch) -> Result<()>,
    ended: &AtomicUsize,
) -> Result<Vec<Done>> {
    let mut done = Vec::new();
    loop {
        let started = Instant::now();
        let Some(batch) = next() else { return Ok(done) };
        let got = Instant::now();
        consumer(batch.borrow())?;
        let at = Instant::now();
        ended.fetch_add(1, Ordering::Relaxed);
        done.push(Done {
            at,
            rows: batch.borrow().rows,
            waiting: got - started,
            running: at - got,
        });
    }
}

/// Computes the figures of the batches that ended in the window. The first end starts the clock, so that partial batches at
/// either end do not count. Sessions in step end several batches at once, of which that clock would count all but one.
fn figures(
    mut done: Vec<Done>,
    sessions: usize,
    window: &RangeInclusive<Instant>,
    of_window: StreamFigures,
) -> Result<StreamFigures> {
    done.retain(|one| window.contains(&one.at));
    done.sort_unstable_by_key(|one| one.at);
    ensure!(
        done.len() > 2,
        "batches that ended within the window: {}; raise `seconds`, or lower `batch_rows` or `shuffle_rows`",
        done.len()
    );
    let counted = &done[1..];
    let sum = |of: fn(&Done) -> Duration| counted.iter().map(of).sum::<Duration>().as_secs_f64();
    let (running_s, waiting_s) = (sum(|one| one.running), sum(|one| one.waiting));
    let clock_s = (done[done.len() - 1].at - done[0].at).as_secs_f64();
    Ok(StreamFigures {
        rows: counted.iter().map(|one| one.rows as u64).sum(),
        elapsed_s: clock_s.max((running_s + waiting_s) / sessions as f64),
        running_s,
        waiting_s,
        ..of_window
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes a batch on an accelerator.
    fn compute(accelerator: &str, interrupt: &Stop) {
        let batch = Batch {
            rows: 1,
            inputs: Vec::new(),
        };
        accelerators(&toml::from_str(accelerator).unwrap(), 1, interrupt)[0](&batch).unwrap();
    }

    #[test]
    fn an_interrupt_ends_the_batch_of_an_accelerator() {
        let (stop, started) = (Stop::default(), Instant::now());
        stop.request();
        compute("compute_ms_per_batch = 60000.0", &stop);
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn an_accelerator_is_woken_without_slack() {
        compute("compute_ms_per_batch = 2.0", &Stop::default());
        // The kernel may wake a thread of the default up to 50 µs late.
        assert_eq!(nix::sys::prctl::get_timerslack(), Ok(1));
    }

    #[test]
    fn sessions_in_step_have_no_more_than_their_own_rate() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let done = (0..8).map(|number| Done {
            at: start + second * (1 + number / 4),
            rows: 10,
            waiting: Duration::ZERO,
            running: second,
        });
        let window = start..=start + second * 3;
        let of = figures(done.collect(), 4, &window, StreamFigures::default()).unwrap();
        assert!((of.rate() - 40.0).abs() < 1e-9, "{of:?}");
    }
}
