//! Counters of a server over a step. In: two readings. Out: their difference, as a [`ServerDelta`].
//!
//! Each replica is compared with itself, and the differences are added. A restarted replica counts from zero. An
//! address with several servers behind it counts nothing, because its counters cannot be attributed, and the result
//! notes it.

use super::scrape::Scrape;
use anyhow::{Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};
use tierlab_analysis::record::{DeviceReads, GpuUse, Sample, ServerDelta, ServerStages};
use tierlab_protocol::metrics;

/// Tolerated difference between the clocks of two machines: a start this long before the first reading is not a restart
/// after it.
const CLOCKS_APART_S: f64 = 5.0;
/// Tolerated difference between the reported start times of one process.
const SAME_START_S: f64 = 1.0;
/// Minimum count of a server's requests, as a share of the good replies received here.
const LEAST_COUNTED: f64 = 0.95;
/// Maximum count, as a share of the requests sent here: a server may end requests of the previous step, whose clients
/// are gone.
const MOST_COUNTED: f64 = 1.2;
/// Difference of the counts that is always tolerated, in requests.
const COUNT_TOLERANCE: f64 = 10.0;
/// Minimum number of requests for a comparison of the counts.
const FEWEST_REQUESTS: u64 = 20;

/// Label of good replies, in the project's own counter of requests.
const GOOD_CODE: &str = "200";
/// Triton's counters of a model's requests: their number, and the microseconds of all of them by part.
const TRITON_REQUESTS: &str = "nv_inference_request_success";
const TRITON_INFERENCES: &str = "nv_inference_count";
const TRITON_PARTS: [&str; 4] = [
    "nv_inference_queue_duration_us",
    "nv_inference_compute_input_duration_us",
    "nv_inference_compute_infer_duration_us",
    "nv_inference_compute_output_duration_us",
];

/// Reports of a server at one moment.
#[derive(Debug, Clone)]
pub struct Reading {
    /// Time of the reading.
    pub at: SystemTime,
    /// Metrics, one for each address, in their order.
    pub replicas: Vec<Scrape>,
    /// Statistics by model, if the server has them and no metrics report the same.
    pub statistics: BTreeMap<String, Statistics>,
}

/// Requests of a step, as the load generator counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Requests sent.
    pub sent: u64,
    /// Good replies.
    pub answered: u64,
}

impl RequestCounts {
    /// Counts samples.
    pub fn new<'a>(samples: impl Iterator<Item = &'a Sample>) -> Self {
        samples.fold(Self::default(), |counted, sample| Self {
            sent: counted.sent + 1,
            answered: counted.answered + u64::from(sample.is_ok()),
        })
    }

    /// Describes the deviation of a server's count; `None` if it agrees.
    fn describe_miscount(self, counted: f64, has_restarted: bool) -> Option<String> {
        let Self { sent, answered } = self;
        let least = (LEAST_COUNTED * answered as f64).min(answered as f64 - COUNT_TOLERANCE);
        let most = (MOST_COUNTED * sent as f64).max(sent as f64 + COUNT_TOLERANCE);
        if answered < FEWEST_REQUESTS {
            None
        } else if counted < least && !has_restarted {
            Some(format!(
                "it counted {counted:.0} requests, but {answered} were answered here: several servers answer at one address, and \
                 these are the counters of some of them; give each replica's metrics by --metrics-url (`target.metrics`)"
            ))
        } else if counted > most {
            Some(format!(
                "it counted {counted:.0} requests, but {sent} were sent here: it has other clients, or several servers answer at one \
                 address; give each replica's metrics by --metrics-url (`target.metrics`)"
            ))
        } else {
            None
        }
    }
}

impl Reading {
    /// Returns the server's counters since an earlier reading, for the distinct `models` of the `requests` in between; `None` if the
    /// server reports nothing.
    pub fn since(&self, before: &Self, models: &[&str], requests: RequestCounts) -> Option<ServerDelta> {
        let after = self;
        if after.replicas.is_empty() && after.statistics.is_empty() {
            return None;
        }
        let mut sum = DeltaSum::default();
        let pairs = before.replicas.iter().zip(&after.replicas);
        for (before_replica, after_replica) in pairs {
            let is_alone = after.replicas.len() == 1;
            match has_restarted(before_replica, after_replica, before.at, is_alone, models) {
                Ok(false) => sum.add(before_replica, after_replica, models),
                Ok(true) => {
                    sum.delta.restarts += 1;
                    sum.add(&Scrape::default(), after_replica, models);
                }
                Err(why) => return Some(doubted(why.to_string())),
            }
        }
        for model in models {
            let (Some(earlier), Some(later)) = (before.statistics.get(*model), after.statistics.get(*model)) else {
                continue;
            };
            let Some(growth) = later.since(earlier) else {
                return Some(doubted(COUNTERS_FELL));
            };
            sum.statistics.add(&growth);
            sum.counts_requests = true;
        }
        if !sum.is_sound() {
            return Some(doubted(COUNTERS_FELL));
        }
        Some(sum.into_delta(requests))
    }
}

const COUNTERS_FELL: &str = "its counters fell: it was restarted, or several servers answer at one address; give each replica's metrics by \
                    --metrics-url (`target.metrics`)";

fn doubted(why: impl Into<String>) -> ServerDelta {
    ServerDelta {
        doubt: Some(why.into()),
        ..ServerDelta::default()
    }
}

/// True if the process was restarted between two readings.
///
/// # Errors
/// Readings that may be of different processes, with the reason.
fn has_restarted(
    before: &Scrape,
    after: &Scrape,
    before_at: SystemTime,
    is_alone: bool,
    models: &[&str],
) -> Result<bool> {
    let fell = has_fallen(before, after, models);
    let before_at_s = before_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    match (before.started_s(), after.started_s()) {
        (Some(earlier), Some(later)) if (later - earlier).abs() < SAME_START_S => match fell {
            true => bail!("its counters fell although its process is the same"),
            false => Ok(false),
        },
        (Some(_), Some(later)) if later + CLOCKS_APART_S >= before_at_s => Ok(true),
        (Some(_), Some(_)) => bail!(
            "several servers, started at different times, answer at one address of metrics; give each replica's by --metrics-url \
             (`target.metrics`)"
        ),
        _ if !fell => Ok(false),
        // Several named addresses are the replicas themselves.
        _ if !is_alone => Ok(true),
        _ => bail!(COUNTERS_FELL),
    }
}

/// True if a monotonic counter has decreased.
fn has_fallen(before: &Scrape, after: &Scrape, models: &[&str]) -> bool {
    let less = |name: &str, labels: &[(&str, &str)]| after.sum(name, labels) < before.sum(name, labels);
    let counts = [metrics::INFERENCES, TRITON_REQUESTS, TRITON_INFERENCES];
    let mut models = models.iter();
    let of_models = models.any(|model| counts.iter().any(|name| less(name, &[("model", model)])));
    let of_server = [
        metrics::TIER_REQUESTS,
        metrics::TIER_WIRE_BYTES,
        metrics::CACHE_HITS,
        metrics::CACHE_MISSES,
    ];
    of_models || of_server.iter().any(|name| less(name, &[]))
}

/// Sum over the replicas.
#[derive(Default)]
struct DeltaSum {
    delta: ServerDelta,
    runs: f64,
    rows: f64,
    statistics: Statistics,
    /// Good replies by the project's own counters.
    own_requests: f64,
    /// If true, some counter is of requests.
    counts_requests: bool,
}

impl DeltaSum {
    fn add(&mut self, before: &Scrape, after: &Scrape, models: &[&str]) {
        let between = |name: &str, labels: &[(&str, &str)]| after.sum(name, labels) - before.sum(name, labels);
        let of_models = |name: &str| -> f64 { models.iter().map(|model| between(name, &[("model", model)])).sum() };
        for model in models {
            self.own_requests += between(metrics::REQUESTS, &[("model", model), ("code", GOOD_CODE)]);
        }
        self.counts_requests |= after.has(metrics::REQUESTS) || after.has(TRITON_REQUESTS);
        let of_features: &[(&str, &str)] = &[("role", "feature")];
        let delta = &mut self.delta;
        self.runs += of_models(&format!("{}_count", metrics::BATCH_ROWS));
        self.rows += of_models(&format!("{}_sum", metrics::BATCH_ROWS));
        for model in models {
            let of_model = &[("model", *model)];
            let labels = after.labels(metrics::SESSION_SECONDS, of_model);
            let states: BTreeSet<&String> = labels.filter_map(|labels| labels.get("state")).collect();
            for state in states {
                let labels = [("model", *model), ("state", state.as_str())];
                *delta.session_seconds.entry(state.clone()).or_default() += between(metrics::SESSION_SECONDS, &labels);
            }
        }
        delta.inferences += of_models(metrics::INFERENCES) + of_models(TRITON_INFERENCES);
        delta.tier_requests += between(metrics::TIER_REQUESTS, of_features);
        delta.tier_wire_bytes += between(metrics::TIER_WIRE_BYTES, of_features);
        delta.tier_retries += between(metrics::TIER_RETRIES, of_features);
        delta.cache_hits += between(metrics::CACHE_HITS, &[]);
        delta.cache_misses += between(metrics::CACHE_MISSES, &[]);
        delta.cache_capacity_bytes += after.sum(metrics::CACHE_CAPACITY_BYTES, &[]);
        delta.device_reads = delta.device_reads.take().or_else(|| device_reads(before, after));
        delta.gpus.extend(gpus(before, after));
        self.statistics.add(&Statistics {
            requests: of_models(TRITON_REQUESTS),
            parts_ns: TRITON_PARTS.map(|part| of_models(part) * 1e3),
        });
    }

    /// True if all monotonic counters have grown. A single series may fall or vanish while the process stays the same.
    fn is_sound(&self) -> bool {
        let delta = &self.delta;
        let counted = [
            delta.inferences,
            delta.tier_requests,
            delta.tier_wire_bytes,
            delta.tier_retries,
            delta.cache_hits,
            delta.cache_misses,
            delta.cache_capacity_bytes,
            self.runs,
            self.rows,
            self.statistics.requests,
            self.own_requests,
        ];
        let statistics = self.statistics.parts_ns.iter().chain(delta.session_seconds.values());
        counted.iter().chain(statistics).all(|growth| *growth >= 0.0)
    }

    fn into_delta(self, requests: RequestCounts) -> ServerDelta {
        let counted = self.statistics.requests + self.own_requests;
        let miscount = requests.describe_miscount(counted, self.delta.restarts > 0);
        if let Some(why) = miscount.filter(|_| self.counts_requests) {
            return doubted(why);
        }
        let (mut delta, statistics) = (self.delta, self.statistics);
        if self.runs > 0.0 {
            delta.mean_batch_rows = self.rows / self.runs;
        }
        if statistics.requests <= 0.0 {
            return delta;
        }
        let mean_us = |at: usize| statistics.parts_ns[at] / 1e3 / statistics.requests;
        delta.stages = Some(ServerStages {
            requests: statistics.requests,
            queue_us: mean_us(0),
            input_us: mean_us(1),
            infer_us: mean_us(2),
            output_us: mean_us(3),
        });
        delta
    }
}

/// Returns a counter's growth; a counter that fell counts from zero, because its server restarted.
fn growth(before: &Scrape, after: &Scrape, name: &str, labels: &[(&str, &str)]) -> f64 {
    let (before, after) = (before.sum(name, labels), after.sum(name, labels));
    if after >= before { after - before } else { after }
}

/// Returns the reads into device memory between two readings; `None` if the server has no tier that reads there.
fn device_reads(before: &Scrape, after: &Scrape) -> Option<DeviceReads> {
    let label = |label: &str| after.label(metrics::DEVICE_PATH, label).map(str::to_owned);
    let path = label("path")?;
    let reads = |way: &str| growth(before, after, metrics::DEVICE_READS, &[("way", way)]);
    Some(DeviceReads {
        path,
        missing: label("missing").unwrap_or_default(),
        counted: after.sum(metrics::DEVICE_PATH, &[]) > 0.0,
        peer_to_peer: reads("p2p"),
        nvidia_fs: reads("nvfs"),
        posix: reads("posix"),
        requests: growth(before, after, metrics::TIER_REQUESTS, &[("tier", "gds")]),
    })
}

/// Returns the GPUs between two readings; empty if the server sees none.
fn gpus(before: &Scrape, after: &Scrape) -> Vec<GpuUse> {
    let of = |(gpu, name): (&str, &str)| {
        let labels = [("gpu", gpu)];
        let value = |name: &str, more: &[(&str, &str)]| after.sum(name, &[&labels, more].concat());
        GpuUse {
            gpu: gpu.to_owned(),
            name: name.to_owned(),
            busy_s: growth(before, after, metrics::GPU_BUSY_SECONDS, &labels),
            energy_j: growth(before, after, metrics::GPU_ENERGY_JOULES, &labels),
            memory_used_bytes: value(metrics::GPU_MEMORY_USED_BYTES, &[]),
            sm_clock_hz: value(metrics::GPU_CLOCK_HZ, &[("clock", "sm")]),
            pcie_received_bytes_per_s: value(metrics::GPU_PCIE_BYTES_PER_S, &[("direction", "received")]),
            pcie_sent_bytes_per_s: value(metrics::GPU_PCIE_BYTES_PER_S, &[("direction", "sent")]),
        }
    };
    let infos = after.labels(metrics::GPU_INFO, &[]);
    let infos = infos.filter_map(|labels| Some((labels.get("gpu")?.as_str(), labels.get("name")?.as_str())));
    infos.map(of).collect()
}

/// One reading: counts and nanoseconds since the model was loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Statistics {
    /// Number of good replies.
    pub requests: f64,
    /// Nanoseconds of all of them: queue, input, infer, output.
    pub parts_ns: [f64; 4],
}

/// Parts of `inference_stats`, in the order of [`Statistics::parts_ns`].
const PARTS: [&str; 4] = ["queue", "compute_input", "compute_infer", "compute_output"];

impl Statistics {
    /// Parses a document; `None` if it is invalid, or lacks the model.
    pub fn parse(model: &str, body: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(body).ok()?;
        let versions = document.get("model_stats")?.as_array()?;
        let mut of_model = versions.iter().filter(|version| version["name"] == model).peekable();
        of_model.peek()?;
        let mut all = Self::default();
        for version in of_model {
            let counted = |part: &str, unit: &str| match &version["inference_stats"][part][unit] {
                Value::Null => Some(0),
                count => count.as_u64(),
            };
            all.requests += counted("success", "count")? as f64;
            for (sum, part) in all.parts_ns.iter_mut().zip(PARTS) {
                *sum += counted(part, "ns")? as f64;
            }
        }
        Some(all)
    }

    /// Adds the counts of another reading.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        for (sum, part) in self.parts_ns.iter_mut().zip(other.parts_ns) {
            *sum += part;
        }
    }

    /// Returns the difference to an earlier reading; `None` if a counter fell.
    pub fn since(&self, before: &Self) -> Option<Self> {
        let parts = std::array::from_fn(|at| self.parts_ns[at] - before.parts_ns[at]);
        let growth = Self {
            requests: self.requests - before.requests,
            parts_ns: parts,
        };
        (growth.requests >= 0.0 && growth.parts_ns.iter().all(|ns| *ns >= 0.0)).then_some(growth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const TEXT: &str = "# HELP tierlab_inferences_total Rows inferred\n# TYPE tierlab_inferences_total counter\n\
        tierlab_inferences_total{model=\"ctr\"} 10\n\
        tierlab_inferences_total{model=\"mlp\"} 99\n\
        tierlab_tier_requests_total{role=\"feature\",tier=\"s3\"} 4\n\
        tierlab_tier_requests_total{role=\"model\",tier=\"s3\"} 7\n\
        tierlab_session_seconds_total{model=\"ctr\",session=\"0\",state=\"compute\"} 1.5 1700000000\n\
        tierlab_batch_rows_sum{model=\"ctr\"} 10\ntierlab_batch_rows_count{model=\"ctr\"} 5\n\
        tierlab_batch_rows_bucket{model=\"ctr\",le=\"+Inf\"} 5\n";

    fn reading(texts: &[&str]) -> Reading {
        Reading {
            at: UNIX_EPOCH + std::time::Duration::from_secs(1_000),
            replicas: texts.iter().map(|text| Scrape::parse(text).unwrap()).collect(),
            statistics: BTreeMap::new(),
        }
    }

    fn delta(before: &[&str], after: &[&str], answered: u64) -> ServerDelta {
        let requests = RequestCounts {
            sent: answered,
            answered,
        };
        reading(after).since(&reading(before), &["ctr"], requests).unwrap()
    }

    fn inferred(count: u32, started_s: u32) -> String {
        format!("tierlab_inferences_total{{model=\"ctr\"}} {count}\nprocess_start_time_seconds {started_s}\n")
    }

    #[test]
    fn a_delta_counts_this_model_and_the_feature_role() {
        let after = TEXT
            .replace("} 10", "} 30")
            .replace("_count{model=\"ctr\"} 5", "_count{model=\"ctr\"} 15");
        let grown = delta(&[TEXT], &[&after], 0);
        assert_eq!(grown.inferences, 20.0);
        assert_eq!(grown.tier_requests, 0.0);
        assert_eq!(grown.mean_batch_rows, 2.0);
        assert_eq!(grown.session_seconds, BTreeMap::from([("compute".into(), 0.0)]));
        let fresh = delta(&[""], &[&after], 0);
        assert_eq!(fresh.tier_requests, 4.0);
        assert_eq!(fresh.session_seconds["compute"], 1.5);
        assert_eq!(fresh.restarts, 0);
    }

    #[test]
    fn replicas_are_added_and_one_that_restarted_counts_from_zero() {
        let before = [inferred(100, 10), inferred(5_000, 20), inferred(70, 30)];
        // The second restarted after the first reading, at 1000 s.
        let after = [inferred(150, 10), inferred(40, 1_002), inferred(80, 30)];
        let grown = delta(
            &before.each_ref().map(String::as_str),
            &after.each_ref().map(String::as_str),
            100,
        );
        assert_eq!((grown.inferences, grown.restarts, grown.doubt), (100.0, 1, None));
        // Without a start time a falling counter is a restart, if each replica is named.
        let grown = delta(
            &[
                "tierlab_inferences_total{model=\"ctr\"} 9",
                "tierlab_inferences_total{model=\"ctr\"} 9",
            ],
            &[
                "tierlab_inferences_total{model=\"ctr\"} 3",
                "tierlab_inferences_total{model=\"ctr\"} 10",
            ],
            4,
        );
        assert_eq!((grown.inferences, grown.restarts), (4.0, 1));
    }

    #[test]
    fn a_series_that_falls_by_itself_counts_nothing() {
        let text = |more: &str| {
            format!(
                "{}tierlab_batch_rows_count{{model=\"ctr\"}} 5\n{more}",
                inferred(10, 10)
            )
        };
        let state = |seconds: &str| {
            text(&format!(
                "tierlab_session_seconds_total{{model=\"ctr\",state=\"compute\"}} {seconds}\n"
            ))
        };
        let nothing = text("");
        for (before, after) in [
            (state("9"), state("3")),
            (
                text("tierlab_batch_rows_sum{model=\"ctr\"} 7\n"),
                text("tierlab_batch_rows_sum{model=\"ctr\"} 1\n"),
            ),
            (text("tierlab_tier_retries_total{role=\"feature\"} 7\n"), nothing),
        ] {
            let grown = delta(&[&before], &[&after], 0);
            assert!(grown.doubt.is_some() && grown.inferences == 0.0, "{before} {after}");
            let kept = serde_json::to_string(&grown).unwrap();
            assert_eq!(serde_json::from_str::<ServerDelta>(&kept).unwrap(), grown);
        }
        // A value that is not a number is no fall.
        let grown = delta(&[&state("9")], &[&state("NaN")], 0);
        assert_eq!(grown.session_seconds, BTreeMap::new());
    }

    #[test]
    fn servers_that_take_turns_at_one_address_count_nothing() {
        for (before, after, says) in [
            // Another process, which existed before the first reading: its counter grew, or it fell.
            (inferred(100, 10), inferred(5_000, 20), "several servers"),
            (inferred(5_000, 20), inferred(100, 10), "several servers"),
            (
                "tierlab_inferences_total{model=\"ctr\"} 9".into(),
                "tierlab_inferences_total{model=\"ctr\"} 3".into(),
                "counters fell",
            ),
        ] {
            let grown = delta(&[&before], &[&after], 50);
            assert_eq!(grown.inferences, 0.0);
            assert!(grown.doubt.unwrap().contains(says));
        }
        let alone = delta(&[&inferred(5_000, 20)], &[&inferred(30, 1_001)], 30);
        assert_eq!((alone.inferences, alone.restarts), (30.0, 1));
    }

    #[test]
    fn own_counters_that_are_not_of_the_requests_sent_count_nothing() {
        let text = |requests: u32| {
            format!(
                "tierlab_build_info{{feature_tier=\"s3\"}} 1\nprocess_start_time_seconds 10\n\
                 tierlab_inferences_total{{model=\"ctr\"}} {requests}\n\
                 tierlab_requests_total{{model=\"ctr\",code=\"200\"}} {requests}\n\
                 tierlab_requests_total{{model=\"ctr\",code=\"503\"}} {}\n\
                 tierlab_requests_total{{model=\"mlp\",code=\"200\"}} {}\n",
                requests * 3,
                requests * 7
            )
        };
        for counted in [85, 125, 235, 501, 310] {
            let doubt = delta(&[&text(100)], &[&text(100 + counted)], 250).doubt.unwrap();
            assert!(
                doubt.contains(&format!("counted {counted} requests, but 250")),
                "{doubt}"
            );
        }
        for counted in [240, 250, 290] {
            let grown = delta(&[&text(100)], &[&text(100 + counted)], 250);
            assert_eq!((grown.doubt, grown.inferences), (None, f64::from(counted)));
        }
        // A replica without requests.
        let unasked = &text(0);
        let doubt = delta(&[unasked], &[unasked], 250).doubt.unwrap();
        assert!(doubt.contains("counted 0 requests"), "{doubt}");
        assert_eq!(delta(&[unasked], &[unasked], 10).doubt, None);
    }

    #[test]
    fn tritons_metrics_say_the_mean_way_of_a_request() {
        let text = |requests: u32| {
            format!(
                "nv_inference_request_success{{model=\"ctr\",version=\"1\"}} {requests}\n\
                 nv_inference_count{{model=\"ctr\",version=\"1\"}} {}\n\
                 nv_inference_queue_duration_us{{model=\"ctr\",version=\"1\"}} {}\n\
                 nv_inference_compute_infer_duration_us{{model=\"ctr\",version=\"1\"}} {}\n",
                requests * 4,
                requests * 50,
                requests * 900
            )
        };
        let grown = delta(&[&text(10)], &[&text(110)], 100);
        assert_eq!(grown.inferences, 400.0);
        let stages = grown.stages.unwrap();
        assert_eq!(
            (stages.requests, stages.queue_us, stages.infer_us),
            (100.0, 50.0, 900.0)
        );
        // The server counts replies as good that the load generator finds wrong.
        let requests = RequestCounts {
            sent: 100,
            answered: 30,
        };
        assert_eq!(requests.describe_miscount(100.0, false), None);
        // A jump to another server's counters.
        assert!(delta(&[&text(10)], &[&text(9_000)], 100).doubt.is_some());
    }

    fn counters(p2p: u32, posix: u32, requests: u32, counted: u32) -> Scrape {
        Scrape::parse(&format!(
            "tierlab_device_path_info{{tier=\"gds\",path=\"gds\",missing=\"nvidia-fs\"}} {counted}\n\
             tierlab_device_reads_total{{tier=\"gds\",way=\"p2p\"}} {p2p}\n\
             tierlab_device_reads_total{{tier=\"gds\",way=\"posix\"}} {posix}\n\
             tierlab_tier_requests_total{{tier=\"gds\",role=\"feature\"}} {requests}\n"
        ))
        .unwrap()
    }

    #[test]
    fn only_proven_reads_are_direct() {
        let start = counters(5, 5, 10, 1);
        let judge = |after: &Scrape| device_reads(&start, after).unwrap().shortfall();
        assert_eq!(judge(&counters(105, 5, 110, 1)), None);
        assert_eq!(judge(&counters(5, 5, 10, 1)), None, "nothing was read");
        let posix = judge(&counters(65, 45, 110, 1)).unwrap();
        assert!(
            posix.contains("40 of 100 reads went through POSIX") && posix.ends_with("missing: nvidia-fs"),
            "{posix}"
        );
        assert!(judge(&counters(5, 5, 110, 1)).unwrap().contains("none of 100 reads"));
        assert!(judge(&counters(105, 5, 110, 0)).unwrap().contains("no counter"));
        assert_eq!(device_reads(&start, &Scrape::default()), None);
        let bounce = DeviceReads {
            path: "bounce".into(),
            posix: 5.0,
            requests: 5.0,
            ..DeviceReads::default()
        };
        assert_eq!(bounce.shortfall(), None, "that was not asked for");
    }

    #[test]
    fn a_gpus_step_is_the_difference_of_its_counters() {
        let at = |busy: f64, joules: f64| {
            Scrape::parse(&format!(
                "tierlab_gpu_info{{gpu=\"0\",name=\"X\",uuid=\"u\",driver=\"1\"}} 1\n\
                 tierlab_gpu_busy_seconds_total{{gpu=\"0\"}} {busy}\ntierlab_gpu_energy_joules_total{{gpu=\"0\"}} {joules}\n\
                 tierlab_gpu_clock_hertz{{gpu=\"0\",clock=\"sm\"}} 2e9\ntierlab_gpu_clock_hertz{{gpu=\"0\",clock=\"memory\"}} 3e9\n"
            ))
            .unwrap()
        };
        let seen = gpus(&at(1.0, 100.0), &at(3.5, 600.0));
        assert_eq!(seen.len(), 1);
        assert_eq!(
            (seen[0].busy_s, seen[0].energy_j, seen[0].sm_clock_hz),
            (2.5, 500.0, 2e9)
        );
        assert_eq!(seen[0].name, "X");
        assert_eq!(gpus(&Scrape::default(), &Scrape::default()), []);
    }

    fn document(count: u32, queue_ns: u32) -> String {
        let counted = |ns| format!("{{\"count\":{count},\"ns\":{ns}}}");
        format!(
            "{{\"model_stats\":[{{\"name\":\"m\",\"version\":\"1\",\"last_inference\":1,\"inference_stats\":{{\"success\":{},\"queue\":{},\
             \"compute_infer\":{}}}}},{{\"name\":\"other\",\"inference_stats\":{{\"success\":{{\"count\":99,\"ns\":1}}}}}}]}}",
            counted(5),
            counted(queue_ns),
            counted(700)
        )
    }

    #[test]
    fn what_grew_between_two_readings_is_of_the_model() {
        let reading = |count, ns| Statistics::parse("m", document(count, ns).as_bytes()).unwrap();
        let grown = reading(15, 900).since(&reading(5, 100)).unwrap();
        assert_eq!(
            (grown.requests, grown.parts_ns[0], grown.parts_ns[2]),
            (10.0, 800.0, 0.0)
        );
        assert_eq!(reading(5, 100).since(&reading(15, 900)), None);
        assert_eq!(Statistics::parse("absent", document(1, 1).as_bytes()), None);
        assert_eq!(Statistics::parse("m", b"{}"), None);
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_passed_over(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Statistics::parse("m", &body);
        }
    }
}
