//! `run.json`: the whole run except its histograms.
//!
//! In: a [`Run`], or a folder. Out: the file, written atomically, or the run read back. Knows nothing of the other
//! files of the folder.

use super::atomic::write_atomically;
use super::error::StoreError;
use serde::Deserialize;
use std::fs;
use std::path::Path;
use tierlab_analysis::record::{Run, SCHEMA_VERSION};

/// File name in the run's folder.
pub(crate) const FILE: &str = "run.json";

/// Writes `run.json`.
pub(crate) fn write(run: &Run, dir: &Path) -> Result<(), StoreError> {
    let path = dir.join(FILE);
    let mut text = serde_json::to_vec_pretty(run).map_err(|source| StoreError::Json {
        path: path.clone(),
        source,
    })?;
    text.push(b'\n');
    write_atomically(&path, &text)
}

/// Reads `run.json`. The schema is checked first, so that a file of another schema is reported as such and not by a
/// missing key.
pub(crate) fn read(dir: &Path) -> Result<Run, StoreError> {
    #[derive(Deserialize)]
    struct Version {
        schema_version: u32,
    }
    let path = dir.join(FILE);
    let text = fs::read(&path).map_err(|source| StoreError::Io {
        path: path.clone(),
        source,
    })?;
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
