//! One configuration with its repeats, as measured: its factors, the counts of each step, and its histograms.

use super::{
    AgentStart, Band, Driven, DriverFigures, Interval, MachineUse, SentRequests, ServerDelta, StreamFigure, Summary,
    is_zero,
};
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Real-time sends one entity per request, batch sends many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Mode {
    /// One entity per request.
    #[default]
    Realtime,
    /// `batch_size` entities per request.
    Batch,
}

/// Factors that identify a configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Factors {
    /// Variant of a lab with several; empty if tier and cache identify the point.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
    /// Tier of the features.
    pub tier: String,
    /// Name of the cache state: `cold`, `warm`, …
    pub cache: String,
    /// Capacity of the cache as a share of the table; 0 without a cache.
    pub cache_share: f64,
    /// Model name.
    pub model: String,
    /// Real-time or batch.
    pub mode: Mode,
    /// Entities per request.
    pub batch_size: u32,
    /// Offered requests or journeys per second; 0 for a closed loop, which has no offered rate.
    pub offered_rps: f64,
    /// Arrival process in words: `poisson`, `constant`.
    pub arrivals: String,
    /// Key distribution in words: `uniform`, `zipf(1.10)`.
    pub keys: String,
    /// All loads of a mix, this part included, with weights: `8 realtime×1, 1 batch×16`; absent without a mix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mix: Option<String>,
    /// Driver other than an open loop of single requests: a closed loop, the open loop beside it, a journey.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driven: Option<Driven>,
}

impl Factors {
    /// Key of prices, origins and labels: the variant, or the tier without variants.
    pub fn label(&self) -> &str {
        match self.variant.as_str() {
            "" => &self.tier,
            variant => variant,
        }
    }
}

/// Purpose of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Exploration: every step of a sweep, and the steps that a lab chooses by.
    #[default]
    #[serde(alias = "control")]
    Explore,
    /// Confirmation of a choice; never part of the choice.
    Confirm,
}

impl Purpose {
    fn is_explore(&self) -> bool {
        *self == Self::Explore
    }
}

/// One configuration with its repeats.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Measured configuration.
    pub factors: Factors,
    /// Finished repeats, in order.
    pub repeats: Vec<Repeat>,
    /// Combined result of the repeats.
    pub summary: Option<Summary>,
}

/// One step: one configuration, one seed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Repeat {
    /// Index of the repeat, from 0.
    pub index: u32,
    /// Number of earlier attempts, in which the instrument or the machine had failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempt: u32,
    /// Purpose of the step.
    #[serde(default, skip_serializing_if = "Purpose::is_explore")]
    pub purpose: Purpose,
    /// Seed of its schedule and keys.
    pub seed: u64,
    /// Start of the measured window, UTC, RFC 3339.
    pub started_at: String,
    /// Length of the measured window (by schedule), in seconds.
    pub window_s: f64,
    /// Requests scheduled inside the window.
    pub scheduled: u64,
    /// Requests with a good reply.
    pub completed: u64,
    /// Good replies in time by every objective of the plan at once, if one limits a stream: latency, time to the first byte
    /// or event, and the mean of the reply's own gaps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_time: Option<u64>,
    /// Failed requests, by reason (`503`, `timeout`, `connect`, `drain-limit`, `wrong-reply`, `wrong-value`).
    pub errors: BTreeMap<String, u64>,
    /// First example of each reason that needs details (`wrong-reply`, `wrong-value`, `too-large`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub examples: BTreeMap<String, String>,
    /// Good replies per second of the window, by the time at which they completed.
    pub achieved_rps: f64,
    /// Fixed number of connections that requests may wait for; absent if each user had its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
    /// True if every user was busy when some request of the window was due.
    pub in_flight_limit_hit: bool,
    /// Mean number in flight over the window, as the pacer counted it.
    pub mean_in_flight: f64,
    /// Mean number in flight from the requests' own times: the parts of their stays that lie in the window, over its
    /// length. `None` in older results.
    #[serde(default)]
    pub in_flight_by_stays: Option<f64>,
    /// Growth of the number in flight over the window at a constant latency, since a step begins empty; 0 in older
    /// results.
    #[serde(default)]
    pub start_fill: f64,
    /// Number of requests that carry as much information as one independent request; 1 if they are independent.
    #[serde(default = "independent")]
    pub autocorrelation_time: f64,
    /// Autocorrelation time of being among the slow requests, used by the p95 and the p99; absent in older results.
    #[serde(default)]
    pub tail_autocorrelation_time: Option<f64>,
    /// Slope of the latency over the window, in microseconds per second, with its 95 % interval.
    pub backlog_slope: Interval,
    /// Time of each part, per percentile band of latency.
    pub bands: Vec<Band>,
    /// Counters of the server over the step, of all parts of a mix together; absent if `/metrics` could not be read.
    pub server: Option<ServerDelta>,
    /// Requests of the step; absent in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentRequests>,
    /// Figures of a driver other than an open loop of single requests.
    #[serde(flatten)]
    pub driver: DriverFigures,
    /// Other activity of the machine; absent if it was not watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineUse>,
    /// Foreign disturbance, in words; absent without one. A disturbed step is no evidence about the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbed: Option<String>,
    /// Disturbances of earlier attempts at this step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disturbed_before: Vec<String>,
    /// Start uncertainty of the agents that sent it; empty for one host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentStart>,
    /// Agents lost during earlier attempts, whose data was discarded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_before: Vec<String>,
    /// Parquet file with a row for each request, in their order, relative to the run's folder; absent unless they were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_file: Option<String>,
    /// Slowest good replies of the window, the slowest first; empty unless requests were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowest: Vec<SlowRequest>,
    /// File of the histograms, relative to the run's folder.
    pub hdr_file: String,
    /// Histograms, stored in `hdr_file` instead of `run.json`.
    #[serde(skip)]
    pub histograms: Histograms,
}

/// Fixed number of connections over HTTP/1.1, one request at a time on each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pool {
    /// Number of connections.
    pub connections: usize,
    /// 99th percentile of the send lag beyond waits for a free connection, in microseconds: the load generator's own.
    pub own_lag_p99_us: u64,
}

/// Slow request with its row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowRequest {
    /// Index in the step's schedule, and row of its file from 0.
    pub request: u64,
    /// Scheduled send, in microseconds since the step's start.
    pub due_us: u64,
    /// Scheduled send to last byte, in microseconds.
    pub latency_us: u64,
    /// Scheduled to actual send, in microseconds.
    pub lag_us: u64,
    /// Longest stage that the server reported, and its time in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<(String, u64)>,
}

/// Returns the failures of some repeats by reason, the most frequent first: reason, number of requests, and an example if one was
/// kept.
pub fn failures<'a>(repeats: impl Iterator<Item = &'a Repeat>) -> Vec<(&'a str, u64, Option<&'a str>)> {
    let mut counts: BTreeMap<&str, (u64, Option<&str>)> = BTreeMap::new();
    for repeat in repeats {
        for (reason, count) in &repeat.errors {
            let (sum, example) = counts.entry(reason).or_default();
            *sum += count;
            *example = example.or_else(|| repeat.examples.get(reason).map(String::as_str));
        }
    }
    let counts = counts.into_iter();
    let failures = counts.map(|(reason, (count, example))| (reason, count, example));
    let mut failures: Vec<_> = failures.collect();
    failures.sort_by_key(|(_, count, _)| std::cmp::Reverse(*count));
    failures
}

/// Minimum number of undisturbed repeats to drop disturbed ones; fewer hardly show the spread of repeats.
const MIN_UNDISTURBED: usize = 3;

/// Returns the repeats for figures: without the disturbed ones, if at least three others or half of all remain; else
/// all, and the verdict names the disturbances.
pub fn counted(repeats: &[Repeat]) -> Cow<'_, [Repeat]> {
    let sound = repeats.iter().filter(|repeat| repeat.disturbed.is_none()).count();
    if sound == repeats.len() || (sound < MIN_UNDISTURBED && 2 * sound < repeats.len()) {
        return Cow::Borrowed(repeats);
    }
    let undisturbed = repeats.iter().filter(|repeat| repeat.disturbed.is_none());
    Cow::Owned(undisturbed.cloned().collect())
}

/// Autocorrelation time of older results, which did not measure it.
pub(super) const fn independent() -> f64 {
    1.0
}

/// Histograms of a step by clock, one per time block of the window, in microseconds.
#[derive(Debug, Clone, Default)]
pub struct Histograms {
    /// Length of one block, in seconds.
    pub block_s: f64,
    /// Scheduled send to last byte of good replies. Older results hold failed requests here too, with their ages.
    pub latency: Vec<Histogram<u64>>,
    /// Actual send to last byte of good replies.
    pub service: Vec<Histogram<u64>>,
    /// Scheduled to actual send of all requests.
    pub lag: Vec<Histogram<u64>>,
    /// Ages of failed requests: scheduled send to the failure, or to the drain limit. Empty without failures.
    pub failed: Vec<Histogram<u64>>,
    /// Figures of good streamed replies, counts included; empty without any.
    pub streams: BTreeMap<StreamFigure, Vec<Histogram<u64>>>,
}

impl Repeat {
    /// Inferences counted for one request: the batch size unless set otherwise.
    pub fn inferences_per_request(&self, factors: &Factors) -> f64 {
        let sent = self.sent.as_ref().map(|sent| sent.inferences_per_request);
        sent.unwrap_or_else(|| factors.batch_size.into())
    }

    /// Seconds of the window in which requests were offered: up to the stop of a ramp, else all of it.
    pub fn offered_s(&self, factors: &Factors) -> f64 {
        let stopped_rps = self.driver.ramp().and_then(|ramp| ramp.stopped_rps);
        match (&factors.driven, stopped_rps) {
            (Some(Driven::Ramp(rates)), Some(rps)) => {
                let planned = rates.mean() * self.window_s;
                self.window_s * rates.share_until(rps, self.scheduled as f64 / planned)
            }
            _ => self.window_s,
        }
    }

    /// Inferences of the server over the step as the plan counts them; `None` without its counters, or if it does not count
    /// what they ask of a tier, as a server with statistics of its own.
    pub fn served_inferences(&self) -> Option<f64> {
        let rows = self.server.as_ref().filter(|own| own.stages.is_none())?.inferences;
        let per_row =
            |sent: &SentRequests| Some(sent.inferences_per_request / sent.mean_rows.filter(|rows| *rows > 0.0)?);
        Some(rows * self.sent.as_ref().and_then(per_row).unwrap_or(1.0))
    }

    /// Scheduled requests without a good reply.
    pub const fn failed(&self) -> u64 {
        self.scheduled.saturating_sub(self.completed)
    }

    /// True if the latency histograms hold failed requests too, as in older results.
    pub fn has_failures_in_latency(&self) -> bool {
        self.histograms.latency.iter().map(Histogram::len).sum::<u64>() > self.completed
    }

    /// Repeat of one second in which nothing was sent, for callers that set some of its fields.
    pub fn empty() -> Self {
        Self {
            started_at: "2026-11-20T12:00:00Z".into(),
            window_s: 1.0,
            autocorrelation_time: independent(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(disturbed: &[bool]) -> Vec<u32> {
        let repeats: Vec<Repeat> = (0..)
            .zip(disturbed)
            .map(|(index, disturbed)| Repeat {
                index,
                disturbed: disturbed.then(|| "a compiler".to_owned()),
                ..Repeat::empty()
            })
            .collect();
        counted(&repeats).iter().map(|repeat| repeat.index).collect()
    }

    #[test]
    fn disturbed_repeats_are_left_out_where_enough_others_remain() {
        assert_eq!(left(&[false, false]), [0, 1]);
        assert_eq!(left(&[false, true, false]), [0, 2]);
        assert_eq!(left(&[true, false]), [1], "half remains");
        assert_eq!(
            left(&[true, false, true, true, false, true, false]),
            [1, 4, 6],
            "three remain"
        );
    }

    #[test]
    fn all_count_where_too_few_would_remain() {
        assert_eq!(left(&[]), [0; 0]);
        assert_eq!(left(&[true]), [0]);
        assert_eq!(left(&[true, true, false]), [0, 1, 2]);
        assert_eq!(left(&[true, false, true, true, false]), [0, 1, 2, 3, 4]);
    }
}
