//! Folder of a run: written during the run, and read back.
//!
//! In: a [`Run`] whose points are summarised. Out: `run.json`, `hdr/*.hdr`, and the files derived from the run alone:
//! `summary.csv`, `answer.json`, `cold_starts.csv`, `report.md`, `report.html`. Must not measure.

use super::atomic::write_atomically;
use super::error::StoreError;
use super::histograms::{hdr_path, read_histograms, write_histograms};
use super::journal::{self, Points};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use tierlab_analysis::record::{Point, Run, SCHEMA_VERSION};

/// The whole run except its histograms.
const RUN: &str = "run.json";
const CSV: &str = "summary.csv";
const ANSWER: &str = "answer.json";
const COLD_STARTS: &str = "cold_starts.csv";
const HTML: &str = "report.html";
const MARKDOWN: &str = "report.md";

/// Writes a result folder: the histograms and `run.json` first, because everything else is derived from them.
///
/// # Errors
/// A file cannot be written, or two repeats name the same histogram file.
pub fn write(run: &Run, dir: &Path) -> Result<(), StoreError> {
    fs::create_dir_all(dir).map_err(StoreError::io(dir))?;
    let mut names = BTreeSet::new();
    for repeat in points(run).flat_map(|point| &point.repeats) {
        if !names.insert(&repeat.hdr_file) {
            return Err(StoreError::HdrFile(repeat.hdr_file.clone()));
        }
        write_histograms(dir, repeat)?;
    }
    write_anew(run, dir)
}

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
pub fn write_anew(run: &Run, dir: &Path) -> Result<(), StoreError> {
    write_run(run, dir)?;
    write_views(run, dir)
}

/// Writes the files derived from the run alone: `summary.csv`, `report.md` and `report.html`, and `answer.json` if the
/// run has a question.
///
/// # Errors
/// A file cannot be written.
pub fn write_views(run: &Run, dir: &Path) -> Result<(), StoreError> {
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
    let steps = if run.interrupted {
        journal::read(dir)?
    } else {
        Vec::new()
    };
    let journaled = !steps.is_empty();
    if journaled {
        run.points.clear();
    }
    let points = run.points.iter_mut().chain(&mut run.noise_floor);
    for repeat in points.flat_map(|point| &mut point.repeats) {
        repeat.histograms = read_histograms(&hdr_path(dir, repeat)?)?;
    }
    if journaled {
        run.points = Points::of(steps).all().to_vec();
        tierlab_analysis::conclude(&mut run);
    }
    Ok(run)
}

fn points(run: &Run) -> impl Iterator<Item = &Point> {
    run.points.iter().chain(&run.noise_floor)
}

fn write_csv(path: &Path, text: Result<Vec<u8>, csv::Error>) -> Result<(), StoreError> {
    let text = text.map_err(|source| StoreError::Csv {
        path: path.to_owned(),
        source,
    })?;
    write_atomically(path, &text)
}

/// Writes `run.json`.
fn write_run(run: &Run, dir: &Path) -> Result<(), StoreError> {
    let path = dir.join(RUN);
    let mut text = serde_json::to_vec_pretty(run).map_err(|source| StoreError::Json {
        path: path.clone(),
        source,
    })?;
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
    let json = |source| StoreError::Json {
        path: path.clone(),
        source,
    };
    let Version { schema_version } = serde_json::from_slice(&text).map_err(json)?;
    if schema_version != SCHEMA_VERSION {
        return Err(StoreError::Schema {
            path,
            found: schema_version,
        });
    }
    serde_json::from_slice(&text).map_err(json)
}
