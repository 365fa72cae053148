//! A run as `run.json` keeps it.

use crate::machine::Environment;
use crate::summary::Summary;
use serde::Serialize;
use std::collections::BTreeMap;

/// A run.
#[derive(Debug, Serialize)]
pub(crate) struct Kept {
    pub(crate) name: String,
    pub(crate) interrupted: bool,
    pub(crate) environment: Environment,
    /// What each tier says of itself: place, wrappers, whether it is emulated.
    pub(crate) tiers: BTreeMap<String, Vec<String>>,
    /// Tools that are missing, and how to get them.
    pub(crate) peer_notes: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) size_bytes: u64,
    pub(crate) window_s: f64,
    pub(crate) warmup_s: f64,
    pub(crate) points: Vec<Summary>,
    pub(crate) plan: String,
}
