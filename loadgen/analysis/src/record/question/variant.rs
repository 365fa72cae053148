//! Variant of a lab: one way to store models and features, with its settings.

use serde::{Deserialize, Serialize};

/// One way to store models and features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Name in results.
    pub name: String,
    /// Kind of its tier: `nvme`, `nfs`, `s3`, …
    pub tier: String,
    /// Origin: `real`, `embedded`, or `emulated` with its profile and the profile's source.
    pub origin: String,
    /// Profile of an emulated origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// Copy on a local folder, with its content at the start of measuring; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<StageState>,
    /// Layout of its feature tables; absent for row files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// Maximum rows per run, 0 to disable batching; absent to use the model's own config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batching: Option<u32>,
    /// Name of the cache state.
    pub cache: String,
    /// Capacity of the cache as a share of the table; 0 is no cache.
    pub cache_share: f64,
    /// Entry of the price list for its tier; absent if the instance's price covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// Instance type for its price; default: the plan's instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Number of servers in a fleet that share its tier; 1 without a fleet.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub servers: u32,
    /// Keys of the server's config set for this variant, as `KEY=VALUE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<String>,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_one(servers: &u32) -> bool {
    *servers == 1
}

/// Content of a stage at the start of measuring.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StageState {
    /// Preparation before measuring.
    pub prepared: StageFill,
    /// True if all servers of a fleet share it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shared: bool,
    /// Bytes held at the start.
    pub held_bytes: u64,
    /// Maximum bytes.
    pub capacity_bytes: u64,
}

/// Preparation of a stage before measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageFill {
    /// Empty stage.
    Empty,
    /// Stage filled by reading every requested row once.
    Filled,
}
