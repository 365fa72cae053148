//! Folder of a run, and the checksums of its configuration files.

use super::time::rfc3339;
use crate::error::RunError;
use crate::plan::Plan;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Returns the folder of a new run: `OUT/NAME`, or `OUT/PLAN-TIME` without a name.
///
/// # Errors
/// A folder of that name is not empty, cannot be created, or is another run's.
pub fn new_folder(out: &Path, name: Option<&str>, plan: &Plan) -> Result<(PathBuf, Claim), RunError> {
    let stamp = rfc3339(SystemTime::now()).replace([':', '-'], "");
    let folder = out.join(name.map_or_else(|| format!("{}-{stamp}", plan.name), ToOwned::to_owned));
    std::fs::create_dir_all(&folder).map_err(|error| {
        RunError::Usage(format!(
            "{}: the result's folder cannot be made: {error}; name another place by --out",
            folder.display()
        ))
    })?;
    let claim = claim(&folder)?;
    // Checked once nobody else can claim it: a run begins to write seconds after it has its folder.
    let taken = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
    if taken {
        return Err(RunError::Usage(format!(
            "{} holds a result already; choose another --name, remove it, or resume it by --resume",
            folder.display()
        )));
    }
    Ok((folder, claim))
}

/// Exclusive use of a run's folder by one process, until this is dropped or the process ends.
#[derive(Debug)]
pub struct Claim(
    // Unlocked when closed; `None` if the folder does not exist, or its file system has no locks.
    #[expect(dead_code, reason = "it is held")] Option<File>,
);

/// Claims a folder for this process alone.
///
/// # Errors
/// Another process has it.
pub fn claim(folder: &Path) -> Result<Claim, RunError> {
    let Ok(file) = File::open(folder) else {
        return Ok(Claim(None));
    };
    match file.try_lock() {
        Ok(()) => Ok(Claim(Some(file))),
        Err(TryLockError::Error(_)) => Ok(Claim(None)),
        Err(TryLockError::WouldBlock) => Err(RunError::Usage(format!(
            "{}: another run is being written there; choose another --name, or wait for its end",
            folder.display()
        ))),
    }
}

/// Returns the SHA-256 of files, by path.
///
/// # Errors
/// A file that cannot be read.
pub fn sha256(files: &[&Path]) -> Result<BTreeMap<String, String>, RunError> {
    files
        .iter()
        .map(|file| Ok((file.display().to_string(), sha256_of(file)?)))
        .collect()
}

/// Returns the SHA-256 of a file, read in pieces.
///
/// # Errors
/// A file that cannot be read.
pub fn sha256_of(file: &Path) -> Result<String, RunError> {
    let opened = File::open(file).map_err(RunError::io(file))?;
    let (mut opened, mut hash) = (BufReader::with_capacity(1 << 20, opened), Sha256::new());
    loop {
        let piece = opened.fill_buf().map_err(RunError::io(file))?;
        if piece.is_empty() {
            return Ok(hex::encode(hash.finalize()));
        }
        hash.update(piece);
        let length = piece.len();
        opened.consume(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_one_runs_alone_until_that_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let first = claim(folder.path()).unwrap();
        assert!(claim(folder.path()).unwrap_err().to_string().contains("another run"));
        drop(first);
        claim(folder.path()).unwrap();
        // A missing folder is reported elsewhere.
        assert!(claim(&folder.path().join("none")).is_ok());
    }
}
