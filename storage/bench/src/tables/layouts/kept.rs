//! `run.json` of a comparison of layouts.

use super::statements::Statement;
use crate::tables::ran::Ran;
use serde::Serialize;

/// All that is kept of a run.
#[derive(Debug, Serialize)]
pub(super) struct Kept {
    #[serde(flatten)]
    pub(super) ran: Ran,
    pub(super) rows: u64,
    pub(super) row_bytes: u64,
    pub(super) batch_rows: u32,
    pub(super) scan_depth: usize,
    pub(super) statements: Vec<Statement>,
}
