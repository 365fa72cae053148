//! A variant of a lab: one way to keep models and features, with all that was chosen for it.

use serde::{Deserialize, Serialize};

/// One way to keep models and features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Name in results.
    pub name: String,
    /// The kind of its tier: `nvme`, `nfs`, `s3`, …
    pub tier: String,
    /// Origin: `real`, `embedded`, or `emulated` with its profile and the profile's source.
    pub origin: String,
    /// The profile of an emulated one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulated: Option<String>,
    /// The copy on a local folder, and what it held when measuring began; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<StageState>,
    /// Layout of its feature tables; absent for row files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// Rows of one run at most, 0 for each request alone; absent where the model's own config says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batching: Option<u32>,
    /// The cache state's name.
    pub cache: String,
    /// The cache's capacity as share of the table; 0 is no cache.
    pub cache_share: f64,
    /// The entry of the price list that its tier is charged by; absent where the instance's price covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
    /// The instance type that it is priced on; the plan's where it names none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Servers of it that take turns and share its tier; 1 where it is no fleet.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub servers: u32,
    /// Keys of the server's config that were set for it, as `KEY=VALUE`.
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
    /// Preparation.
    pub prepared: StageFill,
    /// True if all servers of a fleet share it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_shared: bool,
    /// Bytes that it held then.
    pub held_bytes: u64,
    /// Bytes that it may hold.
    pub capacity_bytes: u64,
}

/// Preparation of a stage before measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StageFill {
    /// Nothing in it.
    Empty,
    /// Every row that is asked for was read once.
    Filled,
}
