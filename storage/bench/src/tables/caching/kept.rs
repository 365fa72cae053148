//! `run.json` of a comparison of caches.

use super::price::Prices;
use super::statements::{Computed, Statement};
use crate::tables::ran::Ran;
use serde::Serialize;

/// All that is kept of a run.
#[derive(Debug, Serialize)]
pub(super) struct Kept {
    #[serde(flatten)]
    pub(super) ran: Ran,
    pub(super) rows: u32,
    pub(super) row_bytes: u64,
    pub(super) table_bytes: u64,
    pub(super) lookups: u32,
    pub(super) trace_lookups: u32,
    pub(super) depth: usize,
    pub(super) prices: Option<Prices>,
    pub(super) measured: Vec<Statement>,
    pub(super) computed: Vec<Computed>,
}
