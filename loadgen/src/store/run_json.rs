//! `run.json`: the whole run but its histograms.
//!
//! In: a [`Run`], or a folder. Out: the file, written whole or not at all, or the run read back. Knows nothing of the
//! other files of the folder.

use super::ReportError;
use crate::record::{Run, SCHEMA_VERSION};
use serde::Deserialize;
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// Its name in the run's folder.
pub(crate) const FILE: &str = "run.json";

/// Writes a file so that a reader, or a crash, sees the old text or the new one and nothing between.
pub(crate) fn write_atomically(path: &Path, text: &[u8]) -> Result<(), ReportError> {
    let error = |source| ReportError::Io {
        path: path.to_owned(),
        source,
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    let mut file = fs::File::create(&part).map_err(error)?;
    file.write_all(text).and_then(|()| file.sync_all()).map_err(error)?;
    drop(file);
    fs::rename(&part, path).map_err(error)
}

/// Writes `run.json`.
pub(crate) fn write(run: &Run, dir: &Path) -> Result<(), ReportError> {
    let path = dir.join(FILE);
    let mut text = serde_json::to_vec_pretty(run).map_err(|source| ReportError::Json {
        path: path.clone(),
        source,
    })?;
    text.push(b'\n');
    write_atomically(&path, &text)
}

/// Reads `run.json`. The schema is looked at first, so that a file of another one is named as such and not by whatever
/// key is missing.
pub(crate) fn read(dir: &Path) -> Result<Run, ReportError> {
    #[derive(Deserialize)]
    struct Version {
        schema_version: u32,
    }
    let path = dir.join(FILE);
    let text = fs::read(&path).map_err(|source| ReportError::Io {
        path: path.clone(),
        source,
    })?;
    let json = |source| ReportError::Json {
        path: path.clone(),
        source,
    };
    let Version { schema_version } = serde_json::from_slice(&text).map_err(json)?;
    if schema_version != SCHEMA_VERSION {
        return Err(ReportError::Schema {
            path,
            found: schema_version,
        });
    }
    serde_json::from_slice(&text).map_err(json)
}
