//! `run.json` of a comparison of layouts.

use super::statements::Statement;
use crate::machine::Environment;
use serde::Serialize;
use std::collections::BTreeMap;

/// All that is kept of a run.
#[derive(Debug, Serialize)]
pub(super) struct Kept {
    pub(super) schema_version: u32,
    pub(super) name: String,
    pub(super) interrupted: bool,
    pub(super) environment: Environment,
    /// What each tier says of itself.
    pub(super) tiers: BTreeMap<String, Vec<String>>,
    pub(super) rows: u64,
    pub(super) row_bytes: u64,
    pub(super) batch_rows: u32,
    pub(super) scan_depth: usize,
    pub(super) repeats: u32,
    pub(super) statements: Vec<Statement>,
    pub(super) plan: String,
}
