//! The shape of `run.json`: a whole run, and how often it was resumed.

use super::{
    Answer, CarriedCertificate, Check, ColdStart, Environment, Finding, Limits, Point, Pricing, Question, Slo, Variant,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the shape of `run.json`.
pub const SCHEMA_VERSION: u32 = 1;

/// A whole run: one sweep or one lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// Version of the shape of this document, now 1.
    pub schema_version: u32,
    /// The plan's name.
    pub name: String,
    /// UTC, RFC 3339.
    pub started_at: String,
    /// UTC, RFC 3339.
    pub finished_at: String,
    /// True if it was stopped before its last point.
    pub interrupted: bool,
    /// Each time that it was resumed after it had stopped; empty for a run in one piece.
    #[serde(default)]
    pub resumed: Vec<Resumption>,
    /// The plan's text, as read but for credentials.
    pub plan_toml: String,
    /// Protocol of requests: `http`, as JSON or with binary tensors, or `grpc`.
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
    pub certificates: Vec<CarriedCertificate>,
    /// The limits that verdicts are given by.
    pub limits: Limits,
    /// Prices used.
    pub pricing: Option<Pricing>,
    /// The objective that the highest rate was searched under; absent where none was.
    #[serde(default)]
    pub slo: Option<Slo>,
    /// Findings of each curve.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Cold starts, in the order in which they were measured.
    #[serde(default)]
    pub cold_starts: Vec<ColdStart>,
    /// Why the search ended before it had come to its end; absent where it did, or there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search_stopped: Option<String>,
    /// Question; absent in runs without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Question>,
    /// Seconds of the question's budget that were used, warm-ups and drains included; absent in results made before they were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_spent_s: Option<f64>,
    /// The variants of the question, in the plan's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
    /// Answer to the question; absent in runs without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer>,
    /// Every configuration, in the plan's order.
    pub points: Vec<Point>,
}

/// A run that stopped was resumed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resumption {
    /// UTC, RFC 3339.
    pub at: String,
    /// Steps that were finished by then.
    pub finished_steps: usize,
    /// Differences from the environment at the run's start; empty if there are none.
    pub differences: Vec<String>,
}

/// Protocol of results made before there was a choice.
fn http() -> String {
    "http".into()
}
