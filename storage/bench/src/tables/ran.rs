//! What is kept of every run over tables.

use crate::machine::Environment;
use serde::Serialize;
use std::collections::BTreeMap;

/// What is kept of every run.
#[derive(Debug, Serialize)]
pub(super) struct Ran {
    pub(super) schema_version: u32,
    pub(super) name: String,
    pub(super) interrupted: bool,
    pub(super) environment: Environment,
    /// What each tier says of itself.
    pub(super) tiers: BTreeMap<String, Vec<String>>,
    pub(super) repeats: u32,
    pub(super) plan: String,
}
