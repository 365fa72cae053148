//! What a run leaves behind: the shape of `run.json`, and of one measured step in memory.
//!
//! In: measurements. Out: plain data that `analysis` summarises and `report` prints. Knows nothing of how a
//! measurement is made, nor of how it is shown. Latencies are microseconds, rates are per second.

mod certificate;
mod cold_start;
mod findings;

pub use certificate::{Carried, Certificate, Machine, Program};
pub use cold_start::{ColdStart, ColdWay, PageCache};
pub use findings::{Finding, NotMet, Objective, Percentile, Slo, SloFinding, SloOutcome};

use crate::gpu::{DeviceReads, GpuUse, IdleByCause};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use tierlab_protocol::timing::StageTimings;

/// Version of the shape of `run.json`.
pub const SCHEMA_VERSION: u32 = 1;

/// A whole run: one sweep or one lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The plan's name.
    pub name: String,
    /// UTC, RFC 3339.
    pub started_at: String,
    /// UTC, RFC 3339.
    pub finished_at: String,
    /// Whether it was stopped before its last point.
    pub interrupted: bool,
    /// Each time that it was gone on with after it had stopped; empty for a run in one piece.
    #[serde(default)]
    pub resumed: Vec<Resumption>,
    /// The plan's text, as read.
    pub plan_toml: String,
    /// What requests went over: `http`, as JSON or with binary tensors, or `grpc`.
    #[serde(default = "http")]
    pub protocol: String,
    /// SHA-256 of every config file used, by path.
    pub config_sha256: BTreeMap<String, String>,
    /// Machine, software, origins.
    pub environment: Environment,
    /// The same load on a null endpoint.
    pub noise_floor: Option<Point>,
    /// Lines of `selfcheck`, where it was run.
    pub selfcheck: Vec<Check>,
    /// The last certificate of the self-check on the machine that the run was made on, one for each of its parts; empty in
    /// results made before certificates were kept.
    #[serde(default)]
    pub certificates: Vec<Carried>,
    /// The limits that verdicts are given by.
    pub limits: Limits,
    /// Prices used.
    pub pricing: Option<Pricing>,
    /// The objective that the highest rate was searched under; absent where none was.
    #[serde(default)]
    pub slo: Option<Slo>,
    /// What each curve says; made by `analysis`.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Cold starts, in the order in which they were measured.
    #[serde(default)]
    pub cold_starts: Vec<ColdStart>,
    /// Every configuration, in the plan's order.
    pub points: Vec<Point>,
}

/// A run that stopped was gone on with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resumption {
    /// UTC, RFC 3339.
    pub at: String,
    /// Steps that were finished by then.
    pub finished_steps: usize,
    /// How the surroundings differ from those of the run's start; empty where they are the same.
    pub differences: Vec<String>,
}

/// One line of a self-check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked.
    pub name: String,
    /// What should have come out.
    pub expected: String,
    /// What came out.
    pub measured: String,
    /// Whether that is within the check's tolerance.
    pub passed: bool,
}

/// Where a run was made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// CPU model as the kernel names it.
    pub cpu: String,
    /// Logical cores.
    pub cores: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// File system and mount options below the data, by path.
    pub filesystems: BTreeMap<String, String>,
    /// GPUs with their driver; empty without one.
    pub gpus: Vec<String>,
    /// ONNX Runtime's version and providers, as the server reports them.
    pub onnxruntime: String,
    /// Git commit of the project, with `-dirty` where the tree had changes; `unknown` outside a checkout.
    pub git_commit: String,
    /// Version of the load generator.
    pub version: String,
    /// What ran on the same cores: load generator, server, origins.
    pub shared_cores: Vec<String>,
    /// Per tier: `embedded`, `emulated` or `real`, and the tier's own notes.
    pub origins: BTreeMap<String, String>,
}

/// Real-time sends one entity per request, batch sends many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One entity per request.
    Realtime,
    /// `batch_size` entities per request.
    Batch,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Realtime => "realtime",
            Self::Batch => "batch",
        })
    }
}

/// What tells one configuration from another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Factors {
    /// The tier.
    pub tier: String,
    /// The cache state's name: `cold`, `warm`, …
    pub cache: String,
    /// The cache's capacity as share of the table; 0 is no cache.
    pub cache_share: f64,
    /// The model.
    pub model: String,
    /// Real-time or batch.
    pub mode: Mode,
    /// Entities per request.
    pub batch_size: u32,
    /// Requests per second offered.
    pub offered_rps: f64,
    /// Arrival process in words: `poisson`, `constant`.
    pub arrivals: String,
    /// Key distribution in words: `uniform`, `zipf(1.10)`.
    pub keys: String,
    /// What was sent at the same time, this part included, by weight: `8 realtime×1, 1 batch×16`; absent where this was
    /// all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mix: Option<String>,
}

/// One configuration with its repeats.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// What was measured.
    pub factors: Factors,
    /// Finished repeats, in order.
    pub repeats: Vec<Repeat>,
    /// What the repeats say together; made by `analysis`.
    pub summary: Option<Summary>,
}

/// One step: one configuration, one seed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Repeat {
    /// Its index, from 0.
    pub index: u32,
    /// Seed of its schedule and keys.
    pub seed: u64,
    /// UTC, RFC 3339: start of the measured window.
    pub started_at: String,
    /// Length of the measured window (by schedule), in seconds.
    pub window_s: f64,
    /// Requests scheduled inside the window.
    pub scheduled: u64,
    /// Of these, answered well.
    pub completed: u64,
    /// Of these, failed, by reason (`503`, `timeout`, `connect`, `drain-limit`).
    pub errors: BTreeMap<String, u64>,
    /// Good replies per second of the window, by the time at which they completed.
    pub achieved_rps: f64,
    /// Whether every user was busy at some ticket of the window.
    pub in_flight_limit_hit: bool,
    /// Mean number in flight over the window, as the pacer counted it.
    pub mean_in_flight: f64,
    /// The same from the requests' own times: the parts of their stays that lie in the window, over its length. `None`
    /// in results made before it was kept.
    #[serde(default)]
    pub in_flight_by_stays: Option<f64>,
    /// How many requests say as much as one independent one; 1 where they do not depend on each other.
    #[serde(default = "independent")]
    pub autocorrelation_time: f64,
    /// Slope of the latency over the window, in microseconds per second, with its 95 % interval.
    pub backlog_slope: Interval,
    /// Where the time went, per percentile band of latency.
    pub bands: Vec<Band>,
    /// Counters of the server over the step; absent where `/metrics` could not be read.
    pub server: Option<ServerDelta>,
    /// File of the histograms, relative to the run's folder.
    pub hdr_file: String,
    /// The histograms; kept in `hdr_file`, not in `run.json`.
    #[serde(skip)]
    pub histograms: Histograms,
}

/// What results of before there was a choice were made over.
fn http() -> String {
    "http".into()
}

/// What is taken for granted in results made before it was measured.
const fn independent() -> f64 {
    1.0
}

/// The three clocks of a step, each one histogram per time block of the window, in microseconds.
#[derive(Debug, Clone, Default)]
pub struct Histograms {
    /// Length of one block, in seconds.
    pub block_s: f64,
    /// Scheduled send to last byte. Errors count with their age.
    pub latency: Vec<Histogram<u64>>,
    /// Actual send to last byte.
    pub service: Vec<Histogram<u64>>,
    /// Scheduled to actual send.
    pub lag: Vec<Histogram<u64>>,
}

/// One request of the measured window. Times are microseconds on one monotonic clock whose zero is the step's start
/// (warm-up included), so a sample's latency is `done_us - due_us`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// When the schedule wanted it sent.
    pub due_us: u64,
    /// When it was handed to the HTTP client; for one never sent, when the step gave up on it.
    pub sent_us: u64,
    /// When the last byte of the reply had come, or when it failed.
    pub done_us: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// The server's own stages; absent where the reply carried none.
    pub timings: Option<StageTimings>,
}

impl Sample {
    /// Scheduled send to last byte, in microseconds.
    #[must_use]
    pub const fn latency_us(&self) -> u64 {
        self.done_us.saturating_sub(self.due_us)
    }

    /// Actual send to last byte, in microseconds.
    #[must_use]
    pub const fn service_us(&self) -> u64 {
        self.done_us.saturating_sub(self.sent_us)
    }

    /// Scheduled to actual send, in microseconds.
    #[must_use]
    pub const fn lag_us(&self) -> u64 {
        self.sent_us.saturating_sub(self.due_us)
    }

    /// Whether it was answered well.
    #[must_use]
    pub const fn is_ok(&self) -> bool {
        matches!(self.outcome, Outcome::Ok)
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// Answered well.
    Ok,
    /// Not.
    Failed(Failure),
}

/// Why a request failed. Its text is the key of [`Repeat::errors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Failure {
    /// Another status than 200.
    Status(u16),
    /// The client's own limit passed.
    Timeout,
    /// No connection.
    Connect,
    /// The connection broke under the request.
    Broken,
    /// A gRPC status other than OK, by its code.
    Rpc(u16),
    /// Status 200 with a body that is no infer reply.
    BadReply,
    /// Still out, or never sent, when the step's drain limit passed.
    DrainLimit,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(code) => write!(f, "{code}"),
            Self::Rpc(code) => match tierlab_protocol::grpc::client::code_name(*code) {
                Some(name) => f.write_str(name),
                None => write!(f, "grpc-status {code}"),
            },
            Self::Timeout => f.write_str("timeout"),
            Self::Connect => f.write_str("connect"),
            Self::Broken => f.write_str("broken"),
            Self::BadReply => f.write_str("bad-reply"),
            Self::DrainLimit => f.write_str("drain-limit"),
        }
    }
}

/// Mean composition of the latency of requests between two percentiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// `p0-50`, `p50-90`, `p90-99`, `p99-100`.
    pub name: String,
    /// Requests in it.
    pub count: u64,
    /// Mean latency, in microseconds.
    pub mean_us: f64,
    /// Mean microseconds by part, in the order of the request: `send_lag`, `network`, then the server's stages.
    pub parts_us: Vec<(String, f64)>,
    /// What their replies said of the reads behind them.
    #[serde(default)]
    pub reads: Reads,
}

/// The reads behind the requests of a band, as means per request that carried a server timing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Reads {
    /// Microseconds that the tier's longest read waited for a slot or a connection. Reads overlap, so the three parts need
    /// not sum to the tier stage.
    pub queue_us: f64,
    /// Microseconds that it was with the device or the remote side.
    pub device_us: f64,
    /// Microseconds of copies after its bytes had arrived.
    pub copy_us: f64,
    /// Rows that the cache had.
    pub cache_hits: f64,
    /// Rows that it had not.
    pub cache_misses: f64,
    /// Requests that the tier made.
    pub tier_requests: f64,
}

/// What the slowest requests of a point spend their time on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// The slowest band with requests: `p99-100`, unless there were too few for it.
    pub band: String,
    /// Its parts by falling share of its mean latency, each with the interval over the repeats; with a single repeat
    /// the interval is the share alone.
    pub parts: Vec<(String, Interval)>,
    /// Whether the first part stands out: ahead of the second in every repeat, and certainly so or more than half.
    pub clear: bool,
}

/// What the server counted over a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerDelta {
    /// Rows inferred.
    pub inferences: f64,
    /// Requests made by the feature tier.
    pub tier_requests: f64,
    /// Bytes over the wire or from the device.
    pub tier_wire_bytes: f64,
    /// Retries of the tier.
    pub tier_retries: f64,
    /// Blocks found in the cache.
    pub cache_hits: f64,
    /// Blocks not found.
    pub cache_misses: f64,
    /// Bytes that the cache may hold; 0 without one.
    #[serde(default)]
    pub cache_capacity_bytes: f64,
    /// Seconds of all session threads by state: compute, storage_wait, no_requests.
    pub session_seconds: BTreeMap<String, f64>,
    /// Mean rows per run of the session.
    pub mean_batch_rows: f64,
    /// Reads into device memory; absent where no tier reads there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_reads: Option<DeviceReads>,
    /// The GPUs that the server sees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuUse>,
}

/// An estimate with its 95 % interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

/// What the repeats of a point say together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    /// Requests in the percentiles.
    pub samples: u64,
    /// Latency percentiles, in microseconds; `None` where there are too few samples.
    pub p50_us: Option<Interval>,
    /// See `p50_us`.
    pub p95_us: Option<Interval>,
    /// See `p50_us`.
    pub p99_us: Option<Interval>,
    /// What the p95 does not exceed by MLPerf's early-stopping rule, in microseconds; `None` where there are too few
    /// samples for it.
    #[serde(default)]
    pub p95_bound_us: Option<f64>,
    /// See `p95_bound_us`.
    #[serde(default)]
    pub p99_bound_us: Option<f64>,
    /// Mean of the repeats' autocorrelation times.
    #[serde(default = "independent")]
    pub autocorrelation_time: f64,
    /// Service time p99, in microseconds.
    pub service_p99_us: Option<f64>,
    /// Send lag p99, in microseconds.
    pub lag_p99_us: Option<f64>,
    /// Good replies per second.
    pub achieved_rps: Interval,
    /// Rows per second.
    pub inferences_per_s: Interval,
    /// Failed share of the scheduled requests.
    pub error_share: f64,
    /// Failed requests.
    pub errors: u64,
    /// Hit ratio of the cache; `None` where nothing was looked up.
    pub cache_hit_ratio: Option<f64>,
    /// Tier requests per inference.
    pub tier_requests_per_inference: Option<f64>,
    /// Mean in flight, counted, and rate × mean latency (Little's law).
    pub in_flight: (f64, f64),
    /// What session threads spent their time on, as shares: compute, storage_wait, no_requests; empty where the server
    /// did not say.
    #[serde(default)]
    pub session_shares: Vec<(String, f64)>,
    /// $/10k inferences at this rate; `None` without prices or inferences.
    pub usd_per_10k: Option<Interval>,
    /// Its parts in dollars: compute, cache memory, tier capacity, storage requests, bytes; absent where nothing is
    /// charged.
    pub usd_parts: Vec<(String, f64)>,
    /// Energy of one inference in joules, of all GPUs; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joules_per_inference: Option<f64>,
    /// Where the time of the GPUs went; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_time: Option<IdleByCause>,
    /// Bands over all repeats.
    pub bands: Vec<Band>,
    /// What the slowest requests spend their time on; `None` without requests.
    #[serde(default)]
    pub tail: Option<Tail>,
    /// Whether the point may be used.
    pub verdict: Verdict,
}

/// Whether a point may be used, and if not, why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "reasons", rename_all = "lowercase")]
pub enum Verdict {
    /// It may.
    Valid,
    /// The server could not keep up: a finding, not a latency figure for this rate.
    Saturated(Vec<String>),
    /// The measurement did not hold its own rules.
    Invalid(Vec<String>),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid => f.write_str("valid"),
            Self::Saturated(why) => write!(f, "saturated: {}", why.join("; ")),
            Self::Invalid(why) => write!(f, "invalid: {}", why.join("; ")),
        }
    }
}

/// The limits that verdicts are given by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Achieved rate off the offered rate by more than this share is invalid.
    pub rate_error_share: f64,
    /// Send lag p99 above this share of the latency p99 …
    pub lag_share_of_p99: f64,
    /// … and above this many microseconds is invalid.
    pub lag_us: u64,
    /// Failed share of the requests above this is invalid.
    pub error_share: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rate_error_share: 0.01,
            lag_share_of_p99: 0.10,
            lag_us: 1_000,
            error_share: 0.001,
        }
    }
}

/// The prices that a run was costed with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pricing {
    /// The instance the plan chose.
    pub instance: String,
    /// Dollars per hour.
    pub usd_per_hour: f64,
    /// Dollars per hour of a GiB of the instance's memory, which is part of its price; 0 where that is not known.
    #[serde(default)]
    pub usd_per_gib_hour: f64,
    /// Every instance that has a price, the chosen one among them.
    #[serde(default)]
    pub instances: Vec<InstancePrice>,
    /// The names of the instances that a tier can be had on, by tier.
    #[serde(default)]
    pub instances_by_tier: BTreeMap<String, Vec<String>>,
    /// Dollars per hour for capacity that the tier itself provisions, by tier; tiers paid by use are absent.
    #[serde(default)]
    pub usd_per_hour_by_tier: BTreeMap<String, f64>,
    /// Dollars per storage request, by tier; tiers without request prices are absent.
    pub usd_per_request: BTreeMap<String, f64>,
    /// Dollars per byte that leaves the tier, by tier.
    pub usd_per_byte: BTreeMap<String, f64>,
    /// Provider, region, date and public source of every price used.
    pub sources: Vec<String>,
}

impl Pricing {
    /// The same prices on another instance.
    #[must_use]
    pub fn on(&self, instance: &InstancePrice) -> Self {
        Self {
            instance: instance.name.clone(),
            usd_per_hour: instance.usd_per_hour,
            ..self.clone()
        }
    }
}

/// What an instance costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstancePrice {
    /// Its name in the prices' file.
    pub name: String,
    /// Dollars per hour.
    pub usd_per_hour: f64,
    /// Whether the price was read from a text of its month, and not written down from memory.
    pub checked: bool,
}
