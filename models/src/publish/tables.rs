//! Plans the publishing of one feature table. Its header holds the checksum of every block, so equal headers and
//! lengths mean equal tables.

use super::plan::Plan;
use super::target::{Target, object_path};
use crate::error::ModelsError;
use crate::progress::Progress;
use crate::stop::Stop;
use crate::tables::check;
use std::path::Path;
use tierlab_formats::model::FEATURES_PREFIX;
use tierlab_formats::table::TableHeader;
use tierlab_storage::ObjectPath;

/// Adds the step for one table, unless the tier has it. A table is verified completely before it is put.
pub(super) async fn plan(target: &Target<'_>, file: &Path, plan: &mut Plan, stop: &Stop) -> Result<(), ModelsError> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let object = object_path(FEATURES_PREFIX, name)?;
    let header = check::read_header(file)?;
    if is_there(target, &object, &header).await? {
        plan.already_there += 1;
        return Ok(());
    }
    let mut progress = Progress::bytes(&format!("checking {}", file.display()), header.file_len());
    check::verify(file, &mut progress, stop)?;
    plan.put_file(object, file.to_owned())
}

async fn is_there(target: &Target<'_>, path: &ObjectPath, header: &TableHeader) -> Result<bool, ModelsError> {
    match target.stat(path).await? {
        Some(object) if object.size == header.file_len() => {
            Ok(target.read(&object, 0..header.header_len()).await? == header.encode())
        }
        _ => Ok(false),
    }
}
