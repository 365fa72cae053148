//! Format of `run.json`: a whole run with its environment, its resumptions and its cold starts.

use super::{Answer, CarriedCertificate, Check, Finding, Limits, Point, Pricing, Question, Slo, Variant, one};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use strum::Display;

/// Version of the format of `run.json`.
pub const SCHEMA_VERSION: u32 = 1;

/// A whole run: one sweep or one lab.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// Version of this format, now 1.
    pub schema_version: u32,
    /// Name of the plan.
    pub name: String,
    /// Start of the run, UTC, RFC 3339.
    pub started_at: String,
    /// End of the run, UTC, RFC 3339.
    pub finished_at: String,
    /// True if it was stopped before its last point.
    pub interrupted: bool,
    /// Resumptions after a stop; empty for an uninterrupted run.
    #[serde(default)]
    pub resumed: Vec<Resumption>,
    /// Text of the plan, without credentials.
    pub plan_toml: String,
    /// Protocol of requests: `http`, as JSON or with binary tensors, or `grpc`.
    #[serde(default = "http")]
    pub protocol: String,
    /// SHA-256 of every config file used, and of a lab's model and table, by path; of a table its header, which has the checksums
    /// of its blocks.
    pub config_sha256: BTreeMap<String, String>,
    /// Machine, software and origins.
    pub environment: Environment,
    /// Noise floor: the same load on a null endpoint.
    pub noise_floor: Option<Point>,
    /// Checks of `selfcheck`, if it was run.
    pub selfcheck: Vec<Check>,
    /// Latest certificate of the self-check on the run's machine, one for each part of the run; empty in older results.
    #[serde(default)]
    pub certificates: Vec<CarriedCertificate>,
    /// Limits of the verdicts.
    pub limits: Limits,
    /// Prices used.
    pub pricing: Option<Pricing>,
    /// Objective of the search for the highest rate; absent without a search.
    #[serde(default)]
    pub slo: Option<Slo>,
    /// Findings of each curve.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Cold starts, in the order of measurement.
    #[serde(default)]
    pub cold_starts: Vec<ColdStart>,
    /// Reason for an early end of the search; absent if it ended normally, or without a search.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search_stopped: Option<String>,
    /// Rates that were left out because a lower one was saturated, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Question; absent in runs without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Question>,
    /// Seconds of the question's budget used, warm-ups and drains included; absent in older results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_spent_s: Option<f64>,
    /// Variants of the question, in the plan's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
    /// Answer to the question; absent in runs without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// Measured configurations, in the plan's order.
    pub points: Vec<Point>,
}

impl Run {
    /// Names and shortened hashes of a lab's models and tables; empty if they are unknown.
    pub fn data(&self) -> String {
        let files = self.config_sha256.iter();
        let data = files.filter(|(file, _)| file.ends_with(".rows") || file.ends_with(".onnx"));
        let data = data.map(|(file, hash)| format!("{} {hash:.12}", file.rsplit('/').next().unwrap_or(file)));
        Vec::from_iter(data.collect::<BTreeSet<_>>()).join(" with ")
    }
}

/// Resumption of a stopped run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resumption {
    /// Time of the resumption, UTC, RFC 3339.
    pub at: String,
    /// Steps finished before it.
    pub finished_steps: usize,
    /// Differences from the environment at the run's start; empty if there are none.
    pub differences: Vec<String>,
}

/// Protocol of older results, which had no choice.
fn http() -> String {
    "http".into()
}

/// Environment of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// GPUs with their driver; empty without a GPU.
    pub gpus: Vec<String>,
    /// ONNX Runtime's version and providers, as the server reports them.
    pub onnxruntime: String,
    /// Git commit of the project, with `-dirty` if the tree had changes; `unknown` outside a checkout.
    pub git_commit: String,
    /// Version of the load generator.
    pub version: String,
    /// Processes on the same cores: load generator, server, origins.
    pub shared_cores: Vec<String>,
    /// Properties of the machine that slow a run, from `tierlab-storage-bench doctor`; empty if it was not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machine_warnings: Vec<String>,
    /// Origin of each tier: `embedded`, `emulated` or `real`, with the tier's own notes.
    pub origins: BTreeMap<String, String>,
}

/// Cause of a cold start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Display, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ColdWay {
    /// Model unloaded, and loaded by the repository API of a running server.
    Load,
    /// New server process.
    Restart,
}

/// State of the files in the page cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Display, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PageCache {
    /// Unknown: recently read or written data is cached, except for direct reads (`O_DIRECT`).
    #[default]
    #[strum(to_string = "as is")]
    AsIs,
    /// Dropped just before (`posix_fadvise`, `POSIX_FADV_DONTNEED`).
    #[strum(to_string = "dropped")]
    Dropped,
}

/// Cold start of one server, or of several started together. Times are seconds from the due start of the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ColdStart {
    /// Tier of model and features.
    pub tier: String,
    /// Cause of the cold start.
    pub way: ColdWay,
    /// Index among the cold starts of its tier and cause, from 0.
    pub index: u32,
    /// State of the page cache below the tier's files.
    pub page_cache: PageCache,
    /// Number of servers started together.
    #[serde(default = "one")]
    pub servers: u32,
    /// Range over which the starts are spread at random, in seconds.
    #[serde(default)]
    pub jitter_s: f64,
    /// Stages of the load in order, as the server timed them; unreported stages are left out. With several servers,
    /// those of the last to reply.
    pub stages_s: Vec<(String, f64)>,
    /// Time from the call, or the start of the process, until the model was ready; with several servers, of the last to
    /// reply.
    pub ready_s: f64,
    /// Time from the send of the first request to its complete reply; with several servers, of the last to reply.
    pub first_reply_s: f64,
    /// Time until the first server had replied. Absent in older results.
    #[serde(default)]
    pub earliest_reply_s: Option<f64>,
    /// Bytes that all servers read from the tier, without copies on a local folder. Absent in older results.
    #[serde(default)]
    pub tier_bytes: Option<u64>,
}
