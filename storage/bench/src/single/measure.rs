//! Measurement by callers that read in a closed loop. In: a tier, an object and a workload. Out: their figures.

use super::object::Subject;
use super::options::{Into, Pattern, Workload};
use crate::chance::Zipf;
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tierlab_protocol::via::ViaSet;
use tierlab_storage::device::Landed;
use tierlab_storage::{ReadCost, ReadMany, Tier};

/// Longest latency in the histogram, in nanoseconds: 10 minutes.
const LONGEST_NS: u64 = 600_000_000_000;

/// Figures of the callers inside the window.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Latency of each call, in nanoseconds.
    pub(crate) latency_ns: Histogram<u64>,
    /// Length of the measured window.
    pub(crate) elapsed: Duration,
    pub(crate) interrupted: bool,
    pub(crate) totals: Totals,
}

/// Sums over all calls.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) calls: u64,
    pub(crate) asked_bytes: u64,
    pub(crate) wire_bytes: u64,
    pub(crate) requests: u64,
    pub(crate) retries: u64,
    pub(crate) cache_hits: u64,
    pub(crate) cache_misses: u64,
    pub(crate) queue: Duration,
    pub(crate) device: Duration,
    pub(crate) copy: Duration,
    pub(crate) via: ViaSet,
}

/// State shared by the callers.
struct Course {
    tier: Arc<dyn Tier>,
    subject: Subject,
    workload: Workload,
    blocks: u64,
    zipf: Option<Zipf>,
    /// Index of the next block of a sequential read.
    next: AtomicU64,
    measure_from: Instant,
    until: Instant,
    stop: AtomicBool,
}

impl Course {
    /// Returns the ranges of the next call.
    fn ranges(&self, random: &mut u64) -> Vec<Range<u64>> {
        let Workload {
            pattern,
            block_bytes,
            ranges_per_call,
            ..
        } = self.workload;
        let count = u64::from(ranges_per_call);
        let first = match pattern {
            Pattern::Random | Pattern::Zipf => 0,
            Pattern::Sequential => self.next.fetch_add(count, Ordering::Relaxed),
        };
        let range = |i| {
            let block = match (pattern, &self.zipf) {
                (Pattern::Sequential, _) => (first + i) % self.blocks,
                // The upper 53 bits fill a double's mantissa.
                (_, Some(zipf)) => zipf.block((next_random(random) >> 11) as f64 / (1_u64 << 53) as f64),
                (_, None) => next_random(random) % self.blocks,
            };
            let start = block * block_bytes;
            start..(start + block_bytes).min(self.subject.object.size)
        };
        (0..count).map(range).collect()
    }
}

/// Result of a call.
enum Came {
    Host(ReadMany),
    Device(Landed),
}

impl Course {
    async fn read(&self, ranges: &[Range<u64>]) -> Result<Came> {
        let object = &self.subject.object;
        let came = match (self.workload.into, self.tier.device()) {
            (Into::Device, Some(device)) => device.read_to_device(object, ranges).await.map(Came::Device),
            _ => self.tier.read_many(object, ranges).await.map(Came::Host),
        };
        came.context("a read failed")
    }
}

impl Came {
    /// Checks the bytes. Bytes on the device are checked only during the warm-up, because the check copies them.
    fn check(self, course: &Course, ranges: &[Range<u64>], warming_up: bool) -> Result<ReadCost> {
        let right = |range: &Range<u64>, part: &[u8], len: usize| {
            let right = len as u64 == range.end - range.start && course.subject.looks_right(range.start, part);
            ensure!(right, "{}: the bytes {range:?} are wrong", course.subject.object.path);
            Ok(())
        };
        match self {
            Self::Host(read) => {
                for (range, part) in ranges.iter().zip(&read.parts) {
                    right(range, part, part.len())?;
                }
                Ok(read.cost)
            }
            Self::Device(landed) => {
                for (range, part) in ranges.iter().zip(&landed.parts).filter(|_| warming_up) {
                    let mut beginning = vec![0; part.len().min(8)];
                    landed.bytes.to_host(part.start, &mut beginning)?;
                    right(range, &beginning, part.len())?;
                }
                Ok(landed.cost)
            }
        }
    }
}

/// One step of SplitMix64 (Steele, Lea and Flood, 2014), which suffices for the choice of blocks.
const fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Measures. Ctrl-C ends it early, with the results so far.
pub(crate) async fn run(tier: &Arc<dyn Tier>, subject: &Subject, workload: &Workload) -> Result<Measured> {
    let measure_from = Instant::now() + workload.warmup;
    let course = Arc::new(Course {
        tier: tier.clone(),
        subject: subject.clone(),
        workload: workload.clone(),
        blocks: workload.blocks(subject.object.size),
        zipf: workload.zipf(subject.object.size)?,
        next: AtomicU64::new(0),
        measure_from,
        until: measure_from + workload.window,
        stop: AtomicBool::new(false),
    });
    let callers: Vec<_> = (0..workload.depth)
        .map(|caller| tokio::spawn(call(course.clone(), caller)))
        .collect();
    let watch = tokio::spawn({
        let course = course.clone();
        async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                course.stop.store(true, Ordering::Relaxed);
            }
        }
    });
    let mut latency_ns = Histogram::new_with_max(LONGEST_NS, 3)?;
    let mut totals = Totals::default();
    let mut failure = None;
    for caller in callers {
        match caller.await? {
            Ok((latencies, sums)) => {
                latency_ns.add(latencies)?;
                totals.add(&sums);
            }
            Err(error) => failure = Some(error),
        }
    }
    watch.abort();
    if let Some(error) = failure {
        return Err(error);
    }
    let elapsed = measure_from.elapsed().min(workload.window.max(Duration::from_nanos(1)));
    ensure!(
        totals.calls > 0,
        "no call finished in {:.1} s: measure for longer",
        elapsed.as_secs_f64()
    );
    Ok(Measured {
        latency_ns,
        elapsed,
        interrupted: course.stop.load(Ordering::Relaxed),
        totals,
    })
}

/// Runs one caller. Calls that end inside the window count.
async fn call(course: Arc<Course>, caller: u32) -> Result<(Histogram<u64>, Totals)> {
    let mut latencies = Histogram::new_with_max(LONGEST_NS, 3)?;
    let mut totals = Totals::default();
    let mut random = course.workload.seed ^ (u64::from(caller) << 32);
    while !course.stop.load(Ordering::Relaxed) {
        let ranges = course.ranges(&mut random);
        let begun = Instant::now();
        let read = course.read(&ranges).await;
        let ended = Instant::now();
        let cost = read
            .inspect_err(|_| course.stop.store(true, Ordering::Relaxed))?
            .check(&course, &ranges, begun < course.measure_from)?;
        if ended >= course.until {
            break;
        }
        if ended >= course.measure_from {
            latencies.saturating_record((ended - begun).as_nanos() as u64);
            totals.calls += 1;
            totals.asked_bytes += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
            totals.wire_bytes += cost.wire_bytes;
            totals.requests += u64::from(cost.requests);
            totals.retries += u64::from(cost.retries);
            totals.cache_hits += u64::from(cost.cache_hits);
            totals.cache_misses += u64::from(cost.cache_misses);
            totals.queue += cost.queue;
            totals.device += cost.device;
            totals.copy += cost.copy;
            totals.via = totals.via.union(cost.via);
        }
    }
    Ok((latencies, totals))
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.asked_bytes += other.asked_bytes;
        self.wire_bytes += other.wire_bytes;
        self.requests += other.requests;
        self.retries += other.retries;
        self.cache_hits += other.cache_hits;
        self.cache_misses += other.cache_misses;
        self.queue += other.queue;
        self.device += other.device;
        self.copy += other.copy;
        self.via = self.via.union(other.via);
    }
}
