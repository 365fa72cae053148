//! `run.json` of an offline run.

use super::price::Prices;
use super::statements::Statement;
use crate::tables::ran::Ran;
use serde::Serialize;
use std::collections::BTreeMap;

/// All that is kept of a run.
#[derive(Debug, Serialize)]
pub(super) struct Kept {
    #[serde(flatten)]
    pub(super) ran: Ran,
    /// Of each workload.
    pub(super) tables: BTreeMap<String, KeptTable>,
    pub(super) window_s: f64,
    pub(super) sessions: usize,
    pub(super) session_threads: usize,
    pub(super) statements: Vec<Statement>,
    pub(super) prices: Option<Prices>,
    /// What could not be measured, and why.
    pub(super) failed: Vec<String>,
}

/// A table, and how it is taken.
#[derive(Debug, Serialize)]
pub(super) struct KeptTable {
    pub(super) rows: u64,
    pub(super) row_bytes: u64,
    pub(super) batch_rows: usize,
    pub(super) shuffle_rows: usize,
}
