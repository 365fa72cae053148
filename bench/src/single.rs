//! One point by flags: the read speed of one tier. In: flags. Out: a report on standard output. The scripts that
//! compare tiers with their peers use it; [`crate::plan`] measures plans of many points.

use crate::content::{CHECKED_BYTES, Data, remove, unique_run_name, write};
use crate::drive::{Call, Caller, RepeatResult, RepeatRun, run_tasks};
use crate::machine::{MachineMonitor, own_cpu_s};
use crate::plan::{self, Access, Pattern, Point, bad_usage, parse_positive_seconds, parse_seconds, tier_config};
use crate::prepared_tier::runtime;
use crate::random::{Pick, Random, Zipf};
use crate::report::columns;
use crate::stop::{Stop, sleep_until};
use crate::ways::{Counted, drop_cache};
use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tierlab_analysis::record::samples_needed;
use tierlab_instrument::units::{digits3, parse_bytes};
use tierlab_storage::device::Landed;
use tierlab_storage::wrappers::{Cache, CacheConfig, StorageMetrics};
use tierlab_storage::{ObjectPath, StorageError, Tier, TierInfo};
use tokio::runtime::Runtime;

/// Content seed of objects written here.
const CONTENT_SEED: u64 = 7;

/// Measures one point and prints its report.
///
/// # Errors
/// Invalid flags or tier configuration, a failed read, an interrupt, or a run that is invalid.
pub(crate) fn run(options: &SingleOptions) -> Result<()> {
    let runtime = runtime(options.threads)?;
    let _context = runtime.enter();
    run_on(options, &runtime)
}

fn run_on(options: &SingleOptions, runtime: &Runtime) -> Result<()> {
    options.check()?;
    let config = tier_config(&options.tier, &options.set)?;
    let tier = runtime.block_on(tierlab_storage::open(&config));
    let tier = tier.context("cannot open the tier")?;
    let cache = options.cache_config(config.cache());
    let (tier, counter): (Arc<dyn Tier>, _) = match &cache {
        None => (tier, None),
        Some(cache) => {
            let counted = Counted::new(tier);
            let counter = Arc::clone(&counted.counts);
            let metrics = StorageMetrics::unscraped()?.cache(config.kind());
            (Arc::new(Cache::new(Arc::new(counted), cache, metrics)?), Some(counter))
        }
    };
    if options.into == ReadTarget::Device && tier.device().is_none() {
        let kind = config.kind();
        let what = format!("tier `{kind}` does not read into device memory: use a tier of kind `gds`, without a cache");
        return Err(bad_usage("--into", &what));
    }
    let stop = Stop::on_signal()?;
    let data = runtime.block_on(prepare(&tier, options, &stop))?;
    let measured = measure(runtime, &tier, &data, options, &stop);
    let tier_reads = counter.map(|counts| counts.calls.load(Ordering::Relaxed));
    let idle_cpu_share = match &measured {
        Ok(_) if !stop.is_requested() && !options.idle.is_zero() => Some(idle_cpu_share(options.idle, &stop)),
        _ => None,
    };
    // Data is also removed from the tier after a failed measurement.
    let removed = match data.seed {
        Some(_) => runtime.block_on(remove(&tier, data.objects.iter().cloned())),
        None => Ok(()),
    };
    let measured = measured?;
    let mut report = SingleReport::new(&tier.info(), &data, options, &measured);
    report.interrupted = stop.is_requested();
    report.tier_reads = tier_reads;
    // Known only if cache and workload use the same block size, and so the same ranks.
    let matching_cache = cache.filter(|cache| cache.block_bytes == options.block_bytes);
    if let (Some(cache), Some(zipf)) = (matching_cache, options.zipf(data.file_bytes)?) {
        report.best_hit_ratio = Some(zipf.best_hit_ratio(cache.max_blocks()));
    }
    report.idle_cpu_share = idle_cpu_share;
    report.invalid = tier.shortfall(measured.tally.via);
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text()?);
    }
    removed?;
    if report.interrupted {
        anyhow::bail!("interrupted: the figures cover {:.1} s", measured.window.as_secs_f64());
    }
    let invalid = report.invalid.map(|why| anyhow!("the run is invalid: {why}"));
    invalid.map_or(Ok(()), Err)
}

/// Returns the object to read: an existing one, or one written for the measurement.
async fn prepare(tier: &Arc<dyn Tier>, options: &SingleOptions, stop: &Stop) -> Result<Data> {
    let Some(path) = &options.object else {
        let path = ObjectPath::new(&format!("storage-bench/{}.bin", unique_run_name()))?;
        let object = write(tier.as_ref(), &path, CONTENT_SEED, options.size, stop).await?;
        let data = Data::of(vec![object], Some(CONTENT_SEED));
        // A local file was written through the page cache.
        let file = Path::new(&tier.info().location).join(path.as_str());
        if file.is_file() {
            drop_cache(&[file])?;
        }
        return Ok(data);
    };
    let object = tier.stat(&ObjectPath::new(path)?).await;
    let object = object.context("cannot inspect this object")?;
    ensure!(object.size > 0, "{path} is empty: choose another object");
    Ok(Data::of(vec![object], None))
}

/// Unmeasured time for the last reads' threads to fall asleep.
const SETTLE_TIME: Duration = Duration::from_millis(200);

struct ObjectCaller {
    run: Arc<RepeatRun>,
    tier: Arc<dyn Tier>,
    data: Data,
    into: ReadTarget,
    ranges: u32,
    random: Random,
}

/// Measures until the window is over or an interrupt, with callers of one object in a closed loop.
fn measure(
    runtime: &Runtime,
    tier: &Arc<dyn Tier>,
    data: &Data,
    options: &SingleOptions,
    stop: &Stop,
) -> Result<RepeatResult> {
    let access = Access {
        seed: options.seed,
        exponent: options.exponent,
        ..Access::reads(data.file_bytes, options.window, options.warmup)
    };
    let point = Point {
        pattern: options.pattern,
        depth: options.depth,
        ..Point::reads("", options.block_bytes)
    };
    let run = Arc::new(RepeatRun::new(&point, &access, data.file_bytes, 0, stop)?);
    let caller = |number| ObjectCaller {
        run: Arc::clone(&run),
        tier: Arc::clone(tier),
        data: data.clone(),
        into: options.into,
        ranges: options.ranges_per_call,
        // A separate stream: the first range of each call is drawn from the repeat's.
        random: run.random(options.depth + number),
    };
    let callers = (0..options.depth).map(caller);
    let outcome = run_tasks(runtime, &run, callers, &MachineMonitor::default())?;
    ensure!(
        outcome.tally.sums.calls > 0 || stop.is_requested(),
        "no call finished in {:.1} s: raise --seconds",
        outcome.window.as_secs_f64()
    );
    Ok(outcome)
}

impl Caller for ObjectCaller {
    async fn call(&mut self, pick: Pick, _: Instant) -> Result<Call> {
        let range = |pick: Pick| pick.offset..pick.offset + pick.len as u64;
        let mut ranges = vec![range(pick)];
        ranges.extend((1..self.ranges).map(|_| range(self.run.pick(&mut self.random))));
        let object = &self.data.objects[0];
        let started = Instant::now();
        let (ended, cost) = match (self.into, self.tier.device()) {
            (ReadTarget::Device, Some(device)) => {
                let landed = device.read_to_device(object, &ranges).await;
                let ended = Instant::now();
                let landed = landed.context("a read failed")?;
                self.check_device(&ranges, &landed, started)?;
                (ended, landed.cost)
            }
            _ => {
                let read = self.tier.read_many(object, &ranges).await;
                let ended = Instant::now();
                let read = read.context("a read failed")?;
                for (range, part) in ranges.iter().zip(&read.parts) {
                    self.data.check(0, range, part, part.len())?;
                }
                (ended, read.cost)
            }
        };
        Ok(Call {
            started,
            ended,
            bytes: ranges.iter().map(|range| (range.end - range.start) as usize).sum(),
            cost,
        })
    }
}

impl ObjectCaller {
    /// Checks bytes on the device, only during the warm-up, because a check copies them.
    fn check_device(&self, ranges: &[Range<u64>], landed: &Landed, started: Instant) -> Result<()> {
        if started >= self.run.window_start {
            return Ok(());
        }
        for (range, part) in ranges.iter().zip(&landed.parts) {
            let mut head = vec![0; part.len().min(CHECKED_BYTES)];
            landed.bytes.to_host(part.start, &mut head)?;
            self.data.check(0, range, &head, part.len())?;
        }
        Ok(())
    }
}

/// Waits, and returns the CPU time of the whole process during the wait, as a share of one core.
fn idle_cpu_share(span: Duration, stop: &Stop) -> f64 {
    std::thread::sleep(SETTLE_TIME);
    let (before, started) = (own_cpu_s(), Instant::now());
    sleep_until(started + span, Duration::from_secs(1), || stop.is_requested());
    (own_cpu_s() - before) / started.elapsed().as_secs_f64()
}

/// Flags of one point, and the workload of its report.
#[derive(Debug, Args, Serialize)]
pub(crate) struct SingleOptions {
    /// Configuration of the tier, a TOML file
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    tier: PathBuf,
    /// Set a key of the tier's configuration, or remove it with KEY=; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    #[serde(skip)]
    set: Vec<String>,
    /// Existing object of the tier to read [default: an object written for the measurement, dropped from the page cache, and removed
    /// afterwards]
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    #[serde(skip)]
    object: Option<String>,
    /// Size of the object to write
    #[arg(long, default_value = "256MiB", value_parser = parse_bytes)]
    #[serde(skip)]
    size: u64,
    /// Order of the reads
    #[arg(long, value_enum, default_value = "random")]
    pattern: Pattern,
    /// Exponent of Zipf's law
    #[arg(long, default_value = "1", value_parser = exponent)]
    exponent: f64,
    /// Bytes of one range
    #[arg(long = "block", value_name = "BLOCK", default_value = "4KiB", value_parser = parse_bytes)]
    block_bytes: u64,
    /// Ranges per read call
    #[arg(long = "ranges", value_name = "RANGES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    ranges_per_call: u32,
    /// Read calls in flight
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    depth: u32,
    /// Seconds to measure
    #[arg(long = "seconds", value_name = "SECONDS", default_value = "5", value_parser = parse_positive_seconds)]
    #[serde(serialize_with = "plan::seconds")]
    window: Duration,
    /// Seconds to read before measuring
    #[arg(long, default_value = "1", value_parser = parse_seconds)]
    #[serde(serialize_with = "plan::seconds")]
    warmup: Duration,
    /// Seed of the random positions
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads that run the callers; 0 is one per core. One thread is the most efficient if the tier's own work is
    /// small
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1024))]
    #[serde(skip)]
    threads: u16,
    /// Seconds to hold the tier open without reads after the measurement, to report its CPU time
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_seconds)]
    #[serde(serialize_with = "plan::seconds")]
    idle: Duration,
    /// Size of a cache in front of the tier; 0 is none [default: the `[cache]` of the tier's configuration]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    #[serde(skip)]
    cache: Option<u64>,
    /// Block size of the cache in bytes [default: the `[cache]` of the tier's configuration]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    #[serde(skip)]
    cache_block: Option<u64>,
    /// Target of the bytes: host memory, or device memory if the tier reads there (`kind = "gds"`)
    #[arg(long, value_enum, default_value = "host", conflicts_with = "cache")]
    into: ReadTarget,
    /// Print JSON instead of text
    #[arg(long)]
    #[serde(skip)]
    json: bool,
}

/// Target of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ReadTarget {
    /// Host memory
    Host,
    /// Device memory; only bytes of the warm-up are copied back and checked
    Device,
}

fn exponent(text: &str) -> Result<f64> {
    let number = text.parse().ok().filter(|number| (0.0..=10.0).contains(number));
    number.context("must be from 0 to 10")
}

impl SingleOptions {
    /// Checks the size of the block.
    ///
    /// # Errors
    /// The flag, and its allowed values.
    fn check(&self) -> Result<()> {
        if self.block_bytes == 0 {
            return Err(plan::bad_usage("--block", "must be at least one byte"));
        }
        if self.object.is_none() && self.size < self.block_bytes {
            return Err(plan::bad_usage("--size", "must hold at least one block"));
        }
        if self.object.is_none() {
            self.zipf(self.size)?;
        }
        Ok(())
    }

    /// Zipf's law over the blocks of an object, for the `zipf` pattern.
    fn zipf(&self, object_bytes: u64) -> Result<Option<Zipf>, StorageError> {
        let law = || Zipf::new((object_bytes / self.block_bytes).max(1), self.exponent);
        (self.pattern == Pattern::Zipf).then(law).transpose()
    }

    /// Returns the cache in front of a tier; `own` is the configured one.
    fn cache_config(&self, own: Option<CacheConfig>) -> Option<CacheConfig> {
        let own = own.unwrap_or(CacheConfig::off());
        let config = CacheConfig {
            capacity_bytes: self.cache.unwrap_or(own.capacity_bytes),
            block_bytes: self.cache_block.unwrap_or(own.block_bytes),
            ..own
        };
        (config.capacity_bytes > 0).then_some(config)
    }
}

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
    /// Reason why the requested way of reading was not measured.
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
    pub(crate) fn new(info: &TierInfo, data: &Data, workload: &'a SingleOptions, outcome: &RepeatResult) -> Self {
        let (tally, sums) = (&outcome.tally, &outcome.tally.sums);
        let calls = sums.calls as f64;
        let seconds = outcome.window.as_secs_f64();
        let mean_us = |sum: Duration| sum.as_secs_f64() * 1e6 / calls;
        let us = |ns: u64| ns as f64 / 1e3;
        let percentile =
            |share: f64| (sums.calls >= samples_needed(share)).then(|| us(tally.latency_ns.value_at_quantile(share)));
        let lookups = sums.cache_hits + sums.cache_misses;
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
            cache_hit_ratio: (lookups > 0).then(|| sums.cache_hits as f64 / lookups as f64),
            best_hit_ratio: None,
            tier_reads: None,
            idle_cpu_share: None,
            mean_queue_us: mean_us(sums.queue),
            mean_device_us: mean_us(sums.device),
            mean_copy_us: mean_us(sums.copy),
        }
    }

    /// Returns a line for each known value, with the names of the JSON.
    ///
    /// # Errors
    /// The report cannot be serialised.
    pub(crate) fn text(&self) -> Result<String> {
        let line = |(name, text): &(String, String)| match text.parse() {
            Ok(number) if text.contains('.') => format!("{name:<25}{}\n", digits3(number)),
            _ => format!("{name:<25}{text}\n"),
        };
        let non_empty = columns(self)?.into_iter().filter(|(_, text)| !text.is_empty());
        Ok(non_empty.map(|column| line(&column)).collect())
    }
}
