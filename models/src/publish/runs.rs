//! Plans the publishing of a run's results. `run.json` is put last, so that no reader sees a run with missing files.

use super::plan::Plan;
use super::target::object_path;
use crate::error::ModelsError;
use std::fs;
use std::path::{Path, PathBuf};

/// Folder of runs on a tier: `results/RUN/...`.
const RESULTS_PREFIX: &str = "results";
/// File that marks a folder as a run.
const RUN_FILE: &str = "run.json";

/// Adds the steps for one run: every file of its folder, even if it exists already.
pub(super) fn plan(folder: &Path, plan: &mut Plan) -> Result<(), ModelsError> {
    let whole = fs::canonicalize(folder).map_err(ModelsError::io("look at", folder))?;
    let name = whole.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !whole.join(RUN_FILE).is_file() {
        let what = format!(
            "{}: no run, which has a {RUN_FILE}: name the folder that `tierlab-loadgen` wrote, as results/RUN",
            folder.display()
        );
        return Err(ModelsError::Usage(what));
    }
    let mut files = Vec::new();
    files_below(&whole, Path::new(""), &mut files)?;
    files.sort_by_key(|below| (below == Path::new(RUN_FILE), below.clone()));
    for below in files {
        let object = object_path(RESULTS_PREFIX, &format!("{name}/{}", below.display()))?;
        plan.put_file(object, whole.join(below))?;
    }
    Ok(())
}

/// Collects the files of a folder, as paths below it.
fn files_below(folder: &Path, below: &Path, files: &mut Vec<PathBuf>) -> Result<(), ModelsError> {
    let here = folder.join(below);
    for entry in fs::read_dir(&here).map_err(ModelsError::io("list", &here))? {
        let entry = entry.map_err(ModelsError::io("list", &here))?;
        let path = below.join(entry.file_name());
        match entry.file_type().map_err(ModelsError::io("look at", &entry.path()))? {
            kind if kind.is_dir() => files_below(folder, &path, files)?,
            kind if kind.is_file() => files.push(path),
            _ => {}
        }
    }
    Ok(())
}
