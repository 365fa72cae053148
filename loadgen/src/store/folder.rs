//! Folder of a run: a place for a new one, claimed by one process, written during the run, and read back.
//!
//! In: a [`Run`] whose points are summarised. Out: `run.json`, `hdr/*.hdr`, and the files derived from the run alone:
//! `summary.csv`, `answer.json`, `cold_starts.csv`, `report.md`, `report.html`. Must not measure.

use super::files::write_atomically;
use super::histograms::{hdr_path, read_histograms, write_histograms};
use super::journal::{self, Points};
use super::time::rfc3339;
use crate::error::{RunError, StoreError};
use crate::plan::Plan;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use tierlab_analysis::record::{Run, SCHEMA_VERSION};
use tierlab_formats::table::header_len;

/// The whole run except its histograms.
const RUN: &str = "run.json";
const CSV: &str = "summary.csv";
const ANSWER: &str = "answer.json";
const COLD_STARTS: &str = "cold_starts.csv";
const HTML: &str = "report.html";
const MARKDOWN: &str = "report.md";

/// Writes the data known before the first step, so that after a kill the folder can be read and resumed: `run.json`,
/// and the histograms of the noise floor.
///
/// # Errors
/// A file cannot be written.
pub fn begin(run: &Run, dir: &Path) -> Result<(), StoreError> {
    fs::create_dir_all(dir).map_err(StoreError::io(dir))?;
    for repeat in run.noise_floor.iter().flat_map(|point| &point.repeats) {
        write_histograms(dir, repeat)?;
    }
    write_run(run, dir)
}

/// Rewrites everything except the histograms, whose files were written when their steps finished.
///
/// # Errors
/// A file cannot be written.
pub fn rewrite(run: &Run, dir: &Path) -> Result<(), StoreError> {
    write_run(run, dir)?;
    write_views(run, dir)
}

/// Writes the files derived from the run alone: `summary.csv`, `report.md` and `report.html`, and `answer.json` if the
/// run has a question. Creates the folder if missing.
///
/// # Errors
/// A file cannot be written.
pub fn write_views(run: &Run, dir: &Path) -> Result<(), StoreError> {
    std::fs::create_dir_all(dir).map_err(StoreError::io(dir))?;
    write_csv(&dir.join(CSV), tierlab_report::summary_csv(run))?;
    if let Some(answer) = tierlab_report::answer_json(run) {
        write_atomically(&dir.join(ANSWER), answer.as_bytes())?;
    }
    if !run.cold_starts.is_empty() {
        write_csv(&dir.join(COLD_STARTS), tierlab_report::cold_starts_csv(run))?;
    }
    write_atomically(&dir.join(MARKDOWN), tierlab_report::markdown(run).as_bytes())?;
    write_atomically(&dir.join(HTML), tierlab_report::page(&[run]).as_bytes())
}

/// Reads a run back from its folder, histograms included. An unfinished run contains every step in its journal.
///
/// # Errors
/// A file is missing, damaged or of another schema.
pub fn load(dir: &Path) -> Result<Run, StoreError> {
    let mut run = read_run(dir)?;
    let steps = match run.interrupted {
        true => journal::read(dir)?,
        false => Vec::new(),
    };
    let points = run.points.iter_mut().filter(|_| steps.is_empty());
    for repeat in points.chain(&mut run.noise_floor).flat_map(|point| &mut point.repeats) {
        repeat.histograms = read_histograms(&hdr_path(dir, repeat)?)?;
    }
    if !steps.is_empty() {
        run.points = Points::new(steps).all().to_vec();
        tierlab_analysis::conclude(&mut run);
    }
    Ok(run)
}

fn write_csv(path: &Path, text: Result<Vec<u8>, csv::Error>) -> Result<(), StoreError> {
    write_atomically(path, &text.map_err(StoreError::format(path))?)
}

/// Writes `run.json`.
fn write_run(run: &Run, dir: &Path) -> Result<(), StoreError> {
    let path = dir.join(RUN);
    let mut text = serde_json::to_vec_pretty(run).map_err(StoreError::format(&path))?;
    text.push(b'\n');
    write_atomically(&path, &text)
}

/// Reads `run.json`. The schema is checked first, so that a file of another schema is reported as such and not by a
/// missing key.
fn read_run(dir: &Path) -> Result<Run, StoreError> {
    #[derive(Deserialize)]
    struct Version {
        schema_version: u32,
    }
    let path = dir.join(RUN);
    let text = fs::read(&path).map_err(StoreError::io(&path))?;
    let Version { schema_version } = serde_json::from_slice(&text).map_err(StoreError::format(&path))?;
    if schema_version != SCHEMA_VERSION {
        return Err(StoreError::Schema {
            path,
            found: schema_version,
        });
    }
    serde_json::from_slice(&text).map_err(StoreError::format(&path))
}

/// Returns the folder of a new run: `OUT/NAME`, or `OUT/PLAN-TIME` without a name.
///
/// # Errors
/// A folder of that name is not empty, cannot be created, or is another run's.
pub fn new_folder(out: &Path, name: Option<&str>, plan: &Plan) -> Result<(PathBuf, Claim), RunError> {
    let stamp = rfc3339(SystemTime::now()).replace([':', '-'], "");
    let folder = out.join(name.map_or_else(|| format!("{}-{stamp}", plan.name), ToOwned::to_owned));
    std::fs::create_dir_all(&folder).map_err(|error| {
        let problem = format!("cannot create the result's folder: {error}; pass another parent folder by --out");
        RunError::about(&folder, problem)
    })?;
    let claim = claim(&folder, "--name")?;
    // Checked once nobody else can claim it: a run begins to write seconds after it has its folder.
    let is_taken = std::fs::read_dir(&folder).is_ok_and(|mut entries| entries.next().is_some());
    if is_taken {
        let problem = "folder has a result; choose another --name, remove it, or resume it by --resume";
        return Err(RunError::about(&folder, problem));
    }
    Ok((folder, claim))
}

/// Exclusive use of a folder by one process, until this is dropped or the process ends.
#[derive(Debug)]
pub struct Claim(
    // Unlocked when closed; `None` if the folder does not exist, or its file system has no locks.
    #[expect(dead_code, reason = "it is held")] Option<File>,
);

/// Claims a folder, which `option` names, for this process alone.
///
/// # Errors
/// Another process has it.
pub fn claim(folder: &Path, option: &str) -> Result<Claim, RunError> {
    let Ok(file) = File::open(folder) else {
        return Ok(Claim(None));
    };
    match file.try_lock() {
        Ok(()) => Ok(Claim(Some(file))),
        Err(TryLockError::Error(_)) => Ok(Claim(None)),
        Err(TryLockError::WouldBlock) => {
            let problem = format!("another run is being written there; choose another {option}, or wait for its end");
            Err(RunError::about(folder, problem))
        }
    }
}

/// Returns the SHA-256 of files, by path.
///
/// # Errors
/// A file that cannot be read.
pub fn sha256(files: &[PathBuf]) -> Result<BTreeMap<String, String>, RunError> {
    let hash = |file: &PathBuf| Ok((file.display().to_string(), sha256_of(file)?));
    files.iter().map(hash).collect()
}

/// Returns the SHA-256 of a file, read in pieces; of a feature table its header, which has the checksums of its blocks.
///
/// # Errors
/// A file that cannot be read.
pub fn sha256_of(file: &Path) -> Result<String, RunError> {
    let opened = File::open(file).map_err(RunError::io(file))?;
    let (mut opened, mut hash) = (BufReader::with_capacity(1 << 20, opened), Sha256::new());
    let most = header_len(opened.fill_buf().map_err(RunError::io(file))?).unwrap_or(u64::MAX);
    let mut opened = opened.take(most);
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
        let claim = |folder: &Path| claim(folder, "--work");
        let first = claim(folder.path()).unwrap();
        let error = claim(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("another run") && error.contains("another --work"),
            "{error}"
        );
        drop(first);
        claim(folder.path()).unwrap();
        // A missing folder is reported elsewhere.
        assert!(claim(&folder.path().join("none")).is_ok());
    }
}
