//! `run.json` of a comparison of caches.

use super::price::Prices;
use super::statements::{Computed, Statement};
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
    pub(super) rows: u32,
    pub(super) row_bytes: u64,
    pub(super) table_bytes: u64,
    pub(super) lookups: u32,
    pub(super) trace_lookups: u32,
    pub(super) depth: usize,
    pub(super) repeats: u32,
    pub(super) prices: Option<Prices>,
    pub(super) measured: Vec<Statement>,
    pub(super) computed: Vec<Computed>,
    pub(super) plan: String,
}
