//! Parts of a result that are known before its first step.

use std::collections::BTreeMap;
use tierlab_analysis::record::{CarriedCertificate, Check, ColdStart, Environment, Point, Pricing, Variant};

/// State of the instrument before the first step.
#[derive(Debug)]
pub struct Instrument {
    /// Lines of the self-check, if the run performs its own.
    pub selfcheck: Vec<Check>,
    /// Latest certificate of this machine, possibly of this very self-check.
    pub certificate: CarriedCertificate,
    /// Noise floor: the plan's highest load on a null endpoint.
    pub noise_floor: Option<Point>,
}

/// Parts of a result that are known before the first step.
#[derive(Debug)]
pub struct Preamble {
    /// Environment of the run.
    pub environment: Environment,
    /// SHA-256 of the config files.
    pub config_sha256: BTreeMap<String, String>,
    /// Price list.
    pub pricing: Option<Pricing>,
    /// State of the instrument.
    pub instrument: Instrument,
    /// Variants of a question; empty without one.
    pub variants: Vec<Variant>,
    /// Cold starts, which precede every step.
    pub cold_starts: Vec<ColdStart>,
}
