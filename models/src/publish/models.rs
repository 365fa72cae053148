//! Plans the publishing of one model: files that the tier's manifest does not confirm are put, the manifest itself
//! last.

use super::plan::{PublishPlan, Step};
use super::target::{Target, object_path};
use crate::error::ModelsError;
use crate::repository;
use std::collections::BTreeSet;
use std::path::Path;
use tierlab_formats::model::{CONFIG_FILE, MANIFEST_FILE, MODELS_PREFIX, Manifest, ManifestFile, TRITON_CONFIG_FILE};
use tierlab_storage::{Body, ObjectPath};

/// Adds the steps for the model in `folder`.
///
/// Files in the local manifest are compared through the tier's manifest, and checked against their checksums before
/// they are put. Files outside the manifest cannot be compared and are put every time. While files are replaced the
/// tier's old manifest stays: its checksums refuse the mixture until the new one arrives.
pub(super) async fn plan(target: &Target<'_>, folder: &Path, plan: &mut PublishPlan) -> Result<(), ModelsError> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let at = |file: &str| object_path(MODELS_PREFIX, &format!("{name}/{file}"));
    // Listed before any file is opened, because opening a pipe would block forever.
    let found = repository::all_files(folder)?;
    repository::read_config(folder)?;
    let manifest = repository::read_manifest(folder)?;
    let remote = target.read_whole(&at(MANIFEST_FILE)?).await?;
    let remote = remote.and_then(|bytes| Manifest::parse(&bytes).ok());
    let vouched = remote.map(|manifest| manifest.files).unwrap_or_default();

    let listed = manifest.map(|manifest| manifest.files).unwrap_or_default();
    for file in &listed {
        let object = at(&file.path)?;
        if is_there(target, &object, file, &vouched).await? {
            plan.already_there += 1;
        } else {
            repository::check_inside(folder, &folder.join(&file.path))?;
            repository::check_file(folder, file, target.stop)?;
            plan.put_file(object, folder.join(&file.path))?;
        }
    }
    let known: BTreeSet<&str> = listed
        .iter()
        .map(|file| file.path.as_str())
        .chain([CONFIG_FILE, TRITON_CONFIG_FILE, MANIFEST_FILE])
        .collect();
    for file in found.iter().filter(|file| !known.contains(file.as_str())) {
        plan.put_file(at(file)?, folder.join(file))?;
    }
    for config in [CONFIG_FILE, TRITON_CONFIG_FILE] {
        mirror(target, at(config)?, &folder.join(config), plan).await?;
    }
    mirror(target, at(MANIFEST_FILE)?, &folder.join(MANIFEST_FILE), plan).await
}

/// True if the tier has this file, by its manifest's checksum and its length.
async fn is_there(
    target: &Target<'_>,
    object: &ObjectPath,
    file: &ManifestFile,
    vouched: &[ManifestFile],
) -> Result<bool, ModelsError> {
    Ok(vouched.contains(file) && target.stat(object).await?.is_some_and(|found| found.size == file.bytes))
}

/// Makes a small object equal to its local file: put if it differs, removed if there is no local file.
async fn mirror(
    target: &Target<'_>,
    object: ObjectPath,
    local: &Path,
    plan: &mut PublishPlan,
) -> Result<(), ModelsError> {
    let wanted = repository::read_if_there(local)?;
    let found = target.read_whole(&object).await?;
    match (wanted, found) {
        (None, None) => {}
        (Some(wanted), Some(found)) if found == wanted => plan.already_there += 1,
        (wanted, _) => {
            let bytes = wanted.as_ref().map_or(0, Vec::len) as u64;
            let put = wanted.map(|wanted| (Body::Bytes(wanted.into()), bytes));
            plan.steps.push(Step { object, put });
        }
    }
    Ok(())
}
