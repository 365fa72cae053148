//! Context of every part of the lab: its plan, the project's other programs, its data, Ctrl-C, the folder that it works
//! in; and one server of a variant.

use crate::children;
use crate::error::RunError;
use crate::plan::{LabPlan, Origin, Plan, VariantPlan};
use crate::selfcheck::certificate::state_folder;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tierlab_load::interrupt::Interrupt;

/// Plan and programs of a lab.
#[derive(Debug)]
pub(super) struct LabContext<'a> {
    pub(super) plan: &'a Plan,
    pub(super) lab: &'a LabPlan,
    pub(super) programs: Programs,
    /// Data for the servers; empty until they are prepared.
    pub(super) prepared: PreparedData,
    pub(super) interrupt: &'a Interrupt,
    /// True if tables and remarks are printed before the answer.
    pub(super) verbose: bool,
}

/// Data for the servers.
#[derive(Debug, Default)]
pub(super) struct PreparedData {
    /// Holds `NAME/VERSION/model.onnx`.
    pub(super) repository: PathBuf,
    /// Holds `TABLE.rows`.
    pub(super) features: PathBuf,
    /// Bytes of the table that the model joins; 0 without one.
    pub(super) table_bytes: u64,
    /// Bytes of that table by tier and layout, if it was laid out.
    pub(super) laid_out_bytes: BTreeMap<(String, String), u64>,
    /// Source of the data.
    pub(super) stamp: String,
    /// Files of the model, and the table that it joins.
    pub(super) files: Vec<PathBuf>,
}

impl PreparedData {
    /// Bytes that the table takes on the tier of a variant in its layout, once it was laid out.
    pub(super) fn laid_out_bytes_of(&self, variant: &VariantPlan) -> Option<u64> {
        let key = (variant.tier.name.clone(), variant.laid_out()?.to_owned());
        self.laid_out_bytes.get(&key).copied()
    }
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
        // No program is started.
        return Ok(Programs::default());
    }
    let embedded = lab.tiers.iter().any(|tier| tier.origin == Origin::Embedded);
    let program = |name| children::program(folder, name);
    Ok(Programs {
        server: program("tierlab-server")?,
        models: program("tierlab-models")?,
        origin: embedded.then(|| program("tierlab-origin")).transpose()?,
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
pub(super) struct Replica<'a> {
    pub(super) variant: &'a VariantPlan,
    /// Index of the server, from 0.
    pub(super) number: u32,
    pub(super) purpose: Purpose,
}

impl<'a> Replica<'a> {
    pub(super) const fn new(variant: &'a VariantPlan, number: u32, purpose: Purpose) -> Self {
        Self {
            variant,
            number,
            purpose,
        }
    }

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

/// Creates the chosen folder, or else the plan's. If this user cannot write to the folder of an installed plan, the lab
/// works below the user's state folder.
///
/// # Errors
/// A folder that cannot be created.
pub(super) fn work_folder(
    chosen: Option<&Path>,
    of_plan: &Path,
    name: &str,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<PathBuf, RunError> {
    let requested = chosen.unwrap_or(of_plan);
    let Err(error) = std::fs::create_dir_all(requested).and_then(|()| tempfile::tempfile_in(requested)) else {
        return Ok(requested.to_owned());
    };
    let kinds = [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem];
    let is_refused = kinds.contains(&error.kind());
    let (None, true, Some(state)) = (chosen, is_refused, state_folder(variable)) else {
        return Err(RunError::Usage(format!(
            "cannot write to the lab's work folder: {error}: {}; pass a writable folder by --work FOLDER",
            requested.display()
        )));
    };
    let fallback = state.join("tierlab/work").join(name);
    eprintln!(
        "{} is not writable ({error}): the lab works in {} (--work FOLDER sets another)",
        requested.display(),
        fallback.display()
    );
    std::fs::create_dir_all(&fallback).map_err(RunError::io(&fallback))?;
    Ok(fallback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_state_folder_stands_in_for_a_folder_that_cannot_be_written() {
        let place = tempfile::tempdir().unwrap();
        let home = place.path().display().to_string();
        let variable = |name: &str| (name == "XDG_STATE_HOME").then(|| OsString::from(&home));
        let of_plan = place.path().join("data/lab");
        assert_eq!(work_folder(None, &of_plan, "quick", variable).unwrap(), of_plan);
        // Nobody can write there, root included.
        let refused = Path::new("/sys/tierlab");
        let own = work_folder(None, refused, "quick", variable).unwrap();
        assert_eq!(own, place.path().join("tierlab/work/quick"));
        assert!(own.is_dir());
        // A path that cannot be a folder has no substitute.
        std::fs::write(place.path().join("file"), "").unwrap();
        assert!(work_folder(None, &place.path().join("file/lab"), "quick", variable).is_err());
        let error = work_folder(Some(refused), &of_plan, "quick", variable)
            .unwrap_err()
            .to_string();
        assert!(error.contains("/sys/tierlab; pass a writable folder"), "{error}");
    }
}
