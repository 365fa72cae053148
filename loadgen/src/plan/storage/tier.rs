//! A tier of a lab: where data lie. Plain data, which `plan::lab` checks.

use super::origin::Origin;

/// One tier of a lab.
#[derive(Debug, Clone, PartialEq)]
pub struct TierPlan {
    /// Its name: a file of the server's `tiers/` folder.
    pub name: String,
    /// The kind that the file says it is; the name where there is no such file.
    pub kind: String,
    /// What stands behind it.
    pub origin: Origin,
    /// Whether the lab writes models and tables to it.
    pub publish: bool,
    /// Keys of the tier's config to set, as `KEY=VALUE`.
    pub set: Vec<String>,
}
