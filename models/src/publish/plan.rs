//! Changes to make to a tier for models, tables and runs.

use super::target::{TierSink, object_path};
use crate::error::ModelsError;
use crate::progress::Progress;
use crate::repository::{self, entries};
use crate::tables::check;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tierlab_formats::model::{
    CONFIG_FILE, FEATURES_PREFIX, MANIFEST_FILE, MODELS_PREFIX, Manifest, TRITON_CONFIG_FILE,
};
use tierlab_formats::table::TableHeader;
use tierlab_storage::{Body, Object, ObjectPath};

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
    pub(super) unchanged: usize,
}

impl PublishPlan {
    pub(super) fn put_file(&mut self, object: ObjectPath, path: PathBuf) -> Result<(), ModelsError> {
        let bytes = fs::metadata(&path).map_err(ModelsError::io("read", &path))?.len();
        let put = Some((Body::File(path), bytes));
        self.steps.push(Step { object, put });
        Ok(())
    }

    pub(super) fn bytes(&self) -> u64 {
        let puts = self.steps.iter().filter_map(|step| step.put.as_ref());
        puts.map(|(_, bytes)| bytes).sum()
    }
}

/// Adds the steps for the model in `folder`.
///
/// Files in the local manifest are compared through the tier's manifest, and checked against their checksums before
/// they are put. Files outside the manifest cannot be compared and are put every time. Before files are replaced, the
/// tier's manifest loses their checksums: it refuses the mixture until the new one arrives, and a later publish puts them.
pub(super) async fn add_model(target: &TierSink<'_>, folder: &Path, plan: &mut PublishPlan) -> Result<(), ModelsError> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let object_for = |file: &str| object_path(MODELS_PREFIX, &format!("{name}/{file}"));
    // Listed before any file is opened, because opening a pipe would block forever.
    let existing = repository::all_files(folder)?;
    repository::read_config(folder)?;
    let manifest = repository::read_manifest(folder)?;
    let remote = target.read_whole(&object_for(MANIFEST_FILE)?).await?;
    let remote = remote.and_then(|bytes| Manifest::parse(&bytes).ok());
    let remote_files = remote.as_ref().map_or(&[][..], |manifest| manifest.files.as_slice());

    let first = plan.steps.len();
    let listed = manifest.map(|manifest| manifest.files).unwrap_or_default();
    for file in &listed {
        let object = object_for(&file.path)?;
        let is_complete = |found: Object| found.size == file.bytes;
        if remote_files.contains(file) && target.stat(&object).await?.is_some_and(is_complete) {
            plan.unchanged += 1;
        } else {
            repository::check_inside(folder, &folder.join(&file.path))?;
            repository::check_file(folder, file, target.stop)?;
            plan.put_file(object, folder.join(&file.path))?;
        }
    }
    let names = listed.iter().map(|file| file.path.as_str());
    let planned: BTreeSet<&str> = names.chain([CONFIG_FILE, TRITON_CONFIG_FILE, MANIFEST_FILE]).collect();
    for file in existing.iter().filter(|file| !planned.contains(file.as_str())) {
        plan.put_file(object_for(file)?, folder.join(file))?;
    }
    if let Some(mut remote) = remote {
        let is_put = |object: ObjectPath| plan.steps[first..].iter().any(|step| step.object == object);
        let mut is_mixed = false;
        for file in &mut remote.files {
            if !listed.contains(file) && object_for(&file.path).is_ok_and(is_put) {
                file.sha256 = "0".repeat(64);
                is_mixed = true;
            }
        }
        if is_mixed {
            let object = object_for(MANIFEST_FILE)?;
            let text = serde_json::to_vec(&remote).map_err(|e| ModelsError::bad(&object, &e))?;
            let bytes = text.len() as u64;
            let put = Some((Body::Bytes(text.into()), bytes));
            plan.steps.insert(first, Step { object, put });
        }
    }
    for config in [CONFIG_FILE, TRITON_CONFIG_FILE] {
        mirror(target, object_for(config)?, &folder.join(config), plan).await?;
    }
    mirror(target, object_for(MANIFEST_FILE)?, &folder.join(MANIFEST_FILE), plan).await
}

/// Makes a small object equal to its local file: put if it differs, removed if there is no local file.
async fn mirror(
    target: &TierSink<'_>,
    object: ObjectPath,
    local: &Path,
    plan: &mut PublishPlan,
) -> Result<(), ModelsError> {
    let wanted = repository::read_if_exists(local)?;
    let found = target.read_whole(&object).await?;
    match (wanted, found) {
        (None, None) => {}
        (Some(wanted), Some(found)) if found == wanted => plan.unchanged += 1,
        (wanted, _) => {
            let bytes = wanted.as_ref().map_or(0, Vec::len) as u64;
            let put = wanted.map(|wanted| (Body::Bytes(wanted.into()), bytes));
            plan.steps.push(Step { object, put });
        }
    }
    Ok(())
}

/// Adds the step for one table, unless the tier has it. A table is verified completely before it is put.
pub(super) async fn add_table(target: &TierSink<'_>, file: &Path, plan: &mut PublishPlan) -> Result<(), ModelsError> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let object = object_path(FEATURES_PREFIX, name)?;
    let header = check::read_header(file)?;
    if has_table(target, &object, &header).await? {
        plan.unchanged += 1;
        return Ok(());
    }
    let mut progress = Progress::bytes(&format!("checking {}", file.display()), header.file_len());
    check::verify(file, &mut progress, target.stop)?;
    plan.put_file(object, file.to_owned())
}

async fn has_table(target: &TierSink<'_>, path: &ObjectPath, header: &TableHeader) -> Result<bool, ModelsError> {
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
    let canonical = fs::canonicalize(folder).map_err(ModelsError::io("read", folder))?;
    let name = canonical.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if !canonical.join(RUN_FILE).is_file() {
        let folder = folder.display();
        return Err(ModelsError::Usage(format!(
            "{folder}: not a run, missing {RUN_FILE}: name the folder that `tierlab-loadgen` wrote, as results/RUN"
        )));
    }
    let mut files = Vec::new();
    files_below(&canonical, &mut files)?;
    let last = canonical.join(RUN_FILE);
    files.sort_by_key(|file| (*file == last, file.clone()));
    for file in files {
        let relative = repository::name_below(&canonical, &file)?;
        let object = object_path(RESULTS_PREFIX, &format!("{name}/{relative}"))?;
        plan.put_file(object, file)?;
    }
    Ok(())
}

/// Collects the files of a folder and of those in it, without links.
fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), ModelsError> {
    for path in entries(folder)? {
        let found = fs::symlink_metadata(&path).map_err(ModelsError::io("read", &path))?;
        if found.is_dir() {
            files_below(&path, files)?;
        } else if found.is_file() {
            files.push(path);
        }
    }
    Ok(())
}
