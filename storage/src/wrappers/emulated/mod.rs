//! Remote service emulated over a tier. In: a tier, latencies, rates, faults and a seed. Out: the same bytes, later, or
//! an error. Every measurement through it carries the note `emulated: PROFILE`.
//!
//! The tier itself is read first. Then the service's time is added, for the requests and bytes that the tier reports.
//! Latencies and errors are drawn by call number, so that the same calls in the same order draw the same values. The
//! time of an answer depends on its draws and on the other calls in service.
//!
//! A recorded tier is replayed differently, because the recorded latencies are those of whole reads. A read ends after
//! its recorded latency, counted from its start. The time of the tier below is part of that latency.

mod config;
mod latency;
mod model;
mod recorded;
mod shared;
mod timer;

pub use config::{EmulatedConfig, Stall};
pub use latency::{InjectedError, LatencyConfig};
pub use recorded::{
    Recorded, RecordedEnvironment, RecordedLimits, RecordedOrigin, RecordedPoint, RecordedRound, SCHEMA,
};

use crate::limits::check_ranges;
use crate::metrics::EmulatedMetrics;
use crate::{Body, ErrorKind, Object, ObjectPath, Read, ReadCost, ReadMany, StorageError, Tier, TierInfo};
use async_trait::async_trait;
use config::Emulation;
use latency::ErrorRule;
use model::{Model, Request, Schedule};
use parking_lot::Mutex;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use shared::SharedService;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use timer::{Arrival, Replay, Timer};

/// Objects in the reply to a listing's request, as of S3: the next request follows it.
const PAGE_OBJECTS: usize = 1000;
/// Maximum pause between two attempts of a request.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Tier behind an emulated service.
pub struct Emulated {
    inner: Arc<dyn Tier>,
    service: Emulation,
    /// Generator with the seed; each call uses its own stream.
    draws: ChaCha8Rng,
    calls: AtomicU64,
    opened: Instant,
    model: Mutex<Model>,
    timer: Timer,
    replay: Replay,
    metrics: EmulatedMetrics,
}

/// Latencies and faults drawn for a call.
#[derive(Default)]
struct Drawn<'a> {
    requests: Vec<Request>,
    retries: u32,
    /// All errors, including those that a retry recovered from.
    faults: Vec<ErrorKind>,
    /// First error that no retry recovered from.
    fault: Option<&'a ErrorRule>,
}

impl Emulated {
    /// Wraps a tier.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], naming the key; also fails if the thread of the timer cannot be started.
    pub fn new(inner: Arc<dyn Tier>, config: &EmulatedConfig, metrics: EmulatedMetrics) -> Result<Self, StorageError> {
        let service = config.resolve()?;
        let shared = service.table.shared.as_deref().map(SharedService::open).transpose()?;
        let timer = Timer::start().map_err(|e| StorageError::from_io("emulated-timer", &e))?;
        Ok(Self {
            inner,
            draws: ChaCha8Rng::seed_from_u64(service.seed),
            service,
            calls: AtomicU64::new(0),
            opened: Instant::now(),
            model: Mutex::new(Model::of(shared)),
            timer,
            replay: Replay::default(),
            metrics,
        })
    }

    /// Starts a call with `reads` concurrent reads.
    fn arrive(&self, reads: usize) -> Arrival<'_> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        self.replay.arrive(call, reads)
    }

    /// Draws latencies and faults of a call's requests; `bytes` are their sizes, `in_flight` the number of reads in
    /// flight.
    fn draw(&self, call: u64, in_flight: u32, bytes: impl Iterator<Item = u64>) -> Drawn<'_> {
        let mut rng = self.draws.clone();
        rng.set_stream(call);
        let mut drawn = Drawn::default();
        for bytes in bytes {
            let (mut latency, mut fault) = self.attempt(&mut rng, in_flight, bytes);
            let mut pause = self.service.retry_delay;
            drawn.faults.extend(fault.map(|fault| fault.kind));
            for _ in 0..self.service.retries {
                if !fault.is_some_and(|fault| fault.kind.is_transient()) {
                    break;
                }
                let (again, next) = self.attempt(&mut rng, in_flight, bytes);
                latency += pause + again;
                pause = (pause * 2).min(MAX_PAUSE);
                fault = next;
                drawn.faults.extend(fault.map(|fault| fault.kind));
                drawn.retries += 1;
            }
            let bytes = if fault.is_some() { 0 } else { bytes };
            drawn.requests.push(Request { latency, bytes });
            drawn.fault = drawn.fault.or(fault);
        }
        drawn
    }

    /// Draws an attempt of a request: the time to its first byte (to its last byte for a recorded tier), or its error.
    fn attempt(&self, rng: &mut ChaCha8Rng, in_flight: u32, bytes: u64) -> (Duration, Option<&ErrorRule>) {
        let latency = match &self.service.law {
            Some(law) => {
                let us = law.latency_us(latency::uniform(rng), bytes, in_flight);
                Duration::from_secs_f64(us / 1e6)
            }
            None => self.service.latency.sample(rng),
        };
        let mut share = latency::uniform(rng);
        let fault = self.service.errors.iter().find(|fault| {
            let is_drawn = share <= fault.rate;
            share -= fault.rate;
            is_drawn
        });
        (fault.and_then(|fault| fault.after).unwrap_or(latency), fault)
    }

    /// Waits for the service time. Returns the schedule and the retries, or the drawn error.
    async fn serve(
        &self,
        object: &str,
        arrival: &Arrival<'_>,
        bytes: impl Iterator<Item = u64>,
    ) -> Result<(Schedule, u32), StorageError> {
        let call = arrival.call;
        let drawn = self.draw(call, arrival.in_flight, bytes);
        drawn.faults.iter().for_each(|fault| self.metrics.count(*fault));
        let now = Instant::now();
        let is_replayed = self.service.law.is_some();
        let since = if is_replayed { arrival.at } else { now };
        let arrived = since.saturating_duration_since(self.opened);
        let table = &self.service.table;
        let plan = self.model.lock().admit(table, arrived, &drawn.requests);
        let due = self.opened + arrived + plan.queue + plan.device;
        if is_replayed {
            self.replay.wait_until(&self.timer, due).await;
        } else {
            self.timer.wait_until(due).await;
        }
        match drawn.fault {
            None => {
                let queue = plan.queue;
                // The tier below has already counted its own time.
                let device = now.elapsed().saturating_sub(queue);
                Ok((Schedule { queue, device }, drawn.retries))
            }
            Some(fault) => {
                let detail = format!("emulated {} of call {call} ({})", fault.kind, self.service.label);
                Err(fault.kind.error(object, detail))
            }
        }
    }

    /// Adds the service's time after the tier's own read. A failed read counts as a single request without bytes.
    async fn serve_read(
        &self,
        name: &str,
        ranges: &[Range<u64>],
        arrival: &Arrival<'_>,
        read: Result<&mut ReadCost, &StorageError>,
    ) -> Result<(), StorageError> {
        match read {
            Ok(cost) if cost.requests > 0 => {
                let (plan, retries) = if self.service.law.is_some() {
                    // Independent of the tier's own requests: the recorded time is that of whole reads.
                    let sizes = ranges.iter().map(|range| range.end - range.start);
                    self.serve(name, arrival, sizes).await?
                } else {
                    let (count, whole) = (u64::from(cost.requests), cost.wire_bytes);
                    let share = |i| whole / count + u64::from(i < whole % count);
                    self.serve(name, arrival, (0..count).map(share)).await?
                };
                cost.queue += plan.queue;
                cost.device += plan.device;
                cost.requests += retries;
                cost.retries += retries;
            }
            Ok(_) => {}
            Err(_) => {
                self.serve(name, arrival, std::iter::once(0)).await?;
            }
        }
        Ok(())
    }

    /// Serves a call that is a single request without bytes.
    async fn serve_empty(&self, object: &str) -> Result<(), StorageError> {
        let arrival = self.arrive(1);
        self.serve(object, &arrival, std::iter::once(0)).await.map(drop)
    }
}

#[async_trait]
impl Tier for Emulated {
    fn info(&self) -> TierInfo {
        let mut info = self.inner.info();
        let Emulation { label, seed, .. } = &self.service;
        info.wrappers.insert(0, format!("emulated({label}, seed {seed})"));
        info.notes.push(format!("emulated: {label}"));
        if self.service.table.shared.is_some() {
            info.notes
                .push("the emulated service is shared with other processes of this machine".to_owned());
        }
        info.notes.extend(self.replay.shortfall());
        info
    }

    async fn stat(&self, path: &ObjectPath) -> Result<Object, StorageError> {
        self.serve_empty(path.as_str()).await?;
        self.inner.stat(path).await
    }

    async fn read(&self, object: &Object, range: Range<u64>) -> Result<Read, StorageError> {
        check_ranges(object, std::slice::from_ref(&range))?;
        let arrival = self.arrive(1);
        let mut read = self.inner.read(object, range.clone()).await;
        let cost = read.as_mut().map(|read| &mut read.cost).map_err(|e| &*e);
        self.serve_read(object.path.as_str(), &[range], &arrival, cost).await?;
        read
    }

    async fn read_many(&self, object: &Object, ranges: &[Range<u64>]) -> Result<ReadMany, StorageError> {
        check_ranges(object, ranges)?;
        let arrival = self.arrive(ranges.len());
        let mut read = self.inner.read_many(object, ranges).await;
        let cost = read.as_mut().map(|read| &mut read.cost).map_err(|e| &*e);
        self.serve_read(object.path.as_str(), ranges, &arrival, cost).await?;
        read
    }

    async fn read_whole(&self, path: &ObjectPath, bytes: u64) -> Result<Read, StorageError> {
        let mut arrival = self.arrive(1);
        let mut read = self.inner.read_whole(path, bytes).await;
        // A look-up by the tier below also counts as a request to the service, and precedes the read.
        let look_ups = read.as_ref().map_or(0, |Read { cost, .. }| {
            cost.requests.saturating_sub(1 + cost.retries + cost.hedges).min(1)
        });
        let began = Instant::now();
        if look_ups > 0 {
            self.serve_empty(path.as_str()).await?;
            arrival.at = Instant::now();
        }
        let look_up = began.elapsed();
        let cost = read.as_mut().map(|read| {
            read.cost.requests -= look_ups;
            &mut read.cost
        });
        let (cost, whole) = (cost.map_err(|e| &*e), 0..bytes);
        self.serve_read(path.as_str(), &[whole], &arrival, cost).await?;
        let mut read = read?;
        read.cost.requests += look_ups;
        read.cost.device += look_up;
        Ok(read)
    }

    fn inner(&self) -> Option<&dyn Tier> {
        Some(&*self.inner)
    }

    async fn list(&self, prefix: Option<&ObjectPath>) -> Result<Vec<Object>, StorageError> {
        let name = prefix.map_or("", ObjectPath::as_str);
        self.serve_empty(name).await?;
        let listed = self.inner.list(prefix).await?;
        for _ in 1..listed.len().div_ceil(PAGE_OBJECTS) {
            self.serve_empty(name).await?;
        }
        Ok(listed)
    }

    async fn put(&self, path: &ObjectPath, body: Body) -> Result<Object, StorageError> {
        let bytes = match &body {
            Body::Bytes(bytes) => bytes.len() as u64,
            // The tier reports missing files.
            Body::File(file) => tokio::fs::metadata(file).await.map_or(0, |meta| meta.len()),
        };
        let arrival = self.arrive(1);
        // Before the write, so that after an injected error nothing was written.
        self.serve(path.as_str(), &arrival, std::iter::once(bytes)).await?;
        self.inner.put(path, body).await
    }

    async fn delete(&self, path: &ObjectPath) -> Result<(), StorageError> {
        self.serve_empty(path.as_str()).await?;
        self.inner.delete(path).await
    }
}

#[cfg(test)]
mod tests;
