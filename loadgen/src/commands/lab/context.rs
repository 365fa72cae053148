//! Context of every part of the lab: its plan, the project's other programs, Ctrl-C; and which server of a variant is meant.

use crate::children;
use crate::error::RunError;
use crate::plan::{LabPlan, Origin, Plan, VariantPlan};
use std::path::{Path, PathBuf};
use tierlab_load::interrupt::Interrupt;

/// Plan and programs of a lab.
#[derive(Debug)]
pub(super) struct LabContext<'a> {
    pub(super) plan: &'a Plan,
    pub(super) lab: &'a LabPlan,
    pub(super) programs: Programs,
    pub(super) interrupt: &'a Interrupt,
    /// True if tables and remarks are printed before the answer.
    pub(super) verbose: bool,
}

/// Paths of the project's other programs.
#[derive(Debug, Default)]
pub(super) struct Programs {
    pub(super) server: PathBuf,
    pub(super) models: PathBuf,
    pub(super) origin: Option<PathBuf>,
}

/// Finds the programs, each of which must exist.
pub(super) fn programs(lab: &LabPlan, folder: Option<&Path>) -> Result<Programs, RunError> {
    if lab.variants.iter().all(|variant| variant.target.is_some()) {
        // None is started.
        return Ok(Programs::default());
    }
    let embedded = lab.tiers.iter().any(|tier| tier.origin == Origin::Embedded);
    Ok(Programs {
        server: children::program(folder, "tierlab-server")?,
        models: children::program(folder, "tierlab-models")?,
        origin: embedded
            .then(|| children::program(folder, "tierlab-origin"))
            .transpose()?,
    })
}

/// Purpose of a server. Servers for loads keep running while others are started for cold starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Loads,
    ColdStarts,
}

/// One server of a variant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) variant: &'a VariantPlan,
    /// From 0, below the variant's `servers`.
    pub(super) number: u32,
    pub(super) purpose: Purpose,
}

impl Place<'_> {
    /// Name of its log, without the ending.
    pub(super) fn log_name(&self) -> String {
        let mut name = self.variant.file_name();
        if self.purpose == Purpose::ColdStarts {
            name += "-restart";
        }
        if self.number > 0 {
            name += &format!("-{}", self.number + 1);
        }
        name
    }
}
