//! Histograms of a repeat in a run's folder.

use super::atomic::write_atomically;
use super::error::StoreError;
use super::hdr_log;
use std::fs;
use std::path::{Path, PathBuf};
use tierlab_analysis::record::{Factors, Histograms, Repeat};

/// Returns the name of the file of a repeat's histograms, relative to the run's folder, for [`Repeat::hdr_file`].
#[must_use]
pub fn hdr_file(factors: &Factors, repeat: u32) -> String {
    hdr_log::file_name(factors, repeat)
}

/// Returns the name for a repeat after earlier unanswered attempts; each attempt has a file of its own.
#[must_use]
pub fn hdr_file_of(factors: &Factors, repeat: u32, attempt: u32) -> String {
    let name = hdr_log::file_name(factors, repeat);
    match (attempt, name.strip_suffix(".hdr")) {
        (0, _) | (_, None) => name,
        (attempt, Some(stem)) => format!("{stem}_again{attempt}.hdr"),
    }
}

/// Returns the path of a repeat's histograms. A run may come from anywhere, so its paths must stay inside its folder.
pub(super) fn hdr_path(dir: &Path, repeat: &Repeat) -> Result<PathBuf, StoreError> {
    let name = Path::new(&repeat.hdr_file);
    let plain = name
        .components()
        .all(|part| matches!(part, std::path::Component::Normal(_)));
    if !plain || repeat.hdr_file.is_empty() {
        return Err(StoreError::HdrFile(repeat.hdr_file.clone()));
    }
    Ok(dir.join(name))
}

/// Writes the histograms of a repeat.
pub(super) fn write_histograms(dir: &Path, repeat: &Repeat) -> Result<(), StoreError> {
    let path = hdr_path(dir, repeat)?;
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(StoreError::io(parent))?;
    }
    let text = hdr_log::write(&repeat.histograms, &repeat.started_at).map_err(|what| StoreError::Entry {
        path: path.clone(),
        entry: 0,
        what,
    })?;
    write_atomically(&path, &text)
}

/// Reads the histograms of a repeat back.
pub(super) fn read_histograms(path: &Path) -> Result<Histograms, StoreError> {
    let text = fs::read(path).map_err(StoreError::io(path))?;
    hdr_log::read(path, &text)
}
