//! Changes to make to a tier for tables and runs.

use super::target::{Target, object_path};
use crate::error::ModelsError;
use crate::progress::Progress;
use crate::stop::Stop;
use crate::tables::check;
use std::fs;
use std::path::{Path, PathBuf};
use tierlab_formats::model::FEATURES_PREFIX;
use tierlab_formats::table::TableHeader;
use tierlab_storage::{Body, ObjectPath};

/// One change to the tier.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) object: ObjectPath,
    /// New content with its bytes; `None` removes the object.
    pub(super) put: Option<(Body, u64)>,
}

/// Changes in their order, and the number of objects that need none.
#[derive(Debug, Default)]
pub(super) struct PublishPlan {
    pub(super) steps: Vec<Step>,
    pub(super) already_there: usize,
}

impl PublishPlan {
    pub(super) fn put_file(&mut self, object: ObjectPath, path: PathBuf) -> Result<(), ModelsError> {
        let bytes = fs::metadata(&path).map_err(ModelsError::io("look at", &path))?.len();
        let put = Some((Body::File(path), bytes));
        self.steps.push(Step { object, put });
        Ok(())
    }

    pub(super) fn bytes(&self) -> u64 {
        let puts = self.steps.iter().filter_map(|step| step.put.as_ref());
        puts.map(|(_, bytes)| bytes).sum()
    }
}

/// Adds the step for one table, unless the tier has it. A table is verified completely before it is put.
pub(super) async fn add_table(
    target: &Target<'_>,
    file: &Path,
    plan: &mut PublishPlan,
    stop: &Stop,
) -> Result<(), ModelsError> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let object = object_path(FEATURES_PREFIX, name)?;
    let header = check::read_header(file)?;
    if has_table(target, &object, &header).await? {
        plan.already_there += 1;
        return Ok(());
    }
    let mut progress = Progress::bytes(&format!("checking {}", file.display()), header.file_len());
    check::verify(file, &mut progress, stop)?;
    plan.put_file(object, file.to_owned())
}

async fn has_table(target: &Target<'_>, path: &ObjectPath, header: &TableHeader) -> Result<bool, ModelsError> {
    match target.stat(path).await? {
        Some(object) if object.size == header.file_len() => {
            Ok(target.read(&object, 0..header.header_len()).await? == header.encode())
        }
        _ => Ok(false),
    }
}

/// Folder of runs on a tier: `results/RUN/...`.
const RESULTS_PREFIX: &str = "results";
/// File that marks a folder as a run.
const RUN_FILE: &str = "run.json";

/// Adds the steps for one run: every file of its folder, even if it exists already.
pub(super) fn add_run(folder: &Path, plan: &mut PublishPlan) -> Result<(), ModelsError> {
    let whole = fs::canonicalize(folder).map_err(ModelsError::io("look at", folder))?;
    let name = whole.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !whole.join(RUN_FILE).is_file() {
        let what = format!(
            "{}: not a run, missing {RUN_FILE}: name the folder that `tierlab-loadgen` wrote, as results/RUN",
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
