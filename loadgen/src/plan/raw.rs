//! A plan as it stands in its file. In: TOML. Out: keys with their defaults, numbers within their ranges. [`super::Plan`] checks
//! keys that depend on each other.

use super::check::{Base, Source, Step};
use super::value;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierlab_analysis::record::Limits;
use tierlab_load::by_goose::closed_loop::Think;

/// Top level of a plan.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPlan {
    pub(super) name: String,
    pub(super) model: String,
    pub(super) seed: u64,
    #[serde(default = "ten", deserialize_with = "value::repeats")]
    pub(super) repeats: u32,
    #[serde(deserialize_with = "value::warmup_s")]
    pub(super) warmup_s: f64,
    #[serde(deserialize_with = "value::step_s")]
    pub(super) step_s: f64,
    #[serde(deserialize_with = "value::drain_s")]
    pub(super) drain_s: f64,
    #[serde(default = "default_max_in_flight", deserialize_with = "value::max_in_flight")]
    pub(super) max_in_flight: u32,
    /// "kept" for a connection of each user that its requests share, "new" for a connection of each request, whose set-up counts as
    /// service time (HTTP in open loops only).
    #[serde(default)]
    pub(super) connections: RawConnections,
    #[serde(default = "default_timeout_ms", deserialize_with = "value::timeout_ms")]
    pub(super) timeout_ms: u64,
    #[serde(default, deserialize_with = "value::reply_limit_bytes")]
    pub(super) reply_limit_bytes: Option<u64>,
    #[serde(default)]
    pub(super) protocol: tierlab_load::payload::Protocol,
    pub(super) encoding: Option<tierlab_load::payload::Encoding>,
    #[serde(default)]
    pub(super) arrivals: super::arrivals::RawProcess,
    #[serde(default)]
    pub(super) arrival: super::arrivals::RawArrival,
    pub(super) shape: Option<super::arrivals::RawShape>,
    #[serde(default)]
    pub(super) keys: RawKeys,
    #[serde(default)]
    pub(super) inputs: super::inputs::RawInputs,
    #[serde(default)]
    pub(super) noise_floor: bool,
    #[serde(default)]
    pub(super) selfcheck: bool,
    pub(super) prices: Option<PathBuf>,
    pub(super) instance: Option<String>,
    #[serde(default)]
    pub(super) limits: Limits,
    pub(super) search: Option<super::search::RawSearch>,
    #[serde(default)]
    pub(super) load: Vec<RawLoad>,
    #[serde(default)]
    pub(super) mix: Vec<super::mix::RawMix>,
    #[serde(default)]
    pub(super) journey: Vec<RawJourney>,
    pub(super) question: Option<super::question::RawQuestion>,
    #[serde(default)]
    pub(super) variant: Vec<super::variant::RawVariant>,
    pub(super) target: Option<super::target::RawTarget>,
    pub(super) lab: Option<RawLab>,
    /// Servers that share a tier, and its limits for all of them.
    pub(super) fleet: Option<super::storage::RawFleet>,
}

impl RawPlan {
    /// Facts that its parts are checked against; its paths are relative to `base`.
    pub(super) const fn source<'a>(&'a self, base: Base<'a>) -> Source<'a> {
        Source {
            base,
            step: Step {
                warmup_s: self.warmup_s,
                step_s: self.step_s,
            },
            repeats: self.repeats,
            limits: &self.limits,
            protocol: self.protocol,
            fleet: self.fleet.as_ref(),
            has_prices: self.prices.is_some(),
        }
    }
}

/// `connections`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawConnections {
    /// Kept from request to request.
    #[default]
    Kept,
    /// Opened for each request.
    New,
}

/// `[keys]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawKeys {
    #[serde(default)]
    pub(super) distribution: RawDistribution,
    #[serde(default, deserialize_with = "value::zipf_exponent")]
    pub(super) exponent: Option<f64>,
    pub(super) file: Option<PathBuf>,
    pub(super) column: Option<String>,
    #[serde(default)]
    pub(super) text: bool,
}

/// `keys.distribution`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawDistribution {
    #[default]
    Uniform,
    Zipf,
    Sequential,
    File,
}

/// `[[load]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLoad {
    pub(super) mode: RawMode,
    #[serde(default)]
    pub(super) batch_sizes: Vec<u32>,
    #[serde(default)]
    pub(super) rates: Vec<f64>,
    /// With `mode = "concurrency"`: numbers of users. A user sends again after its reply and its think time. Each number is a point of
    /// its own, measured beside an open loop at the same throughput.
    #[serde(default)]
    pub(super) users: Vec<u32>,
    /// With `mode = "concurrency"`: pause between a reply and the user's next request in milliseconds: a number, `[least, most]` for a
    /// uniform one, `{ exponential = 50 }` for an exponential one of that mean (default: none).
    #[serde(default, deserialize_with = "value::think_time_ms")]
    pub(super) think_time_ms: Option<Think>,
}

/// `load.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawMode {
    /// One entity per request, at rates.
    Realtime,
    /// Many entities per request, at rates.
    Batch,
    /// A closed loop of users.
    Concurrency,
}

impl RawLoad {
    /// True for a closed loop.
    pub(super) fn is_closed(&self) -> bool {
        self.mode == RawMode::Concurrency
    }
}

/// `[[journey]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawJourney {
    /// Name in the result, a plain word.
    pub(super) name: String,
    /// Journeys begun per second, by the plan's arrivals; each rate is measured by itself.
    pub(super) rates: Vec<f64>,
    #[serde(default)]
    pub(super) step: Vec<RawStep>,
}

/// `[[journey.step]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStep {
    /// Name in the result, a plain word.
    pub(super) name: String,
    /// Model to request, in place of a `path`.
    pub(super) model: Option<String>,
    /// With `model`: "http", or "grpc" at `--grpc-url` (default: the plan's `protocol`).
    pub(super) protocol: Option<tierlab_load::payload::Protocol>,
    /// With `model`: value of each input, a number, a list or a text; `"{name}"` is a value that an earlier step took, or
    /// `{entity_id}`. Without `inputs` and `body` the model joins the row of `{entity_id}`.
    pub(super) inputs: Option<BTreeMap<String, toml::Value>>,
    /// With `path`: GET, POST, PUT, PATCH, DELETE or HEAD (default: POST with a body, else GET).
    pub(super) method: Option<String>,
    /// Path of the server with its query; `{name}` in it is a value's text, percent-encoded.
    pub(super) path: Option<String>,
    /// With `path`: headers of the request, without credentials, since results keep the plan.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// Body of the request with `{name}` for values: as JSON, or as text where it stands inside a JSON string; `{{name}}` is no
    /// value. With `model` a whole infer request.
    pub(super) body: Option<String>,
    /// With `path`: status of a success (default: any 2xx).
    #[serde(default, deserialize_with = "value::status")]
    pub(super) status: Option<u16>,
    /// Values handed on: names, and JSON pointers into the reply (`/outputs/0/data`). A reply without a value is wrong.
    #[serde(default)]
    pub(super) take: BTreeMap<String, String>,
}

/// `[lab]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLab {
    #[serde(default)]
    pub(super) tiers: Vec<String>,
    pub(super) work: PathBuf,
    pub(super) server_config: Option<PathBuf>,
    #[serde(default = "default_ready_timeout_s", deserialize_with = "value::ready_timeout_s")]
    pub(super) ready_timeout_s: u64,
    #[serde(default)]
    pub(super) server: toml::Table,
    #[serde(default)]
    pub(super) cache: Vec<super::storage::CacheState>,
    pub(super) cold_start: Option<super::storage::ColdStartPlan>,
    #[serde(default)]
    pub(super) data: RawData,
    #[serde(default)]
    pub(super) tier: BTreeMap<String, RawTier>,
}

/// `[lab.data]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawData {
    #[serde(default, deserialize_with = "value::table_rows")]
    pub(super) rows: Option<u64>,
    pub(super) model_size: Option<String>,
    pub(super) repository: Option<PathBuf>,
    pub(super) features: Option<PathBuf>,
}

/// `[lab.tier.NAME]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTier {
    pub(super) origin: Option<super::storage::Origin>,
    pub(super) publish: Option<bool>,
    #[serde(default)]
    pub(super) set: toml::Table,
}

const fn ten() -> u32 {
    10
}
const fn default_max_in_flight() -> u32 {
    256
}
const fn default_timeout_ms() -> u64 {
    2_000
}
const fn default_ready_timeout_s() -> u64 {
    120
}
