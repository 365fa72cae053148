//! Where a run lies and what it was made of: its folder, and the sums of the files that configured it.

use super::time::rfc3339;
use crate::error::RunError;
use crate::plan::Plan;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The folder of a new run: `OUT/NAME`, or `OUT/PLAN-TIME` without a name.
///
/// # Errors
/// A folder of that name holds something already.
pub fn new_folder(out: &Path, name: Option<&str>, plan: &Plan) -> Result<PathBuf, RunError> {
    let stamp = rfc3339(SystemTime::now()).replace([':', '-'], "");
    let folder = out.join(name.map_or_else(|| format!("{}-{stamp}", plan.name), ToOwned::to_owned));
    let taken = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
    if taken {
        return Err(RunError::Usage(format!(
            "{} holds a result already; choose another --name, remove it, or resume it by --resume",
            folder.display()
        )));
    }
    std::fs::create_dir_all(&folder).map_err(|error| {
        RunError::Usage(format!(
            "{}: the result's folder cannot be made: {error}; name another place by --out",
            folder.display()
        ))
    })?;
    Ok(folder)
}

/// SHA-256 of files, by path.
///
/// # Errors
/// A file that cannot be read.
pub fn sha256(files: &[&Path]) -> Result<BTreeMap<String, String>, RunError> {
    use sha2::{Digest, Sha256};
    files
        .iter()
        .map(|file| {
            let bytes = std::fs::read(file).map_err(RunError::io(file))?;
            Ok((file.display().to_string(), hex::encode(Sha256::digest(bytes))))
        })
        .collect()
}
