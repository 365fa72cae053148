//! Storage of a lab's features: tiers and their origins, states of the feature cache, cold starts, fleets that share a tier.

use super::fault::{Fault, check_distinct, check_range, empty};
use super::value::{self, Within};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tierlab_analysis::record::{ColdWay, PageCache};

/// Maximum servers of a fleet on one machine.
const MOST_SERVERS: f64 = 64.0;

/// Tier of a lab.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TierPlan {
    /// Name: a file of the server's `tiers/` folder.
    pub name: String,
    /// Kind in that file.
    pub kind: String,
    /// Service behind the tier.
    pub origin: Origin,
    /// If true, the lab writes models and tables to it.
    pub publish: bool,
    /// Keys of the tier's config to set.
    pub set: toml::Table,
}

/// Service behind a tier.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, strum::Display, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Origin {
    /// Server that the lab starts on this machine.
    Embedded,
    /// Imitation of the real service, at the address in the tier's own config.
    Emulated,
    /// Real service, at the address in the tier's own config.
    #[default]
    Real,
}

/// State of the server's feature cache: `[[lab.cache]]`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheState {
    /// Name for variants: `cold`, `warm`, …
    pub name: String,
    /// Capacity as share of the table's bytes; 0 disables the cache.
    #[serde(with = "Within::<value::CacheShare>")]
    pub share: f64,
    /// If true, it is filled with the most popular entities before it is measured.
    #[serde(default)]
    pub prefill: bool,
    /// Handling of the page cache below the tier's files before each step: "dropped" tells the kernel to forget them, if they
    /// are on this machine.
    #[serde(default)]
    pub page_cache: PageCache,
    /// Keys of the server's `[cache]` to set in this state.
    #[serde(default)]
    #[schemars(with = "value::AnyTable")]
    pub set: toml::Table,
}

impl CacheState {
    /// No cache: every row comes from the tier.
    pub fn none() -> Self {
        Self {
            name: "cold".into(),
            ..Self::default()
        }
    }
}

/// Cold starts of a lab: `[lab.cold_start]`. The lab sets `repository.control` and `admin.enabled` for them.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ColdStartPlan {
    /// Repeats of each way on each tier.
    #[serde(with = "Within::<value::Repeats>")]
    pub repeats: u32,
    /// Ways in which models come to be served: "load" unloads the model and loads it again by the repository API of a running
    /// server, which reports its stages; "restart" starts a server for it.
    pub ways: Vec<ColdWay>,
    /// Handling of the page cache below the tier's files before each: "dropped" tells the kernel to forget them; with "as-is",
    /// recently written files are in memory.
    #[serde(default)]
    pub page_cache: PageCache,
    /// Seconds over which a fleet's servers start at random times; each is measured. 0 starts all at once.
    #[serde(default = "at_once")]
    pub jitter_s: Vec<f64>,
}

pub(super) fn at_once() -> Vec<f64> {
    vec![0.0]
}

/// Servers that share a tier, and its limits for all of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFleet {
    /// Numbers of servers to measure each variant with.
    servers: Vec<u32>,
    /// Requests per second of an emulated service for all servers together, in place of its profile's. `gp3` is a volume of each server
    /// and keeps its own limits.
    #[serde(default, with = "Within::<value::SharedRequests>")]
    requests_per_s: Option<u32>,
    /// Bytes per second, likewise.
    #[serde(default, with = "Within::<value::SharedBytes>")]
    bytes_per_s: Option<u64>,
}

impl RawFleet {
    /// Numbers of servers.
    pub(super) fn sizes(&self) -> Result<&[u32], Fault> {
        if self.servers.is_empty() {
            return empty("fleet.servers");
        }
        for (i, &servers) in self.servers.iter().enumerate() {
            check_range(&format!("fleet.servers[{i}]"), f64::from(servers), 1.0, MOST_SERVERS)?;
        }
        check_distinct("fleet.servers", &self.servers)?;
        Ok(&self.servers)
    }

    /// Keys of an emulated service that all servers share, as `KEY=VALUE`.
    pub(super) fn shared_limits(&self) -> Vec<String> {
        let requests = self.requests_per_s.map(|rate| format!("requests_per_s={rate}"));
        let bytes = self.bytes_per_s.map(|rate| format!("service_bytes_per_s={rate}"));
        requests.into_iter().chain(bytes).collect()
    }
}
