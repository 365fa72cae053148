//! Combined result of a point's repeats: figures with their intervals, drifts of the latency, and the verdict.

use super::point::independent;
use super::{Grade, IdleByCause, Interval, MixShare, Percentile, Question, StreamFigure, StreamSummary};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Gap of a latency distribution that a percentile lies on: the percentile may belong to either side.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// Percentile on the gap.
    pub percentile: Percentile,
    /// Share of the requests below the gap.
    pub share: f64,
    /// Lower side of the gap, in microseconds.
    pub from_us: f64,
    /// Upper side of the gap, in microseconds.
    pub to_us: f64,
}

/// Combined result of a point's repeats.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Number of good replies, on which the percentiles are based.
    pub samples: u64,
    /// Latency percentiles of good replies, in microseconds; `None` if fewer than 10 requests lie beyond them.
    pub p50_us: Option<Interval>,
    /// See `p50_us`.
    #[serde(default)]
    pub p90_us: Option<Interval>,
    /// See `p50_us`.
    pub p95_us: Option<Interval>,
    /// See `p50_us`.
    pub p99_us: Option<Interval>,
    /// See `p50_us`.
    #[serde(default)]
    pub p999_us: Option<Interval>,
    /// Mean latency, in microseconds; `None` with fewer than 20 requests.
    #[serde(default)]
    pub mean_us: Option<Interval>,
    /// Largest latency, in microseconds.
    #[serde(default)]
    pub max_us: Option<f64>,
    /// Grades of the percentiles and the mean.
    #[serde(flatten)]
    pub grades: Grades,
    /// Mean of the repeats' autocorrelation times.
    #[serde(default = "independent")]
    pub autocorrelation_time: f64,
    /// Printed percentiles that lie on a gap of the distribution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
    /// Service time p99, in microseconds.
    pub service_p99_us: Option<f64>,
    /// Send lag p99, in microseconds.
    pub lag_p99_us: Option<f64>,
    /// Good replies per second.
    pub achieved_rps: Interval,
    /// Good replies within the objective's latency limit per second; `None` without an objective. If an objective limits
    /// streams: within every objective's limit at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_rps: Option<Interval>,
    /// Share of the scheduled requests with a good reply within the objective's latency limit; `None` without an objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodput_share: Option<f64>,
    /// Figures of streamed replies: microseconds, or counts per request; empty without any.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub streams: BTreeMap<StreamFigure, StreamSummary>,
    /// Blocks of a ramp, in chronological order; empty for any other point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ramp: Vec<RampBlock>,
    /// Rows per second.
    pub inferences_per_s: Interval,
    /// Failed share of the scheduled requests.
    pub error_share: f64,
    /// Failed requests.
    pub errors: u64,
    /// Hit ratio of the cache; `None` without look-ups.
    pub cache_hit_ratio: Option<f64>,
    /// Tier requests per inference.
    pub tier_requests_per_inference: Option<f64>,
    /// Mean requests in flight: counted, and rate × mean latency (Little's law).
    pub in_flight: (f64, f64),
    /// Time of session threads, as shares: compute, queue_wait, storage_wait, no_requests; empty if the server did not report
    /// it.
    #[serde(default)]
    pub session_shares: Vec<(String, f64)>,
    /// $/10k inferences at this rate; `None` without prices or inferences.
    pub usd_per_10k: Option<Interval>,
    /// Cost share of a part of a mix, as means over the repeats; absent without other parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mix_share: Option<MixShare>,
    /// Parts of the cost in dollars: compute, cache memory, tier capacity, storage requests, bytes; absent if nothing
    /// is charged.
    pub usd_parts: Vec<(String, f64)>,
    /// Energy of one inference in joules, over all GPUs; `None` without a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joules_per_inference: Option<f64>,
    /// Time of the GPUs by cause; `None` without a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_time: Option<IdleByCause>,
    /// Bands over all repeats.
    pub bands: Vec<Band>,
    /// Dominant parts of the slowest requests; `None` without requests.
    #[serde(default)]
    pub tail: Option<Tail>,
    /// Drifts of the latency, within repeats or between them; empty if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drifts: Vec<Drift>,
    /// Faults behind the verdict, rule by rule; empty for a valid point.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// Verdict on the point.
    pub verdict: Verdict,
}

/// Grades of a point's latencies; absent if the figure is not shown, and in older results.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Grades {
    /// Grade of the p50.
    pub p50_grade: Option<Grade>,
    /// Grade of the p90.
    pub p90_grade: Option<Grade>,
    /// Grade of the p95.
    pub p95_grade: Option<Grade>,
    /// Grade of the p99.
    pub p99_grade: Option<Grade>,
    /// Grade of the p99.9.
    pub p999_grade: Option<Grade>,
    /// Grade of the mean.
    pub mean_grade: Option<Grade>,
}

impl Summary {
    /// Returns a percentile with its interval, in microseconds.
    pub const fn percentile(&self, percentile: Percentile) -> Option<Interval> {
        [self.p50_us, self.p90_us, self.p95_us, self.p99_us, self.p999_us][percentile as usize]
    }

    /// Returns the grade of a percentile.
    pub const fn grade(&self, percentile: Percentile) -> Option<Grade> {
        let of = &self.grades;
        [of.p50_grade, of.p90_grade, of.p95_grade, of.p99_grade, of.p999_grade][percentile as usize]
    }

    /// Returns a percentile and its grade for modification.
    pub(crate) const fn percentile_mut(
        &mut self,
        percentile: Percentile,
    ) -> (&mut Option<Interval>, &mut Option<Grade>) {
        match percentile {
            Percentile::P50 => (&mut self.p50_us, &mut self.grades.p50_grade),
            Percentile::P90 => (&mut self.p90_us, &mut self.grades.p90_grade),
            Percentile::P95 => (&mut self.p95_us, &mut self.grades.p95_grade),
            Percentile::P99 => (&mut self.p99_us, &mut self.grades.p99_grade),
            Percentile::P999 => (&mut self.p999_us, &mut self.grades.p999_grade),
        }
    }
}

/// Verdict on a point, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verdict", content = "reasons", rename_all = "lowercase")]
pub enum Verdict {
    /// Usable point.
    Valid,
    /// The server could not keep up, or failed more requests than the plan allows: a finding, not a latency figure for this rate.
    Saturated(Vec<String>),
    /// The instrument or the machine failed: no evidence about the server.
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

/// Fault found by a rule. Its cause, server or measurement, decides the use of the point as evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Foreign activity disturbed the machine, and repeated measurements did not help.
    Disturbed,
    /// Bytes arrived by another path than requested.
    Device,
    /// The schedule did not contain the offered rate.
    Schedule,
    /// Latency grew over the window.
    Backlog,
    /// More or fewer replies in the windows than requests belong to them.
    Replies,
    /// Failed requests above the limit.
    Errors,
    /// Every user was busy.
    InFlight,
    /// Requests were sent late.
    Late,
    /// Agents may not have started together.
    Skew,
    /// The latency changed over time.
    Drift,
    /// Too few samples.
    Samples,
}

/// Limits of the verdicts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum deviation of the scheduled from the offered rate, as a share; more is invalid. Replies that fall behind
    /// by more are saturation.
    pub rate_error_share: f64,
    /// Maximum send lag p99 as a share of the latency p99, and of an objective's limit; more is invalid if it also
    /// exceeds `lag_us`.
    pub lag_share_of_p99: f64,
    /// Minimum send lag p99 in microseconds for an invalid point.
    pub lag_us: u64,
    /// Maximum failed share of the requests; more is saturation.
    pub error_share: f64,
    /// CPU share of all cores used by foreign processes, above which a step is disturbed: it is measured again, and
    /// invalid if that does not help. 1 disables the limit.
    pub foreign_cpu_share: f64,
    /// Share of all cores' time given to others by the hypervisor, above which a step is disturbed. 1 disables the
    /// limit.
    pub steal_share: f64,
    /// Foreign disk traffic above this many bytes per second disturbs a step. 1e12 disables the limit.
    pub foreign_disk_bytes_per_s: f64,
    /// Foreign network traffic above this many bytes per second disturbs a step. 1e12 disables the limit.
    pub foreign_network_bytes_per_s: f64,
    /// Foreign I/O pressure above this share of the time disturbs a step. 1 disables the limit.
    pub foreign_io_pressure: f64,
    /// Foreign memory pressure above this share of the time disturbs a step. 1 disables the limit.
    pub foreign_memory_pressure: f64,
    /// Maximum uncertainty of an agent's common start in microseconds, from its clock and its reported lateness
    /// together; more makes a step invalid.
    pub start_skew_us: u64,
    /// Latency limit of the plan's objective, in microseconds: a send lag below the same share of it does not matter.
    /// Absent without an objective.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objective_us: Option<f64>,
    /// Latency limit of goodput in microseconds, from `--slo`; it changes no verdict. Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_us: Option<f64>,
}

impl Limits {
    /// Raises the failed share that is saturation to the share that a question allows.
    pub fn allow(&mut self, question: Option<&Question>) {
        let allowed = question.map_or(0.0, |question| question.error_share);
        self.error_share = self.error_share.max(allowed);
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rate_error_share: 0.01,
            lag_share_of_p99: 0.10,
            lag_us: 1_000,
            error_share: 0.001,
            // A virtual machine of two cores that does nothing else has 1 to 3 %. At half load 10 % less of the machine
            // makes a queue of one server 1.25 times as slow (M/M/1: (1 - 0.5) / (0.9 - 0.5)), which is where a drift
            // begins to matter.
            foreign_cpu_share: 0.10,
            // Half of that: stolen time is always taken from a busy core, while foreign processes may use an idle one.
            steal_share: 0.05,
            // A tenth of a SATA SSD. Logs and journals of an idle machine write 1 to 5 MB/s.
            foreign_disk_bytes_per_s: 50e6,
            // 0.4 of a gigabit link.
            foreign_network_bytes_per_s: 50e6,
            // An idle machine that syncs its journal now and then has 1 to 8 %.
            foreign_io_pressure: 0.20,
            // An idle machine has no memory pressure.
            foreign_memory_pressure: 0.10,
            // Within this limit the shares of two agents interleave as they should at 500 requests per second.
            start_skew_us: 2_000,
            objective_us: None,
            goodput_us: None,
        }
    }
}

/// Mean composition of the latency of requests between two percentiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Band {
    /// `p0-50`, `p50-90`, `p90-99`, `p99-100`.
    pub name: String,
    /// Number of requests in the band.
    pub count: u64,
    /// Mean latency, in microseconds.
    pub mean_us: f64,
    /// Mean latency with its 95 % interval, in microseconds, over at least two repeats; absent for a single repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_repeats_us: Option<Interval>,
    /// Mean microseconds by part, in the order of the request: `send_lag`, `network`, then the server's stages.
    pub parts_us: Vec<(String, f64)>,
    /// Reads behind the replies of the band.
    #[serde(default)]
    pub reads: Reads,
}

impl Band {
    /// Returns the mean microseconds of a part; 0 without it.
    pub fn part_us(&self, part: &str) -> f64 {
        let found = self.parts_us.iter().find(|(name, _)| name == part);
        found.map_or(0.0, |(_, us)| *us)
    }
}

/// Reads behind the requests of a band, as means per request that carried a server timing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reads {
    /// Time that the tier's longest read waited for a slot or a connection, in microseconds. Reads overlap, so the
    /// three parts need not sum to the tier stage.
    pub queue_us: f64,
    /// Time of that read in the device or the remote side, in microseconds.
    pub device_us: f64,
    /// Time of copies after its bytes had arrived, in microseconds.
    pub copy_us: f64,
    /// Blocks found in the cache.
    pub cache_hits: f64,
    /// Blocks not found in the cache.
    pub cache_misses: f64,
    /// Requests to the tier.
    pub tier_requests: f64,
}

/// Dominant parts of a point's slowest requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tail {
    /// Slowest band with requests: `p99-100`, unless there were too few for it.
    pub band: String,
    /// Parts by falling share of the band's mean latency, each with the interval over the repeats; with a single repeat
    /// the interval is the share alone.
    pub parts: Vec<(String, Interval)>,
    /// True if the first part is clearly the largest: larger than the second in every repeat, and certainly so or more
    /// than half.
    pub clear: bool,
    /// Excess of the parts' sum over the latency, if it is certain. Such a server's stages do not show the division of
    /// the time, and the shares are of the parts' sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exceeds: Option<f64>,
}

/// Block of a ramp, over all repeats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RampBlock {
    /// Rates at its start and at its end, in requests per second.
    pub offered_rps: [f64; 2],
    /// Good replies per second that completed in it.
    pub answered_rps: f64,
    /// Good replies to requests that were due in it.
    pub samples: u64,
    /// Failed requests that were due in it.
    pub errors: u64,
    /// Latency percentiles for which the block has enough requests, in microseconds.
    pub percentiles: BTreeMap<Percentile, Interval>,
}

/// Figure that drifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriftOf {
    /// Median latency.
    #[strum(to_string = "p50")]
    P50,
    /// Mean of the slowest 1 %, from the p99 upwards.
    #[strum(to_string = "the mean of the slowest 1 %")]
    SlowestPercent,
}

/// Form of a drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DriftHow {
    /// Drift from the start to the end of every repeat.
    Within,
    /// Drift from the first repeat to the last.
    Across,
    /// Jump after the repeat with this number, counted from 1.
    After(u32),
}

/// Change of the latency that is significant and large enough to matter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// Drifting figure.
    pub of: DriftOf,
    /// Form of the drift.
    pub how: DriftHow,
    /// Value at the start, in microseconds.
    pub from_us: f64,
    /// Value at the end, in microseconds.
    pub to_us: f64,
    /// Values in between, in microseconds: repeat by repeat, or by sections of the window as means over the repeats.
    pub course_us: Vec<f64>,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (of, from, to) = (self.of, milliseconds(self.from_us), milliseconds(self.to_us));
        let moves = if self.to_us > self.from_us { "rises" } else { "falls" };
        match self.how {
            DriftHow::Within => write!(f, "{of} {moves} from {from} to {to} within every repeat")?,
            DriftHow::Across => write!(f, "{of} {moves} from {from} to {to} over the repeats")?,
            DriftHow::After(number) => {
                let next = number + 1;
                write!(f, "{of} is {from} up to repeat {number} and {to} from repeat {next} on")?;
            }
        }
        write!(f, " {}", sparkline(&self.course_us))
    }
}

/// Formats microseconds as milliseconds of three digits.
fn milliseconds(us: f64) -> String {
    match us / 1e3 {
        ms if ms >= 100.0 => format!("{ms:.0} ms"),
        ms if ms >= 10.0 => format!("{ms:.1} ms"),
        ms if ms >= 1.0 => format!("{ms:.2} ms"),
        ms => format!("{ms:.3} ms"),
    }
}

/// Draws eight heights on a logarithmic scale, from the smallest value to the largest.
fn sparkline(values: &[f64]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let logs: Vec<f64> = values.iter().map(|us| us.max(1.0).ln()).collect();
    let least = logs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let span = (most - least).max(1e-9);
    let height = |log: &f64| HEIGHTS[((7.0 * (log - least) / span).round() as usize).min(7)];
    logs.iter().map(height).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_says_what_moved_from_where_to_where_and_shows_it() {
        let drift = |of, how, course_us: &[f64]| Drift {
            of,
            how,
            from_us: course_us[0],
            to_us: course_us[course_us.len() - 1],
            course_us: course_us.to_vec(),
        };
        assert_eq!(
            drift(DriftOf::P50, DriftHow::Across, &[20_000.0, 60_000.0, 183_000.0]).to_string(),
            "p50 rises from 20.0 ms to 183 ms over the repeats ▁▄█"
        );
        assert_eq!(
            drift(DriftOf::SlowestPercent, DriftHow::Within, &[5_000.0, 5_000.0, 900.0]).to_string(),
            "the mean of the slowest 1 % falls from 5.00 ms to 0.900 ms within every repeat ██▁"
        );
        assert_eq!(
            drift(DriftOf::P50, DriftHow::After(1), &[13_000.0, 29_000.0, 29_000.0]).to_string(),
            "p50 is 13.0 ms up to repeat 1 and 29.0 ms from repeat 2 on ▁██"
        );
    }
}
