//! What every part of the lab works with: its plan, the project's other programs, and Ctrl-C.

use crate::children;
use crate::error::RunError;
use crate::plan::{LabPlan, Origin, Plan};
use std::path::{Path, PathBuf};
use tierlab_load::interrupt::Interrupt;

/// What every part of the lab works with.
#[derive(Debug)]
pub(super) struct LabContext<'a> {
    pub(super) plan: &'a Plan,
    pub(super) lab: &'a LabPlan,
    pub(super) programs: Programs,
    pub(super) interrupt: &'a Interrupt,
}

/// The project's other programs.
#[derive(Debug, Default)]
pub(super) struct Programs {
    pub(super) server: PathBuf,
    pub(super) models: PathBuf,
    pub(super) origin: Option<PathBuf>,
}

/// The programs, each of which must be there.
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
